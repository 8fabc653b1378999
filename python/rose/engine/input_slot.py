"""Input buffers that the server writes and a step reads."""

from __future__ import annotations

import torch

from rose.config import BatchLayout


class InputSlot:
    """An int32 buffer in host memory, allocated once.

    The server fills it as `BatchLayout` says, calls `Engine.step_slot`, and fills it again only
    once the `LazyTensor` of that step is ready.
    """

    __slots__ = ("_heads", "buffer", "capacity", "data_ptr")

    def __init__(self, capacity: int, *, pinned: bool = False) -> None:
        self.buffer = torch.zeros(capacity, dtype=torch.int32, pin_memory=pinned)
        self.data_ptr: int = self.buffer.data_ptr()
        """Address of the first value."""
        self.capacity = capacity
        """Length in int32 values."""
        self._heads: dict[int, torch.Tensor] = {}

    def head(self, length: int) -> torch.Tensor:
        """The first `length` values: the same view each time."""
        view = self._heads.get(length)
        if view is None:
            view = self._heads[length] = self.buffer[:length]
        return view


def slot_capacity(
    layout: BatchLayout, max_batch_tokens: int, max_batch_sequences: int, max_sequence_tokens: int
) -> int:
    """Int32 values that hold every batch within the limits, or one sequence of any legal length."""
    # A slot more for the padding rows; buckets may round the token rows up.
    most_tokens = max(max_batch_tokens, max_sequence_tokens)
    padded_tokens, padded_sequences = layout.padded_shape(most_tokens, max_batch_sequences + 1)
    return layout.buffer_len(padded_tokens, padded_sequences)
