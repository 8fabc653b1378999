"""Residual add and normalization of [tokens, width] rows; sums in float32."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F

from rose.kernels.invariance import is_batch_invariant
from rose.kernels.launch import launch, row_block, uses_triton, warps_for

_FEW_ROWS, _MANY_ROWS = 256, 2048
NORM_ROW_LIMITS = (_FEW_ROWS, _MANY_ROWS)
"""Row counts up to which the kernels are compiled in the same way."""


def add_layer_norm(
    x: torch.Tensor | None,
    residual: torch.Tensor,
    linear_bias: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    bad_rows: torch.Tensor | None,
) -> torch.Tensor:
    """LayerNorm(x + linear_bias + residual), [tokens, width] of the residual's dtype.

    `x` is [tokens, width], or parts [parts, tokens, width] whose sum is meant, or None where the GEMM
    has added it to the residual already. `linear_bias` belongs to that
    GEMM; adding it here costs nothing and leaves the GEMM free to split its sum. Without `bad_rows`
    a NaN stays where it is.
    """
    tokens, width = residual.shape
    out = torch.empty_like(residual)
    if uses_triton(residual):
        from rose.kernels.triton_kernels.norm import add_layer_norm_kernel

        block = row_block(width)
        launch(
            add_layer_norm_kernel,
            (tokens,),
            residual if x is None else x,
            residual,
            weight if linear_bias is None else linear_bias,
            weight,
            bias,
            out,
            residual if bad_rows is None else bad_rows,
            eps,
            residual.numel(),
            width=width,
            block=block,
            num_parts=_num_parts(x),
            has_linear_bias=linear_bias is not None,
            contain=bad_rows is not None,
            num_warps=_num_warps(tokens, block),
            dependent_rows=tokens,
        )
        return out
    total = _added(x, residual)
    if linear_bias is not None:
        total = total + linear_bias.float()
    normed = F.layer_norm(total, (width,), weight.float(), bias.float(), eps)
    if bad_rows is not None:
        normed = torch.where(_note_bad_rows(total, bad_rows), normed, 0.0)
    return out.copy_(normed)


def add_rms_norm(
    x: torch.Tensor | None,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    bad_rows: torch.Tensor | None,
) -> torch.Tensor:
    """Adds `x` to `residual` in place and returns RMSNorm(residual), both [tokens, width].

    `x` is as in `add_layer_norm`. Without `bad_rows` a NaN stays where it is.
    """
    tokens, width = residual.shape
    out = torch.empty_like(residual)
    if uses_triton(residual):
        from rose.kernels.triton_kernels.norm import add_rms_norm_kernel

        block = row_block(width)
        launch(
            add_rms_norm_kernel,
            (tokens,),
            residual if x is None else x,
            residual,
            weight,
            out,
            residual if bad_rows is None else bad_rows,
            eps,
            residual.numel(),
            width=width,
            block=block,
            num_parts=_num_parts(x),
            contain=bad_rows is not None,
            num_warps=_num_warps(tokens, block),
            dependent_rows=tokens,
        )
        return out
    total = _added(x, residual)
    if bad_rows is not None:
        total = torch.where(_note_bad_rows(total, bad_rows), total, 0.0)
    residual.copy_(total)
    return out.copy_(rms_norm(total, weight.float(), eps))


def add_normed_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    x_weight: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    bad_rows: torch.Tensor | None,
) -> torch.Tensor:
    """Adds RMSNorm(x) to `residual` in place and returns RMSNorm(residual), both [tokens, width].

    Gemma's layers norm what they add. Without `bad_rows` a NaN stays where it is.
    """
    tokens, width = residual.shape
    if uses_triton(residual):
        from rose.kernels.triton_kernels.norm import add_normed_rms_norm_kernel

        out = torch.empty_like(residual)
        block = row_block(width)
        launch(
            add_normed_rms_norm_kernel,
            (tokens,),
            x,
            residual,
            x_weight,
            weight,
            out,
            residual if bad_rows is None else bad_rows,
            eps,
            width=width,
            block=block,
            contain=bad_rows is not None,
            num_warps=_num_warps(tokens, block),
            dependent_rows=tokens,
        )
        return out
    return add_rms_norm(rms_norm(x, x_weight, eps), residual, weight, eps, bad_rows)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, in x's dtype."""
    return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).to(x.dtype)


def mark_bad_sequences(
    rows: torch.Tensor, cu_seqlens: torch.Tensor, bad_rows: torch.Tensor, *, one_row: bool
) -> torch.Tensor:
    """Fills the rows of each sequence that has a bad row with NaN, in place; returns `rows`.

    Args:
        rows: [tokens, width], or with `one_row` [sequences, width].
        cu_seqlens: [sequences + 1] int32.
        bad_rows: [tokens] int32.
        one_row: `rows` holds one row for each sequence.
    """
    num_sequences = cu_seqlens.shape[0] - 1
    if uses_triton(rows):
        from rose.kernels.triton_kernels.norm import mark_bad_sequences_kernel

        launch(
            mark_bad_sequences_kernel,
            (num_sequences,),
            rows,
            cu_seqlens,
            bad_rows,
            width=rows.shape[1],
            block=1024,
            one_row=one_row,
            num_warps=4,
        )
        return rows
    starts = cu_seqlens.tolist()
    for sequence, (start, end) in enumerate(pairwise(starts)):
        if bad_rows[start:end].any():
            rows[slice(sequence, sequence + 1) if one_row else slice(start, end)] = torch.nan
    return rows


def _note_bad_rows(total: torch.Tensor, bad_rows: torch.Tensor) -> torch.Tensor:
    finite = total.isfinite().all(1, keepdim=True)
    bad_rows[~finite[:, 0]] = 1
    return finite


def _num_parts(x: torch.Tensor | None) -> int:
    if x is None:
        return 0
    return x.shape[0] if x.dim() > 2 else 1


def _added(x: torch.Tensor | None, residual: torch.Tensor) -> torch.Tensor:
    if x is None:
        return residual.float()
    return (x.float().sum(0) if x.dim() > 2 else x.float()) + residual.float()


def _num_warps(tokens: int, block: int) -> int:
    """By how many rows share the device: alone a row is short of threads, in a crowd of room."""
    warps = warps_for(block)
    if is_batch_invariant():
        return warps
    if tokens <= _FEW_ROWS:
        return min(16, 2 * warps)
    # Each thread has 4 loads of 16 bytes on their way, and sums of one warp need no barrier.
    return warps if tokens <= _MANY_ROWS else max(1, warps // 4)
