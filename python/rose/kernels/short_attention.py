"""Attention of short sequences, where a step waits for launches and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rose.kernels.invariance import is_batch_invariant
from rose.kernels.launch import launch

if TYPE_CHECKING:
    from rose.attention.base import AttentionShape

_LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class _Tile:
    queries: int
    keys: int
    num_warps: int


_TILE = _Tile(64, 64, 4)
# Wide heads: more warps hide the latency of a single tile, and with few tokens smaller tiles fill
# more multiprocessors.
_WIDE_ONE_TILE = _Tile(64, 64, 8)
_WIDE_FEW_TOKENS = _Tile(32, 64, 4)
_FEW_TOKENS = 256


def short_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    shape: AttentionShape,
    longest: int,
) -> torch.Tensor:
    """Attention inside each sequence, on CUDA.

    Args:
        q: [tokens, num_heads, head_dim]; all three may be views of the same rows.
        k: [tokens, num_kv_heads, head_dim], rows as far apart as those of q.
        v: as k.
        cu_seqlens: [sequences + 1] int32.
        shape: without window and bias; head_dim 32, 64 or 128.
        longest: bound on the tokens of a sequence.

    Returns:
        [tokens, num_heads, head_dim], contiguous.
    """
    from rose.kernels.triton_kernels.short_attention import short_attention_kernel

    tokens = q.shape[0]
    tile = _TILE
    if shape.head_dim > 64 and not is_batch_invariant():
        if longest <= _WIDE_ONE_TILE.queries:
            tile = _WIDE_ONE_TILE
        elif longest <= 2 * _TILE.queries and tokens <= _FEW_TOKENS:
            tile = _WIDE_FEW_TOKENS
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    launch(
        short_attention_kernel,
        (-(-longest // tile.queries), shape.num_heads, cu_seqlens.shape[0] - 1),
        q,
        k,
        v,
        out,
        cu_seqlens,
        q.stride(0),
        shape.scale * _LOG2_E,
        num_heads=shape.num_heads,
        group=shape.num_heads // shape.num_kv_heads,
        head_dim=shape.head_dim,
        query_block=tile.queries,
        key_block=tile.keys,
        causal=shape.causal,
        num_warps=tile.num_warps,
        dependent_rows=tokens,
    )
    return out
