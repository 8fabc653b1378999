"""Which templates a model gets: options, then its directory, then its name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rose.checkpoint.templates import BUILT_IN, check_control_tokens, find_templates
from rose.config import EngineConfig, Task, Templates
from rose.engine.engine import Engine
from rose.errors import ConfigError, ModelLoadError

WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"


def find(
    name: str, task: Task = "embed", prompts: dict[str, str] | None = None, **options: Any
) -> Templates:
    return find_templates(EngineConfig(**options), task, name, prompts or {}, None)


# As the models' cards or their authors' code build them; docs/templates.md names the sources. The
# pairs of Qwen3-Reranker and mxbai-rerank-v2 have tests of their own.
PUBLISHED = [
    ("qwen3-embedding", f"Instruct: {WEB_SEARCH}\nQuery:q", "d"),
    ("e5", "query: q", "passage: d"),
    ("e5-instruct", f"Instruct: {WEB_SEARCH}\nQuery: q", "d"),
    ("gte-qwen", f"Instruct: {WEB_SEARCH}\nQuery: q", "d"),
    ("embeddinggemma", "task: search result | query: q", "title: none | text: d"),
    ("bge-en", "Represent this sentence for searching relevant passages: q", "d"),
    ("bge-zh", "为这个句子生成表示以用于检索相关文章：q", "d"),
    ("nomic", "search_query: q", "search_document: d"),
    ("nemotron-embed", "query: q", "passage: d"),
    ("nemotron-rerank", "question:q \n \n passage:d", None),
]


@pytest.mark.parametrize(("built_in", "query", "document"), PUBLISHED)
def test_as_published(built_in: str, query: str, document: str | None) -> None:
    templates = BUILT_IN[built_in].templates

    def fill(text: str) -> str:
        text = text.replace("{instruction}", templates.default_instruction)
        return text.replace("{query}", "q").replace("{document}", "d")

    if document is None:
        assert fill(templates.pair) == query
        assert templates.query == templates.document == ""
    else:
        assert templates.pair == ""
        assert fill(templates.query) == query
        assert fill(templates.document or "{document}") == document


def test_every_set_is_compared() -> None:
    assert {name for name, *_ in PUBLISHED} | {"qwen3-reranker", "mxbai-rerank-v2"} == set(BUILT_IN)


@pytest.mark.parametrize(
    ("name", "task", "built_in"),
    [
        ("Qwen/Qwen3-Reranker-0.6B", "score", "qwen3-reranker"),
        ("Qwen3-Reranker-0.6B-seq-cls", "score", "qwen3-reranker"),
        ("mixedbread-ai/mxbai-rerank-large-v2", "score", "mxbai-rerank-v2"),
        ("someone/Mxbai-Rerank-Base-V2-seq/", "classify", "mxbai-rerank-v2"),
        ("Alibaba-NLP/gte-Qwen2-1.5B-instruct", "embed", "gte-qwen"),
        ("Alibaba-NLP/gte-Qwen1.5-7B-instruct", "embed", "gte-qwen"),
        ("google/embeddinggemma-300m", "embed", "embeddinggemma"),
        ("nomic-ai/nomic-embed-text-v1.5", "embed", "nomic"),
        ("nomic-ai/modernbert-embed-base", "embed", "nomic"),
        ("intfloat/e5-mistral-7b-instruct", "embed", "e5-instruct"),
        ("nvidia/nv-embedqa-e5-v5", "embed", "nemotron-embed"),
        ("nvidia/llama-3.2-nv-rerankqa-1b-v2", "score", "nemotron-rerank"),
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
        ("BAAI/bge-large-zh-noinstruct", "embed"),
        ("mixedbread-ai/mxbai-rerank-base-v1", "score"),
        ("mixedbread-ai/mxbai-rerank-base-v2", "embed"),
        ("Alibaba-NLP/gte-base-en-v1.5", "embed"),
        ("nvidia/llama-embed-nemotron-8b", "embed"),
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


@pytest.mark.parametrize(
    "mark", ["{foo}", "{instructions}", "{IF instruction}", "{END}", "{if x}", "{ query }"]
)
def test_an_unknown_place_is_refused(mark: str) -> None:
    known = "{query}, {document}, {instruction}, {split}, {if instruction}, {end}"
    with pytest.raises(ConfigError) as refused:
        find("m", "score", pair_template=f"{mark} {{query}} {{document}}")
    expected = f"pair_template: {mark} is not a place; known are {known}"
    assert str(refused.value) == expected
    with pytest.raises(ConfigError) as refused:
        find("m", query_template=f"{mark} {{query}}")
    known = "{query}, {instruction}"
    assert str(refused.value) == f"query_template: {mark} is not a place; known are {known}"
    with pytest.raises(ConfigError, match=r"document_template: .* is not a place"):
        find("m", document_template=f"{mark} {{document}}")


def test_other_braces_are_text() -> None:
    template = 'Answer {"score": 1} or {} or {0}. {instruction} {query}'
    assert find("m", query_template=template).query == template
    pair = "{if instruction}{instruction}{end}{query}{split}{document}"
    assert find("m", "score", pair_template=pair).pair == pair


def test_a_chat_template_may_have_braces(caplog: pytest.LogCaptureFixture) -> None:
    chat = Templates(pair="Answer {score}. {query} {document}")
    assert find_templates(EngineConfig(), "score", "m", {}, chat) == chat
    assert "pair_template: {score} is not a place" in caplog.text


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="pair_template does not fit this model"):
        find("m", pair_template="{query}{document}")
    with pytest.raises(ConfigError, match=r"no template has a place \{instruction\}"):
        find("e5-base", instruction="Find code")


@pytest.mark.parametrize(
    ("template", "task", "kind"),
    [
        ("e5", "score", "one that scores pairs"),
        ("bge-zh", "classify", "one that scores pairs"),
        ("mxbai-rerank-v2", "embed", "an embedding model"),
    ],
)
def test_a_set_of_another_task_is_refused(template: str, task: Task, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"template {template} does not fit .* which is {kind}"):
        find("some-model", task, template=template)


def test_control_tokens_that_the_tokenizer_does_not_have() -> None:
    tokenizer = json.dumps({"added_tokens": [{"id": 0, "content": "<|im_start|>"}]}).encode()
    check_control_tokens(Templates(pair="<|im_start|>{query}{document}"), tokenizer)
    check_control_tokens(Templates(query="<q> | a |> {query}"), tokenizer)
    check_control_tokens(Templates(), b"{}")
    for templates in (
        Templates(pair="<|im_start|>{query}<|im_end|>{document}"),
        Templates(query="<|im_end|>{query}"),
        Templates(document="<|im_end|>{document}"),
    ):
        with pytest.raises(ConfigError, match=r"<\|im_end\|>, which is no token of this model"):
            check_control_tokens(templates, tokenizer)
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is not valid JSON"):
        check_control_tokens(Templates(pair="<|a|>"), b"{")
    with pytest.raises(ModelLoadError, match="must be an array"):
        check_control_tokens(Templates(pair="<|a|>"), b'{"added_tokens": {}}')
    # Nothing to look for: a large vocabulary is not parsed. The server's own reader refuses the file.
    check_control_tokens(Templates(query="query: {query}"), b"{")


def test_a_prompt_of_another_family_is_refused(
    cross_encoder_directory: Path, tmp_path: Path
) -> None:
    config = EngineConfig(device="cpu", template="mxbai-rerank-v2")
    with pytest.raises(ConfigError, match=r"<\|im_start\|>, which is no token of this model"):
        Engine.load(cross_encoder_directory, config)
    named = tmp_path / "qwen3-reranker-distilled-into-bert"
    shutil.copytree(cross_encoder_directory, named)
    with pytest.raises(ConfigError, match="--template none is for none"):
        Engine.load(named, EngineConfig(device="cpu"))
    info = Engine.load(named, EngineConfig(device="cpu", template="none")).info
    assert info.templates == Templates()
