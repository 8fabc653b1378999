"""The transport: method paths and channel options, each with its reason."""

from __future__ import annotations

import threading
from typing import Any

import grpc

from rose._proto import tulip_pb2 as pb

SERVICE = "tulip.v1.Tulip"

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # The server's own limit decides: 1,000 vectors of 4,096 floats are 16 MiB, over grpc's 4.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A dead peer is noticed within 80 s, also by a stream that waits. More frequent
    # pings are taken for abuse by some proxies.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Idle connections stay quiet: servers close those that ping without a call.
    ("grpc.keepalive_permit_without_calls", 0),
    # A server that restarts is found again in tenths of a second, not in grpc's 20 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Retries are RetryPolicy's: a service config must not add its own.
    ("grpc.enable_retries", 0),
    # Each Client has its own connection: closing one must not disturb another.
    ("grpc.use_local_subchannel_pool", 1),
)

# More than cancelled calls take to end.
CLOSE_SECONDS = 2.0

# Request and response type of each call.
METHODS: dict[str, tuple[Any, Any]] = {
    "Score": (pb.ScoreRequest, pb.ScoreResponse),
    "Embed": (pb.EmbedRequest, pb.EmbedResponse),
    "ScoreStream": (pb.ScoreRequest, pb.ScoreStreamResponse),
    "EmbedStream": (pb.EmbedRequest, pb.EmbedStreamResponse),
    "Tokenize": (pb.TokenizeRequest, pb.TokenizeResponse),
    "GetModel": (pb.GetModelRequest, pb.GetModelResponse),
}
STREAMING = frozenset({"ScoreStream", "EmbedStream"})


def open_methods(channel: Any) -> dict[str, Any]:  # noqa: ANN401 - grpc and grpc.aio share no base
    """One callable for each method of the service, on either kind of channel."""
    callables = {}
    for name, (request, response) in METHODS.items():
        open_method = channel.stream_stream if name in STREAMING else channel.unary_unary
        callables[name] = open_method(
            f"/{SERVICE}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
    return callables


def close_channel(channel: grpc.Channel) -> None:
    """Cancels the calls of a channel and closes it.

    grpc then waits for each call to end. An interrupt in the moment in which a call begins leaves one
    that nobody ends, and would make that wait endless: so it is bounded.
    """
    closing = threading.Thread(target=channel.close, name="rose-client-close", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
