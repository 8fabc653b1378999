"""Rerankers that are language models: which tokens mean yes and no."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rose.checkpoint.checkpoint import Checkpoint
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.templates import built_in_answers
from rose.config import EngineConfig
from rose.errors import ConfigError, ModelLoadError
from rose.models.registry import find_decoder

# zerank, RankLLaMA: a language model of such a name is no embedding model.
_NAME = re.compile(r"rank", re.IGNORECASE)
_YES_NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """Ids whose logits at the last position are the score."""

    yes: int
    no: int | None
    """None = the logit of yes alone is the score."""


def find_answer_tokens(
    checkpoint: Checkpoint, name: str, config: EngineConfig
) -> AnswerTokens | None:
    """The tokens of a language model that is served as a reranker; None for other models.

    The sentence-transformers module LogitScore has the ids. A `…ForCausalLM` without any such module
    has words for answers if the built-in templates asked for, or fitting its name, have them; `yes`
    and `no` if the task asked for is `score`.

    Raises:
        ConfigError: by its name it is a reranker, and nothing says how it answers.
        ModelLoadError: it should be one, but its tokenizer lacks one of the tokens.
    """
    if checkpoint.logit_score is not None:
        options = checkpoint.logit_score
        no = None
        if options.has("false_token_id"):
            no = options.integer("false_token_id", minimum=0)
        return AnswerTokens(options.integer("true_token_id", minimum=0), no)
    if not checkpoint.architecture.endswith("ForCausalLM") or checkpoint.head is not None:
        return None
    if config.task == "embed":
        return None
    words = built_in_answers(config.template, name)
    if words is None and config.task == "score":
        words = _YES_NO
    if words is None:
        if _NAME.search(name):
            find_decoder(checkpoint.architecture)  # One that is not supported is not a question.
            raise ConfigError(
                f"task must be score or embed for {name}: this {checkpoint.architecture} has no "
                "LogitScore module that says which tokens are its answers, and no built-in template "
                "has its name. score takes yes and no, --template NAME the answers of that template"
            )
        return None
    return AnswerTokens(*_ids(words, checkpoint.tokenizer_json))


def _ids(words: tuple[str, str], tokenizer_json: bytes) -> list[int]:
    model = JsonObject.parse("tokenizer.json", tokenizer_json).child("model")
    vocabulary = model.values.get("vocab")
    if not isinstance(vocabulary, dict) or not vocabulary.keys() >= set(words):
        raise ModelLoadError(
            f"tokenizer.json has no tokens {words[0]!r} and {words[1]!r}, which a language model as "
            "a reranker answers with"
        )
    return [vocabulary[word] for word in words]
