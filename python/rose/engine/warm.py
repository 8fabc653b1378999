"""Compiles ahead what a server of a model would compile at its start or beside its work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from rose.attention import flashinfer
from rose.attention.base import AttentionShape
from rose.attention.flashinfer_modules import (
    build_module,
    can_build_modules,
    fa3_module_name,
    find_module,
)
from rose.checkpoint.checkpoint import read_checkpoint
from rose.checkpoint.location import find_model
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.engine.load import find_device, find_dtype, load_model
from rose.errors import ConfigError

# FlashAttention 4 compiles in memory unless this says 1.
_FLASH_ATTN_4_CACHE = "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"

Tell = Callable[[str], None]


def warm(model: str | Path, config: EngineConfig, tell: Tell) -> None:
    """Builds the kernels of a model where a server finds them; returns when none is missing.

    Args:
        model: directory, hub id or `demo`.
        config: how the server will load and run it.
        tell: called with a line for each thing done, or why it is not.

    Raises:
        ModelLoadError: there is no such model or its files cannot be used.
        ConfigError: an option does not fit the model or the machine.
        KernelBuildError: a kernel cannot be compiled here.
    """
    device = find_device(config.device)
    if device.type != "cuda":
        # Also where nothing is built, a wrong name must not pass for done.
        directory, _ = find_model(model, config.revision)
        read_checkpoint(directory)
        found = "no CUDA device" if config.device == "auto" else f"device {config.device}"
        tell(f"{found}: there is nothing to build")
        return
    if config.attention == "flash_attn_4" and os.environ.get(_FLASH_ATTN_4_CACHE) != "1":
        raise ConfigError(
            "attention flash_attn_4 keeps compiled kernels only where the environment, here and of "
            f"the server, has {_FLASH_ATTN_4_CACHE}=1"
        )
    loaded, info, _ = load_model(model, config)
    shape = loaded.backbone.attention_shape
    # Layers that see a window have attention of their own.
    for part in (replace(shape, local=None), shape.local):
        if part is not None and config.attention in ("auto", "flashinfer"):
            _build_flashinfer(part, find_dtype(config.dtype, device), device, tell)
    started = time.perf_counter()
    Engine(loaded, info, config)
    tell(f"kernels of the model are compiled: {time.perf_counter() - started:.1f} s")


def _build_flashinfer(
    shape: AttentionShape, dtype: torch.dtype, device: torch.device, tell: Tell
) -> None:
    """Where FlashInfer cannot be used the engine says so itself, or does without."""
    reason = flashinfer.why_not(shape, dtype, device)
    if reason is not None:
        tell(f"flashinfer {reason}: not built")
        return
    name = fa3_module_name(dtype, shape.head_dim)
    path = find_module(name)
    if path is not None:
        tell(f"flashinfer: the kernel is there: {path}")
        return
    if not can_build_modules():
        tell("flashinfer: not built, the package flashinfer-python is not installed")
        return
    tell(f"flashinfer: building {name}")
    started = time.perf_counter()
    path = build_module(
        dtype,
        shape.head_dim,
        still_building=lambda seconds: tell(f"flashinfer: still building, {seconds:.0f} s"),
    )
    tell(f"flashinfer: built in {time.perf_counter() - started:.1f} s: {path}")
