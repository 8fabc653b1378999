"""Rerankers that are language models: only the logits of the answers yes and no are computed."""

from __future__ import annotations

import torch

from rose.attention.base import AttentionBackend
from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.kernels.linear import linear
from rose.models.base import Backbone, WeightSource
from rose.models.decoder import DecoderClass


class CausalReranker:
    """The logit of yes minus the logit of no at the last token; a `Model` of one label.

    Its sigmoid is the softmax of the two. The head is one row, the difference of two rows of the
    vocabulary head, never the vocabulary. Without a token for no it is the logit of yes alone.
    """

    def __init__(
        self,
        backbone_class: DecoderClass,
        config: JsonObject,
        weights: WeightSource,
        yes_token_id: int,
        no_token_id: int | None,
    ) -> None:
        decoder = backbone_class(config, weights)
        self.backbone: Backbone = decoder
        self.output_width = 1
        vocab_size, hidden = self.backbone.vocab_size, self.backbone.hidden_size
        for label, token_id in (("yes_token_id", yes_token_id), ("no_token_id", no_token_id)):
            if token_id is not None and not 0 <= token_id < vocab_size:
                raise ModelLoadError(f"{label} {token_id} is not below vocab_size {vocab_size}")
        head = decoder.words
        tied = config.boolean("tie_word_embeddings", backbone_class.tied_by_default)
        if not tied and weights.has("lm_head.weight"):
            head = weights.take("lm_head.weight", vocab_size, hidden)
        # float32: the two rows are close, and their difference is the score.
        row = head[yes_token_id].float()
        if no_token_id is not None:
            row = row - head[no_token_id].float()
        self.head = row[None, :]

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, 1] float32."""
        return linear(self.backbone(batch, attention, "last").float(), self.head, None)
