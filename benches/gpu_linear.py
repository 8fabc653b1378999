"""Linear layers with what is behind them: fused kernels, against cuBLAS and a second kernel.

    python benches/gpu_linear.py --out benches/results/gpu_linear.json

The thresholds in `rose.kernels.linear` and `rose.kernels.overlapped_linear` are read off this table.
`overlapped` is the kernel whose epilogue runs beside the tensor cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from gpu_attention import graph_us
from rose.attention.base import AttentionShape
from rose.kernels.activation import bias_gelu_, gated_mul
from rose.kernels.linear import Tiling, choose_tiling, run_fused_linear
from rose.kernels.overlapped_linear import overlapped_gelu, overlapped_rotation, overlaps
from rose.kernels.rope import HeadRotation, RopeTable, qk_norm_rope_
from rose.kernels.small_linear import choose_small_tiling

LAYERS = (("gelu", 4096, 1024), ("silu_mul", 6144, 1024))
TILINGS = (
    Tiling(64, 64, 128, 4, 4),
    Tiling(64, 64, 128, 4, 3, 2),
    Tiling(64, 128, 64, 4, 4, 2),
    Tiling(128, 64, 128, 4, 4),
    Tiling(128, 64, 64, 4, 4, 2),
    Tiling(128, 128, 64, 4, 3, 2),
    Tiling(128, 128, 64, 8, 3, 2),
    Tiling(128, 128, 64, 8, 4),
    Tiling(64, 256, 64, 4, 2, 2),
    Tiling(128, 256, 64, 8, 3),
)
ROWS = (64, 128, 256, 512, 1024, 1536, 2048, 2560, 4096, 12800)


def tensors(activation: str, rows: int, width: int, depth: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator("cuda").manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda").bfloat16()

    out_width = width // 2 if activation == "silu_mul" else width
    out = torch.empty(rows, out_width, dtype=torch.bfloat16, device="cuda")
    return random(rows, depth), random(width, depth) * 0.03, random(width), out


def chosen(x: torch.Tensor, weight: torch.Tensor, activation: Any) -> str:
    """Which of them `rose.kernels.linear` takes."""
    if choose_small_tiling(x.shape[0], *weight.shape, activation) is not None:
        return "small_linear"
    if activation == "gelu" and x.shape[0] > 2048 and overlaps(x, weight):
        return "overlapped"
    tiling = choose_tiling(x, weight, activation)
    return "separate" if tiling is None else name_of(tiling)


def name_of(tiling: Tiling) -> str:
    return (
        f"{tiling.rows}x{tiling.columns}x{tiling.depth} "
        f"w{tiling.num_warps} s{tiling.num_stages} p{tiling.per_multiprocessor}"
    )


def compile_one(task: tuple[str, int, int, Tiling]) -> str:
    """In a process of its own, so that many compile at once; the cache on disk keeps the result."""
    activation, width, depth, tiling = task
    try:
        x, weight, bias, out = tensors(activation, 64, width, depth)
        run_fused_linear(x, weight, bias, out, activation, tiling)
        torch.cuda.synchronize()
    except Exception as error:
        return f"{task}: {str(error)[:100]}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    tasks = [
        (activation, width, depth, tiling)
        for activation, width, depth in LAYERS
        for tiling in TILINGS
        if width % tiling.columns == 0
    ]
    with multiprocessing.get_context("spawn").Pool(12) as pool:
        failures = [message for message in pool.map(compile_one, tasks, chunksize=1) if message]
    print("\n".join(failures), flush=True)
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(), "us": {}}
    for activation, width, depth in LAYERS:
        for rows in ROWS:
            x, weight, bias, out = tensors(activation, rows, width, depth)
            if activation == "gelu":
                expected = F.gelu(F.linear(x.float(), weight.float(), bias.float()))
                separate = graph_us(lambda: bias_gelu_(F.linear(x, weight), bias), 20)
            else:
                gate, up = F.linear(x.float(), weight.float()).view(rows, -1, 2).unbind(2)
                expected = F.silu(gate) * up
                separate = graph_us(lambda: gated_mul(F.linear(x, weight), "silu"), 20)
            row: dict[str, Any] = {
                "gemm": graph_us(lambda: F.linear(x, weight), 20),
                "separate": separate,
            }
            for tiling in TILINGS:
                if width % tiling.columns or (rows < 256 and tiling.rows > rows):
                    continue

                def fused(tiling: Tiling = tiling) -> None:
                    run_fused_linear(x, weight, bias, out, activation, tiling)

                try:
                    fused()
                except Exception:
                    continue
                error = ((out.float() - expected).norm() / expected.norm()).item()
                row[name_of(tiling)] = (
                    graph_us(fused, 20) if error < 5e-3 else f"wrong by {error:.1e}"
                )
            if activation == "gelu":

                def overlapped() -> None:
                    overlapped_gelu(x, weight, bias, out, tanh=False)

                row["overlapped"] = graph_us(overlapped, 20)
            row["chosen"] = chosen(x, weight, activation)
            report["us"][f"{activation} {rows}x{width}x{depth}"] = row
            print(activation, rows, row, flush=True)
    measure_rotation(report)
    arguments.out.write_text(json.dumps(report, indent=1))


def measure_rotation(report: dict[str, Any]) -> None:
    """Query, key and value of Qwen3-0.6B: one GEMM, norm and rotation of heads."""
    device = torch.device("cuda", 0)
    shape = AttentionShape(16, 8, 128, 128**-0.5)
    norms = (torch.rand(128, device=device).bfloat16(), torch.rand(128, device=device).bfloat16())
    rotation = HeadRotation(RopeTable.make(8192, 128, 1e6, device), norms, 1e-6)
    for rows in ROWS:
        x, weight, _, _ = tensors("gelu", rows, 4096, 1024)
        positions = torch.randint(0, 8192, (rows,), device=device, dtype=torch.int32)

        def separate(x: Any = x, weight: Any = weight, positions: Any = positions) -> Any:
            return qk_norm_rope_(F.linear(x, weight), positions, shape, rotation)

        def overlapped(x: Any = x, weight: Any = weight, positions: Any = positions) -> Any:
            return overlapped_rotation(x, weight, positions, shape, rotation)

        row = {
            "gemm": graph_us(lambda: F.linear(x, weight), 20),
            "separate": graph_us(separate, 20),
        }
        if overlapped() is not None:
            row["overlapped"] = graph_us(overlapped, 20)
        report["us"][f"rotation {rows}x4096x1024"] = row
        print("rotation", rows, row, flush=True)


if __name__ == "__main__":
    main()
