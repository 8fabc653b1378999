"""One row a sequence: selection, mean, normalization, cast to float32."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["cu_seqlens_ptr"], do_not_specialize=["num_tokens"])
def select_rows_kernel(
    x_ptr,
    row_stride,
    cu_seqlens_ptr,
    num_tokens,
    out_ptr,
    width: tl.constexpr,
    block: tl.constexpr,
    last: tl.constexpr,
    normalize: tl.constexpr,
):
    """out[s] = first (or last) row of sequence s; an empty slot gets a row that exists."""
    sequence = tl.program_id(0)
    columns = tl.arange(0, block)
    mask = columns < width
    if last:
        row = tl.load(cu_seqlens_ptr + sequence + 1) - 1
    else:
        row = tl.load(cu_seqlens_ptr + sequence)
    row = tl.maximum(tl.minimum(row, num_tokens - 1), 0).to(tl.int64)
    x = tl.load(x_ptr + row * row_stride + columns, mask=mask, other=0.0)
    if normalize:
        x = x.to(tl.float32)
        x = x / tl.maximum(tl.sqrt(tl.sum(x * x, 0)), 1e-12)
    out_at = out_ptr + sequence.to(tl.int64) * width + columns
    tl.store(out_at, x.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def normalize_kernel(x_ptr, out_ptr, width: tl.constexpr, block: tl.constexpr):
    """out = x / its Euclidean length, in float32."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    out = x / tl.maximum(tl.sqrt(tl.sum(x * x, 0)), 1e-12)
    tl.store(out_ptr + row * width + columns, out, mask=mask)


@triton.jit(do_not_specialize_on_alignment=["cu_seqlens_ptr"], do_not_specialize=["num_parts"])
def partial_sum_kernel(
    x_ptr,
    cu_seqlens_ptr,
    partial_ptr,
    num_parts,
    width: tl.constexpr,
    block: tl.constexpr,
    rows_at_once: tl.constexpr,
):
    """partial[s, p] = sum of the p-th of `num_parts` shares of the rows of sequence s."""
    sequence = tl.program_id(0)
    part = tl.program_id(1)
    columns = tl.program_id(2) * block + tl.arange(0, block)
    in_width = columns < width
    start = tl.load(cu_seqlens_ptr + sequence)
    end = tl.load(cu_seqlens_ptr + sequence + 1)
    share = tl.cdiv(tl.cdiv(end - start, num_parts), rows_at_once) * rows_at_once
    first = start + part * share
    last = tl.minimum(first + share, end)
    total = tl.zeros([rows_at_once, block], tl.float32)
    for at in range(first, last, rows_at_once):
        rows = at + tl.arange(0, rows_at_once)
        mask = (rows < last)[:, None] & in_width[None, :]
        offsets = rows.to(tl.int64)[:, None] * width + columns[None, :]
        total += tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    out_at = partial_ptr + (sequence.to(tl.int64) * num_parts + part) * width + columns
    tl.store(out_at, tl.sum(total, 0), mask=in_width)


@triton.jit(do_not_specialize_on_alignment=["cu_seqlens_ptr"], do_not_specialize=["num_parts"])
def mean_kernel(
    partial_ptr,
    cu_seqlens_ptr,
    out_ptr,
    num_parts,
    width: tl.constexpr,
    block: tl.constexpr,
    normalize: tl.constexpr,
):
    """out[s] = sum of the partial sums / number of rows; an empty slot gets zeros."""
    sequence = tl.program_id(0)
    columns = tl.arange(0, block)
    mask = columns < width
    count = tl.load(cu_seqlens_ptr + sequence + 1) - tl.load(cu_seqlens_ptr + sequence)
    first = sequence.to(tl.int64) * num_parts
    total = tl.zeros([block], tl.float32)
    for part in range(num_parts):
        total += tl.load(partial_ptr + (first + part) * width + columns, mask=mask, other=0.0)
    mean = total / tl.maximum(count, 1)
    if normalize:
        mean = mean / tl.maximum(tl.sqrt(tl.sum(mean * mean, 0)), 1e-12)
    tl.store(out_ptr + sequence.to(tl.int64) * width + columns, mean, mask=mask)
