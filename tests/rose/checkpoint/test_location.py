"""What is downloaded of a model on the hub, and what a directory is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects

from rose.checkpoint.location import find_model
from rose.errors import ModelLoadError

FILES = [
    "config.json",
    "model-00001-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "modules.json",
    "1_LogitScore/config.json",
    "chat_template.jinja",
    "sparse_linear.pt",
    "colbert_linear.pt",
]
OTHERS = [
    "pytorch_model.bin",
    "optimizer.pt",
    "modeling_new.py",
    "onnx/config.json",
    "README.md",
    "a.gguf",
]


def test_all_that_is_read_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def download(hub_id: str, revision: str | None, **patterns: Any) -> str:
        assert (hub_id, revision) == ("someone/model", "v1")
        for name in filter_repo_objects([*FILES, *OTHERS], **patterns):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    directory, name = find_model("someone/model", "v1")
    assert (directory, name) == (tmp_path, "someone/model")
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == set(FILES)


def test_a_hub_out_of_reach_is_one_line_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(hub_id: str, **options: object) -> str:
        raise OSError("Got: ConnectError: no route to host\nand many lines more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelLoadError) as caught:
        find_model("someone/model")
    reason = "the hub cannot be reached: ConnectError: no route to host"
    assert str(caught.value) == f"'someone/model' is not a directory here, and {reason}"


def test_a_snapshot_in_the_cache_keeps_its_name(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--mixedbread-ai--mxbai-rerank-base-v2" / "snapshots" / "0f1e2d"
    snapshot.mkdir(parents=True)
    assert find_model(snapshot) == (snapshot, "mixedbread-ai/mxbai-rerank-base-v2")
    other = tmp_path / "snapshots" / "v1"
    other.mkdir(parents=True)
    assert find_model(f"{other}/") == (other, "v1")


def test_no_name_is_not_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match="MODEL must not be empty"):
        find_model("")
