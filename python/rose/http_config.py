"""Options of the HTTP side: of `rose serve` and of `rose gateway`."""

from __future__ import annotations

from dataclasses import dataclass

from rose.errors import ConfigError

_MAX_U32 = (1 << 32) - 1
_MAX_THREADS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """How HTTP is answered; mirrored by `GatewayConfig` in `crates/ivy`.

    Raises:
        ConfigError: an option has a value that cannot be used.
    """

    address: str = "127.0.0.1:8080"
    """`HOST:PORT` to listen on; port 0 takes any."""
    api_keys: tuple[str, ...] = ()
    """Keys of which a request must carry one; none = every request is welcome."""
    cors_origins: tuple[str, ...] = ()
    """Origins that browsers may call from; `*` = any."""
    tls_certificate: str | None = None
    """Certificate chain in PEM; with `tls_key`."""
    tls_key: str | None = None
    """Private key in PEM; with `tls_certificate`."""
    max_body_bytes: int = 64 << 20
    """Most bytes of one body."""
    max_items_per_request: int = 10_000
    """Most documents or inputs of one request."""
    max_requests_in_flight: int = 4_096
    """Most requests worked on at the same time; more are told to come back."""
    request_timeout: float = 60.0
    """Deadline in seconds of requests that bring none."""
    drain_timeout: float = 30.0
    """Seconds that a stopping gateway waits for what is in flight; `rose serve` has its own."""
    auto_truncate: bool = True
    """Cut over-long inputs where TEI's and OpenAI's requests do not say what to do."""
    tokenizer_threads: int = 2
    """Threads that tokenize, and that read and write large JSON."""

    def __post_init__(self) -> None:
        check_address("http_address", self.address)
        if (self.tls_certificate is None) != (self.tls_key is None):
            given = "tls_certificate" if self.tls_key is None else "tls_key"
            missing = "tls_key" if self.tls_key is None else "tls_certificate"
            raise ConfigError(f"{given} needs {missing} beside it")
        for name, highest in (
            ("max_body_bytes", _MAX_U32),
            ("max_items_per_request", _MAX_U32),
            ("max_requests_in_flight", _MAX_U32),
            ("tokenizer_threads", _MAX_THREADS),
        ):
            value = getattr(self, name)
            if not 1 <= value <= highest:
                raise ConfigError(f"{name} must be from 1 to {highest}, got {value}")
        if not 0.001 <= self.request_timeout <= 86_400.0:
            raise ConfigError(
                f"request_timeout must be from 0.001 to 86400 seconds, got {self.request_timeout}"
            )
        if not 0.0 <= self.drain_timeout <= 86_400.0:
            raise ConfigError(
                f"drain_timeout must be from 0 to 86400 seconds, got {self.drain_timeout}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasConfig:
    """The replicas behind `rose gateway`; mirrored by `FleetConfig` in `crates/ivy`.

    Raises:
        ConfigError: an option has a value that cannot be used.
    """

    addresses: tuple[str, ...]
    """`HOST:PORT` of each; a name with several addresses means them all."""
    tls: bool = False
    """Speak TLS to the replicas."""
    tls_authorities: str | None = None
    """Authorities in PEM that sign the replicas' certificates; None = the system's."""
    strict_model_name: bool = False
    """Refuse requests that name another model than the one served."""
    hedge: bool = False
    """Send late work a second time, elsewhere."""
    worker_threads: int = 2
    """Threads of the network side."""

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ConfigError("replica must be given at least once")
        for address in self.addresses:
            check_address("replica", address, lowest_port=1)
        if self.tls_authorities is not None and not self.tls:
            raise ConfigError("tls_authorities needs TLS to the replicas")
        if not 1 <= self.worker_threads <= _MAX_THREADS:
            raise ConfigError(
                f"worker_threads must be from 1 to {_MAX_THREADS}, got {self.worker_threads}"
            )


def check_address(name: str, value: str, lowest_port: int = 0) -> None:
    """Raises a ConfigError unless `value` is `HOST:PORT`."""
    host, colon, port = value.rpartition(":")
    right = host and colon and port.isascii() and port.isdigit()
    if not (right and lowest_port <= int(port) < 65536):
        raise ConfigError(
            f"{name} must be HOST:PORT with a port from {lowest_port} to 65535, got {value!r}"
        )
