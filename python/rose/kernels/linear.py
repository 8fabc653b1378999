"""Linear layers with what is behind them; which kernel computes them goes by their size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F

from rose.kernels.activation import GateActivation, bias_gelu_, gated_mul
from rose.kernels.descriptor import descriptor, weight_descriptor
from rose.kernels.invariance import is_batch_invariant
from rose.kernels.invariant_linear import InvariantActivation, invariant_linear
from rose.kernels.launch import DEPENDENT_ROWS, launch
from rose.kernels.norm import NORM_ROW_LIMITS
from rose.kernels.overlapped_linear import overlapped_gelu, overlaps, rows_of_whole_waves
from rose.kernels.products import add_product, multiply
from rose.kernels.small_linear import (
    SmallActivation,
    SmallTiling,
    choose_small_tiling,
    choose_split,
    run_small_linear,
    small_row_limits,
)

FusedActivation = Literal["gelu", "gelu_tanh", "silu_mul"]

_GATED: Mapping[GateActivation, InvariantActivation] = {
    "silu": "silu_mul",
    "gelu": "gelu_mul",
    "gelu_tanh": "gelu_tanh_mul",
}


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tile of a program, and how it is computed."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int
    per_multiprocessor: int = 1
    """Programs that run on a multiprocessor at the same time: one computes its activation while
    the tensor cores work for the other."""

    @property
    def halves(self) -> bool:
        """Store in two halves, to save the memory that a second program needs."""
        return self.per_multiprocessor > 1


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x weightᵀ + bias, [tokens, out_features]."""
    if is_batch_invariant():
        return invariant_linear(x, weight, bias)
    small = _small_tiling(x, weight, "none")
    if small is not None:
        return run_small_linear(x, weight, bias, "none", small)
    return _plain_linear(x, weight, bias)


def _plain_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    out = multiply(x, weight, bias)
    return F.linear(x, weight, bias) if out is None else out


def linear_into(
    residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor | None:
    """x weightᵀ for a norm that adds it to `residual`, [tokens, out_features].

    Returns:
        None where the GEMM has added it by itself; else the product in parts, [parts, tokens,
        out_features] float32, for the norm to add.
    """
    if not is_batch_invariant() and _has_fused_kernels(x):
        split = choose_split(x.shape[0], weight.shape[0], weight.shape[1])
        if split is not None:
            return run_small_linear(x, weight, None, "none", split)
    add_linear_(residual, x, weight)
    return None


def add_linear_(residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """residual + x weightᵀ in place: the GEMM reads the residual while it computes."""
    if is_batch_invariant():
        return invariant_linear(x, weight, residual=residual, out=residual)
    if add_product(residual, x, weight):
        return residual
    return residual.addmm_(x, weight.t())


def linear_gelu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, tanh: bool = False
) -> torch.Tensor:
    """GELU(x weightᵀ + bias), [tokens, out_features]; `tanh` selects the approximation."""
    activation: Literal["gelu", "gelu_tanh"] = "gelu_tanh" if tanh else "gelu"
    if is_batch_invariant():
        return invariant_linear(x, weight, bias, activation=activation)
    small = _small_tiling(x, weight, activation)
    if small is not None:
        return run_small_linear(x, weight, bias, activation, small)
    if x.shape[0] > _MOST_TILED_ROWS and overlaps(x, weight):
        out = _overlapped_gelu(x, weight, bias, tanh=tanh)
        if out is not None:
            return out
    tiling = choose_tiling(x, weight, "gelu")
    if tiling is None:
        return bias_gelu_(_plain_linear(x, weight, None), bias, tanh=tanh)
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    run_fused_linear(x, weight, bias, out, activation, tiling)
    return out


def _overlapped_gelu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, tanh: bool
) -> torch.Tensor | None:
    rows, width = x.shape[0], weight.shape[0]
    out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    # A few rows behind the last whole wave of tiles would take as long as a wave.
    whole = rows_of_whole_waves(rows, width, x.device)
    if rows - whole > _MOST_REST_ROWS or width % _TALL.columns or x.shape[1] % _TALL.depth:
        whole = rows
    if not overlapped_gelu(x[:whole], weight, bias, out[:whole], tanh=tanh):
        return None
    if whole < rows:
        activation: FusedActivation = "gelu_tanh" if tanh else "gelu"
        run_fused_linear(x[whole:], weight, bias, out[whole:], activation, _TALL)
    return out


def linear_gated(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    bias: torch.Tensor | None,
    activation: GateActivation,
) -> torch.Tensor:
    """activation(x gateᵀ) · (x upᵀ), [tokens, width]; `gate_up` is `interleave(gate, up)`.

    `bias` is None or [2 · width], interleaved too.
    """
    if is_batch_invariant():
        return invariant_linear(x, gate_up, bias, activation=_GATED[activation])
    tiling = None
    if activation == "silu" and bias is None:
        small = _small_tiling(x, gate_up, "silu_mul")
        if small is not None:
            return run_small_linear(x, gate_up, None, "silu_mul", small)
        tiling = choose_tiling(x, gate_up, "silu_mul")
    if tiling is None:
        return gated_mul(_plain_linear(x, gate_up, bias), activation)
    out = torch.empty(x.shape[0], gate_up.shape[0] // 2, dtype=x.dtype, device=x.device)
    run_fused_linear(x, gate_up, gate_up, out, "silu_mul", tiling)
    return out


def interleave(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Rows of two weights [width, in_features] (or biases [width]) in turn."""
    return torch.stack((gate, up), dim=1).flatten(0, 1)


def choose_tiling(
    x: torch.Tensor, weight: torch.Tensor, activation: FusedActivation
) -> Tiling | None:
    """The fused kernel's tiling where it beats cuBLAS and a kernel of its own for the activation."""
    if not _has_fused_kernels(x):
        return None
    rows = x.shape[0]
    ranges = _TILINGS.get((activation, *weight.shape), ())
    return next((tiling for least, most, tiling in ranges if least <= rows <= most), None)


def _small_tiling(
    x: torch.Tensor, weight: torch.Tensor, activation: SmallActivation
) -> SmallTiling | None:
    if not _has_fused_kernels(x):
        return None
    width, depth = weight.shape
    return choose_small_tiling(x.shape[0], width, depth, activation)


def _has_fused_kernels(x: torch.Tensor) -> bool:
    return x.is_cuda and x.dtype != torch.float32 and _has_tma(x.device)


def run_fused_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    out: torch.Tensor,
    activation: FusedActivation,
    tiling: Tiling,
) -> None:
    """Launches the fused kernel; `out` is [tokens, width], halved for `silu_mul`."""
    from rose.kernels.triton_kernels.linear import linear_kernel

    tokens, depth = x.shape
    width = weight.shape[0]
    halved = activation == "silu_mul" or tiling.halves
    out_columns = tiling.columns // 2 if halved else tiling.columns
    tiles = -(-tokens // tiling.rows) * (width // tiling.columns)
    num_programs = _num_multiprocessors(x.device) * tiling.per_multiprocessor
    launch(
        linear_kernel,
        (min(num_programs, tiles),),
        descriptor(x, [tiling.rows, tiling.depth]),
        weight_descriptor(weight, [tiling.columns, tiling.depth]),
        descriptor(out, [tiling.rows, out_columns]),
        bias,
        tokens,
        width=width,
        depth=depth,
        block_rows=tiling.rows,
        block_columns=tiling.columns,
        block_depth=tiling.depth,
        num_programs=num_programs,
        halves=tiling.halves,
        activation=activation,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
        dependent_rows=tokens,
    )


_TALL = Tiling(128, 64, 128, 4, 4)
_PAIR = Tiling(128, 128, 64, 8, 3, per_multiprocessor=2)
_TALL_PAIR = Tiling(128, 64, 64, 4, 4, per_multiprocessor=2)
_FLAT_PAIR = Tiling(64, 128, 64, 4, 4, per_multiprocessor=2)
_LARGE = Tiling(128, 256, 64, 8, 3)
_NO_LIMIT = 1 << 31
# With more rows the overlapped kernel beats the tilings for GELU below; it leaves so many to `_TALL`.
_MOST_TILED_ROWS = 2048
_MOST_REST_ROWS = 256

# For (activation, width, depth): from how many rows to how many which tiling; between the ranges
# cuBLAS fills the device better. Measured on an H200 by benches/gpu_linear.py, figures in
# benches/results/gpu_linear.json; shapes that are not here have not been measured.
_TILINGS: Mapping[tuple[str, int, int], tuple[tuple[int, int, Tiling], ...]] = {
    (activation, 4096, 1024): (
        (129, 256, _TALL),
        (449, 512, _PAIR),
        (833, 1024, _PAIR),
        (1793, 2048, _PAIR),
        (6145, _NO_LIMIT, _LARGE),
    )
    for activation in ("gelu", "gelu_tanh")
} | {
    ("silu_mul", 6144, 1024): (
        # Where kernels are launched early, `_PAIR` takes 12.4 µs for 256 rows, this one 7.6.
        (129, 256, _TALL_PAIR),
        (449, 512, _TALL),
        (833, 3072, _FLAT_PAIR),
        (3073, _NO_LIMIT, _LARGE),
    )
}


def row_limits() -> list[int]:
    """Row counts up to which the same kernels are chosen, ascending; of larger ones the last.

    A model that has run with each of them, and with more rows, has compiled all that it may need.
    """
    limits = small_row_limits() | {DEPENDENT_ROWS, *NORM_ROW_LIMITS}
    for ranges in _TILINGS.values():
        limits |= {least - 1 for least, _, _ in ranges} | {most for _, most, _ in ranges}
    return sorted(limits - {0, _NO_LIMIT})


@cache
def _has_tma(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 9


@cache
def _num_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
