"""Products of many rows: by torch, and by cuBLASLt with kernels that need no workspace.

    python benches/gpu_products.py --out benches/results/gpu_products.json

`us` is the time of one product in a graph of twenty. For the products of a BGE-M3 step, `launch_us` is
what the host needs to launch their graph, in a row and after 15 ms of waiting, and `capture_us_a_call`
what it needs for one call that is captured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from gpu_attention import graph_us
from rose.kernels.products import add_product, multiply

# Width, depth, and whether it has a bias or adds to what is there.
LAYERS = {
    "query, key and value": (3072, 1024, "bias"),
    "attention out": (1024, 1024, "adds"),
    "down": (1024, 4096, "adds"),
    "gate and up of Qwen3-0.6B": (6144, 1024, ""),
}
ROWS = (1152, 2560, 4096, 9216, 12800, 16384, 25600)
STEP_LAYERS = 24


def ways(rows: int, width: int, depth: int, kind: str) -> dict[str, Callable[[], Any]]:
    """The product by each of the two."""

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").bfloat16()

    x, weight = random(rows, depth), random(width, depth) * depth**-0.5
    if kind == "adds":
        # Its own sum again and again would overflow.
        out = torch.zeros(rows, width, dtype=torch.bfloat16, device="cuda")
        x *= 1e-3
        return {
            "torch": lambda: out.addmm_(x, weight.t()),
            "cublas_lt": lambda: add_product(out, x, weight),
        }
    bias = random(width) if kind == "bias" else None
    return {
        "torch": lambda: F.linear(x, weight, bias),
        "cublas_lt": lambda: multiply(x, weight, bias),
    }


def launch_us(products: list[Callable[[], Any]]) -> dict[str, float]:
    """Of the graph of some products, layer after layer."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for product in products:
            product()
        stream.synchronize()
        started = time.perf_counter()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(STEP_LAYERS):
            for product in products:
                product()
        calls = time.perf_counter() - started
        graph.capture_end()
        result = {"capture_us_a_call": calls * 1e6 / STEP_LAYERS / len(products)}
        for name, pause in (("launch_us", 0.0), ("launch_us_after_15_ms", 0.015)):
            times = []
            for _ in range(30):
                stream.synchronize()
                time.sleep(pause)
                started = time.perf_counter()
                graph.replay()
                times.append((time.perf_counter() - started) * 1e6)
            result[name] = statistics.median(times)
        stream.synchronize()
    return {name: round(value, 1) for name, value in result.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "us": {},
        "step_of_12800_rows": {},
    }
    for name, (width, depth, kind) in LAYERS.items():
        for rows in ROWS:
            products = ways(rows, width, depth, kind)
            row = {way: graph_us(product, 20) for way, product in products.items()}
            report["us"][f"{name} {rows}x{width}x{depth}"] = row
            print(name, rows, row, flush=True)
    of_step = [ways(12800, *layer) for name, layer in LAYERS.items() if "Qwen3" not in name]
    for way in ("torch", "cublas_lt"):
        report["step_of_12800_rows"][way] = launch_us([products[way] for products in of_step])
    print(report["step_of_12800_rows"], flush=True)
    arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
