"""Gated and plain activations, a block of one row a program."""

import triton
import triton.language as tl

from rose.kernels.triton_kernels.dependent_launch import wait_for_previous

SQRT_HALF = tl.constexpr(0.7071067811865476)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) without a division, which costs more than all the rest."""
    root = tl.rsqrt(1.0 + tl.exp2(-1.4426950408889634 * x))
    return root * root


@triton.jit
def gelu(x):
    """x * the normal distribution function, whose relative error is 4e-4 at any x.

    The rounding to bfloat16 (float16) behind it is 2e-3 (5e-4). The distribution function is the
    sigmoid of an odd function, here a polynomial fitted to |x| < 5; a tanh of the usual cubic would
    be wrong by 10 % in the negative tail, and the error function of the library takes longer than
    the memory traffic around it.
    """
    square = tl.minimum(x * x, 25.0)
    poly = 2.901862829e-08 * square - 2.052821137e-06
    poly = poly * square + 3.931264765e-05
    poly = poly * square + 8.479524703e-04
    poly = poly * square - 1.068731334e-01
    poly = poly * square - 2.300630319e00
    root = tl.rsqrt(1.0 + tl.exp2(x * poly))
    return x * root * root


@triton.jit
def gelu_float32(x):
    """x * the normal distribution function, to 1e-7.

    The complementary error function by formula 7.1.26 of Abramowitz and Stegun.
    """
    z = tl.abs(x) * SQRT_HALF
    t = 1.0 / (1.0 + 0.3275911 * z)
    poly = 1.061405429 * t - 1.453152027
    poly = poly * t + 1.421413741
    poly = poly * t - 0.284496736
    poly = poly * t + 0.254829592
    upper_tail = 0.5 * poly * t * tl.exp(-z * z)
    return x * tl.where(x < 0, upper_tail, 1.0 - upper_tail)


@triton.jit
def gelu_tanh(x):
    """The approximation with tanh, as a sigmoid."""
    return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@triton.jit
def gated_mul_kernel(
    gate_up_ptr,
    out_ptr,
    width: tl.constexpr,
    block: tl.constexpr,
    activation: tl.constexpr,
    float32: tl.constexpr,
    dependent: tl.constexpr,
):
    """out = activation(gate) * up, where a row of `gate_up` holds gate and up in turn, [width, 2]."""
    wait_for_previous(dependent)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    mask = columns < width
    pairs = tl.program_id(1) * 2 * block + tl.arange(0, 2 * block)
    gate_up = tl.load(
        gate_up_ptr + row * (2 * width) + pairs, mask=pairs < 2 * width, other=0.0
    ).to(tl.float32)
    gate, up = tl.split(tl.reshape(gate_up, [block, 2]))
    if activation == "silu":
        out = gate * sigmoid(gate) * up
    elif activation == "gelu_tanh":
        out = gelu_tanh(gate) * up
    elif float32:
        out = gelu_float32(gate) * up
    else:
        out = gelu(gate) * up
    tl.store(out_ptr + row * width + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_kernel(
    x_ptr,
    bias_ptr,
    width: tl.constexpr,
    block: tl.constexpr,
    tanh: tl.constexpr,
    float32: tl.constexpr,
    dependent: tl.constexpr,
):
    """x = GELU(x + bias), with the error function or, with `tanh`, its approximation."""
    wait_for_previous(dependent)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    mask = columns < width
    at = x_ptr + row * width + columns
    x = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    if tanh:
        x = gelu_tanh(x)
    elif float32:
        x = gelu_float32(x)
    else:
        x = gelu(x)
    tl.store(at, x.to(x_ptr.dtype.element_ty), mask=mask)
