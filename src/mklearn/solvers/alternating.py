"""Wrapper with the analytic update: solve for A, then for theta in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mklearn.problems.mkl import Problem
from mklearn.solvers.base import Iterate, Iterates
from mklearn.solvers.inner import inner_solver

_LEAST = 1e-12  # of the largest weight: what an update starts from


@dataclass(frozen=True)
class Alternating:
    """Algorithm 1 of LPMKL with the update (17), ``|w_m|^2 = theta_m^2 q_m``.

    Parameters
    ----------
    accuracy : float
        How exactly the inner problem is solved, as a share of the current gap.
    """

    accuracy: float = 0.1

    needs = ()

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each pair of steps."""
        inner = inner_solver(problem, start)
        theta = inner.theta
        allowed = np.inf
        while True:
            A, scores = yield from inner.solve(theta, allowed)
            quads = inner.quads(A)
            judgement = yield Iterate(theta, A, scores, quads)
            assert judgement is not None
            allowed = self.accuracy * (judgement.upper - judgement.lower)
            # The update multiplies: a kernel that rounding has put out would stay out.
            theta = np.maximum(theta, _LEAST * theta.max(axis=-1, keepdims=True))
            # erratum 1: (21) is not the update; the norms of w are
            theta = problem.step(theta, quads)
