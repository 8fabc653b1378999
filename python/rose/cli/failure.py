"""How a command says that it failed."""

from __future__ import annotations

import sys

from rose.cli.terminal import one_line
from rose.errors import RoseError

EXIT_REFUSED = 1
EXIT_USAGE = 2


class UsageError(RoseError):
    """The command cannot be run as it was typed."""


def fail(message: str, status: int) -> int:
    """Writes one line to stderr and returns the exit status."""
    print(f"rose: error: {one_line(message)}", file=sys.stderr)
    return status


def warn(message: str) -> None:
    """Writes one line to stderr."""
    print(f"rose: {one_line(message)}", file=sys.stderr)
