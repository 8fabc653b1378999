"""From hidden states of tokens to one vector for each sequence."""

from __future__ import annotations

import torch

from rose.config import PoolingMode
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice, mean_rows

_ROW_CHOICES: dict[PoolingMode, RowChoice] = {"cls": "first", "last_token": "last"}
_LOWEST = torch.finfo(torch.float32).min


class Pooling:
    """One row for each sequence slot; several modes are concatenated.

    Sums run in float32. Empty padding slots give finite rows that nobody reads.
    """

    def __init__(self, modes: tuple[PoolingMode, ...]) -> None:
        self.modes = modes
        self.row_choice: RowChoice | None = None if len(modes) > 1 else _ROW_CHOICES.get(modes[0])
        """The one row of each sequence that is read, if it is one."""

    def __call__(self, hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Hidden [padded_tokens, width] to [padded_sequences, modes * width] float32."""
        parts = [self._pool(mode, hidden, batch) for mode in self.modes]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _pool(self, mode: PoolingMode, hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        starts, ends = batch.cu_seqlens[:-1], batch.cu_seqlens[1:]
        if mode == "cls":
            return hidden.index_select(0, starts.clamp(max=hidden.shape[0] - 1)).float()
        if mode == "last_token":
            return hidden.index_select(0, (ends - 1).clamp(min=0)).float()
        if mode == "mean" and hidden.is_cuda:
            return mean_rows(hidden, batch.cu_seqlens, normalize=False)
        if mode == "mean" and batch.padded_sequences == 1:
            return hidden.mean(0, keepdim=True, dtype=torch.float32)
        lengths = (ends - starts).clamp(min=1).unsqueeze(1).float()
        if mode == "max":
            return _reduce(hidden.float(), batch, "max").clamp(min=_LOWEST)
        if mode == "weighted_mean":
            ranks = torch.arange(1, hidden.shape[0] + 1, device=hidden.device)
            ranks = ranks - torch.repeat_interleave(
                starts, ends - starts, output_size=hidden.shape[0]
            )
            sums = _reduce(hidden.float() * ranks.unsqueeze(1), batch, "sum")
            return sums / (lengths * (lengths + 1) / 2)
        sums = _reduce(hidden.float(), batch, "sum")
        return sums / (lengths.sqrt() if mode == "mean_sqrt_len_tokens" else lengths)


def _reduce(hidden: torch.Tensor, batch: ForwardBatch, reduce: str) -> torch.Tensor:
    """Float32 [padded_tokens, width] to [padded_sequences, width]."""
    return torch.segment_reduce(
        hidden, reduce, offsets=batch.cu_seqlens.long(), axis=0, unsafe=True
    )
