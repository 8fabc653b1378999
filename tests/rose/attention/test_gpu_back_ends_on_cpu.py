"""What can be said about the GPU back ends without a GPU: bounds, names, places, refusals, choice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rose.attention import auto, flashinfer, make_attention
from rose.attention.auto import FLASH_ATTN_LONGEST, AutoAttention, choose_once
from rose.attention.base import AttentionShape
from rose.attention.flash_attn import FlashAttention, longest_bound
from rose.attention.flashinfer_modules import fa3_module_name, find_module
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


@pytest.mark.parametrize("name", ["flash_attn", "flashinfer", "flash_attn_4"])
def test_gpu_back_ends_refuse_the_cpu(name: str) -> None:
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        make_attention(name, SHAPE, torch.bfloat16, CPU)


def test_modules_are_found_where_builds_leave_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path))
    name = fa3_module_name(torch.bfloat16, 128)
    assert name.endswith(
        "head_dim_qk_128_head_dim_vo_128_posenc_0_use_swa_False_"
        "use_logits_cap_False_f16qk_False_sm90"
    )
    if find_module(name) is not None:
        pytest.skip("the kernel is installed on this machine")
    path = tmp_path / ".cache/flashinfer/0.7.4/90a/cached_ops" / name / f"{name}.so"
    path.parent.mkdir(parents=True)
    assert find_module(name) is None
    path.touch()
    assert find_module(name) == path


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
    monkeypatch.setattr(auto, "why_not", lambda *shape: None)


def test_auto_chooses_by_the_longest_sequence(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "find_module", lambda name: Path("kernel.so"))
    attention = AutoAttention(SHAPE, torch.bfloat16, CPU)
    longest = FLASH_ATTN_LONGEST
    assert attention.graph_variant(4096, 128, longest) == ("flash_attn", 64)
    assert attention.graph_variant(4096, 128, longest + 1) == ("flashinfer", 0)


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


def test_auto_without_flashinfer_is_flash_attn(
    hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "why_not", lambda *shape: "needs a Hopper GPU")
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
