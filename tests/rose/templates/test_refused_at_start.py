"""An engine that cannot be served: what names an option is the option's error."""

from __future__ import annotations

from typing import NoReturn

import pytest

from rose.cli.option import with_option_name
from rose.config import ServeConfig
from rose.errors import ConfigError, ServerError
from rose.server import Server


def start(message: str) -> None:
    def refuse() -> NoReturn:
        raise ValueError(message)

    with Server(ServeConfig(grpc_address="127.0.0.1:0")) as server:
        server.start(refuse)


@pytest.mark.parametrize(
    "field", ["pair_template", "query_template", "document_template", "instruction"]
)
def test_what_names_an_option_is_its_error(field: str) -> None:
    message = f"{field}: has 715 tokens, limit 385"
    with pytest.raises(ConfigError) as refused:
        start(message)
    assert str(refused.value) == message
    option = field.replace("_", "-")
    named = with_option_name(message, {field: option})
    assert named == f"--{option}: has 715 tokens, limit 385"


def test_other_errors_are_the_models() -> None:
    with pytest.raises(ServerError, match=r"the model cannot be served: tokenizer\.json: broken"):
        start("tokenizer.json: broken")
