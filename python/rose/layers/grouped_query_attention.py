"""Self-attention of decoders: grouped queries, norms on heads, rotary positions."""

from __future__ import annotations

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.kernels.overlapped_linear import overlapped_rotation
from rose.kernels.rope import HeadRotation, RopeTable
from rose.layers.linear import Linear, make_linear
from rose.models.base import WeightSource


class GroupedQueryAttention:
    """Query, key and value in one GEMM; norm and rotation of heads in one kernel.

    Weights are `PREFIXq_proj`, `k_proj`, `v_proj` (or all three in `qkv_proj`) and `o_proj`.
    """

    def __init__(
        self,
        weights: WeightSource,
        prefix: str,
        hidden_size: int,
        shape: AttentionShape,
        *,
        qkv_bias: bool = False,
        out_bias: bool = False,
        head_norms: tuple[torch.Tensor, torch.Tensor] | None = None,
        eps: float = 1e-6,
    ) -> None:
        """`head_norms` are the RMSNorm weights [head_dim] of query and key heads."""
        head_dim = shape.head_dim
        width, kv_width = shape.num_heads * head_dim, shape.num_kv_heads * head_dim
        parts = {"q_proj": width, "k_proj": kv_width, "v_proj": kv_width}
        if weights.has(f"{prefix}qkv_proj.weight"):
            parts = {"qkv_proj": width + 2 * kv_width}
        self.shape = shape
        self.qkv_proj = make_linear(
            torch.cat(
                [weights.take(f"{prefix}{n}.weight", w, hidden_size) for n, w in parts.items()]
            ),
            torch.cat([weights.take(f"{prefix}{n}.bias", w) for n, w in parts.items()])
            if qkv_bias
            else None,
            packed=False,
        )
        self.o_proj = Linear(
            weights.take(f"{prefix}o_proj.weight", hidden_size, width),
            weights.take(f"{prefix}o_proj.bias", hidden_size) if out_bias else None,
        )
        self._head_norms = head_norms
        self._eps = eps

    def context(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        rope: RopeTable,
        attention: AttentionBackend,
    ) -> torch.Tensor:
        """[tokens, hidden] to [tokens, num_heads * head_dim], before the output projection."""
        rotation = HeadRotation(rope, self._head_norms, self._eps)
        qkv_proj = self.qkv_proj
        qkv = None
        if qkv_proj.bias is None:
            qkv = overlapped_rotation(x, qkv_proj.weight, positions, self.shape, rotation)
        if qkv is None:
            context = attention.attend_rotated(qkv_proj(x), positions, rotation)
        else:
            context = attention.attend(*attention.split_heads(qkv))
        return context.view(x.shape[0], -1)
