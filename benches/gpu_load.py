"""How long a model directory takes to load: fresh processes, files in the page cache.

    python benches/gpu_load.py --out benches/results/gpu_load.json

Twice each, with Triton's cache empty and with what the first time left: a process that loads an
engine and says where the time went, and `rose serve` until its ready line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Nothing heavier here: the child that loads is this file too.
HEAVY = ("transformers", "sentence_transformers", "torch._dynamo", "torch._inductor", "flashinfer")


def load_engine(directory: str, device: str, spawned: float) -> None:
    """In the child: loads, and prints what took how long, in seconds."""
    # What `rose serve` imports until it loads, and what a CUDA engine imports while it loads.
    import rose.checks.self_check
    import rose.server
    from rose.config import EngineConfig
    from rose.engine.engine import Engine
    from rose.logs import configure_logging

    if device == "cuda":
        import triton

        import rose.engine.cuda_runner  # noqa: F401

        assert triton.__version__
    configure_logging("info", "text")
    imported = time.time()
    engine = Engine.load(directory, EngineConfig(device=device))
    ready = time.time()
    report = {
        "imports": imported - spawned,
        "load": ready - imported,
        **engine.load_phases.seconds,
        "heavy_modules": [name for name in HEAVY if name in sys.modules],
    }
    print(json.dumps(report))


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in values.items()
    }


def engine_times(directory: Path, device: str, environment: dict[str, str]) -> dict[str, Any]:
    """Phases of a load in a process of its own."""
    command = [sys.executable, __file__, "--child", str(directory), "--device", device]
    command += ["--spawned", repr(time.time())]
    output = subprocess.check_output(command, env=environment, text=True, timeout=300)
    return rounded(json.loads(output.splitlines()[-1]))


def serve_seconds(directory: Path, device: str, environment: dict[str, str]) -> float:
    """From the start of `rose serve` to its ready line."""
    command = [sys.executable, "-m", "rose.cli", "serve", str(directory)]
    environment = environment | {
        "ROSE_SERVE_DEVICE": device,
        "ROSE_SERVE_GRPC_ADDRESS": "127.0.0.1:0",
        "ROSE_SERVE_HTTP_ADDRESS": "127.0.0.1:0",
    }
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        elapsed = time.perf_counter() - started
        server.terminate()
        _, errors = server.communicate(timeout=60)
    if not line.startswith("ready "):
        raise RuntimeError(f"the server said {line!r}: {errors[-2000:]}")
    return round(elapsed, 3)


def measure(directory: Path, device: str) -> dict[str, Any]:
    """Each of the two ways to start, with Triton's cache cold, then warm."""
    for path in directory.rglob("*"):
        if path.is_file():
            path.read_bytes()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as engine_cache, tempfile.TemporaryDirectory() as cache:
        for triton_cache in ("cold", "warm"):
            environment = os.environ | {"TRITON_CACHE_DIR": engine_cache}
            entry = engine_times(directory, device, environment)
            environment = os.environ | {"TRITON_CACHE_DIR": cache}
            entry["serve_ready"] = serve_seconds(directory, device, environment)
            report[f"triton_cache_{triton_cache}"] = entry
            print(directory.name, triton_cache, entry, flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["qwen3-0.6b-bidirectional", "bge-m3"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--tokenizer", type=Path, help="a real tokenizer.json, which takes its time to load"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--spawned", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        load_engine(arguments.child, arguments.device, arguments.spawned)
        return
    if arguments.out is None:
        parser.error("--out is required")
    import torch

    from gpu_directories import DIRECTORIES, write_model

    cuda = arguments.device.startswith("cuda")
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if cuda else arguments.device,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "unit": "s",
        "tokenizer_bytes": arguments.tokenizer.stat().st_size if arguments.tokenizer else 0,
        "models": {},
    }
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder, name)
            directory.mkdir()
            write_model(directory, *DIRECTORIES[name])
            if arguments.tokenizer is not None:
                shutil.copy(arguments.tokenizer, directory / "tokenizer.json")
            if cuda:
                torch.cuda.empty_cache()
            size = (directory / "model.safetensors").stat().st_size
            report["models"][name] = {
                "weights_bytes": size,
                **measure(directory, arguments.device),
            }
        arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
