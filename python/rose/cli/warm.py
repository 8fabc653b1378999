"""`rose warm`: compiles ahead what a server would compile."""

from __future__ import annotations

from dataclasses import fields

from rose.cli.engine_option import (
    Attention,
    Deterministic,
    Device,
    DType,
    GraphMaxTokens,
    MaxBatchSequences,
    MaxBatchTokens,
    MaxLength,
    Model,
    Output,
    Pooling,
    Revision,
    Task,
)
from rose.cli.failure import EXIT_REFUSED, UsageError, fail
from rose.cli.option import option_names, with_option_name
from rose.cli.terminal import one_line
from rose.config import EngineConfig
from rose.errors import KernelBuildError, RoseError

_OPTION_OF_FIELD = option_names(
    {field.name for field in fields(EngineConfig)}, {"outputs": "output"}
)
_ENGINE = EngineConfig()


def warm(
    model: Model,
    revision: Revision = None,
    device: Device = _ENGINE.device,
    dtype: DType = _ENGINE.dtype,
    attention: Attention = _ENGINE.attention,
    task: Task = _ENGINE.task,
    pooling: Pooling = None,
    max_length: MaxLength = None,
    max_batch_tokens: MaxBatchTokens = _ENGINE.max_batch_tokens,
    max_batch_sequences: MaxBatchSequences = _ENGINE.max_batch_sequences,
    output: Output = None,
    deterministic: Deterministic = _ENGINE.deterministic,
    graph_max_tokens: GraphMaxTokens = _ENGINE.graph_max_tokens,
) -> int:
    """Builds a model's GPU kernels ahead, so that a server here starts without a compiler.

    Takes the environment of the `rose serve` to come, and its options as far as kernels depend on
    them. The status is 0 when nothing
    is left to compile, 1 when a kernel cannot be built.
    """
    try:
        config = EngineConfig(
            revision=revision,
            device=device,
            dtype=dtype,  # type: ignore[arg-type]  # checked by the config
            attention=attention,  # type: ignore[arg-type]
            task=task,  # type: ignore[arg-type]
            pooling=pooling,  # type: ignore[arg-type]
            max_length=max_length,
            max_batch_tokens=max_batch_tokens,
            max_batch_sequences=max_batch_sequences,
            outputs=tuple(output or ()),  # type: ignore[arg-type]
            deterministic=deterministic,
            graph_max_tokens=graph_max_tokens,
        )
        # Imported here: torch takes seconds, a wrong option must not wait for it.
        from rose.engine.warm import warm as warm_model

        warm_model(model, config, lambda line: print(one_line(line), flush=True))
    except KernelBuildError as error:
        return fail(str(error), EXIT_REFUSED)
    except RoseError as error:
        raise UsageError(with_option_name(str(error), _OPTION_OF_FIELD)) from error
    return 0
