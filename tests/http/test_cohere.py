"""The official `cohere` SDK, versions 1 and 2 of the API, and what is built on it, unchanged.

`test_newest_sdks.py` runs this file again with a newer major version of the SDK than the
integrations allow.
"""

from __future__ import annotations

import asyncio
from typing import Any

import cohere
import pytest
from cohere.core.api_error import ApiError

from .conftest import DOCUMENTS, KEY, LONG, MAX_BODY_BYTES, QUERY, Service, close, same_ranking

NO_RETRY: Any = {"max_retries": 0}


@pytest.fixture
def v2(reranker: Service) -> cohere.ClientV2:
    return cohere.ClientV2(api_key=KEY, base_url=reranker.url)


@pytest.fixture
def v1(reranker: Service) -> cohere.Client:
    return cohere.Client(api_key=KEY, base_url=reranker.url)


@pytest.fixture
def embed_v2(embedder: Service) -> cohere.ClientV2:
    return cohere.ClientV2(api_key=KEY, base_url=embedder.url)


def ranks(results: Any) -> list[tuple[int, float]]:
    return [(result.index, result.relevance_score) for result in results]


def test_rerank_v2(v2: cohere.ClientV2, reranker: Service) -> None:
    answer = v2.rerank(model=reranker.model, query=QUERY, documents=list(DOCUMENTS))
    same_ranking(ranks(answer.results), reranker.ranking())
    assert answer.meta.api_version.version == "2"
    assert answer.meta.tokens.input_tokens > len(DOCUMENTS)
    assert answer.meta.billed_units.search_units == 1
    assert answer.id
    two = v2.rerank(model=reranker.model, query=QUERY, documents=list(DOCUMENTS), top_n=2)
    same_ranking(ranks(two.results), reranker.ranking()[:2])


def test_rerank_v1_returns_documents_when_asked(v1: cohere.Client, reranker: Service) -> None:
    documents: list[Any] = [{"text": text, "page": i} for i, text in enumerate(DOCUMENTS)]
    answer = v1.rerank(
        model=reranker.model, query=QUERY, documents=documents, return_documents=True
    )
    same_ranking(ranks(answer.results), reranker.ranking())
    assert [r.document.text for r in answer.results] == [DOCUMENTS[r.index] for r in answer.results]
    plain = v1.rerank(model=reranker.model, query=QUERY, documents=list(DOCUMENTS))
    assert {result.document for result in plain.results} == {None}
    assert plain.meta.api_version.version == "1"


def test_asynchronous_rerank(reranker: Service) -> None:
    async def rerank() -> list[Any]:
        client = cohere.AsyncClientV2(api_key=KEY, base_url=reranker.url)
        calls = [
            client.rerank(model=reranker.model, query=query, documents=list(DOCUMENTS))
            for query in ("bees", "money", "France")
        ]
        return await asyncio.gather(*calls)

    for query, answer in zip(("bees", "money", "France"), asyncio.run(rerank()), strict=True):
        same_ranking(ranks(answer.results), reranker.ranking(query))


def test_truncation_is_a_warning(v2: cohere.ClientV2, reranker: Service) -> None:
    answer = v2.rerank(model=reranker.model, query=QUERY, documents=["short", LONG])
    (warning,) = answer.meta.warnings
    assert warning.startswith("documents[1] was truncated: ")
    assert "the end was cut off" in warning


@pytest.mark.parametrize("kind", ["float", "int8", "uint8", "binary", "ubinary"])
def test_embed_v2(embed_v2: cohere.ClientV2, embedder: Service, kind: str) -> None:
    answer = embed_v2.embed(
        model="embed-v4.0",
        input_type="search_document",
        texts=list(DOCUMENTS),
        embedding_types=[kind],
    )
    found = getattr(answer.embeddings, "float_" if kind == "float" else kind)
    dtype = "float32" if kind == "float" else kind
    close(found, embedder.embed(DOCUMENTS, dtype=dtype), 1e-5 if kind == "float" else 1)
    assert answer.texts == list(DOCUMENTS)
    assert answer.meta.billed_units.input_tokens > len(DOCUMENTS)


def test_embed_v1(embedder: Service) -> None:
    client = cohere.Client(api_key=KEY, base_url=embedder.url)
    answer = client.embed(model="m", texts=list(DOCUMENTS), input_type="search_document")
    close(answer.embeddings, embedder.embed(DOCUMENTS))
    assert answer.response_type == "embeddings_floats"
    typed = client.embed(
        model="m",
        texts=list(DOCUMENTS),
        input_type="search_query",
        embedding_types=["float", "int8"],
    )
    assert typed.response_type == "embeddings_by_type"
    close(typed.embeddings.float_, embedder.embed(DOCUMENTS))
    assert len(typed.embeddings.int8) == len(DOCUMENTS)


def failure(call: Any, *arguments: Any, **options: Any) -> tuple[type[Exception], int, str]:
    """Class of the exception, HTTP status, and message."""
    with pytest.raises(ApiError) as caught:
        call(*arguments, request_options=NO_RETRY, **options)
    assert isinstance(caught.value.body, dict), caught.value.body
    return type(caught.value), caught.value.status_code, caught.value.body["message"]


def test_wrong_key(reranker: Service) -> None:
    client = cohere.ClientV2(api_key="wrong", base_url=reranker.url)
    found = failure(client.rerank, model=reranker.model, query="q", documents=["d"])
    assert found == (cohere.UnauthorizedError, 401, "invalid api token")


def test_unknown_model(v1: cohere.Client, v2: cohere.ClientV2) -> None:
    for client in (v1, v2):
        kind, status, message = failure(
            client.rerank, model="rerank-v99", query="q", documents=["d"]
        )
        assert (kind, status) == (cohere.NotFoundError, 404)
        assert "rerank-v99" in message


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"documents": []}, "list of documents must not be empty"),
        ({"query": " \n"}, "query must not be empty or be only whitespace"),
        ({"top_n": 0}, "top_n: must be at least 1, is 0"),
        ({"documents": ["d"] * 51}, "50"),
        ({"documents": ["d", 3]}, "documents[1]"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    v2: cohere.ClientV2, reranker: Service, given: dict[str, Any], part: str
) -> None:
    request = {"model": reranker.model, "query": "q", "documents": ["d"]} | given
    kind, status, message = failure(v2.rerank, **request)
    assert (kind, status) == (cohere.BadRequestError, 400)
    assert message.startswith("invalid request: ")
    assert part in message


def test_a_body_that_is_too_large(v2: cohere.ClientV2, reranker: Service) -> None:
    _, status, message = failure(
        v2.rerank, model=reranker.model, query="q", documents=["d" * MAX_BODY_BYTES]
    )
    assert status == 413
    assert str(MAX_BODY_BYTES) in message


def test_over_long_texts_are_refused_when_asked(embed_v2: cohere.ClientV2) -> None:
    kind, status, message = failure(
        embed_v2.embed,
        model="m",
        input_type="search_document",
        texts=["a", LONG],
        truncate="NONE",
        embedding_types=["float"],
    )
    assert (kind, status) == (cohere.BadRequestError, 400)
    assert "texts[1]" in message
    assert "limit 256" in message


def test_images_are_refused(embed_v2: cohere.ClientV2) -> None:
    kind, _, message = failure(
        embed_v2.embed,
        model="m",
        input_type="image",
        images=["data:image/png;base64,AAAA"],
        embedding_types=["float"],
    )
    assert kind is cohere.BadRequestError
    assert "images" in message
