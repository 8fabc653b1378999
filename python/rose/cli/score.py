"""`rose score`: ranks documents for a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rose.cli.address import DEFAULT_ADDRESS, Address, Timeout
from rose.cli.failure import UsageError, warn
from rose.cli.table import ranking_table
from rose.cli.terminal import json_line
from rose.cli.texts import Text, TextFormat, open_source, read_texts

if TYPE_CHECKING:
    from rose.client import ScoreResult


def score(
    query: Annotated[str, typer.Option(help="What is looked for.", metavar="TEXT")],
    documents: Annotated[
        str,
        typer.Option(
            help="One document a line: plain text, or JSONL of strings or of objects with `text` "
            "and `id`. Blank lines are skipped. `-` is stdin.",
            metavar="FILE",
        ),
    ],
    address: Address = DEFAULT_ADDRESS,
    top_n: Annotated[int, typer.Option(help="Best documents to print; 0 is all.", min=0)] = 0,
    instruction: Annotated[str, typer.Option(help="For models that take one.")] = "",
    raw_scores: Annotated[
        bool, typer.Option("--raw-scores", help="The model's own numbers, not calibrated.")
    ] = False,
    text_format: Annotated[TextFormat, typer.Option("--format", help="How FILE is read.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    model: Annotated[str, typer.Option(help="Name of the model; empty is the one served.")] = "",
    timeout: Timeout = 30.0,
) -> None:
    """Ranks documents by what they have to do with a query."""
    with open_source(documents) as source:
        texts = [t for t in read_texts(source, documents, text_format) if t.text.strip()]
    if not texts:
        raise UsageError(f"{documents}: has no documents")

    from rose.client import Client

    with Client(address, timeout=timeout) as client:
        result = client.score(
            query,
            [text.text for text in texts],
            top_n=top_n,
            instruction=instruction,
            raw_scores=raw_scores,
            model=model,
        )
    if as_json:
        print(json_line(_as_json(result, texts)))
        return
    for line in ranking_table(
        (place.score, _name(texts[place.index], place.index), texts[place.index].text)
        for place in result.ranked()
    ):
        print(line)
    for error in result.item_errors:
        warn(f"{documents}: line {texts[error.index].line}: not scored: {error.message}")


def _name(text: Text, index: int) -> str:
    return str(index if text.id is None else text.id)


def _as_json(result: ScoreResult, texts: list[Text]) -> dict[str, Any]:
    from dataclasses import asdict

    def place(index: int, value: float) -> dict[str, Any]:
        text = texts[index]
        return {
            "index": index,
            **({} if text.id is None else {"id": text.id}),
            "score": value,
            "text": text.text,
        }

    return {
        "model": result.model,
        "fingerprint": result.fingerprint,
        "results": [place(p.index, p.score) for p in result.ranked()],
        "item_errors": [asdict(error) for error in result.item_errors],
        "truncations": [asdict(report) for report in result.truncations],
        "usage": asdict(result.usage),
        "timings": asdict(result.timings),
    }
