"""Attention through torch's scaled_dot_product_attention: the CPU back end, and the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend, AttentionShape
from rose.forward_batch import ForwardBatch

# Queries of one call where there is a window: with more of them, more of the keys that a call reads
# lie outside the window of each.
_WINDOW_QUERIES = 256


@dataclass(frozen=True, slots=True)
class _Piece:
    """Queries of a sequence and the keys that they can see."""

    queries: slice
    keys: slice
    mask: torch.Tensor | None
    """[queries, keys] bool, or [1, num_heads, queries, keys] that is added to the logits."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring sequences of one length: one dense attention call for each piece."""

    start: int
    """First token row."""
    end: int
    num_sequences: int
    seqlen: int
    pieces: list[_Piece]


class SdpaAttention(AttentionBackend):
    """One call for each run of neighbouring sequences of equal length.

    A step whose sequences are sorted by length makes the fewest calls. A window is cut out of the
    keys, so that long sequences cost what their windows do.
    """

    def __init__(
        self,
        shape: AttentionShape,
        dtype: torch.dtype,
        device: torch.device,
        *,
        deterministic: bool = False,
    ) -> None:
        super().__init__(shape, dtype, device, deterministic=deterministic)
        self._runs: list[_Run] = []
        self._grouped_queries = shape.num_heads != shape.num_kv_heads

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """First token row, number of sequences and tokens of each, for every run of the plan."""
        return [(run.start, run.num_sequences, run.seqlen) for run in self._runs]

    @property
    def biases(self) -> list[torch.Tensor]:
        """For every run of the plan what is added to its logits, [1, num_heads, seqlen, seqlen]."""
        masks = [run.pieces[0].mask for run in self._runs] if self.shape.bias is not None else []
        return [mask for mask in masks if mask is not None]

    def plan(self, batch: ForwardBatch) -> None:
        """Finds the runs of equal length."""
        if batch.padded_sequences == 1:
            tokens = batch.padded_tokens
            self._runs = [_Run(0, tokens, 1, tokens, self._pieces(tokens))]
            return
        lengths = np.diff(batch.cu_seqlens_cpu)
        changes = np.flatnonzero(np.diff(lengths)) + 1
        if self.deterministic:
            # A call of several sequences may run another kernel than that of one.
            changes = np.arange(1, len(lengths))
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
                self._pieces(seqlen),
            )
            for first, last, start, end in zip(firsts, lasts, starts, ends, strict=True)
            if end > start
        ]

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`."""
        for run in self._runs:
            rows = slice(run.start, run.end)
            size = (run.num_sequences, run.seqlen, -1, self.shape.head_dim)
            queries = q[rows].view(size).transpose(1, 2)
            keys = k[rows].view(size).transpose(1, 2)
            values = v[rows].view(size).transpose(1, 2)
            context = out[rows].view(size)
            for piece in run.pieces:
                result = F.scaled_dot_product_attention(
                    queries[:, :, piece.queries],
                    keys[:, :, piece.keys],
                    values[:, :, piece.keys],
                    attn_mask=piece.mask,
                    is_causal=self.shape.causal and piece.mask is None,
                    scale=self.shape.scale,
                    enable_gqa=self._grouped_queries,
                )
                context[:, piece.queries].copy_(result.transpose(1, 2))

    def _pieces(self, seqlen: int) -> list[_Piece]:
        window, bias = self.shape.window, self.shape.bias
        whole = slice(0, seqlen)
        if bias is not None:
            return [_Piece(whole, whole, bias.matrix(seqlen, self.dtype)[None])]
        if window is None or seqlen <= 1 + min(window[: 1 if self.shape.causal else 2]):
            return [_Piece(whole, whole, None)]
        left, right = window[0], 0 if self.shape.causal else window[1]
        pieces = []
        for start in range(0, seqlen, _WINDOW_QUERIES):
            end = min(seqlen, start + _WINDOW_QUERIES)
            first, last = max(0, start - left), min(seqlen, end + right)
            key_index = torch.arange(first, last, device=self.device)
            query_index = torch.arange(start, end, device=self.device)
            distance = key_index[None, :] - query_index[:, None]
            mask = (distance >= -left) & (distance <= right)
            pieces.append(_Piece(slice(start, end), slice(first, last), mask))
        return pieces
