"""BERT's classification head: a pooler with tanh over the first token, then one logit a label."""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.forward_batch import ForwardBatch
from rose.layers.linear import load_linear
from rose.models.base import WeightSource
from rose.models.registry import BackboneClass


class PooledForSequenceClassification:
    """Pooler and linear layer; a `Model`. Subclasses name the backbone and its prefix."""

    unused_weights: ClassVar[tuple[str, ...]] = (
        "cls.*",
        "lm_head.*",
        "*.position_ids",
        "*.inv_freq",
    )
    backbone_class: ClassVar[BackboneClass]
    pooler_names: ClassVar[tuple[str, ...]]
    """Where the pooler may be; the first one that there is."""

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = self.backbone_class(config, weights)
        self.output_width = num_labels
        hidden = self.backbone.hidden_size
        names = [name for name in self.pooler_names if weights.has(f"{name}.weight")]
        pooler = names[0] if names else self.pooler_names[0]
        self.pooler = load_linear(weights, pooler, hidden, hidden, activation="tanh")
        self.classifier = load_linear(weights, "classifier", hidden, num_labels)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        return self.classifier(self.pooler(self.backbone(batch, attention, "first"))).float()
