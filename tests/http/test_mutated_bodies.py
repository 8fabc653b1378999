"""Bodies that are nearly right, as bytes on the wire: a refusal names its reason, none is a crash.

`MUTATED_REQUESTS=50000 pytest tests/http/test_mutated_bodies.py` is the larger run, which also
checks that memory stays where it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .conftest import KEY, Service

REQUESTS = int(os.environ.get("MUTATED_REQUESTS", "300"))
EXPECTED = {200, 400, 404, 413, 415, 422, 424}
GROWTH_BYTES = 64 << 20
"""Allocators keep some of what they once needed."""

SEEDS: dict[str, list[dict[str, Any]]] = {
    "/v1/embeddings": [
        {"input": ["a b", "c"], "model": "m", "encoding_format": "base64", "dimensions": 384},
        {"input": [[101, 102], [7]], "user": "u", "truncate_prompt_tokens": 5},
        {"input": [{"text": "a"}], "task": "retrieval.query", "embedding_type": "binary"},
        {"input": "a", "input_type": "query", "output_dtype": "int8", "truncation": True},
    ],
    "/v2/rerank": [{"query": "q", "documents": ["d", "e"], "top_n": 1, "max_tokens_per_doc": 9}],
    "/v1/rerank": [
        {"query": "q", "documents": [{"text": "d"}, "e"], "return_documents": True},
        {"query": {"text": "q"}, "documents": ["d"], "top_k": 1, "truncation": False},
        {"query": "q", "documents": [{"a": "d", "b": 1}], "rank_fields": ["a", "b"]},
    ],
    "/v2/embed": [{"texts": ["a"], "embedding_types": ["float", "ubinary"], "truncate": "START"}],
    "/v1/embed": [{"texts": ["a"], "input_type": "search_query"}],
    "/score": [
        {"text_1": "a", "text_2": ["b", "c"], "truncate_prompt_tokens": -1},
        {"queries": ["a", "b"], "documents": ["c", "d"], "use_activation": False},
    ],
    "/rerank": [{"query": "q", "texts": ["a", "b"], "raw_scores": True, "return_text": True}],
    "/embed": [{"inputs": ["a", [101]], "truncate": True, "truncation_direction": "Left"}],
    "/embed_all": [{"inputs": "a"}],
    "/embed_sparse": [{"inputs": ["a"]}],
    "/predict": [{"inputs": [["a", "b"], ["c"]], "raw_scores": True}],
    "/similarity": [{"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}}],
    "/tokenize": [{"inputs": ["a"], "add_special_tokens": False}],
    "/decode": [{"ids": [[101, 7]], "skip_special_tokens": False}],
    "/": [{"inputs": "a"}, {"query": "q", "texts": ["a"]}],
}

ODD_TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["", " ", "\x00", "\ud800", "a" * 5000, "[CLS]", "é" * 40, "\u202e", "🐝" * 9]),
)
ODD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=True),
        ODD_TEXT,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(ODD_TEXT, inner, max_size=4)
    ),
    max_leaves=12,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something may be replaced."""
    yield path
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from places(child, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    """A path, and a body that was right before something was done to it."""
    path = draw(st.sampled_from(sorted(SEEDS)))
    value: Any = draw(st.sampled_from(SEEDS[path]))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(list(places(value))))
        value = replaced(value, place, draw(ODD))
        if not isinstance(value, dict | list):
            break
    content = bytearray(
        json.dumps(value, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    )
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["cut", "insert", "flip", "repeat"]))
        if kind == "cut":
            del content[at : at + draw(st.integers(1, 20))]
        elif kind == "insert":
            content[at:at] = draw(st.binary(max_size=8))
        elif kind == "flip" and at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
        else:
            content[at:at] = bytes(content[at : at + 30]) * draw(st.integers(1, 40))
    return path, bytes(content)


def has_null(value: Any) -> bool:
    """Optional fields are left out: strict clients refuse null."""
    if isinstance(value, dict | list):
        children = value.values() if isinstance(value, dict) else value
        return any(has_null(child) for child in children)
    return value is None


def check(client: httpx.Client, path: str, content: bytes) -> None:
    answer = client.post(path, content=content)
    shown = (answer.status_code, path, content[:400], answer.text[:400])
    assert answer.status_code in EXPECTED, shown
    if answer.status_code == 200:
        documents_come_back = path == "/v1/rerank"
        assert documents_come_back or not has_null(answer.json()), shown
    elif answer.headers["content-type"] == "application/json":
        # Every family's error says something in words.
        error = answer.json()
        words = error.get("error") or error.get("detail") or error.get("message")
        assert words, shown
        assert not has_null(error), shown


@pytest.mark.parametrize("name", ["embedder", "reranker"])
def test_mutated_bodies(name: str, request: pytest.FixtureRequest) -> None:
    service: Service = request.getfixturevalue(name)
    server = request.getfixturevalue(f"{name}_server")
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=60) as client:

        def run(count: int, derandomize: bool) -> None:
            @settings(
                max_examples=count,
                deadline=None,
                database=None,
                derandomize=derandomize,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink],
            )
            @given(requests())
            def mutate(mutated: tuple[str, bytes]) -> None:
                check(client, *mutated)

            mutate()

        run(REQUESTS // 10, derandomize=True)
        before = resident_bytes(server.process.pid)
        run(REQUESTS, derandomize=REQUESTS < 1000)
        after = resident_bytes(server.process.pid)
        for path, seeds in SEEDS.items():
            for seed in seeds:
                check(client, path, json.dumps(seed).encode())
    assert after - before < GROWTH_BYTES, f"{before} bytes before, {after} after"
    assert server.process.poll() is None
    assert "panicked" not in server.stderr.read_text()


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
