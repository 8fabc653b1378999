"""Run by test_kernels_match_torch.py with TRITON_INTERPRET=1: each operation both ways."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import triton.runtime.interpreter as interpreter

from rose.attention.base import AttentionShape
from rose.attention.sdpa import SdpaAttention
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch
from rose.kernels import launch
from rose.kernels.activation import GateActivation, bias_gelu_, gated_mul
from rose.kernels.attention_schedule import AttentionSchedule
from rose.kernels.embedding import embedding_layer_norm, embedding_rms_norm
from rose.kernels.norm import (
    add_layer_norm,
    add_normed_rms_norm,
    add_rms_norm,
    mark_bad_sequences,
)
from rose.kernels.pooling import mean_rows, normalize_rows, select_rows
from rose.kernels.rope import HeadRotation, RopeTable, qk_norm_rope_
from rose.kernels.short_attention import short_attention
from rose.kernels.small_linear import SmallActivation, SmallTiling, run_small_linear
from rose.kernels.vocabulary_pooling import pool_logits_

WIDTH = 48
CPU = torch.device("cpu")


def accept_new_numpy() -> None:
    """The interpreter turns arrays of one element into integers in a way numpy 2.4 refuses."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def check(operation: Callable[[], Any]) -> None:
    launch.INTERPRETED = False
    expected = operation()
    launch.INTERPRETED = True
    result = operation()
    torch.testing.assert_close(result, expected, equal_nan=True, atol=1e-5, rtol=1e-5)


def check_norms() -> None:
    x, residual = torch.randn(7, WIDTH), torch.randn(7, WIDTH)
    weight, bias, linear_bias = torch.randn(WIDTH), torch.randn(WIDTH), torch.randn(WIDTH)
    x[3, 5], x[4, 0] = torch.nan, torch.inf

    def layer_norm(with_bias: bool, contain: bool, with_x: bool) -> tuple[torch.Tensor, ...]:
        bad_rows = torch.zeros(7, dtype=torch.int32)
        out = add_layer_norm(
            x if with_x else None,
            residual if with_x else x,
            linear_bias if with_bias else None,
            weight,
            bias,
            1e-5,
            bad_rows if contain else None,
        )
        if contain:
            assert bad_rows.tolist() == [0, 0, 0, 1, 1, 0, 0]
            assert not out[3].any()
        return out, bad_rows

    def rms_norm(contain: bool, with_x: bool) -> tuple[torch.Tensor, ...]:
        bad_rows, stream = torch.zeros(7, dtype=torch.int32), (residual if with_x else x).clone()
        out = add_rms_norm(
            x if with_x else None, stream, weight, 1e-5, bad_rows if contain else None
        )
        return out, stream, bad_rows

    def normed_rms_norm(contain: bool) -> tuple[torch.Tensor, ...]:
        bad_rows, stream = torch.zeros(7, dtype=torch.int32), residual.clone()
        marks = bad_rows if contain else None
        out = add_normed_rms_norm(x, stream, bias, weight, 1e-5, marks)
        if contain:
            assert bad_rows.tolist() == [0, 0, 0, 1, 1, 0, 0]
            assert not stream[3].any()
        return out, stream, bad_rows

    for contain in (True, False):
        check(lambda: normed_rms_norm(contain))  # noqa: B023
        for with_x in (True, False):
            for with_bias in (True, False):
                check(lambda: layer_norm(with_bias, contain, with_x))  # noqa: B023
            check(lambda: rms_norm(contain, with_x))  # noqa: B023


def check_embeddings() -> None:
    words, offsets = torch.randn(10, WIDTH), torch.randn(2 * 20, WIDTH)
    words[7, 3] = torch.inf
    weight, bias = torch.randn(WIDTH), torch.randn(WIDTH)
    sequences = [[1, 2, 3, 4, 5], [6, 7], [1]]
    typed = ForwardBatch.from_sequences(
        sequences, BatchLayout((16,), (4,), token_types=True, position_offset=2), [2, 0, 0]
    )
    plain = ForwardBatch.from_sequences(sequences, BatchLayout((16,), (8,)))
    check(lambda: embedding_layer_norm(typed, words, offsets, 20, weight, bias, 1e-5))
    check(lambda: embedding_layer_norm(plain, words, offsets, 20, weight, bias, 1e-5))
    check(lambda: embedding_rms_norm(plain, words, weight, 1e-5))
    _, bad_rows = embedding_layer_norm(plain, words, offsets, 20, weight, bias, 1e-5)
    for one_row in (True, False):
        rows = torch.randn(8 if one_row else 16, WIDTH)

        def mark(rows: torch.Tensor = rows, one_row: bool = one_row) -> torch.Tensor:
            marked = mark_bad_sequences(rows.clone(), plain.cu_seqlens, bad_rows, one_row=one_row)
            assert marked.isnan().any(1).sum() == (1 if one_row else 2)
            return marked

        check(mark)


def check_activations() -> None:
    gate_up, bias = torch.randn(5, 2200), torch.randn(1100)
    activations: tuple[GateActivation, ...] = ("silu", "gelu", "gelu_tanh")
    for activation in activations:
        check(lambda: gated_mul(gate_up, activation))  # noqa: B023
    for tanh in (False, True):
        check(lambda: bias_gelu_(gate_up[:, :1100].clone(), bias, tanh=tanh))  # noqa: B023


def check_gelu_of_16_bits() -> None:
    """Its error is below the rounding that follows, in both tails."""
    x = torch.linspace(-8, 8, 1024 * 16).half().view(16, 1024)
    launch.INTERPRETED = True
    result = bias_gelu_(x.clone(), torch.zeros(1024).half()).double()
    expected = x.double() * torch.special.ndtr(x.double())
    # Half a unit in the last place of float16, and as much again for the polynomial.
    assert ((result - expected).abs() <= expected.abs() * 2**-10 + 5e-7).all()


def check_rope() -> None:
    batch = ForwardBatch.from_sequences([[1] * 9, [2] * 7], BatchLayout())
    for head_dim, heads, kv_heads in ((16, 4, 2), (64, 3, 1), (24, 2, 2)):
        shape = AttentionShape(heads, kv_heads, head_dim, 1.0)
        qkv = torch.randn(16, (heads + 2 * kv_heads) * head_dim)
        table = RopeTable.make(64, head_dim, 1e4, CPU)
        weights = torch.randn(head_dim), torch.randn(head_dim)
        for rotation in (HeadRotation(table, weights, 1e-6), HeadRotation(table)):

            def rotate(
                shape: AttentionShape = shape,
                qkv: torch.Tensor = qkv,
                rotation: HeadRotation = rotation,
            ) -> torch.Tensor:
                return qk_norm_rope_(qkv.clone(), batch.positions, shape, rotation)

            check(rotate)


def check_short_attention() -> None:
    lengths = (5, 70, 1, 64)
    batch = ForwardBatch.from_sequences([[1] * n for n in lengths], BatchLayout((192,), (8,)))
    for head_dim, heads, kv_heads, causal in (
        (32, 2, 2, False),
        (64, 4, 2, True),
        (32, 3, 1, True),
    ):
        shape = AttentionShape(heads, kv_heads, head_dim, head_dim**-0.5, causal=causal)
        qkv = torch.randn(192, (heads + 2 * kv_heads) * head_dim)
        # Behind the last sequence of a model's step there is nothing that may be read.
        reference = SdpaAttention(shape, torch.float32, CPU)
        reference.plan(batch)
        launch.INTERPRETED = False
        expected = reference.attend(*reference.split_heads(qkv))
        launch.INTERPRETED = True
        q, k, v = reference.split_heads(qkv)
        result = short_attention(q, k, v, batch.cu_seqlens, shape, 72)
        torch.testing.assert_close(result, expected, atol=2e-5, rtol=1e-4)


def check_small_linear() -> None:
    launch.INTERPRETED = True
    activations: dict[SmallActivation, Callable[[torch.Tensor], torch.Tensor]] = {
        "none": lambda y: y,
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
        "silu_mul": lambda y: torch.nn.functional.silu(y[:, ::2]) * y[:, 1::2],
    }
    for rows in (1, 17, 80):
        x, weight, bias = torch.randn(rows, 256), torch.randn(128, 256) * 0.1, torch.randn(128)
        for activation, function in activations.items():
            for has_bias in (False, True):
                added = bias if has_bias else None
                result = run_small_linear(x, weight, added, activation, SmallTiling(64, 64, 64))
                expected = function(torch.nn.functional.linear(x, weight, added))
                torch.testing.assert_close(result, expected, atol=3e-3, rtol=1e-3)
        parts = run_small_linear(x, weight, None, "none", SmallTiling(64, 64, 64, splits=4))
        assert parts.shape == (4, rows, 128)
        # Each part is of its own share of the depth.
        share = torch.nn.functional.linear(x[:, 64:128], weight[:, 64:128])
        torch.testing.assert_close(parts[1], share, atol=1e-4, rtol=1e-4)
        residual, norm = torch.randn(rows, 128), torch.randn(128)
        for with_parts in (parts, parts[:1]):
            whole = with_parts.sum(0)
            launch.INTERPRETED = False
            stream, expected_stream = residual.clone(), residual.clone()
            rms = add_rms_norm(whole, expected_stream, norm, 1e-5, None)
            layer = add_layer_norm(whole, residual, bias, norm, bias, 1e-5, None)
            # The definition in torch adds parts too.
            same = add_layer_norm(with_parts, residual, bias, norm, bias, 1e-5, None)
            torch.testing.assert_close(same, layer)
            launch.INTERPRETED = True
            torch.testing.assert_close(
                add_rms_norm(with_parts, stream, norm, 1e-5, None), rms, atol=1e-5, rtol=1e-5
            )
            torch.testing.assert_close(stream, expected_stream)
            torch.testing.assert_close(
                add_layer_norm(with_parts, residual, bias, norm, bias, 1e-5, None),
                layer,
                atol=1e-5,
                rtol=1e-5,
            )


def check_pooling() -> None:
    short = ForwardBatch.from_sequences([[1] * 5, [2] * 2, [3]], BatchLayout((16,), (8,)))
    long = ForwardBatch.from_sequences([[1] * 300, [2] * 77, [3] * 50], BatchLayout((512,), (4,)))
    for batch in (short, long):
        hidden = torch.randn(batch.padded_tokens, 300)
        cu_seqlens = batch.cu_seqlens
        check(lambda: normalize_rows(hidden))  # noqa: B023
        check(lambda: normalize_rows(torch.zeros(3, 300)))
        for normalize in (False, True):
            check(lambda: mean_rows(hidden, cu_seqlens, normalize=normalize))  # noqa: B023
            check(lambda: select_rows(hidden, cu_seqlens, "last", normalize=normalize))  # noqa: B023
            check(
                lambda: select_rows(
                    hidden.bfloat16(),  # noqa: B023
                    cu_seqlens,  # noqa: B023
                    "first",
                    normalize=normalize,  # noqa: B023
                    dtype=torch.float32,
                )
            )


def check_vocabulary_pooling() -> None:
    """Parts that cut sequences, empty slots, a stride that is wider than the vocabulary, NaN."""
    batch = ForwardBatch.from_sequences([[1] * 37, [2], [3] * 20], BatchLayout((64,), (8,)))
    logits, bias = torch.randn(64, 320), torch.randn(300)
    logits[37] = torch.nan
    logits[40] = -torch.inf
    logits[1] = -5.0
    for sums, twice, rows in ((False, False, 64), (False, True, 24), (True, False, 24)):

        def pool(sums: bool = sums, twice: bool = twice, rows: int = rows) -> torch.Tensor:
            weights = torch.zeros(8, 300)
            for at in range(0, 64, rows):
                part = logits[at : at + rows]
                pool_logits_(weights, part, bias, batch.cu_seqlens, at, sums=sums, twice=twice)
            assert weights.isnan().all(1).tolist() == [False, True] + [False] * 6
            assert not weights[4:].any()
            return weights

        check(pool)
        found = (logits[:37, :300] + bias).relu().log1p()
        found = found.log1p() if twice else found
        torch.testing.assert_close(pool()[0], found.sum(0) if sums else found.amax(0))


def check_schedule() -> None:
    generator = random.Random(0)
    for case in range(24):
        causal, slots = case % 2 == 0, generator.choice([1, 2, 8, 32])
        lengths = [
            generator.choice([1, 3, 16, 127, 128, 129, 256, 300, 700])
            for _ in range(generator.randint(1, slots))
        ]
        padding = 40 if len(lengths) < slots and case % 3 == 0 else 0
        num_tokens = sum(lengths) + padding
        cu_seqlens = [0]
        for length in lengths:
            cu_seqlens.append(cu_seqlens[-1] + length)
        cu_seqlens += [num_tokens] * (slots - len(lengths))
        for num_blocks, num_heads, tile_rows in ((132, 16, 128), (7, 12, 192), (5, 3, 128)):
            _check_one_schedule(
                torch.tensor(cu_seqlens, dtype=torch.int32),
                num_tokens,
                num_blocks,
                num_heads,
                tile_rows,
                causal,
            )


def _check_one_schedule(
    cu_seqlens: torch.Tensor,
    num_tokens: int,
    num_blocks: int,
    num_heads: int,
    tile_rows: int,
    causal: bool,
) -> None:
    slots = cu_seqlens.shape[0] - 1
    capacity = AttentionSchedule.capacity(num_tokens, slots, num_heads, tile_rows)
    lists = [torch.full((capacity,), -1, dtype=torch.int32) for _ in range(7)]
    schedule = AttentionSchedule(torch.full((num_blocks + 1,), -1, dtype=torch.int32), *lists)
    schedule.fill(
        cu_seqlens,
        num_tokens=num_tokens,
        num_heads=num_heads,
        tile_rows=tile_rows,
        causal=causal,
    )
    lengths = cu_seqlens.diff().tolist()
    expected = {
        (sequence, tile, head)
        for sequence, length in enumerate(lengths)
        for tile in range(-(-length // tile_rows))
        for head in range(num_heads)
    }
    bounds = schedule.work_indptr.tolist()
    assert bounds[0] == 0
    assert bounds[-1] == len(expected)
    assert bounds == sorted(bounds)
    used = slice(0, bounds[-1])
    pieces = list(
        zip(
            schedule.sequences[used].tolist(),
            schedule.tiles[used].tolist(),
            schedule.heads[used].tolist(),
            strict=True,
        )
    )
    # Each piece exactly once.
    assert set(pieces) == expected
    assert len(pieces) == len(expected)
    sequences = schedule.sequences[used].long()
    for starts in (schedule.starts, schedule.kv_starts):
        assert torch.equal(starts[used], cu_seqlens[sequences])
    for ends in (schedule.lengths, schedule.kv_lengths):
        assert torch.equal(ends[used], cu_seqlens.diff()[sequences])

    def cost(sequence: int, tile: int) -> int:
        return min(lengths[sequence], (tile + 1) * tile_rows) if causal else lengths[sequence]

    costs = [cost(sequence, tile) for sequence, tile, _ in pieces]
    loads = [sum(costs[first:last]) for first, last in pairwise(bounds)]
    # No block has more than its share and one piece.
    assert max(loads) <= sum(costs) / num_blocks + max(costs)


if __name__ == "__main__":
    accept_new_numpy()
    torch.manual_seed(0)
    check_norms()
    check_embeddings()
    check_activations()
    check_gelu_of_16_bits()
    check_rope()
    check_short_attention()
    check_small_linear()
    check_pooling()
    check_vocabulary_pooling()
    check_schedule()
    print("all checks passed")
