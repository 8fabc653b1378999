"""Jina-BERT (Jina AI, 2023): BERT with ALiBi in both directions and a gated feed-forward."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from rose.attention.base import PositionBias
from rose.checkpoint.json_object import JsonObject
from rose.layers.post_norm_encoder import PostNormLayer
from rose.models.base import WeightSource
from rose.models.encoder_classifier import PooledForSequenceClassification
from rose.models.post_norm_bert import (
    LayerNames,
    PostNormBert,
    find_prefix,
    load_gated_feed_forward,
    load_layer,
)

# Gated layers by `feed_forward_type`; others are not gated, or not of this family.
_GATES = {"geglu": "gelu"}
_NAMES = LayerNames(
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output.dense",
    "attention.output.LayerNorm",
    "mlp.layernorm",
)
_MAX_POSITIONS = 512


class JinaBertModel(PostNormBert):
    """Embeddings and encoder layers; a `Backbone`."""

    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "cls.*",
        "classifier.*",
        "*.position_ids",
    )

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        kind = config.string("position_embedding_type", "absolute")
        if kind != "alibi":
            raise config.wrong("position_embedding_type", "alibi", kind)
        feed_forward = config.string("feed_forward_type", "original")
        if feed_forward not in _GATES:
            raise config.wrong("feed_forward_type", ", ".join(_GATES), feed_forward)
        eps = config.number("layer_norm_eps", 1e-12)
        prefix = find_prefix(weights, ("bert.",))
        max_positions = config.integer("max_position_embeddings", _MAX_POSITIONS)
        super().__init__(
            config,
            weights,
            prefix=prefix,
            norm="embeddings.LayerNorm",
            eps=eps,
            layers=[
                _load_layer(
                    config, weights, f"{prefix}encoder.layer.{index}.", eps, _GATES[feed_forward]
                )
                for index in range(config.integer("num_hidden_layers"))
            ],
            positions=alibi(config.integer("num_attention_heads"), max_positions, weights.device),
            max_positions=_MAX_POSITIONS,
            token_types=2,
        )


class JinaBertForSequenceClassification(PooledForSequenceClassification):
    """Pooler over the first token, then one logit for each label; a `Model`."""

    backbone_class = JinaBertModel
    pooler_names = ("bert.pooler.dense", "pooler.dense")


def alibi(num_heads: int, max_positions: int, device: torch.device) -> PositionBias:
    """Linear biases (Press et al., 2022), minus slope times distance, in both directions."""
    distances = torch.arange(-(max_positions - 1), max_positions, device=device).abs()
    slopes = torch.tensor(alibi_slopes(num_heads), device=device)
    return PositionBias(-slopes[:, None] * distances[None, :])


def alibi_slopes(num_heads: int) -> list[float]:
    """A geometric series; between two powers of two every other slope of the longer series."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    if power < num_heads:
        slopes += alibi_slopes(2 * power)[::2][: num_heads - power]
    return slopes


def _load_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float, activation: str
) -> PostNormLayer:
    feed_forward = load_gated_feed_forward(
        config, weights, prefix, both="mlp.gated_layers", down="mlp.wo", activation=activation
    )
    return load_layer(config, weights, prefix, _NAMES, feed_forward, eps)
