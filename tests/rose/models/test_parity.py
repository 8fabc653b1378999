"""Every family as a checkpoint on disk, float32 on CPU, against the reference libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

from model_parity import compare, real_tokenizer
from model_parity_case import Case
from model_parity_cases import CASES

TOLERANCE = 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_reference(case: Case, tmp_path: Path) -> None:
    tokenizer = real_tokenizer(case.tokenizer)
    if case.name.endswith("-score") and tokenizer is not None and not tokenizer.is_file():
        # Pairs of WordPiece are not the pairs that these families read.
        pytest.skip(f"{tokenizer.parent.name} is not there: run scripts/fetch_models.py")
    result = compare(case, tmp_path / "model")
    assert result.difference <= TOLERANCE
    assert result.alone <= TOLERANCE
    assert result.same_order
