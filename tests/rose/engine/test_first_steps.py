"""What runs before the server is ready, and what happens where the device's memory is too small."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rose.config import EngineConfig, ModelInfo
from rose.engine import cuda_runner
from rose.engine.engine import Engine
from rose.engine.first_steps import StepLimits, is_of_memory
from rose.errors import DeviceError
from rose.forward_batch import ForwardBatch
from rose.kernels.cublas_lt import CublasLtError

WHOLE = 28672


def limits(**changes: int) -> StepLimits:
    values = {
        "batch_tokens": 16384,
        "whole_request_tokens": WHOLE,
        "max_sequences": 512,
        "max_sequence_tokens": 512,
        "max_positions": 512,
    }
    return StepLimits(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, (WHOLE, 56, 512)),
        ({"max_sequence_tokens": 8192, "max_positions": 8192}, (WHOLE, 28, 1024)),
        # Traffic cannot bring more.
        ({"max_sequences": 1}, (512, 1, 512)),
        ({"max_sequence_tokens": 16}, (8192, 512, 16)),
    ],
)
def test_the_largest_step_is_one_that_traffic_can_bring(
    changes: dict[str, int], shape: tuple[int, int, int]
) -> None:
    assert limits(**changes).largest(WHOLE) == shape


def test_no_step_leaves_the_table_of_positions() -> None:
    assert limits(max_positions=8).legal(100, 3) == (100, 13)
    assert limits(batch_tokens=5, whole_request_tokens=0, max_sequence_tokens=50).legal(100, 3) == (
        50,
        3,
    )
    assert limits().legal(2, 9) == (2, 2)
    assert limits().without_whole_requests().legal(20000, 60) == (16384, 60)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("no"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (DeviceError("CUDA error: out of memory"), True),
        (DeviceError("an illegal memory access was encountered"), False),
    ],
)
def test_errors_of_memory(error: Exception, expected: bool) -> None:
    assert is_of_memory(error) is expected


def small_memory(runner: Any, most_tokens: int, error: Exception) -> None:
    model = runner.model

    def limited(batch: ForwardBatch, attention: object) -> torch.Tensor:
        if batch.padded_tokens > most_tokens:
            raise error
        rows: torch.Tensor = model(batch, attention)
        return rows

    limited.backbone = model.backbone  # type: ignore[attr-defined]
    limited.output_width = model.output_width  # type: ignore[attr-defined]
    runner.model = limited


def runner_info(runner: Any) -> ModelInfo:
    return ModelInfo(
        name="tiny",
        architecture="XLMRobertaModel",
        task="embed",
        output_width=runner.model.output_width,
        max_sequence_tokens=512,
        vocab_size=50,
        pooling="mean",
        normalized=True,
    )


ERRORS = (
    torch.OutOfMemoryError("out of memory"),
    RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"),
    torch.AcceleratorError("CUDA error: out of memory"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("max_tokens", [0, WHOLE])
def test_requests_are_split_where_they_do_not_fit(
    make_runner: Any, caplog: pytest.LogCaptureFixture, max_tokens: int, error: Exception
) -> None:
    runner = make_runner(max_tokens=max_tokens, max_batch_tokens=2048, max_batch_sequences=16)
    assert runner.layout.max_whole_request_tokens == 3584
    small_memory(runner, 2048, error)
    with caplog.at_level("WARNING"):
        runner.compile_kernels()
    assert runner.layout.max_whole_request_tokens == 0
    [warning] = caplog.messages
    assert "too small for a step of 3584 tokens, requests are split" in warning
    # A batch fits, and its graph is there.
    assert [key.tokens for key in runner.graphs._graphs] == ([2048] if max_tokens else [])


def test_the_server_is_told_of_what_fits(make_runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(max_tokens=WHOLE, max_batch_tokens=2048)
    small_memory(runner, 2048, ERRORS[0])
    monkeypatch.setattr("rose.engine.engine._make_runner", lambda *_: runner)
    config = EngineConfig(max_batch_tokens=2048, max_batch_sequences=16)
    engine = Engine(runner.model, runner_info(runner), config)
    assert engine.info.layout == runner.layout
    assert engine.info.layout.max_whole_request_tokens == 0


def test_products_that_cannot_be_launched_are_torchs_and_the_start_goes_on(
    make_runner: Any,
) -> None:
    runner = make_runner(max_tokens=WHOLE, max_batch_tokens=2048)
    model, failures = runner.model, [CublasLtError("cublasLtMatmul", 13)]

    def failing(batch: ForwardBatch, attention: object) -> torch.Tensor:
        if failures:
            raise failures.pop()
        rows: torch.Tensor = model(batch, attention)
        return rows

    failing.backbone = model.backbone  # type: ignore[attr-defined]
    runner.model = failing
    runner.compile_kernels()
    assert runner.layout.max_whole_request_tokens == 3584


@pytest.mark.parametrize(
    ("graph_tokens", "batch_tokens", "captured"),
    # No more than may be captured; a whole request; a single sequence longer than a batch.
    [(1024, 2048, 1024), (4096, 2048, 3584), (4096, 64, 512)],
)
def test_which_step_is_captured(
    make_runner: Any, graph_tokens: int, batch_tokens: int, captured: int
) -> None:
    runner = make_runner(max_tokens=graph_tokens, max_batch_tokens=batch_tokens)
    runner.compile_kernels()
    assert [key.tokens for key in runner.graphs._graphs] == [captured]


def test_what_graphs_share_has_room_for_the_largest_step(
    make_runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_runner, "_LARGEST_OWN_OUTPUT", 0)
    for batch_tokens, graph_tokens, rows in ((64, WHOLE, 512), (2048, WHOLE, 3584), (2048, 64, 64)):
        runner = make_runner("three forms", max_tokens=graph_tokens, max_batch_tokens=batch_tokens)
        assert runner._shared_output.shape[0] == rows


def test_a_broken_device_stops_the_start(make_runner: Any) -> None:
    runner = make_runner(max_tokens=WHOLE, max_batch_tokens=2048)
    small_memory(runner, 2048, torch.AcceleratorError("an illegal memory access"))
    with pytest.raises(DeviceError, match="illegal memory access"):
        runner.compile_kernels()


def test_the_largest_step_takes_one_graph_and_few_are_left_to_traffic(make_runner: Any) -> None:
    for max_graphs, captures in ((512, 1), (16, 1), (15, 0), (1, 0)):
        runner = make_runner(max_tokens=4096, max_graphs=max_graphs, max_batch_tokens=2048)
        runner.compile_kernels()
        assert runner.layout.max_whole_request_tokens == 3584
        assert runner.graphs.counters.captures == captures
        assert len(runner.graphs) == captures
