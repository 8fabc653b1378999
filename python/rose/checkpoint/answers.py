"""Rerankers that are language models: which tokens mean yes and no."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from rose.checkpoint.checkpoint import Checkpoint
from rose.config import TaskChoice
from rose.errors import ModelLoadError

_NAME = re.compile(r"rerank", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """Ids whose logits at the last position are the score."""

    yes: int
    no: int | None
    """None = the logit of yes alone is the score."""


def find_answer_tokens(checkpoint: Checkpoint, name: str, task: TaskChoice) -> AnswerTokens | None:
    """The tokens of a language model that is served as a reranker; None for other models.

    A model is one if its directory names the sentence-transformers module LogitScore, which has
    the ids; or if it is a `…ForCausalLM` without sentence-transformers modules and the task asked
    for is `score`, or its name says `rerank`. The tokens are then `yes` and `no`.

    Raises:
        ModelLoadError: it should be one, but its tokenizer lacks one of the tokens.
    """
    if checkpoint.logit_score is not None:
        config = checkpoint.logit_score
        no = None
        if config.has("false_token_id"):
            no = config.integer("false_token_id", minimum=0)
        return AnswerTokens(config.integer("true_token_id", minimum=0), no)
    if not checkpoint.architecture.endswith("ForCausalLM") or checkpoint.head is not None:
        return None
    if task == "embed" or (task == "auto" and not _NAME.search(name)):
        return None
    vocabulary = json.loads(checkpoint.tokenizer_json)["model"].get("vocab", {})
    if not isinstance(vocabulary, dict) or not {"yes", "no"} <= vocabulary.keys():
        raise ModelLoadError(
            "tokenizer.json has no tokens 'yes' and 'no', which a language model as a reranker "
            "answers with"
        )
    return AnswerTokens(vocabulary["yes"], vocabulary["no"])
