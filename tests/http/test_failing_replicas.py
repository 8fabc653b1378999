"""What each SDK raises when the replicas behind `rose gateway` are full, gone or broken."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cohere
import cohere.core
import grpc
import litellm
import openai
import pytest
import voyageai
import voyageai.error
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError
from openai import OpenAI

from rose.client.channel import METHODS, SERVICE, STREAMING

from ..conftest import STOP_SECONDS, _ready_line, rose_environment
from .conftest import DOCUMENTS, QUERY, Service, close, same_ranking


@dataclass
class Replica:
    """Says it is `real`, and fails as the test wants; with no failure it asks `real`."""

    real: str
    code: grpc.StatusCode | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    calls: list[str] = field(default_factory=list)

    def handler(self, name: str) -> grpc.RpcMethodHandler:
        request_type, response_type = METHODS[name]

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            if name in ("Score", "Embed"):
                self.calls.append(name)
                if self.code is not None:
                    context.set_trailing_metadata(self.metadata)
                    context.abort(self.code, f"scripted {self.code.name}")
            with grpc.insecure_channel(self.real) as channel:
                method = channel.unary_unary(
                    f"/{SERVICE}/{name}",
                    request_serializer=request_type.SerializeToString,
                    response_deserializer=response_type.FromString,
                )
                return method(request, timeout=30)

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=request_type.FromString,
            response_serializer=pb_serializer(response_type),
        )


def pb_serializer(response_type: Any) -> Callable[[Any], bytes]:
    return lambda message: response_type.SerializeToString(message)


@pytest.fixture(scope="module")
def replicas(embedder: Service, reranker: Service) -> Iterator[tuple[Replica, Replica, list[str]]]:
    servers, addresses = [], []
    scripted = (Replica(embedder.grpc), Replica(reranker.grpc))
    for replica in scripted:
        server = grpc.server(ThreadPoolExecutor(8))
        handlers = {name: replica.handler(name) for name in METHODS.keys() - STREAMING}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
        servers.append(server)
    yield (*scripted, addresses)
    for server in servers:
        server.stop(grace=None).wait()


@pytest.fixture(scope="module")
def gateway_url(
    replicas: tuple[Replica, Replica, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    stderr = Path(tmp_path_factory.mktemp("gateway"), "stderr")
    command = [sys.executable, "-m", "rose.cli", "gateway", "--http-address", "127.0.0.1:0"]
    for address in replicas[2]:
        command += ["--replica", address]
    with (
        stderr.open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=rose_environment()
        ) as process,
    ):
        try:
            words = _ready_line(process, stderr).split()
            yield f"http://{dict(word.split('=', 1) for word in words[1:])['http']}"
            process.terminate()
            assert process.wait(STOP_SECONDS) == 0
            assert "panicked" not in stderr.read_text()
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def gateway(
    gateway_url: str,
    replicas: tuple[Replica, Replica, list[str]],
    embedder: Service,
    reranker: Service,
) -> Iterator[Gateway]:
    found = Gateway(gateway_url, replicas[:2], embedder.model, reranker.model)
    yield found
    found.fail(None)
    found.wait_until_back()


@dataclass
class Gateway:
    url: str
    replicas: tuple[Replica, Replica]
    embedder: str
    reranker: str

    def fail(self, code: grpc.StatusCode | None, **metadata: str) -> None:
        for replica in self.replicas:
            replica.code = code
            replica.metadata = tuple(
                (key.replace("_", "-"), value) for key, value in metadata.items()
            )

    def wait_until_back(self) -> None:
        """Replicas that failed are left out until a probe of theirs succeeds."""
        deadline = time.monotonic() + 20
        while True:
            try:
                self.openai()
                self.cohere()
            except (openai.APIStatusError, cohere.core.ApiError):
                assert time.monotonic() < deadline, "a replica that works is still left out"
                time.sleep(0.1)
            else:
                return

    def openai(self) -> Any:
        with OpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0) as client:
            return client.embeddings.create(model=self.embedder, input=list(DOCUMENTS))

    def cohere(self) -> Any:
        client = cohere.ClientV2(api_key="any", base_url=self.url)
        return client.rerank(
            model=self.reranker,
            query=QUERY,
            documents=list(DOCUMENTS),
            request_options={"max_retries": 0},
        )

    def voyage(self) -> Any:
        client = voyageai.Client(api_key="any", base_url=f"{self.url}/v1")
        return client.rerank(QUERY, list(DOCUMENTS), model=self.reranker)

    def huggingface(self) -> Any:
        return InferenceClient(model=f"{self.url}/embed", token="any").feature_extraction("a")

    def litellm(self) -> Any:
        return litellm.embedding(
            model=f"openai/{self.embedder}",
            input=list(DOCUMENTS),
            api_base=f"{self.url}/v1",
            api_key="any",
            max_retries=0,
        )


def test_two_models_behind_one_gateway(
    gateway: Gateway, embedder: Service, reranker: Service
) -> None:
    close([row.embedding for row in gateway.openai().data], embedder.embed(DOCUMENTS))
    results = gateway.cohere().results
    same_ranking([(r.index, r.relevance_score) for r in results], reranker.ranking())
    assert [replica.calls[-1] for replica in gateway.replicas] == ["Embed", "Score"]


def test_full(gateway: Gateway) -> None:
    gateway.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_ms="1500")
    with pytest.raises(openai.RateLimitError) as limited:
        gateway.openai()
    assert limited.value.response.headers["retry-after"] == "2"
    assert limited.value.response.headers["retry-after-ms"] == "1500"
    with pytest.raises(cohere.TooManyRequestsError):
        gateway.cohere()
    with pytest.raises(voyageai.error.RateLimitError):
        gateway.voyage()
    with pytest.raises(litellm.RateLimitError):
        gateway.litellm()
    with pytest.raises(HfHubHTTPError) as caught:
        gateway.huggingface()
    assert caught.value.response.status_code == 429
    assert caught.value.response.json()["error_type"] == "Overloaded"


def test_unavailable(gateway: Gateway) -> None:
    gateway.fail(grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(openai.InternalServerError) as broken:
        gateway.openai()
    assert broken.value.status_code == 503
    assert int(broken.value.response.headers["retry-after"]) >= 1
    with pytest.raises(cohere.ServiceUnavailableError):
        gateway.cohere()
    with pytest.raises(voyageai.error.ServiceUnavailableError):
        gateway.voyage()
    with pytest.raises((litellm.ServiceUnavailableError, litellm.InternalServerError)):
        gateway.litellm()
    # huggingface_hub reads a 503 as "the model is loading", and stops by its own timeout.
    with pytest.raises((HfHubHTTPError, InferenceTimeoutError)):
        gateway.huggingface()


def test_a_failed_step(gateway: Gateway) -> None:
    gateway.fail(grpc.StatusCode.INTERNAL)
    with pytest.raises(openai.InternalServerError) as broken:
        gateway.openai()
    assert broken.value.status_code == 500
    with pytest.raises(cohere.InternalServerError):
        gateway.cohere()
    with pytest.raises(voyageai.error.ServerError):
        gateway.voyage()
    with pytest.raises(litellm.InternalServerError):
        gateway.litellm()
    with pytest.raises(HfHubHTTPError) as caught:
        gateway.huggingface()
    assert caught.value.response.status_code == 424


def test_an_unknown_name_among_several(gateway: Gateway) -> None:
    known, gateway.reranker = gateway.reranker, "rerank-99"
    with pytest.raises(cohere.NotFoundError):
        gateway.cohere()
    gateway.reranker = known
