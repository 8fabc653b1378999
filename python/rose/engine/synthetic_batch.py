"""Batches of equal sequences, for warming up."""

from __future__ import annotations

import numpy as np

from rose.config import BatchLayout


def fill_with_equal_lengths(
    buffer: np.ndarray[tuple[int], np.dtype[np.int32]],
    layout: BatchLayout,
    num_tokens: int,
    num_sequences: int,
) -> None:
    """Writes a batch of token 0 with sequences of about equal length, for warming up."""
    padded_tokens, padded_sequences = layout.padded_shape(num_tokens, num_sequences)
    cu_seqlens = buffer[: padded_sequences + 1]
    cu_seqlens[: num_sequences + 1] = np.linspace(0, num_tokens, num_sequences + 1).astype(np.int32)
    cu_seqlens[num_sequences + 1 :] = padded_tokens
    rest = buffer[padded_sequences + 1 :]
    rest[:] = 0
    rows = np.arange(padded_tokens)
    first_rows = cu_seqlens[np.searchsorted(cu_seqlens, rows, side="right") - 1]
    positions = rest[padded_tokens : 2 * padded_tokens]
    positions[:] = rows - first_rows
    # The sequence of padding rows may be longer than the model's table.
    positions[num_tokens:] = 0
    positions += layout.position_offset


def powers_of_two(most: int) -> tuple[int, ...]:
    """2, 4, … and the first that is not below `most`."""
    return tuple(1 << power for power in range(1, max(most - 1, 1).bit_length() + 1))
