"""Triton kernels against their torch definitions, in Triton's interpreter: no GPU needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.mark.slow
@pytest.mark.parametrize(
    "checks", ["interpreted_checks", "interpreted_models", "interpreted_invariance"]
)
def test_matches_torch(checks: str) -> None:
    # Triton decides at import whether it interprets, so the checks need a process of their own.
    finished = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(f"{checks}.py"))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "all checks passed" in finished.stdout
