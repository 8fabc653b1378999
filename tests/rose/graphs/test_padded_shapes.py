"""Buckets and tiers to which batches are padded."""

from __future__ import annotations

import pytest

from rose.config import BatchLayout
from rose.graphs.config import sequence_tiers, token_buckets


def test_buckets_are_fine_up_to_4096_then_coarse() -> None:
    buckets = token_buckets(8192)
    assert buckets[:3] == (64, 128, 192)
    assert buckets[63:66] == (4096, 4352, 4608)
    assert buckets[-1] == 8192
    assert list(buckets) == sorted(set(buckets))


@pytest.mark.parametrize("ceiling", [0, 63])
def test_a_ceiling_below_one_step_leaves_batches_exact(ceiling: int) -> None:
    assert token_buckets(ceiling) == ()


def test_buckets_never_exceed_the_ceiling() -> None:
    assert token_buckets(4200)[-1] == 4096
    assert token_buckets(1000)[-1] == 960


@pytest.mark.parametrize("most", [1, 2, 7, 8, 32, 512])
def test_last_tier_holds_all_sequences_and_the_padding(most: int) -> None:
    tiers = sequence_tiers(most)
    assert tiers[-1] == most + 1
    assert list(tiers) == sorted(set(tiers))
    layout = BatchLayout(token_buckets(4096), tiers)
    # Not a multiple of 64: padding rows take a slot of their own.
    _, slots = layout.padded_shape(4000, most)
    assert slots == most + 1


def test_one_sequence_with_and_without_padding_share_a_tier() -> None:
    layout = BatchLayout(token_buckets(4096), sequence_tiers(512))
    assert layout.padded_shape(128, 1) == (128, 2)
    assert layout.padded_shape(100, 1) == (128, 2)
