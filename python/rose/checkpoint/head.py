"""The sentence-transformers modules after the transformer: pooling, dense layers, normalization."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from rose.checkpoint.json_object import JsonObject, read_json
from rose.config import PoolingMode
from rose.errors import ModelLoadError

MODULES_FILE = "modules.json"

# In the order in which sentence-transformers concatenates them.
_OLD_POOLING_FLAGS: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last_token",
}
_POOLING_NAMES: dict[str, PoolingMode] = {
    "lasttoken": "last_token",
    "weightedmean": "weighted_mean",
}
_DENSE_ACTIVATIONS = {"Identity": None, "Tanh": "tanh", "GELU": "gelu", "ReLU": "relu"}


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """A linear layer on pooled rows."""

    directory: Path
    in_features: int
    out_features: int
    bias: bool
    activation: str | None


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """What follows the transformer of an embedding model."""

    pooling: tuple[PoolingMode, ...]
    include_prompt: bool = True
    dense: tuple[DenseConfig, ...] = ()
    normalize: bool = False


@dataclass(frozen=True, slots=True)
class Modules:
    """`modules.json`: where the transformer is, and the head if there is one."""

    transformer: Path
    head: HeadConfig | None
    logit_score: JsonObject | None = None
    """Options of the module that scores by the logits of two tokens."""


def read_modules(directory: Path) -> Modules | None:
    """What `modules.json` says; None where there is no such file.

    Raises:
        ModelLoadError: the file is malformed, or names a module that is not supported.
    """
    path = directory / MODULES_FILE
    if not path.is_file():
        return None
    entries = read_json(path, MODULES_FILE)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ModelLoadError(f"{MODULES_FILE}: an array of objects is expected")
    transformer: Path | None = None
    pooling: JsonObject | None = None
    dense: list[DenseConfig] = []
    normalize = False
    logit_score: JsonObject | None = None
    for index, values in enumerate(entries):
        entry = JsonObject(f"{MODULES_FILE}[{index}]", values)
        kind = entry.string("type")
        class_name = kind.rpartition(".")[2]
        module_path = _inside(directory, entry.string("path", ""), entry.label)
        if not kind.startswith("sentence_transformers."):
            raise ModelLoadError(
                f"{entry.label}: module {kind!r} is code of its own, which is not run"
            )
        if class_name == "Transformer" and transformer is None:
            transformer = module_path
        elif class_name == "LogitScore" and transformer is not None and pooling is None:
            logit_score = JsonObject.read(module_path / "config.json", directory)
        elif class_name == "Pooling" and pooling is None and logit_score is None:
            pooling = JsonObject.read(module_path / "config.json", directory)
        elif class_name == "Dense" and pooling is not None and not normalize:
            dense.append(_read_dense(module_path, directory))
        elif class_name == "Normalize" and pooling is not None:
            normalize = True
        else:
            raise ModelLoadError(
                f"{entry.label}: module {kind!r} is not supported at this place; supported are "
                "Transformer, then Pooling, Dense, Normalize"
            )
    if transformer is None:
        raise ModelLoadError(f"{MODULES_FILE} names no Transformer module")
    if pooling is None:
        return Modules(transformer, None, logit_score)
    head = HeadConfig(
        _read_pooling(pooling), pooling.boolean("include_prompt", True), tuple(dense), normalize
    )
    return Modules(transformer, head)


def _inside(directory: Path, relative: str, label: str) -> Path:
    path = directory / relative
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ModelLoadError(f"{label}: path {relative!r} leads out of the model directory")
    return path


def _read_pooling(config: JsonObject) -> tuple[PoolingMode, ...]:
    if config.has("pooling_mode"):
        value = config.values["pooling_mode"]
        names = value if isinstance(value, list) else [value]
        modes = [_POOLING_NAMES.get(name, name) for name in names if isinstance(name, str)]
        if not modes or any(mode not in get_args(PoolingMode) for mode in modes):
            raise ModelLoadError(f"{config.label}: pooling_mode {value!r} is not supported")
        return tuple(cast("PoolingMode", mode) for mode in modes)
    unknown = [
        name
        for name, value in config.values.items()
        if name.startswith("pooling_mode_") and value and name not in _OLD_POOLING_FLAGS
    ]
    if unknown:
        raise ModelLoadError(f"{config.label}: pooling {unknown[0]!r} is not supported")
    flags = [mode for name, mode in _OLD_POOLING_FLAGS.items() if config.boolean(name, False)]
    return tuple(flags) or ("mean",)


def _read_dense(path: Path, root: Path) -> DenseConfig:
    config = JsonObject.read(path / "config.json", root)
    activation = config.string("activation_function", "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.") or name not in _DENSE_ACTIVATIONS:
        raise ModelLoadError(
            f"{config.label}: activation_function {activation!r} is not supported; "
            f"supported are {', '.join(_DENSE_ACTIVATIONS)}"
        )
    if config.boolean("use_residual", False):
        raise ModelLoadError(f"{config.label}: use_residual true is not supported")
    return DenseConfig(
        path,
        config.integer("in_features"),
        config.integer("out_features"),
        config.boolean("bias", True),
        _DENSE_ACTIVATIONS[name],
    )
