"""A chat template that knows the roles `query` and `document`, as a template of pairs."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any, NoReturn

from rose.checkpoint.json_object import JsonObject
from rose.config import Templates
from rose.errors import ModelLoadError

logger = logging.getLogger(__name__)

_FILE = "chat_template.jinja"
_QUERY, _DOCUMENT, _INSTRUCTION = "{query}", "{document}", "{instruction}"


def read_pair_template(
    transformer: Path, tokenizer_config: JsonObject, options: JsonObject, instruction: str | None
) -> Templates | None:
    """The template of pairs that a cross-encoder's chat template makes.

    It is rendered with the places as texts, as sentence-transformers renders it with texts: one
    message of the role `query`, one of `document`, an instruction as the system's message.

    Args:
        transformer: Directory of the tokenizer.
        tokenizer_config: `tokenizer_config.json`, where older checkpoints have the template.
        options: The transformer module's own options, which may hold arguments for the template.
        instruction: The model's default prompt, if it names one.

    Returns:
        None where there is no chat template, or it has no such roles.

    Raises:
        ModelLoadError: the template cannot be rendered.
    """
    source = _source(transformer, tokenizer_config)
    if source is None or "query" not in source or "document" not in source:
        return None
    arguments = options.child("processing_kwargs").child("chat_template").values
    tokens = {
        name: value
        for name, value in tokenizer_config.values.items()
        if name.endswith("_token") and isinstance(value, str)
    }
    structured = any(f"content{mark}" in source for mark in ("[0]", " is iterable", " is string"))
    without = _render(source, structured, {**tokens, **arguments}, None)
    if _QUERY not in without or _DOCUMENT not in without:
        return None
    instructed = _render(source, structured, {**tokens, **arguments}, _INSTRUCTION)
    if _INSTRUCTION not in instructed or _QUERY not in instructed:
        return Templates(pair=without)
    default = instruction or _difference(without, instructed)
    if default is not None:
        return Templates(pair=instructed, default_instruction=default)
    optional = _with_optional_part(without, instructed)
    if optional is None:
        logger.warning(
            "the chat template changes more than one part where there is an instruction: requests "
            "with one are refused"
        )
        return Templates(pair=without)
    return Templates(pair=optional)


def _source(transformer: Path, tokenizer_config: JsonObject) -> str | None:
    path = transformer / _FILE
    if path.is_file():
        return path.read_text(encoding="utf-8")
    found = tokenizer_config.values.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found}
        found = named.get("reranker") or named.get("default")
    return found if isinstance(found, str) else None


def _render(source: str, structured: bool, arguments: dict[str, Any], system: str | None) -> str:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    roles = [("system", system)] if system is not None else []
    roles += [("query", _QUERY), ("document", _DOCUMENT)]
    messages = [
        {"role": role, "content": [{"type": "text", "text": text}] if structured else text}
        for role, text in roles
    ]
    # As transformers sets it up: these decide which white space stays.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(source).render(messages=messages, **arguments)
    except TemplateError as error:
        raise ModelLoadError(f"chat template: {error}") from error


def _with_optional_part(without: str, instructed: str) -> str | None:
    """One template for both, if `instructed` is `without` and one part more."""
    pairs = zip(without, instructed, strict=False)
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    # A place that begins where they differ is not cut.
    begin = len("".join(one for one, _ in alike).rstrip("{"))
    end = len(instructed) - (len(without) - begin)
    part = instructed[begin:end]
    if instructed[end:] != without[begin:] or _INSTRUCTION not in part or _QUERY in part:
        return None
    return f"{without[:begin]}{{if instruction}}{part}{{end}}{without[begin:]}"


def _difference(without: str, instructed: str) -> str | None:
    """What stands in `without` where `instructed` has its instruction; None if they differ more."""
    before, _, after = instructed.partition(_INSTRUCTION)
    length = len(without) - len(before) - len(after)
    if length >= 0 and without.startswith(before) and without.endswith(after):
        return without[len(before) : len(before) + length]
    return None
