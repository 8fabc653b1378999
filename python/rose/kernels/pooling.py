"""From token rows to one row a sequence."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F

from rose.kernels.invariance import is_batch_invariant
from rose.kernels.launch import launch, row_block, uses_triton, warps_for

RowChoice = Literal["first", "last"]

_MEAN_ROWS_AT_ONCE = 16
_MEAN_COLUMNS = 256
# Shares of a sequence that are summed apart, whatever is beside it.
_INVARIANT_PARTS = 8


def select_rows(
    x: torch.Tensor,
    cu_seqlens: torch.Tensor,
    which: RowChoice,
    *,
    normalize: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """First or last row of each sequence, [sequences, width].

    An empty slot gets some row that exists. `dtype` defaults to that of `x`.
    """
    num_sequences, (tokens, width) = cu_seqlens.shape[0] - 1, x.shape
    if uses_triton(x):
        from rose.kernels.triton_kernels.pooling import select_rows_kernel

        out = torch.empty(num_sequences, width, dtype=dtype or x.dtype, device=x.device)
        block = row_block(width)
        launch(
            select_rows_kernel,
            (num_sequences,),
            x,
            x.stride(0),
            cu_seqlens,
            tokens,
            out,
            width=width,
            block=block,
            last=which == "last",
            normalize=normalize,
            num_warps=warps_for(block),
        )
        return out
    index = cu_seqlens[:-1] if which == "first" else cu_seqlens[1:] - 1
    rows = x.index_select(0, index.clamp(0, tokens - 1))
    if normalize:
        rows = F.normalize(rows.float(), dim=1)
    return rows.to(dtype or x.dtype)


def normalize_rows(x: torch.Tensor) -> torch.Tensor:
    """Rows of Euclidean length 1, float32; a row of zeros stays zero."""
    if uses_triton(x):
        from rose.kernels.triton_kernels.pooling import normalize_kernel

        rows, width = x.shape
        out = torch.empty(rows, width, dtype=torch.float32, device=x.device)
        block = row_block(width)
        launch(
            normalize_kernel, (rows,), x, out, width=width, block=block, num_warps=warps_for(block)
        )
        return out
    return F.normalize(x.float(), dim=-1)


def mean_rows(x: torch.Tensor, cu_seqlens: torch.Tensor, *, normalize: bool) -> torch.Tensor:
    """Mean of each sequence's rows, [sequences, width] float32; zeros for an empty slot."""
    num_sequences, (tokens, width) = cu_seqlens.shape[0] - 1, x.shape
    if uses_triton(x):
        from rose.kernels.triton_kernels.pooling import mean_kernel, partial_sum_kernel

        # Few long sequences are split so that the sums fill the device.
        num_parts = 1 << max(0, min(5, (tokens // (64 * num_sequences)).bit_length()))
        if is_batch_invariant():
            num_parts = _INVARIANT_PARTS
        partial = torch.empty(num_sequences, num_parts, width, dtype=torch.float32, device=x.device)
        launch(
            partial_sum_kernel,
            (num_sequences, num_parts, -(-width // _MEAN_COLUMNS)),
            x,
            cu_seqlens,
            partial,
            num_parts,
            width=width,
            block=_MEAN_COLUMNS,
            rows_at_once=_MEAN_ROWS_AT_ONCE,
            num_warps=4,
        )
        out = torch.empty(num_sequences, width, dtype=torch.float32, device=x.device)
        block = row_block(width)
        launch(
            mean_kernel,
            (num_sequences,),
            partial,
            cu_seqlens,
            out,
            num_parts,
            width=width,
            block=block,
            normalize=normalize,
            num_warps=warps_for(block),
        )
        return out
    lengths = cu_seqlens.diff()
    sums = torch.zeros(num_sequences, width, dtype=torch.float32, device=x.device)
    owner = torch.repeat_interleave(torch.arange(num_sequences, device=x.device), lengths)
    sums.index_add_(0, owner, x[: owner.shape[0]].float())
    mean = sums / lengths.clamp(min=1)[:, None]
    return F.normalize(mean, dim=1) if normalize else mean
