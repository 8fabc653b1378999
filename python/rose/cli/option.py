"""Options of the commands that serve: each is a variable of the environment as well."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from rose.cli.failure import UsageError

# Repeatable options: the variable holds several values, the option has one name for each.
_PLURALS = {"API_KEYS", "CORS_ORIGINS", "REPLICAS"}


def options_of(command: str) -> Callable[..., Any]:
    """How the options of `rose <command>` are made: help text, name, then as `typer.Option`.

    An option is also `ROSE_<COMMAND>_<NAME>`. The name is spelled out for each: a prefix for all of
    them would also read what Kubernetes injects for a service called rose, such as
    `ROSE_PORT=tcp://…`.
    """

    def option(help_text: str, name: str, *flags: str, **settings: Any) -> Any:  # noqa: ANN401
        variables = [f"ROSE_{command.upper()}_{name}"]
        if name in _PLURALS:
            # Who goes by the option's name must not be left without, say, a key.
            variables.append(variables[0].removesuffix("S"))
        return typer.Option(*flags, help=help_text, envvar=variables, **settings)

    return option


def listed(values: Sequence[str] | None) -> tuple[str, ...]:
    """The values of a repeatable option; one may hold several, separated by commas."""
    parts = (part.strip() for value in values or () for part in value.split(","))
    return tuple(part for part in parts if part)


def given_keys(command: str, keys: Sequence[str] | None) -> tuple[str, ...]:
    """The API keys that were given.

    An empty variable, as of a secret that is missing, is an error: without keys everybody may ask.

    Raises:
        UsageError: the variable is there and holds no key.
    """
    plural = f"ROSE_{command.upper()}_API_KEYS"
    for variable in (plural, plural.removesuffix("S")):
        value = os.environ.get(variable)
        if value is None:
            continue
        if not keys and not value.strip(" ,"):
            raise UsageError(f"{variable} is empty: give a key, or unset it to answer without keys")
        if keys and value.split() == list(keys):
            # Of a variable, where commas separate as well as spaces; an option's key is taken whole.
            return listed(keys)
    return tuple(keys or ())


def with_option_name(message: str, option_of_field: Mapping[str, str]) -> str:
    """A message that begins with a field's name, with the option's name instead."""
    name = re.match(r"\w+", message)
    option = name and option_of_field.get(name[0])
    if name is None or option is None:
        return message
    # What else is named: only names of several words can be told from words.
    rest = re.sub(
        r"\b[a-z]+(?:_[a-z]+)+\b",
        lambda field: f"--{option_of_field[field[0]]}" if field[0] in option_of_field else field[0],
        message[name.end() :],
    )
    return f"--{option}{rest}"


def option_names(fields: set[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """The option that fills each field: its own name with dashes, unless `renamed` has another."""
    return {field: renamed.get(field, field.replace("_", "-")) for field in fields}
