"""Directories as sentence-transformers (old and new) and transformers write them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch

TEXTS = ("a short one", "the quick brown fox jumps over the lazy dog", "word " * 700)
POOLING = "sentence_transformers.models.Pooling"
NORMALIZE = "sentence_transformers.models.Normalize"


def load(directory: Path, **options: Any) -> Engine:
    return Engine.load(directory, EngineConfig(device="cpu", **options))


def reference(directory: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(directory), device="cpu")


def check_equal(engine: Engine, directory: Path) -> None:
    """Our vectors of our own token ids = sentence-transformers' vectors of the texts."""
    from tokenizers import Tokenizer

    model = reference(directory)
    assert engine.info.max_sequence_tokens == model.max_seq_length
    tokenizer = Tokenizer.from_str(engine.info.tokenizer_json.decode())
    tokenizer.enable_truncation(engine.info.max_sequence_tokens)
    tokenizer.no_padding()
    ids = [tokenizer.encode(text).ids for text in TEXTS]
    rows = engine.step(ForwardBatch.from_sequences(ids, engine.info.layout)).numpy()
    expected = model.encode(list(TEXTS), show_progress_bar=False)
    assert rows.shape == expected.shape
    np.testing.assert_allclose(rows, expected, atol=2e-5, rtol=0)


@pytest.fixture(scope="module")
def bert(make_bert: Callable[..., Path]) -> Path:
    return make_bert("bert")


@pytest.fixture
def old_layout(bert: Path, tmp_path: Path) -> Path:
    """As version 2 wrote it: class paths, pooling flags, the transformer in a folder."""
    shutil.copytree(bert, tmp_path / "0_Transformer")
    write(tmp_path / "0_Transformer" / "sentence_bert_config.json", max_seq_length=128)
    write(
        tmp_path / "1_Pooling" / "config.json",
        word_embedding_dimension=64,
        pooling_mode_cls_token=True,
        pooling_mode_mean_tokens=True,
        pooling_mode_max_tokens=False,
    )
    (tmp_path / "2_Normalize").mkdir()
    entries = [
        ("0_Transformer", "sentence_transformers.models.Transformer"),
        ("1_Pooling", POOLING),
        ("2_Normalize", NORMALIZE),
    ]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(entries)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    return tmp_path


def write(path: Path, **values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values))


def test_old_layout(old_layout: Path) -> None:
    engine = load(old_layout)
    assert (engine.info.pooling, engine.info.normalized) == ("cls+mean", True)
    assert (engine.info.output_width, engine.info.max_sequence_tokens) == (128, 128)
    check_equal(engine, old_layout)


def test_what_todays_version_saves(old_layout: Path, tmp_path: Path) -> None:
    model = reference(old_layout)
    model.prompts = {"query": "query: ", "document": ""}
    model.default_prompt_name = "query"
    model.similarity_fn_name = "dot"
    saved = tmp_path / "saved"
    model.save_pretrained(str(saved))
    assert "sentence_transformers.base" in (saved / "modules.json").read_text()
    engine = load(saved)
    assert engine.info.max_sequence_tokens == 128
    assert engine.info.prompts == {"query": "query: ", "document": ""}
    assert engine.info.default_prompt_name == "query"
    assert engine.info.similarity == "dot"
    rows = run(engine, [[101, 2054, 102]])
    np.testing.assert_array_equal(rows, run(load(old_layout), [[101, 2054, 102]]))


def run(engine: Engine, ids: list[list[int]]) -> Any:
    return engine.step(ForwardBatch.from_sequences(ids, engine.info.layout)).numpy()


@pytest.mark.parametrize("activation", ["Tanh", "Identity", "ReLU", "GELU"])
def test_dense_module(activation: str, old_layout: Path, tmp_path: Path) -> None:
    import torch.nn
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(3)
    transformer, pooling, normalize = reference(old_layout)
    dense = Dense(128, 48, activation_function=getattr(torch.nn, activation)())
    saved = tmp_path / "saved"
    model = SentenceTransformer(modules=[transformer, pooling, dense, normalize], device="cpu")
    model.save_pretrained(str(saved))
    engine = load(saved)
    assert engine.info.output_width == 48
    check_equal(engine, saved)


def test_plain_directory_is_mean_pooled(bert: Path) -> None:
    engine = load(bert)
    assert (engine.info.task, engine.info.pooling) == ("embed", "mean")
    assert not engine.info.normalized
    assert engine.info.max_sequence_tokens == 512
    check_equal(engine, bert)


def test_options_replace_pooling_and_normalization(bert: Path) -> None:
    ids = [[101, 7592, 2088, 102], [101, 102]]
    engine = load(bert, pooling="cls", normalize=True, max_length=99)
    assert (engine.info.pooling, engine.info.max_sequence_tokens) == ("cls", 99)
    rows = run(engine, ids)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert abs(rows - run(load(bert, normalize=True), ids)).max() > 1e-3


def test_shards_prefix_and_old_norm_names(bert: Path, tmp_path: Path) -> None:
    """A masked-language-model checkpoint with its head, in two files, in TensorFlow's names."""
    directory = tmp_path / "sharded"
    shutil.copytree(bert, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(
        json.dumps(config | {"architectures": ["BertForMaskedLM"]})
    )
    tensors = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        tensors[f"bert.{old.replace('LayerNorm.bias', 'LayerNorm.beta')}"] = tensor
    tensors["cls.predictions.bias"] = torch.zeros(30522)
    tensors["bert.embeddings.position_ids"] = torch.arange(512)
    (directory / "model.safetensors").unlink()
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    weight_map = {name: files[i % 2] for i, name in enumerate(sorted(tensors))}
    for file in files:
        shard = {name: tensors[name] for name, where in weight_map.items() if where == file}
        save_file(shard, directory / file)
    write(directory / "model.safetensors.index.json", weight_map=weight_map)
    ids = [[101, 7592, 2088, 102]]
    np.testing.assert_array_equal(run(load(directory), ids), run(load(bert), ids))


def test_half_precision_weights_run_in_float32(bert: Path, tmp_path: Path) -> None:
    directory = tmp_path / "half"
    shutil.copytree(bert, directory)
    tensors = load_file(directory / "model.safetensors")
    save_file({k: t.half() for k, t in tensors.items()}, directory / "model.safetensors")
    engine = load(directory)
    assert engine.info.dtype == "float32"
    check_equal(engine, directory)


@pytest.mark.parametrize(
    ("labels", "path", "task", "activation"),
    [
        (1, None, "score", "sigmoid"),
        (1, "torch.nn.modules.linear.Identity", "score", "identity"),
        (2, None, "classify", "softmax"),
        (3, "torch.nn.modules.activation.Sigmoid", "classify", "sigmoid"),
    ],
)
@pytest.mark.parametrize(
    "place", ["config.json", "old config.json", "config_sentence_transformers"]
)
def test_cross_encoder_activation(
    labels: int,
    path: str | None,
    task: str,
    activation: str,
    place: str,
    make_bert: Callable[..., Path],
    tmp_path: Path,
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(make_bert("cross-encoder", labels=labels), directory)
    if path is not None:
        config = json.loads((directory / "config.json").read_text())
        if place == "config.json":
            config["sentence_transformers"] = {"activation_fn": path}
        elif place == "old config.json":
            config["sbert_ce_default_activation_function"] = path
        else:
            write(directory / "config_sentence_transformers.json", activation_fn=path)
        (directory / "config.json").write_text(json.dumps(config))
    info = load(directory).info
    assert (info.task, info.activation, info.output_width) == (task, activation, labels)
    assert len(info.labels) == labels


def test_cross_encoder_saved_by_todays_version(
    cross_encoder_directory: Path, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(cross_encoder_directory), device="cpu").save_pretrained(str(tmp_path))
    assert (tmp_path / "modules.json").is_file()
    engine, original = load(tmp_path), load(cross_encoder_directory)
    assert engine.info.task == "score"
    ids = [[101, 2054, 102, 2129, 102]]
    np.testing.assert_array_equal(run(engine, ids), run(original, ids))


def test_positive_label_by_name(make_bert: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(make_bert("labels", labels=2), tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    assert load(file.parent).info.positive_label == 1
    file.write_text(json.dumps(config | {"id2label": {"0": "Yes", "1": "no"}}))
    info = load(file.parent).info
    assert (info.labels, info.positive_label) == (("Yes", "no"), 0)
