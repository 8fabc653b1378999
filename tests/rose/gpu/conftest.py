"""Each family of docs/models.md, of real widths, with one set of random weights for CPU and GPU."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import pytest
import torch

from rose.attention.base import AttentionShape
from rose.checkpoint.json_object import JsonObject
from rose.config import EngineConfig, ModelInfo, PoolingMode
from rose.engine.cuda_runner import CudaRunner
from rose.graphs.config import GraphConfig
from rose.layers.linear import make_linear
from rose.layers.norm import LayerNorm
from rose.layers.pooled import PooledLayerNorm, ResidualDense
from rose.layers.pooling import Pooling
from rose.models.bert import BertForSequenceClassification, BertModel
from rose.models.causal_reranker import CausalReranker
from rose.models.distilbert import DistilBertForSequenceClassification, DistilBertModel
from rose.models.embedding import EmbeddingModel
from rose.models.gemma3 import Gemma3ForSequenceClassification, Gemma3Model
from rose.models.gte import GteForSequenceClassification, GteModel
from rose.models.jina_bert import JinaBertForSequenceClassification, JinaBertModel
from rose.models.jina_embeddings_v3 import JinaEmbeddingsV3Model
from rose.models.llama import (
    BidirectionalLlamaForSequenceClassification,
    BidirectionalLlamaModel,
    LlamaForSequenceClassification,
    LlamaModel,
)
from rose.models.mistral import MistralForSequenceClassification, MistralModel
from rose.models.modernbert import ModernBertForSequenceClassification, ModernBertModel
from rose.models.mpnet import MPNetForSequenceClassification, MPNetModel
from rose.models.nomic_bert import NomicBertForSequenceClassification, NomicBertModel
from rose.models.qwen2 import Qwen2ForSequenceClassification, Qwen2Model
from rose.models.qwen3 import BidirectionalQwen3Model, Qwen3ForSequenceClassification, Qwen3Model
from rose.models.splade import SpladeModel
from rose.models.token_outputs import TokenOutputModel
from rose.models.xlm_roberta import XLMRobertaForSequenceClassification, XLMRobertaModel

VOCAB_SIZE = 20000
Config = dict[str, Any]
Kind = Literal["vector", "score", "sparse", "tokens"]

# Few widths, since each is compiled; six layers but for one model, since the reference is computed
# on CPU.
SMALL: Config = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 4096,
}
MIDDLE = SMALL | {"hidden_size": 512, "num_attention_heads": 8}
ROBERTA = MIDDLE | {"max_position_embeddings": 4098, "layer_norm_eps": 1e-5, "pad_token_id": 1}
BGE_M3 = ROBERTA | {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "type_vocab_size": 1,
}
MODERNBERT = MIDDLE | {"local_attention": 128}
TYPED = MIDDLE | {"type_vocab_size": 2}
JINA_BERT = TYPED | {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}
QWEN3 = SMALL | {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
# Windows are narrower than the longest sequences.
DECODER = MIDDLE | {"num_key_value_heads": 4, "head_dim": 64, "sliding_window": None}
QWEN_WINDOWS = {"sliding_window": 200, "use_sliding_window": True, "max_window_layers": 3}
GEMMA3 = DECODER | {
    "head_dim": 256,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "sliding_window": 256,
}
EMBEDDING_GEMMA = GEMMA3 | {"use_bidirectional_attention": True}


@cache
def _tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    values = torch.randn(shape, generator=generator) * 0.02
    return values + 1 if len(shape) == 1 and "weight" in name else values


class SharedWeights:
    """A `WeightSource` with the same random numbers on each device, by name."""

    def __init__(
        self, dtype: torch.dtype, device: torch.device, *, norms_around_zero: bool = False
    ) -> None:
        self.dtype = dtype
        self.device = device
        self._norm_shift = -1.0 if norms_around_zero else 0.0

    def has(self, name: str) -> bool:
        # Biases are asked for by configurations, not by what a file holds.
        return not name.endswith("score.bias")

    def take(self, name: str, *shape: int) -> torch.Tensor:
        values = _tensor(name, shape)
        if self._norm_shift and len(shape) == 1 and "weight" in name:
            values = values + self._norm_shift
        return values.to(self.device, self.dtype)

    def float32_linear(self, name: str, width: int, outputs: int, activation: Any = None) -> Any:
        """A layer behind pooling, which is float32 whatever the model is."""
        weight = _tensor(f"{name}.weight", (outputs, width)).to(self.device)
        return make_linear(weight, _tensor(f"{name}.bias", (outputs,)).to(self.device), activation)


@dataclass(frozen=True)
class Family:
    name: str
    kind: Kind
    build: Callable[[SharedWeights], Any]

    def make(self, dtype: torch.dtype, device: torch.device) -> Any:
        # Gemma adds one to what its checkpoints hold.
        norms_around_zero = "gemma" in self.name
        return self.build(SharedWeights(dtype, device, norms_around_zero=norms_around_zero))


def _backbone(model_class: Any, config: Config, weights: SharedWeights) -> Any:
    return model_class(JsonObject("config.json", config), weights)


def _vector(
    name: str, model_class: Any, config: Config, *modes: PoolingMode, normalized: bool = True
) -> Family:
    def build(weights: SharedWeights) -> EmbeddingModel:
        backbone = _backbone(model_class, config, weights)
        return EmbeddingModel(backbone, Pooling(modes), normalized=normalized)

    return Family(name, "vector", build)


def _score(name: str, model_class: Any, config: Config, num_labels: int = 1) -> Family:
    def build(weights: SharedWeights) -> Any:
        return model_class(JsonObject("config.json", config), weights, num_labels)

    return Family(name, "score", build)


def _reranker(weights: SharedWeights) -> CausalReranker:
    return CausalReranker(Qwen3Model, JsonObject("config.json", QWEN3), weights, 17, 4)


def _several_poolings(weights: SharedWeights) -> EmbeddingModel:
    width = 3 * SMALL["hidden_size"]
    dense = ResidualDense(
        weights.float32_linear("dense", width, 512, "tanh"),
        weights.float32_linear("residual", width, 512),
    )
    ones = torch.ones(512, device=weights.device)
    norm = PooledLayerNorm(LayerNorm(ones, torch.zeros_like(ones), 1e-5))
    last = weights.float32_linear("last", 512, 256)
    pooling = Pooling(("cls", "max", "mean"))
    return EmbeddingModel(_backbone(BertModel, SMALL, weights), pooling, (dense, norm, last))


def _three_forms(weights: SharedWeights) -> TokenOutputModel:
    """As bge-m3: dense, vectors of tokens, weights of tokens."""
    width = BGE_M3["hidden_size"]
    return TokenOutputModel(
        EmbeddingModel(_backbone(XLMRobertaModel, BGE_M3, weights), Pooling(("cls",))),
        with_dense=True,
        token_layer=weights.float32_linear("colbert_linear", width, width),
        weight_layer=weights.float32_linear("sparse_linear", width, 1),
        skip_first_token=True,
    )


def _hidden_states(weights: SharedWeights) -> TokenOutputModel:
    """As every other model: the last hidden states, here with a dense vector behind them."""
    pooled = EmbeddingModel(_backbone(NomicBertModel, TYPED, weights), Pooling(("mean",)))
    return TokenOutputModel(
        pooled, with_dense=True, token_layer=None, weight_layer=None, skip_first_token=False
    )


def _splade(architecture: str, model_class: Any, pooling: Any, *, twice: bool) -> Any:
    # Not a multiple of the GEMM's alignment.
    config = MIDDLE | {"vocab_size": VOCAB_SIZE + 522}

    def build(weights: SharedWeights) -> SpladeModel:
        values = JsonObject("config.json", config)
        backbone = model_class(values, weights)
        return SpladeModel(backbone, architecture, values, weights, pooling, twice=twice)

    return build


FAMILIES = (
    _vector("bert", BertModel, SMALL, "mean"),
    _score("bert-score", BertForSequenceClassification, TYPED, 3),
    _vector("roberta-two-types", XLMRobertaModel, ROBERTA | {"type_vocab_size": 2}, "mean"),
    _vector("bge-m3", XLMRobertaModel, BGE_M3, "cls"),
    _score(
        "bge-reranker-v2-m3-24-layers",
        XLMRobertaForSequenceClassification,
        BGE_M3 | {"num_hidden_layers": 24},
    ),
    _vector("distilbert", DistilBertModel, MIDDLE, "mean"),
    _score("distilbert-score", DistilBertForSequenceClassification, MIDDLE, 2),
    _vector("mpnet", MPNetModel, ROBERTA, "mean"),
    _score("mpnet-score", MPNetForSequenceClassification, ROBERTA),
    _vector("modernbert", ModernBertModel, MODERNBERT, "cls"),
    _score(
        "modernbert-score",
        ModernBertForSequenceClassification,
        MODERNBERT | {"classifier_pooling": "mean"},
    ),
    _vector("nomic-bert", NomicBertModel, TYPED, "mean"),
    _score("nomic-bert-score", NomicBertForSequenceClassification, TYPED),
    _vector("gte", GteModel, TYPED, "cls"),
    _score("gte-score", GteForSequenceClassification, TYPED),
    _vector("jina-bert", JinaBertModel, JINA_BERT, "mean"),
    _score("jina-bert-score", JinaBertForSequenceClassification, JINA_BERT),
    _vector("jina-embeddings-v3", JinaEmbeddingsV3Model, MIDDLE, "mean"),
    _vector("llama", LlamaModel, DECODER, "last_token"),
    _vector("llama-bidirectional", BidirectionalLlamaModel, DECODER, "mean"),
    _score("llama-score", LlamaForSequenceClassification, DECODER),
    _score(
        "nemotron-score",
        BidirectionalLlamaForSequenceClassification,
        DECODER | {"pooling": "avg", "temperature": 0.5},
    ),
    _vector("mistral-window", MistralModel, DECODER | {"sliding_window": 300}, "last_token"),
    _score("mistral-score", MistralForSequenceClassification, DECODER | {"sliding_window": 300}),
    _vector("qwen2", Qwen2Model, DECODER, "last_token"),
    _vector("qwen2-windows", Qwen2Model, DECODER | QWEN_WINDOWS, "weighted_mean"),
    _score("qwen2-score", Qwen2ForSequenceClassification, DECODER),
    _vector("qwen3-embedding", Qwen3Model, QWEN3, "last_token"),
    _vector("pplx-embed", BidirectionalQwen3Model, QWEN3, "mean", normalized=False),
    Family("qwen3-reranker", "score", _reranker),
    _score("qwen3-score", Qwen3ForSequenceClassification, QWEN3),
    _vector("embedding-gemma", Gemma3Model, EMBEDDING_GEMMA, "mean"),
    _vector("gemma3-causal", Gemma3Model, GEMMA3, "last_token", "mean"),
    _score("gemma3-score", Gemma3ForSequenceClassification, GEMMA3),
    _vector("bert-max", BertModel, SMALL, "max"),
    _vector("bert-last-token", BertModel, SMALL, "last_token"),
    _vector("bert-weighted-mean", BertModel, SMALL, "weighted_mean"),
    _vector("bert-mean-sqrt-len", BertModel, SMALL, "mean_sqrt_len_tokens", normalized=False),
    Family("bert-three-poolings-dense", "vector", _several_poolings),
    Family("bge-m3-three-forms", "tokens", _three_forms),
    Family("nomic-bert-tokens", "tokens", _hidden_states),
    Family("splade-bert", "sparse", _splade("BertForMaskedLM", BertModel, "max", twice=False)),
    Family(
        "splade-distilbert-sum",
        "sparse",
        _splade("DistilBertForMaskedLM", DistilBertModel, "sum", twice=True),
    ),
)
# One for each path through the engine.
PATHS = (
    "bert",
    "bge-m3-three-forms",
    "bge-reranker-v2-m3-24-layers",
    "embedding-gemma",
    "modernbert",
    "mpnet",
    "nomic-bert",
    "qwen3-embedding",
    "splade-bert",
)


class Bench:
    """One family: a float32 model on CPU, and runners on the GPU that share its weights."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.kind = family.kind
        self._reference: Any = None
        self.reference_rows: Any = None
        """Rows that the reference computed of the one set of sequences."""

    def reference(self) -> Any:
        if self._reference is None:
            self._reference = self.family.make(torch.float32, torch.device("cpu"))
        return self._reference

    @property
    def shape(self) -> AttentionShape:
        return self.reference().backbone.attention_shape

    def runner(self, dtype: str = "bfloat16", **options: Any) -> CudaRunner:
        graph_config = options.pop("graph_config", GraphConfig())
        device = torch.device("cuda", 0)
        model = self.family.make(getattr(torch, dtype), device)
        info = ModelInfo(
            name=self.family.name,
            architecture="",
            task="score" if self.kind == "score" else "embed",
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


@cache
def _bench(family: Family) -> Bench:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return Bench(family)


@pytest.fixture(scope="session", params=FAMILIES, ids=lambda family: family.name)
def bench(request: pytest.FixtureRequest) -> Bench:
    return _bench(request.param)


@pytest.fixture(
    scope="session",
    params=[family for family in FAMILIES if family.name in PATHS],
    ids=lambda family: family.name,
)
def path_bench(request: pytest.FixtureRequest) -> Bench:
    """The families that differ in more than numbers."""
    return _bench(request.param)


@pytest.fixture(scope="session")
def pplx_bench() -> Bench:
    return _bench(next(family for family in FAMILIES if family.name == "pplx-embed"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a device these tests are skipped, not failed."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
