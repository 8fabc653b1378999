"""A caller that leaves, however it does, leaves no work behind, and hears in clear words why."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from rose.client import (
    AsyncClient,
    Cancelled,
    Client,
    DeadlineExceeded,
    RoseError,
    ScoreRequest,
)

# Steps of one document, so slow that all the work of a test would take minutes.
DOCUMENT = np.arange(1000, 1500, dtype=np.uint32)
DOCUMENTS = [DOCUMENT] * 200
BUSY_TOKENS = 50_000
SOON = 20.0


@pytest.fixture(scope="module")
def server(serve: Any, make_bert: Callable[..., Path]) -> Iterator[Any]:
    slow = make_bert("slow-reranker", labels=1, layers=96)
    options = ("--max-batch-tokens", "512", "--http-address", "127.0.0.1:0")
    with serve(slow, *options) as server:
        yield server
        assert server.stop()[0] == 0


def outstanding_tokens(server: Any) -> int:
    (replica,) = httpx.get(f"{server.http}/status").json()["replicas"]
    tokens: int = replica["outstanding_tokens"]
    return tokens


def wait_until(server: Any, condition: Callable[[int], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition(tokens := outstanding_tokens(server)):
        assert time.monotonic() < deadline, f"{tokens} tokens are outstanding"


def busy(tokens: int) -> bool:
    return tokens > BUSY_TOKENS


def idle(tokens: int) -> bool:
    return tokens == 0


@pytest.fixture(autouse=True)
def nothing_is_left(server: Any) -> Iterator[None]:
    wait_until(server, idle)
    yield
    wait_until(server, idle)


def requests() -> Iterator[ScoreRequest]:
    yield ScoreRequest("short", ["short"])
    while True:
        yield ScoreRequest("q", DOCUMENTS)


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_a_stream_closed_half_way(server: Any) -> None:
    with Client(server.address) as client:
        outcomes = client.score_stream(requests(), max_in_flight=4)
        assert next(outcomes).error is None
        wait_until(server, busy)
        outcomes.close()
        wait_until(server, idle)
        assert client.score("q", ["d"]).ok.all(), "the connection is still good"


def test_a_client_closed_under_a_stream(server: Any) -> None:
    client = Client(server.address)
    thread, errors = in_thread(lambda: list(client.score_stream(requests(), max_in_flight=4)))
    wait_until(server, busy)
    client.close()
    thread.join(SOON)
    (error,) = errors
    assert isinstance(error, Cancelled)
    assert "closed" in str(error)


def test_a_client_closed_under_a_call(server: Any) -> None:
    client = Client(server.address)
    thread, errors = in_thread(lambda: client.score("q", DOCUMENTS, timeout=120))
    wait_until(server, busy)
    client.close()
    thread.join(SOON)
    (error,) = errors
    assert isinstance(error, Cancelled)
    assert "closed" in str(error)


def test_a_deadline_that_passes(server: Any) -> None:
    with Client(server.address) as client, pytest.raises(DeadlineExceeded):
        client.score("q", DOCUMENTS, timeout=1.0)


def test_a_deadline_that_passes_over_a_stream(server: Any) -> None:
    with Client(server.address) as client, pytest.raises(DeadlineExceeded):
        list(client.score_stream(requests(), max_in_flight=4, timeout=2.0))


def test_a_closed_client_says_so(server: Any) -> None:
    client = Client(server.address)
    client.close()
    with pytest.raises(RoseError, match="the client is closed"):
        client.score("q", ["d"])
    with pytest.raises(RoseError, match="the client is closed"):
        list(client.score_stream(requests()))

    async def run() -> None:
        client = AsyncClient(server.address)
        await client.close()
        with pytest.raises(RoseError, match="the client is closed"):
            await client.score("q", ["d"])
        with pytest.raises(RoseError, match="the client is closed"):
            await anext(aiter(client.score_stream(requests())))

    asyncio.run(run())


Leave = Callable[[AsyncClient, Any], Awaitable[None]]


async def cancel_a_call(client: AsyncClient, server: Any) -> None:
    task = asyncio.create_task(client.score("q", DOCUMENTS, timeout=120))
    await asyncio.to_thread(wait_until, server, busy)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def close_a_stream(client: AsyncClient, server: Any) -> None:
    outcomes: Any = client.score_stream(requests(), max_in_flight=4)
    assert (await anext(outcomes)).error is None
    await asyncio.to_thread(wait_until, server, busy)
    await outcomes.aclose()


async def leave_a_stream(client: AsyncClient, server: Any) -> None:
    async for outcome in client.score_stream(requests(), max_in_flight=4):
        assert outcome.error is None
        await asyncio.to_thread(wait_until, server, busy)
        break


async def cancel_a_stream(client: AsyncClient, server: Any) -> None:
    async def run() -> None:
        async for outcome in client.score_stream(requests(), max_in_flight=4):
            assert outcome.error is None

    task = asyncio.create_task(run())
    await asyncio.to_thread(wait_until, server, busy)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def close_the_client_under_a_stream(client: AsyncClient, server: Any) -> None:
    async def run() -> None:
        async for outcome in client.score_stream(requests(), max_in_flight=4):
            assert outcome.error is None

    task = asyncio.create_task(run())
    await asyncio.to_thread(wait_until, server, busy)
    await client.close()
    with pytest.raises(Cancelled, match="closed"):
        await asyncio.wait_for(task, SOON)


async def close_the_client_under_a_call(client: AsyncClient, server: Any) -> None:
    task = asyncio.create_task(client.score("q", DOCUMENTS, timeout=120))
    await asyncio.to_thread(wait_until, server, busy)
    await client.close()
    with pytest.raises(Cancelled, match="closed"):
        await asyncio.wait_for(task, SOON)


@pytest.mark.parametrize(
    "leave",
    [
        cancel_a_call,
        close_a_stream,
        leave_a_stream,
        cancel_a_stream,
        close_the_client_under_a_stream,
        close_the_client_under_a_call,
    ],
)
def test_asyncio(server: Any, leave: Leave) -> None:
    async def run() -> None:
        client = AsyncClient(server.address)
        try:
            await leave(client, server)
            await asyncio.to_thread(wait_until, server, idle)
        finally:
            await client.close()

    asyncio.run(run())
