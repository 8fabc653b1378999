"""NomicBERT (Nomic AI, 2024): BERT with rotary positions and a gated feed-forward, few biases."""

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

# GPT-2's names in Nomic's own configurations, transformers' names for them.
_CONFIG_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
# What Nomic's own code can do besides, and the only values computed here.
_FIXED = {
    "prenorm": False,
    "causal": False,
    "parallel_block": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
    "num_experts": 0,
}
_ORIGINAL_NAMES = LayerNames("attn.Wqkv", "attn.out_proj", "norm1", "norm2")


class NomicBertModel(PostNormBert):
    """Embeddings and encoder layers; a `Backbone`. Nomic's tensor names and transformers'."""

    unused_weights: ClassVar[tuple[str, ...]] = ("*pooler.*", "cls.*", "classifier.*", "*.inv_freq")

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        config = _translated(config)
        eps = config.number("layer_norm_eps", 1e-12)
        prefix = find_prefix(weights, ("bert.", "nomic_bert."))
        is_original = weights.has(f"{prefix}emb_ln.weight")
        folder = "encoder.layers" if is_original else "layers"
        super().__init__(
            config,
            weights,
            prefix=prefix,
            norm="emb_ln" if is_original else "embeddings.LayerNorm",
            eps=eps,
            layers=[
                _load_layer(
                    config, weights, f"{prefix}{folder}.{index}.", eps, is_original=is_original
                )
                for index in range(config.integer("num_hidden_layers"))
            ],
            positions=RopeConfig(config, 1000.0),
            max_positions=2048,
            token_types=2,
        )


class NomicBertForSequenceClassification(PooledForSequenceClassification):
    """Pooler over the first token, then one logit for each label; a `Model`."""

    backbone_class = NomicBertModel
    pooler_names = ("nomic_bert.pooler.dense", "pooler.dense")


def _load_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float, *, is_original: bool
) -> PostNormLayer:
    gate, up, down = (
        ("fc12", "fc11", "fc2") if is_original else ("gate_proj", "up_proj", "down_proj")
    )
    feed_forward = load_gated_feed_forward(
        config,
        weights,
        prefix,
        gate=f"mlp.{gate}",
        up=f"mlp.{up}",
        down=f"mlp.{down}",
        activation=config.string("hidden_act", "silu"),
        up_bias=config.boolean("mlp_fc1_bias", False),
        down_bias=config.boolean("mlp_fc2_bias", False),
    )
    names = _ORIGINAL_NAMES if is_original else TRANSFORMERS_NAMES
    bias = config.boolean("qkv_proj_bias", False)
    return load_layer(config, weights, prefix, names, feed_forward, eps, bias=bias)


def _translated(config: JsonObject) -> JsonObject:
    """Nomic's own configuration in transformers' names.

    Raises:
        ModelLoadError: it asks for what is not computed here.
    """
    for name, value in _FIXED.items():
        found = config.values.get(name, value)
        if found != value and not (value in (0, None) and not found):
            raise ModelLoadError(f"{config.label}: {name} {found!r} is not supported")
    values = dict(config.values)
    for name, new_name in _CONFIG_NAMES.items():
        if name in values:
            values.setdefault(new_name, values[name])
    if "activation_function" in values:
        activation = config.string("activation_function")
        gates = {"swiglu": "silu", "geglu": "gelu"}
        if activation not in gates:
            raise ModelLoadError(
                f"{config.label}: activation_function {activation!r} is not supported; "
                f"supported are {', '.join(gates)}"
            )
        values["hidden_act"] = gates[activation]
    return JsonObject(config.label, values)
