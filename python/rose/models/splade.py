"""SPLADE (Formal et al., 2021): a weight for each entry of the vocabulary."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.models.base import Backbone, WeightSource

SpladePoolingMode = Literal["max", "sum"]

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

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Weights [padded_sequences, vocab_size] float32."""
        hidden = self.norm(self.dense(self.backbone(batch, attention)))
        rows = hidden.new_zeros((batch.padded_sequences, self.output_width), dtype=torch.float32)
        # Sequence by sequence: logits of a whole step would be gigabytes.
        ends = batch.cu_seqlens_cpu
        for index in range(batch.num_sequences):
            tokens = hidden[int(ends[index]) : int(ends[index + 1])]
            logits = F.linear(tokens, self.decoder, self.bias).float()
            if self.pooling == "max":
                # The weight grows with the logit, so the highest logit is enough.
                rows[index] = self._weight(logits.amax(0))
            else:
                rows[index] = self._weight(logits).sum(0)
        return rows

    def _weight(self, logits: torch.Tensor) -> torch.Tensor:
        weights = logits.relu().log1p()
        return weights.log1p() if self.twice else weights
