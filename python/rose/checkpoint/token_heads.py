"""The two small heads of bge-m3: a vector and a weight for each token."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from rose.errors import ModelLoadError
from rose.layers.linear import Linear

TOKEN_VECTORS_FILE = "colbert_linear.pt"
TOKEN_WEIGHTS_FILE = "sparse_linear.pt"
# Tokens without a weight, as the reference leaves them out.
_SPECIAL_NAMES = ("cls_token", "eos_token", "sep_token", "pad_token", "unk_token", "bos_token")


def read_token_head(
    directory: Path, name: str, hidden_size: int, device: torch.device
) -> Linear | None:
    """The linear layer in a file, float32 on the device; None where there is no such file.

    These files are pickles. torch's reader for weights alone runs no code of theirs.

    Raises:
        ModelLoadError: the file cannot be read, or its tensors have other shapes.
    """
    path = directory / name
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelLoadError(f"{name} cannot be read: {error}") from error
    weight = state.get("weight") if isinstance(state, dict) else None
    bias = state.get("bias") if isinstance(state, dict) else None
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or weight.shape[1] != hidden_size:
        raise ModelLoadError(f"{name}: a weight of [outputs, {hidden_size}] is expected")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ModelLoadError(f"{name}: a bias of [{weight.shape[0]}] is expected")
    weight = weight.float().to(device)
    return Linear(weight, None if bias is None else bias.float().to(device))


def token_head_files(directory: Path) -> list[Path]:
    """The files of heads that are there."""
    paths = (directory / name for name in (TOKEN_VECTORS_FILE, TOKEN_WEIGHTS_FILE))
    return [path for path in paths if path.is_file()]


def special_token_ids(directory: Path, tokenizer_json: bytes) -> tuple[int, ...]:
    """Ids of the tokens that `tokenizer_config.json` names as special."""
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    names = set()
    for name in _SPECIAL_NAMES:
        value = config.get(name)
        names.add(value.get("content") if isinstance(value, dict) else value)
    added = json.loads(tokenizer_json).get("added_tokens", [])
    return tuple(sorted(entry["id"] for entry in added if entry["content"] in names))
