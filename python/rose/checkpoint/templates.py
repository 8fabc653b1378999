"""Prompts around queries and documents: what the directory says, what is built in, what is asked."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace

from rose.checkpoint.json_object import JsonObject
from rose.config import EngineConfig, Task, Templates
from rose.errors import ConfigError

logger = logging.getLogger(__name__)

_WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"

# The model card has two layouts: its transformers example joins the three lines of the user's turn
# with one newline, its vLLM example puts an empty line between them. This is the first: the card's
# own code for the model as published, which users compare scores with. The other one is
# `--pair-template` away.
_QWEN3_RERANKER = (
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
    "<Instruct>: {instruction}\n"
    "<Query>: {query}\n"
    "<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n"
)

# The prompt of the package mxbai-rerank (mxbai_rerank_v2.py), which tokenizes the line breaks after
# the query and the document apart, and has the first line only where there is an instruction.
_MXBAI_RERANK_V2 = (
    "<|im_start|>system\n"
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n"
    "{if instruction}instruction: {instruction}\n{end}"
    "query: {query}{split}\n"
    "document: {document}{split}\n"
    "You are a search relevance expert who evaluates how well documents match search queries. For "
    "each query-document pair, carefully analyze the semantic relationship between them, then "
    "provide your binary relevance judgment (0 for not relevant, 1 for relevant).\n"
    "Relevance:<|im_end|>\n"
    "<|im_start|>assistant\n"
)


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """Templates of a family whose checkpoints do not bring their own."""

    pattern: str
    """Of names: a directory's or a hub id's last part, in lower case."""
    templates: Templates
    answers: tuple[str, str] | None = None
    """Of a language model: the tokens that mean relevant and not."""


BUILT_IN = {
    "qwen3-reranker": BuiltIn(
        r"qwen3-reranker",
        Templates(pair=_QWEN3_RERANKER, default_instruction=_WEB_SEARCH),
        answers=("yes", "no"),
    ),
    "mxbai-rerank-v2": BuiltIn(
        r"mxbai-rerank-(base|large)-v2",
        Templates(pair=_MXBAI_RERANK_V2),
        answers=("1", "0"),
    ),
    "qwen3-embedding": BuiltIn(
        r"qwen3-embedding",
        Templates(query="Instruct: {instruction}\nQuery:{query}", default_instruction=_WEB_SEARCH),
    ),
    "e5": BuiltIn(
        r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?$",
        Templates(query="query: {query}", document="passage: {document}"),
    ),
    "e5-instruct": BuiltIn(
        r"(multilingual-)?e5-\w+-instruct|e5-mistral",
        Templates(query="Instruct: {instruction}\nQuery: {query}", default_instruction=_WEB_SEARCH),
    ),
    "gte-qwen": BuiltIn(
        r"gte-qwen[12]",
        Templates(query="Instruct: {instruction}\nQuery: {query}", default_instruction=_WEB_SEARCH),
    ),
    "embeddinggemma": BuiltIn(
        r"embeddinggemma",
        Templates(
            query="task: search result | query: {query}",
            document="title: none | text: {document}",
        ),
    ),
    "bge-en": BuiltIn(
        r"bge-(small|base|large)-en",
        Templates(query="Represent this sentence for searching relevant passages: {query}"),
    ),
    "bge-zh": BuiltIn(
        r"bge-(small|base|large)-zh(?!-noinstruct)",
        Templates(query="为这个句子生成表示以用于检索相关文章：{query}"),
    ),
    "nomic": BuiltIn(
        r"nomic-embed-text|modernbert-embed",
        Templates(query="search_query: {query}", document="search_document: {document}"),
    ),
    "nemotron-embed": BuiltIn(
        r"nemotron-embed|nv-embedqa",
        Templates(query="query: {query}", document="passage: {document}"),
    ),
    "nemotron-rerank": BuiltIn(
        r"nemotron-rerank|nv-rerankqa",
        Templates(pair="question:{query} \n \n passage:{document}"),
    ),
}

# What looks like a place. Other braces, as of JSON or LaTeX in a prompt, are text.
_PLACE = re.compile(r"\{[A-Za-z_ ]+\}")
_PLACES = {
    "pair_template": (
        "{query}",
        "{document}",
        "{instruction}",
        "{split}",
        "{if instruction}",
        "{end}",
    ),
    "query_template": ("{query}", "{instruction}"),
    "document_template": ("{document}",),
}
_CONTROL_TOKEN = re.compile(r"<\|\w+\|>")
# How checkpoints write an instruction into their prompt of queries.
_INSTRUCT = re.compile(r"Instruct: (?P<instruction>.*)\n(?P<query>Query: ?)")


def find_templates(
    config: EngineConfig,
    task: Task,
    name: str,
    prompts: dict[str, str],
    pair: Templates | None,
) -> Templates:
    """The templates of a model.

    Options win over what the directory says (`pair`, from a chat template, and `prompts`), which
    wins over the built-in set for the model's name.

    Raises:
        ConfigError: an option names no built-in set, does not fit the model's task, or is a
            template with an unknown place.
    """
    found = _start(config, task, name, prompts, pair)
    unknown = _unknown_place("pair_template", found.pair)
    if unknown is not None and config.pair_template is None:
        # A chat template's text may well have braces: it is rendered already.
        logger.warning("%s, it is read as text", unknown)
    for option, value in (
        ("pair_template", config.pair_template),
        ("query_template", config.query_template),
        ("document_template", config.document_template),
    ):
        if value is None:
            continue
        if (option == "pair_template") == (task == "embed"):
            raise ConfigError(f"{option} does not fit this model, whose task is {task}")
        if (unknown := _unknown_place(option, value)) is not None:
            raise ConfigError(unknown)
        found = replace(found, **{option.removesuffix("_template"): value})
    if config.instruction is not None:
        if "{instruction}" not in found.pair + found.query:
            raise ConfigError("instruction is given, but no template has a place {instruction}")
        found = replace(found, default_instruction=config.instruction)
    return found


def _unknown_place(option: str, template: str) -> str | None:
    """What is wrong with the first mark that looks like a place and is none; None if all are."""
    known = _PLACES[option]
    unknown = next((mark for mark in _PLACE.findall(template) if mark not in known), None)
    if unknown is None:
        return None
    return f"{option}: {unknown} is not a place; known are {', '.join(known)}"


def check_control_tokens(templates: Templates, tokenizer_json: bytes) -> None:
    """Refuses a prompt with a control token that the tokenizer would read as plain text.

    Raises:
        ConfigError: names the token.
        ModelLoadError: there is a control token to look for, and `tokenizer_json` is malformed.
    """
    texts = (templates.pair, templates.query, templates.document)
    tokens = [token for text in texts for token in _CONTROL_TOKEN.findall(text)]
    if not tokens:
        return  # parsing the vocabulary would take a large part of the load
    added = JsonObject.parse("tokenizer.json", tokenizer_json).array("added_tokens", [])
    known = {entry.get("content") for entry in added if isinstance(entry, dict)}
    for token in tokens:
        if token not in known:
            raise ConfigError(
                f"the template has {token}, which is no token of this model: it is another "
                "family's. --template none is for none, --pair-template for one of your own"
            )


def built_in_answers(template: str, name: str) -> tuple[str, str] | None:
    """Answers of the built-in set called `template`, else of one that fits the model's name."""
    if template in BUILT_IN:
        return BUILT_IN[template].answers
    entries = (entry for entry in BUILT_IN.values() if entry.answers and _fits(entry, name))
    return next((entry.answers for entry in entries), None)


def _fits(entry: BuiltIn, name: str) -> bool:
    last = name.rstrip("/").rpartition("/")[2].lower()
    return re.search(entry.pattern, last) is not None


def _start(
    config: EngineConfig,
    task: Task,
    name: str,
    prompts: dict[str, str],
    pair: Templates | None,
) -> Templates:
    if config.template == "none":
        return Templates()
    if config.template != "auto":
        if config.template not in BUILT_IN:
            raise ConfigError(
                f"template must be auto, none or one of {', '.join(BUILT_IN)}, "
                f"got {config.template!r}"
            )
        return _asked_for(config.template, task)
    if task != "embed" and pair is not None:
        return pair
    if task == "embed" and any(prompts.values()):
        return _from_prompts(prompts)
    for built_in, entry in BUILT_IN.items():
        templates = _for_task(entry.templates, task)
        if _fits(entry, name) and templates != Templates():
            logger.info(
                "built-in templates %s, by the model's name; --template none for none", built_in
            )
            return templates
    return Templates()


def _asked_for(name: str, task: Task) -> Templates:
    templates = _for_task(BUILT_IN[name].templates, task)
    if templates == Templates():
        kind = "an embedding model" if task == "embed" else "one that scores pairs"
        raise ConfigError(f"template {name} does not fit this model, which is {kind}")
    return templates


def _for_task(templates: Templates, task: Task) -> Templates:
    if (task == "embed") == (templates.pair == ""):
        return templates
    return Templates()


def _from_prompts(prompts: dict[str, str]) -> Templates:
    """Named prompts stay what they are; one with an instruction in it gets a place for another."""
    match = _INSTRUCT.fullmatch(prompts.get("query", ""))
    if match is None:
        return Templates()
    return Templates(
        query=f"Instruct: {{instruction}}\n{match['query']}{{query}}",
        default_instruction=match["instruction"],
    )
