"""The bookkeeping of one streamed run, shared by the two clients: no threads, no waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rose.client.errors import CallError, InvalidArgument, Unavailable, error_of_number

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class StreamOutcome(Generic[Result]):
    """What became of one request of a stream.

    Attributes:
        index: Position of the request in the input, from 0.
        request_id: As the request had it; made up from the index if it had none.
        result: The answer, or None when it failed.
        error: Why it failed, or None. Other requests of the stream are not affected.
    """

    index: int
    request_id: str
    result: Result | None
    error: CallError | None

    def unwrap(self) -> Result:
        """The answer; raises `error` instead when the request failed."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


@dataclass(eq=False)
class _Pending(Generic[Request]):
    index: int
    request: Request
    message: Any


class StreamWindow(Generic[Request, Result]):
    """Which requests are unanswered, which are to be sent again, which answers wait their turn.

    Args:
        max_in_flight: Requests taken from the caller and not yet handed back, at the most.
            With `ordered`, answers that wait for an earlier one count.
        ordered: Hand outcomes back in the order of the requests.
        read: Reads the response message of a request.
    """

    def __init__(
        self, max_in_flight: int, *, ordered: bool, read: Callable[[Request, Any], Result]
    ) -> None:
        if max_in_flight < 1:
            raise InvalidArgument(f"max_in_flight: must be at least 1, is {max_in_flight}")
        self._max_in_flight = max_in_flight
        self._ordered = ordered
        self._read = read
        self._pending: dict[str, _Pending[Request]] = {}
        self._unsent: deque[str] = deque()
        self._finished: dict[int, StreamOutcome[Result]] = {}
        self._taken = 0
        self._handed_back = 0

    @property
    def has_room(self) -> bool:
        """Another request may be taken from the caller."""
        return self._taken - self._handed_back < self._max_in_flight

    @property
    def unanswered(self) -> int:
        """Requests taken and not answered yet."""
        return len(self._pending)

    @property
    def has_outcome(self) -> bool:
        """`outcomes` has something."""
        return self._handed_back in self._finished if self._ordered else bool(self._finished)

    @property
    def has_unsent(self) -> bool:
        """`next_unsent` has something."""
        return bool(self._unsent)

    def take(self, request: Any) -> None:  # noqa: ANN401 - ScoreRequest or EmbedRequest
        """Accepts the caller's next request; one that cannot be written is a failed outcome."""
        index = self._taken
        self._taken += 1
        request_id = request.request_id or str(index)
        try:
            message = request.to_proto()
            if request_id in self._pending:
                raise InvalidArgument(f"request_id: {request_id!r} is in flight already")
        except InvalidArgument as error:
            self._finished[index] = StreamOutcome(index, request_id, None, error)
            return
        message.request_id = request_id
        self._pending[request_id] = _Pending(index, request, message)
        self._unsent.append(request_id)

    def next_unsent(self) -> Any:  # noqa: ANN401 - a protobuf message
        """The next message to write."""
        return self._pending[self._unsent.popleft()].message

    def resend_all(self) -> None:
        """Queues every unanswered request again, oldest first: the stream broke."""
        self._unsent = deque(self._pending)

    def answer(self, response: Any) -> CallError | None:  # noqa: ANN401 - a protobuf message
        """Accepts a response.

        A request that failed as UNAVAILABLE stays pending and its error is returned: the
        server is going away, and the caller has to open another stream.
        """
        request_id = response.request_id
        pending = self._pending.get(request_id)
        if pending is None:  # answered on the stream before this one
            return None
        if response.WhichOneof("outcome") == "error":
            failure = response.error
            error = error_of_number(failure.code, failure.message, failure.retry_after_ms)
            if isinstance(error, Unavailable):
                return error
            self._finish(request_id, None, error)
        else:
            self._finish(request_id, self._read(pending.request, response.response), None)
        return None

    def _finish(self, request_id: str, result: Result | None, error: CallError | None) -> None:
        pending = self._pending.pop(request_id)
        self._finished[pending.index] = StreamOutcome(pending.index, request_id, result, error)

    def outcomes(self) -> Iterator[StreamOutcome[Result]]:
        """What can be handed to the caller now; each counts as handed back."""
        while self._finished:
            index = self._handed_back if self._ordered else next(iter(self._finished))
            outcome = self._finished.pop(index, None)
            if outcome is None:
                return
            self._handed_back += 1
            yield outcome
