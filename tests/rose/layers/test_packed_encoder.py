"""The compiled CPU encoder is the same function as the layers whose weights it shares."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from rose.attention.sdpa import SdpaAttention
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch
from rose.layers import packed_encoder
from rose.layers.packed_encoder import PackedEncoder
from rose.models.bert import BertModel
from rose.models.xlm_roberta import XLMRobertaModel

CPU = torch.device("cpu")
CONFIG = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": 400,
    "layer_norm_eps": 1e-5,
}

pytestmark = pytest.mark.skipif(
    not torch._C._has_mkldnn, reason="torch is built without oneDNN: nothing is packed"
)


def make(model_class: Any, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    config = JsonObject("config.json", {**CONFIG, **changes})
    return model_class(config, RandomWeights(dtype, CPU))


def plan(model: Any, lengths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(1, 59, (n,), generator=generator).tolist() for n in lengths]
    layout = BatchLayout(token_types=model.token_types, position_offset=model.position_offset)
    starts = [n // 2 for n in lengths] if model.token_types else None
    batch = ForwardBatch.from_sequences(sequences, layout, starts)
    attention = SdpaAttention(model.attention_shape, dtype, CPU)
    attention.plan(batch)
    return batch, attention


@pytest.mark.parametrize("rows", [None, "first", "last"])
@pytest.mark.parametrize("lengths", [(9,), (1,), (7, 7, 7), (5, 1, 20, 20), (300, 200, 3)], ids=str)
@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("model_class", [BertModel, XLMRobertaModel])
@torch.inference_mode()
def test_same_function(
    model_class: Any,
    activation: str,
    lengths: tuple[int, ...],
    rows: Literal["first", "last"] | None,
) -> None:
    model = make(model_class, hidden_act=activation)
    assert isinstance(model.fused, PackedEncoder)
    batch, attention = plan(model, lengths)
    result = model(batch, attention, rows)
    model.fused = None
    expected = model(batch, attention, rows)
    assert expected.std() > 0.1
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_bfloat16() -> None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 GEMM on this processor")
    model = make(BertModel, torch.bfloat16)
    assert isinstance(model.fused, PackedEncoder)
    batch, attention = plan(model, (5, 1, 20, 20), torch.bfloat16)
    result = model(batch, attention)
    assert result.dtype == torch.bfloat16
    reference = make(BertModel)
    batch, attention = plan(reference, (5, 1, 20, 20))
    expected = reference(batch, attention)
    cosine = torch.cosine_similarity(result.float(), expected, dim=1)
    assert cosine.min() > 0.999


@torch.inference_mode()
def test_runs_uncompiled_too() -> None:
    model = make(BertModel)
    batch, attention = plan(model, (5, 1, 20, 20))
    compiled = model(batch, attention, "first")
    assert model.fused._encode is not packed_encoder.encode
    model.fused._encode = packed_encoder.encode
    torch.testing.assert_close(model(batch, attention, "first"), compiled)


def test_other_activations_take_the_layers_one_by_one() -> None:
    assert make(BertModel, hidden_act="relu").fused is None
