"""Attention back ends inside a graph, µs a call: the table that the choice of `auto` is read from.

python benches/gpu_attention.py --out benches/results/gpu_attention.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from rose.attention import make_attention
from rose.attention.base import AttentionShape
from rose.config import BatchLayout
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch
from rose.graphs.config import sequence_tiers, token_buckets
from rose.kernels.rope import HeadRotation, RopeTable

CALLS, REPLAYS = 20, 20
# Beyond that many query-key pairs the kernel for short sequences is out of question.
SHORT_MOST_PAIRS = 1 << 23
HEADS = {
    "d64 16/16": AttentionShape(16, 16, 64, 0.125),
    "d128 16/8": AttentionShape(16, 8, 128, 128**-0.5),
    "d128 16/8 causal": AttentionShape(16, 8, 128, 128**-0.5, causal=True),
    "d32 12/12": AttentionShape(12, 12, 32, 32**-0.5),
}
# Norm and rotation of heads, as Qwen3 has them, belong to what is timed.
ROTATED = "d128"
SHAPES = (
    (1, 16), (1, 64), (1, 128), (1, 256), (1, 512), (1, 1024), (1, 4096), (4, 16), (8, 32),
    (64, 16), (8, 64), (64, 64), (256, 64), (8, 96), (64, 96), (8, 128), (64, 128), (100, 128),
    (16, 256), (100, 256), (5, 512), (25, 512),
)  # fmt: skip


def graph_us(function: Any, calls: int) -> float:
    """Microseconds of one of `calls` calls in a replayed graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(calls):
            function()
        graph.capture_end()
        graph.replay()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
    return round(start.elapsed_time(end) * 1e3 / REPLAYS / calls, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device("cuda", 0)
    layout = BatchLayout(token_buckets(16384), sequence_tiers(512))
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(), "us": {}}
    for heads, shape in HEADS.items():
        report["us"][heads] = {}
        for sequences, length in SHAPES:
            batch = ForwardBatch.from_sequences([[1] * length] * sequences, layout, device=device)
            width = shape.num_heads + 2 * shape.num_kv_heads
            qkv = torch.randn(batch.padded_tokens, width, shape.head_dim, device=device)
            parts = [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads]
            qkv = qkv.bfloat16()
            q, k, v = torch.split(qkv, parts, 1)
            flat = qkv.view(batch.padded_tokens, -1)
            norms = torch.ones(2, shape.head_dim, device=device, dtype=torch.bfloat16)
            table = RopeTable.make(8192, shape.head_dim, 1e6, device)
            rotation = HeadRotation(table, (norms[0], norms[1]), 1e-6)
            row: dict[str, float] = {}
            for name in ("flash_attn", "flashinfer", "fa3_fwd", "short"):
                if name == "short" and sequences * length * length > SHORT_MOST_PAIRS:
                    continue
                try:
                    attention = make_attention(name, shape, torch.bfloat16, device)
                except ConfigError as error:
                    print(name, error)
                    continue
                attention.plan(batch)
                row[name] = graph_us(lambda a=attention: a.attend(q, k, v), CALLS)
                if heads.startswith(ROTATED):
                    row[f"{name} rotated"] = graph_us(
                        lambda a=attention: a.attend_rotated(flat, batch.positions, rotation), CALLS
                    )
                if name == "flashinfer":
                    row["schedule"] = graph_us(lambda a=attention: a.plan(batch), CALLS)
            report["us"][heads][f"{sequences}x{length}"] = row
            print(heads, f"{sequences}x{length}", row, flush=True)
    arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
