"""Module stacks that sentence-transformers saves: every pooling, layers behind it, scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch

pytest.importorskip("sentence_transformers")

TEXTS = ["a short one", "", "the quick brown fox jumps over the lazy dog", "word " * 300]
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@pytest.fixture(scope="module")
def bert(make_bert: Callable[..., Path]) -> Path:
    return make_bert("modules-bert")


def transformer(directory: Path) -> Any:
    from sentence_transformers.base.modules import Transformer

    return Transformer(str(directory))


def rows(directory: Path, texts: list[str] = TEXTS) -> tuple[Engine, np.ndarray]:
    from tokenizers import Tokenizer

    engine = Engine.load(directory, EngineConfig(device="cpu"))
    tokenizer = Tokenizer.from_str(engine.info.tokenizer_json.decode())
    tokenizer.enable_truncation(engine.info.max_sequence_tokens)
    tokenizer.no_padding()
    ids = [tokenizer.encode(text).ids for text in texts]
    return engine, engine.step(ForwardBatch.from_sequences(ids, engine.info.layout)).numpy()


def save(directory: Path, *modules: Any) -> np.ndarray:
    """Saves the stack; what it gives for `TEXTS`."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=list(modules), device="cpu")
    model.save_pretrained(str(directory))
    return model.encode(TEXTS, show_progress_bar=False)


@pytest.mark.parametrize("mode", [*MODES, ("cls", "mean"), ("weightedmean", "max", "lasttoken")])
def test_pooling(mode: str | tuple[str, ...], bert: Path, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    expected = save(tmp_path, transformer(bert), Pooling(64, mode))
    engine, result = rows(tmp_path)
    assert not engine.info.normalized
    np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("residual", ["none", "same width", "projected"])
@pytest.mark.parametrize("activation", ["Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid"])
def test_layers_behind_pooling(activation: str, residual: str, bert: Path, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import (
        Dropout,
        LayerNorm,
        Normalize,
        Pooling,
    )

    torch.manual_seed(2)
    width = 64 if residual == "same width" else 40
    norm = LayerNorm(width)
    torch.nn.init.normal_(norm.norm.weight)
    torch.nn.init.normal_(norm.norm.bias)
    dense = Dense(
        64,
        width,
        activation_function=getattr(torch.nn, activation)(),
        use_residual=residual != "none",
    )
    expected = save(
        tmp_path, transformer(bert), Pooling(64, "mean"), Dropout(0.5), dense, norm, Normalize()
    )
    engine, result = rows(tmp_path)
    assert (engine.info.output_width, engine.info.normalized) == (width, True)
    np.testing.assert_allclose(result, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("labels", [1, 3])
def test_cross_encoder_of_modules(labels: int, bert: Path, tmp_path: Path) -> None:
    """An embedding model's stack whose last layer makes scores."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(2)
    dense = Dense(64, labels, activation_function=torch.nn.Identity(), module_output_name="scores")
    model = CrossEncoder(modules=[transformer(bert), Pooling(64, "cls"), dense], device="cpu")
    model.save_pretrained(str(tmp_path))
    engine = Engine.load(tmp_path, EngineConfig(device="cpu"))
    task = "score" if labels == 1 else "classify"
    assert (engine.info.task, engine.info.output_width) == (task, labels)
    assert len(engine.info.labels) == labels
    tokens = model.tokenizer(["which fox"] * 2, ["a brown fox", "none"])
    seconds = [types.index(1) for types in tokens["token_type_ids"]]
    batch = ForwardBatch.from_sequences(tokens["input_ids"], engine.info.layout, seconds)
    expected = model.predict(
        [("which fox", "a brown fox"), ("which fox", "none")], activation_fn=torch.nn.Identity()
    )
    np.testing.assert_allclose(
        engine.step(batch).numpy(), expected.reshape(2, labels), atol=1e-5, rtol=0
    )


def test_length_limit_of_processing_options(bert: Path, tmp_path: Path) -> None:
    """Today's sentence-transformers keeps a limit in the options of its tokenizer call."""
    shutil.copytree(bert, tmp_path / "model")
    options = {"processing_kwargs": {"text": {"max_length": 33}}}
    (tmp_path / "model" / "sentence_bert_config.json").write_text(json.dumps(options))
    engine = Engine.load(tmp_path / "model", EngineConfig(device="cpu"))
    assert engine.info.max_sequence_tokens == 33


@pytest.mark.parametrize(
    ("config", "in_tokenizer", "expected"),
    [
        ({}, None, "right"),
        ({}, "Left", "left"),
        ({}, "Right", "right"),
        ({"truncation_side": "left"}, None, "left"),
        ({"truncation_side": "right"}, "Left", "right"),
    ],
)
def test_truncation_side_is_that_of_transformers(
    config: dict[str, str], in_tokenizer: str | None, expected: str, bert: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    shutil.copytree(bert, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    path = tmp_path / "model" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["truncation"] = in_tokenizer and {
        "direction": in_tokenizer,
        "max_length": 100,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    path.write_text(json.dumps(tokenizer))
    engine = Engine.load(tmp_path / "model", EngineConfig(device="cpu"))
    assert engine.info.truncation_side == expected
    reference = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert reference.truncation_side.lower() == expected


def test_an_unknown_truncation_side_is_refused(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation_side": "up"}))
    with pytest.raises(ModelLoadError, match="'truncation_side' must be right or left, got 'up'"):
        Engine.load(tmp_path / "model", EngineConfig(device="cpu"))
