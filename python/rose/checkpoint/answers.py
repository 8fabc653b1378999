"""Rerankers that are language models: which tokens mean yes and no."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from rose.checkpoint.checkpoint import Checkpoint
from rose.checkpoint.templates import built_in_answers
from rose.config import EngineConfig
from rose.errors import ConfigError, ModelLoadError

_NAME = re.compile(r"rerank", re.IGNORECASE)
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
            raise ConfigError(
                f"task must be score or embed for {name}: this {checkpoint.architecture} has no "
                "LogitScore module that says which tokens are its answers. score takes yes and no "
                "(mxbai-rerank-v2 answers 1 and 0: save it as a CrossEncoder with a LogitScore)"
            )
        return None
    vocabulary = json.loads(checkpoint.tokenizer_json)["model"].get("vocab", {})
    if not isinstance(vocabulary, dict) or not vocabulary.keys() >= set(words):
        raise ModelLoadError(
            f"tokenizer.json has no tokens {words[0]!r} and {words[1]!r}, which a language model as "
            "a reranker answers with"
        )
    return AnswerTokens(*(vocabulary[word] for word in words))
