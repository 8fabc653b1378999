"""SPLADE (Formal et al., 2021): a weight for each entry of the vocabulary."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.launch import uses_triton
from rose.kernels.linear import linear
from rose.kernels.vocabulary_pooling import pool_logits_
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.models.base import Backbone, WeightSource

SpladePoolingMode = Literal["max", "sum"]

# Rows whose logits exist at a time on CUDA: those of a whole step would be gigabytes.
_LOGIT_ROWS = 1024
# The GEMM is several times slower where rows of its output are not aligned.
_ALIGNED_WIDTH = 64

# Names of the masked-language-model head: dense layer, norm, bias, decoder, word embeddings.
_HEADS = {
    "BertForMaskedLM": (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "cls.predictions.decoder.weight",
        "bert.embeddings.word_embeddings.weight",
    ),
    "DistilBertForMaskedLM": (
        "vocab_transform",
        "vocab_layer_norm",
        "vocab_projector.bias",
        "vocab_projector.weight",
        "distilbert.embeddings.word_embeddings.weight",
    ),
}


class SpladeModel:
    """Pooled logits of a masked language model; a `Model` whose rows are as wide as the vocabulary.

    A weight is log(1 + relu(logit)), the highest over the tokens of a sequence or their sum; special
    tokens count, as in the reference.
    """

    def __init__(
        self,
        backbone: Backbone,
        architecture: str,
        config: JsonObject,
        weights: WeightSource,
        pooling: SpladePoolingMode,
        *,
        twice: bool,
    ) -> None:
        if architecture not in _HEADS:
            raise ModelLoadError(
                f"config.json: architecture {architecture!r} is not supported as a sparse model; "
                f"supported are {', '.join(_HEADS)}"
            )
        dense, norm, bias, decoder, words = _HEADS[architecture]
        hidden, self.output_width = backbone.hidden_size, backbone.vocab_size
        self.backbone = backbone
        self.pooling = pooling
        self.twice = twice
        activation = config.string("activation", config.string("hidden_act", "gelu"))
        self.dense = load_linear(weights, dense, hidden, hidden, activation=activation)
        self.norm = LayerNorm.load(weights, norm, hidden, config.number("layer_norm_eps", 1e-12))
        tied = decoder if weights.has(decoder) else words
        self.decoder = weights.take(tied, self.output_width, hidden)
        self.bias = weights.take(bias, self.output_width)
        if uses_triton(self.decoder) and self.output_width % _ALIGNED_WIDTH:
            missing = -self.output_width % _ALIGNED_WIDTH
            self.decoder = F.pad(self.decoder, (0, 0, 0, missing))

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Weights [padded_sequences, vocab_size] float32."""
        hidden = self.norm(self.dense(self.backbone(batch, attention)))
        rows = hidden.new_zeros((batch.padded_sequences, self.output_width), dtype=torch.float32)
        for first, end in self._parts(batch):
            logits = linear(hidden[first:end], self.decoder, None)
            pool_logits_(
                rows,
                logits,
                self.bias,
                batch.cu_seqlens,
                first,
                sums=self.pooling == "sum",
                twice=self.twice,
            )
        return rows

    def _parts(self, batch: ForwardBatch) -> list[tuple[int, int]]:
        """Ranges of token rows whose logits exist at a time.

        On CUDA they depend on the padded size alone: a graph serves other sequences too.
        """
        if not uses_triton(self.decoder):
            ends = batch.cu_seqlens_cpu.tolist()
            return list(pairwise(ends[: batch.num_sequences + 1]))
        tokens = batch.padded_tokens
        return [(at, min(at + _LOGIT_ROWS, tokens)) for at in range(0, tokens, _LOGIT_ROWS)]
