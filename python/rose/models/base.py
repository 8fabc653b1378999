"""What the engine asks of a model, and a model of its weights."""

from __future__ import annotations

from typing import Protocol

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.forward_batch import ForwardBatch
from rose.kernels.pooling import RowChoice


class WeightSource(Protocol):
    """Where a model's constructor gets its tensors from: a checkpoint, or random numbers.

    Tensors arrive in the engine's dtype and on its device.
    """

    dtype: torch.dtype
    device: torch.device

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor called `name`.

        Raises:
            ModelLoadError: it is missing or has another shape.
        """


class Backbone(Protocol):
    """A transformer without a head, as registered in `rose.models.registry`.

    Constructed with (config: JsonObject, weights: WeightSource).
    """

    hidden_size: int
    vocab_size: int
    max_positions: int
    """Longest sequence in tokens."""
    token_types: bool
    """The model reads token types."""
    position_offset: int
    attention_shape: AttentionShape

    def __call__(
        self, batch: ForwardBatch, attention: AttentionBackend, rows: RowChoice | None = None
    ) -> torch.Tensor:
        """Hidden states [padded_tokens, hidden_size] in the engine's dtype.

        With `rows` only the first or last token's of each sequence, [padded_sequences,
        hidden_size]: the last layer then skips most of its work.
        """


class Model(Protocol):
    """A backbone with its head: what a step runs."""

    backbone: Backbone
    output_width: int

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """[padded_sequences, output_width] float32.

        Pooled (and normalized) rows of an embedding model; logits of a cross-encoder or
        classifier. `attention` has been planned for `batch`.
        """
