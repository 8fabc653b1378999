"""Values of repeatable options, from arguments and from the environment."""

from __future__ import annotations

import pytest

from rose.cli.failure import UsageError
from rose.cli.option import given_keys, listed, with_option_name


def test_one_value_may_hold_several() -> None:
    assert listed(["https://a.example,https://b.example", " c "]) == (
        "https://a.example",
        "https://b.example",
        "c",
    )
    assert listed(None) == ()


@pytest.mark.parametrize("variable", ["ROSE_SERVE_API_KEYS", "ROSE_SERVE_API_KEY"])
@pytest.mark.parametrize("value", ["k1 k2", "k1,k2", "k1, k2"])
def test_keys_of_a_variable_are_separated_by_spaces_or_commas(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert given_keys("serve", value.split()) == ("k1", "k2")
    monkeypatch.setenv(variable, " ")
    with pytest.raises(UsageError, match=f"{variable} is empty"):
        given_keys("serve", None)


def test_a_key_that_is_an_argument_is_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ROSE_SERVE_API_KEYS", "ROSE_SERVE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    assert given_keys("serve", ["a,b"]) == ("a,b",)


def test_every_field_of_a_message_becomes_its_option() -> None:
    options = {"tls_key": "tls-key", "tls_certificate": "tls-certificate", "device": "device"}
    message = "tls_certificate needs tls_key beside it, whatever the device"
    assert with_option_name(message, options) == (
        "--tls-certificate needs --tls-key beside it, whatever the device"
    )
    assert with_option_name("nothing is named", options) == "nothing is named"
