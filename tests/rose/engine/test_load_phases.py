"""A load says where its time went."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.engine.load_phases import LoadPhases

PHASES = ["read", "device", "weights", "fingerprint", "runner", "kernels", "warm-up"]


def test_in_one_line_of_the_log(
    minilm_directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server in this process may have turned it off.
    monkeypatch.setattr(logging.getLogger("rose"), "propagate", True)
    with caplog.at_level(logging.INFO, "rose"):
        engine = Engine.load(minilm_directory, EngineConfig(device="cpu"))
    # Servers of other tests may load at the same time, and a record may come by two handlers.
    mine = {id(r): r.getMessage() for r in caplog.records if r.thread == threading.get_ident()}
    (line,) = [message for message in mine.values() if message.startswith("loaded ")]
    total, listed = re.fullmatch(r"loaded .* in ([0-9.]+) s: (.*)", line).groups()  # type: ignore[union-attr]
    assert [part.split()[0] for part in listed.split(", ")] == PHASES
    assert list(engine.load_phases.seconds) == PHASES
    named = sum(engine.load_phases.seconds.values())
    assert 0.5 * float(total) <= named <= float(total) + 0.05


def test_a_phase_that_comes_again_and_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 1.0, 3.0, 4.0, 4.5])
    clock = SimpleNamespace(perf_counter=lambda: next(times))
    monkeypatch.setattr("rose.engine.load_phases.time", clock)
    phases = LoadPhases()
    with phases.measure("read"):
        pass
    with phases.measure("weights"):
        pass
    with pytest.raises(RuntimeError), phases.measure("read"):
        raise RuntimeError
    assert str(phases) == "read 1.50, weights 2.00"
