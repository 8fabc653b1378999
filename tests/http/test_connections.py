"""What happens on the socket: framing, slow and half-closed clients, HTTP/2 without asking."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rose.client import Client

from .conftest import DOCUMENTS, KEY, MAX_BODY_BYTES, QUERY, Service, close

AUTHORIZATION = f"Authorization: Bearer {KEY}\r\n"


@contextmanager
def connected(service: Service, timeout: float = 20.0) -> Iterator[socket.socket]:
    host, port = service.url.removeprefix("http://").rsplit(":", 1)
    with closing(socket.create_connection((host, int(port)), timeout)) as connection:
        yield connection


def body(**more: Any) -> bytes:
    return json.dumps({"query": QUERY, "texts": list(DOCUMENTS)} | more).encode()


def head(content: bytes | int, *, path: str = "/rerank", more: str = "") -> bytes:
    length = content if isinstance(content, int) else len(content)
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\n{AUTHORIZATION}"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n"
    ).encode()


class Answers:
    """Reads HTTP/1.1 answers off a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.file = connection.makefile("rb")

    def next(self) -> tuple[int, dict[str, str], bytes]:
        line = self.file.readline()
        assert line, "the connection was closed"
        status = int(line.split()[1])
        headers = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, self.file.read(int(headers.get("content-length", "0")))

    def is_closed(self) -> bool:
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


def scores(answer: bytes) -> list[float]:
    return [rank["score"] for rank in sorted(json.loads(answer), key=lambda rank: rank["index"])]


def test_chunked_bodies(reranker: Service) -> None:
    content = body()
    with connected(reranker) as connection:
        connection.sendall(
            b"POST /rerank HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            + AUTHORIZATION.encode()
            + b"\r\n"
        )
        for start in range(0, len(content), 7):
            part = content[start : start + 7]
            connection.sendall(b"%x;extension=1\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\nTrailer: x\r\n\r\n")
        status, _, answer = Answers(connection).next()
    assert status == 200
    close(scores(answer), reranker.scores())


def test_a_chunked_body_that_is_too_large(reranker: Service) -> None:
    with connected(reranker) as connection:
        connection.sendall(
            b"POST /rerank HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            + AUTHORIZATION.encode()
            + b"\r\n"
        )
        try:
            for _ in range(MAX_BODY_BYTES // 10_000 + 2):
                connection.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered already
        assert Answers(connection).next()[0] == 413


@pytest.mark.parametrize(
    "framing",
    [
        "Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        "Content-Length: 99999999999999999999999\r\n\r\n",
        "Transfer-Encoding: gzip\r\n\r\n",
        "Content-Length: 4\r\n\r\n{}\x00\x01",
        "bad header\r\n\r\n",
        "Content-Type: text/\x00\r\n\r\n",
    ],
)
def test_broken_framing_is_the_clients_fault(reranker: Service, framing: str) -> None:
    with connected(reranker) as connection:
        connection.sendall(f"POST /rerank HTTP/1.1\r\nHost: x\r\n{AUTHORIZATION}{framing}".encode())
        status, _, _ = Answers(connection).next()
    assert 400 <= status < 500


def test_length_and_chunks_together_are_read_once(reranker: Service) -> None:
    # A proxy in front may believe the other header: what follows must not become a request.
    smuggled = b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(reranker) as connection:
        connection.sendall(
            f"POST /rerank HTTP/1.1\r\nHost: x\r\n{AUTHORIZATION}Content-Length: 5\r\n"
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
            + smuggled
        )
        answers = Answers(connection)
        status, headers, _ = answers.next()
        assert 400 <= status < 500
        if headers.get("connection") != "close":
            # Refused for its empty body: then the rest may be one request, without a key.
            assert answers.is_closed() or answers.next()[0] in (400, 401)


def test_pipelined_requests_are_answered_in_order(reranker: Service) -> None:
    queries = [f"query {index}" for index in range(20)]
    with connected(reranker) as connection:
        requests = [body(query=query) for query in queries]
        connection.sendall(b"".join(head(content) + content for content in requests))
        answers = Answers(connection)
        found = [answers.next() for _ in queries]
    assert {status for status, _, _ in found} == {200}
    for query, (_, _, answer) in zip(queries[::6], found[::6], strict=True):
        close(scores(answer), reranker.scores(query))


def test_expect_100_continue(reranker: Service) -> None:
    content = body()
    with connected(reranker) as connection:
        connection.sendall(head(content, more="Expect: 100-continue\r\n"))
        answers = Answers(connection)
        assert answers.next()[0] == 100
        connection.sendall(content)
        status, _, answer = answers.next()
    assert status == 200
    close(scores(answer), reranker.scores())


def test_expect_100_continue_is_refused_before_the_body(reranker: Service) -> None:
    with connected(reranker) as connection:
        connection.sendall(head(MAX_BODY_BYTES + 1, more="Expect: 100-continue\r\n"))
        assert Answers(connection).next()[0] == 413


def test_huge_headers(reranker: Service) -> None:
    for more in ("X-Large: " + "x" * 1_000_000 + "\r\n", "X-Many: 1\r\n" * 5_000):
        with connected(reranker) as connection:
            try:
                connection.sendall(head(2, more=more) + b"{}")
            except (BrokenPipeError, ConnectionResetError):
                continue
            answers = Answers(connection)
            try:
                assert answers.next()[0] == 431
            except (AssertionError, ConnectionResetError):
                assert answers.is_closed()


def test_a_slow_head_is_cut_off(reranker: Service) -> None:
    started = time.monotonic()
    with connected(reranker, timeout=30.0) as connection:
        connection.sendall(b"POST /rerank HTTP/1.1\r\nHost: x\r\n")
        answers = Answers(connection)
        assert answers.is_closed() or answers.next()[0] == 408
    assert time.monotonic() - started < 25


def test_a_slow_body_is_cut_off(reranker: Service) -> None:
    with connected(reranker) as connection:
        connection.sendall(head(100, more="X-Request-Timeout-Ms: 300\r\n") + b'{"query"')
        status, _, answer = Answers(connection).next()
    assert status == 504, answer
    assert b"deadline exceeded" in answer


def test_half_closed_clients_are_taken_for_gone(reranker: Service) -> None:
    # On the socket a client that leaves looks the same, and its work must be cancelled.
    content = body()
    with connected(reranker) as connection:
        connection.sendall(head(content) + content)
        connection.shutdown(socket.SHUT_WR)
        answers = Answers(connection)
        assert answers.is_closed() or answers.file.readline() == b"TTP/1.1 200 OK\r\n"


def test_a_body_cut_short(reranker: Service) -> None:
    with connected(reranker) as connection:
        connection.sendall(head(100) + b'{"query"')
        connection.shutdown(socket.SHUT_WR)
        answers = Answers(connection)
        try:
            assert answers.next()[0] == 400
        except AssertionError:
            assert answers.is_closed()


def test_http2_prior_knowledge(reranker: Service) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(http2=True, http1=False, base_url=reranker.url, headers=headers) as client:
        answer = client.post("/rerank", content=body())
        assert answer.http_version == "HTTP/2"
        assert answer.status_code == 200
        close(scores(answer.content), reranker.scores())
        assert client.post("/rerank", content=b"{").status_code == 400
        assert client.post("/rerank", content=b" " * (MAX_BODY_BYTES + 1)).status_code == 413


def test_head_options_and_odd_paths(reranker: Service) -> None:
    with httpx.Client(base_url=reranker.url) as client:
        assert client.head("/health").status_code == 200
        assert client.options("/rerank").status_code in (200, 204, 401, 405)
        for path in ("/rerank//", "/rerank/", "/%00", "/v1/models/%2e%2e%2f", "/" + "x" * 8000):
            assert (
                400
                <= client.get(path, headers={"Authorization": f"Bearer {KEY}"}).status_code
                < 500
            )


def test_a_client_that_leaves_cancels_its_work(serve: Any, make_bert: Callable[..., Path]) -> None:
    """Work of minutes is sent and left: the queue is empty soon after."""
    model = make_bert("slow-embedder", layers=4)
    options = ("--http-address", "127.0.0.1:0", "--max-batch-tokens", "512")
    with serve(model, *options) as server, Client(server.address, timeout=60) as client:
        service = Service(server.http, server.address, server.model)
        content = json.dumps({"inputs": ["word " * 500] * 3000}).encode()
        request = head(content, path="/embed", more="X-Priority: bulk\r\n") + content
        with connected(service, timeout=60) as connection:
            connection.sendall(request)
            deadline = time.monotonic() + 60
            while (waiting := client.embed(["a"]).load.queued_sequences) == 0:
                assert time.monotonic() < deadline, "the work never came"
        assert waiting > 100
        deadline = time.monotonic() + 10
        while client.embed(["a"]).load.queued_sequences > 0:
            assert time.monotonic() < deadline, "abandoned work is still queued"
        assert not re.search("panicked|ERROR", server.stderr.read_text())
