"""Where the seconds of a load go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class LoadPhases:
    """Seconds of each phase, in the order in which they ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Adds the time of the block to the phase `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.seconds.items())
