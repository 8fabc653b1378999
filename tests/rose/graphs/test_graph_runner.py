"""When a step is eager, captured or replayed, with graphs that only remember."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from rose.errors import ConfigError
from rose.graphs.config import GraphConfig
from rose.graphs.graph_runner import GraphKey, GraphRunner

KEY = GraphKey(64, 2, "flash_attn", 64)


@dataclass
class FakeGraph:
    output: str
    replays: int = 0
    num_bytes: int = 1000

    def replay(self) -> str:
        self.replays += 1
        return self.output


@dataclass
class FakeCapture:
    """Records steps; a capture runs `forward` once, as recording does, without its effect."""

    fails: bool = False
    graphs: list[FakeGraph] = field(default_factory=list)

    def __call__(self, forward: Callable[[], str]) -> FakeGraph:
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        graph = FakeGraph(forward())
        self.graphs.append(graph)
        return graph


def _runner(capture: FakeCapture, **config: int) -> GraphRunner[str]:
    return GraphRunner(capture, GraphConfig(**config))


def test_first_eager_second_captured_then_replayed() -> None:
    capture = FakeCapture()
    runner = _runner(capture)
    kinds = [runner.run(KEY, lambda: "rows")[1] for _ in range(4)]
    assert kinds == ["eager", "captured", "replayed", "replayed"]
    assert len(capture.graphs) == 1
    # The capture itself computes nothing: the graph is replayed for the step that captured it.
    assert capture.graphs[0].replays == 3
    assert (runner.counters.eager_steps, runner.counters.replayed_steps) == (1, 3)
    assert runner.counters.captures == 1
    assert runner.counters.graph_bytes == 1000


def test_result_is_that_of_the_step_or_its_graph() -> None:
    runner = _runner(FakeCapture())
    assert runner.run(KEY, lambda: "first")[0] == "first"
    assert runner.run(KEY, lambda: "second")[0] == "second"
    assert runner.run(KEY, lambda: "not called")[0] == "second"


@pytest.mark.parametrize(
    "other",
    [
        KEY._replace(tokens=128),
        KEY._replace(sequences=8),
        KEY._replace(attention="flashinfer"),
        KEY._replace(longest=128),
    ],
)
def test_what_is_baked_in_separates_graphs(other: GraphKey) -> None:
    runner = _runner(FakeCapture())
    for _ in range(2):
        runner.run(KEY, lambda: "one")
    assert runner.run(other, lambda: "other") == ("other", "eager")
    assert KEY in runner
    assert other not in runner


def test_above_the_ceiling_nothing_is_captured() -> None:
    runner = _runner(FakeCapture(), max_tokens=4096)
    large = KEY._replace(tokens=4352)
    assert [runner.run(large, lambda: "rows")[1] for _ in range(3)] == ["eager"] * 3


def test_zero_graphs_switch_capture_off() -> None:
    runner = _runner(FakeCapture(), max_graphs=0)
    assert [runner.run(KEY, lambda: "rows")[1] for _ in range(3)] == ["eager"] * 3


def test_when_full_new_shapes_are_eager_and_old_ones_stay() -> None:
    runner = _runner(FakeCapture(), max_graphs=2)
    keys = [KEY._replace(tokens=64 * index) for index in (1, 2, 3)]
    for key in keys:
        for _ in range(3):
            runner.run(key, lambda: "rows")
    assert len(runner) == 2
    assert [runner.run(key, lambda: "rows")[1] for key in keys] == ["replayed", "replayed", "eager"]


def test_paused_steps_are_eager_and_do_not_count() -> None:
    capture = FakeCapture()
    runner = _runner(capture)
    with runner.paused():
        assert [runner.run(KEY, lambda: "rows")[1] for _ in range(3)] == ["eager"] * 3
    kinds = [runner.run(KEY, lambda: "rows")[1] for _ in range(3)]
    assert kinds == ["eager", "captured", "replayed"]
    with runner.paused():
        assert runner.run(KEY, lambda: "rows")[1] == "replayed"


def test_failed_capture_runs_eagerly_and_is_not_tried_again() -> None:
    capture = FakeCapture(fails=True)
    runner = _runner(capture)
    results = [runner.run(KEY, lambda: "rows") for _ in range(4)]
    assert results == [("rows", "eager")] * 4
    assert runner.counters.failed_captures == 1
    # Another shape is not affected.
    capture.fails = False
    other = KEY._replace(tokens=128)
    assert [runner.run(other, lambda: "rows")[1] for _ in range(2)] == ["eager", "captured"]


def test_step_that_raises_leaves_no_graph() -> None:
    def broken() -> str:
        raise ValueError("no such token")

    runner = _runner(FakeCapture())
    for _ in range(2):
        with pytest.raises(ValueError, match="no such token"):
            runner.run(KEY, broken)
    assert KEY not in runner


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", -1), ("max_graphs", -1), ("capture_after", 0), ("max_tokens", True)],
)
def test_options_are_checked(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        GraphConfig(**{name: value})
