"""GTE (Alibaba, 2024): BERT with rotary positions and a gated feed-forward.

gte-multilingual and gte-v1.5 as published (`NewModel`), and as transformers writes them.
"""

from __future__ import annotations

from typing import ClassVar

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.layers.post_norm_encoder import PostNormLayer
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource
from rose.models.encoder_classifier import PooledForSequenceClassification
from rose.models.post_norm_bert import (
    TRANSFORMERS_NAMES,
    LayerNames,
    PostNormBert,
    find_prefix,
    load_gated_feed_forward,
    load_layer,
)

# What the published code can do besides, and the only values computed here.
_FIXED = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
}
_PUBLISHED_NAMES = LayerNames("attention.qkv_proj", "attention.o_proj", "attn_ln", "mlp_ln")


class GteModel(PostNormBert):
    """Embeddings and encoder layers; a `Backbone`."""

    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "lm_head.*",
        "classifier.*",
        "*.inv_freq",
        "*.position_ids",
    )

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        for name, value in _FIXED.items():
            if config.values.get(name, value) != value:
                raise ModelLoadError(
                    f"{config.label}: {name} {config.values[name]!r} is not supported: {value!r}"
                )
        eps = config.number("layer_norm_eps", 1e-12)
        prefix = find_prefix(weights, ("new.", "gte."))
        is_published = weights.has(f"{prefix}encoder.layer.0.attention.qkv_proj.weight")
        load = _load_published_layer if is_published else _load_layer
        folder = "encoder.layer" if is_published else "layers"
        super().__init__(
            config,
            weights,
            prefix=prefix,
            norm="embeddings.LayerNorm",
            eps=eps,
            layers=[
                load(config, weights, f"{prefix}{folder}.{index}.", eps)
                for index in range(config.integer("num_hidden_layers"))
            ],
            positions=RopeConfig(config, 10000.0 if is_published else 160000.0),
            max_positions=8192,
            token_types=1,
        )


class GteForSequenceClassification(PooledForSequenceClassification):
    """Pooler over the first token, then one logit for each label; a `Model`."""

    backbone_class = GteModel
    pooler_names = ("new.pooler.dense", "gte.pooler.dense", "pooler.dense")


def _load_published_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float
) -> PostNormLayer:
    feed_forward = load_gated_feed_forward(
        config,
        weights,
        prefix,
        both="mlp.up_gate_proj",
        up_first=True,
        down="mlp.down_proj",
        activation=config.string("hidden_act", "gelu"),
    )
    return load_layer(config, weights, prefix, _PUBLISHED_NAMES, feed_forward, eps)


def _load_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float
) -> PostNormLayer:
    feed_forward = load_gated_feed_forward(
        config,
        weights,
        prefix,
        gate="mlp.gate_proj",
        up="mlp.up_proj",
        down="mlp.down_proj",
        activation=config.string("hidden_act", "gelu"),
    )
    return load_layer(config, weights, prefix, TRANSFORMERS_NAMES, feed_forward, eps)
