"""XLM-RoBERTa and RoBERTa: BERT without token types; positions begin behind the padding id."""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.forward_batch import ForwardBatch
from rose.layers.linear import load_linear
from rose.models.base import WeightSource
from rose.models.bert import BertModel


class XLMRobertaModel(BertModel):
    """Embeddings and encoder layers; a `Backbone`."""

    base_prefix = "roberta."
    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "lm_head.*",
        "classifier.*",
        "*.position_ids",
    )
    # There is one type, and the embeddings add its row to every token.
    token_types = False

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        # fairseq's padding index takes the position rows up to itself.
        self.position_offset = config.integer("pad_token_id", 1, minimum=0) + 1
        super().__init__(config, weights)


class XLMRobertaForSequenceClassification:
    """Dense layer with tanh over the first token, then one logit for each label; a `Model`."""

    unused_weights: ClassVar[tuple[str, ...]] = ("lm_head.*", "*pooler.*", "*.position_ids")

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = XLMRobertaModel(config, weights)
        self.output_width = num_labels
        hidden = self.backbone.hidden_size
        self.dense = load_linear(weights, "classifier.dense", hidden, hidden, activation="tanh")
        self.out_proj = load_linear(weights, "classifier.out_proj", hidden, num_labels)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        return self.out_proj(self.dense(self.backbone(batch, attention, "first"))).float()
