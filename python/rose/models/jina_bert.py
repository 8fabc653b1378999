"""Jina-BERT (Jina AI, 2023): BERT with ALiBi in both directions and a gated feed-forward."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend, AttentionShape, PositionBias
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice
from rose.layers.feed_forward import GatedFeedForward
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.layers.post_norm_encoder import PostNormEncoder, PostNormLayer, TypedEmbeddings
from rose.models.base import WeightSource
from rose.models.encoder_classifier import PooledForSequenceClassification

# Gated layers by `feed_forward_type`; others are not gated, or not of this family.
_GATES = {"geglu": "gelu"}


class JinaBertModel:
    """Embeddings and encoder layers; a `Backbone`."""

    base_prefix = "bert."
    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "cls.*",
        "classifier.*",
        "*.position_ids",
    )
    position_offset = 0

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        kind = config.string("position_embedding_type", "absolute")
        if kind != "alibi":
            raise config.wrong("position_embedding_type", "alibi", kind)
        feed_forward = config.string("feed_forward_type", "original")
        if feed_forward not in _GATES:
            raise config.wrong("feed_forward_type", ", ".join(_GATES), feed_forward)
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.max_positions = config.integer("max_position_embeddings", 512)
        num_heads = config.integer("num_attention_heads")
        if self.hidden_size % num_heads:
            raise ModelLoadError(
                f"{config.label}: hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {num_heads}"
            )
        head_dim = self.hidden_size // num_heads
        self.attention_shape = AttentionShape(
            num_heads,
            num_heads,
            head_dim,
            head_dim**-0.5,
            bias=alibi(num_heads, self.max_positions, weights.device),
        )
        num_types = config.integer("type_vocab_size", 2, minimum=0)
        self.token_types = num_types > 1
        eps = config.number("layer_norm_eps", 1e-12)
        word = f"{self.base_prefix}embeddings.word_embeddings.weight"
        prefix = self.base_prefix if weights.has(word) else ""
        self.embeddings = TypedEmbeddings.load(
            weights,
            prefix,
            vocab_size=self.vocab_size,
            num_token_types=num_types,
            hidden_size=self.hidden_size,
            norm="embeddings.LayerNorm",
            eps=eps,
        )
        self.encoder = PostNormEncoder(
            [
                _load_layer(
                    config, weights, f"{prefix}encoder.layer.{index}.", eps, _GATES[feed_forward]
                )
                for index in range(config.integer("num_hidden_layers"))
            ],
            self.attention_shape,
            rope=None,
        )

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        x, bad_rows = self.embeddings(batch)
        return self.encoder(x, bad_rows, batch, attention, rows)


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
    hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")
    both = weights.take(f"{prefix}mlp.gated_layers.weight", 2 * intermediate, hidden)
    gate, up = both.chunk(2)
    parts = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
    return PostNormLayer(
        load_linear(weights, parts, hidden, hidden),
        load_linear(weights, f"{prefix}attention.output.dense", hidden, hidden),
        LayerNorm.load(weights, f"{prefix}attention.output.LayerNorm", hidden, eps),
        GatedFeedForward(
            (gate, None),
            (up, None),
            load_linear(weights, f"{prefix}mlp.wo", intermediate, hidden),
            activation,
        ),
        LayerNorm.load(weights, f"{prefix}mlp.layernorm", hidden, eps),
    )
