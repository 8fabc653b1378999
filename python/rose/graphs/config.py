"""Options of graphs, and the shapes to which batches are padded for them."""

from __future__ import annotations

from dataclasses import dataclass

from rose.errors import ConfigError

# A graph serves every batch that fits its padded shape, so steps trade padding for graphs: 64 rows
# are a GEMM tile of work at most, and beyond 4,096 tokens 256 rows are below 6 %.
_FINE_STEP, _FINE_UP_TO, _COARSE_STEP = 64, 4096, 256
# Each empty slot costs a few blocks of attention and a row of pooling; few tiers, few graphs.
_TIER_FACTOR, _SMALLEST_TIER = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphConfig:
    """When a step is captured.

    Raises:
        ConfigError: an option has a value that cannot be used.
    """

    max_tokens: int = 28672
    """Larger batches run eagerly and without padding; the launches hide behind the work there."""
    max_graphs: int = 512
    """Shapes seen when this many graphs exist run eagerly. Single graphs are never evicted: they
    share one memory pool and one cuBLAS workspace."""
    capture_after: int = 1
    """Eager steps of a shape before it is captured."""

    def __post_init__(self) -> None:
        for name, lowest in (("max_tokens", 0), ("max_graphs", 0), ("capture_after", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise ConfigError(f"{name} must be an integer of at least {lowest}, got {value!r}")


def token_buckets(max_tokens: int) -> tuple[int, ...]:
    """Token counts to which batches of up to `max_tokens` are padded, ascending."""
    fine = range(_FINE_STEP, min(max_tokens, _FINE_UP_TO) + 1, _FINE_STEP)
    coarse = range(_FINE_UP_TO + _COARSE_STEP, max_tokens + 1, _COARSE_STEP)
    return (*fine, *coarse)


def sequence_tiers(max_sequences: int) -> tuple[int, ...]:
    """Sequence slots to which batches are padded, ascending.

    The last holds `max_sequences` and the sequence made of padding rows.
    """
    most = max_sequences + 1
    tiers = []
    tier = _SMALLEST_TIER
    while tier < most:
        tiers.append(tier)
        tier *= _TIER_FACTOR
    return (*tiers, most)
