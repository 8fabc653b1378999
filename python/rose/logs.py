"""Logs of the Python and the native part on stderr, in one format."""

from __future__ import annotations

import json
import logging
import sys
import time

from rose import _tulip

_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: timestamp, level, target, message, and the exception if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "timestamp": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "target": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Time, level, logger, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)5s %(name)s: %(message)s")
        self.default_time_format = "%Y-%m-%dT%H:%M:%S"
        self.default_msec_format = ""
        self.converter = time.gmtime

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """UTC time without fraction, which the format adds."""
        return time.strftime(datefmt or self.default_time_format, self.converter(record.created))


def configure_logging(level: str, log_format: str) -> None:
    """Sends all logs to stderr.

    Args:
        level: `error`, `warn`, `info`, `debug` or `trace`.
        log_format: `text` or `json`.
    """
    _tulip.init_logging(level, log_format)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logger = logging.getLogger("rose")
    logger.handlers[:] = [handler]
    logger.setLevel(_LEVELS[level])
    logger.propagate = False
