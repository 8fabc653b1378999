"""ModernBERT (Warner et al., 2024): pre-norm encoder, rotary positions, gated feed-forward.

Every third layer sees the whole sequence, the others 64 tokens to each side.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend, AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.forward_batch import ForwardBatch
from rose.kernels.norm import mark_bad_sequences
from rose.kernels.pooling import RowChoice, select_rows
from rose.kernels.rope import HeadRotation, RopeTable
from rose.layers.feed_forward import GatedFeedForward
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm, new_bad_rows
from rose.layers.pooling import Pooling
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource
from rose.models.qwen2 import layer_types_windowed


class ModernBertLayer:
    """Attention, then gated feed-forward, each behind a norm and added to the residual stream."""

    def __init__(
        self,
        config: JsonObject,
        weights: WeightSource,
        prefix: str,
        shape: AttentionShape,
        *,
        is_first: bool,
        windowed: bool,
    ) -> None:
        hidden, intermediate = config.integer("hidden_size"), config.integer("intermediate_size")
        self.shape = shape
        self.windowed = windowed
        bias = config.boolean("attention_bias", False)
        self.qkv_proj = load_linear(weights, f"{prefix}attn.Wqkv", hidden, 3 * hidden, bias=bias)
        self.out_proj = load_linear(weights, f"{prefix}attn.Wo", hidden, hidden, bias=bias)
        # The embeddings have just been normed.
        self.attention_norm = None if is_first else load_norm(config, weights, f"{prefix}attn_norm")
        self.feed_forward_norm = load_norm(config, weights, f"{prefix}mlp_norm")
        mlp_bias = config.boolean("mlp_bias", False)
        gate, up = weights.take(f"{prefix}mlp.Wi.weight", 2 * intermediate, hidden).chunk(2)
        gate_bias = up_bias = None
        if mlp_bias:
            gate_bias, up_bias = weights.take(f"{prefix}mlp.Wi.bias", 2 * intermediate).chunk(2)
        self.feed_forward = GatedFeedForward(
            (gate, gate_bias),
            (up, up_bias),
            load_linear(weights, f"{prefix}mlp.Wo", intermediate, hidden, bias=mlp_bias),
            config.string("hidden_activation", "gelu"),
        )

    def context(
        self,
        residual: torch.Tensor,
        bad_rows: torch.Tensor | None,
        positions: torch.Tensor,
        rope: RopeTable,
        attention: AttentionBackend,
    ) -> torch.Tensor:
        """[tokens, hidden] to [tokens, hidden], before the output projection."""
        norm = self.attention_norm
        x = residual if norm is None else norm.contained(residual, bad_rows)
        qkv = self.qkv_proj(x)
        return attention.attend_rotated(qkv, positions, HeadRotation(rope)).view(x.shape)

    def after_attention(
        self, context: torch.Tensor, residual: torch.Tensor, bad_rows: torch.Tensor | None
    ) -> torch.Tensor:
        """The residual stream with attention and feed-forward added; may write into `residual`."""
        residual = self.out_proj.add_to(residual, context)
        x = self.feed_forward_norm.contained(residual, bad_rows)
        return self.feed_forward.down.add_to(residual, self.feed_forward.inner(x))


class ModernBertModel:
    """Embedding, encoder layers, last norm; a `Backbone`."""

    base_prefix = "model."
    # Heads of other tasks.
    unused_weights: ClassVar[tuple[str, ...]] = ("head.*", "decoder.*", "classifier.*")
    token_types = False
    position_offset = 0

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.max_positions = config.integer("max_position_embeddings", 8192)
        self.attention_shape = _attention_shape(config)
        head_dim = self.attention_shape.head_dim
        self.rope, self.local_rope = (
            RopeConfig(config, theta, layer_type=layer_type, theta_field=field).table(
                self.max_positions, head_dim, weights.device
            )
            for theta, layer_type, field in (
                (160000.0, "full_attention", "global_rope_theta"),
                (10000.0, "sliding_attention", "local_rope_theta"),
            )
        )
        table = "embeddings.tok_embeddings.weight"
        prefix = self.base_prefix if weights.has(f"{self.base_prefix}{table}") else ""
        self.words = weights.take(f"{prefix}{table}", self.vocab_size, self.hidden_size)
        self.embedding_norm = load_norm(config, weights, f"{prefix}embeddings.norm")
        self.layers = [
            ModernBertLayer(
                config,
                weights,
                f"{prefix}layers.{index}.",
                self.attention_shape,
                is_first=index == 0,
                windowed=windowed,
            )
            for index, windowed in enumerate(_windowed_layers(config))
        ]
        self.norm = load_norm(config, weights, f"{prefix}final_norm")

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        residual = F.embedding(batch.token_ids, self.words)
        bad_rows = new_bad_rows(residual)
        residual = self.embedding_norm.contained(residual, bad_rows)
        for layer in self.layers:
            backend, rope = (
                (attention.local, self.local_rope) if layer.windowed else (attention, self.rope)
            )
            context = layer.context(residual, bad_rows, batch.positions, rope, backend)
            if rows is not None and layer is self.layers[-1]:
                # Behind the last attention only one row of each sequence matters.
                context = select_rows(context, batch.cu_seqlens, rows)
                residual = select_rows(residual, batch.cu_seqlens, rows)
                residual = layer.after_attention(context, residual, None)
            else:
                residual = layer.after_attention(context, residual, bad_rows)
        x = self.norm.contained(residual, None)
        if bad_rows is None:
            return x
        return mark_bad_sequences(x, batch.cu_seqlens, bad_rows, one_row=rows is not None)


class ModernBertForSequenceClassification:
    """Dense layer, activation and norm on a pooled row, then one logit for each label; a `Model`."""

    unused_weights: ClassVar[tuple[str, ...]] = ("decoder.*",)

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = ModernBertModel(config, weights)
        self.output_width = num_labels
        hidden = self.backbone.hidden_size
        kind = config.string("classifier_pooling", "cls")
        if kind not in ("cls", "mean"):
            raise config.wrong("classifier_pooling", "cls or mean", kind)
        self.pooling = Pooling(("mean" if kind == "mean" else "cls",))
        self.dense = load_linear(
            weights,
            "head.dense",
            hidden,
            hidden,
            bias=config.boolean("classifier_bias", False),
            activation=config.string("classifier_activation", "gelu"),
        )
        self.norm = load_norm(config, weights, "head.norm")
        self.classifier = load_linear(weights, "classifier", hidden, num_labels)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        choice = self.pooling.row_choice
        if choice is not None:
            rows = self.backbone(batch, attention, choice)
        else:
            hidden = self.backbone(batch, attention)
            rows = self.pooling(hidden, batch).to(hidden.dtype)
        return self.classifier(self.norm(self.dense(rows))).float()


def load_norm(config: JsonObject, weights: WeightSource, name: str) -> LayerNorm:
    """A norm of this configuration: without bias, as a rule."""
    return LayerNorm.load(
        weights,
        name,
        config.integer("hidden_size"),
        config.number("norm_eps", 1e-5),
        bias=config.boolean("norm_bias", False),
    )


def _windowed_layers(config: JsonObject) -> list[bool]:
    num_layers = config.integer("num_hidden_layers")
    if config.has("layer_types"):
        return layer_types_windowed(config, num_layers)
    every = config.integer("global_attn_every_n_layers", 3)
    return [index % every != 0 for index in range(num_layers)]


def _attention_shape(config: JsonObject) -> AttentionShape:
    num_heads = config.integer("num_attention_heads")
    head_dim = config.quotient("hidden_size", "num_attention_heads")
    reach = config.integer("local_attention", 128) // 2
    scale = head_dim**-0.5
    local = AttentionShape(num_heads, num_heads, head_dim, scale, window=(reach, reach))
    return AttentionShape(num_heads, num_heads, head_dim, scale, local=local)
