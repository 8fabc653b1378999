"""The rows of a step before they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch


class OutputHandle(NamedTuple):
    """What native code needs to read the rows; valid while the `LazyTensor` lives."""

    data_ptr: int
    """Address of row-major float32 in host memory."""
    num_rows: int
    width: int
    event_handle: int
    """CUDA event after which the rows hold, as an integer; 0 = they hold already."""
    predicted_seconds: float | None
    """Predicted time from the start of the step to the event."""


class LazyTensor:
    """[num_rows, width] float32 in host memory that holds once the step has run.

    This class is ready at birth, as every step on CPU is.
    """

    __slots__ = ("__weakref__", "_rows")

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = rows.to(torch.float32).contiguous()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width, known before the rows hold."""
        num_rows, width = self._rows.shape
        return num_rows, width

    def is_ready(self) -> bool:
        """Whether the rows hold, without waiting."""
        return True

    def wait(self) -> None:
        """Blocks until the rows hold; other Python threads run meanwhile."""

    def numpy(self) -> npt.NDArray[np.float32]:
        """Waits and returns the rows, [num_rows, width]; a view that keeps the memory alive."""
        self.wait()
        rows: npt.NDArray[np.float32] = self._rows.numpy()
        return rows

    def __await__(self) -> Generator[object, None, npt.NDArray[np.float32]]:
        if not self.is_ready():
            yield from asyncio.get_running_loop().run_in_executor(None, self.wait)
        return self.numpy()

    def handle(self) -> OutputHandle:
        """For native code that waits for the event by itself."""
        num_rows, width = self._rows.shape
        return OutputHandle(self._rows.data_ptr(), num_rows, width, 0, None)
