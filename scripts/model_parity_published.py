"""Checkpoints as the families' own code wrote them, where transformers gives other names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


def _rewrite(
    directory: Path, architecture: str, renames: Sequence[tuple[str, str]], **more: Any
) -> None:
    """Tensor names by substitution in order; configuration fields by update (None removes)."""
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
