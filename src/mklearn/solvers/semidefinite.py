"""Semidefinite programs of discriminant kernel learning, for a general solver."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.spelling import plural
from mklearn.problems.discriminant import Fisher
from mklearn.problems.mkl import Problem
from mklearn.problems.protocols import QuadraticLoss
from mklearn.problems.weights import ConvexSet, ElasticNet, Ellipsoid, LpBall
from mklearn.solvers.base import Iterate, Iterates, Need
from mklearn.solvers.conic import packages, run
from mklearn.solvers.inner import LinearSolver, linear_system
from mklearn.solvers.interior import outward
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Semidefinite:
    """``min sum_j t_j`` over weights and t, subject to linear matrix inequalities.

    For the squared loss without bias there is one for each target h_j, DKL (8), (29)
    and, if reg is learned, (41), (45)::

        [[R + sum_m theta_m G_m, h_j], [h_j', t_j]] >= 0

    or, approximately, one for all of them, DKL (32), which restricts the weights to
    those for which the targets do not interact::

        [[R + sum_m theta_m G_m, H], [H', diag(t)]] >= 0

    For :class:`~mklearn.problems.discriminant.Fisher` it is KFDA (9). The matrices of
    the inequalities are as large as the number of samples: this is a reference for a
    few dozen samples. If the backend fails, Newton's method takes over.

    Parameters
    ----------
    approximate : bool
        Whether to use one large matrix inequality instead of one for each target. The
        weights are then not optimal in general, as the gap in the certificate shows.
    backend : {"clarabel", "scs"}
        An interior-point method (accurate), or a first-order method (for more samples,
        less accurate).
    accuracy : float, optional
        Relative accuracy requested from the backend.
    """

    approximate: bool = False
    backend: str = "clarabel"
    accuracy: float | None = None

    @property
    def needs(self) -> tuple[Need, ...]:
        """A quadratic loss without bias, a convex set, perhaps several targets."""
        several = Need(
            "solver='sdp-approx' is for several targets, and criterion='kfda' has one; "
            "use solver='sdp'.",
            holds=lambda problem: not isinstance(problem.loss, Fisher),
        )
        return (
            Need(
                "solver='sdp' is for the criteria of discriminant analysis, got the "
                "loss {loss}; use solver='newton'.",
                loss=QuadraticLoss,
                holds=_unbiased,
            ),
            *((several,) if self.approximate else ()),
            Need(
                "solver='sdp' needs a convex weight set of the library, got {weights}; "
                "use solver='alternating'.",
                weights=LpBall | Ellipsoid | ElasticNet,
            ),
        )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield the solution, with the exact A for its weights."""
        packages(self.backend)
        n = problem.bank.shape[0]
        if n > 200:
            warnings.warn(
                f"solver='sdp' with {plural(n, 'sample')} will be slow and need a "
                "lot of memory; use solver='newton' above a few hundred samples.",
                UserWarning,
                stacklevel=2,
            )
        cp = packages(self.backend)
        theta, objective, limits, dual = _program(cp, problem, self.approximate)
        model = cp.Problem(cp.Minimize(objective), limits)
        default = 1e-10 if self.backend == "clarabel" else 1e-7
        run(cp, model, self.backend, self.accuracy or default)
        if theta.value is None:
            # the backend failed, because of the scale of the kernels: hand over
            yield from Newton().iterates(problem, start)
            return
        found = np.maximum(np.asarray(theta.value, dtype=float), 0.0)
        weights, system = problem.weights, linear_system(problem)
        assert isinstance(weights, ConvexSet) and system is not None
        if weights.fixed:
            found = problem.center()
        else:
            found = outward(found, weights.constraint)
        linear = LinearSolver(problem.bank, system, found)
        A, scores = linear.best(found)
        yield Iterate(found, A, scores, dual=dual())


def _unbiased(problem: Problem) -> bool:
    """Return whether the linear system of a problem has no bias, or is that of KFDA."""
    if isinstance(problem.loss, Fisher):
        return True
    system = linear_system(problem)
    return system is not None and system.E.shape[1] == 0


def _program(
    cp: Any, problem: Problem, approximate: bool
) -> tuple[Any, Any, list[Any], Callable[[], FloatArray | None]]:
    """Return weights, objective, constraints, and a function that returns a dual point.

    At the optimum, the multiplier of an inequality is the outer product of
    ``(-inner^-1 h, 1)`` with itself.
    """
    bank, loss = problem.bank, problem.loss
    n, _, M = bank.shape
    grams = [bank.gram(m) for m in range(M)]
    theta = cp.Variable(M, nonneg=True)
    limits = _member(cp, problem.weights, theta)
    if isinstance(loss, Fisher):
        J, a, lam = loss.scatter_root, loss.a, loss.lam
        t = cp.Variable((1, 1))
        inner = lam * np.eye(n) + _sum(theta, [J.T @ K @ J for K in grams])
        along = _sum(theta, [J.T @ K @ a for K in grams])
        matrix = cp.bmat([[inner, along], [along.T, t]]) >> 0
        # scaled by the largest coefficient of the linear term
        linear = np.array([float((a.T @ K @ a)[0, 0]) for K in grams])
        objective = (t[0, 0] - linear @ theta) / max(linear.max(), 1e-300)
        return theta, objective, [*limits, matrix], lambda: a + J @ _corner(matrix)
    system = linear_system(problem)
    assert system is not None
    ridge, H = system.ridge, system.right
    unit = max(float(ridge.mean()), 1.0 / n)
    size = float(np.linalg.norm(H)) / np.sqrt(H.shape[1])
    h = H / max(size, 1e-300)
    inner = np.diag(ridge / unit) + _sum(theta, [K / unit for K in grams])
    T = H.shape[1]
    t = cp.Variable(T)
    if approximate:
        matrix = cp.bmat([[inner, h], [h.T, cp.diag(t)]]) >> 0
        return theta, cp.sum(t), [*limits, matrix], lambda: None
    each = []
    for j in range(T):
        column = h[:, [j]]
        corner = cp.reshape(t[j], (1, 1), order="C")
        each.append(cp.bmat([[inner, column], [column.T, corner]]) >> 0)

    def dual() -> FloatArray:
        return -np.hstack([_corner(matrix) for matrix in each]) * (size / unit)

    return theta, cp.sum(t), [*limits, *each], dual


def _corner(matrix: Any) -> FloatArray:
    """Return the last column of an inequality's multiplier over its last entry."""
    multiplier = np.asarray(matrix.dual_value, dtype=float)
    return multiplier[:-1, -1:] / max(float(multiplier[-1, -1]), 1e-300)


def _sum(theta: Any, matrices: list[FloatArray]) -> Any:
    return sum(theta[m] * matrix for m, matrix in enumerate(matrices))


def _member(cp: Any, weights: Any, theta: Any) -> list[Any]:
    """Return the constraints of the weight set."""
    if isinstance(weights, Ellipsoid):
        return [cp.norm(np.linalg.cholesky(weights.E).T @ theta) <= 1]
    if isinstance(weights, ElasticNet):
        mix = weights.mix
        return [(1 - mix) * cp.sum(theta) + mix * cp.sum_squares(theta) <= 1]
    if weights.p < 1 + 1e-6:
        # cvxpy cannot handle a cone this narrow, and the simplex is inside the ball
        return [cp.sum(theta) == 1]
    if np.isinf(weights.p):
        return [theta == 1]
    return [cp.pnorm(theta, weights.p) <= 1]
