"""The fingerprint changes with everything that changes answers, and with nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rose.checkpoint import fingerprint as module
from rose.checkpoint.fingerprint import fingerprint
from rose.config import EngineConfig
from rose.engine.engine import Engine


@pytest.fixture(scope="module")
def directory(make_bert: Callable[..., Path]) -> Path:
    return make_bert("fingerprint")


def of(directory: Path, config: EngineConfig) -> str:
    return Engine.load(directory, config).info.fingerprint


def test_same_files_elsewhere_are_the_same_model(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "another name")
    config = EngineConfig(device="cpu")
    assert of(tmp_path / "another name", config) == of(directory, config)
    assert len(of(directory, config)) == 32


def test_changes_with_what_changes_answers(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    seen = {of(directory, EngineConfig(device="cpu"))}
    for config in (
        EngineConfig(device="cpu", dtype="bfloat16"),
        EngineConfig(device="cpu", pooling="cls"),
        EngineConfig(device="cpu", normalize=True),
        EngineConfig(device="cpu", max_length=100),
    ):
        seen.add(of(directory, config))
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    seen.add(of(copy, EngineConfig(device="cpu")))
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + " ")
    seen.add(of(copy, EngineConfig(device="cpu")))
    config = copy / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"truncation_side": "left"}))
    seen.add(of(copy, EngineConfig(device="cpu")))
    assert len(seen) == 8


def test_large_files_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WHOLE_BYTES", 1000)
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 10)
    file = tmp_path / "model.safetensors"
    data = bytearray(5000)
    seen = set()
    for at in (None, 0, 4999):
        changed = bytearray(data)
        if at is not None:
            changed[at] = 1
        file.write_bytes(changed)
        seen.add(fingerprint([file], b""))
    assert len(seen) == 3
