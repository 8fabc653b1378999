"""The gateway alone, in front of replicas: what `rose gateway` does."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

from rose import _tulip
from rose.errors import ConfigError, ServerError
from rose.http_config import HttpConfig, ReplicasConfig

logger = logging.getLogger(__name__)

# How often the main thread looks up to run Python's signal handlers.
_SIGNAL_POLL_SECONDS = 0.1


class Gateway:
    """Answers HTTP with the work of remote replicas, until it is shut down.

    The port is taken at once, and answers 503 until a replica has said what it serves.

    Raises:
        ConfigError: an option cannot be used.
        ServerError: the port is taken.
    """

    def __init__(self, replicas: ReplicasConfig, config: HttpConfig | None = None) -> None:
        try:
            self._native = _tulip.Gateway(config or HttpConfig(), replicas)
        except OSError as error:
            raise ServerError(str(error)) from None
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def address(self) -> str:
        """`HOST:PORT` where it listens, with the port that the system chose."""
        return self._native.address

    def wait_ready(self, timeout: float) -> bool:
        """Waits until some model can be asked for, at most `timeout` seconds; returns whether."""
        return self._native.wait_ready(timeout)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Drains and stops; returns whether all requests in flight ended by themselves.

        Args:
            timeout: seconds that requests in flight may take, `drain_timeout` if None.

        Raises:
            ValueError: `timeout` is no duration; the gateway goes on.
            KeyboardInterrupt: Ctrl-C; what was in flight has been cut off.
        """
        return self._native.shutdown(timeout)


def serve_gateway(
    replicas: ReplicasConfig,
    config: HttpConfig | None = None,
    on_ready: Callable[[Gateway], None] | None = None,
) -> int:
    """Runs a gateway until SIGINT or SIGTERM, on the main thread; returns the exit code.

    When a model can be asked for it prints one line on stdout: `ready http=HOST:PORT`.

    Raises:
        ConfigError: an option cannot be used.
        ServerError: the port is taken.
    """
    config = config or HttpConfig()
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt  # asked twice: `shutdown` cuts off what is in flight
        stopped.set()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        gateway = Gateway(replicas, config)
        ready = False
        while not stopped.is_set():
            if ready:
                stopped.wait(_SIGNAL_POLL_SECONDS)
            elif gateway.wait_ready(_SIGNAL_POLL_SECONDS):
                ready = True
                print(f"ready http={gateway.address}", flush=True)  # noqa: T201
                if on_ready is not None:
                    on_ready(gateway)
        logger.info("draining for at most %g s", config.drain_timeout)
        if not gateway.shutdown():
            logger.warning("stopped with requests still in flight")
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0
