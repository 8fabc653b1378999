"""From logits of a vocabulary to weights of sequences (SPLADE), part after part of a step's rows."""

from __future__ import annotations

from itertools import pairwise

import torch

from rose.kernels.launch import launch, uses_triton

_COLUMNS = 256
_ROWS_AT_ONCE = 16


def pool_logits_(
    weights: torch.Tensor,
    logits: torch.Tensor,
    bias: torch.Tensor,
    cu_seqlens: torch.Tensor,
    first_row: int,
    *,
    sums: bool,
    twice: bool,
) -> torch.Tensor:
    """Adds a part of a step's rows to the weights of its sequences, in place; returns `weights`.

    A weight is log(1 + relu(logit + bias)), and log(1 + that) with `twice`. A NaN among the logits
    makes a NaN of the weight.

    Args:
        weights: [sequences, vocabulary] float32, zeros before the first part.
        logits: [rows, at least vocabulary], contiguous, of the token rows from `first_row` on.
        bias: [vocabulary].
        cu_seqlens: [sequences + 1] int32.
        first_row: token row of the first of the logits.
        sums: weights of tokens are added; else the highest counts.
        twice: the logarithm is taken twice.
    """
    num_sequences, width = weights.shape
    num_rows, row_stride = logits.shape
    if uses_triton(logits):
        from rose.kernels.triton_kernels.vocabulary_pooling import pool_logits_kernel

        launch(
            pool_logits_kernel,
            (num_sequences, -(-width // _COLUMNS)),
            logits,
            row_stride,
            bias,
            cu_seqlens,
            weights,
            first_row,
            num_rows,
            width=width,
            block=_COLUMNS,
            rows_at_once=_ROWS_AT_ONCE,
            sums=sums,
            twice=twice,
            num_warps=4,
        )
        return weights
    first = int(torch.searchsorted(cu_seqlens, first_row, right=True)) - 1
    last = int(torch.searchsorted(cu_seqlens, first_row + num_rows))
    bounds = (cu_seqlens[first : last + 1] - first_row).clamp(0, num_rows).tolist()
    for sequence, (start, end) in enumerate(pairwise(bounds), first):
        if start == end:
            continue
        found = logits[start:end, :width]
        if sums:
            weights[sequence] += _weight(found.float() + bias.float(), twice).sum(0)
        else:
            # The weight grows with the logit, so the highest logit is enough.
            highest = _weight(found.amax(0).float() + bias.float(), twice)
            weights[sequence] = torch.maximum(weights[sequence], highest)
    return weights


def _weight(logits: torch.Tensor, twice: bool) -> torch.Tensor:
    weights = logits.relu().log1p()
    return weights.log1p() if twice else weights
