"""The clock of a fit, which starts with ``fit`` and is checked in passes over data.

This is the only place that knows how much time is left. ``fit`` starts a clock, and its
computations run ``within`` it: :func:`~mklearn.data.threads.run_blocks` checks the time
between blocks, so that no pass exceeds the limit by much more than a block. The loop of
the solvers gets the remaining time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_END: ContextVar[float | None] = ContextVar("end of the time limit", default=None)
_GRACE, _GRACE_SHARE = 0.5, 0.1  # seconds, and share of the limit, for ``preparing``


class OutOfTimeError(TimeoutError):
    """The time limit ended within a pass.

    The loop of the solvers handles it by returning the best point so far. If there is
    none yet, because kernels or features are still being computed, ``fit`` raises it.
    """

    def __init__(self) -> None:
        super().__init__(
            "time_limit was reached before all kernels or features were computed and "
            "checked, so there is no result; raise it, or give fewer samples "
            "or kernels."
        )


@dataclass(frozen=True)
class Clock:
    """The time at which a fit must end.

    Parameters
    ----------
    end : float or None
        In terms of ``time.perf_counter``; None for no limit.
    grace : float
        Seconds by which ``preparing`` may exceed the limit.
    """

    end: float | None = None
    grace: float = 0.0

    @classmethod
    def start(cls, limit: float | None) -> Clock:
        """Return a clock that ends ``limit`` seconds from now."""
        if limit is None:
            return cls()
        return cls(time.perf_counter() + limit, max(_GRACE, _GRACE_SHARE * limit))

    def left(self) -> float | None:
        """Return the remaining seconds, at least zero; None for no limit."""
        return None if self.end is None else max(0.0, self.end - time.perf_counter())

    @contextmanager
    def within(self) -> Iterator[None]:
        """Make passes raise an error once this time, or an outer one, is over."""
        with _ending_at(self.end):
            yield

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Like ``within``, but with a grace period, for preparations of any result.

        This way a small problem with a very short limit has a result on any machine,
        namely the starting point of the solver.
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
    """Raise OutOfTimeError if the time limit of this thread is over."""
    end = _END.get()
    if end is not None and time.perf_counter() > end:
        raise OutOfTimeError
