"""The adapter of fa3-fwd against an operator with the schema that version 0.0.3 registers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch

from rose.attention import fa3_fwd
from rose.attention.base import AttentionShape, PositionBias
from rose.attention.fa3_fwd import Fa3Forward
from rose.config import BatchLayout
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch

CUDA = torch.device("cuda", 0)
SHAPE = AttentionShape(4, 2, 64, 0.1)
SCHEMA = """fwd(Tensor q, Tensor k, Tensor v, Tensor(k_new!)? k_new = None,
Tensor(v_new!)? v_new = None, Tensor? q_v = None, Tensor(out!)? out = None,
Tensor? cu_seqlens_q = None, Tensor? cu_seqlens_k = None, Tensor? cu_seqlens_k_new = None,
Tensor? seqused_q = None, Tensor? seqused_k = None, int? max_seqlen_q = None,
int? max_seqlen_k = None, Tensor? page_table = None, Tensor? kv_batch_idx = None,
Tensor? leftpad_k = None, Tensor? rotary_cos = None, Tensor? rotary_sin = None,
Tensor? seqlens_rotary = None, Tensor? q_descale = None, Tensor? k_descale = None,
Tensor? v_descale = None, float? softmax_scale = None, bool is_causal = False,
int window_size_left = -1, int window_size_right = -1, int attention_chunk = 0,
float softcap = 0.0, bool is_rotary_interleaved = False, Tensor? scheduler_metadata = None,
int num_splits = 0, bool? pack_gqa = None, int sm_margin = 0)
-> (Tensor(out!), Tensor, Tensor, Tensor)"""
CALLS: list[dict[str, Any]] = []


def fake_forward(ragged: Any, q: Any, k: Any, v: Any, *rest: Any, **named: Any) -> Any:
    names = [part.split("=")[0].split()[-1] for part in SCHEMA.split(") ->")[0].split(",")]
    call = dict(zip(names[3:], rest, strict=False)) | named
    CALLS.append(call)
    assert call["cu_seqlens_q"].dtype == call["cu_seqlens_k"].dtype == torch.int32
    out = call["out"]
    assert out.shape == q.shape
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    rows = ragged.attention(
        q, k, v, call["cu_seqlens_q"], call["softmax_scale"], causal=call.get("is_causal", False)
    )
    return out.copy_(rows), q.new_empty(0), q.new_empty(0), q.new_empty(0)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fa3_fwd", "fa3_fwd._C"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))


@pytest.fixture(scope="module")
def operator(ragged: Any) -> Iterator[None]:
    library = torch.library.Library("fa3_fwd", "FRAGMENT")
    library.define(SCHEMA.replace("\n", " "))
    library.impl("fwd", lambda *q, **named: fake_forward(ragged, *q, **named), "CPU")
    yield
    library._destroy()


@pytest.mark.parametrize("causal", [False, True])
def test_runs_a_padded_batch(ragged: Any, operator: None, package: None, causal: bool) -> None:
    attention = Fa3Forward(
        AttentionShape(4, 2, 64, 0.1, causal=causal), torch.bfloat16, torch.device("cuda", 0)
    )
    batch = ragged.padded_batch()
    attention.plan(batch)
    q, k, v = ragged.heads(attention, torch.bfloat16)
    CALLS.clear()
    out = torch.full(q.shape, 7.0, dtype=torch.bfloat16)
    attention.run(q, k, v, out)
    expected = ragged.attention(q, k, v, batch.cu_seqlens, 0.1, causal=causal)
    torch.testing.assert_close(out, expected)
    (call,) = CALLS
    # Bounds that hold for every batch of the graph, and sums that do not depend on the batch.
    assert (call["max_seqlen_q"], call["max_seqlen_k"], call["num_splits"]) == (256, 256, 1)
    assert call["cu_seqlens_q"].data_ptr() == batch.cu_seqlens.data_ptr()


def test_a_bound_of_one_would_forget_the_mask(operator: None, package: None) -> None:
    attention = Fa3Forward(SHAPE, torch.bfloat16, CUDA)
    attention.plan(ForwardBatch.from_sequences([[1]], BatchLayout()))
    q = torch.ones(1, 4, 64, dtype=torch.bfloat16)
    CALLS.clear()
    attention.attend(q, q[:, :2], q[:, :2])
    assert CALLS[0]["max_seqlen_q"] == 2


def test_a_graph_serves_every_longest_sequence(operator: None, package: None) -> None:
    attention = Fa3Forward(SHAPE, torch.bfloat16, CUDA)
    assert attention.capturable
    assert attention.graph_variant(4096, 8, 5) == attention.graph_variant(4096, 8, 4000)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        (
            AttentionShape(4, 4, 32, 0.1),
            torch.bfloat16,
            "head_dim of 64, 96, 128, 192, 256, got 32",
        ),
        (AttentionShape(4, 4, 64, 0.1, window=(8, 8)), torch.bfloat16, r"windows, got \(8, 8\)"),
        (SHAPE, torch.float16, "bfloat16, got torch.float16"),
        (
            AttentionShape(4, 4, 64, 0.1, bias=PositionBias(torch.zeros(4, 9))),
            torch.bfloat16,
            "no position bias",
        ),
    ],
)
def test_refuses_what_was_not_compiled(
    package: None, shape: AttentionShape, dtype: torch.dtype, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"attention fa3_fwd .*{message}"):
        Fa3Forward(shape, dtype, CUDA)


def test_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    if fa3_fwd._is_installed():
        pytest.skip("fa3-fwd is installed on this machine")
    with pytest.raises(ConfigError, match="attention fa3_fwd needs the package fa3-fwd"):
        Fa3Forward(SHAPE, torch.bfloat16, CUDA)
    monkeypatch.setattr(fa3_fwd, "_is_installed", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ConfigError, match="Hopper"):
        Fa3Forward(SHAPE, torch.bfloat16, CUDA)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    with pytest.raises(ConfigError, match="cannot be loaded: No module named 'fa3_fwd'"):
        Fa3Forward(SHAPE, torch.bfloat16, CUDA)
