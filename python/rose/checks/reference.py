"""The same model in sentence-transformers or transformers, which are imported only here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from rose.checkpoint.answers import AnswerTokens
from rose.checkpoint.checkpoint import read_checkpoint
from rose.checks.scorer import Role, Vectors, similarities
from rose.config import ModelInfo
from rose.errors import ConfigError


class Reference(Protocol):
    """What another implementation gives."""

    name: str
    """Such as `sentence-transformers 6.2.0`."""

    def vectors(self, texts: Sequence[str], role: Role = "") -> Vectors:
        """Embeddings [texts, dimensions] with the prompt that the directory has for the role."""

    def scores(self, query: str, documents: Sequence[str]) -> Vectors:
        """Calibrated scores [documents]."""


def load_reference(
    directory: Path, info: ModelInfo, answers: AnswerTokens | None = None
) -> Reference:
    """Loads the directory in float32 on CPU.

    Args:
        directory: Of the model.
        info: What the engine made of it.
        answers: Of a language model that is a reranker.

    Raises:
        ConfigError: the packages are not installed.
    """
    try:
        import sentence_transformers
    except ImportError as error:
        raise ConfigError(
            "a check needs sentence-transformers: pip install sentence-transformers"
        ) from error
    name = f"sentence-transformers {sentence_transformers.__version__}"
    if info.outputs.kinds == ("sparse",):
        return _SparseEmbedder(directory, info, name)
    if info.task == "embed":
        return _Embedder(directory, info, name)
    if info.templates.pair:
        return _Prompted(directory, info, answers)
    return _CrossEncoder(directory, info, name)


class _Embedder:
    def __init__(self, directory: Path, info: ModelInfo, name: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.name = name
        self._similarity = info.similarity
        self._model: Any = SentenceTransformer(str(directory), device="cpu")
        self._model.float()
        if info.tokenizer_json != read_checkpoint(directory).tokenizer_json:
            # Since version 5 transformers does not read add_eos_token, which the model asks for.
            from tokenizers import Tokenizer

            ended = Tokenizer.from_str(info.tokenizer_json.decode())
            self._model.tokenizer.backend_tokenizer.post_processor = ended.post_processor

    def vectors(self, texts: Sequence[str], role: Role = "") -> Vectors:
        encode = {
            "query": self._model.encode_query,
            "document": self._model.encode_document,
            "": self._model.encode,
        }[role]
        return np.asarray(encode(list(texts), show_progress_bar=False), np.float64)

    def scores(self, query: str, documents: Sequence[str]) -> Vectors:
        query_vector = self.vectors([query], "query")[0]
        return similarities(self._similarity, query_vector, self.vectors(documents, "document"))


class _SparseEmbedder(_Embedder):
    """Weights of the vocabulary as vectors."""

    def __init__(self, directory: Path, info: ModelInfo, name: str) -> None:
        from sentence_transformers import SparseEncoder

        self.name = name
        self._similarity = info.similarity
        self._model = SparseEncoder(str(directory), device="cpu")
        self._model.float()

    def vectors(self, texts: Sequence[str], role: Role = "") -> Vectors:
        encode = {
            "query": self._model.encode_query,
            "document": self._model.encode_document,
            "": self._model.encode,
        }[role]
        found = encode(list(texts), show_progress_bar=False, convert_to_sparse_tensor=False)
        return np.asarray(found, np.float64)


class _CrossEncoder:
    def __init__(self, directory: Path, info: ModelInfo, name: str) -> None:
        from sentence_transformers import CrossEncoder

        self.name = name
        self._info = info
        self._model: Any = CrossEncoder(
            str(directory), device="cpu", max_length=info.max_sequence_tokens
        )
        self._model.float()

    def vectors(self, texts: Sequence[str], role: Role = "") -> Vectors:
        raise NotImplementedError("a cross-encoder has no vectors")

    def scores(self, query: str, documents: Sequence[str]) -> Vectors:
        pairs = [(query, document) for document in documents]
        several = self._info.output_width > 1
        options = {"apply_softmax": True} if self._info.activation == "softmax" else {}
        found = np.asarray(
            self._model.predict(pairs, show_progress_bar=False, **options), np.float64
        )
        return found[:, self._info.positive_label] if several else found


class _Prompted:
    """A model that reads a prompt: the prompt as text, tokenized and run by transformers alone."""

    def __init__(self, directory: Path, info: ModelInfo, answers: AnswerTokens | None) -> None:
        import transformers

        self.name = f"transformers {transformers.__version__}"
        self._info = info
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(directory)
        self._answers = answers
        kind = (
            transformers.AutoModelForCausalLM
            if answers is not None
            else transformers.AutoModelForSequenceClassification
        )
        self._model: Any = kind.from_pretrained(directory, dtype=torch.float32).eval()

    def vectors(self, texts: Sequence[str], role: Role = "") -> Vectors:
        raise NotImplementedError("a cross-encoder has no vectors")

    def scores(self, query: str, documents: Sequence[str]) -> Vectors:
        return np.array([self._score(query, document) for document in documents])

    @torch.inference_mode()
    def _score(self, query: str, document: str) -> float:
        logits = self._model(torch.tensor([self._ids(query, document)])).logits
        info = self._info
        if self._answers is not None:
            last = logits[0, -1].double()
            row = last[[self._answers.yes]]
            if self._answers.no is not None:
                row = row - last[self._answers.no]
        else:
            row = logits[0].double()
        if info.activation == "softmax":
            row = torch.softmax(row, 0)
        elif info.activation == "sigmoid":
            row = torch.sigmoid(row)
        return float(row[info.positive_label])

    def _ids(self, query: str, document: str) -> list[int]:
        """The prompt as one text, cut at marks `{split}`; too long, only the document is cut."""
        template = self._info.templates
        before, after = template.pair.split("{document}")
        before = _optional_part(before, there=bool(template.default_instruction))
        *heads, before = (
            text.replace("{instruction}", template.default_instruction).replace("{query}", query)
            for text in before.split("{split}")
        )
        after, *tails = after.split("{split}")
        start, end = self._around() if not self._is_complete(template.pair) else ([], [])
        head = start + [token for text in heads for token in self._plain(text)]
        tail = [token for text in tails for token in self._plain(text)] + end
        room = self._info.max_sequence_tokens - len(head) - len(tail)
        body = self._plain(before + document + after)
        if len(body) > room:
            suffix = self._plain(after)
            body = self._plain(before + document)[: room - len(suffix)] + suffix
        return head + body + tail

    def _is_complete(self, prompt: str) -> bool:
        """A prompt that begins with a special token is all of the sequence."""
        return prompt.startswith(tuple(self._tokenizer.all_special_tokens))

    def _around(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text."""
        bare = self._plain("a")
        whole: list[int] = self._tokenizer.encode("a")
        at = next(at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
        return whole[:at], whole[at + len(bare) :]

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def _optional_part(text: str, *, there: bool) -> str:
    begin, mark, rest = text.partition("{if instruction}")
    if not mark:
        return text
    part, _, rest = rest.partition("{end}")
    return begin + (part if there else "") + rest
