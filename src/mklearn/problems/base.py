"""Base classes of problems: iterates, and the bounds that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Kind = Literal["kernels", "classes", "features", "joint", "evidence", "targets"]

# Unit roundoff: bound on the relative error of each floating-point operation that a
# term takes part in.
UNIT = float(np.finfo(np.float64).eps) / 2

# Bound for an expression of few operations: more than there are in any formula here.
FEW = 64 * UNIT
_TINY = float(np.finfo(np.float64).tiny)


_ANSWERS: dict[tuple[type, type], bool] = {}


class Asked(type(Protocol)):  # type: ignore[misc]
    """Metaclass of protocols whose ``isinstance`` checks are cached by class.

    All instances of a class have the same methods, so one check per class is enough.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        """Return whether the class of an instance implements the protocol."""
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
        False marks an intermediate point within a long step. Such a point is judged
        only if the run has to stop there.
    about : object, optional
        Further parts of the point, if the problem has more variables than weights and
        dual variables: a subspace, or the results of a pass over the rows.
    slack : float, optional
        For methods whose bounds need not meet, the improvement still expected. A run
        stops once this is below its tolerance, and claims no more than that.
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
        """Return the point marked as intermediate."""
        return replace(self, complete=False)


@dataclass(frozen=True)
class Judgement:
    """Bounds on the optimum that follow from one iterate.

    ``lower`` is minus infinity if no lower bound is known. Rounding errors are not
    included; the certificate accounts for them.
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
    """Bounds recomputed from scratch, and the points that attain them.

    The bounds are rounded outward: whatever the rounding errors in the sums, the
    objective at the point is at most ``upper`` and the optimum is at least ``lower``.
    Kernel values are taken as exact, as they are stored or computed.

    Attributes
    ----------
    theta, A : arrays
        The point whose objective is bounded by ``upper``.
    dual : array
        The dual feasible point that gives ``lower``.
    weight_bounds : array of the shape of theta
        Upper bounds on all optimal weights.
    about : object
        Further parts of the point.
    claim, doubt : str
        What the certificate means, in words, if the bounds meet and if they do not;
        empty if the general wording applies.
    error : float
        The part of ``upper - lower`` that is an allowance for rounding.
    quads : array of the shape of theta, or None
        ``<A, K[m] A>``, if the bounds were computed from them.
    """

    theta: FloatArray
    A: FloatArray = field(repr=False)
    dual: FloatArray = field(repr=False)
    weight_bounds: FloatArray = field(repr=False)
    about: Any = field(default=None, repr=False)
    claim: str = field(default="", repr=False)
    doubt: str = field(default="", repr=False)
    error: float = field(default=0.0, repr=False)
    quads: FloatArray | None = field(default=None, repr=False)

    @property
    def rounding(self) -> float:
        """The part of the relative gap that is due to rounding."""
        return relative_error(self.error, self.upper, self.lower)

    @property
    def crossed(self) -> bool:
        """Whether the lower bound exceeds the upper one by more than rounding.

        In that case a kernel is not positive semidefinite, or a solver is faulty.
        """
        return self.lower > self.upper


class Judge(Protocol):
    """The interface of a problem that the loop uses."""

    @property
    def kind(self) -> Kind:
        """Kind of problem, which determines the solvers that apply."""

    def first(self) -> Iterate:
        """Return a starting point that takes no computation."""

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds that follow from a point if its claims are true."""

    def dual(self, A: Any) -> float:
        """Return the lower bound given by a dual point."""

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, without relying on any of their claims."""


@runtime_checkable
class Precise(Protocol):
    """A problem whose certificate costs less if its rounding errors do not matter."""

    def certify_to(self, point: Iterate, dual: Iterate, tol: float) -> Certificate:
        """Return the certificate; rounding errors far below ``tol`` may remain.

        They are part of the gap, like all others.
        """


def relative_gap(upper: float, lower: float) -> float:
    """Return ``|upper - lower| / max(|upper|, |lower|, tiny)``, rounded up.

    Bounds that cross by more than rounding are not valid (a kernel is not positive
    semidefinite, or a claim of a solver is false), and their distance counts as a gap.
    If a bound is not finite, the gap is infinite.
    """
    if not (math.isfinite(upper) and math.isfinite(lower)):
        return math.inf
    size = max(abs(upper), abs(lower), _TINY)
    return abs(upper - lower) / size * (1.0 + 4 * UNIT)


def relative_error(error: float, upper: float, lower: float) -> float:
    """Return the contribution of ``error`` to the relative gap of two bounds."""
    size = max(abs(upper), abs(lower), _TINY)
    return error / size if math.isfinite(size) else 0.0


def pairwise(n: int) -> float:
    """Return a bound on the relative error of numpy's sum of n positive terms.

    Of contiguous terms numpy adds blocks of 128 in eight partial sums, and then adds in
    pairs: a term takes part in at most ``12 + log2(n)`` additions. The rest is an
    allowance for rounding errors in the terms themselves.
    """
    return (32.0 + float(np.log2(max(n, 1)))) * UNIT


def column_sums(A: FloatArray) -> FloatArray:
    """Return the sums of the columns by pairwise summation, shape (T,)."""
    return np.asarray(np.ascontiguousarray(A.T).sum(axis=1))


def entries_sum(terms: FloatArray) -> float:
    """Return the sum of all entries by pairwise summation."""
    return float(np.sum(np.ascontiguousarray(terms).ravel()))


def shares(parts: FloatArray) -> FloatArray:
    """Return parts (..., M) divided by their sum; equal shares if all are zero."""
    parts = np.maximum(parts, 0.0)
    total = parts.sum(axis=-1, keepdims=True)
    even = np.full_like(parts, 1.0 / parts.shape[-1])
    return np.asarray(np.divide(parts, total, out=even, where=total > 0))


def per_cost(a: FloatArray, C: FloatArray, otherwise: float = 0.0) -> FloatArray:
    """Return ``a / C`` where C is positive."""
    return np.where(C > 0, a / np.where(C > 0, C, 1.0), otherwise)
