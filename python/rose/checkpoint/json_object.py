"""JSON files of a model directory, read with errors that name file, field and value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from rose.errors import ModelLoadError

T = TypeVar("T")


class JsonObject:
    """A JSON object whose fields are checked when they are read.

    Getters without a default raise `ModelLoadError` where the field is absent; JSON's null counts
    as absent.
    """

    def __init__(self, label: str, values: dict[str, Any]) -> None:
        self.label = label
        """What errors call it, such as `config.json`."""
        self.values = values

    @classmethod
    def read(cls, path: Path, root: Path | None = None) -> JsonObject:
        """The object in a file.

        Raises:
            ModelLoadError: the file is missing, is not JSON, or holds something else.
        """
        label = str(path.relative_to(root)) if root else path.name
        return cls._checked(label, read_json(path, label))

    @classmethod
    def parse(cls, label: str, text: bytes) -> JsonObject:
        """The object in a text.

        Raises:
            ModelLoadError: the text is not JSON, or holds something else.
        """
        return cls._checked(label, _parse(text, label))

    @classmethod
    def read_optional(cls, path: Path, root: Path | None = None) -> JsonObject:
        """The object in a file, or an empty one where there is no file."""
        if path.is_file():
            return cls.read(path, root)
        return cls(str(path.relative_to(root)) if root else path.name, {})

    @classmethod
    def _checked(cls, label: str, values: object) -> JsonObject:
        if not isinstance(values, dict):
            raise ModelLoadError(f"{label}: a JSON object is expected, got {type(values).__name__}")
        return cls(label, values)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        """An integer of at least `minimum`."""
        value = self._get(name, default)
        # Some writers store whole numbers as 512.0.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.wrong(name, f"an integer of at least {minimum}", value)
        return value

    def quotient(self, name: str, by: str) -> int:
        """One integer divided by another, of which it must be a multiple."""
        value, divisor = self.integer(name), self.integer(by)
        if value % divisor:
            raise ModelLoadError(
                f"{self.label}: {name} {value} is not a multiple of {by} {divisor}"
            )
        return value // divisor

    def number(self, name: str, default: float | None = None) -> float:
        """A number."""
        value = self._get(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value != value:
            raise self.wrong(name, "a number", value)  # Python's JSON knows NaN
        return float(value)

    def boolean(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        return self._typed(name, bool, "true or false", default)

    def string(self, name: str, default: str | None = None) -> str:
        """A string."""
        return self._typed(name, str, "a string", default)

    def array(self, name: str, default: list[Any] | None = None) -> list[Any]:
        """An array."""
        return self._typed(name, list, "an array", default)

    def child(self, name: str) -> JsonObject:
        """An object inside this one; an absent one is empty."""
        return JsonObject(f"{self.label}: {name}", self._typed(name, dict, "an object", {}))

    def wrong(self, name: str, expected: str, value: object) -> ModelLoadError:
        """The error for a field whose value cannot be used."""
        return ModelLoadError(f"{self.label}: field {name!r} must be {expected}, got {value!r}")

    def _typed(self, name: str, kind: type[T], expected: str, default: T | None) -> T:
        value = self._get(name, default)
        if not isinstance(value, kind):
            raise self.wrong(name, expected, value)
        return value

    def _get(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise ModelLoadError(f"{self.label}: field {name!r} is missing")
            return default
        return value


def read_json(path: Path, label: str) -> object:
    """What a JSON file holds.

    Raises:
        ModelLoadError: the file cannot be read or is not JSON.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelLoadError(f"{label} is missing from {path.parent}") from error
    except OSError as error:
        raise ModelLoadError(f"{label} cannot be read: {error.strerror}") from error
    return _parse(text, label)


def _parse(text: bytes, label: str) -> object:
    try:
        value: object = json.loads(text.decode("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelLoadError(f"{label} is not valid JSON: {error}") from error
    return value
