"""What one short query costs in the GEMMs of MiniLM, by the ways torch offers, on this machine.

    python benches/cpu_small_gemm.py [--rows 10] [--json FILE]

All 24 weights of the encoder once per run, as one query reads them. `read` only sums the weights:
no way of multiplying can be faster than that. Medians; the ways take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

SHAPES = ((1152, 384), (384, 384), (1536, 384), (384, 1536)) * 6
BLOCKS = (32, 192)


def blocked(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[rows, in] times [blocks, in, width] as one batched GEMM, to [rows, blocks * width]."""
    parts = torch.baddbmm(bias, x.unsqueeze(0).expand(weight.size(0), -1, -1), weight)
    return parts.transpose(0, 1).reshape(x.size(0), -1)


def ways(rows: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    weights = [torch.randn(shape).to(dtype) for shape in SHAPES]
    biases = [torch.randn(shape[0]).to(dtype) for shape in SHAPES]
    inputs = [torch.randn(rows, shape[1]).to(dtype) for shape in SHAPES]
    columns = [weight.t().contiguous().t() for weight in weights]
    packed = [torch.ops.mkldnn._reorder_linear_weight(weight, rows) for weight in weights]
    script = torch.jit.script(blocked)
    found: dict[str, Callable[[], object]] = {
        "read": lambda: [weight.sum() for weight in weights],
        "linear": lambda: [F.linear(*each) for each in zip(inputs, weights, biases, strict=True)],
        "column_major": lambda: [
            F.linear(*each) for each in zip(inputs, columns, biases, strict=True)
        ],
        "onednn_packed": lambda: [
            torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
            for x, weight, bias in zip(inputs, packed, biases, strict=True)
        ],
    }
    for width in BLOCKS:
        parts = [
            weight.view(-1, width, weight.shape[1]).transpose(1, 2).contiguous()
            for weight in weights
        ]
        added = [bias.view(-1, 1, width) for bias in biases]
        found[f"batched_{width}"] = lambda parts=parts, added=added: [
            script(*each) for each in zip(inputs, parts, added, strict=True)
        ]
    if dtype == torch.float32:
        prepacked = [
            torch.ops.prepacked.linear_clamp_prepack(weight, bias)
            for weight, bias in zip(weights, biases, strict=True)
        ]
        found["xnnpack"] = lambda: [
            torch.ops.prepacked.linear_clamp_run(x, weight)
            for x, weight in zip(inputs, prepacked, strict=True)
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    result: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "huge_pages": os.environ.get("THP_MEM_ALLOC_ENABLE", "0"),
        "rows": args.rows,
    }
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            calls = ways(args.rows, dtype)
            times: dict[str, list[float]] = {name: [] for name in calls}
            for run in range(-10, args.runs):
                for name, call in calls.items():
                    started = time.perf_counter()
                    call()
                    if run >= 0:
                        times[name].append(time.perf_counter() - started)
            result[f"{dtype}_ms".removeprefix("torch.")] = {
                name: round(statistics.median(values) * 1e3, 3) for name, values in times.items()
            }
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
