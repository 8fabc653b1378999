"""Random batches for a while: every so often one is compared with an eager step, bit for bit.

    python benches/gpu_stress.py --seconds 120 --out benches/results/gpu_stress.json

Every batch is a new one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from gpu_shapes import make_runner
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch
from rose.graphs.config import GraphConfig

CHECK_EVERY = 50
MAX_TOKENS = 16384
LONGEST = 4096


def random_batch(
    generator: np.random.Generator, tokens: np.ndarray, layout: BatchLayout
) -> ForwardBatch:
    """1 to 200 sequences of 1 to 4,096 tokens, together at most `MAX_TOKENS`."""
    longest = int(np.exp(generator.uniform(0, np.log(LONGEST + 1))))
    lengths = generator.integers(1, longest + 1, int(generator.integers(1, 201)))
    lengths = lengths[np.cumsum(lengths) <= MAX_TOKENS]
    first = int(generator.integers(len(tokens) - MAX_TOKENS))
    starts = first + np.concatenate(([0], np.cumsum(lengths)[:-1]))
    sequences = [
        tokens[start : start + length] for start, length in zip(starts, lengths, strict=True)
    ]
    return ForwardBatch.from_sequences(sequences, layout)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small-long")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--max-batches", type=int, default=20_000)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    runner = make_runner(arguments.model)
    eager = make_runner(arguments.model, graph_config=GraphConfig(max_graphs=0))
    generator = np.random.default_rng(0)
    vocab_size = runner.model.backbone.vocab_size
    tokens = generator.integers(3, vocab_size, 8 * MAX_TOKENS)
    checked = mismatches = count = 0
    memory: list[int] = []
    started = time.perf_counter()
    while count < arguments.max_batches and time.perf_counter() - started < arguments.seconds:
        batch = random_batch(generator, tokens, runner.layout)
        pending = runner.step(batch)
        if count % CHECK_EVERY == 0:
            rows = pending.numpy()
            checked += 1
            mismatches += not np.array_equal(rows, eager.step(batch).numpy())
        else:
            pending.wait()
        count += 1
        if count % 1000 == 0:
            memory.append(torch.cuda.memory_reserved() >> 20)
    counters = runner.graphs.counters
    report = {
        "model": arguments.model,
        "batches": count,
        "seconds": round(time.perf_counter() - started, 1),
        "checked": checked,
        "mismatches": mismatches,
        "graphs": len(runner.graphs),
        "replayed": counters.replayed_steps,
        "eager": counters.eager_steps,
        "failed_captures": counters.failed_captures,
        "capture_ms": round(counters.capture_seconds * 1e3 / max(1, counters.captures), 2),
        "graph_mib": round(counters.graph_bytes / max(1, counters.captures) / 2**20, 2),
        "pool_mib": round(runner.capture.pool_bytes / 2**20),
        "padding_share": round(
            counters.padding_tokens / (counters.padding_tokens + counters.tokens), 4
        ),
        "reserved_mib_each_1000_batches": memory,
    }
    print(json.dumps(report, indent=1))
    arguments.out.write_text(json.dumps(report, indent=1))
    assert mismatches == 0


if __name__ == "__main__":
    main()
