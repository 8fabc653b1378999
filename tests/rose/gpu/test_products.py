"""Products of many rows by cuBLASLt, against torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rose.kernels import products
from rose.kernels.products import add_product, multiply

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda", 0)
DTYPES = (torch.bfloat16, torch.float16)
ROWS = (1025, 2560, 4099)
SHAPES = ((3072, 1024), (1024, 4096), (384, 1536), (264, 72))


def random(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=CUDA) * scale


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("width", "depth"), SHAPES)
def test_products_are_torchs(dtype: torch.dtype, width: int, depth: int) -> None:
    weight = random(width, depth, seed=1, scale=depth**-0.5).to(dtype)
    bias = random(width, seed=2).to(dtype)
    for rows in ROWS:
        x = random(rows, depth, seed=rows).to(dtype)
        exact = F.linear(x.float(), weight.float())
        for given in (None, bias):
            out = multiply(x, weight, given)
            assert out is not None
            expected = exact if given is None else exact + given.float()
            torch.testing.assert_close(out.float(), expected, rtol=0.01, atol=0.01)
        residual = random(rows, width, seed=3).to(dtype)
        expected = exact + residual.float()
        assert add_product(residual, x, weight)
        torch.testing.assert_close(residual.float(), expected, rtol=0.01, atol=0.01)


def test_layers_of_a_shape_keep_their_own_bias() -> None:
    x, weight = random(2048, 256, seed=1).bfloat16(), random(512, 256, seed=2).bfloat16()
    biases = [random(512, seed=seed).bfloat16() for seed in (3, 4)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        eager = [multiply(x, weight, bias) for bias in biases]
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        captured = [multiply(x, weight, bias) for bias in biases]
        graph.capture_end()
        graph.replay()
    stream.synchronize()
    for got, same in zip(captured, eager, strict=True):
        assert got is not None
        assert same is not None
        assert torch.equal(got, same)
    assert eager[0] is not None
    assert not torch.equal(eager[0], F.linear(x, weight, biases[1]))


def test_what_does_not_suit_is_left_to_torch() -> None:
    x, weight = random(2048, 256, seed=1).bfloat16(), random(512, 256, seed=2).bfloat16()
    assert multiply(x[:1024], weight, None) is None, "few rows"
    assert multiply(x.float(), weight.float(), None) is None, "float32"
    assert multiply(x[:, :128], weight[:, :128].contiguous(), None) is None, "strides"
    assert multiply(x, weight.half(), None) is None, "two dtypes"
    unaligned = torch.empty(2048 * 256 + 1, device=CUDA, dtype=torch.bfloat16)[1:].view(2048, 256)
    assert multiply(unaligned, weight, None) is None, "an address that is not aligned"
    assert not add_product(random(2048, 512, seed=3), x, weight), "a residual of another dtype"


def test_products_are_torchs_where_the_library_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_of_device", lambda _: None)
    x, weight = random(2048, 256, seed=1).bfloat16(), random(512, 256, seed=2).bfloat16()
    assert multiply(x, weight, None) is None
    assert not add_product(random(2048, 512, seed=3).bfloat16(), x, weight)
