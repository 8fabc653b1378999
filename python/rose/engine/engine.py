"""The engine: one loaded model, one step at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from rose.attention import make_attention
from rose.config import BatchLayout, EngineConfig, ModelInfo
from rose.engine.cpu_runner import CpuRunner
from rose.engine.input_slot import InputSlot, slot_capacity
from rose.engine.load import load_model
from rose.engine.load_phases import LoadPhases
from rose.forward_batch import ForwardBatch
from rose.graphs.graph_runner import GraphCounters
from rose.lazy_tensor import LazyTensor
from rose.models.base import Model

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """Runs steps on one kind of device."""

    layout: BatchLayout

    @property
    def graph_counters(self) -> GraphCounters | None:
        """What its graphs did so far; None without graphs."""

    def make_slot(self, capacity: int) -> InputSlot:
        """An input buffer of `capacity` int32 values."""

    def compile_kernels(self) -> None:
        """Makes sure that no step will wait for a compiler; called once, after the slots are made."""

    def warm_up(self, shapes: Iterable[tuple[int, int, int]]) -> None:
        """Prepares shapes (tokens, sequences, longest) ahead of traffic."""

    def step(self, batch: ForwardBatch) -> LazyTensor:
        """Starts a step on a batch that lies in host memory."""

    def step_slot(
        self,
        slot: InputSlot,
        num_tokens: int,
        num_sequences: int,
        max_seqlen: int,
        padded_tokens: int,
        padded_sequences: int,
    ) -> LazyTensor:
        """Starts a step on the batch that was written into `slot`."""


class Engine:
    """A loaded model. Owned by one thread.

    `step_slot` is what the server calls: it fills one of `input_slots` as `info.layout` says and
    passes the batch's sizes. The slot may be filled again once the `LazyTensor` is ready.
    """

    def __init__(
        self,
        model: Model,
        info: ModelInfo,
        config: EngineConfig,
        phases: LoadPhases | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.directory: Path | None = None
        self.load_phases = phases or LoadPhases()
        """Where the time went until the engine was ready."""
        measure = self.load_phases.measure
        with measure("runner"):
            self.runner = _make_runner(model, info, config)
        capacity = slot_capacity(
            self.runner.layout,
            max(config.max_batch_tokens, self.runner.layout.max_whole_request_tokens),
            config.max_batch_sequences,
            info.max_sequence_tokens,
        )
        with measure("runner"):
            slots = range(config.num_input_slots)
            self.input_slots = [self.runner.make_slot(capacity) for _ in slots]
        self.step_slot = self.runner.step_slot
        self.graph_counters = self.runner.graph_counters
        with measure("kernels"):
            self.runner.compile_kernels()
        # It says how large a step may be, now that the largest has been tried.
        self.info = replace(info, layout=self.runner.layout)
        with measure("warm-up"):
            self.runner.warm_up((tokens, 1, tokens) for tokens in config.warmup_tokens)

    @classmethod
    def load(cls, model: str | Path, config: EngineConfig | None = None) -> Engine:
        """Loads a model directory, a model from the hub, or `demo`.

        Raises:
            ModelLoadError: there is no such model or its files cannot be used.
            ConfigError: an option does not fit the model or the machine.
        """
        config = config or EngineConfig()
        started = time.perf_counter()
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        phases = LoadPhases()
        loaded, info, directory = load_model(model, config, phases)
        engine = cls(loaded, info, config, phases)
        engine.directory = directory
        logger.info(
            "loaded %s (%s, %s on %s) in %.2f s: %s",
            info.name,
            info.architecture,
            info.dtype,
            info.device,
            time.perf_counter() - started,
            phases,
        )
        return engine

    def step(self, batch: ForwardBatch) -> LazyTensor:
        """Starts the computation of a batch: [num_sequences, info.output_width] float32.

        `batch` must be laid out as `info.layout` says.
        """
        return self.runner.step(batch)


def _make_runner(model: Model, info: ModelInfo, config: EngineConfig) -> Runner:
    device, dtype = torch.device(info.device), getattr(torch, info.dtype)
    if device.type == "cpu":
        shape = model.backbone.attention_shape
        return CpuRunner(
            model,
            lambda: make_attention(config.attention, shape, dtype, device),
            deterministic=config.deterministic,
        )
    # Imported here: CPU use must not load triton.
    from rose.engine.cuda_runner import CudaRunner

    runner: Runner = CudaRunner(model, info, config)
    return runner
