"""Attention through torch's scaled_dot_product_attention: the CPU back end, and the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend, AttentionShape
from rose.forward_batch import ForwardBatch


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring sequences of one length: one dense attention call."""

    start: int
    """First token row."""
    end: int
    num_sequences: int
    seqlen: int
    mask: torch.Tensor | None
    """[seqlen, seqlen] bool, for windows."""


class SdpaAttention(AttentionBackend):
    """One call for each run of neighbouring sequences of equal length.

    A step whose sequences are sorted by length makes the fewest calls.
    """

    def __init__(self, shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, dtype, device)
        self._runs: list[_Run] = []
        self._grouped_queries = shape.num_heads != shape.num_kv_heads

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """First token row, number of sequences and tokens of each, for every run of the plan."""
        return [(run.start, run.num_sequences, run.seqlen) for run in self._runs]

    def plan(self, batch: ForwardBatch) -> None:
        """Finds the runs of equal length."""
        if batch.padded_sequences == 1:
            tokens = batch.padded_tokens
            self._runs = [_Run(0, tokens, 1, tokens, self._window_mask(tokens))]
            return
        lengths = np.diff(batch.cu_seqlens_cpu)
        changes = np.flatnonzero(np.diff(lengths)) + 1
        firsts = np.concatenate(([0], changes)).tolist()
        lasts = np.concatenate((changes, [len(lengths)])).tolist()
        starts = batch.cu_seqlens_cpu[firsts].tolist()
        ends = batch.cu_seqlens_cpu[lasts].tolist()
        self._runs = [
            _Run(
                start,
                end,
                last - first,
                seqlen := (end - start) // (last - first),
                self._window_mask(seqlen),
            )
            for first, last, start, end in zip(firsts, lasts, starts, ends, strict=True)
            if end > start
        ]

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`."""
        for run in self._runs:
            rows = slice(run.start, run.end)
            size = (run.num_sequences, run.seqlen, -1, self.shape.head_dim)
            result = F.scaled_dot_product_attention(
                q[rows].view(size).transpose(1, 2),
                k[rows].view(size).transpose(1, 2),
                v[rows].view(size).transpose(1, 2),
                attn_mask=run.mask,
                is_causal=self.shape.causal and run.mask is None,
                scale=self.shape.scale,
                enable_gqa=self._grouped_queries,
            )
            out[rows].view(size).copy_(result.transpose(1, 2))

    def _window_mask(self, seqlen: int) -> torch.Tensor | None:
        if self.shape.window is None or seqlen <= 1 + min(self.shape.window):
            return None
        left, right = self.shape.window
        offsets = torch.arange(seqlen, device=self.device)
        distance = offsets[None, :] - offsets[:, None]
        return (distance >= -left) & (distance <= (0 if self.shape.causal else right))
