"""BERT without position embeddings: what NomicBERT, GTE, Jina-BERT and Jina embeddings v3 share.

Each family says what it computes, where its tensors are, and how positions come in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from rose.attention.base import AttentionBackend, AttentionShape, PositionBias
from rose.checkpoint.json_object import JsonObject
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice
from rose.layers.feed_forward import FeedForward, GatedFeedForward
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.layers.post_norm_encoder import PostNormEncoder, PostNormLayer, TypedEmbeddings
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource

_Part: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"""Weight and bias of one half of a gated layer."""


class PostNormBert:
    """Embeddings and encoder layers; a `Backbone`.

    Args:
        config: In transformers' names.
        weights: Of the checkpoint.
        prefix: Of the embeddings' tensors.
        norm: Name of the embeddings' norm, behind the prefix.
        eps: Of that norm.
        layers: All of them, in order.
        positions: Rotary ones, or biases of the attention.
        max_positions: Longest sequence where the configuration says nothing.
        token_types: Their number where the configuration says nothing.
    """

    position_offset = 0

    def __init__(
        self,
        config: JsonObject,
        weights: WeightSource,
        *,
        prefix: str,
        norm: str,
        eps: float,
        layers: list[PostNormLayer],
        positions: RopeConfig | PositionBias,
        max_positions: int,
        token_types: int,
    ) -> None:
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.max_positions = config.integer("max_position_embeddings", max_positions)
        num_types = config.integer("type_vocab_size", token_types, minimum=0)
        self.token_types = num_types > 1
        num_heads = config.integer("num_attention_heads")
        head_dim = config.quotient("hidden_size", "num_attention_heads")
        rope = bias = None
        if isinstance(positions, RopeConfig):
            rope = positions.table(self.max_positions, head_dim, weights.device)
        else:
            bias = positions
        self.attention_shape = AttentionShape(
            num_heads, num_heads, head_dim, head_dim**-0.5, bias=bias
        )
        self.embeddings = TypedEmbeddings.load(
            weights,
            prefix,
            vocab_size=self.vocab_size,
            num_token_types=num_types,
            hidden_size=self.hidden_size,
            norm=norm,
            eps=eps,
        )
        self.encoder = PostNormEncoder(layers, self.attention_shape, rope)

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        x, bad_rows = self.embeddings(batch)
        return self.encoder(x, bad_rows, batch, attention, rows)


def find_prefix(weights: WeightSource, prefixes: Sequence[str]) -> str:
    """The first of `prefixes` under which there are word embeddings; empty where none is."""
    word = "embeddings.word_embeddings.weight"
    return next((prefix for prefix in prefixes if weights.has(prefix + word)), "")


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Tensor names of a layer, behind its prefix."""

    qkv: str | tuple[str, str, str]
    """Query, key and value in one tensor, or in three."""
    out: str
    attention_norm: str
    output_norm: str


# transformers gives these families' layers the same names.
TRANSFORMERS_NAMES = LayerNames(
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj",
    "post_attention_layernorm",
    "post_mlp_layernorm",
)


def load_layer(
    config: JsonObject,
    weights: WeightSource,
    prefix: str,
    names: LayerNames,
    feed_forward: FeedForward | GatedFeedForward,
    eps: float,
    *,
    bias: bool = True,
) -> PostNormLayer:
    """Attention and norms by `names`; `bias` is that of the attention's projections."""
    hidden = config.integer("hidden_size")
    if isinstance(names.qkv, str):
        qkv_proj = load_linear(weights, prefix + names.qkv, hidden, 3 * hidden, bias=bias)
    else:
        parts = [prefix + name for name in names.qkv]
        qkv_proj = load_linear(weights, parts, hidden, hidden, bias=bias)
    return PostNormLayer(
        qkv_proj,
        load_linear(weights, prefix + names.out, hidden, hidden, bias=bias),
        LayerNorm.load(weights, prefix + names.attention_norm, hidden, eps),
        feed_forward,
        LayerNorm.load(weights, prefix + names.output_norm, hidden, eps),
    )


def load_gated_feed_forward(
    config: JsonObject,
    weights: WeightSource,
    prefix: str,
    *,
    down: str,
    activation: str,
    gate: str = "",
    up: str = "",
    both: str = "",
    up_first: bool = False,
    up_bias: bool = False,
    down_bias: bool = True,
) -> GatedFeedForward:
    """From the tensors `gate` and `up`, or from one with `both`, whose first half is `up_first`."""
    hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")

    def half(name: str) -> _Part:
        weight = weights.take(f"{prefix}{name}.weight", intermediate, hidden)
        return weight, weights.take(f"{prefix}{name}.bias", intermediate) if up_bias else None

    if both:
        first, second = weights.take(f"{prefix}{both}.weight", 2 * intermediate, hidden).chunk(2)
        parts = (second, first) if up_first else (first, second)
        gate_part: _Part = parts[0], None
        up_part: _Part = parts[1], None
    else:
        gate_part, up_part = half(gate), half(up)
    down_proj = load_linear(weights, prefix + down, intermediate, hidden, bias=down_bias)
    return GatedFeedForward(gate_part, up_part, down_proj, activation)
