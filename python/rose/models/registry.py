"""Architectures that can be served: class names of `config.json` to our classes."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.models.base import Backbone, Model, WeightSource
from rose.models.decoder import DecoderClass

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
    "CamembertForSequenceClassification": "rose.models.xlm_roberta:XLMRobertaModel",
    "DistilBertModel": "rose.models.distilbert:DistilBertModel",
    "DistilBertForMaskedLM": "rose.models.distilbert:DistilBertModel",
    "DistilBertForSequenceClassification": "rose.models.distilbert:DistilBertModel",
    "MPNetModel": "rose.models.mpnet:MPNetModel",
    "MPNetForMaskedLM": "rose.models.mpnet:MPNetModel",
    "MPNetForSequenceClassification": "rose.models.mpnet:MPNetModel",
    "ModernBertModel": "rose.models.modernbert:ModernBertModel",
    "ModernBertForMaskedLM": "rose.models.modernbert:ModernBertModel",
    "ModernBertForSequenceClassification": "rose.models.modernbert:ModernBertModel",
    "NomicBertModel": "rose.models.nomic_bert:NomicBertModel",
    "NomicBertForMaskedLM": "rose.models.nomic_bert:NomicBertModel",
    "NomicBertForPreTraining": "rose.models.nomic_bert:NomicBertModel",
    "NomicBertForSequenceClassification": "rose.models.nomic_bert:NomicBertModel",
    "GteModel": "rose.models.gte:GteModel",
    "GteForMaskedLM": "rose.models.gte:GteModel",
    "GteForSequenceClassification": "rose.models.gte:GteModel",
    "NewModel": "rose.models.gte:GteModel",
    "NewForMaskedLM": "rose.models.gte:GteModel",
    "NewForSequenceClassification": "rose.models.gte:GteModel",
    "JinaBertModel": "rose.models.jina_bert:JinaBertModel",
    "JinaBertForMaskedLM": "rose.models.jina_bert:JinaBertModel",
    "JinaBertForSequenceClassification": "rose.models.jina_bert:JinaBertModel",
    "JinaEmbeddingsV3Model": "rose.models.jina_embeddings_v3:JinaEmbeddingsV3Model",
    "JinaEmbeddingsV3ForMaskedLM": "rose.models.jina_embeddings_v3:JinaEmbeddingsV3Model",
    "LlamaModel": "rose.models.llama:LlamaModel",
    "LlamaForCausalLM": "rose.models.llama:LlamaModel",
    "LlamaForSequenceClassification": "rose.models.llama:LlamaModel",
    "LlamaBidirectionalModel": "rose.models.llama:BidirectionalLlamaModel",
    "LlamaBidirectionalForSequenceClassification": "rose.models.llama:BidirectionalLlamaModel",
    "MistralModel": "rose.models.mistral:MistralModel",
    "MistralForCausalLM": "rose.models.mistral:MistralModel",
    "MistralForSequenceClassification": "rose.models.mistral:MistralModel",
    "Qwen2Model": "rose.models.qwen2:Qwen2Model",
    "Qwen2ForCausalLM": "rose.models.qwen2:Qwen2Model",
    "Qwen2ForSequenceClassification": "rose.models.qwen2:Qwen2Model",
    "Qwen3Model": "rose.models.qwen3:Qwen3Model",
    "Qwen3ForCausalLM": "rose.models.qwen3:Qwen3Model",
    "Qwen3ForSequenceClassification": "rose.models.qwen3:Qwen3Model",
    "PPLXQwen3Model": "rose.models.qwen3:BidirectionalQwen3Model",
    "Gemma3TextModel": "rose.models.gemma3:Gemma3Model",
    "Gemma3ForCausalLM": "rose.models.gemma3:Gemma3Model",
    "Gemma3TextForSequenceClassification": "rose.models.gemma3:Gemma3Model",
}
CLASSIFIERS = {
    "BertForSequenceClassification": "rose.models.bert:BertForSequenceClassification",
    "XLMRobertaForSequenceClassification": (
        "rose.models.xlm_roberta:XLMRobertaForSequenceClassification"
    ),
    "RobertaForSequenceClassification": (
        "rose.models.xlm_roberta:XLMRobertaForSequenceClassification"
    ),
    "CamembertForSequenceClassification": (
        "rose.models.xlm_roberta:XLMRobertaForSequenceClassification"
    ),
    "DistilBertForSequenceClassification": (
        "rose.models.distilbert:DistilBertForSequenceClassification"
    ),
    "MPNetForSequenceClassification": "rose.models.mpnet:MPNetForSequenceClassification",
    "ModernBertForSequenceClassification": (
        "rose.models.modernbert:ModernBertForSequenceClassification"
    ),
    "NomicBertForSequenceClassification": (
        "rose.models.nomic_bert:NomicBertForSequenceClassification"
    ),
    "GteForSequenceClassification": "rose.models.gte:GteForSequenceClassification",
    "NewForSequenceClassification": "rose.models.gte:GteForSequenceClassification",
    "JinaBertForSequenceClassification": "rose.models.jina_bert:JinaBertForSequenceClassification",
    "LlamaForSequenceClassification": "rose.models.llama:LlamaForSequenceClassification",
    "LlamaBidirectionalForSequenceClassification": (
        "rose.models.llama:BidirectionalLlamaForSequenceClassification"
    ),
    "MistralForSequenceClassification": "rose.models.mistral:MistralForSequenceClassification",
    "Qwen2ForSequenceClassification": "rose.models.qwen2:Qwen2ForSequenceClassification",
    "Qwen3ForSequenceClassification": "rose.models.qwen3:Qwen3ForSequenceClassification",
    "Gemma3TextForSequenceClassification": "rose.models.gemma3:Gemma3ForSequenceClassification",
}
# Backbones that are language models, and so can be asked for the logits of a word.
_DECODER_MODULES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")


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


def find_decoder(architecture: str) -> DecoderClass:
    """The class of a language model, for rerankers that answer with a word.

    Raises:
        ModelLoadError: the architecture is not supported, or is not a language model.
    """
    path = BACKBONES.get(architecture)
    if path is not None and path.partition(":")[0].rpartition(".")[2] not in _DECODER_MODULES:
        raise ModelLoadError(f"config.json: architecture {architecture!r} is not a language model")
    return cast("DecoderClass", _import(BACKBONES, architecture))


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
