"""Architectures that can be served: class names of `config.json` to our classes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rose.errors import ModelLoadError

# Class name in `architectures` → module and class, imported when asked for. A backbone gives hidden
# states that are pooled; a classifier is a `Model` with a head of its own.
BACKBONES = {
    "BertModel": "rose.models.bert:BertModel",
    "BertForMaskedLM": "rose.models.bert:BertModel",
    "BertForPreTraining": "rose.models.bert:BertModel",
}
CLASSIFIERS = {
    "BertForSequenceClassification": "rose.models.bert:BertForSequenceClassification",
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A class that builds a model from (config, weights)."""

    name: str
    model_class: Any
    is_classifier: bool


def find_architecture(name: str) -> Architecture:
    """The implementation of an architecture.

    Raises:
        ModelLoadError: it is not supported; the message lists those that are.
    """
    path = BACKBONES.get(name) or CLASSIFIERS.get(name)
    if path is None:
        supported = ", ".join(sorted(BACKBONES | CLASSIFIERS))
        raise ModelLoadError(
            f"config.json: architecture {name!r} is not supported; supported are {supported}"
        )
    module_name, class_name = path.split(":")
    model_class = getattr(import_module(module_name), class_name)
    return Architecture(name, model_class, name in CLASSIFIERS)
