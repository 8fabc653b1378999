"""Which kernel computes a linear layer: by rows, the same from one limit to the next."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from rose.kernels.linear import _TILINGS, choose_tiling, linear_into, row_limits
from rose.kernels.small_linear import _TILINGS as SMALL_TILINGS
from rose.kernels.small_linear import choose_small_tiling, choose_split


@pytest.mark.parametrize("key", sorted({*SMALL_TILINGS}))
def test_between_two_limits_nothing_changes(key: tuple[str, int, int]) -> None:
    """What is compiled at start covers every row count."""
    activation, width, depth = key
    limits = [0, *row_limits(), row_limits()[-1] + 64]
    for below, limit in pairwise(limits):
        choices = {
            choose_small_tiling(rows, width, depth, activation)  # type: ignore[arg-type]
            for rows in range(below + 1, limit + 1)
        }
        assert len(choices) == 1, (below, limit)


def test_limits_hold_every_bound_of_the_large_tilings() -> None:
    limits = set(row_limits())
    for ranges in _TILINGS.values():
        for least, most, _ in ranges:
            assert least - 1 in limits | {0}
            assert most in limits or most > 1 << 20


@pytest.mark.parametrize(
    ("width", "depth"), [(1024, 1024), (1024, 4096), (1024, 3072), (768, 3072)]
)
def test_split_shares_are_whole_and_fill_the_device(width: int, depth: int) -> None:
    for rows in (1, 64, 65, 128, 192, 256):
        tiling = choose_split(rows, width, depth)
        assert tiling is not None
        assert depth % (tiling.splits * tiling.depth) == 0
        programs = -(-rows // tiling.rows) * (width // tiling.columns) * tiling.splits
        assert 24 <= programs <= 160
    assert choose_split(257, width, depth) is None


def test_odd_depths_are_left_to_the_library() -> None:
    assert choose_split(64, 1024, 1000) is None
    assert choose_split(64, 1000, 1024) is None
    assert choose_small_tiling(64, 1000, 1024, "none") is None


def test_on_cpu_the_product_is_added_in_place() -> None:
    x, weight, residual = torch.randn(3, 8), torch.randn(4, 8), torch.randn(3, 4)
    expected = residual + x @ weight.T
    assert linear_into(residual, x, weight) is None
    torch.testing.assert_close(residual, expected)
    assert choose_tiling(x, weight, "gelu") is None
