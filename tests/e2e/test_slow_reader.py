"""A server that stops lets answers leave that are still on their way to a slow reader."""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

from rose.client import Client, RetryPolicy

BYTES_PER_SECOND = 1_500_000
CHUNK = 16_384


class SlowLink:
    """Passes everything on to a server, and its answers back at a limited rate."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.answered = 0
        """Bytes of answers that have been passed back."""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with socket.socket() as server, client:
            # Before it connects, so that little of an answer waits on the way.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
            server.connect(self._server)
            asking = threading.Thread(target=_copy, args=(client, server), daemon=True)
            asking.start()
            with suppress(OSError):
                while part := server.recv(CHUNK):
                    client.sendall(part)
                    self.answered += len(part)
                    time.sleep(len(part) / BYTES_PER_SECOND)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65_536):
            target.sendall(part)


def test_an_answer_on_its_way_arrives_whole(serve: Any) -> None:
    texts = ["word"] * 4_000
    with serve("demo", "--drain-timeout", "60") as server:
        link = SlowLink(server.address)
        answers: list[Any] = []

        def ask() -> None:
            with Client(link.address, timeout=100, retry=RetryPolicy(max_attempts=1)) as client:
                answers.append(client.embed(texts))

        asking = threading.Thread(target=ask)
        asking.start()
        while link.answered < 200_000 and asking.is_alive():
            time.sleep(0.01)
        started = time.monotonic()
        status, _ = server.stop(signal.SIGTERM)
        drained = time.monotonic() - started
        asking.join(60)
    assert status == 0
    (answer,) = answers
    assert answer.ok.all()
    assert np.isfinite(answer.embeddings).all()
    size = answer.embeddings.nbytes
    assert size > 3 * BYTES_PER_SECOND, "too small to be on its way for long"
    assert drained > 2, "it was not on its way any more"
