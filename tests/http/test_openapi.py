"""Requests made from the OpenAPI document, right and wrong ones: the answers are as it says.

`OPENAPI_EXAMPLES=1000 pytest tests/http/test_openapi.py` is the larger run.
"""

from __future__ import annotations

import os
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import CHECKS, load_all_checks

from .conftest import KEY, Service

EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "8"))
EXPECTED = {200, 400, 404, 405, 408, 413, 415, 422, 424, 429}
"""503 and 504 have tests of their own: nothing here is loading, draining or late."""
FUZZ = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=EXAMPLES < 100,
    suppress_health_check=list(HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)

load_all_checks()
CHECKED = [
    CHECKS.get_one("not_a_server_error"),
    CHECKS.get_one("response_schema_conformance"),
]


def check(service: Service) -> None:
    """Every operation of the document, each with its own examples."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 10
    for operation in operations:

        @FUZZ
        @hypothesis.given(case=operation.as_strategy())
        def one(case: Any) -> None:
            response = case.call(headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
            assert response.status_code in EXPECTED, (response.status_code, response.text[:500])
            case.validate_response(response, checks=CHECKED)

        one()


def test_an_embedding_model(embedder: Service) -> None:
    check(embedder)


def test_a_reranker(reranker: Service) -> None:
    check(reranker)
