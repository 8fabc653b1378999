"""Steps on CPU: sequences sorted by length, in pieces whose activations stay in cache."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import torch

from rose.attention.base import AttentionBackend
from rose.config import BatchLayout
from rose.engine.input_slot import InputSlot
from rose.forward_batch import ForwardBatch, Int32Array
from rose.lazy_tensor import LazyTensor
from rose.models.base import Model

# Tokens of a piece: many enough to hide what each of torch's calls costs, few enough that the widest
# activation (4 * hidden) stays in cache. 16,000 tokens of MiniLM took 1.62 / 1.57 / 1.76 / 1.80 s in
# pieces of 2,048 / 4,096 / 8,192 / 16,384; 9,000 tokens 0.86 / 0.83 s in pieces of 1,024 / 4,096.
PIECE_TOKENS = 4096


class CpuRunner:
    """Runs each step at once; the result is ready when `step` returns."""

    def __init__(
        self, model: Model, attention: AttentionBackend, piece_tokens: int = PIECE_TOKENS
    ) -> None:
        self.model = model
        self.attention = attention
        self.piece_tokens = piece_tokens
        backbone = model.backbone
        self.layout = BatchLayout(
            token_types=backbone.token_types, position_offset=backbone.position_offset
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
        """Rows [num_sequences, output_width]."""
        with torch.inference_mode():
            if batch.num_sequences == 1 or batch.num_tokens == batch.num_sequences:
                return LazyTensor(self._run(batch)[: batch.num_sequences])
            return LazyTensor(self._run_sorted(batch))

    def _run(self, batch: ForwardBatch) -> torch.Tensor:
        self.attention.plan(batch)
        return self.model(batch, self.attention)

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
        output: torch.Tensor | None = None
        for first, last in self._pieces(cu_seqlens):
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
            result = self._run(piece)
            if output is None:
                output = result.new_empty((batch.num_sequences, result.shape[1]))
            output[torch.from_numpy(order[first:last])] = result
        assert output is not None, "a batch has at least one sequence"
        return output

    def _pieces(self, cu_seqlens: Int32Array) -> list[tuple[int, int]]:
        """Ranges of whole sequences of about `piece_tokens` tokens, at least one sequence each."""
        num_pieces = max(1, round(int(cu_seqlens[-1]) / self.piece_tokens))
        targets = np.arange(1, num_pieces) * (int(cu_seqlens[-1]) / num_pieces)
        cuts = [0, *np.searchsorted(cu_seqlens, targets).tolist(), len(cu_seqlens) - 1]
        return [(a, b) for a, b in pairwise(cuts) if b > a]
