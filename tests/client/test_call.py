"""Unary calls: what goes out, what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import rose
from rose._proto import tulip_pb2 as pb
from rose.client import AsyncClient, Client, InvalidArgument, Truncation


def test_score_returns_arrays_and_a_ranking(by_length: Any) -> None:
    with Client(by_length.address) as client:
        result = client.score("q", ["aa", "a", "aaa"], top_n=2, request_id="r1")
    assert result.scores.dtype == np.float32
    assert result.scores.tolist() == [2.0, 1.0, 3.0]
    assert result.ranking == (2, 0)
    assert [(p.index, p.score, p.document) for p in result.ranked(["x", "y", "z"])] == [
        (2, 3.0, "z"),
        (0, 2.0, "x"),
    ]
    assert (result.request_id, result.fingerprint, result.usage.input_tokens) == ("r1", "f1", 7)
    assert result.ok.all()


def test_every_option_of_score_reaches_the_wire(by_length: Any) -> None:
    with Client(by_length.address, metadata={"x-tenant": "t"}) as client:
        client.score(
            "q",
            ["d", [1, 2, 70_000], np.array([3], dtype=np.uint32)],
            instruction="i",
            top_n=1,
            raw_scores=True,
            truncation=Truncation("cut", side="left", pair="longest_first", max_tokens=9),
            priority="bulk",
            strict=True,
            label="l",
            all_labels=True,
            model="m",
        )
    (request,) = by_length.requests
    expected = pb.ScoreRequest(
        model="m",
        query=pb.Input(text="q"),
        documents=[
            pb.Input(text="d"),
            pb.Input(
                token_ids=np.array([1, 2, 70_000], dtype="<u4").tobytes(),
                form=pb.TOKEN_IDS_FORM_SEGMENT,
            ),
            pb.Input(token_ids=b"\x03\0\0\0", form=pb.TOKEN_IDS_FORM_SEGMENT),
        ],
        instruction="i",
        truncation=pb.Truncation(
            policy=pb.TRUNCATION_POLICY_CUT,
            side=pb.TRUNCATION_SIDE_LEFT,
            pair=pb.PAIR_TRUNCATION_LONGEST_FIRST,
            max_tokens=9,
        ),
        raw_scores=True,
        top_n=1,
        priority=pb.PRIORITY_BULK,
        strict=True,
        label="l",
        all_labels=True,
    )
    assert request == expected
    assert by_length.metadata[0]["x-tenant"] == "t"


def test_every_option_of_embed_reaches_the_wire(by_length: Any) -> None:
    with Client(by_length.address) as client:
        client.embed(
            ["a"],
            input_type="query",
            prompt_name="p",
            prompt="",
            instruction="i",
            dimensions=8,
            dtype="ubinary",
            normalize=False,
            outputs=("dense", "sparse"),
            truncation="error",
            priority="interactive",
        )
    (request,) = by_length.requests
    assert request == pb.EmbedRequest(
        inputs=[pb.Input(text="a")],
        input_type=pb.INPUT_TYPE_QUERY,
        prompt_name="p",
        prompt="",
        instruction="i",
        dimensions=8,
        dtype=pb.DTYPE_UBINARY,
        normalization=pb.NORMALIZATION_NONE,
        outputs=[pb.OUTPUT_KIND_DENSE, pb.OUTPUT_KIND_SPARSE],
        truncation=pb.Truncation(policy=pb.TRUNCATION_POLICY_ERROR),
        priority=pb.PRIORITY_INTERACTIVE,
    )
    assert request.HasField("prompt")


def test_whole_sequences_go_out_without_a_query(by_length: Any) -> None:
    with Client(by_length.address) as client:
        client.score(None, [[101, 5, 102]], sequences=True)
    (request,) = by_length.requests
    assert not request.HasField("query")
    assert request.documents[0].form == pb.TOKEN_IDS_FORM_SEQUENCE


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((None, ["d"]), {}, "query: must be text"),
        (("q", "document"), {}, "documents: must be a list of inputs, is one str"),
        (("q", ["d", 3]), {}, r"documents\[1\]: must be text or a list of token ids, is int"),
        (("q", ["d", b"x"]), {}, r"documents\[1\]: must be text or a list of token ids, is bytes"),
        (("q", [[1, -5]]), {}, r"documents\[0\]: token ids must be 0 to 4294967295, has -5"),
        (
            ("q", [[2**32]]),
            {},
            r"documents\[0\]: token ids must be 0 to 4294967295, has 4294967296",
        ),
        (("q", [[0.5]]), {}, r"documents\[0\]: must be .* is 1-dimensional float64"),
        (("q", [[[1], [2]]]), {}, r"documents\[0\]: must be .* is 2-dimensional"),
        (("q", [[[1], [2, 3]]]), {}, r"documents\[0\]: must be text or a flat list"),
        (("q", ["d"]), {"priority": "now"}, "priority: must be one of interactive, bulk, is 'now'"),
        (("q", ["d"]), {"truncation": "no"}, "truncation: must be one of error, cut, chunk_max"),
        (("q", ["d"]), {"top_n": -1}, "top_n: must be 0 to 4294967295, is -1"),
        (("q", ["d"]), {"timeout": 0}, "timeout: must be more than 0 s .* is 0"),
        (("q", ["d"]), {"timeout": float("nan")}, "timeout: must be more than 0 s .* is nan"),
        (("q", ["d"]), {"sequences": True}, r"documents\[0\]: must be token ids since sequences"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_name(
    by_length: Any, arguments: tuple[Any, Any], options: dict[str, Any], text: str
) -> None:
    with Client(by_length.address) as client, pytest.raises(InvalidArgument, match=text) as caught:
        client.score(*arguments, **options)
    assert isinstance(caught.value, rose.RoseError)
    assert isinstance(caught.value, ValueError)
    assert by_length.requests == []


def test_half_a_surrogate_pair_becomes_the_replacement_character(by_length: Any) -> None:
    with Client(by_length.address) as client:
        client.score("a\ud83d", ["\udc00b", "fine 🙂"])
    (request,) = by_length.requests
    assert request.query.text == "a\ufffd"
    assert [d.text for d in request.documents] == ["\ufffdb", "fine 🙂"]


@pytest.mark.parametrize(
    ("wire", "dtype", "expected"),
    [
        (pb.DTYPE_FLOAT32, "<f4", np.float32),
        (pb.DTYPE_FLOAT16, "<f2", np.float16),
        (pb.DTYPE_INT8, "i1", np.int8),
        (pb.DTYPE_UINT8, "u1", np.uint8),
        (pb.DTYPE_BINARY, "i1", np.int8),
        (pb.DTYPE_UBINARY, "u1", np.uint8),
    ],
)
def test_embeddings_have_the_dtype_that_came(
    tulip: Any, wire: pb.DType, dtype: str, expected: type
) -> None:
    rows = np.arange(6).reshape(2, 3).astype(dtype)

    @tulip.on("Embed")
    def embed(request: Any, context: Any) -> pb.EmbedResponse:
        return pb.EmbedResponse(
            embeddings=pb.Tensor(data=rows.tobytes(), dtype=wire, shape=rows.shape)
        )

    with Client(tulip.address) as client:
        result = client.embed(["a", "b"])
    assert result.embeddings.dtype == expected
    assert result.embeddings.tolist() == rows.tolist()
    result.embeddings[0, 0] = 1  # its own memory, not the message's
    assert result.dtype == pb.DType.Name(wire).removeprefix("DTYPE_").lower()


def test_bfloat16_is_widened_without_loss(tulip: Any) -> None:
    values = np.array([[1.0, -2.5, 3.140625]], dtype=np.float32)
    halves = (values.view(np.uint32) >> 16).astype("<u2")

    @tulip.on("Embed")
    def embed(request: Any, context: Any) -> pb.EmbedResponse:
        return pb.EmbedResponse(
            embeddings=pb.Tensor(data=halves.tobytes(), dtype=pb.DTYPE_BFLOAT16, shape=(1, 3))
        )

    with Client(tulip.address) as client:
        result = client.embed(["a"], dtype="bfloat16")
    assert result.embeddings.dtype == np.float32
    assert result.embeddings.tolist() == values.tolist()


def test_item_errors_truncations_sparse_and_token_vectors(tulip: Any) -> None:
    vectors = np.arange(6, dtype="<f4").reshape(3, 2)

    @tulip.on("Embed")
    def embed(request: Any, context: Any) -> pb.EmbedResponse:
        return pb.EmbedResponse(
            embeddings=pb.Tensor(data=bytes(8), dtype=pb.DTYPE_FLOAT32, shape=(2, 1)),
            item_errors=[pb.ItemError(index=1, reason=pb.ERROR_REASON_TOO_LONG, message="m")],
            truncations=[
                pb.TruncationReport(
                    index=0,
                    role=pb.INPUT_ROLE_DOCUMENT,
                    tokens_given=9,
                    tokens_used=4,
                    side=pb.TRUNCATION_SIDE_RIGHT,
                )
            ],
            sparse=pb.SparseVectors(row_offsets=[0, 2, 2], indices=[5, 9], values=[0.5, 0.25]),
            tokens=pb.TokenVectors(
                row_offsets=[0, 2, 3],
                vectors=pb.Tensor(data=vectors.tobytes(), dtype=pb.DTYPE_FLOAT32, shape=(3, 2)),
            ),
        )

    with Client(tulip.address) as client:
        result = client.embed(["a", "b"])
    assert result.ok.tolist() == [True, False]
    assert result.item_errors[0].reason == "too_long"
    report = result.truncations[0]
    assert (report.role, report.tokens_given, report.tokens_used, report.side) == (
        "document",
        9,
        4,
        "right",
    )
    assert result.sparse is not None
    assert result.sparse[0].indices.tolist() == [5, 9]
    assert result.sparse[1].values.tolist() == []
    assert result.token_vectors is not None
    assert [v.tolist() for v in result.token_vectors] == [[[0, 1], [2, 3]], [[4, 5]]]


def test_tokenize_and_get_model(tulip: Any) -> None:
    @tulip.on("Tokenize")
    def tokenize(request: pb.TokenizeRequest, context: Any) -> pb.TokenizeResponse:
        ids = np.array([101, 7, 102], dtype="<u4").tobytes()
        return pb.TokenizeResponse(
            sequences=[pb.TokenizedInput(token_ids=ids, second_segment_start=2, tokens=["a"])]
        )

    @tulip.on("GetModel")
    def get_model(request: pb.GetModelRequest, context: Any) -> pb.GetModelResponse:
        return pb.GetModelResponse(
            model="m",
            task=pb.TASK_EMBED,
            limits=pb.Limits(max_sequence_tokens=256),
            truncation_side=pb.TRUNCATION_SIDE_LEFT,
        )

    with Client(tulip.address) as client:
        (sequence,) = client.tokenize(["x"], query="q", return_tokens=True).sequences
        model = client.get_model()
    assert sequence.token_ids.dtype == np.uint32
    assert sequence.token_ids.tolist() == [101, 7, 102]
    assert (sequence.second_segment_start, sequence.tokens) == (2, ("a",))
    assert (model.name, model.task, model.limits.max_sequence_tokens) == ("m", "embed", 256)
    assert model.truncation_side == "left"


def test_answers_larger_than_grpcs_default_limit_pass(tulip: Any) -> None:
    size = 3 << 20

    @tulip.on("Embed")
    def embed(request: pb.EmbedRequest, context: Any) -> pb.EmbedResponse:
        data = np.ones(size, dtype="<f4").tobytes()
        return pb.EmbedResponse(
            embeddings=pb.Tensor(data=data, dtype=pb.DTYPE_FLOAT32, shape=(1, size))
        )

    with Client(tulip.address) as client:
        result = client.embed(["x" * (5 << 20)])
    assert result.embeddings.sum() == size


def test_the_asyncio_client_answers_the_same(by_length: Any) -> None:
    async def run() -> tuple[list[float], Any]:
        async with AsyncClient(by_length.address) as client:
            many = await asyncio.gather(*(client.score("q", ["a" * n]) for n in range(1, 20)))
            vectors = await client.embed(["aa", "a"])
        return [float(r.scores[0]) for r in many], vectors.embeddings

    scores, embeddings = asyncio.run(run())
    assert scores == [float(n) for n in range(1, 20)]
    assert embeddings.tolist() == [[2.0, 1.0], [1.0, 1.0]]
