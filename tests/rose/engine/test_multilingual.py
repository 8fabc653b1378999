"""multilingual-e5-small: float16 weights, a large vocabulary, prompts; needs scripts/fetch_models.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch

DIRECTORY = Path(__file__).parents[3] / "models" / "multilingual-e5-small"
TEXTS = (
    "query: how much protein per day",
    "passage: Erwachsene brauchen etwa 0,8 Gramm Eiweiß je Kilogramm und Tag.",
    "passage: 成年人每天每公斤体重约需0.8克蛋白质。",
    "passage: Взрослым нужно около 0,8 грамма белка в день.",
    "passage: The river is frozen in winter.",
    "passage: " + "مرحبا بالعالم 👩‍👩‍👧‍👦 naïve ﬁ ① " * 100,
    "",
)


@pytest.mark.slow
@pytest.mark.skipif(
    not (DIRECTORY / "model.safetensors").is_file(),
    reason="models/multilingual-e5-small is not there: run scripts/fetch_models.py",
)
def test_equals_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    engine = Engine.load(DIRECTORY, EngineConfig(device="cpu"))
    assert engine.info.dtype == "float32"
    assert engine.info.prompts == {"query": "query: ", "passage": "passage: "}
    reference = SentenceTransformer(str(DIRECTORY), device="cpu").float()
    assert engine.info.max_sequence_tokens == reference.max_seq_length == 512
    tokenizer = Tokenizer.from_str(engine.info.tokenizer_json.decode())
    tokenizer.enable_truncation(512)
    ids = [tokenizer.encode(text).ids for text in TEXTS]
    assert ids[0] == [0, 41, 1294, 12, 3642, 5045, 21308, 117, 5155, 2]
    rows = engine.step(ForwardBatch.from_sequences(ids, engine.info.layout)).numpy()
    expected = reference.encode(list(TEXTS), show_progress_bar=False, normalize_embeddings=True)
    assert abs(rows - expected).max() <= 1e-5
    assert (rows * expected).sum(1).min() >= 0.999999
    # Real weights: translations are nearer than another subject.
    scores = rows[0] @ rows[1:5].T
    assert np.min(scores[:3]) > scores[3]
