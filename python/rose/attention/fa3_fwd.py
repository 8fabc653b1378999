"""FlashAttention 3 of the package `fa3-fwd`: compiled for Hopper, no host plan, no windows."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from rose.attention.base import AttentionBackend, AttentionShape, why_not_plain
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

# Its name; the package has no Python code of its own around it.
_MODULE = "fa3_fwd._C"
_CAPABILITY = (9, 0)
# Those it was compiled for; a smaller head is padded inside, at the cost of a head of 64.
_HEAD_DIMS = (64, 96, 128, 192, 256)


class Fa3Forward(AttentionBackend):
    """Full or causal attention in bfloat16, from device-side `cu_seqlens`.

    Each call launches a small kernel that counts the tiles of each sequence, then a persistent one.
    """

    capturable = True

    def __init__(
        self,
        shape: AttentionShape,
        dtype: torch.dtype,
        device: torch.device,
        *,
        deterministic: bool = False,
    ) -> None:
        reason = why_not(shape, dtype, device)
        if reason is not None:
            raise ConfigError(f"attention fa3_fwd {reason}")
        super().__init__(shape, dtype, device, deterministic=deterministic)
        self._forward = _load_operator()
        self._cu_seqlens: torch.Tensor | None = None
        self._bound = 0

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """A persistent kernel: the longest sequence does not matter."""
        return "fa3_fwd", 0

    def plan(self, batch: ForwardBatch) -> None:
        """Keeps the addresses of `cu_seqlens`; nothing to compute."""
        self._cu_seqlens = batch.cu_seqlens
        # Any bound gives the same launch, except 1: the kernel then forgets that it is causal.
        self._bound = max(2, batch.padded_tokens)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`."""
        self._forward(
            q,
            k,
            v,
            out=out,
            cu_seqlens_q=self._cu_seqlens,
            cu_seqlens_k=self._cu_seqlens,
            max_seqlen_q=self._bound,
            max_seqlen_k=self._bound,
            softmax_scale=self.shape.scale,
            is_causal=self.shape.causal,
            # The operator's own choice would let a row's sums depend on what is in the batch.
            num_splits=1,
        )


def why_not(shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why this back end cannot be used, as the end of a sentence; None where it can."""
    if not _is_installed():
        return "needs the package fa3-fwd"
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != _CAPABILITY:
        return "needs a Hopper GPU (compute capability 9.0)"
    return why_not_plain(shape, dtype, dtypes=(torch.bfloat16,), head_dims=_HEAD_DIMS)


def _is_installed() -> bool:
    try:
        return find_spec(_MODULE) is not None
    except ModuleNotFoundError:
        return False


def _load_operator() -> Any:  # noqa: ANN401 - operators have no types
    try:
        import_module(_MODULE)  # registers it
        return torch.ops.fa3_fwd.fwd.default
    except (ImportError, OSError, AttributeError) as error:
        raise ConfigError(f"attention fa3_fwd: the package cannot be loaded: {error}") from error
