"""The adapter of flash-attn-4 against a function with the signature of 4.0.0b36."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch

from rose.attention import make_attention
from rose.attention.base import AttentionShape
from rose.errors import ConfigError

CUDA = torch.device("cuda", 0)
SHAPES = {
    "full": AttentionShape(4, 2, 64, 0.1),
    "causal": AttentionShape(4, 2, 64, 0.1, causal=True),
    "window": AttentionShape(4, 4, 32, 0.2, window=(16, 16)),
    "causal window": AttentionShape(4, 4, 32, 0.2, causal=True, window=(20, 0)),
}
CALLS: list[tuple[int, int]] = []


def flash_attn_varlen_func(
    ragged: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    qv: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_seqlen_q: Any = None,
    max_seqlen_k: Any = None,
    min_seqlen_k: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    gather_kv_indices: Any = None,
    page_table: Any = None,
    softmax_scale: Any = None,
    causal: bool = False,
    window_size: Any = (None, None),
    learnable_sink: Any = None,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Any = None,
    deterministic: bool = False,
    score_mod: Any = None,
    score_mod_bwd: Any = None,
    mask_mod: Any = None,
    block_sparse_tensors: Any = None,
    aux_tensors: Any = None,
    aux_scalars: Any = None,
    return_lse: bool = False,
    scheduler_metadata: Any = None,
    seqlen_k_per_split: Any = None,
    disable_scheduler_metadata: bool = False,
    gather_bwd_recompute_p: bool = False,
    gather_bwd_token_chunk: Any = None,
) -> tuple[torch.Tensor, None]:
    """What the package's does for the arguments that the adapter gives."""
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert cu_seqlens_q.stride(0) == cu_seqlens_k.stride(0) == 1
    assert num_splits == 1
    assert k is not v  # the same object means latent attention there
    CALLS.append((max_seqlen_q, max_seqlen_k))
    left, right = window_size
    rows = ragged.attention(
        q, k, v, cu_seqlens_q, softmax_scale, causal=causal, window=(left, 0 if causal else right)
    )
    return rows, None


@pytest.fixture
def package(ragged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    for name in ("flash_attn", "flash_attn.cute"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    function = partial(flash_attn_varlen_func, ragged)
    monkeypatch.setattr(
        sys.modules["flash_attn.cute"], "flash_attn_varlen_func", function, raising=False
    )
    monkeypatch.delitem(sys.modules, "rose.attention.flash_attn_4", raising=False)
    capability(monkeypatch, 9)


def capability(monkeypatch: pytest.MonkeyPatch, major: int) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_runs_a_padded_batch(ragged: Any, package: None, shape: AttentionShape) -> None:
    attention = make_attention("flash_attn_4", shape, torch.bfloat16, CUDA)
    assert not attention.capturable
    batch = ragged.padded_batch()
    attention.plan(batch)
    q, k, v = ragged.heads(attention, torch.bfloat16)
    window = shape.window or (None, None)
    expected = ragged.attention(
        q, k, v, batch.cu_seqlens, shape.scale, causal=shape.causal, window=window
    )
    torch.testing.assert_close(attention.attend(q, k, v), expected)
    out = torch.full(q.shape, 7.0, dtype=torch.bfloat16)
    attention.run(q, k, v, out)
    torch.testing.assert_close(out, expected)
    # Shorter bounds would compile another kernel.
    assert CALLS == [(512, 512), (512, 512)]


@pytest.mark.parametrize(
    ("major", "head_dim", "fits"),
    [
        *((9, 256, True), (9, 192, True), (9, 36, False)),
        *((10, 128, True), (10, 256, True), (10, 192, False), (8, 64, False)),
    ],
)
def test_head_dims_of_each_generation(
    package: None, monkeypatch: pytest.MonkeyPatch, major: int, head_dim: int, fits: bool
) -> None:
    capability(monkeypatch, major)
    shape = AttentionShape(4, 4, head_dim, 0.1)
    if fits:
        make_attention("flash_attn_4", shape, torch.bfloat16, CUDA)
        return
    with pytest.raises(
        ConfigError, match=f"flash_attn_4 needs .* got {8 if major == 8 else head_dim}"
    ):
        make_attention("flash_attn_4", shape, torch.bfloat16, CUDA)


def test_refuses_float32(package: None) -> None:
    with pytest.raises(ConfigError, match=r"bfloat16 or float16, got torch\.float32"):
        make_attention("flash_attn_4", SHAPES["full"], torch.float32, CUDA)


def test_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    monkeypatch.delitem(sys.modules, "rose.attention.flash_attn_4", raising=False)
    with pytest.raises(ConfigError, match=r"'flash_attn_4' cannot be used: .*flash_attn"):
        make_attention("flash_attn_4", SHAPES["full"], torch.bfloat16, CUDA)
