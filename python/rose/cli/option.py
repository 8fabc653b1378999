"""Options of the commands that serve: each is a variable of the environment as well."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from rose.cli.failure import UsageError


def options_of(command: str) -> Callable[..., Any]:
    """How the options of `rose <command>` are made: help text, name, then as `typer.Option`.

    An option is also `ROSE_<COMMAND>_<NAME>`. The name is spelled out for each: a prefix for all of
    them would also read what Kubernetes injects for a service called rose, such as
    `ROSE_PORT=tcp://…`.
    """

    def option(help_text: str, name: str, *flags: str, **settings: Any) -> Any:  # noqa: ANN401
        variable = f"ROSE_{command.upper()}_{name}"
        return typer.Option(*flags, help=help_text, envvar=variable, **settings)

    return option


def given_keys(command: str, keys: Sequence[str] | None) -> tuple[str, ...]:
    """The API keys that were given.

    An empty variable, as of a secret that is missing, is an error: without keys everybody may ask.

    Raises:
        UsageError: the variable is there and holds no key.
    """
    variable = f"ROSE_{command.upper()}_API_KEYS"
    if not keys and not os.environ.get(variable, "a key").strip():
        raise UsageError(f"{variable} is empty: give a key, or unset it to answer without keys")
    return tuple(keys or ())


def with_option_name(message: str, option_of_field: Mapping[str, str]) -> str:
    """A message that begins with a field's name, with the option's name instead."""
    name = re.match(r"\w+", message)
    option = name and option_of_field.get(name[0])
    return message if name is None or option is None else f"--{option}{message[name.end() :]}"


def option_names(fields: set[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """The option that fills each field: its own name with dashes, unless `renamed` has another."""
    return {field: renamed.get(field, field.replace("_", "-")) for field in fields}
