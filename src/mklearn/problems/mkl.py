"""The multiple kernel learning problem: formula, values and certificate.

    min over theta in Theta   max over A   loss.dual(A) - ½ sum_m theta[m] <A, K[m] A>

For any feasible ``A`` the dual value ``loss.dual(A) - ½ support(q(A))`` bounds the
optimum from below; for any member ``theta`` and any ``A`` the primal value at
``w_m = theta_m Phi_m' A`` and the optimal bias bounds it from above.

Both bounds are rounded outward. By the Cauchy-Schwarz inequality, kernel values are
bounded by products of square roots of the diagonal, which together with A bound the
errors of the scores F and the quadratic forms q. The loss is then evaluated at the ends
of an interval, and ``support`` and the regulariser increase with q. If a point is
feasible up to rounding, :meth:`~mklearn.problems.protocols.Loss.strain` bounds its
distance to an exactly feasible one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from mklearn.data.spelling import plural
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.dense import DenseGrams, WeightedSum
from mklearn.problems.base import (
    FEW,
    UNIT,
    Certificate,
    Iterate,
    Judge,
    Judgement,
    Kind,
    relative_error,
    relative_gap,
    shares,
)
from mklearn.problems.coupled import CrammerSinger, OneClass
from mklearn.problems.losses import Hinge, Squared
from mklearn.problems.protocols import Loss
from mklearn.problems.weights import LpBall, WeightSet, excess, for_kernels

FloatArray = NDArray[np.float64]


class Problem(Judge, Protocol):
    """Interface of a problem that consists of kernels, a loss and a weight set.

    :class:`MKLProblem` has a single vector of weights, :class:`BilinearProblem` one for
    each class.
    """

    @property
    def bank(self) -> KernelBank:
        """The kernels."""

    @property
    def loss(self) -> Loss:
        """The loss, with its targets and costs."""

    @property
    def weights(self) -> WeightSet:
        """The feasible set of the weights."""

    @property
    def per_class(self) -> bool:
        """Whether each class has its own weights, of shape (k, M) instead of (M,)."""

    def center(self) -> FloatArray:
        """Return equal weights."""

    def step(self, theta: FloatArray, quads: FloatArray) -> FloatArray:
        """Return the optimal weights for the ``w`` defined by ``theta`` and A."""

    def dual(self, A: FloatArray, quads: FloatArray | None = None) -> float:
        """Return the lower bound given by a feasible ``A``."""

    @property
    def sizes(self) -> FloatArray:
        """Bounds on the values of the kernels, shape (n, M)."""

    def penalty(self, theta: FloatArray, quads: FloatArray) -> float:
        """Return an upper bound on the regulariser for q of at most ``quads``."""

    def lowest(self, A: FloatArray, quads: FloatArray) -> float:
        """Return a lower bound on ``dual`` of a feasible A with q at most ``quads``."""

    def products(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return the scores ``K_theta A``, shape (n, T)."""

    def quads(self, A: FloatArray) -> FloatArray:
        """Return the quadratic forms of the kernels that enter the bounds."""

    def weight_bounds(
        self,
        A: FloatArray,
        upper: float,
        quads: FloatArray | None = None,
        most: FloatArray | None = None,
    ) -> FloatArray:
        """Return upper bounds on all optimal weights; q is at most ``most``."""

    def take(self, rows: NDArray[np.intp], factor: float = 1.0) -> Problem:
        """Return the problem on some samples, their costs multiplied by ``factor``."""


@dataclass(frozen=True)
class MKLProblem:
    """Bank of kernels x loss x weight set.

    Parameters
    ----------
    bank : KernelBank
        A square, normalised bank.
    loss : Loss
    weights : WeightSet
    """

    bank: KernelBank
    loss: Loss
    weights: WeightSet

    def __post_init__(self) -> None:
        check_square(self.bank, self.loss)
        weights = for_kernels(self.weights, self.bank.kernels, self.bank.names)
        object.__setattr__(self, "weights", weights)

    per_class = False

    @property
    def kind(self) -> Kind:
        """Kernels with separate tasks, or with classes that the loss couples."""
        return "classes" if isinstance(self.loss, CrammerSinger) else "kernels"

    def center(self) -> FloatArray:
        """Return equal weights."""
        return self.weights.center(self.bank.shape[2])

    def step(self, theta: FloatArray, quads: FloatArray) -> FloatArray:
        """Return the optimal weights for the ``w`` defined by ``theta`` and A."""
        return self.weights.step(theta, quads)

    def first(self) -> Iterate:
        """Return the zero function at equal weights."""
        return Iterate(self.center(), np.zeros(self.loss.shape))

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds given by ``theta`` (M,) and ``A`` (n, T).

        ``scores`` are ``K_theta A`` (n, T) and ``quads`` ``<A, K[m] A>`` (M,) as
        claimed by a solver; if missing, they are computed from the bank.
        """
        theta, A = point.theta, self.loss.repair(point.A)
        check_member(self.weights, theta)
        F = self.bank.apply(theta, A) if point.scores is None else point.scores
        q = self.bank.quad(A) if point.quads is None else point.quads
        bias = self.loss.bias(F)
        upper = self.loss.primal(F, bias) + self.weights.regulariser(theta, q)
        return Judgement(upper, self._lower(A, q), bias)

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, computed from the bank alone."""
        return certified(self, point, dual)

    def certify_to(self, point: Iterate, dual: Iterate, tol: float) -> Certificate:
        """Return the bounds; rounding errors far below ``tol`` may remain."""
        if type(self).certify is not MKLProblem.certify:  # a subclass has its own
            return self.certify(point, dual)
        return certified(self, point, dual, tol)

    def dual(self, A: FloatArray, quads: FloatArray | None = None) -> float:
        """Return the lower bound given by a feasible ``A``."""
        A = self.loss.repair(A)
        return self._lower(A, self.bank.quad(A) if quads is None else quads)

    def _lower(self, A: FloatArray, q: FloatArray) -> float:
        return self.loss.dual(A) - 0.5 * self.weights.support(q)

    @cached_property
    def sizes(self) -> FloatArray:
        """Bounds on the values of the kernels, shape (n, M)."""
        return self.bank.sizes()

    def penalty(self, theta: FloatArray, quads: FloatArray) -> float:
        """Return an upper bound on the regulariser for q of at most ``quads``."""
        theta = np.abs(theta)
        most = self.weights.regulariser(theta, quads)
        return most * (excess(self.weights, theta) + len(theta) * UNIT)

    def lowest(self, A: FloatArray, quads: FloatArray) -> float:
        """Return a lower bound on ``dual`` of a feasible A with q at most ``quads``."""
        return self.loss.below(A) - 0.5 * self.weights.support(quads) * (1.0 + FEW)

    @cached_property
    def sum(self) -> WeightedSum | None:
        """The last weighted sum of the kernels, None if it is better not kept."""
        return WeightedSum(self.bank) if self.bank.holds_sum() else None

    def known_sum(self, theta: FloatArray) -> FloatArray | None:
        """Return the combined kernel if it was the last that was computed."""
        return None if self.sum is None else self.sum.known(theta)

    def products(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return the scores ``K_theta A``, shape (n, T)."""
        K = self.known_sum(theta)
        return self.bank.apply(theta, A) if K is None else np.asarray(K @ A)

    @cached_property
    def _last(self) -> dict[str, FloatArray]:
        """The last A whose products were computed, and its quadratic forms."""
        return {}

    def products_inside(self, A: FloatArray) -> FloatArray | None:
        """Return ``K[m] A`` on the samples where A is not zero, shape (n, T, M).

        None if it is no faster than other products. The quadratic forms of A follow,
        and :meth:`quads` knows them as long as it is not called for another A.
        """
        A = self.loss.repair(A)
        products = self.bank.multiply_inside(A)
        if products is not None:
            quads = np.einsum("it,itm->m", A, products)
            self._last.update(A=A, quads=quads)
        return products

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` for every kernel, shape (M,)."""
        if self._last and np.array_equal(A, self._last["A"]):
            return self._last["quads"]
        return self.bank.quad(A)

    def weight_bounds(
        self,
        A: FloatArray,
        upper: float,
        quads: FloatArray | None = None,
        most: FloatArray | None = None,
        largest: FloatArray | None = None,
    ) -> FloatArray:
        """Return upper bounds on all optimal weights, shape (M,), for p = 1.

        Every feasible ``A`` has ``J(theta) >= dual.term - ½ theta'q``, so a weight
        ``theta_m`` raises the lower bound by ``½ theta_m (max q - q_m)`` and cannot
        raise it above ``upper``. For other norms the bounds are ones.

        If the dual term of the loss is strongly concave (not for the hinge loss), the
        optimal A lies in a ball around A whose radius follows from the gap. A kernel
        whose quadratic form cannot be the largest in that ball has weight zero at every
        optimum, and its bound is zero. ``largest`` are bounds on the largest
        eigenvalues of the kernels, their traces by default.
        """
        n_kernels = self.bank.shape[2]
        if not self.weights.sparse:
            return np.ones(n_kernels)
        A = self.loss.repair(A)
        q = self.bank.quad(A) if quads is None else quads
        most = q if most is None else most  # rounding aside
        gap = max(upper - self.lowest(A, most), 0.0)
        short = np.max(2 * q - most) - most
        bounds = np.ones(n_kernels)
        below = short > 2 * gap
        bounds[below] = 2 * gap / short[below]
        if self.loss.concavity > 0:
            if largest is None:  # the trace is at least the largest eigenvalue
                largest = self.bank.diag().sum(axis=0) * (1.0 + len(A) * UNIT)
            reach = (2 * gap / self.loss.concavity) ** 0.5 * (1.0 + FEW)
            reach = reach * np.maximum(largest, 0.0) ** 0.5
            root = np.maximum(q, 0.0) ** 0.5
            slip = np.maximum(most, 0.0) ** 0.5 - root
            bounds[root + slip + reach < np.max(root - slip - reach)] = 0.0
        return bounds

    def take(self, rows: NDArray[np.intp], factor: float = 1.0) -> MKLProblem:
        """Return the problem on some samples, their costs multiplied by ``factor``."""
        bank = self.bank[np.ix_(rows, rows)].stored(self.bank.memory_limit)
        return MKLProblem(bank, self.loss.take(rows, factor), self.weights)

    def contributions(
        self, theta: FloatArray, A: FloatArray, quads: FloatArray | None = None
    ) -> FloatArray:
        """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (M,).

        The shares do not depend on the scale of the kernels and sum to one (uniform if
        the solution is zero). ``quads`` are those of A, if they are known.
        """
        return shares(theta * (self.bank.quad(A) if quads is None else quads))


@dataclass(frozen=True)
class RoughProblem(MKLProblem):
    """The same problem for an approximate solution, with all Gram matrices in memory.

    Its certificate relies on the scores and quadratic forms that a solver claims. This
    is good enough to rank costs and norms on folds, where only predictions are kept.

    Parameters
    ----------
    bank, loss, weights
        As in :class:`MKLProblem`.
    grams : DenseGrams
        The values of the bank.
    """

    grams: DenseGrams
    _judged: dict[int, tuple[Iterate, Judgement]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` for every kernel, shape (M,)."""
        return self.grams.quad(A)

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds of a point; missing claims are computed from the Grams."""
        known = self._judged.get(id(point))
        if known is not None:
            return known[1]
        F, q = point.scores, point.quads
        F = self.grams.apply(point.theta, point.A) if F is None else F
        q = self.quads(point.A) if q is None else q
        found = super().judge(replace(point, scores=F, quads=q))
        self._judged[id(point)] = point, found  # the point is kept, so its id is unique
        return found

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds as they were judged, and their points."""
        found = self.judge(point)
        below = found if dual is point else self.judge(dual)
        A = self.loss.repair(point.A)
        return Certificate(
            upper=found.upper,
            lower=below.lower,
            bias=found.bias,
            theta=point.theta,
            A=A,
            dual=A if dual.A is point.A else self.loss.repair(dual.A),
            weight_bounds=np.ones(len(point.theta)),
            about=point,
        )


def check_member(weights: WeightSet, theta: FloatArray) -> None:
    """Raise ValueError if the weights that a solver proposes are not in their set."""
    if not weights.contains(theta):
        raise ValueError(
            "theta is not in the weight set; this is a bug in the solver; please "
            "report it."
        )


def check_square(bank: KernelBank, loss: Loss) -> None:
    """Raise ValueError unless the bank is square and matches the loss in size."""
    n, m, _ = bank.shape
    if n != m or n != loss.shape[0]:
        raise ValueError(
            f"The bank is {n} x {m} and the loss has "
            f"{plural(loss.shape[0], 'sample')}; a problem needs a square bank on the "
            "samples of the loss."
        )


# --- certificates ---------------------------------------------------------------------

# if rounding exceeds _ROUNDING and the share _SHARE of the gap and of the tolerance,
# sums are recomputed in twice the precision, unless there are more than _PRODUCTS
# products
_ROUNDING = 1e-9
_SHARE = 1e-2
_PRODUCTS = 2e8


def certified(
    problem: Problem, point: Iterate, dual: Iterate, tol: float = 0.0
) -> Certificate:
    """Return the certificate of a problem with kernels, a loss and a weight set."""
    theta = point.theta
    at = _Products.of(problem, theta, point.A)
    under = at if dual.A is point.A else _Products.of(problem, None, dual.A)
    found = _outward(problem, theta, at, under)
    decides = found.rounding > max(_ROUNDING, _SHARE * max(found.gap, tol))
    if decides and at.count + under.count <= _PRODUCTS:
        one = at is under
        at = at.twofold()
        found = _outward(problem, theta, at, at if one else under.twofold())
    return found


@dataclass(frozen=True)
class ColumnBounds:
    """Certificates of tasks that each have their own weights.

    Attributes
    ----------
    upper, lower, error : arrays of shape (T,)
    bias : array of shape (T,), or (q, T) with covariates
    A : array of shape (n, T)
    quads : array of shape (T, M)
    """

    upper: FloatArray
    lower: FloatArray
    error: FloatArray
    bias: FloatArray
    A: FloatArray
    quads: FloatArray


def certified_columns(
    problem: MKLProblem, thetas: FloatArray, A: FloatArray
) -> ColumnBounds:
    """Return the certificates of all tasks, each at its own weights.

    Parameters
    ----------
    problem : MKLProblem
        The problem of all tasks, with the squared loss.
    thetas : array of shape (T, M)
    A : array of shape (n, T)
    """
    loss, bank, sizes = problem.loss, problem.bank, problem.sizes
    assert isinstance(loss, Squared)
    A = loss.repair(A)
    scores, quads = bank.apply_each(thetas, A), bank.quads(A)
    rounding = bank.rounding(int(np.count_nonzero(A.any(axis=1))))
    off_quads = rounding * (np.abs(A).T @ sizes) ** 2
    sides = rounding * sizes**2 @ np.abs(thetas).T
    off_scores = np.sqrt(sides * np.sum(np.abs(thetas) * off_quads, axis=1))
    bias, weights = loss.bias(scores), problem.weights
    far = (loss.strain(A).T @ sizes) ** 2
    most = _furthest(quads, off_quads, far)
    plain, claimed = loss.primal_each(scores, bias), loss.dual_each(A)
    upper, lower = loss.above_each(scores, bias, off_scores), loss.below_each(A)
    for t, theta in enumerate(thetas):
        check_member(weights, theta)
        plain[t] += weights.regulariser(theta, quads[t])
        claimed[t] -= 0.5 * weights.support(quads[t])
        upper[t] += problem.penalty(theta, quads[t] + off_quads[t])
        lower[t] -= 0.5 * weights.support(most[t]) * (1.0 + FEW)
    upper *= 1.0 + FEW * np.sign(upper)
    lower *= 1.0 - FEW * np.sign(lower)
    error = upper - plain + claimed - lower
    for t, theta in enumerate(thetas):
        rounded = relative_error(error[t], upper[t], lower[t])
        if rounded > max(_ROUNDING, _SHARE * relative_gap(upper[t], lower[t])):
            at = slice(t, t + 1)
            point = Iterate(theta, A[:, at])
            one = replace(loss, Y=loss.Y[:, at], C=loss.C[:, at])
            found = certified(replace(problem, loss=one), point, point)
            upper[t], lower[t], error[t] = found.upper, found.lower, found.error
            bias[..., at], A[:, at] = found.bias, found.A
    return ColumnBounds(upper, lower, error, bias, A, quads)


def _outward(
    problem: Problem, theta: FloatArray, at: _Products, under: _Products
) -> Certificate:
    """Return the bounds from products with the kernels, rounded outward."""
    loss, most = problem.loss, under.largest()
    plain = problem.judge(Iterate(theta, at.A, at.scores, at.quads))
    upper = loss.above(at.scores, plain.bias, at.off_scores)
    upper += problem.penalty(theta, at.quads + at.off_quads)
    upper *= 1.0 + FEW * np.sign(upper)
    lower = problem.lowest(under.A, most)
    lower *= 1.0 - FEW * np.sign(lower)
    error = upper - plain.upper + problem.dual(under.A, under.quads) - lower
    return Certificate(
        upper=upper,
        lower=lower,
        bias=plain.bias,
        error=error,
        theta=theta,
        A=at.A,
        dual=under.A,
        weight_bounds=problem.weight_bounds(under.A, upper, under.quads, most),
        quads=at.quads,
    )


@dataclass(frozen=True)
class _Products:
    """Products of kernels and a feasible A, and bounds on their rounding errors.

    The bounds hold for any order of summation: the number of operations that a term
    takes part in, times the unit roundoff, times the sum of bounds on the terms.
    """

    problem: Problem
    theta: FloatArray  # (T, M), zeros if scores are not needed
    A: FloatArray
    scores: FloatArray
    quads: FloatArray  # (M,), or (T, M) with weights per class
    off_scores: FloatArray
    off_quads: FloatArray

    @classmethod
    def of(cls, problem: Problem, theta: FloatArray | None, A: FloatArray) -> _Products:
        """Return the products with ``A``, after it is made feasible."""
        A, bank = problem.loss.repair(A), problem.bank
        shape = (A.shape[1], bank.shape[2])
        each = np.zeros(shape) if theta is None else np.broadcast_to(theta, shape)
        scores = np.zeros(A.shape) if theta is None else problem.products(theta, A)
        rounding = bank.rounding(int(np.count_nonzero(A.any(axis=1))))
        sizes = problem.sizes
        off = rounding * (np.abs(A).T @ sizes) ** 2
        sides = rounding * sizes**2 @ np.abs(each).T
        off_scores = np.sqrt(sides * np.sum(np.abs(each) * off, axis=1))
        off_quads = off if problem.per_class else off.sum(axis=0)
        return cls(problem, each, A, scores, problem.quads(A), off_scores, off_quads)

    @property
    def count(self) -> int:
        """Number of scalar products."""
        n_used = int(np.count_nonzero(self.A.any(axis=1)))
        return n_used * self.A.size * self.problem.bank.shape[2]

    def twofold(self) -> _Products:
        """Return the products, summed in twice the precision."""
        scores, quads = self.problem.bank.twofold(self.theta, self.A)
        rest = (2 * len(self.A) + 64) * UNIT
        off = FEW * np.abs(quads)
        if not self.problem.per_class:
            off, quads = off.sum(axis=0), quads.sum(axis=0)
        return replace(
            self,
            scores=scores,
            quads=quads,
            off_scores=2 * UNIT * np.abs(scores) + rest * self.off_scores,
            off_quads=off + rest * self.off_quads,
        )

    def largest(self) -> FloatArray:
        """Return upper bounds on the quads of an exactly feasible point near A."""
        far = (self.problem.loss.strain(self.A).T @ self.problem.sizes) ** 2
        if not self.problem.per_class:
            far = far.sum(axis=0)
        return _furthest(self.quads, self.off_quads, far)


def _furthest(quads: FloatArray, error: FloatArray, far: FloatArray) -> FloatArray:
    """Return upper bounds on quads at points at a squared distance of ``far``."""
    root = np.sqrt(np.maximum(quads, 0.0) + error) + np.sqrt(far)
    return np.asarray(root**2 * (1.0 + FEW))


def hard_margin(
    bank: KernelBank,
    Y: FloatArray,
    cost: FloatArray,
    weights: WeightSet,
    unit: float = 1.0,
) -> MKLProblem:
    """Return the 2-norm soft margin in which ``1 / C`` is the weight of a last kernel.

    The slacks ``xi = max(0, 1 - y f)`` of the squared hinge loss cost ``½ sum_i C s_i
    xi_i^2``. This is ``½ |w_0|^2 / theta_0`` for ``theta_0 = 1 / C`` and an additional
    kernel ``diag(1 / s)``, which has a separate feature for each training sample. With
    this kernel in ``f`` every sample satisfies the margin ``y f >= 1``, and the problem
    becomes one of a hard margin: the hinge loss without a bound on alpha.

    Parameters
    ----------
    bank : KernelBank
        Square.
    Y : array of shape (n, T) of -1 and 1
    cost : array of shape (n,)
        The s of each sample.
    weights : WeightSet
    unit : float
        Trace of the kernels, relative to that of the identity: ``theta_0`` is
        ``unit / C``.

    Returns
    -------
    MKLProblem
    """
    # An upper bound on alpha that the optimum satisfies does not change it, and makes
    # the value of every f finite. Optimality along the ray of alpha gives 1'alpha = 2 V
    # at the optimum V, and y'alpha = 0 gives each class half of it: alpha_i <= V. And V
    # is at most the value at w = 0, equal weights and the optimal bias, summed over the
    # tasks: 2 S+ S- / ((S+ + S-) theta_0), S the sums of s by class. A smaller theta_0
    # is safe, too; at most 1 covers BlockNorm, where w_0 alone costs ½ |w_0|^2.
    M = bank.shape[2]
    even = min(1.0, float(weights.center(M + 1)[-1]))
    plus, minus = (cost @ (Y == sign) for sign in (1.0, -1.0))
    bound = np.sum(2 * unit * plus * minus / (plus + minus)) / even
    bank = bank.with_diagonal(1.0 / (unit * cost))
    return MKLProblem(bank, Hinge(Y, np.full(Y.shape, bound)), weights)


def learned_cost(bank: KernelBank, Y: FloatArray) -> MKLProblem:
    """Return the 2-norm soft margin whose cost is learned (SM2_C).

    Lanckriet et al. (2004) use the identity as an additional kernel of a hard margin,
    with weights on the simplex ``sum_m theta_m tr(K_m) = n``. Here the kernels are
    scaled to trace n and the identity comes last, so that the weights sum to one and
    ``theta[-1]`` is ``1 / C`` of the squared hinge loss on the sum of the others.

    Parameters
    ----------
    bank : KernelBank
        Square.
    Y : array of shape (n, T) of -1 and 1

    Returns
    -------
    MKLProblem
    """
    n = bank.shape[0]
    traces = bank.diag().sum(axis=0)
    if not (traces > 0).all():
        m = int(np.argmin(traces))
        raise ValueError(f"Kernel {m} has trace {traces[m]}; it must be positive.")
    return hard_margin(bank.weighted(n / traces), Y, np.ones(n), LpBall(1.0))


def tikhonov(regulariser: float, mu: float) -> float:
    """Return the norm of the weights in the Tikhonov form of a solved problem.

    LPMKL (4) adds ``mu |theta|^2`` to the objective where (P) requires
    ``|theta| <= 1``. With ``theta = s v``, ``|v| = 1``, its objective
    ``C~ L(w) + R(w, v) / s + mu s^2``, where R is ``½ sum |w_m|^2 / v_m``, is minimised
    in s by ``s^3 = R / (2 mu)``, and in (w, v) by the solution of (P) with
    ``C = s C~`` (Theorem 1). So the solution of (P) with cost C solves (4) with cost
    ``C / s``, with weights multiplied by s.

    Parameters
    ----------
    regulariser : float
        R at the solution of (P), ``problem.weights.regulariser(theta, quads)``.
    mu : float

    Returns
    -------
    s : float
    """
    return float((regulariser / (2.0 * mu)) ** (1.0 / 3.0))


def ivanov(
    problem: MKLProblem,
    mu: float,
    regulariser: Callable[[MKLProblem], float],
    rtol: float = 1e-6,
) -> tuple[MKLProblem, float]:
    """Return the problem in form (P) with the same solution as a Tikhonov problem.

    This is the inverse of :func:`tikhonov`: the costs of ``problem`` are the ``C~`` of
    LPMKL (4), and the norm s of its weights is the s at which ``2 mu s^3`` equals the
    regulariser at the solution of (P) with cost ``s C~``. The value of (4) is convex in
    s, so this s is unique.

    Parameters
    ----------
    problem : MKLProblem
        The loss must be a sum of costs (any loss except the one-class loss).
    mu : float
    regulariser : callable
        Solves a problem in form (P) and returns its regulariser at the solution.
    rtol : float
        Relative accuracy of s.

    Returns
    -------
    problem : MKLProblem
        With the costs ``s C~``.
    s : float
        The weights of (4) are s times those of this problem.
    """
    if isinstance(problem.loss, OneClass):
        raise ValueError(
            "The Tikhonov form needs a loss that is a sum of costs, not OneClass; use "
            "Hinge without a bias for the one-class problem of LPMKL."
        )

    def scaled(s: float) -> MKLProblem:
        loss = problem.loss.take(np.arange(problem.loss.shape[0]), s)
        return MKLProblem(problem.bank, loss, problem.weights)

    def wanted(s: float) -> float:
        return tikhonov(regulariser(scaled(s)), mu)

    low = high = 1.0
    while wanted(low) < low:
        low /= 4.0
        if low < 1e-12:
            raise ValueError("The solution is zero for all costs: there is no scale.")
    while wanted(high) > high:
        high *= 4.0
    log_s = brentq(
        lambda u: u - np.log(max(wanted(np.exp(u)), 1e-300)),
        np.log(low), np.log(high), xtol=rtol,
    )  # fmt: skip
    s = float(np.exp(log_s))
    return scaled(s), s
