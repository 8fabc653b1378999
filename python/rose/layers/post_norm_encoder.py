"""Encoder layers that norm behind the residual, as BERT does, with rotary positions or biases.

NomicBERT, GTE, Jina-BERT and Jina's XLM-RoBERTa differ in their feed-forward parts and in names.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend, AttentionShape
from rose.forward_batch import ForwardBatch
from rose.kernels.norm import mark_bad_sequences
from rose.kernels.pooling import RowChoice, select_rows
from rose.kernels.rope import HeadRotation, RopeTable
from rose.layers.feed_forward import FeedForward, GatedFeedForward
from rose.layers.linear import Linear
from rose.layers.norm import LayerNorm, new_bad_rows
from rose.models.base import WeightSource


class TypedEmbeddings:
    """LayerNorm(word + token type): positions come in with attention."""

    def __init__(
        self, words: torch.Tensor, token_types: torch.Tensor | None, norm: LayerNorm
    ) -> None:
        """`words` are [vocabulary, hidden]; `token_types` [types, hidden] or None for none."""
        self.words = words
        self.token_types = token_types
        self.norm = norm

    @classmethod
    def load(
        cls,
        weights: WeightSource,
        prefix: str,
        *,
        vocab_size: int,
        num_token_types: int,
        hidden_size: int,
        norm: str,
        eps: float,
    ) -> TypedEmbeddings:
        """The tables in `PREFIXembeddings.`, and the norm called `PREFIXNORM`."""
        table = f"{prefix}embeddings."
        words = weights.take(f"{table}word_embeddings.weight", vocab_size, hidden_size)
        token_types = None
        if num_token_types:
            token_types = weights.take(
                f"{table}token_type_embeddings.weight", num_token_types, hidden_size
            )
        return cls(words, token_types, LayerNorm.load(weights, f"{prefix}{norm}", hidden_size, eps))

    def __call__(self, batch: ForwardBatch) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Rows [padded_tokens, hidden], and on CUDA which of them are bad."""
        x = F.embedding(batch.token_ids, self.words)
        if self.token_types is not None:
            if batch.token_type_ids is None:
                x = x + self.token_types[0]
            else:
                x = x + F.embedding(batch.token_type_ids, self.token_types)
        bad_rows = new_bad_rows(x)
        return self.norm.contained(x, bad_rows), bad_rows


@dataclass(frozen=True, slots=True)
class PostNormLayer:
    """Attention, residual, norm, feed-forward, residual, norm."""

    qkv_proj: Linear
    out_proj: Linear
    attention_norm: LayerNorm
    feed_forward: FeedForward | GatedFeedForward
    output_norm: LayerNorm


class PostNormEncoder:
    """All layers; without `rope` the attention back end alone knows of positions."""

    def __init__(
        self, layers: list[PostNormLayer], shape: AttentionShape, rope: RopeTable | None
    ) -> None:
        self.layers = layers
        self.shape = shape
        self.rope = rope

    def __call__(
        self,
        x: torch.Tensor,
        bad_rows: torch.Tensor | None,
        batch: ForwardBatch,
        attention: AttentionBackend,
        rows: RowChoice | None,
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        for layer in self.layers:
            context = self._context(layer, x, batch.positions, attention)
            notes = bad_rows
            if rows is not None and layer is self.layers[-1]:
                # Behind the last attention only one row of each sequence matters.
                context = select_rows(context, batch.cu_seqlens, rows)
                x, notes = select_rows(x, batch.cu_seqlens, rows), None
            elif layer is self.layers[-1]:
                notes = None
            x = layer.attention_norm.behind(layer.out_proj, context, x, notes)
            feed_forward = layer.feed_forward
            x = layer.output_norm.behind(feed_forward.down, feed_forward.inner(x), x, notes)
        if bad_rows is None:
            return x
        return mark_bad_sequences(x, batch.cu_seqlens, bad_rows, one_row=rows is not None)

    def _context(
        self,
        layer: PostNormLayer,
        x: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionBackend,
    ) -> torch.Tensor:
        qkv = layer.qkv_proj(x)
        if self.rope is not None:
            return attention.attend_rotated(qkv, positions, HeadRotation(self.rope)).view(x.shape)
        q, k, v = qkv.view(x.shape[0], 3, self.shape.num_heads, self.shape.head_dim).unbind(1)
        return attention.attend(q, k, v).view(x.shape)
