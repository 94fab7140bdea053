"""What solvers yield and what the driver returns."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.mkl import Judgement, Problem, relative_gap

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Iterate:
    """A point that a solver proposes.

    ``scores`` (``K_theta A``) and ``quads`` (``<A, K[m] A>``) are what the solver has
    at hand; the driver believes them on the way and computes them anew before it
    certifies. ``dual`` is another feasible point that may give a better lower bound.
    An iterate with ``complete=False`` is a sign of life from within a long step: it is
    judged only if the run must stop there.
    """

    theta: FloatArray
    A: FloatArray
    scores: FloatArray | None = None
    quads: FloatArray | None = None
    dual: FloatArray | None = None
    complete: bool = True


Iterates = Generator[Iterate, Judgement | None, None]


@dataclass(frozen=True)
class Need:
    """What a solver asks of a problem, and what it says where that is not so.

    Parameters
    ----------
    otherwise : str
        What is needed and which solver to use instead; ``{loss}`` and ``{weights}``
        stand for what was given.
    loss, weights : type
        Classes or protocols, such as :class:`~mklearn.problems.losses.BoxLoss` and
        :class:`~mklearn.problems.weights.ConvexSet`.
    holds : callable, optional
        What else must be true of the problem.
    """

    otherwise: str
    loss: Any = object
    weights: Any = object
    holds: Callable[[Problem], bool] | None = None

    def met(self, problem: Problem) -> bool:
        """Tell whether a problem has what is needed."""
        return (
            isinstance(problem.loss, self.loss)
            and isinstance(problem.weights, self.weights)
            and (self.holds is None or self.holds(problem))
        )


@runtime_checkable
class Solver(Protocol):
    """An algorithm: settings in its fields, iterates on demand, no judgement."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """What it asks of a problem; nothing by default."""
        return ()

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield iterates; each ``yield`` returns the driver's judgement of it."""


class Status(Enum):
    """Why a run ended, and what to try."""

    OPTIMAL = "the duality gap is below tol"
    MAX_ITER = "max_iter was reached; raise it, or accept the gap"
    TIME_LIMIT = "time_limit was reached; raise it, or accept the gap"
    INTERRUPTED = "interrupted; this is the best iterate so far"
    CALLBACK = "the callback asked to stop; this is the best iterate so far"
    STATIONARY = (
        "the objective no longer changes, and the bounds do not meet; nothing tells "
        "whether a better solution exists"
    )
    STALLED = (
        "the solver cannot improve further; rounding limits the gap, try a larger tol "
        "or another solver"
    )


@dataclass
class History:
    """One entry for each iteration."""

    upper: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    theta: list[FloatArray] = field(default_factory=list)
    time: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.gap)


@dataclass(frozen=True)
class Solution:
    """The best iterate of a run and what it proves.

    Attributes
    ----------
    theta : array of shape (M,), or (T, M) with weights per class
        Kernel weights.
    A : array of shape (n, T)
        Signed dual variables; ``f(x) = sum_i A_i k_theta(x_i, x) + bias``.
    bias : array of shape (T,)
    dual : array of shape (n, T)
        The feasible point behind ``lower``.
    upper, lower : float
        Bounds on the optimum, computed by the problem, not by the solver.
    status : Status
    n_iter : int
    time : float
        Seconds.
    history : History
    weight_bounds : array of the shape of theta
        What no optimal weights exceed, as the problem says.
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

    @property
    def screened(self) -> int:
        """Number of kernels that provably have no weight at any optimum."""
        return int(np.sum(self.weight_bounds == 0))

    @property
    def gap(self) -> float:
        """Relative duality gap."""
        return relative_gap(self.upper, self.lower)

    @property
    def message(self) -> str:
        """The certificate in words."""
        return (
            f"No kernel weights in the set and no decision function can have an "
            f"objective below {self.lower:.6g}; this model has {self.upper:.6g}, so it "
            f"is within {100 * self.gap:.2g} % of the best possible "
            f"({self.solver}, {self.n_iter} iterations: {self.status.value})."
        )

    def check(self, problem: Problem) -> float:
        """Return the relative gap computed afresh from ``problem``."""
        upper = problem.judge(self.theta, self.A).upper
        return relative_gap(upper, problem.dual(self.dual))
