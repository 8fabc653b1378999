"""Descriptors of weights are made once, and die with them."""

from __future__ import annotations

import gc
import weakref

import torch

from rose.kernels import descriptor
from rose.kernels.descriptor import weight_descriptor


def test_one_for_each_weight_and_tile() -> None:
    weight, other = torch.zeros(64, 64), torch.zeros(64, 64)
    found = weight_descriptor(weight, [32, 32])
    assert weight_descriptor(weight, [32, 32]) is found
    assert weight_descriptor(weight, [16, 32]) is not found
    assert weight_descriptor(other, [32, 32]) is not found
    assert found.base.data_ptr() == weight.data_ptr()
    assert list(found.shape) == [64, 64]


def test_a_weight_is_not_kept_alive() -> None:
    weight = torch.zeros(64, 64)
    weight_descriptor(weight, [32, 32])
    before = len(descriptor._of_weights)
    dead = weakref.ref(weight)
    del weight
    gc.collect()
    assert dead() is None
    assert len(descriptor._of_weights) == before - 1
