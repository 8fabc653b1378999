"""huggingface_hub's InferenceClient against the routes of TEI, unchanged."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from .conftest import DOCUMENTS, KEY, LONG, QUERY, Service, close


def client(service: Service, route: str) -> InferenceClient:
    return InferenceClient(model=f"{service.url}{route}", token=KEY)


@pytest.mark.parametrize("route", ["/embed", ""])
def test_feature_extraction(embedder: Service, route: str) -> None:
    found = client(embedder, route).feature_extraction(list(DOCUMENTS))
    assert found.dtype == np.float32
    close(found, embedder.embed(DOCUMENTS))
    close(client(embedder, route).feature_extraction(DOCUMENTS[0]), embedder.embed(DOCUMENTS[:1]))


def test_feature_extraction_options(embedder: Service) -> None:
    hub = client(embedder, "/embed")
    right = hub.feature_extraction(LONG + "money", truncate=True, truncation_direction="right")
    left = hub.feature_extraction(LONG + "money", truncate=True, truncation_direction="left")
    close(right, embedder.embed([LONG]))
    assert np.abs(right - left).max() > 1e-3
    close(hub.feature_extraction("a", normalize=True), embedder.embed(["a"]))


def test_asynchronous_client(embedder: Service) -> None:
    async def embed() -> np.ndarray:
        hub = AsyncInferenceClient(model=f"{embedder.url}/embed", token=KEY)
        return await hub.feature_extraction(list(DOCUMENTS))

    close(asyncio.run(embed()), embedder.embed(DOCUMENTS))


def test_sentence_similarity(embedder: Service) -> None:
    found = client(embedder, "/similarity").sentence_similarity(
        QUERY, other_sentences=list(DOCUMENTS)
    )
    query, *documents = embedder.embed([QUERY, *DOCUMENTS])
    close(found, np.stack(documents) @ query)


def test_errors(embedder: Service, reranker: Service) -> None:
    def status(hub: InferenceClient, text: object, **options: object) -> tuple[int, str]:
        with pytest.raises(HfHubHTTPError) as caught:
            hub.feature_extraction(text, **options)  # type: ignore[arg-type]
        return caught.value.response.status_code, caught.value.response.text

    wrong = InferenceClient(model=f"{embedder.url}/embed", token="hf_wrong")
    assert status(wrong, "a") == (401, "")
    code, text = status(client(embedder, "/embed"), LONG, truncate=False)
    assert code == 422
    assert '"error_type":"Validation"' in text
    code, text = status(client(embedder, "/embed"), [])
    assert code == 400
    assert '"error_type":"Empty"' in text
    code, text = status(client(embedder, "/embed"), "a", prompt_name="no-such-prompt")
    assert code == 422
    assert "no-such-prompt" in text
    code, text = status(client(reranker, "/embed"), "a")
    assert code == 424
    assert '"error_type":"Backend"' in text
