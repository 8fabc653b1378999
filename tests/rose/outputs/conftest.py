"""Small models of other forms of vectors, and what the published code computes with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch

# Dense vector, weights by token id, vectors of tokens.
Forms: TypeAlias = tuple[Any, dict[int, float], Any]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return [
        "The quick brown fox jumps over the lazy dog.",
        "bees",
        "Die Biene fliegt zum Stock.",
        "word " * 300,
        "bees and bees and bees",
    ]


@pytest.fixture(scope="session")
def splade(tmp_path_factory: pytest.TempPathFactory, minilm_directory: Path) -> Path:
    """As sentence-transformers saves a SparseEncoder, with random weights."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling
    from transformers import BertConfig, BertForMaskedLM

    plain = tmp_path_factory.mktemp("model") / "mlm"
    config = BertConfig(
        vocab_size=30522,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.3,
    )
    torch.manual_seed(7)
    BertForMaskedLM(config).eval().save_pretrained(plain)
    for file in ("tokenizer.json", "vocab.txt", "special_tokens_map.json", "tokenizer_config.json"):
        shutil.copy(minilm_directory / file, plain / file)
    transformer = Transformer(str(plain), transformer_task="fill-mask", max_seq_length=128)
    directory = tmp_path_factory.mktemp("saved") / "splade"
    model = SparseEncoder(modules=[transformer, SpladePooling("max")], device="cpu")
    model.save_pretrained(str(directory))
    return directory


@pytest.fixture(scope="session")
def bge_m3(make_bert: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with the two heads of bge-m3, cls pooling and normalization."""
    directory = tmp_path_factory.mktemp("model") / "three-forms"
    shutil.copytree(make_bert("bert"), directory)
    torch.manual_seed(8)
    torch.save(torch.nn.Linear(64, 64).state_dict(), directory / "colbert_linear.pt")
    torch.save(torch.nn.Linear(64, 1).state_dict(), directory / "sparse_linear.pt")
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    for name in ("1_Pooling", "2_Normalize"):
        (directory / name).mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_cls_token": True}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return directory


@pytest.fixture(scope="session")
def bge_m3_forms(bge_m3: Path) -> Callable[[str], Forms]:
    """What bge-m3's own code computes for a text with the small model."""
    return cache(partial(_published_forms, bge_m3))


def _published_forms(directory: Path, text: str) -> Forms:
    """What bge-m3's code computes: dense vector, weights by id, vectors of tokens."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, add_pooling_layer=False).eval()
    heads = []
    for name, width in (("colbert_linear.pt", 64), ("sparse_linear.pt", 1)):
        head = torch.nn.Linear(64, width)
        head.load_state_dict(torch.load(directory / name))
        heads.append(head)
    encoded = tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**encoded).last_hidden_state[0]
        dense = torch.nn.functional.normalize(hidden[0], dim=0)
        tokens = torch.nn.functional.normalize(heads[0](hidden[1:]), dim=1)
        weights = torch.relu(heads[1](hidden))[:, 0]
    found: dict[int, float] = {}
    for token_id, weight in zip(encoded["input_ids"][0].tolist(), weights.tolist(), strict=True):
        if token_id not in tokenizer.all_special_ids and weight > 0:
            found[token_id] = max(weight, found.get(token_id, 0.0))
    return dense.numpy(), found, tokens.numpy()
