"""Qwen3-Reranker: a language model that answers yes or no; only that answer is computed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.models.base import WeightSource
from rose.models.qwen3 import Qwen3Model


class Qwen3Reranker:
    """The logit of yes minus the logit of no at the last token; a `Model` of one label.

    Its sigmoid is the softmax of the two. The head is one row, the difference of two rows of the
    vocabulary head, never the vocabulary.
    """

    def __init__(
        self, config: JsonObject, weights: WeightSource, yes_token_id: int, no_token_id: int
    ) -> None:
        self.backbone = Qwen3Model(config, weights)
        self.output_width = 1
        vocab_size, hidden = self.backbone.vocab_size, self.backbone.hidden_size
        for label, token_id in (("yes_token_id", yes_token_id), ("no_token_id", no_token_id)):
            if not 0 <= token_id < vocab_size:
                raise ModelLoadError(f"{label} {token_id} is not below vocab_size {vocab_size}")
        head = self.backbone.words
        if not config.boolean("tie_word_embeddings", False) and weights.has("lm_head.weight"):
            head = weights.take("lm_head.weight", vocab_size, hidden)
        # float32: the two rows are close, and their difference is the score.
        self.head = (head[yes_token_id].float() - head[no_token_id].float())[None, :]

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, 1] float32."""
        return F.linear(self.backbone(batch, attention, "last").float(), self.head)


class Qwen3ForSequenceClassification:
    """A linear layer on the last token, one logit for each label; a `Model`.

    Converted rerankers are published in this form.
    """

    unused_weights = ("lm_head.weight", "*.rotary_emb.inv_freq")

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = Qwen3Model(config, weights)
        self.output_width = num_labels
        self.score = weights.take("score.weight", num_labels, self.backbone.hidden_size)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        return F.linear(self.backbone(batch, attention, "last"), self.score).float()
