"""An embedding model with a row for each token: vectors of tokens and weights of tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import normalize_rows
from rose.layers.linear import Linear
from rose.models.embedding import EmbeddingModel


class TokenOutputModel:
    """Rows of tokens beside the vector of the sequence, as in bge-m3; a `Model`.

    The first `dimensions` values of a token's row are its vector; where the dense vector is wanted
    too it stands in the row of the sequence's first token. With weights the last value is the
    token's: relu of a linear layer.
    """

    token_rows = True

    def __init__(
        self,
        dense: EmbeddingModel,
        *,
        with_dense: bool,
        token_layer: Linear | None,
        weight_layer: Linear | None,
    ) -> None:
        self.backbone = dense.backbone
        self.dense_model = dense if with_dense else None
        self.normalized = dense.normalized
        self.pooled = dense
        self.token_layer = token_layer
        self.weight_layer = weight_layer
        self.dimensions = (
            dense.backbone.hidden_size if token_layer is None else token_layer.out_features
        )
        self.output_width = self.dimensions + (weight_layer is not None)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Rows [padded_tokens, output_width] float32."""
        hidden = self.backbone(batch, attention)
        vectors = hidden.float() if self.token_layer is None else self.token_layer(hidden.float())
        if self.normalized:
            vectors = F.normalize(vectors, dim=1)
        if self.dense_model is not None:
            pooled = self.pooled.pooling(hidden, batch)
            pooled = normalize_rows(pooled) if self.normalized else pooled
            first = batch.cu_seqlens[: batch.num_sequences].long()
            vectors[first] = pooled[: batch.num_sequences]
        if self.weight_layer is None:
            return vectors
        weights = self.weight_layer(hidden.float()).relu()
        return torch.cat([vectors, weights], dim=1)
