"""Jina-BERT against transformers' BERT with ALiBi as a mask and a gated feed-forward put in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.models.jina_bert import alibi_slopes

transformers = pytest.importorskip("transformers")

LENGTHS = (1, 2, 7, 33, 120, 5, 33)
# Eight heads are a power of two; six need slopes of the longer series.
SHAPES = (
    {"hidden_size": 64, "num_attention_heads": 8},
    {"hidden_size": 48, "num_attention_heads": 6},
)


class GatedFeedForward(torch.nn.Module):
    """In the place of BertIntermediate; the output layer behind it stays BERT's."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gated_layers = torch.nn.Linear(hidden, 2 * intermediate, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gated_layers(x).chunk(2, dim=-1)
        return F.gelu(gate) * up


def make_reference(sizes: dict[str, int]) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=100,
        num_hidden_layers=2,
        intermediate_size=80,
        max_position_embeddings=128,
        initializer_range=0.2,
        **sizes,
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.embeddings.position_embeddings.weight.data.zero_()
    for layer in model.encoder.layer:
        layer.intermediate = GatedFeedForward(config.hidden_size, 80)
        torch.nn.init.normal_(layer.intermediate.gated_layers.weight, std=0.2)
    return model


def write(model: Any, directory: Path, **changes: Any) -> None:
    names = (
        ("intermediate.gated_layers", "mlp.gated_layers"),
        ("output.dense", "mlp.wo"),
        ("output.LayerNorm", "mlp.layernorm"),
        ("attention.mlp.wo", "attention.output.dense"),
        ("attention.mlp.layernorm", "attention.output.LayerNorm"),
    )
    tensors = {}
    for name, tensor in model.state_dict().items():
        for old, new in names:
            name = name.replace(old, new)
        if "position" not in name:
            tensors[name] = tensor.contiguous()
    directory.mkdir()
    save_file(tensors, directory / "model.safetensors")
    config = model.config.to_dict() | {
        "architectures": ["JinaBertModel"],
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
    }
    (directory / "config.json").write_text(json.dumps(config | changes, default=str))
    (directory / "tokenizer.json").write_text("{}")


def expected_hidden(model: Any, ids: list[int]) -> torch.Tensor:
    heads, length = model.config.num_attention_heads, len(ids)
    # From the paper: 2^(-8 i / n) for a power of two; then every other slope of twice as many.
    slopes = [2 ** (-8 * (i + 1) / 8) for i in range(8)]
    if heads == 6:
        slopes = [2 ** (-8 * (i + 1) / 4) for i in range(4)] + [slopes[0], slopes[2]]
    positions = torch.arange(length)
    distance = (positions[:, None] - positions[None, :]).abs()
    mask = -torch.tensor(slopes)[None, :, None, None] * distance
    return model(torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: f"{sizes['num_attention_heads']} heads")
@torch.inference_mode()
def test_equals_bert_with_alibi(sizes: dict[str, int], tmp_path: Path) -> None:
    reference = make_reference(sizes)
    write(reference, tmp_path / "model")
    engine = Engine.load(tmp_path / "model", EngineConfig(device="cpu", pooling="mean"))
    generator = torch.Generator().manual_seed(1)
    sequences = [torch.randint(3, 100, (n,), generator=generator).tolist() for n in LENGTHS]

    def rows(sequences: list[list[int]]) -> np.ndarray:
        batch = ForwardBatch.from_sequences(sequences, engine.info.layout)
        return engine.step(batch).numpy().copy()

    together = rows(sequences)
    for index, ids in enumerate(sequences):
        expected = expected_hidden(reference, ids).mean(0).numpy()
        np.testing.assert_allclose(together[index], expected, atol=1e-5, rtol=0)
        np.testing.assert_allclose(rows([ids])[0], expected, atol=1e-5, rtol=0)


def test_slopes_of_twelve_heads() -> None:
    # The published list for 12 heads: 8 of 8, then every other one of 16.
    expected = [2.0**-i for i in range(1, 9)] + [2.0**-i for i in (0.5, 1.5, 2.5, 3.5)]
    assert alibi_slopes(12) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [("position_embedding_type", "absolute"), ("feed_forward_type", "original")],
)
def test_refuses_other_kinds(field: str, value: str, tmp_path: Path) -> None:
    write(make_reference(SHAPES[0]), tmp_path / "model", **{field: value})
    with pytest.raises(ModelLoadError, match=f"field '{field}' must be"):
        Engine.load(tmp_path / "model", EngineConfig(device="cpu"))
