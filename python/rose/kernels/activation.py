"""Activations between the two GEMMs of a feed-forward layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F

from rose.kernels.launch import launch, uses_triton

GateActivation = Literal["silu", "gelu", "gelu_tanh"]

_GATES: dict[GateActivation, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def gated_mul(gate_up: torch.Tensor, activation: GateActivation) -> torch.Tensor:
    """activation(gate) · up, [tokens, width], of [tokens, 2 · width] that holds both in turn."""
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    if uses_triton(gate_up):
        from rose.kernels.triton_kernels.activation import gated_mul_kernel

        out = torch.empty(tokens, width, dtype=gate_up.dtype, device=gate_up.device)
        launch(
            gated_mul_kernel,
            (tokens, -(-width // 1024)),
            gate_up,
            out,
            width=width,
            block=1024,
            activation=activation,
            float32=gate_up.dtype == torch.float32,
            num_warps=4,
            dependent_rows=tokens,
        )
        return out
    gate, up = gate_up.float().view(tokens, width, 2).unbind(2)
    return (_GATES[activation](gate) * up).to(gate_up.dtype)


def bias_gelu_(x: torch.Tensor, bias: torch.Tensor, *, tanh: bool = False) -> torch.Tensor:
    """GELU(x + bias) in place, x [tokens, width]; `tanh` selects the approximation.

    cuBLAS has a GELU in its epilogue, but only the approximation; BERT is trained with the exact one.
    """
    tokens, width = x.shape
    if uses_triton(x):
        from rose.kernels.triton_kernels.activation import bias_gelu_kernel

        launch(
            bias_gelu_kernel,
            (tokens, -(-width // 1024)),
            x,
            bias,
            width=width,
            block=1024,
            tanh=tanh,
            float32=x.dtype == torch.float32,
            num_warps=4,
            dependent_rows=tokens,
        )
        return x
    return x.copy_(F.gelu(x.float() + bias.float(), approximate="tanh" if tanh else "none"))
