"""Layers behind pooling: sentence-transformers' Dense with a residual, and its LayerNorm."""

from __future__ import annotations

import torch

from rose.layers.linear import Linear
from rose.layers.norm import LayerNorm


class ResidualDense:
    """activation(x Wᵀ + b) + x, with x through a layer of its own where the widths differ."""

    def __init__(self, linear: Linear, residual: Linear | None) -> None:
        self.linear = linear
        self.residual = residual
        self.out_features = linear.out_features

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[sequences, in_features] to [sequences, out_features], float32."""
        return self.linear(x, x if self.residual is None else self.residual(x))


class PooledLayerNorm:
    """LayerNorm of pooled rows."""

    def __init__(self, norm: LayerNorm) -> None:
        self.norm = norm
        self.out_features = norm.weight.shape[0]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[sequences, width] in and out, float32."""
        return self.norm(x)
