"""Servers with their HTTP side, and the same answers over gRPC to compare with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rose.client import Client

KEY = "sk-rose-test"
"""The only key that the servers of these tests take."""

QUERY = "Which animals make honey?"
DOCUMENTS = (
    "The capital of France is Paris.",
    "Honey bees collect nectar and turn it into honey in their hives.",
    "Bumblebees live in small nests; they store little.",
    "Stock markets fell on Tuesday.",
    "Пчёлы делают мёд. 蜜蜂酿蜜。 🐝",
)
LONG = "honey " * 2000
"""More tokens than any model of these tests reads."""

MAX_BODY_BYTES = 300_000
MAX_ITEMS = 50


@pytest.fixture(autouse=True)
def hub_client_may_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_HUB_OFFLINE keeps loading off the hub; here it must not keep clients off our server."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@dataclass(frozen=True)
class Service:
    """One model over two protocols."""

    url: str
    grpc: str
    model: str

    @property
    def v1(self) -> str:
        """Base of the SDKs whose paths do not say the version."""
        return f"{self.url}/v1"

    def embed(self, texts: Sequence[str], **options: Any) -> npt.NDArray[np.float32]:
        """Vectors as gRPC answers them."""
        with Client(self.grpc) as client:
            return client.embed(list(texts), **options).embeddings

    def scores(self, query: str = QUERY, documents: Sequence[str] = DOCUMENTS) -> list[float]:
        """Scores as gRPC answers them, in request order."""
        with Client(self.grpc) as client:
            return [float(score) for score in client.score(query, list(documents)).scores]

    def ranking(
        self, query: str = QUERY, documents: Sequence[str] = DOCUMENTS
    ) -> list[tuple[int, float]]:
        """Index and score, best first, as gRPC answers them."""
        scores = self.scores(query, documents)
        return sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))


def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Vectors or scores are the same but for the order of additions in a batch."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= tolerance


def same_ranking(found: Sequence[tuple[int, float]], expected: Sequence[tuple[int, float]]) -> None:
    """The same indices in the same order with the same scores."""
    assert [index for index, _ in found] == [index for index, _ in expected]
    close([score for _, score in found], [score for _, score in expected])


def shared(name: str) -> Service | None:
    """A server that an outer test has started already."""
    given = os.environ.get(f"TEST_SERVICE_{name.upper()}")
    return Service(**json.loads(given)) if given else None


def as_environment(**services: Service) -> dict[str, str]:
    """What `shared` reads in a test that runs inside of a test."""
    return {f"TEST_SERVICE_{k.upper()}": json.dumps(asdict(v)) for k, v in services.items()}


def service_of(server: Any) -> Service:
    return Service(server.http, server.address, server.model)


@pytest.fixture(scope="session")
def embedder_server(serve: Any) -> Iterator[Any]:
    """all-MiniLM-L6-v2, any model name, with a key."""
    with serve("demo", "--http-address", "127.0.0.1:0", "--api-key", KEY) as server:
        yield server
        assert server.stop()[0] == 0
        assert "panicked" not in server.stderr.read_text()


@pytest.fixture(scope="session")
def embedder(request: pytest.FixtureRequest) -> Service:
    return shared("embedder") or service_of(request.getfixturevalue("embedder_server"))


@pytest.fixture(scope="session")
def reranker_server(serve: Any, cross_encoder_directory: Path) -> Iterator[Any]:
    """A cross-encoder of 512 tokens, its own name only, with a key and small limits."""
    with serve(
        cross_encoder_directory,
        *("--http-address", "127.0.0.1:0", "--api-key", KEY, "--strict-model-name"),
        *("--max-items-per-request", str(MAX_ITEMS), "--max-message-bytes", str(MAX_BODY_BYTES)),
    ) as server:
        yield server
        assert server.stop()[0] == 0
        assert "panicked" not in server.stderr.read_text()


@pytest.fixture(scope="session")
def reranker(request: pytest.FixtureRequest) -> Service:
    return shared("reranker") or service_of(request.getfixturevalue("reranker_server"))


@pytest.fixture(autouse=True, scope="session")
def no_proxy() -> None:
    """SDKs read these; the servers are on this machine."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") and name.lower() != "no_proxy":
            del os.environ[name]
    os.environ["NO_PROXY"] = "*"
