"""Residual add + LayerNorm or RMSNorm, one program a row.

With `contain`, `bad_rows` [rows] int32 collects rows that hold NaN or infinity, and such a row leaves
the kernel as zeros. FlashAttention 3 multiplies values behind a sequence's end by zero, so without
this a NaN would reach the neighbours of its sequence.
"""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.dependent_launch import wait_for_previous

# The largest finite float32; comparing |x| with it catches infinity and (by being false) NaN.
FLOAT32_MAX = tl.constexpr(3.4028234663852886e38)


@triton.jit
def is_finite(total):
    """Whether a sum of squares, and so each of its terms, is finite."""
    return tl.abs(total) <= FLOAT32_MAX


@triton.jit
def add_layer_norm_kernel(
    x_ptr,
    residual_ptr,
    linear_bias_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    bad_rows_ptr,
    eps,
    part_stride,
    width: tl.constexpr,
    block: tl.constexpr,
    num_parts: tl.constexpr,
    has_linear_bias: tl.constexpr,
    contain: tl.constexpr,
    dependent: tl.constexpr,
):
    """out = LayerNorm(sum of parts + linear_bias + residual), parts [num_parts, rows, width]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    mask = columns < width
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    x = tl.zeros([block], tl.float32)
    if has_linear_bias:
        x += tl.load(linear_bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(dependent)
    x += tl.load(residual_ptr + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(num_parts):
        at = x_ptr + part * part_stride + row * width + columns
        x += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    centered = tl.where(mask, x - tl.sum(x, 0) / width, 0.0)
    variance = tl.sum(centered * centered, 0) / width
    finite = is_finite(variance)
    out = centered * tl.rsqrt(variance + eps) * weight + bias
    if contain:
        out = tl.where(finite, out, 0.0)
        tl.store(bad_rows_ptr + row, 1, mask=finite == 0)
    tl.store(out_ptr + row * width + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    bad_rows_ptr,
    eps,
    part_stride,
    width: tl.constexpr,
    block: tl.constexpr,
    num_parts: tl.constexpr,
    contain: tl.constexpr,
    dependent: tl.constexpr,
):
    """residual += sum of parts; out = RMSNorm(residual), parts [num_parts, rows, width]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    mask = columns < width
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(dependent)
    x = tl.load(residual_ptr + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(num_parts):
        at = x_ptr + part * part_stride + row * width + columns
        x += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, 0) / width
    finite = is_finite(mean_square)
    out = x * tl.rsqrt(mean_square + eps) * weight
    changed = mask
    if contain:
        x = tl.where(finite, x, 0.0)
        out = tl.where(finite, out, 0.0)
        tl.store(bad_rows_ptr + row, 1, mask=finite == 0)
        if num_parts == 0:
            changed = mask & (finite == 0)
    if num_parts > 0 or contain:
        x = x.to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptr + row * width + columns, x, mask=changed)
    tl.store(out_ptr + row * width + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_normed_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    x_weight_ptr,
    weight_ptr,
    out_ptr,
    bad_rows_ptr,
    eps,
    width: tl.constexpr,
    block: tl.constexpr,
    contain: tl.constexpr,
    dependent: tl.constexpr,
):
    """residual += RMSNorm(x); out = RMSNorm(residual)."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    mask = columns < width
    element_type = residual_ptr.dtype.element_ty
    x_weight = tl.load(x_weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    wait_for_previous(dependent)
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    x_square = tl.sum(x * x, 0) / width
    # Rounded where the layer by itself would round.
    normed = (x * tl.rsqrt(x_square + eps) * x_weight).to(element_type).to(tl.float32)
    total = tl.load(residual_ptr + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    total += normed
    mean_square = tl.sum(total * total, 0) / width
    out = total * tl.rsqrt(mean_square + eps) * weight
    if contain:
        finite = is_finite(x_square) & is_finite(mean_square)
        total = tl.where(finite, total, 0.0)
        out = tl.where(finite, out, 0.0)
        tl.store(bad_rows_ptr + row, 1, mask=finite == 0)
    tl.store(residual_ptr + row * width + columns, total.to(element_type), mask=mask)
    tl.store(out_ptr + row * width + columns, out.to(element_type), mask=mask)


@triton.jit(do_not_specialize_on_alignment=["cu_seqlens_ptr"])
def mark_bad_sequences_kernel(
    rows_ptr,
    cu_seqlens_ptr,
    bad_rows_ptr,
    width: tl.constexpr,
    block: tl.constexpr,
    one_row: tl.constexpr,
):
    """Fills the rows of a sequence with NaN if one of its tokens is a bad row.

    With `one_row`, `rows` holds one row a sequence instead of one a token.
    """
    sequence = tl.program_id(0)
    start = tl.load(cu_seqlens_ptr + sequence)
    end = tl.load(cu_seqlens_ptr + sequence + 1)
    bad = 0
    for first_row in range(start, end, block):
        rows = first_row + tl.arange(0, block)
        bad |= tl.max(tl.load(bad_rows_ptr + rows, mask=rows < end, other=0), 0)
    if bad != 0:
        first = start.to(tl.int64) * width
        last = end.to(tl.int64) * width
        if one_row:
            first = sequence.to(tl.int64) * width
            last = first + width
        nan = tl.full([block], float("nan"), tl.float32).to(rows_ptr.dtype.element_ty)
        for at in range(first, last, block):
            values = at + tl.arange(0, block)
            tl.store(rows_ptr + values, nan, mask=values < last)
