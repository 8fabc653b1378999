"""A linear layer with one tile whatever the number of rows, and no split of its sums."""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.activation import gelu, gelu_float32, gelu_tanh, sigmoid


@triton.jit
def _activate(x, activation: tl.constexpr, float32: tl.constexpr):
    if activation == "silu_mul":
        x = x * sigmoid(x)
    elif activation == "gelu_tanh" or activation == "gelu_tanh_mul":
        x = gelu_tanh(x)
    elif activation == "gelu" or activation == "gelu_mul":
        if float32:
            x = gelu_float32(x)
        else:
            x = gelu(x)
    return x


# The number of rows must not select another compilation.
@triton.jit(do_not_specialize=["num_rows"])
def invariant_linear_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    num_rows,
    width: tl.constexpr,
    depth: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_depth: tl.constexpr,
    activation: tl.constexpr,
    has_bias: tl.constexpr,
    has_residual: tl.constexpr,
    float32: tl.constexpr,
):
    """out = activation(x @ weight.T + bias) + residual, x [num_rows, depth], weight [width, depth].

    `*_mul` halves the width: rows of `weight` are gate and up in turn, so both meet in one thread.
    `residual` may be `out`: a program reads what it is about to write.
    """
    row_tiles = tl.cdiv(num_rows, block_rows)
    column_tiles: tl.constexpr = (width + block_columns - 1) // block_columns
    # Tiles that run together share rows of x and of weight in the L2 cache.
    group: tl.constexpr = 8
    tile = tl.program_id(0)
    first_row_tile = tile // (group * column_tiles) * group
    rows_in_group = tl.minimum(row_tiles - first_row_tile, group)
    in_group = tile % (group * column_tiles)
    row = (first_row_tile + in_group % rows_in_group) * block_rows
    column = in_group // rows_in_group * block_columns

    rows = (row + tl.arange(0, block_rows)).to(tl.int64)
    columns = column + tl.arange(0, block_columns)
    # Rows and columns behind the end read the last one again, and are not stored.
    x_rows = tl.minimum(rows, num_rows - 1)
    weight_rows = tl.minimum(columns, width - 1).to(tl.int64)
    steps = tl.arange(0, block_depth)
    x_at = x_ptr + x_rows[:, None] * depth + steps[None, :]
    weight_at = weight_ptr + weight_rows[:, None] * depth + steps[None, :]
    total = tl.zeros((block_rows, block_columns), tl.float32)
    for first in range(0, depth, block_depth):
        if depth % block_depth == 0:
            x = tl.load(x_at)
            weight = tl.load(weight_at)
        else:
            inside = (steps < depth - first)[None, :]
            x = tl.load(x_at, mask=inside, other=0.0)
            weight = tl.load(weight_at, mask=inside, other=0.0)
        total = tl.dot(x, weight.T, total, input_precision="ieee")
        x_at += block_depth
        weight_at += block_depth
    if has_bias:
        bias = tl.load(bias_ptr + columns, mask=columns < width, other=0.0)
        total += bias.to(tl.float32)[None, :]
    if activation == "silu_mul" or activation == "gelu_mul" or activation == "gelu_tanh_mul":
        gate, up = tl.split(tl.reshape(total, (block_rows, block_columns // 2, 2)))
        out = _activate(gate, activation, float32) * up
        out_width: tl.constexpr = width // 2
        out_columns = column // 2 + tl.arange(0, block_columns // 2)
    else:
        out = _activate(total, activation, float32)
        out_width: tl.constexpr = width
        out_columns = columns
    mask = (rows < num_rows)[:, None] & (out_columns < out_width)[None, :]
    at = rows[:, None] * out_width + out_columns[None, :]
    if has_residual:
        out += tl.load(residual_ptr + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, out.to(out_ptr.dtype.element_ty), mask=mask)
