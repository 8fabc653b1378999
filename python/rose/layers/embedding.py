"""Input embeddings of the BERT family."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rose.forward_batch import ForwardBatch
from rose.layers.norm import LayerNorm
from rose.models.base import WeightSource


class BertEmbeddings:
    """LayerNorm(word + position + token type); a model without types has 0 of them."""

    def __init__(
        self,
        weights: WeightSource,
        prefix: str,
        *,
        vocab_size: int,
        num_positions: int,
        num_token_types: int,
        hidden_size: int,
        eps: float,
    ) -> None:
        def table(name: str, rows: int) -> torch.Tensor:
            return weights.take(f"{prefix}{name}.weight", rows, hidden_size)

        self.words = table("word_embeddings", vocab_size)
        positions = table("position_embeddings", num_positions)
        self.offsets = positions
        if num_token_types:
            token_types = table("token_type_embeddings", num_token_types)
            # Both tables are tiny, so their sums are kept: [token types * positions, hidden].
            sums = token_types.float()[:, None, :] + positions.float()[None, :, :]
            self.offsets = sums.flatten(0, 1).to(weights.dtype)
        self.num_positions = num_positions
        self.norm = LayerNorm.load(weights, f"{prefix}LayerNorm", hidden_size, eps)

    def __call__(self, batch: ForwardBatch) -> torch.Tensor:
        """Rows [padded_tokens, hidden_size]."""
        index = batch.positions
        if batch.token_type_ids is not None:
            index = index + batch.token_type_ids * self.num_positions
        return self.norm(
            F.embedding(batch.token_ids, self.words) + F.embedding(index, self.offsets)
        )
