"""Models of real widths with one set of random weights for CPU and GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from rose.attention.base import AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.config import EngineConfig, ModelInfo
from rose.engine.cuda_runner import CudaRunner
from rose.graphs.config import GraphConfig
from rose.layers.pooling import Pooling
from rose.models.bert import BertModel
from rose.models.causal_reranker import CausalReranker
from rose.models.embedding import EmbeddingModel
from rose.models.gemma3 import Gemma3Model
from rose.models.gte import GteModel
from rose.models.jina_bert import JinaBertModel
from rose.models.llama import BidirectionalLlamaModel
from rose.models.modernbert import ModernBertModel
from rose.models.mpnet import MPNetModel
from rose.models.nomic_bert import NomicBertModel
from rose.models.qwen2 import Qwen2Model
from rose.models.qwen3 import BidirectionalQwen3Model, Qwen3Model
from rose.models.xlm_roberta import XLMRobertaForSequenceClassification, XLMRobertaModel

VOCAB_SIZE = 20000
ENCODER = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 4098,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
SMALL_ENCODER = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 4096,
}
QWEN3 = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 1024,
    "num_hidden_layers": 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "max_position_embeddings": 4096,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}

# Every layer of a small model; the window is narrower than the longest sequences.
DECODER = QWEN3 | {"num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8}
DECODER |= {"num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 1536}
GEMMA3 = DECODER | {
    "head_dim": 256,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "sliding_window": 256,
    "use_bidirectional_attention": True,
}
MODERNBERT = SMALL_ENCODER | {"hidden_size": 512, "num_attention_heads": 8, "local_attention": 128}
NOMIC = SMALL_ENCODER | {"hidden_size": 512, "num_attention_heads": 8, "type_vocab_size": 2}
MPNET = SMALL_ENCODER | {"max_position_embeddings": 4098}
JINA_BERT = NOMIC | {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}


class SharedWeights:
    """A `WeightSource` with the same random numbers on each device, by name."""

    def __init__(
        self, cache: dict[str, torch.Tensor], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.dtype = dtype
        self.device = device
        self._cache = cache

    def has(self, name: str) -> bool:
        # Biases are asked for by configurations, not by what a file holds.
        return not name.endswith("score.bias")

    def take(self, name: str, *shape: int) -> torch.Tensor:
        if name not in self._cache:
            generator = torch.Generator().manual_seed(len(self._cache))
            values = torch.randn(shape, generator=generator) * 0.02
            self._cache[name] = values + 1 if len(shape) == 1 and "weight" in name else values
        return self._cache[name].to(self.device, self.dtype)


@dataclass(frozen=True)
class Family:
    name: str
    build: Callable[[Any], Any]


def _embedding(model_class: Any, config: dict[str, Any], pooling: Any) -> Callable[[Any], Any]:
    def build(weights: Any) -> EmbeddingModel:
        backbone = model_class(JsonObject("config.json", config), weights)
        return EmbeddingModel(backbone, Pooling((pooling,)), normalized=True)

    return build


FAMILIES = (
    Family("bert-mean-head32", _embedding(BertModel, SMALL_ENCODER, "mean")),
    Family("bge-m3", _embedding(XLMRobertaModel, ENCODER, "cls")),
    Family(
        "bge-reranker-v2-m3",
        lambda weights: XLMRobertaForSequenceClassification(
            JsonObject("config.json", ENCODER), weights, 1
        ),
    ),
    Family("qwen3-embedding", _embedding(Qwen3Model, QWEN3, "last_token")),
    Family("qwen3-bidirectional-mean", _embedding(BidirectionalQwen3Model, QWEN3, "mean")),
    Family("modernbert", _embedding(ModernBertModel, MODERNBERT, "cls")),
    Family("nomic-bert", _embedding(NomicBertModel, NOMIC, "mean")),
    Family("gte", _embedding(GteModel, NOMIC, "cls")),
    Family("mpnet", _embedding(MPNetModel, MPNET, "mean")),
    Family("jina-bert", _embedding(JinaBertModel, JINA_BERT, "mean")),
    Family("llama-bidirectional", _embedding(BidirectionalLlamaModel, DECODER, "mean")),
    Family("qwen2", _embedding(Qwen2Model, DECODER, "last_token")),
    Family("embedding-gemma", _embedding(Gemma3Model, GEMMA3, "mean")),
    Family(
        "qwen3-reranker",
        lambda weights: CausalReranker(
            Qwen3Model, JsonObject("config.json", QWEN3), weights, 17, 4
        ),
    ),
)


class Bench:
    """One family: a float32 model on CPU, and runners on the GPU that share its weights."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.is_score = "reranker" in family.name
        self._cache: dict[str, torch.Tensor] = {}
        self._reference: Any = None
        self.reference_rows: dict[int, Any] = {}
        """Rows that the reference computed, by the seed of their sequences."""

    def reference(self) -> Any:
        if self._reference is None:
            weights = SharedWeights(self._cache, torch.float32, torch.device("cpu"))
            self._reference = self.family.build(weights)
        return self._reference

    @property
    def shape(self) -> AttentionShape:
        return self.reference().backbone.attention_shape

    def runner(self, dtype: str = "bfloat16", **options: Any) -> CudaRunner:
        graph_config = options.pop("graph_config", GraphConfig())
        device = torch.device("cuda", 0)
        model = self.family.build(SharedWeights(self._cache, getattr(torch, dtype), device))
        info = ModelInfo(
            name=self.family.name,
            architecture="",
            task="score" if self.is_score else "embed",
            output_width=model.output_width,
            max_sequence_tokens=4096,
            vocab_size=VOCAB_SIZE,
            pooling="",
            normalized=True,
            dtype=dtype,
            device="cuda:0",
        )
        runner = CudaRunner(model, info, EngineConfig(**options), graph_config)
        runner.make_slot(200_000)
        return runner


@pytest.fixture(scope="session", params=FAMILIES, ids=lambda family: family.name)
def bench(request: pytest.FixtureRequest) -> Bench:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return Bench(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a device these tests are skipped, not failed."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
