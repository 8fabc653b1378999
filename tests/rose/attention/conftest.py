"""A ragged batch and its attention by torch's definition, for fakes of libraries on CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch

LENGTHS = (1, 5, 64, 130)


class Ragged:
    """Functions that tests of the back ends share."""

    @staticmethod
    def attention(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens: torch.Tensor,
        scale: float,
        *,
        causal: bool,
        window: tuple[int | None, int | None] = (None, None),
    ) -> torch.Tensor:
        """[tokens, heads, head_dim]; `window` counts keys to the left and right of a query."""
        out = torch.zeros_like(q)
        left, right = window
        for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
            position = torch.arange(end - start)
            distance = position[None] - position[:, None]
            mask = torch.ones_like(distance, dtype=torch.bool)
            if causal:
                mask &= distance <= 0
            if left is not None:
                mask &= distance >= -left
            if right is not None:
                mask &= distance <= right
            parts = [each[start:end].transpose(0, 1)[None] for each in (q, k, v)]
            rows = F.scaled_dot_product_attention(*parts, mask, scale=scale, enable_gqa=True)
            out[start:end] = rows[0].transpose(0, 1)
        return out

    @staticmethod
    def padded_batch() -> ForwardBatch:
        """Sequences of `LENGTHS`, padding rows and empty slots."""
        return ForwardBatch.from_sequences([[1] * n for n in LENGTHS], BatchLayout((256,), (8,)))

    @staticmethod
    def heads(attention: AttentionBackend, dtype: torch.dtype) -> Any:
        """Queries, keys and values as views of one tensor, as the models make them."""
        shape = attention.shape
        parts = [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads]
        generator = torch.Generator().manual_seed(0)
        qkv = torch.randn(256, sum(parts), shape.head_dim, generator=generator)
        return torch.split(qkv.to(dtype), parts, 1)


@pytest.fixture(scope="session")
def ragged() -> type[Ragged]:
    return Ragged
