"""A tokenizer that cuts the beginning off (`truncation_side` left), against the reference libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from rose.cli import app
from rose.client import Client, Truncation

pytest.importorskip("transformers")

LIMIT = 40
WORDS = [f"{word} {number}" for number, word in enumerate(("fox", "dog", "jumps", "lazy") * 30)]
TEXTS = ["a short one", "", *(" ".join(WORDS[:count]) for count in (10, 25, 60, 120))]
QUERY = "which fox jumps over which dog?"


def cut_left(directory: Path) -> Path:
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"truncation_side": "left", "model_max_length": LIMIT}
    path.write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def embedder(make_bert: Callable[..., Path]) -> Path:
    return cut_left(make_bert("cuts-left"))


@pytest.fixture(scope="module")
def reranker(make_bert: Callable[..., Path]) -> Path:
    return cut_left(make_bert("cuts-left-reranker", labels=1))


HTTP = ("--http-address", "127.0.0.1:0")


@pytest.fixture(scope="module")
def embedding_server(serve: Any, embedder: Path) -> Iterator[Any]:
    with serve(embedder, *HTTP) as server:
        yield server


@pytest.fixture(scope="module")
def scoring_server(serve: Any, reranker: Path) -> Iterator[Any]:
    with serve(reranker, *HTTP) as server:
        yield server


def test_single_texts(embedding_server: Any, embedder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(embedder), device="cpu")
    assert (reference.max_seq_length, reference.tokenizer.truncation_side) == (LIMIT, "left")
    expected = reference.encode(TEXTS)
    with Client(embedding_server.address) as client:
        assert client.get_model().truncation_side == "left"
        result = client.embed(TEXTS)
        sequences = client.tokenize(TEXTS).sequences
        right = client.embed(TEXTS, truncation=Truncation(side="right")).embeddings
    assert np.abs(result.embeddings - expected).max() <= 1e-5
    assert {report.side for report in result.truncations} == {"left"}
    for text, sequence in zip(TEXTS, sequences, strict=True):
        ids = reference.tokenizer(text, truncation=True, max_length=LIMIT)["input_ids"]
        assert sequence.token_ids.tolist() == ids
    assert np.abs(right[-1] - expected[-1]).max() > 1e-2, "the sides could not be told apart"
    body = {"input": TEXTS, "model": "m"}
    answer = httpx.post(f"{embedding_server.http}/v1/embeddings", json=body).json()
    rows = np.array([entry["embedding"] for entry in answer["data"]])
    assert np.abs(rows - expected).max() <= 1e-5


def test_pairs(scoring_server: Any, reranker: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(reranker).eval()
    tokenizer = AutoTokenizer.from_pretrained(reranker)
    assert tokenizer.truncation_side == "left"
    pairs = [
        tokenizer([QUERY], [text], truncation="only_second", max_length=LIMIT, return_tensors="pt")
        for text in TEXTS
    ]
    with torch.inference_mode():
        expected = np.array([float(model(**pair).logits[0, 0]) for pair in pairs])
    with Client(scoring_server.address) as client:
        result = client.score(QUERY, TEXTS, raw_scores=True)
        sequences = client.tokenize(TEXTS, query=QUERY).sequences
    assert np.abs(result.scores - expected).max() <= 1e-5
    assert {report.side for report in result.truncations} == {"left"}
    for pair, sequence in zip(pairs, sequences, strict=True):
        assert sequence.token_ids.tolist() == pair["input_ids"][0].tolist()
    body = {"query": QUERY, "texts": TEXTS, "raw_scores": True}
    answer = httpx.post(f"{scoring_server.http}/rerank", json=body).json()
    found = {entry["index"]: entry["score"] for entry in answer}
    assert np.abs([found[index] for index in range(len(TEXTS))] - expected).max() <= 1e-5


def test_commands(
    scoring_server: Any,
    embedding_server: Any,
    embedder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from sentence_transformers import SentenceTransformer

    file = tmp_path / "texts.txt"
    file.write_text(f"{TEXTS[0]}\n{TEXTS[-1]}\n")

    def run(*arguments: str) -> str:
        assert app(list(arguments), standalone_mode=False) in (0, None)
        return capsys.readouterr().out

    scoring = ("--address", scoring_server.address, "--json")
    assert json.loads(run("info", *scoring))["truncation_side"] == "left"
    scored = json.loads(run("score", "--query", QUERY, "--documents", str(file), *scoring))
    (report,) = scored["truncations"]
    assert (report["index"], report["side"]) == (1, "left")
    rows = str(tmp_path / "rows.npy")
    run("embed", str(file), "-o", rows, "--address", embedding_server.address)
    expected = SentenceTransformer(str(embedder), device="cpu").encode([TEXTS[0], TEXTS[-1]])
    assert np.abs(np.load(rows) - expected).max() <= 1e-5


def test_a_check_by_the_reference_agrees(embedder: Path) -> None:
    assert app(["check", str(embedder), "--device", "cpu"], standalone_mode=False) == 0
