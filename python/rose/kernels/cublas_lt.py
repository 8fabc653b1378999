"""The few functions of cuBLASLt that products of many rows need, by way of ctypes.

A kernel is looked up once for each shape, not at each call.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

logger = logging.getLogger(__name__)

# Steps that are not captured are not padded either: of their shapes there is no end.
_MOST_PLANS = 1024

# From cublasLt.h, cublas_api.h and library_types.h.
_COMPUTE_32F = 68
_REAL_32F = 0
DTYPES = {torch.float16: 2, torch.bfloat16: 14}
"""The library's number of each dtype that products are made of."""
_TRANSPOSED = 1
_DESC_TRANSPOSE_A, _DESC_EPILOGUE, _DESC_BIAS_POINTER = 3, 7, 8
_EPILOGUE_BIAS = 4
_PREFERENCE_MAX_WORKSPACE_BYTES = 1
_LAUNCH = "cublasLtMatmul"
# Invalid value, not supported: nothing was launched, and another shape may be.
_REFUSALS = (7, 15)


class _Heuristic(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_POINTER, _OUT = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
_FUNCTIONS: dict[str, list[Any]] = {
    "cublasLtCreate": [_OUT],
    "cublasLtMatmulDescCreate": [_OUT, ctypes.c_int, ctypes.c_int],
    "cublasLtMatmulDescDestroy": [_POINTER],
    "cublasLtMatmulDescSetAttribute": [_POINTER, ctypes.c_int, _POINTER, ctypes.c_size_t],
    "cublasLtMatrixLayoutCreate": [
        _OUT,
        ctypes.c_int,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_int64,
    ],
    "cublasLtMatrixLayoutDestroy": [_POINTER],
    "cublasLtMatmulPreferenceCreate": [_OUT],
    "cublasLtMatmulPreferenceDestroy": [_POINTER],
    "cublasLtMatmulPreferenceSetAttribute": [_POINTER, ctypes.c_int, _POINTER, ctypes.c_size_t],
    "cublasLtMatmulAlgoGetHeuristic": [
        *[_POINTER] * 7,
        ctypes.c_int,
        ctypes.POINTER(_Heuristic),
        ctypes.POINTER(ctypes.c_int),
    ],
    "cublasLtMatmul": [*[_POINTER] * 14, ctypes.c_size_t, _POINTER],
}
_ONE, _ZERO = ctypes.c_float(1.0), ctypes.c_float(0.0)


class CublasLtError(RuntimeError):
    """A function of the library failed."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function}: status {status}")
        self.status = status
        self.launching = function == _LAUNCH
        """Whether something may have been launched."""


class Product(NamedTuple):
    """What a kernel is chosen by: out [rows, width] = x [rows, depth] weight [width, depth]ᵀ."""

    dtype: torch.dtype
    rows: int
    width: int
    depth: int
    has_bias: bool
    """Adds one row to all."""
    adds: bool
    """Adds to what is in `out`."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Plan:
    """Handles of a product's descriptions, and the kernel."""

    operation: int
    weight: int
    x: int
    out: int
    kernel: _Heuristic


def open_library(name: str) -> Any:  # noqa: ANN401 - a library, or what stands in for one
    """The library, which torch has loaded.

    Raises:
        OSError: there is none.
        AttributeError: it lacks a function.
    """
    library = ctypes.CDLL(name)
    for function_name, arguments in _FUNCTIONS.items():
        function = getattr(library, function_name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return library


class CublasLt:
    """Products on one device, from any thread. Addresses, handles and streams are integers."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401
        """A handle for the current device.

        Raises:
            CublasLtError: the library failed.
        """
        self._library = library
        self._lock = threading.Lock()
        self._plans: dict[Product, _Plan | None] = {}
        self._works = True
        self._handle = self._create("cublasLtCreate")

    def run(self, product: Product, x: int, weight: int, out: int, bias: int, stream: int) -> bool:
        """Launches a product; False, and nothing done, without a kernel for it, or after `give_up`.

        Args:
            product: shapes and dtype of what the addresses are of, all row-major without gaps.
            x: address of [rows, depth].
            weight: address of [width, depth].
            out: address of [rows, width].
            bias: address of [width]; read if `product.has_bias`.
            stream: a `cudaStream_t`.

        Raises:
            CublasLtError: the library failed.
        """
        # A bias is part of the description, which all layers of a shape share.
        with self._lock:
            if not self._works:
                return False
            plan = self._plan(product, bias)
            if plan is None:
                return False
            if product.has_bias:
                self._set_bias(plan.operation, bias)
            beta = _ONE if product.adds else _ZERO
            try:
                self._call(
                    _LAUNCH, self._handle, plan.operation, ctypes.addressof(_ONE),
                    weight, plan.weight, x, plan.x, ctypes.addressof(beta), out, plan.out, out, plan.out,
                    ctypes.addressof(plan.kernel), None, 0, stream,
                )  # fmt: skip
            except CublasLtError as error:
                if error.status not in _REFUSALS:
                    raise
                self._plans[product] = None
                return False
        return True

    def give_up(self, error: CublasLtError) -> None:
        """Leaves all products to torch from now on, which knows what to say of a broken device."""
        if self._works:
            self._works = False
            logger.warning("matrix products are torch's from now on: %s", error)

    def _plan(self, product: Product, bias: int) -> _Plan | None:
        if product not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[product] = self._make_plan(product, bias)
        return self._plans[product]

    def _make_plan(self, product: Product, bias: int) -> _Plan | None:
        """None where the library has no kernel.

        The library's matrices are stored by columns: what it multiplies is the transposed product,
        outᵀ [width, rows] = weight xᵀ.
        """
        operation = self._create("cublasLtMatmulDescCreate", _COMPUTE_32F, _REAL_32F)
        self._set("MatmulDesc", operation, _DESC_TRANSPOSE_A, ctypes.c_int32(_TRANSPOSED))
        if product.has_bias:
            self._set("MatmulDesc", operation, _DESC_EPILOGUE, ctypes.c_uint32(_EPILOGUE_BIAS))
            self._set_bias(operation, bias)
        real, rows = DTYPES[product.dtype], product.rows
        width, depth = product.width, product.depth
        layouts = [
            self._create("cublasLtMatrixLayoutCreate", real, *shape)
            for shape in ((depth, width, depth), (depth, rows, depth), (width, rows, width))
        ]
        kernel = self._choose_kernel(operation, layouts)
        if kernel is None:
            self._destroy(operation, layouts)
            return None
        plan = _Plan(operation, layouts[0], layouts[1], layouts[2], kernel)
        weakref.finalize(plan, self._destroy, operation, layouts).atexit = False
        return plan

    def _choose_kernel(self, operation: int, layouts: list[int]) -> _Heuristic | None:
        weight, x, out = layouts
        preference = self._create("cublasLtMatmulPreferenceCreate")
        found, kernel = ctypes.c_int(0), _Heuristic()
        try:
            limit = ctypes.c_size_t(0)
            self._set("MatmulPreference", preference, _PREFERENCE_MAX_WORKSPACE_BYTES, limit)
            status = self._library.cublasLtMatmulAlgoGetHeuristic(
                self._handle, operation, weight, x, out, out, preference, 1,
                ctypes.byref(kernel), ctypes.byref(found),
            )  # fmt: skip
        finally:
            self._library.cublasLtMatmulPreferenceDestroy(preference)
        return kernel if status == 0 and found.value > 0 and kernel.status == 0 else None

    def _set_bias(self, operation: int, bias: int) -> None:
        self._set("MatmulDesc", operation, _DESC_BIAS_POINTER, ctypes.c_void_p(bias))

    def _destroy(self, operation: int, layouts: list[int]) -> None:
        self._library.cublasLtMatmulDescDestroy(operation)
        for layout in layouts:
            self._library.cublasLtMatrixLayoutDestroy(layout)

    def _create(self, function: str, *arguments: int) -> int:
        handle = ctypes.c_void_p()
        self._call(function, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def _set(self, kind: str, handle: int, attribute: int, value: Any) -> None:  # noqa: ANN401
        size = ctypes.sizeof(value)
        self._call(f"cublasLt{kind}SetAttribute", handle, attribute, ctypes.addressof(value), size)

    def _call(self, function: str, *arguments: Any) -> None:  # noqa: ANN401
        status = getattr(self._library, function)(*arguments)
        if status:
            raise CublasLtError(function, status)
