"""A model directory: everything its small files say, before any weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from rose.checkpoint.chat_template import read_pair_template
from rose.checkpoint.end_token import read_end_token
from rose.checkpoint.head import HeadConfig, read_modules
from rose.checkpoint.json_object import JsonObject
from rose.config import Activation, Similarity, Templates, TruncationSide
from rose.errors import ModelLoadError

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
ADAPTER_FILE = "adapter_config.json"
_ST_CONFIG_FILE = "config_sentence_transformers.json"
# The transformer module's own options; old versions named the file after the model type.
_TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# By families.
_EPSILONS = ("layer_norm_eps", "rms_norm_eps", "norm_eps", "layer_norm_epsilon")
# Tokenizers without a limit say 10³⁰.
_NO_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model directory, read and checked."""

    directory: Path
    transformer: Path
    """Where config.json, weights and tokenizer are."""
    architecture: str
    config: JsonObject
    """config.json"""
    head: HeadConfig | None
    """From modules.json; None where there is none."""
    logit_score: JsonObject | None
    """Of a language model that is a cross-encoder: which tokens are its answers."""
    splade: JsonObject | None
    """Of a sparse model: how its logits are pooled."""
    pair_templates: Templates | None
    """From a chat template with the roles of a pair."""
    max_length: int | None
    """Longest sequence that the files ask for; None = as the positions allow."""
    truncation_side: TruncationSide
    lower_case: bool
    end_token: str | None
    """Behind every text of a model that reads the last token, by `add_eos_token`."""
    tokenizer_json: bytes
    prompts: dict[str, str]
    default_prompt_name: str | None
    similarity: Similarity | None
    activation: Activation | None
    """Named by a cross-encoder's files."""
    labels: tuple[str, ...]
    """Of a classifier, by index."""
    matryoshka_dimensions: tuple[int, ...]


def read_checkpoint(directory: Path) -> Checkpoint:
    """Reads sentence-transformers, cross-encoder and plain transformers directories.

    Raises:
        ModelLoadError: a file is missing or malformed; names file, field and value.
    """
    modules = read_modules(directory)
    transformer = modules.transformer if modules else directory
    _refuse_adapter(transformer)
    if not (transformer / CONFIG_FILE).is_file():
        raise ModelLoadError(f"{transformer} is not a model directory: it has no {CONFIG_FILE}")
    config = JsonObject.read(transformer / CONFIG_FILE, directory)
    architectures = config.array("architectures")
    if not architectures or not isinstance(architectures[0], str):
        raise config.wrong("architectures", "an array with a class name", architectures)
    _check_epsilons(config)
    options = _transformer_options(transformer, directory)
    st_config = JsonObject.read_optional(directory / _ST_CONFIG_FILE, directory)
    tokenizer_config = JsonObject.read_optional(transformer / "tokenizer_config.json", directory)
    tokenizer_json = _tokenizer_json(transformer)
    prompts, default_prompt_name = _prompts(st_config)
    return Checkpoint(
        directory=directory,
        transformer=transformer,
        architecture=architectures[0],
        config=config,
        head=modules.head if modules else None,
        logit_score=modules.logit_score if modules else None,
        splade=modules.splade if modules else None,
        pair_templates=read_pair_template(
            transformer,
            tokenizer_config,
            options,
            prompts[default_prompt_name] if default_prompt_name else None,
        ),
        max_length=_max_length(options, tokenizer_config),
        truncation_side=_truncation_side(tokenizer_config, tokenizer_json),
        lower_case=options.boolean("do_lower_case", False),
        end_token=read_end_token(tokenizer_config),
        tokenizer_json=tokenizer_json,
        prompts=prompts,
        default_prompt_name=default_prompt_name,
        similarity=_similarity(st_config),
        activation=_activation(config, st_config),
        labels=_labels(config),
        matryoshka_dimensions=_matryoshka_dimensions(config),
    )


def _check_epsilons(config: JsonObject) -> None:
    """Norms divide by what these keep from zero."""
    for field in _EPSILONS:
        if config.has(field) and not 0 < config.number(field) < 1:
            raise config.wrong(field, "more than 0 and less than 1", config.values[field])


def _refuse_adapter(transformer: Path) -> None:
    path = transformer / ADAPTER_FILE
    if not path.is_file():
        return
    adapter = JsonObject.read(path, transformer)
    kind = adapter.string("peft_type", "adapter")
    base = adapter.string("base_model_name_or_path", "its base model")
    raise ModelLoadError(
        f"{transformer} is a {kind} adapter of {base} ({ADAPTER_FILE}), not a whole model. Merge it "
        "once: PeftModel.from_pretrained(BASE, DIRECTORY).merge_and_unload().save_pretrained(OUT), "
        "and the tokenizer beside it"
    )


def _transformer_options(transformer: Path, root: Path) -> JsonObject:
    for name in _TRANSFORMER_FILES:
        if (transformer / name).is_file():
            return JsonObject.read(transformer / name, root)
    return JsonObject(_TRANSFORMER_FILES[0], {})


def _max_length(options: JsonObject, tokenizer_config: JsonObject) -> int | None:
    # Today's place, then the one that older versions write.
    text_options = options.child("processing_kwargs").child("text")
    if text_options.has("max_length"):
        return text_options.integer("max_length")
    if options.has("max_seq_length"):
        return options.integer("max_seq_length")
    limit = tokenizer_config.number("model_max_length", _NO_LIMIT)
    return int(limit) if 1 <= limit < _NO_LIMIT else None


def _tokenizer_json(transformer: Path) -> bytes:
    path = transformer / TOKENIZER_FILE
    if path.is_file():
        return path.read_bytes()
    raise ModelLoadError(
        f"{transformer} has no {TOKENIZER_FILE}. Write one with transformers: "
        "AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
    )


def _truncation_side(tokenizer_config: JsonObject, tokenizer_json: bytes) -> TruncationSide:
    """Where transformers looks: a tokenizer saved after its side was set has it in its own file."""
    if tokenizer_config.has("truncation_side"):
        side = tokenizer_config.string("truncation_side")
        if side not in get_args(TruncationSide):
            raise tokenizer_config.wrong("truncation_side", "right or left", side)
        return cast("TruncationSide", side)
    # The file can be tens of megabytes, and almost never says so.
    if b'"Left"' not in tokenizer_json:
        return "right"
    tokenizer = JsonObject.parse(TOKENIZER_FILE, tokenizer_json)
    return "left" if tokenizer.child("truncation").string("direction", "") == "Left" else "right"


def _prompts(st_config: JsonObject) -> tuple[dict[str, str], str | None]:
    prompts = st_config.child("prompts")
    named = {name: prompts.string(name) for name in prompts.values}
    default = (
        st_config.string("default_prompt_name") if st_config.has("default_prompt_name") else None
    )
    if default is not None and default not in named:
        raise ModelLoadError(
            f"{st_config.label}: default_prompt_name {default!r} is not among the prompts "
            f"{', '.join(named) or '(none)'}"
        )
    return named, default


def _similarity(st_config: JsonObject) -> Similarity | None:
    if not st_config.has("similarity_fn_name"):
        return None
    name = st_config.string("similarity_fn_name")
    if name == "dot_product":
        name = "dot"
    if name not in get_args(Similarity):
        raise st_config.wrong(
            "similarity_fn_name", f"one of {', '.join(get_args(Similarity))}", name
        )
    return cast("Similarity", name)


def _activation(config: JsonObject, st_config: JsonObject) -> Activation | None:
    """Where sentence-transformers looks, newest place first."""
    block = config.child("sentence_transformers")
    places = (
        (st_config, "activation_fn"),
        (block, "activation_fn"),
        (config, "sbert_ce_default_activation_function"),
    )
    for place, field in places:
        if not place.has(field):
            continue
        path = place.string(field)
        name = path.rpartition(".")[2].lower()
        if not path.startswith("torch.") or name not in get_args(Activation):
            raise place.wrong(field, "torch's Identity, Sigmoid or Softmax", path)
        return cast("Activation", name)
    return None


def _labels(config: JsonObject) -> tuple[str, ...]:
    """`id2label` by index; transformers' own two labels where nothing is said."""
    names = config.child("id2label")
    if not names.values:
        return tuple(f"LABEL_{index}" for index in range(config.integer("num_labels", 2)))
    labels = [names.values.get(str(index)) for index in range(len(names.values))]
    if not all(isinstance(label, str) for label in labels):
        raise config.wrong("id2label", "an object from 0, 1, … to names", names.values)
    return tuple(cast("list[str]", labels))


def _matryoshka_dimensions(config: JsonObject) -> tuple[int, ...]:
    dimensions = config.array("matryoshka_dimensions", [])
    if not all(isinstance(value, int) and value > 0 for value in dimensions):
        raise config.wrong("matryoshka_dimensions", "an array of positive integers", dimensions)
    return tuple(dimensions)
