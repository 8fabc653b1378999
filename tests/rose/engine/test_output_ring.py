"""Output slots are used in turn and never while somebody holds their rows."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field

import numpy as np
import torch

from rose.engine.output_ring import OutputRing, OutputSlot, PendingTensor


@dataclass
class FakeEvent:
    cuda_event: int = 7
    passed: bool = False
    waits: int = 0

    def record(self) -> None:
        self.passed = False

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        self.waits += 1
        self.passed = True

    def elapsed_time(self, end_event: object) -> float:
        return 1.0


@dataclass
class Factory:
    made: list[OutputSlot] = field(default_factory=list)

    def __call__(self, num_values: int) -> OutputSlot:
        slot = OutputSlot(torch.zeros(num_values), FakeEvent(), FakeEvent())
        self.made.append(slot)
        return slot


def _ring(num_slots: int, num_values: int = 12) -> tuple[OutputRing, list[OutputSlot], Factory]:
    factory = Factory()
    slots = [
        OutputSlot(torch.zeros(num_values), FakeEvent(), FakeEvent()) for _ in range(num_slots)
    ]
    return OutputRing(slots, factory), slots, factory


def test_slots_come_in_turn() -> None:
    ring, slots, factory = _ring(3)
    order = []
    for _ in range(7):
        slot = ring.acquire(12)
        order.append(slots.index(slot))
        ring.release(slot)
    assert order == [0, 1, 2, 0, 1, 2, 0]
    assert factory.made == []


def test_held_rows_are_not_overwritten() -> None:
    ring, slots, factory = _ring(2)
    held = PendingTensor(ring, ring.acquire(4), 1, 4, None)
    for _ in range(5):
        slot = ring.acquire(4)
        assert slot is slots[1]
        ring.release(slot)
    del held
    gc.collect()
    assert ring.acquire(4) is slots[1]
    assert ring.acquire(4) is slots[0]
    assert factory.made == []


def test_ring_grows_when_all_are_held() -> None:
    ring, slots, factory = _ring(2)
    held = [ring.acquire(4) for _ in range(3)]
    assert held[:2] == slots
    assert held[2:] == factory.made


def test_small_slot_gives_way_to_a_larger_one() -> None:
    ring, slots, factory = _ring(1)
    slots[0].end.passed = True  # type: ignore[attr-defined]
    slot = ring.acquire(100)
    assert slot is factory.made[0]
    assert slot.buffer.shape == (100,)
    ring.release(slot)
    assert ring.acquire(100) is slot


def test_small_slot_stays_while_something_may_be_copied_into_it() -> None:
    ring, slots, factory = _ring(1)
    assert ring.acquire(100) is factory.made[0]
    assert ring.acquire(4) is slots[0]


def test_pending_tensor_waits_for_its_event() -> None:
    ring, slots, _ = _ring(1)
    slots[0].buffer[:6] = torch.arange(6.0)
    tensor = PendingTensor(ring, ring.acquire(6), 2, 3, 0.5)
    assert tensor.shape == (2, 3)
    assert not tensor.is_ready()
    handle = tensor.handle()
    assert handle == (slots[0].buffer.data_ptr(), 2, 3, 7, 0.5)
    rows = tensor.numpy()
    assert slots[0].end.waits == 1
    np.testing.assert_array_equal(rows, [[0, 1, 2], [3, 4, 5]])
    # A copy: the slot's next step must not change what was returned.
    slots[0].buffer.fill_(9)
    assert rows[0, 0] == 0


def test_pending_tensor_can_be_awaited() -> None:
    ring, slots, _ = _ring(1)

    async def wait() -> np.ndarray:
        return await PendingTensor(ring, ring.acquire(2), 2, 1, None)

    assert asyncio.run(wait()).shape == (2, 1)
    assert slots[0].end.waits >= 1
