"""16-bit rows on the GPU against float32 on CPU, and against themselves in other company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rose.attention import make_attention
from rose.config import BatchLayout
from rose.errors import ConfigError
from rose.forward_batch import ForwardBatch
from rose.graphs.config import GraphConfig

pytestmark = pytest.mark.gpu

LENGTHS = (1, 2048, 16, 17, 63, 64, 65, 127, 130, 200, 511, 5)
# Another batch size selects other GEMM kernels, which round elsewhere. Of vectors of length 1: one
# minus the cosine; of scores: the difference.
SAME = 1e-3
SAME_SCORE = 1e-2


def _sequences(lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 20000, (n,), generator=generator).tolist() for n in lengths]


def _rows(runner: Any, sequences: list[list[int]]) -> np.ndarray:
    return runner.step(ForwardBatch.from_sequences(sequences, runner.layout)).numpy()


def _assert_same(bench: Any, rows: np.ndarray, expected: np.ndarray) -> None:
    assert np.isfinite(rows).all()
    if bench.is_score:
        assert np.abs(_sigmoid(rows) - _sigmoid(expected)).max() <= SAME_SCORE
    else:
        assert 1 - (rows * expected).sum(1).min() <= SAME


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


@torch.inference_mode()
def _reference_rows(bench: Any, sequences: list[list[int]]) -> np.ndarray:
    if 0 in bench.reference_rows:
        return bench.reference_rows[0]
    model = bench.reference()
    backbone = model.backbone
    layout = BatchLayout(token_types=backbone.token_types, position_offset=backbone.position_offset)
    batch = ForwardBatch.from_sequences(sequences, layout)
    attention = make_attention("sdpa", backbone.attention_shape, torch.float32, torch.device("cpu"))
    attention.plan(batch)
    bench.reference_rows[0] = model(batch, attention).numpy()
    return bench.reference_rows[0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_close_to_float32(bench: Any, dtype: str) -> None:
    sequences = _sequences(LENGTHS)
    expected = _reference_rows(bench, sequences)
    rows = _rows(bench.runner(dtype), sequences)
    if bench.is_score:
        assert np.abs(_sigmoid(rows) - _sigmoid(expected)).max() <= 0.01
    else:
        assert (rows * expected).sum(1).min() >= 0.9995


def test_alone_batched_padded_captured_replayed(bench: Any) -> None:
    sequences = _sequences(LENGTHS)
    eager = bench.runner(graph_config=GraphConfig(max_graphs=0))
    alone = np.concatenate([_rows(eager, [sequence]) for sequence in sequences])
    exact = bench.runner(graph_config=GraphConfig(max_tokens=0))
    assert exact.layout.token_buckets == ()
    _assert_same(bench, _rows(exact, sequences), alone)
    padded = _rows(eager, sequences)
    _assert_same(bench, padded, alone)

    runner = bench.runner()
    other = _sequences((700, 3, 1024, 300, 511, 100, 90, 60, 7, 452), seed=1)
    other_padded = _rows(eager, other)
    for _ in range(3):
        # The same kernels on the same shapes: bit for bit.
        np.testing.assert_array_equal(_rows(runner, sequences), padded)
        # The same bucket with other lengths: the graph must not have baked the first ones.
        np.testing.assert_array_equal(_rows(runner, other), other_padded)
    if not runner.attention.capturable:
        assert bench.shape.bias is not None
        assert len(runner.graphs) == 0
        return
    assert len(runner.graphs) <= 2
    assert runner.graphs.counters.captures >= 1
    assert runner.graphs.counters.failed_captures == 0


@pytest.mark.parametrize("attention", ["flash_attn", "flashinfer", "fa3_fwd"])
def test_back_ends_agree(bench: Any, attention: str) -> None:
    shape = bench.shape
    if attention == "fa3_fwd":
        pytest.importorskip("fa3_fwd._C")
    no_windows = attention != "flash_attn"
    if shape.bias is not None or (no_windows and shape.local is not None):
        with pytest.raises(ConfigError, match=f"attention {attention} has no"):
            bench.runner(attention=attention)
        return
    if attention != "flash_attn" and shape.head_dim == 32:
        pytest.skip(f"{attention} has no head_dim 32")
    sequences = _sequences(LENGTHS)
    expected = _reference_rows(bench, sequences)
    runner = bench.runner(attention=attention)
    for _ in range(3):
        _assert_same(bench, _rows(runner, sequences), expected)


def test_a_bad_sequence_does_not_reach_its_neighbours(bench: Any) -> None:
    runner = bench.runner()
    words = (
        runner.model.backbone.words
        if hasattr(runner.model.backbone, "words")
        else runner.model.backbone.embeddings.words
    )
    sequences = _sequences((40, 300, 77, 130, 64))
    good = [[min(token, 19000) for token in sequence] for sequence in sequences]
    expected = _rows(runner, good)
    words[19999] = torch.nan
    for position in (0, 150, 299):
        poisoned = [list(sequence) for sequence in good]
        poisoned[1][position] = 19999
        for _ in range(3):
            rows = _rows(runner, poisoned)
            assert np.isnan(rows[1]).all()
            others = [0, 2, 3, 4]
            np.testing.assert_array_equal(rows[others], expected[others])


def test_random_batches_match_eager(bench: Any) -> None:
    runner, eager = bench.runner(), bench.runner(graph_config=GraphConfig(max_graphs=0))
    generator = np.random.default_rng(3)
    for step in range(60):
        count = int(generator.integers(1, 30))
        lengths = tuple(int(n) for n in generator.integers(1, 200, count))
        sequences = _sequences(lengths, seed=step)
        np.testing.assert_array_equal(_rows(runner, sequences), _rows(eager, sequences))
    assert runner.graphs.counters.replayed_steps > 0 or not runner.attention.capturable
