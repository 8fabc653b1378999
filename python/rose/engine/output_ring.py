"""Page-locked buffers for the rows of steps in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from rose.lazy_tensor import LazyTensor, OutputHandle


class DeviceEvent(Protocol):
    """What is used of `torch.cuda.Event`."""

    cuda_event: int

    def record(self, stream: Any) -> None:  # noqa: ANN401 - of its own kind
        """Marks this point of a stream."""

    def query(self) -> bool:
        """Whether the point has been passed."""

    def synchronize(self) -> None:
        """Blocks until it has; other Python threads run meanwhile."""

    def elapsed_time(self, end_event: Any) -> float:  # noqa: ANN401 - of its own kind
        """Milliseconds between two recorded events."""


class OutputSlot:
    """Host memory for the rows of one step, and the events around it."""

    __slots__ = ("address", "buffer", "end", "start", "timed_as")

    def __init__(self, buffer: torch.Tensor, start: DeviceEvent, end: DeviceEvent) -> None:
        self.buffer = buffer
        """Float32, flat, page-locked."""
        self.address: int = buffer.data_ptr()
        self.start = start
        self.end = end
        self.timed_as: object = None
        """What the time between the events is a measurement of; None = nothing yet."""


class OutputRing:
    """Hands out slots in turn, never one whose `LazyTensor` is still held.

    A server holds at most two; whoever holds more makes the ring grow.
    """

    def __init__(self, slots: list[OutputSlot], make_slot: SlotFactory) -> None:
        self._free = deque(slots)
        self._make_slot = make_slot

    def acquire(self, num_values: int) -> OutputSlot:
        """The slot that has been free for the longest time, with room for `num_values`."""
        if self._free:
            slot = self._free.popleft()
            if slot.buffer.shape[0] >= num_values:
                return slot
            if not slot.end.query():
                # A copy may still write to its memory, which must not be given away.
                self._free.append(slot)
        return self._make_slot(num_values)

    def peek(self) -> OutputSlot | None:
        """The slot that `acquire` would hand out next, if there is one."""
        return self._free[0] if self._free else None

    def release(self, slot: OutputSlot) -> None:
        """Takes a slot back. Its copy may still run: later steps are ordered behind it."""
        self._free.append(slot)


class SlotFactory(Protocol):
    """Allocates a slot; page-locking stalls, so the ring's are made at start."""

    def __call__(self, num_values: int) -> OutputSlot:
        """A slot for `num_values` float32."""


class PendingTensor(LazyTensor):
    """Rows that hold once the slot's `end` event has passed. Returns the slot when dropped."""

    __slots__ = ("_num_rows", "_predicted_seconds", "_ring", "_slot", "_width")

    def __init__(
        self,
        ring: OutputRing,
        slot: OutputSlot,
        num_rows: int,
        width: int,
        predicted_seconds: float | None,
    ) -> None:
        self._num_rows = num_rows
        self._width = width
        self._ring = ring
        self._slot = slot
        self._predicted_seconds = predicted_seconds

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width, known before the rows hold."""
        return self._num_rows, self._width

    def is_ready(self) -> bool:
        """Whether the rows hold, without waiting."""
        return self._slot.end.query()

    def wait(self) -> None:
        """Blocks until the rows hold; other Python threads run meanwhile."""
        self._slot.end.synchronize()

    def numpy(self) -> npt.NDArray[np.float32]:
        """Waits and returns a copy of the rows, [num_rows, width]: the slot is used again."""
        self.wait()
        flat = self._slot.buffer[: self._num_rows * self._width]
        rows: npt.NDArray[np.float32] = flat.view(self.shape).numpy().copy()
        return rows

    def __await__(self) -> Generator[object, None, npt.NDArray[np.float32]]:
        return super().__await__()

    def handle(self) -> OutputHandle:
        """For native code that waits for the event by itself."""
        return OutputHandle(
            self._slot.address,
            self._num_rows,
            self._width,
            self._slot.end.cuda_event,
            self._predicted_seconds,
        )

    def __del__(self) -> None:
        self._ring.release(self._slot)


def timing_event() -> DeviceEvent:
    """An event that knows when it was reached."""
    # `blocking` lets the waiter sleep in the driver at last instead of spinning there.
    event: DeviceEvent = torch.cuda.Event(  # type: ignore[no-untyped-call]
        enable_timing=True, blocking=True
    )
    return event
