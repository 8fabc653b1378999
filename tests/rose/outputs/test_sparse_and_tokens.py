"""Sparse vectors and vectors of tokens: against the reference, through the engine and the server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        answer = client.score(TEXTS[4], [*TEXTS, ""], top_n=1_000_000)
        alone = [client.score(TEXTS[4], [text]).scores[0] for text in TEXTS]
        of_nothing = client.score("", TEXTS).scores
        vectors = client.embed(TEXTS).token_vectors
    assert vectors is not None
    query = reference_forms(bge_m3, TEXTS[4])[2]
    # As bge-m3's code: the mean over the query's tokens, the first one left out on both sides.
    references = [reference_forms(bge_m3, text)[2] for text in [*TEXTS, ""]]
    expected = np.array([(query @ tokens.T).max(axis=1).mean() for tokens in references])
    assert np.abs(answer.scores - expected).max() <= 1e-5
    assert np.abs(np.array(alone) - expected[:-1]).max() <= 1e-5
    assert np.std(expected) > 0.01
    assert answer.ranking.tolist() == np.argsort(-expected, kind="stable").tolist()
    for ours, tokens in zip(vectors, references, strict=False):
        assert ours.shape == tokens.shape
        assert np.abs(ours - tokens).max() <= 1e-5
    empty = references[-1]
    expected = np.array([(empty @ tokens.T).max(axis=1).mean() for tokens in references[:-1]])
    assert np.abs(of_nothing - expected).max() <= 1e-5


def test_sparse_scores_are_products(bge_m3: Path, serve: Any) -> None:
    weights = [reference_forms(bge_m3, text)[1] for text in TEXTS]
    with (
        serve(bge_m3, "--output", "sparse") as server,
        Client(server.address, timeout=120) as client,
    ):
        scores = client.score(TEXTS[4], [*TEXTS, ""]).scores
    query = weights[4]
    expected = [sum(w * one.get(token, 0.0) for token, w in query.items()) for one in weights]
    assert np.abs(scores - [*expected, 0.0]).max() <= 1e-5 * max(1.0, *expected)
    assert max(expected) > 0


def test_tokens_of_a_model_without_a_head(make_bert: Callable[..., Path], serve: Any) -> None:
    """Every token has its last hidden state, also beside a dense vector; MaxSim is a sum."""
    from transformers import AutoModel, AutoTokenizer

    directory = make_bert("bert")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, add_pooling_layer=False).eval()
    states = []
    with torch.inference_mode():
        for text in TEXTS:
            encoded = tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
            states.append(model(**encoded).last_hidden_state[0].numpy())
    options = ("--output", "tokens", "--output", "dense")
    with serve(directory, *options) as server, Client(server.address, timeout=120) as client:
        result = client.embed(TEXTS, outputs=["tokens", "dense"])
        scores = client.score(TEXTS[0], TEXTS).scores
    assert result.token_vectors is not None
    for vectors, dense, expected in zip(
        result.token_vectors, result.embeddings, states, strict=True
    ):
        assert vectors.shape == expected.shape
        assert np.abs(vectors - expected).max() <= 1e-5
        assert np.abs(dense - expected.mean(axis=0)).max() <= 1e-5
    late = np.array([(states[0] @ state.T).max(axis=1).sum() for state in states])
    assert np.abs(scores - late).max() <= 1e-5 * late.max()


def test_masked_language_model_as_splade(splade: Path, tmp_path: Path, serve: Any) -> None:
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
        together = client.embed([*TEXTS, ""]).sparse
        alone = [client.embed([text]).sparse for text in TEXTS]
    assert together is not None
    for index, text in enumerate([*TEXTS, ""]):
        encoded = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**encoded).logits[0]
        expected = torch.log1p(torch.relu(logits)).amax(0).numpy()
        assert np.abs(dense_row(together[index]) - expected).max() <= 1e-5
    for one, among in zip(alone, together, strict=False):
        assert one is not None
        assert np.abs(dense_row(one[0]) - dense_row(among)).max() <= 1e-5


def test_int8_of_the_tangent(make_bert: Callable[..., Path], tmp_path: Path, serve: Any) -> None:
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
        raw = client.embed(TEXTS).embeddings
        int8 = client.embed(TEXTS, dtype="int8").embeddings
        unit = client.embed(TEXTS, dtype="int8", normalization="l2").embeddings
    assert np.abs(raw).max() > 1, "else the tangent would change little"
    assert int8.dtype == np.int8
    exact = 127 * np.tanh(raw)
    # Beside a half either neighbour is right.
    assert np.abs(int8 - exact).max() <= 0.5 + 1e-3
    assert (int8 == np.round(exact)).mean() > 0.99
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.abs(unit - 127 * raw / lengths).max() <= 0.5 + 1e-3


def test_forms_over_http(bge_m3: Path, serve: Any) -> None:
    """In the server's own gateway, and in one that reaches it over the network."""
    weights = [reference_forms(bge_m3, text)[1] for text in TEXTS]
    tokens = [reference_forms(bge_m3, text)[2] for text in TEXTS]
    options = ("--output", "sparse", "--output", "tokens", "--http-address", "127.0.0.1:0")
    with serve(bge_m3, *options) as server, gateway_of(server.address) as remote:
        for base in (server.http, remote):
            body = {"inputs": TEXTS}
            rows = post(base, "/embed_sparse", body)
            for row, expected in zip(rows, weights, strict=True):
                assert {entry["index"] for entry in row} == set(expected)
                for entry in row:
                    assert abs(entry["value"] - expected[entry["index"]]) <= 1e-5
            matrices = post(base, "/embed_all", body)
            for matrix, vectors in zip(matrices, tokens, strict=True):
                assert np.abs(np.array(matrix) - vectors).max() <= 1e-5
            wrong = post(base, "/v1/embeddings", {"model": "m", "input": "x"}, status=400)
            assert "gives sparse and tokens vectors, not dense" in wrong["error"]["message"]
            query = {"query": TEXTS[4], "texts": TEXTS, "raw_scores": True}
            best = post(base, "/rerank", query)[0]
            assert best["index"] == 4
            expected_best = sum(weight * weight for weight in weights[4].values())
            assert abs(best["score"] - expected_best) <= 1e-4 * expected_best


@contextmanager
def gateway_of(replica: str) -> Iterator[str]:
    """The address of a `rose gateway` in front of one server."""
    command = [sys.executable, "-m", "rose.cli", "gateway", "--http-address", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--replica", replica],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            words = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            yield f"http://{words['http']}"
        finally:
            process.terminate()


def post(base: str, path: str, body: dict[str, Any], status: int = 200) -> Any:
    """The JSON that comes back."""
    request = urllib.request.Request(
        base + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            found, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        found, text = error.code, error.read()
    assert found == status, text
    return json.loads(text)


def dense_row(vector: Any) -> Any:
    row = np.zeros(30522)
    row[vector.indices] = vector.values
    return row


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
    [
        (("sparse",), "sparse needs a layer"),
        (("dense", "some"), "outputs must be one of"),
        (("dense", "dense"), "outputs must differ"),
    ],
)
def test_forms_that_a_model_lacks(
    make_bert: Callable[..., Path], outputs: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Engine.load(make_bert("bert"), EngineConfig(device="cpu", outputs=outputs))


def test_forms_are_of_embedding_models(cross_encoder_directory: Path, splade: Path) -> None:
    with pytest.raises(ConfigError, match="outputs is an option of embedding models"):
        Engine.load(cross_encoder_directory, EngineConfig(device="cpu", outputs=("tokens",)))
    with pytest.raises(ConfigError, match="outputs must be sparse for this model"):
        Engine.load(splade, EngineConfig(device="cpu", outputs=("dense",)))
    with pytest.raises(ConfigError, match="pooling is an option of dense vectors"):
        Engine.load(splade, EngineConfig(device="cpu", pooling="cls"))


def test_checks_of_other_forms(bge_m3: Path, splade: Path) -> None:
    """Golden numbers are of dense vectors, or of a sparse model's rows."""
    from rose.checks.reference import load_reference
    from rose.checks.scorer import Scorer

    dense = Scorer(Engine.load(bge_m3, EngineConfig(device="cpu")))
    config = EngineConfig(device="cpu", outputs=("dense", "sparse", "tokens"))
    three = Scorer(Engine.load(bge_m3, config))
    assert np.abs(three.vectors(TEXTS) - dense.vectors(TEXTS)).max() <= 1e-6
    engine = Engine.load(splade, EngineConfig(device="cpu"))
    ours, theirs = Scorer(engine), load_reference(splade, engine.info)
    expected = theirs.scores(TEXTS[0], TEXTS)
    assert np.abs(ours.scores(TEXTS[0], TEXTS) - expected).max() <= 1e-5 * expected.max()
