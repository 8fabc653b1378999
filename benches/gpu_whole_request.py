"""A request of 50 × 512 tokens in one step, or in several: which is faster.

    python benches/gpu_whole_request.py --out benches/results/gpu_whole_request.json

Milliseconds from the first call to the last row on the host, all steps of a plan being enqueued at once,
one request after the other: medians of twenty, several times in turn.
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

LENGTH = 512
# Sequences of each step.
PLANS = ((50,), (32, 18), (25, 25), (33, 17), (17, 33), (17, 17, 16), (25,), (5,))
ROUNDS, CALLS, FIRST_CALLS = 4, 20, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bge-reranker-v2-m3")
    parser.add_argument("--max-graph-tokens", type=int, default=28672)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    graphs = GraphConfig(max_tokens=arguments.max_graph_tokens)
    runner = make_runner(arguments.model, graph_config=graphs)

    def step_of(sequences: int) -> tuple[Any, ...]:
        tokens = sequences * LENGTH
        shape = runner.layout.padded_shape(tokens, sequences)
        slot = runner.make_slot(runner.layout.buffer_len(*shape))
        fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, tokens, sequences)
        return slot, tokens, sequences, LENGTH, *shape

    def milliseconds(steps: list[tuple[Any, ...]]) -> float:
        started = time.perf_counter()
        pending = [runner.step_slot(*step) for step in steps]
        for rows in pending:
            while not rows.is_ready():
                pass
        return (time.perf_counter() - started) * 1e3

    plans = {"+".join(map(str, plan)): [step_of(count) for count in plan] for plan in PLANS}
    medians: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(ROUNDS):
        for name, steps in plans.items():
            times = [milliseconds(steps) for _ in range(FIRST_CALLS + CALLS)]
            medians[name].append(round(statistics.median(times[FIRST_CALLS:]), 3))
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "unit": "ms",
        "model": arguments.model,
        "max_graph_tokens": arguments.max_graph_tokens,
        "sequences": medians,
    }
    print(json.dumps(report, indent=1))
    arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
