"""Where embeddings go: an .npy file or JSON lines, written row by row."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

import numpy as np
import numpy.typing as npt

from rose.cli.failure import UsageError
from rose.cli.terminal import json_line
from rose.cli.texts import Text

# The header of an .npy file is written twice, first without the number of rows: it needs one
# size, which the format wants to be a multiple of 64.
_NPY_HEADER_BYTES = 128


class VectorWriter(Protocol):
    """Takes rows in order; None is one that failed. Closing without error keeps the file."""

    def write(self, text: Text, row: npt.NDArray[Any] | None, error: str | None) -> None:
        """The next row."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def open_writer(output: str) -> VectorWriter:
    """A writer by the name's ending; `-` is JSON lines on stdout.

    Raises:
        UsageError: Another ending, or the file cannot be made.
    """
    if output == "-":
        return JsonLinesWriter(None)
    path = Path(output)
    if path.suffix == ".npy":
        return NpyWriter(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return JsonLinesWriter(path)
    raise UsageError(f"--output: must end in .npy or .jsonl, or be `-`, is {output}")


class _Part:
    """A file that takes its name only when it is whole; of one that failed nothing stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        if path.is_dir():  # known now, not when all is embedded
            raise UsageError(f"--output: {path}: is a directory")
        try:
            self._file = self._part.open("wb")
        except OSError as error:
            raise self._failure(error) from None

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failure(error) from None

    def finish(self, keep: bool, header: bytes = b"") -> None:
        """Ends the file; `header` replaces its first bytes."""
        try:
            if keep:
                if header:
                    self._file.seek(0)
                    self._file.write(header)
                self._file.close()
                os.replace(self._part, self._path)
        except OSError as error:
            raise self._failure(error) from None
        finally:
            with suppress(OSError):  # a full disk cannot take what is still in the buffer
                self._file.close()
            self._part.unlink(missing_ok=True)

    def _failure(self, error: OSError) -> UsageError:
        return UsageError(f"--output: {self._path}: {error.strerror}")


class NpyWriter:
    """`[texts, dimensions]`; zeros where a text failed."""

    def __init__(self, path: Path) -> None:
        self._part = _Part(path)
        self._part.write(bytes(_NPY_HEADER_BYTES))
        self._rows = 0
        self._first: npt.NDArray[Any] | None = None
        self._failed_before_first = 0

    def write(self, text: Text, row: npt.NDArray[Any] | None, error: str | None) -> None:
        """The next row."""
        self._rows += 1
        if row is None:
            if self._first is None:
                self._failed_before_first += 1
                return
            row = np.zeros_like(self._first)
        elif self._first is None:
            self._first = row
            self._part.write(bytes(row.nbytes * self._failed_before_first))
        self._part.write(row.tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._part.finish(keep=exc_type is None, header=self._header())

    def _header(self) -> bytes:
        first = self._first if self._first is not None else np.zeros(0, dtype=np.float32)
        shape = (self._rows, first.shape[0])
        description = {"descr": first.dtype.str, "fortran_order": False, "shape": shape}
        magic = b"\x93NUMPY\x01\x00" + (_NPY_HEADER_BYTES - 10).to_bytes(2, "little")
        return magic + repr(description).encode().ljust(_NPY_HEADER_BYTES - 11) + b"\n"


class JsonLinesWriter:
    """One object a text: `index`, `id` where the text has one, `embedding` or `error`."""

    def __init__(self, path: Path | None) -> None:
        self._part = _Part(path) if path else None
        self._stdout: TextIO = sys.stdout
        self._index = 0

    def write(self, text: Text, row: npt.NDArray[Any] | None, error: str | None) -> None:
        """The next row."""
        record: dict[str, Any] = {"index": self._index}
        self._index += 1
        if text.id is not None:
            record["id"] = text.id
        if row is None:
            record["error"] = error
        else:
            record["embedding"] = row.tolist()
        if self._part:
            line = json.dumps(record, ensure_ascii=False) + "\n"
            self._part.write(line.encode("utf-8", "backslashreplace"))
        else:
            self._stdout.write(json_line(record) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._part:
            self._part.finish(keep=exc_type is None)
        else:
            self._stdout.flush()
