"""Steps that run before the server is ready: their shapes, and errors that mean too little memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from rose.config import BatchLayout
from rose.engine.synthetic_batch import powers_of_two
from rose.kernels.linear import row_limits

Shape = tuple[int, int, int]
"""Tokens, sequences, tokens of the longest sequence."""

# A batch of this many tokens takes the paths of large batches.
_MANY_TOKENS = 1024
# Longest sequences between which `auto` chooses attention.
_LENGTHS = (32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step can hold."""

    batch_tokens: int
    whole_request_tokens: int
    max_sequences: int
    max_sequence_tokens: int
    max_positions: int
    """Of the model's table."""

    @property
    def max_tokens(self) -> int:
        """Of any step; a sequence may be longer than a batch."""
        return max(self.batch_tokens, self.whole_request_tokens, self.max_sequence_tokens)

    def without_whole_requests(self) -> StepLimits:
        """Where the device's memory is too small for them."""
        return replace(self, whole_request_tokens=0)

    def legal(self, tokens: int, sequences: int) -> tuple[int, int]:
        """Tokens and sequences near these: as many as a step may have, within the table of positions."""
        tokens = min(tokens, self.max_tokens)
        sequences = min(sequences, tokens)
        return tokens, max(sequences, -(-tokens // self.max_positions))

    def largest(self, batch_tokens: int) -> Shape:
        """The largest step of up to `batch_tokens` that traffic can bring."""
        tokens = min(batch_tokens, self.max_sequences * self.max_sequence_tokens)
        longest = min(tokens, self.max_sequence_tokens, _MANY_TOKENS)
        return tokens, -(-tokens // longest), longest

    def of_each_kernel(self, layout: BatchLayout, *, capturable: bool) -> list[Shape]:
        """Steps that together run each kernel variant that traffic can reach."""
        # Sizes choose the kernels of linear layers, lengths those of attention.
        limits = row_limits()
        shapes = [(tokens, 1, tokens) for tokens in (1, *limits, limits[-1] + 1)]
        shapes += [(_MANY_TOKENS, _MANY_TOKENS // longest, longest) for longest in _LENGTHS]
        # Slots size the kernel that schedules attention.
        tiers = layout.sequence_tiers
        if not tiers and capturable:
            tiers = powers_of_two(self.max_sequences)
        shapes += [(max(_MANY_TOKENS, 2 * slots), slots - 1, _MANY_TOKENS) for slots in tiers]
        return shapes


def is_of_memory(error: Exception) -> bool:
    """Whether an error of a step says that the device's memory is too small."""
    text = str(error).lower()
    return (
        isinstance(error, torch.OutOfMemoryError)
        or "out of memory" in text
        or "alloc_failed" in text
    )
