"""`rose embed`: a file of texts to vectors, many requests in flight, in bounded memory."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rose.choices import DTypeName, InputTypeName
from rose.cli.address import DEFAULT_ADDRESS, Address
from rose.cli.failure import EXIT_REFUSED, warn
from rose.cli.texts import Text, TextFormat, open_source, read_texts

if TYPE_CHECKING:
    import numpy.typing as npt
    from tqdm import tqdm

    from rose.client import Client, EmbedRequest, EmbedResult, StreamOutcome

# From so many lines on a bar is worth its place on the screen.
MANY_LINES = 1_000
# Failures told one by one before the rest is only counted.
MAX_WARNINGS = 10


def embed(
    file: Annotated[
        str,
        typer.Argument(
            help="One text a line: plain text, or JSONL of strings or of objects with `text` and "
            "`id`. `-` is stdin.",
            metavar="FILE",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A name ending in .npy (one array) or .jsonl; `-` is JSON lines on stdout.",
            metavar="FILE",
        ),
    ] = "-",
    address: Address = DEFAULT_ADDRESS,
    input_type: Annotated[
        InputTypeName | None, typer.Option(help="Takes the model's prompt for it.")
    ] = None,
    prompt_name: Annotated[str, typer.Option(help="One of the model's named prompts.")] = "",
    dimensions: Annotated[
        int, typer.Option(help="Keep the first N of a matryoshka model; 0 is all.", min=0)
    ] = 0,
    dtype: Annotated[DTypeName, typer.Option(help="Type of the numbers.")] = "float32",
    text_format: Annotated[TextFormat, typer.Option("--format", help="How FILE is read.")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Texts of one request.", min=1)] = 64,
    in_flight: Annotated[int, typer.Option(help="Requests in flight.", min=1)] = 16,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="Show a bar on stderr; as a rule when that is a terminal and FILE is long.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Name of the model; empty is the one served.")] = "",
    timeout: Annotated[
        float, typer.Option(help="Seconds for the whole file.", metavar="SECONDS", min=0.001)
    ] = 86_400.0,
) -> int:
    """Embeds each line of a file."""
    from rose.cli.vectors import open_writer
    from rose.client import Client, EmbedRequest

    waiting: dict[int, tuple[list[Text], EmbedRequest]] = {}

    def requests(texts: Iterator[Text]) -> Iterator[EmbedRequest]:
        for number, batch in enumerate(_batches(texts, batch_size)):
            request = EmbedRequest(
                [text.text for text in batch],
                input_type=input_type,
                prompt_name=prompt_name,
                dimensions=dimensions,
                dtype=dtype,
                # A model may give sparse vectors unasked, which no array holds.
                outputs=("dense",),
                priority="bulk",
                model=model,
            )
            waiting[number] = (batch, request)
            yield request

    deadline = time.monotonic() + timeout
    failed = 0
    with (
        open_source(file) as source,
        _bar(file, progress) as bar,
        Client(address) as client,
        open_writer(output) as writer,
    ):
        outcomes = client.embed_stream(
            requests(read_texts(source, file, text_format)),
            max_in_flight=in_flight,
            ordered=True,
            timeout=timeout,
        )
        with closing(outcomes):
            for outcome in outcomes:
                batch, request = waiting.pop(outcome.index)
                result = _result(client, outcome, request, deadline)
                for text, (row, error) in zip(batch, _rows(result), strict=True):
                    writer.write(text, row, error)
                    if error is not None:
                        failed += 1
                        if failed <= MAX_WARNINGS:
                            bar.clear()
                            warn(f"{file}: line {text.line}: not embedded: {error}")
                bar.update(len(batch))
    if failed:
        warn(f"{failed} of the texts of {file} not embedded")
    return EXIT_REFUSED if failed else 0


def _batches(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    texts = iter(texts)
    while batch := list(islice(texts, size)):
        yield batch


def _result(
    client: Client, outcome: StreamOutcome[EmbedResult], request: EmbedRequest, deadline: float
) -> EmbedResult:
    """The answer; a full queue is waited out, since a file is in no hurry.

    Raises:
        CallError: Any other failure, or the queue is full until the deadline.
    """
    from rose.client import ResourceExhausted

    while isinstance(outcome.error, ResourceExhausted):
        pause = outcome.error.retry_after or 0.5
        if time.monotonic() + pause >= deadline:
            break
        time.sleep(pause)
        remaining = max(0.001, deadline - time.monotonic())
        (outcome,) = client.embed_stream([request], timeout=remaining)
    return outcome.unwrap()


def _rows(result: EmbedResult) -> Iterator[tuple[npt.NDArray[Any] | None, str | None]]:
    errors = {error.index: error.message for error in result.item_errors}
    for index, row in enumerate(result.embeddings):
        yield (None, errors[index]) if index in errors else (row, None)


def _bar(file: str, wanted: bool | None) -> tqdm[Any]:
    from tqdm import tqdm

    total = _count_lines(file)
    if wanted is None:
        wanted = sys.stderr.isatty() and (total is None or total >= MANY_LINES)
    columns, lines = shutil.get_terminal_size((80, 24))
    return tqdm(
        total=total,
        unit=" texts",
        unit_scale=True,
        file=sys.stderr,
        # tqdm's own look at a terminal that does not know its size finds no room for a bar.
        ncols=columns,
        nrows=lines,
        disable=not wanted,
    )


def _count_lines(file: str) -> int | None:
    """Lines of a regular file; None for stdin and for what can be read only once."""
    from pathlib import Path

    path = Path(file)
    if file == "-" or not path.is_file():
        return None
    lines, last = 0, b"\n"
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")
