"""The CUDA runner on CPU: torch.cuda, graphs and the driver are replaced by fakes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rose.attention.sdpa import SdpaAttention
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import EngineConfig, ModelInfo
from rose.engine import cuda_runner
from rose.engine.cuda_runner import CudaRunner
from rose.engine.input_slot import InputSlot
from rose.forward_batch import ForwardBatch
from rose.graphs.config import GraphConfig
from rose.graphs.graph_runner import DirectReplay
from rose.kernels.invariance import batch_invariant, is_batch_invariant
from rose.layers.linear import Linear
from rose.layers.pooling import Pooling
from rose.models.bert import BertModel
from rose.models.embedding import EmbeddingModel
from rose.models.splade import SpladeModel
from rose.models.token_outputs import TokenOutputModel
from rose.models.xlm_roberta import XLMRobertaModel

CONFIG = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}


CPU = torch.device("cpu")


def _dense() -> EmbeddingModel:
    backbone = XLMRobertaModel(JsonObject("config.json", CONFIG), RandomWeights(torch.float32, CPU))
    return EmbeddingModel(backbone, Pooling(("mean",)), normalized=True)


def _three_forms() -> TokenOutputModel:
    head, weight = torch.randn(32, 32), torch.randn(1, 32)
    return TokenOutputModel(
        _dense(),
        with_dense=True,
        token_layer=Linear(head, None),
        weight_layer=Linear(weight, None),
        skip_first_token=False,
    )


def _splade() -> SpladeModel:
    config, weights = JsonObject("config.json", CONFIG), RandomWeights(torch.float32, CPU)
    backbone = BertModel(config, weights)
    return SpladeModel(backbone, "BertForMaskedLM", config, weights, "max", twice=False)


MODELS: dict[str, Callable[[], Any]] = {
    "dense": _dense,
    "three forms": _three_forms,
    "splade": _splade,
}


class FakeEvent:
    cuda_event = 1

    def __init__(self, **_: object) -> None:
        self.recorded = 0

    def record(self, stream: object) -> None:
        self.recorded += 1

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: FakeEvent) -> float:
        return 2.0


class FakeStream(nullcontext[None]):
    stream = SimpleNamespace(cuda_stream=5)

    def __init__(self, device: torch.device) -> None:
        super().__init__()


class HostPlannedAttention(SdpaAttention):
    """Counts as capturable; a fake graph runs its step again, so plans are fresh."""

    capturable = True

    def graph_variant(self, tokens: int, sequences: int, max_seqlen: int) -> tuple[str, int]:
        return "sdpa", 64 if max_seqlen <= 64 else 512

    def plan(self, batch: ForwardBatch) -> None:
        # A graph sees what has been copied to the device, and nothing of the host.
        batch.cu_seqlens_cpu = batch.cu_seqlens.numpy()
        super().plan(batch)


@dataclass
class FakeGraph:
    forward: Callable[[], torch.Tensor]
    rows: torch.Tensor
    """Where a replay by the driver leaves them, as that of a real graph does."""
    handle: int
    num_bytes: int = 0

    def replay(self) -> torch.Tensor:
        return self.forward()

    @property
    def direct(self) -> DirectReplay | None:
        return DirectReplay(self.handle, self.rows.data_ptr(), self.rows.shape[0])


@dataclass
class FakeCapture:
    graphs: list[FakeGraph] = field(default_factory=list)

    def __call__(self, forward: Callable[[], torch.Tensor]) -> FakeGraph:
        invariant = is_batch_invariant()

        def baked() -> torch.Tensor:
            with torch.inference_mode(), batch_invariant(invariant):
                return forward()

        self.graphs.append(FakeGraph(baked, baked().clone(), len(self.graphs)))
        return self.graphs[-1]


@dataclass
class FakeDriver:
    """Copies at once, and runs the step that the handle stands for in between."""

    capture: FakeCapture
    replays: int = 0
    error: Exception | None = None

    def replay(
        self,
        graph: int,
        copy_in: tuple[int, int, int],
        copy_out: tuple[int, int, int],
        start: int,
        end: int,
    ) -> None:
        if self.error is not None:
            raise self.error
        ctypes.memmove(*copy_in)
        captured = self.capture.graphs[graph]
        with torch.inference_mode():
            captured.rows.copy_(captured.forward())
        ctypes.memmove(*copy_out)
        self.replays += 1


@pytest.fixture
def make_runner(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CudaRunner]:
    monkeypatch.setattr(cuda_runner, "OwnStream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(cuda_runner, "_pinned", lambda num_values: torch.zeros(num_values))
    monkeypatch.setattr(cuda_runner, "GraphCapture", lambda device: FakeCapture())
    monkeypatch.setattr(cuda_runner, "driver_of", lambda stream: None)
    monkeypatch.setattr(
        cuda_runner, "InputSlot", lambda capacity, pinned: InputSlot(capacity, pinned=False)
    )
    monkeypatch.setattr(
        cuda_runner,
        "make_attention",
        lambda name, *rest, **options: HostPlannedAttention(*rest, **options),
    )

    def make(
        model_name: str = "dense",
        capacity: int = 4096,
        *,
        deterministic: bool = False,
        direct: bool = True,
        max_batch_tokens: int = 16384,
        max_batch_sequences: int = 16,
        **graph_options: Any,
    ) -> CudaRunner:
        torch.manual_seed(0)
        model = MODELS[model_name]()
        info = ModelInfo(
            name="tiny",
            architecture="XLMRobertaModel",
            task="embed",
            output_width=model.output_width,
            max_sequence_tokens=512,
            vocab_size=50,
            pooling="mean",
            normalized=True,
        )
        config = EngineConfig(
            max_batch_tokens=max_batch_tokens,
            max_batch_sequences=max_batch_sequences,
            deterministic=deterministic,
        )
        runner = CudaRunner(model, info, config, GraphConfig(**graph_options))
        if direct:
            runner.driver = FakeDriver(runner.capture)  # type: ignore[arg-type, assignment]
        runner.make_slot(capacity)
        return runner

    return make
