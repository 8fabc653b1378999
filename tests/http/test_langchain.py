"""LangChain's partner packages, unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from langchain_core.documents import Document

from .conftest import DOCUMENTS, KEY, QUERY, Service, close, same_ranking


def documents() -> list[Document]:
    return [Document(text, metadata={"index": i}) for i, text in enumerate(DOCUMENTS)]


def ranks(found: Sequence[Document]) -> list[tuple[int, float]]:
    return [(d.metadata["index"], d.metadata["relevance_score"]) for d in found]


def test_cohere_rerank(reranker: Service) -> None:
    from cohere import NotFoundError
    from langchain_cohere import CohereRerank

    rerank = CohereRerank(model=reranker.model, cohere_api_key=KEY, base_url=reranker.url, top_n=3)
    same_ranking(ranks(rerank.compress_documents(documents(), QUERY)), reranker.ranking()[:3])
    wrong = CohereRerank(model="rerank-99", cohere_api_key=KEY, base_url=reranker.url)
    with pytest.raises(NotFoundError):
        wrong.compress_documents(documents(), QUERY)


def test_cohere_embeddings(embedder: Service) -> None:
    from langchain_cohere import CohereEmbeddings

    embeddings = CohereEmbeddings(model="embed-v4.0", cohere_api_key=KEY, base_url=embedder.url)
    close(embeddings.embed_documents(list(DOCUMENTS)), embedder.embed(DOCUMENTS))
    close(asyncio.run(embeddings.aembed_query("bees")), embedder.embed(["bees"])[0])


def test_voyage_rerank(reranker: Service) -> None:
    # VoyageAIEmbeddings counts tokens first, with a tokenizer that it takes from a model hub.
    from langchain_voyageai import VoyageAIRerank
    from voyageai.error import AuthenticationError

    rerank = VoyageAIRerank(model=reranker.model, api_key=KEY, base_url=reranker.v1, top_k=3)
    same_ranking(ranks(rerank.compress_documents(documents(), QUERY)), reranker.ranking()[:3])
    wrong = VoyageAIRerank(model=reranker.model, api_key="wrong", base_url=reranker.v1)
    with pytest.raises(AuthenticationError):
        wrong.compress_documents(documents(), QUERY)
