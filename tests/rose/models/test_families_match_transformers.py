"""Tiny random checkpoints of each family, float32 on CPU, against transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from rose.attention.base import AttentionBackend
from rose.attention.sdpa import SdpaAttention
from rose.checkpoint.json_object import JsonObject
from rose.config import BatchLayout
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch
from rose.models.base import Backbone
from rose.models.causal_reranker import CausalReranker
from rose.models.llama import BidirectionalLlamaForSequenceClassification, LlamaModel
from rose.models.qwen3 import (
    BidirectionalQwen3Model,
    Qwen3ForSequenceClassification,
    Qwen3Model,
)
from rose.models.xlm_roberta import XLMRobertaForSequenceClassification, XLMRobertaModel

transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-5
LENGTHS = (1, 2, 7, 33, 64, 5)
SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 100,
}
QWEN3_SIZES: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rope_theta": 1e6,
}


class StateDict:
    """A `WeightSource` over a module's parameters."""

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, module: torch.nn.Module) -> None:
        self._tensors = module.state_dict()

    def has(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, *shape: int) -> torch.Tensor:
        assert tuple(self._tensors[name].shape) == shape
        return self._tensors[name]


@dataclass(frozen=True)
class Case:
    name: str
    reference: Callable[[], torch.nn.Module]
    model_class: Any
    config: dict[str, Any]


def _reference(class_name: str, config_name: str, values: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**values)
    model = getattr(transformers, class_name)(config).eval()
    for parameter in model.parameters():
        # Default weights of 0.02 and norms of exactly 1 would hide a wrong scale or a missing term.
        parameter.data = parameter.data * 1.5 + torch.randn_like(parameter) * 0.02
    return model


XLM_ROBERTA = {**SIZES, "max_position_embeddings": 100, "type_vocab_size": 1, "pad_token_id": 1}
HIDDEN_STATE_CASES = (
    Case(
        "xlm-roberta",
        lambda: _reference("XLMRobertaModel", "XLMRobertaConfig", XLM_ROBERTA),
        XLMRobertaModel,
        XLM_ROBERTA,
    ),
    Case(
        "qwen3",
        lambda: _reference("Qwen3Model", "Qwen3Config", QWEN3_SIZES),
        Qwen3Model,
        QWEN3_SIZES,
    ),
)


def _sequences() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    # From 3: XLM-RoBERTa derives positions from the padding id 1.
    return [torch.randint(3, 120, (n,), generator=generator).tolist() for n in LENGTHS]


def _run(model: Any, backbone: Backbone, **layout: Any) -> tuple[torch.Tensor, ForwardBatch]:
    batch = ForwardBatch.from_sequences(
        _sequences(), BatchLayout(position_offset=backbone.position_offset, **layout)
    )
    attention: AttentionBackend = SdpaAttention(
        backbone.attention_shape, torch.float32, torch.device("cpu")
    )
    attention.plan(batch)
    return model(batch, attention), batch


@pytest.mark.parametrize("case", HIDDEN_STATE_CASES, ids=lambda case: case.name)
@torch.inference_mode()
def test_hidden_states(case: Case) -> None:
    reference = case.reference()
    model = case.model_class(JsonObject("config.json", case.config), StateDict(reference))
    hidden, batch = _run(model, model)
    for index, ids in enumerate(_sequences()):
        expected = reference(torch.tensor([ids])).last_hidden_state[0]
        start, end = batch.cu_seqlens_cpu[index : index + 2]
        torch.testing.assert_close(hidden[start:end], expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("rows", ["first", "last"])
@pytest.mark.parametrize("case", HIDDEN_STATE_CASES, ids=lambda case: case.name)
@torch.inference_mode()
def test_chosen_rows_are_those_of_all_rows(case: Case, rows: str) -> None:
    reference = case.reference()
    model = case.model_class(JsonObject("config.json", case.config), StateDict(reference))
    layout = {"token_buckets": (128,), "sequence_tiers": (16,)}
    hidden, batch = _run(model, model, **layout)
    chosen, _ = _run(lambda b, a: model(b, a, rows), model, **layout)
    assert chosen.shape == (16, 48)
    at = batch.cu_seqlens_cpu[:6] if rows == "first" else batch.cu_seqlens_cpu[1:7] - 1
    torch.testing.assert_close(chosen[:6], hidden[at.tolist()], atol=TOLERANCE, rtol=TOLERANCE)


@torch.inference_mode()
def test_bidirectional_qwen3_sees_the_whole_sequence() -> None:
    reference = _reference("Qwen3Model", "Qwen3Config", QWEN3_SIZES)
    model = BidirectionalQwen3Model(JsonObject("config.json", QWEN3_SIZES), StateDict(reference))
    hidden, batch = _run(model, model)
    for index, ids in enumerate(_sequences()):
        mask = torch.zeros(1, 1, len(ids), len(ids))
        expected = reference(torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
        start, end = batch.cu_seqlens_cpu[index : index + 2]
        torch.testing.assert_close(hidden[start:end], expected, atol=TOLERANCE, rtol=TOLERANCE)


@torch.inference_mode()
def test_xlm_roberta_logits() -> None:
    values = {**XLM_ROBERTA, "num_labels": 2}
    reference = _reference("XLMRobertaForSequenceClassification", "XLMRobertaConfig", values)
    model = XLMRobertaForSequenceClassification(
        JsonObject("config.json", values), StateDict(reference), 2
    )
    logits, _ = _run(model, model.backbone)
    expected = torch.cat([reference(torch.tensor([ids])).logits for ids in _sequences()])
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=TOLERANCE)


@torch.inference_mode()
def test_qwen3_sequence_classification_logits() -> None:
    values = {**QWEN3_SIZES, "num_labels": 1, "pad_token_id": 0}
    reference = _reference("Qwen3ForSequenceClassification", "Qwen3Config", values)
    model = Qwen3ForSequenceClassification(
        JsonObject("config.json", values), StateDict(reference), 1
    )
    logits, _ = _run(model, model.backbone)
    expected = torch.cat([reference(torch.tensor([ids])).logits for ids in _sequences()])
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize(("pooling", "temperature"), [("avg", 1.0), ("cls", 0.5), ("last", 2.0)])
@torch.inference_mode()
def test_bidirectional_llama_logits(pooling: str, temperature: float) -> None:
    """Nemotron rerank: no mask, rows pooled as the configuration says, logits by temperature."""
    values = {**QWEN3_SIZES, "num_labels": 1, "pad_token_id": 0}
    reference = _reference("LlamaForSequenceClassification", "LlamaConfig", values)
    model = BidirectionalLlamaForSequenceClassification(
        JsonObject("config.json", {**values, "pooling": pooling, "temperature": temperature}),
        StateDict(reference),
        1,
    )
    logits, _ = _run(model, model.backbone)
    for index, ids in enumerate(_sequences()):
        mask = torch.zeros(1, 1, len(ids), len(ids))
        hidden = reference.model(torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
        row = {"avg": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pooling]
        expected = reference.score(row) / temperature
        torch.testing.assert_close(logits[index], expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_bidirectional_llama_refuses_a_pooling_it_does_not_know() -> None:
    values = {**QWEN3_SIZES, "num_labels": 1, "pad_token_id": 0}
    reference = _reference("LlamaForSequenceClassification", "LlamaConfig", values)
    config = JsonObject("config.json", {**values, "pooling": "colbert"})
    with pytest.raises(ModelLoadError, match="'pooling' must be one of avg, cls, last, got 'col"):
        BidirectionalLlamaForSequenceClassification(config, StateDict(reference), 1)


@torch.inference_mode()
def test_fused_projections() -> None:
    """Checkpoints whose query, key and value, and gate and up, are one tensor each."""
    reference = _reference("LlamaModel", "LlamaConfig", QWEN3_SIZES)
    weights = StateDict(reference)
    config = JsonObject("config.json", QWEN3_SIZES)
    expected, _ = _run(LlamaModel(config, weights), LlamaModel(config, weights))
    tensors = dict(weights._tensors)
    for prefix in {name.rpartition("q_proj")[0] for name in tensors if "q_proj" in name}:
        parts = [tensors.pop(f"{prefix}{part}_proj.weight") for part in "qkv"]
        tensors[f"{prefix}qkv_proj.weight"] = torch.cat(parts)
    for prefix in {name.rpartition("up_proj")[0] for name in tensors if "up_proj" in name}:
        parts = [tensors.pop(f"{prefix}{part}_proj.weight") for part in ("gate", "up")]
        tensors[f"{prefix}gate_up_proj.weight"] = torch.cat(parts)
    weights._tensors = tensors
    model = LlamaModel(config, weights)
    torch.testing.assert_close(_run(model, model)[0], expected)


@pytest.mark.parametrize("tied", [True, False])
@torch.inference_mode()
def test_qwen3_reranker_is_yes_minus_no(tied: bool) -> None:
    values = {**QWEN3_SIZES, "tie_word_embeddings": tied}
    reference = _reference("Qwen3ForCausalLM", "Qwen3Config", values)
    model = CausalReranker(
        Qwen3Model, JsonObject("config.json", values), StateDict(reference), 17, 4
    )
    logits, _ = _run(model, model.backbone)
    last = torch.cat([reference(torch.tensor([ids])).logits[:, -1] for ids in _sequences()])
    expected = (last[:, 17] - last[:, 4])[:, None]
    torch.testing.assert_close(logits, expected, atol=3 * TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "rope_type 'longrope'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
    ],
)
def test_qwen3_refuses_what_it_would_compute_wrongly(values: dict[str, Any], message: str) -> None:
    reference = _reference("Qwen3Model", "Qwen3Config", QWEN3_SIZES)
    config = JsonObject("config.json", {**QWEN3_SIZES, **values})
    with pytest.raises(ModelLoadError, match=message):
        Qwen3Model(config, StateDict(reference))
