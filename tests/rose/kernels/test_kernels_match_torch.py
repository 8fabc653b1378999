"""Triton kernels against their torch definitions, in Triton's interpreter: no GPU needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

CHECKS = Path(__file__).with_name("interpreted_checks.py")


def test_kernels_match_torch() -> None:
    # Triton decides at import whether it interprets, so the checks need a process of their own.
    finished = subprocess.run(
        [sys.executable, str(CHECKS)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "all checks passed" in finished.stdout
