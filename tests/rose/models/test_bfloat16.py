"""bfloat16 on CPU stays close to float32, in every family and every layout of names."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rose.attention import make_attention
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch
from rose.models.registry import BACKBONES, find_backbone

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 60,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "max_position_embeddings": 400,
    "sliding_window": 20,
    "local_attention": 20,
    "sliding_window_pattern": 2,
}
MORE: dict[str, dict[str, Any]] = {
    "JinaBertModel": {"position_embedding_type": "alibi", "feed_forward_type": "geglu"},
    "DistilBertModel": {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 96},
    "Qwen2Model": {"use_sliding_window": True, "max_window_layers": 1},
}
# One architecture of each class.
ARCHITECTURES = list({path: name for name, path in reversed(BACKBONES.items())}.values())


def build(architecture: str, dtype: torch.dtype) -> Any:
    config = {k: v for k, v in SIZES.items() if "Nomic" not in architecture or k != "head_dim"}
    values = JsonObject("config.json", config | MORE.get(architecture, {}))
    return find_backbone(architecture)(values, RandomWeights(dtype, CPU))


def hidden(model: Any, dtype: torch.dtype) -> torch.Tensor:
    layout = BatchLayout(token_types=model.token_types, position_offset=model.position_offset)
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(1, 59, (n,), generator=generator).tolist() for n in (300, 1, 7, 7)]
    batch = ForwardBatch.from_sequences(sequences, layout, [0, 0, 3, 4])
    attention = make_attention("auto", model.attention_shape, dtype, CPU)
    attention.plan(batch)
    with torch.inference_mode():
        return model(batch, attention)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_close_to_float32(architecture: str) -> None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 GEMM on this processor")
    expected = hidden(build(architecture, torch.float32), torch.float32)
    result = hidden(build(architecture, torch.bfloat16), torch.bfloat16)
    assert result.dtype == torch.bfloat16
    assert expected.std() > 0.1
    assert torch.cosine_similarity(result.float(), expected, dim=1).min() > 0.995
