"""Options are checked where they are given; the message names option, limit and value."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from rose.config import BatchLayout, EngineConfig, ServeConfig
from rose.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be auto, cpu, cuda or cuda:N, got 'tpu'"),
        ({"device": "cuda:x"}, "device must be .* got 'cuda:x'"),
        ({"dtype": "int8"}, "dtype must be one of auto, float32, .* got 'int8'"),
        ({"pooling": "median"}, "pooling must be one of mean, cls, .* got 'median'"),
        ({"attention": "magic"}, "attention must be one of auto, sdpa, .* got 'magic'"),
        ({"max_batch_tokens": 0}, "max_batch_tokens must be an integer of at least 1, got 0"),
        ({"max_batch_sequences": -1}, "max_batch_sequences must be .* got -1"),
        ({"max_batch_tokens": 1.5}, "max_batch_tokens must be an integer .* got 1.5"),
        ({"max_length": 0}, "max_length must be .* at least 1, got 0"),
        ({"num_threads": 0}, "num_threads must be .* at least 1, got 0"),
        ({"num_input_slots": 2}, "num_input_slots must be .* at least 3, got 2"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**options)


@pytest.mark.parametrize("kind", [EngineConfig, ServeConfig])
def test_no_integer_is_without_an_upper_bound(kind: type[Any]) -> None:
    names = [f.name for f in fields(kind) if f.type in ("int", "int | None")]
    assert names
    for name in names:
        for value in (10**9 * 10**9, 2**64):
            with pytest.raises(ConfigError, match=f"^{name} must be .* got {value}"):
                kind(**{name: value})


def test_layout_rounds_up_and_leaves_room_for_the_padding_sequence() -> None:
    layout = BatchLayout(token_buckets=(64, 128), sequence_tiers=(4, 8))
    assert layout.padded_shape(64, 4) == (64, 4)
    assert layout.padded_shape(60, 4) == (64, 8)
    assert layout.padded_shape(200, 9) == (200, 9)
    assert layout.buffer_len(64, 8) == 9 + 2 * 64
    assert BatchLayout(token_types=True).buffer_len(10, 2) == 3 + 30
