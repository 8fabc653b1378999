"""The table of bad input: the right status, a message that names the field, and life goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import pytest

from rose._proto import tulip_pb2 as pb


def text(value: str) -> pb.Input:
    return pb.Input(text=value)


def ids(
    *token_ids: int, form: pb.TokenIdsForm = pb.TOKEN_IDS_FORM_SEGMENT, start: int = 0
) -> pb.Input:
    packed = np.array(token_ids, dtype="<u4").tobytes()
    return pb.Input(token_ids=packed, form=form, second_segment_start=start)


SEQUENCE = pb.TOKEN_IDS_FORM_SEQUENCE


def score(**fields: Any) -> pb.ScoreRequest:
    return pb.ScoreRequest(**{"query": text("q"), "documents": [text("d")]} | fields)


@dataclass(frozen=True)
class Case:
    id: str
    request: Any
    status: str
    says: tuple[str, ...]
    method: str = "Score"
    options: dict[str, Any] = field(default_factory=dict)


INVALID = "INVALID_ARGUMENT"
CASES = [
    Case("no query", pb.ScoreRequest(documents=[text("d")]), INVALID, ("query",)),
    Case("query is nothing", score(query=pb.Input()), INVALID, ("query", "neither")),
    Case("no documents", score(documents=[]), INVALID, ("documents", "at least 1")),
    Case(
        "too many documents",
        score(documents=[text("d")] * 51),
        INVALID,
        ("documents", "51", "max_items_per_request=50"),
    ),
    Case("query out of vocabulary", score(query=ids(5, 30522)), INVALID, ("query", "30522")),
    Case(
        "query of broken bytes",
        score(query=pb.Input(token_ids=b"\x01\x02\x03")),
        INVALID,
        ("query.token_ids", "3 bytes"),
    ),
    Case("query too long", score(query=text("word " * 600)), INVALID, ("query", "6")),
    Case(
        "query with whole pairs",
        score(documents=[ids(101, 5, 102, form=SEQUENCE)]),
        INVALID,
        ("documents[0].form", "SEQUENCE"),
    ),
    Case(
        "whole pair longer than the model",
        pb.ScoreRequest(documents=[ids(*([5] * 513), form=SEQUENCE)], strict=True),
        INVALID,
        ("documents[0]", "513", "512"),
    ),
    Case(
        "strict, one bad document",
        score(documents=[text("d"), pb.Input()], strict=True),
        INVALID,
        ("documents[1]", "neither text nor token_ids"),
    ),
    Case(
        "strict, truncation refused",
        score(
            documents=[text("word " * 600)],
            strict=True,
            truncation=pb.Truncation(policy=pb.TRUNCATION_POLICY_ERROR),
        ),
        INVALID,
        ("documents[0]", "60"),
    ),
    Case("unknown priority", score(priority=9), INVALID, ("priority", "9")),
    Case("unknown form", score(query=pb.Input(text="q", form=7)), INVALID, ("query.form", "7")),
    Case(
        "unknown truncation",
        score(truncation=pb.Truncation(side=8)),
        INVALID,
        ("truncation.side", "8"),
    ),
    Case("unknown label", score(label="no such"), INVALID, ("label", "no such")),
    Case("instruction without a template", score(instruction="i"), INVALID, ("instruction",)),
    Case("other model", score(model="other"), "NOT_FOUND", ("model", "other", "tiny-reranker")),
    Case(
        "message too large",
        score(documents=[text("x" * 400_000)]),
        INVALID,
        ("max_message_bytes=300000",),
    ),
    Case(
        "never fits the queue",
        score(documents=[text("word " * 505)] * 50),
        INVALID,
        ("max_queued_tokens=20000",),
    ),
    Case(
        "embed a reranker",
        pb.EmbedRequest(inputs=[text("a")]),
        "FAILED_PRECONDITION",
        ("embed",),
        method="Embed",
    ),
    Case(
        "nothing to tokenize", pb.TokenizeRequest(), INVALID, ("inputs", "at least 1"), "Tokenize"
    ),
    Case("not a message", b"\xff\xff\xff", INVALID, ()),
    Case("text is not UTF-8", b"\x1a\x03\x0a\x01\xff", INVALID, ()),
    Case(
        "deadline that cannot be met",
        score(documents=[text("word " * 380)] * 50),
        "DEADLINE_EXCEEDED",
        (),
        options={"timeout": 0.003},
    ),
    Case("deadline of a lifetime", score(), "OK", (), options={"timeout": 1e9}),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_bad_input(wire: Any, case: Case) -> None:
    status, message = wire.status(case.method, case.request, **case.options)
    assert status == case.status, message
    for part in case.says:
        assert part.lower() in message.lower()
    assert wire.status("Score", score()) == ("OK", "")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (pb.Input(), pb.ERROR_REASON_INVALID_INPUT),
        (pb.Input(token_ids=b"\0\0\0"), pb.ERROR_REASON_INVALID_INPUT),
        (ids(5, 30522, 7), pb.ERROR_REASON_TOKEN_ID_OUT_OF_RANGE),
        (pb.Input(token_ids=b"\xff\xff\xff\xff"), pb.ERROR_REASON_TOKEN_ID_OUT_OF_RANGE),
    ],
    ids=["nothing", "broken bytes", "out of vocabulary", "greatest id"],
)
def test_one_bad_document_among_good_ones(wire: Any, bad: pb.Input, reason: int) -> None:
    documents = [text("one"), bad, text("three")]
    answer = wire.call("Score", score(documents=documents))
    (error,) = answer.item_errors
    assert (error.index, error.reason) == (1, reason)
    assert error.message.startswith("documents[1]")
    assert answer.scores[1] == 0
    assert sorted(answer.ranking) == [0, 2]
    good = wire.call("Score", score(documents=[documents[0], documents[2]]))
    assert [answer.scores[0], answer.scores[2]] == pytest.approx(list(good.scores), abs=1e-5)


def test_an_over_long_document_is_cut_and_reported(wire: Any) -> None:
    answer = wire.call("Score", score(documents=[text("short"), text("word " * 600)]))
    assert not answer.item_errors
    (report,) = answer.truncations
    assert (report.index, report.role) == (1, pb.INPUT_ROLE_DOCUMENT)
    assert (report.tokens_given, report.side) == (600, pb.TRUNCATION_SIDE_RIGHT)
    # [CLS] q [SEP] … [SEP]
    assert report.tokens_used == 512 - 4


def test_an_over_long_document_is_an_item_error_when_cutting_is_refused(wire: Any) -> None:
    truncation = pb.Truncation(policy=pb.TRUNCATION_POLICY_ERROR)
    request = score(documents=[text("short"), text("word " * 600)], truncation=truncation)
    answer = wire.call("Score", request)
    (error,) = answer.item_errors
    assert (error.index, error.reason) == (1, pb.ERROR_REASON_TOO_LONG)
    assert "512" in error.message
    assert list(answer.ranking) == [0]


def test_empty_texts_are_texts(wire: Any) -> None:
    answer = wire.call("Score", score(documents=[text(""), text(" "), text("d")]))
    assert not answer.item_errors
    assert len(answer.ranking) == 3
    assert answer.scores[0] != 0


def test_nul_and_unassigned_characters_are_characters(wire: Any) -> None:
    answer = wire.call("Score", score(documents=[text("a\0b"), text("\U0010ffff"), text("\ufffe")]))
    assert not answer.item_errors


def test_many_bad_requests_at_once_harm_nobody(wire: Any) -> None:
    calls: list[Callable[[], Any]] = []
    for _ in range(20):
        for case in CASES:
            if case.status == INVALID and case.method == "Score":
                calls.append(lambda case=case: wire.status("Score", case.request))
        calls.append(lambda: wire.status("Score", score()))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        statuses = [future.result()[0] for future in [pool.submit(call) for call in calls]]
    assert set(statuses) == {INVALID, "OK"}
    assert statuses.count("OK") == 20


def test_an_unknown_method_is_unimplemented(wire: Any) -> None:
    call = wire.channel.unary_unary("/tulip.v1.Tulip/Nonsense")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=10)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]
