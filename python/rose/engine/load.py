"""From a model directory to a model in memory and the facts about it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import torch

import rose
from rose.checkpoint.answers import AnswerTokens, find_answer_tokens
from rose.checkpoint.checkpoint import Checkpoint, read_checkpoint
from rose.checkpoint.end_token import with_end_token
from rose.checkpoint.fingerprint import fingerprint
from rose.checkpoint.head import DenseConfig, HeadConfig, LayerNormConfig
from rose.checkpoint.location import find_model
from rose.checkpoint.templates import check_control_tokens, find_templates
from rose.checkpoint.token_heads import token_head_files
from rose.checkpoint.weights import SafetensorsWeights, weight_files
from rose.config import (
    Activation,
    BatchLayout,
    EngineConfig,
    ModelInfo,
    Outputs,
    Similarity,
    Task,
    TaskChoice,
)
from rose.engine.load_outputs import is_splade, load_splade, with_outputs
from rose.engine.load_phases import LoadPhases
from rose.errors import ConfigError, ModelLoadError
from rose.layers.linear import load_linear
from rose.layers.norm import LayerNorm
from rose.layers.pooled import PooledLayerNorm, ResidualDense
from rose.layers.pooling import Pooling
from rose.models.base import Model
from rose.models.causal_reranker import CausalReranker
from rose.models.embedding import EmbeddingModel, PooledLayer
from rose.models.registry import (
    find_backbone,
    find_classifier,
    find_decoder,
    is_classifier,
)
from rose.models.token_outputs import TokenOutputModel

logger = logging.getLogger(__name__)

_TORCH_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_POSITIVE_LABELS = {"yes", "true", "positive", "relevant", "entailment", "1"}
# What sentence-transformers does with a directory that names no pooling.
_PLAIN_HEAD = HeadConfig(pooling=("mean",))


def load_model(
    model: str | Path, config: EngineConfig, phases: LoadPhases | None = None
) -> tuple[Model, ModelInfo, Path]:
    """Reads a model and says in which directory it is; its layout is that of an engine without padding.

    Args:
        model: directory, hub id or `demo`.
        config: how to load it.
        phases: gets the time of each phase.

    Raises:
        ModelLoadError: there is no such model or its files cannot be used.
        ConfigError: an option does not fit the model or the machine.
    """
    phases = phases or LoadPhases()
    with phases.measure("read"):
        directory, name = find_model(model, config.revision)
        checkpoint = read_checkpoint(directory)
    with phases.measure("device"):
        device = find_device(config.device)
        if device.type == "cuda":
            # The first call of all starts the device.
            torch.cuda.synchronize(device)
    dtype = find_dtype(config.dtype, device)
    head: HeadConfig | None = None
    outputs = Outputs()
    loaded: Model
    answers = find_answer_tokens(checkpoint, name, config)
    labels: tuple[str, ...] = () if answers is None else ("yes",)
    with phases.measure("weights"):
        weights = SafetensorsWeights(checkpoint.transformer, dtype, device)
        if answers is not None:
            loaded, unused = _load_reranker(checkpoint, config, weights, answers)
        elif is_splade(checkpoint, config):
            head = HeadConfig(pooling=("max",))
            loaded, outputs, unused = load_splade(checkpoint, config, weights)
        elif _is_embedding(checkpoint, config.task):
            head = _head(checkpoint, config)
            embedding, unused = _load_embedding(checkpoint, head, weights)
            loaded, outputs = with_outputs(embedding, checkpoint, config, weights)
            outputs = replace(outputs, int8_of_tanh=head.int8_of_tanh)
            if head.scores:
                labels = tuple(f"LABEL_{index}" for index in range(loaded.output_width))
        else:
            loaded, unused = _load_classifier(checkpoint, config, weights)
            labels = checkpoint.labels
        weights.check_all_taken(unused)
    backbone = loaded.backbone
    max_length = _max_sequence_tokens(checkpoint, config, backbone.max_positions)
    files = list(weights.files)
    for dense in head.dense if head else ():
        files += weight_files(dense.directory)
    if isinstance(loaded, TokenOutputModel):
        files += token_head_files(checkpoint.transformer)
    embeds = head is not None and not head.scores
    task: Task = "embed" if embeds else "score" if loaded.output_width == 1 else "classify"
    pooling = "+".join(head.pooling) if head else "cls" if answers is None else "last_token"
    with phases.measure("read"):
        templates = find_templates(
            config, task, name, checkpoint.prompts, checkpoint.pair_templates
        )
        tokenizer_json = _tokenizer_json(checkpoint, head)
        check_control_tokens(templates, tokenizer_json)
    if answers is not None and not templates.pair:
        logger.warning(
            "no template of pairs: the language model gets a query and a document without a question"
        )
    with phases.measure("fingerprint"):
        model_fingerprint = fingerprint(
            files,
            tokenizer_json,
            checkpoint.architecture,
            pooling,
            head.normalize if head else None,
            max_length,
            checkpoint.prompts,
            templates,
            answers,
            outputs,
            checkpoint.splade.values if checkpoint.splade else None,
            checkpoint.lower_case,
            checkpoint.truncation_side,
            str(dtype),
            rose.__version__,
        )
    info = ModelInfo(
        name=config.served_name or name,
        architecture=checkpoint.architecture,
        task=task,
        output_width=loaded.output_width,
        max_sequence_tokens=max_length,
        vocab_size=backbone.vocab_size,
        pooling=pooling,
        normalized=bool(head and head.normalize),
        similarity=_similarity(checkpoint, outputs),
        activation=_activation(checkpoint, task),
        labels=labels,
        outputs=outputs,
        positive_label=_positive_label(labels) if task == "classify" else 0,
        matryoshka_dimensions=checkpoint.matryoshka_dimensions if embeds else (),
        prompts=checkpoint.prompts,
        default_prompt_name=checkpoint.default_prompt_name,
        templates=templates,
        truncation_side=checkpoint.truncation_side,
        lower_case=checkpoint.lower_case,
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        fingerprint=model_fingerprint,
        tokenizer_json=tokenizer_json,
        layout=BatchLayout(
            token_types=backbone.token_types,
            position_offset=backbone.position_offset,
            token_rows=isinstance(loaded, TokenOutputModel),
        ),
    )
    return loaded, info, directory


def _similarity(checkpoint: Checkpoint, outputs: Outputs) -> Similarity:
    if outputs.kinds[0] == "dense":
        return checkpoint.similarity or "cosine"
    # Weights and vectors of single tokens are compared by products; the directory speaks of vectors.
    splade = outputs.kinds == ("sparse",) and checkpoint.splade is not None
    return (checkpoint.similarity if splade else None) or "dot"


def find_device(name: str) -> torch.device:
    """The device that `device` asks for.

    Raises:
        ConfigError: a CUDA device is asked for that is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        index = device.index or 0
        if index >= count:
            raise ConfigError(f"device {name!r} is not there; CUDA devices found: {count}")
        device = torch.device("cuda", index)
    return device


def find_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype that `dtype` asks for.

    Raises:
        ConfigError: it does not run on the device.
    """
    if name == "auto":
        name = "float32" if device.type == "cpu" else "bfloat16"
    if name == "float16" and device.type == "cpu":
        raise ConfigError("dtype float16 needs a CUDA device; on CPU use float32 or bfloat16")
    return _TORCH_DTYPES[name]


def _head(checkpoint: Checkpoint, config: EngineConfig) -> HeadConfig:
    head = checkpoint.head or _PLAIN_HEAD
    if checkpoint.head is None:
        logger.warning("no modules.json: mean pooling, rows not normalized")
    if not head.include_prompt and any(checkpoint.prompts.values()):
        raise ModelLoadError(
            "1_Pooling/config.json: include_prompt false with prompts is not supported"
        )
    if config.pooling is not None:
        head = replace(head, pooling=(config.pooling,))
    if config.normalize is not None:
        head = replace(head, normalize=config.normalize)
    return head


def _load_embedding(
    checkpoint: Checkpoint, head: HeadConfig, weights: SafetensorsWeights
) -> tuple[EmbeddingModel, tuple[str, ...]]:
    backbone_class = find_backbone(checkpoint.architecture)
    backbone = backbone_class(checkpoint.config, weights)
    width = backbone.hidden_size * len(head.pooling)
    layers: list[PooledLayer] = []
    for layer in head.dense:
        found = layer.width if isinstance(layer, LayerNormConfig) else layer.in_features
        if found != width:
            raise ModelLoadError(
                f"{layer.directory.name}/config.json: the layer reads rows of {found}, "
                f"those before it have {width}"
            )
        layers.append(_load_pooled_layer(layer, weights.device))
        width = layers[-1].out_features
    model = EmbeddingModel(
        backbone, Pooling(head.pooling), tuple(layers), normalized=head.normalize
    )
    return model, backbone_class.unused_weights


def _load_pooled_layer(config: DenseConfig | LayerNormConfig, device: torch.device) -> PooledLayer:
    # Pooled rows are float32, and these layers are small.
    weights = SafetensorsWeights(config.directory, torch.float32, device)
    layer: PooledLayer
    if isinstance(config, LayerNormConfig):
        # torch's own epsilon: the configuration has none.
        layer = PooledLayerNorm(LayerNorm.load(weights, "norm", config.width, 1e-5))
    else:
        layer = load_linear(
            weights,
            "linear",
            config.in_features,
            config.out_features,
            bias=config.bias,
            activation=config.activation,
        )
        if config.residual:
            residual = None
            if config.in_features != config.out_features:
                sizes = config.in_features, config.out_features
                residual = load_linear(weights, "residual", *sizes, bias=False)
            layer = ResidualDense(layer, residual)
    weights.check_all_taken(())
    return layer


def _is_embedding(checkpoint: Checkpoint, task: TaskChoice) -> bool:
    classifies = is_classifier(checkpoint.architecture)
    if checkpoint.head is not None and checkpoint.head.scores:
        return True  # the last of its modules gives the scores
    if task == "score" and not classifies:
        raise ConfigError(
            f"task score needs a classification head, or a language model without "
            f"sentence-transformers modules; this is {checkpoint.architecture}"
        )
    if task == "auto":
        return checkpoint.head is not None or not classifies
    return task == "embed"


def _load_reranker(
    checkpoint: Checkpoint, config: EngineConfig, weights: SafetensorsWeights, answers: AnswerTokens
) -> tuple[Model, tuple[str, ...]]:
    _refuse_embedding_options(checkpoint, config)
    decoder_class = find_decoder(checkpoint.architecture)
    model = CausalReranker(decoder_class, checkpoint.config, weights, answers.yes, answers.no)
    return model, decoder_class.unused_weights


def _load_classifier(
    checkpoint: Checkpoint, config: EngineConfig, weights: SafetensorsWeights
) -> tuple[Model, tuple[str, ...]]:
    _refuse_embedding_options(checkpoint, config)
    classifier_class = find_classifier(checkpoint.architecture)
    model: Model = classifier_class(checkpoint.config, weights, len(checkpoint.labels))
    return model, classifier_class.unused_weights


def _refuse_embedding_options(checkpoint: Checkpoint, config: EngineConfig) -> None:
    for option, unset in (("pooling", None), ("normalize", None), ("outputs", ())):
        if getattr(config, option) != unset:
            raise ConfigError(
                f"{option} is an option of embedding models; "
                f"{checkpoint.architecture} is served as a cross-encoder"
            )


def _tokenizer_json(checkpoint: Checkpoint, head: HeadConfig | None) -> bytes:
    if checkpoint.end_token is None or head is None or "last_token" not in head.pooling:
        return checkpoint.tokenizer_json
    return with_end_token(checkpoint.tokenizer_json, checkpoint.end_token)


def _max_sequence_tokens(checkpoint: Checkpoint, config: EngineConfig, max_positions: int) -> int:
    if config.max_length is not None:
        if config.max_length > max_positions:
            raise ConfigError(
                f"max_length must be at most {max_positions}, the positions of the model, "
                f"got {config.max_length}"
            )
        return config.max_length
    return min(checkpoint.max_length or max_positions, max_positions)


def _activation(checkpoint: Checkpoint, task: Task) -> Activation:
    if task == "embed":
        return "identity"
    if checkpoint.activation is not None:
        return checkpoint.activation
    multi_label = checkpoint.config.values.get("problem_type") == "multi_label_classification"
    return "sigmoid" if task == "score" or multi_label else "softmax"


def _positive_label(labels: tuple[str, ...]) -> int:
    """The label that means relevant, by its name; else the second one."""
    for index, label in enumerate(labels):
        if label.lower() in _POSITIVE_LABELS:
            return index
    return min(1, len(labels) - 1)
