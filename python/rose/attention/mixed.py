"""Two back ends for models whose layers see the whole sequence or a window of it in turn."""

from __future__ import annotations

import torch

from rose.attention.base import AttentionBackend
from rose.forward_batch import ForwardBatch


class MixedAttention(AttentionBackend):
    """Runs the layers that see everything; `local` runs those with a window."""

    def __init__(self, full: AttentionBackend, local: AttentionBackend) -> None:
        super().__init__(full.shape, full.dtype, full.device, deterministic=full.deterministic)
        self._full = full
        self._local = local
        self.capturable = full.capturable and local.capturable

    @property
    def local(self) -> AttentionBackend:
        """See `AttentionBackend.local`."""
        return self._local

    @property
    def has_news(self) -> bool:
        """Those of either."""
        return self._full.has_news or self._local.has_news

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """Those of both."""
        sizes = padded_tokens, padded_sequences, max_seqlen
        full, full_bound = self._full.graph_variant(*sizes)
        local, local_bound = self._local.graph_variant(*sizes)
        return f"{full}+{local}", max(full_bound, local_bound)

    def plan(self, batch: ForwardBatch) -> None:
        """Plans both."""
        self._full.plan(batch)
        self._local.plan(batch)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`."""
        self._full.run(q, k, v, out)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        return self._full.attend(q, k, v)
