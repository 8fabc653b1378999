"""How long steps of a shape take, from those before."""

from __future__ import annotations

from collections.abc import Hashable

# Weight of the newest measurement.
_GAIN = 0.25
# No single measurement counts for more than so many times what is known: whoever waits sleeps through
# the predicted time, and must not oversleep because a kernel was once compiled in a step.
_MOST_GROWTH = 2.0


class StepTimes:
    """Milliseconds by shape, smoothed. Short ones are believed at once, long ones bit by bit."""

    def __init__(self) -> None:
        self._known_ms: dict[Hashable, float] = {}

    def note(self, key: Hashable, measured_ms: float) -> None:
        """A step of this shape took so long."""
        known = self._known_ms.get(key)
        if known is None or measured_ms * _MOST_GROWTH < known:
            self._known_ms[key] = measured_ms
        else:
            measured_ms = min(measured_ms, _MOST_GROWTH * known)
            self._known_ms[key] = known + _GAIN * (measured_ms - known)

    def predicted_seconds(self, key: Hashable) -> float | None:
        """Of the next step of this shape; None before the first measurement."""
        known = self._known_ms.get(key)
        return None if known is None else known * 1e-3
