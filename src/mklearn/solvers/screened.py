"""Sparse problems with fewer and fewer kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.mkl import MKLProblem, Problem
from mklearn.solvers.base import Iterate, Iterates, Solver
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Screened:
    """Drop the kernels that provably have no weight at any optimum, and go on.

    For p = 1 and a loss whose dual is strongly concave, ``problem.weight_bounds`` tells
    from the gap which kernels these are. The problem without them has the same optima
    and the same value, so a bound on its value is one on that of the whole problem;
    the certificate at the end is that of the whole problem all the same.

    Parameters
    ----------
    solver : Solver
        What solves the problems; it starts anew from the weights it had.
    share : float
        Drop kernels when they are at least this share of those that are left.
    """

    solver: Solver = field(default_factory=Newton)
    share: float = 0.2

    def check(self, problem: Problem) -> None:
        """Require a problem whose gap can prove that a weight is zero."""
        self.solver.check(problem)
        if not self.suits(problem):
            raise ValueError(
                "solver='screened' needs weights on the simplex (norm=1) and a loss "
                "whose dual is strongly concave, such as the squared hinge loss; use "
                "solver='newton'."
            )

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Tell whether kernels can be proved to have no weight."""
        sparse = getattr(problem.weights, "p", None) == 1
        plain = isinstance(problem, MKLProblem)
        return plain and sparse and getattr(problem.loss, "concavity", 0.0) > 0

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield the iterates of the solver, with zeros for what was dropped."""
        M = problem.bank.shape[2]
        kept = np.arange(M)
        part, run = problem, self.solver.iterates(problem, start)
        answer = None
        while True:
            try:
                iterate = run.send(answer)
            except StopIteration:
                return
            answer = yield _with_zeros(iterate, kept, M)
            if answer is None:
                continue
            stay = self._stay(part, iterate, answer.upper)
            if len(kept) - len(stay) < max(1.0, self.share * len(kept)):
                continue
            run.close()
            kept = kept[stay]
            theta = iterate.theta[stay]
            total = theta.sum()
            theta = theta / total if total > 0 else np.full(len(stay), 1 / len(stay))
            part = MKLProblem(problem.bank.select(kept), problem.loss, problem.weights)
            run = self.solver.iterates(part, Iterate(theta, iterate.A))
            answer = None

    def _stay(self, part: Problem, iterate: Iterate, upper: float) -> NDArray[np.intp]:
        """Return the kernels that may have a weight."""
        if iterate.quads is not None:
            likely = part.weight_bounds(iterate.A, upper, iterate.quads)
            if np.mean(likely == 0) < self.share:
                return np.arange(len(likely))  # not worth a closer look
        # what is dropped is dropped for good: only exact values may tell
        value = part.judge(Iterate(iterate.theta, iterate.A)).upper
        return np.flatnonzero(part.weight_bounds(iterate.A, value) > 0)


def _with_zeros(iterate: Iterate, kept: NDArray[np.intp], M: int) -> Iterate:
    """Return an iterate of the problem with the ``kept`` kernels as one of all."""
    if len(kept) == M:
        return iterate
    theta = np.zeros(M)
    theta[kept] = iterate.theta
    quads = None
    if iterate.quads is not None:
        quads = np.zeros(M)  # kernels without weight at the optimum do not bound it
        quads[kept] = iterate.quads
    return Iterate(
        theta, iterate.A, iterate.scores, quads, iterate.dual, iterate.complete
    )
