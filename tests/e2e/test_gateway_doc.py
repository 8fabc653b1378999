"""The commands in docs/gateway.md do what is written there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "gateway.md"
EXAMPLE = re.compile(r"```console\n\$ (curl .+)\n((?:.*\n)*?)```")
NUMBER = re.compile(r"-?\d+\.\d+(e-?\d+)?")


@dataclass
class Example:
    command: str
    answer: str

    def __str__(self) -> str:
        found = re.search(r"localhost:8080(\S+)", self.command)
        return found.group(1) if found else self.command


EXAMPLES = [Example(*match.groups()) for match in EXAMPLE.finditer(DOCUMENT.read_text())]


@pytest.fixture(scope="module")
def address(serve: Any) -> Iterator[str]:
    with serve("demo", "--http-address", "127.0.0.1:0") as server:
        yield server.http.removeprefix("http://")


def rounded(value: Any) -> Any:
    """Floats to two digits, as they differ a little between processors; ids and times not at all."""
    match value:
        case dict():
            volatile = {"id", "created", "uptime_seconds", "version", "server_version"}
            return {name: rounded(part) for name, part in value.items() if name not in volatile}
        case list():
            return [rounded(part) for part in value]
        case float():
            return round(value, 2)
        case _:
            return value


def shape(value: Any) -> Any:
    """Names and types only, of a status, whose numbers are another every time."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value) if isinstance(value, str | bool) else float


def ask(example: Example, address: str) -> str:
    command = example.command.replace("localhost:8080", address)
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_example(example: Example, address: str) -> None:
    if "/status" in example.command:
        # As in the document: after some work, so that there are latencies.
        ask(EXAMPLES[0], address)
    printed = ask(example, address)
    try:
        written = json.loads(example.answer)
    except ValueError:
        # Cut off by the command: what is not a number is the same.
        assert NUMBER.sub("0", printed)[:40] == NUMBER.sub("0", example.answer)[:40]
        return
    answered = json.loads(printed)
    if "/status" in example.command:
        assert shape(answered) == shape(written)
    else:
        assert rounded(answered) == rounded(written)


def test_every_dialect_has_an_example() -> None:
    paths = {str(example) for example in EXAMPLES}
    assert {"/v1/embeddings", "/v2/rerank", "/v1/rerank", "/rerank", "/v1/score"} <= paths
