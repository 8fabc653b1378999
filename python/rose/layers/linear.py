"""Linear layers with what follows them fused in: bias, activation, residual."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from rose.errors import ModelLoadError
from rose.kernels.launch import uses_triton
from rose.kernels.linear import add_linear_, linear, linear_into
from rose.models.base import WeightSource

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
}

# oneDNN's names of the same functions: (post-op, algorithm).
_ONEDNN_POST_OPS = {
    None: ("none", ""),
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "sigmoid": ("sigmoid", ""),
    "silu": ("swish", ""),
    "tanh": ("tanh", ""),
}

# Rows up to which the plain float32 GEMM wins on CPU; `benches/cpu_small_gemm.py` compares them.
_PLAIN_ROWS = 40


class Linear:
    """y = activation(x Wᵀ + b) [+ residual], x [tokens, in_features]."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None
    ) -> None:
        if activation is not None and activation not in _ACTIVATIONS:
            raise ModelLoadError(
                f"activation {activation!r} is not supported; "
                f"supported are {', '.join(_ACTIVATIONS)}"
            )
        self.out_features, self.in_features = weight.shape
        self.weight = weight
        self.bias = bias
        self.activation = activation

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """[tokens, out_features]; `residual` has that shape too."""
        y = linear(x, self.weight, self.bias)
        if self.activation is not None:
            y = _ACTIVATIONS[self.activation](y)
        return y if residual is None else y + residual

    def into(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor | None:
        """What a norm still has to add to `residual`; of a layer without activation.

        Returns:
            None where it has been added, in place; else [tokens, out_features], or parts of it
            [parts, tokens, out_features] float32.
        """
        if not uses_triton(residual):
            return self(x)
        if self.bias is not None:
            residual.add_(self.bias)
        return linear_into(residual, x, self.weight)

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """residual + x Wᵀ + b of a layer without activation; may write into `residual`."""
        if not uses_triton(residual):
            return self(x, residual)
        add_linear_(residual, x, self.weight)
        return residual if self.bias is None else residual.add_(self.bias)


class PackedLinear(Linear):
    """On CPU: the weight in oneDNN's own blocked layout, epilogue inside the GEMM.

    A float32 layer keeps the plain weight too, for a handful of rows. In bfloat16 oneDNN is the
    faster one at any size.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None = None
    ) -> None:
        super().__init__(weight, bias, activation)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self.plain_rows = _PLAIN_ROWS if weight.dtype == torch.float32 else 0
        if self.plain_rows:
            # Column by column: faster for few rows, see `benches/cpu_small_gemm.py`.
            self.weight = weight.t().contiguous().t()
        else:
            self.weight = self.packed
        self._post_op, self._algorithm = _ONEDNN_POST_OPS[activation]

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """[tokens, out_features]; `residual` has that shape too."""
        y: torch.Tensor
        if x.shape[0] <= self.plain_rows:
            y = super().__call__(x, residual)
        elif residual is None:
            y = torch.ops.mkldnn._linear_pointwise(
                x, self.packed, self.bias, self._post_op, [], self._algorithm
            )
        elif self.activation is None:
            y = torch.ops.mkldnn._linear_pointwise.binary(
                x, residual, self.packed, self.bias, "add"
            )
        else:
            y = self(x) + residual
        return y


def load_linear(
    weights: WeightSource,
    names: str | Sequence[str],
    in_features: int,
    out_features: int,
    *,
    bias: bool = True,
    activation: str | None = None,
    packed: bool = True,
) -> Linear:
    """The layer stored as `NAME.weight` (and `NAME.bias`), in the form that is fast on its device.

    Several names, of `out_features` each, become one layer with their outputs side by side. `packed`
    allows a second copy of the weight on CPU, which pays where the model is small.

    Raises:
        ModelLoadError: a tensor is missing or has another shape, or the activation is unknown.
    """
    names = [names] if isinstance(names, str) else names
    parts = [weights.take(f"{name}.weight", out_features, in_features) for name in names]
    biases = [weights.take(f"{name}.bias", out_features) for name in names] if bias else []
    return make_linear(
        parts[0] if len(parts) == 1 else torch.cat(parts),
        None if not biases else biases[0] if len(biases) == 1 else torch.cat(biases),
        activation,
        packed=packed,
    )


def make_linear(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None = None,
    *,
    packed: bool = True,
) -> Linear:
    """The layer of a weight [out_features, in_features], in the form that is fast on its device.

    Raises:
        ModelLoadError: the activation is unknown.
    """
    packs = packed and _packs(weight.device, weight.dtype)
    return (PackedLinear if packs else Linear)(weight, bias, activation)


def _packs(device: torch.device, dtype: torch.dtype) -> bool:
    if device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    # Without the instructions oneDNN's 16-bit GEMM refuses or is slower than torch's own.
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
