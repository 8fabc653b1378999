"""What is tried again, how often, and when a call gives up."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import grpc
import pytest

from rose._proto import tulip_pb2 as pb
from rose.client import (
    AsyncClient,
    CallError,
    Cancelled,
    Client,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    RetryPolicy,
    Unavailable,
    Unimplemented,
)

FAST = RetryPolicy(max_attempts=3, initial_backoff=0.001, max_backoff=0.002)


def failing(tulip: Any, code: grpc.StatusCode, times: int = 10**9) -> list[int]:
    calls: list[int] = []

    @tulip.on("Score")
    def score(request: pb.ScoreRequest, context: grpc.ServicerContext) -> pb.ScoreResponse:
        calls.append(1)
        if len(calls) <= times:
            context.set_trailing_metadata((("retry-after-ms", "20"),))
            context.abort(code, "what the server said")
        return pb.ScoreResponse(scores=[1.0], ranking=[0])

    return calls


def test_unavailable_is_tried_again(tulip: Any) -> None:
    calls = failing(tulip, grpc.StatusCode.UNAVAILABLE, times=2)
    started = time.monotonic()
    with Client(tulip.address, retry=FAST) as client:
        assert client.score("q", ["d"]).scores.tolist() == [1.0]
    assert len(calls) == 3
    assert time.monotonic() - started >= 0.04  # twice what the server asked for


def test_the_asyncio_client_tries_again_too(tulip: Any) -> None:
    calls = failing(tulip, grpc.StatusCode.UNAVAILABLE, times=2)

    async def run() -> list[float]:
        async with AsyncClient(tulip.address, retry=FAST) as client:
            return list((await client.score("q", ["d"])).scores)

    assert asyncio.run(run()) == [1.0]
    assert len(calls) == 3


def test_tries_are_bounded(tulip: Any) -> None:
    calls = failing(tulip, grpc.StatusCode.UNAVAILABLE)
    with Client(tulip.address, retry=FAST) as client, pytest.raises(Unavailable) as caught:
        client.score("q", ["d"])
    assert len(calls) == 3
    assert str(caught.value) == "what the server said"
    assert caught.value.retry_after == 0.02


def test_no_pause_reaches_past_the_deadline(tulip: Any) -> None:
    calls = failing(tulip, grpc.StatusCode.UNAVAILABLE)
    patient = RetryPolicy(max_attempts=100, initial_backoff=0.02, max_backoff=0.02)
    with Client(tulip.address, retry=patient) as client, pytest.raises(CallError):
        client.score("q", ["d"], timeout=0.2)
    assert 2 <= len(calls) <= 10


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument),
        (grpc.StatusCode.OUT_OF_RANGE, InvalidArgument),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhausted),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, Cancelled),
        (grpc.StatusCode.UNIMPLEMENTED, Unimplemented),
        (grpc.StatusCode.INTERNAL, Internal),
        (grpc.StatusCode.DATA_LOSS, CallError),
    ],
)
def test_every_other_status_is_raised_at_once_as_its_own_kind(
    tulip: Any, code: grpc.StatusCode, kind: type[CallError]
) -> None:
    calls = failing(tulip, code)
    with Client(tulip.address, retry=FAST) as client, pytest.raises(kind) as caught:
        client.score("q", ["d"])
    assert type(caught.value) is kind
    assert caught.value.code == code.name
    assert caught.value.message == "what the server said"
    assert not isinstance(caught.value, grpc.RpcError)
    assert caught.value.__cause__ is None
    assert len(calls) == 1


def test_resource_exhausted_tells_when_to_come_back(tulip: Any) -> None:
    failing(tulip, grpc.StatusCode.RESOURCE_EXHAUSTED)
    with Client(tulip.address) as client, pytest.raises(ResourceExhausted) as caught:
        client.score("q", ["d"])
    assert caught.value.retry_after == 0.02


def test_a_call_always_has_a_deadline(tulip: Any) -> None:
    seen: list[float | None] = []

    @tulip.on("Score")
    def score(request: pb.ScoreRequest, context: grpc.ServicerContext) -> pb.ScoreResponse:
        seen.append(context.time_remaining())
        return pb.ScoreResponse()

    with Client(tulip.address, timeout=7) as client:
        client.score("q", ["d"])
        client.score("q", ["d"], timeout=3)
    assert seen[0] == pytest.approx(7, abs=1)
    assert seen[1] == pytest.approx(3, abs=1)


def test_the_deadline_passes(tulip: Any) -> None:
    @tulip.on("Score")
    def score(request: pb.ScoreRequest, context: grpc.ServicerContext) -> pb.ScoreResponse:
        released.wait(10)
        return pb.ScoreResponse()

    import threading

    released = threading.Event()
    try:
        with Client(tulip.address) as client, pytest.raises(DeadlineExceeded):
            client.score("q", ["d"], timeout=0.05)
    finally:
        released.set()


def test_nobody_there_is_unavailable_and_names_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with (
            Client(f"127.0.0.1:{port}", retry=FAST) as client,
            pytest.raises(Unavailable, match=str(port)),
        ):
            client.score("q", ["d"])


def test_the_backoff_grows_and_is_bounded() -> None:
    policy = RetryPolicy(max_attempts=50, initial_backoff=0.1, max_backoff=1.0)
    error = Unavailable("x")
    for attempt, ceiling in ((1, 0.1), (2, 0.2), (3, 0.4), (5, 1.0), (40, 1.0)):
        pauses = [policy.pause(attempt, error, 60.0) for _ in range(400)]
        assert all(p is not None and 0 <= p <= ceiling for p in pauses)
        assert max(p for p in pauses if p is not None) > ceiling * 0.9
    assert policy.pause(50, error, 60.0) is None
    assert policy.pause(1, ResourceExhausted("x"), 60.0) is None


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"initial_backoff": -1.0}, {"multiplier": 0.5}]
)
def test_a_policy_that_cannot_be_names_its_option(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RetryPolicy(**options)
