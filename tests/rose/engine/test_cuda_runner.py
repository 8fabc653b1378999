"""The CUDA runner's host side on CPU: torch.cuda is replaced by fakes, graphs by recorded calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rose.attention.sdpa import SdpaAttention
from rose.config import BatchLayout
from rose.engine import cuda_runner
from rose.engine.cuda_runner import CudaRunner
from rose.engine.synthetic_batch import fill_with_equal_lengths
from rose.errors import BatchError, DeviceError
from rose.forward_batch import ForwardBatch
from rose.kernels.invariance import batch_invariant, is_batch_invariant


def _batch(runner: CudaRunner, lengths: tuple[int, ...], seed: int = 0) -> ForwardBatch:
    generator = np.random.default_rng(seed)
    sequences = [generator.integers(2, 50, length).tolist() for length in lengths]
    return ForwardBatch.from_sequences(sequences, runner.layout)


@pytest.mark.parametrize("direct", [True, False])
def test_rows_are_the_same_eager_captured_and_replayed(make_runner: Any, direct: bool) -> None:
    runner, exact = make_runner(max_tokens=1024, direct=direct), make_runner(max_tokens=0)
    assert exact.layout.token_buckets == ()
    for seed, lengths in enumerate([(5, 60, 3), (9, 9, 9, 20), (64,), (5, 60, 3), (70, 30)] * 3):
        rows = runner.step(_batch(runner, lengths, seed)).numpy()
        expected = exact.step(_batch(exact, lengths, seed)).numpy()
        np.testing.assert_allclose(rows, expected, atol=1e-5)
    counters = runner.graph_counters
    assert counters is runner.graphs.counters
    assert counters.captures > 0
    assert counters.eager_steps + counters.replayed_steps == 15
    # A captured step is replayed by torch the first time.
    if direct:
        assert runner.driver.replays == counters.replayed_steps - counters.captures > 0
    assert exact.graphs.counters.captures == 0
    assert counters.padding_tokens > 0


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("model", ["three forms", "splade"])
def test_rows_of_tokens_and_of_a_vocabulary(
    make_runner: Any, model: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared:
        monkeypatch.setattr(cuda_runner, "_LARGEST_OWN_OUTPUT", 0)
        monkeypatch.setattr(cuda_runner, "_LARGEST_FIRST_SLOT", 10)
    # On CPU the pooling over a vocabulary reads counts of the host, which this replay does not set.
    runner = make_runner(model, max_tokens=1024, direct=model == "three forms")
    exact = make_runner(model, max_tokens=0)
    assert (runner._shared_output is not None) == shared
    of_tokens = model == "three forms"
    assert runner.layout.token_rows == of_tokens
    all_lengths = [(5, 60, 3), (9, 9, 9, 20), (64,), (5, 60, 3), (70, 30)] * 3
    held = []
    for seed, lengths in enumerate(all_lengths):
        pending = runner.step(_batch(runner, lengths, seed))
        assert pending.shape == (
            sum(lengths) if of_tokens else len(lengths),
            65 if of_tokens else 50,
        )
        held.append(pending)
    for seed, (pending, lengths) in enumerate(zip(held, all_lengths, strict=True)):
        rows = pending.numpy()
        expected = exact.step(_batch(exact, lengths, seed)).numpy()
        np.testing.assert_allclose(rows, expected, atol=1e-5)
        assert pending.handle()[1:3] == pending.shape
        if of_tokens:
            dense = _dense_rows(rows, lengths)
            np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1, atol=1e-5)
            assert np.count_nonzero(rows[:, 32:64].any(1)) == len(lengths)
    assert runner.graphs.counters.captures > 0


def _dense_rows(rows: Any, lengths: tuple[int, ...]) -> Any:
    return rows[np.cumsum((0, *lengths[:-1])), 32:64]


def test_token_rows_depend_on_nothing_that_a_graph_holds_on_to(make_runner: Any) -> None:
    """Counts without padding are numbers of the host, which a replayed graph does not see."""
    model = make_runner("three forms", max_tokens=0).model
    layout = BatchLayout((64,), (8,), position_offset=2)
    batch = ForwardBatch.from_sequences([[3] * 9, [5] * 55], layout)
    attention = SdpaAttention(model.backbone.attention_shape, torch.float32, torch.device("cpu"))
    attention.plan(batch)
    rows = model(batch, attention)
    assert rows.shape == (64, 65)
    # Empty slots begin at row 64, and must leave the last token's row alone.
    assert not rows[63, 32:64].any()
    batch.num_tokens = batch.num_sequences = 1
    torch.testing.assert_close(model(batch, attention), rows, atol=0, rtol=0)


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


def test_kernels_are_compiled_with_small_slots(make_runner: Any) -> None:
    """The batches of it are larger than those that the server was told to expect."""
    for max_tokens in (1024, 0):
        runner = make_runner(max_tokens=max_tokens, capacity=200)
        runner.compile_kernels()
        assert runner.step(_batch(runner, (10, 50))).shape == (2, 32)


def test_float32_is_not_left_to_the_environment(make_runner: Any) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        make_runner(max_tokens=1024)
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_warm_up_captures_shapes_ahead_of_traffic(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    runner.compile_kernels()
    runner.warm_up([(64, 1, 64), (128, 1, 128)])
    captures = runner.graphs.counters.captures
    assert captures >= 2
    runner.step(_batch(runner, (64,)))
    runner.step(_batch(runner, (128,)))
    assert runner.graphs.counters.captures == captures


def test_two_engines_of_a_process_keep_their_own_mode(make_runner: Any) -> None:
    runners = {mode: make_runner(deterministic=mode, max_tokens=1024) for mode in (True, False)}
    seen: list[tuple[bool, bool]] = []

    def wrap(mode: bool, model: Any) -> Any:
        def noted(batch: ForwardBatch, attention: object) -> torch.Tensor:
            seen.append((mode, is_batch_invariant()))
            # Its matrix products are the default ones here: the other kernel needs a device.
            with batch_invariant(False):
                rows: torch.Tensor = model(batch, attention)
            return rows

        noted.backbone = model.backbone  # type: ignore[attr-defined]
        return noted

    for mode, runner in runners.items():
        assert runner.attention.deterministic == mode
        runner.model = wrap(mode, runner.model)
    for lengths in ((10,), (10,), (10,), (70, 30)):
        for runner in runners.values():
            runner.step(_batch(runner, lengths)).numpy()
    assert {mode for mode, _ in seen} == {True, False}
    assert all(mode == invariant for mode, invariant in seen)
    assert not is_batch_invariant()


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
    for start, length in zip(batch.cu_seqlens_cpu, lengths[:num_sequences], strict=False):
        assert positions[start : start + length].tolist() == list(range(2, 2 + length))
    assert (positions[num_tokens:] == 2).all()
    assert not batch.token_ids.any()
    assert batch.token_type_ids is not None
    assert not batch.token_type_ids.any()


@pytest.mark.parametrize("error", [DeviceError("cuGraphLaunch: gone"), RuntimeError("no memory")])
def test_a_replay_that_fails_gives_its_slot_back(make_runner: Any, error: Exception) -> None:
    runner = make_runner(max_tokens=1024)
    batch = _batch(runner, (5, 60, 3))
    expected = [runner.step(batch).numpy() for _ in range(4)][-1]
    free = len(runner._ring._free)
    runner.driver.error = error
    with pytest.raises(type(error), match=str(error)):
        runner.step(batch)
    assert len(runner._ring._free) == free
    runner.driver.error = None
    np.testing.assert_array_equal(runner.step(batch).numpy(), expected)


def test_sizes_that_a_graph_does_not_have_are_refused(make_runner: Any) -> None:
    runner = make_runner(max_tokens=1024)
    shape = runner.layout.padded_shape(30, 1)
    slot = runner.make_slot(1024)
    fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, 30, 1)
    for _ in range(3):
        runner.step_slot(slot, 30, 1, 34, *shape).wait()
    with pytest.raises(RuntimeError):
        runner.step_slot(slot, 30, shape[1] + 1, 34, *shape)


def test_a_device_that_breaks_while_it_is_timed_is_broken(
    make_runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner(max_tokens=1024)

    def broken(slot: object) -> None:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    monkeypatch.setattr(runner, "_note_time", broken)
    with pytest.raises(DeviceError, match="illegal memory access"):
        runner.step(_batch(runner, (5, 60, 3)))
