"""Options that say how a model is loaded and run, for the commands that prepare or serve one."""

from __future__ import annotations

from typing import Annotated

import typer

from rose.cli.option import options_of

# `rose warm` reads the server's variables: it prepares what the server of this environment needs.
_option = options_of("serve")

Model = Annotated[
    str,
    typer.Argument(
        help="A model directory, a model hub id, or `demo`.",
        envvar="ROSE_SERVE_MODEL",
        metavar="MODEL",
    ),
]
Revision = Annotated[str | None, _option("Branch, tag or commit on the model hub.", "REVISION")]
Device = Annotated[str, _option("auto, cpu, cuda or cuda:N.", "DEVICE", metavar="DEVICE")]
DType = Annotated[
    str,
    _option(
        "auto, float32, bfloat16 or float16; auto is float32 on CPU, bfloat16 on CUDA.",
        "DTYPE",
        metavar="DTYPE",
    ),
]
Attention = Annotated[
    str,
    _option(
        "auto, sdpa, short, flash_attn, flashinfer, fa3_fwd or flash_attn_4.",
        "ATTENTION",
        metavar="NAME",
    ),
]
Task = Annotated[
    str,
    _option(
        "auto, embed or score; score serves a language model as a yes-or-no reranker.",
        "TASK",
        metavar="TASK",
    ),
]
Pooling = Annotated[
    str | None,
    _option("Replaces the pooling of the model directory.", "POOLING", metavar="MODE"),
]
MaxLength = Annotated[
    int | None,
    _option(
        "Longest sequence in tokens; at most what the model can.", "MAX_LENGTH", metavar="TOKENS"
    ),
]
MaxBatchTokens = Annotated[
    int,
    _option(
        "Most tokens of one step; on CUDA 1.75 times as many for the rest of an interactive request.",
        "MAX_BATCH_TOKENS",
    ),
]
MaxBatchSequences = Annotated[int, _option("Most sequences of one step.", "MAX_BATCH_SEQUENCES")]
Output = Annotated[
    list[str] | None,
    _option(
        "A form of vectors: dense, sparse or tokens; repeatable, the first is the default.",
        "OUTPUT",
        metavar="KIND",
    ),
]
Deterministic = Annotated[
    bool,
    _option(
        "Same bits whatever else is computed beside it; costs throughput.",
        "DETERMINISTIC",
        "--deterministic",
    ),
]
GraphMaxTokens = Annotated[
    int,
    _option("Steps of up to this many tokens become CUDA graphs; 0 for none.", "GRAPH_MAX_TOKENS"),
]
