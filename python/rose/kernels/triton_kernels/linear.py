"""A linear layer whose epilogue is the activation behind it: one block a multiprocessor, TMA loads.

cuBLAS has no exact GELU and no gated SiLU in its epilogues, so with it the widest activation of the
model is written, read and written again.
"""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.activation import gelu, gelu_tanh, sigmoid
from rose.kernels.triton_kernels.dependent_launch import wait_for_previous


@triton.jit
def _gelu(x, activation: tl.constexpr):
    if activation == "gelu":
        return gelu(x)
    else:  # noqa: RET505 - both branches must be visible to the compiler
        return gelu_tanh(x)


@triton.jit(do_not_specialize=["num_rows"])
def linear_kernel(
    x_desc,
    weight_desc,
    out_desc,
    bias_ptr,
    num_rows,
    width: tl.constexpr,
    depth: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_depth: tl.constexpr,
    num_programs: tl.constexpr,
    halves: tl.constexpr,
    activation: tl.constexpr,
    dependent: tl.constexpr,
):
    """out = activation(x @ weight.T + bias), x [num_rows, depth], weight [width, depth].

    `activation` is "gelu", "gelu_tanh" or "silu_mul", which has no bias and halves the width: rows
    of `weight` are gate and up in turn, so both meet in one thread.
    """
    wait_for_previous(dependent)
    row_tiles = tl.cdiv(num_rows, block_rows)
    column_tiles: tl.constexpr = width // block_columns
    # Tiles that run together share rows of x and of weight in the L2 cache.
    group: tl.constexpr = 8
    for tile in tl.range(tl.program_id(0), row_tiles * column_tiles, num_programs, flatten=True):
        first_row_tile = tile // (group * column_tiles) * group
        rows_in_group = min(row_tiles - first_row_tile, group)
        in_group = tile % (group * column_tiles)
        row = (first_row_tile + in_group % rows_in_group) * block_rows
        column = in_group // rows_in_group * block_columns
        total = tl.zeros((block_rows, block_columns), tl.float32)
        for step in range(depth // block_depth):
            x = x_desc.load([row, step * block_depth])
            weight = weight_desc.load([column, step * block_depth])
            total = tl.dot(x, weight.T, total)
        if activation == "silu_mul":
            gate, up = tl.split(tl.reshape(total, (block_rows, block_columns // 2, 2)))
            out = gate * sigmoid(gate) * up
            out_desc.store([row, column // 2], out.to(out_desc.dtype))
        elif halves:
            # Half the staging memory, so that a second program fits beside this one.
            half: tl.constexpr = block_columns // 2
            parts = tl.permute(tl.reshape(total, (block_rows, 2, half)), (0, 2, 1))
            left, right = tl.split(parts)
            left_bias = tl.load(bias_ptr + column + tl.arange(0, half)).to(tl.float32)
            right_bias = tl.load(bias_ptr + column + half + tl.arange(0, half)).to(tl.float32)
            out = _gelu(left + left_bias[None, :], activation)
            out_desc.store([row, column], out.to(out_desc.dtype))
            out = _gelu(right + right_bias[None, :], activation)
            out_desc.store([row, column + half], out.to(out_desc.dtype))
        else:
            bias = tl.load(bias_ptr + column + tl.arange(0, block_columns)).to(tl.float32)
            out = _gelu(total + bias[None, :], activation)
            out_desc.store([row, column], out.to(out_desc.dtype))
