"""Answers, with numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from rose._proto import tulip_pb2 as pb

Array: TypeAlias = npt.NDArray[Any]
Document = TypeVar("Document")


@dataclass(frozen=True)
class ItemError:
    """One document or input that could not be used; the others were answered."""

    index: int
    reason: str
    message: str


@dataclass(frozen=True)
class TruncationReport:
    """One text that was cut; its own tokens, special tokens not counted.

    `tokens_given` is a lower bound: of a text far beyond the limit the rest is not tokenized.
    """

    index: int
    role: str
    tokens_given: int
    tokens_used: int
    side: str


@dataclass(frozen=True)
class Usage:
    """Tokens the model read, with special tokens; padding is this request's share."""

    input_tokens: int
    padding_tokens: int
    sequences: int


@dataclass(frozen=True)
class Timings:
    """Where the time went inside the server, in microseconds."""

    tokenize_us: int
    queue_us: int
    compute_us: int
    total_us: int


@dataclass(frozen=True)
class Graphs:
    """CUDA graphs of a replica, since its start."""

    graphs: int
    """Captured; all are kept."""
    failed_captures: int
    eager_steps: int
    replayed_steps: int
    bytes: int
    """Device memory of the graphs."""


@dataclass(frozen=True)
class Load:
    """State of the replica when it answered."""

    queued_tokens: int
    running_tokens: int
    max_queued_tokens: int
    queued_sequences: int
    steps_in_flight: int
    draining: bool
    tokens_per_second: int
    graphs: Graphs | None = None
    """None on devices without CUDA graphs."""


@dataclass(frozen=True)
class RankedDocument(Generic[Document]):
    """A place in the ranking: position in the request, score, and the document if it was given."""

    index: int
    score: float
    document: Document


@dataclass(frozen=True, eq=False, kw_only=True)
class _Answer:
    request_id: str
    model: str
    fingerprint: str
    item_errors: tuple[ItemError, ...]
    truncations: tuple[TruncationReport, ...]
    usage: Usage
    timings: Timings
    load: Load
    _count: int = field(repr=False)

    @property
    def ok(self) -> npt.NDArray[np.bool_]:
        """`[items]` bool: False where `item_errors` has the index."""
        mask = np.ones(self._count, dtype=np.bool_)
        mask[[error.index for error in self.item_errors]] = False
        return mask


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreResult(_Answer):
    """Scores of one query's documents.

    Attributes:
        scores: `[documents]` float32 in request order; 0 where `ok` is False.
        ranking: Indices of the best documents, best first; failed ones left out.
        label_scores: `[documents, labels]` float32, when asked for.
        labels: Names of the labels, when asked for.
        best_chunks: For each document the first token and length of the chunk that won,
            with `truncation="chunk_max"`; else empty.
    """

    scores: npt.NDArray[np.float32]
    ranking: tuple[int, ...]
    label_scores: npt.NDArray[np.float32] | None
    labels: tuple[str, ...]
    best_chunks: tuple[tuple[int, int], ...]

    @overload
    def ranked(self) -> list[RankedDocument[None]]: ...

    @overload
    def ranked(self, documents: Sequence[Document]) -> list[RankedDocument[Document]]: ...

    def ranked(self, documents: Sequence[Any] | None = None) -> list[RankedDocument[Any]]:
        """The ranking with its scores, and with the documents when they are given."""
        return [
            RankedDocument(
                index, float(self.scores[index]), None if documents is None else documents[index]
            )
            for index in self.ranking
        ]

    @classmethod
    def from_proto(cls, message: pb.ScoreResponse) -> ScoreResult:
        """Reads the message."""
        return cls(
            scores=np.array(message.scores, dtype=np.float32),
            ranking=tuple(message.ranking),
            label_scores=_array(message.label_scores) if message.HasField("label_scores") else None,
            labels=tuple(message.labels),
            best_chunks=tuple(
                zip(message.best_chunk_start, message.best_chunk_tokens, strict=True)
            ),
            _count=len(message.scores),
            **_answer(message),
        )


@dataclass(frozen=True)
class SparseVector:
    """Token ids that matter and their weights, both `[entries]`: uint32 and float32."""

    indices: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbedResult(_Answer):
    """Vectors of the inputs, in request order.

    Attributes:
        embeddings: `[inputs, dimensions]`, zeros where `ok` is False. The numpy dtype is
            float32, float16, int8 or uint8 as asked; bfloat16, which numpy lacks, is
            widened to float32 without loss. `binary` is int8 and `ubinary` uint8, both
            `[inputs, dimensions / 8]`: eight sign bits a byte, the first in the highest
            bit, `binary` with 128 subtracted (`numpy.packbits(x > 0, axis=-1)`).
        dtype: Of the numbers on the wire, such as `bfloat16` or `ubinary`.
        sparse: One sparse vector for each input, when asked for.
        token_vectors: One `[tokens, dimensions]` array for each input, when asked for.
    """

    embeddings: Array
    dtype: str
    sparse: tuple[SparseVector, ...] | None
    token_vectors: tuple[Array, ...] | None

    @classmethod
    def from_proto(cls, message: pb.EmbedResponse, inputs: int) -> EmbedResult:
        """Reads the message, the answer to a request of so many inputs."""
        return cls(
            embeddings=_array(message.embeddings),
            dtype=_name(pb.DType, "DTYPE", message.embeddings.dtype),
            sparse=_sparse(message.sparse) if message.HasField("sparse") else None,
            token_vectors=_token_vectors(message.tokens) if message.HasField("tokens") else None,
            _count=inputs,
            **_answer(message),
        )


@dataclass(frozen=True, eq=False)
class TokenizedInput:
    """One sequence as the model reads it.

    Attributes:
        token_ids: `[tokens]` uint32.
        second_segment_start: Index of the first token of the second segment, 0 without one.
        tokens: Each token's text, when asked for.
    """

    token_ids: npt.NDArray[np.uint32]
    second_segment_start: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TokenizeResult:
    """Sequences in request order; empty where `item_errors` has the index."""

    sequences: tuple[TokenizedInput, ...]
    item_errors: tuple[ItemError, ...]
    truncations: tuple[TruncationReport, ...]

    @classmethod
    def from_proto(cls, message: pb.TokenizeResponse) -> TokenizeResult:
        """Reads the message."""
        return cls(
            sequences=tuple(
                TokenizedInput(
                    np.frombuffer(sequence.token_ids, dtype="<u4").astype(np.uint32),
                    sequence.second_segment_start,
                    tuple(sequence.tokens),
                )
                for sequence in message.sequences
            ),
            item_errors=_item_errors(message.item_errors),
            truncations=_truncations(message.truncations),
        )


def _answer(message: pb.ScoreResponse | pb.EmbedResponse) -> dict[str, Any]:
    usage, timings, load = message.usage, message.timings, message.load
    return {
        "request_id": message.request_id,
        "model": message.model,
        "fingerprint": message.fingerprint,
        "item_errors": _item_errors(message.item_errors),
        "truncations": _truncations(message.truncations),
        "usage": Usage(usage.input_tokens, usage.padding_tokens, usage.sequences),
        "timings": Timings(
            timings.tokenize_us, timings.queue_us, timings.compute_us, timings.total_us
        ),
        "load": Load(
            load.queued_tokens,
            load.running_tokens,
            load.max_queued_tokens,
            load.queued_sequences,
            load.steps_in_flight,
            load.draining,
            load.tokens_per_second,
            _graphs(load.graphs) if load.HasField("graphs") else None,
        ),
    }


def _graphs(report: pb.GraphReport) -> Graphs:
    return Graphs(
        report.graphs,
        report.failed_captures,
        report.eager_steps,
        report.replayed_steps,
        report.bytes,
    )


def _item_errors(messages: Sequence[pb.ItemError]) -> tuple[ItemError, ...]:
    return tuple(
        ItemError(error.index, _name(pb.ErrorReason, "ERROR_REASON", error.reason), error.message)
        for error in messages
    )


def _truncations(messages: Sequence[pb.TruncationReport]) -> tuple[TruncationReport, ...]:
    return tuple(
        TruncationReport(
            report.index,
            _name(pb.InputRole, "INPUT_ROLE", report.role),
            report.tokens_given,
            report.tokens_used,
            _name(pb.TruncationSide, "TRUNCATION_SIDE", report.side),
        )
        for report in messages
    )


_NUMPY_DTYPES = {
    pb.DTYPE_UNSPECIFIED: "<f4",
    pb.DTYPE_FLOAT32: "<f4",
    pb.DTYPE_FLOAT16: "<f2",
    pb.DTYPE_INT8: "i1",
    pb.DTYPE_UINT8: "u1",
    pb.DTYPE_BINARY: "i1",
    pb.DTYPE_UBINARY: "u1",
}


def _array(tensor: pb.Tensor) -> Array:
    """A writable array of its own, in the shape of the message."""
    if tensor.dtype == pb.DTYPE_BFLOAT16:
        # bfloat16 is the upper half of a float32.
        halves = np.frombuffer(tensor.data, dtype="<u2").astype(np.uint32)
        flat: Array = (halves << 16).view(np.float32)
    else:
        wire = np.dtype(_NUMPY_DTYPES[tensor.dtype])
        flat = np.frombuffer(tensor.data, dtype=wire).astype(wire.newbyteorder("="))
    shape = tuple(tensor.shape) if tensor.shape else (0,)
    return flat.reshape(shape)


def _rows(row_offsets: Sequence[int]) -> list[slice]:
    return [slice(start, end) for start, end in pairwise(row_offsets)]


def _sparse(message: pb.SparseVectors) -> tuple[SparseVector, ...]:
    indices = np.array(message.indices, dtype=np.uint32)
    values = np.array(message.values, dtype=np.float32)
    return tuple(SparseVector(indices[r], values[r]) for r in _rows(list(message.row_offsets)))


def _token_vectors(message: pb.TokenVectors) -> tuple[Array, ...]:
    vectors = _array(message.vectors)
    return tuple(vectors[r] for r in _rows(list(message.row_offsets)))


def _name(enum: Any, prefix: str, number: int) -> str:  # noqa: ANN401 - protobuf's enum wrapper
    """The value in small letters without its prefix; the number itself for one from the future."""
    try:
        name: str = enum.Name(number)
    except ValueError:
        return str(number)
    return name.removeprefix(f"{prefix}_").lower()
