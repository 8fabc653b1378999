"""The sentence-transformers modules after the transformer: pooling, dense layers, normalization."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from rose.checkpoint.json_object import JsonObject, read_json
from rose.config import PoolingMode
from rose.errors import ModelLoadError

MODULES_FILE = "modules.json"
# pplx-embed: round(127 tanh(x)), for vectors that are not normalized.
_TANH_QUANTIZERS = ("st_quantize.FlexibleQuantizer",)

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
_DENSE_ACTIVATIONS = {
    "Identity": None,
    "Tanh": "tanh",
    "GELU": "gelu",
    "ReLU": "relu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
}
# What the modules call the rows that pooling makes, and the logits of a cross-encoder.
_POOLED, _SCORES = "sentence_embedding", "scores"


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """A linear layer on pooled rows."""

    directory: Path
    in_features: int
    out_features: int
    bias: bool
    activation: str | None
    residual: bool = False
    """The input is added, through a layer of its own where the widths differ."""


@dataclass(frozen=True, slots=True)
class LayerNormConfig:
    """LayerNorm on pooled rows."""

    directory: Path
    width: int


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """What follows the transformer of an embedding model."""

    pooling: tuple[PoolingMode, ...]
    include_prompt: bool = True
    dense: tuple[DenseConfig | LayerNormConfig, ...] = ()
    """Layers behind pooling, in order."""
    normalize: bool = False
    scores: bool = False
    """The rows are logits of a cross-encoder, not vectors."""
    int8_of_tanh: bool = False
    """8-bit vectors are of the hyperbolic tangent of each value."""


@dataclass(frozen=True, slots=True)
class Modules:
    """`modules.json`: where the transformer is, and the head if there is one."""

    transformer: Path
    head: HeadConfig | None
    logit_score: JsonObject | None = None
    """Options of the module that scores by the logits of one or two tokens."""
    splade: JsonObject | None = None
    """Options of the module that pools logits of a masked language model."""


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
    reader = _ModulesReader(directory)
    for index, values in enumerate(entries):
        reader.add(JsonObject(f"{MODULES_FILE}[{index}]", values))
    return reader.finish()


class _ModulesReader:
    """Takes the modules in order; each has its place."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.transformer: Path | None = None
        self.pooling: JsonObject | None = None
        self.layers: list[DenseConfig | LayerNormConfig] = []
        self.normalize = False
        self.scores = False
        self.logit_score: JsonObject | None = None
        self.splade: JsonObject | None = None
        self.int8_of_tanh = False

    def add(self, entry: JsonObject) -> None:
        kind = entry.string("type")
        class_name = kind.rpartition(".")[2]
        path = _inside(self.directory, entry.string("path", ""), entry.label)
        if kind in _TANH_QUANTIZERS and self.pooling is not None:
            # Code of the model's own, but we know what it computes.
            self.int8_of_tanh = True
            return
        if not kind.startswith("sentence_transformers."):
            raise ModelLoadError(
                f"{entry.label}: module {kind!r} is code of its own, which is not run"
            )
        scored = self.scores or self.logit_score is not None
        finished = self.normalize or scored or self.splade is not None
        pooled = self.pooling is not None and not finished
        if class_name in ("Transformer", "MLMTransformer") and self.transformer is None:
            self.transformer = path
        elif class_name == "Pooling" and self.transformer is not None and self.pooling is None:
            self.pooling = JsonObject.read(path / "config.json", self.directory)
        elif class_name == "Dense" and pooled:
            layer, self.scores = _read_dense(path, self.directory)
            self.layers.append(layer)
        elif class_name == "LayerNorm" and pooled:
            config = JsonObject.read(path / "config.json", self.directory)
            self.layers.append(LayerNormConfig(path, config.integer("dimension")))
        elif class_name == "Normalize" and (pooled or self.normalize):
            config = JsonObject.read_optional(path / "config.json", self.directory)
            _check_name(config, "module_input_name", (_POOLED,))
            _check_name(config, "module_output_name", (_POOLED,))
            self.normalize = True
        elif class_name == "SpladePooling" and self.pooling is None and not finished:
            self.splade = JsonObject.read(path / "config.json", self.directory)
        elif class_name == "LogitScore" and self.pooling is None and not finished:
            self.logit_score = JsonObject.read(path / "config.json", self.directory)
            _check_name(self.logit_score, "module_input_name", ("causal_logits",))
        elif class_name != "Dropout" or self.transformer is None:
            raise ModelLoadError(
                f"{entry.label}: module {kind!r} is not supported at this place; supported are "
                "Transformer, then Pooling, Dense, LayerNorm, Normalize, or LogitScore, or "
                "SpladePooling"
            )

    def finish(self) -> Modules:
        if self.transformer is None:
            raise ModelLoadError(f"{MODULES_FILE} names no Transformer module")
        if self.pooling is None:
            return Modules(self.transformer, None, self.logit_score, self.splade)
        head = HeadConfig(
            _read_pooling(self.pooling),
            self.pooling.boolean("include_prompt", True),
            tuple(self.layers),
            self.normalize,
            self.scores,
            self.int8_of_tanh,
        )
        return Modules(self.transformer, head)


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


def _read_dense(path: Path, root: Path) -> tuple[DenseConfig, bool]:
    """The layer, and whether its rows are a cross-encoder's logits."""
    config = JsonObject.read(path / "config.json", root)
    activation = config.string("activation_function", "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.") or name not in _DENSE_ACTIVATIONS:
        raise ModelLoadError(
            f"{config.label}: activation_function {activation!r} is not supported; "
            f"supported are {', '.join(_DENSE_ACTIVATIONS)}"
        )
    _check_name(config, "module_input_name", (_POOLED,))
    output = _check_name(config, "module_output_name", (_POOLED, _SCORES))
    layer = DenseConfig(
        path,
        config.integer("in_features"),
        config.integer("out_features"),
        config.boolean("bias", True),
        _DENSE_ACTIVATIONS[name],
        config.boolean("use_residual", False),
    )
    return layer, output == _SCORES


def _check_name(config: JsonObject, field: str, allowed: tuple[str, ...]) -> str:
    name = config.string(field, allowed[0])
    if name not in allowed:
        raise config.wrong(field, " or ".join(allowed), name)
    return name
