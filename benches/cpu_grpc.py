"""A CPU server through gRPC against sentence-transformers on the same threads, in one run.

    python benches/cpu_grpc.py [--texts 1000] [--rounds 3] [--json FILE]

Throughput: texts of 8 to 256 tokens in one call, against `encode` with its default batch. Latency:
one short query, text in and vector out, against a bare `encode` call. All take turns, so that a
slow moment of the machine hits all; medians of all rounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer

import rose
from cpu_engine import QUERY, make_texts, seconds
from rose.checkpoint.location import find_model

DTYPES = ("float32", "bfloat16")


@contextmanager
def server(model: str, dtype: str) -> Iterator[rose.Client]:
    command = [sys.executable, "-m", "rose.cli", "serve", model, "--dtype", dtype]
    command += ["--grpc-address", "127.0.0.1:0", "--http-address", "off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = dict(part.split("=", 1) for part in process.stdout.readline().split()[1:])
        with rose.Client(ready["grpc"], timeout=300) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def percentile(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent)) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=60, help="per round")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)

    directory, _ = find_model(args.model)
    reference = SentenceTransformer(str(directory), device="cpu")
    texts = make_texts(args.texts)
    result: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "sentence_transformers": sentence_transformers.__version__,
        "threads": torch.get_num_threads(),
        "texts": len(texts),
    }
    with ExitStack() as stack:
        clients = {dtype: stack.enter_context(server(args.model, dtype)) for dtype in DTYPES}
        expected = reference.encode(texts, show_progress_bar=False)
        for dtype, client in clients.items():
            rows = client.embed(texts).embeddings
            norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(expected, axis=1)
            result[f"{dtype}_min_cosine"] = round(
                float(((rows * expected).sum(1) / norms).min()), 7
            )

        calls = {
            "sentence-transformers": lambda what: reference.encode(what, show_progress_bar=False)
        }
        for dtype, client in clients.items():
            calls[dtype] = lambda what, client=client: client.embed(what)
        work: dict[str, list[float]] = {name: [] for name in calls}
        latency: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(args.rounds):
            for name, call in calls.items():
                work[name].append(seconds(lambda call=call: call(texts)))
            for name, call in calls.items():
                query = QUERY if name == "sentence-transformers" else [QUERY]
                for _ in range(5):
                    call(query)
                latency[name] += [
                    seconds(lambda call=call, query=query: call(query)) for _ in range(args.queries)
                ]
    for name in calls:
        median = statistics.median(work[name])
        result[f"{name}_s"] = round(median, 3)
        result[f"{name}_speedup"] = round(
            statistics.median(work["sentence-transformers"]) / median, 3
        )
    for name in calls:
        p50 = percentile(latency[name], 50)
        result[f"{name}_query_p50_ms"] = round(p50, 3)
        result[f"{name}_query_p99_ms"] = round(percentile(latency[name], 99), 3)
        result[f"{name}_query_ratio"] = round(
            p50 / percentile(latency["sentence-transformers"], 50), 3
        )
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
