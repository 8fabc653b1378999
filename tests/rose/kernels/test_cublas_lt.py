"""What is asked of cuBLASLt, and what happens when it fails; its products are tested on a GPU."""

from __future__ import annotations

import ctypes
import gc
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rose.kernels import cublas_lt, products
from rose.kernels.cublas_lt import CublasLt, CublasLtError, Product
from rose.kernels.products import add_product, multiply

PRODUCT = Product(torch.bfloat16, rows=2048, width=512, depth=256, has_bias=True, adds=False)
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
            if name.endswith("Create"):
                self.handles += 1
                arguments[0]._obj.value = self.handles
                arguments = (self.handles, *arguments[1:])
            elif name.endswith("SetAttribute"):
                handle, attribute, address, size = arguments
                value = int.from_bytes(ctypes.string_at(address, size), "little")
                arguments = (handle, attribute, value)
            elif name == "cublasLtMatmulAlgoGetHeuristic":
                arguments[-1]._obj.value = self.kernels
            elif name == "cublasLtMatmul":
                scale, beta = (ctypes.c_float.from_address(arguments[i]).value for i in (2, 7))
                arguments = (*arguments[:2], scale, *arguments[3:7], beta, *arguments[8:])
            self.calls.append((name, *arguments))
            return self.fails.get(name, 0)

        return call

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, *arguments in self.calls if called == f"cublasLt{name}"]  # type: ignore[misc]


def run(lt: CublasLt, product: Product = PRODUCT, bias: int = BIAS) -> bool:
    return lt.run(product, X, WEIGHT, OUT, bias, STREAM)


def test_the_transposed_product_is_asked_for() -> None:
    library = FakeLibrary()
    assert run(CublasLt(library))
    handle, operation, weight, x, out = 100, 101, 102, 103, 104
    bfloat16 = 14
    assert library.of("MatrixLayoutCreate") == [
        [weight, bfloat16, 256, 512, 256],
        [x, bfloat16, 256, 2048, 256],
        [out, bfloat16, 512, 2048, 512],
    ]
    # Transposed weight, a bias behind, and where it is; then without a workspace.
    assert library.of("MatmulDescSetAttribute")[:3] == [
        [operation, 3, 1],
        [operation, 7, 4],
        [operation, 8, BIAS],
    ]
    assert library.of("MatmulPreferenceSetAttribute") == [[105, 1, 0]]
    [call] = library.of("Matmul")
    assert call[:12] == [handle, operation, 1.0, WEIGHT, weight, X, x, 0.0, OUT, out, OUT, out]
    assert call[13:] == [None, 0, STREAM]


def test_adding_keeps_what_is_there() -> None:
    library = FakeLibrary()
    assert run(CublasLt(library), PRODUCT._replace(has_bias=False, adds=True), bias=0)
    assert library.of("Matmul")[0][7] == 1.0
    assert [attribute for _, attribute, _ in library.of("MatmulDescSetAttribute")] == [3]


def test_a_kernel_is_looked_up_once_for_a_shape_and_a_bias_set_each_time() -> None:
    library = FakeLibrary()
    lt = CublasLt(library)
    for bias in (1, 2, 3):
        assert run(lt, bias=bias)
    assert run(lt, PRODUCT._replace(rows=4096))
    assert len(library.of("MatmulAlgoGetHeuristic")) == 2
    biases = [
        value for _, attribute, value in library.of("MatmulDescSetAttribute") if attribute == 8
    ]
    assert [bias for bias in biases if bias != BIAS] == [1, 1, 2, 3]


def test_no_kernel_is_remembered_and_nothing_leaks() -> None:
    library = FakeLibrary(kernels=0)
    lt = CublasLt(library)
    assert not run(lt)
    assert not run(lt)
    assert len(library.of("MatmulAlgoGetHeuristic")) == 1
    assert library.of("Matmul") == []
    assert library.of("MatmulDescDestroy") == [[101]]
    assert library.of("MatrixLayoutDestroy") == [[102], [103], [104]]
    assert library.of("MatmulPreferenceDestroy") == [[105]]


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas_lt, "_MOST_PLANS", 2)
    library = FakeLibrary()
    lt = CublasLt(library)
    for rows in (2048, 2049, 2050, 2051):
        assert run(lt, PRODUCT._replace(rows=rows))
    gc.collect()
    assert len(library.of("MatmulDescDestroy")) == 2
    assert len(library.of("MatrixLayoutDestroy")) == 6


@pytest.mark.parametrize("function", ["cublasLtMatmul", "cublasLtMatrixLayoutCreate"])
def test_after_a_failure_products_are_torchs(function: str) -> None:
    library = FakeLibrary(fails={function: 13})
    lt = CublasLt(library)
    with pytest.raises(CublasLtError, match=f"{function}: status 13") as caught:
        run(lt)
    lt.give_up(caught.value)
    assert not run(lt)


@pytest.mark.parametrize("status", [7, 15])
def test_a_refused_product_is_torchs_and_others_go_on(status: int) -> None:
    library = FakeLibrary(fails={"cublasLtMatmul": status})
    lt = CublasLt(library)
    assert not run(lt)
    library.fails.clear()
    assert not run(lt), "remembered"
    assert run(lt, PRODUCT._replace(rows=4096))


class OnDevice(torch.Tensor):
    """A tensor that says it is on a device."""

    is_cuda = True  # type: ignore[assignment]

    def get_device(self) -> int:
        return 0


def on_device(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16).as_subclass(OnDevice)


@pytest.mark.parametrize(
    ("function", "raises"), [("cublasLtMatmul", True), ("cublasLtMatmulDescCreate", False)]
)
def test_what_may_have_been_added_is_not_added_again(
    monkeypatch: pytest.MonkeyPatch, function: str, raises: bool
) -> None:
    lt = CublasLt(FakeLibrary(fails={function: 14}))
    monkeypatch.setattr(products, "_of_device", lambda _: lt)
    monkeypatch.setattr(products, "_ALIGNMENT", 1)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: STREAM, raising=False)
    x, weight, residual = on_device(2048, 256), on_device(512, 256), on_device(2048, 512)
    with pytest.raises(CublasLtError) if raises else nullcontext():
        assert not add_product(residual, x, weight)
    assert not add_product(residual, x, weight), "torch's from then on"


def test_a_new_product_that_fails_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    lt = CublasLt(FakeLibrary(fails={"cublasLtMatmul": 14}))
    monkeypatch.setattr(products, "_of_device", lambda _: lt)
    monkeypatch.setattr(products, "_ALIGNMENT", 1)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: STREAM, raising=False)
    assert multiply(on_device(2048, 256), on_device(512, 256), None) is None


def test_shapes_that_do_not_fit_are_torchs_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_of_device", lambda _: pytest.fail("it was asked"))
    monkeypatch.setattr(products, "_ALIGNMENT", 1)
    x, weight = on_device(2048, 256), on_device(512, 256)
    assert multiply(x, on_device(512, 128), None) is None
    assert multiply(x, weight.to("meta"), None) is None, "two devices"
    assert multiply(x, weight, on_device(256)) is None
    assert multiply(on_device(2048, 2, 256), weight, None) is None
    assert not add_product(on_device(8, 8), x, weight)
    assert not add_product(on_device(2048, 256), x, weight)


def test_no_handle_is_an_error() -> None:
    with pytest.raises(CublasLtError, match="cublasLtCreate: status 3"):
        CublasLt(FakeLibrary(fails={"cublasLtCreate": 3}))


def test_on_cpu_products_are_torchs() -> None:
    x = torch.randn(2048, 256).bfloat16()
    assert multiply(x, torch.randn(512, 256).bfloat16(), None) is None
