"""Closing a client ends, whatever state an interrupt has left its calls in."""

from __future__ import annotations

import threading
import time

import pytest

from rose.client import Client, channel


def test_a_call_that_never_ends_does_not_hold_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CLOSE_SECONDS", 0.05)
    client = Client("127.0.0.1:1")
    let_go, closed = threading.Event(), threading.Event()

    def close_and_wait() -> None:
        closed.set()
        let_go.wait(30)

    inner = client._channel
    monkeypatch.setattr(
        client, "_channel", type("Held", (), {"close": staticmethod(close_and_wait)})
    )
    started = time.monotonic()
    client.close()
    assert closed.is_set()
    assert time.monotonic() - started < 10
    let_go.set()
    inner.close()
