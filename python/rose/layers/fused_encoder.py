"""Encoder of the BERT family for CUDA: four GEMMs, attention and three small kernels a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rose.attention.base import AttentionBackend
from rose.forward_batch import ForwardBatch
from rose.kernels.embedding import embedding_layer_norm
from rose.kernels.linear import linear, linear_gelu, linear_into
from rose.kernels.norm import add_layer_norm, mark_bad_sequences
from rose.kernels.pooling import RowChoice, select_rows

if TYPE_CHECKING:
    from rose.layers.norm import LayerNorm
    from rose.models.bert import BertLayer, BertModel

_GELUS = {"gelu": False, "gelu_new": True, "gelu_pytorch_tanh": True}
# Below this many tokens a GEMM takes no longer for all rows than for one row a sequence.
_ROW_CHOICE_MIN_TOKENS = 1024


class FusedEncoder:
    """The same function as the `BertModel` whose weights it shares.

    A sequence that holds a NaN gets NaN in all its rows; its neighbours keep their values.
    """

    def __init__(self, model: BertModel) -> None:
        self.embeddings = model.embeddings
        self.layers = model.layers
        self.shape = model.attention_shape

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        embeddings, norm = self.embeddings, self.embeddings.norm
        x, bad_rows = embedding_layer_norm(
            batch,
            embeddings.words,
            embeddings.offsets,
            embeddings.num_positions,
            *_parameters(norm),
        )
        for layer in self.layers[:-1]:
            context = self._attend(layer, x, attention)
            x = self._after_attention(layer, context, x, bad_rows)
        context = self._attend(self.layers[-1], x, attention)
        few = batch.padded_tokens >= max(_ROW_CHOICE_MIN_TOKENS, 2 * batch.padded_sequences)
        if rows is not None and few:
            # Behind the last attention only one row of each sequence matters.
            context = select_rows(context, batch.cu_seqlens, rows)
            x = select_rows(x, batch.cu_seqlens, rows)
        x = self._after_attention(self.layers[-1], context, x, None)
        if rows is not None and not few:
            x = select_rows(x, batch.cu_seqlens, rows)
        return mark_bad_sequences(x, batch.cu_seqlens, bad_rows, one_row=rows is not None)

    def _attend(
        self, layer: BertLayer, x: torch.Tensor, attention: AttentionBackend
    ) -> torch.Tensor:
        qkv_proj = layer.attention.qkv_proj
        qkv = linear(x, qkv_proj.weight, qkv_proj.bias)
        heads = qkv.view(x.shape[0], 3, self.shape.num_heads, self.shape.head_dim)
        return attention.attend(*heads.unbind(1)).view(x.shape)

    def _after_attention(
        self,
        layer: BertLayer,
        context: torch.Tensor,
        residual: torch.Tensor,
        bad_rows: torch.Tensor | None,
    ) -> torch.Tensor:
        out_proj, norm = layer.attention.out_proj, layer.attention.norm
        out = linear_into(residual, context, out_proj.weight)
        x = add_layer_norm(out, residual, out_proj.bias, *_parameters(norm), bad_rows)
        up_proj, down_proj = layer.feed_forward.up_proj, layer.feed_forward.down_proj
        norm = layer.feed_forward.norm
        if up_proj.activation in _GELUS and up_proj.bias is not None:
            up = linear_gelu(x, up_proj.weight, up_proj.bias, tanh=_GELUS[up_proj.activation])
        else:
            up = up_proj(x)
        down = linear_into(x, up, down_proj.weight)
        return add_layer_norm(down, x, down_proj.bias, *_parameters(norm), bad_rows)


def _parameters(norm: LayerNorm) -> tuple[torch.Tensor, torch.Tensor, float]:
    assert norm.bias is not None, "every norm of the BERT family has a bias"
    return norm.weight, norm.bias, norm.eps
