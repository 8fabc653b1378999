"""Model time on one GPU: steps of published shapes, captured and replayed.

    python benches/gpu_model.py --out benches/results/gpu_model.json

`model_ms` is the time between events around each of many replays queued back to back; `step_ms` the
wall time of one step alone, from the call to rows on the host; `two_in_flight_ms` the time of a step
when the next is always queued, as under load; `call_us` the host's time in `step_slot`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpu_shapes import MODELS, make_runner
from rose.engine.cuda_runner import CudaRunner
from rose.engine.input_slot import InputSlot
from rose.engine.synthetic_batch import fill_with_equal_lengths
from rose.graphs.config import GraphConfig

SHAPES = (
    (1, 16),
    (1, 128),
    (1, 512),
    (1, 4096),
    (5, 512),
    (8, 128),
    (25, 512),
    (64, 64),
    (50, 512),
    (100, 512),
)


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 4),
        "p99": round(ordered[int(len(ordered) * 0.99) - (len(ordered) >= 100)], 4),
    }


def measure(runner: CudaRunner, sequences: int, length: int) -> dict[str, Any]:
    tokens = sequences * length
    shape = runner.layout.padded_shape(tokens, sequences)
    slots = [runner.make_slot(runner.layout.buffer_len(*shape)) for _ in range(3)]
    vocab_size = runner.model.backbone.vocab_size
    for slot in slots:
        values = slot.buffer.numpy()
        fill_with_equal_lengths(values, runner.layout, tokens, sequences)
        ids = torch.randint(3, vocab_size, (tokens,), dtype=torch.int32)
        values[shape[1] + 1 : shape[1] + 1 + tokens] = ids.numpy()

    def step(slot: InputSlot) -> Any:
        return runner.step_slot(slot, tokens, sequences, length, *shape)

    counters = runner.graphs.counters
    before = replace(counters)
    for _ in range(4):
        step(slots[0]).wait()
    captures = counters.captures - before.captures
    capture_ms = (counters.capture_seconds - before.capture_seconds) * 1e3
    repeats = 300 if tokens <= 4096 else 40
    walls, calls = [], []
    for index in range(repeats):
        started = time.perf_counter()
        pending = step(slots[index % 3])
        calls.append((time.perf_counter() - started) * 1e6)
        while not pending.is_ready():
            pass
        walls.append((time.perf_counter() - started) * 1e3)
    started = time.perf_counter()
    in_flight = [step(slots[0])]
    for index in range(1, repeats):
        in_flight.append(step(slots[index % 3]))
        in_flight.pop(0).wait()
    in_flight.pop().wait()
    two_in_flight = (time.perf_counter() - started) * 1e3 / repeats
    model_ms = replay_times(runner, step, slots[0], repeats)
    median = statistics.median(model_ms)
    return {
        "sequences": sequences,
        "length": length,
        "padded": list(shape),
        "model_ms": percentiles(model_ms),
        "step_ms": percentiles(walls),
        "call_us": percentiles(calls),
        # None where a shape before has the same graph, or it runs eagerly.
        "capture_ms": round(capture_ms, 2) if captures else None,
        "two_in_flight_ms": round(two_in_flight, 4),
        "ktok_per_s": round(tokens / median, 1),
        "ktok_per_s_two_in_flight": round(tokens / two_in_flight, 1),
    }


def replay_times(runner: CudaRunner, step: Any, slot: InputSlot, repeats: int) -> list[float]:
    """Milliseconds between events around each step's model, without the copies."""
    events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    run = runner.graphs.run

    def timed(key: Any, forward: Any) -> Any:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        result = run(key, forward)
        end.record()
        events.append((start, end))
        return result

    runner.graphs.run = timed  # type: ignore[method-assign]
    # Launched by torch, so that the events are beside the model alone.
    driver, runner.driver = runner.driver, None
    try:
        with torch.cuda.stream(runner.stream):
            torch.cuda._sleep(20_000_000)  # the queue fills while the device is busy
        pending = [step(slot) for _ in range(min(repeats, 100))]
        for tensor in pending:
            tensor.wait()
        for _ in range(repeats - len(pending)):
            step(slot).wait()
    finally:
        runner.graphs.run = run  # type: ignore[method-assign]
        runner.driver = driver
    return [start.elapsed_time(end) for start, end in events]


def kernel_times(runner: CudaRunner, sequences: int, length: int, repeats: int = 5) -> Any:
    """Microseconds a step by kernel, most expensive first."""
    tokens = sequences * length
    shape = runner.layout.padded_shape(tokens, sequences)
    slot = runner.make_slot(runner.layout.buffer_len(*shape))
    fill_with_equal_lengths(slot.buffer.numpy(), runner.layout, tokens, sequences)
    for _ in range(3):
        runner.step_slot(slot, tokens, sequences, length, *shape).wait()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            runner.step_slot(slot, tokens, sequences, length, *shape).wait()
    rows = [
        (event.key[:90], event.count // repeats, round(event.self_device_time_total / repeats, 1))
        for event in profile.key_averages()
    ]
    return sorted((row for row in rows if row[2] > 0), key=lambda row: -row[2])[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS)[:3])
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--max-graph-tokens", type=int, default=28672)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "attention": arguments.attention,
        "models": {},
    }
    for name in arguments.models:
        started = time.perf_counter()
        runner = make_runner(
            name,
            attention=arguments.attention,
            graph_config=GraphConfig(max_tokens=arguments.max_graph_tokens),
        )
        at_start = replace(runner.graphs.counters)
        entry: dict[str, Any] = {"ready_s": round(time.perf_counter() - started, 2), "shapes": []}
        for sequences, length in SHAPES:
            if length > runner.model.backbone.max_positions:
                continue
            result = measure(runner, sequences, length)
            entry["shapes"].append(result)
            print(
                name,
                f"{sequences}x{length}",
                "model",
                result["model_ms"],
                "step",
                result["step_ms"],
                "two",
                result["two_in_flight_ms"],
                "call_us",
                result["call_us"]["p50"],
                "ktok/s",
                result["ktok_per_s"],
                flush=True,
            )
        counters = runner.graphs.counters
        captures = counters.captures - at_start.captures
        if captures:
            times = [shape["capture_ms"] for shape in entry["shapes"] if shape["capture_ms"]]
            graph_bytes = counters.graph_bytes - at_start.graph_bytes
            entry["capture_ms"] = {"p50": statistics.median(times), "most": max(times)}
            entry["graph_mib"] = round(graph_bytes / captures / 2**20, 2)
            entry["captures"] = captures
            entry["failed_captures"] = counters.failed_captures
            entry["pool_mib"] = round(runner.capture.pool_bytes / 2**20, 1)
        print(name, {k: v for k, v in entry.items() if k != "shapes"}, flush=True)
        report["models"][name] = entry
        arguments.out.write_text(json.dumps(report, indent=1))
        del runner
        torch.cuda.empty_cache()
    # Last: a profiler that has once been on slows launches down for good.
    for name in arguments.models if arguments.profile else ():
        runner = make_runner(name, attention=arguments.attention)
        kernels_us = report["models"][name]["kernels_us"] = {}
        for sequences, length in ((1, 128), (25, 512)):
            kernels_us[f"{sequences}x{length}"] = kernel_times(runner, sequences, length)
        arguments.out.write_text(json.dumps(report, indent=1))
        del runner


if __name__ == "__main__":
    main()
