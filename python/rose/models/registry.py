"""Architectures that can be served: class names of `config.json` to our classes."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.models.base import Backbone, Model, WeightSource

# Class name in `architectures` → module and class, imported when asked for. A backbone is a
# `Backbone`, made from (config, weights); checkpoints of other tasks serve as one as well, their
# heads are left aside. A classifier is a `Model`, made from (config, weights, num_labels).
BACKBONES = {
    "BertModel": "rose.models.bert:BertModel",
    "BertForMaskedLM": "rose.models.bert:BertModel",
    "BertForPreTraining": "rose.models.bert:BertModel",
    "BertForSequenceClassification": "rose.models.bert:BertModel",
    "XLMRobertaModel": "rose.models.xlm_roberta:XLMRobertaModel",
    "XLMRobertaForMaskedLM": "rose.models.xlm_roberta:XLMRobertaModel",
    "XLMRobertaForSequenceClassification": "rose.models.xlm_roberta:XLMRobertaModel",
    "RobertaModel": "rose.models.xlm_roberta:XLMRobertaModel",
    "RobertaForMaskedLM": "rose.models.xlm_roberta:XLMRobertaModel",
    "RobertaForSequenceClassification": "rose.models.xlm_roberta:XLMRobertaModel",
    "CamembertModel": "rose.models.xlm_roberta:XLMRobertaModel",
    "CamembertForMaskedLM": "rose.models.xlm_roberta:XLMRobertaModel",
    "Qwen3Model": "rose.models.qwen3:Qwen3Model",
    "Qwen3ForCausalLM": "rose.models.qwen3:Qwen3Model",
    "Qwen3ForSequenceClassification": "rose.models.qwen3:Qwen3Model",
    "PPLXQwen3Model": "rose.models.qwen3:BidirectionalQwen3Model",
}
CLASSIFIERS = {
    "BertForSequenceClassification": "rose.models.bert:BertForSequenceClassification",
    "XLMRobertaForSequenceClassification": (
        "rose.models.xlm_roberta:XLMRobertaForSequenceClassification"
    ),
    "RobertaForSequenceClassification": (
        "rose.models.xlm_roberta:XLMRobertaForSequenceClassification"
    ),
    "Qwen3ForSequenceClassification": "rose.models.qwen3_reranker:Qwen3ForSequenceClassification",
}


class BackboneClass(Protocol):
    """A class of backbones."""

    unused_weights: tuple[str, ...]
    """Patterns of tensor names that a checkpoint may hold and this class does not read."""

    def __call__(self, config: JsonObject, weights: WeightSource) -> Backbone:
        """Builds the model."""


class ClassifierClass(Protocol):
    """A class of models with a classification head."""

    unused_weights: tuple[str, ...]

    def __call__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> Model:
        """Builds the model."""


def is_classifier(architecture: str) -> bool:
    """Whether the checkpoint has a classification head of its own."""
    return architecture in CLASSIFIERS


def find_backbone(architecture: str) -> BackboneClass:
    """The class without a head.

    Raises:
        ModelLoadError: the architecture is not supported; the message lists those that are.
    """
    return cast("BackboneClass", _import(BACKBONES, architecture))


def find_classifier(architecture: str) -> ClassifierClass:
    """The class with its classification head.

    Raises:
        ModelLoadError: the architecture is not supported; the message lists those that are.
    """
    return cast("ClassifierClass", _import(CLASSIFIERS, architecture))


def _import(table: dict[str, str], architecture: str) -> object:
    path = table.get(architecture)
    if path is None:
        supported = ", ".join(sorted(BACKBONES.keys() | CLASSIFIERS.keys()))
        raise ModelLoadError(
            f"config.json: architecture {architecture!r} is not supported; "
            f"supported are {supported}"
        )
    module_name, class_name = path.split(":")
    model_class: object = getattr(import_module(module_name), class_name)
    return model_class
