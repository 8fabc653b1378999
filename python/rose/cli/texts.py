"""Texts from a file or stdin: plain lines or JSONL."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

from rose.cli.failure import UsageError

TextFormat = Literal["auto", "lines", "jsonl"]
_JSONL_SUFFIXES = {".jsonl", ".ndjson"}


@dataclass(frozen=True)
class Text:
    """A text, the line that it came from (from 1), and its id, where the line has one."""

    line: int
    text: str
    id: str | int | None = None


@contextmanager
def open_source(file: str) -> Iterator[BinaryIO]:
    """The file, or stdin for `-`.

    Raises:
        UsageError: It cannot be opened.
    """
    if file == "-" and sys.stdin is None:
        raise UsageError("-: stdin is closed")
    try:
        # Not `sys.stdin.buffer`: the interpreter's exit wants its lock, and another thread may
        # read it. For the same reason a source is closed only once it has been read.
        source = open(0, "rb", closefd=False) if file == "-" else Path(file).open("rb")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    yield source
    source.close()


def read_texts(source: BinaryIO, file: str, text_format: TextFormat) -> Iterator[Text]:
    """The texts of a file, one for each line, read as they are asked for.

    `auto` is JSONL when the name says so, or when the first line is a JSON object or string.

    Raises:
        UsageError: A line cannot be read; the text names file and line.
    """
    lines = iter(source)
    if text_format == "auto":
        first = next(lines, None)
        if first is None:
            return
        lines = chain([first], lines)
        is_jsonl = Path(file).suffix in _JSONL_SUFFIXES or _is_json_text(first)
    else:
        is_jsonl = text_format == "jsonl"
    for number, raw in enumerate(lines, start=1):
        line = _decode(raw, file, number)
        if not is_jsonl:
            yield Text(number, line)
        elif line.strip():
            yield _parse(line, file, number)


def _decode(raw: bytes, file: str, number: int) -> str:
    try:
        line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: line {number}: not UTF-8 at byte {error.start}") from None
    return line.removesuffix("\n").removesuffix("\r")


def _is_json_text(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw.decode("utf-8-sig")), dict | str)
    except (ValueError, RecursionError):
        return False


def _parse(line: str, file: str, number: int) -> Text:
    place = f"{file}: line {number}"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: not JSON: {error}") from None
    if isinstance(value, str):
        return Text(number, _without_surrogates(value))
    if not isinstance(value, dict):
        raise UsageError(f"{place}: must be a string or an object with `text`")
    text, identity = value.get("text"), value.get("id")
    if not isinstance(text, str):
        raise UsageError(f"{place}: `text` must be a string, is {type(text).__name__}")
    if isinstance(identity, bool) or not isinstance(identity, str | int | None):
        raise UsageError(f"{place}: `id` must be a string or a number")
    if isinstance(identity, str):
        identity = _without_surrogates(identity)
    return Text(number, _without_surrogates(text), identity)


def _without_surrogates(text: str) -> str:
    """JSON can spell half a surrogate pair, which has no UTF-8: it becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
