"""Alternating optimisation: solve for A, then update theta in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mklearn.problems.mkl import Problem
from mklearn.solvers.base import Iterate, Iterates
from mklearn.solvers.inner import inner_solver

_LEAST = 1e-12  # smallest weight before an update, relative to the largest


@dataclass(frozen=True)
class Alternating:
    """Algorithm 1 of LPMKL with the update (17), ``|w_m|^2 = theta_m^2 q_m``.

    Parameters
    ----------
    accuracy : float
        Accuracy of the inner problem, relative to the current gap.
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
            # The update is multiplicative: a weight rounded to zero would stay zero.
            theta = np.maximum(theta, _LEAST * theta.max(axis=-1, keepdims=True))
            # erratum 1: the update is by the norms of w, not by (21)
            theta = problem.step(theta, quads)
