"""How long the GPU is idle between steps under load, from a trace of its kernels.

    cargo build --release -p rose-benches
    python benches/gpu_trace.py --out benches/results/gpu_trace.json

The server runs in this process under torch's profiler; the load client calls over gRPC with four
connections of 100 sequences of 512 tokens, so that there is always work waiting.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from gpu_directories import DIRECTORIES, write_model
from gpu_grpc import LOAD_LENGTH, LOAD_SEQUENCES
from rose.config import EngineConfig, ServeConfig
from rose.engine.engine import Engine
from rose.server import Server

TRACE_SECONDS = 1.5
LOAD_SECONDS = 10.0
# A profiler that starts beside a running graph sometimes sees nothing of it.
ATTEMPTS = 3


def device_intervals(profiler: profile) -> list[tuple[float, float]]:
    """Start and end of each kernel and copy, in seconds."""
    return [
        (event.start_ns() / 1e9, event.end_ns() / 1e9)
        for event in profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
        if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0
    ]


def idle_share(intervals: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Seconds from first to last, share without any kernel or copy, longest gap in seconds."""
    intervals.sort()
    begin, busy_until = intervals[0]
    idle = longest = 0.0
    for start, end in intervals:
        gap = max(0.0, start - busy_until)
        idle, longest = idle + gap, max(longest, gap)
        busy_until = max(busy_until, end)
    span = busy_until - begin
    return span, idle / span, longest


def trace(client: Path, name: str) -> dict[str, Any]:
    architecture, values, pooling = DIRECTORIES[name]
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), architecture, values, pooling)
        torch.cuda.empty_cache()
        config = EngineConfig(device="cuda")
        with Server(ServeConfig(grpc_address="127.0.0.1:0"), config) as server:
            server.start(Engine.load(folder, config))
            command = [str(client), "--address", server.address, "--clients", "4"]
            command += ["--task", "score" if pooling is None else "embed"]
            command += ["--sequences", str(LOAD_SEQUENCES), "--length", str(LOAD_LENGTH)]
            command += ["--seconds", str(LOAD_SECONDS), "--warm-up", "4"]
            load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            time.sleep(LOAD_SECONDS / 2)
            for _ in range(ATTEMPTS):
                with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                    time.sleep(TRACE_SECONDS)
                intervals = device_intervals(profiler)
                if intervals:
                    break
            output, _ = load.communicate(timeout=120)
    span, idle, longest = idle_share(intervals)
    return {
        "trace_seconds": round(span, 3),
        "kernels_and_copies": len(intervals),
        "idle_percent": round(100 * idle, 2),
        "longest_gap_us": round(longest * 1e6, 1),
        "load": json.loads(output),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["bge-m3", "qwen3-0.6b-bidirectional"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--client", type=Path, default=Path("target/release/rose-load"))
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "models": {},
    }
    # Before the first graph: what it loads is then there when the trace begins.
    with profile(activities=[ProfilerActivity.CUDA]):
        torch.zeros(1, device="cuda")
    for name in arguments.models:
        report["models"][name] = trace(arguments.client, name)
        print(name, report["models"][name], flush=True)
        arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
