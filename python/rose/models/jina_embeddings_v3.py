"""Jina embeddings v3 (Jina AI, 2024): XLM-RoBERTa with rotary positions, without its adapters."""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice
from rose.layers.feed_forward import FeedForward
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.layers.post_norm_encoder import PostNormEncoder, PostNormLayer, TypedEmbeddings
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource


class JinaEmbeddingsV3Model:
    """Embeddings and encoder layers; a `Backbone`."""

    base_prefix = "roberta."
    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "lm_head.*",
        "classifier.*",
        "*.inv_freq",
    )
    token_types = False
    position_offset = 0

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.max_positions = config.integer("max_position_embeddings", 8194)
        num_heads = config.integer("num_attention_heads")
        if self.hidden_size % num_heads:
            raise ModelLoadError(
                f"{config.label}: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {num_heads}"
            )
        head_dim = self.hidden_size // num_heads
        self.attention_shape = AttentionShape(num_heads, num_heads, head_dim, head_dim**-0.5)
        eps = config.number("layer_norm_eps", 1e-5)
        word = f"{self.base_prefix}embeddings.word_embeddings.weight"
        prefix = self.base_prefix if weights.has(word) else ""
        # The published names are those of the FlashAttention library's BERT.
        is_published = weights.has(f"{prefix}emb_ln.weight")
        load_layer = _load_published_layer if is_published else _load_layer
        folder = "encoder.layers" if is_published else "layers"
        self.embeddings = TypedEmbeddings.load(
            weights,
            prefix,
            vocab_size=self.vocab_size,
            num_token_types=config.integer("type_vocab_size", 1),
            hidden_size=self.hidden_size,
            norm="emb_ln" if is_published else "embeddings.LayerNorm",
            eps=eps,
        )
        self.encoder = PostNormEncoder(
            [
                load_layer(config, weights, f"{prefix}{folder}.{index}.", eps)
                for index in range(config.integer("num_hidden_layers"))
            ],
            self.attention_shape,
            RopeConfig(config, 20000.0).table(self.max_positions, head_dim, weights.device),
        )

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        x, bad_rows = self.embeddings(batch)
        return self.encoder(x, bad_rows, batch, attention, rows)


def _load_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float
) -> PostNormLayer:
    hidden = config.integer("hidden_size")
    parts = [f"{prefix}self_attn.{name}_proj" for name in "qkv"]
    return PostNormLayer(
        load_linear(weights, parts, hidden, hidden),
        load_linear(weights, f"{prefix}self_attn.o_proj", hidden, hidden),
        LayerNorm.load(weights, f"{prefix}post_attention_layernorm", hidden, eps),
        _load_feed_forward(config, weights, prefix),
        LayerNorm.load(weights, f"{prefix}post_mlp_layernorm", hidden, eps),
    )


def _load_published_layer(
    config: JsonObject, weights: WeightSource, prefix: str, eps: float
) -> PostNormLayer:
    hidden = config.integer("hidden_size")
    return PostNormLayer(
        load_linear(weights, f"{prefix}mixer.Wqkv", hidden, 3 * hidden),
        load_linear(weights, f"{prefix}mixer.out_proj", hidden, hidden),
        LayerNorm.load(weights, f"{prefix}norm1", hidden, eps),
        _load_feed_forward(config, weights, prefix),
        LayerNorm.load(weights, f"{prefix}norm2", hidden, eps),
    )


def _load_feed_forward(config: JsonObject, weights: WeightSource, prefix: str) -> FeedForward:
    hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")
    activation = config.string("hidden_act", "gelu")
    return FeedForward(
        load_linear(weights, f"{prefix}mlp.fc1", hidden, intermediate, activation=activation),
        load_linear(weights, f"{prefix}mlp.fc2", intermediate, hidden),
    )
