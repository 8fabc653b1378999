"""A streamed run for the asyncio client; `stream.py` with tasks for threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, Generic, TypeVar

import grpc

from rose.client.errors import (
    CallError,
    Internal,
    Unavailable,
    client_is_closed,
    error_of_rpc,
)
from rose.client.retry import RetryPolicy
from rose.client.window import StreamOutcome, StreamWindow

Request = TypeVar("Request")
Result = TypeVar("Result")


class _Session:
    """One gRPC stream out of the several that a run may need."""

    def __init__(self) -> None:
        self.stopped = False
        self.ended = False
        self.error: CallError | None = None


class AsyncStreamRun(Generic[Request, Result]):
    """Moves requests through streams until all are answered. Arguments as `StreamRun`."""

    def __init__(
        self,
        open_stream: Callable[[AsyncIterator[Any], float], Any],
        requests: AsyncIterable[Request] | Iterable[Request],
        window: StreamWindow[Request, Result],
        retry: RetryPolicy,
        timeout: float,
    ) -> None:
        self._open_stream = open_stream
        self._source = _as_async(requests)
        # A task of its own: a stream that breaks cancels its writer, and must not cancel
        # the caller's iterator with it.
        self._taking: asyncio.Task[None] | None = None
        self._window = window
        self._retry = retry
        self._deadline = time.monotonic() + timeout
        # Replaced at each change: whoever waits has taken the one of its last look.
        self._changed = asyncio.Event()
        self._exhausted = False
        self._source_failure: BaseException | None = None

    async def outcomes(self) -> AsyncIterator[StreamOutcome[Result]]:
        """What became of each request.

        Raises:
            CallError: The stream itself failed, and could not be opened again.
        """
        try:
            async for outcome in self._outcomes():
                yield outcome
        finally:
            if self._taking is not None:
                self._taking.cancel()
                await asyncio.gather(self._taking, return_exceptions=True)

    async def _outcomes(self) -> AsyncIterator[StreamOutcome[Result]]:
        attempt = 0
        while True:
            session = _Session()
            call = self._open_stream(self._messages(session), self._remaining())
            reader = asyncio.create_task(self._read(session, call))
            try:
                async for outcome in self._drain(session):
                    attempt = 0
                    yield outcome
            finally:
                session.stopped = True
                self._notify()
                call.cancel()
                await asyncio.gather(reader, return_exceptions=True)
            if self._source_failure is not None:
                raise self._source_failure
            error = session.error
            if error is None and self._exhausted and not self._window.unanswered:
                return
            if error is None:
                error = Unavailable(
                    f"the server ended the stream with {self._window.unanswered} unanswered"
                )
            attempt += 1
            pause = self._retry.pause(attempt, error, self._remaining())
            if pause is None:
                raise error
            await asyncio.sleep(pause)
            self._window.resend_all()

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for(self, predicate: Callable[[], bool]) -> None:
        while not predicate():
            await self._changed.wait()

    async def _drain(self, session: _Session) -> AsyncIterator[StreamOutcome[Result]]:
        window = self._window
        while True:
            await self._wait_for(
                lambda: window.has_outcome or session.ended or self._source_failure is not None
            )
            ready = list(window.outcomes())
            self._notify()  # there is room again
            if not ready:
                return
            for outcome in ready:
                yield outcome

    async def _read(self, session: _Session, call: Any) -> None:  # noqa: ANN401 - no public type
        error: CallError | None = None
        try:
            async for response in call:
                refused = self._window.answer(response)
                if refused is not None:
                    # Half-close: the server still answers what it has begun.
                    error = refused
                    session.stopped = True
                self._notify()
        except asyncio.CancelledError:  # the channel was closed, or the caller has left
            error = error or client_is_closed()
        except grpc.RpcError as failure:
            error = error or _stream_error(failure)
        finally:
            session.error = error
            session.stopped = True
            session.ended = True
            self._notify()

    async def _messages(self, session: _Session) -> AsyncIterator[Any]:
        window = self._window
        while True:
            await self._wait_for(
                lambda: session.stopped or window.has_unsent or window.has_room or self._exhausted
            )
            if session.stopped:
                return
            if window.has_unsent:
                yield window.next_unsent()
            elif self._exhausted:
                return
            else:
                if self._taking is None or self._taking.done():
                    self._taking = asyncio.create_task(self._take())
                await asyncio.shield(self._taking)

    async def _take(self) -> None:
        try:
            request = await anext(self._source)
        except StopAsyncIteration:
            self._exhausted = True
        except Exception as failure:  # the caller's own: raised where the caller iterates
            self._exhausted = True
            self._source_failure = failure
        else:
            self._window.take(request)
        self._notify()


def _stream_error(failure: grpc.RpcError) -> CallError:
    error = error_of_rpc(failure)
    # A write that meets a stream which the server has closed makes grpc.aio set this status of
    # its own, and the server's is lost. Opening another stream brings the server's word again.
    if isinstance(error, Internal) and error.message == "Internal error from Core":
        return Unavailable("the server closed the stream while it was written to")
    return error


async def _as_async(
    requests: AsyncIterable[Request] | Iterable[Request],
) -> AsyncIterator[Request]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield request
    else:
        for request in requests:
            yield request
