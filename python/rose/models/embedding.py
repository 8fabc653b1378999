"""An embedding model: a backbone, pooling, dense layers, normalization."""

from __future__ import annotations

from typing import Protocol

import torch

from rose.attention.base import AttentionBackend
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import normalize_rows
from rose.layers.pooling import Pooling
from rose.models.base import Backbone


class PooledLayer(Protocol):
    """A layer on pooled rows."""

    out_features: int

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[sequences, in_features] to [sequences, out_features], float32."""


class EmbeddingModel:
    """One vector for each sequence; a `Model`."""

    def __init__(
        self,
        backbone: Backbone,
        pooling: Pooling,
        dense: tuple[PooledLayer, ...] = (),
        *,
        normalized: bool = True,
    ) -> None:
        self.backbone = backbone
        self.pooling = pooling
        self.dense = dense
        self.normalized = normalized
        pooled = backbone.hidden_size * len(pooling.modes)
        self.output_width = dense[-1].out_features if dense else pooled

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Vectors [padded_sequences, output_width] float32."""
        choice = self.pooling.row_choice
        if choice is not None:
            rows = self.backbone(batch, attention, choice)
            if self.dense or not self.normalized:
                rows = rows.float()
        else:
            rows = self.pooling(self.backbone(batch, attention), batch)
        for layer in self.dense:
            rows = layer(rows)
        return normalize_rows(rows) if self.normalized else rows
