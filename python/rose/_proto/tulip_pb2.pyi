from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TokenIdsForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOKEN_IDS_FORM_UNSPECIFIED: _ClassVar[TokenIdsForm]
    TOKEN_IDS_FORM_SEGMENT: _ClassVar[TokenIdsForm]
    TOKEN_IDS_FORM_SEQUENCE: _ClassVar[TokenIdsForm]

class InputType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INPUT_TYPE_UNSPECIFIED: _ClassVar[InputType]
    INPUT_TYPE_QUERY: _ClassVar[InputType]
    INPUT_TYPE_DOCUMENT: _ClassVar[InputType]

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_INTERACTIVE: _ClassVar[Priority]
    PRIORITY_BULK: _ClassVar[Priority]

class TruncationPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUNCATION_POLICY_UNSPECIFIED: _ClassVar[TruncationPolicy]
    TRUNCATION_POLICY_ERROR: _ClassVar[TruncationPolicy]
    TRUNCATION_POLICY_CUT: _ClassVar[TruncationPolicy]
    TRUNCATION_POLICY_CHUNK_MAX: _ClassVar[TruncationPolicy]

class TruncationSide(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUNCATION_SIDE_UNSPECIFIED: _ClassVar[TruncationSide]
    TRUNCATION_SIDE_RIGHT: _ClassVar[TruncationSide]
    TRUNCATION_SIDE_LEFT: _ClassVar[TruncationSide]

class PairTruncation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAIR_TRUNCATION_UNSPECIFIED: _ClassVar[PairTruncation]
    PAIR_TRUNCATION_PROTECT_QUERY: _ClassVar[PairTruncation]
    PAIR_TRUNCATION_LONGEST_FIRST: _ClassVar[PairTruncation]

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[DType]
    DTYPE_FLOAT32: _ClassVar[DType]
    DTYPE_FLOAT16: _ClassVar[DType]
    DTYPE_BFLOAT16: _ClassVar[DType]
    DTYPE_INT8: _ClassVar[DType]
    DTYPE_UINT8: _ClassVar[DType]
    DTYPE_BINARY: _ClassVar[DType]
    DTYPE_UBINARY: _ClassVar[DType]

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_INPUT: _ClassVar[ErrorReason]
    ERROR_REASON_TOKEN_ID_OUT_OF_RANGE: _ClassVar[ErrorReason]
    ERROR_REASON_TOO_LONG: _ClassVar[ErrorReason]
    ERROR_REASON_TOKENIZATION_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_FINITE: _ClassVar[ErrorReason]

class InputRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INPUT_ROLE_UNSPECIFIED: _ClassVar[InputRole]
    INPUT_ROLE_DOCUMENT: _ClassVar[InputRole]
    INPUT_ROLE_QUERY: _ClassVar[InputRole]

class OutputKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_KIND_UNSPECIFIED: _ClassVar[OutputKind]
    OUTPUT_KIND_DENSE: _ClassVar[OutputKind]
    OUTPUT_KIND_SPARSE: _ClassVar[OutputKind]
    OUTPUT_KIND_TOKENS: _ClassVar[OutputKind]

class Normalization(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NORMALIZATION_UNSPECIFIED: _ClassVar[Normalization]
    NORMALIZATION_NONE: _ClassVar[Normalization]
    NORMALIZATION_L2: _ClassVar[Normalization]

class Task(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_UNSPECIFIED: _ClassVar[Task]
    TASK_EMBED: _ClassVar[Task]
    TASK_SCORE: _ClassVar[Task]
    TASK_CLASSIFY: _ClassVar[Task]
TOKEN_IDS_FORM_UNSPECIFIED: TokenIdsForm
TOKEN_IDS_FORM_SEGMENT: TokenIdsForm
TOKEN_IDS_FORM_SEQUENCE: TokenIdsForm
INPUT_TYPE_UNSPECIFIED: InputType
INPUT_TYPE_QUERY: InputType
INPUT_TYPE_DOCUMENT: InputType
PRIORITY_UNSPECIFIED: Priority
PRIORITY_INTERACTIVE: Priority
PRIORITY_BULK: Priority
TRUNCATION_POLICY_UNSPECIFIED: TruncationPolicy
TRUNCATION_POLICY_ERROR: TruncationPolicy
TRUNCATION_POLICY_CUT: TruncationPolicy
TRUNCATION_POLICY_CHUNK_MAX: TruncationPolicy
TRUNCATION_SIDE_UNSPECIFIED: TruncationSide
TRUNCATION_SIDE_RIGHT: TruncationSide
TRUNCATION_SIDE_LEFT: TruncationSide
PAIR_TRUNCATION_UNSPECIFIED: PairTruncation
PAIR_TRUNCATION_PROTECT_QUERY: PairTruncation
PAIR_TRUNCATION_LONGEST_FIRST: PairTruncation
DTYPE_UNSPECIFIED: DType
DTYPE_FLOAT32: DType
DTYPE_FLOAT16: DType
DTYPE_BFLOAT16: DType
DTYPE_INT8: DType
DTYPE_UINT8: DType
DTYPE_BINARY: DType
DTYPE_UBINARY: DType
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_INPUT: ErrorReason
ERROR_REASON_TOKEN_ID_OUT_OF_RANGE: ErrorReason
ERROR_REASON_TOO_LONG: ErrorReason
ERROR_REASON_TOKENIZATION_FAILED: ErrorReason
ERROR_REASON_NOT_FINITE: ErrorReason
INPUT_ROLE_UNSPECIFIED: InputRole
INPUT_ROLE_DOCUMENT: InputRole
INPUT_ROLE_QUERY: InputRole
OUTPUT_KIND_UNSPECIFIED: OutputKind
OUTPUT_KIND_DENSE: OutputKind
OUTPUT_KIND_SPARSE: OutputKind
OUTPUT_KIND_TOKENS: OutputKind
NORMALIZATION_UNSPECIFIED: Normalization
NORMALIZATION_NONE: Normalization
NORMALIZATION_L2: Normalization
TASK_UNSPECIFIED: Task
TASK_EMBED: Task
TASK_SCORE: Task
TASK_CLASSIFY: Task

class Input(_message.Message):
    __slots__ = ("text", "token_ids", "form", "second_segment_start")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    SECOND_SEGMENT_START_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: bytes
    form: TokenIdsForm
    second_segment_start: int
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., form: _Optional[_Union[TokenIdsForm, str]] = ..., second_segment_start: _Optional[int] = ...) -> None: ...

class Truncation(_message.Message):
    __slots__ = ("policy", "side", "pair", "max_tokens", "max_query_tokens", "max_document_tokens", "chunk_overlap_tokens")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    PAIR_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUERY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_DOCUMENT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_OVERLAP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    policy: TruncationPolicy
    side: TruncationSide
    pair: PairTruncation
    max_tokens: int
    max_query_tokens: int
    max_document_tokens: int
    chunk_overlap_tokens: int
    def __init__(self, policy: _Optional[_Union[TruncationPolicy, str]] = ..., side: _Optional[_Union[TruncationSide, str]] = ..., pair: _Optional[_Union[PairTruncation, str]] = ..., max_tokens: _Optional[int] = ..., max_query_tokens: _Optional[int] = ..., max_document_tokens: _Optional[int] = ..., chunk_overlap_tokens: _Optional[int] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("data", "dtype", "shape")
    DATA_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, data: _Optional[bytes] = ..., dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class ItemError(_message.Message):
    __slots__ = ("index", "reason", "message")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: ErrorReason
    message: str
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[_Union[ErrorReason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class TruncationReport(_message.Message):
    __slots__ = ("index", "role", "tokens_given", "tokens_used", "side")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_USED_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    index: int
    role: InputRole
    tokens_given: int
    tokens_used: int
    side: TruncationSide
    def __init__(self, index: _Optional[int] = ..., role: _Optional[_Union[InputRole, str]] = ..., tokens_given: _Optional[int] = ..., tokens_used: _Optional[int] = ..., side: _Optional[_Union[TruncationSide, str]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_tokens", "padding_tokens", "sequences")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PADDING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    padding_tokens: int
    sequences: int
    def __init__(self, input_tokens: _Optional[int] = ..., padding_tokens: _Optional[int] = ..., sequences: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("tokenize_us", "queue_us", "compute_us", "total_us")
    TOKENIZE_US_FIELD_NUMBER: _ClassVar[int]
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_US_FIELD_NUMBER: _ClassVar[int]
    tokenize_us: int
    queue_us: int
    compute_us: int
    total_us: int
    def __init__(self, tokenize_us: _Optional[int] = ..., queue_us: _Optional[int] = ..., compute_us: _Optional[int] = ..., total_us: _Optional[int] = ...) -> None: ...

class LoadReport(_message.Message):
    __slots__ = ("queued_tokens", "running_tokens", "max_queued_tokens", "queued_sequences", "steps_in_flight", "draining", "tokens_per_second", "graphs")
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    STEPS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    queued_tokens: int
    running_tokens: int
    max_queued_tokens: int
    queued_sequences: int
    steps_in_flight: int
    draining: bool
    tokens_per_second: int
    graphs: GraphReport
    def __init__(self, queued_tokens: _Optional[int] = ..., running_tokens: _Optional[int] = ..., max_queued_tokens: _Optional[int] = ..., queued_sequences: _Optional[int] = ..., steps_in_flight: _Optional[int] = ..., draining: bool = ..., tokens_per_second: _Optional[int] = ..., graphs: _Optional[_Union[GraphReport, _Mapping]] = ...) -> None: ...

class GraphReport(_message.Message):
    __slots__ = ("graphs", "failed_captures", "eager_steps", "replayed_steps", "bytes")
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    FAILED_CAPTURES_FIELD_NUMBER: _ClassVar[int]
    EAGER_STEPS_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_STEPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    graphs: int
    failed_captures: int
    eager_steps: int
    replayed_steps: int
    bytes: int
    def __init__(self, graphs: _Optional[int] = ..., failed_captures: _Optional[int] = ..., eager_steps: _Optional[int] = ..., replayed_steps: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("request_id", "model", "query", "documents", "instruction", "truncation", "raw_scores", "top_n", "priority", "strict", "label", "all_labels")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ALL_LABELS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    query: Input
    documents: _containers.RepeatedCompositeFieldContainer[Input]
    instruction: str
    truncation: Truncation
    raw_scores: bool
    top_n: int
    priority: Priority
    strict: bool
    label: str
    all_labels: bool
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., query: _Optional[_Union[Input, _Mapping]] = ..., documents: _Optional[_Iterable[_Union[Input, _Mapping]]] = ..., instruction: _Optional[str] = ..., truncation: _Optional[_Union[Truncation, _Mapping]] = ..., raw_scores: bool = ..., top_n: _Optional[int] = ..., priority: _Optional[_Union[Priority, str]] = ..., strict: bool = ..., label: _Optional[str] = ..., all_labels: bool = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("request_id", "model", "scores", "ranking", "item_errors", "truncations", "usage", "timings", "load", "fingerprint", "label_scores", "labels", "best_chunk_start", "best_chunk_tokens", "score_logits")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    ITEM_ERRORS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATIONS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    LABEL_SCORES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    BEST_CHUNK_START_FIELD_NUMBER: _ClassVar[int]
    BEST_CHUNK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCORE_LOGITS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    scores: _containers.RepeatedScalarFieldContainer[float]
    ranking: _containers.RepeatedScalarFieldContainer[int]
    item_errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    truncations: _containers.RepeatedCompositeFieldContainer[TruncationReport]
    usage: Usage
    timings: Timings
    load: LoadReport
    fingerprint: str
    label_scores: Tensor
    labels: _containers.RepeatedScalarFieldContainer[str]
    best_chunk_start: _containers.RepeatedScalarFieldContainer[int]
    best_chunk_tokens: _containers.RepeatedScalarFieldContainer[int]
    score_logits: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., scores: _Optional[_Iterable[float]] = ..., ranking: _Optional[_Iterable[int]] = ..., item_errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., truncations: _Optional[_Iterable[_Union[TruncationReport, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ..., fingerprint: _Optional[str] = ..., label_scores: _Optional[_Union[Tensor, _Mapping]] = ..., labels: _Optional[_Iterable[str]] = ..., best_chunk_start: _Optional[_Iterable[int]] = ..., best_chunk_tokens: _Optional[_Iterable[int]] = ..., score_logits: _Optional[_Iterable[float]] = ...) -> None: ...

class StreamError(_message.Message):
    __slots__ = ("code", "message", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    retry_after_ms: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ScoreStreamResponse(_message.Message):
    __slots__ = ("request_id", "response", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    response: ScoreResponse
    error: StreamError
    def __init__(self, request_id: _Optional[str] = ..., response: _Optional[_Union[ScoreResponse, _Mapping]] = ..., error: _Optional[_Union[StreamError, _Mapping]] = ...) -> None: ...

class EmbedRequest(_message.Message):
    __slots__ = ("request_id", "model", "inputs", "input_type", "prompt_name", "prompt", "instruction", "truncation", "dimensions", "dtype", "normalization", "priority", "strict", "outputs")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZATION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    inputs: _containers.RepeatedCompositeFieldContainer[Input]
    input_type: InputType
    prompt_name: str
    prompt: str
    instruction: str
    truncation: Truncation
    dimensions: int
    dtype: DType
    normalization: Normalization
    priority: Priority
    strict: bool
    outputs: _containers.RepeatedScalarFieldContainer[OutputKind]
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[Input, _Mapping]]] = ..., input_type: _Optional[_Union[InputType, str]] = ..., prompt_name: _Optional[str] = ..., prompt: _Optional[str] = ..., instruction: _Optional[str] = ..., truncation: _Optional[_Union[Truncation, _Mapping]] = ..., dimensions: _Optional[int] = ..., dtype: _Optional[_Union[DType, str]] = ..., normalization: _Optional[_Union[Normalization, str]] = ..., priority: _Optional[_Union[Priority, str]] = ..., strict: bool = ..., outputs: _Optional[_Iterable[_Union[OutputKind, str]]] = ...) -> None: ...

class EmbedResponse(_message.Message):
    __slots__ = ("request_id", "model", "embeddings", "item_errors", "truncations", "usage", "timings", "load", "fingerprint", "sparse", "tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    ITEM_ERRORS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATIONS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    embeddings: Tensor
    item_errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    truncations: _containers.RepeatedCompositeFieldContainer[TruncationReport]
    usage: Usage
    timings: Timings
    load: LoadReport
    fingerprint: str
    sparse: SparseVectors
    tokens: TokenVectors
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., embeddings: _Optional[_Union[Tensor, _Mapping]] = ..., item_errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., truncations: _Optional[_Iterable[_Union[TruncationReport, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., load: _Optional[_Union[LoadReport, _Mapping]] = ..., fingerprint: _Optional[str] = ..., sparse: _Optional[_Union[SparseVectors, _Mapping]] = ..., tokens: _Optional[_Union[TokenVectors, _Mapping]] = ...) -> None: ...

class SparseVectors(_message.Message):
    __slots__ = ("row_offsets", "indices", "values")
    ROW_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    row_offsets: _containers.RepeatedScalarFieldContainer[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, row_offsets: _Optional[_Iterable[int]] = ..., indices: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class TokenVectors(_message.Message):
    __slots__ = ("row_offsets", "vectors")
    ROW_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    row_offsets: _containers.RepeatedScalarFieldContainer[int]
    vectors: Tensor
    def __init__(self, row_offsets: _Optional[_Iterable[int]] = ..., vectors: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class EmbedStreamResponse(_message.Message):
    __slots__ = ("request_id", "response", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    response: EmbedResponse
    error: StreamError
    def __init__(self, request_id: _Optional[str] = ..., response: _Optional[_Union[EmbedResponse, _Mapping]] = ..., error: _Optional[_Union[StreamError, _Mapping]] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("model", "query", "inputs", "input_type", "prompt_name", "prompt", "instruction", "truncation", "return_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    query: Input
    inputs: _containers.RepeatedCompositeFieldContainer[Input]
    input_type: InputType
    prompt_name: str
    prompt: str
    instruction: str
    truncation: Truncation
    return_tokens: bool
    def __init__(self, model: _Optional[str] = ..., query: _Optional[_Union[Input, _Mapping]] = ..., inputs: _Optional[_Iterable[_Union[Input, _Mapping]]] = ..., input_type: _Optional[_Union[InputType, str]] = ..., prompt_name: _Optional[str] = ..., prompt: _Optional[str] = ..., instruction: _Optional[str] = ..., truncation: _Optional[_Union[Truncation, _Mapping]] = ..., return_tokens: bool = ...) -> None: ...

class TokenizedInput(_message.Message):
    __slots__ = ("token_ids", "second_segment_start", "tokens")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SECOND_SEGMENT_START_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    second_segment_start: int
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, token_ids: _Optional[bytes] = ..., second_segment_start: _Optional[int] = ..., tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("sequences", "item_errors", "truncations")
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    ITEM_ERRORS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATIONS_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedCompositeFieldContainer[TokenizedInput]
    item_errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    truncations: _containers.RepeatedCompositeFieldContainer[TruncationReport]
    def __init__(self, sequences: _Optional[_Iterable[_Union[TokenizedInput, _Mapping]]] = ..., item_errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., truncations: _Optional[_Iterable[_Union[TruncationReport, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("model", "include_tokenizer")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    model: str
    include_tokenizer: bool
    def __init__(self, model: _Optional[str] = ..., include_tokenizer: bool = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_sequence_tokens", "max_items_per_request", "max_batch_tokens", "max_queued_tokens", "max_message_bytes", "max_requests_per_stream")
    MAX_SEQUENCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_PER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUESTS_PER_STREAM_FIELD_NUMBER: _ClassVar[int]
    max_sequence_tokens: int
    max_items_per_request: int
    max_batch_tokens: int
    max_queued_tokens: int
    max_message_bytes: int
    max_requests_per_stream: int
    def __init__(self, max_sequence_tokens: _Optional[int] = ..., max_items_per_request: _Optional[int] = ..., max_batch_tokens: _Optional[int] = ..., max_queued_tokens: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_requests_per_stream: _Optional[int] = ...) -> None: ...

class Template(_message.Message):
    __slots__ = ("pair", "query", "document", "default_instruction", "prompts", "default_prompt_name", "strip", "lower_case")
    class PromptsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAIR_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    STRIP_FIELD_NUMBER: _ClassVar[int]
    LOWER_CASE_FIELD_NUMBER: _ClassVar[int]
    pair: str
    query: str
    document: str
    default_instruction: str
    prompts: _containers.ScalarMap[str, str]
    default_prompt_name: str
    strip: bool
    lower_case: bool
    def __init__(self, pair: _Optional[str] = ..., query: _Optional[str] = ..., document: _Optional[str] = ..., default_instruction: _Optional[str] = ..., prompts: _Optional[_Mapping[str, str]] = ..., default_prompt_name: _Optional[str] = ..., strip: bool = ..., lower_case: bool = ...) -> None: ...

class Tokenizer(_message.Message):
    __slots__ = ("tokenizer_json", "sha256")
    TOKENIZER_JSON_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    tokenizer_json: bytes
    sha256: str
    def __init__(self, tokenizer_json: _Optional[bytes] = ..., sha256: _Optional[str] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("model", "architecture", "task", "limits", "pooling", "normalized", "similarity", "dimensions", "matryoshka_dimensions", "labels", "positive_label", "score_activation", "dtype", "device", "vocab_size", "template", "tokenizer", "fingerprint", "server_version", "outputs", "truncation_side")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    MATRYOSHKA_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_LABEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_SIDE_FIELD_NUMBER: _ClassVar[int]
    model: str
    architecture: str
    task: Task
    limits: Limits
    pooling: str
    normalized: bool
    similarity: str
    dimensions: int
    matryoshka_dimensions: _containers.RepeatedScalarFieldContainer[int]
    labels: _containers.RepeatedScalarFieldContainer[str]
    positive_label: str
    score_activation: str
    dtype: str
    device: str
    vocab_size: int
    template: Template
    tokenizer: Tokenizer
    fingerprint: str
    server_version: str
    outputs: _containers.RepeatedScalarFieldContainer[OutputKind]
    truncation_side: TruncationSide
    def __init__(self, model: _Optional[str] = ..., architecture: _Optional[str] = ..., task: _Optional[_Union[Task, str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., pooling: _Optional[str] = ..., normalized: bool = ..., similarity: _Optional[str] = ..., dimensions: _Optional[int] = ..., matryoshka_dimensions: _Optional[_Iterable[int]] = ..., labels: _Optional[_Iterable[str]] = ..., positive_label: _Optional[str] = ..., score_activation: _Optional[str] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., vocab_size: _Optional[int] = ..., template: _Optional[_Union[Template, _Mapping]] = ..., tokenizer: _Optional[_Union[Tokenizer, _Mapping]] = ..., fingerprint: _Optional[str] = ..., server_version: _Optional[str] = ..., outputs: _Optional[_Iterable[_Union[OutputKind, str]]] = ..., truncation_side: _Optional[_Union[TruncationSide, str]] = ...) -> None: ...
