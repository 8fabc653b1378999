"""Deterministic steps: the bits of a row do not depend on what else is in the step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch

COMPOSITIONS = 1000


def sequences() -> list[list[int]]:
    """40 of one token to 130, some of equal length."""
    generator = random.Random(2)
    lengths = [1, 2, 130, *(generator.choice((3, 17, 40, 41, 64)) for _ in range(20))]
    lengths += [generator.randint(1, 100) for _ in range(40 - len(lengths))]
    return [[generator.randint(1000, 30000) for _ in range(length)] for length in lengths]


def rows(engine: Engine, some: list[list[int]]) -> npt.NDArray[np.uint32]:
    batch = ForwardBatch.from_sequences(some, engine.info.layout)
    bits: npt.NDArray[np.uint32] = engine.step(batch).numpy().copy().view(np.uint32)
    return bits


def count_differences(engine: Engine, compositions: int) -> int:
    every = sequences()
    alone = [rows(engine, [one])[0] for one in every]
    generator = random.Random(3)
    differences = 0
    for _ in range(compositions):
        chosen = [generator.randrange(len(every)) for _ in range(generator.randint(1, 12))]
        found = rows(engine, [every[index] for index in chosen])
        expected = np.stack([alone[index] for index in chosen])
        differences += bool((found != expected).any())
    return differences


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_thousand_compositions_have_the_same_bits(make_bert: Any, dtype: Any) -> None:
    directory = make_bert("deterministic")
    config = EngineConfig(device="cpu", dtype=dtype, deterministic=True)
    assert count_differences(Engine.load(directory, config), COMPOSITIONS) == 0


def test_the_same_for_a_real_model(minilm_directory: Path) -> None:
    config = EngineConfig(device="cpu", deterministic=True)
    assert count_differences(Engine.load(minilm_directory, config), 60) == 0


def test_without_it_bits_differ(minilm_directory: Path) -> None:
    """Guards the tests above: company does change bits where nothing is done about it."""
    assert count_differences(Engine.load(minilm_directory, EngineConfig(device="cpu")), 30) > 0
