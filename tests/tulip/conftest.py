"""A server with small limits, and the bare methods: what other languages would send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rose.client.channel import METHODS, SERVICE


@pytest.fixture(scope="module")
def limited(serve: Any, cross_encoder_directory: Path) -> Iterator[Any]:
    """A reranker of 512 tokens that takes 50 documents and 300,000 bytes."""
    with serve(
        cross_encoder_directory,
        *("--max-items-per-request", "50", "--max-message-bytes", "300000"),
        *("--max-queued-tokens", "20000", "--strict-model-name"),
    ) as server:
        yield server
        assert server.stop()[0] == 0


class Wire:
    """Calls by name, with messages or with the bytes of one."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def call(self, method: str, request: Any, timeout: float = 30.0, **options: Any) -> Any:
        request_type, response_type = METHODS[method]
        data = request if isinstance(request, bytes) else request.SerializeToString()
        assert isinstance(request, bytes | request_type)
        return self.channel.unary_unary(
            f"/{SERVICE}/{method}", response_deserializer=response_type.FromString
        )(data, timeout=timeout, **options)

    def status(self, method: str, request: Any, **options: Any) -> tuple[str, str]:
        """Name of the status, and its message."""
        try:
            self.call(method, request, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details() or ""  # type: ignore[attr-defined]
        return "OK", ""


@pytest.fixture(scope="module")
def wire(limited: Any) -> Iterator[Wire]:
    with grpc.insecure_channel(limited.address) as channel:
        yield Wire(channel)
