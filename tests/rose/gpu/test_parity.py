"""Rows on the GPU against float32 on CPU, and against themselves in other company.

What each test measures is recorded as a property: `benches/gpu_parity.py` makes a table of a run's
JUnit file.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from rose.attention import make_attention
from rose.config import BatchLayout
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch
from rose.graphs.config import GraphConfig

pytestmark = pytest.mark.gpu

Rows = npt.NDArray[np.float32]
Record = Callable[[str, object], None]

# Together enough for the kernels of many rows.
LENGTHS = (1, 2048, 16, 17, 63, 64, 65, 127, 130, 200, 511, 5, 790)
# The same bucket, another longest sequence.
OTHER_LENGTHS = (700, 3, 1024, 300, 511, 100, 90, 60, 7, 452, 790)
LEAST_COSINE = 0.9995
MOST_SCORE_DIFFERENCE = 0.01
# In other company, in bfloat16: one minus the cosine of vectors, the difference of scores. Another
# batch size selects other GEMM kernels, which round elsewhere.
SAME = 1e-3
# A score is not averaged over hundreds of values: 16 bits round it by this much, in each company
# elsewhere. In deterministic mode it is the same to the bit (test_deterministic.py).
SAME_SCORE = MOST_SCORE_DIFFERENCE


def _sequences(lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 20000, (n,), generator=generator).tolist() for n in lengths]


def _batch(sequences: list[list[int]], layout: BatchLayout) -> ForwardBatch:
    """Of models with token types the second half of a sequence is of type 1."""
    return ForwardBatch.from_sequences(sequences, layout, [len(ids) // 2 for ids in sequences])


def _rows(runner: Any, sequences: list[list[int]]) -> Rows:
    rows: Rows = runner.step(_batch(sequences, runner.layout)).numpy()
    return rows


@torch.inference_mode()
def _reference_rows(bench: Any) -> Rows:
    if bench.reference_rows is None:
        model = bench.reference()
        backbone = model.backbone
        layout = BatchLayout(
            token_types=backbone.token_types, position_offset=backbone.position_offset
        )
        batch = _batch(_sequences(LENGTHS), layout)
        shape, cpu = backbone.attention_shape, torch.device("cpu")
        attention = make_attention("sdpa", shape, torch.float32, cpu)
        attention.plan(batch)
        bench.reference_rows = model(batch, attention).numpy()
    rows: Rows = bench.reference_rows
    return rows


def _difference(bench: Any, rows: Rows, expected: Rows) -> float:
    """The largest one: of scores, or one minus the cosine of vectors."""
    assert rows.shape == expected.shape
    assert np.isfinite(rows).all()
    if bench.kind == "score":
        return float(np.abs(_sigmoid(rows) - _sigmoid(expected)).max())
    if bench.kind != "tokens":
        return 1 - float(_cosines(rows, expected).min())
    dimensions = bench.reference().dimensions
    # The vectors of tokens, the dense ones behind them if they are, and the weights as one vector.
    parts = [slice(at, at + dimensions) for at in range(0, rows.shape[1] - 1, dimensions)]
    cosines = [_cosines(rows[:, part], expected[:, part]).min() for part in parts]
    if rows.shape[1] % dimensions:
        cosines.append(_cosines(rows[None, :, -1], expected[None, :, -1]).min())
    return 1 - float(min(cosines))


def _cosines(rows: Rows, expected: Rows) -> npt.NDArray[np.float64]:
    a, b = rows.astype(np.float64), expected.astype(np.float64)
    # Rows of tokens but the first have no dense vector.
    present = b.any(axis=1)
    assert (a.any(axis=1) == present).all()
    a, b = a[present], b[present]
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines: npt.NDArray[np.float64] = (a * b).sum(1) / lengths
    return cosines


def _sigmoid(logits: Rows) -> Rows:
    probabilities: Rows = 1 / (1 + np.exp(-logits))
    return probabilities


def _of_sequence(bench: Any, rows: Rows, lengths: tuple[int, ...]) -> list[Rows]:
    """What each sequence gets: one row, or one for each of its tokens."""
    bounds = np.cumsum((0, *lengths)) if bench.kind == "tokens" else np.arange(len(lengths) + 1)
    return [rows[start:end] for start, end in pairwise(bounds.tolist())]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_close_to_float32(bench: Any, dtype: str, record_property: Record) -> None:
    expected = _reference_rows(bench)
    rows = _rows(bench.runner(dtype), _sequences(LENGTHS))
    difference = _difference(bench, rows, expected)
    record_property("family", bench.family.name)
    record_property(f"{bench.kind}_{dtype}", difference)
    if bench.kind == "score":
        spread = np.ptp(_sigmoid(expected), axis=0).max()
        assert spread > 2 * MOST_SCORE_DIFFERENCE, "else nothing is compared"
        assert difference <= MOST_SCORE_DIFFERENCE
    else:
        assert difference <= 1 - LEAST_COSINE
        lengths = np.linalg.norm(rows, axis=1) / np.linalg.norm(expected, axis=1)
        assert np.abs(lengths - 1).max() <= 0.02


def test_alone_batched_padded_captured_replayed(bench: Any, record_property: Record) -> None:
    sequences, other = _sequences(LENGTHS), _sequences(OTHER_LENGTHS, seed=1)
    eager = bench.runner(graph_config=GraphConfig(max_graphs=0))
    alone, other_alone = (
        np.concatenate([_rows(eager, [sequence]) for sequence in each])
        for each in (sequences, other)
    )
    exact = bench.runner(graph_config=GraphConfig(max_tokens=0))
    assert exact.layout.token_buckets == ()
    batched, padded = _rows(exact, sequences), _rows(eager, sequences)
    other_padded = _rows(eager, other)

    runner = bench.runner()
    captured, other_captured = [], []
    for _ in range(3):
        captured.append(_rows(runner, sequences))
        other_captured.append(_rows(runner, other))
    record_property("family", bench.family.name)
    differences = {
        "batched": _difference(bench, batched, alone),
        "padded": _difference(bench, padded, alone),
        "captured": max(_difference(bench, rows, alone) for rows in captured),
        "replayed": max(_difference(bench, rows, other_alone) for rows in other_captured),
    }
    for name, difference in differences.items():
        record_property(name, difference)
    limit = SAME_SCORE if bench.kind == "score" else SAME
    assert max(differences.values()) <= limit, differences
    for rows, others in zip(captured, other_captured, strict=True):
        # The same kernels on the same shapes: bit for bit.
        np.testing.assert_array_equal(rows, padded)
        # The same bucket with other lengths: the graph must not have baked the first ones.
        np.testing.assert_array_equal(others, other_padded)
    if not runner.attention.capturable:
        assert bench.shape.bias is not None
        assert len(runner.graphs) == 0
        return
    assert len(runner.graphs) <= 2
    assert runner.graphs.counters.captures >= 1
    assert runner.graphs.counters.failed_captures == 0


def test_scores_in_other_company_in_float16(bench: Any, record_property: Record) -> None:
    """Three bits more than bfloat16: eight times closer."""
    if bench.kind != "score":
        pytest.skip("vectors are as close in bfloat16")
    sequences = _sequences(LENGTHS)
    eager = bench.runner("float16", graph_config=GraphConfig(max_graphs=0))
    alone = np.concatenate([_rows(eager, [sequence]) for sequence in sequences])
    difference = _difference(bench, _rows(eager, sequences), alone)
    record_property("family", bench.family.name)
    record_property("padded_float16", difference)
    assert difference <= SAME


def test_a_step_larger_than_a_batch(path_bench: Any) -> None:
    """A request that is a little larger than a batch is one step of up to 28,672 tokens."""
    lengths = (500,) * 53
    sequences = _sequences(lengths)
    eager = path_bench.runner(graph_config=GraphConfig(max_graphs=0))
    expected = _rows(eager, sequences)
    runner = path_bench.runner()
    for _ in range(3):
        np.testing.assert_array_equal(_rows(runner, sequences), expected)
    assert runner.graphs.counters.replayed_steps > 0 or not runner.attention.capturable
    few = _rows(eager, sequences[40:45])
    of_sequence = _of_sequence(path_bench, expected, lengths)[40:45]
    limit = SAME_SCORE if path_bench.kind == "score" else SAME
    assert _difference(path_bench, np.concatenate(of_sequence), few) <= limit


def test_float32_on_request(path_bench: Any, record_property: Record) -> None:
    """Full float32 in every GEMM: TF32 would be wrong by 5e-4 in each."""
    expected = _reference_rows(path_bench).astype(np.float64)
    rows = _rows(path_bench.runner("float32"), _sequences(LENGTHS))
    error = float(np.linalg.norm(rows - expected) / np.linalg.norm(expected))
    record_property("family", path_bench.family.name)
    record_property("float32", error)
    assert error <= 5e-5


def test_eight_and_one_bit_vectors(pplx_bench: Any, record_property: Record) -> None:
    """pplx-embed: round(127 tanh(x)), and the signs."""
    expected = _reference_rows(pplx_bench)
    rows = _rows(pplx_bench.runner(), _sequences(LENGTHS))
    eight, expected_eight = (np.round(127 * np.tanh(each)) for each in (rows, expected))
    changed = float(((rows > 0) != (expected > 0)).mean())
    record_property("changed_bits", changed)
    assert _cosines(eight, expected_eight).min() >= LEAST_COSINE
    # A cosine of 0.9995 is an angle of 1 % of a half turn.
    assert changed <= 0.01


@pytest.mark.parametrize("attention", ["short", "flash_attn", "flashinfer", "fa3_fwd"])
def test_back_ends_agree(path_bench: Any, attention: str) -> None:
    shape = path_bench.shape
    if attention == "fa3_fwd":
        pytest.importorskip("fa3_fwd._C")
    no_windows = attention != "flash_attn"
    if shape.bias is not None or (no_windows and shape.local is not None):
        with pytest.raises(ConfigError, match=f"attention {attention}"):
            path_bench.runner(attention=attention)
        return
    if attention in ("flashinfer", "fa3_fwd") and shape.head_dim == 32:
        pytest.skip(f"{attention} has no head_dim 32")
    expected = _reference_rows(path_bench)
    try:
        runner = path_bench.runner(attention=attention)
    except ConfigError as error:
        if "is not built" not in str(error) and "needs the package" not in str(error):
            raise
        pytest.skip(str(error))
    limit = MOST_SCORE_DIFFERENCE if path_bench.kind == "score" else 1 - LEAST_COSINE
    for _ in range(3):
        assert _difference(path_bench, _rows(runner, _sequences(LENGTHS)), expected) <= limit


def test_a_bad_sequence_does_not_reach_its_neighbours(bench: Any) -> None:
    runner = bench.runner()
    words = (
        runner.model.backbone.words
        if hasattr(runner.model.backbone, "words")
        else runner.model.backbone.embeddings.words
    )
    lengths = (40, 300, 77, 130, 64)
    good = [[min(token, 19000) for token in sequence] for sequence in _sequences(lengths)]
    expected = _of_sequence(bench, _rows(runner, good), lengths)
    words[19999] = torch.nan
    torch.cuda.synchronize()
    for position in (0, 150, 299):
        poisoned = [list(sequence) for sequence in good]
        poisoned[1][position] = 19999
        for _ in range(3):
            rows = _of_sequence(bench, _rows(runner, poisoned), lengths)
            if bench.kind == "tokens":
                # Where a dense vector may stand and does not, there is a zero.
                assert np.isnan(rows[1][:, : bench.reference().dimensions]).all()
                assert np.isnan(rows[1][0]).all()
            else:
                assert np.isnan(rows[1]).all()
            for index in (0, 2, 3, 4):
                np.testing.assert_array_equal(rows[index], expected[index])


def test_random_batches_match_eager(path_bench: Any) -> None:
    runner = path_bench.runner()
    eager = path_bench.runner(graph_config=GraphConfig(max_graphs=0))
    generator = np.random.default_rng(3)
    for step in range(60):
        count = int(generator.integers(1, 30))
        lengths = tuple(int(n) for n in generator.integers(1, 200, count))
        sequences = _sequences(lengths, seed=step)
        np.testing.assert_array_equal(_rows(runner, sequences), _rows(eager, sequences))
    assert runner.graphs.counters.replayed_steps > 0 or not runner.attention.capturable


def test_more_sequences_than_the_largest_tier(path_bench: Any) -> None:
    runner = path_bench.runner(max_batch_sequences=4)
    sequences = _sequences((9,) * 23)
    for _ in range(3):
        rows = _rows(runner, sequences)
    alone = _rows(runner, sequences[:1])
    first = _of_sequence(path_bench, rows, (9,) * 23)[0]
    limit = SAME_SCORE if path_bench.kind == "score" else SAME
    assert _difference(path_bench, first, alone) <= limit
