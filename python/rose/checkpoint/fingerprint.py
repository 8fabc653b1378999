"""A short name for exactly this model: equal on replicas that give equal answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

# Files up to this size are hashed whole (about 0.15 s); larger ones by size, head and samples.
_WHOLE_BYTES = 256 << 20
_SAMPLE_BYTES = 1 << 20
_NUM_SAMPLES = 64


def fingerprint(weight_files: Iterable[Path], tokenizer_json: bytes, *settings: object) -> str:
    """Hexadecimal SHA-256, cut to 128 bits, of weights, tokenizer and the settings that matter.

    Of a weight file larger than 256 MiB, evenly spaced samples are hashed, first and last bytes
    included: a different training run differs everywhere.
    """
    digest = hashlib.sha256()
    for path in weight_files:
        _add_file(digest, path)
    digest.update(hashlib.sha256(tokenizer_json).digest())
    for setting in settings:
        digest.update(f"\0{setting!r}".encode())
    return digest.hexdigest()[:32]


def _add_file(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    digest.update(f"\0{path.name}\0{size}\0".encode())
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            digest.update(hashlib.file_digest(file, "sha256").digest())
            return
        for sample in range(_NUM_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * sample // (_NUM_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
