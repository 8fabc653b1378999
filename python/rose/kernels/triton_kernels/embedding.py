"""Embedding look-up fused with the norm that follows it, one program a token."""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.dependent_launch import wait_for_previous
from rose.kernels.triton_kernels.norm import is_finite

_UNALIGNED = ["token_ids_ptr", "positions_ptr", "token_type_ids_ptr"]


@triton.jit(do_not_specialize_on_alignment=_UNALIGNED)
def embedding_layer_norm_kernel(
    token_ids_ptr,
    positions_ptr,
    token_type_ids_ptr,
    words_ptr,
    offsets_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    bad_rows_ptr,
    eps,
    width: tl.constexpr,
    block: tl.constexpr,
    num_positions: tl.constexpr,
    has_token_types: tl.constexpr,
    dependent: tl.constexpr,
):
    """out = LayerNorm(word + offset), offsets being [token types * num_positions, width]."""
    wait_for_previous(dependent)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    mask = columns < width
    token = tl.load(token_ids_ptr + row).to(tl.int64)
    position = tl.load(positions_ptr + row).to(tl.int64)
    if has_token_types:
        position += tl.load(token_type_ids_ptr + row).to(tl.int64) * num_positions
    x = tl.load(words_ptr + token * width + columns, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(offsets_ptr + position * width + columns, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    centered = tl.where(mask, x - tl.sum(x, 0) / width, 0.0)
    variance = tl.sum(centered * centered, 0) / width
    finite = is_finite(variance)
    out = tl.where(finite, centered * tl.rsqrt(variance + eps) * weight + bias, 0.0)
    tl.store(out_ptr + row * width + columns, out.to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(bad_rows_ptr + row, tl.where(finite, 0, 1))


@triton.jit(do_not_specialize_on_alignment=["token_ids_ptr"])
def embedding_rms_norm_kernel(
    token_ids_ptr,
    words_ptr,
    weight_ptr,
    residual_ptr,
    out_ptr,
    bad_rows_ptr,
    eps,
    width: tl.constexpr,
    block: tl.constexpr,
    dependent: tl.constexpr,
):
    """residual = word; out = RMSNorm(word)."""
    wait_for_previous(dependent)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    mask = columns < width
    token = tl.load(token_ids_ptr + row).to(tl.int64)
    word = tl.load(words_ptr + token * width + columns, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(word * word, 0) / width
    finite = is_finite(mean_square)
    word = tl.where(finite, word, 0.0)
    out = tl.where(finite, word * tl.rsqrt(mean_square + eps) * weight, 0.0)
    tl.store(
        residual_ptr + row * width + columns, word.to(residual_ptr.dtype.element_ty), mask=mask
    )
    tl.store(out_ptr + row * width + columns, out.to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(bad_rows_ptr + row, tl.where(finite, 0, 1))
