"""What importing and running costs: nothing is loaded that is not needed."""

from __future__ import annotations

import subprocess
import sys


def loaded_after(code: str, *modules: str) -> set[str]:
    probe = f"import sys\n{code}\nprint(*({set(modules)!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True
    )
    return set(done.stdout.split())


def test_importing_rose_loads_nothing_heavy() -> None:
    heavy = ("torch", "grpc", "numpy", "google.protobuf", "rose._tulip")
    assert loaded_after("import rose", *heavy) == set()


def test_the_client_does_not_load_torch() -> None:
    assert loaded_after("from rose import Client", "torch", "rose._tulip") == set()


def test_an_engine_on_cpu_loads_neither_triton_nor_flashinfer_nor_transformers() -> None:
    code = "import rose\nrose.Engine.load('demo', rose.EngineConfig(device='cpu'))"
    assert loaded_after(code, "triton", "flashinfer", "flash_attn", "transformers") == set()
