"""`add_eos_token`: an end token that a tokenizer's file leaves to its code.

The last token is what an embedding model with such pooling reads. Checkpoints like e5-mistral have
the token in their own examples and in `tokenizer_config.json`, and not in `tokenizer.json`; where it
is missing, the last word is read instead, and no score looks wrong.
"""

from __future__ import annotations

import json
from typing import Any

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError

# These put a token behind a text as they are.
_COMPLETE = {"BertProcessing", "RobertaProcessing"}


def read_end_token(tokenizer_config: JsonObject) -> str | None:
    """The token that belongs behind every text; None where the configuration asks for none.

    Raises:
        ModelLoadError: it asks for one and does not say which.
    """
    if not tokenizer_config.boolean("add_eos_token", False):
        return None
    token = tokenizer_config.values.get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    if not isinstance(token, str):
        raise tokenizer_config.wrong("eos_token", "a token, as add_eos_token is true", token)
    return token


def with_end_token(tokenizer_json: bytes, token: str) -> bytes:
    """`tokenizer.json` with `token` behind every text, unless it puts that or another one there.

    Raises:
        ModelLoadError: the tokenizer has no such token.
    """
    tokenizer = JsonObject.parse("tokenizer.json", tokenizer_json)
    steps = _steps(tokenizer.values.get("post_processor"))
    if any(step.get("type") in _COMPLETE for step in steps):
        return tokenizer_json
    template = next((step for step in steps if step.get("type") == "TemplateProcessing"), None)
    if template is None:
        template = _plain_template()
        steps.append(template)
    if "SpecialToken" in template["single"][-1]:
        return tokenizer_json
    template["special_tokens"][token] = {
        "id": token,
        "ids": [_token_id(tokenizer, token)],
        "tokens": [token],
    }
    for form in ("single", "pair"):
        template[form] = [part for each in template[form] for part in _ended(each, token)]
    tokenizer.values["post_processor"] = {"type": "Sequence", "processors": steps}
    return json.dumps(tokenizer.values, ensure_ascii=False).encode()


def _steps(processor: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    if processor is None:
        return []
    return list(processor["processors"]) if processor["type"] == "Sequence" else [processor]


def _plain_template() -> dict[str, Any]:
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [first],
        "pair": [first, second],
        "special_tokens": {},
    }


def _ended(part: dict[str, Any], token: str) -> list[dict[str, Any]]:
    if "Sequence" not in part:
        return [part]
    return [part, {"SpecialToken": {"id": token, "type_id": part["Sequence"]["type_id"]}}]


def _token_id(tokenizer: JsonObject, token: str) -> int:
    for entry in tokenizer.array("added_tokens", []):
        if entry.get("content") == token:
            return int(entry["id"])
    raise ModelLoadError(f"tokenizer.json has no token {token!r}, which add_eos_token asks for")
