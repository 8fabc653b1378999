"""What a call can fail with. Nothing of grpc passes through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc

from rose.errors import RoseError


class CallError(RoseError):
    """A call failed.

    Attributes:
        code: Name of the gRPC status, such as `INTERNAL`.
        message: What the server, or the transport, said.
        retry_after: Seconds after which the server expects to have room, if it said so.
    """

    code: str = "UNKNOWN"

    def __init__(
        self, message: str, *, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.retry_after = retry_after


class InvalidArgument(CallError, ValueError):
    """The request is wrong, or can never fit; the message names field, limit and value."""

    code = "INVALID_ARGUMENT"


class NotFound(CallError):
    """No model of this name is served here."""

    code = "NOT_FOUND"


class FailedPrecondition(CallError):
    """This model does not do that task."""

    code = "FAILED_PRECONDITION"


class ResourceExhausted(CallError):
    """The queue is full; try again after `retry_after` seconds."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(CallError, TimeoutError):
    """The deadline passed, or could not have been met."""

    code = "DEADLINE_EXCEEDED"


class Unavailable(CallError, ConnectionError):
    """Nobody answers there, or the server is loading, draining or unhealthy."""

    code = "UNAVAILABLE"


class Cancelled(CallError):
    """The call was given up, by this side or the other."""

    code = "CANCELLED"


class Unimplemented(CallError):
    """The server does not know this call: another version, or another service."""

    code = "UNIMPLEMENTED"


class Internal(CallError):
    """The step that held this request failed; the server goes on."""

    code = "INTERNAL"


_BY_CODE: dict[str, type[CallError]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        FailedPrecondition,
        ResourceExhausted,
        DeadlineExceeded,
        Unavailable,
        Cancelled,
        Unimplemented,
        Internal,
    )
}
# The transport's own refusal of a message that is too large.
_BY_CODE["OUT_OF_RANGE"] = InvalidArgument

_NAME_OF_NUMBER: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def error_of(code: str, message: str, retry_after: float | None = None) -> CallError:
    """The error for a status, by its name."""
    kind = _BY_CODE.get(code, CallError)
    return kind(message or code, code=code, retry_after=retry_after)


def client_is_closed() -> CallError:
    """The error of a call that met a closed client, or was in flight when it was closed."""
    return error_of("CANCELLED", "the client is closed")


def error_of_number(number: int, message: str, retry_after_ms: int) -> CallError:
    """The error for a status number, as streams carry it."""
    code = _NAME_OF_NUMBER.get(number, "UNKNOWN")
    return error_of(code, message, retry_after_ms / 1e3 if retry_after_ms else None)


def error_of_rpc(error: grpc.RpcError) -> CallError:
    """The error for what grpc raised, of its synchronous or its asyncio half."""
    code = error.code() if hasattr(error, "code") else None
    details = error.details() if hasattr(error, "details") else str(error)
    trailing = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    return error_of(code.name if code else "UNKNOWN", details or "", _retry_after(trailing))


def _retry_after(metadata: Iterable[Any] | None) -> float | None:
    """Seconds from `retry-after-ms`; None when absent or not a number."""
    for key, value in metadata or ():
        if key == "retry-after-ms":
            try:
                return max(0.0, float(value) / 1e3)
            except ValueError:
                return None
    return None
