"""`import rose` is cheap, and CPU use loads no GPU library."""

from __future__ import annotations

import subprocess
import sys

import pytest

MAX_IMPORT_SECONDS = 0.3
HEAVY = ("torch", "grpc", "transformers", "sentence_transformers", "triton", "flashinfer")


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, rose; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(code) == "[]"


def test_import_takes_no_time() -> None:
    code = "import time; t = time.perf_counter(); import rose; print(time.perf_counter() - t)"
    # The best of a few: a busy machine is not the package's fault.
    assert min(float(run(code)) for _ in range(5)) < MAX_IMPORT_SECONDS


def test_names_are_there_when_asked_for() -> None:
    import rose

    for name in rose.__all__:
        assert getattr(rose, name) is not None
        assert name in dir(rose)
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = rose.Motor  # type: ignore[attr-defined]


def test_a_cpu_step_loads_no_gpu_library() -> None:
    code = """
import sys
from rose import Engine, EngineConfig, ForwardBatch
engine = Engine.load("demo", EngineConfig(device="cpu"))
engine.step(ForwardBatch.from_sequences([[101, 2088, 102]], engine.info.layout)).numpy()
print([m for m in ("triton", "flashinfer", "flash_attn") if m in sys.modules])
"""
    assert run(code) == "[]"
