"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from rose._proto import tulip_pb2 as pb
from rose.client.calls import (
    DEFAULT_STREAM_TIMEOUT,
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT,
    Attempts,
    CallOptions,
    checked_timeout,
)
from rose.client.channel import CHANNEL_OPTIONS, close_channel, open_methods
from rose.client.errors import client_is_closed, error_of_rpc
from rose.client.model import ServedModel
from rose.client.options import EmbedOptions, ScoreOptions, TokenizeOptions
from rose.client.requests import EmbedRequest, Input, ScoreRequest, TokenizeRequest
from rose.client.results import EmbedResult, ScoreResult, TokenizeResult
from rose.client.retry import RetryPolicy
from rose.client.stream import StreamRun
from rose.client.window import StreamOutcome, StreamWindow


class Client:
    """A connection to one server; may be shared by threads.

    Usable as a context manager, which closes the connection. Every call raises `CallError`
    or one of its kinds, such as `Unavailable` or `InvalidArgument`; nothing of grpc.

    Args:
        target: `HOST:PORT`, or another name that gRPC resolves (`unix:PATH`, `dns:///NAME:PORT`).
        timeout: Seconds for a call, all its tries together, unless the call says otherwise.
        retry: When a call is tried again: UNAVAILABLE only. None is `RetryPolicy()`.
        metadata: Sent with every call.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._options = CallOptions(target, timeout, retry, metadata)
        self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._methods = open_methods(self._channel)
        self._closed = False

    def close(self) -> None:
        """Ends the connection; calls in flight, and later ones, end as `Cancelled`."""
        self._closed = True
        close_channel(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def score(
        self,
        query: Input | None,
        documents: Sequence[Input],
        *,
        timeout: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> ScoreResult:
        """One number for each document.

        Args:
            query: Text or token ids.
            documents: Texts, or token ids each.
            timeout: Seconds; None is the client's.
            **options: Fields of `ScoreRequest`.
        """
        request = ScoreRequest(query, documents, **options)
        return ScoreResult.from_proto(self._call("Score", request.to_proto(), timeout))

    def embed(
        self,
        inputs: Sequence[Input],
        *,
        timeout: float | None = None,
        **options: Unpack[EmbedOptions],
    ) -> EmbedResult:
        """One vector for each input.

        Args:
            inputs: Texts, or token ids each.
            timeout: Seconds; None is the client's.
            **options: Fields of `EmbedRequest`.
        """
        request = EmbedRequest(inputs, **options)
        response = self._call("Embed", request.to_proto(), timeout)
        return EmbedResult.from_proto(response, len(inputs))

    def tokenize(
        self,
        inputs: Sequence[Input],
        *,
        timeout: float | None = None,
        **options: Unpack[TokenizeOptions],
    ) -> TokenizeResult:
        """Token ids exactly as `score` (with `query`) or `embed` (without) would use them."""
        request = TokenizeRequest(inputs, **options)
        return TokenizeResult.from_proto(self._call("Tokenize", request.to_proto(), timeout))

    def get_model(
        self, model: str = "", *, include_tokenizer: bool = False, timeout: float | None = None
    ) -> ServedModel:
        """What is served: limits, pooling, labels, template and, when asked for, the tokenizer."""
        request = pb.GetModelRequest(model=model, include_tokenizer=include_tokenizer)
        return ServedModel.from_proto(self._call("GetModel", request, timeout))

    def score_stream(
        self,
        requests: Iterable[ScoreRequest],
        *,
        max_in_flight: int = 32,
        ordered: bool = False,
        timeout: float = DEFAULT_STREAM_TIMEOUT,
    ) -> Generator[StreamOutcome[ScoreResult], None, None]:
        """Many requests in flight on one stream; outcomes come as they finish.

        A request that fails is an outcome with an error. A stream that breaks as UNAVAILABLE
        is opened again and what was unanswered is sent again.

        Args:
            requests: Taken one by one, from another thread, never more than `max_in_flight` ahead.
            max_in_flight: Requests taken and not handed back yet.
            ordered: Hand outcomes back in the order of the requests.
            timeout: Seconds for the whole stream.
        """
        window = StreamWindow[ScoreRequest, ScoreResult](
            max_in_flight,
            ordered=ordered,
            read=lambda _, response: ScoreResult.from_proto(response),
        )
        return self._stream("ScoreStream", requests, window, timeout)

    def embed_stream(
        self,
        requests: Iterable[EmbedRequest],
        *,
        max_in_flight: int = 32,
        ordered: bool = False,
        timeout: float = DEFAULT_STREAM_TIMEOUT,
    ) -> Generator[StreamOutcome[EmbedResult], None, None]:
        """Many requests in flight on one stream; arguments and behaviour as `score_stream`."""
        window = StreamWindow[EmbedRequest, EmbedResult](
            max_in_flight,
            ordered=ordered,
            read=lambda request, response: EmbedResult.from_proto(response, len(request.inputs)),
        )
        return self._stream("EmbedStream", requests, window, timeout)

    def _stream(
        self, method: str, requests: Iterable[Any], window: StreamWindow[Any, Any], timeout: float
    ) -> Generator[StreamOutcome[Any], None, None]:
        def open_stream(messages: Iterator[Any], timeout: float) -> Any:  # noqa: ANN401
            return self._start(method, messages, timeout)

        run = StreamRun[Any, Any](
            open_stream, requests, window, self._options.retry, checked_timeout(timeout)
        )
        return run.outcomes()

    def _start(self, method: str, request: Any, timeout: float) -> Any:  # noqa: ANN401
        try:
            return self._methods[method](request, timeout=timeout, metadata=self._options.metadata)
        except ValueError:
            if self._closed:  # so grpc says it
                raise client_is_closed() from None
            raise

    def _call(self, method: str, request: Any, timeout: float | None) -> Any:  # noqa: ANN401
        options = self._options
        seconds = options.timeout if timeout is None else checked_timeout(timeout)
        attempts = Attempts(options.retry, seconds)
        while True:
            try:
                return self._start(method, request, attempts.next_timeout())
            except grpc.RpcError as failure:
                error = error_of_rpc(failure)
            time.sleep(attempts.pause_or_raise(error))
