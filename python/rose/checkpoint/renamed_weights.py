"""A checkpoint under another family's tensor names."""

from __future__ import annotations

import torch

from rose.models.base import WeightSource


class RenamedWeights:
    """A `WeightSource` whose names are those of one family, over the tensors of another."""

    def __init__(self, weights: WeightSource, replacements: tuple[tuple[str, str], ...]) -> None:
        """`replacements` are parts of names and what the tensors have there, applied in order."""
        self.dtype = weights.dtype
        self.device = weights.device
        self._weights = weights
        self._replacements = replacements

    def has(self, name: str) -> bool:
        """See `WeightSource.has`."""
        return self._weights.has(self._stored(name))

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """See `WeightSource.take`."""
        return self._weights.take(self._stored(name), *shape)

    def _stored(self, name: str) -> str:
        for part, stored in self._replacements:
            name = name.replace(part, stored)
        return name
