"""Health, reflection, GetModel, and what every answer carries."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from rose._proto import tulip_pb2 as pb
from rose.client import Client, NotFound


@pytest.mark.parametrize("service", ["", "tulip.v1.Tulip"])
def test_health_says_serving(wire: Any, service: str) -> None:
    stub = health_pb2_grpc.HealthStub(wire.channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_health_of_an_unknown_service_is_not_found(wire: Any) -> None:
    stub = health_pb2_grpc.HealthStub(wire.channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nonsense"), timeout=10)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]


def test_reflection_knows_the_service(wire: Any) -> None:
    database = ProtoReflectionDescriptorDatabase(wire.channel)
    assert "tulip.v1.Tulip" in database.get_services()
    file = database.FindFileContainingSymbol("tulip.v1.Tulip")
    (service,) = file.service
    assert sorted(method.name for method in service.method) == [
        "Embed",
        "EmbedStream",
        "GetModel",
        "Score",
        "ScoreStream",
        "Tokenize",
    ]


def test_get_model_tells_limits_labels_and_tokenizer(
    limited: Any, cross_encoder_directory: Path
) -> None:
    with Client(limited.address) as client:
        model = client.get_model()
        with_tokenizer = client.get_model(include_tokenizer=True)
    assert (model.name, model.task) == ("tiny-reranker", "score")
    assert model.architecture == "BertForSequenceClassification"
    assert model.limits.max_sequence_tokens == 512
    assert model.limits.max_items_per_request == 50
    assert model.limits.max_message_bytes == 300_000
    assert model.limits.max_queued_tokens == 20_000
    assert (model.vocab_size, model.dtype, model.device) == (30522, "float32", "cpu")
    assert model.score_activation == "sigmoid"
    assert model.fingerprint
    assert model.tokenizer_json == b""
    assert model.tokenizer_sha256 == with_tokenizer.tokenizer_sha256
    sha256 = hashlib.sha256(with_tokenizer.tokenizer_json).hexdigest()
    assert sha256 == with_tokenizer.tokenizer_sha256


def test_get_model_of_an_embedding_model(minilm: Any) -> None:
    with Client(minilm.address) as client:
        model = client.get_model()
    assert (model.task, model.pooling, model.similarity) == ("embed", "mean", "cosine")
    assert (model.dimensions, model.normalized) == (384, True)
    assert model.limits.max_sequence_tokens == 256
    assert model.outputs == ("dense",)


def test_a_strict_server_refuses_another_name(limited: Any) -> None:
    with Client(limited.address) as client:
        assert client.score("q", ["d"], model="tiny-reranker").model == "tiny-reranker"
        with pytest.raises(NotFound, match="other"):
            client.score("q", ["d"], model="other")


def test_other_servers_answer_to_any_name_with_the_true_one(minilm: Any) -> None:
    with Client(minilm.address) as client:
        assert client.score("q", ["d"], model="other").model == minilm.model


def test_every_answer_says_what_it_cost(limited: Any) -> None:
    with Client(limited.address) as client:
        result = client.score("a query", ["a document", "another one here"], request_id="r-1")
        tokens = client.tokenize(["a document", "another one here"], query="a query")
        model = client.get_model()
    assert result.request_id == "r-1"
    assert result.usage.sequences == 2
    assert result.usage.input_tokens == sum(len(s.token_ids) for s in tokens.sequences)
    assert result.timings.compute_us > 0
    timings = result.timings
    assert timings.total_us >= timings.tokenize_us + timings.compute_us
    assert result.load.max_queued_tokens == 20_000
    assert result.fingerprint == model.fingerprint


def test_a_full_queue_refuses_with_a_time_to_come_back(limited: Any) -> None:
    documents = ["word " * 380] * 50  # 19,200 of 20,000 tokens
    requests = [
        pb.ScoreRequest(query=pb.Input(text="q"), documents=[pb.Input(text=d) for d in documents])
        for _ in range(12)
    ]
    with grpc.insecure_channel(limited.address) as channel:
        call = channel.unary_unary(
            "/tulip.v1.Tulip/Score",
            request_serializer=pb.ScoreRequest.SerializeToString,
            response_deserializer=pb.ScoreResponse.FromString,
        )
        futures = [call.future(request, timeout=120) for request in requests]
        refused = [future.exception() for future in futures]
    statuses = [error.code().name if error else "OK" for error in refused]
    assert statuses.count("OK") >= 1
    assert set(statuses) == {"OK", "RESOURCE_EXHAUSTED"}
    for error in refused:
        if error is not None:
            assert "max_queued_tokens=20000" in error.details()
            retry_after = dict(error.trailing_metadata())["retry-after-ms"]
            assert int(retry_after) > 0
    with Client(limited.address) as client:
        assert client.score("q", ["d"]).ok.all()


def test_label_scores_of_a_classifier(serve: Any, make_bert: Any) -> None:
    import numpy as np

    with serve(make_bert("tiny-classifier", labels=3)) as server, Client(server.address) as client:
        result = client.score("q", ["a", "b"], all_labels=True, label="LABEL_2")
    assert result.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert result.label_scores is not None
    assert result.label_scores.shape == (2, 3)
    assert np.abs(result.label_scores.sum(axis=1) - 1).max() < 1e-5
    assert np.abs(result.label_scores[:, 2] - result.scores).max() < 1e-6
