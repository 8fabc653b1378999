"""When a large linear layer gets the kernel whose epilogue overlaps, and what if it does not compile."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.errors import TritonError

from rose.kernels import overlapped_linear
from rose.kernels.overlapped_linear import (
    overlapped_gelu,
    overlapped_rotation,
    overlaps,
    rows_of_whole_waves,
)

DEVICE = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _device_of_132_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlapped_linear, "_num_multiprocessors", lambda device: 132)
    monkeypatch.setattr(overlapped_linear, "_is_hopper", lambda device: True)
    monkeypatch.setattr(overlapped_linear, "_state", overlapped_linear._State())


def fake(rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Any:
    """What is asked of a tensor on a device."""
    return SimpleNamespace(
        shape=(rows, columns), is_cuda=True, dtype=dtype, device=DEVICE, data_ptr=lambda: 0
    )


@pytest.mark.parametrize(
    ("rows", "width", "whole"),
    # 99 rows of 16 tiles are 12 waves of 132; 33 rows of 4 tiles are one.
    [(12800, 4096, 12672), (12672, 4096, 12672), (25600, 4096, 25344), (4223, 1024, 4224), (1, 4096, 0)],
)  # fmt: skip
def test_whole_waves(rows: int, width: int, whole: int) -> None:
    assert rows_of_whole_waves(rows, width, DEVICE) == whole


@pytest.mark.parametrize(
    ("rows", "busy"),
    [(1, False), (900, False), (1024, False), (2048, True), (2112, False), (2560, False), (2688, False),
     (2689, True), (4096, True), (6145, True), (12800, True), (100_000, True)],
)  # fmt: skip
def test_only_where_the_last_wave_is_busy(rows: int, busy: bool) -> None:
    assert overlaps(fake(rows, 1024), fake(4096, 1024)) is busy


def test_only_shapes_that_it_has_tiles_for() -> None:
    assert not overlaps(fake(8192, 1024, torch.float32), fake(4096, 1024, torch.float32))
    assert not overlaps(fake(8192, 1024), fake(4097, 1024))
    assert not overlaps(fake(8192, 768), fake(3072, 768)), "too short a sum to hide an epilogue"
    assert not overlaps(fake(8192, 1056), fake(4096, 1056))
    assert not overlaps(torch.zeros(8, 1024), torch.zeros(4096, 1024)), "not on a device"


@pytest.mark.parametrize("kind", [TritonError, RuntimeError, ImportError, AssertionError, KeyError])
def test_what_does_not_compile_is_given_up_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    def launch(*arguments: object, **options: object) -> None:
        raise kind("async_load has moved")

    monkeypatch.setattr(overlapped_linear, "launch", launch)
    monkeypatch.setattr(overlapped_linear, "_descriptor", lambda x, block: None)
    x, weight = fake(8192, 1024), fake(4096, 1024)
    assert overlaps(x, weight)
    with caplog.at_level(logging.WARNING):
        assert not overlapped_gelu(x, weight, weight, x, tanh=False)
    (record,) = caplog.records
    assert record.getMessage().startswith("epilogues of large GEMMs run apart from them: ")
    assert "async_load has moved" in record.getMessage()
    assert not overlaps(x, weight)
    assert not overlapped_gelu(x, weight, weight, x, tanh=False)
    assert len(caplog.records) == 1


def test_a_failing_device_is_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*arguments: object, **options: object) -> None:
        raise RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")

    monkeypatch.setattr(overlapped_linear, "launch", launch)
    monkeypatch.setattr(overlapped_linear, "_descriptor", lambda x, block: None)
    x, weight = fake(8192, 1024), fake(4096, 1024)
    with pytest.raises(RuntimeError, match="illegal memory"):
        overlapped_gelu(x, weight, weight, x, tanh=False)
    assert overlaps(x, weight)


def test_on_cpu_heads_are_not_rotated_here() -> None:
    from rose.attention.base import AttentionShape
    from rose.kernels.rope import HeadRotation, RopeTable

    shape = AttentionShape(2, 2, 128, 0.088)
    rotation = HeadRotation(RopeTable.make(4, 128, 1e4, torch.device("cpu")))
    x, weight = torch.zeros(4, 1024), torch.zeros(768, 1024)
    positions = torch.zeros(4, dtype=torch.int32)
    assert overlapped_rotation(x, weight, positions, shape, rotation) is None
