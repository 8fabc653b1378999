"""DistilBERT (Sanh et al., 2019): BERT with half the layers, no token types, names of its own."""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.renamed_weights import RenamedWeights
from rose.forward_batch import ForwardBatch
from rose.layers.linear import load_linear
from rose.models.base import WeightSource
from rose.models.bert import BertModel

_CONFIG_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
}
_TENSOR_NAMES = (
    ("encoder.layer.", "transformer.layer."),
    (".attention.self.query.", ".attention.q_lin."),
    (".attention.self.key.", ".attention.k_lin."),
    (".attention.self.value.", ".attention.v_lin."),
    (".attention.output.dense.", ".attention.out_lin."),
    (".attention.output.LayerNorm.", ".sa_layer_norm."),
    (".intermediate.dense.", ".ffn.lin1."),
    (".output.dense.", ".ffn.lin2."),
    (".output.LayerNorm.", ".output_layer_norm."),
)


class DistilBertModel(BertModel):
    """Embeddings and encoder layers; a `Backbone`."""

    base_prefix = "distilbert."
    unused_weights: ClassVar[tuple[str, ...]] = (
        "vocab_*",
        "pre_classifier.*",
        "classifier.*",
        "*.position_ids",
    )
    token_types = False

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        values = {_CONFIG_NAMES.get(name, name): value for name, value in config.values.items()}
        values |= {"type_vocab_size": 0, "layer_norm_eps": 1e-12}
        super().__init__(JsonObject(config.label, values), RenamedWeights(weights, _TENSOR_NAMES))


class DistilBertForSequenceClassification:
    """Dense layer with ReLU over the first token, then one logit for each label; a `Model`."""

    unused_weights: ClassVar[tuple[str, ...]] = ("vocab_*", "*.position_ids")

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = DistilBertModel(config, weights)
        self.output_width = num_labels
        hidden = self.backbone.hidden_size
        self.dense = load_linear(weights, "pre_classifier", hidden, hidden, activation="relu")
        self.classifier = load_linear(weights, "classifier", hidden, num_labels)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        return self.classifier(self.dense(self.backbone(batch, attention, "first"))).float()
