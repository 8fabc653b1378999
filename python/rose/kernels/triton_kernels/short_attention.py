"""Attention inside short sequences, with the norm and rotation of heads before it in the same kernel."""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.dependent_launch import wait_for_previous


@triton.jit
def _load_halves(
    heads_ptr,
    rows,
    row_stride,
    in_sequence,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    positions,
    eps,
    half: tl.constexpr,
    has_norm: tl.constexpr,
    has_rope: tl.constexpr,
):
    """Both halves of a head in some rows, normed and rotated: [rows, half] each."""
    columns = tl.arange(0, half)
    at = heads_ptr + rows[:, None] * row_stride + columns[None, :]
    first = tl.load(at, mask=in_sequence[:, None], other=0.0)
    second = tl.load(at + half, mask=in_sequence[:, None], other=0.0)
    element_type: tl.constexpr = first.dtype
    if has_norm:
        first, second = first.to(tl.float32), second.to(tl.float32)
        squares = tl.sum(first * first + second * second, 1) / (2 * half)
        scale = tl.rsqrt(squares + eps)[:, None]
        first = first * scale * tl.load(weight_ptr + columns).to(tl.float32)[None, :]
        second = second * scale * tl.load(weight_ptr + half + columns).to(tl.float32)[None, :]
    if has_rope:
        first, second = first.to(tl.float32), second.to(tl.float32)
        angles = positions[:, None] * half + columns[None, :]
        cos = tl.load(cos_ptr + angles)
        sin = tl.load(sin_ptr + angles)
        rotated = first * cos - second * sin
        second = second * cos + first * sin
        first = rotated
    return first.to(element_type), second.to(element_type)


@triton.jit(do_not_specialize_on_alignment=["cu_seqlens_ptr", "positions_ptr"])
def short_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    cu_seqlens_ptr,
    positions_ptr,
    q_weight_ptr,
    k_weight_ptr,
    cos_ptr,
    sin_ptr,
    row_stride,
    eps,
    log2_scale,
    num_heads: tl.constexpr,
    group: tl.constexpr,
    half: tl.constexpr,
    query_block: tl.constexpr,
    key_block: tl.constexpr,
    causal: tl.constexpr,
    has_norm: tl.constexpr,
    has_rope: tl.constexpr,
    dependent: tl.constexpr,
):
    """Program (tile, head, sequence) computes `query_block` rows of one head.

    Rows of q, k and v are `row_stride` apart, heads `2 * half`; `group` query heads share a key
    head. `log2_scale` is the softmax's scale times log2(e). Keys behind the end of the sequence are
    never read, so whatever lies there cannot spread.
    """
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head_dim: tl.constexpr = 2 * half
    wait_for_previous(dependent)
    start = tl.load(cu_seqlens_ptr + sequence)
    length = tl.load(cu_seqlens_ptr + sequence + 1) - start
    if tile * query_block >= length:
        return
    base = start.to(tl.int64) * row_stride
    queries = tile * query_block + tl.arange(0, query_block)
    is_query = queries < length
    positions = queries
    if has_rope:
        positions = tl.load(positions_ptr + start + queries, mask=is_query, other=0)
    q_first, q_second = _load_halves(
        q_ptr + base + head * head_dim,
        queries,
        row_stride,
        is_query,
        q_weight_ptr,
        cos_ptr,
        sin_ptr,
        positions,
        eps,
        half,
        has_norm,
        has_rope,
    )
    highest = tl.full([query_block], float("-inf"), tl.float32)
    weight_sum = tl.zeros([query_block], tl.float32)
    total = tl.zeros([query_block, head_dim], tl.float32)
    columns = tl.arange(0, head_dim)
    last_key = length
    if causal:
        last_key = tl.minimum(length, (tile + 1) * query_block)
    kv_head = head // group
    for first_key in range(0, last_key, key_block):
        keys = first_key + tl.arange(0, key_block)
        is_key = keys < length
        key_positions = keys
        if has_rope:
            key_positions = tl.load(positions_ptr + start + keys, mask=is_key, other=0)
        k_first, k_second = _load_halves(
            k_ptr + base + kv_head * head_dim,
            keys,
            row_stride,
            is_key,
            k_weight_ptr,
            cos_ptr,
            sin_ptr,
            key_positions,
            eps,
            half,
            has_norm,
            has_rope,
        )
        v_at = v_ptr + base + kv_head * head_dim + keys[:, None] * row_stride + columns[None, :]
        values = tl.load(v_at, mask=is_key[:, None], other=0.0)
        logits = tl.dot(q_first, k_first.T)
        logits = tl.dot(q_second, k_second.T, logits) * log2_scale
        seen = is_key[None, :]
        if causal:
            seen = seen & (keys[None, :] <= queries[:, None])
        logits = tl.where(seen, logits, float("-inf"))
        higher = tl.maximum(highest, tl.max(logits, 1))
        weights = tl.exp2(logits - higher[:, None])
        decay = tl.exp2(highest - higher)
        weight_sum = weight_sum * decay + tl.sum(weights, 1)
        total = tl.dot(weights.to(values.dtype), values, total * decay[:, None])
        highest = higher
    out = total / weight_sum[:, None]
    rows = (start + queries).to(tl.int64)
    out_at = out_ptr + (rows[:, None] * num_heads + head) * head_dim + columns[None, :]
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=is_query[:, None])
