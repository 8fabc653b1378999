"""An embedding model with a row for each token: vectors of tokens and weights of tokens."""

from __future__ import annotations

import torch

from rose.attention.base import AttentionBackend
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import normalize_rows
from rose.layers.linear import Linear
from rose.models.embedding import EmbeddingModel


class TokenOutputModel:
    """Rows of tokens beside the vector of the sequence, as in bge-m3; a `Model`.

    The first `dimensions` values of a token's row are its vector: of `token_layer`, else the last
    hidden state. Where the dense vector is wanted too it stands in the row of the sequence's first
    token: in the place of that token's vector, which bge-m3 does not use, or behind it. With weights
    the last value is the token's: relu of a linear layer.
    """

    token_rows = True

    def __init__(
        self,
        pooled: EmbeddingModel,
        *,
        with_dense: bool,
        token_layer: Linear | None,
        weight_layer: Linear | None,
        skip_first_token: bool,
    ) -> None:
        self.backbone = pooled.backbone
        self.pooled = pooled
        self.with_dense = with_dense
        self.token_layer = token_layer
        self.weight_layer = weight_layer
        hidden = pooled.backbone.hidden_size
        self.dimensions = hidden if token_layer is None else token_layer.out_features
        self.dense_start = self.dimensions if with_dense and not skip_first_token else 0
        self.output_width = self.dense_start + self.dimensions + (weight_layer is not None)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Rows [padded_tokens, output_width] float32."""
        hidden = self.backbone(batch, attention)
        tokens = batch.padded_tokens
        states = hidden.float()
        vectors = states if self.token_layer is None else self.token_layer(states)
        normalized = self.pooled.normalized
        # Empty slots begin behind the last token, and so have a row there, which is cut off.
        rows = states.new_zeros((tokens + 1, self.output_width))
        rows[:tokens, : self.dimensions] = normalize_rows(vectors) if normalized else vectors
        if self.with_dense:
            pooled = self.pooled.pooling(hidden, batch)
            pooled = normalize_rows(pooled) if normalized else pooled
            first = batch.cu_seqlens[:-1].long()
            rows[first, self.dense_start : self.dense_start + self.dimensions] = pooled.float()
        if self.weight_layer is not None:
            rows[:tokens, -1:] = self.weight_layer(states).relu()
        return rows[:tokens]
