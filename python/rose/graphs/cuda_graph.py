"""Raw capture of a step in a live process."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rose.graphs.graph_runner import DirectReplay


class CudaGraph:
    """A captured step and its output, which lives in the graphs' pool."""

    __slots__ = ("_graph", "_output", "direct", "num_bytes")

    def __init__(self, graph: torch.cuda.CUDAGraph, output: torch.Tensor, num_bytes: int) -> None:
        self._graph = graph
        self._output = output
        self.num_bytes = num_bytes
        """Device memory of the graph itself; activations live in the pool that all share."""
        self.direct: DirectReplay | None = None
        # torch has it since 2.9.
        if hasattr(graph, "raw_cuda_graph_exec") and _is_plain(output):
            self.direct = DirectReplay(
                graph.raw_cuda_graph_exec(), output.data_ptr(), output.shape[0]
            )

    def replay(self) -> torch.Tensor:
        """Launches the graph on the current stream."""
        self._graph.replay()
        return self._output


def _is_plain(rows: torch.Tensor) -> bool:
    return rows.dtype == torch.float32 and rows.is_contiguous()


class GraphCapture:
    """Captures steps into one memory pool.

    `torch.cuda.graph` is not used: it synchronizes the device and empties the allocators' caches.
    In thread-local mode other threads may call the driver meanwhile (the waiter queries events).
    The caller's stream must not be the default one, and each shape must have run eagerly before:
    libraries load kernels and allocate workspaces on first use, which a capture forbids.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self.pool_bytes = 0
        """Device memory of the activations of all graphs together."""

    def __call__(self, forward: Callable[[], torch.Tensor]) -> CudaGraph:
        """Records what `forward` launches on the current stream; nothing runs.

        Raises:
            RuntimeError: something in it cannot be captured.
        """
        # Each thread has a handle of its own, and making one inside a capture fails: the first
        # eager run of this shape may have been on another thread.
        torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
        reserved_before = self._reserved()
        free_before, _ = torch.cuda.mem_get_info(self._device)
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            output = forward()
        except BaseException:
            self._abandon(graph)
            raise
        graph.capture_end()
        free_after, _ = torch.cuda.mem_get_info(self._device)
        pool_growth = self._reserved() - reserved_before
        self.pool_bytes += pool_growth
        return CudaGraph(graph, output, max(0, free_before - free_after - pool_growth))

    def _reserved(self) -> int:
        # `torch.cuda.memory_reserved` makes a flat table of all figures first.
        stats = torch.cuda.memory_stats_as_nested_dict(self._device)
        return int(stats["reserved_bytes"]["all"]["current"])

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        try:
            graph.capture_end()
        except RuntimeError:
            # The failure that is being reported has already invalidated the capture. The
            # allocator must be told, or it would take the next capture for a nested one.
            index = (
                torch.cuda.current_device() if self._device.index is None else self._device.index
            )
            torch._C._cuda_endAllocateToPool(index, self._pool)
            return
        graph.reset()
