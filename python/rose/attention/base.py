"""What a model asks of an attention back end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field

import torch

from rose.forward_batch import ForwardBatch
from rose.kernels.rope import HeadRotation, qk_norm_rope_


class PositionBias:
    """What is added to the logits of a query and a key by the distance between them, head by head.

    ALiBi's slopes and the learned buckets of MPNet both come down to such a table.
    """

    def __init__(self, by_distance: torch.Tensor) -> None:
        if by_distance.dim() != 2 or by_distance.shape[1] % 2 == 0:
            raise ValueError(
                f"by_distance must be [num_heads, 2 * reach + 1], got {tuple(by_distance.shape)}"
            )
        self.by_distance = by_distance
        """[num_heads, 2 * reach + 1], for key minus query from -reach to reach."""
        self.reach = by_distance.shape[1] // 2

    def matrix(self, seqlen: int, dtype: torch.dtype) -> torch.Tensor:
        """[num_heads, seqlen, seqlen], queries by keys."""
        if seqlen > self.reach + 1:
            raise ValueError(f"a sequence of {seqlen} tokens is longer than {self.reach + 1}")
        near = self.by_distance[:, self.reach - seqlen + 1 : self.reach + seqlen].to(dtype)
        # Window w begins at distance w - (seqlen - 1): the row of query seqlen - 1 - w.
        return near.unfold(1, seqlen, 1).flip(1)


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
    bias: PositionBias | None = field(default=None, compare=False)
    local: AttentionShape | None = None
    """Attention of the layers that see a window, where a model has layers of both kinds."""


class AttentionBackend(ABC):
    """Attention inside each sequence of a packed batch; no KV cache."""

    def __init__(
        self,
        shape: AttentionShape,
        dtype: torch.dtype,
        device: torch.device,
        *,
        deterministic: bool = False,
    ) -> None:
        """With `deterministic` no bit of a sequence's rows depends on the rest of the batch."""
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.deterministic = deterministic

    @property
    def local(self) -> AttentionBackend:
        """Attention of the layers that see a window; the same one where all layers are alike."""
        return self

    capturable = False
    """`plan` and `run` may be captured in a CUDA graph and replayed on a batch of the same padded
    sizes and `graph_variant` with other `cu_seqlens`."""

    @property
    def has_news(self) -> bool:
        """Whether the next `graph_variant` takes a kernel into use, and allocates for it."""
        return False

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

    def attend_rotated(
        self, qkv: torch.Tensor, positions: torch.Tensor, rotation: HeadRotation
    ) -> torch.Tensor:
        """`attend` of heads that are still to be normed and rotated.

        Args:
            qkv: [tokens, (num_heads + 2 · num_kv_heads) · head_dim], contiguous; may be written to.
            positions: [tokens] int32.
            rotation: of query and key heads.

        Returns:
            [tokens, num_heads, head_dim], contiguous.
        """
        qk_norm_rope_(qkv, positions, self.shape, rotation)
        return self.attend(*self.split_heads(qkv))

    def split_heads(self, qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Views of query, key and value heads in rows of all three."""
        shape = self.shape
        counts = [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads]
        q, k, v = torch.split(qkv.view(qkv.shape[0], sum(counts), shape.head_dim), counts, 1)
        return q, k, v


def why_not_plain(
    shape: AttentionShape,
    dtype: torch.dtype,
    *,
    dtypes: Collection[torch.dtype],
    head_dims: Collection[int],
) -> str | None:
    """Why a kernel that has neither windows nor biases cannot compute a shape.

    Returns:
        The end of a sentence that begins with the kernel's name; None where it can.
    """
    if dtype not in dtypes:
        names = " or ".join(str(one).removeprefix("torch.") for one in dtypes)
        return f"needs {names}, got {dtype}"
    if shape.window is not None:
        return f"has no windows, got {shape.window}"
    if shape.bias is not None:
        return "has no position bias; use sdpa or auto"
    if shape.head_dim not in head_dims:
        return f"needs a head_dim of {', '.join(map(str, head_dims))}, got {shape.head_dim}"
    return None
