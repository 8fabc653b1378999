"""The engine on CPU, in process, against sentence-transformers on the same threads.

    python benches/cpu_engine.py [--texts 160] [--rounds 5] [--json FILE]

Throughput: texts of 8 to 256 tokens. Latency: one short query. Ours starts from token ids and the
reference from texts; the tokenizer's share of the reference is printed too. Both take turns, so
that a slow moment of the machine hits both; medians of all rounds. `…_deterministic` is the same with
`--deterministic`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from rose.checkpoint.location import find_model
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch

QUERY = "how much protein should a female eat"


def make_texts(count: int, seed: int = 0) -> list[str]:
    """Texts whose token counts are spread evenly over 8 to 256."""
    words = "the cat protein river daily market energy of in and recommended a".split()  # noqa: SIM905
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=rng.randint(6, 254))) for _ in range(count)]


def steps(engine: Engine, token_ids: list[list[int]]) -> list[list[list[int]]]:
    """First come, first served, as the server batches."""
    batches: list[list[list[int]]] = [[]]
    tokens = 0
    for ids in token_ids:
        if batches[-1] and tokens + len(ids) > engine.config.max_batch_tokens:
            batches.append([])
            tokens = 0
        batches[-1].append(ids)
        tokens += len(ids)
    return batches


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--texts", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=40, help="per round")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)

    directory, _ = find_model(args.model)
    reference = SentenceTransformer(str(directory), device="cpu")
    configs = {
        "float32": EngineConfig(dtype="float32"),
        "bfloat16": EngineConfig(dtype="bfloat16"),
        "float32_deterministic": EngineConfig(dtype="float32", deterministic=True),
        "bfloat16_deterministic": EngineConfig(dtype="bfloat16", deterministic=True),
    }
    engines = {name: Engine.load(args.model, config) for name, config in configs.items()}
    info = engines["float32"].info
    texts = make_texts(args.texts)

    def tokenize(batch: list[str]) -> list[list[int]]:
        ids: list[list[int]] = reference.tokenizer(
            batch, truncation=True, max_length=info.max_sequence_tokens
        )["input_ids"]
        return ids

    token_ids = tokenize(texts)
    query_ids = tokenize([QUERY])

    def run(engine: Engine, sequences: list[list[int]]) -> np.ndarray:
        return np.concatenate(
            [
                engine.step(ForwardBatch.from_sequences(batch, info.layout)).numpy()
                for batch in steps(engine, sequences)
            ]
        )

    work: dict[str, Callable[[], object]] = {
        "sentence-transformers": lambda: reference.encode(texts, show_progress_bar=False),
        "tokenizer": lambda: tokenize(texts),
    }
    latency: dict[str, Callable[[], object]] = {
        "sentence-transformers": lambda: reference.encode(QUERY, show_progress_bar=False),
    }
    for name, engine in engines.items():
        work[name] = lambda engine=engine: run(engine, token_ids)
        latency[name] = lambda engine=engine: run(engine, query_ids)

    expected = reference.encode(texts, show_progress_bar=False, normalize_embeddings=True)
    result: dict[str, object] = {
        "threads": torch.get_num_threads(),
        "texts": len(texts),
        "tokens": sum(map(len, token_ids)),
    }
    for name, engine in engines.items():
        rows = run(engine, token_ids)
        cosine = (rows * expected).sum(1) / np.linalg.norm(rows, axis=1)
        result[f"{name}_min_cosine"] = float(cosine.min())

    times: dict[str, list[float]] = {name: [] for name in work}
    query_times: dict[str, list[float]] = {name: [] for name in latency}
    for _ in range(args.rounds):
        for name, call in work.items():
            times[name].append(seconds(call))
        for name, call in latency.items():
            call()
            query_times[name] += [seconds(call) for _ in range(args.queries)]
    reference_s = statistics.median(times["sentence-transformers"])
    reference_query_s = statistics.median(query_times["sentence-transformers"])
    for name, values in times.items():
        result[f"{name}_s"] = round(statistics.median(values), 4)
        result[f"{name}_speedup"] = round(reference_s / statistics.median(values), 3)
    for name, values in query_times.items():
        result[f"{name}_query_ms"] = round(statistics.median(values) * 1e3, 3)
        result[f"{name}_query_ratio"] = round(statistics.median(values) / reference_query_s, 3)
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
