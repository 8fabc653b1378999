"""`rose gateway`: HTTP in front of replicas."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, get_args

from rose.cli.failure import UsageError
from rose.cli.option import given_keys, listed, option_names, options_of, with_option_name
from rose.config import LogFormat, LogLevel
from rose.errors import ConfigError
from rose.http_config import HttpConfig, ReplicasConfig

_HTTP = HttpConfig()
_option = options_of("gateway")
_OPTION_OF_FIELD = option_names(
    {field.name for config in (HttpConfig, ReplicasConfig) for field in fields(config)}
    | {"http_address", "replica", "log_level", "log_format"},
    {
        "addresses": "replica",
        "api_keys": "api-key",
        "cors_origins": "cors-origin",
        "tls": "replica-tls",
        "tls_authorities": "replica-ca",
    },
)


def gateway(
    replica: Annotated[
        list[str],
        _option(
            "A replica, or a name that stands for several; repeatable.",
            "REPLICAS",
            "--replica",
            metavar="HOST:PORT",
        ),
    ],
    http_address: Annotated[
        str, _option("Where to listen; port 0 takes any.", "HTTP_ADDRESS", metavar="HOST:PORT")
    ] = _HTTP.address,
    api_key: Annotated[
        list[str] | None,
        _option(
            "A key of which requests must carry one; repeatable.",
            "API_KEYS",
            show_default=False,
            metavar="KEY",
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
        str | None, _option("Certificate chain in PEM.", "TLS_CERTIFICATE", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        str | None, _option("Private key in PEM.", "TLS_KEY", metavar="FILE")
    ] = None,
    replica_tls: Annotated[
        bool, _option("Speak TLS to the replicas.", "REPLICA_TLS", "--replica-tls")
    ] = False,
    replica_ca: Annotated[
        str | None,
        _option(
            "Authorities in PEM that sign the replicas' certificates; the system's if not given.",
            "REPLICA_CA",
            metavar="FILE",
        ),
    ] = None,
    strict_model_name: Annotated[
        bool,
        _option(
            "Refuse requests that name another model.", "STRICT_MODEL_NAME", "--strict-model-name"
        ),
    ] = False,
    hedge: Annotated[
        bool, _option("Send late work a second time, elsewhere.", "HEDGE", "--hedge")
    ] = False,
    max_body_bytes: Annotated[
        int, _option("Most bytes of one body.", "MAX_BODY_BYTES")
    ] = _HTTP.max_body_bytes,
    max_items_per_request: Annotated[
        int, _option("Most documents or inputs of one request.", "MAX_ITEMS_PER_REQUEST")
    ] = _HTTP.max_items_per_request,
    max_requests_in_flight: Annotated[
        int, _option("Most requests worked on at the same time.", "MAX_REQUESTS_IN_FLIGHT")
    ] = _HTTP.max_requests_in_flight,
    request_timeout: Annotated[
        float,
        _option("Deadline of requests that bring none.", "REQUEST_TIMEOUT", metavar="SECONDS"),
    ] = _HTTP.request_timeout,
    auto_truncate: Annotated[
        bool,
        _option(
            "Cut over-long inputs where TEI's and OpenAI's requests do not say.",
            "AUTO_TRUNCATE",
            "--auto-truncate/--no-auto-truncate",
        ),
    ] = _HTTP.auto_truncate,
    worker_threads: Annotated[int, _option("Threads of the network side.", "WORKER_THREADS")] = 2,
    tokenizer_threads: Annotated[
        int, _option("Threads that tokenize.", "TOKENIZER_THREADS")
    ] = _HTTP.tokenizer_threads,
    drain_timeout: Annotated[
        float,
        _option(
            "How long a stopping gateway waits for what is in flight.",
            "DRAIN_TIMEOUT",
            metavar="SECONDS",
        ),
    ] = _HTTP.drain_timeout,
    log_level: Annotated[
        str, _option("error, warn, info, debug or trace.", "LOG_LEVEL", metavar="LEVEL")
    ] = "info",
    log_format: Annotated[str, _option("text or json.", "LOG_FORMAT", metavar="FORMAT")] = "text",
) -> int:
    """Answers HTTP with the work of gRPC replicas until SIGINT or SIGTERM.

    When a model can be asked for it prints one line on stdout: `ready http=HOST:PORT`. Logs go to
    stderr.
    """
    try:
        config = HttpConfig(
            address=http_address,
            api_keys=given_keys("gateway", api_key),
            cors_origins=listed(cors_origin),
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            max_body_bytes=max_body_bytes,
            max_items_per_request=max_items_per_request,
            max_requests_in_flight=max_requests_in_flight,
            request_timeout=request_timeout,
            drain_timeout=drain_timeout,
            auto_truncate=auto_truncate,
            tokenizer_threads=tokenizer_threads,
        )
        replicas = ReplicasConfig(
            addresses=listed(replica),
            tls=replica_tls,
            tls_authorities=replica_ca,
            strict_model_name=strict_model_name,
            hedge=hedge,
            worker_threads=worker_threads,
        )
        for name, value, allowed in (
            ("log_level", log_level, get_args(LogLevel)),
            ("log_format", log_format, get_args(LogFormat)),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        from rose.gateway import serve_gateway
        from rose.logs import configure_logging

        configure_logging(log_level, log_format)

        return serve_gateway(replicas, config)
    except (ConfigError, ValueError) as error:
        raise UsageError(with_option_name(str(error), _OPTION_OF_FIELD)) from None
