"""Published model shapes, with random weights: speed does not depend on their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import EngineConfig, ModelInfo
from rose.engine.cuda_runner import CudaRunner
from rose.graphs.config import GraphConfig
from rose.layers.pooling import Pooling
from rose.models.bert import BertModel
from rose.models.embedding import EmbeddingModel
from rose.models.qwen3 import BidirectionalQwen3Model, Qwen3Model
from rose.models.xlm_roberta import XLMRobertaForSequenceClassification, XLMRobertaModel

XLM_ROBERTA_LARGE = {
    "vocab_size": 250002,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 8194,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
QWEN3_06B = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
}
BGE_BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
MINILM_L6 = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}


def _embedding(model_class: Any, config: dict[str, Any], pooling: Any) -> Callable[[Any], Any]:
    def build(weights: Any) -> EmbeddingModel:
        backbone = model_class(JsonObject("config.json", config), weights)
        return EmbeddingModel(backbone, Pooling((pooling,)), normalized=True)

    return build


MODELS: dict[str, Callable[[Any], Any]] = {
    "bge-m3": _embedding(XLMRobertaModel, XLM_ROBERTA_LARGE, "cls"),
    "bge-reranker-v2-m3": lambda weights: XLMRobertaForSequenceClassification(
        JsonObject("config.json", XLM_ROBERTA_LARGE), weights, 1
    ),
    "qwen3-0.6b-bidirectional": _embedding(BidirectionalQwen3Model, QWEN3_06B, "mean"),
    "qwen3-embedding-0.6b": _embedding(Qwen3Model, QWEN3_06B, "last_token"),
    "bge-base": _embedding(BertModel, BGE_BASE, "cls"),
    "small-long": _embedding(BertModel, MINILM_L6 | {"max_position_embeddings": 4096}, "mean"),
    "minilm-l6": _embedding(BertModel, MINILM_L6, "mean"),
}


def make_runner(
    name: str, *, dtype: str = "bfloat16", graph_config: GraphConfig | None = None, **options: Any
) -> CudaRunner:
    """A runner of the named shape on the first CUDA device."""
    device = torch.device("cuda", 0)
    weights = RandomWeights(getattr(torch, dtype), device)
    model = MODELS[name](weights)
    info = ModelInfo(
        name=name,
        architecture="",
        task="embed",
        output_width=model.output_width,
        max_sequence_tokens=model.backbone.max_positions,
        vocab_size=model.backbone.vocab_size,
        pooling="",
        normalized=True,
        dtype=dtype,
        device=str(device),
    )
    runner = CudaRunner(model, info, EngineConfig(**options), graph_config)
    runner.make_slot(400_000)
    runner.compile_kernels()
    return runner
