"""A ranking as a person reads it."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

from rose.cli.terminal import one_line

MIN_TEXT_WIDTH = 20
# Wide enough for a pipe into a pager or a log.
PIPED_WIDTH = 120


def ranking_table(rows: Iterable[tuple[float, str, str]]) -> list[str]:
    """Lines of a table: rank, score, name, text cut to the terminal.

    Args:
        rows: Score, id or index, and text of each place, best first.
    """
    rows = [(score, one_line(name), text) for score, name, text in rows]
    name_width = max([len("document"), *(len(name) for _, name, _ in rows)])
    name_width = min(name_width, 40)
    columns = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns if _is_terminal() else PIPED_WIDTH
    text_width = max(MIN_TEXT_WIDTH, columns - name_width - 21)
    lines = [f"{'rank':>4}  {'score':>9}  {'document':<{name_width}}  text"]
    for rank, (score, name, text) in enumerate(rows, start=1):
        cells: Sequence[str] = (
            f"{rank:>4}",
            f"{score:>9.5f}",
            f"{name[:name_width]:<{name_width}}",
            _cut(text, text_width),
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _cut(text: str, width: int) -> str:
    """One line of at most `width` columns."""
    line = one_line(text)
    used = 0
    kept: list[str] = []
    for character in line:
        columns = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used + columns > width:
            while kept and used > width - 1:
                used -= 2 if unicodedata.east_asian_width(kept.pop()) in "WF" else 1
            return "".join(kept) + "…"
        used += columns
        kept.append(character)
    return line
