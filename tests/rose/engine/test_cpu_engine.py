"""Steps on CPU: equal to the reference, alone or in company, through slots or not."""

from __future__ import annotations

import ctypes
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from rose.attention import make_attention
from rose.attention.base import AttentionBackend
from rose.config import EngineConfig
from rose.engine.cpu_runner import PIECE_TOKENS, CpuRunner
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch

Rows = npt.NDArray[np.float32]

TEXTS = (
    "",
    "a",
    "word " * 400,
    "x" * 3000,
    "The quick brown fox jumps over the lazy dog.",
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку.",
    "敏捷的棕色狐狸跳过了懒狗。 素早い茶色の狐がのろまな犬を飛び越える。",
    "👩‍👩‍👧‍👦 🇩🇪 🙂🙃 ☕️ e\u0301 é ﬁ Å Ω",
    "\x00\x01\x1f control \x7f \u200b\u200d\ufeff characters \n\t \r\n",
    "def f(x: int) -> int:\n    return x ** 2  # squares\n",
)


def run(engine: Engine, sequences: list[list[int]], starts: list[int] | None = None) -> Rows:
    batch = ForwardBatch.from_sequences(sequences, engine.info.layout, starts)
    return engine.step(batch).numpy()


def random_sequences(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    """From one token to the longest, with many equal lengths among them."""
    generator = random.Random(seed)
    lengths = [1, 2, longest, *(generator.choice((3, 17, 40, 41, 60)) for _ in range(count // 2))]
    lengths += [generator.randint(1, longest) for _ in range(count - len(lengths))]
    generator.shuffle(lengths)
    return [[generator.randint(1000, 30000) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module")
def engine(minilm_directory: Path) -> Engine:
    return Engine.load(minilm_directory, EngineConfig(device="cpu"))


@pytest.fixture(scope="module")
def reference(minilm_directory: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_directory), device="cpu")


def tokenize(reference: Any, texts: list[str], length: int = 256) -> list[list[int]]:
    ids: list[list[int]] = reference.tokenizer(texts, truncation=True, max_length=length)[
        "input_ids"
    ]
    return ids


def varied(count: int) -> list[str]:
    generator = random.Random(5)
    words = " ".join(TEXTS[4:]).split()
    texts = list(TEXTS)
    while len(texts) < count:
        length = int(2 ** generator.uniform(0, 9))
        texts.append(" ".join(generator.choice(words) for _ in range(length)))
    return texts


@pytest.mark.slow
def test_equals_sentence_transformers(engine: Engine, reference: Any) -> None:
    texts = varied(120)
    rows = run(engine, tokenize(reference, texts))
    expected = reference.encode(texts, show_progress_bar=False)
    assert abs(rows - expected).max() <= 1e-5
    assert (rows * expected).sum(1).min() >= 0.999999


@pytest.mark.slow
def test_bfloat16_is_near(minilm_directory: Path, reference: Any) -> None:
    engine = Engine.load(minilm_directory, EngineConfig(device="cpu", dtype="bfloat16"))
    assert engine.info.dtype == "bfloat16"
    texts = varied(60)
    rows = run(engine, tokenize(reference, texts))
    expected = reference.encode(texts, show_progress_bar=False)
    assert (rows * expected).sum(1).min() >= 0.9998


def test_alone_equals_in_company(engine: Engine) -> None:
    # More than one piece of the runner, so that order and pieces are undone too.
    sequences = random_sequences(90, 256)
    assert sum(map(len, sequences)) > 1.5 * PIECE_TOKENS  # two pieces
    together = run(engine, sequences)
    for row, sequence in zip(together, sequences, strict=True):
        np.testing.assert_allclose(run(engine, [sequence])[0], row, atol=1e-5, rtol=0)


def sdpa(engine: Engine) -> AttentionBackend:
    shape = engine.model.backbone.attention_shape
    return make_attention("sdpa", shape, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("piece_tokens", [1, 64, 10**9])
def test_pieces_do_not_show(piece_tokens: int, engine: Engine) -> None:
    runner = CpuRunner(engine.model, lambda: sdpa(engine), piece_tokens)
    sequences = random_sequences(20, 90, seed=1)
    batch = ForwardBatch.from_sequences(sequences, engine.info.layout)
    rows = runner.step(batch).numpy()
    np.testing.assert_allclose(rows, run(engine, sequences), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("labels", "hidden", "heads", "layers"), [(1, 64, 2, 3), (3, 120, 5, 2)])
def test_cross_encoder_logits_equal_transformers(
    labels: int, hidden: int, heads: int, layers: int, minilm_directory: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=30522,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=3 * hidden,
        num_labels=labels,
        initializer_range=0.2,
    )
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    shutil.copy(minilm_directory / "tokenizer.json", tmp_path)
    engine = Engine.load(tmp_path, EngineConfig(device="cpu"))
    tokenizer = Tokenizer.from_str(engine.info.tokenizer_json.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(512, strategy="only_second")
    encoded = [tokenizer.encode("how much protein", text) for text in varied(24)]
    with torch.inference_mode():
        expected = torch.cat(
            [
                model(
                    input_ids=torch.tensor([one.ids]), token_type_ids=torch.tensor([one.type_ids])
                ).logits
                for one in encoded
            ]
        )
    starts = [one.type_ids.index(1) for one in encoded]
    logits = run(engine, [one.ids for one in encoded], starts)
    assert logits.shape == (len(encoded), labels)
    # Logits without spread would let a broken head pass.
    assert expected.std() > 0.1
    np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5, rtol=1e-5)


def test_slots_are_what_the_server_writes(engine: Engine) -> None:
    """Fills a slot by address, as native code does."""
    sequences = random_sequences(9, 50, seed=2)
    batch = ForwardBatch.from_sequences(sequences, engine.info.layout)
    parts = (batch.cu_seqlens, batch.token_ids, batch.positions, batch.token_type_ids)
    values = [value for part in parts if part is not None for value in part.tolist()]
    assert len(engine.input_slots) >= 3
    assert len({slot.data_ptr for slot in engine.input_slots}) == len(engine.input_slots)
    for slot in engine.input_slots:
        memory = (ctypes.c_int32 * slot.capacity).from_address(slot.data_ptr)
        memory[: len(values)] = values
        lazy = engine.step_slot(
            slot,
            batch.num_tokens,
            batch.num_sequences,
            batch.max_seqlen,
            batch.padded_tokens,
            batch.padded_sequences,
        )
        # A result must not change when its slot is filled for the next step.
        memory[: slot.capacity] = [0] * slot.capacity
        np.testing.assert_array_equal(lazy.numpy(), run(engine, sequences))


def test_slots_hold_every_legal_batch(minilm_directory: Path) -> None:
    config = EngineConfig(device="cpu", max_batch_tokens=100, max_batch_sequences=7)
    engine = Engine.load(minilm_directory, config)
    longest = engine.info.max_sequence_tokens
    layout = engine.info.layout
    assert longest > config.max_batch_tokens
    for tokens, sequences in ((longest, 1), (100, 7)):
        needed = layout.buffer_len(*layout.padded_shape(tokens, sequences))
        assert all(slot.capacity >= needed for slot in engine.input_slots)


def test_a_step_that_fails_leaves_the_engine_usable(engine: Engine) -> None:
    before = run(engine, [[101, 2088, 102]])
    with pytest.raises((IndexError, RuntimeError)):
        run(engine, [[101, 40_000_000, 102]])
    np.testing.assert_array_equal(run(engine, [[101, 2088, 102]]), before)
