"""Streams: correlation, bounds, order, failures of one request and of the whole stream."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from rose._proto import tulip_pb2 as pb
from rose.client import (
    AsyncClient,
    Client,
    EmbedRequest,
    InvalidArgument,
    ResourceExhausted,
    RetryPolicy,
    ScoreRequest,
    StreamOutcome,
    Unavailable,
)

FAST = RetryPolicy(max_attempts=3, initial_backoff=0.001, max_backoff=0.002)

Runner = Callable[..., list[StreamOutcome[Any]]]


def run_sync(address: str, requests: Any, **options: Any) -> list[StreamOutcome[Any]]:
    with Client(address, retry=FAST) as client:
        return list(client.score_stream(requests, **options))


def run_asyncio(address: str, requests: Any, **options: Any) -> list[StreamOutcome[Any]]:
    async def run() -> list[StreamOutcome[Any]]:
        async with AsyncClient(address, retry=FAST) as client:
            return [outcome async for outcome in client.score_stream(requests, **options)]

    return asyncio.run(run())


@pytest.fixture(params=[run_sync, run_asyncio], ids=["sync", "asyncio"])
def run(request: pytest.FixtureRequest) -> Runner:
    runner: Runner = request.param
    return runner


def requests_of(count: int) -> Iterator[ScoreRequest]:
    for n in range(count):
        yield ScoreRequest("q", ["d" * n])


def test_each_request_gets_its_own_answer(tulip: Any, run: Runner) -> None:
    tulip.handlers["ScoreStream"] = tulip.echo(pb.ScoreStreamResponse, tulip.score_by_length)
    outcomes = run(tulip.address, requests_of(300), max_in_flight=8)
    assert sorted(o.index for o in outcomes) == list(range(300))
    for outcome in outcomes:
        assert outcome.unwrap().scores.tolist() == [float(outcome.index)]


def test_no_more_are_taken_than_may_be_in_flight(tulip: Any, run: Runner) -> None:
    taken: list[int] = []
    most: list[int] = []

    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        waiting = []
        for request in requests:
            waiting.append(request)
            if len(waiting) == 4:  # a full window, and the client is silent until an answer
                most.append(len(taken))
                for each in waiting:
                    yield pb.ScoreStreamResponse(
                        request_id=each.request_id, response=tulip.score_by_length(each)
                    )
                waiting.clear()

    def counted() -> Iterator[ScoreRequest]:
        for request in requests_of(40):
            taken.append(1)
            yield request

    outcomes = run(tulip.address, counted(), max_in_flight=4)
    assert len(outcomes) == 40
    assert most[0] == 4
    assert most == sorted(most)


@pytest.mark.parametrize("ordered", [True, False])
def test_order_is_that_of_the_requests_only_when_asked_for(
    tulip: Any, run: Runner, ordered: bool
) -> None:
    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        window = []
        for request in requests:
            window.append(request)
            if len(window) == 5:
                for each in reversed(window):
                    yield pb.ScoreStreamResponse(
                        request_id=each.request_id, response=tulip.score_by_length(each)
                    )
                window.clear()

    outcomes = run(tulip.address, requests_of(20), max_in_flight=5, ordered=ordered)
    indices = [o.index for o in outcomes]
    assert (indices == list(range(20))) is ordered
    assert sorted(indices) == list(range(20))


def test_a_failed_request_is_an_outcome_and_the_stream_goes_on(tulip: Any, run: Runner) -> None:
    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            if request.request_id == "bad":
                error = pb.StreamError(code=8, message="queue is full", retry_after_ms=250)
                yield pb.ScoreStreamResponse(request_id="bad", error=error)
            else:
                yield pb.ScoreStreamResponse(
                    request_id=request.request_id, response=tulip.score_by_length(request)
                )

    requests = [
        ScoreRequest("q", ["d"], request_id="good"),
        ScoreRequest("q", ["d"], request_id="bad"),
        ScoreRequest("q", [-1]),  # type: ignore[list-item]
        ScoreRequest("q", ["dd"]),
    ]
    first, second, third, fourth = run(tulip.address, requests, ordered=True, max_in_flight=1)
    assert first.unwrap().scores.tolist() == [1.0]
    assert (second.request_id, second.result) == ("bad", None)
    with pytest.raises(ResourceExhausted, match="queue is full") as caught:
        second.unwrap()
    assert caught.value.retry_after == 0.25
    assert isinstance(third.error, InvalidArgument)
    assert fourth.unwrap().scores.tolist() == [2.0]


def test_a_broken_stream_is_opened_again_and_nothing_is_lost(tulip: Any, run: Runner) -> None:
    streams: list[int] = []

    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        streams.append(0)
        for answered, request in enumerate(requests):
            if answered == 7 and len(streams) < 5:
                context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
            yield pb.ScoreStreamResponse(
                request_id=request.request_id, response=tulip.score_by_length(request)
            )

    outcomes = run(tulip.address, requests_of(60), max_in_flight=6, ordered=True)
    assert len(streams) == 5
    assert [o.unwrap().scores[0] for o in outcomes] == list(range(60))


def test_a_draining_server_answers_what_it_has_and_the_rest_goes_to_the_next_stream(
    tulip: Any, run: Runner
) -> None:
    streams: list[int] = []

    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        streams.append(0)
        draining = False
        for answered, request in enumerate(requests):
            draining = draining or (answered == 3 and len(streams) == 1)
            if draining:
                error = pb.StreamError(code=14, message="draining")
                yield pb.ScoreStreamResponse(request_id=request.request_id, error=error)
            else:
                yield pb.ScoreStreamResponse(
                    request_id=request.request_id, response=tulip.score_by_length(request)
                )

    outcomes = run(tulip.address, requests_of(20), max_in_flight=4, ordered=True)
    assert len(streams) == 2
    assert [o.unwrap().scores[0] for o in outcomes] == list(range(20))


def test_a_stream_that_only_breaks_is_given_up(tulip: Any, run: Runner) -> None:
    streams: list[int] = []

    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        streams.append(0)
        context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
        yield

    with pytest.raises(Unavailable, match=r"going away|closed the stream"):
        run(tulip.address, requests_of(3))
    assert len(streams) == 3


def test_an_early_end_of_the_stream_is_a_failure(tulip: Any, run: Runner) -> None:
    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        next(requests)
        return iter(())

    with pytest.raises(Unavailable, match="unanswered"):
        run(tulip.address, requests_of(3), max_in_flight=1)


def test_another_failure_of_the_stream_is_raised_at_once(tulip: Any, run: Runner) -> None:
    streams: list[int] = []

    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        streams.append(0)
        next(requests)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such model")
        yield

    with pytest.raises(InvalidArgument, match="no such model"):
        run(tulip.address, requests_of(3), max_in_flight=1)
    assert len(streams) == 1


def test_what_the_callers_iterator_raises_comes_back_to_the_caller(tulip: Any, run: Runner) -> None:
    tulip.handlers["ScoreStream"] = tulip.echo(pb.ScoreStreamResponse, tulip.score_by_length)

    def broken() -> Iterator[ScoreRequest]:
        yield from requests_of(2)
        raise LookupError("row 3 is missing")

    with pytest.raises(LookupError, match="row 3"):
        run(tulip.address, broken())


def test_no_requests_is_no_outcomes(tulip: Any, run: Runner) -> None:
    tulip.handlers["ScoreStream"] = tulip.echo(pb.ScoreStreamResponse, tulip.score_by_length)
    assert run(tulip.address, []) == []


def test_a_caller_that_leaves_cancels_the_stream(tulip: Any) -> None:
    cancelled = threading.Event()

    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(cancelled.set)
        request = next(requests)
        yield pb.ScoreStreamResponse(
            request_id=request.request_id, response=tulip.score_by_length(request)
        )
        cancelled.wait(20)  # the end of the requests alone does not end this stream

    with Client(tulip.address) as client:
        outcomes = client.score_stream(requests_of(10**9), max_in_flight=2)
        next(outcomes)
        started = time.monotonic()
        outcomes.close()
        assert cancelled.wait(10)
        assert time.monotonic() - started < 5
        # The connection is still good.
        tulip.on("Score")(lambda request, context: tulip.score_by_length(request))
        assert client.score("q", ["dd"]).scores.tolist() == [2.0]


def test_asyncio_requests_may_come_from_an_asynchronous_iterator(tulip: Any) -> None:
    tulip.handlers["EmbedStream"] = tulip.echo(pb.EmbedStreamResponse, tulip.embed_by_length)

    async def requests() -> AsyncIterator[EmbedRequest]:
        for n in range(10):
            await asyncio.sleep(0)
            yield EmbedRequest(["x" * n, "y"])

    async def run() -> list[float]:
        async with AsyncClient(tulip.address) as client:
            return [
                float(outcome.unwrap().embeddings[0, 0])
                async for outcome in client.embed_stream(requests(), ordered=True)
            ]

    assert asyncio.run(run()) == list(range(10))


def test_requests_with_one_id_cannot_be_in_flight_together(tulip: Any, run: Runner) -> None:
    tulip.handlers["ScoreStream"] = tulip.echo(pb.ScoreStreamResponse, tulip.score_by_length)

    @tulip.on("ScoreStream")
    def handler(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in list(requests):
            yield pb.ScoreStreamResponse(
                request_id=request.request_id, response=tulip.score_by_length(request)
            )

    twice = [ScoreRequest("q", ["d"], request_id="same") for _ in range(2)]
    first, second = run(tulip.address, twice, ordered=True)
    assert first.error is None
    assert "'same' is in flight" in str(second.error)


def test_an_iterator_that_outlives_the_program_does_not_hold_it() -> None:
    """The dying interpreter closes it when its threads are gone, with the locks they held."""
    program = """
import gc, threading
from rose._proto import tulip_pb2 as pb
from rose.client import RetryPolicy, ScoreRequest
from rose.client.stream import StreamRun
from rose.client.window import StreamWindow

class Call:
    lock = threading.Lock()  # as grpc's: the reader dies with it
    reading = threading.Event()

    def __init__(self, messages):
        self.messages = messages

    def __iter__(self):
        error = pb.StreamError(code=9, message="no")
        yield pb.ScoreStreamResponse(request_id=next(self.messages).request_id, error=error)
        with self.lock:
            self.reading.set()
            threading.Event().wait()

    def cancel(self):
        with self.lock:
            pass

def main():
    requests = [ScoreRequest("q", ["d"])] * 2
    window = StreamWindow(8, ordered=True, read=None)
    run = StreamRun(
        lambda messages, timeout: Call(messages), requests, window, RetryPolicy(), 60.0
    )
    outcomes = run.outcomes()
    next(outcomes)
    assert Call.reading.wait(30)
    held = [outcomes]
    held.append(held)  # only the collector finds it

gc.disable()
main()
print("ends", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
