"""Packing in Python lies in memory as `BatchLayout` says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rose.config import BatchLayout
from rose.errors import BatchError
from rose.forward_batch import ForwardBatch


def test_exact_layout() -> None:
    layout = BatchLayout(token_types=True)
    batch = ForwardBatch.from_sequences([[5, 6, 7, 8], [9]], layout, [2, 0])
    assert batch.cu_seqlens.tolist() == batch.cu_seqlens_cpu.tolist() == [0, 4, 5]
    assert batch.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert batch.positions.tolist() == [0, 1, 2, 3, 0]
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.tolist() == [0, 0, 1, 1, 0]
    assert (batch.num_tokens, batch.num_sequences, batch.max_seqlen) == (5, 2, 4)
    assert batch.token_ids.dtype == torch.int32


def test_padding_rows_are_a_sequence_of_their_own() -> None:
    layout = BatchLayout(token_buckets=(8,), sequence_tiers=(4,), position_offset=2)
    batch = ForwardBatch.from_sequences([[5, 6], [9]], layout)
    assert batch.cu_seqlens.tolist() == [0, 2, 3, 8, 8]
    assert batch.token_ids.tolist() == [5, 6, 9, 0, 0, 0, 0, 0]
    assert batch.positions.tolist() == [2, 3, 2, 2, 2, 2, 2, 2]
    assert batch.token_type_ids is None
    assert (batch.num_tokens, batch.num_sequences, batch.max_seqlen) == (3, 2, 5)
    assert (batch.padded_tokens, batch.padded_sequences) == (8, 4)


def test_buffer_is_viewed_not_copied() -> None:
    layout = BatchLayout(token_types=True)
    buffer = torch.arange(100, dtype=torch.int32)
    batch = ForwardBatch.from_buffer(
        buffer,
        layout,
        num_tokens=3,
        num_sequences=1,
        max_seqlen=3,
        padded_tokens=3,
        padded_sequences=1,
    )
    buffer += 100
    assert batch.cu_seqlens.tolist() == batch.cu_seqlens_cpu.tolist() == [100, 101]
    assert batch.token_ids.tolist() == [102, 103, 104]
    assert batch.positions.tolist() == [105, 106, 107]
    assert batch.token_type_ids is not None
    assert batch.token_type_ids.tolist() == [108, 109, 110]
    assert np.shares_memory(batch.cu_seqlens_cpu, buffer.numpy())


@pytest.mark.parametrize(
    ("sequences", "starts", "message"),
    [
        ([], None, "sequences must not be empty"),
        ([[1], []], None, r"sequences\[1\] has no tokens"),
        ([[1]], [0, 0], "second_segment_starts has 2 entries for 1 sequences"),
    ],
)
def test_wrong_batches(sequences: list[list[int]], starts: list[int] | None, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        ForwardBatch.from_sequences(sequences, BatchLayout(token_types=True), starts)
