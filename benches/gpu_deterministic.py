"""What deterministic steps cost on one GPU: model time and step time beside the default's.

    python benches/gpu_deterministic.py --out benches/results/gpu_deterministic.json

`models`: steps by the default and by the batch-invariant path, both in this run, as
`benches/gpu_model.py` measures them. `linear`: a layer by cuBLAS and by the invariant kernel.
`tiles`: how many values of a layer differ between the tile of its weight and a smaller one; where
none does, few rows could have the smaller one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from gpu_attention import graph_us
from gpu_model import measure
from gpu_shapes import make_runner
from rose.kernels.invariant_linear import Tile, invariant_linear

MODELS = ("bge-m3", "qwen3-embedding-0.6b")
SHAPES = ((1, 128), (25, 512), (100, 512))
# (width, depth) of both models' layers.
LAYERS = ((3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096), (6144, 1024), (1024, 3072))
ROWS = (128, 1024, 12800)
SMALL_TILES = (Tile(128, 128, 64, 8, 3), Tile(64, 64, 64, 4, 4), Tile(64, 32, 64, 4, 4))


def measure_models() -> dict[str, Any]:
    report: dict[str, Any] = {}
    for name in MODELS:
        entry: dict[str, Any] = {}
        for mode in (False, True):
            runner = make_runner(name, deterministic=mode)
            for sequences, length in SHAPES:
                result = measure(runner, sequences, length)
                shape = entry.setdefault(f"{sequences}x{length}", {})
                shape["deterministic" if mode else "default"] = result
                print(name, f"{sequences}x{length}", mode, result, flush=True)
            del runner
            torch.cuda.empty_cache()
        for shape in entry.values():
            for key in ("model_ms", "step_ms"):
                times = [shape[mode][key]["p50"] for mode in ("deterministic", "default")]
                shape[f"{key}_ratio"] = round(times[0] / times[1], 3)
            print(name, {key: shape[key] for key in shape if key.endswith("ratio")}, flush=True)
        report[name] = entry
    return report


def measure_layers() -> tuple[dict[str, Any], dict[str, Any]]:
    linear: dict[str, Any] = {}
    tiles: dict[str, Any] = {}
    generator = torch.Generator("cuda").manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda").bfloat16()

    for width, depth in LAYERS:
        weight, bias = random(width, depth) * 0.03, random(width)
        for rows in ROWS:
            x = random(rows, depth)
            out = torch.empty(rows, width, dtype=torch.bfloat16, device="cuda")
            cublas = graph_us(lambda: F.linear(x, weight, bias), 20)
            invariant = graph_us(lambda: invariant_linear(x, weight, bias, out=out), 20)
            name = f"{rows}x{width}x{depth}"
            linear[name] = {
                "cublas_us": cublas,
                "invariant_us": invariant,
                "invariant_tflops": round(2e-6 * rows * width * depth / invariant, 1),
            }
            print(name, linear[name], flush=True)
        x = random(4096, depth)
        expected = invariant_linear(x, weight, bias)
        tiles[f"{width}x{depth}"] = {
            f"{tile.rows}x{tile.columns}x{tile.depth}": int(
                (invariant_linear(x, weight, bias, tile=tile) != expected).sum()
            )
            for tile in SMALL_TILES
        }
        print(width, depth, tiles[f"{width}x{depth}"], flush=True)
    return linear, tiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "models": measure_models(),
    }
    arguments.out.write_text(json.dumps(report, indent=1))
    report["linear"], report["tiles"] = measure_layers()
    arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
