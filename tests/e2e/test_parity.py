"""Over gRPC = sentence-transformers and transformers, to the digit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from rose.client import Client

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund; Größe, Maß, Öl.",
    "Le renard brun saute par-dessus le chien paresseux, où naît l'été.",
    "El rápido zorro marrón salta sobre el perro perezoso. ¿Mañana?",
    "A raposa marrom rápida pula sobre o cão preguiçoso, coração.",
    "La volpe marrone veloce salta sopra il cane pigro, perché no?",
    "Szybki brązowy lis przeskakuje nad leniwym psem, źdźbło.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Быстрая коричневая лиса перепрыгивает через ленивую собаку.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "הזריז החום שועל קופץ מעל הכלב העצלן.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول.",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "দ্রুত বাদামী শিয়াল অলস কুকুরের উপর লাফ দেয়।",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "敏捷的棕色狐狸跳过了懒狗。",
    "素早い茶色の狐がのろまな犬を飛び越える。カタカナ、ひらがな。",
    "날쌘 갈색 여우가 게으른 개를 뛰어넘는다.",
    "Hızlı kahverengi tilki tembel köpeğin üzerinden atlar: İstanbul, ılık.",
    "Con cáo nâu nhanh nhẹn nhảy qua con chó lười biếng.",
)
ODDITIES = (
    "",
    " ",
    "\n\t \r\n",
    "a",
    "ab " * 255,
    "word " * 600,
    "x" * 5000,
    "👩‍👩‍👧‍👦 🇩🇪 🙂🙃 ☕️ e\u0301 é ﬁ Å Ω",
    "\x00\x01\x1f control \x7f \u200b\u200d\ufeff characters",
    "tab\tseparated\tvalues\nand\nlines\r\n",
    "def f(x: int) -> int:\n    return x ** 2  # squares\n",
    "SELECT * FROM t WHERE a <> 'b' AND c >= 10;",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org",
    '{\'json\': [1, 2.5e-10, null], "k": "\\u00e9"}',
    "[CLS] special [SEP] tokens [MASK] in [PAD] text [UNK]",
    "..., !!! ??? --- ___ ~~~ ### $$$ %%% ^^^",
    "3.14159265358979 1,000,000 0xDEADBEEF 1e-9",
    "MiXeD CaSe ÄÖÜ ß ẞ İ ı",
    "\ufffd \U0010ffff \ud7ff \ue000",
    "الله ﷺ ‮right to left‬",
)


def varied_texts() -> list[str]:
    """300 texts: languages, oddities, and mixtures of one token to far beyond the limit."""
    generator = random.Random(5)
    words = " ".join(SENTENCES).split()
    texts = [*SENTENCES, *ODDITIES]
    while len(texts) < 300:
        length = int(2 ** generator.uniform(0, 9.5))
        texts.append(" ".join(generator.choice(words) for _ in range(length)))
    return texts


@pytest.fixture(scope="module")
def reference(minilm_directory: Path) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_directory), device="cpu")


QUERY = "Which fox jumps over which dog?"


@pytest.fixture(scope="module")
def reference_vectors(reference: SentenceTransformer) -> npt.NDArray[Any]:
    """Of the query, then of all texts: the slow half of this file, done once."""
    vectors: npt.NDArray[Any] = reference.encode([QUERY, *varied_texts()])
    return vectors


@pytest.fixture(scope="module")
def client(minilm: Any) -> Iterator[Client]:
    with Client(minilm.address, timeout=120) as client:
        yield client


def rows_close(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-5
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    assert ((ours * theirs).sum(axis=1) / norms).min() >= 0.999999


def test_embeddings_equal_sentence_transformers(
    client: Client, reference_vectors: npt.NDArray[Any]
) -> None:
    texts = varied_texts()
    result = client.embed(texts)
    assert result.ok.all()
    rows_close(result.embeddings, reference_vectors[1:])
    cut = {report.index for report in result.truncations}
    assert texts.index("word " * 600) in cut
    assert texts.index("a") not in cut


def test_token_ids_equal_sentence_transformers(
    client: Client, reference: SentenceTransformer
) -> None:
    texts = varied_texts()
    sequences = client.tokenize(texts).sequences
    limit = reference.max_seq_length
    tokenizer = reference.tokenizer
    for text, sequence in zip(texts, sequences, strict=True):
        # As the module does it: white space around a text is removed first.
        expected = tokenizer(text.strip(), truncation=True, max_length=limit)["input_ids"]
        assert sequence.token_ids.tolist() == expected, repr(text[:80])


def test_scores_are_cosine_similarities(
    client: Client, reference_vectors: npt.NDArray[Any]
) -> None:
    texts = varied_texts()
    expected = reference_vectors[1:] @ reference_vectors[0]
    result = client.score(QUERY, texts)
    assert np.abs(result.scores - expected).max() <= 1e-5
    order = sorted(range(len(texts)), key=lambda i: (-float(result.scores[i]), i))
    assert list(result.ranking) == order


def test_own_token_ids_give_the_same_vectors(client: Client) -> None:
    texts = varied_texts()[:60]
    from_text = client.embed(texts).embeddings
    sequences = [s.token_ids for s in client.tokenize(texts).sequences]
    assert np.abs(client.embed(sequences, sequences=True).embeddings - from_text).max() <= 1e-5
    # Without [CLS] and [SEP], which the server then adds.
    segments = [s[1:-1] for s in sequences]
    assert np.abs(client.embed(segments).embeddings - from_text).max() <= 1e-5


def test_cross_encoder_logits_equal_transformers(serve: Any, cross_encoder_directory: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    query = QUERY
    documents = varied_texts()[:80]
    model = AutoModelForSequenceClassification.from_pretrained(cross_encoder_directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(cross_encoder_directory)
    # Lists, as CrossEncoder passes them: alone, an empty second text would be taken for none.
    expected = []
    with torch.inference_mode():
        for document in documents:
            encoded = tokenizer(
                [query], [document], truncation="only_second", max_length=512, return_tensors="pt"
            )
            expected.append(float(model(**encoded).logits[0, 0]))
    logits = np.array(expected)
    with serve(cross_encoder_directory) as server, Client(server.address, timeout=120) as client:
        raw = client.score(query, documents, raw_scores=True).scores
        scores = client.score(query, documents).scores
        sequences = client.tokenize(documents, query=query).sequences
    assert np.abs(raw - logits).max() <= 1e-5
    assert np.abs(scores - 1 / (1 + np.exp(-logits))).max() <= 1e-5
    for document, sequence in zip(documents, sequences, strict=True):
        encoded = tokenizer([query], [document], truncation="only_second", max_length=512)
        assert sequence.token_ids.tolist() == encoded["input_ids"][0]


def test_logits_spread_enough_to_tell_models_apart(cross_encoder_directory: Path) -> None:
    """Guards the test above: a constant head would make it pass for any input."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(cross_encoder_directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(cross_encoder_directory)
    with torch.inference_mode():
        logits = [
            float(model(**tokenizer("q", text, return_tensors="pt")).logits[0, 0])
            for text in SENTENCES
        ]
    assert np.std(logits) > 0.05
