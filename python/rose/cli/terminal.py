"""What may be written to stdout and stderr, whatever the shell made of them."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from typing import Any


def prepare_streams() -> None:
    """Neither a closed stream nor a character that it cannot carry may end a command."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Takes the free descriptor too: a socket must not, or logs would be written to it.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def one_line(text: str) -> str:
    """The text on one line; control characters cannot reach the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def json_line(value: Any) -> str:  # noqa: ANN401
    """The value as JSON on one line, with escapes for what stdout's encoding has not."""
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    return json.dumps(value, ensure_ascii=not is_utf8)
