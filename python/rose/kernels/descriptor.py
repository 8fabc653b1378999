"""Descriptors of matrices for the tensor memory accelerator, through which kernels load tiles."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

# Of weights, by tile: making one takes longer than many a kernel runs, and a step has a hundred.
_of_weights = WeakIdKeyDictionary()


def descriptor(x: torch.Tensor, tile: list[int]) -> Any:  # noqa: ANN401 - Triton has no types
    """A description of `x` in tiles of a shape of as many dimensions."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(x, tile)


def weight_descriptor(weight: torch.Tensor, tile: list[int]) -> Any:  # noqa: ANN401
    """As `descriptor`, remembered for as long as the tensor lives: for those that do not move."""
    by_tile = _of_weights.get(weight)  # type: ignore[no-untyped-call]
    if by_tile is None:
        by_tile = _of_weights[weight] = {}
    found = by_tile.get(tuple(tile))
    if found is None:
        # Of another tensor of the same memory: holding the weight would keep it alive for ever.
        found = by_tile[tuple(tile)] = descriptor(weight.detach(), tile)
    return found
