"""Rows of the engine against the references, and forms that a model lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

# Dense vector, weights by token id, vectors of tokens.
Forms: TypeAlias = tuple[Any, dict[int, float], Any]


def token_ids(engine: Engine, texts: list[str]) -> list[list[int]]:
    from rose._tulip import TextEncoder

    return [ids for ids, _ in TextEncoder(engine.info).singles(texts)]


def test_rows_of_splade(texts: list[str], splade: Path) -> None:
    from sentence_transformers import SparseEncoder

    expected = SparseEncoder(str(splade), device="cpu").encode(
        texts, convert_to_sparse_tensor=False
    )
    engine = Engine.load(splade, EngineConfig(device="cpu"))
    assert engine.info.outputs.kinds == ("sparse",)
    sequences = token_ids(engine, texts)
    rows = engine.step(ForwardBatch.from_sequences(sequences, engine.info.layout)).numpy()
    assert np.abs(rows - expected.numpy()).max() <= 1e-5
    assert (rows > 0).any(axis=1).all()


def test_rows_of_three_forms(
    texts: list[str], bge_m3_forms: Callable[[str], Forms], bge_m3: Path
) -> None:
    config = EngineConfig(device="cpu", outputs=("dense", "sparse", "tokens"))
    engine = Engine.load(bge_m3, config)
    outputs = engine.info.outputs
    assert (outputs.dimensions, engine.info.output_width) == (64, 65)
    sequences = token_ids(engine, texts)
    rows = engine.step(ForwardBatch.from_sequences(sequences, engine.info.layout)).numpy()
    ends = np.cumsum([len(ids) for ids in sequences])
    for ids, end, text in zip(sequences, ends, texts, strict=True):
        dense, weights, tokens = bge_m3_forms(text)
        of_one = rows[end - len(ids) : end]
        assert np.abs(of_one[0, :64] - dense).max() <= 1e-5
        assert np.abs(of_one[1:, :64] - tokens).max() <= 1e-5
        for token_id, weight in zip(ids, of_one[:, 64], strict=True):
            if token_id in outputs.skip_token_ids:
                assert token_id not in weights
            else:
                assert weight <= weights.get(token_id, 0.0) + 1e-5


@pytest.mark.parametrize("deterministic", [False, True])
def test_rows_of_tokens_do_not_depend_on_company(bge_m3: Path, deterministic: bool) -> None:
    config = EngineConfig(device="cpu", outputs=("tokens", "sparse"), deterministic=deterministic)
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
    np.testing.assert_allclose(
        rows, np.concatenate(alone * 8), rtol=0, atol=0 if deterministic else 1e-5
    )


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


def test_checks_of_other_forms(texts: list[str], bge_m3: Path, splade: Path) -> None:
    """Golden numbers are of dense vectors, or of a sparse model's rows."""
    from rose.checks.reference import load_reference
    from rose.checks.scorer import Scorer

    dense = Scorer(Engine.load(bge_m3, EngineConfig(device="cpu")))
    config = EngineConfig(device="cpu", outputs=("dense", "sparse", "tokens"))
    three = Scorer(Engine.load(bge_m3, config))
    assert np.abs(three.vectors(texts) - dense.vectors(texts)).max() <= 1e-6
    engine = Engine.load(splade, EngineConfig(device="cpu"))
    ours, theirs = Scorer(engine), load_reference(splade, engine.info)
    expected = theirs.scores(texts[0], texts)
    assert np.abs(ours.scores(texts[0], texts) - expected).max() <= 1e-5 * expected.max()
