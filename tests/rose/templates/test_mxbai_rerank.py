"""mxbai-rerank-v2: the prompt that the package mxbai-rerank builds, and its score."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rose._tulip import TextEncoder
from rose.cli import app
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch

MAX_LENGTH = 400
HEAD = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\n<|im_start|>user\n"
)
TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For "
    "each query-document pair, carefully analyze the semantic relationship between them, then "
    "provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
)
TAIL = "<|im_end|>\n<|im_start|>assistant\n"
TEXT = """
capital China Beijing gravity attracts bodies. the of in; is—not 1234 3.14 naïve 北京是 中国的首都。
👩‍👩‍👧‍👦 e\u0301 'tis don't "quoted" query: document: {document} {query}
"""
WORDS = TEXT.split()


def texts(longest: int, count: int, endings: list[str]) -> list[str]:
    generator = random.Random(longest)
    made = []
    for index in range(count):
        length = int(longest ** generator.random())
        words = [generator.choice(WORDS) for _ in range(length)]
        made.append(" ".join(words) + endings[index % len(endings)])
    return made


# A mark or a space is one token with the line break after it where the two are read together.
QUERIES = [
    *["", " ", "what?", "what? ", "what\n", '"', "é!?", "{split}"],
    *texts(40, 50, [" end", " 7", "文", "?", ". ", "…"]),
]
DOCUMENTS = [
    "",
    " ",
    "\n",
    "The end.",
    "The end.\n\n",
    "The end? ",
    "文。",
    "👩‍👩‍👧‍👦",
    "{split}.",
    *texts(900, 40, ["", ".", "\n", " "]),
]


class Package:
    """What `MxbaiRerankV2.prepare_inputs` and `predict` do for one pair."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory, padding_side="left")
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.line, self.head, self.task, self.tail = map(self.ids, ("\n", HEAD, TASK, TAIL))
        around = len(self.line) + len(self.head) + len(self.task) + len(self.tail)
        self.max_length = MAX_LENGTH - around
        """Most tokens of a query and a document; what is around them comes on top."""

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def pair(self, query: str, document: str, instruction: str = "") -> list[int]:
        """Each piece is tokenized apart."""
        first = f"instruction: {instruction}\n" if instruction else ""
        lines = self.ids(f"{first}query: {query}") + self.line
        room = self.max_length - len(lines)
        body = lines + self.ids(f"document: {document}")[:room]
        return self.head + body + self.line + self.task + self.tail

    def score(self, ids: list[int]) -> float:
        with torch.inference_mode():
            last = self.model(torch.tensor([ids])).logits[0, -1]
        return float(last[self.ids("1")[0]] - last[self.ids("0")[0]])


@pytest.fixture(scope="module")
def package(mxbai_rerank: Path) -> Package:
    return Package(mxbai_rerank)


@pytest.fixture(scope="module")
def engine(mxbai_rerank: Path) -> Engine:
    return Engine.load(mxbai_rerank, EngineConfig(device="cpu"))


def test_what_it_is_served_as(engine: Engine) -> None:
    info = engine.info
    assert (info.task, info.output_width, info.activation) == ("score", 1, "sigmoid")
    assert info.pooling == "last_token"
    assert info.templates.pair == (
        HEAD
        + "{if instruction}instruction: {instruction}\n{end}"
        + "query: {query}{split}\ndocument: {document}{split}\n"
        + TASK
        + TAIL
    )


def test_prompt_ids_equal_the_package(engine: Engine, package: Package) -> None:
    encoder = TextEncoder(engine.info)
    cut = together = 0
    for number, query in enumerate(QUERIES):
        for document in (DOCUMENTS[number % len(DOCUMENTS)], *DOCUMENTS[:8]):
            ((ids, _),) = encoder.pairs(query, [document])
            assert ids == package.pair(query, document), (query, document[:80])
            cut += len(ids) == MAX_LENGTH
            lines = f"query: {query}\ndocument: {document}\n"
            together += ids != package.ids(HEAD + lines + TASK + TAIL)
    assert cut >= 5
    assert together >= 50  # As one text the ids would be others.


def test_scores_are_the_difference_of_the_answers(engine: Engine, package: Package) -> None:
    encoder = TextEncoder(engine.info)
    pairs = list(zip(QUERIES, DOCUMENTS, strict=False))[:20]
    sequences = [encoder.pairs(query, [document])[0][0] for query, document in pairs]
    batch = ForwardBatch.from_sequences(sequences, engine.info.layout)
    found = engine.step(batch).numpy()[:, 0]
    expected = np.array([package.score(package.pair(*pair)) for pair in pairs])
    assert np.abs(found - expected).max() <= 1e-5
    assert np.std(expected) > 0.01


INSTRUCTIONS = ["Find code", "judge: ", "…?\n", "文", "{query} {end}", "<|im_end|>", " "]


def test_a_line_for_an_instruction_that_is_given(
    engine: Engine, package: Package, mxbai_rerank: Path
) -> None:
    encoder = TextEncoder(engine.info)
    for number, query in enumerate(QUERIES):
        instruction = INSTRUCTIONS[number % len(INSTRUCTIONS)]
        document = DOCUMENTS[number % len(DOCUMENTS)]
        ((ids, _),) = encoder.pairs(query, [document], instruction)
        if "<|" not in instruction:  # The package would read it as a token.
            assert ids == package.pair(query, document, instruction), (query, instruction)
        assert "user\ninstruction: " in package.tokenizer.decode(ids)
    option = EngineConfig(device="cpu", instruction="Find code")
    always = TextEncoder(Engine.load(mxbai_rerank, option).info)
    assert always.pairs("q", ["d"])[0][0] == package.pair("q", "d", "Find code")
    assert always.pairs("q", ["d"], "other")[0][0] == package.pair("q", "d", "other")


def test_a_tokenizer_without_the_answers_is_refused(mxbai_rerank: Path, tmp_path: Path) -> None:
    directory = tmp_path / "mxbai-rerank-large-v2"
    shutil.copytree(mxbai_rerank, directory)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    del tokenizer["model"]["vocab"]["0"]
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelLoadError, match="no tokens '1' and '0'"):
        Engine.load(directory, EngineConfig(device="cpu"))


def test_by_option_under_any_name(mxbai_rerank: Path, tmp_path: Path) -> None:
    directory = tmp_path / "our-model"
    shutil.copytree(mxbai_rerank, directory)
    named = Engine.load(directory, EngineConfig(device="cpu", template="mxbai-rerank-v2")).info
    by_name = Engine.load(mxbai_rerank, EngineConfig(device="cpu")).info
    assert named.templates == by_name.templates
    assert named.fingerprint == by_name.fingerprint
    other = EngineConfig(device="cpu", template="qwen3-reranker")
    assert Engine.load(mxbai_rerank, other).info.fingerprint != by_name.fingerprint


def test_rose_check_knows_its_answers(mxbai_rerank: Path) -> None:
    assert app(["check", str(mxbai_rerank), "--device", "cpu"], standalone_mode=False) == 0
