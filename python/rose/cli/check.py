"""`rose check`: a model here and in the library that it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rose.cli.failure import EXIT_REFUSED, UsageError
from rose.cli.terminal import json_line
from rose.config import EngineConfig
from rose.errors import ConfigError

if TYPE_CHECKING:
    from rose.checks.comparison import Comparison

_ENGINE = EngineConfig()


def check(
    model: Annotated[
        str, typer.Argument(help="As for `rose serve`.", metavar="MODEL", show_default=False)
    ],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = _ENGINE.device,
    dtype: Annotated[str, typer.Option(help="As for `rose serve`.")] = _ENGINE.dtype,
    task: Annotated[str, typer.Option(help="As for `rose serve`.")] = _ENGINE.task,
    template: Annotated[str, typer.Option(help="As for `rose serve`.")] = _ENGINE.template,
    pooling: Annotated[str | None, typer.Option(help="As for `rose serve`.")] = None,
    max_length: Annotated[int | None, typer.Option(help="As for `rose serve`.")] = None,
    revision: Annotated[str | None, typer.Option(help="As for `rose serve`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a plot of our scores over the reference's (PNG, SVG)."),
    ] = None,
    write_golden: Annotated[
        bool,
        typer.Option(
            "--write-golden",
            help="Keep the reference's scores in the model directory, for the check at start.",
        ),
    ] = False,
) -> int:
    """Compares a model with sentence-transformers or transformers on a small varied set.

    The status is 1 when something differs by more than rounding. Needs sentence-transformers.
    """
    from rose.checkpoint.answers import find_answer_tokens
    from rose.checkpoint.checkpoint import read_checkpoint
    from rose.checks.comparison import compare, make_golden
    from rose.checks.golden import GOLDEN_FILE
    from rose.checks.reference import load_reference
    from rose.checks.scorer import Scorer
    from rose.engine.engine import Engine

    try:
        config = EngineConfig(
            device=device,
            dtype=dtype,  # type: ignore[arg-type]  # checked by the config
            task=task,  # type: ignore[arg-type]
            template=template,
            pooling=pooling,  # type: ignore[arg-type]
            max_length=max_length,
            revision=revision,
            graph_max_tokens=0,
        )
    except ConfigError as error:
        raise UsageError(str(error)) from None
    engine = Engine.load(model, config)
    assert engine.directory is not None
    scorer = Scorer(engine)
    answers = find_answer_tokens(read_checkpoint(engine.directory), engine.info.name, config)
    reference = load_reference(engine.directory, engine.info, answers)
    comparison = compare(scorer, reference)
    if as_json:
        print(json_line(_as_object(comparison, scorer)))
    else:
        for line in _table(comparison, scorer):
            print(line)
    if plot is not None:
        _plot(comparison, scorer, plot)
    if write_golden:
        path = engine.directory / GOLDEN_FILE
        make_golden(reference, embeds=engine.info.task == "embed").write(path)
        print(f"wrote {path}")
    return 0 if comparison.passed else EXIT_REFUSED


def _table(comparison: Comparison, scorer: Any) -> list[str]:  # noqa: ANN401
    info = scorer.info
    lines = [
        f"{info.name} ({info.architecture}, {info.task}, {info.dtype} on {info.device}) "
        f"against {comparison.reference}",
        f"{'':<24} {'count':>5}  {'max diff':>9}  {'cosine':>9}  {'rank corr':>9}  verdict",
    ]
    for measure in comparison.measures:
        cosine = "" if measure.lowest_cosine is None else f"{measure.lowest_cosine:.6f}"
        rank = "" if measure.rank_correlation is None else f"{measure.rank_correlation:.4f}"
        verdict = "ok" if measure.passed else "DIFFERS"
        note = f" ({measure.note})" if measure.note else ""
        lines.append(
            f"{measure.name:<24} {measure.count:>5}  {measure.max_difference:>9.2e}  "
            f"{cosine:>9}  {rank:>9}  {verdict}{note}"
        )
    lines.append(f"verdict: {'ok' if comparison.passed else 'DIFFERS'}")
    return lines


def _as_object(comparison: Comparison, scorer: Any) -> dict[str, Any]:  # noqa: ANN401
    from dataclasses import asdict

    return {
        "model": scorer.info.name,
        "dtype": scorer.info.dtype,
        "fingerprint": scorer.info.fingerprint,
        "reference": comparison.reference,
        "passed": comparison.passed,
        "measures": [asdict(measure) for measure in comparison.measures],
    }


def _plot(comparison: Comparison, scorer: Any, path: Path) -> None:  # noqa: ANN401
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(5, 5))
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, linewidth=0.5, color="grey")
    axes.scatter(comparison.theirs, comparison.ours, s=12)
    axes.set_xlabel(comparison.reference)
    axes.set_ylabel(f"rose, {scorer.info.dtype}")
    axes.set_title(scorer.info.name)
    figure.tight_layout()
    figure.savefig(path)
