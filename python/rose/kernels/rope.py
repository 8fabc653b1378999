"""Rotary position embedding of fused query-key-value rows, with the norms that Qwen3 puts before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rose.kernels.launch import launch, row_block, uses_triton
from rose.kernels.norm import rms_norm

if TYPE_CHECKING:
    from rose.attention.base import AttentionShape


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosine and sine of position · frequency, each [positions, head_dim / 2] float32."""

    cos: torch.Tensor
    sin: torch.Tensor

    @classmethod
    def make(
        cls, num_positions: int, head_dim: int, theta: float, device: torch.device
    ) -> RopeTable:
        """Frequencies theta^(-2i / head_dim), as in the RoFormer paper."""
        return cls.from_frequencies(num_positions, rope_frequencies(head_dim, theta), device)

    @classmethod
    def from_frequencies(
        cls,
        num_positions: int,
        frequencies: torch.Tensor,
        device: torch.device,
        attention_factor: float = 1.0,
    ) -> RopeTable:
        """A table of [head_dim / 2] frequencies; the factor scales query and key."""
        # float32, as models were trained: it moves late positions by more than later sums round.
        positions = torch.arange(num_positions, dtype=torch.float32)
        angles = positions[:, None] * frequencies.float()[None, :]
        cos, sin = angles.cos() * attention_factor, angles.sin() * attention_factor
        return cls(cos.to(device), sin.to(device))


@dataclass(frozen=True, slots=True)
class HeadRotation:
    """What happens to query and key heads before attention."""

    table: RopeTable
    norms: tuple[torch.Tensor, torch.Tensor] | None = None
    """RMSNorm weights [head_dim] of query and key heads."""
    eps: float = 0.0
    """Of the norms."""


def rope_frequencies(head_dim: int, theta: float) -> torch.Tensor:
    """theta^(-2i / head_dim), [head_dim / 2] float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return 1.0 / theta**exponents


def qk_norm_rope_(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    shape: AttentionShape,
    rotation: HeadRotation,
) -> torch.Tensor:
    """Normalizes (if there are weights) and rotates query and key heads in place.

    Args:
        qkv: [tokens, (num_heads + 2 · num_kv_heads) · head_dim], contiguous.
        positions: [tokens] int32.
        shape: head counts and size.
        rotation: cosines and sines, and the norms' weights.
    """
    table, norms, eps = rotation.table, rotation.norms, rotation.eps
    tokens, row_width = qkv.shape
    head_dim, half = shape.head_dim, shape.head_dim // 2
    num_qk_heads = shape.num_heads + shape.num_kv_heads
    if uses_triton(qkv):
        from rose.kernels.triton_kernels.rope import qk_norm_rope_kernel

        head_block = 8
        launch(
            qk_norm_rope_kernel,
            (tokens, -(-num_qk_heads // head_block)),
            qkv,
            positions,
            table.cos if norms is None else norms[0],
            table.cos if norms is None else norms[1],
            table.cos,
            table.sin,
            eps,
            row_width=row_width,
            num_heads=shape.num_heads,
            num_qk_heads=num_qk_heads,
            half=half,
            half_block=row_block(half),
            head_block=head_block,
            has_norm=norms is not None,
            num_warps=4 if half >= 64 else 2,
            dependent_rows=tokens,
        )
        return qkv
    heads = qkv[:, : num_qk_heads * head_dim].view(tokens, num_qk_heads, head_dim)
    x = heads.float()
    if norms is not None:
        queries = rms_norm(x[:, : shape.num_heads], norms[0], eps)
        keys = rms_norm(x[:, shape.num_heads :], norms[1], eps)
        x = torch.cat((queries, keys), dim=1)
    cos = table.cos[positions.long()][:, None, :]
    sin = table.sin[positions.long()][:, None, :]
    first, second = x[..., :half], x[..., half:]
    heads.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))
    return qkv
