"""Each family in two shapes."""

from __future__ import annotations

from typing import Any

from model_parity_case import Case
from model_parity_published import published_gte, published_nomic

# Two shapes: (hidden, layers, heads, intermediate).
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
WIDE = {
    "hidden_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "intermediate_size": 200,
}
DISTIL = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}


def _grouped(sizes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        **sizes,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-6,
        **more,
    }


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
XLM = {"tokenizer": "xlm-roberta"}


def _modernbert(sizes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**sizes, "max_position_embeddings": 1024, "num_labels": 1, **more}


def _gemma(sizes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _grouped(sizes, head_dim=16, query_pre_attn_scalar=16, sliding_window=64, **more)


def _distil(sizes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {DISTIL[name]: value for name, value in sizes.items()} | more


CASES = (
    Case("bert", "BertModel", SMALL),
    Case("bert-score", "BertForSequenceClassification", {**WIDE, "num_labels": 3}, task="score"),
    Case("roberta", "RobertaModel", {**SMALL, **ROBERTA}, pooling="cls", **XLM),
    Case(
        "roberta-score",
        "RobertaForSequenceClassification",
        {**WIDE, **ROBERTA, "num_labels": 1},
        task="score",
        **XLM,
    ),
    Case("xlm-roberta", "XLMRobertaModel", {**SMALL, **ROBERTA}, pooling="cls", **XLM),
    Case(
        "xlm-roberta-score",
        "XLMRobertaForSequenceClassification",
        {**WIDE, **ROBERTA, "num_labels": 1},
        task="score",
        **XLM,
    ),
    Case("distilbert", "DistilBertModel", _distil(SMALL)),
    Case(
        "distilbert-score",
        "DistilBertForSequenceClassification",
        _distil(WIDE, num_labels=2),
        task="score",
    ),
    Case("mpnet", "MPNetModel", {**SMALL, "max_position_embeddings": 514}, **XLM),
    Case(
        "mpnet-score",
        "MPNetForSequenceClassification",
        {**WIDE, "max_position_embeddings": 514, "num_labels": 1},
        task="score",
        **XLM,
    ),
    Case("modernbert", "ModernBertModel", _modernbert(SMALL, local_attention=32), pooling="cls"),
    Case(
        "modernbert-score",
        "ModernBertForSequenceClassification",
        _modernbert(WIDE, local_attention=128, classifier_pooling="mean"),
        task="score",
    ),
    Case("nomic-bert", "NomicBertModel", SMALL, published=published_nomic),
    Case("nomic-bert-transformers", "NomicBertModel", WIDE, transformers_names=True),
    Case(
        "nomic-bert-score",
        "NomicBertForSequenceClassification",
        {**WIDE, "num_labels": 1},
        task="score",
    ),
    Case("gte", "GteModel", SMALL, pooling="cls", published=published_gte, **XLM),
    Case(
        "gte-transformers",
        "GteModel",
        {**WIDE, "type_vocab_size": 0},
        pooling="cls",
        transformers_names=True,
    ),
    Case(
        "gte-score", "GteForSequenceClassification", {**WIDE, "num_labels": 1}, task="score", **XLM
    ),
    Case("jina-embeddings-v3", "JinaEmbeddingsV3Model", {**SMALL, "type_vocab_size": 1}, **XLM),
    Case(
        "jina-embeddings-v3-transformers",
        "JinaEmbeddingsV3Model",
        {**WIDE, "type_vocab_size": 1},
        transformers_names=True,
        **XLM,
    ),
    Case("llama", "LlamaModel", _grouped(SMALL), tokenizer="llama3", pooling="lasttoken"),
    Case(
        "llama-bidirectional",
        "LlamaModel",
        _grouped(WIDE, is_causal=False, rope_parameters=LLAMA3_ROPE),
        tokenizer="llama3",
    ),
    Case(
        "llama-score",
        "LlamaForSequenceClassification",
        _grouped(WIDE, num_labels=1, attention_bias=True, mlp_bias=True),
        tokenizer="llama3",
        task="score",
    ),
    Case(
        "mistral",
        "MistralModel",
        _grouped(SMALL, sliding_window=48),
        tokenizer="llama3",
        pooling="lasttoken",
    ),
    Case("qwen2", "Qwen2Model", _grouped(SMALL), tokenizer="qwen3", pooling="lasttoken"),
    Case(
        "qwen2-windows",
        "Qwen2Model",
        _grouped(
            WIDE,
            use_sliding_window=True,
            sliding_window=40,
            max_window_layers=1,
            rope_parameters=YARN_ROPE,
        ),
        tokenizer="qwen3",
        pooling="weightedmean",
    ),
    Case(
        "qwen2-score",
        "Qwen2ForSequenceClassification",
        _grouped(WIDE, num_labels=1),
        tokenizer="qwen3",
        task="score",
    ),
    Case(
        "qwen2-logit-score",
        "Qwen2ForCausalLM",
        _grouped(SMALL, tie_word_embeddings=True),
        tokenizer="qwen3",
        task="score",
        modules="logit_score",
    ),
    Case(
        "qwen3",
        "Qwen3Model",
        _grouped(SMALL, head_dim=32, rope_parameters=LINEAR_ROPE),
        tokenizer="qwen3",
        pooling="lasttoken",
    ),
    Case(
        "qwen3-score",
        "Qwen3ForSequenceClassification",
        _grouped(WIDE, head_dim=16, num_labels=1),
        tokenizer="qwen3",
        task="score",
    ),
    Case(
        "qwen3-logit-score",
        "Qwen3ForCausalLM",
        _grouped(WIDE, head_dim=16, tie_word_embeddings=False),
        tokenizer="qwen3",
        task="score",
        modules="logit_score",
    ),
    Case(
        "gemma3-embedding",
        "Gemma3TextModel",
        _gemma(SMALL, use_bidirectional_attention=True, sliding_window_pattern=3),
        tokenizer="gemma3",
        dense=(128, 64),
    ),
    Case(
        "gemma3-causal",
        "Gemma3TextModel",
        _gemma(WIDE, sliding_window_pattern=2),
        tokenizer="gemma3",
        pooling=["lasttoken", "mean"],
    ),
)
