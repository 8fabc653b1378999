"""Which templates a model gets: options, then its directory, then its name."""

from __future__ import annotations

from typing import Any

import pytest

from rose.checkpoint.templates import BUILT_IN, find_templates
from rose.config import EngineConfig, Task, Templates
from rose.errors import ConfigError


def find(
    name: str, task: Task = "embed", prompts: dict[str, str] | None = None, **options: Any
) -> Templates:
    return find_templates(EngineConfig(**options), task, name, prompts or {}, None)


@pytest.mark.parametrize(
    ("name", "task", "built_in"),
    [
        ("Qwen/Qwen3-Reranker-0.6B", "score", "qwen3-reranker"),
        ("Qwen3-Reranker-0.6B-seq-cls", "score", "qwen3-reranker"),
        ("Qwen/Qwen3-Embedding-4B", "embed", "qwen3-embedding"),
        ("intfloat/e5-base-v2", "embed", "e5"),
        ("multilingual-e5-small", "embed", "e5"),
        ("intfloat/multilingual-e5-large-instruct", "embed", "e5-instruct"),
        ("BAAI/bge-small-en-v1.5", "embed", "bge-en"),
        ("BAAI/bge-large-zh-v1.5", "embed", "bge-zh"),
        ("nvidia/llama-nemotron-rerank-1b-v2", "score", "nemotron-rerank"),
        ("nvidia/llama-nemotron-embed-1b-v2", "embed", "nemotron-embed"),
    ],
)
def test_by_name(name: str, task: Task, built_in: str) -> None:
    assert find(name, task) == BUILT_IN[built_in].templates


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("BAAI/bge-m3", "embed"),
        ("BAAI/bge-reranker-v2-m3", "score"),
        ("all-MiniLM-L6-v2", "embed"),
        ("intfloat/e5-base-v2", "score"),
        ("Qwen/Qwen3-Reranker-0.6B", "embed"),
    ],
)
def test_none_by_name(name: str, task: Task) -> None:
    assert find(name, task) == Templates()


def test_the_directory_wins_over_the_name() -> None:
    prompts = {"query": "Instruct: Find tweets\nQuery: ", "document": ""}
    expected = Templates(
        query="Instruct: {instruction}\nQuery: {query}", default_instruction="Find tweets"
    )
    assert find("Qwen3-Embedding-0.6B", prompts=prompts) == expected
    # Prompts without an instruction stay prompts.
    assert find("e5-base", prompts={"query": "q: ", "passage": "p: "}) == Templates()
    chat = Templates(pair="{query}{document}")
    found = find_templates(EngineConfig(), "score", "Qwen3-Reranker", {}, chat)
    assert found == chat


def test_options_win_over_all() -> None:
    assert find("e5-base", template="none") == Templates()
    assert find("some-model", template="e5") == BUILT_IN["e5"].templates
    found = find("e5-base", query_template="Q {query}", document_template="")
    assert found == Templates(query="Q {query}")
    found = find("Qwen3-Embedding-0.6B", instruction="Find code")
    assert found.default_instruction == "Find code"


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="pair_template does not fit this model"):
        find("m", pair_template="{query}{document}")
    with pytest.raises(ConfigError, match=r"no template has a place \{instruction\}"):
        find("e5-base", instruction="Find code")
