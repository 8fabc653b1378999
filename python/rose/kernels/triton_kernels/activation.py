"""Gated and plain activations, a block of one row a program."""

import triton
import triton.language as tl

SQRT_HALF = tl.constexpr(0.7071067811865476)


@triton.jit
def silu_mul_kernel(gate_up_ptr, out_ptr, width: tl.constexpr, block: tl.constexpr):
    """out = silu(gate) * up, where a row of `gate_up` holds gate [width], then up [width]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    mask = columns < width
    gate_at = gate_up_ptr + row * (2 * width) + columns
    gate = tl.load(gate_at, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_at + width, mask=mask, other=0.0).to(tl.float32)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + row * width + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def bias_gelu_kernel(x_ptr, bias_ptr, width: tl.constexpr, block: tl.constexpr, tanh: tl.constexpr):
    """x = GELU(x + bias), with the error function or, with `tanh`, its approximation."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    mask = columns < width
    at = x_ptr + row * width + columns
    x = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(bias_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    if tanh:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        gate = tl.sigmoid(2.0 * inner)
    else:
        gate = 0.5 * (1.0 + tl.erf(x * SQRT_HALF))
    tl.store(at, (x * gate).to(x_ptr.dtype.element_ty), mask=mask)
