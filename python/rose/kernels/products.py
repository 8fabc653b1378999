"""Products of many rows by cuBLASLt itself, with kernels that need no workspace.

Given a workspace, as torch gives it, cuBLAS takes kernels for large products that count their tiles
in it, and clears the counter with a memset before each: 70 memsets in a step of 24 layers, for which
the device waits, and which make the launch of a graph eight times as long. Without one it takes the
same kernels with a fixed order of tiles. Figures: benches/results/gpu_products.json.
"""

from __future__ import annotations

import logging
from functools import cache

import torch

from rose.kernels.cublas_lt import DTYPES, CublasLt, CublasLtError, Product, open_library

logger = logging.getLogger(__name__)

# Few rows may want a sum split over many programs, which needs a workspace.
_MOST_ROWS_OF_TORCH = 1024
# Bytes; what cuBLASLt takes for granted of addresses unless it is told otherwise.
_ALIGNMENT = 256


def multiply(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor | None:
    """x weightᵀ + bias, [rows, width]; None where that is left to torch.

    Args:
        x: [rows, depth], of 16 bits on a CUDA device, or it is left to torch.
        weight: [width, depth].
        bias: [width].
    """
    if x.shape[0] <= _MOST_ROWS_OF_TORCH or not _suits(x, weight):
        return None
    if bias is not None and (bias.shape != weight.shape[:1] or not _is_plain(bias, x.dtype)):
        return None
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    return out if _run(x, weight, out, bias, adds=False) else None


def add_product(residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> bool:
    """residual [rows, width] += x weightᵀ; False, and nothing done, where that is left to torch.

    Raises:
        CublasLtError: the launch failed; what is in `residual` is not known.
    """
    if x.shape[0] <= _MOST_ROWS_OF_TORCH or not _suits(x, weight):
        return False
    if residual.shape != (x.shape[0], weight.shape[0]):
        return False
    return _is_plain(residual, x.dtype) and _run(x, weight, residual, None, adds=True)


def _suits(x: torch.Tensor, weight: torch.Tensor) -> bool:
    if not x.is_cuda or x.dtype not in DTYPES or x.device != weight.device:
        return False
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        # torch says what is wrong.
        return False
    return _is_plain(x, x.dtype) and _is_plain(weight, x.dtype)


def _is_plain(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    aligned = tensor.data_ptr() % _ALIGNMENT == 0 and tensor.shape[-1] % 8 == 0
    return aligned and tensor.dtype == dtype and tensor.is_contiguous()


def _run(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    adds: bool,
) -> bool:
    device = x.get_device()
    library = _of_device(device)
    if library is None:
        return False
    (rows, depth), width = x.shape, weight.shape[0]
    product = Product(x.dtype, rows, width, depth, bias is not None, adds)
    try:
        return library.run(
            product,
            x.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            torch._C._cuda_getCurrentRawStream(device),
        )
    except CublasLtError as error:
        library.give_up(error)
        if error.launching and adds:
            # It may have done so already.
            raise
        return False


@cache
def _of_device(device: int) -> CublasLt | None:
    """The library, with a handle for a device; None where it is not there."""
    version = torch.version.cuda
    if version is None:
        return None
    try:
        library = open_library(f"libcublasLt.so.{version.split('.')[0]}")
        with torch.cuda.device(device):
            return CublasLt(library)
    except (OSError, AttributeError, CublasLtError) as error:
        logger.info("matrix products are torch's: %s", error)
        return None
