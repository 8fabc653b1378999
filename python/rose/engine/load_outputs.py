"""Embedding models that give sparse vectors or vectors of tokens."""

from __future__ import annotations

from typing import cast

from rose.checkpoint.checkpoint import Checkpoint
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.token_heads import (
    TOKEN_VECTORS_FILE,
    TOKEN_WEIGHTS_FILE,
    read_token_head,
    special_token_ids,
)
from rose.checkpoint.weights import SafetensorsWeights
from rose.config import EngineConfig, Outputs
from rose.errors import ConfigError, ModelLoadError
from rose.models.base import Model
from rose.models.embedding import EmbeddingModel
from rose.models.registry import find_backbone
from rose.models.splade import SpladeModel
from rose.models.token_outputs import TokenOutputModel


def is_splade(checkpoint: Checkpoint, config: EngineConfig) -> bool:
    """Whether rows are weights of the vocabulary.

    modules.json says so, or, of a masked language model without one, the option.
    """
    if checkpoint.splade is not None:
        return True
    masked = checkpoint.architecture.endswith("ForMaskedLM")
    return config.outputs == ("sparse",) and checkpoint.head is None and masked


def load_splade(
    checkpoint: Checkpoint, config: EngineConfig, weights: SafetensorsWeights
) -> tuple[Model, Outputs, tuple[str, ...]]:
    """A model of sparse vectors, and its tensors that are not read.

    Raises:
        ModelLoadError: its files cannot be used.
        ConfigError: an option asks for another form.
    """
    # What sentence-transformers does with a directory that names no pooling.
    options = checkpoint.splade or JsonObject("modules.json", {})
    if config.outputs not in ((), ("sparse",)):
        raise ConfigError(f"outputs must be sparse for this model, got {config.outputs}")
    for option in ("pooling", "normalize"):
        if getattr(config, option) is not None:
            raise ConfigError(f"{option} is an option of dense vectors; this model's are sparse")
    pooling = options.string("pooling_strategy", "max")
    activation = options.string("activation_function", "relu")
    if pooling not in ("max", "sum"):
        raise options.wrong("pooling_strategy", "max or sum", pooling)
    if pooling == "sum" and config.deterministic and weights.device.type != "cpu":
        raise ConfigError(
            "deterministic is not possible on a GPU with a SpladePooling of pooling_strategy sum"
        )
    if activation not in ("relu", "log1p_relu"):
        raise options.wrong("activation_function", "relu or log1p_relu", activation)
    backbone_class = find_backbone(checkpoint.architecture)
    backbone = backbone_class(checkpoint.config, weights)
    model = SpladeModel(
        backbone,
        checkpoint.architecture,
        checkpoint.config,
        weights,
        "max" if pooling == "max" else "sum",
        twice=activation == "log1p_relu",
    )
    return model, Outputs(("sparse",)), backbone_class.unused_weights


def with_outputs(
    model: EmbeddingModel, checkpoint: Checkpoint, config: EngineConfig, weights: SafetensorsWeights
) -> tuple[Model, Outputs]:
    """The model with the forms that are asked for; its own one where none is.

    Raises:
        ModelLoadError: a head's file cannot be used.
        ConfigError: the model has no such form.
    """
    kinds = config.outputs or ("dense",)
    if kinds == ("dense",):
        return cast("Model", model), Outputs()
    directory, hidden = checkpoint.transformer, model.backbone.hidden_size
    token_layer = weight_layer = None
    if "tokens" in kinds:
        token_layer = read_token_head(directory, TOKEN_VECTORS_FILE, hidden, weights.device)
    if "sparse" in kinds:
        weight_layer = read_token_head(directory, TOKEN_WEIGHTS_FILE, hidden, weights.device)
        if weight_layer is None or weight_layer.out_features != 1:
            raise ConfigError(
                f"outputs: sparse needs a layer of one output in {TOKEN_WEIGHTS_FILE}, or a model "
                "with a SpladePooling module"
            )
    if model.dense:
        raise ConfigError("outputs: only dense is possible with layers behind the pooling")
    # The published code of bge-m3 leaves the vector of the first token out, and divides a late
    # interaction by the number of the query's vectors.
    published = token_layer is not None
    loaded = TokenOutputModel(
        model,
        with_dense="dense" in kinds,
        token_layer=token_layer,
        weight_layer=weight_layer,
        # Without vectors of tokens its place is free.
        skip_first_token=published or "tokens" not in kinds,
    )
    if "dense" in kinds and loaded.dimensions != model.output_width:
        raise ModelLoadError(
            f"outputs: vectors of tokens have {loaded.dimensions} values and those of sequences "
            f"{model.output_width}; both at once need the same number"
        )
    outputs = Outputs(
        kinds,
        dimensions=loaded.dimensions,
        dense_start=loaded.dense_start,
        skip_first_token=published,
        max_sim_mean=published,
        skip_token_ids=special_token_ids(directory, checkpoint.tokenizer_json),
    )
    return cast("Model", loaded), outputs
