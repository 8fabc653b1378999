"""What can be said about the GPU back ends without a GPU: bounds, refusals, choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rose.attention import auto, fa3_fwd, flashinfer, make_attention
from rose.attention.auto import FLASH_ATTN_LONGEST, SHORT_LIMITS, AutoAttention, choose_once
from rose.attention.base import AttentionShape
from rose.attention.flash_attn import FlashAttention, longest_bound
from rose.attention.short import ShortAttention
from rose.errors import ConfigError

CPU = torch.device("cpu")
SHAPE = AttentionShape(16, 8, 128, 0.1)


@pytest.mark.parametrize(
    ("padded_tokens", "max_seqlen", "bound"),
    [
        (64, 1, 64),
        (4096, 64, 64),
        (4096, 65, 128),
        (4096, 3000, 4096),
        (1536, 1500, 1536),
        (1, 1, 2),
    ],
)
def test_bounds_are_few_and_never_one(padded_tokens: int, max_seqlen: int, bound: int) -> None:
    assert longest_bound(padded_tokens, max_seqlen) == bound


@pytest.mark.parametrize(
    ("head_dim", "dtype", "message"),
    [(36, torch.bfloat16, "36"), (512, torch.bfloat16, "512"), (64, torch.float32, "float32")],
)
def test_flash_attn_refuses_what_it_cannot(head_dim: int, dtype: torch.dtype, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FlashAttention(AttentionShape(4, 4, head_dim, 0.1), dtype, CPU)


@pytest.mark.parametrize("name", ["short", "flash_attn", "flashinfer", "fa3_fwd", "flash_attn_4"])
def test_gpu_back_ends_refuse_the_cpu(name: str) -> None:
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        make_attention(name, SHAPE, torch.bfloat16, CPU)


class FakeFlashInfer:
    made: list[Path]

    def __init__(
        self,
        shape: object,
        dtype: object,
        device: object,
        path: Path,
        *,
        deterministic: bool = False,
    ) -> None:
        FakeFlashInfer.made.append(path)

    def graph_variant(self, tokens: int, sequences: int, longest: int) -> tuple[str, int]:
        return "flashinfer", 0


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeFlashInfer.made = []
    monkeypatch.setattr(auto, "FlashInferAttention", FakeFlashInfer)
    monkeypatch.setattr(flashinfer, "why_not", lambda *shape: None)
    monkeypatch.setattr(fa3_fwd, "why_not", lambda *shape: "needs the package fa3-fwd")


def test_auto_chooses_by_the_longest_sequence(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "find_module", lambda name: Path("kernel.so"))
    attention = AutoAttention(SHAPE, torch.bfloat16, CPU)
    longest = FLASH_ATTN_LONGEST
    monkeypatch.setattr(auto, "SHORT_LIMITS", {})
    assert attention.graph_variant(4096, 128, longest) == ("flash_attn", 64)
    assert attention.graph_variant(4096, 128, longest + 1) == ("flashinfer", 0)


def test_auto_takes_its_own_kernel_for_few_tokens_in_short_sequences(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "find_module", lambda name: Path("kernel.so"))
    attention = AutoAttention(SHAPE, torch.bfloat16, CPU)
    longest, most_tokens = SHORT_LIMITS[SHAPE.head_dim][-1]
    assert attention.graph_variant(1 << 20, 2, SHORT_LIMITS[SHAPE.head_dim][0][0])[0] == "short"
    assert attention.graph_variant(most_tokens, 2, longest)[0] == "short"
    assert attention.graph_variant(most_tokens + 64, 2, longest)[0] != "short"
    assert attention.graph_variant(most_tokens, 2, longest + 1)[0] != "short"
    windowed = replace(SHAPE, window=(64, 64))
    assert AutoAttention(windowed, torch.bfloat16, CPU).graph_variant(64, 2, 64)[0] != "short"


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        (SHAPE, torch.float32, "needs bfloat16 or float16, got torch.float32"),
        (replace(SHAPE, head_dim=256), torch.bfloat16, "head_dim of 32, 64, 128, got 256"),
        (replace(SHAPE, window=(64, 64)), torch.bfloat16, r"no windows, got \(64, 64\)"),
    ],
)
def test_short_says_what_it_cannot(shape: AttentionShape, dtype: torch.dtype, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ShortAttention(shape, dtype, CPU)


def test_auto_serves_while_the_kernel_is_built_then_switches(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    when_built = []
    monkeypatch.setattr(auto, "find_module", lambda name: None)
    monkeypatch.setattr(
        auto, "build_in_background", lambda dtype, head_dim, done: when_built.append(done) or True
    )
    attention = AutoAttention(SHAPE, torch.bfloat16, CPU)
    assert attention.graph_variant(4096, 2, 2048) == ("flash_attn", 2048)
    when_built[0](Path("built.so"))
    # The thread that builds loads nothing; the next batch does.
    assert FakeFlashInfer.made == []
    assert attention.graph_variant(4096, 2, 2048) == ("flashinfer", 0)
    assert FakeFlashInfer.made == [Path("built.so")]


class FakeFa3Forward:
    def __init__(self, shape: object, dtype: object, device: object) -> None: ...

    def graph_variant(self, tokens: int, sequences: int, longest: int) -> tuple[str, int]:
        return "fa3_fwd", 0


@pytest.mark.parametrize(("causal", "longest"), [(False, 256), (True, 128)])
def test_auto_takes_fa3_fwd_where_flashinfer_has_no_kernel(
    hopper: None, monkeypatch: pytest.MonkeyPatch, causal: bool, longest: int
) -> None:
    when_built = []
    monkeypatch.setattr(auto, "SHORT_LIMITS", {})
    monkeypatch.setattr(auto, "find_module", lambda name: None)
    monkeypatch.setattr(
        auto, "build_in_background", lambda dtype, head_dim, done: when_built.append(done) or True
    )
    monkeypatch.setattr(fa3_fwd, "why_not", lambda *shape: None)
    monkeypatch.setattr(auto, "Fa3Forward", FakeFa3Forward)
    attention = AutoAttention(replace(SHAPE, causal=causal), torch.bfloat16, CPU)
    assert attention.graph_variant(4096, 128, longest)[0] == "flash_attn"
    assert attention.graph_variant(4096, 128, longest + 1) == ("fa3_fwd", 0)
    when_built[0](Path("built.so"))
    assert attention.graph_variant(4096, 128, longest + 1) == ("flashinfer", 0)
    assert attention.graph_variant(4096, 128, FLASH_ATTN_LONGEST + 1) == ("flashinfer", 0)


def test_auto_does_without_a_package_that_cannot_be_loaded(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("attention fa3_fwd: the package cannot be loaded: libcudart.so.13")

    monkeypatch.setattr(auto, "find_module", lambda name: None)
    monkeypatch.setattr(auto, "build_in_background", lambda *_: False)
    monkeypatch.setattr(fa3_fwd, "why_not", lambda *shape: None)
    monkeypatch.setattr(auto, "Fa3Forward", refuse)
    attention = AutoAttention(SHAPE, torch.bfloat16, CPU)
    assert attention.graph_variant(4096, 2, 2048) == ("flash_attn", 2048)


def test_auto_without_flashinfer_is_flash_attn(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flashinfer, "why_not", lambda *shape: "needs a Hopper GPU")
    attention = AutoAttention(SHAPE, torch.bfloat16, CPU)
    assert attention.graph_variant(4096, 2, 2048) == ("flash_attn", 2048)


@pytest.mark.parametrize("kernel", [Path("kernel.so"), None])
def test_a_deterministic_choice_does_not_go_by_the_batch(
    hopper: None, monkeypatch: pytest.MonkeyPatch, kernel: Path | None
) -> None:
    monkeypatch.setattr(auto, "find_module", lambda name: kernel)
    monkeypatch.setattr(auto, "build_in_background", lambda *rest: pytest.fail("a build began"))
    attention = choose_once(SHAPE, torch.bfloat16, CPU)
    variants = {attention.graph_variant(4096, 128, longest)[0] for longest in (1, 64, 65, 4096)}
    assert variants == {"flash_attn" if kernel is None else "flashinfer"}


def test_a_deterministic_choice_survives_a_kernel_that_does_not_load(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*rest: object, **options: object) -> None:
        raise OSError("wrong ELF class")

    monkeypatch.setattr(auto, "find_module", lambda name: Path("kernel.so"))
    monkeypatch.setattr(auto, "FlashInferAttention", broken)
    assert isinstance(choose_once(SHAPE, torch.bfloat16, CPU), FlashAttention)


def test_the_bound_of_deterministic_windows_exceeds_them() -> None:
    """The library drops a window that is not below the bound, and so takes another kernel."""
    shape = AttentionShape(4, 4, 64, 0.1, window=(100, 70))
    attention = FlashAttention(shape, torch.bfloat16, CPU, deterministic=True)
    for tokens, longest in ((1, 1), (64, 10), (4096, 128), (4096, 3000)):
        _, bound = attention.graph_variant(tokens, 1, longest)
        assert bound > 100
        assert bound >= longest
    assert FlashAttention(shape, torch.bfloat16, CPU).graph_variant(64, 1, 10)[1] == 64


def test_flashinfer_says_why_it_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer, "can_load_modules", lambda: False)
    assert "flashinfer-python" in str(flashinfer.why_not(SHAPE, torch.bfloat16, CPU))
    monkeypatch.setattr(flashinfer, "can_load_modules", lambda: True)
    assert "Hopper" in str(flashinfer.why_not(SHAPE, torch.bfloat16, CPU))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    cuda = torch.device("cuda", 0)
    assert flashinfer.why_not(SHAPE, torch.bfloat16, cuda) is None
    for shape, message in (
        (AttentionShape(4, 4, 32, 0.1), "head_dim"),
        (AttentionShape(4, 4, 64, 0.1, window=(64, 64)), "windows"),
    ):
        assert message in str(flashinfer.why_not(shape, torch.bfloat16, cuda))
