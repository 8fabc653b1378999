"""Options of the engine, and the facts about a loaded model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from rose.errors import ConfigError
from rose.http_config import HttpConfig, check_address

DType = Literal["auto", "float32", "bfloat16", "float16"]
Task = Literal["embed", "score", "classify"]
TaskChoice = Literal["auto", "embed", "score"]
OutputKind = Literal["dense", "sparse", "tokens"]
SelfCheckMode = Literal["refuse", "warn", "off"]
TruncationSide = Literal["right", "left"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
Activation = Literal["identity", "sigmoid", "softmax"]
PoolingMode = Literal["mean", "cls", "last_token", "max", "mean_sqrt_len_tokens", "weighted_mean"]
LogLevel = Literal["error", "warn", "info", "debug", "trace"]
LogFormat = Literal["text", "json"]
AttentionName = Literal[
    "auto", "sdpa", "short", "flash_attn", "flashinfer", "fa3_fwd", "flash_attn_4"
]


# Far beyond what is of use. A slip of the pen must not end in a machine without memory.
_MAX_BATCH = 1 << 22
_MAX_THREADS = 1024
_MAX_QUEUED_TOKENS = 1 << 48
# Lengths and counts of the protocol have 32 bits.
_MAX_U32 = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How a model is loaded and run.

    Raises:
        ConfigError: an option has a value that cannot be used.
    """

    device: str = "auto"
    """`auto` (CUDA if there is a device), `cpu`, `cuda` or `cuda:N`."""
    dtype: DType = "auto"
    """Type of weights and activations; `auto` is float32 on CPU and bfloat16 on CUDA."""
    max_batch_tokens: int = 16384
    """Most tokens of one step, unless a single sequence is longer; on CUDA the rest of an interactive
    request is one step up to 1.75 times as many, since a full and a small one would take longer."""
    max_batch_sequences: int = 512
    """Most sequences of one step."""
    pooling: PoolingMode | None = None
    """Replaces the pooling that the model directory names."""
    normalize: bool | None = None
    """Replaces the model directory's word on vectors of Euclidean length 1."""
    max_length: int | None = None
    """Longest sequence in tokens, special tokens included; at most what the model can."""
    task: TaskChoice = "auto"
    """`score` serves a language model as a reranker that answers yes or no, `embed` a checkpoint
    with a classification head as an embedding model; `auto` goes by the model directory."""
    template: str = "auto"
    """Name of a built-in set of templates, `none`, or `auto`: what the model directory says, else
    the built-in set for its name."""
    pair_template: str | None = None
    """Replaces the template of pairs: `{query}`, `{document}`, perhaps `{instruction}`."""
    query_template: str | None = None
    """Replaces the template of queries; ends with `{query}`. Empty for none."""
    document_template: str | None = None
    """Replaces the template of documents; ends with `{document}`. Empty for none."""
    instruction: str | None = None
    """Replaces the instruction that a template has where a request brings none."""
    outputs: tuple[OutputKind, ...] = ()
    """Forms of an embedding model's vectors, the first for who asks for none; empty = what the
    model is made for. `tokens`, and `sparse` beside others, make a step return a row for each token."""
    self_check: SelfCheckMode = "refuse"
    """What happens when a model with golden scores (`rose_golden.json`) gives others."""
    revision: str | None = None
    """Branch, tag or commit on the model hub."""
    attention: AttentionName = "auto"
    """Attention back end."""
    num_threads: int | None = None
    """Threads of a CPU step; None leaves torch's own choice."""
    deterministic: bool = False
    """Results have the same bits whatever else is computed beside them; costs throughput."""
    graph_max_tokens: int = 28672
    """Steps of up to this many tokens become CUDA graphs; larger ones run eagerly. 0 = no graphs."""
    max_graphs: int = 512
    """CUDA graphs kept; step shapes beyond that run eagerly."""
    warmup_tokens: tuple[int, ...] = ()
    """Lengths of single sequences whose graphs are captured before the server is ready."""
    num_input_slots: int = 3
    """Input buffers: one filled, one running, one whose copy may still be read."""
    served_name: str | None = None
    """Name that clients see; None takes the directory's or the hub's name."""

    def __post_init__(self) -> None:
        device = self.device
        known = device in ("auto", "cpu", "cuda")
        if not known and not (device.startswith("cuda:") and device[5:].isdigit()):
            raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}")
        _one_of("dtype", self.dtype, get_args(DType))
        _one_of("attention", self.attention, get_args(AttentionName))
        _one_of("task", self.task, get_args(TaskChoice))
        for kind in self.outputs:
            _one_of("outputs", kind, get_args(OutputKind))
        if len(set(self.outputs)) < len(self.outputs):
            raise ConfigError(f"outputs must differ from each other, got {', '.join(self.outputs)}")
        _one_of("self_check", self.self_check, get_args(SelfCheckMode))
        if self.pooling is not None:
            _one_of("pooling", self.pooling, get_args(PoolingMode))
        for name, lowest, highest in (
            ("max_batch_tokens", 1, _MAX_BATCH),
            ("max_batch_sequences", 1, _MAX_BATCH),
            ("max_length", 1, _MAX_BATCH),
            ("num_threads", 1, _MAX_THREADS),
            ("graph_max_tokens", 0, _MAX_BATCH),
            ("max_graphs", 0, _MAX_BATCH),
            ("num_input_slots", 3, 64),
        ):
            value = getattr(self, name)
            if value is not None:
                _integer(name, value, lowest, highest)
        for tokens in self.warmup_tokens:
            if not 1 <= tokens <= self.max_batch_tokens:
                raise ConfigError(
                    f"warmup_tokens must be between 1 and max_batch_tokens "
                    f"{self.max_batch_tokens}, got {tokens}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """How a model is served; mirrored by `ServerConfig` and `SchedulerConfig` in `crates/tulip`.

    Raises:
        ConfigError: an option has a value that cannot be used.
    """

    grpc_address: str = "127.0.0.1:50051"
    """`HOST:PORT` to listen on; port 0 takes any."""
    max_items_per_request: int = 10_000
    """Most documents or inputs of one request."""
    max_message_bytes: int = 64 << 20
    """Most bytes of one message."""
    max_requests_per_stream: int = 128
    """Most requests in flight on one stream; more wait in the transport."""
    max_queued_tokens: int = 4_194_304
    """Most tokens that may wait; more is refused."""
    bulk_share: float = 0.1
    """Share of the steps' tokens that bulk work keeps while interactive work waits."""
    max_steps_in_flight: int = 2
    """Steps handed to the engine and not finished, 1 or 2."""
    worker_threads: int = 2
    """Threads over which gRPC connections are spread; HTTP has as many of its own."""
    tokenizer_threads: int = 2
    """Threads that tokenize."""
    drain_timeout: float = 30.0
    """Seconds that a stopping server waits for what is in flight."""
    strict_model_name: bool = False
    """Refuse requests that name another model than the one served."""
    spin_us: int | None = None
    """Microseconds that the engine's thread stays awake after a request or a step, and a network
    thread (one for four cores at the most) after its own calls, so that the next need not wake
    them; costs a busy core each. None = 40000 on a GPU host with 8 cores, else 0."""
    http: HttpConfig | None = None
    """The HTTP gateway in the same process; None = gRPC only. `rose serve` has one by default."""
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"

    def __post_init__(self) -> None:
        check_address("grpc_address", self.grpc_address)
        _one_of("log_level", self.log_level, get_args(LogLevel))
        _one_of("log_format", self.log_format, get_args(LogFormat))
        for name, highest in (
            ("max_items_per_request", _MAX_U32),
            ("max_message_bytes", _MAX_U32),
            ("max_requests_per_stream", _MAX_U32),
            ("max_queued_tokens", _MAX_QUEUED_TOKENS),
            ("max_steps_in_flight", 2),
            ("worker_threads", _MAX_THREADS),
            ("tokenizer_threads", _MAX_THREADS),
        ):
            _integer(name, getattr(self, name), 1, highest)
        if self.spin_us is not None and not 0 <= self.spin_us <= 1_000_000:
            raise ConfigError(f"spin_us must be from 0 to 1000000, got {self.spin_us}")
        if not 0.0 <= self.bulk_share <= 1.0:
            raise ConfigError(f"bulk_share must be from 0 to 1, got {self.bulk_share}")
        if not 0.0 <= self.drain_timeout <= 86_400.0:
            raise ConfigError(
                f"drain_timeout must be from 0 to 86400 seconds, got {self.drain_timeout}"
            )


def _integer(name: str, value: object, lowest: int, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise ConfigError(f"{name} must be an integer of at least {lowest}, got {value!r}")
    if value > highest:
        raise ConfigError(f"{name} must be at most {highest}, got {value}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """How a batch lies in an input buffer, mirrored by `BatchLayout` in `crates/tulip`.

    Section after section, all int32:

        cu_seqlens      [padded_sequences + 1]  first token of each sequence; padding slots
                                                repeat the last value
        token_ids       [padded_tokens]         padding rows hold token 0
        positions       [padded_tokens]         0, 1, … inside each sequence + position_offset
        token_type_ids  [padded_tokens]         only when `token_types`

    Where padding rows exist they form one sequence of their own, the slot after the last real one.
    """

    token_buckets: tuple[int, ...] = ()
    """Token counts to which a batch is padded, ascending; a larger batch is exact."""
    sequence_tiers: tuple[int, ...] = ()
    """Sequence slots to which a batch is padded, ascending; a larger batch is exact."""
    token_types: bool = False
    """The model reads token types."""
    position_offset: int = 0
    """Added to each position (RoBERTa's positions begin at `pad_token_id + 1`)."""
    token_rows: bool = False
    """The step returns a row for each token, in the order of the input, not for each sequence."""
    max_whole_request_tokens: int = 0
    """A request of which so many tokens or fewer are left is one step, larger than a batch; up to
    `EngineConfig.max_batch_tokens` = never."""

    def padded_shape(self, num_tokens: int, num_sequences: int) -> tuple[int, int]:
        """Token rows and sequence slots of a batch with padding."""
        padded_tokens = _smallest_at_least(self.token_buckets, num_tokens)
        slots = num_sequences + (padded_tokens > num_tokens)
        return padded_tokens, _smallest_at_least(self.sequence_tiers, slots)

    def buffer_len(self, padded_tokens: int, padded_sequences: int) -> int:
        """Length of a batch in the input buffer, in int32 values."""
        return padded_sequences + 1 + padded_tokens * (3 if self.token_types else 2)


def _smallest_at_least(steps: tuple[int, ...], value: int) -> int:
    return next((step for step in steps if step >= value), value)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Forms of an embedding model's vectors, mirrored by `Outputs` in `crates/tulip`.

    With `BatchLayout.token_rows` the first `dimensions` values of a token's row are its vector; the
    sequence's dense vector stands in the row of the first token, from `dense_start` on; the last
    value is the token's weight.
    """

    kinds: tuple[OutputKind, ...] = ("dense",)
    """The first is what Embed gives unasked, and what Score compares."""
    dimensions: int = 0
    """Values of a vector; 0 = the whole row."""
    dense_start: int = 0
    """Of rows of tokens: where in the first one the dense vector begins."""
    skip_first_token: bool = False
    """The first token of a sequence has no vector of its own."""
    max_sim_mean: bool = False
    """A late interaction is the mean over the query's tokens, not the sum."""
    skip_token_ids: tuple[int, ...] = ()
    """Tokens without a weight: special ones."""
    int8_of_tanh: bool = False
    """8-bit values are of the hyperbolic tangent of each value, as the model was trained for."""


@dataclass(frozen=True, slots=True)
class Templates:
    """Prompts with places in them, mirrored by `Templates` in `crates/tulip`; empty = none."""

    pair: str = ""
    """Of a pair: `{query}`, then `{document}`, perhaps `{instruction}` before it; `{split}` where what
    is before and after it is tokenized apart; `{if instruction}` and `{end}` around a part that is
    there only with an instruction."""
    query: str = ""
    """Of a query by itself: ends with `{query}`, perhaps with `{instruction}` before it."""
    document: str = ""
    """Of a document by itself: ends with `{document}`."""
    default_instruction: str = ""
    """Fills `{instruction}` where the request says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What is served, fixed once loaded; mirrored by `ModelInfo` in `crates/tulip`."""

    name: str
    """Name that clients see."""
    architecture: str
    """Class name in the checkpoint's configuration."""
    task: Task
    output_width: int
    """Width of an output row: dimensions of the vector, or number of labels."""
    max_sequence_tokens: int
    """Longest sequence, special tokens included."""
    vocab_size: int
    """Token ids are below this."""
    pooling: str
    """`mean`, `cls`, `last_token`, …; modes that are concatenated are joined by `+`."""
    normalized: bool
    """Rows have Euclidean length 1."""
    similarity: Similarity = "cosine"
    activation: Activation = "identity"
    labels: tuple[str, ...] = ()
    """Label names by index; empty for embedding models."""
    positive_label: int = 0
    """Index of the label whose score `Score` returns."""
    outputs: Outputs = field(default_factory=Outputs)
    matryoshka_dimensions: tuple[int, ...] = ()
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    templates: Templates = field(default_factory=Templates)
    truncation_side: TruncationSide = "right"
    """Which end of a text that is too long is cut off, where the request does not say."""
    strip: bool = False
    """Outer white space is removed before tokenization."""
    lower_case: bool = False
    """Text is lower-cased before tokenization."""
    dtype: str = "float32"
    device: str = "cpu"
    fingerprint: str = ""
    """Hash of weights, tokenizer, templates, pooling, dtype and version."""
    tokenizer_json: bytes = field(default=b"", repr=False)
    layout: BatchLayout = field(default_factory=BatchLayout)
