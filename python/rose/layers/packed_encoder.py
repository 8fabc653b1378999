"""Encoder of the BERT family for CPU: the whole forward pass as one TorchScript function.

One query of a few tokens streams every weight through the caches, so that each step of the Python
interpreter in between starts cold: compiled, the same operations take a quarter less time.
`encode` is ordinary Python too, and runs as such where TorchScript is not to be had.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from rose.attention.base import AttentionBackend
from rose.attention.sdpa import SdpaAttention
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice
from rose.layers.linear import PackedLinear

if TYPE_CHECKING:
    from rose.models.bert import BertLayer, BertModel

_GELUS = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}


def _linear(x: Tensor, plain: Tensor, packed: Tensor, bias: Tensor, plain_rows: int) -> Tensor:
    if x.size(0) <= plain_rows:
        return F.linear(x, plain, bias)
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")  # type: ignore[no-any-return]


def _linear_gelu(
    x: Tensor, plain: Tensor, packed: Tensor, bias: Tensor, plain_rows: int, gelu: str
) -> Tensor:
    if x.size(0) <= plain_rows:
        return F.gelu(F.linear(x, plain, bias), approximate=gelu)
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "gelu", [], gelu)  # type: ignore[no-any-return]


def _linear_add(
    x: Tensor, residual: Tensor, plain: Tensor, packed: Tensor, bias: Tensor, plain_rows: int
) -> Tensor:
    if x.size(0) <= plain_rows:
        return F.linear(x, plain, bias).add_(residual)
    return torch.ops.mkldnn._linear_pointwise(x, residual, packed, bias, "add")  # type: ignore[no-any-return]


def _attend(
    qkv: Tensor,
    runs: list[tuple[int, int, int]],
    biases: list[Tensor],
    num_heads: int,
    scale: float,
) -> Tensor:
    """[tokens, 3 * hidden] to [tokens, hidden]; runs are (first row, sequences, tokens of each)."""
    hidden = qkv.size(1) // 3
    head_dim = hidden // num_heads
    parts: list[Tensor] = []
    for index, (start, count, seqlen) in enumerate(runs):
        bias: Tensor | None = None
        if len(biases) > 0:
            bias = biases[index]
        rows = qkv.narrow(0, start, count * seqlen).view(count, seqlen, 3, num_heads, head_dim)
        q, k, v = rows.permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        parts.append(context.transpose(1, 2).reshape(count * seqlen, hidden))
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts)


def encode(
    token_ids: Tensor,
    offset_ids: Tensor,
    tables: list[Tensor],
    layers: list[list[Tensor]],
    runs: list[tuple[int, int, int]],
    biases: list[Tensor],
    rows: Tensor | None,
    num_heads: int,
    scale: float,
    eps: float,
    gelu: str,
    plain_rows: int,
) -> Tensor:
    """The forward pass.

    Args:
        token_ids: int32 [tokens], rows of the word table.
        offset_ids: int32 [tokens], rows of the table of positions and token types.
        tables: words, offsets, and weight and bias of the norm after them.
        layers: tensors of each layer, as `_tensors` lists them.
        runs: neighbouring sequences of equal length: first row, number, tokens of each.
        biases: what is added to the logits of each run, [1, heads, tokens, tokens], or nothing.
        rows: rows of the result that are wanted; None = all.
        num_heads: heads of attention.
        scale: factor of the attention logits.
        eps: of the norms.
        gelu: `none` or `tanh`, the approximation.
        plain_rows: rows up to which a plain GEMM beats the packed one.
    """
    words, offsets, norm_weight, norm_bias = tables
    x = F.embedding(token_ids, words).add_(F.embedding(offset_ids, offsets))
    width = [x.size(1)]
    x = F.layer_norm(x, width, norm_weight, norm_bias, eps)
    for index, w in enumerate(layers):
        qkv = _linear(x, w[0], w[1], w[2], plain_rows)
        context = _attend(qkv, runs, biases, num_heads, scale)
        if rows is not None and index == len(layers) - 1:
            # Behind the last attention only these rows matter.
            context = context.index_select(0, rows)
            x = x.index_select(0, rows)
        x = _linear_add(context, x, w[3], w[4], w[5], plain_rows)
        x = F.layer_norm(x, width, w[6], w[7], eps)
        up = _linear_gelu(x, w[8], w[9], w[10], plain_rows, gelu)
        x = _linear_add(up, x, w[11], w[12], w[13], plain_rows)
        x = F.layer_norm(x, width, w[14], w[15], eps)
    return x


class PackedEncoder:
    """The same function as the `BertModel` whose weights it shares."""

    def __init__(self, model: BertModel) -> None:
        embeddings, norm = model.embeddings, model.embeddings.norm
        assert norm.bias is not None, "every norm of the BERT family has a bias"
        first = model.layers[0]
        up_proj = first.feed_forward.up_proj
        assert isinstance(up_proj, PackedLinear)
        self.num_positions = embeddings.num_positions
        self._tables = [embeddings.words, embeddings.offsets, norm.weight, norm.bias]
        self._layers = [_tensors(layer) for layer in model.layers]
        self._options = (
            model.attention_shape.num_heads,
            model.attention_shape.scale,
            norm.eps,
            _GELUS[up_proj.activation or ""],
            up_proj.plain_rows,
        )
        self._encode = _compiled()

    @staticmethod
    def fits(model: BertModel) -> bool:
        """Whether the model's layers are packed for oneDNN and have a GELU."""
        up_proj = model.layers[0].feed_forward.up_proj
        return isinstance(up_proj, PackedLinear) and up_proj.activation in _GELUS

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> Tensor:
        """Hidden states [padded_tokens, hidden], or with `rows` [padded_sequences, hidden]."""
        assert isinstance(attention, SdpaAttention), "sdpa is the only back end of the CPU"
        offset_ids = batch.positions
        if batch.token_type_ids is not None:
            offset_ids = torch.add(offset_ids, batch.token_type_ids, alpha=self.num_positions)
        return self._encode(
            batch.token_ids,
            offset_ids,
            self._tables,
            self._layers,
            attention.runs,
            attention.biases,
            None if rows is None else _row_index(batch, rows),
            *self._options,
        )


def _row_index(batch: ForwardBatch, which: RowChoice) -> Tensor:
    index = batch.cu_seqlens[:-1] if which == "first" else batch.cu_seqlens[1:] - 1
    # Empty slots lie behind the last row; they get some row that exists.
    return index.clamp(0, batch.padded_tokens - 1)


def _tensors(layer: BertLayer) -> list[Tensor]:
    """What `encode` reads of a layer: plain weight, packed weight, bias; after two of them a norm."""
    tensors: list[Tensor] = []
    attention, feed_forward = layer.attention, layer.feed_forward
    for linear, norm in (
        (attention.qkv_proj, None),
        (attention.out_proj, attention.norm),
        (feed_forward.up_proj, None),
        (feed_forward.down_proj, feed_forward.norm),
    ):
        assert isinstance(linear, PackedLinear)
        assert linear.bias is not None
        tensors += [linear.weight, linear.packed, linear.bias]
        if norm is not None:
            assert norm.bias is not None
            tensors += [norm.weight, norm.bias]
    return tensors


@cache
def _compiled() -> Callable[..., Tensor]:
    with warnings.catch_warnings():
        # TorchScript is frozen, not gone; its successors need a C++ compiler where they run.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        try:
            compiled: Callable[..., Tensor] = torch.jit.script(encode)
        except (AttributeError, RuntimeError):
            return encode
    return compiled
