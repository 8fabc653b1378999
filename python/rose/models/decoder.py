"""What heads ask of a decoder beyond being a `Backbone`."""

from __future__ import annotations

from typing import Protocol

import torch

from rose.checkpoint.json_object import JsonObject
from rose.models.base import Backbone, WeightSource


class Decoder(Backbone, Protocol):
    """A backbone of a language model."""

    words: torch.Tensor
    """Input embeddings [vocab_size, hidden_size] as the checkpoint stores them."""


class DecoderClass(Protocol):
    """A class of decoders."""

    unused_weights: tuple[str, ...]
    tied_by_default: bool
    """Input embeddings are the vocabulary head, unless `tie_word_embeddings` says otherwise."""

    def __call__(self, config: JsonObject, weights: WeightSource) -> Decoder:
        """Builds the model."""
