"""Pooling of a packed batch equals sentence-transformers' pooling of a padded one."""

from __future__ import annotations

import pytest
import torch

from rose.config import BatchLayout, PoolingMode
from rose.forward_batch import ForwardBatch
from rose.layers.pooling import Pooling

LENGTHS = (1, 7, 3, 7, 40)
WIDTH = 24
ST_NAMES = {"last_token": "lasttoken", "weighted_mean": "weightedmean"}


def expected(hidden: torch.Tensor, modes: tuple[str, ...]) -> torch.Tensor:
    from sentence_transformers.sentence_transformer.modules import Pooling as StPooling

    rows = torch.nn.utils.rnn.pad_sequence(hidden.split(LENGTHS), batch_first=True)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    pooling = StPooling(WIDTH, tuple(ST_NAMES.get(mode, mode) for mode in modes))
    features = {"token_embeddings": rows, "attention_mask": mask.long()}
    result: torch.Tensor = pooling(features)["sentence_embedding"]
    return result


@pytest.mark.parametrize(
    "modes",
    [
        ("mean",),
        ("cls",),
        ("last_token",),
        ("max",),
        ("mean_sqrt_len_tokens",),
        ("weighted_mean",),
        ("cls", "mean"),
    ],
    ids="+".join,
)
@pytest.mark.parametrize("padded", [False, True], ids=["exact", "padded"])
def test_equals_sentence_transformers(modes: tuple[PoolingMode, ...], padded: bool) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(sum(LENGTHS), WIDTH)
    layout = BatchLayout(token_buckets=(64,), sequence_tiers=(9,)) if padded else BatchLayout()
    batch = ForwardBatch.from_sequences([[0] * length for length in LENGTHS], layout)
    extra = batch.padded_tokens - len(hidden)
    packed = torch.cat([hidden, torch.full((extra, WIDTH), 1e3)])
    rows = Pooling(modes)(packed, batch)
    assert rows.shape == (batch.padded_sequences, WIDTH * len(modes))
    assert rows.isfinite().all()
    torch.testing.assert_close(rows[: len(LENGTHS)], expected(hidden, modes), atol=1e-6, rtol=0)


def test_sums_in_float32() -> None:
    hidden = torch.full((4096, 2), 1.01, dtype=torch.bfloat16)
    for sequences in ([[0] * 4096], [[0] * 2048, [0] * 2048]):
        batch = ForwardBatch.from_sequences(sequences, BatchLayout())
        rows = Pooling(("mean",))(hidden, batch)
        assert rows.dtype == torch.float32
        torch.testing.assert_close(rows, hidden[:1].float().expand_as(rows), atol=1e-5, rtol=0)
