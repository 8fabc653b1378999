"""Rerankers that are language models, with random weights and the real tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

TOKENIZER = Path(__file__).parents[3] / "models" / "qwen3-tokenizer"


@pytest.fixture(scope="session")
def qwen3_reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as Qwen3-Reranker is published: a language model, and nothing of a reranker."""
    return _language_model(tmp_path_factory.mktemp("model") / "Qwen3-Reranker-tiny", "Qwen3", 512)


@pytest.fixture(scope="session")
def mxbai_rerank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as mxbai-rerank-v2 was published: a language model, and nothing of a reranker."""
    return _language_model(tmp_path_factory.mktemp("model") / "mxbai-rerank-base-v2", "Qwen2", 400)


def _language_model(directory: Path, family: str, max_length: int) -> Path:
    if not (TOKENIZER / "tokenizer.json").is_file():
        pytest.skip("models/qwen3-tokenizer is not there: run scripts/fetch_models.py")
    import torch
    import transformers

    config = getattr(transformers, f"{family}Config")(
        vocab_size=151669,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=64,
        max_position_embeddings=8192,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    torch.manual_seed(3)
    getattr(transformers, f"{family}ForCausalLM")(config).eval().save_pretrained(directory)
    shutil.copy(TOKENIZER / "tokenizer.json", directory)
    tokenizer = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
    tokenizer["model_max_length"] = max_length
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return directory
