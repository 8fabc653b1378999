"""Qwen3 (Qwen team, 2025): pre-norm decoder, grouped queries, norms on query and key heads.

Causal as published; the bidirectional variants (pplx-embed) drop the mask and keep the names.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend, AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.embedding import embedding_rms_norm
from rose.kernels.linear import interleave, linear_silu_mul
from rose.kernels.norm import add_rms_norm, mark_bad_sequences
from rose.kernels.pooling import RowChoice, select_rows
from rose.kernels.rope import RopeTable, qk_norm_rope_
from rose.models.base import WeightSource

# Below this many tokens a GEMM takes no longer for all rows than for one row a sequence.
_ROW_CHOICE_MIN_TOKENS = 1024


class Qwen3Attention:
    """Query, key and value in one GEMM; norm and rotation of heads in one kernel."""

    def __init__(
        self,
        weights: WeightSource,
        prefix: str,
        hidden_size: int,
        shape: AttentionShape,
        eps: float,
    ) -> None:
        head_dim = shape.head_dim
        width, kv_width = shape.num_heads * head_dim, shape.num_kv_heads * head_dim
        self.shape = shape
        self.eps = eps
        self.qkv_weight = torch.cat(
            (
                weights.take(f"{prefix}q_proj.weight", width, hidden_size),
                weights.take(f"{prefix}k_proj.weight", kv_width, hidden_size),
                weights.take(f"{prefix}v_proj.weight", kv_width, hidden_size),
            )
        )
        self.o_weight = weights.take(f"{prefix}o_proj.weight", hidden_size, width)
        self.q_norm = weights.take(f"{prefix}q_norm.weight", head_dim)
        self.k_norm = weights.take(f"{prefix}k_norm.weight", head_dim)

    def __call__(
        self,
        x: torch.Tensor,
        positions: torch.Tensor,
        rope: RopeTable,
        attention: AttentionBackend,
    ) -> torch.Tensor:
        """Context [tokens, num_heads * head_dim], before the output projection."""
        shape = self.shape
        qkv = F.linear(x, self.qkv_weight)
        qk_norm_rope_(qkv, positions, shape, self.q_norm, self.k_norm, self.eps, rope)
        heads = qkv.view(x.shape[0], shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim)
        q, k, v = torch.split(heads, [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], 1)
        return attention.attend(q, k, v).view(x.shape[0], -1)


class Qwen3Layer:
    """Attention, then gated feed-forward, each behind a norm and added to the residual stream."""

    def __init__(
        self,
        weights: WeightSource,
        prefix: str,
        hidden_size: int,
        intermediate_size: int,
        shape: AttentionShape,
        eps: float,
    ) -> None:
        self.input_norm = weights.take(f"{prefix}input_layernorm.weight", hidden_size)
        self.attention = Qwen3Attention(weights, f"{prefix}self_attn.", hidden_size, shape, eps)
        self.post_attention_norm = weights.take(
            f"{prefix}post_attention_layernorm.weight", hidden_size
        )
        self.gate_up_weight = interleave(
            weights.take(f"{prefix}mlp.gate_proj.weight", intermediate_size, hidden_size),
            weights.take(f"{prefix}mlp.up_proj.weight", intermediate_size, hidden_size),
        )
        self.down_weight = weights.take(
            f"{prefix}mlp.down_proj.weight", hidden_size, intermediate_size
        )
        self.eps = eps

    def after_attention(
        self, context: torch.Tensor, residual: torch.Tensor, bad_rows: torch.Tensor | None
    ) -> None:
        """Adds attention and feed-forward to `residual` in place.

        The GEMMs add themselves: the residual is read while they compute.
        """
        residual.addmm_(context, self.attention.o_weight.t())
        x = add_rms_norm(None, residual, self.post_attention_norm, self.eps, bad_rows)
        residual.addmm_(linear_silu_mul(x, self.gate_up_weight), self.down_weight.t())


class Qwen3Model:
    """Embedding, decoder layers, last norm; a `Backbone`."""

    base_prefix = "model."
    # Tied or not, the vocabulary head is no part of an embedding.
    unused_weights: tuple[str, ...] = ("lm_head.weight", "*.rotary_emb.inv_freq")
    token_types = False
    position_offset = 0
    causal = True

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        _check_supported(config)
        self.hidden_size = config.integer("hidden_size")
        self.vocab_size = config.integer("vocab_size")
        self.max_positions = config.integer("max_position_embeddings", 32768)
        num_heads = config.integer("num_attention_heads")
        num_kv_heads = config.integer("num_key_value_heads", num_heads)
        head_dim = config.integer("head_dim", 128)
        if num_heads % num_kv_heads:
            raise ModelLoadError(
                f"{config.label}: num_attention_heads {num_heads} is not a multiple of "
                f"num_key_value_heads {num_kv_heads}"
            )
        self.attention_shape = AttentionShape(
            num_heads, num_kv_heads, head_dim, head_dim**-0.5, causal=self._is_causal(config)
        )
        self.eps = config.number("rms_norm_eps", 1e-6)
        prefix = self.base_prefix if weights.has(f"{self.base_prefix}norm.weight") else ""
        self.words = weights.take(f"{prefix}embed_tokens.weight", self.vocab_size, self.hidden_size)
        self.layers = [
            Qwen3Layer(
                weights,
                f"{prefix}layers.{index}.",
                self.hidden_size,
                config.integer("intermediate_size"),
                self.attention_shape,
                self.eps,
            )
            for index in range(config.integer("num_hidden_layers"))
        ]
        self.norm = weights.take(f"{prefix}norm.weight", self.hidden_size)
        self.rope = RopeTable.make(
            self.max_positions, head_dim, _rope_theta(config), weights.device
        )

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        last = self.layers[-1]
        residual, x, bad_rows = embedding_rms_norm(
            batch, self.words, self.layers[0].input_norm, self.eps
        )
        for layer, following in zip(self.layers, self.layers[1:], strict=False):
            context = layer.attention(x, batch.positions, self.rope, attention)
            layer.after_attention(context, residual, bad_rows)
            x = add_rms_norm(None, residual, following.input_norm, self.eps, bad_rows)
        context = last.attention(x, batch.positions, self.rope, attention)
        few = batch.padded_tokens >= max(_ROW_CHOICE_MIN_TOKENS, 2 * batch.padded_sequences)
        if rows is not None and few:
            # Behind the last attention only one row of each sequence matters.
            context = select_rows(context, batch.cu_seqlens, rows)
            residual = select_rows(residual, batch.cu_seqlens, rows)
        last.after_attention(context, residual, None)
        if rows is not None and not few:
            residual = select_rows(residual, batch.cu_seqlens, rows)
        x = add_rms_norm(None, residual, self.norm, self.eps, None)
        return mark_bad_sequences(x, batch.cu_seqlens, bad_rows, one_row=rows is not None)

    def _is_causal(self, config: JsonObject) -> bool:
        # `is_causal` and `use_bidirectional_attention` are how configurations drop the mask.
        bidirectional = config.boolean("use_bidirectional_attention", False)
        return config.boolean("is_causal", self.causal) and not bidirectional


class BidirectionalQwen3Model(Qwen3Model):
    """Every token sees its whole sequence, as in pplx-embed."""

    causal = False


def _rope_theta(config: JsonObject) -> float:
    scaling = config.child("rope_scaling" if config.has("rope_scaling") else "rope_parameters")
    kind = scaling.string("rope_type", scaling.string("type", "default"))
    if kind != "default":
        raise ModelLoadError(
            f"{scaling.label}: rope_type {kind!r} is not supported; supported: default"
        )
    return config.number("rope_theta", scaling.number("rope_theta", 10000.0))


def _check_supported(config: JsonObject) -> None:
    activation = config.string("hidden_act", "silu")
    if activation != "silu":
        raise ModelLoadError(f"{config.label}: hidden_act {activation!r} is not supported: silu")
    for name in ("attention_bias", "use_sliding_window"):
        if config.boolean(name, False):
            raise ModelLoadError(f"{config.label}: {name} true is not supported by this Qwen3")
