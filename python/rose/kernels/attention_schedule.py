"""Work lists for a persistent attention kernel, made on the device from `cu_seqlens`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rose.kernels.launch import launch, row_block


@dataclass(frozen=True, slots=True)
class AttentionSchedule:
    """Pieces of work (query tile, head), block after block of the persistent grid, all int32.

    Lists hold `capacity` entries, of which `work_indptr[-1]` are used.
    """

    work_indptr: torch.Tensor
    """[num_blocks + 1] first piece of each block."""
    heads: torch.Tensor
    tiles: torch.Tensor
    """Query tile inside its sequence."""
    starts: torch.Tensor
    """First token row of the sequence, for queries."""
    kv_starts: torch.Tensor
    lengths: torch.Tensor
    kv_lengths: torch.Tensor
    sequences: torch.Tensor

    @staticmethod
    def capacity(num_tokens: int, num_sequences: int, num_heads: int, tile_rows: int) -> int:
        """Most pieces of work of any batch of this size, rounded up to 16 bytes."""
        most_tiles = num_tokens // tile_rows + min(num_sequences, num_tokens)
        return -(-most_tiles * num_heads // 4) * 4

    def fill(
        self,
        cu_seqlens: torch.Tensor,
        *,
        num_tokens: int,
        num_heads: int,
        tile_rows: int,
        causal: bool,
    ) -> None:
        """Writes the lists for a batch; a kernel launch, to be captured with what reads them.

        Args:
            cu_seqlens: [sequences + 1] int32, whatever values at most `num_tokens` it holds.
            num_tokens: token rows with padding.
            num_heads: query heads.
            tile_rows: rows of a query tile.
            causal: a tile costs as many keys as its last row sees.
        """
        from rose.kernels.triton_kernels.schedule import schedule_kernel

        num_sequences = cu_seqlens.shape[0] - 1
        num_blocks = self.work_indptr.shape[0] - 1
        most_tiles = num_tokens // tile_rows + min(num_sequences, num_tokens)
        launch(
            schedule_kernel,
            (max(most_tiles, 1),),
            cu_seqlens,
            self.work_indptr,
            self.heads,
            self.tiles,
            self.starts,
            self.kv_starts,
            self.lengths,
            self.kv_lengths,
            self.sequences,
            num_sequences,
            tile_rows=tile_rows,
            num_heads=num_heads,
            head_block=row_block(num_heads),
            num_blocks=num_blocks,
            block_blocks=row_block(num_blocks + 1),
            sequence_block=max(16, row_block(num_sequences)),
            causal=causal,
            num_warps=4,
        )
