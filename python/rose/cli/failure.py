"""How a command says that it failed."""

from __future__ import annotations

import sys

from rose.errors import RoseError

EXIT_REFUSED = 1
EXIT_USAGE = 2


class UsageError(RoseError):
    """The command cannot be run as it was typed."""


def fail(message: str, status: int) -> int:
    """Writes one line to stderr and returns the exit status."""
    line = " ".join(message.split())
    print(f"rose: error: {line}", file=sys.stderr)
    return status


def warn(message: str) -> None:
    """Writes one line to stderr."""
    print(f"rose: {' '.join(message.split())}", file=sys.stderr)
