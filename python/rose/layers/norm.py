"""Layer normalization, alone and behind a residual; sums in float32 whatever the dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rose.kernels.launch import uses_triton
from rose.kernels.linear import add_linear_
from rose.kernels.norm import add_layer_norm
from rose.layers.linear import Linear
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
        if uses_triton(x) and self.bias is not None:
            return add_layer_norm(None, x, None, self.weight, self.bias, self.eps, None)
        # torch's kernels accumulate in float32 for 16-bit inputs too.
        return F.layer_norm(x, self._shape, self.weight, self.bias, self.eps)

    def contained(self, x: torch.Tensor, bad_rows: torch.Tensor | None) -> torch.Tensor:
        """The same, with rows that are not finite noted in `bad_rows` and replaced by zeros.

        Without `bad_rows` they stay as they are.
        """
        if not uses_triton(x) or self.bias is None:
            return self(x)
        return add_layer_norm(None, x, None, self.weight, self.bias, self.eps, bad_rows)

    def behind(
        self,
        linear: Linear,
        x: torch.Tensor,
        residual: torch.Tensor,
        bad_rows: torch.Tensor | None,
    ) -> torch.Tensor:
        """LayerNorm(residual + linear(x)), [tokens, width]; may write into `residual`."""
        if not uses_triton(x) or self.bias is None:
            return self(linear(x, residual=residual))
        add_linear_(residual, x, linear.weight)
        return add_layer_norm(
            None, residual, linear.bias, self.weight, self.bias, self.eps, bad_rows
        )

    @classmethod
    def load(
        cls, weights: WeightSource, name: str, width: int, eps: float, *, bias: bool = True
    ) -> LayerNorm:
        """The layer stored as `NAME.weight` and `NAME.bias`; without `bias` that is all zeros."""
        weight = weights.take(f"{name}.weight", width)
        return cls(
            weight, weights.take(f"{name}.bias", width) if bias else torch.zeros_like(weight), eps
        )


def new_bad_rows(x: torch.Tensor) -> torch.Tensor | None:
    """An empty list of bad rows for [tokens, width] rows on CUDA.

    On CPU each sequence is attended by itself, so that bad numbers stay where they are.
    """
    if not uses_triton(x):
        return None
    return torch.zeros(x.shape[0], dtype=torch.int32, device=x.device)
