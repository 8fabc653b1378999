"""Eager at first, captured at the second sight of a shape, replayed from then on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from rose.graphs.config import GraphConfig

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
ResultCo = TypeVar("ResultCo", covariant=True)
StepKind = Literal["eager", "captured", "replayed"]


class GraphKey(NamedTuple):
    """What a captured step bakes in."""

    tokens: int
    sequences: int
    attention: str
    """Attention back end."""
    longest: int
    """Bound on the longest sequence that sizes the attention's grid; 0 = none."""


class DirectReplay(NamedTuple):
    """What the driver needs to replay a graph and to copy its rows."""

    handle: int
    """A `cudaGraphExec_t`."""
    rows_address: int
    """Of row-major float32 on the device."""
    num_rows: int


class CapturedGraph(Protocol[ResultCo]):
    """A captured step."""

    @property
    def direct(self) -> DirectReplay | None:
        """For replays without torch; None where only torch can."""

    @property
    def num_bytes(self) -> int:
        """Device memory that the capture took."""

    def replay(self) -> ResultCo:
        """Launches the graph.

        The result is the same object each time, valid until the next launch in the same pool.
        """


@dataclass(slots=True)
class GraphCounters:
    """Totals since start."""

    eager_steps: int = 0
    replayed_steps: int = 0
    captures: int = 0
    failed_captures: int = 0
    capture_seconds: float = 0.0
    graph_bytes: int = 0
    tokens: int = 0
    """Token rows of all steps, without padding."""
    padding_tokens: int = 0


class GraphRunner(Generic[Result]):
    """Owns the graphs of one model on one stream.

    `capture` records a step without running it. All graphs share a memory pool: a result must be
    read, in stream order, before the next step.
    """

    def __init__(
        self,
        capture: Callable[[Callable[[], Result]], CapturedGraph[Result]],
        config: GraphConfig,
    ) -> None:
        self.config = config
        self.counters = GraphCounters()
        self._capture = capture
        self._graphs: dict[GraphKey, CapturedGraph[Result]] = {}
        self._eager_runs: dict[GraphKey, int] = {}
        self._never: set[GraphKey] = set()
        self._paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, shapes that have no graph run eagerly, and it does not count that they did."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def __len__(self) -> int:
        return len(self._graphs)

    def __contains__(self, key: GraphKey) -> bool:
        return key in self._graphs

    def direct(self, key: GraphKey) -> DirectReplay | None:
        """For who replays a captured shape without torch, and counts that."""
        graph = self._graphs.get(key)
        return None if graph is None else graph.direct

    def run(self, key: GraphKey, forward: Callable[[], Result]) -> tuple[Result, StepKind]:
        """One step of a shape; `forward` reads its inputs from addresses that belong to `key`."""
        graph = self._graphs.get(key)
        if graph is not None:
            self.counters.replayed_steps += 1
            return graph.replay(), "replayed"
        if self._wants_capture(key):
            graph = self._try_capture(key, forward)
            if graph is not None:
                self.counters.replayed_steps += 1
                return graph.replay(), "captured"
        self.counters.eager_steps += 1
        return forward(), "eager"

    def _wants_capture(self, key: GraphKey) -> bool:
        full = len(self._graphs) >= self.config.max_graphs
        if self._paused or full or key.tokens > self.config.max_tokens or key in self._never:
            return False
        runs = self._eager_runs.get(key, 0)
        if runs >= self.config.capture_after:
            return True
        self._eager_runs[key] = runs + 1
        return False

    def _try_capture(
        self, key: GraphKey, forward: Callable[[], Result]
    ) -> CapturedGraph[Result] | None:
        started = time.perf_counter()
        try:
            graph = self._capture(forward)
        except RuntimeError as error:
            # The step still runs, eagerly; a device that is broken fails it there.
            self._never.add(key)
            self.counters.failed_captures += 1
            logger.warning("capture of %s failed, it stays eager: %s", key, error)
            return None
        seconds = time.perf_counter() - started
        self._graphs[key] = graph
        self._eager_runs.pop(key, None)
        self.counters.captures += 1
        self.counters.capture_seconds += seconds
        self.counters.graph_bytes += graph.num_bytes
        logger.debug(
            "captured %s in %.1f ms, %.1f MiB", key, seconds * 1e3, graph.num_bytes / 2**20
        )
        if len(self._graphs) == self.config.max_graphs:
            logger.warning(
                "max_graphs %d is reached; other shapes run eagerly", self.config.max_graphs
            )
        return graph
