"""Options of the commands that serve, as environments give them."""

from __future__ import annotations

import pytest

from .test_cli import refused, rose


@pytest.mark.parametrize("key", ["", "  "])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("serve", ("/no/such/model", "--http-address", "127.0.0.1:0")),
        ("gateway", ("--replica", "127.0.0.1:1", "--http-address", "127.0.0.1:0")),
    ],
)
def test_an_empty_secret_does_not_open_the_door(
    command: str, arguments: tuple[str, ...], key: str
) -> None:
    variable = f"ROSE_{command.upper()}_API_KEYS"
    done = rose(command, *arguments, env={variable: key})
    refused(done, 2, f"{variable} is empty: give a key, or unset it")
