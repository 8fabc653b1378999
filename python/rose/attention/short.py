"""Our own kernel for batches of short sequences, where a step waits for memory and launches."""

from __future__ import annotations

import torch

from rose.attention.base import AttentionBackend, AttentionShape, why_not_plain
from rose.attention.flash_attn import longest_bound
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch
from rose.kernels.short_attention import short_attention

_HEAD_DIMS = (32, 64, 128)


class ShortAttention(AttentionBackend):
    """A tile of queries a program; each starts before the kernel before it has ended."""

    capturable = True

    def __init__(
        self,
        shape: AttentionShape,
        dtype: torch.dtype,
        device: torch.device,
        *,
        deterministic: bool = False,
    ) -> None:
        reason = why_not(shape, dtype)
        if reason is not None:
            raise ConfigError(f"attention short {reason}")
        super().__init__(shape, dtype, device, deterministic=deterministic)
        self._cu_seqlens = torch.empty(0, dtype=torch.int32)
        self._bound = 0

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """A bound on the longest sequence sizes the grid."""
        return "short", longest_bound(padded_tokens, max_seqlen)

    def plan(self, batch: ForwardBatch) -> None:
        """Keeps the address of `cu_seqlens`; nothing to compute."""
        self._cu_seqlens = batch.cu_seqlens
        self._bound = longest_bound(batch.padded_tokens, batch.max_seqlen)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`; costs a copy more than `attend`."""
        out.copy_(self.attend(q, k, v))

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        return short_attention(q, k, v, self._cu_seqlens, self.shape, self._bound)


def why_not(shape: AttentionShape, dtype: torch.dtype) -> str | None:
    """Why this back end cannot be used, as the end of a sentence; None where it can."""
    dtypes = (torch.bfloat16, torch.float16)
    return why_not_plain(shape, dtype, dtypes=dtypes, head_dims=_HEAD_DIMS)
