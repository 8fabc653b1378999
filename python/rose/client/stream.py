"""A streamed run for the synchronous client: reads, writes and re-opens after UNAVAILABLE."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

import grpc

from rose.client.errors import CallError, Unavailable, error_of_rpc
from rose.client.retry import RetryPolicy
from rose.client.window import StreamOutcome, StreamWindow

Request = TypeVar("Request")
Result = TypeVar("Result")


class _Session:
    """One gRPC stream out of the several that a run may need. Guarded by the run's condition."""

    def __init__(self) -> None:
        self.stopped = False  # nothing more is to be written
        self.ended = False  # nothing more will be read
        self.error: CallError | None = None


class StreamRun(Generic[Request, Result]):
    """Moves requests through streams until all are answered.

    Three threads meet at one condition: grpc's own, which pulls messages from `_messages`; a
    reader, which puts responses into the window; and the caller's, which iterates.

    Args:
        open_stream: Starts a stream from an iterator of messages and a timeout in seconds.
        requests: The caller's; pulled from grpc's thread, no further than the window allows.
        window: Bounds and correlates.
        retry: How a stream that broke as UNAVAILABLE is opened again.
        timeout: Seconds for the whole run.
    """

    def __init__(
        self,
        open_stream: Callable[[Iterator[Any], float], Any],
        requests: Iterable[Request],
        window: StreamWindow[Request, Result],
        retry: RetryPolicy,
        timeout: float,
    ) -> None:
        self._open_stream = open_stream
        self._source = iter(requests)
        self._source_lock = threading.Lock()  # a broken session's thread may still be in next()
        self._window = window
        self._retry = retry
        self._deadline = time.monotonic() + timeout
        self._condition = threading.Condition()
        self._exhausted = False
        self._source_failure: BaseException | None = None

    def outcomes(self) -> Generator[StreamOutcome[Result], None, None]:
        """What became of each request.

        Raises:
            CallError: The stream itself failed, and could not be opened again.
        """
        attempt = 0
        while True:
            session = _Session()
            call = self._open_stream(self._messages(session), self._remaining())
            reader = threading.Thread(
                target=self._read, args=(session, call), name="rose-stream-reader", daemon=True
            )
            reader.start()
            try:
                for outcome in self._drain(session):
                    attempt = 0
                    yield outcome
            finally:
                # An iterator that outlived the program is closed by the dying interpreter. Its
                # threads are gone by then, with the locks that they held.
                if not sys.is_finalizing():
                    with self._condition:
                        session.stopped = True
                        self._condition.notify_all()
                    call.cancel()
                    reader.join()
            if self._source_failure is not None:
                raise self._source_failure
            with self._condition:
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
            time.sleep(pause)
            with self._condition:
                self._window.resend_all()

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _drain(self, session: _Session) -> Iterator[StreamOutcome[Result]]:
        window = self._window
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: window.has_outcome or session.ended or self._source_failure is not None
                )
                ready = list(window.outcomes())
                self._condition.notify_all()  # there is room again
            if not ready:
                return
            yield from ready

    def _read(self, session: _Session, call: Any) -> None:  # noqa: ANN401 - grpc has no public type
        error: CallError | None = None
        try:
            for response in call:
                with self._condition:
                    refused = self._window.answer(response)
                    if refused is not None:
                        # Half-close: the server still answers what it has begun.
                        error = refused
                        session.stopped = True
                    self._condition.notify_all()
        except grpc.RpcError as failure:
            error = error or error_of_rpc(failure)
        finally:
            with self._condition:
                session.error = error
                session.stopped = True
                session.ended = True
                self._condition.notify_all()

    def _messages(self, session: _Session) -> Iterator[Any]:
        window = self._window
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: (
                        session.stopped or window.has_unsent or window.has_room or self._exhausted
                    )
                )
                if session.stopped:
                    return
                message = window.next_unsent() if window.has_unsent else None
                if message is None and self._exhausted:
                    return
            if message is not None:
                yield message
            else:
                self._take(session)

    def _take(self, session: _Session) -> None:
        """Moves one request from the caller into the window, outside the condition."""
        with self._source_lock:
            with self._condition:
                if session.stopped or self._exhausted or not self._window.has_room:
                    return
            try:
                request = next(self._source)
            except StopIteration:
                with self._condition:
                    self._exhausted = True
                    self._condition.notify_all()
            except BaseException as failure:  # the caller's own: raised where the caller iterates
                with self._condition:
                    self._exhausted = True
                    self._source_failure = failure
                    self._condition.notify_all()
            else:
                with self._condition:
                    self._window.take(request)
                    self._condition.notify_all()
