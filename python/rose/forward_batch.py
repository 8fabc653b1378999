"""Sequences side by side without padding: what one step computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from rose.config import BatchLayout
from rose.errors import BatchError

Int32Array = npt.NDArray[np.int32]


@dataclass(slots=True)
class ForwardBatch:
    """Inputs of one forward pass, laid out as `BatchLayout` says.

    Device tensors are int32. `cu_seqlens_cpu` holds the same values as `cu_seqlens` where the host
    can read them without waiting for the device.
    """

    token_ids: torch.Tensor
    """[padded_tokens]"""
    positions: torch.Tensor
    """[padded_tokens]"""
    token_type_ids: torch.Tensor | None
    """[padded_tokens], None where the model reads none."""
    cu_seqlens: torch.Tensor
    """[padded_sequences + 1]"""
    cu_seqlens_cpu: Int32Array
    """[padded_sequences + 1]"""
    num_tokens: int
    """Tokens without padding."""
    num_sequences: int
    """Sequences without padding."""
    max_seqlen: int
    """Tokens of the longest sequence, the one made of padding rows included."""

    @property
    def padded_tokens(self) -> int:
        """Token rows with padding."""
        return self.token_ids.shape[0]

    @property
    def padded_sequences(self) -> int:
        """Sequence slots with padding."""
        return len(self.cu_seqlens_cpu) - 1

    @classmethod
    def from_buffer(
        cls,
        buffer: torch.Tensor,
        layout: BatchLayout,
        *,
        num_tokens: int,
        num_sequences: int,
        max_seqlen: int,
        padded_tokens: int,
        padded_sequences: int,
        cu_seqlens_cpu: Int32Array | None = None,
    ) -> ForwardBatch:
        """Views of a buffer that was filled as `layout` says; nothing is copied.

        `buffer` is int32 on the device that computes. Off the CPU, `cu_seqlens_cpu` must be the
        host's own copy of the first section.
        """
        at = padded_sequences + 1
        cu_seqlens = buffer[:at]
        if cu_seqlens_cpu is None:
            cu_seqlens_cpu = cu_seqlens.numpy()
        sections = buffer[at : layout.buffer_len(padded_tokens, padded_sequences)]
        return cls(
            token_ids=sections[:padded_tokens],
            positions=sections[padded_tokens : 2 * padded_tokens],
            token_type_ids=sections[2 * padded_tokens :] if layout.token_types else None,
            cu_seqlens=cu_seqlens,
            cu_seqlens_cpu=cu_seqlens_cpu,
            num_tokens=num_tokens,
            num_sequences=num_sequences,
            max_seqlen=max_seqlen,
        )

    @classmethod
    def from_sequences(
        cls,
        sequences: Sequence[Sequence[int]],
        layout: BatchLayout,
        second_segment_starts: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> ForwardBatch:
        """Packs token ids in Python, with the same result as the server's packing.

        `second_segment_starts` holds, for each sequence, the index of its first token of type 1;
        0 means that there is one segment.

        Raises:
            BatchError: no sequences, an empty sequence, or a wrong number of segment starts.
        """
        if not sequences:
            raise BatchError("sequences must not be empty")
        lengths = np.fromiter(map(len, sequences), np.int32, len(sequences))
        if not lengths.all():
            raise BatchError(f"sequences[{int(lengths.argmin())}] has no tokens")
        if second_segment_starts is not None and len(second_segment_starts) != len(sequences):
            raise BatchError(
                f"second_segment_starts has {len(second_segment_starts)} entries "
                f"for {len(sequences)} sequences"
            )
        num_tokens, num_sequences = int(lengths.sum()), len(sequences)
        padded_tokens, padded_sequences = layout.padded_shape(num_tokens, num_sequences)
        packed = np.zeros(layout.buffer_len(padded_tokens, padded_sequences), np.int32)
        cu_seqlens = packed[: padded_sequences + 1]
        np.cumsum(lengths, out=cu_seqlens[1 : num_sequences + 1])
        cu_seqlens[num_sequences + 1 :] = padded_tokens
        token_ids, positions, *token_types = np.split(
            packed[padded_sequences + 1 :],
            [padded_tokens, 2 * padded_tokens][: 2 if layout.token_types else 1],
        )
        token_ids[:num_tokens] = np.concatenate([np.asarray(ids, np.int32) for ids in sequences])
        offsets = np.arange(num_tokens, dtype=np.int32)
        offsets -= np.repeat(cu_seqlens[:num_sequences], lengths)
        positions[:num_tokens] = offsets
        positions += layout.position_offset
        if token_types and second_segment_starts is not None:
            starts = np.repeat(np.asarray(second_segment_starts, np.int32), lengths)
            token_types[0][:num_tokens] = (starts > 0) & (offsets >= starts)
        return cls.from_buffer(
            torch.from_numpy(packed).to(device),
            layout,
            num_tokens=num_tokens,
            num_sequences=num_sequences,
            max_seqlen=max(int(lengths.max()), padded_tokens - num_tokens),
            padded_tokens=padded_tokens,
            padded_sequences=padded_sequences,
            cu_seqlens_cpu=cu_seqlens,
        )
