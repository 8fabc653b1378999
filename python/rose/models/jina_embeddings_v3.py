"""Jina embeddings v3 (Jina AI, 2024): XLM-RoBERTa with rotary positions, without its adapters."""

from __future__ import annotations

from typing import ClassVar

from rose.checkpoint.json_object import JsonObject
from rose.layers.feed_forward import FeedForward
from rose.layers.linear import load_linear
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource
from rose.models.post_norm_bert import (
    TRANSFORMERS_NAMES,
    LayerNames,
    PostNormBert,
    find_prefix,
    load_layer,
)

# Those of the FlashAttention library's BERT.
_PUBLISHED_NAMES = LayerNames("mixer.Wqkv", "mixer.out_proj", "norm1", "norm2")


class JinaEmbeddingsV3Model(PostNormBert):
    """Embeddings and encoder layers; a `Backbone`."""

    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "lm_head.*",
        "classifier.*",
        "*.inv_freq",
    )

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        eps = config.number("layer_norm_eps", 1e-5)
        prefix = find_prefix(weights, ("roberta.",))
        is_published = weights.has(f"{prefix}emb_ln.weight")
        names = _PUBLISHED_NAMES if is_published else TRANSFORMERS_NAMES
        folder = "encoder.layers" if is_published else "layers"
        layers = [
            f"{prefix}{folder}.{index}." for index in range(config.integer("num_hidden_layers"))
        ]
        super().__init__(
            config,
            weights,
            prefix=prefix,
            norm="emb_ln" if is_published else "embeddings.LayerNorm",
            eps=eps,
            layers=[
                load_layer(
                    config, weights, layer, names, _load_feed_forward(config, weights, layer), eps
                )
                for layer in layers
            ],
            positions=RopeConfig(config, 20000.0),
            max_positions=8194,
            token_types=1,
        )


def _load_feed_forward(config: JsonObject, weights: WeightSource, prefix: str) -> FeedForward:
    hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")
    activation = config.string("hidden_act", "gelu")
    return FeedForward(
        load_linear(weights, f"{prefix}mlp.fc1", hidden, intermediate, activation=activation),
        load_linear(weights, f"{prefix}mlp.fc2", intermediate, hidden),
    )
