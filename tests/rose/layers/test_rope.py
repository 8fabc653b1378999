"""Scaled rotary tables against transformers' own functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.layers.rope import RopeConfig

pytest.importorskip("transformers")

CPU = torch.device("cpu")
HEAD_DIM = 32
POSITIONS = 512
SCALINGS: tuple[dict[str, Any], ...] = (
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 3.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 16,
        "beta_slow": 2,
        "truncate": False,
    },
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "attention_factor": 1.3,
    },
)


def expected(scaling: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=POSITIONS,
        rope_parameters={"rope_theta": 10000.0, **scaling},
    )
    positions = torch.arange(POSITIONS)[None]
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
    return cos[0, :, : HEAD_DIM // 2], sin[0, :, : HEAD_DIM // 2]


@pytest.mark.parametrize("old", [False, True], ids=["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s["rope_type"])
def test_equals_transformers(scaling: dict[str, Any], old: bool) -> None:
    values: dict[str, Any] = {"rope_parameters": {"rope_theta": 10000.0, **scaling}}
    if old:
        kind = scaling["rope_type"]
        values = {"rope_theta": 10000.0, "rope_scaling": {**scaling, "type": kind}}
    rope = RopeConfig(JsonObject("config.json", values), 500.0)
    table = rope.table(POSITIONS, HEAD_DIM, CPU)
    assert rope.num_positions(POSITIONS) == POSITIONS
    cos, sin = expected(scaling)
    torch.testing.assert_close(table.cos, cos, atol=2e-5, rtol=0)
    torch.testing.assert_close(table.sin, sin, atol=2e-5, rtol=0)


def test_ntk_stretches_the_lowest_frequency_by_the_factor() -> None:
    """As GTE's code: a base `factor` times as large, all frequencies divided by factor^(2/dim)."""
    values = {"rope_theta": 20000.0, "rope_scaling": {"type": "ntk", "factor": 8.0}}
    table = RopeConfig(JsonObject("config.json", values), 1.0).table(64, 64, CPU)
    index = torch.arange(32, dtype=torch.float64)
    frequencies = (20000.0 * 8) ** (-index / 32) / 8 ** (2 / 64)
    angles = torch.arange(64)[:, None] * frequencies
    torch.testing.assert_close(table.cos.double(), angles.cos(), atol=1e-5, rtol=0)
    plain = 20000.0 ** (-index / 32)
    assert plain[-1] / frequencies[-1] == pytest.approx(8.0)


def test_yarn_adds_positions() -> None:
    values = {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        }
    }
    rope = RopeConfig(JsonObject("config.json", values), 10000.0)
    assert rope.num_positions(128) == 512
    assert rope.table(128, 32, CPU).cos.shape == (512, 16)


def test_each_kind_of_layer_has_its_own() -> None:
    parameters = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 123.0},
    }
    config = JsonObject("config.json", {"rope_parameters": parameters})
    full = RopeConfig(config, 1.0, layer_type="full_attention")
    local = RopeConfig(config, 1.0, layer_type="sliding_attention", scaled=False)
    assert (full.kind, full.theta) == ("linear", 1e6)
    assert (local.kind, local.theta) == ("default", 123.0)
    old = JsonObject(
        "config.json", {"rope_scaling": {"type": "linear", "factor": 8.0}, "rope_local": 77.0}
    )
    local = RopeConfig(
        old, 1.0, layer_type="sliding_attention", theta_field="rope_local", scaled=False
    )
    assert (local.kind, local.theta) == ("default", 77.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rope_scaling": {"type": "longrope"}}, "rope_type 'longrope' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: field 'factor' is missing"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1, got 0.5"),
    ],
)
def test_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        RopeConfig(JsonObject("config.json", values), 1.0).table(8, 8, CPU)
