"""LlamaIndex's embeddings and node postprocessors, unchanged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from .conftest import DOCUMENTS, KEY, QUERY, Service, close, same_ranking


def rerank(postprocessor: Any) -> list[tuple[int, float]]:
    nodes = [
        NodeWithScore(node=TextNode(text=text, id_=str(index)), score=0.0)
        for index, text in enumerate(DOCUMENTS)
    ]
    found = postprocessor.postprocess_nodes(nodes, QueryBundle(QUERY))
    return [(int(node.node.node_id), node.score) for node in found]


def test_cohere_rerank(reranker: Service) -> None:
    from cohere import UnauthorizedError
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    given = {"model": reranker.model, "base_url": reranker.url, "top_n": 4}
    same_ranking(rerank(CohereRerank(api_key=KEY, **given)), reranker.ranking()[:4])
    with pytest.raises(UnauthorizedError):
        rerank(CohereRerank(api_key="wrong", **given))


def test_jina_rerank(reranker: Service) -> None:
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    given = {"model": reranker.model, "base_url": reranker.v1, "top_n": 4}
    same_ranking(rerank(JinaRerank(api_key=KEY, **given)), reranker.ranking()[:4])
    with pytest.raises(RuntimeError, match="invalid API key"):
        rerank(JinaRerank(api_key="wrong", **given))
    with pytest.raises(RuntimeError, match="rerank-99"):
        rerank(JinaRerank(api_key=KEY, **given | {"model": "rerank-99"}))


def test_voyage_rerank(reranker: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from llama_index.postprocessor.voyageai_rerank import VoyageAIRerank

    # The integration has no argument for the address.
    monkeypatch.setattr("voyageai._base.get_default_base_url", lambda key: reranker.v1)
    found = rerank(VoyageAIRerank(model=reranker.model, api_key=KEY, top_n=4))
    same_ranking(found, reranker.ranking()[:4])


def test_tei_rerank(reranker: Service) -> None:
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    given = {"base_url": reranker.url, "top_n": 4}
    found = rerank(TextEmbeddingInference(auth_token=f"Bearer {KEY}", **given))
    same_ranking(found, reranker.ranking()[:4])


def test_tei_embeddings(embedder: Service) -> None:
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    embedding = TextEmbeddingsInference(
        model_name="any",
        base_url=embedder.url,
        auth_token=KEY,
        text_instruction=" ",
        query_instruction=" ",
    )
    close(embedding.get_text_embedding_batch(list(DOCUMENTS)), embedder.embed(DOCUMENTS))
    close(asyncio.run(embedding.aget_query_embedding("bees")), embedder.embed(["bees"])[0])


def test_cohere_embeddings(embedder: Service) -> None:
    from llama_index.embeddings.cohere import CohereEmbedding

    embedding = CohereEmbedding(
        model_name="embed-v4.0", api_key=KEY, base_url=embedder.url, max_retries=1
    )
    close(embedding.get_text_embedding_batch(list(DOCUMENTS)), embedder.embed(DOCUMENTS))
    close(embedding.get_query_embedding("bees"), embedder.embed(["bees"])[0])
