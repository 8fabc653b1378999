"""Picks an attention back end for each batch, by a rule read off measurements."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from rose.attention import fa3_fwd, flashinfer
from rose.attention.base import AttentionBackend, AttentionShape
from rose.attention.fa3_fwd import Fa3Forward
from rose.attention.flash_attn import FlashAttention
from rose.attention.flashinfer import FlashInferAttention
from rose.attention.flashinfer_modules import build_in_background, fa3_module_name, find_module
from rose.attention.short import ShortAttention
from rose.attention.short import why_not as why_not_short
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

logger = logging.getLogger(__name__)

NO_LIMIT = 1 << 62

# The longest sequence of a batch up to which FlashAttention 2 is chosen: FlashAttention 3 fills tiles
# of 128 (head_dim 128) or 192 (head_dim 64) queries, FlashAttention 2 leaves less of them empty, and
# below that both wait for memory. Table: benches/results/gpu_attention.json.
FLASH_ATTN_LONGEST = 64
# By head_dim the longest sequences up to which our own kernel is, and with how many tokens at most.
SHORT_LIMITS: dict[int, tuple[tuple[int, int], ...]] = {
    32: ((512, NO_LIMIT),),
    64: ((256, NO_LIMIT), (512, 1024)),
    128: ((64, NO_LIMIT), (256, 256)),
}
# The same where the package fa3-fwd stands in, whose calls take 3 to 4 µs more at short sequences: of
# full and of causal attention.
FLASH_ATTN_LONGEST_BESIDE_FA3_FWD = (256, 128)


class AutoAttention(AttentionBackend):
    """FlashAttention 2, and for longer sequences a FlashAttention 3 where one is at hand.

    FlashInfer's comes first, then that of the package `fa3-fwd`. A missing kernel of FlashInfer is
    built in the background; batches use it once it is there.
    """

    capturable = True

    def __init__(self, shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(shape, dtype, device)
        self._flash_attn = FlashAttention(shape, dtype, device)
        self._short: ShortAttention | None = None
        if why_not_short(shape, dtype) is None:
            self._short = ShortAttention(shape, dtype, device)
        self._flash_attn_longest = FLASH_ATTN_LONGEST
        self._flash_attn_3: AttentionBackend | None = None
        self._chosen: AttentionBackend = self._flash_attn
        # Set by the thread that builds, taken by the engine's: only that one loads kernels.
        self._built: Path | None = None
        reason = flashinfer.why_not(shape, dtype, device)
        if reason is None:
            path = find_module(fa3_module_name(dtype, shape.head_dim))
            if path is not None and self._use_flashinfer(path):
                return
            if path is not None:
                reason = "cannot be loaded"
            elif build_in_background(dtype, shape.head_dim, self._when_built):
                reason = "has its kernel built meanwhile"
            else:
                reason = "is not installed"
        self._use_fa3_fwd(f"flashinfer {reason}")

    @property
    def has_news(self) -> bool:
        """Whether a kernel has been built."""
        return self._built is not None

    def graph_variant(
        self, padded_tokens: int, padded_sequences: int, max_seqlen: int
    ) -> tuple[str, int]:
        """That of the back end the batch gets."""
        # Here and not in `plan`, so that both choose the same one for a batch.
        if self._built is not None:
            path, self._built = self._built, None
            logger.info("flashinfer's kernel is built: %s", path)
            self._use_flashinfer(path)
        backend = self._choose(padded_tokens, max_seqlen)
        return backend.graph_variant(padded_tokens, padded_sequences, max_seqlen)

    def plan(self, batch: ForwardBatch) -> None:
        """Chooses and plans."""
        self._chosen = self._choose(batch.padded_tokens, batch.max_seqlen)
        self._chosen.plan(batch)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
        """See `AttentionBackend.run`."""
        self._chosen.run(q, k, v, out)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        return self._chosen.attend(q, k, v)

    def _choose(self, padded_tokens: int, max_seqlen: int) -> AttentionBackend:
        if self._short is not None and any(
            max_seqlen <= longest and padded_tokens <= most_tokens
            for longest, most_tokens in SHORT_LIMITS.get(self.shape.head_dim, ())
        ):
            return self._short
        if self._flash_attn_3 is None or max_seqlen <= self._flash_attn_longest:
            return self._flash_attn
        return self._flash_attn_3

    def _use_flashinfer(self, path: Path) -> bool:
        try:
            backend = FlashInferAttention(self.shape, self.dtype, self.device, path)
        except (ConfigError, OSError, RuntimeError) as error:
            logger.warning("attention: flashinfer cannot be loaded: %s", error)
            return False
        self._use("flashinfer", backend, FLASH_ATTN_LONGEST)
        return True

    def _use_fa3_fwd(self, why_not_flashinfer: str) -> None:
        reason = fa3_fwd.why_not(self.shape, self.dtype, self.device)
        if reason is None:
            try:
                backend = Fa3Forward(self.shape, self.dtype, self.device)
            except ConfigError as error:
                logger.warning("%s", error)
                reason = "cannot be loaded"
        if reason is not None:
            logger.info("attention: flash_attn; %s; fa3_fwd %s", why_not_flashinfer, reason)
            return
        logger.info("%s", why_not_flashinfer)
        longest = FLASH_ATTN_LONGEST_BESIDE_FA3_FWD[self.shape.causal]
        self._use("fa3_fwd", backend, longest)

    def _use(self, name: str, backend: AttentionBackend, flash_attn_longest: int) -> None:
        self._flash_attn_3, self._flash_attn_longest = backend, flash_attn_longest
        logger.info(
            "attention: %s, and flash_attn where no sequence is longer than %d",
            name,
            flash_attn_longest,
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
    reason = flashinfer.why_not(shape, dtype, device)
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
