"""Sparse vectors, vectors of tokens and 8-bit values as a client of the server gets them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from rose.client import Client

# Dense vector, weights by token id, vectors of tokens.
Forms: TypeAlias = tuple[Any, dict[int, float], Any]


def test_splade_equals_sentence_transformers(texts: list[str], splade: Path, serve: Any) -> None:
    from sentence_transformers import SparseEncoder

    reference = SparseEncoder(str(splade), device="cpu")
    expected = reference.encode(texts, convert_to_sparse_tensor=False).numpy()
    assert (expected > 0).any(axis=1).all()
    with serve(splade) as server, Client(server.address, timeout=120) as client:
        model = client.get_model()
        assert (model.outputs, model.dimensions) == (("sparse",), 30522)
        sparse = client.embed(texts).sparse
        assert sparse is not None
        scores = client.score(texts[1], texts).scores
    for index, row in enumerate(expected):
        ours = np.zeros(30522)
        indices, values = sparse[index].indices, sparse[index].values
        ours[indices] = values
        assert np.abs(ours - row).max() <= 1e-5
        assert len(indices) == (row > 0).sum()
    similarities = expected @ expected[1]
    assert np.abs(scores - similarities).max() <= 1e-5 * similarities.max()


def test_three_forms_at_once(
    texts: list[str], bge_m3_forms: Callable[[str], Forms], bge_m3: Path, serve: Any
) -> None:
    options = [part for kind in ("dense", "sparse", "tokens") for part in ("--output", kind)]
    with serve(bge_m3, *options) as server, Client(server.address, timeout=120) as client:
        assert client.get_model().outputs == ("dense", "sparse", "tokens")
        result = client.embed(texts, outputs=["dense", "sparse", "tokens"])
        plain = client.embed(texts)
        scores = client.score(texts[1], texts).scores
    with serve(bge_m3) as server, Client(server.address, timeout=120) as client:
        alone = client.embed(texts).embeddings
    assert np.abs(plain.embeddings - alone).max() <= 1e-5
    assert np.abs(scores - alone @ alone[1]).max() <= 1e-5
    for index, text in enumerate(texts):
        dense, weights, tokens = bge_m3_forms(text)
        assert np.abs(result.embeddings[index] - dense).max() <= 1e-5
        assert result.sparse is not None
        vector = result.sparse[index]
        indices, values = vector.indices, vector.values
        assert set(indices.tolist()) == set(weights)
        expected = np.array([weights[int(token_id)] for token_id in indices])
        assert np.abs(values - expected).max(initial=0) <= 1e-5
        assert result.token_vectors is not None
        assert result.token_vectors[index].shape == tokens.shape
        assert np.abs(result.token_vectors[index] - tokens).max() <= 1e-5


def test_late_interaction_scores(
    texts: list[str], bge_m3_forms: Callable[[str], Forms], bge_m3: Path, serve: Any
) -> None:
    with (
        serve(bge_m3, "--output", "tokens", "--output", "sparse") as server,
        Client(server.address, timeout=120) as client,
    ):
        answer = client.score(texts[4], [*texts, ""], top_n=1_000_000)
        alone = [client.score(texts[4], [text]).scores[0] for text in texts]
        of_nothing = client.score("", texts).scores
        vectors = client.embed(texts).token_vectors
    assert vectors is not None
    query = bge_m3_forms(texts[4])[2]
    # As bge-m3's code: the mean over the query's tokens, the first one left out on both sides.
    references = [bge_m3_forms(text)[2] for text in [*texts, ""]]
    expected = np.array([(query @ tokens.T).max(axis=1).mean() for tokens in references])
    assert np.abs(answer.scores - expected).max() <= 1e-5
    assert np.abs(np.array(alone) - expected[:-1]).max() <= 1e-5
    assert np.std(expected) > 0.01
    assert list(answer.ranking) == np.argsort(-expected, kind="stable").tolist()
    for ours, tokens in zip(vectors, references, strict=False):
        assert ours.shape == tokens.shape
        assert np.abs(ours - tokens).max() <= 1e-5
    empty = references[-1]
    expected = np.array([(empty @ tokens.T).max(axis=1).mean() for tokens in references[:-1]])
    assert np.abs(of_nothing - expected).max() <= 1e-5


def test_sparse_scores_are_products(
    texts: list[str], bge_m3_forms: Callable[[str], Forms], bge_m3: Path, serve: Any
) -> None:
    weights = [bge_m3_forms(text)[1] for text in texts]
    with (
        serve(bge_m3, "--output", "sparse") as server,
        Client(server.address, timeout=120) as client,
    ):
        scores = client.score(texts[4], [*texts, ""]).scores
    query = weights[4]
    expected = [sum(w * one.get(token, 0.0) for token, w in query.items()) for one in weights]
    assert np.abs(scores - [*expected, 0.0]).max() <= 1e-5 * max(1.0, *expected)
    assert max(expected) > 0


def test_tokens_of_a_model_without_a_head(
    texts: list[str], make_bert: Callable[..., Path], serve: Any
) -> None:
    """Every token has its last hidden state, also beside a dense vector; MaxSim is a sum."""
    from transformers import AutoModel, AutoTokenizer

    directory = make_bert("bert")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, add_pooling_layer=False).eval()
    states = []
    with torch.inference_mode():
        for text in texts:
            encoded = tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
            states.append(model(**encoded).last_hidden_state[0].numpy())
    options = ("--output", "tokens", "--output", "dense")
    with serve(directory, *options) as server, Client(server.address, timeout=120) as client:
        result = client.embed(texts, outputs=["tokens", "dense"])
        scores = client.score(texts[0], texts).scores
    assert result.token_vectors is not None
    for vectors, dense, expected in zip(
        result.token_vectors, result.embeddings, states, strict=True
    ):
        assert vectors.shape == expected.shape
        assert np.abs(vectors - expected).max() <= 1e-5
        assert np.abs(dense - expected.mean(axis=0)).max() <= 1e-5
    late = np.array([(states[0] @ state.T).max(axis=1).sum() for state in states])
    assert np.abs(scores - late).max() <= 1e-5 * late.max()


def test_masked_language_model_as_splade(
    texts: list[str], splade: Path, tmp_path: Path, serve: Any
) -> None:
    """Without modules.json the option decides; against transformers' own logits."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    directory = tmp_path / "plain"
    directory.mkdir()
    for path in splade.iterdir():
        if path.is_file() and path.name != "modules.json":
            shutil.copy(path, directory / path.name)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForMaskedLM.from_pretrained(directory).eval()
    with (
        serve(directory, "--output", "sparse", "--max-length", "128") as server,
        Client(server.address, timeout=120) as client,
    ):
        assert client.get_model().outputs == ("sparse",)
        together = client.embed([*texts, ""]).sparse
        alone = [client.embed([text]).sparse for text in texts]
    assert together is not None
    for index, text in enumerate([*texts, ""]):
        encoded = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**encoded).logits[0]
        expected = torch.log1p(torch.relu(logits)).amax(0).numpy()
        assert np.abs(dense_row(together[index]) - expected).max() <= 1e-5
    for one, among in zip(alone, together, strict=False):
        assert one is not None
        assert np.abs(dense_row(one[0]) - dense_row(among)).max() <= 1e-5


def test_int8_of_the_tangent(
    texts: list[str], make_bert: Callable[..., Path], tmp_path: Path, serve: Any
) -> None:
    directory = tmp_path / "tangent"
    shutil.copytree(make_bert("bert"), directory)
    kinds = (
        ("", "sentence_transformers.models.Transformer"),
        ("1_Pooling", "sentence_transformers.models.Pooling"),
        ("", "st_quantize.FlexibleQuantizer"),
    )
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": kind}
        for index, (path, kind) in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with serve(directory) as server, Client(server.address, timeout=120) as client:
        raw = client.embed(texts).embeddings
        int8 = client.embed(texts, dtype="int8").embeddings
        unit = client.embed(texts, dtype="int8", normalize=True).embeddings
    assert np.abs(raw).max() > 1, "else the tangent would change little"
    assert int8.dtype == np.int8
    exact = 127 * np.tanh(raw)
    # Beside a half either neighbour is right.
    assert np.abs(int8 - exact).max() <= 0.5 + 1e-3
    assert (int8 == np.round(exact)).mean() > 0.99
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.abs(unit - 127 * raw / lengths).max() <= 0.5 + 1e-3


def dense_row(vector: Any) -> Any:
    row = np.zeros(30522)
    row[vector.indices] = vector.values
    return row
