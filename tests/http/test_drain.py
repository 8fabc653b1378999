"""An SDK's call in flight is answered while the server drains; later ones find no server."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai

from rose.client import Client

from .conftest import close


def test_drain(serve: Any, make_bert: Callable[..., Path]) -> None:
    model = make_bert("tiny-embedder", layers=4)
    with serve(model, "--http-address", "127.0.0.1:0", "--max-batch-tokens", "512") as server:
        texts = ["word " * 400] * 400
        with Client(server.address, timeout=120) as client:
            expected = client.embed(texts[:1]).embeddings
        answers: list[Any] = []

        def ask() -> None:
            # Bulk: what looks whether it waits does not wait behind it.
            headers = {"X-Priority": "bulk"}
            with openai.OpenAI(base_url=f"{server.http}/v1", api_key="any") as sdk:
                answers.append(sdk.embeddings.create(model="m", input=texts, extra_headers=headers))

        asking = threading.Thread(target=ask)
        asking.start()
        with Client(server.address) as client:
            until(lambda: client.embed(["a"]).load.queued_sequences > 0)
        server.process.send_signal(signal.SIGTERM)
        with openai.OpenAI(base_url=f"{server.http}/v1", api_key="any", max_retries=0) as sdk:

            def is_refused() -> bool:
                try:
                    sdk.embeddings.create(model="m", input="a")
                except openai.APIConnectionError:
                    return True
                except openai.InternalServerError as error:
                    return error.status_code == 503
                return False

            until(is_refused)
        asking.join(60)
        assert server.wait()[0] == 0
    (answer,) = answers
    assert len(answer.data) == len(texts)
    close(answer.data[-1].embedding, expected[0])


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
