"""From logits of a vocabulary to weights of sequences, part after part of a step's rows."""

import triton
import triton.language as tl


@triton.jit
def _weight(logits, twice: tl.constexpr):
    weights = tl.log(1.0 + tl.maximum(logits, 0.0))
    if twice:
        weights = tl.log(1.0 + weights)
    return weights


@triton.jit(
    do_not_specialize_on_alignment=["cu_seqlens_ptr"], do_not_specialize=["first_row", "num_rows"]
)
def pool_logits_kernel(
    logits_ptr,
    row_stride,
    bias_ptr,
    cu_seqlens_ptr,
    out_ptr,
    first_row,
    num_rows,
    width: tl.constexpr,
    block: tl.constexpr,
    rows_at_once: tl.constexpr,
    sums: tl.constexpr,
    twice: tl.constexpr,
):
    """out[s] = out[s] and the weights of those rows of sequence s that `logits` holds, combined.

    `logits` holds the rows from `first_row` on. A weight is log(1 + relu(logit + bias)); weights are
    added with `sums`, else the highest counts. A NaN stays one.
    """
    sequence = tl.program_id(0)
    start = tl.maximum(tl.load(cu_seqlens_ptr + sequence) - first_row, 0)
    end = tl.minimum(tl.load(cu_seqlens_ptr + sequence + 1) - first_row, num_rows)
    if start < end:
        columns = tl.program_id(1) * block + tl.arange(0, block)
        in_width = columns < width
        bias = tl.load(bias_ptr + columns, mask=in_width, other=0.0).to(tl.float32)
        # Of no weight where there is no row.
        none: tl.constexpr = float("-inf")
        total = tl.full([rows_at_once, block], 0.0 if sums else none, tl.float32)
        bad = tl.zeros([rows_at_once, block], tl.int32)
        for at in range(start, end, rows_at_once):
            rows = at + tl.arange(0, rows_at_once)
            mask = (rows < end)[:, None] & in_width[None, :]
            offsets = rows.to(tl.int64)[:, None] * row_stride + columns[None, :]
            logits = tl.load(logits_ptr + offsets, mask=mask, other=none).to(tl.float32)
            bad |= (logits != logits).to(tl.int32)
            if sums:
                total += _weight(logits + bias[None, :], twice)
            else:
                total = tl.maximum(total, logits)
        out_at = out_ptr + sequence.to(tl.int64) * width + columns
        before = tl.load(out_at, mask=in_width, other=0.0)
        if sums:
            out = before + tl.sum(total, 0)
        else:
            # The weight grows with the logit, so the highest logit is enough.
            out = tl.maximum(before, _weight(tl.max(total, 0) + bias, twice))
        is_bad = (tl.max(bad, 0) != 0) | (before != before)
        tl.store(out_at, tl.where(is_bad, float("nan"), out), mask=in_width)
