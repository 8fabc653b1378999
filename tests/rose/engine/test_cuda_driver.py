"""The driver's functions in order, its errors by name, and a context for every thread."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pytest

from rose.engine.cuda_driver import CudaDriver
from rose.errors import DeviceError

STREAM, CONTEXT = 11, 22


@dataclass
class FakeLibrary:
    """Notes calls; `fails` is what a function returns instead of 0."""

    context: int | None = CONTEXT
    fails: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def cuCtxGetCurrent(self, out: Any) -> int:  # noqa: N802 - the driver's own names
        out._obj.value = self.context
        return self.fails.get("cuCtxGetCurrent", 0)

    def cuGetErrorName(self, code: int, out: Any) -> int:  # noqa: N802
        if code != 719:
            return 1
        out._obj.value = b"CUDA_ERROR_LAUNCH_FAILED"
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: int) -> int:
            self.calls.append((name, *arguments))
            return self.fails.get(name, 0)

        return call


def replay(library: FakeLibrary) -> None:
    CudaDriver(library, STREAM).replay(33, (1, 2, 3), (4, 5, 6), 77, 88)


def test_everything_is_enqueued_in_order() -> None:
    library = FakeLibrary()
    replay(library)
    assert library.calls == [
        ("cuCtxSetCurrent", CONTEXT),
        ("cuEventRecord", 77, STREAM),
        ("cuMemcpyHtoDAsync_v2", 1, 2, 3, STREAM),
        ("cuGraphLaunch", 33, STREAM),
        ("cuMemcpyDtoHAsync_v2", 4, 5, 6, STREAM),
        ("cuEventRecord", 88, STREAM),
    ]


@pytest.mark.parametrize(
    ("function", "code", "error", "message"),
    [
        ("cuGraphLaunch", 719, DeviceError, "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED"),
        ("cuMemcpyHtoDAsync_v2", 4242, DeviceError, "cuMemcpyHtoDAsync: error 4242"),
        ("cuGraphLaunch", 2, RuntimeError, "cuGraphLaunch: error 2"),
    ],
)
def test_errors_name_the_function(
    function: str, code: int, error: type[Exception], message: str
) -> None:
    library = FakeLibrary(fails={function: code})
    with pytest.raises(error) as caught:
        replay(library)
    assert type(caught.value) is error
    assert str(caught.value) == message
    assert library.calls[-1][0] == function, "nothing is enqueued behind a failure"


def test_a_thread_without_context_is_said() -> None:
    with pytest.raises(DeviceError, match="no context"):
        CudaDriver(FakeLibrary(context=None), STREAM)


def test_handles_of_64_bits_fit() -> None:
    """What `open_driver` declares keeps addresses whole."""
    from rose.engine.cuda_driver import _FUNCTIONS

    for arguments in _FUNCTIONS.values():
        for kind in arguments:
            assert kind is ctypes.c_int or ctypes.sizeof(kind) == 8
