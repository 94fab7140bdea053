"""Base classes of problems: iterates, and the bounds that they prove."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Kind = Literal["kernels", "classes", "features", "joint", "evidence", "targets"]

# Sums and products of floating-point numbers err by at most this, relatively, for each
# operation that a term goes through.
UNIT = float(np.finfo(np.float64).eps) / 2

# A bound that is made of few operations: more than there are in any formula here.
FEW = 64 * UNIT


_ANSWERS: dict[tuple[type, type], bool] = {}


class Asked(type(Protocol)):  # type: ignore[misc]
    """Protocols that are asked of the same few classes again and again.

    All instances of a class have the same methods, so that one look is enough.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        """Tell whether the class of an instance has what a protocol asks for."""
        key = cls, type(instance)
        found = _ANSWERS.get(key)
        if found is None:
            found = bool(super().__instancecheck__(instance))
            if not isinstance(instance, type):
                _ANSWERS[key] = found
        return found


@dataclass(frozen=True)
class Iterate:
    """A point that a solver proposes.

    Attributes
    ----------
    theta : array
        Kernel weights.
    A : array
        Dual variables, as the problem has them.
    scores, quads : arrays, optional
        ``K_theta A`` and ``<A, K[m] A>``, if the solver has computed them; a problem
        uses them during the iterations, but recomputes them for the certificate.
    dual : array, optional
        Another feasible point, which may give a better lower bound.
    complete : bool
        False is a sign of life from within a long step: such a point is judged only if
        the run must stop there.
    about : object, optional
        What else belongs to the point, where the problem has more than weights and
        dual variables: a subspace, what a pass over the rows found.
    slack : float, optional
        How much a method whose bounds need not meet expects to gain yet; a run stops
        where that is below its tolerance, and claims no more than that.
    """

    theta: FloatArray
    A: FloatArray
    scores: FloatArray | None = None
    quads: FloatArray | None = None
    dual: FloatArray | None = None
    complete: bool = True
    about: Any = None
    slack: float | None = None

    def alive(self) -> Iterate:
        """Return the point as a sign of life."""
        return replace(self, complete=False)


@dataclass(frozen=True)
class Judgement:
    """Bounds on the optimum that one iterate proves.

    ``lower`` is minus infinity where nothing bounds the optimum from below. Rounding is
    left to the certificate.
    """

    upper: float
    lower: float
    bias: FloatArray = field(repr=False)

    @property
    def gap(self) -> float:
        """Relative duality gap."""
        return relative_gap(self.upper, self.lower)


@dataclass(frozen=True)
class Certificate(Judgement):
    """Bounds computed afresh, and the points behind them.

    The bounds are rounded outward: whatever rounding did to the sums that they are made
    of, the objective of the point is at most ``upper`` and the optimum at least
    ``lower``. Kernel values count as exact, as they are stored or computed.

    Attributes
    ----------
    theta, A : arrays
        The point behind ``upper``.
    dual : array
        The feasible point behind ``lower``.
    weight_bounds : array of the shape of theta
        Upper bounds on all optimal weights.
    about : object
        What else belongs to the point.
    claim, doubt : str
        What is so if the bounds meet, and if they do not, in words; empty where the
        words of any certificate do.
    error : float
        The part of ``upper - lower`` that accounts for rounding.
    """

    theta: FloatArray
    A: FloatArray = field(repr=False)
    dual: FloatArray = field(repr=False)
    weight_bounds: FloatArray = field(repr=False)
    about: Any = field(default=None, repr=False)
    claim: str = field(default="", repr=False)
    doubt: str = field(default="", repr=False)
    error: float = field(default=0.0, repr=False)

    @property
    def rounding(self) -> float:
        """The part of the relative gap that is due to rounding."""
        return relative_error(self.error, self.upper, self.lower)

    @property
    def crossed(self) -> bool:
        """Whether the lower bound is above the upper one, by more than rounding.

        Then a kernel is not positive semidefinite, or a solver is at fault.
        """
        return self.lower > self.upper


class Judge(Protocol):
    """What the loop asks of a problem."""

    @property
    def kind(self) -> Kind:
        """What it is made of, which decides what solvers there are."""

    def first(self) -> Iterate:
        """Return a point that is known without any work."""

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds that a point proves, if what it claims is so."""

    def dual(self, A: Any) -> float:
        """Return the lower bound that a dual point proves."""

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, computed without anything they claim."""


def relative_gap(upper: float, lower: float) -> float:
    """Return ``|upper - lower| / max(|upper|, |lower|, tiny)``, rounded up.

    Bounds that cross by more than rounding prove nothing (a kernel is not positive
    semidefinite, or a solver claims what is not so), and count as a gap; bounds
    that are not finite make it infinite.
    """
    if not (np.isfinite(upper) and np.isfinite(lower)):
        return np.inf
    size = max(abs(upper), abs(lower), np.finfo(float).tiny)
    return abs(upper - lower) / size * (1.0 + 4 * UNIT)


def relative_error(error: float, upper: float, lower: float) -> float:
    """Return what ``error`` adds to the relative gap of two bounds."""
    size = max(abs(upper), abs(lower), np.finfo(float).tiny)
    return error / size if np.isfinite(size) else 0.0


def pairwise(n: int) -> float:
    """Return the relative error of numpy's sum of n positive terms that lie together.

    numpy adds blocks of 128 in eight sums, and then pairs: a term goes through no more
    than ``12 + log2(n)`` additions. The rest is for what was done to the terms before.
    """
    return (32.0 + float(np.log2(max(n, 1)))) * UNIT


def column_sums(A: FloatArray) -> FloatArray:
    """Return the sums of the columns, added in pairs, shape (T,)."""
    return np.asarray(np.ascontiguousarray(A.T).sum(axis=1))


def entries_sum(terms: FloatArray) -> float:
    """Return the sum of all entries, added in pairs."""
    return float(np.sum(np.ascontiguousarray(terms).ravel()))


def shares(parts: FloatArray) -> FloatArray:
    """Return parts (..., M) of a whole as shares of it; equal ones if all are zero."""
    parts = np.maximum(parts, 0.0)
    total = parts.sum(axis=-1, keepdims=True)
    even = np.full_like(parts, 1.0 / parts.shape[-1])
    return np.asarray(np.divide(parts, total, out=even, where=total > 0))


def per_cost(a: FloatArray, C: FloatArray, otherwise: float = 0.0) -> FloatArray:
    """Return ``a / C`` where C is positive."""
    return np.where(C > 0, a / np.where(C > 0, C, 1.0), otherwise)
