"""Requests as the caller writes them, and their form on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from rose._proto import tulip_pb2 as pb
from rose.choices import DTypeName, InputTypeName, OutputName, PriorityName, TruncationName
from rose.client.errors import InvalidArgument

TokenIds: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
Input: TypeAlias = str | TokenIds

_U32_MAX = 2**32 - 1


@dataclass(frozen=True)
class Truncation:
    """What happens to an over-long input.

    Attributes:
        policy: `cut` (the server's default), `error` (an item error) or `chunk_max`
            (score only: overlapping chunks, the best one counts).
        side: The side that is cut off; None is the model's own.
        pair: Score only: `protect_query` (the default) cuts the document alone.
        max_tokens: Ceiling of one sequence with its special tokens; 0 is the model's limit.
        max_query_tokens: Ceiling of the query's own tokens; 0 is none.
        max_document_tokens: Ceiling of each document's own tokens; 0 is none.
        chunk_overlap_tokens: Tokens that neighbouring chunks share; 0 is an eighth of a chunk.
    """

    policy: TruncationName | None = None
    side: Literal["right", "left"] | None = None
    pair: Literal["protect_query", "longest_first"] | None = None
    max_tokens: int = 0
    max_query_tokens: int = 0
    max_document_tokens: int = 0
    chunk_overlap_tokens: int = 0


@dataclass(frozen=True, eq=False)
class ScoreRequest:
    """One query against many documents.

    Attributes:
        query: Text or token ids; None only when `sequences` is set.
        documents: Texts, or token ids each.
        instruction: Fills the instruction of the model's template, where it has one.
        top_n: Length of the ranking; 0 is all documents.
        raw_scores: The model's own numbers (logits) instead of calibrated scores.
        truncation: A policy by name, or all of `Truncation`.
        priority: `interactive` (the default) or `bulk`.
        strict: The first bad document fails the request.
        label: The label whose score is wanted, for classifiers; empty is the positive one.
        all_labels: Also return the scores of all labels.
        sequences: Token ids are complete sequences, each document a whole pair.
        model: Name of the model; empty is the one served.
        request_id: Comes back in the result.
    """

    query: Input | None
    documents: Sequence[Input]
    instruction: str = ""
    top_n: int = 0
    raw_scores: bool = False
    truncation: Truncation | TruncationName | None = None
    priority: PriorityName | None = None
    strict: bool = False
    label: str = ""
    all_labels: bool = False
    sequences: bool = False
    model: str = ""
    request_id: str = ""

    def to_proto(self) -> pb.ScoreRequest:
        """The message.

        Raises:
            InvalidArgument: A field cannot be sent; the text names it.
        """
        message = pb.ScoreRequest(
            request_id=self.request_id,
            model=self.model,
            truncation=_truncation(self.truncation),
            raw_scores=self.raw_scores,
            top_n=_u32("top_n", self.top_n),
            priority=cast(pb.Priority, _enum(pb.Priority, "PRIORITY", "priority", self.priority)),
            strict=self.strict,
            all_labels=self.all_labels,
        )
        _set_text(message, "instruction", self.instruction)
        _set_text(message, "label", self.label)
        if self.query is not None:
            _set_input(message.query, "query", self.query, sequences=False)
        elif not self.sequences:
            raise InvalidArgument("query: must be text or token ids, is None")
        _add_inputs(message.documents, "documents", self.documents, sequences=self.sequences)
        return message


@dataclass(frozen=True, eq=False)
class EmbedRequest:
    """One vector for each input.

    Attributes:
        inputs: Texts, or token ids each.
        input_type: `query` or `document`: takes the model's prompt for it.
        prompt_name: One of the model's named prompts; wins over `input_type`.
        prompt: A literal prompt before each text; wins over `prompt_name`.
        instruction: Fills the instruction of the model's template, where it has one.
        dimensions: Keep the first N of a matryoshka model; 0 is all.
        dtype: Numbers on the wire, see `EmbedResult.embeddings`.
        normalize: True for length 1, False for the pooled vector; None is as the model does.
        outputs: `dense`, `sparse`, `tokens`; empty is the first form that the model gives.
        truncation: A policy by name, or all of `Truncation`.
        priority: `interactive` (the default) or `bulk`.
        strict: The first bad input fails the request.
        sequences: Token ids are complete sequences, special tokens included.
        model: Name of the model; empty is the one served.
        request_id: Comes back in the result.
    """

    inputs: Sequence[Input]
    input_type: InputTypeName | None = None
    prompt_name: str = ""
    prompt: str | None = None
    instruction: str = ""
    dimensions: int = 0
    dtype: DTypeName = "float32"
    normalize: bool | None = None
    outputs: Sequence[OutputName] = ()
    truncation: Truncation | TruncationName | None = None
    priority: PriorityName | None = None
    strict: bool = False
    sequences: bool = False
    model: str = ""
    request_id: str = ""

    def to_proto(self) -> pb.EmbedRequest:
        """The message.

        Raises:
            InvalidArgument: A field cannot be sent; the text names it.
        """
        normalization = None if self.normalize is None else ("l2" if self.normalize else "none")
        message = pb.EmbedRequest(
            request_id=self.request_id,
            model=self.model,
            input_type=cast(pb.InputType, _input_type(self.input_type)),
            truncation=_truncation(self.truncation),
            dimensions=_u32("dimensions", self.dimensions),
            dtype=cast(pb.DType, _enum(pb.DType, "DTYPE", "dtype", self.dtype)),
            normalization=cast(
                pb.Normalization,
                _enum(pb.Normalization, "NORMALIZATION", "normalize", normalization),
            ),
            priority=cast(pb.Priority, _enum(pb.Priority, "PRIORITY", "priority", self.priority)),
            strict=self.strict,
            outputs=[
                cast(pb.OutputKind, _enum(pb.OutputKind, "OUTPUT_KIND", "outputs", output))
                for output in self.outputs
            ],
        )
        _set_prompt(message, self.prompt_name, self.prompt, self.instruction)
        _add_inputs(message.inputs, "inputs", self.inputs, sequences=self.sequences)
        return message


@dataclass(frozen=True, eq=False)
class TokenizeRequest:
    """Token ids as `score` (with a query) or `embed` (without) would use them."""

    inputs: Sequence[Input]
    query: Input | None = None
    input_type: InputTypeName | None = None
    prompt_name: str = ""
    prompt: str | None = None
    instruction: str = ""
    truncation: Truncation | TruncationName | None = None
    return_tokens: bool = False
    model: str = ""

    def to_proto(self) -> pb.TokenizeRequest:
        """The message.

        Raises:
            InvalidArgument: A field cannot be sent; the text names it.
        """
        message = pb.TokenizeRequest(
            model=self.model,
            input_type=cast(pb.InputType, _input_type(self.input_type)),
            truncation=_truncation(self.truncation),
            return_tokens=self.return_tokens,
        )
        _set_prompt(message, self.prompt_name, self.prompt, self.instruction)
        if self.query is not None:
            _set_input(message.query, "query", self.query, sequences=False)
        _add_inputs(message.inputs, "inputs", self.inputs, sequences=False)
        return message


def _add_inputs(
    messages: Any,  # noqa: ANN401 - protobuf's repeated container has no public type
    field: str,
    inputs: Iterable[Input],
    *,
    sequences: bool,
) -> None:
    if isinstance(inputs, str | bytes):
        raise InvalidArgument(f"{field}: must be a list of inputs, is one {type(inputs).__name__}")
    for index, value in enumerate(inputs):
        _set_input(messages.add(), f"{field}[{index}]", value, sequences=sequences)


def _set_input(message: pb.Input, field: str, value: Input, *, sequences: bool) -> None:
    if isinstance(value, str):
        if sequences:
            raise InvalidArgument(f"{field}: must be token ids since sequences=True, is text")
        _set_text(message, "text", value)
        return
    message.token_ids = pack_token_ids(field, value)
    message.form = pb.TOKEN_IDS_FORM_SEQUENCE if sequences else pb.TOKEN_IDS_FORM_SEGMENT


def pack_token_ids(field: str, token_ids: TokenIds) -> bytes:
    """Little-endian u32, four bytes each.

    Raises:
        InvalidArgument: Not a flat list of integers from 0 to 2**32 - 1.
    """
    if isinstance(token_ids, bytes | bytearray | memoryview) or not hasattr(token_ids, "__len__"):
        kind = type(token_ids).__name__
        raise InvalidArgument(f"{field}: must be text or a list of token ids, is {kind}")
    try:
        ids = np.asarray(token_ids)
    except ValueError:
        raise InvalidArgument(f"{field}: must be text or a flat list of token ids") from None
    if ids.size == 0:
        return b""
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InvalidArgument(
            f"{field}: must be text or a flat list of token ids, "
            f"is {ids.ndim}-dimensional {ids.dtype}"
        )
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < 0 or highest > _U32_MAX:
        worst = lowest if lowest < 0 else highest
        raise InvalidArgument(f"{field}: token ids must be 0 to {_U32_MAX}, has {worst}")
    return ids.astype("<u4").tobytes()


def _set_text(message: Any, name: str, text: str) -> None:  # noqa: ANN401 - any message
    try:
        setattr(message, name, text)
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8; it becomes U+FFFD, as everywhere else here.
        setattr(message, name, "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text))


def _set_prompt(
    message: pb.EmbedRequest | pb.TokenizeRequest,
    prompt_name: str,
    prompt: str | None,
    instruction: str,
) -> None:
    message.prompt_name = prompt_name
    if prompt is not None:
        _set_text(message, "prompt", prompt)
    _set_text(message, "instruction", instruction)


def _truncation(truncation: Truncation | str | None) -> pb.Truncation | None:
    if truncation is None:
        return None
    if isinstance(truncation, str):
        truncation = Truncation(policy=cast(TruncationName, truncation))
    return pb.Truncation(
        policy=cast(
            pb.TruncationPolicy,
            _enum(pb.TruncationPolicy, "TRUNCATION_POLICY", "truncation", truncation.policy),
        ),
        side=cast(
            pb.TruncationSide,
            _enum(pb.TruncationSide, "TRUNCATION_SIDE", "truncation.side", truncation.side),
        ),
        pair=cast(
            pb.PairTruncation,
            _enum(pb.PairTruncation, "PAIR_TRUNCATION", "truncation.pair", truncation.pair),
        ),
        max_tokens=_u32("truncation.max_tokens", truncation.max_tokens),
        max_query_tokens=_u32("truncation.max_query_tokens", truncation.max_query_tokens),
        max_document_tokens=_u32("truncation.max_document_tokens", truncation.max_document_tokens),
        chunk_overlap_tokens=_u32(
            "truncation.chunk_overlap_tokens", truncation.chunk_overlap_tokens
        ),
    )


def _input_type(value: str | None) -> int:
    return _enum(pb.InputType, "INPUT_TYPE", "input_type", value)


def _enum(enum: Any, prefix: str, field: str, value: str | None) -> int:  # noqa: ANN401
    """The number of `value`, written in small letters without the prefix; None is 0."""
    if value is None:
        return 0
    names: dict[str, int] = {
        name.removeprefix(f"{prefix}_").lower(): number for name, number in enum.items() if number
    }
    if value not in names:
        raise InvalidArgument(f"{field}: must be one of {', '.join(names)}, is {value!r}")
    return names[value]


def _u32(field: str, value: int) -> int:
    if not 0 <= value <= _U32_MAX:
        raise InvalidArgument(f"{field}: must be 0 to {_U32_MAX}, is {value}")
    return value
