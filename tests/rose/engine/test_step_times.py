"""Predicted times follow measurements, and forget what happens once."""

from __future__ import annotations

import pytest

from rose.engine.step_times import StepTimes


def test_nothing_is_predicted_of_an_unknown_shape() -> None:
    times = StepTimes()
    times.note("a", 3.0)
    assert times.predicted_seconds("b") is None
    assert times.predicted_seconds("a") == pytest.approx(3e-3)


def test_the_mean_of_what_varies() -> None:
    times = StepTimes()
    for _ in range(50):
        times.note("a", 9.0)
        times.note("a", 11.0)
    assert times.predicted_seconds("a") == pytest.approx(10e-3, rel=0.1)


def test_a_first_step_that_compiled_is_forgotten_at_once() -> None:
    times = StepTimes()
    times.note("a", 1100.0)
    times.note("a", 5.0)
    assert times.predicted_seconds("a") == pytest.approx(5e-3)


def test_one_slow_step_moves_the_prediction_by_a_quarter_at_most() -> None:
    times = StepTimes()
    times.note("a", 8.0)
    times.note("a", 2000.0)
    assert times.predicted_seconds("a") == pytest.approx(10e-3)


def test_a_lasting_change_is_followed() -> None:
    times = StepTimes()
    times.note("a", 8.0)
    for _ in range(40):
        times.note("a", 80.0)
    assert times.predicted_seconds("a") == pytest.approx(80e-3, rel=0.05)
