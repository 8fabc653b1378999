"""Model directories of published shapes with random weights, as a publisher would lay them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from gpu_shapes import QWEN3_06B, XLM_ROBERTA_LARGE
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.models.registry import find_backbone, find_classifier

# Architecture, config.json, and the pooling of an embedding model.
DIRECTORIES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "bge-m3": ("XLMRobertaModel", XLM_ROBERTA_LARGE, "cls"),
    "qwen3-0.6b-bidirectional": ("PPLXQwen3Model", QWEN3_06B, "mean"),
    "bge-reranker-v2-m3": ("XLMRobertaForSequenceClassification", XLM_ROBERTA_LARGE, None),
}


class RecordedWeights(RandomWeights):
    """Random weights that remember what was asked for."""

    def __init__(self) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        super().__init__(torch.bfloat16, torch.device(device))
        self.tensors: dict[str, torch.Tensor] = {}

    def take(self, name: str, *shape: int) -> torch.Tensor:
        self.tensors[name] = super().take(name, *shape)
        return self.tensors[name]


def write_model(
    directory: Path, architecture: str, values: dict[str, Any], pooling: str | None
) -> None:
    """A model directory as its publisher would lay it out."""
    config: dict[str, Any] = {**values, "architectures": [architecture]}
    weights = RecordedWeights()
    if pooling is None:
        config["id2label"] = {"0": "LABEL_0"}
        find_classifier(architecture)(JsonObject("config.json", config), weights, 1)
    else:
        find_backbone(architecture)(JsonObject("config.json", config), weights)
        kinds = ("Transformer", "Pooling", "Normalize")
        modules = [
            {
                "idx": index,
                "name": str(index),
                "path": "" if kind == "Transformer" else f"{index}_{kind}",
                "type": f"sentence_transformers.models.{kind}",
            }
            for index, kind in enumerate(kinds)
        ]
        (directory / "modules.json").write_text(json.dumps(modules))
        (directory / "1_Pooling").mkdir()
        flag = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}[pooling]
        pooling_config = {"word_embedding_dimension": config["hidden_size"], flag: True}
        (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling_config))
    (directory / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor.cpu() for name, tensor in weights.tensors.items()},
        directory / "model.safetensors",
    )
    vocabulary = {"[UNK]": 0}
    Tokenizer(WordLevel(vocabulary, unk_token="[UNK]")).save(str(directory / "tokenizer.json"))
