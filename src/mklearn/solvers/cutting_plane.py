"""Cutting planes in the kernel weights: semi-infinite programs (SILP, SIP)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from mklearn.problems.mkl import Problem
from mklearn.problems.weights import ConvexSet
from mklearn.solvers.base import Iterate, Iterates, Need
from mklearn.solvers.inner import inner_solver
from mklearn.solvers.interior import minimise_level, outward, project

FloatArray = NDArray[np.float64]

_DENSE = 500  # kernels up to which a quadratic master program is cheap


@dataclass(frozen=True)
class CuttingPlane:
    """Cuts ``eta >= D(A_t) - ½ theta'q(A_t)``, one for each dual point ``A_t``.

    The weights that minimise eta are found by a linear program for p = 1 (SILP of
    Sonnenburg et al. 2006) and by an interior-point method for every other convex set,
    in place of the Taylor expansions of the SIP in Algorithm 3 of LPMKL. The
    multipliers of the cuts define a convex combination of the dual points whose dual
    value is at least that of the program.

    With few cuts, the minimiser may be far from the solution. The level method
    (Lemaréchal, Nemirovskii, Nesterov 1995) instead projects the last weights onto the
    set where the cuts are at most ``lower + level * (upper - lower)``.

    Parameters
    ----------
    accuracy : float
        Accuracy of the inner problem, relative to the current gap.
    level : float, optional
        Position of the level between the bounds, in [0, 1); 0 is the minimiser itself,
        the plain SILP and SIP. By default 0.3 for balls with p < 1.5, which are nearly
        polyhedra, and 0.1 for rounder sets, whose shape keeps the steps short.
    """

    accuracy: float = 0.1
    level: float | None = None

    needs = (
        Need(
            "solver='cutting_plane' is for weights that all classes share; with "
            "weights per class use solver='newton' or 'alternating'.",
            holds=lambda problem: not problem.per_class,
        ),
        Need(
            "solver='cutting_plane' needs a convex weight set with a smooth "
            "description, which {weights} is not; use solver='alternating'.",
            weights=ConvexSet,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each cut."""
        inner = inner_solver(problem, start)
        theta = best = inner.theta
        cuts = _Cuts(problem)
        mixture: FloatArray | None = None
        if start is not None and start.dual is not None:  # its cut is a good first one
            mixture = problem.loss.repair(start.dual)
            cuts.add(mixture, problem.bank.quad(mixture))
        upper, lower, allowed = np.inf, -np.inf, np.inf
        while True:
            A, scores = yield from inner.solve(theta, allowed)
            quads = problem.bank.quad(A)
            judgement = yield Iterate(theta, A, scores, quads, dual=mixture)
            assert judgement is not None
            if judgement.upper < upper:
                upper, best = judgement.upper, theta
            cuts.add(A, quads)
            lower = max(lower, judgement.lower)
            if problem.weights.fixed:
                allowed = self.accuracy * max(upper - lower, 0.0)
                continue
            lowest, share = cuts.minimise(best, 0.01 * max(upper - lower, 0.0))
            mixture = cuts.mixture(share)
            lower = max(lower, cuts.bound(share))
            gap = max(upper - lower, 0.0)
            allowed = self.accuracy * gap
            theta = self._next(problem, cuts, theta, best, lowest, lower, gap)

    def _next(
        self,
        problem: Problem,
        cuts: _Cuts,
        theta: FloatArray,
        best: FloatArray,
        lowest: FloatArray,
        lower: float,
        gap: float,
    ) -> FloatArray:
        """Return the weights of the next cut."""
        level = self.level
        if level is None:
            level = 0.3 if problem.weights.exponent < 1.5 else 0.1
        if level == 0 or gap == 0:
            return lowest
        if len(theta) > _DENSE:  # the midpoint is nearly as good, at no cost
            return (best + lowest) / 2
        assert isinstance(problem.weights, ConvexSet)
        constraint = problem.weights.constraint
        values = np.array(cuts.values) - (lower + level * gap)
        found = project(theta, values, 0.5 * np.array(cuts.quads), constraint, lowest)
        found = outward(found, constraint)
        return found if problem.weights.contains(found) else lowest


class _Cuts:
    """The dual points so far, and their cuts for the master program."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.points: list[FloatArray] = []
        self.values: list[float] = []
        self.quads: list[FloatArray] = []

    def add(self, A: FloatArray, quads: FloatArray) -> None:
        self.points.append(A)
        self.values.append(self.problem.loss.dual(A))
        self.quads.append(quads)

    def mixture(self, share: FloatArray) -> FloatArray:
        return np.tensordot(share, np.stack(self.points), axes=1)

    def bound(self, share: FloatArray) -> float:
        """Return a lower bound on the dual value of the combination, by concavity."""
        quads = share @ np.array(self.quads)
        return float(share @ self.values) - 0.5 * self.problem.weights.support(quads)

    def minimise(
        self, start: FloatArray, accuracy: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the weights that minimise the cuts, and the multipliers."""
        values, quads = np.array(self.values), np.array(self.quads)
        weights = self.problem.weights
        if weights.sparse:
            return lowest_of_cuts(values, quads)
        assert isinstance(weights, ConvexSet)
        constraint = weights.constraint
        # an error in the multipliers only weakens the bound
        accuracy = max(accuracy, 1e-14 * float(np.abs(values).max()))
        theta, share = minimise_level(values, 0.5 * quads, constraint, start, accuracy)
        return outward(theta, constraint), share


def lowest_of_cuts(
    values: FloatArray, quads: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the weights on the simplex that minimise the cuts, and the multipliers."""
    n_cuts, M = quads.shape
    scale = max(float(np.abs(values).max()), float(quads.max()), 1e-300)
    result = linprog(
        np.r_[np.zeros(M), 1.0],
        A_ub=np.c_[-0.5 * quads / scale, -np.ones(n_cuts)],
        b_ub=-values / scale,
        A_eq=np.r_[np.ones(M), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * M + [(None, None)],
        method="highs",
        # with the default of 1e-7, smaller gaps could not be reached
        options={
            "primal_feasibility_tolerance": 1e-10,
            "dual_feasibility_tolerance": 1e-10,
        },
    )
    if result.status != 0:
        raise RuntimeError(f"The master linear program failed: {result.message}")
    theta = np.maximum(result.x[:M], 0.0)
    share = np.maximum(-result.ineqlin.marginals, 0.0)
    return theta / theta.sum(), share / share.sum()
