"""Linear layers whose rows have the same bits whatever the number of rows.

cuBLAS chooses tiles, and splits sums, by the number of rows. Here the tile depends on the weight
alone, and each sum runs over the depth in one order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

from rose.kernels.launch import launch

InvariantActivation = Literal["none", "gelu", "gelu_tanh", "silu_mul", "gelu_mul", "gelu_tanh_mul"]


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of a program, and how it is computed."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int

    def shared_bytes(self, element_size: int) -> int:
        """Shared memory of the operands in flight."""
        return (self.rows + self.columns) * self.depth * element_size * self.num_stages


# Wide ones for throughput; a narrow weight would leave most of the device without a tile.
_WIDE = Tile(128, 256, 64, 8, 3)
_MIDDLE = Tile(128, 128, 64, 8, 3)
_NARROW = Tile(64, 64, 64, 4, 4)
_HEAD = Tile(64, 16, 64, 4, 4)
# Of devices with less shared memory.
_COMPACT = Tile(128, 128, 32, 8, 3)
# float32 goes through the plain units, with every product rounded once.
_FLOAT32 = Tile(64, 64, 16, 4, 3)
_FLOAT32_HEAD = Tile(64, 16, 16, 4, 3)
_WIDE_FROM = 3072


def choose_tile(width: int, dtype: torch.dtype, shared_bytes: int) -> Tile:
    """The tile of a weight [width, depth] on a device with `shared_bytes` a program."""
    if dtype == torch.float32:
        return _FLOAT32_HEAD if width <= _FLOAT32_HEAD.columns else _FLOAT32
    if width <= _HEAD.columns:
        return _HEAD
    if width <= _NARROW.columns:
        return _NARROW
    tile = _WIDE if width >= _WIDE_FROM else _MIDDLE
    return tile if tile.shared_bytes(dtype.itemsize) <= shared_bytes else _COMPACT


def invariant_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: InvariantActivation = "none",
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    tile: Tile | None = None,
) -> torch.Tensor:
    """activation(x weightᵀ + bias) + residual, summed in float32 and rounded once.

    Args:
        x: [tokens, depth].
        weight: [width, depth]. For an activation in `_mul` its rows are gate and up in turn, and the
            result is activation(gate) · up, [tokens, width / 2].
        bias: [width] or None.
        activation: what follows the sum.
        residual: of the result's shape, contiguous, or None.
        out: where the result goes, contiguous; may be `residual` itself.
        tile: replaces the one that the weight gets. Bits are the same for the same tile.

    Returns:
        [tokens, width], or [tokens, width / 2] of a gated activation, in x's dtype.
    """
    from rose.kernels.triton_kernels.invariant_linear import invariant_linear_kernel

    # A copy where a caller passes a view; the kernel reads whole rows.
    x, weight = x.contiguous(), weight.contiguous()
    tokens, depth = x.shape
    width = weight.shape[0]
    if out is None:
        out_width = width // 2 if activation.endswith("_mul") else width
        out = torch.empty(tokens, out_width, dtype=x.dtype, device=x.device)
    if tokens == 0:
        return out
    tile = tile or choose_tile(width, weight.dtype, _shared_bytes(x.device))
    launch(
        invariant_linear_kernel,
        (-(-tokens // tile.rows) * -(-width // tile.columns),),
        x,
        weight,
        weight if bias is None else bias,
        out if residual is None else residual,
        out,
        tokens,
        width=width,
        depth=depth,
        block_rows=tile.rows,
        block_columns=tile.columns,
        block_depth=tile.depth,
        activation=activation,
        has_bias=bias is not None,
        has_residual=residual is not None,
        float32=x.dtype == torch.float32,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return out


@cache
def _shared_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return 1 << 30  # the interpreter has no such limit
    properties = torch.cuda.get_device_properties(device)
    # torch's type stubs do not know it.
    return int(getattr(properties, "shared_memory_per_block_optin"))  # noqa: B009
