"""The encoder that CUDA uses, on CPU: the same function as the model whose weights it shares."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from rose.attention.sdpa import SdpaAttention
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch
from rose.layers import linear
from rose.layers.fused_encoder import FusedEncoder
from rose.models.bert import BertModel
from rose.models.xlm_roberta import XLMRobertaModel

CPU = torch.device("cpu")
CONFIG = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": 1400,
    "layer_norm_eps": 1e-5,
}


@pytest.fixture(autouse=True)
def plain_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights as on CUDA, not packed for oneDNN."""
    monkeypatch.setattr(linear, "_packs", lambda device, dtype: False)


def _model(model_class: Any, **changes: Any) -> Any:
    config = JsonObject("config.json", {**CONFIG, **changes})
    return model_class(config, RandomWeights(torch.float32, CPU))


def _planned(model: Any, lengths: tuple[int, ...]) -> tuple[ForwardBatch, SdpaAttention]:
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(1, 59, (n,), generator=generator).tolist() for n in lengths]
    layout = BatchLayout(
        (64, 1344), (8,), token_types=model.token_types, position_offset=model.position_offset
    )
    starts = [n // 2 for n in lengths] if model.token_types else None
    batch = ForwardBatch.from_sequences(sequences, layout, starts)
    attention = SdpaAttention(model.attention_shape, torch.float32, CPU)
    attention.plan(batch)
    return batch, attention


@pytest.mark.parametrize("lengths", [(5, 1, 20), (700, 600, 3)], ids=["small", "large"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("model_class", [BertModel, XLMRobertaModel])
@torch.inference_mode()
def test_same_function(model_class: Any, activation: str, lengths: tuple[int, ...]) -> None:
    model = _model(model_class, hidden_act=activation)
    batch, attention = _planned(model, lengths)
    expected = model(batch, attention)
    fused = FusedEncoder(model)
    torch.testing.assert_close(fused(batch, attention), expected, atol=1e-5, rtol=1e-5)
    rows: Literal["first", "last"]
    for rows in ("first", "last"):
        torch.testing.assert_close(
            fused(batch, attention, rows)[: len(lengths)],
            model(batch, attention, rows)[: len(lengths)],
            atol=1e-5,
            rtol=1e-5,
        )


@pytest.mark.parametrize("rows", [None, "first"])
@torch.inference_mode()
def test_a_bad_token_spoils_its_own_sequence_only(rows: Literal["first"] | None) -> None:
    model = _model(BertModel)
    batch, attention = _planned(model, (5, 9, 20))
    fused = FusedEncoder(model)
    expected = fused(batch, attention, rows)
    batch.token_ids[7] = 59
    model.embeddings.words[59] = torch.inf
    result = fused(batch, attention, rows)
    spoiled = slice(1, 2) if rows else slice(5, 14)
    assert result[spoiled].isnan().all()
    result[spoiled] = expected[spoiled]
    torch.testing.assert_close(result, expected, atol=0, rtol=0)
