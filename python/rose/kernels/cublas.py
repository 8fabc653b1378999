"""The few functions of cuBLAS and cuBLASLt that products of many rows need, by way of ctypes.

cuBLASLt can add a bias; cuBLAS looks a kernel up in a fifth of the time.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

# Steps that are not captured are not padded either: of their shapes there is no end.
_MOST_PLANS = 1024

# From cublasLt.h, cublas_api.h and library_types.h.
_COMPUTE_32F = 68
_REAL_32F = 0
_REAL_TYPES = {torch.float16: 2, torch.bfloat16: 14}
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1
_TRANSPOSE_A, _EPILOGUE, _BIAS_POINTER = 3, 7, 8
_EPILOGUE_BIAS = 4
_PREFERENCE_MAX_WORKSPACE_BYTES = 1


class _Heuristic(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_POINTER, _OUT, _INT = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int
_MATRIX = [_POINTER, _INT, _INT]
_CUBLAS_FUNCTIONS: dict[str, list[Any]] = {
    "cublasCreate_v2": [_OUT],
    "cublasSetStream_v2": [_POINTER, _POINTER],
    "cublasSetWorkspace_v2": [_POINTER, _POINTER, ctypes.c_size_t],
    "cublasGemmEx": [
        _POINTER,
        *[_INT] * 5,
        _POINTER,
        *_MATRIX,
        *_MATRIX,
        _POINTER,
        *_MATRIX,
        _INT,
        _INT,
    ],
}
_CUBLAS_LT_FUNCTIONS: dict[str, list[Any]] = {
    "cublasLtCreate": [_OUT],
    "cublasLtMatmulDescCreate": [_OUT, _INT, _INT],
    "cublasLtMatmulDescDestroy": [_POINTER],
    "cublasLtMatmulDescSetAttribute": [_POINTER, _INT, _POINTER, ctypes.c_size_t],
    "cublasLtMatrixLayoutCreate": [
        _OUT,
        _INT,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_int64,
    ],
    "cublasLtMatrixLayoutDestroy": [_POINTER],
    "cublasLtMatmulPreferenceCreate": [_OUT],
    "cublasLtMatmulPreferenceDestroy": [_POINTER],
    "cublasLtMatmulPreferenceSetAttribute": [_POINTER, _INT, _POINTER, ctypes.c_size_t],
    "cublasLtMatmulAlgoGetHeuristic": [
        *[_POINTER] * 7,
        _INT,
        ctypes.POINTER(_Heuristic),
        ctypes.POINTER(ctypes.c_int),
    ],
    "cublasLtMatmul": [*[_POINTER] * 14, ctypes.c_size_t, _POINTER],
}
_ONE, _ZERO = ctypes.c_float(1.0), ctypes.c_float(0.0)


class CublasError(RuntimeError):
    """A function of a library failed."""


class Product(NamedTuple):
    """What a kernel is chosen by: out [rows, width] = x [rows, depth] weight [width, depth]ᵀ."""

    dtype: torch.dtype
    rows: int
    width: int
    depth: int
    adds: bool
    """Adds to what is in `out`."""


def open_cublas(major: str) -> Any:  # noqa: ANN401 - a library, or what stands in for one
    """cuBLAS of a major version, which torch has loaded.

    Raises:
        OSError: there is none.
        AttributeError: it lacks a function.
    """
    return _open(f"libcublas.so.{major}", _CUBLAS_FUNCTIONS)


def open_cublas_lt(major: str) -> Any:  # noqa: ANN401
    """cuBLASLt, as `open_cublas`."""
    return _open(f"libcublasLt.so.{major}", _CUBLAS_LT_FUNCTIONS)


def _open(name: str, functions: Mapping[str, list[Any]]) -> Any:  # noqa: ANN401
    library = ctypes.CDLL(name)
    for function_name, arguments in functions.items():
        function = getattr(library, function_name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return library


class _Library:
    """Functions that return a status; one call at a time."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401
        self._library = library
        self._lock = threading.Lock()
        self.works = True

    def _create(self, function: str, *arguments: int) -> int:
        handle = ctypes.c_void_p()
        self._call(function, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def _call(self, function: str, *arguments: Any) -> None:  # noqa: ANN401
        status = getattr(self._library, function)(*arguments)
        if status:
            raise CublasError(f"{function}: status {status}")


class Cublas(_Library):
    """Products on one device, from any thread. Addresses and streams are integers.

    Matrices of the library are stored by columns: what it multiplies is the transposed product,
    outᵀ [width, rows] = weight xᵀ.
    """

    def __init__(self, library: Any) -> None:  # noqa: ANN401
        """A handle for the current device.

        Raises:
            CublasError: the library failed.
        """
        super().__init__(library)
        self._handle = self._create("cublasCreate_v2")
        self._stream: int | None = None

    def run(self, product: Product, x: int, weight: int, out: int, stream: int) -> bool:
        """Launches a product; False, and nothing done, after a failure.

        Raises:
            CublasError: the library failed.
        """
        dtype, rows, width, depth, adds = product
        real, beta = _REAL_TYPES[dtype], _ONE if adds else _ZERO
        # The stream is the handle's.
        with self._lock:
            if not self.works:
                return False
            if stream != self._stream:
                self._call("cublasSetStream_v2", self._handle, stream)
                # That has given it a workspace.
                self._call("cublasSetWorkspace_v2", self._handle, None, 0)
                self._stream = stream
            self._call(
                "cublasGemmEx", self._handle, _TRANSPOSED, _NOT_TRANSPOSED, width, rows, depth,
                ctypes.addressof(_ONE), weight, real, depth, x, real, depth,
                ctypes.addressof(beta), out, real, width, _COMPUTE_32F, _DEFAULT_ALGORITHM,
            )  # fmt: skip
        return True


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Plan:
    """Handles of a product's descriptions, and the kernel."""

    operation: int
    weight: int
    x: int
    out: int
    kernel: _Heuristic


class CublasLt(_Library):
    """Products with a bias, as `Cublas`. A kernel is looked up once for each shape."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401
        """A handle for the current device.

        Raises:
            CublasError: the library failed.
        """
        super().__init__(library)
        self._plans: dict[Product, _Plan | None] = {}
        self._handle = self._create("cublasLtCreate")

    def run(self, product: Product, x: int, weight: int, out: int, bias: int, stream: int) -> bool:
        """Launches a product; False, and nothing done, after a failure or where there is no kernel.

        Raises:
            CublasError: the library failed.
        """
        # A bias is part of the description, which all layers of a shape share.
        with self._lock:
            if not self.works:
                return False
            plan = self._plan(product, bias)
            if plan is None:
                return False
            self._set_bias(plan.operation, bias)
            beta = _ONE if product.adds else _ZERO
            self._call(
                "cublasLtMatmul",
                self._handle,
                plan.operation,
                ctypes.addressof(_ONE),
                weight,
                plan.weight,
                x,
                plan.x,
                ctypes.addressof(beta),
                out,
                plan.out,
                out,
                plan.out,
                ctypes.addressof(plan.kernel),
                None,
                0,
                stream,
            )
        return True

    def _plan(self, product: Product, bias: int) -> _Plan | None:
        if product not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[product] = self._make_plan(product, bias)
        return self._plans[product]

    def _make_plan(self, product: Product, bias: int) -> _Plan | None:
        """None where the library has no kernel."""
        operation = self._create("cublasLtMatmulDescCreate", _COMPUTE_32F, _REAL_32F)
        self._set("MatmulDesc", operation, _TRANSPOSE_A, ctypes.c_int32(_TRANSPOSED))
        self._set("MatmulDesc", operation, _EPILOGUE, ctypes.c_uint32(_EPILOGUE_BIAS))
        self._set_bias(operation, bias)
        real, rows = _REAL_TYPES[product.dtype], product.rows
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
        self._set("MatmulDesc", operation, _BIAS_POINTER, ctypes.c_void_p(bias))

    def _destroy(self, operation: int, layouts: list[int]) -> None:
        self._library.cublasLtMatmulDescDestroy(operation)
        for layout in layouts:
            self._library.cublasLtMatrixLayoutDestroy(layout)

    def _set(self, kind: str, handle: int, attribute: int, value: Any) -> None:  # noqa: ANN401
        size = ctypes.sizeof(value)
        self._call(f"cublasLt{kind}SetAttribute", handle, attribute, ctypes.addressof(value), size)
