"""Picks an attention back end for each batch, by a rule read off measurements."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.attention.flash_attn import FlashAttention
from rose.attention.flashinfer import FlashInferAttention, why_not
from rose.attention.flashinfer_modules import build_in_background, fa3_module_name, find_module
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

logger = logging.getLogger(__name__)

# The longest sequence of a batch up to which FlashAttention 2 is chosen: FlashAttention 3 fills tiles
# of 128 (head_dim 128) or 192 (head_dim 64) queries, FlashAttention 2 leaves less of them empty, and
# below that both wait for memory. Table: benches/results/gpu_attention.json.
FLASH_ATTN_LONGEST = 64


class AutoAttention(AttentionBackend):
    """FlashAttention 2, and FlashInfer's FlashAttention 3 where its kernel is at hand.

    A missing kernel is built in the background; batches use it once it is there.
    """

    capturable = True

    def __init__(self, shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, dtype, device)
        self._flash_attn = FlashAttention(shape, dtype, device)
        self._flashinfer: FlashInferAttention | None = None
        self._chosen: AttentionBackend = self._flash_attn
        # Set by the thread that builds, taken by the engine's: only that one loads kernels.
        self._built: Path | None = None
        reason = why_not(shape, dtype, device)
        if reason is not None:
            logger.info("attention: flash_attn; flashinfer %s", reason)
            return
        path = find_module(fa3_module_name(dtype, shape.head_dim))
        if path is not None:
            self._use_flashinfer(path)
            return
        self._build_started = time.monotonic()
        if build_in_background(dtype, shape.head_dim, self._when_built):
            logger.info("attention: flash_attn, while flashinfer's kernel is built")
        else:
            logger.info("attention: flash_attn; flashinfer is not installed")

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """That of the back end the batch gets."""
        backend = self._choose(max_seqlen)
        return backend.graph_variant(padded_tokens, padded_sequences, max_seqlen)

    def plan(self, batch: ForwardBatch) -> None:
        """Chooses and plans."""
        self._chosen = self._choose(batch.max_seqlen)
        self._chosen.plan(batch)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`."""
        self._chosen.run(q, k, v, out)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        return self._chosen.attend(q, k, v)

    def _choose(self, max_seqlen: int) -> AttentionBackend:
        if self._built is not None:
            path, self._built = self._built, None
            logger.info("flashinfer's kernel is built: %s", path)
            self._use_flashinfer(path)
        if self._flashinfer is None or max_seqlen <= FLASH_ATTN_LONGEST:
            return self._flash_attn
        return self._flashinfer

    def _use_flashinfer(self, path: Path) -> None:
        try:
            self._flashinfer = FlashInferAttention(self.shape, self.dtype, self.device, path)
        except (ConfigError, OSError, RuntimeError) as error:
            logger.warning("attention: flash_attn; flashinfer cannot be loaded: %s", error)
            return
        logger.info(
            "attention: flashinfer, and flash_attn where no sequence is longer than %d",
            FLASH_ATTN_LONGEST,
        )

    def _when_built(self, path: Path) -> None:
        self._built = path


def choose_once(
    shape: AttentionShape, dtype: torch.dtype, device: torch.device
) -> AttentionBackend:
    """The back end of every batch of a deterministic engine.

    FlashInfer where its kernel is at hand now, else FlashAttention 2: the two round differently, so
    neither the longest sequence of a batch nor a finished build may change the choice.
    """
    reason = why_not(shape, dtype, device)
    path = find_module(fa3_module_name(dtype, shape.head_dim)) if reason is None else None
    if path is not None:
        try:
            found = FlashInferAttention(shape, dtype, device, path, deterministic=True)
        except (ConfigError, OSError, RuntimeError) as error:
            reason = f"cannot be loaded: {error}"
        else:
            logger.info("attention: flashinfer, for every batch")
            return found
    logger.info(
        "attention: flash_attn, for every batch; flashinfer %s", reason or "has no kernel built"
    )
    return FlashAttention(shape, dtype, device, deterministic=True)
