"""Run by test_kernels_match_torch.py with TRITON_INTERPRET=1: the GPU's path of whole families."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from interpreted_checks import CPU, accept_new_numpy

from rose.attention import make_attention
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch
from rose.kernels import launch
from rose.models import splade
from rose.models.bert import BertModel
from rose.models.gemma3 import Gemma3Model
from rose.models.gte import GteModel
from rose.models.jina_bert import JinaBertModel
from rose.models.jina_embeddings_v3 import JinaEmbeddingsV3Model
from rose.models.llama import LlamaModel
from rose.models.modernbert import ModernBertModel
from rose.models.nomic_bert import NomicBertModel
from rose.models.qwen2 import Qwen2Model
from rose.models.qwen3 import Qwen3Model
from rose.models.splade import SpladeModel


@torch.no_grad()
def check_models() -> None:
    """Whole families: what runs on a GPU, in the interpreter, against what runs on CPU."""
    sizes = {
        "vocab_size": 50,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 64,
    }
    decoder = sizes | {"num_key_value_heads": 2, "head_dim": 8}
    windows = {"sliding_window": 8, "local_attention": 8, "sliding_window_pattern": 2}
    families: tuple[tuple[Any, dict[str, Any]], ...] = (
        (ModernBertModel, sizes | windows),
        (NomicBertModel, sizes),
        (GteModel, sizes),
        (JinaEmbeddingsV3Model, sizes),
        (JinaBertModel, sizes | {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}),
        (LlamaModel, decoder | {"attention_bias": True, "mlp_bias": True}),
        (Qwen2Model, decoder | windows | {"use_sliding_window": True, "max_window_layers": 1}),
        (Qwen3Model, decoder),
        (Gemma3Model, decoder | windows),
    )
    sequences = [[1, 2, 3] * 4, [4], [5, 6, 7, 8, 9] * 2]
    poisoned = [[1, 2, 3], [4, 49, 5], [6] * 8]
    for model_class, values in families:
        models = []
        for interpreted in (False, True):
            launch.INTERPRETED = interpreted
            weights = RandomWeights(torch.float32, CPU)
            models.append(model_class(JsonObject("config.json", values), weights))
        for rows in (None, "first", "last"):
            for tokens in (sequences, poisoned):
                results = []
                for interpreted, model in zip((False, True), models, strict=True):
                    launch.INTERPRETED = interpreted
                    words = model.words if hasattr(model, "words") else model.embeddings.words
                    words[49] = torch.nan
                    layout = BatchLayout(token_types=model.token_types)
                    batch = ForwardBatch.from_sequences(tokens, layout, [2] * len(tokens))
                    attention = make_attention("sdpa", model.attention_shape, torch.float32, CPU)
                    attention.plan(batch)
                    results.append(model(batch, attention, rows))
                if tokens is poisoned:
                    at = slice(1, 2) if rows else slice(3, 6)
                    assert results[1][at].isnan().all(), (model_class, rows)
                    # On CPU the rows that attention mixed are bad, and the sequence's first one.
                    for result in results:
                        result[at] = 0
                torch.testing.assert_close(*results, atol=2e-5, rtol=1e-5)
                assert results[0].std() > 0.1


@torch.no_grad()
def check_splade() -> None:
    """Parts of a step on a GPU against sequence by sequence on CPU; the vocabulary is padded."""
    splade._LOGIT_ROWS = 8
    config = JsonObject(
        "config.json",
        {
            "vocab_size": 50,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "intermediate_size": 40,
            "max_position_embeddings": 64,
        },
    )
    for pooling in ("max", "sum"):
        results = []
        for interpreted in (False, True):
            launch.INTERPRETED = interpreted
            weights = RandomWeights(torch.float32, CPU)
            backbone = BertModel(config, weights)
            model = SpladeModel(
                backbone, "BertForMaskedLM", config, weights, pooling, twice=pooling == "sum"
            )
            assert model.decoder.shape[0] == (64 if interpreted else 50)
            layout = BatchLayout((32,), (8,), token_types=True)
            batch = ForwardBatch.from_sequences([[1, 2, 3] * 4, [4], [5, 6, 7] * 3], layout)
            attention = make_attention("sdpa", backbone.attention_shape, torch.float32, CPU)
            attention.plan(batch)
            if interpreted:
                # A graph would hold on to them: they must not matter.
                batch.num_tokens = batch.num_sequences = 1
            results.append(model(batch, attention))
        assert results[1].shape == (8, 50)
        torch.testing.assert_close(results[1][:3], results[0][:3], atol=2e-5, rtol=1e-5)
        assert results[0][:3].std() > 0.01


if __name__ == "__main__":
    accept_new_numpy()
    check_models()
    check_splade()
    print("all checks passed")
