"""Iterates that solvers yield, and the solution that a run returns."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mklearn.data.spelling import plural
from mklearn.problems.base import (
    Asked,
    Iterate,
    Judge,
    Judgement,
    relative_error,
    relative_gap,
)
from mklearn.problems.weights import LpBall

FloatArray = NDArray[np.float64]


Iterates = Generator[Iterate, Judgement | None, None]
# None hands over control before there is any point. A method that ends may return a
# status; otherwise it cannot improve further.
Steps = Generator[Iterate | None, Judgement | None, "Status | None"]


@dataclass(frozen=True)
class Need:
    """A requirement of a solver, and the error message if it is not met.

    Parameters
    ----------
    otherwise : str
        The requirement and which solver to use instead; ``{loss}`` and ``{weights}``
        are replaced by those of the problem.
    loss, weights : type
        Classes or protocols, such as :class:`~mklearn.problems.protocols.BoxLoss` and
        :class:`~mklearn.problems.weights.ConvexSet`.
    holds : callable, optional
        A further condition on the problem.
    """

    otherwise: str
    loss: Any = object
    weights: Any = object
    holds: Callable[[Any], bool] | None = None

    def met(self, problem: Any) -> bool:
        """Return whether a problem meets the requirement."""
        return (
            (self.loss is object or isinstance(problem.loss, self.loss))
            and (self.weights is object or isinstance(problem.weights, self.weights))
            and (self.holds is None or self.holds(problem))
        )

    def message(self, problem: Any) -> str:
        """Return the message, with what is required and what was given."""
        words = self.otherwise
        if "{loss}" in words:
            words = words.replace("{loss}", type(problem.loss).__name__)
        if "{weights}" in words:
            weights = problem.weights
            ball = isinstance(weights, LpBall)  # show its p
            called = repr(weights) if ball else type(weights).__name__
            words = words.replace("{weights}", called)
        return words


@runtime_checkable
class Solver(Protocol, metaclass=Asked):
    """An algorithm: its fields are settings, and it is a generator of iterates."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """Requirements on the problem; none by default."""
        return ()

    def iterates(
        self, problem: Any, start: Iterate | None
    ) -> Generator[Any, Judgement | None, Any]:
        """Yield iterates; each ``yield`` returns the problem's judgement."""


class Status(Enum):
    """Why a run ended, and what to try."""

    OPTIMAL = "the duality gap is below tol"
    MAX_ITER = "max_iter was reached; raise it, or accept the gap"
    TIME_LIMIT = "time_limit was reached; raise it, or accept the gap"
    INTERRUPTED = "interrupted; this is the best iterate so far"
    CALLBACK = "the callback asked to stop; this is the best iterate so far"
    STATIONARY = (
        "the objective no longer changes, and the bounds do not meet; this may be a "
        "local optimum"
    )
    STALLED = (
        "the solver cannot improve further; rounding limits the gap, try a larger tol "
        "or another solver"
    )
    ROUNDED = (
        "tol is below what rounding allows; raise it, or make costs and targets smaller"
    )


@dataclass
class History:
    """One entry for each iteration.

    ``upper``, ``lower`` and ``gap`` refer to the best points so far. ``values`` and
    ``bounds`` are those of each iterate, and need not be monotone. ``slack`` is the
    expected further gain (NaN if there are bounds).
    """

    upper: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    theta: list[FloatArray] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    slack: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.gap)


@dataclass(frozen=True)
class Solution:
    """The best iterate of a run and its certificate.

    Attributes
    ----------
    theta : array of shape (M,), or (T, M) with weights per class
        Kernel weights.
    A : array of shape (n, T)
        Signed dual variables; ``f(x) = sum_i A_i k_theta(x_i, x) + bias``. In feature
        space they have shape (D, T), ``f(x) = sum_m theta_m <z_m(x), A_m> + bias``.
    bias : array of shape (T,)
    dual : array of the shape of A
        The dual feasible point that gives ``lower``.
    upper, lower : float
        Bounds on the optimum, computed by the problem, not by the solver, and rounded
        outward. ``lower`` is minus infinity if no lower bound is known.
    status : Status
    n_iter : int
    time : float
        Run time in seconds.
    solver : str
    history : History
    weight_bounds : array of the shape of theta
        Upper bounds on all optimal weights.
    about : object
        Further results, such as a :class:`~mklearn.problems.subspace.Subspace` or
        a :class:`~mklearn.problems.Likelihood`; None for most problems.
    slack : float or None
        Expected further gain, for methods whose bounds need not meet.
    claim : str
        Statement about the solution, for problems with their own wording.
    error : float
        The part of ``upper - lower`` that is an allowance for rounding.
    quads : array of the shape of theta, or None
        ``<A, K[m] A>``, if the bounds were computed from them.
    """

    theta: FloatArray
    A: FloatArray
    bias: FloatArray
    dual: FloatArray = field(repr=False)
    upper: float
    lower: float
    status: Status
    n_iter: int
    time: float
    solver: str
    history: History = field(repr=False)
    weight_bounds: FloatArray = field(repr=False)
    about: Any = field(default=None, repr=False)
    slack: float | None = None
    claim: str = field(default="", repr=False)
    error: float = field(default=0.0, repr=False)
    quads: FloatArray | None = field(default=None, repr=False)

    @property
    def screened(self) -> int:
        """Number of kernels whose weight is provably zero at every optimum."""
        return int(np.sum(self.weight_bounds == 0))

    @property
    def gap(self) -> float:
        """Relative duality gap."""
        return relative_gap(self.upper, self.lower)

    @property
    def rounding(self) -> float:
        """The part of the relative gap that is due to rounding."""
        return relative_error(self.error, self.upper, self.lower)

    @property
    def crossed(self) -> bool:
        """Whether the bounds cross by more than rounding (an indefinite kernel)."""
        return self.lower > self.upper

    @property
    def message(self) -> str:
        """What is proved, or found, in words."""
        steps = plural(self.n_iter, "iteration")
        how = f"{self.solver}, {steps}: {self.status.value}"
        if self.claim:
            return f"{self.claim} ({how})."
        return (
            f"The optimal objective is at least {self.lower:.6g}; this model reaches "
            f"{self.upper:.6g}, so it is within {100 * self.gap:.2g} % of the optimum "
            f"({how})."
        )

    def iterate(self) -> Iterate:
        """Return the point, for example as a warm start."""
        return Iterate(self.theta, self.A, about=self.about)

    def check(self, problem: Judge) -> float:
        """Return the relative gap, recomputed from ``problem``."""
        below = Iterate(self.theta, self.dual, about=self.about)
        return problem.certify(self.iterate(), below).gap


__all__ = [
    "History",
    "Iterate",
    "Iterates",
    "Judgement",
    "Solution",
    "Solver",
    "Status",
    "Steps",
]
