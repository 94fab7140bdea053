"""The clock of a fit: it starts when ``fit`` does, and passes over data look at it.

This is the one place that knows how much time is left. ``fit`` starts a clock, and what
it computes runs ``within`` it: :func:`~mklearn.data.threads.run_blocks` asks between
two blocks whether time is over, so that no pass goes on for much longer than a block.
The loop of the solvers gets what is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_END: ContextVar[float | None] = ContextVar("end of the time limit", default=None)
_GRACE, _GRACE_SHARE = 0.5, 0.1  # a limit is kept to within a second or a tenth


class OutOfTimeError(TimeoutError):
    """The time limit ended within a pass.

    The loop of the solvers answers it with the best point so far. Before there is any,
    because kernels or features are still being computed, it is the error of ``fit``.
    """

    def __init__(self) -> None:
        super().__init__(
            "time_limit ended before all kernels or features were computed and looked "
            "at, so that there is nothing to return; raise it, or give fewer samples "
            "or kernels."
        )


@dataclass(frozen=True)
class Clock:
    """When the time of a fit ends; None for never.

    Parameters
    ----------
    end : float or None
        By ``time.perf_counter``.
    grace : float
        Seconds by which ``preparing`` may exceed the limit.
    """

    end: float | None = None
    grace: float = 0.0

    @classmethod
    def start(cls, limit: float | None) -> Clock:
        """Return a clock that runs for so many seconds from now."""
        if limit is None:
            return cls()
        return cls(time.perf_counter() + limit, max(_GRACE, _GRACE_SHARE * limit))

    def left(self) -> float | None:
        """Return the seconds that are left, not below zero; None for no limit."""
        return None if self.end is None else max(0.0, self.end - time.perf_counter())

    @contextmanager
    def within(self) -> Iterator[None]:
        """Let passes end once this time, or an outer one, is over, with an error."""
        with _ending_at(self.end):
            yield

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Like ``within``, but with a grace, for what any answer needs.

        A small problem with a limit of nearly nothing then has an answer, the first
        point of a solver, on machines of any speed.
        """
        with _ending_at(None if self.end is None else self.end + self.grace):
            yield


@contextmanager
def _ending_at(end: float | None) -> Iterator[None]:
    ends = [one for one in (end, _END.get()) if one is not None]
    token = _END.set(min(ends, default=None))
    try:
        yield
    finally:
        _END.reset(token)


def check_time() -> None:
    """Raise OutOfTimeError if the time of this thread's clock is over."""
    end = _END.get()
    if end is not None and time.perf_counter() > end:
        raise OutOfTimeError
