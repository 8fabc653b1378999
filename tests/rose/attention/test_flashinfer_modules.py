"""Where compiled kernels are looked for, and how they are built, with compilers of the test's."""

from __future__ import annotations

import logging
import os
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

from rose.attention import flashinfer_modules
from rose.attention.flashinfer_modules import (
    build_in_background,
    build_module,
    fa3_module_name,
    find_module,
)
from rose.errors import KernelBuildError

NAME = fa3_module_name(torch.bfloat16, 128)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty user's cache on a machine without other kernels."""
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path))
    if find_module(NAME) is not None:
        pytest.skip("the kernel is installed on this machine")
    return tmp_path / ".cache/flashinfer"


def put(directory: Path) -> Path:
    path = directory / NAME / f"{NAME}.so"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_the_name_is_flashinfers() -> None:
    assert NAME == (
        "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_"
        "head_dim_qk_128_head_dim_vo_128_posenc_0_use_swa_False_"
        "use_logits_cap_False_f16qk_False_sm90"
    )


def test_the_newest_version_in_the_users_cache(cache: Path) -> None:
    assert find_module(NAME) is None
    old = put(cache / "0.9.3/90a/cached_ops")
    assert find_module(NAME) == old
    newest = put(cache / "0.10.0/80_90a/cached_ops")
    assert find_module(NAME) == newest


def test_the_package_of_prebuilt_kernels(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site/flashinfer_jit_cache"
    path = put(package / "jit_cache")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert find_module(NAME) == path


def provider(directory: Path, *architectures: str) -> Any:
    manifest = {"jit_cache_dir": directory, "cuda_architectures": architectures}
    return type("EntryPoint", (), {"load": lambda self: lambda: manifest})()


def test_packages_that_provide_kernels_for_some_architectures(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    put(tmp_path / "blackwell")
    path = put(tmp_path / "hopper")
    broken = EntryPoint("broken", "no_such_module:manifest", "flashinfer.jit_cache.providers")
    found = [broken, provider(tmp_path / "blackwell", "sm100a"), provider(path.parents[1], "9.0a")]
    monkeypatch.setattr(flashinfer_modules, "entry_points", lambda group: found)
    monkeypatch.setattr(logging.getLogger("rose"), "propagate", True)
    assert find_module(NAME) == path
    assert "no_such_module" in caplog.text


def fake_build(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(flashinfer_modules, "_BUILD_SCRIPT", script)


def test_a_build_in_the_foreground(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer_modules, "PROGRESS_SECONDS", 0.05)
    monkeypatch.delenv("MAX_JOBS", raising=False)
    gate = cache.parent.parent / "gate"
    path = cache / "0.7.4/90a/cached_ops" / NAME / f"{NAME}.so"
    # Ends when progress has been heard of.
    fake_build(
        monkeypatch,
        f"""
import os, pathlib, sys
assert sys.argv[1:] == ["bfloat16", "128"] and "MAX_JOBS" not in os.environ
while not os.path.exists({str(gate)!r}): pass
path = pathlib.Path({str(path)!r})
path.parent.mkdir(parents=True)
path.touch()
""",
    )
    heard: list[float] = []

    def still_building(seconds: float) -> None:
        heard.append(seconds)
        gate.touch()

    assert build_module(torch.bfloat16, 128, still_building=still_building) == path
    assert heard


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise RuntimeError('Could not find nvcc')", "failed: RuntimeError: Could not find nvcc"),
        ("raise SystemExit(3)", "failed: exit status 3"),
        ("pass", "failed: exit status 0"),
    ],
)
def test_a_build_that_fails(
    cache: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    fake_build(monkeypatch, script)
    with pytest.raises(KernelBuildError, match=f"building {NAME} {message}"):
        build_module(torch.bfloat16, 128)


def test_an_interrupted_build_leaves_no_compiler(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flashinfer_modules, "PROGRESS_SECONDS", 0.05)
    pid_file = cache.parent.parent / "pid"
    fake_build(
        monkeypatch,
        f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)",
    )

    def interrupt(seconds: float) -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_module(torch.bfloat16, 128, still_building=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_in_the_background_with_few_compilers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAX_JOBS", raising=False)
    path = cache / "0.7.4/90a/cached_ops" / NAME / f"{NAME}.so"
    fake_build(
        monkeypatch,
        f"""
import os, pathlib
assert os.environ["MAX_JOBS"] == "4"
path = pathlib.Path({str(path)!r})
path.parent.mkdir(parents=True)
path.touch()
""",
    )
    monkeypatch.setattr(flashinfer_modules, "can_build_modules", lambda: True)
    built: list[Path] = []
    done = threading.Event()

    def when_built(found: Path) -> None:
        built.append(found)
        done.set()

    assert build_in_background(torch.bfloat16, 128, when_built)
    assert done.wait(30)
    assert built == [path]


def test_nothing_to_build_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer_modules, "can_build_modules", lambda: False)
    assert not build_in_background(torch.bfloat16, 128, lambda path: None)
