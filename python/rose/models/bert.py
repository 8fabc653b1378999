"""BERT (Devlin et al., 2018): bidirectional encoder, learned positions, norms after residuals."""

from __future__ import annotations

from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend, AttentionShape, PositionBias
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice, select_rows
from rose.layers.embedding import BertEmbeddings
from rose.layers.fused_encoder import FusedEncoder
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.layers.packed_encoder import PackedEncoder
from rose.models.base import WeightSource


class BertSelfAttention:
    """Multi-head attention, output projection, residual, norm."""

    def __init__(
        self, weights: WeightSource, prefix: str, shape: AttentionShape, eps: float
    ) -> None:
        self.shape = shape
        hidden = shape.num_heads * shape.head_dim
        names = [f"{prefix}self.{name}" for name in ("query", "key", "value")]
        self.qkv_proj = load_linear(weights, names, hidden, hidden)
        self.out_proj = load_linear(weights, f"{prefix}output.dense", hidden, hidden)
        self.norm = LayerNorm.load(weights, f"{prefix}output.LayerNorm", hidden, eps)

    def __call__(self, x: torch.Tensor, attention: AttentionBackend) -> torch.Tensor:
        """Rows [tokens, hidden] to rows of the same shape."""
        qkv = self.qkv_proj(x).view(x.shape[0], 3, self.shape.num_heads, self.shape.head_dim)
        context = torch.empty_like(x)
        q, k, v = qkv.unbind(1)
        attention.run(q, k, v, context.view_as(q))
        return self.norm(self.out_proj(context, residual=x))


class BertFeedForward:
    """Two linear layers with the activation between, residual, norm."""

    def __init__(
        self,
        weights: WeightSource,
        prefix: str,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        eps: float,
    ) -> None:
        self.up_proj = load_linear(
            weights,
            f"{prefix}intermediate.dense",
            hidden_size,
            intermediate_size,
            activation=activation,
        )
        self.down_proj = load_linear(
            weights, f"{prefix}output.dense", intermediate_size, hidden_size
        )
        self.norm = LayerNorm.load(weights, f"{prefix}output.LayerNorm", hidden_size, eps)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Rows [tokens, hidden] to rows of the same shape."""
        return self.norm(self.down_proj(self.up_proj(x), residual=x))


class BertLayer:
    """Attention, then feed-forward."""

    def __init__(
        self,
        weights: WeightSource,
        prefix: str,
        shape: AttentionShape,
        intermediate_size: int,
        activation: str,
        eps: float,
    ) -> None:
        self.attention = BertSelfAttention(weights, f"{prefix}attention.", shape, eps)
        self.feed_forward = BertFeedForward(
            weights, prefix, shape.num_heads * shape.head_dim, intermediate_size, activation, eps
        )

    def __call__(self, x: torch.Tensor, attention: AttentionBackend) -> torch.Tensor:
        """Rows [tokens, hidden] to rows of the same shape."""
        return self.feed_forward(self.attention(x, attention))


class BertModel:
    """Embeddings and encoder layers; a `Backbone`."""

    base_prefix = "bert."
    # Heads of other tasks, and buffers that old versions of transformers saved.
    unused_weights: ClassVar[tuple[str, ...]] = (
        "pooler.*",
        "cls.*",
        "classifier.*",
        "*.position_ids",
    )
    token_types = True
    position_offset = 0

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        _check_supported(config)
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        num_positions = config.integer("max_position_embeddings")
        self.max_positions = num_positions - self.position_offset
        num_heads = config.integer("num_attention_heads")
        head_dim = config.quotient("hidden_size", "num_attention_heads")
        eps = config.number("layer_norm_eps", 1e-12)
        embeddings = f"{self.base_prefix}embeddings.word_embeddings.weight"
        prefix = self.base_prefix if weights.has(embeddings) else ""
        self.attention_shape = AttentionShape(
            num_heads,
            num_heads,
            head_dim,
            head_dim**-0.5,
            bias=self.position_bias(config, weights, prefix),
        )
        num_token_types = config.integer("type_vocab_size", 2, minimum=0)
        # With one type every token gets its row, whatever its segment.
        self.token_types = self.token_types and num_token_types > 1
        self.embeddings = BertEmbeddings(
            weights,
            f"{prefix}embeddings.",
            vocab_size=self.vocab_size,
            num_positions=num_positions,
            num_token_types=num_token_types,
            hidden_size=self.hidden_size,
            eps=eps,
        )
        self.layers = [
            BertLayer(
                weights,
                f"{prefix}encoder.layer.{index}.",
                self.attention_shape,
                config.integer("intermediate_size"),
                config.string("hidden_act", "gelu"),
                eps,
            )
            for index in range(config.integer("num_hidden_layers"))
        ]
        self.fused: FusedEncoder | PackedEncoder | None = None
        if weights.device.type == "cuda":
            self.fused = FusedEncoder(self)
        elif PackedEncoder.fits(self):
            self.fused = PackedEncoder(self)

    def position_bias(
        self, config: JsonObject, weights: WeightSource, prefix: str
    ) -> PositionBias | None:
        """What is added to attention logits by distance, in families that have it."""
        return None

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden_size], or with `rows` one for each sequence."""
        if self.fused is not None:
            return self.fused(batch, attention, rows)
        x = self.embeddings(batch)
        for layer in self.layers:
            x = layer(x, attention)
        return x if rows is None else select_rows(x, batch.cu_seqlens, rows)


class BertForSequenceClassification:
    """Pooler over the first token, then one logit for each label; a `Model`."""

    unused_weights: ClassVar[tuple[str, ...]] = ("cls.*", "*.position_ids")

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = BertModel(config, weights)
        self.output_width = num_labels
        hidden = self.backbone.hidden_size
        self.pooler = load_linear(weights, "bert.pooler.dense", hidden, hidden, activation="tanh")
        self.classifier = load_linear(weights, "classifier", hidden, num_labels)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        return self.classifier(self.pooler(self.backbone(batch, attention, "first"))).float()


def _check_supported(config: JsonObject) -> None:
    kind = config.string("position_embedding_type", "absolute")
    if kind != "absolute":
        raise ModelLoadError(f"{config.label}: position_embedding_type {kind!r} is not supported")
    if config.boolean("is_decoder", False):
        raise ModelLoadError(f"{config.label}: is_decoder true is not supported by this BERT")
