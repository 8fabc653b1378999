"""Launching kernels: where they run, their launch shapes, and a short way into compiled ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

INTERPRETED = False
"""Set by tests that run the kernels on CPU tensors in Triton's interpreter."""

# With more rows it gains nothing, and decoders lose 1 to 2 %: benches/gpu_short_steps.py.
DEPENDENT_ROWS = 256
_HOPPER = 9

# Compiled kernels, with the values of their compile-time arguments in order.
_compiled: dict[tuple[object, ...], tuple[Any, tuple[object, ...]]] = {}


def uses_triton(x: torch.Tensor) -> bool:
    """Whether an operation on `x` is a Triton kernel."""
    return x.is_cuda or INTERPRETED


def launch(
    kernel: Any,  # noqa: ANN401 - Triton has no types
    grid: tuple[int, ...],
    *arguments: object,
    num_warps: int,
    dependent_rows: int | None = None,
    **constants: object,
) -> None:
    """Launches a kernel on the current stream.

    Triton's own path binds, specializes and hashes all arguments anew at each launch, which takes
    longer than many a kernel runs. Here a kernel is looked up by what its compilation depends on:
    types, alignment, compile-time constants.

    Args:
        kernel: a `triton.jit` function whose compile-time parameters come last.
        grid: number of programs, up to three dimensions.
        arguments: run-time arguments, in order.
        num_warps: warps of a program.
        dependent_rows: token rows of the step, for kernels that have `dependent` as their last
            compile-time parameter: with few of them the kernel starts before the one before it
            has ended (see `triton_kernels/dependent_launch.py`). None for other kernels.
        constants: compile-time arguments, and Triton's options.
    """
    if dependent_rows is not None:
        dependent = dependent_rows <= DEPENDENT_ROWS and not INTERPRETED and _can_depend()
        constants["dependent"] = dependent
        if dependent:
            constants["launch_pdl"] = True
    if INTERPRETED:
        kernel[grid](*arguments, num_warps=num_warps, **constants)
        return
    key = (kernel, num_warps, *constants.values(), *map(_specialization, arguments))
    found = _compiled.get(key)
    if found is None:
        compiled = kernel[grid](*arguments, num_warps=num_warps, **constants)
        names = kernel.arg_names[len(arguments) :]
        _compiled[key] = compiled, tuple(constants[name] for name in names)
        return
    compiled, values = found
    # Given the stream, Triton need not ask for it in three steps.
    stream = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
    compiled[(*grid, 1, 1)[:3]](*arguments, *values, stream=stream)


@cache
def _can_depend() -> bool:
    """Whether the device has programmatic dependent launch."""
    return torch.cuda.get_device_capability()[0] >= _HOPPER


def _specialization(argument: object) -> object:
    """What Triton may compile into a kernel about an argument."""
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.get_device(), argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0
    # A tensor descriptor's type, or that of a float.
    block = getattr(argument, "block_shape", None)
    return None if block is None else (argument.base.dtype, *block)  # type: ignore[attr-defined]


def row_block(width: int) -> int:
    """The power of two that holds a row."""
    return 1 << max(width - 1, 1).bit_length()


def warps_for(block: int) -> int:
    """Warps for a row of `block` values: 8 values a thread are one 16-byte access in 16 bits."""
    return max(1, min(16, block // 256))
