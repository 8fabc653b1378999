"""The official `openai` SDK, and what is built on it, unchanged."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import openai
import pytest

from rose.client import Client

from .conftest import DOCUMENTS, KEY, LONG, MAX_BODY_BYTES, Service, close


@pytest.fixture
def client(embedder: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=embedder.v1, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def strict(reranker: Service) -> Iterator[openai.OpenAI]:
    """Against the server with small limits."""
    with openai.OpenAI(base_url=reranker.v1, api_key=KEY, max_retries=0) as client:
        yield client


def test_vectors_are_those_of_grpc(client: openai.OpenAI, embedder: Service) -> None:
    # The SDK asks for base64 by itself, and decodes it.
    answer = client.embeddings.create(model="text-embedding-3-small", input=list(DOCUMENTS))
    close([row.embedding for row in answer.data], embedder.embed(DOCUMENTS))
    assert [row.index for row in answer.data] == list(range(len(DOCUMENTS)))
    assert answer.model == embedder.model
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(DOCUMENTS)


def test_every_form_of_input(client: openai.OpenAI, embedder: Service) -> None:
    def embed(given: object) -> list[list[float]]:
        data = client.embeddings.create(
            model="m",
            input=given,  # type: ignore[arg-type]
            encoding_format="float",
        ).data
        return [row.embedding for row in data]

    text = "bees make honey"
    expected = embedder.embed([text])
    close(embed(text), expected)
    close(embed([text]), expected)
    with Client(embedder.grpc) as grpc_client:
        # The text's own tokens, without [CLS] and [SEP].
        ids = grpc_client.tokenize([text]).sequences[0].token_ids[1:-1].tolist()
    close(embed(ids), expected)
    close(embed([ids, ids]), embedder.embed([text, text]))
    close(embed(["", text]), embedder.embed(["", text]))


def test_asynchronous_client(embedder: Service) -> None:
    async def embed() -> list[list[list[float]]]:
        async with openai.AsyncOpenAI(base_url=embedder.v1, api_key=KEY) as client:
            calls = [client.embeddings.create(model="m", input=d) for d in DOCUMENTS * 3]
            return [
                [row.embedding for row in answer.data] for answer in await asyncio.gather(*calls)
            ]

    close([rows[0] for rows in asyncio.run(embed())], embedder.embed(DOCUMENTS * 3))


def test_models(client: openai.OpenAI, strict: openai.OpenAI, embedder: Service) -> None:
    assert [model.id for model in client.models.list()] == [embedder.model]
    assert client.models.retrieve(embedder.model).id == embedder.model
    with pytest.raises(openai.NotFoundError) as caught:
        strict.models.retrieve("gpt-99")
    assert caught.value.code == "model_not_found"


def test_wrong_key(embedder: Service) -> None:
    for key in ("sk-wrong", KEY + "x", KEY[:-1]):
        client = openai.OpenAI(base_url=embedder.v1, api_key=key, max_retries=0)
        with client, pytest.raises(openai.AuthenticationError) as caught:
            client.embeddings.create(model="m", input="a")
        assert caught.value.status_code == 401
        assert caught.value.code == "invalid_api_key"
        assert key not in str(caught.value)


def test_unknown_model(strict: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        strict.embeddings.create(model="gpt-99", input="a")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert "gpt-99" in caught.value.message


def test_wrong_task(strict: openai.OpenAI, reranker: Service) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        strict.embeddings.create(model=reranker.model, input="a")
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [10**9]}, "input[0]"),
        ({"input": None}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 77}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": LONG, "extra_body": {"truncate": False}}, "input[0]"),
    ],
)
def test_bad_requests_name_the_field(
    client: openai.OpenAI, given: dict[str, object], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="m", **given)  # type: ignore[arg-type]
    assert caught.value.status_code == 400
    assert caught.value.type == "invalid_request_error"
    assert (caught.value.param or "").startswith(param), caught.value.message


def test_a_body_that_is_too_large(strict: openai.OpenAI, reranker: Service) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        strict.embeddings.create(model=reranker.model, input="a" * MAX_BODY_BYTES)
    assert caught.value.status_code == 413
    assert str(MAX_BODY_BYTES) in caught.value.message


def test_over_long_inputs_are_cut_and_told(client: openai.OpenAI, embedder: Service) -> None:
    raw = client.embeddings.with_raw_response.create(model="m", input=["a", LONG])
    close([row.embedding for row in raw.parse().data], embedder.embed(["a", LONG]))
    assert re.fullmatch(r"1:\d+>254", raw.headers["x-truncated"])


def test_a_deadline_that_passes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.embeddings.create(
            model="m", input=[LONG] * 30, extra_headers={"X-Request-Timeout-Ms": "20"}
        )
    assert caught.value.status_code == 504


def test_langchain_openai(embedder: Service) -> None:
    from langchain_openai import OpenAIEmbeddings

    embeddings = OpenAIEmbeddings(
        model="m", base_url=embedder.v1, api_key=KEY, check_embedding_ctx_length=False
    )
    close(embeddings.embed_documents(list(DOCUMENTS)), embedder.embed(DOCUMENTS))
    close([embeddings.embed_query(DOCUMENTS[0])], embedder.embed(DOCUMENTS[:1]))
    wrong = OpenAIEmbeddings(
        model="m", base_url=embedder.v1, api_key="sk-wrong", check_embedding_ctx_length=False
    )
    with pytest.raises(openai.AuthenticationError):
        wrong.embed_query("a")


def test_llama_index_openai_like(embedder: Service) -> None:
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    embedding = OpenAILikeEmbedding(model_name="m", api_base=embedder.v1, api_key=KEY)
    close(embedding.get_text_embedding_batch(list(DOCUMENTS)), embedder.embed(DOCUMENTS))
    close(asyncio.run(embedding.aget_query_embedding("bees")), embedder.embed(["bees"])[0])
    wrong = OpenAILikeEmbedding(
        model_name="m", api_base=embedder.v1, api_key="sk-wrong", max_retries=0
    )
    with pytest.raises(openai.AuthenticationError):
        wrong.get_text_embedding("a")
