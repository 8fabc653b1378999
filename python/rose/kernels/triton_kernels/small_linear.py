"""A linear layer for few rows, where reading the weight is the work: one tile a program."""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.activation import gelu, gelu_tanh, sigmoid
from rose.kernels.triton_kernels.dependent_launch import wait_for_previous

# Values of 16 bits in a line of the L2 cache.
LINE = tl.constexpr(64)


@triton.jit
def _prefetch(pointers):
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def small_linear_kernel(
    x_desc,
    weight_desc,
    out_desc,
    weight_ptr,
    bias_ptr,
    depth: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_depth: tl.constexpr,
    splits: tl.constexpr,
    prefetch: tl.constexpr,
    has_bias: tl.constexpr,
    activation: tl.constexpr,
    dependent: tl.constexpr,
):
    """out = activation(x @ weight.T + bias), x [rows, depth], weight [width, depth].

    `activation` is "none", "gelu", "gelu_tanh" or "silu_mul"; the last halves the width, rows of
    `weight` being gate and up in turn. With `splits` above 1 out is float32 [splits, rows, width],
    program z adding up the z-th share of `depth`. With `prefetch` the weight moves into the L2
    cache while the kernel before still computes x.
    """
    column = tl.program_id(0) * block_columns
    row = tl.program_id(1) * block_rows
    split = tl.program_id(2)
    share: tl.constexpr = depth // splits
    first = split * share
    if prefetch:
        rows = column + tl.arange(0, block_columns)
        lines = tl.minimum(tl.arange(0, triton.next_power_of_2(share // LINE)) * LINE, share - LINE)
        _prefetch(weight_ptr + rows[:, None] * depth + first + lines[None, :])
    wait_for_previous(dependent)
    total = tl.zeros((block_rows, block_columns), tl.float32)
    for step in range(share // block_depth):
        x = x_desc.load([row, first + step * block_depth])
        weight = weight_desc.load([column, first + step * block_depth])
        total = tl.dot(x, weight.T, total)
    if has_bias:
        columns = column + tl.arange(0, block_columns)
        total += tl.load(bias_ptr + columns).to(tl.float32)[None, :]
    if splits > 1:
        parts = tl.reshape(total, (1, block_rows, block_columns))
        out_desc.store([split, row, column], parts)
    elif activation == "silu_mul":
        gate, up = tl.split(tl.reshape(total, (block_rows, block_columns // 2, 2)))
        out = gate * sigmoid(gate) * up
        out_desc.store([row, column // 2], out.to(out_desc.dtype))
    else:
        if activation == "gelu":
            total = gelu(total)
        elif activation == "gelu_tanh":
            total = gelu_tanh(total)
        out_desc.store([row, column], total.to(out_desc.dtype))
