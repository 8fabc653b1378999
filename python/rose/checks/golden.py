"""Scores that a model is known to give, in a file with or beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError

GOLDEN_FILE = "rose_golden.json"
_VERSION = 1
# Enough to tell poolings and normalizations apart; whole vectors would be megabytes.
HEAD_VALUES = 32


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A query and the score of each document, as Score answers them."""

    query: str
    documents: tuple[str, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GoldenText:
    """A text without a prompt, the first values of its vector, and the vector's length."""

    text: str
    head: tuple[float, ...]
    norm: float


@dataclass(frozen=True, slots=True)
class Golden:
    """What the reference gave."""

    reference: str
    """Such as `sentence-transformers 6.2.0`."""
    queries: tuple[GoldenQuery, ...]
    texts: tuple[GoldenText, ...] = ()

    def write(self, path: Path) -> None:
        """Writes the file."""
        text = json.dumps({"version": _VERSION, **asdict(self)}, ensure_ascii=False, indent=1)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Golden:
        """Reads a file.

        Raises:
            ModelLoadError: it is not such a file; names the field.
        """
        file = JsonObject.read(path)
        version = file.integer("version")
        if version != _VERSION:
            raise file.wrong("version", str(_VERSION), version)
        queries = tuple(_query(one) for one in _objects(file, "queries"))
        texts = tuple(_text(one) for one in _objects(file, "texts"))
        return cls(file.string("reference"), queries, texts)


def find_golden(directory: Path) -> Path | None:
    """The golden file in a model directory, or beside it as `<directory>.golden.json`."""
    resolved = directory.resolve()
    beside = resolved.parent / f"{resolved.name}.golden.json"
    return next((path for path in (directory / GOLDEN_FILE, beside) if path.is_file()), None)


def _objects(file: JsonObject, name: str) -> list[JsonObject]:
    entries = file.array(name, [])
    labels = (f"{file.label}: {name}[{index}]" for index in range(len(entries)))
    if not all(isinstance(entry, dict) for entry in entries):
        raise file.wrong(name, "an array of objects", entries)
    return [JsonObject(label, entry) for label, entry in zip(labels, entries, strict=True)]


def _query(one: JsonObject) -> GoldenQuery:
    documents, scores = one.array("documents"), one.array("scores")
    if not all(isinstance(text, str) for text in documents):
        raise one.wrong("documents", "an array of strings", documents)
    if len(scores) != len(documents):
        raise ModelLoadError(
            f"{one.label}: {len(scores)} scores for {len(documents)} documents; one each is expected"
        )
    return GoldenQuery(one.string("query"), tuple(documents), _numbers(one, "scores"))


def _text(one: JsonObject) -> GoldenText:
    return GoldenText(one.string("text"), _numbers(one, "head"), one.number("norm"))


def _numbers(one: JsonObject, name: str) -> tuple[float, ...]:
    values: list[Any] = one.array(name)
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        raise one.wrong(name, "an array of numbers", values)
    return tuple(float(value) for value in values)
