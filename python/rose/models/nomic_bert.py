"""NomicBERT (Nomic AI, 2024): BERT with rotary positions and a gated feed-forward, few biases."""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice
from rose.layers.feed_forward import GatedFeedForward
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.layers.post_norm_encoder import PostNormEncoder, PostNormLayer, TypedEmbeddings
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource
from rose.models.encoder_classifier import PooledForSequenceClassification

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


class NomicBertModel:
    """Embeddings and encoder layers; a `Backbone`. Nomic's tensor names and transformers'."""

    unused_weights: ClassVar[tuple[str, ...]] = ("*pooler.*", "cls.*", "classifier.*", "*.inv_freq")
    position_offset = 0

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        config = _translated(config)
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.max_positions = config.integer("max_position_embeddings", 2048)
        num_heads = config.integer("num_attention_heads")
        if self.hidden_size % num_heads:
            raise ModelLoadError(
                f"{config.label}: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {num_heads}"
            )
        head_dim = config.integer("head_dim", self.hidden_size // num_heads)
        self.attention_shape = AttentionShape(num_heads, num_heads, head_dim, head_dim**-0.5)
        num_types = config.integer("type_vocab_size", 2, minimum=0)
        self.token_types = num_types > 1
        names = _Names(weights)
        self.embeddings = TypedEmbeddings.load(
            weights,
            names.prefix,
            vocab_size=self.vocab_size,
            num_token_types=num_types,
            hidden_size=self.hidden_size,
            norm=names.embedding_norm,
            eps=config.number("layer_norm_eps", 1e-12),
        )
        rope = RopeConfig(config, 1000.0)
        self.encoder = PostNormEncoder(
            [
                _load_layer(config, weights, names, index)
                for index in range(config.integer("num_hidden_layers"))
            ],
            self.attention_shape,
            rope.table(self.max_positions, head_dim, weights.device),
        )

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        x, bad_rows = self.embeddings(batch)
        return self.encoder(x, bad_rows, batch, attention, rows)


class NomicBertForSequenceClassification(PooledForSequenceClassification):
    """Pooler over the first token, then one logit for each label; a `Model`."""

    backbone_class = NomicBertModel
    pooler_names = ("nomic_bert.pooler.dense", "pooler.dense")


class _Names:
    """Tensor names of one checkpoint."""

    def __init__(self, weights: WeightSource) -> None:
        word = "embeddings.word_embeddings.weight"
        prefixes = ("bert.", "nomic_bert.", "")
        self.prefix = next((p for p in prefixes if p and weights.has(p + word)), "")
        self.is_original = weights.has(f"{self.prefix}emb_ln.weight")
        self.embedding_norm = "emb_ln" if self.is_original else "embeddings.LayerNorm"

    def layer(self, index: int) -> str:
        folder = "encoder.layers" if self.is_original else "layers"
        return f"{self.prefix}{folder}.{index}."


def _load_layer(
    config: JsonObject, weights: WeightSource, names: _Names, index: int
) -> PostNormLayer:
    prefix = names.layer(index)
    hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")
    eps = config.number("layer_norm_eps", 1e-12)
    qkv_bias = config.boolean("qkv_proj_bias", False)
    up_bias = config.boolean("mlp_fc1_bias", False)
    down_bias = config.boolean("mlp_fc2_bias", False)
    if names.is_original:
        qkv_proj = load_linear(weights, f"{prefix}attn.Wqkv", hidden, 3 * hidden, bias=qkv_bias)
        out, gate, up, down = "attn.out_proj", "mlp.fc12", "mlp.fc11", "mlp.fc2"
        norms = "norm1", "norm2"
    else:
        parts = [f"{prefix}self_attn.{name}_proj" for name in "qkv"]
        qkv_proj = load_linear(weights, parts, hidden, hidden, bias=qkv_bias)
        out, gate, up, down = "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"
        norms = "post_attention_layernorm", "post_mlp_layernorm"

    def half(name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        return (
            weights.take(f"{prefix}{name}.weight", intermediate, hidden),
            weights.take(f"{prefix}{name}.bias", intermediate) if up_bias else None,
        )

    return PostNormLayer(
        qkv_proj,
        load_linear(weights, f"{prefix}{out}", hidden, hidden, bias=qkv_bias),
        LayerNorm.load(weights, f"{prefix}{norms[0]}", hidden, eps),
        GatedFeedForward(
            half(gate),
            half(up),
            load_linear(weights, f"{prefix}{down}", intermediate, hidden, bias=down_bias),
            config.string("hidden_act", "silu"),
        ),
        LayerNorm.load(weights, f"{prefix}{norms[1]}", hidden, eps),
    )


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
