"""The native part: Tulip, the gRPC server, and Ivy, the HTTP gateway, on threads of their own."""

from collections.abc import Callable
from typing import Literal, final

from rose.config import EngineConfig, ModelInfo, ServeConfig
from rose.engine.engine import Engine
from rose.http_config import HttpConfig, ReplicasConfig

__version__: str

def init_logging(level: str, log_format: str) -> bool:
    """Sends the native part's logs to stderr.

    Args:
        level: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `tulip=debug,info`.
        log_format: `text` or `json`.

    Returns:
        False when logs already go somewhere; nothing is changed then.

    Raises:
        ValueError: the level or the format is unknown.
    """

@final
class Server:
    """A gRPC server on its port, with an HTTP gateway on another where the configuration has one.

    Both answer UNAVAILABLE, 503 over HTTP, until an engine runs.

    All methods release the interpreter while they wait.
    """

    def __init__(self, config: ServeConfig, engine_config: EngineConfig) -> None:
        """Takes the port and starts to answer.

        Of `engine_config` only `max_batch_tokens` and `max_batch_sequences` are read.

        Raises:
            ValueError: an option cannot be; the message begins with its name.
            OSError: the port is taken or the address is not ours.
        """

    @property
    def address(self) -> str:
        """`HOST:PORT` where it listens, with the port that the system chose."""

    @property
    def http_address(self) -> str | None:
        """The same of the HTTP gateway; None without one."""

    def run_engine(self, engine: Engine, on_serving: Callable[[], object]) -> None:
        """Serves `engine`, and runs its steps on the calling thread until `shutdown`.

        `on_serving` is called once calls are answered.

        The one thread that runs Python: make it a thread of its own.

        Raises:
            ValueError: `engine.info` or the tokenizer cannot be used.
            RuntimeError: there is an engine already, or the server is stopping.
        """

    def wait(self, timeout: float) -> str | None:
        """Waits until the engine ends, at most `timeout` seconds.

        Returns:
            None while it runs, an empty string when it was shut down, else why it failed.
        """

    def begin_drain(self) -> None:
        """Reports NOT_SERVING and refuses new calls; calls in flight go on."""

    def shutdown(self, timeout: float | None = None) -> bool:
        """Drains, then stops. Waits up to `timeout` seconds (`drain_timeout` if None).

        Returns:
            Whether all calls in flight had ended by themselves.

        Raises:
            ValueError: `timeout` is no duration; the server goes on.
            BaseException: what a signal's handler raised; it has stopped all the same.
        """

@final
class Gateway:
    """An HTTP gateway on its port, in front of remote replicas.

    All methods release the interpreter while they wait.
    """

    def __init__(self, config: HttpConfig, replicas: ReplicasConfig) -> None:
        """Takes the port and begins to look for the replicas.

        Raises:
            ValueError: an option cannot be; the message begins with its name.
            OSError: the port is taken or the address is not ours.
        """

    @property
    def address(self) -> str:
        """`HOST:PORT` where it listens, with the port that the system chose."""

    def wait_ready(self, timeout: float) -> bool:
        """Waits until some model can be asked for, at most `timeout` seconds; returns whether."""

    def shutdown(self, timeout: float | None = None) -> bool:
        """Drains, then stops. Waits up to `timeout` seconds (`drain_timeout` if None).

        Returns:
            Whether all requests in flight had ended by themselves.

        Raises:
            ValueError: `timeout` is no duration; the gateway goes on.
            BaseException: what a signal's handler raised; it has stopped all the same.
        """

@final
class TextEncoder:
    """Texts to token ids without a server, exactly as the server makes them."""

    def __init__(self, info: ModelInfo) -> None:
        """Loads `info.tokenizer_json`.

        Raises:
            ValueError: the tokenizer or a template cannot be used.
        """

    def pairs(
        self, query: str, documents: list[str], instruction: str = ""
    ) -> list[tuple[list[int], int]]:
        """The sequences of the query with each document; an over-long document is cut.

        Returns:
            For each its token ids and the index of the first token of type 1, 0 if there is none.

        Raises:
            ValueError: a text cannot be read; names it.
        """

    def singles(
        self,
        texts: list[str],
        role: Literal["query", "document", ""] = "",
        instruction: str = "",
    ) -> list[tuple[list[int], int]]:
        """The sequences of texts with the prompt of their role, over-long ones cut.

        Returns:
            As `pairs`.

        Raises:
            ValueError: a text cannot be read; names it.
        """
