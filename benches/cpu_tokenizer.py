"""What our tokenizer saves a CPU server, texts in over gRPC: the same model with the crate's.

    python benches/cpu_tokenizer.py [--texts 200] [--rounds 5] [--json FILE]

The second server's `tokenizer.json` has a normalizer that changes no ids and that our encoders do not
cover, so that the `tokenizers` crate makes them. Both take turns; medians of all rounds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from cpu_engine import QUERY, make_texts, seconds
from cpu_grpc import server
from rose.checkpoint.location import find_model


def left_to_the_crate(directory: Path, copy: Path) -> None:
    shutil.copytree(directory, copy)
    path = copy / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    tokenizer["normalizer"] = {
        "type": "Sequence",
        "normalizers": [tokenizer["normalizer"], strip],
    }
    path.write_text(json.dumps(tokenizer), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=200, help="per round")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    directory, _ = find_model("demo")
    texts = make_texts(args.texts)
    result: dict[str, object] = {"texts": len(texts), "dtype": "bfloat16"}
    with ExitStack() as stack:
        copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "copy"
        left_to_the_crate(Path(directory), copy)
        clients = {
            name: stack.enter_context(server(str(model), "bfloat16"))
            for name, model in (("ours", directory), ("crate", copy))
        }
        times: dict[str, list[float]] = {name: [] for name in clients}
        query_times: dict[str, list[float]] = {name: [] for name in clients}
        for client in clients.values():
            client.embed(texts)
        for _ in range(args.rounds):
            for name, client in clients.items():
                times[name].append(seconds(lambda client=client: client.embed(texts)))
            for _ in range(args.queries):
                for name, client in clients.items():
                    query_times[name].append(seconds(lambda client=client: client.embed([QUERY])))
    for name in clients:
        result[f"{name}_s"] = round(statistics.median(times[name]), 4)
        result[f"{name}_query_ms"] = round(statistics.median(query_times[name]) * 1e3, 3)
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
