"""The self-check: golden scores are compared before a model is served."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from rose.checks.golden import Golden, find_golden
from rose.checks.scorer import Scorer, Vectors, rank_correlation
from rose.config import SelfCheckMode
from rose.engine.engine import Engine
from rose.errors import SelfCheckError

logger = logging.getLogger(__name__)

Verdict: TypeAlias = Literal["ok", "warn", "fail"]

# Of scores and of values of a vector relative to its length. Other dtypes than float32 round.
_TOLERANCE = {"float32": 1e-3}
_ROUNDED_TOLERANCE = 3e-2
# Beyond the tolerance by this factor, or in another order than this, it is not rounding.
_FAIL_FACTOR = 5.0
_FAIL_CORRELATION = 0.9


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """How far a model is from its golden numbers."""

    num_scores: int
    num_vectors: int
    max_score_difference: float
    rank_correlation: float
    """The lowest of the queries."""
    max_vector_difference: float
    """Of a value of a vector, relative to the reference vector's length."""
    tolerance: float

    @property
    def verdict(self) -> Verdict:
        """`fail`: template, pooling or labels must be others; `warn`: more than rounding."""
        difference = max(self.max_score_difference, self.max_vector_difference)
        if not difference <= self.tolerance * _FAIL_FACTOR:
            return "fail"
        if self.rank_correlation < _FAIL_CORRELATION:
            return "fail"
        return "ok" if difference <= self.tolerance else "warn"

    def __str__(self) -> str:
        parts = [
            f"{self.num_scores} golden scores, largest difference {self.max_score_difference:.2g}, "
            f"lowest rank correlation {self.rank_correlation:.3f}"
        ]
        if self.num_vectors:
            parts.append(
                f"{self.num_vectors} golden vectors, largest difference "
                f"{self.max_vector_difference:.2g}"
            )
        return "; ".join(parts) + f"; tolerance {self.tolerance:g}"


def check_golden(scorer: Scorer, golden: Golden) -> SelfCheck:
    """Compares a model with its golden numbers."""
    differences, correlations = [0.0], [1.0]
    for query in golden.queries:
        ours = scorer.scores(query.query, query.documents)
        theirs = np.array(query.scores)
        differences.append(_largest(ours, theirs))
        # The order of scores that are all alike says nothing.
        step = 2 * _tolerance(scorer)
        if np.ptp(theirs) > step:
            # Closer than rounding errors counts as equal, or the order would be noise.
            correlations.append(rank_correlation(np.round(ours / step), np.round(theirs / step)))
    vector_differences = [0.0]
    if golden.texts and scorer.info.task == "embed":
        vectors = scorer.vectors([text.text for text in golden.texts])
        for vector, text in zip(vectors, golden.texts, strict=True):
            scale = text.norm or 1.0
            head = np.array(text.head)
            vector_differences.append(_largest(vector[: len(head)], head) / scale)
            vector_differences.append(abs(float(np.linalg.norm(vector)) - text.norm) / scale)
    return SelfCheck(
        num_scores=sum(len(query.scores) for query in golden.queries),
        num_vectors=len(golden.texts),
        max_score_difference=max(differences),
        rank_correlation=min(correlations),
        max_vector_difference=max(vector_differences),
        tolerance=_tolerance(scorer),
    )


def run_self_check(engine: Engine, directory: Path, mode: SelfCheckMode) -> SelfCheck | None:
    """Checks a model that has golden numbers; None where it has none, or the mode is `off`.

    Raises:
        SelfCheckError: the numbers differ by more than rounding, and the mode is `refuse`.
        ModelLoadError: the golden file is malformed.
    """
    path = find_golden(directory) if mode != "off" else None
    if path is None:
        return None
    if engine.info.layout.token_rows and engine.info.outputs.kinds[0] != "dense":
        logger.warning("self-check: none, %s is of dense vectors", path.name)
        return None
    check = check_golden(Scorer(engine), Golden.read(path))
    if check.verdict == "ok":
        logger.info("self-check: %s", check)
        return check
    message = (
        f"self-check with {path.name}: {check}. Template, pooling, label order or weights are not "
        "those of the reference"
    )
    if check.verdict == "fail" and mode == "refuse":
        raise SelfCheckError(f"{message}; --self-check warn serves all the same")
    logger.warning("%s", message)
    return check


def _tolerance(scorer: Scorer) -> float:
    return _TOLERANCE.get(scorer.info.dtype, _ROUNDED_TOLERANCE)


def _largest(ours: Vectors, theirs: Vectors) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    difference = float(np.abs(ours - theirs).max(initial=0.0))
    return difference if np.isfinite(difference) else float("inf")
