"""What a model asks of an attention back end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from rose.forward_batch import ForwardBatch


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention of one kind of layer, the same in every step."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    causal: bool = False
    window: tuple[int, int] | None = None
    """Most keys to the left and to the right of a query; None = all."""


class AttentionBackend(ABC):
    """Attention inside each sequence of a packed batch; no KV cache."""

    def __init__(self, shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device

    capturable = False
    """`plan` and `run` may be captured in a CUDA graph and replayed on a batch of the same padded
    sizes and `graph_variant` with other `cu_seqlens`."""

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """What a captured step bakes in beyond padded sizes: back end, bound on the longest sequence.

        0 stands for no bound.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be captured")

    @abstractmethod
    def plan(self, batch: ForwardBatch) -> None:
        """Prepares `run` for a batch, once a step, before the model runs.

        A back end that is not `capturable` may read `cu_seqlens_cpu` here.
        """

    @abstractmethod
    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """Attention of the planned batch.

        Args:
            q: [tokens, num_heads, head_dim]; rows may be strided.
            k: [tokens, num_kv_heads, head_dim]; rows may be strided.
            v: [tokens, num_kv_heads, head_dim]; rows may be strided.
            out: [tokens, num_heads, head_dim], contiguous; written.
        """

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """`run` into memory of its own, which some libraries insist on allocating themselves.

        Returns:
            [tokens, num_heads, head_dim], contiguous.
        """
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        self.run(q, k, v, out)
        return out
