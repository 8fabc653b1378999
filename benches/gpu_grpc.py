"""Latency and throughput of a GPU server through gRPC, with clients on the same host.

    cargo build --release -p rose-benches
    python benches/gpu_grpc.py --out benches/results/gpu_grpc.json

Model directories with random weights of published shapes are written to a temporary folder and
served by a process of its own; requests carry token ids. Latency: one client, one call at a time,
with a client that stays awake while a call runs (`client_awake`), and with one that sleeps and so
pays for being woken.
Throughput: four connections of the load client, calls of 100 sequences of 512 tokens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gpu_directories import DIRECTORIES, write_model

SERVE = """
import sys
from rose.config import EngineConfig, ServeConfig
from rose.server import serve
engine = EngineConfig(device="cuda", max_batch_tokens=int(sys.argv[2]))
spin_us = int(sys.argv[3]) if sys.argv[3] else None
sys.exit(serve(sys.argv[1], engine, ServeConfig(grpc_address="127.0.0.1:0", spin_us=spin_us)))
"""
EMBED_SHAPES = ((1, 16), (1, 128), (1, 512), (1, 4096))
SCORE_SHAPES = ((5, 512), (25, 512), (50, 512))
CLIENTS, LOAD_SEQUENCES, LOAD_LENGTH, LOAD_SECONDS = 4, 100, 512, 5.0


@contextmanager
def server(
    directory: Path, max_batch_tokens: int, spin_us: int | None
) -> Iterator[tuple[str, float]]:
    """Address of a running server, and seconds from its start to ready."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", SERVE, str(directory), str(max_batch_tokens)),
            "" if spin_us is None else str(spin_us),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise RuntimeError(f"the server said {line!r} and ended with {process.wait(30)}")
        address = dict(part.split("=", 1) for part in line.split()[1:])["grpc"]
        yield address, time.perf_counter() - started
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def load(client: Path, address: str, score: bool, **options: float | str) -> dict[str, Any]:
    """What the load client measured."""
    command = [str(client), "--address", address, "--task", "score" if score else "embed"]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    result: dict[str, Any] = json.loads(subprocess.check_output(command, text=True, timeout=120))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(DIRECTORIES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--client", type=Path, default=Path("target/release/rose-load"), help="the load client"
    )
    parser.add_argument("--max-batch-tokens", type=int, default=16384)
    parser.add_argument("--spin-us", type=int)
    parser.add_argument("--only-load", action="store_true", help="no latencies")
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "max_batch_tokens": arguments.max_batch_tokens,
        "spin_us": arguments.spin_us,
        "models": {},
    }
    for name in arguments.models:
        architecture, values, pooling = DIRECTORIES[name]
        score = pooling is None
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder), architecture, values, pooling)
            torch.cuda.empty_cache()
            options = (arguments.max_batch_tokens, arguments.spin_us)
            with server(Path(folder), *options) as (address, ready_s):
                entry: dict[str, Any] = {"ready_s": round(ready_s, 2), "latency": []}
                print(name, "ready", entry["ready_s"], flush=True)
                for sequences, length in (
                    () if arguments.only_load else SCORE_SHAPES if score else EMBED_SHAPES
                ):
                    calls = 300 if sequences * length <= 4096 else 100
                    for busy in ("true", "false"):
                        measured = load(
                            arguments.client, address, score, sequences=sequences,
                            length=length, calls=calls, warm_up=50, busy=busy,
                        )  # fmt: skip
                        measured["client_awake"] = busy == "true"
                        entry["latency"].append(measured)
                        print(name, measured, flush=True)
                entry["load"] = load(
                    arguments.client, address, score, sequences=LOAD_SEQUENCES,
                    length=LOAD_LENGTH, clients=CLIENTS, seconds=LOAD_SECONDS,
                )  # fmt: skip
                print(name, entry["load"], flush=True)
        report["models"][name] = entry
        arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
