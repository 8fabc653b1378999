"""Where kernels run, and launch shapes of those that hold one row in registers."""

from __future__ import annotations

import torch

INTERPRETED = False
"""Set by tests that run the kernels on CPU tensors in Triton's interpreter."""


def uses_triton(x: torch.Tensor) -> bool:
    """Whether an operation on `x` is a Triton kernel."""
    return x.is_cuda or INTERPRETED


def row_block(width: int) -> int:
    """The power of two that holds a row."""
    return 1 << max(width - 1, 1).bit_length()


def num_warps(block: int) -> int:
    """Warps for a row of `block` values: 8 values a thread are one 16-byte access in 16 bits."""
    return max(1, min(16, block // 256))
