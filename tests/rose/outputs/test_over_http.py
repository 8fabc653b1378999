"""Sparse vectors and vectors of tokens in TEI's dialect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

# Dense vector, weights by token id, vectors of tokens.
Forms: TypeAlias = tuple[Any, dict[int, float], Any]


def test_forms_over_http(
    texts: list[str], bge_m3_forms: Callable[[str], Forms], bge_m3: Path, serve: Any
) -> None:
    """In the server's own gateway, and in one that reaches it over the network."""
    weights = [bge_m3_forms(text)[1] for text in texts]
    tokens = [bge_m3_forms(text)[2] for text in texts]
    options = ("--output", "sparse", "--output", "tokens", "--http-address", "127.0.0.1:0")
    with serve(bge_m3, *options) as server, gateway_of(server.address) as remote:
        for base in (server.http, remote):
            body = {"inputs": texts}
            rows = post(base, "/embed_sparse", body)
            for row, expected in zip(rows, weights, strict=True):
                assert {entry["index"] for entry in row} == set(expected)
                for entry in row:
                    assert abs(entry["value"] - expected[entry["index"]]) <= 1e-5
            matrices = post(base, "/embed_all", body)
            for matrix, vectors in zip(matrices, tokens, strict=True):
                assert np.abs(np.array(matrix) - vectors).max() <= 1e-5
            wrong = post(base, "/v1/embeddings", {"model": "m", "input": "x"}, status=400)
            assert "gives sparse and tokens vectors, not dense" in wrong["error"]["message"]
            query = {"query": texts[4], "texts": texts, "raw_scores": True}
            best = post(base, "/rerank", query)[0]
            assert best["index"] == 4
            expected_best = sum(weight * weight for weight in weights[4].values())
            assert abs(best["score"] - expected_best) <= 1e-4 * expected_best


@contextmanager
def gateway_of(replica: str) -> Iterator[str]:
    """The address of a `rose gateway` in front of one server."""
    command = [sys.executable, "-m", "rose.cli", "gateway", "--http-address", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--replica", replica],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            words = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            yield f"http://{words['http']}"
        finally:
            process.terminate()


def post(base: str, path: str, body: dict[str, Any], status: int = 200) -> Any:
    """The JSON that comes back."""
    request = urllib.request.Request(
        base + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            found, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        found, text = error.code, error.read()
    assert found == status, text
    return json.loads(text)
