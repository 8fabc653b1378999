"""Prompts with text after the document: ids are those of the rendered prompt, read as one text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rose._tulip import TextEncoder
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch

TEMPLATES = [
    "<|im_start|>user\nquery: {query}\ndocument: {document}\nRelevance:<|im_end|>\n",
    "<|im_start|>user\n{query}\n{document}\n\nIs it relevant?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>{query} {document} ?",
    "query: {query}\ndocument: {document}. Relevance:",
]
TEXTS = [
    *["", " ", "\n", ".", "The end", "The end.", "The end. ", "The end.\n", "The end.\n\n"],
    *["what?", "what?!  ", '"quoted"', "don't", "don'", "1234", "tab\t", "a\r\n", "北京。", "文字"],
    *[
        "👩‍👩‍👧‍👦",
        "👍🏽.",
        "e\u0301",
        "x\u0301.\n",
        "\u2028",
        "<|im_end|",
        "{query}",
        "…",
        "a  b   ",
    ],
]
LONG = "Gravity attracts bodies. It is weak? " * 200 + "The end."


@pytest.fixture(scope="module")
def tokenizer(qwen3_reranker: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(qwen3_reranker)


def encoder(directory: Path, template: str) -> TextEncoder:
    config = EngineConfig(device="cpu", template="none", pair_template=template)
    return TextEncoder(Engine.load(directory, config).info)


def render(template: str, query: str, document: str) -> str:
    before, after = template.split("{document}")
    return before.replace("{query}", query) + document + after


@pytest.mark.parametrize("template", TEMPLATES)
def test_ids_are_those_of_the_rendered_prompt(
    qwen3_reranker: Path, tokenizer: Any, template: str
) -> None:
    ours = encoder(qwen3_reranker, template)
    joined = 0
    _, after = template.split("{document}")
    for query in TEXTS:
        for document, (ids, _) in zip(TEXTS, ours.pairs(query, TEXTS), strict=True):
            prompt = render(template, query, document)
            assert ids == tokenizer.encode(prompt), (query, document)
            apart = tokenizer.encode(prompt.removesuffix(after)) + tokenizer.encode(after)
            joined += ids != apart
    # A space begins a piece of its own, so that nothing joins across it.
    assert joined > len(TEXTS) or after.startswith(" ")


@pytest.mark.parametrize("template", TEMPLATES)
def test_of_a_long_document_only_the_document_is_cut(
    qwen3_reranker: Path, tokenizer: Any, template: str
) -> None:
    ours = encoder(qwen3_reranker, template)
    before, after = template.split("{document}")
    before, suffix = before.replace("{query}", "what?"), tokenizer.encode(after)
    rendered = tokenizer.encode(before + LONG)
    for document in (LONG, LONG * 30):
        ((ids, _),) = ours.pairs("what?", [document])
        assert len(ids) == 512
        assert ids == rendered[: 512 - len(suffix)] + suffix
    # Around the limit: as one text as long as that fits.
    lengths = set()
    for end in range(1800, 2500):
        document = LONG[:end]
        ((ids, _),) = ours.pairs("what?", [document])
        whole = tokenizer.encode(before + document + after)
        lengths.add(len(whole))
        if len(whole) <= 512:
            assert ids == whole
        else:
            assert ids == tokenizer.encode(before + document)[: 512 - len(suffix)] + suffix
    assert {511, 512, 513} <= lengths


CHAT_TEMPLATE = """\
<|im_start|>user
query: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
document: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}
Judge the document.
Relevance:<|im_end|>
<|im_start|>assistant
"""


def test_scores_of_a_chat_template_equal_sentence_transformers(
    qwen3_reranker: Path, tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    source = tmp_path / "source"
    shutil.copytree(qwen3_reranker, source)
    (source / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    directory = tmp_path / "cross-encoder"
    CrossEncoder(str(source), device="cpu", max_length=512).save_pretrained(str(directory))
    model = CrossEncoder(str(directory), device="cpu", max_length=512)
    engine = Engine.load(directory, EngineConfig(device="cpu"))
    assert "document: {document}\nJudge" in engine.info.templates.pair
    documents = [text for text in TEXTS if text != "{query}"]
    sequences = TextEncoder(engine.info).pairs("what is gravity?", documents)
    batch = ForwardBatch.from_sequences([ids for ids, _ in sequences], engine.info.layout)
    logits = engine.step(batch).numpy()[:, 0].astype(np.float64)
    ours = 1 / (1 + np.exp(-logits)) if engine.info.activation == "sigmoid" else logits
    expected = model.predict([("what is gravity?", document) for document in documents])
    assert np.abs(ours - expected).max() <= 1e-5
    assert np.std(expected) > 1e-3
