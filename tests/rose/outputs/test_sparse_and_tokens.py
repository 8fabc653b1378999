"""Sparse vectors and vectors of tokens: against the reference, through the engine and the server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rose.client import Client
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "bees",
    "Die Biene fliegt zum Stock.",
    "word " * 300,
    "bees and bees and bees",
]


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory, minilm_directory: Path) -> Path:
    """As sentence-transformers saves a SparseEncoder, with random weights."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling
    from transformers import BertConfig, BertForMaskedLM

    plain = tmp_path_factory.mktemp("model") / "mlm"
    config = BertConfig(
        vocab_size=30522,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.3,
    )
    torch.manual_seed(7)
    BertForMaskedLM(config).eval().save_pretrained(plain)
    for file in ("tokenizer.json", "vocab.txt", "special_tokens_map.json", "tokenizer_config.json"):
        shutil.copy(minilm_directory / file, plain / file)
    transformer = Transformer(str(plain), transformer_task="fill-mask", max_seq_length=128)
    directory = tmp_path_factory.mktemp("saved") / "splade"
    model = SparseEncoder(modules=[transformer, SpladePooling("max")], device="cpu")
    model.save_pretrained(str(directory))
    return directory


@pytest.fixture(scope="module")
def bge_m3(make_bert: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with the two heads of bge-m3, cls pooling and normalization."""
    directory = tmp_path_factory.mktemp("model") / "three-forms"
    shutil.copytree(make_bert("bert"), directory)
    torch.manual_seed(8)
    torch.save(torch.nn.Linear(64, 64).state_dict(), directory / "colbert_linear.pt")
    torch.save(torch.nn.Linear(64, 1).state_dict(), directory / "sparse_linear.pt")
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    for name in ("1_Pooling", "2_Normalize"):
        (directory / name).mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_cls_token": True}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return directory


def reference_forms(directory: Path, text: str) -> tuple[Any, dict[int, float], Any]:
    """What bge-m3's code computes: dense vector, weights by id, vectors of tokens."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, add_pooling_layer=False).eval()
    heads = []
    for name, width in (("colbert_linear.pt", 64), ("sparse_linear.pt", 1)):
        head = torch.nn.Linear(64, width)
        head.load_state_dict(torch.load(directory / name))
        heads.append(head)
    encoded = tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**encoded).last_hidden_state[0]
        dense = torch.nn.functional.normalize(hidden[0], dim=0)
        tokens = torch.nn.functional.normalize(heads[0](hidden[1:]), dim=1)
        weights = torch.relu(heads[1](hidden))[:, 0]
    found: dict[int, float] = {}
    for token_id, weight in zip(encoded["input_ids"][0].tolist(), weights.tolist(), strict=True):
        if token_id not in tokenizer.all_special_ids and weight > 0:
            found[token_id] = max(weight, found.get(token_id, 0.0))
    return dense.numpy(), found, tokens.numpy()


def token_ids(engine: Engine, texts: list[str]) -> list[list[int]]:
    from rose._tulip import TextEncoder

    return [ids for ids, _ in TextEncoder(engine.info).singles(texts)]


def test_rows_of_splade(splade: Path) -> None:
    from sentence_transformers import SparseEncoder

    expected = SparseEncoder(str(splade), device="cpu").encode(
        TEXTS, convert_to_sparse_tensor=False
    )
    engine = Engine.load(splade, EngineConfig(device="cpu"))
    assert engine.info.outputs.kinds == ("sparse",)
    sequences = token_ids(engine, TEXTS)
    rows = engine.step(ForwardBatch.from_sequences(sequences, engine.info.layout)).numpy()
    assert np.abs(rows - expected.numpy()).max() <= 1e-5
    assert (rows > 0).any(axis=1).all()


def test_rows_of_three_forms(bge_m3: Path) -> None:
    config = EngineConfig(device="cpu", outputs=("dense", "sparse", "tokens"))
    engine = Engine.load(bge_m3, config)
    outputs = engine.info.outputs
    assert (outputs.dimensions, engine.info.output_width) == (64, 65)
    sequences = token_ids(engine, TEXTS)
    rows = engine.step(ForwardBatch.from_sequences(sequences, engine.info.layout)).numpy()
    ends = np.cumsum([len(ids) for ids in sequences])
    for ids, end, text in zip(sequences, ends, TEXTS, strict=True):
        dense, weights, tokens = reference_forms(bge_m3, text)
        of_one = rows[end - len(ids) : end]
        assert np.abs(of_one[0, :64] - dense).max() <= 1e-5
        assert np.abs(of_one[1:, :64] - tokens).max() <= 1e-5
        for token_id, weight in zip(ids, of_one[:, 64], strict=True):
            if token_id in outputs.skip_token_ids:
                assert token_id not in weights
            else:
                assert weight <= weights.get(token_id, 0.0) + 1e-5


def test_splade_equals_sentence_transformers(splade: Path, serve: Any) -> None:
    from sentence_transformers import SparseEncoder

    reference = SparseEncoder(str(splade), device="cpu")
    expected = reference.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    assert (expected > 0).any(axis=1).all()
    with serve(splade) as server, Client(server.address, timeout=120) as client:
        model = client.get_model()
        assert (model.outputs, model.dimensions) == (("sparse",), 30522)
        sparse = client.embed(TEXTS).sparse
        assert sparse is not None
        scores = client.score(TEXTS[1], TEXTS).scores
    for index, row in enumerate(expected):
        ours = np.zeros(30522)
        indices, values = sparse[index].indices, sparse[index].values
        ours[indices] = values
        assert np.abs(ours - row).max() <= 1e-5
        assert len(indices) == (row > 0).sum()
    similarities = expected @ expected[1]
    assert np.abs(scores - similarities).max() <= 1e-5 * similarities.max()


def test_three_forms_at_once(bge_m3: Path, serve: Any) -> None:
    options = [part for kind in ("dense", "sparse", "tokens") for part in ("--output", kind)]
    with serve(bge_m3, *options) as server, Client(server.address, timeout=120) as client:
        assert client.get_model().outputs == ("dense", "sparse", "tokens")
        result = client.embed(TEXTS, outputs=["dense", "sparse", "tokens"])
        plain = client.embed(TEXTS)
        scores = client.score(TEXTS[1], TEXTS).scores
    with serve(bge_m3) as server, Client(server.address, timeout=120) as client:
        alone = client.embed(TEXTS).embeddings
    assert np.abs(plain.embeddings - alone).max() <= 1e-5
    assert np.abs(scores - alone @ alone[1]).max() <= 1e-5
    for index, text in enumerate(TEXTS):
        dense, weights, tokens = reference_forms(bge_m3, text)
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


def test_late_interaction_scores(bge_m3: Path, serve: Any) -> None:
    with (
        serve(bge_m3, "--output", "tokens", "--output", "sparse") as server,
        Client(server.address, timeout=120) as client,
    ):
        scores = client.score(TEXTS[1], TEXTS).scores
        vectors = client.embed(TEXTS).token_vectors
    assert vectors is not None
    expected = [float((vectors[1] @ tokens.T).max(axis=1).sum()) for tokens in vectors]
    assert np.abs(scores - expected).max() <= 1e-4
    assert np.std(expected) > 0.01


def test_rows_of_tokens_do_not_depend_on_company(bge_m3: Path) -> None:
    config = EngineConfig(device="cpu", outputs=("tokens", "sparse"))
    engine = Engine.load(bge_m3, config)
    assert engine.info.layout.token_rows
    generator = np.random.default_rng(5)
    sequences = [generator.integers(1000, 30000, n).tolist() for n in (5, 1, 90, 300, 5, 41)]
    batch = ForwardBatch.from_sequences(sequences * 8, engine.info.layout)
    rows = engine.step(batch).numpy()
    alone = [
        engine.step(ForwardBatch.from_sequences([one], engine.info.layout)).numpy()
        for one in sequences
    ]
    np.testing.assert_allclose(rows, np.concatenate(alone * 8), atol=1e-5)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [(("sparse",), "sparse needs a layer"), (("dense", "some"), "outputs must be one of")],
)
def test_forms_that_a_model_lacks(
    make_bert: Callable[..., Path], outputs: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Engine.load(make_bert("bert"), EngineConfig(device="cpu", outputs=outputs))
