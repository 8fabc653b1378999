"""Gemma 3 text (Google, 2025): norms before and after each part, windows in five layers of six.

EmbeddingGemma drops the mask, and its windows look both ways.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend, AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.norm import add_normed_rms_norm, add_rms_norm, mark_bad_sequences
from rose.kernels.pooling import RowChoice, select_rows
from rose.layers.grouped_query_attention import GroupedQueryAttention
from rose.layers.rope import RopeConfig
from rose.models.base import WeightSource
from rose.models.decoder_classifier import DecoderForSequenceClassification
from rose.models.llama import load_gated_feed_forward
from rose.models.qwen2 import layer_types_windowed


class Gemma3Layer:
    """Attention, then gated feed-forward; each is normed before and after."""

    def __init__(
        self,
        config: JsonObject,
        weights: WeightSource,
        prefix: str,
        shape: AttentionShape,
        eps: float,
        *,
        windowed: bool,
    ) -> None:
        hidden = config.integer("hidden_size")

        def norm(name: str, width: int = hidden) -> torch.Tensor:
            # Stored around zero; float32, since one plus a small number is not exact in 16 bits.
            return weights.take(f"{prefix}{name}.weight", width).float() + 1.0

        self.windowed = windowed
        self.input_norm = norm("input_layernorm")
        self.post_attention_norm = norm("post_attention_layernorm")
        self.pre_feed_forward_norm = norm("pre_feedforward_layernorm")
        self.post_feed_forward_norm = norm("post_feedforward_layernorm")
        bias = config.boolean("attention_bias", False)
        self.attention = GroupedQueryAttention(
            weights,
            f"{prefix}self_attn.",
            hidden,
            shape,
            qkv_bias=bias,
            out_bias=bias,
            head_norms=(
                norm("self_attn.q_norm", shape.head_dim),
                norm("self_attn.k_norm", shape.head_dim),
            ),
            eps=eps,
        )
        self.feed_forward = load_gated_feed_forward(
            weights,
            f"{prefix}mlp.",
            hidden,
            config.integer("intermediate_size"),
            config.string("hidden_activation", "gelu_pytorch_tanh"),
        )


class Gemma3Model:
    """Embedding, decoder layers, last norm; a `Backbone`."""

    base_prefix = "model."
    unused_weights: ClassVar[tuple[str, ...]] = (
        "lm_head.weight",
        "*.rotary_emb.inv_freq",
        "score.weight",
    )
    token_types = False
    position_offset = 0
    tied_by_default: ClassVar[bool] = True

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        if config.has("attn_logit_softcapping"):
            raise ModelLoadError(f"{config.label}: attn_logit_softcapping is not supported")
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.eps = config.number("rms_norm_eps", 1e-6)
        num_positions = config.integer("max_position_embeddings", 131072)
        head_dim = config.integer("head_dim", 256)
        full_rope = RopeConfig(config, 1e6, layer_type="full_attention")
        local_rope = RopeConfig(
            config,
            1e4,
            layer_type="sliding_attention",
            theta_field="rope_local_base_freq",
            scaled=False,
        )
        self.max_positions = full_rope.num_positions(num_positions)
        self.rope = full_rope.table(num_positions, head_dim, weights.device)
        self.local_rope = local_rope.table(self.max_positions, head_dim, weights.device)
        self.attention_shape = _attention_shape(config, head_dim)
        prefix = self.base_prefix if weights.has(f"{self.base_prefix}norm.weight") else ""
        self.words = weights.take(f"{prefix}embed_tokens.weight", self.vocab_size, self.hidden_size)
        # Rounded as the engine's dtype rounds it: 768^0.5 is 27.75 in bfloat16, in training too.
        scale = torch.tensor(self.hidden_size**0.5, dtype=weights.dtype)
        self.embedding_scale = float(scale)
        self.layers = [
            Gemma3Layer(
                config,
                weights,
                f"{prefix}layers.{index}.",
                self.attention_shape,
                self.eps,
                windowed=windowed,
            )
            for index, windowed in enumerate(_windowed_layers(config))
        ]
        self.norm = weights.take(f"{prefix}norm.weight", self.hidden_size).float() + 1.0

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        residual = F.embedding(batch.token_ids, self.words) * self.embedding_scale
        bad_rows = torch.zeros(batch.padded_tokens, dtype=torch.int32, device=residual.device)
        x = add_rms_norm(None, residual, self.layers[0].input_norm, self.eps, bad_rows)
        next_norms = [layer.input_norm for layer in self.layers[1:]] + [self.norm]
        for layer, next_norm in zip(self.layers, next_norms, strict=True):
            backend, rope = (
                (attention.local, self.local_rope) if layer.windowed else (attention, self.rope)
            )
            context = layer.attention.context(x, batch.positions, rope, backend)
            x = add_normed_rms_norm(
                layer.attention.o_proj(context),
                residual,
                layer.post_attention_norm,
                layer.pre_feed_forward_norm,
                self.eps,
                bad_rows,
            )
            x = add_normed_rms_norm(
                layer.feed_forward.down(layer.feed_forward.inner(x)),
                residual,
                layer.post_feed_forward_norm,
                next_norm,
                self.eps,
                bad_rows,
            )
        if rows is not None:
            x = select_rows(x, batch.cu_seqlens, rows)
        return mark_bad_sequences(x, batch.cu_seqlens, bad_rows, one_row=rows is not None)


class Gemma3ForSequenceClassification(DecoderForSequenceClassification):
    """Logits of the last token; a `Model`."""

    backbone_class = Gemma3Model


def _windowed_layers(config: JsonObject) -> list[bool]:
    num_layers = config.integer("num_hidden_layers")
    if config.has("layer_types"):
        return layer_types_windowed(config, num_layers)
    pattern = config.integer("sliding_window_pattern", 6)
    return [(index + 1) % pattern != 0 for index in range(num_layers)]


def _attention_shape(config: JsonObject, head_dim: int) -> AttentionShape:
    num_heads = config.integer("num_attention_heads")
    num_kv_heads = config.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise ModelLoadError(
            f"{config.label}: num_attention_heads {num_heads} is not a multiple of "
            f"num_key_value_heads {num_kv_heads}"
        )
    scale = config.number("query_pre_attn_scalar", 256.0) ** -0.5
    window = config.integer("sliding_window", 4096)
    if config.boolean("use_bidirectional_attention", False):
        reach, causal = (window // 2, window // 2), False
    else:
        # The window counts the query itself.
        reach, causal = (window - 1, 0), True
    local = AttentionShape(num_heads, num_kv_heads, head_dim, scale, causal=causal, window=reach)
    return AttentionShape(num_heads, num_kv_heads, head_dim, scale, causal=causal, local=local)
