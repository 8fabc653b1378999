"""When a call is tried again: UNAVAILABLE only, within the deadline."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rose.client.errors import CallError, Unavailable


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter.

    Attributes:
        max_attempts: Tries in all; 1 turns retries off.
        initial_backoff: Ceiling of the first pause, in seconds.
        max_backoff: Ceiling of any pause, in seconds.
        multiplier: Growth of the ceiling from pause to pause.
    """

    max_attempts: int = 4
    initial_backoff: float = 0.05
    max_backoff: float = 2.0
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts: must be at least 1, is {self.max_attempts}")
        for name in ("initial_backoff", "max_backoff"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: must not be negative, is {getattr(self, name)}")
        if self.multiplier < 1:
            raise ValueError(f"multiplier: must be at least 1, is {self.multiplier}")

    def pause(self, attempt: int, error: CallError, remaining: float) -> float | None:
        """Seconds to wait before the next try, or None when there is to be none.

        Args:
            attempt: Tries so far, from 1.
            error: What the last try failed with.
            remaining: Seconds until the deadline.
        """
        if not isinstance(error, Unavailable) or attempt >= self.max_attempts:
            return None
        ceiling = min(self.max_backoff, self.initial_backoff * self.multiplier ** (attempt - 1))
        # Never sooner than the server asked for; the jitter keeps clients from coming back at once.
        pause = (error.retry_after or 0.0) + random.uniform(0.0, ceiling)
        return pause if pause < remaining else None
