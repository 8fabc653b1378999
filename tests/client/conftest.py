"""A real gRPC server on port 0 with a scripted servicer: what the clients meet, without a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from rose._proto import tulip_pb2 as pb
from rose.client.channel import METHODS, SERVICE, STREAMING

Handler = Callable[[Any, grpc.ServicerContext], Any]


class FakeTulip:
    """Answers by what a test puts into `handlers`; remembers requests and metadata."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.requests: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.address = ""

    def on(self, method: str) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.handlers[method] = handler
            return handler

        return register

    def _serve(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        if method in STREAMING:
            return self.handlers[method](request, context)
        with self.lock:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
        return self.handlers[method](request, context)

    def generic_handler(self) -> grpc.GenericRpcHandler:
        handlers = {}
        for name, (request, response) in METHODS.items():
            make = (
                grpc.stream_stream_rpc_method_handler
                if name in STREAMING
                else grpc.unary_unary_rpc_method_handler
            )

            def behaviour(request: Any, context: Any, name: str = name) -> Any:
                return self._serve(name, request, context)

            handlers[name] = make(
                behaviour,
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    @staticmethod
    def score_by_length(request: pb.ScoreRequest) -> pb.ScoreResponse:
        scores = [float(len(document.text)) for document in request.documents]
        ranking = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        return pb.ScoreResponse(
            request_id=request.request_id,
            scores=scores,
            ranking=ranking[: request.top_n or None],
            usage=pb.Usage(input_tokens=7, sequences=len(scores)),
            fingerprint="f1",
        )

    @staticmethod
    def embed_by_length(request: pb.EmbedRequest) -> pb.EmbedResponse:
        rows = np.array([[len(i.text), 1.0] for i in request.inputs], dtype="<f4").reshape(-1, 2)
        tensor = pb.Tensor(data=rows.tobytes(), dtype=pb.DTYPE_FLOAT32, shape=rows.shape)
        return pb.EmbedResponse(request_id=request.request_id, embeddings=tensor)

    @staticmethod
    def echo(response_type: Any, answer: Callable[[Any], Any]) -> Handler:
        def handler(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            for request in requests:
                yield response_type(request_id=request.request_id, response=answer(request))

        return handler


@pytest.fixture
def tulip() -> Iterator[FakeTulip]:
    fake = FakeTulip()
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((fake.generic_handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    fake.address = f"127.0.0.1:{port}"
    server.start()
    yield fake
    server.stop(grace=None).wait()


@pytest.fixture
def by_length(tulip: FakeTulip) -> FakeTulip:
    """Scores a document, and embeds an input, by the length of its text."""

    @tulip.on("Score")
    def score(request: pb.ScoreRequest, context: grpc.ServicerContext) -> pb.ScoreResponse:
        return tulip.score_by_length(request)

    @tulip.on("Embed")
    def embed(request: pb.EmbedRequest, context: grpc.ServicerContext) -> pb.EmbedResponse:
        return tulip.embed_by_length(request)

    return tulip
