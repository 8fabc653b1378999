"""Tables of what the GPU tests measured, from the JUnit file of their run.

    pytest tests/rose/gpu --junitxml=gpu.xml
    python benches/gpu_parity.py gpu.xml --json benches/results/gpu_parity.json --into docs/models.md

Of vectors one minus the cosine is measured, of scores the difference; the tests' own words for a
family are the lines of the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

KINDS = ("vector", "score", "sparse", "tokens")
COMPANY = ("batched", "padded", "captured", "replayed")
BEGIN, END = "<!-- gpu parity: made by benches/gpu_parity.py -->", "<!-- end of gpu parity -->"


def read(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """For each family what its passed tests recorded, by name.

    A test that is in several files counts as in the last of them.
    """
    families: dict[str, dict[str, Any]] = {}
    cases = {
        (case.get("classname"), case.get("name")): case
        for path in paths
        for case in ElementTree.parse(path).iter("testcase")
    }
    for case in cases.values():
        properties = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        family = properties.pop("family", None)
        if family is None:
            continue
        if case.find("failure") is not None or case.find("error") is not None:
            raise SystemExit(f"{case.get('name')} failed: a table of a failed run would mislead")
        found = families.setdefault(family, {})
        for name, value in properties.items():
            kind, _, dtype = name.partition("_")
            if kind in KINDS:
                found["kind"], name = kind, dtype
            found[name] = float(value)
    return dict(sorted(families.items()))


def table(families: dict[str, dict[str, Any]]) -> str:
    """Markdown; a figure that was not measured is empty."""
    lines = [
        "| family | measure | bfloat16 | float16 | float32 | batched | padded | captured | replayed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in families.items():
        is_score = found.get("kind") == "score"
        cells = [name, "score, largest difference" if is_score else "vectors, smallest cosine"]
        for dtype in ("bfloat16", "float16"):
            value = found.get(dtype)
            cells.append("" if value is None else _figure(value) if is_score else _cosine(value))
        cells += [_figure(found.get(column)) for column in ("float32", *COMPANY)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cosine(difference: float) -> str:
    return f"{1 - difference:.6f}"


def _figure(value: float | None) -> str:
    return "" if value is None else "0" if value <= 0 else f"{value:.1e}"


def insert(document: Path, markdown: str) -> None:
    """Replaces what is between the two marks."""
    text = document.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{document}: the marks {BEGIN} and {END} are missing")
    document.write_text(f"{before}{BEGIN}\n\n{markdown}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("junit", type=Path, nargs="+")
    parser.add_argument("--device", default="", help="what the run was on, for the JSON")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--into", type=Path, help="a document with the two marks")
    options = parser.parse_args()
    families = read(options.junit)
    if not families:
        sys.exit(
            f"{', '.join(map(str, options.junit))}: no test recorded a family; was there a device?"
        )
    markdown = table(families)
    if options.json:
        values = {"device": options.device, "families": families}
        options.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    if options.into:
        insert(options.into, markdown)
    else:
        print(markdown)


if __name__ == "__main__":
    main()
