"""Keyword arguments of the calls, typed once for both clients.

Their meaning is told at `ScoreRequest`, `EmbedRequest` and `TokenizeRequest`, whose fields they
are. `timeout` is the seconds for the call, all its tries together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from rose.choices import DTypeName, InputTypeName, OutputName, PriorityName, TruncationName
from rose.client.requests import Input, Truncation


class ScoreOptions(TypedDict, total=False):
    """See `ScoreRequest`."""

    instruction: str
    top_n: int
    raw_scores: bool
    truncation: Truncation | TruncationName | None
    priority: PriorityName | None
    strict: bool
    label: str
    all_labels: bool
    sequences: bool
    model: str
    request_id: str


class EmbedOptions(TypedDict, total=False):
    """See `EmbedRequest`."""

    input_type: InputTypeName | None
    prompt_name: str
    prompt: str | None
    instruction: str
    dimensions: int
    dtype: DTypeName
    normalize: bool | None
    outputs: Sequence[OutputName]
    truncation: Truncation | TruncationName | None
    priority: PriorityName | None
    strict: bool
    sequences: bool
    model: str
    request_id: str


class TokenizeOptions(TypedDict, total=False):
    """See `TokenizeRequest`."""

    query: Input | None
    input_type: InputTypeName | None
    prompt_name: str
    prompt: str | None
    instruction: str
    truncation: Truncation | TruncationName | None
    return_tokens: bool
    model: str
