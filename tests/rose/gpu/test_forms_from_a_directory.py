"""Forms of vectors from files to rows: what a CPU engine gives, a GPU engine gives too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch
from rose.models.bert import BertModel
from rose.models.splade import SpladeModel

WIDTH = 64
CONFIG = {
    "vocab_size": 101,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
}
SEQUENCES = [[1, 2, 3, 4] * 10, [7], [9, 8, 100] * 5]


class SavedWeights(RandomWeights):
    """Keeps what it makes up."""

    def __init__(self) -> None:
        super().__init__(torch.float32, torch.device("cpu"))
        self.tensors: dict[str, torch.Tensor] = {}

    def take(self, name: str, *shape: int) -> torch.Tensor:
        self.tensors[name] = 3 * super().take(name, *shape)
        return self.tensors[name]


def _write_model(directory: Path, architecture: str) -> None:
    config, weights = JsonObject("config.json", CONFIG), SavedWeights()
    backbone = BertModel(config, weights)
    if architecture == "BertForMaskedLM":
        SpladeModel(backbone, architecture, config, weights, "max", twice=False)
    save_file(weights.tensors, directory / "model.safetensors")
    values = CONFIG | {"architectures": [architecture], "model_type": "bert"}
    (directory / "config.json").write_text(json.dumps(values))
    vocabulary = {f"w{index}": index for index in range(CONFIG["vocab_size"])}
    tokenizer = {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    torch.manual_seed(0)
    for name, width in (("colbert_linear.pt", WIDTH), ("sparse_linear.pt", 1)):
        torch.save(torch.nn.Linear(WIDTH, width).state_dict(), directory / name)


def _rows(directory: Path, device: str, outputs: Any) -> tuple[Any, Engine]:
    engine = Engine.load(directory, EngineConfig(device=device, dtype="float32", outputs=outputs))
    batch = ForwardBatch.from_sequences(SEQUENCES, engine.info.layout)
    return engine.step(batch).numpy(), engine


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("architecture", "outputs", "shape"),
    [
        ("BertModel", ("dense", "sparse", "tokens"), (56, WIDTH + 1)),
        ("BertModel", ("tokens",), (56, WIDTH)),
        ("BertForMaskedLM", ("sparse",), (3, 101)),
    ],
)
def test_forms_from_a_directory(
    device: str, architecture: str, outputs: Any, shape: tuple[int, int], tmp_path: Path
) -> None:
    _write_model(tmp_path, architecture)
    expected, on_cpu = _rows(tmp_path, "cpu", outputs)
    rows, engine = _rows(tmp_path, device, outputs)
    assert rows.shape == shape
    assert engine.info.outputs == on_cpu.info.outputs
    assert engine.info.outputs.kinds == outputs
    assert engine.info.layout.token_rows == (architecture == "BertModel")
    np.testing.assert_allclose(rows, expected, atol=1e-4, rtol=1e-4)
    assert np.std(expected) > 0.05
