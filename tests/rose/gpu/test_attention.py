"""Attention back ends against torch's definition: windows, grouped heads, odd sizes, empty slots."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rose.attention import make_attention
from rose.attention.base import AttentionShape
from rose.attention.sdpa import SdpaAttention
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda", 0)
OPTIONAL = {"fa3_fwd": "fa3_fwd._C", "flash_attn_4": "flash_attn.cute"}
NO_WINDOWS = ("flashinfer", "fa3_fwd")
LENGTHS = (1, 5, 64, 127, 128, 129, 192, 193, 300, 700)
SHAPES = {
    "d64": AttentionShape(12, 12, 64, 0.125),
    "d64-causal": AttentionShape(12, 12, 64, 0.125, causal=True),
    "d128-grouped": AttentionShape(16, 8, 128, 128**-0.5),
    "d128-grouped-causal": AttentionShape(16, 8, 128, 128**-0.5, causal=True),
    "d32": AttentionShape(12, 12, 32, 32**-0.5),
    "d64-window": AttentionShape(12, 12, 64, 0.125, window=(64, 64)),
    "d64-left-window": AttentionShape(12, 12, 64, 0.125, causal=True, window=(100, 0)),
}


@pytest.mark.parametrize("name", ["flash_attn", "flashinfer", "fa3_fwd", "flash_attn_4", "auto"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_matches_sdpa(name: str, shape: AttentionShape) -> None:
    pytest.importorskip(OPTIONAL.get(name, "torch"))
    if name in NO_WINDOWS and (shape.head_dim == 32 or shape.window is not None):
        pytest.skip(f"{name} has neither head_dim 32 nor windows")
    layout = BatchLayout((2048,), (16,))
    batch = ForwardBatch.from_sequences([[1] * n for n in LENGTHS], layout, device=CUDA)
    generator = torch.Generator(CUDA).manual_seed(0)
    width = shape.num_heads + 2 * shape.num_kv_heads
    qkv = torch.randn(2048, width, shape.head_dim, generator=generator, device=CUDA)
    qkv = qkv.to(torch.bfloat16)
    heads = torch.split(qkv, [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], 1)
    reference = SdpaAttention(replace(shape), torch.float32, CUDA)
    reference.plan(batch)
    expected = reference.attend(*(part.float() for part in heads))
    attention = make_attention(name, shape, torch.bfloat16, CUDA)
    attention.plan(batch)
    for result in (attention.attend(*heads), torch.full_like(expected, 7.0).bfloat16()):
        if bool((result == 7.0).all()):
            attention.run(*heads, result)
        difference = (result.float() - expected).abs().max().item()
        assert difference <= 0.02, difference
