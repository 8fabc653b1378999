"""Large linear layers whose epilogue has warps of its own, against torch's functions one by one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rose.attention.base import AttentionShape
from rose.kernels.linear import linear_gelu
from rose.kernels.overlapped_linear import (
    overlapped_gelu,
    overlapped_rotation,
    overlaps,
    rows_of_whole_waves,
)
from rose.kernels.rope import HeadRotation, RopeTable, qk_norm_rope_

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda", 0)
DTYPES = (torch.bfloat16, torch.float16)
# One row, an uneven last tile, one tile, several for each multiprocessor.
ROWS = (1, 127, 128, 1000, 4096, 12801)


def random(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=CUDA) * scale


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    difference = result.double() - expected.double()
    return float(difference.norm() / expected.double().norm())


@pytest.fixture(autouse=True)
def _on_hopper() -> None:
    if torch.cuda.get_device_capability(CUDA)[0] != 9:
        pytest.skip("wgmma is Hopper's")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize(("width", "depth"), [(4096, 1024), (256, 64), (3072, 1088)])
def test_gelu(dtype: torch.dtype, tanh: bool, width: int, depth: int) -> None:
    weight = random(width, depth, seed=1, scale=depth**-0.5).to(dtype)
    bias = random(width, seed=2).to(dtype)
    for rows in ROWS:
        x = random(rows, depth, seed=rows).to(dtype)
        out = torch.full((rows + 1, width), 7.0, dtype=dtype, device=CUDA)
        assert overlapped_gelu(x, weight, bias, out[:rows], tanh=tanh)
        expected = F.linear(x.float(), weight.float(), bias.float())
        expected = F.gelu(expected, approximate="tanh" if tanh else "none")
        # Rounding before and behind the activation, and of nothing else.
        assert relative_error(out[:rows], expected) < (4e-3 if dtype == torch.bfloat16 else 8e-4)
        assert bool((out[rows] == 7.0).all()), "rows behind the end were written"


def test_gelu_keeps_a_nan_in_its_row() -> None:
    x, weight = random(3000, 1024, seed=3).bfloat16(), random(4096, 1024, seed=4).bfloat16()
    bias = random(4096, seed=5).bfloat16()
    clean = linear_gelu(x, weight, bias)
    x[130] = torch.nan
    result = linear_gelu(x, weight, bias)
    assert bool(result[130].isnan().all())
    others = torch.arange(3000, device=CUDA) != 130
    assert torch.equal(result[others], clean[others])


def test_gelu_of_extreme_values() -> None:
    x = torch.zeros(128, 64, dtype=torch.bfloat16, device=CUDA)
    x[:, 0] = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 5.0, -5.0, 300.0, -300.0] * 16)
    weight = torch.zeros(256, 64, dtype=torch.bfloat16, device=CUDA)
    weight[:, 0] = 1
    out = torch.empty(128, 256, dtype=torch.bfloat16, device=CUDA)
    assert overlapped_gelu(x, weight, torch.zeros_like(weight[:, 1]), out, tanh=False)
    expected = F.gelu(x[:, :1].float()).expand(-1, 256)
    torch.testing.assert_close(out.float(), expected, rtol=8e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [2689, 4096, 12800, 25600])
def test_the_rows_behind_the_last_wave_are_computed_too(rows: int) -> None:
    x, weight = random(rows, 1024, seed=6).bfloat16(), random(4096, 1024, seed=7).bfloat16()
    weight *= 0.03
    bias = random(4096, seed=8).bfloat16()
    if torch.cuda.get_device_properties(CUDA).multi_processor_count == 132:
        assert overlaps(x, weight)
        assert rows_of_whole_waves(12800, 4096, CUDA) == 12672
    expected = F.gelu(F.linear(x.float(), weight.float(), bias.float()))
    assert relative_error(linear_gelu(x, weight, bias), expected) < 3e-3


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_norms", [True, False])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "hidden"), [(16, 8, 1024), (32, 2, 2560)])
def test_rotation(
    dtype: torch.dtype, with_norms: bool, num_heads: int, num_kv_heads: int, hidden: int
) -> None:
    shape = AttentionShape(num_heads, num_kv_heads, 128, 128**-0.5)
    width = (num_heads + 2 * num_kv_heads) * 128
    weight = random(width, hidden, seed=9, scale=hidden**-0.5).to(dtype)
    norms = (random(128, seed=10).to(dtype), random(128, seed=11).to(dtype))
    rotation = HeadRotation(
        RopeTable.make(9000, 128, 1e6, CUDA), norms if with_norms else None, 1e-6
    )
    for rows in (2048, 4096, 8191):
        x = random(rows, hidden, seed=rows).to(dtype)
        # Off 16-byte alignment, as positions lie in the staging buffer.
        positions = torch.randint(0, 9000, (rows + 1,), dtype=torch.int32, device=CUDA)[1:]
        result = overlapped_rotation(x, weight, positions, shape, rotation)
        if result is None:
            assert not overlaps(x, weight)
            continue
        expected = qk_norm_rope_(F.linear(x.float(), weight.float()), positions, shape, rotation)
        assert relative_error(result, expected) < (4e-3 if dtype == torch.bfloat16 else 1e-3)
        separate = qk_norm_rope_(F.linear(x, weight), positions, shape, rotation)
        assert relative_error(result, separate) < 1e-3


def test_rotation_of_other_heads_is_left_to_others() -> None:
    x = random(4096, 1024, seed=12).bfloat16()
    positions = torch.zeros(4096, dtype=torch.int32, device=CUDA)
    for shape in (
        AttentionShape(32, 16, 64, 0.125),
        AttentionShape(15, 1, 128, 0.088),
        AttentionShape(14, 1, 128, 0.088),
    ):
        width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
        weight = random(width, 1024, seed=13).bfloat16()
        rotation = HeadRotation(RopeTable.make(8, shape.head_dim, 1e4, CUDA))
        assert overlapped_rotation(x, weight, positions, shape, rotation) is None
