"""What is asked of cuBLAS and cuBLASLt, and what happens when they fail; a GPU tests products."""

from __future__ import annotations

import ctypes
import gc
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rose.kernels import cublas, products
from rose.kernels.cublas import Cublas, CublasError, CublasLt, Product
from rose.kernels.products import multiply

PRODUCT = Product(torch.bfloat16, rows=2048, width=512, depth=256, adds=False)
BFLOAT16, FLOAT16, COMPUTE_32F = 14, 2, 68
X, WEIGHT, OUT, BIAS, STREAM = 11, 22, 33, 44, 55


@dataclass
class FakeLibrary:
    """Hands out handles from 100 on and notes calls; `fails` is what a function returns."""

    kernels: int = 1
    fails: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    handles: int = 99

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name.endswith(("Create", "Create_v2")):
                self.handles += 1
                arguments[0]._obj.value = self.handles
                arguments = (self.handles, *arguments[1:])
            elif name.endswith("SetAttribute"):
                handle, attribute, address, size = arguments
                value = int.from_bytes(ctypes.string_at(address, size), "little")
                arguments = (handle, attribute, value)
            elif name == "cublasLtMatmulAlgoGetHeuristic":
                arguments[-1]._obj.value = self.kernels
            elif name in ("cublasLtMatmul", "cublasGemmEx"):
                # Alpha and beta are given by address.
                for at in (2, 7) if name == "cublasLtMatmul" else (6, 13):
                    value = ctypes.c_float.from_address(arguments[at]).value
                    arguments = (*arguments[:at], value, *arguments[at + 1 :])
            self.calls.append((name, *arguments))
            return self.fails.get(name, 0)

        return call

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, *arguments in self.calls if called == f"cublas{name}"]  # type: ignore[misc]


def run(lt: CublasLt, product: Product = PRODUCT, bias: int = BIAS) -> bool:
    return lt.run(product, X, WEIGHT, OUT, bias, STREAM)


def test_a_product_without_bias_is_cublas_and_its_handle_has_no_workspace() -> None:
    library = FakeLibrary()
    plain = Cublas(library)
    for stream, product in (
        (STREAM, PRODUCT),
        (STREAM, PRODUCT._replace(adds=True, dtype=torch.float16)),
        (STREAM + 1, PRODUCT),
    ):
        assert plain.run(product, X, WEIGHT, OUT, stream)
    handle = 100
    expected = [
        ("cublasCreate_v2", handle),
        ("cublasSetStream_v2", handle, STREAM),
        ("cublasSetWorkspace_v2", handle, None, 0),
        gemm(handle, BFLOAT16, beta=0.0),
        gemm(handle, FLOAT16, beta=1.0),
        ("cublasSetStream_v2", handle, STREAM + 1),
        ("cublasSetWorkspace_v2", handle, None, 0),
        gemm(handle, BFLOAT16, beta=0.0),
    ]
    assert library.calls == expected


def gemm(handle: int, real: int, beta: float) -> tuple[Any, ...]:
    """outᵀ [512, 2048] = weight xᵀ, by columns."""
    weight, x, out = (WEIGHT, real, 256), (X, real, 256), (OUT, real, 512)
    sizes = (1, 0, 512, 2048, 256)
    return ("cublasGemmEx", handle, *sizes, 1.0, *weight, *x, beta, *out, COMPUTE_32F, -1)


def test_a_failed_product_is_an_error_that_names_the_function() -> None:
    plain = Cublas(FakeLibrary(fails={"cublasGemmEx": 13}))
    with pytest.raises(CublasError, match="cublasGemmEx: status 13"):
        plain.run(PRODUCT, X, WEIGHT, OUT, STREAM)
    plain.works = False
    assert not plain.run(PRODUCT, X, WEIGHT, OUT, STREAM)


def test_the_transposed_product_is_asked_for() -> None:
    library = FakeLibrary()
    assert run(CublasLt(library))
    handle, operation, weight, x, out = 100, 101, 102, 103, 104
    assert library.of("LtMatrixLayoutCreate") == [
        [weight, BFLOAT16, 256, 512, 256],
        [x, BFLOAT16, 256, 2048, 256],
        [out, BFLOAT16, 512, 2048, 512],
    ]
    # Transposed weight, a bias behind, and where it is; then without a workspace.
    assert library.of("LtMatmulDescSetAttribute")[:3] == [
        [operation, 3, 1],
        [operation, 7, 4],
        [operation, 8, BIAS],
    ]
    assert library.of("LtMatmulPreferenceSetAttribute") == [[105, 1, 0]]
    [call] = library.of("LtMatmul")
    assert call[:12] == [handle, operation, 1.0, WEIGHT, weight, X, x, 0.0, OUT, out, OUT, out]
    assert call[13:] == [None, 0, STREAM]


def test_adding_keeps_what_is_there() -> None:
    library = FakeLibrary()
    assert run(CublasLt(library), PRODUCT._replace(adds=True))
    assert library.of("LtMatmul")[0][7] == 1.0


def test_a_kernel_is_looked_up_once_for_a_shape_and_a_bias_set_each_time() -> None:
    library = FakeLibrary()
    lt = CublasLt(library)
    for bias in (1, 2, 3):
        assert run(lt, bias=bias)
    assert run(lt, PRODUCT._replace(rows=4096))
    assert len(library.of("LtMatmulAlgoGetHeuristic")) == 2
    biases = [
        value for _, attribute, value in library.of("LtMatmulDescSetAttribute") if attribute == 8
    ]
    assert [bias for bias in biases if bias != BIAS] == [1, 1, 2, 3]


def test_no_kernel_is_remembered_and_nothing_leaks() -> None:
    library = FakeLibrary(kernels=0)
    lt = CublasLt(library)
    assert not run(lt)
    assert not run(lt)
    assert len(library.of("LtMatmulAlgoGetHeuristic")) == 1
    assert library.of("LtMatmul") == []
    assert library.of("LtMatmulDescDestroy") == [[101]]
    assert library.of("LtMatrixLayoutDestroy") == [[102], [103], [104]]
    assert library.of("LtMatmulPreferenceDestroy") == [[105]]


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "_MOST_PLANS", 2)
    library = FakeLibrary()
    lt = CublasLt(library)
    for rows in (2048, 2049, 2050, 2051):
        assert run(lt, PRODUCT._replace(rows=rows))
    gc.collect()
    assert len(library.of("LtMatmulDescDestroy")) == 2
    assert len(library.of("LtMatrixLayoutDestroy")) == 6


@pytest.mark.parametrize("function", ["cublasLtMatmul", "cublasLtMatrixLayoutCreate"])
def test_after_a_failure_products_are_torchs(function: str) -> None:
    library = FakeLibrary(fails={function: 13})
    lt = CublasLt(library)
    with pytest.raises(CublasError, match=f"{function}: status 13"):
        run(lt)
    lt.works = False
    assert not run(lt)


def test_no_handle_is_an_error() -> None:
    with pytest.raises(CublasError, match="cublasLtCreate: status 3"):
        CublasLt(FakeLibrary(fails={"cublasLtCreate": 3}))


def test_on_cpu_products_are_torchs() -> None:
    x = torch.randn(2048, 256).bfloat16()
    assert multiply(x, torch.randn(512, 256).bfloat16(), None) is None


def test_where_the_libraries_are_not_there_products_are_torchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "999.0")
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    products._of_device.cache_clear()
    assert products._of_device(0) is None
    monkeypatch.setattr(torch.version, "cuda", None)
    products._of_device.cache_clear()
    assert products._of_device(0) is None
    products._of_device.cache_clear()
