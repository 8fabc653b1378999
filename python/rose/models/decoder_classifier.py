"""Decoders with a classification head: one linear layer on a pooled row."""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.config import PoolingMode
from rose.forward_batch import ForwardBatch
from rose.kernels.linear import linear
from rose.layers.pooling import Pooling
from rose.models.base import WeightSource
from rose.models.decoder import DecoderClass


class DecoderForSequenceClassification:
    """A linear layer on the last token, one logit for each label; a `Model`.

    Subclasses name the backbone, and how its rows are pooled if that is not the last token.
    """

    unused_weights: ClassVar[tuple[str, ...]] = ("lm_head.weight", "*.rotary_emb.inv_freq")
    backbone_class: ClassVar[DecoderClass]
    head = "score"

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = self.backbone_class(config, weights)
        self.output_width = num_labels
        hidden = self.backbone.hidden_size
        self.score = weights.take(f"{self.head}.weight", num_labels, hidden)
        bias = f"{self.head}.bias"
        self.bias = weights.take(bias, num_labels).float() if weights.has(bias) else None
        self.pooling = Pooling((self.pooling_mode(config),))
        self.temperature = config.number("temperature", 1.0)

    def pooling_mode(self, config: JsonObject) -> PoolingMode:
        """Which row, or which mean of rows, the head reads."""
        return "last_token"

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        choice = self.pooling.row_choice
        if choice is not None:
            rows = self.backbone(batch, attention, choice).float()
        else:
            rows = self.pooling(self.backbone(batch, attention), batch)
        return linear(rows, self.score.float(), self.bias) / self.temperature
