"""A model behind gRPC and HTTP, in this process: start, signals, and the order of stopping."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from rose import _tulip
from rose.config import EngineConfig, ServeConfig
from rose.errors import ConfigError, EngineFailedError, RoseError, ServerError
from rose.logs import configure_logging

if TYPE_CHECKING:
    from rose.engine.engine import Engine

logger = logging.getLogger(__name__)

# How often the main thread looks up to run Python's signal handlers.
_SIGNAL_POLL_SECONDS = 0.1
# A step may be running when the calls have ended; longer than this none takes that ever ends.
_STEP_SECONDS = 10.0
# A broken engine has failed its calls already; their answers only have to leave.
_BROKEN_GRACE_SECONDS = 1.0


class Server:
    """Serves one engine until it is shut down; also as a context manager.

    The port is taken at once, and answers UNAVAILABLE until `start`. Interpreter exit shuts it
    down in order: calls drain, then the engine thread ends, then Python does.

    Raises:
        ConfigError: an option cannot be used.
        ServerError: the port is taken.
    """

    def __init__(
        self, config: ServeConfig | None = None, engine_config: EngineConfig | None = None
    ) -> None:
        self.config = config or ServeConfig()
        engine_config = engine_config or EngineConfig()
        try:
            self._native = _tulip.Server(self.config, engine_config)
        except OSError as error:
            raise ServerError(str(error)) from None
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._thread: threading.Thread | None = None
        self._start_error: BaseException | None = None
        # Whoever stops a server that is being stopped waits with the first; a signal's handler may
        # be both of them.
        self._lock = threading.RLock()
        self._stopped = False
        self._process = os.getpid()
        # Threads must not outlive the interpreter's state.
        atexit.register(self._at_exit)

    @property
    def address(self) -> str:
        """`HOST:PORT` where it listens, with the port that the system chose."""
        return self._native.address

    @property
    def http_address(self) -> str | None:
        """`HOST:PORT` where HTTP is answered; None without it."""
        return self._native.http_address

    def start(self, engine: Engine | Callable[[], Engine]) -> Engine:
        """Serves an engine on a thread of its own; returns it once calls are answered.

        A function is called on that thread. On CPU this is the faster way: the pool of threads
        behind torch's operations belongs to the thread that used it first, and steps on another
        one take up to twice as long.

        Raises:
            ServerError: the engine cannot be served.
            ConfigError: a template or the instruction cannot be used.
            RoseError: what the function raised.
        """
        if self._thread is not None:
            raise ServerError("this server has an engine already")
        serving = threading.Event()
        served: list[Engine] = []

        def run() -> None:
            try:
                served.append(engine() if callable(engine) else engine)
                self._native.run_engine(served[0], serving.set)
            except BaseException as error:
                self._start_error = error
            finally:
                serving.set()

        # A daemon, or the interpreter would join it before `atexit` can stop it.
        self._thread = threading.Thread(target=run, name="rose-engine", daemon=True)
        self._thread.start()
        serving.wait()
        error = self._start_error
        if isinstance(error, RoseError):
            raise error
        if isinstance(error, ValueError) and _names_an_option(str(error)):
            raise ConfigError(str(error)) from error
        if error is not None:
            raise ServerError(f"the model cannot be served: {error}") from error
        return served[0]

    def wait(self, timeout: float) -> bool:
        """Waits until the engine has ended, at most `timeout` seconds; returns whether it has.

        Raises:
            EngineFailedError: the engine has failed for good.
        """
        end = self._native.wait(timeout)
        if end:
            raise EngineFailedError(f"the engine has failed: {end}")
        return end is not None

    def begin_drain(self) -> None:
        """Refuses new calls and reports NOT_SERVING; calls in flight go on."""
        self._native.begin_drain()

    def shutdown(self, timeout: float | None = None) -> bool:
        """Drains and stops; returns whether all calls in flight ended by themselves.

        Args:
            timeout: seconds that calls in flight may take, `drain_timeout` if None.

        Raises:
            ValueError: `timeout` is no duration; the server goes on.
            KeyboardInterrupt: Ctrl-C; what was in flight has been cut off.
        """
        with self._lock:
            clean = True
            if not self._stopped:
                clean = self._native.shutdown(timeout)
                self._stopped = True
        if self._thread is threading.current_thread():
            return clean  # called inside a step; the interpreter's exit waits for its end
        if self._thread is not None:
            self._thread.join(_STEP_SECONDS)
            if self._thread.is_alive():
                logger.warning("the engine is still in a step after %g s", _STEP_SECONDS)
                return False
        atexit.unregister(self._at_exit)
        return clean

    def _at_exit(self) -> None:
        # A forked child has this object, but none of its threads.
        if os.getpid() == self._process:
            self.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()


def _names_an_option(message: str) -> bool:
    """Whether the message begins with an option of the engine, as `pair_template: …` does."""
    field, colon, _ = message.partition(": ")
    return bool(colon) and field in {option.name for option in fields(EngineConfig)}


class _Interrupted(BaseException):
    """A signal that arrived before the server could serve."""


class _StopSignals:
    """SIGINT and SIGTERM as a flag. The second one ends the process at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._interrupt = True
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # type: ignore[arg-type]

    def defer(self) -> None:
        """From now on a signal sets the flag only: somebody looks at it."""
        self._interrupt = False
        if self.received is not None:
            raise _Interrupted

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            # Asked twice: do not wait for anything, not even for destructors.
            os.write(sys.stderr.fileno(), b"second signal: exiting at once\n")
            os._exit(128 + number)
        self.received = signal.Signals(number)
        if self._interrupt:
            raise _Interrupted


def serve(
    model: str | Path,
    engine_config: EngineConfig | None = None,
    config: ServeConfig | None = None,
    on_ready: Callable[[Server, Engine], None] | None = None,
) -> int:
    """Serves a model until SIGINT or SIGTERM, on the main thread. What `rose serve` does.

    When it serves it prints one line on stdout: `ready grpc=HOST:PORT model=NAME`, with
    `http=HOST:PORT` in between where `config.http` is given.

    Args:
        model: directory, hub id or `demo`.
        engine_config: how the model is loaded and run.
        config: how it is served.
        on_ready: called once calls are answered.

    Returns:
        The exit code: 0 after a signal, also when draining was cut short.

    Raises:
        ModelLoadError: the model cannot be used.
        ServerError: the port is taken.
        EngineFailedError: the engine has failed for good.
    """
    engine_config, config = engine_config or EngineConfig(), config or ServeConfig()
    configure_logging(config.log_level, config.log_format)
    with _StopSignals() as signals:
        try:
            # The port first: better to know now than after minutes of loading.
            server = Server(config, engine_config)
            engine = server.start(lambda: _load(model, engine_config))
            signals.defer()
        except _Interrupted:
            logger.info("stopped by %s before the model was loaded", _name(signals))
            # Nothing is in flight, and the thread that loads cannot be interrupted.
            sys.stdout.flush()
            os._exit(0)
        http = f" http={server.http_address}" if server.http_address else ""
        print(f"ready grpc={server.address}{http} model={engine.info.name}", flush=True)  # noqa: T201
        if on_ready is not None:
            on_ready(server, engine)
        try:
            while signals.received is None and not server.wait(_SIGNAL_POLL_SECONDS):
                pass
        except ServerError:
            server.shutdown(_BROKEN_GRACE_SECONDS)
            raise
        logger.info("%s: draining for at most %g s", _name(signals), config.drain_timeout)
        started = time.monotonic()
        clean = server.shutdown()
        elapsed = time.monotonic() - started
        if clean:
            logger.info("drained and stopped in %.2f s", elapsed)
        else:
            logger.warning("stopped after %.2f s with calls still in flight", elapsed)
        return 0


def _load(model: str | Path, config: EngineConfig) -> Engine:
    # Imported on the engine's thread: torch takes seconds, the port must not wait for it.
    from rose.checks.self_check import run_self_check
    from rose.engine.engine import Engine

    engine = Engine.load(model, config)
    if engine.directory is not None:
        run_self_check(engine, engine.directory, config.self_check)
    return engine


def _name(signals: _StopSignals) -> str:
    return signals.received.name if signals.received is not None else "shutdown"
