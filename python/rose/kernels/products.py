"""Products of many rows by cuBLAS itself, with kernels that need no workspace.

Given a workspace, as torch gives it, cuBLAS takes kernels for large products that count their tiles
in it, and clears the counter with a memset before each: 70 memsets in a step of 24 layers, for which
the device waits, and which make the launch of a graph eight times as long. Without one it takes the
same kernels with a fixed order of tiles. Figures: benches/results/gpu_products.json.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import NamedTuple

import torch

from rose.kernels.cublas import Cublas, CublasError, CublasLt, Product, open_cublas, open_cublas_lt

logger = logging.getLogger(__name__)

# Few rows may want a sum split over many programs, which needs a workspace.
_MOST_ROWS_OF_TORCH = 1024
# Bytes; what the libraries take for granted of addresses unless they are told otherwise.
_ALIGNMENT = 256
_DTYPES = (torch.float16, torch.bfloat16)


class _Libraries(NamedTuple):
    plain: Cublas
    with_bias: CublasLt


def multiply(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor | None:
    """x weightᵀ + bias, [rows, width]; None where that is left to torch."""
    if x.shape[0] <= _MOST_ROWS_OF_TORCH or not _suits(x, weight):
        return None
    if bias is not None and not _is_plain(bias, x.dtype):
        return None
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    return out if _run(x, weight, out, bias, adds=False) else None


def add_product(residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> bool:
    """residual [rows, width] += x weightᵀ; False, and nothing done, where that is left to torch."""
    if x.shape[0] <= _MOST_ROWS_OF_TORCH or not _suits(x, weight):
        return False
    return _is_plain(residual, x.dtype) and _run(x, weight, residual, None, adds=True)


def _suits(x: torch.Tensor, weight: torch.Tensor) -> bool:
    if not x.is_cuda or x.dtype not in _DTYPES:
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
    libraries = _of_device(device)
    if libraries is None:
        return False
    (rows, depth), width = x.shape, weight.shape[0]
    product = Product(x.dtype, rows, width, depth, adds)
    addresses = (x.data_ptr(), weight.data_ptr(), out.data_ptr())
    stream = torch._C._cuda_getCurrentRawStream(device)
    try:
        if bias is None:
            return libraries.plain.run(product, *addresses, stream)
        return libraries.with_bias.run(product, *addresses, bias.data_ptr(), stream)
    except CublasError as error:
        # torch knows what to say of a broken device.
        logger.warning("matrix products are torch's from now on: %s", error)
        libraries.plain.works = libraries.with_bias.works = False
        return False


@cache
def _of_device(device: int) -> _Libraries | None:
    """Handles for a device; None where the libraries are not there."""
    version = torch.version.cuda
    if version is None:
        return None
    major = version.split(".")[0]
    try:
        with torch.cuda.device(device):
            return _Libraries(Cublas(open_cublas(major)), CublasLt(open_cublas_lt(major)))
    except (OSError, AttributeError, CublasError) as error:
        logger.info("matrix products are torch's: %s", error)
        return None
