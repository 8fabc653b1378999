"""Batch invariance: whether a row's bits may depend on the rows beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Of the running step, not of the process: two engines may differ.
_invariant: ContextVar[bool] = ContextVar("batch_invariant", default=False)


def is_batch_invariant() -> bool:
    """Whether every row must get the same bits in any company.

    Operations whose order of additions goes by the size of the batch then take a fixed order.
    """
    return _invariant.get()


@contextmanager
def batch_invariant(enabled: bool = True) -> Iterator[None]:
    """Makes the operations inside batch-invariant, on this thread; a captured step stays so."""
    token = _invariant.set(enabled)
    try:
        yield
    finally:
        _invariant.reset(token)
