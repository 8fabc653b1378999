"""Writes the checkpoint of a case, and asks the reference about it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model_parity_case import Case

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Reference = Callable[[Sequence[str]], np.ndarray]
QUERY = "how much protein should a grown-up person eat per day, in grams?"


def randomize(model: torch.nn.Module) -> torch.nn.Module:
    """Weights with which a wrong position, window or norm shows."""
    # Embeddings that are the vocabulary head too make logits of their size.
    spread = 0.2 if hasattr(model, "lm_head") else 0.7
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if parameter.dim() == 1:
            parameter.data = parameter.data + 0.2 * noise
        elif "embed" in name or "relative" in name:
            parameter.data = spread * noise
        else:
            parameter.data = noise * parameter.shape[1] ** -0.5 * 1.2
    return model.eval()


def write_checkpoint(case: Case, directory: Path, vocab_size: int, pad_id: int) -> Reference:
    """Writes weights, configuration and modules beside the tokenizer that is there."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model_class = getattr(transformers, case.model)
    values = {"vocab_size": vocab_size, "pad_token_id": pad_id} | case.config
    config = model_class.config_class(**values)
    model = randomize(model_class(config))
    model.save_pretrained(directory)
    reference = _reference(case, directory)
    if case.published is not None or case.transformers_names:
        model.save_pretrained(directory, save_original_format=False)
    if case.published is not None:
        case.published(directory)
    return reference


def _reference(case: Case, directory: Path) -> Reference:
    if case.modules == "logit_score":
        return _logit_score(directory)
    if case.task == "score":
        return _classifier(directory)
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    transformer = Transformer(str(directory))
    transformer.max_seq_length = 512
    width = transformer.get_embedding_dimension()
    pooling = Pooling(width, case.pooling)
    modules: list[Any] = [transformer, pooling]
    width = pooling.get_embedding_dimension()
    for out in case.dense:
        modules.append(Dense(width, out, bias=False, activation_function=torch.nn.Identity()))
        width = out
    model = SentenceTransformer(modules=[*modules, Normalize()], device="cpu")
    model.save_pretrained(str(directory))

    def rows(texts: Sequence[str]) -> np.ndarray:
        result: np.ndarray = model.encode(list(texts), batch_size=16, show_progress_bar=False)
        return result

    return rows


def _classifier(directory: Path) -> Reference:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()

    def rows(texts: Sequence[str]) -> np.ndarray:
        parts = []
        for start in range(0, len(texts), 10):
            batch = list(texts[start : start + 10])
            features = tokenizer(
                [QUERY] * len(batch),
                batch,
                padding=True,
                truncation="only_second",
                max_length=512,
                return_tensors="pt",
            )
            names = inspect.signature(model.forward).parameters
            features = {name: value for name, value in features.items() if name in names}
            with torch.inference_mode():
                parts.append(model(**features).logits.numpy())
        return np.concatenate(parts)

    return rows


def _logit_score(directory: Path) -> Reference:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    transformer = Transformer(str(directory), transformer_task="text-generation")
    modules = [transformer, LogitScore(true_token_id=400, false_token_id=17)]
    model = CrossEncoder(modules=modules, device="cpu")
    model.save_pretrained(str(directory))

    def rows(texts: Sequence[str]) -> np.ndarray:
        pairs = [(QUERY, text) for text in texts]
        scores = model.predict(
            pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False, batch_size=10
        )
        return np.asarray(scores)[:, None]

    return rows
