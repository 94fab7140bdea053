"""Cutting planes in the kernel weights: the semi-infinite linear program (SILP)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from mklearn.problems.mkl import MKLProblem
from mklearn.solvers.base import Iterate, Iterates
from mklearn.solvers.inner import inner_solver

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class CuttingPlane:
    """SILP of Sonnenburg et al. (2006), for p = 1.

    Each dual point ``A_t`` gives the cut ``eta >= D(A_t) - ½ theta'q(A_t)``; a linear
    program over the simplex proposes the next weights. The multipliers of the cuts mix
    the dual points into one whose dual value is at least the program's value.

    Parameters
    ----------
    accuracy : float
        How exactly the inner problem is solved, as a share of the current gap.
    """

    accuracy: float = 0.1

    def check(self, problem: MKLProblem) -> None:
        """Require p = 1."""
        if getattr(problem.weights, "p", None) != 1:
            raise ValueError(
                "solver='cutting_plane' needs norm=1 (its master problem is a linear "
                "program over the simplex); use solver='alternating' for other norms."
            )

    def iterates(self, problem: MKLProblem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each cut."""
        inner = inner_solver(problem, start)
        theta = inner.theta
        points: list[FloatArray] = []
        values: list[float] = []
        slopes: list[FloatArray] = []
        mixture: FloatArray | None = None
        if start is not None and start.dual is not None:  # its cut is a good first one
            mixture = problem.loss.repair(start.dual)
            points.append(mixture)
            values.append(problem.loss.dual(mixture))
            slopes.append(problem.bank.quad(mixture))
        upper, lower = np.inf, -np.inf
        allowed = np.inf
        while True:
            A, scores = yield from inner.solve(theta, allowed)
            quads = problem.bank.quad(A)
            judgement = yield Iterate(theta, A, scores, quads, dual=mixture)
            assert judgement is not None
            upper = min(upper, judgement.upper)
            points.append(A)
            values.append(problem.loss.dual(A))
            slopes.append(quads)
            theta, share, bound = _master(np.array(values), np.array(slopes))
            lower = max(lower, bound)
            allowed = self.accuracy * max(upper - lower, 0.0)
            mixture = np.tensordot(share, np.stack(points), axes=1)


def _master(
    values: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return the best weights for the cuts, the cuts' multipliers and the value."""
    n_cuts, M = slopes.shape
    scale = max(float(np.abs(values).max()), float(slopes.max()), 1e-300)
    result = linprog(
        np.r_[np.zeros(M), 1.0],
        A_ub=np.c_[-0.5 * slopes / scale, -np.ones(n_cuts)],
        b_ub=-values / scale,
        A_eq=np.r_[np.ones(M), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * M + [(None, None)],
        method="highs",
        # the default of 1e-7 would be the smallest gap that can be reached
        options={
            "primal_feasibility_tolerance": 1e-10,
            "dual_feasibility_tolerance": 1e-10,
        },
    )
    if result.status != 0:
        raise RuntimeError(f"The master linear program failed: {result.message}")
    theta = np.maximum(result.x[:M], 0.0)
    share = np.maximum(-result.ineqlin.marginals, 0.0)
    return theta / theta.sum(), share / share.sum(), float(result.fun) * scale
