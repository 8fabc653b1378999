"""GTE (Alibaba, 2024): BERT with rotary positions and a gated feed-forward.

gte-multilingual and gte-v1.5 as published (`NewModel`), and as transformers writes them.
"""

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

# What the published code can do besides, and the only values computed here.
_FIXED = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
}


class GteModel:
    """Embeddings and encoder layers; a `Backbone`."""

    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "lm_head.*",
        "classifier.*",
        "*.inv_freq",
        "*.position_ids",
    )
    position_offset = 0

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        for name, value in _FIXED.items():
            if config.values.get(name, value) != value:
                raise ModelLoadError(
                    f"{config.label}: {name} {config.values[name]!r} is not supported: {value!r}"
                )
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.max_positions = config.integer("max_position_embeddings", 8192)
        num_heads = config.integer("num_attention_heads")
        if self.hidden_size % num_heads:
            raise ModelLoadError(
                f"{config.label}: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {num_heads}"
            )
        head_dim = self.hidden_size // num_heads
        self.attention_shape = AttentionShape(num_heads, num_heads, head_dim, head_dim**-0.5)
        num_types = config.integer("type_vocab_size", 1, minimum=0)
        self.token_types = num_types > 1
        eps = config.number("layer_norm_eps", 1e-12)
        word = "embeddings.word_embeddings.weight"
        prefix = next((p for p in ("new.", "gte.") if weights.has(p + word)), "")
        self.embeddings = TypedEmbeddings.load(
            weights,
            prefix,
            vocab_size=self.vocab_size,
            num_token_types=num_types,
            hidden_size=self.hidden_size,
            norm="embeddings.LayerNorm",
            eps=eps,
        )
        is_published = weights.has(f"{prefix}encoder.layer.0.attention.qkv_proj.weight")
        load_layer = _load_published_layer if is_published else _load_layer
        folder = "encoder.layer" if is_published else "layers"
        rope = RopeConfig(config, 10000.0 if is_published else 160000.0)
        self.encoder = PostNormEncoder(
            [
                load_layer(config, weights, f"{prefix}{folder}.{index}.", eps)
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


class GteForSequenceClassification(PooledForSequenceClassification):
    """Pooler over the first token, then one logit for each label; a `Model`."""

    backbone_class = GteModel
    pooler_names = ("new.pooler.dense", "gte.pooler.dense", "pooler.dense")


def _load_published_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float
) -> PostNormLayer:
    hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")
    both = weights.take(f"{prefix}mlp.up_gate_proj.weight", 2 * intermediate, hidden)
    up, gate = both.chunk(2)
    return PostNormLayer(
        load_linear(weights, f"{prefix}attention.qkv_proj", hidden, 3 * hidden),
        load_linear(weights, f"{prefix}attention.o_proj", hidden, hidden),
        LayerNorm.load(weights, f"{prefix}attn_ln", hidden, eps),
        GatedFeedForward(
            (gate, None),
            (up, None),
            load_linear(weights, f"{prefix}mlp.down_proj", intermediate, hidden),
            config.string("hidden_act", "gelu"),
        ),
        LayerNorm.load(weights, f"{prefix}mlp_ln", hidden, eps),
    )


def _load_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float
) -> PostNormLayer:
    hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")
    gate = weights.take(f"{prefix}mlp.gate_proj.weight", intermediate, hidden)
    up = weights.take(f"{prefix}mlp.up_proj.weight", intermediate, hidden)
    parts = [f"{prefix}self_attn.{name}_proj" for name in "qkv"]
    return PostNormLayer(
        load_linear(weights, parts, hidden, hidden),
        load_linear(weights, f"{prefix}self_attn.o_proj", hidden, hidden),
        LayerNorm.load(weights, f"{prefix}post_attention_layernorm", hidden, eps),
        GatedFeedForward(
            (gate, None),
            (up, None),
            load_linear(weights, f"{prefix}mlp.down_proj", intermediate, hidden),
            config.string("hidden_act", "gelu"),
        ),
        LayerNorm.load(weights, f"{prefix}post_mlp_layernorm", hidden, eps),
    )
