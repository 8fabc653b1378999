"""Llama (Meta, 2023): pre-norm decoder, grouped queries, rotary positions, gated feed-forward.

Qwen2, Qwen3 and Mistral are this model with a few differences. The bidirectional variants (Nemotron)
drop the mask and keep the names.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.config import PoolingMode
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.embedding import embedding_rms_norm
from rose.kernels.norm import add_rms_norm, mark_bad_sequences
from rose.kernels.pooling import RowChoice, select_rows
from rose.layers.feed_forward import GatedFeedForward
from rose.layers.grouped_query_attention import GroupedQueryAttention
from rose.layers.linear import Linear
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource
from rose.models.decoder_classifier import DecoderForSequenceClassification

_NEMOTRON_POOLING: dict[str, PoolingMode] = {
    "avg": "mean",
    "cls": "cls",
    "last": "last_token",
}
# Of configurations that do not say; null says that there is no window.
DEFAULT_WINDOW = 4096
# Below this many tokens a GEMM takes no longer for all rows than for one row a sequence.
_ROW_CHOICE_MIN_TOKENS = 1024


class LlamaLayer:
    """Attention, then gated feed-forward, each behind a norm and added to the residual stream."""

    def __init__(
        self,
        weights: WeightSource,
        prefix: str,
        hidden_size: int,
        intermediate_size: int,
        attention: GroupedQueryAttention,
        eps: float,
        *,
        mlp_bias: bool,
        windowed: bool,
    ) -> None:
        self.windowed = windowed
        self.eps = eps
        self.attention = attention
        self.input_norm = weights.take(f"{prefix}input_layernorm.weight", hidden_size)
        self.post_attention_norm = weights.take(
            f"{prefix}post_attention_layernorm.weight", hidden_size
        )
        self.feed_forward = load_gated_feed_forward(
            weights, f"{prefix}mlp.", hidden_size, intermediate_size, "silu", bias=mlp_bias
        )

    def after_attention(
        self, context: torch.Tensor, residual: torch.Tensor, bad_rows: torch.Tensor | None
    ) -> torch.Tensor | None:
        """Adds attention and feed-forward to `residual`, in place.

        Returns:
            What the norm behind this layer still has to add, as `Linear.into` gives it.
        """
        out = self.attention.o_proj.into(residual, context)
        x = add_rms_norm(out, residual, self.post_attention_norm, self.eps, bad_rows)
        return self.feed_forward.down.into(residual, self.feed_forward.inner(x))


class LlamaModel:
    """Embedding, decoder layers, last norm; a `Backbone`."""

    base_prefix = "model."
    # Tied or not, the vocabulary head is no part of an embedding.
    unused_weights: ClassVar[tuple[str, ...]] = (
        "lm_head.weight",
        "*.rotary_emb.inv_freq",
        "score.weight",
    )
    token_types = False
    position_offset = 0

    tied_by_default: ClassVar[bool] = False

    # What subclasses change.
    causal = True
    head_norms = False
    qkv_bias = False
    default_theta = 10000.0
    default_positions = 2048
    default_head_dim: int | None = None
    """None = hidden_size / num_attention_heads."""

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        activation = config.string("hidden_act", "silu")
        if activation != "silu":
            raise ModelLoadError(
                f"{config.label}: hidden_act {activation!r} is not supported: silu"
            )
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.eps = config.number("rms_norm_eps", 1e-6)
        rope = RopeConfig(config, self.default_theta)
        num_positions = config.integer("max_position_embeddings", self.default_positions)
        self.max_positions = rope.num_positions(num_positions)
        windowed = self.windowed_layers(config)
        self.attention_shape = self._attention_shape(config, windowed)
        self.prefix = self.base_prefix if weights.has(f"{self.base_prefix}norm.weight") else ""
        self.words = weights.take(
            f"{self.prefix}embed_tokens.weight", self.vocab_size, self.hidden_size
        )
        self.layers = [
            self._load_layer(config, weights, f"{self.prefix}layers.{index}.", sees_window)
            for index, sees_window in enumerate(windowed)
        ]
        self.norm = weights.take(f"{self.prefix}norm.weight", self.hidden_size)
        self.rope = rope.table(num_positions, self.attention_shape.head_dim, weights.device)

    def windowed_layers(self, config: JsonObject) -> list[bool]:
        """For each layer whether it sees a window of `sliding_window` tokens only."""
        return [False] * config.integer("num_hidden_layers")

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        last = self.layers[-1]
        residual, x, bad_rows = embedding_rms_norm(
            batch, self.words, self.layers[0].input_norm, self.eps
        )
        for layer, following in zip(self.layers, self.layers[1:], strict=False):
            context = self._attend(layer, x, batch, attention)
            out = layer.after_attention(context, residual, bad_rows)
            x = add_rms_norm(out, residual, following.input_norm, self.eps, bad_rows)
        context = self._attend(last, x, batch, attention)
        few = batch.padded_tokens >= max(_ROW_CHOICE_MIN_TOKENS, 2 * batch.padded_sequences)
        if rows is not None and few:
            # Behind the last attention only one row of each sequence matters.
            context = select_rows(context, batch.cu_seqlens, rows)
            residual = select_rows(residual, batch.cu_seqlens, rows)
        out = last.after_attention(context, residual, None)
        x = add_rms_norm(out, residual, self.norm, self.eps, None)
        if rows is not None and not few:
            x = select_rows(x, batch.cu_seqlens, rows)
        return mark_bad_sequences(x, batch.cu_seqlens, bad_rows, one_row=rows is not None)

    def _attend(
        self, layer: LlamaLayer, x: torch.Tensor, batch: ForwardBatch, attention: AttentionBackend
    ) -> torch.Tensor:
        backend = attention.local if layer.windowed else attention
        return layer.attention.context(x, batch.positions, self.rope, backend)

    def _load_layer(
        self, config: JsonObject, weights: WeightSource, prefix: str, windowed: bool
    ) -> LlamaLayer:
        bias = config.boolean("attention_bias", False)
        head_norms = None
        if self.head_norms:
            head_dim = self.attention_shape.head_dim
            head_norms = (
                weights.take(f"{prefix}self_attn.q_norm.weight", head_dim),
                weights.take(f"{prefix}self_attn.k_norm.weight", head_dim),
            )
        attention = GroupedQueryAttention(
            weights,
            f"{prefix}self_attn.",
            self.hidden_size,
            self.attention_shape,
            qkv_bias=bias or self.qkv_bias,
            out_bias=bias,
            head_norms=head_norms,
            eps=self.eps,
        )
        return LlamaLayer(
            weights,
            prefix,
            self.hidden_size,
            config.integer("intermediate_size"),
            attention,
            self.eps,
            mlp_bias=config.boolean("mlp_bias", False),
            windowed=windowed,
        )

    def _attention_shape(self, config: JsonObject, windowed: list[bool]) -> AttentionShape:
        num_heads = config.integer("num_attention_heads")
        num_kv_heads = config.integer("num_key_value_heads", num_heads)
        head_dim = config.integer(
            "head_dim", self.default_head_dim or max(1, self.hidden_size // num_heads)
        )
        if num_heads % num_kv_heads:
            raise ModelLoadError(
                f"{config.label}: num_attention_heads {num_heads} is not a multiple of "
                f"num_key_value_heads {num_kv_heads}"
            )
        causal = self._is_causal(config)

        def shape(
            window: tuple[int, int] | None = None, local: AttentionShape | None = None
        ) -> AttentionShape:
            return AttentionShape(
                num_heads,
                num_kv_heads,
                head_dim,
                head_dim**-0.5,
                causal=causal,
                window=window,
                local=local,
            )

        if not any(windowed):
            return shape()
        # The window counts the query itself.
        reach = config.integer("sliding_window", DEFAULT_WINDOW) - 1
        window = (reach, 0 if causal else reach)
        return shape(window) if all(windowed) else shape(local=shape(window))

    def _is_causal(self, config: JsonObject) -> bool:
        # `is_causal` and `use_bidirectional_attention` are how configurations drop the mask.
        bidirectional = config.boolean("use_bidirectional_attention", False)
        return config.boolean("is_causal", self.causal) and not bidirectional


class BidirectionalLlamaModel(LlamaModel):
    """Every token sees its whole sequence, as in NVIDIA's retrieval models."""

    causal = False


class LlamaForSequenceClassification(DecoderForSequenceClassification):
    """Logits of the last token; a `Model`."""

    backbone_class = LlamaModel


class BidirectionalLlamaForSequenceClassification(DecoderForSequenceClassification):
    """Logits of pooled rows, divided by a temperature (Nemotron rerank); a `Model`."""

    backbone_class = BidirectionalLlamaModel

    def pooling_mode(self, config: JsonObject) -> PoolingMode:
        """From `pooling`, in NVIDIA's names.

        Raises:
            ModelLoadError: it is not known.
        """
        name = config.string("pooling", "avg")
        if name not in _NEMOTRON_POOLING:
            raise config.wrong("pooling", f"one of {', '.join(_NEMOTRON_POOLING)}", name)
        return _NEMOTRON_POOLING[name]


def load_gated_feed_forward(
    weights: WeightSource,
    prefix: str,
    hidden_size: int,
    intermediate_size: int,
    activation: str,
    *,
    bias: bool = False,
) -> GatedFeedForward:
    """`PREFIXgate_proj` and `up_proj` (or both in `gate_up_proj`), and `down_proj`."""

    def linear(name: str, rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return (
            weights.take(f"{prefix}{name}.weight", rows, hidden_size),
            weights.take(f"{prefix}{name}.bias", rows) if bias else None,
        )

    if weights.has(f"{prefix}gate_up_proj.weight"):
        both, both_bias = linear("gate_up_proj", 2 * intermediate_size)
        gate_weight, up_weight = both.chunk(2)
        gate_bias, up_bias = (None, None) if both_bias is None else both_bias.chunk(2)
        gate, up = (gate_weight, gate_bias), (up_weight, up_bias)
    else:
        gate = linear("gate_proj", intermediate_size)
        up = linear("up_proj", intermediate_size)
    down = Linear(
        weights.take(f"{prefix}down_proj.weight", hidden_size, intermediate_size),
        weights.take(f"{prefix}down_proj.bias", hidden_size) if bias else None,
    )
    return GatedFeedForward(gate, up, down, activation, packed=False)
