"""Clients of a Tulip server: typed, with deadlines, retries and numpy results.

with rose.Client("127.0.0.1:50051") as client:
    result = client.score("capital of France", ["Paris is …", "Berlin is …"])
    for place in result.ranked():
        print(place.index, place.score)
"""

from rose.client.aio import AsyncClient
from rose.client.errors import (
    CallError,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from rose.client.model import Limits, ServedModel, Template
from rose.client.requests import (
    EmbedRequest,
    Input,
    ScoreRequest,
    TokenIds,
    TokenizeRequest,
    Truncation,
)
from rose.client.results import (
    EmbedResult,
    Graphs,
    ItemError,
    Load,
    RankedDocument,
    ScoreResult,
    SparseVector,
    Timings,
    TokenizedInput,
    TokenizeResult,
    TruncationReport,
    Usage,
)
from rose.client.retry import RetryPolicy
from rose.client.sync import Client
from rose.client.window import StreamOutcome
from rose.errors import RoseError

__all__ = [
    "AsyncClient",
    "CallError",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "EmbedRequest",
    "EmbedResult",
    "FailedPrecondition",
    "Graphs",
    "Input",
    "Internal",
    "InvalidArgument",
    "ItemError",
    "Limits",
    "Load",
    "NotFound",
    "RankedDocument",
    "ResourceExhausted",
    "RetryPolicy",
    "RoseError",
    "ScoreRequest",
    "ScoreResult",
    "ServedModel",
    "SparseVector",
    "StreamOutcome",
    "Template",
    "Timings",
    "TokenIds",
    "TokenizeRequest",
    "TokenizeResult",
    "TokenizedInput",
    "Truncation",
    "TruncationReport",
    "Unavailable",
    "Unimplemented",
    "Usage",
]
