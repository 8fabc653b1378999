"""Attention back ends by name; each library is imported when its back end is made."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import torch

from rose.attention.base import AttentionBackend, AttentionShape
from rose.attention.mixed import MixedAttention
from rose.errors import ConfigError

BACKENDS = {
    "sdpa": "rose.attention.sdpa:SdpaAttention",
    "short": "rose.attention.short:ShortAttention",
    "flash_attn": "rose.attention.flash_attn:FlashAttention",
    "flashinfer": "rose.attention.flashinfer:FlashInferAttention",
    "fa3_fwd": "rose.attention.fa3_fwd:Fa3Forward",
    "flash_attn_4": "rose.attention.flash_attn_4:FlashAttention4",
}


def make_attention(
    name: str,
    shape: AttentionShape,
    dtype: torch.dtype,
    device: torch.device,
    *,
    deterministic: bool = False,
) -> AttentionBackend:
    """The back end called `name`.

    `auto` is `sdpa` on CPU, for float32 and for models whose logits have a position bias, and picks
    among the others on CUDA batch by batch; with `deterministic` once for all.

    Raises:
        ConfigError: there is no such back end, it does not run here, or its library is missing.
    """
    if shape.local is not None:
        full, local = (
            make_attention(name, part, dtype, device, deterministic=deterministic)
            for part in (replace(shape, local=None), shape.local)
        )
        return MixedAttention(full, local)
    if name == "auto":
        if device.type == "cuda" and dtype != torch.float32 and _has_kernel(shape):
            from rose.attention.auto import AutoAttention, choose_once

            if deterministic:
                return choose_once(shape, dtype, device)
            return AutoAttention(shape, dtype, device)
        name = "sdpa"
    if name not in BACKENDS:
        raise ConfigError(f"attention must be one of auto, {', '.join(BACKENDS)}, got {name!r}")
    if device.type == "cpu" and name != "sdpa":
        raise ConfigError(f"attention {name!r} needs a CUDA device; on CPU use sdpa or auto")
    module_name, class_name = BACKENDS[name].split(":")
    try:
        backend_class = getattr(import_module(module_name), class_name)
    except ImportError as error:
        raise ConfigError(f"attention {name!r} cannot be used: {error}") from error
    backend: AttentionBackend = backend_class(shape, dtype, device, deterministic=deterministic)
    return backend


def _has_kernel(shape: AttentionShape) -> bool:
    """Whether one of the ragged kernels computes it: they have no table of biases."""
    return shape.bias is None and shape.head_dim % 8 == 0 and shape.head_dim <= 256


__all__ = ["BACKENDS", "AttentionBackend", "AttentionShape", "make_attention"]
