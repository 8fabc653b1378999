"""Random checkpoints of each family in two shapes, and the reference's answer for each."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Reference = Callable[[Sequence[str]], np.ndarray]
Task = Literal["embed", "score"]

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


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    """transformers' class, by whose `config_class` the configuration is made."""
    config: dict[str, Any]
    tokenizer: str = "wordpiece"
    task: Task = "embed"
    pooling: str | list[str] = "mean"
    dense: tuple[int, ...] = ()
    """Widths of Dense modules."""
    modules: str = ""
    """`logit_score`: a causal language model with a LogitScore module."""
    published: Callable[[Path], None] | None = None
    """Rewrites the directory as the family's own code wrote it, after the reference has loaded."""
    transformers_names: bool = False
    """Tensors under transformers' names, where those are not the ones it saves."""

    @property
    def head(self) -> str:
        if self.modules:
            return "LogitScore"
        if self.task == "score":
            return f"{self.config.get('num_labels', 2)} labels"
        pooling = self.pooling if isinstance(self.pooling, str) else "+".join(self.pooling)
        return pooling + "".join(f", dense {width}" for width in self.dense) + ", normalized"

    @property
    def summary(self) -> str:
        hidden = self.config.get("hidden_size", self.config.get("dim"))
        layers = self.config.get("num_hidden_layers", self.config.get("n_layers"))
        more = [
            f"{name} {value}"
            for name, value in self.config.items()
            if name in ("local_attention", "sliding_window", "is_causal", "hidden_activation")
        ]
        rope = self.config.get("rope_parameters", {}).get("rope_type")
        return ", ".join([f"{layers} × {hidden}", *more, *([f"rope {rope}"] if rope else [])])


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

    from model_parity import QUERY

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

    from model_parity import QUERY

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


def _rewrite(
    directory: Path, architecture: str, renames: Sequence[tuple[str, str]], **more: Any
) -> None:
    """Tensor names by substitution in order; configuration fields by update (None removes)."""
    import re

    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        tensors[name] = tensor
    merged: dict[str, torch.Tensor] = {}
    for name, tensor in sorted(tensors.items()):
        # `X#0` and `X#1` are parts of X.
        stem, _, part = name.partition("#")
        merged[stem] = torch.cat((merged[stem], tensor)) if part and stem in merged else tensor
    save_file(merged, directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    config = {k: v for k, v in (config | more).items() if v is not None}
    config["architectures"] = [architecture]
    (directory / "config.json").write_text(json.dumps(config))


def published_gte(directory: Path) -> None:
    prefix = r"(?:new\.)?"
    _rewrite(
        directory,
        "NewModel",
        [
            (r"layers\.(\d+)\.", r"encoder.layer.\1."),
            (r"self_attn\.q_proj\.(\w+)", r"attention.qkv_proj.\1#0"),
            (r"self_attn\.k_proj\.(\w+)", r"attention.qkv_proj.\1#1"),
            (r"self_attn\.v_proj\.(\w+)", r"attention.qkv_proj.\1#2"),
            (r"self_attn\.o_proj", "attention.o_proj"),
            (r"post_attention_layernorm", "attn_ln"),
            (r"post_mlp_layernorm", "mlp_ln"),
            (r"mlp\.up_proj\.(\w+)", r"mlp.up_gate_proj.\1#0"),
            (r"mlp\.gate_proj\.(\w+)", r"mlp.up_gate_proj.\1#1"),
            (f"^{prefix}", "new."),
        ],
        model_type="new",
        position_embedding_type="rope",
        layer_norm_type="layer_norm",
        pack_qkv=True,
        rope_theta=160000.0,
        rope_parameters=None,
    )


def published_nomic(directory: Path) -> None:
    _rewrite(
        directory,
        "NomicBertModel",
        [
            (r"^layers\.(\d+)\.", r"encoder.layers.\1."),
            (r"embeddings\.LayerNorm", "emb_ln"),
            (r"self_attn\.q_proj\.(\w+)", r"attn.Wqkv.\1#0"),
            (r"self_attn\.k_proj\.(\w+)", r"attn.Wqkv.\1#1"),
            (r"self_attn\.v_proj\.(\w+)", r"attn.Wqkv.\1#2"),
            (r"self_attn\.o_proj", "attn.out_proj"),
            (r"mlp\.up_proj", "mlp.fc11"),
            (r"mlp\.gate_proj", "mlp.fc12"),
            (r"mlp\.down_proj", "mlp.fc2"),
            (r"post_attention_layernorm", "norm1"),
            (r"post_mlp_layernorm", "norm2"),
        ],
        n_embd=64,
        hidden_size=None,
        n_head=4,
        num_attention_heads=None,
        n_inner=128,
        intermediate_size=None,
        n_layer=3,
        num_hidden_layers=None,
        n_positions=2048,
        max_position_embeddings=None,
        rotary_emb_base=1000,
        rotary_emb_fraction=1.0,
        rotary_scaling_factor=None,
        rope_parameters=None,
        activation_function="swiglu",
        hidden_act=None,
        layer_norm_epsilon=1e-12,
        qkv_proj_bias=False,
        mlp_fc1_bias=False,
        mlp_fc2_bias=False,
        prenorm=False,
        causal=False,
    )


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
