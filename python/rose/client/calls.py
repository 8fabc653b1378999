"""What both clients share: options, checks and the shape of a call with retries."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rose.client.errors import CallError, InvalidArgument
from rose.client.retry import RetryPolicy

DEFAULT_TARGET = "127.0.0.1:50051"
DEFAULT_TIMEOUT = 30.0
# A stream lives as long as the work it carries.
DEFAULT_STREAM_TIMEOUT = 24 * 3600.0


class CallOptions:
    """Options of a client, checked.

    Args:
        target: `HOST:PORT`, or another name that gRPC resolves (`unix:PATH`, `dns:///NAME:PORT`).
        timeout: Seconds for a call, all its tries together, unless the call says otherwise.
        retry: When a call is tried again; None is `RetryPolicy()`.
        metadata: Sent with every call.
    """

    def __init__(
        self,
        target: str,
        timeout: float,
        retry: RetryPolicy | None,
        metadata: Mapping[str, str] | None,
    ) -> None:
        if not target:
            raise InvalidArgument("target: must be HOST:PORT, is empty")
        port = target.rpartition(":")[2]
        # grpc takes it modulo 65536 and talks to somebody else.
        if port.isdecimal() and (len(port) > 5 or int(port) > 65535):
            raise InvalidArgument(f"target: the port must be at most 65535, is {port[:20]}")
        self.target = target
        self.timeout = checked_timeout(timeout)
        self.retry = retry or RetryPolicy()
        self.metadata = tuple((metadata or {}).items())


def checked_timeout(timeout: float) -> float:
    """The timeout, if it is one; `inf` and nan are not: every call has a deadline."""
    if not 0 < timeout < 1e9:
        raise InvalidArgument(f"timeout: must be more than 0 s and less than 1e9 s, is {timeout}")
    return timeout


class Attempts:
    """The tries of one call under one deadline."""

    def __init__(self, retry: RetryPolicy, timeout: float) -> None:
        self._retry = retry
        self._deadline = time.monotonic() + timeout
        self._made = 0

    def next_timeout(self) -> float:
        """Seconds left for the next try."""
        self._made += 1
        return max(0.0, self._deadline - time.monotonic())

    def pause_or_raise(self, error: CallError) -> float:
        """Seconds to wait before the next try.

        Raises:
            CallError: `error` itself, when there is to be no other try.
        """
        pause = self._retry.pause(self._made, error, self._deadline - time.monotonic())
        if pause is None:
            raise error
        return pause
