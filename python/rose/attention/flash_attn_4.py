"""FlashAttention 4 (package `flash-attn-4`), for Blackwell and Hopper; used only when asked for."""

from __future__ import annotations

import torch
from flash_attn.cute import flash_attn_varlen_func

from rose.attention.base import AttentionBackend, AttentionShape
from rose.attention.flash_attn import longest_bound
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

_HOPPER, _BLACKWELL = 9, 10
# Blackwell's kernels stop at 128, but for one of 256.
_LARGEST_HEAD_DIM = {_HOPPER: 256, _BLACKWELL: 128}
_BLACKWELL_LARGE_HEAD_DIM = 256
# Sequences within one tile of queries get a kernel of their own, compiled when the first such batch
# comes: no bound may be as short.
_SHORTEST_BOUND = 512


class FlashAttention4(AttentionBackend):
    """Compiles in the process on first use, so it runs eagerly: never captured."""

    def __init__(
        self,
        shape: AttentionShape,
        dtype: torch.dtype,
        device: torch.device,
        *,
        deterministic: bool = False,
    ) -> None:
        if dtype not in (torch.bfloat16, torch.float16):
            raise ConfigError(f"attention flash_attn_4 needs bfloat16 or float16, got {dtype}")
        major, _ = torch.cuda.get_device_capability(device)
        if major not in _LARGEST_HEAD_DIM:
            raise ConfigError(
                f"attention flash_attn_4 needs compute capability 9 or 10, got {major}"
            )
        largest = _LARGEST_HEAD_DIM[major]
        fits = shape.head_dim % 8 == 0 and shape.head_dim <= largest
        if not fits and (major, shape.head_dim) != (_BLACKWELL, _BLACKWELL_LARGE_HEAD_DIM):
            raise ConfigError(
                "attention flash_attn_4 needs a head_dim that is a multiple of 8 and at most "
                f"{largest} on this GPU, got {shape.head_dim}"
            )
        if deterministic:
            raise ConfigError(
                "attention flash_attn_4 chooses kernels by the longest sequence of a batch; "
                "deterministic mode has auto, flashinfer, flash_attn or sdpa"
            )
        if shape.bias is not None:
            raise ConfigError("attention flash_attn_4 has no position bias; use sdpa or auto")
        super().__init__(shape, dtype, device)
        self._cu_seqlens: torch.Tensor | None = None
        self._bound = 0

    def plan(self, batch: ForwardBatch) -> None:
        """Keeps the addresses of `cu_seqlens`; nothing to compute."""
        self._cu_seqlens = batch.cu_seqlens
        self._bound = max(_SHORTEST_BOUND, longest_bound(batch.padded_tokens, batch.max_seqlen))

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`; costs a copy more than `attend`."""
        out.copy_(self.attend(q, k, v))

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        result = flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=self._cu_seqlens,
            cu_seqlens_k=self._cu_seqlens,
            max_seqlen_q=self._bound,
            max_seqlen_k=self._bound,
            softmax_scale=self.shape.scale,
            causal=self.shape.causal,
            window_size=self.shape.window or (None, None),
        )
        # The second of a pair is the log-sum-exp, None unless asked for.
        out: torch.Tensor = result[0] if isinstance(result, tuple) else result
        return out
