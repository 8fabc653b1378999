"""`rose check`: what it prints, writes and returns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rose.checks.scorer import rank_correlation
from rose.cli import app


def run(*arguments: str) -> int:
    status = app(["check", *arguments], standalone_mode=False)
    assert isinstance(status, int)
    return status


def test_a_right_model(make_bert: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "model"
    shutil.copytree(make_bert("checked", labels=1), directory)
    assert run(str(directory), "--device", "cpu", "--write-golden") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "against sentence-transformers" in lines[0]
    assert [line.split("  ")[0] for line in lines[2:4]] == ["scores", "alone = in a batch"]
    assert "verdict: ok" in lines
    assert (directory / "rose_golden.json").is_file()


def test_a_wrong_one(make_bert: Any, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_bert("wrong")
    assert run(str(directory), "--device", "cpu", "--pooling", "max", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is False
    vectors = found["measures"][0]
    assert vectors["name"] == "vectors"
    assert vectors["lowest_cosine"] < 0.99


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        ([1, 1, 2, 3], [1, 1, 5, 9], 1.0),
        ([2, 2, 2], [1, 2, 3], 1.0),
    ],
)
def test_rank_correlation(ours: list[float], theirs: list[float], expected: float) -> None:
    import numpy as np

    assert rank_correlation(np.array(ours), np.array(theirs)) == pytest.approx(expected)
