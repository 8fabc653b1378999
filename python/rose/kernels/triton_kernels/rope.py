"""RMSNorm of each query and key head, then rotary position embedding, in place."""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.dependent_launch import wait_for_previous


@triton.jit(do_not_specialize_on_alignment=["positions_ptr"])
def qk_norm_rope_kernel(
    qkv_ptr,
    positions_ptr,
    q_weight_ptr,
    k_weight_ptr,
    cos_ptr,
    sin_ptr,
    eps,
    row_width: tl.constexpr,
    num_heads: tl.constexpr,
    num_qk_heads: tl.constexpr,
    half: tl.constexpr,
    half_block: tl.constexpr,
    head_block: tl.constexpr,
    has_norm: tl.constexpr,
    dependent: tl.constexpr,
):
    """A program holds `head_block` heads of one row; heads are queries, then keys, then values.

    `cos` and `sin` are [positions, half] float32; a pair is (i, i + half), as in Llama and Qwen.
    """
    wait_for_previous(dependent)
    row = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * head_block + tl.arange(0, head_block)
    columns = tl.arange(0, half_block)
    inside = columns < half
    mask = (heads < num_qk_heads)[:, None] & inside[None, :]
    at = qkv_ptr + row * row_width + heads[:, None] * (2 * half) + columns[None, :]
    first = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(at + half, mask=mask, other=0.0).to(tl.float32)
    if has_norm:
        squares = tl.sum(first * first + second * second, 1) / (2 * half)
        scale = tl.rsqrt(squares + eps)[:, None]
        is_query = (heads < num_heads)[:, None]
        q_first = tl.load(q_weight_ptr + columns, mask=inside, other=0.0)[None, :].to(tl.float32)
        q_second = tl.load(q_weight_ptr + half + columns, mask=inside, other=0.0)[None, :].to(
            tl.float32
        )
        k_first = tl.load(k_weight_ptr + columns, mask=inside, other=0.0)[None, :].to(tl.float32)
        k_second = tl.load(k_weight_ptr + half + columns, mask=inside, other=0.0)[None, :].to(
            tl.float32
        )
        first = first * scale * tl.where(is_query, q_first, k_first)
        second = second * scale * tl.where(is_query, q_second, k_second)
    position = tl.load(positions_ptr + row).to(tl.int64)
    cos = tl.load(cos_ptr + position * half + columns, mask=inside, other=0.0)[None, :]
    sin = tl.load(sin_ptr + position * half + columns, mask=inside, other=0.0)[None, :]
    rotated_first = first * cos - second * sin
    rotated_second = second * cos + first * sin
    tl.store(at, rotated_first.to(qkv_ptr.dtype.element_ty), mask=mask)
    tl.store(at + half, rotated_second.to(qkv_ptr.dtype.element_ty), mask=mask)
