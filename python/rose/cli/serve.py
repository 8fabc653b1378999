"""`rose serve`: one model behind gRPC and HTTP."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from rose.cli.engine_option import (
    Attention,
    Deterministic,
    Device,
    DType,
    GraphMaxTokens,
    MaxBatchSequences,
    MaxBatchTokens,
    MaxLength,
    Model,
    Output,
    Pooling,
    Revision,
    Task,
)
from rose.cli.failure import UsageError
from rose.cli.option import given_keys, listed, option_names, options_of, with_option_name
from rose.config import EngineConfig, ServeConfig
from rose.errors import ConfigError, EngineFailedError, RoseError
from rose.http_config import HttpConfig

_option = options_of("serve")
_OPTION_OF_FIELD = option_names(
    {field.name for config in (EngineConfig, ServeConfig, HttpConfig) for field in fields(config)}
    | {"http_address"},
    {
        "served_name": "served-model-name",
        "api_keys": "api-key",
        "cors_origins": "cors-origin",
        "outputs": "output",
        "max_body_bytes": "max-message-bytes",
    },
)

_ENGINE = EngineConfig()
_SERVE = ServeConfig()
_HTTP = HttpConfig()


def serve(
    model: Model,
    grpc_address: Annotated[
        str, _option("Where to listen; port 0 takes any.", "GRPC_ADDRESS", metavar="HOST:PORT")
    ] = _SERVE.grpc_address,
    http_address: Annotated[
        str,
        _option(
            "Where to answer HTTP; port 0 takes any, off for none.",
            "HTTP_ADDRESS",
            metavar="HOST:PORT",
        ),
    ] = _HTTP.address,
    api_key: Annotated[
        list[str] | None,
        _option(
            "A key of which HTTP requests must carry one; repeatable.", "API_KEYS", metavar="KEY"
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        _option(
            "An origin that browsers may call from, or *; repeatable.",
            "CORS_ORIGINS",
            metavar="ORIGIN",
        ),
    ] = None,
    tls_certificate: Annotated[
        str | None, _option("Certificate chain of HTTP in PEM.", "TLS_CERTIFICATE", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        str | None, _option("Private key of HTTP in PEM.", "TLS_KEY", metavar="FILE")
    ] = None,
    request_timeout: Annotated[
        float,
        _option("Deadline of HTTP requests that bring none.", "REQUEST_TIMEOUT", metavar="SECONDS"),
    ] = _HTTP.request_timeout,
    auto_truncate: Annotated[
        bool,
        _option(
            "Cut over-long inputs where TEI's and OpenAI's requests do not say.",
            "AUTO_TRUNCATE",
            "--auto-truncate/--no-auto-truncate",
        ),
    ] = _HTTP.auto_truncate,
    served_model_name: Annotated[
        str | None, _option("Name that clients see.", "SERVED_MODEL_NAME", metavar="NAME")
    ] = None,
    strict_model_name: Annotated[
        bool,
        _option(
            "Refuse requests that name another model.", "STRICT_MODEL_NAME", "--strict-model-name"
        ),
    ] = _SERVE.strict_model_name,
    revision: Revision = None,
    device: Device = _ENGINE.device,
    dtype: DType = _ENGINE.dtype,
    attention: Attention = _ENGINE.attention,
    task: Task = _ENGINE.task,
    template: Annotated[
        str,
        _option("A built-in set of templates, auto or none.", "TEMPLATE", metavar="NAME"),
    ] = _ENGINE.template,
    pair_template: Annotated[
        str | None,
        _option(
            "Replaces the prompt of a pair: {query}, {document}, perhaps {instruction}, {split}, and "
            "{if instruction} and {end} around an optional part.",
            "PAIR_TEMPLATE",
            metavar="TEXT",
        ),
    ] = None,
    query_template: Annotated[
        str | None,
        _option(
            "Replaces the prompt of a query; ends with {query}.", "QUERY_TEMPLATE", metavar="TEXT"
        ),
    ] = None,
    document_template: Annotated[
        str | None,
        _option(
            "Replaces the prompt of a document; ends with {document}.",
            "DOCUMENT_TEMPLATE",
            metavar="TEXT",
        ),
    ] = None,
    instruction: Annotated[
        str | None,
        _option(
            "Instruction of requests that bring none, where the template has a place for it.",
            "INSTRUCTION",
            metavar="TEXT",
        ),
    ] = None,
    pooling: Pooling = None,
    normalize: Annotated[
        bool | None,
        _option(
            "Replaces the model directory's word on unit length.",
            "NORMALIZE",
            "--normalize/--no-normalize",
        ),
    ] = None,
    max_length: MaxLength = None,
    num_threads: Annotated[
        int | None, _option("Threads of a CPU step; torch's choice if not given.", "NUM_THREADS")
    ] = None,
    max_batch_tokens: MaxBatchTokens = _ENGINE.max_batch_tokens,
    max_batch_sequences: MaxBatchSequences = _ENGINE.max_batch_sequences,
    output: Output = None,
    self_check: Annotated[
        str,
        _option(
            "refuse, warn or off: when golden scores in the model directory are missed.",
            "SELF_CHECK",
            metavar="MODE",
        ),
    ] = _ENGINE.self_check,
    deterministic: Deterministic = _ENGINE.deterministic,
    graph_max_tokens: GraphMaxTokens = _ENGINE.graph_max_tokens,
    max_graphs: Annotated[
        int, _option("CUDA graphs kept; other step shapes run eagerly.", "MAX_GRAPHS")
    ] = _ENGINE.max_graphs,
    warmup_tokens: Annotated[
        list[int] | None,
        _option(
            "A length of single sequences to capture before the server is ready; repeatable.",
            "WARMUP_TOKENS",
            metavar="TOKENS",
        ),
    ] = None,
    max_queued_tokens: Annotated[
        int, _option("Most tokens that may wait; more is refused.", "MAX_QUEUED_TOKENS")
    ] = _SERVE.max_queued_tokens,
    max_items_per_request: Annotated[
        int, _option("Most documents or inputs of one request.", "MAX_ITEMS_PER_REQUEST")
    ] = _SERVE.max_items_per_request,
    max_message_bytes: Annotated[
        int, _option("Most bytes of one message.", "MAX_MESSAGE_BYTES")
    ] = _SERVE.max_message_bytes,
    max_requests_per_stream: Annotated[
        int, _option("Most requests in flight on one stream.", "MAX_REQUESTS_PER_STREAM")
    ] = _SERVE.max_requests_per_stream,
    bulk_share: Annotated[
        float,
        _option("Share of the steps that bulk work keeps, 0 to 1.", "BULK_SHARE"),
    ] = _SERVE.bulk_share,
    worker_threads: Annotated[
        int,
        _option(
            "Threads over which gRPC connections are spread; HTTP has as many of its own.",
            "WORKER_THREADS",
        ),
    ] = _SERVE.worker_threads,
    tokenizer_threads: Annotated[
        int, _option("Threads that tokenize.", "TOKENIZER_THREADS")
    ] = _SERVE.tokenizer_threads,
    drain_timeout: Annotated[
        float,
        _option(
            "How long a stopping server waits for what is in flight.",
            "DRAIN_TIMEOUT",
            metavar="SECONDS",
        ),
    ] = _SERVE.drain_timeout,
    spin_us: Annotated[
        int | None,
        _option(
            "How long the engine's thread, and network threads after their own calls (one for "
            "four cores at the most), stay awake, at most 1000000; 40000 on a GPU host with "
            "8 cores, else 0.",
            "SPIN_US",
            metavar="MICROSECONDS",
        ),
    ] = None,
    log_level: Annotated[
        str, _option("error, warn, info, debug or trace.", "LOG_LEVEL", metavar="LEVEL")
    ] = _SERVE.log_level,
    log_format: Annotated[
        str, _option("text or json.", "LOG_FORMAT", metavar="FORMAT")
    ] = _SERVE.log_format,
) -> int:
    """Serves a model over gRPC and HTTP until SIGINT or SIGTERM.

    When it serves it prints one line on stdout: `ready grpc=HOST:PORT http=HOST:PORT model=NAME`.
    Logs go to stderr.
    """
    try:
        engine_config = EngineConfig(
            device=device,
            dtype=dtype,  # type: ignore[arg-type]  # checked by the config
            attention=attention,  # type: ignore[arg-type]
            task=task,  # type: ignore[arg-type]
            template=template,
            pair_template=pair_template,
            query_template=query_template,
            document_template=document_template,
            instruction=instruction,
            pooling=pooling,  # type: ignore[arg-type]
            normalize=normalize,
            max_length=max_length,
            num_threads=num_threads,
            max_batch_tokens=max_batch_tokens,
            max_batch_sequences=max_batch_sequences,
            outputs=tuple(output or ()),  # type: ignore[arg-type]
            self_check=self_check,  # type: ignore[arg-type]
            deterministic=deterministic,
            graph_max_tokens=graph_max_tokens,
            max_graphs=max_graphs,
            warmup_tokens=tuple(warmup_tokens or ()),
            revision=revision,
            served_name=served_model_name,
        )
        http = None
        if http_address != "off":
            http = HttpConfig(
                address=http_address,
                api_keys=given_keys("serve", api_key),
                cors_origins=listed(cors_origin),
                tls_certificate=tls_certificate,
                tls_key=tls_key,
                max_body_bytes=max_message_bytes,
                max_items_per_request=max_items_per_request,
                request_timeout=request_timeout,
                drain_timeout=drain_timeout,
                auto_truncate=auto_truncate,
                tokenizer_threads=tokenizer_threads,
            )
        serve_config = ServeConfig(
            grpc_address=grpc_address,
            max_items_per_request=max_items_per_request,
            max_message_bytes=max_message_bytes,
            max_requests_per_stream=max_requests_per_stream,
            max_queued_tokens=max_queued_tokens,
            bulk_share=bulk_share,
            worker_threads=worker_threads,
            tokenizer_threads=tokenizer_threads,
            drain_timeout=drain_timeout,
            strict_model_name=strict_model_name,
            spin_us=spin_us,
            http=http,
            log_level=log_level,  # type: ignore[arg-type]
            log_format=log_format,  # type: ignore[arg-type]
        )
    except ConfigError as error:
        raise UsageError(with_option_name(str(error), _OPTION_OF_FIELD)) from None
    from rose.server import serve as serve_model

    try:
        return serve_model(model, engine_config, serve_config)
    except EngineFailedError:
        raise
    except RoseError as error:
        raise UsageError(with_option_name(str(error), _OPTION_OF_FIELD)) from error
