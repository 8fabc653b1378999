"""Mistral (Mistral AI, 2023): Llama whose layers may all see a window (e5-mistral and its kin)."""

from __future__ import annotations

from rose.checkpoint.json_object import JsonObject
from rose.models.decoder_classifier import DecoderForSequenceClassification
from rose.models.llama import DEFAULT_WINDOW, LlamaModel


class MistralModel(LlamaModel):
    """Embedding, decoder layers, last norm; a `Backbone`."""

    default_positions = 4096 * 32

    def windowed_layers(self, config: JsonObject) -> list[bool]:
        """See `LlamaModel.windowed_layers`."""
        windowed = config.values.get("sliding_window", DEFAULT_WINDOW) is not None
        return [windowed] * config.integer("num_hidden_layers")


class MistralForSequenceClassification(DecoderForSequenceClassification):
    """Logits of the last token; a `Model`."""

    backbone_class = MistralModel
