"""Scores and vectors of an engine without a server: what a client would get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rose import _tulip
from rose.config import Similarity
from rose.engine.engine import Engine
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch

Vectors: TypeAlias = npt.NDArray[np.float64]
Role: TypeAlias = Literal["query", "document", ""]


class Scorer:
    """An engine with the tokenizer and the templates of its model.

    Raises:
        ModelLoadError: the tokenizer or a template cannot be used.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.info = engine.info
        try:
            self.encoder = _tulip.TextEncoder(engine.info)
        except ValueError as error:
            raise ModelLoadError(str(error)) from error

    def rows(self, sequences: Sequence[tuple[list[int], int]]) -> Vectors:
        """What the model gives for token ids: [sequences, output_width].

        Of a model with a row for each token the dense vectors: [sequences, dimensions].
        """
        rows = []
        for first in range(0, len(sequences), _SEQUENCES_OF_A_STEP):
            some = sequences[first : first + _SEQUENCES_OF_A_STEP]
            batch = ForwardBatch.from_sequences(
                [ids for ids, _ in some], self.info.layout, [start for _, start in some]
            )
            output = self.engine.step(batch).numpy().astype(np.float64)
            if self.info.layout.token_rows:
                outputs = self.info.outputs
                starts = np.cumsum([0, *(len(ids) for ids, _ in some[:-1])])
                end = outputs.dense_start + outputs.dimensions
                output = output[starts, outputs.dense_start : end]
            rows.append(output[: len(some)])
        return np.concatenate(rows)

    def vectors(self, texts: Sequence[str], role: Role = "") -> Vectors:
        """Embeddings [texts, dimensions] with the prompt of the role."""
        return self.rows(self.encoder.singles(list(texts), role))

    def scores(self, query: str, documents: Sequence[str]) -> Vectors:
        """What Score answers: [documents]."""
        if self.info.task == "embed":
            query_vector = self.vectors([query], "query")[0]
            return similarities(
                self.info.similarity, query_vector, self.vectors(documents, "document")
            )
        logits = self.rows(self.encoder.pairs(query, list(documents)))
        return self.activate(logits)[:, self.info.positive_label]

    def activate(self, logits: Vectors) -> Vectors:
        """Calibrated scores [rows, labels] of logits."""
        if self.info.activation == "sigmoid":
            return 1 / (1 + np.exp(-logits))
        if self.info.activation == "softmax":
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            softmax: Vectors = powers / powers.sum(axis=1, keepdims=True)
            return softmax
        return logits


# A check must not need more memory than serving does.
_SEQUENCES_OF_A_STEP = 32


def similarities(similarity: Similarity, query: Vectors, documents: Vectors) -> Vectors:
    """Of one vector [dimensions] and several [documents, dimensions]: [documents]."""
    result: Vectors
    if similarity == "euclidean":
        result = -np.linalg.norm(documents - query, axis=1)
    elif similarity == "manhattan":
        result = -np.abs(documents - query).sum(axis=1)
    else:
        result = documents @ query
        if similarity == "cosine":
            result = result / (np.linalg.norm(documents, axis=1) * np.linalg.norm(query))
    return result


def rank_correlation(ours: Vectors, theirs: Vectors) -> float:
    """Spearman's: 1 = the same order, -1 = the reverse; equal values share their mean rank."""
    a, b = _ranks(ours), _ranks(theirs)
    a, b = a - a.mean(), b - b.mean()
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else 1.0


def _ranks(values: Vectors) -> Vectors:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Vectors = (ends - (counts - 1) / 2)[inverse]
    return ranks
