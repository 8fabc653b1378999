"""Steps on a CUDA device: one copy in, one graph, one copy out, nothing waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace

import torch

from rose.attention import make_attention
from rose.config import BatchLayout, EngineConfig, ModelInfo
from rose.engine.cuda_driver import driver_of
from rose.engine.first_steps import Shape, StepLimits, is_of_memory
from rose.engine.input_slot import InputSlot
from rose.engine.output_ring import OutputRing, OutputSlot, PendingTensor, timing_event
from rose.engine.own_stream import OwnStream
from rose.engine.step_times import StepTimes
from rose.engine.synthetic_batch import fill_with_equal_lengths
from rose.errors import BatchError, DeviceError
from rose.forward_batch import ForwardBatch
from rose.graphs.config import GraphConfig, sequence_tiers, token_buckets
from rose.graphs.cuda_graph import GraphCapture
from rose.graphs.graph_runner import GraphKey, GraphRunner, StepKind
from rose.kernels.cublas_lt import CublasLtError
from rose.kernels.invariance import batch_invariant
from rose.models.base import Model

logger = logging.getLogger(__name__)

# Two steps in flight and one result being read, and one that takes its place.
_OUTPUT_SLOTS = 4
# Of token ids and of rows.
_VALUE_BYTES = 4
# Eager batches whose sizes differ by less share a predicted time.
_EAGER_TIME_STEP = 512
# With fewer graphs all of them are left to traffic.
_MANY_GRAPHS = 16
# Values of an output, 16 MiB, up to which every graph keeps one of its own. Wider ones (rows of tokens,
# rows as wide as a vocabulary) would add up to more than the models themselves.
_LARGEST_OWN_OUTPUT = 1 << 22
# Values of an output slot when it is made, 64 MiB of page-locked memory; larger ones on demand.
_LARGEST_FIRST_SLOT = 1 << 24
# A request of that many batches or fewer is one step: it is faster (gpu_whole_request.json).
_WHOLE_REQUEST_BATCHES = 1.75


class CudaRunner:
    """Owns the device's stream, buffers and graphs. Used by one thread.

    A step is enqueued on one stream: copy of the input slot, model, copy of the rows into a
    page-locked slot, event. The order of the stream is what protects every buffer on the device.
    """

    def __init__(
        self,
        model: Model,
        info: ModelInfo,
        config: EngineConfig,
        graph_config: GraphConfig | None = None,
    ) -> None:
        self.model = model
        self.device = torch.device(info.device)
        dtype = getattr(torch, info.dtype)
        backbone = model.backbone
        self.deterministic = config.deterministic
        self.attention = make_attention(
            config.attention,
            backbone.attention_shape,
            dtype,
            self.device,
            deterministic=config.deterministic,
        )
        graph_config = graph_config or GraphConfig(
            max_tokens=config.graph_max_tokens, max_graphs=config.max_graphs
        )
        if not self.attention.capturable:
            graph_config = GraphConfig(max_tokens=0)
        buckets = token_buckets(graph_config.max_tokens)
        tiers = sequence_tiers(config.max_batch_sequences) if buckets else ()
        self.layout = BatchLayout(
            token_buckets=buckets,
            sequence_tiers=tiers,
            token_types=backbone.token_types,
            position_offset=backbone.position_offset,
            token_rows=getattr(model, "token_rows", False),
            max_whole_request_tokens=int(_WHOLE_REQUEST_BATCHES * config.max_batch_tokens),
        )
        # float32 means float32: some containers switch TF32 on through the environment.
        torch.set_float32_matmul_precision("highest")
        self._own_stream = OwnStream(self.device)
        self.stream = self._own_stream.stream
        # Weights were prepared on the default stream, which ours does not wait for.
        torch.cuda.synchronize(self.device)
        self._width = model.output_width
        self._limits = StepLimits(
            batch_tokens=config.max_batch_tokens,
            whole_request_tokens=self.layout.max_whole_request_tokens,
            max_sequences=config.max_batch_sequences,
            max_sequence_tokens=info.max_sequence_tokens,
            max_positions=backbone.max_positions,
        )
        self._staging = torch.zeros(0, dtype=torch.int32, device=self.device)
        self._staging_address = 0
        self._batches: dict[tuple[int, int], ForwardBatch] = {}
        self._times = StepTimes()
        self._first_value = torch.zeros(1, dtype=torch.int32, device=self.device)
        most_rows = self._limits.max_sequences + 1
        if self.layout.token_rows:
            most_rows = self._limits.max_tokens
        first_values = min(most_rows * self._width, _LARGEST_FIRST_SLOT)
        slots = [self._make_output_slot(first_values) for _ in range(_OUTPUT_SLOTS)]
        self._ring = OutputRing(slots, self._make_output_slot)
        self._shared_output = self._make_shared_output()
        with torch.cuda.device(self.device):
            self.driver = driver_of(self.stream.cuda_stream)
            """None where torch launches everything."""
            self.capture = GraphCapture(self.device)
            self.graphs: GraphRunner[torch.Tensor] = GraphRunner(self.capture, graph_config)
        self.graph_counters = self.graphs.counters

    def make_slot(self, capacity: int) -> InputSlot:
        """A page-locked input buffer of `capacity` int32 values."""
        self._reserve(capacity)
        return InputSlot(capacity, pinned=True)

    def _reserve(self, capacity: int) -> None:
        if self._staging.shape[0] < capacity:
            if len(self.graphs):
                raise BatchError("input slots cannot grow once graphs hold their addresses")
            # On the stream of the steps, which so neither overtake the zeros nor outlive the old one.
            with torch.cuda.stream(self.stream):
                self._staging = torch.zeros(capacity, dtype=torch.int32, device=self.device)
            self._staging_address = self._staging.data_ptr()
            self._batches.clear()

    def step_slot(
        self,
        slot: InputSlot,
        num_tokens: int,
        num_sequences: int,
        max_seqlen: int,
        padded_tokens: int,
        padded_sequences: int,
    ) -> PendingTensor:
        """Starts the step on the batch that was written into `slot` and returns at once.

        Raises:
            DeviceError: the device failed for good.
            RuntimeError: this step failed, such as out of memory.
        """
        num_rows = num_tokens if self.layout.token_rows else num_sequences
        key = self._key(padded_tokens, padded_sequences, max_seqlen)
        output = self._ring.acquire(num_rows * self._width)
        output.timed_as = None
        try:
            kind = self._replay(key, slot, num_rows, output)
            if kind is None:
                with self._own_stream, torch.inference_mode(), batch_invariant(self.deterministic):
                    batch = self._batch(padded_tokens, padded_sequences, slot.buffer)
                    batch.num_tokens = num_tokens
                    batch.num_sequences = num_sequences
                    batch.max_seqlen = max_seqlen
                    kind = self._run(key, batch, slot, num_rows, output)
        except BaseException as error:
            self._ring.release(output)
            if isinstance(error, torch.AcceleratorError):
                raise DeviceError(str(error)) from error
            raise
        if padded_tokens > self._ceiling:
            # Exact sizes would never come again.
            key = GraphKey(-(-padded_tokens // _EAGER_TIME_STEP) * _EAGER_TIME_STEP, 0, "", 0)
            output.timed_as = key
        else:
            # Eager steps also pay for what happens once: they say nothing about replays.
            output.timed_as = key if kind == "replayed" else None
        counters = self.graphs.counters
        counters.tokens += num_tokens
        counters.padding_tokens += padded_tokens - num_tokens
        predicted_seconds = self._times.predicted_seconds(key)
        pending = PendingTensor(self._ring, output, num_rows, self._width, predicted_seconds)
        # While the device computes: what the slot of the next step has measured.
        try:
            self._note_time(self._ring.peek())
        except torch.AcceleratorError as error:
            raise DeviceError(str(error)) from error
        return pending

    def _replay(
        self, key: GraphKey, slot: InputSlot, num_rows: int, output: OutputSlot
    ) -> StepKind | None:
        """The whole step by the driver's own functions, if the shape is captured."""
        direct = None if self.driver is None else self.graphs.direct(key)
        if self.driver is None or direct is None:
            return None
        num_values = self.layout.buffer_len(key.tokens, key.sequences)
        if num_rows > direct.num_rows or num_values > slot.capacity:
            # The driver checks no sizes: torch says what is wrong.
            return None
        self.driver.replay(
            direct.handle,
            (self._staging_address, slot.data_ptr, num_values * _VALUE_BYTES),
            (output.address, direct.rows_address, num_rows * self._width * _VALUE_BYTES),
            output.start.cuda_event,
            output.end.cuda_event,
        )
        self.graphs.counters.replayed_steps += 1
        return "replayed"

    def step(self, batch: ForwardBatch) -> PendingTensor:
        """Starts a step on a batch made by `ForwardBatch.from_sequences` on the host."""
        values = [batch.cu_seqlens, batch.token_ids, batch.positions]
        if batch.token_type_ids is not None:
            values.append(batch.token_type_ids)
        packed = torch.cat([value.cpu() for value in values])
        slot = self.make_slot(packed.shape[0])
        slot.buffer.copy_(packed)
        pending = self.step_slot(
            slot,
            batch.num_tokens,
            batch.num_sequences,
            batch.max_seqlen,
            batch.padded_tokens,
            batch.padded_sequences,
        )
        # The step's own copy may still run when this returns. The caching host allocator keeps a
        # page-locked block until the stream has passed the copies that torch has made of it.
        with self._own_stream:
            self._first_value.copy_(slot.buffer[:1], non_blocking=True)
        return pending

    def compile_kernels(self) -> None:
        """Runs each kernel variant that traffic can reach once, so that no step waits for a compiler.

        First the largest step: where the device's memory is too small for it, requests are split.
        """
        started = time.perf_counter()
        capturable = self.attention.capturable
        shapes = self._limits.of_each_kernel(self.layout, capturable=capturable)
        largest = self._limits.largest(self.layout.max_whole_request_tokens)
        # At once: the first graph makes the addresses final.
        self._reserve(max(self._synthetic_len(*shape[:2]) for shape in (*shapes, largest)))
        if not self._fits(largest, "requests are split into batches", captured=False):
            self.layout = replace(self.layout, max_whole_request_tokens=0)
            self._limits = self._limits.without_whole_requests()
            # A capture cannot make the allocator give back what it keeps.
            torch.cuda.empty_cache()
        with self.graphs.paused():
            for shape in shapes:
                self._run_synthetic(*shape)
        buckets = self.layout.token_buckets
        if buckets and self.graphs.config.max_graphs >= _MANY_GRAPHS:
            # It takes the memory that all graphs share, so that no later capture asks for more.
            tokens = min(self._limits.max_tokens, buckets[-1])
            self._fits(self._limits.largest(tokens), "it has no graph yet", captured=True)
        logger.info("kernels are ready after %.1f s", time.perf_counter() - started)

    def _fits(self, shape: Shape, otherwise: str, *, captured: bool) -> bool:
        """Runs a step, and says whether there is memory for it, and what happens otherwise."""
        try:
            if captured:
                self._run_and_capture(shape)
            else:
                with self.graphs.paused():
                    self._run_synthetic(*shape)
        except (RuntimeError, DeviceError) as error:
            if not is_of_memory(error):
                raise
            logger.warning(
                "memory is too small for a step of %d tokens, %s; lower max_batch_tokens: %s",
                shape[0],
                otherwise,
                error,
            )
            return False
        return True

    def warm_up(self, shapes: Iterable[Shape]) -> None:
        """Runs and captures shapes (tokens, sequences, longest) ahead of traffic.

        Waits for the device: for use before the server is ready, not between steps.
        """
        started = time.perf_counter()
        for shape in shapes:
            self._run_and_capture(shape)
        logger.info(
            "warmed up in %.1f s, %d graphs", time.perf_counter() - started, len(self.graphs)
        )

    def _run_and_capture(self, shape: Shape) -> None:
        for _ in range(self.graphs.config.capture_after + 1):
            self._run_synthetic(*shape)

    def _run_synthetic(self, tokens: int, sequences: int, longest: int) -> None:
        tokens, sequences = self._limits.legal(tokens, sequences)
        padded_tokens, padded_sequences = self.layout.padded_shape(tokens, sequences)
        slot = self.make_slot(self.layout.buffer_len(padded_tokens, padded_sequences))
        fill_with_equal_lengths(slot.buffer.numpy(), self.layout, tokens, sequences)
        step = (slot, tokens, sequences, longest, padded_tokens, padded_sequences)
        try:
            self.step_slot(*step).wait()
        except CublasLtError:
            # Products are torch's from then on, which can do more, or says what is wrong.
            self.step_slot(*step).wait()

    def _synthetic_len(self, tokens: int, sequences: int) -> int:
        shape = self.layout.padded_shape(*self._limits.legal(tokens, sequences))
        return self.layout.buffer_len(*shape)

    def _run(
        self, key: GraphKey, batch: ForwardBatch, slot: InputSlot, num_rows: int, output: OutputSlot
    ) -> StepKind:
        """The step by torch: eager, captured, or replayed."""

        def forward() -> torch.Tensor:
            self.attention.plan(batch)
            rows = self.model(batch, self.attention)
            shared = self._shared_output
            if shared is None or rows.shape[0] > shared.shape[0]:
                return rows
            # A graph's output stays allocated; this way its memory serves the next capture again.
            return shared[: rows.shape[0]].copy_(rows)

        output.start.record(self.stream)
        length = self.layout.buffer_len(batch.padded_tokens, batch.padded_sequences)
        self._staging[:length].copy_(slot.buffer[:length], non_blocking=True)
        rows, kind = self.graphs.run(key, forward)
        flat = output.buffer[: num_rows * self._width].view(num_rows, self._width)
        flat.copy_(rows if rows.shape[0] == num_rows else rows[:num_rows], non_blocking=True)
        output.end.record(self.stream)
        return kind

    @property
    def _ceiling(self) -> int:
        return self.graphs.config.max_tokens

    def _key(self, tokens: int, sequences: int, max_seqlen: int) -> GraphKey:
        if not self.attention.capturable:
            return GraphKey(tokens, sequences, "", 0)
        # What comes with news is allocated on the stream of the steps.
        with self._own_stream if self.attention.has_news else nullcontext():
            variant, longest = self.attention.graph_variant(tokens, sequences, max_seqlen)
        return GraphKey(tokens, sequences, variant, longest)

    def _batch(self, padded_tokens: int, padded_sequences: int, host: torch.Tensor) -> ForwardBatch:
        """Views of the staging buffer; the same ones each time for a shape that is captured."""
        shape = (padded_tokens, padded_sequences)
        batch = self._batches.get(shape)
        cu_seqlens_cpu = host[: padded_sequences + 1].numpy()
        if batch is None:
            batch = ForwardBatch.from_buffer(
                self._staging,
                self.layout,
                num_tokens=padded_tokens,
                num_sequences=padded_sequences,
                max_seqlen=padded_tokens,
                padded_tokens=padded_tokens,
                padded_sequences=padded_sequences,
                cu_seqlens_cpu=cu_seqlens_cpu,
            )
            if padded_tokens <= self._ceiling:
                self._batches[shape] = batch
        batch.cu_seqlens_cpu = cu_seqlens_cpu
        return batch

    def _make_shared_output(self) -> torch.Tensor | None:
        """Where graphs leave their rows, if those are too many for each to keep its own."""
        if not self.layout.token_buckets:
            return None
        most_tokens, _ = self.layout.padded_shape(self._limits.max_tokens, 1)
        most_tokens = min(most_tokens, self.layout.token_buckets[-1])
        rows = most_tokens if self.layout.token_rows else self._limits.max_sequences + 1
        if rows * self._width <= _LARGEST_OWN_OUTPUT:
            return None
        return torch.empty((rows, self._width), dtype=torch.float32, device=self.device)

    def _make_output_slot(self, num_values: int) -> OutputSlot:
        start, end = timing_event(), timing_event()
        # An event has no handle before it is recorded.
        start.record(self.stream)
        end.record(self.stream)
        return OutputSlot(_pinned(num_values), start, end)

    def _note_time(self, slot: OutputSlot | None) -> None:
        """Learns from the step that used the slot last."""
        if slot is None or not isinstance(slot.timed_as, GraphKey) or not slot.end.query():
            return
        key, slot.timed_as = slot.timed_as, None
        self._times.note(key, slot.start.elapsed_time(slot.end))


def _pinned(num_values: int) -> torch.Tensor:
    return torch.empty(num_values, dtype=torch.float32, pin_memory=True)
