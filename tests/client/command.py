"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def rose(
    *arguments: str, stdin: str | bytes = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ROSE_")}
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "rose.cli", *arguments],
        input=data,
        capture_output=True,
        timeout=60,
        env=inherited | (env or {}),
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def refused(done: subprocess.CompletedProcess[str], status: int, text: str) -> None:
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("rose: error: ")
    assert text in done.stderr
