"""Attention of short sequences in one kernel with the norm and rotation of heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rose.kernels.invariance import is_batch_invariant
from rose.kernels.launch import launch
from rose.kernels.rope import HeadRotation

if TYPE_CHECKING:
    from rose.attention.base import AttentionShape

_LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class _Tile:
    queries: int
    keys: int
    num_warps: int


_TILE = _Tile(64, 64, 4)
# Wide heads of few rows: more warps hide the latency, or smaller tiles fill more multiprocessors.
_WIDE_TILES = ((64, _Tile(64, 64, 8)), (128, _Tile(32, 64, 4)))


def short_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    shape: AttentionShape,
    longest: int,
    positions: torch.Tensor | None = None,
    rotation: HeadRotation | None = None,
) -> torch.Tensor:
    """Attention inside each sequence, on CUDA.

    Args:
        q: [tokens, num_heads, head_dim]; all three may be views of the same rows.
        k: [tokens, num_kv_heads, head_dim], rows as far apart as those of q.
        v: as k.
        cu_seqlens: [sequences + 1] int32.
        shape: without window and bias; head_dim 32, 64 or 128.
        longest: bound on the tokens of a sequence.
        positions: [tokens] int32, for `rotation`.
        rotation: norm and rotation of query and key heads, if they are still to be done.

    Returns:
        [tokens, num_heads, head_dim], contiguous.
    """
    from rose.kernels.triton_kernels.short_attention import short_attention_kernel

    tile = _TILE
    if shape.head_dim > 64 and not is_batch_invariant():
        tile = next((tile for most, tile in _WIDE_TILES if longest <= most), _TILE)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    norms = None if rotation is None else rotation.norms
    unused = cu_seqlens
    launch(
        short_attention_kernel,
        (-(-longest // tile.queries), shape.num_heads, cu_seqlens.shape[0] - 1),
        q,
        k,
        v,
        out,
        cu_seqlens,
        unused if positions is None else positions,
        unused if norms is None else norms[0],
        unused if norms is None else norms[1],
        unused if rotation is None else rotation.table.cos,
        unused if rotation is None else rotation.table.sin,
        q.stride(0),
        0.0 if rotation is None else rotation.eps,
        shape.scale * _LOG2_E,
        num_heads=shape.num_heads,
        group=shape.num_heads // shape.num_kv_heads,
        half=shape.head_dim // 2,
        query_block=tile.queries,
        key_block=tile.keys,
        causal=shape.causal,
        has_norm=norms is not None,
        has_rope=rotation is not None,
        num_warps=tile.num_warps,
        dependent_rows=q.shape[0],
    )
    return out
