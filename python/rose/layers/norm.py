"""Layer normalization; sums in float32 whatever the dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rose.models.base import WeightSource


class LayerNorm:
    """(x - mean) / sqrt(variance + eps) · weight + bias over the last dimension."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, eps: float) -> None:
        self.weight = weight
        self.bias = bias
        self.eps = eps
        self._shape = (weight.shape[0],)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, width] in and out, of one dtype."""
        # torch's kernels accumulate in float32 for 16-bit inputs too.
        return F.layer_norm(x, self._shape, self.weight, self.bias, self.eps)

    @classmethod
    def load(cls, weights: WeightSource, name: str, width: int, eps: float) -> LayerNorm:
        """The layer stored as `NAME.weight` and `NAME.bias`."""
        return cls(weights.take(f"{name}.weight", width), weights.take(f"{name}.bias", width), eps)
