"""Qwen3-Reranker: Qwen3 as a language model that answers yes or no."""

from __future__ import annotations

from rose.checkpoint.json_object import JsonObject
from rose.models.base import WeightSource
from rose.models.causal_reranker import CausalReranker
from rose.models.qwen3 import Qwen3Model


class Qwen3Reranker(CausalReranker):
    """The logit of yes minus the logit of no at the last token; a `Model` of one label."""

    def __init__(
        self, config: JsonObject, weights: WeightSource, yes_token_id: int, no_token_id: int
    ) -> None:
        super().__init__(Qwen3Model, config, weights, yes_token_id, no_token_id)
