"""The CUDA runner's host side on CPU: torch.cuda is replaced by fakes, graphs by recorded calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from rose.attention.sdpa import SdpaAttention
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import BatchLayout, EngineConfig, ModelInfo
from rose.engine import cuda_runner
from rose.engine.cuda_runner import CudaRunner, fill_with_equal_lengths
from rose.engine.input_slot import InputSlot
from rose.errors import BatchError, DeviceError
from rose.forward_batch import ForwardBatch
from rose.graphs.config import GraphConfig
from rose.layers.pooling import Pooling
from rose.models.embedding import EmbeddingModel
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


class FakeEvent:
    cuda_event = 1

    def __init__(self, **_: object) -> None:
        self.recorded = 0

    def record(self) -> None:
        self.recorded += 1

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: FakeEvent) -> float:
        return 2.0


class HostPlannedAttention(SdpaAttention):
    """Counts as capturable; a fake graph runs its step again, so plans are fresh."""

    capturable = True

    def graph_variant(self, tokens: int, sequences: int, max_seqlen: int) -> tuple[str, int]:
        return "sdpa", 64 if max_seqlen <= 64 else 512


@dataclass
class FakeGraph:
    forward: Callable[[], torch.Tensor]
    num_bytes: int = 0

    def replay(self) -> torch.Tensor:
        return self.forward()


@dataclass
class FakeCapture:
    graphs: list[FakeGraph] = field(default_factory=list)

    def __call__(self, forward: Callable[[], torch.Tensor]) -> FakeGraph:
        self.graphs.append(FakeGraph(forward))
        return self.graphs[-1]


@pytest.fixture
def make_runner(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CudaRunner]:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(cuda_runner, "_pinned", lambda num_values: torch.zeros(num_values))
    monkeypatch.setattr(cuda_runner, "GraphCapture", lambda device: FakeCapture())
    monkeypatch.setattr(
        cuda_runner, "InputSlot", lambda capacity, pinned: InputSlot(capacity, pinned=False)
    )
    monkeypatch.setattr(
        cuda_runner, "make_attention", lambda name, *rest: HostPlannedAttention(*rest)
    )

    def make(**graph_options: Any) -> CudaRunner:
        backbone = XLMRobertaModel(
            JsonObject("config.json", CONFIG), RandomWeights(torch.float32, torch.device("cpu"))
        )
        model = EmbeddingModel(backbone, Pooling(("mean",)), normalized=True)
        info = ModelInfo(
            name="tiny",
            architecture="XLMRobertaModel",
            task="embed",
            output_width=32,
            max_sequence_tokens=512,
            vocab_size=50,
            pooling="mean",
            normalized=True,
        )
        runner = CudaRunner(
            model, info, EngineConfig(max_batch_sequences=16), GraphConfig(**graph_options)
        )
        runner.make_slot(4096)
        return runner

    return make


def _batch(runner: CudaRunner, lengths: tuple[int, ...], seed: int = 0) -> ForwardBatch:
    generator = np.random.default_rng(seed)
    sequences = [generator.integers(2, 50, length).tolist() for length in lengths]
    return ForwardBatch.from_sequences(sequences, runner.layout)


def test_rows_are_the_same_eager_captured_and_replayed(make_runner: Any) -> None:
    runner, exact = make_runner(max_tokens=1024), make_runner(max_tokens=0)
    assert exact.layout.token_buckets == ()
    for seed, lengths in enumerate([(5, 60, 3), (9, 9, 9, 20), (64,), (5, 60, 3), (70, 30)] * 3):
        rows = runner.step(_batch(runner, lengths, seed)).numpy()
        expected = exact.step(_batch(exact, lengths, seed)).numpy()
        np.testing.assert_allclose(rows, expected, atol=1e-5)
    counters = runner.graph_counters
    assert counters is runner.graphs.counters
    assert counters.captures > 0
    assert counters.eager_steps + counters.replayed_steps == 15
    assert exact.graphs.counters.captures == 0
    assert counters.padding_tokens > 0


def test_steps_in_flight_keep_their_rows(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    batches = [_batch(runner, (10, 20), seed) for seed in range(6)]
    alone = [runner.step(batch).numpy() for batch in batches]
    held = [runner.step(batch) for batch in batches]
    for tensor, expected in zip(held, alone, strict=True):
        np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-6)


def test_input_slots_may_be_filled_in_turn(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    slots = [runner.make_slot(1024) for _ in range(3)]
    shape = runner.layout.padded_shape(30, 2)
    previous = None
    for step in range(9):
        slot = slots[step % 3]
        fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, 30, 2)
        slot.buffer[shape[1] + 1 : shape[1] + 31] = 2 + step
        rows = runner.step_slot(slot, 30, 2, 34, *shape).numpy()
        np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)
        assert previous is None or np.abs(rows - previous).max() > 1e-3
        previous = rows


def test_time_is_predicted_from_replays_only(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    predicted = []
    for _ in range(10):
        predicted.append(runner.step(_batch(runner, (10,))).handle().predicted_seconds)
    # Eager, captured, then four replays until a slot comes round again.
    assert predicted[:5] == [None] * 5
    assert predicted[-1] == pytest.approx(0.002)


def test_longest_sequence_separates_graphs(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    for lengths in ((100, 28), (64, 64), (100, 28), (64, 64)):
        runner.step(_batch(runner, lengths))
    assert len(runner.graphs) == 2


def test_graphs_hold_addresses_so_slots_cannot_outgrow_them(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    for _ in range(2):
        runner.step(_batch(runner, (10,)))
    with pytest.raises(BatchError, match="cannot grow"):
        runner.make_slot(100_000)


def test_failed_step_gives_its_slot_back(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)

    def broken(batch: ForwardBatch, attention: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    model, runner.model = runner.model, broken
    free = len(runner._ring._free)
    with pytest.raises(RuntimeError, match="out of memory"):
        runner.step(_batch(runner, (10,)))
    assert len(runner._ring._free) == free
    runner.model = model
    assert runner.step(_batch(runner, (10,))).shape == (1, 32)


def test_broken_device_has_an_error_of_its_own(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)

    def broken(batch: ForwardBatch, attention: object) -> torch.Tensor:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    runner.model = broken
    with pytest.raises(DeviceError, match="illegal memory access"):
        runner.step(_batch(runner, (10,)))


def test_warm_up_captures_shapes_ahead_of_traffic(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    runner.compile_kernels()
    runner.warm_up([(64, 1, 64), (128, 1, 128)])
    captures = runner.graphs.counters.captures
    assert captures >= 2
    runner.step(_batch(runner, (64,)))
    runner.step(_batch(runner, (128,)))
    assert runner.graphs.counters.captures == captures


@pytest.mark.parametrize(("num_tokens", "num_sequences"), [(100, 3), (128, 1), (7, 7)])
def test_synthetic_batches_are_legal(num_tokens: int, num_sequences: int) -> None:
    layout = BatchLayout((64, 128), (2, 8), position_offset=2, token_types=True)
    tokens, slots = layout.padded_shape(num_tokens, num_sequences)
    buffer = np.full(layout.buffer_len(tokens, slots), -1, np.int32)
    fill_with_equal_lengths(buffer, layout, num_tokens, num_sequences)
    batch = ForwardBatch.from_buffer(
        torch.from_numpy(buffer),
        layout,
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        max_seqlen=64,
        padded_tokens=tokens,
        padded_sequences=slots,
    )
    lengths = np.diff(batch.cu_seqlens_cpu)
    assert (lengths[:num_sequences] > 0).all()
    assert lengths.sum() == tokens
    positions = batch.positions.numpy()
    for start, length in zip(batch.cu_seqlens_cpu, lengths, strict=False):
        assert positions[start : start + length].tolist() == list(range(2, 2 + length))
    assert not batch.token_ids.any()
    assert batch.token_type_ids is not None
    assert not batch.token_type_ids.any()
