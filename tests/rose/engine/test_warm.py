"""`rose warm` on a machine whose GPU, model and compiler are fakes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rose.attention import flashinfer
from rose.attention.base import AttentionShape
from rose.cli import main
from rose.config import EngineConfig
from rose.engine import warm
from rose.errors import KernelBuildError

FULL = AttentionShape(16, 8, 128, 0.1)
MIXED = AttentionShape(8, 8, 64, 0.1, local=AttentionShape(8, 8, 64, 0.1, window=(64, 64)))


@dataclass
class Machine:
    """What was asked for; set before a command runs what the machine has."""

    shape: AttentionShape = FULL
    built: Path | None = None
    build_error: str | None = None
    configs: list[EngineConfig] = field(default_factory=list)
    builds: list[tuple[torch.dtype, int]] = field(default_factory=list)
    engines: int = 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()

    def load_model(model: str, config: EngineConfig) -> Any:
        machine.configs.append(config)
        backbone = SimpleNamespace(attention_shape=machine.shape)
        return SimpleNamespace(backbone=backbone), SimpleNamespace(), Path(model)

    def build_module(
        dtype: torch.dtype, head_dim: int, *, still_building: Callable[[float], None]
    ) -> Path:
        machine.builds.append((dtype, head_dim))
        if machine.build_error is not None:
            raise KernelBuildError(machine.build_error)
        still_building(15.2)
        machine.built = Path("built.so")
        return machine.built

    def engine(*_: object) -> None:
        machine.engines += 1

    monkeypatch.setattr(warm, "find_device", lambda name: torch.device("cuda", 0))
    monkeypatch.setattr(warm, "load_model", load_model)
    monkeypatch.setattr(warm, "Engine", engine)
    monkeypatch.setattr(warm, "find_module", lambda name: machine.built)
    monkeypatch.setattr(warm, "can_build_modules", lambda: True)
    monkeypatch.setattr(warm, "build_module", build_module)
    monkeypatch.setattr(flashinfer, "can_load_modules", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return machine


@pytest.fixture
def rose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line: status, stdout's lines, stderr."""

    def run(*arguments: str) -> tuple[int, list[str], str]:
        monkeypatch.setattr(sys, "argv", ["rose", *arguments])
        status = main()
        captured = capsys.readouterr()
        return status, captured.out.splitlines(), captured.err

    return run


def test_builds_what_is_missing_and_compiles_the_rest(machine: Machine, rose: Any) -> None:
    status, lines, errors = rose("warm", "model", "--max-length", "77", "--revision", "r1")
    assert (status, errors) == (0, "")
    assert machine.builds == [(torch.bfloat16, 128)]
    assert machine.engines == 1
    assert machine.configs[0].max_length == 77
    assert machine.configs[0].revision == "r1"
    assert lines[0].startswith("flashinfer: building batch_prefill_")
    assert lines[1] == "flashinfer: still building, 15 s"
    assert lines[2].startswith("flashinfer: built in ")
    assert lines[2].endswith(" s: built.so")
    assert lines[3].startswith("kernels of the model are compiled: ")
    # The second time nothing is left.
    status, lines, _ = rose("warm", "model")
    assert status == 0
    assert lines[0] == "flashinfer: the kernel is there: built.so"
    assert len(machine.builds) == 1


def test_the_servers_environment(
    machine: Machine, rose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROSE_SERVE_MODEL", "model")
    monkeypatch.setenv("ROSE_SERVE_DTYPE", "float16")
    assert rose("warm")[0] == 0
    assert machine.builds == [(torch.float16, 128)]


def test_layers_with_a_window_have_kernels_of_their_own(machine: Machine, rose: Any) -> None:
    machine.shape = MIXED
    status, lines, _ = rose("warm", "model")
    assert status == 0
    assert machine.builds == [(torch.bfloat16, 64)]
    assert "flashinfer has no windows, got (64, 64): not built" in lines


@pytest.mark.parametrize("name", ["flash_attn", "fa3_fwd", "sdpa"])
def test_other_back_ends_have_nothing_to_build(machine: Machine, rose: Any, name: str) -> None:
    status, lines, _ = rose("warm", "model", "--attention", name)
    assert (status, len(lines), machine.builds, machine.engines) == (0, 1, [], 1)


def test_without_flashinfer(machine: Machine, rose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "can_build_modules", lambda: False)
    status, lines, _ = rose("warm", "model")
    assert (status, machine.builds, machine.engines) == (0, [], 1)
    assert lines[0] == "flashinfer: not built, the package flashinfer-python is not installed"


def test_a_build_that_fails(machine: Machine, rose: Any) -> None:
    machine.build_error = "flashinfer: building x failed: RuntimeError: Could not find nvcc"
    status, _, errors = rose("warm", "model")
    assert status == 1
    assert errors == f"rose: error: {machine.build_error}\n"
    # An engine would start the build again, behind our back.
    assert machine.engines == 0


def test_flash_attn_4_must_keep_what_it_compiles(
    machine: Machine, rose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"
    monkeypatch.delenv(variable, raising=False)
    status, _, errors = rose("warm", "model", "--attention", "flash_attn_4")
    assert (status, machine.engines, errors.count("\n")) == (2, 0, 1)
    assert f"{variable}=1" in errors
    monkeypatch.setenv(variable, "1")
    assert rose("warm", "model", "--attention", "flash_attn_4")[0] == 0
    assert machine.engines == 1


@pytest.fixture(scope="module")
def model(make_bert: Any) -> str:
    return str(make_bert("warm"))


def test_without_a_gpu(model: str, rose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rose("warm", model, "--device", "cpu") == (
        0,
        ["device cpu: there is nothing to build"],
        "",
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert rose("warm", model) == (0, ["no CUDA device: there is nothing to build"], "")


@pytest.mark.parametrize("model", ["/nonexistent", "", __file__, str(Path(__file__).parent)])
def test_without_a_gpu_a_wrong_model_is_wrong(rose: Any, model: str) -> None:
    status, lines, errors = rose("warm", model, "--device", "cpu")
    assert (status, lines, errors.count("\n")) == (2, [], 1)
    assert errors.startswith("rose: error: ")


def test_wrong_options(rose: Any) -> None:
    status, lines, errors = rose("warm", "demo", "--max-batch-tokens", "0")
    assert (status, lines) == (2, [])
    assert errors == "rose: error: --max-batch-tokens must be an integer of at least 1, got 0\n"
    if not torch.cuda.is_available():
        status, lines, errors = rose("warm", "demo", "--device", "cuda:3")
        assert (status, lines) == (2, [])
        assert errors.startswith("rose: error: --device 'cuda:3' is not there")


def test_help_names_it(rose: Any) -> None:
    status, lines, _ = rose("--help")
    assert status == 0
    assert any(line.split()[:1] == ["warm"] for line in lines)
