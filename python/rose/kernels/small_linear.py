"""Linear layers of few rows: reading the weight is the work, so all of the device must read at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from rose.kernels.descriptor import descriptor, weight_descriptor
from rose.kernels.launch import launch

SmallActivation = Literal["none", "gelu", "gelu_tanh", "silu_mul"]

# With more rows cuBLAS reads as fast and computes faster.
_SPLIT_MOST_ROWS = 256
# Programs of a split layer: fewer leave multiprocessors idle, more come in a second wave.
_FEWEST_PROGRAMS, _MOST_PROGRAMS = 24, 160
_SPLIT_DEPTH = 128


@dataclass(frozen=True, slots=True)
class SmallTiling:
    """Tile of a program, and how it is computed."""

    rows: int
    columns: int
    depth: int
    prefetch: bool = False
    """Move the weight into the L2 cache while the kernel before still runs."""
    splits: int = 1
    """Programs that share the sum of one tile."""
    num_warps: int = 4
    num_stages: int = 4


# For (activation, width, depth): from how many rows to how many which tiling. Measured in whole models
# by benches/gpu_short_steps.py, figures in benches/results/gpu_short_steps.json; shapes that are not
# here have not been measured.
_TILINGS: Mapping[tuple[str, int, int], tuple[tuple[int, int, SmallTiling], ...]] = {
    ("none", 3072, 1024): ((1, 128, SmallTiling(64, 64, 128, prefetch=True)),),
    ("none", 4096, 1024): ((65, 128, SmallTiling(64, 64, 128)),),
    ("gelu", 4096, 1024): ((1, 128, SmallTiling(64, 32, 128, prefetch=True)),),
    ("gelu_tanh", 4096, 1024): ((1, 128, SmallTiling(64, 32, 128, prefetch=True)),),
    ("silu_mul", 6144, 1024): (
        (1, 64, SmallTiling(64, 64, 128, prefetch=True)),
        (65, 128, SmallTiling(128, 64, 128, prefetch=True)),
    ),
}


def choose_small_tiling(
    rows: int, width: int, depth: int, activation: SmallActivation
) -> SmallTiling | None:
    """The tiling of a layer [width, depth] for a number of rows; None where cuBLAS is faster."""
    ranges = _TILINGS.get((activation, width, depth), ())
    return next((tiling for least, most, tiling in ranges if least <= rows <= most), None)


def choose_split(rows: int, width: int, depth: int) -> SmallTiling | None:
    """The tiling of a layer whose parts the norm behind it adds up; None where cuBLAS is faster."""
    if rows > _SPLIT_MOST_ROWS:
        return None
    columns = 64
    tiles = -(-rows // 64) * (width // columns)
    for splits in (4, 2):
        shares = depth % (splits * _SPLIT_DEPTH) == 0 and width % columns == 0
        if shares and _FEWEST_PROGRAMS <= tiles * splits <= _MOST_PROGRAMS:
            prefetch = rows <= _SPLIT_MOST_ROWS // 2
            return SmallTiling(64, columns, _SPLIT_DEPTH, prefetch=prefetch, splits=splits)
    return None


def small_row_limits() -> set[int]:
    """Row counts up to which one tiling is chosen, of any layer."""
    limits = {most for ranges in _TILINGS.values() for _, most, _ in ranges}
    return limits | {_SPLIT_MOST_ROWS // 2, _SPLIT_MOST_ROWS}


def run_small_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: SmallActivation,
    tiling: SmallTiling,
) -> torch.Tensor:
    """activation(x weightᵀ + bias) in 16 bits, on Hopper.

    Returns:
        [rows, width] of x's dtype, halved for `silu_mul`; with `splits` above 1 the parts of the
        sum, [splits, rows, width] float32.
    """
    from rose.kernels.triton_kernels.small_linear import small_linear_kernel

    (rows, depth), width = x.shape, weight.shape[0]
    tile = [tiling.rows, tiling.columns]
    if tiling.splits > 1:
        size: tuple[int, ...] = (tiling.splits, rows, width)
        tile = [1, *tile]
    elif activation == "silu_mul":
        size = (rows, width // 2)
        tile[1] //= 2
    else:
        size = (rows, width)
    dtype = torch.float32 if tiling.splits > 1 else x.dtype
    out = torch.empty(size, dtype=dtype, device=x.device)
    launch(
        small_linear_kernel,
        (width // tiling.columns, -(-rows // tiling.rows), tiling.splits),
        descriptor(x, [tiling.rows, tiling.depth]),
        weight_descriptor(weight, [tiling.columns, tiling.depth]),
        descriptor(out, tile),
        weight,
        weight if bias is None else bias,
        depth=depth,
        block_rows=tiling.rows,
        block_columns=tiling.columns,
        block_depth=tiling.depth,
        splits=tiling.splits,
        prefetch=tiling.prefetch,
        has_bias=bias is not None,
        activation=activation,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
        dependent_rows=rows,
    )
    return out
