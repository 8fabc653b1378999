"""FlashInfer's ragged FlashAttention 3 for Hopper, scheduled on the device.

The library's own host plan is not used: `AttentionSchedule` makes the work lists in the captured
region, so a step has no host work and no staging buffer. Its FlashAttention 2 is left aside: torch's
own was faster at every shape measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rose.attention.base import AttentionBackend, AttentionShape, why_not_plain
from rose.attention.flashinfer_modules import can_load_modules, fa3_module_name, find_module
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch
from rose.kernels.attention_schedule import AttentionSchedule

# Query rows of a tile, fixed in the compiled kernels.
_TILE_ROWS = {64: 192, 128: 128}
_CAPABILITY = (9, 0)
_MASK_NONE, _MASK_CAUSAL = 0, 1
_LAYOUT_TOKENS_HEADS_DIM = 0
_NO_WINDOW = -1


class FlashInferAttention(AttentionBackend):
    """Full or causal attention of head_dim 64 or 128 in 16 bits."""

    capturable = True

    def __init__(
        self,
        shape: AttentionShape,
        dtype: torch.dtype,
        device: torch.device,
        module_path: Path | None = None,
        *,
        deterministic: bool = False,
    ) -> None:
        reason = why_not(shape, dtype, device)
        if reason is not None:
            raise ConfigError(f"attention flashinfer {reason}")
        module_path = module_path or find_module(fa3_module_name(dtype, shape.head_dim))
        if module_path is None:
            raise ConfigError(
                "attention flashinfer: the kernel for "
                f"{dtype} and head_dim {shape.head_dim} is not built; "
                "install flashinfer-jit-cache, or run `rose warm MODEL` once"
            )
        # A block computes a query tile by itself, whichever block that is: nothing to do for it.
        super().__init__(shape, dtype, device, deterministic=deterministic)
        import tvm_ffi

        self._ragged_run: Any = tvm_ffi.load_module(str(module_path)).ragged_run
        self._tile_rows = _TILE_ROWS[shape.head_dim]
        self._num_blocks = torch.cuda.get_device_properties(device).multi_processor_count
        # The kernel wants a float workspace and never touches it.
        self._unused = torch.empty(16, dtype=torch.uint8, device=device)
        # Addresses are baked into graphs, so a workspace that became too small lives on.
        self._workspaces: list[torch.Tensor] = []
        self._workspace = self._unused
        self._plan_info: list[int] = []
        self._cu_seqlens = self._unused

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """A persistent kernel: the longest sequence does not matter."""
        return "flashinfer", 0

    def plan(self, batch: ForwardBatch) -> None:
        """Launches the kernel that writes the work lists."""
        heads, tokens, sequences = (
            self.shape.num_heads,
            batch.padded_tokens,
            batch.padded_sequences,
        )
        capacity = AttentionSchedule.capacity(tokens, sequences, heads, self._tile_rows)
        indptr_len = -(-(self._num_blocks + 1) // 4) * 4
        self._reserve(7 * capacity + indptr_len)
        lists = self._workspace[: 7 * capacity].view(7, capacity).unbind(0)
        work_indptr = self._workspace[7 * capacity :][: self._num_blocks + 1]
        tiles, starts, kv_starts, lengths, kv_lengths, head_list, sequence_list = lists
        schedule = AttentionSchedule(
            work_indptr=work_indptr,
            heads=head_list,
            tiles=tiles,
            starts=starts,
            kv_starts=kv_starts,
            lengths=lengths,
            kv_lengths=kv_lengths,
            sequences=sequence_list,
        )
        schedule.fill(
            batch.cu_seqlens,
            num_tokens=tokens,
            num_heads=heads,
            tile_rows=self._tile_rows,
            causal=self.shape.causal,
        )
        # Byte offsets in the order of the library's plan: tiles, starts, key starts, lengths, key
        # lengths, heads, list boundaries, sequences; then whether all heads share one list.
        at = [index * capacity * 4 for index in range(8)]
        self._plan_info = [*at[:6], at[7], at[6], 0]
        self._cu_seqlens = batch.cu_seqlens

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`."""
        self._ragged_run(
            self._unused,
            self._workspace,
            self._plan_info,
            q,
            k,
            v,
            self._cu_seqlens,
            self._cu_seqlens,
            out,
            None,  # log-sum-exp
            _MASK_CAUSAL if self.shape.causal else _MASK_NONE,
            _LAYOUT_TOKENS_HEADS_DIM,
            _NO_WINDOW,
            False,  # programmatic dependent launch
            None,  # prefix lengths, positions and longest of multi-item scoring
            None,
            None,
            None,  # scale of values, as a tensor
            0.0,  # soft cap of logits
            self.shape.scale,
            1.0,  # scale of values
            0,  # positions in items
        )

    def _reserve(self, length: int) -> None:
        if self._workspace is self._unused or self._workspace.shape[0] < length:
            grown = max(length, 2 * self._workspace.shape[0])
            self._workspace = torch.empty(grown, dtype=torch.int32, device=self.device)
            self._workspaces.append(self._workspace)


def why_not(shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why this back end cannot be used, as the end of a sentence; None where it can."""
    if not can_load_modules():
        return "needs the package flashinfer-python"
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != _CAPABILITY:
        return "needs a Hopper GPU (compute capability 9.0)"
    dtypes = (torch.bfloat16, torch.float16)
    return why_not_plain(shape, dtype, dtypes=dtypes, head_dims=_TILE_ROWS)
