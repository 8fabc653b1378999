"""`litellm`, which speaks to each family of servers in its own way, unchanged."""

from __future__ import annotations

from typing import Any

import litellm
import pytest

from .conftest import DOCUMENTS, KEY, QUERY, Service, close, same_ranking

# Not `infinity`: it reads documents of /rerank as strings, and vLLM answers objects there.
RERANK_PROVIDERS = ("cohere", "jina_ai", "huggingface", "hosted_vllm")
# Without top_n litellm's request to Voyage is to the letter one to Jina, whose path it is too.
WITH_TOP_N = ("cohere", "jina_ai", "hosted_vllm", "voyage")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "suppress_debug_info", True)


def rerank(provider: str, service: Service, **options: Any) -> Any:
    given: dict[str, Any] = {
        "model": f"{provider}/{service.model}",
        "query": QUERY,
        "documents": list(DOCUMENTS),
        "api_base": service.url,
        "api_key": KEY,
    }
    return litellm.rerank(**given | options)


@pytest.mark.parametrize("provider", RERANK_PROVIDERS)
def test_rerank(provider: str, reranker: Service) -> None:
    answer = rerank(provider, reranker)
    ranks = [(result["index"], result["relevance_score"]) for result in answer.results]
    same_ranking(ranks, reranker.ranking())


@pytest.mark.parametrize("provider", WITH_TOP_N)
def test_rerank_top_n(provider: str, reranker: Service) -> None:
    answer = rerank(provider, reranker, top_n=2)
    ranks = [(result["index"], result["relevance_score"]) for result in answer.results]
    same_ranking(ranks, reranker.ranking()[:2])


@pytest.mark.parametrize("provider", ["jina_ai", "huggingface"])
def test_rerank_returns_documents(provider: str, reranker: Service) -> None:
    answer = rerank(provider, reranker, return_documents=True)
    texts = [result["document"]["text"] for result in answer.results]
    assert texts == [DOCUMENTS[index] for index, _ in reranker.ranking()]


@pytest.mark.parametrize("provider", RERANK_PROVIDERS)
def test_rerank_with_a_wrong_key(provider: str, reranker: Service) -> None:
    with pytest.raises(Exception) as caught:
        rerank(provider, reranker, api_key="wrong", max_retries=0)
    # TEI's 401 has no body, and some of litellm's providers lose the status then.
    assert getattr(caught.value, "status_code", 401) in (401, 500)


def embed(model: str, service: Service, **options: Any) -> Any:
    given: dict[str, Any] = {"model": model, "input": list(DOCUMENTS), "api_key": KEY}
    answer = litellm.embedding(**given | {"api_base": service.v1} | options)
    return [row["embedding"] for row in answer.data]


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "jina_ai", "voyage"])
def test_embedding(provider: str, embedder: Service) -> None:
    base = embedder.v1 if provider in ("openai", "hosted_vllm") else f"{embedder.v1}/embeddings"
    close(embed(f"{provider}/any", embedder, api_base=base), embedder.embed(DOCUMENTS))


def test_embedding_of_cohere(embedder: Service) -> None:
    found = embed("cohere/embed-v4.0", embedder, api_base=f"{embedder.url}/v2/embed")
    close(found, embedder.embed(DOCUMENTS))


def test_embedding_of_tei(embedder: Service) -> None:
    # The task is named, or litellm asks a hub for it.
    found = embed("huggingface/any", embedder, api_base=f"{embedder.url}/embed", input_type="embed")
    close(found, embedder.embed(DOCUMENTS))


def test_errors_have_litellms_classes(embedder: Service, reranker: Service) -> None:
    with pytest.raises(litellm.AuthenticationError):
        embed("openai/any", embedder, api_key="wrong", max_retries=0)
    with pytest.raises(litellm.NotFoundError, match="no-such"):
        embed("openai/no-such", reranker, max_retries=0)
    with pytest.raises(litellm.BadRequestError, match="input"):
        embed("openai/any", embedder, input=[], max_retries=0)
