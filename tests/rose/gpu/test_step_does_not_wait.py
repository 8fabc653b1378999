"""`step_slot` returns while the device is busy, and the rows come in order."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from rose.engine.synthetic_batch import fill_with_equal_lengths

pytestmark = pytest.mark.gpu

BUSY_CYCLES = 400_000_000  # about 0.2 s


def test_step_returns_while_the_device_is_busy(path_bench: Any) -> None:
    runner = path_bench.runner()
    slots = [runner.make_slot(10_000) for _ in range(3)]
    shape = (100, 3, 64, *runner.layout.padded_shape(100, 3))
    for slot in slots:
        fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, 100, 3)
    for _ in range(3):
        expected = runner.step_slot(slots[0], *shape).numpy()
    with torch.cuda.stream(runner.stream):
        torch.cuda._sleep(BUSY_CYCLES)
    started = time.perf_counter()
    pending = [runner.step_slot(slot, *shape) for slot in slots[:2]]
    enqueue_seconds = time.perf_counter() - started
    assert not pending[0].is_ready()
    assert enqueue_seconds < 0.02
    for tensor in pending:
        np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-3)
    assert time.perf_counter() - started > 0.05


def test_predicted_time_follows_measurements(path_bench: Any) -> None:
    runner = path_bench.runner()
    slot = runner.make_slot(10_000)
    fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, 128, 1)
    predicted = []
    for _ in range(12):
        tensor = runner.step_slot(slot, 128, 1, 128, *runner.layout.padded_shape(128, 1))
        tensor.wait()
        predicted.append(tensor.handle().predicted_seconds)
    assert predicted[0] is None
    assert 1e-5 < predicted[-1] < 0.05
