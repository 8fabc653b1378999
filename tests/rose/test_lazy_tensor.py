"""On CPU a LazyTensor is ready at birth, and its handle points at its rows."""

from __future__ import annotations

import asyncio
import ctypes

import torch

from rose.lazy_tensor import LazyTensor


def test_rows_can_be_had_in_every_way() -> None:
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    lazy = LazyTensor(rows)
    assert lazy.is_ready()
    lazy.wait()
    assert lazy.shape == (3, 2)
    assert lazy.numpy().tolist() == rows.tolist()

    async def awaited() -> list[list[float]]:
        return (await lazy).tolist()

    assert asyncio.run(awaited()) == rows.tolist()


def test_handle_reads_what_numpy_reads() -> None:
    # Neither contiguous nor float32: native code still finds rows of float32.
    lazy = LazyTensor(torch.arange(6, dtype=torch.bfloat16).view(2, 3).t())
    handle = lazy.handle()
    assert (handle.num_rows, handle.width) == (3, 2)
    assert handle.event_handle == 0
    assert handle.predicted_seconds is None
    values = (ctypes.c_float * 6).from_address(handle.data_ptr)
    assert list(values) == lazy.numpy().flatten().tolist() == [0, 3, 1, 4, 2, 5]
