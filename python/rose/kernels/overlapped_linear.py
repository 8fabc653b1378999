"""Linear layers of many rows, whose epilogue runs beside the tensor cores: on Hopper only."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from rose.kernels.invariance import is_batch_invariant
from rose.kernels.launch import launch

if TYPE_CHECKING:
    from rose.attention.base import AttentionShape
    from rose.kernels.rope import HeadRotation

logger = logging.getLogger(__name__)

_ROWS, _COLUMNS, _DEPTH = 128, 256, 64
_STAGES = 3
# Warps and registers of the parts: 8 that multiply, those of the epilogue, one that loads.
_MULTIPLY_WARPS, _EPILOGUE_WARPS = 8, 4
_EPILOGUE_REGISTERS, _LOAD_REGISTERS = 128, 24
# With a shorter sum a tile is multiplied before the epilogue of the one before has ended.
_LEAST_DEPTH = 1024
# Few rows are one wave of tiles, behind whose last sums the epilogue is alone after all.
_MOST_ROWS_OF_OTHERS = 1024
# Below this share of busy multiprocessors cuBLAS, which has more tiles to choose from, is faster.
_LEAST_USE = 0.85
_HOPPER = 9
_HEAD_DIM = 128


@dataclass(slots=True)
class _State:
    works: bool = True
    """Whether the installed Triton has compiled everything so far."""


_state = _State()


def overlaps(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the kernels here are the faster ones for x [rows, depth], weight [width, depth].

    From benches/results/gpu_overlapped.json; benches/gpu_linear.py compares them.
    """
    rows, (width, depth) = x.shape[0], weight.shape
    if not x.is_cuda or x.dtype == torch.float32 or is_batch_invariant():
        return False
    if rows <= _MOST_ROWS_OF_OTHERS:
        return False
    if width % _COLUMNS or depth % _DEPTH or depth < _LEAST_DEPTH:
        return False
    return _fills(rows, width, x.device) and _kernels(x.device) is not None


def overlapped_gelu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, *, tanh: bool
) -> bool:
    """GELU(x weightᵀ + bias) into `out` [rows, width], where `overlaps`.

    Returns:
        False if the installed Triton cannot compile it.
    """
    return _launch("overlapped_gelu_kernel", x, weight, (out, bias), {"tanh": tanh})


def overlapped_rotation(
    x: torch.Tensor,
    weight: torch.Tensor,
    positions: torch.Tensor,
    shape: AttentionShape,
    rotation: HeadRotation,
) -> torch.Tensor | None:
    """x weightᵀ as rows of query, key and value heads, the first two normed and rotated.

    Args:
        x: [tokens, hidden].
        weight: [(num_heads + 2 · num_kv_heads) · head_dim, hidden].
        positions: [tokens] int32.
        shape: head counts and size.
        rotation: cosines and sines, and the norms' weights.

    Returns:
        [tokens, (num_heads + 2 · num_kv_heads) · head_dim], or None where other kernels are faster.
    """
    heads_a_tile = _COLUMNS // _HEAD_DIM
    uneven = shape.num_heads % heads_a_tile or shape.num_kv_heads % heads_a_tile
    if shape.head_dim != _HEAD_DIM or uneven or not overlaps(x, weight):
        return None
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    table, norms = rotation.table, rotation.norms
    weights = (table.cos, table.cos) if norms is None else norms
    constants = {
        "num_heads": shape.num_heads,
        "num_qk_heads": shape.num_heads + shape.num_kv_heads,
        "has_norm": norms is not None,
    }
    arguments = (out, positions, *weights, table.cos, table.sin, rotation.eps)
    return out if _launch("overlapped_rotation_kernel", x, weight, arguments, constants) else None


def rows_of_whole_waves(rows: int, width: int, device: torch.device) -> int:
    """The rows behind which no multiprocessor waits for another: the most whose tiles `rows` has."""
    programs = _num_multiprocessors(device)
    column_tiles = width // _COLUMNS
    waves = -(-rows // _ROWS) * column_tiles // programs
    return waves * programs // column_tiles * _ROWS


def _launch(
    name: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    arguments: tuple[object, ...],
    constants: Mapping[str, int],
) -> bool:
    (rows, depth), width = x.shape, weight.shape[0]
    num_programs = _num_multiprocessors(x.device)
    kernel = getattr(_kernels(x.device), name, None)
    if kernel is None:
        return False
    try:
        launch(
            kernel,
            (min(num_programs, _num_tiles(rows, width)),),
            _descriptor(x, [_ROWS, _DEPTH]),
            _descriptor(weight, [_COLUMNS, _DEPTH]),
            *arguments,
            rows,
            width=width,
            depth=depth,
            num_programs=num_programs,
            stages=_STAGES,
            epilogue_warps=_EPILOGUE_WARPS,
            epilogue_registers=_EPILOGUE_REGISTERS,
            load_registers=_LOAD_REGISTERS,
            num_warps=_MULTIPLY_WARPS,
            **constants,
        )
    except Exception as error:
        if _is_of_device(error):
            raise
        _give_up(error)
        return False
    return True


def _is_of_device(error: Exception) -> bool:
    """Whether it is not about compiling, of which Triton's layers fail with errors of many kinds."""
    of_torch = isinstance(error, (torch.AcceleratorError, torch.OutOfMemoryError))
    return of_torch or "[CUDA]" in str(error)


def _give_up(error: Exception) -> None:
    """Gluon is young and its names move: what does not compile is done by other kernels."""
    _state.works = False
    reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
    logger.warning("epilogues of large GEMMs run apart from them: %s", reason)


def _num_tiles(rows: int, width: int) -> int:
    return -(-rows // _ROWS) * (width // _COLUMNS)


def _fills(rows: int, width: int, device: torch.device) -> bool:
    """Whether the last wave of tiles leaves few multiprocessors idle."""
    tiles, programs = _num_tiles(rows, width), _num_multiprocessors(device)
    return tiles >= _LEAST_USE * programs * -(-tiles // programs)


def _descriptor(x: torch.Tensor, block: list[int]) -> object:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor.from_tensor(x, block, _tile_layout(tuple(block), x.dtype))


@cache
def _tile_layout(block: tuple[int, ...], dtype: torch.dtype) -> Any:  # noqa: ANN401
    from triton.experimental.gluon import language as gl

    element = gl.bfloat16 if dtype == torch.bfloat16 else gl.float16
    return gl.NVMMASharedLayout.get_default_for(list(block), element)


def _kernels(device: torch.device) -> Any:  # noqa: ANN401
    """The module of the kernels; None where the device or the installed Triton cannot have them."""
    if not _state.works or not _is_hopper(device):
        return None
    try:
        from rose.kernels.triton_kernels import overlapped_linear
    except (ImportError, AttributeError) as error:
        _give_up(error)
        return None
    return overlapped_linear


@cache
def _is_hopper(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] == _HOPPER


@cache
def _num_multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
