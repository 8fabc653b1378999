"""What an engine counts of its CUDA graphs is seen in answers, metrics and status; no GPU needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from rose.client import Client, Graphs
from rose.config import EngineConfig, ServeConfig
from rose.engine.engine import Engine
from rose.graphs.graph_runner import GraphCounters
from rose.http_config import HttpConfig
from rose.server import Server


class CountingEngine(Engine):
    """Runs on the CPU and counts as if each step were a replay of a graph."""

    def count_steps(self) -> None:
        self.graph_counters = GraphCounters(
            eager_steps=3, captures=2, failed_captures=1, capture_seconds=0.5, graph_bytes=4096
        )
        counters, step_slot = self.graph_counters, self.runner.step_slot

        def counted(*arguments: Any) -> Any:
            counters.replayed_steps += 1
            return step_slot(*arguments)

        self.step_slot = counted


def test_counters_reach_whoever_looks(cross_encoder_directory: Path) -> None:
    def load() -> Engine:
        engine = CountingEngine.load(cross_encoder_directory, EngineConfig(device="cpu"))
        assert isinstance(engine, CountingEngine)
        engine.count_steps()
        return engine

    config = ServeConfig(grpc_address="127.0.0.1:0", http=HttpConfig(address="127.0.0.1:0"))
    server = Server(config)
    server.start(load)
    try:
        with Client(server.address) as client:
            first = client.score("q", ["d"]).load.graphs
            second = client.score("q", ["d"]).load.graphs
        assert first is not None
        # The step of an answer may be counted just after it.
        expected = [Graphs(2, 1, 3, replayed, 4096) for replayed in (1, 2)]
        assert second in expected
        http = f"http://{server.http_address}"
        (replica,) = httpx.get(f"{http}/status").json()["replicas"]
        assert replica["graphs"]["replayed_steps"] in (1, 2)
        assert replica["graphs"]["bytes"] == 4096
        lines = httpx.get(f"{http}/metrics").text.splitlines()
    finally:
        assert server.shutdown()
    for line in (
        'tulip_graph_steps_total{kind="eager"} 3',
        "tulip_graph_captures_total 2",
        "tulip_graph_capture_failures_total 1",
        "tulip_graph_capture_seconds 0.5",
        "tulip_graph_bytes 4096",
    ):
        assert line in lines
    assert any(line.startswith('tulip_graph_steps_total{kind="replayed"} ') for line in lines)


def test_a_cpu_has_none(minilm: Any) -> None:
    with Client(minilm.address) as client:
        assert client.score("q", ["d"]).load.graphs is None
