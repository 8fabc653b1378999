"""Steps on CPU: sequences sorted by length, in pieces whose activations stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from rose.attention.base import AttentionBackend
from rose.config import BatchLayout
from rose.engine.cpu_workers import CpuWorkers
from rose.engine.input_slot import InputSlot
from rose.forward_batch import ForwardBatch, Int32Array
from rose.lazy_tensor import LazyTensor
from rose.models.base import Model

# Tokens of a piece: many enough to hide what each of torch's calls costs, few enough that the widest
# activation (4 * hidden) stays near.
PIECE_TOKENS = 2048
# Pieces as small as this still gain from running side by side.
SMALLEST_PIECE_TOKENS = 128


@dataclass(slots=True)
class _Piece:
    """Whole sequences of a step, neighbours in the order of length."""

    batch: ForwardBatch
    rows: torch.Tensor
    """Places of its rows in the step's result, int64."""
    result: torch.Tensor | None = None


class CpuRunner:
    """Runs each step at once; the result is ready when `step` returns.

    Args:
        model: What computes.
        make_attention: Makes a back end for one thread.
        piece_tokens: About how many tokens are computed together.
        deterministic: Each sequence is a piece of its own on one thread, so that its row has the
            same bits whatever else is in the step.
    """

    graph_counters = None

    def __init__(
        self,
        model: Model,
        make_attention: Callable[[], AttentionBackend],
        piece_tokens: int = PIECE_TOKENS,
        *,
        deterministic: bool = False,
    ) -> None:
        self.model = model
        self.attention = make_attention()
        self.piece_tokens = piece_tokens
        self.deterministic = deterministic
        self.workers = CpuWorkers(make_attention, self._run_piece)
        backbone = model.backbone
        self.layout = BatchLayout(
            token_types=backbone.token_types,
            position_offset=backbone.position_offset,
            token_rows=getattr(model, "token_rows", False),
        )

    def make_slot(self, capacity: int) -> InputSlot:
        """An input buffer of this device."""
        return InputSlot(capacity)

    def compile_kernels(self) -> None:
        """Nothing is compiled on CPU."""

    def warm_up(self, shapes: Iterable[tuple[int, int, int]]) -> None:
        """Nothing depends on shapes on CPU."""

    def step_slot(
        self,
        slot: InputSlot,
        num_tokens: int,
        num_sequences: int,
        max_seqlen: int,
        padded_tokens: int,
        padded_sequences: int,
    ) -> LazyTensor:
        """Runs the batch that the server wrote into `slot`."""
        return self.step(
            ForwardBatch.from_buffer(
                slot.buffer,
                self.layout,
                num_tokens=num_tokens,
                num_sequences=num_sequences,
                max_seqlen=max_seqlen,
                padded_tokens=padded_tokens,
                padded_sequences=padded_sequences,
            )
        )

    def step(self, batch: ForwardBatch) -> LazyTensor:
        """Rows [num_sequences, output_width], or [num_tokens, output_width] of token rows."""
        num_rows = batch.num_tokens if self.layout.token_rows else batch.num_sequences
        with torch.inference_mode():
            if self.deterministic:
                return LazyTensor(self._run_sorted(batch))
            if batch.num_sequences == 1 or batch.num_tokens == batch.num_sequences:
                return LazyTensor(self._run(batch, self.attention)[:num_rows])
            return LazyTensor(self._run_sorted(batch))

    def _run(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        attention.plan(batch)
        return self.model(batch, attention)

    def _run_piece(self, attention: AttentionBackend, piece: _Piece) -> None:
        with torch.inference_mode():
            piece.result = self._run(piece.batch, attention)

    def _run_sorted(self, batch: ForwardBatch) -> torch.Tensor:
        """Equal lengths become neighbours, so that attention takes them in one call."""
        starts = batch.cu_seqlens_cpu[: batch.num_sequences]
        lengths = np.diff(batch.cu_seqlens_cpu[: batch.num_sequences + 1])
        order = np.argsort(lengths, kind="stable")
        lengths = lengths[order]
        cu_seqlens = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=cu_seqlens[1:])
        rows = np.arange(batch.num_tokens) + np.repeat(starts[order] - cu_seqlens[:-1], lengths)
        index = torch.from_numpy(rows)
        token_ids = batch.token_ids[index]
        positions = batch.positions[index]
        token_types = None if batch.token_type_ids is None else batch.token_type_ids[index]
        pieces = []
        for first, last in self._ranges(cu_seqlens):
            start, end = int(cu_seqlens[first]), int(cu_seqlens[last])
            piece_cu_seqlens = cu_seqlens[first : last + 1] - start
            piece = ForwardBatch(
                token_ids=token_ids[start:end],
                positions=positions[start:end],
                token_type_ids=None if token_types is None else token_types[start:end],
                cu_seqlens=torch.from_numpy(piece_cu_seqlens),
                cu_seqlens_cpu=piece_cu_seqlens,
                num_tokens=end - start,
                num_sequences=last - first,
                max_seqlen=int(lengths[last - 1]),
            )
            token_rows = self.layout.token_rows
            places = index[start:end] if token_rows else torch.from_numpy(order[first:last])
            pieces.append(_Piece(piece, places))
        if self.deterministic or self._fill_all_threads(pieces):
            # The longest sequences first: what ends last should be small.
            self.workers.run(pieces[::-1])
        else:
            for each in pieces:
                self._run_piece(self.attention, each)
        output: torch.Tensor | None = None
        for each in pieces:
            assert each.result is not None, "a piece that failed has raised"
            if output is None:
                num_rows = batch.num_tokens if self.layout.token_rows else batch.num_sequences
                output = each.result.new_empty((num_rows, each.result.shape[1]))
            output[each.rows] = each.result
        assert output is not None, "a batch has at least one sequence"
        return output

    def _fill_all_threads(self, pieces: list[_Piece]) -> bool:
        """Whether the pieces keep every thread busy; one long sequence would hold one thread."""
        total = sum(piece.batch.num_tokens for piece in pieces)
        largest = max(piece.batch.num_tokens for piece in pieces)
        threads = self.workers.count
        return 1 < threads <= len(pieces) and largest * threads <= 1.25 * total

    def _ranges(self, cu_seqlens: Int32Array) -> list[tuple[int, int]]:
        """Ranges of whole sequences of about `piece_tokens` tokens, at least one sequence each."""
        if self.deterministic:
            return list(pairwise(range(len(cu_seqlens))))
        total = int(cu_seqlens[-1])
        num_pieces = round(total / self.piece_tokens)
        # A few for each thread even out what attention costs the longer ones.
        num_pieces = max(num_pieces, min(4 * self.workers.count, total // SMALLEST_PIECE_TOKENS), 1)
        targets = np.arange(1, num_pieces) * (total / num_pieces)
        cuts = [0, *np.searchsorted(cu_seqlens, targets).tolist(), len(cu_seqlens) - 1]
        return [(a, b) for a, b in pairwise(cuts) if b > a]
