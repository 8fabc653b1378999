"""Feed-forward parts of a layer: gated, and plain."""

from __future__ import annotations

import torch

from rose.errors import ModelLoadError
from rose.kernels.activation import GateActivation
from rose.kernels.launch import uses_triton
from rose.kernels.linear import interleave, linear_gated
from rose.layers.linear import Linear, make_linear

_GATES: dict[str, GateActivation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


class FeedForward:
    """down(activation(up(x))); `down` is kept apart, because what follows adds it to a residual."""

    def __init__(self, up: Linear, down: Linear) -> None:
        self.up = up
        self.down = down

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        """The input of `down`, [tokens, intermediate]."""
        return self.up(x)


class GatedFeedForward:
    """down(activation(gate(x)) · up(x)) (Shazeer, 2020).

    On CUDA gate and up are one GEMM with interleaved columns, so that one kernel reads both.
    """

    def __init__(
        self,
        gate: tuple[torch.Tensor, torch.Tensor | None],
        up: tuple[torch.Tensor, torch.Tensor | None],
        down: Linear,
        activation: str,
        *,
        packed: bool = True,
    ) -> None:
        """`gate` and `up` are weight [intermediate, hidden] and bias [intermediate] or None.

        Raises:
            ModelLoadError: the activation cannot gate.
        """
        if activation not in _GATES:
            raise ModelLoadError(
                f"activation {activation!r} is not supported in a gated layer; "
                f"supported are {', '.join(_GATES)}"
            )
        self.down = down
        self.activation = _GATES[activation]
        self._gate: Linear | None = None
        if not uses_triton(gate[0]):
            name = {"gelu_tanh": "gelu_new"}.get(self.activation, self.activation)
            self._gate = make_linear(*gate, name, packed=packed)
            self._up = make_linear(*up, packed=packed)
            return
        bias = None if gate[1] is None or up[1] is None else interleave(gate[1], up[1])
        self._gate_up = interleave(gate[0], up[0])
        self._gate_up_bias = bias

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        """The input of `down`, [tokens, intermediate]."""
        if self._gate is not None:
            return self._gate(x).mul_(self._up(x))
        return linear_gated(x, self._gate_up, self._gate_up_bias, self.activation)
