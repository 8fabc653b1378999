"""What makes short steps fast: model time with each technique left out, and with other tilings.

    python benches/gpu_short_steps.py --out benches/results/gpu_short_steps.json [--search]

Techniques: `dependent` launch of kernels before the previous one has ended; `split` sums of narrow
layers, added up by the norm behind them; `tilings` of our own for wide layers; the `attention`
kernel for short sequences. All times are of whole models, captured and replayed, in microseconds.
With `--search` each tiling is replaced by others; the tables of `rose.kernels.small_linear` and the
limits of `rose.attention.auto` are read off this.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from gpu_model import replay_times
from gpu_shapes import make_runner
from rose.attention import auto
from rose.engine.cuda_runner import CudaRunner
from rose.engine.synthetic_batch import fill_with_equal_lengths
from rose.graphs.graph_runner import GraphRunner
from rose.kernels import launch, linear, small_linear
from rose.kernels.small_linear import SmallTiling

SHAPES = ((1, 16), (1, 128), (1, 192), (1, 256), (4, 64), (1, 512), (8, 128))
REPEATS = 100
_KEPT: list[Any] = []
LEFT_OUT: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "all": (),
    "without dependent": ((launch, "DEPENDENT_ROWS", 0),),
    "without split": ((linear, "choose_split", lambda *_: None),),
    "without tilings": ((linear, "choose_small_tiling", lambda *_: None),),
    "without attention": ((auto, "SHORT_LIMITS", {}),),
    "attention always": ((auto, "SHORT_LIMITS", dict.fromkeys((32, 64, 128), ((1024, 1 << 20),))),),
}
LEFT_OUT["without any"] = tuple(
    change for name, changes in LEFT_OUT.items() if name.startswith("without") for change in changes
)
WIDE = (
    None,
    SmallTiling(64, 64, 128),
    SmallTiling(64, 64, 128, prefetch=True),
    SmallTiling(64, 32, 128),
    SmallTiling(64, 32, 128, prefetch=True),
    SmallTiling(128, 64, 128, prefetch=True),
)
NARROW = (
    None,
    SmallTiling(64, 64, 128, splits=2),
    SmallTiling(64, 64, 128, splits=4),
    SmallTiling(64, 64, 128, splits=4, prefetch=True),
    SmallTiling(64, 32, 128, splits=2, prefetch=True),
)
LAYERS = {
    "bge-m3": (("none", 3072, 1024), ("gelu", 4096, 1024)),
    "qwen3-0.6b-bidirectional": (("none", 4096, 1024), ("silu_mul", 6144, 1024)),
}


def model_us(runner: CudaRunner, sequences: int, length: int) -> float:
    """Median over replays of a fresh capture."""
    # The memory pool lives as long as any of its graphs does.
    _KEPT.append(runner.graphs)
    runner.graphs = GraphRunner(runner.capture, runner.graphs.config)
    tokens = sequences * length
    shape = runner.layout.padded_shape(tokens, sequences)
    slot = runner.make_slot(runner.layout.buffer_len(*shape))
    fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, tokens, sequences)

    def step(slot: Any) -> Any:
        return runner.step_slot(slot, tokens, sequences, length, *shape)

    for _ in range(3):
        step(slot).wait()
    return round(statistics.median(replay_times(runner, step, slot, REPEATS)) * 1e3, 1)


@contextmanager
def changed(changes: tuple[tuple[Any, str, Any], ...]) -> Iterator[None]:
    patches = [patch.object(*change) for change in changes]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def search(runner: CudaRunner, name: str) -> dict[str, Any]:
    """Model time with each tiling of each kind of layer, the others staying as they are."""
    found: dict[str, Any] = {}
    for sequences, length in ((1, 16), (1, 128), (1, 256)):
        row = found[f"{sequences}x{length}"] = {}
        for key in LAYERS[name]:
            for tiling in WIDE:
                ranges = () if tiling is None else ((1, 1 << 30, tiling),)
                with patch.dict(small_linear._TILINGS, {key: ranges}):  # type: ignore[arg-type]
                    row[f"{key[0]} {key[1]}: {shown(tiling)}"] = model_us(runner, sequences, length)
        for tiling in NARROW:
            with patch.object(linear, "choose_split", lambda *_, tiling=tiling: tiling):
                row[f"split: {shown(tiling)}"] = model_us(runner, sequences, length)
        print(name, f"{sequences}x{length}", row, flush=True)
    return found


def shown(tiling: SmallTiling | None) -> str:
    if tiling is None:
        return "cuBLAS"
    parts = f"{tiling.rows}x{tiling.columns}x{tiling.depth}"
    return f"{parts} splits {tiling.splits}" + (" prefetch" if tiling.prefetch else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models",
        nargs="+",
        default=["bge-m3", "qwen3-0.6b-bidirectional", "bge-base", "minilm-l6"],
    )
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "models": {},
    }
    for name in arguments.models:
        runner = make_runner(name)
        entry: dict[str, Any] = {"left_out": {}}
        for sequences, length in SHAPES:
            if length > runner.model.backbone.max_positions:
                continue
            row = entry["left_out"][f"{sequences}x{length}"] = {}
            for variant, changes in LEFT_OUT.items():
                with changed(changes):
                    row[variant] = model_us(runner, sequences, length)
            print(name, f"{sequences}x{length}", row, flush=True)
        if arguments.search and name in LAYERS:
            entry["tilings"] = search(runner, name)
        report["models"][name] = entry
        arguments.out.write_text(json.dumps(report, indent=1))
        del runner
        _KEPT.clear()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
