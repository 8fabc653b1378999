"""Windows, position biases and causal masks on packed sequences, against a loop over queries."""

from __future__ import annotations

import pytest
import torch

from rose.attention import make_attention
from rose.attention.base import AttentionShape, PositionBias
from rose.attention.mixed import MixedAttention
from rose.config import BatchLayout
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

CPU = torch.device("cpu")
# Several queries' pieces of 256, one that ends within a window, and equal neighbours.
LENGTHS = (1, 5, 700, 64, 64, 300, 257)
HEADS, KV_HEADS, DIM = 4, 2, 8


def expected(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shape: AttentionShape
) -> torch.Tensor:
    """One sequence [tokens, heads, dim], from the definition."""
    length = q.shape[0]
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q, k) * shape.scale
    position = torch.arange(length)
    distance = position[None, :] - position[:, None]
    if shape.bias is not None:
        logits = logits + shape.bias.by_distance[:, distance + shape.bias.reach]
    hidden = torch.zeros(length, length, dtype=torch.bool)
    if shape.window is not None:
        left, right = shape.window
        hidden |= (distance < -left) | (distance > right)
    if shape.causal:
        hidden |= distance > 0
    weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def bias(reach: int) -> PositionBias:
    generator = torch.Generator().manual_seed(4)
    return PositionBias(torch.randn(HEADS, 2 * reach + 1, generator=generator))


def shape(**options: object) -> AttentionShape:
    return AttentionShape(HEADS, KV_HEADS, DIM, DIM**-0.5, **options)  # type: ignore[arg-type]


SHAPES = {
    "full": shape(),
    "causal": shape(causal=True),
    "two-sided window": shape(window=(20, 20)),
    "uneven window": shape(window=(3, 70)),
    "window of everything": shape(window=(900, 900)),
    "causal window": shape(causal=True, window=(40, 0)),
    "only itself": shape(window=(0, 0)),
    "bias": shape(bias=bias(699)),
}


@pytest.mark.parametrize("name", SHAPES)
@torch.inference_mode()
def test_equals_definition(name: str) -> None:
    attention = make_attention("auto", SHAPES[name], torch.float32, CPU)
    generator = torch.Generator().manual_seed(0)
    batch = ForwardBatch.from_sequences([[1] * length for length in LENGTHS], BatchLayout())
    rows = torch.randn(sum(LENGTHS), HEADS + 2 * KV_HEADS, DIM, generator=generator)
    q, k, v = rows.split([HEADS, KV_HEADS, KV_HEADS], 1)
    attention.plan(batch)
    result = attention.attend(q, k, v)
    for start, end in zip(batch.cu_seqlens_cpu, batch.cu_seqlens_cpu[1:], strict=False):
        part = slice(start, end)
        torch.testing.assert_close(
            result[part], expected(q[part], k[part], v[part], SHAPES[name]), atol=1e-5, rtol=0
        )


@torch.inference_mode()
def test_two_kinds_of_layers() -> None:
    local = shape(window=(10, 10))
    attention = make_attention("sdpa", shape(local=local), torch.float32, CPU)
    assert isinstance(attention, MixedAttention)
    assert not attention.capturable
    batch = ForwardBatch.from_sequences([[1] * 60], BatchLayout())
    rows = torch.randn(60, HEADS + 2 * KV_HEADS, DIM)
    q, k, v = rows.split([HEADS, KV_HEADS, KV_HEADS], 1)
    attention.plan(batch)
    full_rows, local_rows = attention.attend(q, k, v), attention.local.attend(q, k, v)
    torch.testing.assert_close(full_rows, expected(q, k, v, shape()), atol=1e-5, rtol=0)
    torch.testing.assert_close(local_rows, expected(q, k, v, local), atol=1e-5, rtol=0)
    plain = make_attention("sdpa", shape(), torch.float32, CPU)
    assert plain.local is plain


def test_a_bias_ends_where_its_table_ends() -> None:
    attention = make_attention("sdpa", shape(bias=bias(9)), torch.float32, CPU)
    attention.plan(ForwardBatch.from_sequences([[1] * 10], BatchLayout()))
    with pytest.raises(ValueError, match="a sequence of 11 tokens is longer than 10"):
        attention.plan(ForwardBatch.from_sequences([[1] * 11], BatchLayout()))


def test_kernels_without_biases_refuse_them() -> None:
    from rose.attention.flash_attn import FlashAttention

    with pytest.raises(ConfigError, match="flash_attn has no position bias; use sdpa or auto"):
        FlashAttention(shape(bias=bias(9)), torch.bfloat16, CPU)


def test_deterministic_calls_hold_one_sequence_each() -> None:
    batch = ForwardBatch.from_sequences([[1] * n for n in (5, 5, 5, 2, 5)], BatchLayout((), (8,)))
    attention = make_attention("sdpa", shape(), torch.float32, CPU)
    attention.plan(batch)
    assert attention.runs == [(0, 3, 5), (15, 1, 2), (17, 1, 5)]  # type: ignore[attr-defined]
    attention = make_attention("auto", shape(), torch.float32, CPU, deterministic=True)
    attention.plan(batch)
    assert attention.runs == [(0, 1, 5), (5, 1, 5), (10, 1, 5), (15, 1, 2), (17, 1, 5)]  # type: ignore[attr-defined]
