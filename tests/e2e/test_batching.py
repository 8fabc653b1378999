"""A result does not depend on its company: alone = in a crowd = split over steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rose.client import AsyncClient, Client, EmbedRequest, ScoreRequest

WORDS = (
    *("river", "stone", "cloud", "paper", "engine"),
    *("violet", "harbour", "signal", "copper", "winter"),
)


def mixed_documents(count: int, seed: int = 1) -> list[str]:
    generator = random.Random(seed)
    return [
        f"{n} " + " ".join(generator.choices(WORDS, k=int(2 ** generator.uniform(0, 7.5))))
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def alone(minilm: Any) -> Iterator[Any]:
    """Score of a document in a request of its own."""
    with Client(minilm.address, timeout=120) as client:

        def score(query: str, document: str) -> float:
            return float(client.score(query, [document]).scores[0])

        yield score


def test_alone_equals_in_a_crowd_of_64(minilm: Any, alone: Any) -> None:
    documents = mixed_documents(64 * 5)
    queries = [f"{WORDS[n % 10]} {n}" for n in range(64)]

    async def crowd() -> list[Any]:
        async with AsyncClient(minilm.address, timeout=120) as client:
            return await asyncio.gather(
                *(
                    client.score(query, documents[5 * n : 5 * n + 5])
                    for n, query in enumerate(queries)
                )
            )

    for n, result in enumerate(asyncio.run(crowd())):
        for index, score in enumerate(result.scores):
            assert abs(alone(queries[n], documents[5 * n + index]) - score) <= 1e-5


def test_a_thousand_documents_come_back_in_order(minilm: Any) -> None:
    documents = mixed_documents(1000)
    with Client(minilm.address, timeout=300) as client:
        result = client.score("copper winter", documents)
        # The same in another order must be the same numbers in that order.
        order = random.Random(3).sample(range(1000), 1000)
        shuffled = client.score("copper winter", [documents[n] for n in order])
    assert result.ok.all()
    assert len(result.scores) == 1000
    assert len(set(result.ranking)) == 1000
    assert np.abs(result.scores[order] - shuffled.scores).max() <= 1e-5
    # Neighbours differ, or the order would not have been seen.
    assert np.mean(np.abs(np.diff(result.scores)) > 1e-4) > 0.9


def test_split_over_steps_equals_whole(serve: Any, minilm: Any) -> None:
    documents = mixed_documents(150)
    with Client(minilm.address, timeout=120) as client:
        whole = client.score("paper engine", documents).scores
        vectors = client.embed(documents).embeddings
    with (
        serve("demo", "--max-batch-tokens", "256", "--max-batch-sequences", "3") as server,
        Client(server.address, timeout=120) as client,
    ):
        split = client.score("paper engine", documents)
        split_vectors = client.embed(documents).embeddings
    assert np.abs(split.scores - whole).max() <= 1e-5
    assert np.abs(split_vectors - vectors).max() <= 1e-5


def test_streams_answer_as_unary_calls_do(minilm: Any) -> None:
    documents = mixed_documents(400, seed=9)
    batches = [documents[n : n + 10] for n in range(0, 400, 10)]
    with Client(minilm.address, timeout=120) as client:
        expected = [client.embed(batch).embeddings for batch in batches]
        streamed = client.embed_stream(
            (EmbedRequest(batch) for batch in batches), max_in_flight=16, ordered=True
        )
        for outcome, vectors in zip(streamed, expected, strict=True):
            assert np.abs(outcome.unwrap().embeddings - vectors).max() <= 1e-5
        scored = client.score_stream(
            (ScoreRequest("violet harbour", batch) for batch in batches), max_in_flight=16
        )
        seen = {outcome.index: outcome.unwrap().scores for outcome in scored}
        assert sorted(seen) == list(range(40))
        assert np.abs(seen[7] - client.score("violet harbour", batches[7]).scores).max() <= 1e-5


def test_a_failed_request_on_a_stream_leaves_the_others(minilm: Any) -> None:
    requests = [
        ScoreRequest("violet", ["a"]),
        ScoreRequest("violet", []),
        ScoreRequest("violet", ["b"]),
    ]
    with Client(minilm.address) as client:
        first, second, third = client.score_stream(requests, ordered=True)
    assert first.error is None
    assert third.error is None
    assert second.error is not None
    assert second.error.code == "INVALID_ARGUMENT"
    assert "documents" in second.error.message


def test_dtypes_and_dimensions_are_those_asked_for(minilm: Any, tmp_path: Path) -> None:
    texts = mixed_documents(5)
    with Client(minilm.address) as client:
        full = client.embed(texts).embeddings
        half = client.embed(texts, dtype="float16").embeddings
        brain = client.embed(texts, dtype="bfloat16").embeddings
        ubinary = client.embed(texts, dtype="ubinary").embeddings
        binary = client.embed(texts, dtype="binary").embeddings
    assert (full.dtype, half.dtype, brain.dtype) == (np.float32, np.float16, np.float32)
    assert np.abs(half - full).max() <= 1e-3
    assert np.abs(brain - full).max() <= 1e-2
    packed = np.packbits(full > 0, axis=-1)
    assert ubinary.tolist() == packed.tolist()
    assert binary.tolist() == (packed.astype(np.int16) - 128).tolist()
