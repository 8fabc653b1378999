"""FlashAttention 2 as it ships inside torch: no extra package, no host plan, any head size."""

from __future__ import annotations

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

_MAX_HEAD_DIM = 256
# The kernel launches a block for each 128 queries of the longest sequence, in each slot and head,
# whether there is work or not: powers of two keep that waste and the number of graphs small.
_SHORTEST_BOUND = 64


class FlashAttention(AttentionBackend):
    """Ragged attention from device-side `cu_seqlens`; head_dim 32 and two-sided windows too."""

    capturable = True

    def __init__(
        self,
        shape: AttentionShape,
        dtype: torch.dtype,
        device: torch.device,
        *,
        deterministic: bool = False,
    ) -> None:
        if dtype not in (torch.bfloat16, torch.float16):
            raise ConfigError(f"attention flash_attn needs bfloat16 or float16, got {dtype}")
        if shape.head_dim % 8 or shape.head_dim > _MAX_HEAD_DIM:
            raise ConfigError(
                "attention flash_attn needs a head_dim that is a multiple of 8 and at most "
                f"{_MAX_HEAD_DIM}, got {shape.head_dim}"
            )
        if shape.bias is not None:
            raise ConfigError("attention flash_attn has no position bias; use sdpa or auto")
        super().__init__(shape, dtype, device, deterministic=deterministic)
        left, right = shape.window or (None, None)
        self._window_left = left
        self._window_right = 0 if shape.causal and shape.window else right
        self._cu_seqlens: torch.Tensor | None = None
        self._bound = 0

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """A bound on the longest sequence sizes the grid."""
        return "flash_attn", self._longest(padded_tokens, max_seqlen)

    def plan(self, batch: ForwardBatch) -> None:
        """Keeps the addresses of `cu_seqlens`; nothing to compute."""
        self._cu_seqlens = batch.cu_seqlens
        self._bound = self._longest(batch.padded_tokens, batch.max_seqlen)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`; costs a copy more than `attend`."""
        out.copy_(self.attend(q, k, v))

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        # The aten operator itself: torch's public wrapper adds a kernel that fills with zeros.
        out: torch.Tensor = torch.ops.aten._flash_attention_forward(
            q,
            k,
            v,
            self._cu_seqlens,
            self._cu_seqlens,
            self._bound,
            self._bound,
            0.0,
            self.shape.causal and self.shape.window is None,
            False,
            scale=self.shape.scale,
            window_size_left=self._window_left,
            window_size_right=self._window_right,
        )[0]
        return out

    def _longest(self, padded_tokens: int, max_seqlen: int) -> int:
        bound = longest_bound(padded_tokens, max_seqlen)
        if self.deterministic and self.shape.window is not None:
            # The library drops a window that the bound does not exceed, and so takes another kernel.
            return max(bound, *(reach + 1 for reach in self.shape.window))
        return bound


def longest_bound(padded_tokens: int, max_seqlen: int) -> int:
    """A bound on the longest sequence: a power of two, or all tokens.

    Never 1, for which the kernel groups heads in another way.
    """
    bound = _SHORTEST_BOUND
    while bound < max_seqlen:
        bound *= 2
    return max(2, min(bound, padded_tokens))
