"""Deterministic steps on a GPU: a sequence's row has the same bits in every batch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from rose.checkpoint.json_object import JsonObject
from rose.forward_batch import ForwardBatch
from rose.graphs.config import GraphConfig
from rose.kernels.invariant_linear import invariant_linear
from rose.models.bert import BertModel
from rose.models.causal_reranker import CausalReranker
from rose.models.modernbert import ModernBertModel
from rose.models.mpnet import MPNetModel
from rose.models.qwen3 import Qwen3Model
from rose.models.xlm_roberta import XLMRobertaForSequenceClassification

from .conftest import BGE_M3, MODERNBERT, QWEN3, ROBERTA, SMALL, Bench, Family, _score, _vector

pytestmark = pytest.mark.gpu

COMPOSITIONS = 1000
MOST_SEQUENCES = 60
LONGEST = 600
# Of real widths, with few layers: what a batch changes it changes in each.
LAYERS = {"num_hidden_layers": 3}
# The greater part of the larger batches is above it and runs eagerly.
GRAPHS = GraphConfig(max_tokens=4096, max_graphs=64)


def _qwen3_reranker(weights: Any) -> CausalReranker:
    config = JsonObject("config.json", QWEN3 | LAYERS)
    return CausalReranker(Qwen3Model, config, weights, 17, 4)


FAMILIES = (
    (
        _score("bge-reranker-v2-m3", XLMRobertaForSequenceClassification, BGE_M3 | LAYERS),
        "bfloat16",
    ),
    (_vector("qwen3-embedding", Qwen3Model, QWEN3 | LAYERS, "last_token"), "bfloat16"),
    (_vector("qwen3-embedding-mean", Qwen3Model, QWEN3 | LAYERS, "mean"), "bfloat16"),
    (Family("qwen3-reranker", "score", _qwen3_reranker), "bfloat16"),
    (_vector("modernbert", ModernBertModel, MODERNBERT | LAYERS, "cls"), "bfloat16"),
    (_vector("mpnet", MPNetModel, ROBERTA | LAYERS, "mean"), "bfloat16"),
    (_vector("bert-float32", BertModel, SMALL | LAYERS, "mean"), "float32"),
)


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda entry: entry[0].name)
def entry(request: pytest.FixtureRequest) -> tuple[Bench, str]:
    family, dtype = request.param
    return Bench(family), dtype


def _sequences() -> list[list[int]]:
    """80 of one token to 600, some of equal length and some at the edges of tiles."""
    generator = random.Random(2)
    lengths = [1, 1, 2, 63, 64, 65, 127, 128, 129, 192, 193, LONGEST]
    lengths += [generator.choice((3, 17, 40, 256)) for _ in range(20)]
    lengths += [generator.randint(1, LONGEST) for _ in range(80 - len(lengths))]
    return [[generator.randint(3, 19000) for _ in range(length)] for length in lengths]


def _compositions(count: int, num_sequences: int) -> list[list[int]]:
    """Indices of sequences, one to 60 of them; the smaller batches are as frequent as the larger."""
    generator = random.Random(3)
    return [
        [
            generator.randrange(num_sequences)
            for _ in range(min(MOST_SEQUENCES, int(2 ** generator.uniform(0, 6))))
        ]
        for _ in range(count)
    ]


def _bits(runner: Any, some: list[list[int]]) -> npt.NDArray[np.uint32]:
    rows = runner.step(ForwardBatch.from_sequences(some, runner.layout)).numpy()
    assert np.isfinite(rows).all()
    bits: npt.NDArray[np.uint32] = rows.copy().view(np.uint32)
    return bits


def _count_differences(runner: Any, compositions: int, alone_by: Any = None) -> int:
    every = _sequences()
    alone = np.concatenate([_bits(alone_by or runner, [one]) for one in every])
    # Rows of different sequences differ, or equal bits would say nothing. Some scores of 16 bits meet.
    assert len(np.unique(alone, axis=0)) > len(every) // 4
    differences = 0
    for chosen in _compositions(compositions, len(every)):
        found = _bits(runner, [every[index] for index in chosen])
        differences += bool((found != alone[chosen]).any())
    return differences


def test_a_thousand_compositions_have_the_same_bits(entry: tuple[Bench, str]) -> None:
    bench, dtype = entry
    runner = bench.runner(dtype, deterministic=True, graph_config=GRAPHS)
    assert _count_differences(runner, COMPOSITIONS) == 0
    counters = runner.graphs.counters
    assert counters.eager_steps > 100
    if runner.attention.capturable:
        assert counters.replayed_steps > 100
        assert counters.failed_captures == 0


def test_padding_and_graphs_do_not_matter(entry: tuple[Bench, str]) -> None:
    bench, dtype = entry
    runner = bench.runner(dtype, deterministic=True, graph_config=GRAPHS)
    exact = bench.runner(dtype, deterministic=True, graph_config=GraphConfig(max_tokens=0))
    assert exact.layout.token_buckets == ()
    assert _count_differences(runner, 30, alone_by=exact) == 0


def test_close_to_the_default(entry: tuple[Bench, str]) -> None:
    bench, dtype = entry
    every = _sequences()[:30]
    rows, expected = (
        _bits(bench.runner(dtype, deterministic=mode, graph_config=GRAPHS), every).view(np.float32)
        for mode in (True, False)
    )
    if bench.kind == "score":
        assert np.abs(1 / (1 + np.exp(-rows)) - 1 / (1 + np.exp(-expected))).max() <= 0.01
    else:
        assert (rows * expected).sum(1).min() >= (0.999 if dtype == "bfloat16" else 0.999999)


def test_without_it_bits_differ(entry: tuple[Bench, str]) -> None:
    """Guards the tests above: company does change bits where nothing is done about it."""
    bench, dtype = entry
    assert _count_differences(bench.runner(dtype, graph_config=GRAPHS), 60) > 0


def test_engines_of_both_modes_in_one_process(entry: tuple[Bench, str]) -> None:
    bench, dtype = entry
    runners = {
        mode: bench.runner(dtype, deterministic=mode, graph_config=GRAPHS) for mode in (True, False)
    }
    every = _sequences()
    expected = {mode: _bits(runner, every[:20]) for mode, runner in runners.items()}
    for _ in range(3):
        for mode, runner in runners.items():
            np.testing.assert_array_equal(_bits(runner, every[:20]), expected[mode])
    assert (expected[True] != expected[False]).any()


@pytest.mark.parametrize(
    ("dtype", "width", "depth"),
    [
        (torch.bfloat16, 1, 1024),
        (torch.bfloat16, 50, 100),
        (torch.bfloat16, 1000, 72),
        (torch.bfloat16, 3072, 1024),
        (torch.float16, 384, 1536),
        (torch.float32, 3, 384),
        (torch.float32, 1000, 72),
    ],
)
def test_linear_layer(dtype: torch.dtype, width: int, depth: int) -> None:
    """Close to the exact product, and the same bits for any number of rows."""
    generator = torch.Generator("cuda").manual_seed(0)

    def random_values(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda").to(dtype)

    x, weight = random_values(2500, depth), random_values(width, depth) / depth**0.5
    bias, residual = random_values(width), random_values(2500, width)
    whole = invariant_linear(x, weight, bias, residual=residual)
    exact = x.double() @ weight.double().t() + bias.double() + residual.double()
    # Half a unit in the last place of values below 16, or the rounding of float32 sums.
    tolerance = {torch.bfloat16: 2**-5, torch.float16: 2**-8, torch.float32: 2e-5}[dtype]
    assert (whole.double() - exact).abs().max().item() <= 1.01 * tolerance
    for rows in (1, 2, 63, 64, 65, 127, 128, 129, 1000, 2499):
        first = 2500 - rows
        part = invariant_linear(x[first:], weight, bias, residual=residual[first:])
        assert torch.equal(part, whole[first:]), rows
