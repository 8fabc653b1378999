"""`rose info`: what a server serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rose.cli.address import DEFAULT_ADDRESS, Address, Timeout
from rose.cli.terminal import json_line, one_line


def info(
    address: Address = DEFAULT_ADDRESS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    timeout: Timeout = 10.0,
) -> None:
    """Tells what a server serves: model, task, limits, template."""
    from dataclasses import asdict

    from rose.client import Client

    with Client(address, timeout=timeout) as client:
        model = asdict(client.get_model())
    del model["tokenizer_json"]
    if as_json:
        print(json_line(model))
        return
    rows = list(_rows(model))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {one_line(value)}")


def _rows(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name and value of what is set, nested names joined by points."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _rows(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield f"{prefix}{name}", "yes" if value else "no"
        elif isinstance(value, list | tuple):
            if value:
                yield f"{prefix}{name}", ", ".join(str(item) for item in value)
        elif value not in ("", 0):
            # A template's line breaks would break the table.
            yield f"{prefix}{name}", repr(value) if "\n" in str(value) else str(value)
