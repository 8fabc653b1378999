"""Qwen3 (Qwen team, 2025): Llama with norms on query and key heads.

Causal as published; the bidirectional variants (pplx-embed) drop the mask and keep the names.
"""

from __future__ import annotations

from rose.checkpoint.json_object import JsonObject
from rose.models.decoder_classifier import DecoderForSequenceClassification
from rose.models.llama import LlamaModel
from rose.models.qwen2 import qwen_windowed_layers


class Qwen3Model(LlamaModel):
    """Embedding, decoder layers, last norm; a `Backbone`."""

    head_norms = True
    default_head_dim = 128
    default_positions = 32768

    def windowed_layers(self, config: JsonObject) -> list[bool]:
        """See `LlamaModel.windowed_layers`."""
        return qwen_windowed_layers(config)


class BidirectionalQwen3Model(Qwen3Model):
    """Every token sees its whole sequence, as in pplx-embed."""

    causal = False


class Qwen3ForSequenceClassification(DecoderForSequenceClassification):
    """Logits of the last token, the form in which converted rerankers are published; a `Model`."""

    backbone_class = Qwen3Model
