"""Qwen2 (Qwen team, 2024): Llama with biases on query, key and value.

gte-Qwen2 drops the mask by `is_causal`.
"""

from __future__ import annotations

from rose.checkpoint.json_object import JsonObject
from rose.models.decoder_classifier import DecoderForSequenceClassification
from rose.models.llama import DEFAULT_WINDOW, LlamaModel


class Qwen2Model(LlamaModel):
    """Embedding, decoder layers, last norm; a `Backbone`."""

    qkv_bias = True
    default_positions = 32768

    def windowed_layers(self, config: JsonObject) -> list[bool]:
        """See `LlamaModel.windowed_layers`."""
        return qwen_windowed_layers(config)


class Qwen2ForSequenceClassification(DecoderForSequenceClassification):
    """Logits of the last token; a `Model`."""

    backbone_class = Qwen2Model


def qwen_windowed_layers(config: JsonObject) -> list[bool]:
    """With `use_sliding_window`: `layer_types`, or the layers from `max_window_layers` on."""
    num_layers = config.integer("num_hidden_layers")
    has_window = config.values.get("sliding_window", DEFAULT_WINDOW) is not None
    if not (has_window and config.boolean("use_sliding_window", False)):
        return [False] * num_layers
    if config.has("layer_types"):
        return layer_types_windowed(config, num_layers)
    first = config.integer("max_window_layers", 28, minimum=0)
    return [index >= first for index in range(num_layers)]


def layer_types_windowed(config: JsonObject, num_layers: int) -> list[bool]:
    """Which entries of `layer_types` are sliding_attention.

    Raises:
        ModelLoadError: their number is wrong, or there is a kind that is not supported.
    """
    kinds = config.array("layer_types")
    known = {"full_attention", "sliding_attention"}
    if len(kinds) != num_layers or not all(isinstance(k, str) and k in known for k in kinds):
        raise config.wrong(
            "layer_types", f"{num_layers} times full_attention or sliding_attention", kinds
        )
    return [kind == "sliding_attention" for kind in kinds]
