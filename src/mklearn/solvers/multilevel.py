"""Coarse to fine: learn the weights on few samples first, then on all."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mklearn.problems.mkl import Problem
from mklearn.solvers.base import Iterate, Iterates, Solver
from mklearn.solvers.newton import Newton


@dataclass(frozen=True)
class Multilevel:
    """Start a solver from the solution on nested random samples of growing size.

    A pass over the kernels of n samples costs n^2, so that the weights are cheap to
    find on a part; the full problem then needs few steps, and its certificate is that
    of the full problem. Costs are scaled up on the part, so that the balance of loss
    and regulariser stays.

    Parameters
    ----------
    solver : Solver
    coarsest : int
        Size of the smallest part.
    factor : int
        Ratio of consecutive sizes.
    tol : float
        Relative duality gap on the parts.
    """

    solver: Solver = field(default_factory=Newton)
    coarsest: int = 500
    factor: int = 3
    tol: float = 1e-2

    def check(self, problem: Problem) -> None:
        """Require what the solver requires."""
        self.solver.check(problem)

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield signs of life on the parts, then the solver's iterates."""
        if start is None:
            start = yield from self._coarse(problem)
        yield from self.solver.iterates(problem, start)

    def _coarse(self, problem: Problem) -> Generator[Iterate, Any, Iterate | None]:
        n, T = problem.loss.shape
        order = np.random.default_rng(0).permutation(n)
        sizes = []
        size = n // self.factor
        while size >= self.coarsest:
            sizes.append(size)
            size //= self.factor
        theta, A = problem.center(), np.zeros((n, T))
        if not sizes:
            return None
        for size in reversed(sizes):
            rows = np.sort(order[:size])
            up = n / size
            part = problem.take(rows, up)
            run = self.solver.iterates(part, Iterate(theta, A[rows] * up))
            answer = None
            for _ in range(100):
                iterate = run.send(answer)
                answer = None
                if iterate.complete:
                    answer = part.judge(iterate)
                    if answer.gap <= self.tol:
                        break
                yield Iterate(iterate.theta, A, complete=False)
            run.close()
            theta = iterate.theta
            A = np.zeros((n, T))
            A[rows] = iterate.A / up
        return Iterate(theta, A)
