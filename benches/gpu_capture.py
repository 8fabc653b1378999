"""How long captures take: milliseconds of each of many shapes, and of making the graph executable.

python benches/gpu_capture.py --out benches/results/gpu_capture.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from gpu_shapes import make_runner
from rose.engine.synthetic_batch import fill_with_equal_lengths
from rose.graphs.config import GraphConfig

SHAPES = (
    (1, 128), (1, 192), (1, 300), (1, 512), (8, 128), (2, 1024), (3, 512), (5, 512), (7, 512),
    (64, 64), (12, 512), (20, 512), (25, 512), (30, 512), (40, 512), (50, 512),
)  # fmt: skip


class TimedGraph(torch.cuda.CUDAGraph):
    """Adds up the time of `capture_end`."""

    seconds = 0.0

    def capture_end(self) -> None:
        started = time.perf_counter()
        super().capture_end()
        TimedGraph.seconds += time.perf_counter() - started


def captures(name: str) -> list[dict[str, Any]]:
    """Of a model that is new in this process, each shape that has no graph yet."""
    runner = make_runner(name, graph_config=GraphConfig(max_tokens=28672))
    counters = runner.graphs.counters
    rows: list[dict[str, Any]] = []
    for sequences, length in SHAPES:
        tokens = sequences * length
        shape = runner.layout.padded_shape(tokens, sequences)
        slot = runner.make_slot(runner.layout.buffer_len(*shape))
        fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, tokens, sequences)
        before = counters.captures, counters.capture_seconds, TimedGraph.seconds
        for _ in range(3):
            runner.step_slot(slot, tokens, sequences, length, *shape).wait()
        if counters.captures > before[0]:
            milliseconds = (counters.capture_seconds - before[1]) * 1e3
            ending = (TimedGraph.seconds - before[2]) * 1e3
            rows.append(
                {
                    "shape": f"{sequences}x{length}",
                    "ms": round(milliseconds, 2),
                    "of that making it executable": round(ending, 2),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["bge-m3", "qwen3-0.6b-bidirectional"])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.cuda.CUDAGraph = TimedGraph  # type: ignore[misc]
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "models": {},
    }
    for name in arguments.models:
        rows = captures(name)
        times = [row["ms"] for row in rows]
        report["models"][name] = {"p50_ms": statistics.median(times), "captures": rows}
        print(name, report["models"][name], flush=True)
        torch.cuda.empty_cache()
        arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
