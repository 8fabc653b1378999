"""Attention inside sequences whose keys fit in a few tiles: one program a query tile and head."""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.dependent_launch import wait_for_previous


@triton.jit(do_not_specialize_on_alignment=["cu_seqlens_ptr"])
def short_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    cu_seqlens_ptr,
    row_stride,
    log2_scale,
    num_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    query_block: tl.constexpr,
    key_block: tl.constexpr,
    causal: tl.constexpr,
    dependent: tl.constexpr,
):
    """Program (tile, head, sequence) computes `query_block` rows of one head.

    Rows of q, k and v are `row_stride` apart; `group` query heads share a key head. `log2_scale` is
    the softmax's scale times log2(e). Keys behind the end of the sequence are never read, so whatever
    lies there cannot spread.
    """
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    wait_for_previous(dependent)
    start = tl.load(cu_seqlens_ptr + sequence)
    length = tl.load(cu_seqlens_ptr + sequence + 1) - start
    if tile * query_block >= length:
        return
    base = start.to(tl.int64) * row_stride
    columns = tl.arange(0, head_dim)
    queries = tile * query_block + tl.arange(0, query_block)
    is_query = queries < length
    q_at = q_ptr + base + head * head_dim + queries[:, None] * row_stride + columns[None, :]
    q = tl.load(q_at, mask=is_query[:, None], other=0.0)
    kv_base = base + (head // group) * head_dim
    highest = tl.full([query_block], float("-inf"), tl.float32)
    weight_sum = tl.zeros([query_block], tl.float32)
    total = tl.zeros([query_block, head_dim], tl.float32)
    last_key = length
    if causal:
        last_key = tl.minimum(length, (tile + 1) * query_block)
    for first_key in range(0, last_key, key_block):
        keys = first_key + tl.arange(0, key_block)
        is_key = keys < length
        kv_at = kv_base + keys[:, None] * row_stride + columns[None, :]
        k = tl.load(k_ptr + kv_at, mask=is_key[:, None], other=0.0)
        v = tl.load(v_ptr + kv_at, mask=is_key[:, None], other=0.0)
        logits = tl.dot(q, k.T) * log2_scale
        seen = is_key[None, :]
        if causal:
            seen = seen & (keys[None, :] <= queries[:, None])
        logits = tl.where(seen, logits, float("-inf"))
        higher = tl.maximum(highest, tl.max(logits, 1))
        weights = tl.exp2(logits - higher[:, None])
        decay = tl.exp2(highest - higher)
        weight_sum = weight_sum * decay + tl.sum(weights, 1)
        total = tl.dot(weights.to(v.dtype), v, total * decay[:, None])
        highest = higher
    out = total / weight_sum[:, None]
    rows = (start + queries).to(tl.int64)
    out_at = out_ptr + (rows[:, None] * num_heads + head) * head_dim + columns[None, :]
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=is_query[:, None])
