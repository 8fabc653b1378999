"""One model, ours and a reference, on a small varied set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rose.checks.golden import HEAD_VALUES, Golden, GoldenQuery, GoldenText
from rose.checks.reference import Reference
from rose.checks.sample import DOCUMENTS, QUERIES, TEXTS
from rose.checks.scorer import Role, Scorer, Vectors, rank_correlation

# float32 differs in the last bits; in other dtypes activations round.
_TOLERANCE = {"float32": 1e-4}
_ROUNDED_TOLERANCE = 3e-2
_LOWEST_COSINE = {"float32": 0.99999}
_ROUNDED_COSINE = 0.9995
_LOWEST_CORRELATION = 0.99


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of a comparison."""

    name: str
    count: int
    max_difference: float
    lowest_cosine: float | None
    """Of vectors."""
    rank_correlation: float | None
    """The lowest of the queries."""
    passed: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a check found."""

    reference: str
    measures: tuple[Measure, ...]
    ours: Vectors
    theirs: Vectors
    """All scores, for a plot."""

    @property
    def passed(self) -> bool:
        """Whether all measures are within their limits."""
        return all(measure.passed for measure in self.measures)


def compare(scorer: Scorer, reference: Reference) -> Comparison:
    """Vectors with each prompt, then scores and their order, then a text alone and in company."""
    measures = []
    if scorer.info.task == "embed":
        roles: tuple[Role, ...] = ("", "query", "document")
        measures += [_vectors(scorer, reference, role) for role in roles]
    ours = [scorer.scores(query, DOCUMENTS) for query in QUERIES]
    theirs = [reference.scores(query, DOCUMENTS) for query in QUERIES]
    measures += [_scores(scorer, ours, theirs), _alone(scorer)]
    return Comparison(reference.name, tuple(measures), np.concatenate(ours), np.concatenate(theirs))


def make_golden(reference: Reference, *, embeds: bool) -> Golden:
    """Golden numbers of the sample, as the reference gives them."""
    queries = [
        GoldenQuery(query, DOCUMENTS, tuple(reference.scores(query, DOCUMENTS).tolist()))
        for query in QUERIES
    ]
    return Golden(reference.name, tuple(queries), tuple(_golden_texts(reference) if embeds else ()))


def _golden_texts(reference: Reference) -> Iterator[GoldenText]:
    for text, vector in zip(TEXTS, reference.vectors(TEXTS), strict=True):
        head = tuple(round(float(value), 7) for value in vector[:HEAD_VALUES])
        yield GoldenText(text, head, float(np.linalg.norm(vector)))


def _vectors(scorer: Scorer, reference: Reference, role: Role) -> Measure:
    ours, theirs = scorer.vectors(TEXTS, role), reference.vectors(TEXTS, role)
    name = f"vectors, {role} prompt" if role else "vectors"
    if ours.shape != theirs.shape:
        note = f"width {ours.shape[1]}, the reference has {theirs.shape[1]}"
        return Measure(name, len(TEXTS), float("inf"), None, None, passed=False, note=note)
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosine = float(((ours * theirs).sum(axis=1) / norms).min())
    difference = float(np.abs(ours - theirs).max())
    scale = max(1.0, float(np.linalg.norm(theirs, axis=1).max()))
    dtype = scorer.info.dtype
    passed = cosine >= _LOWEST_COSINE.get(dtype, _ROUNDED_COSINE)
    passed = passed and difference <= _TOLERANCE.get(dtype, _ROUNDED_TOLERANCE) * scale
    note = ""
    if not passed and role and getattr(scorer.info.templates, role):
        note = "our template is not the directory's prompt"
    return Measure(name, len(TEXTS), difference, cosine, None, passed, note)


def _scores(scorer: Scorer, ours: list[Vectors], theirs: list[Vectors]) -> Measure:
    difference = float(np.abs(np.concatenate(ours) - np.concatenate(theirs)).max())
    tolerance = _TOLERANCE.get(scorer.info.dtype, _ROUNDED_TOLERANCE)
    # Closer than the tolerance counts as equal.
    correlation = min(
        rank_correlation(np.round(a / tolerance), np.round(b / tolerance))
        for a, b in zip(ours, theirs, strict=True)
    )
    passed = difference <= tolerance and correlation >= _LOWEST_CORRELATION
    count = sum(len(one) for one in ours)
    note = ""
    if np.ptp(np.concatenate(theirs)) <= 10 * tolerance:
        note = "scores are nearly all alike"
    return Measure("scores", count, difference, None, correlation, passed, note)


def _alone(scorer: Scorer) -> Measure:
    """A document's score alone and among others."""
    together = scorer.scores(QUERIES[0], DOCUMENTS)
    alone = [scorer.scores(QUERIES[0], [document])[0] for document in DOCUMENTS]
    difference = float(np.abs(together - np.array(alone)).max())
    passed = difference <= _TOLERANCE.get(scorer.info.dtype, _ROUNDED_TOLERANCE)
    return Measure("alone = in a batch", len(alone), difference, None, None, passed)
