"""Solvers around a solver: on fewer and fewer kernels, on more and more samples."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.mkl import MKLProblem, Problem
from mklearn.solvers.base import Iterate, Iterates, Need, Solver
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]


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

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the solver needs."""
        return self.solver.needs

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
            first = Iterate(theta, A[rows] * up)
            iterate = yield from self._on_part(part, first, Iterate(theta, A))
            theta = iterate.theta
            A = np.zeros((n, T))
            A[rows] = iterate.A / up
        return Iterate(theta, A)

    def _on_part(
        self, part: Problem, first: Iterate, whole: Iterate
    ) -> Generator[Iterate, Any, Iterate]:
        """Return the last point of the solver on a part, which needs no certificate."""
        run, answer, last = self.solver.iterates(part, first), None, first
        for _ in range(100):
            try:
                last = run.send(answer)
            except StopIteration:
                break
            answer = part.judge(last) if last.complete else None
            if answer is not None and answer.gap <= self.tol:
                break
            yield replace(whole, theta=last.theta, complete=False)
        run.close()
        return last


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

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the solver needs, and that a gap can prove a weight to be zero."""
        own = Need(
            "solver='screened' needs weights on the simplex (norm=1) and a loss whose "
            "dual is strongly concave, such as the squared hinge loss; use "
            "solver='newton'.",
            holds=self.suits,
        )
        return (*self.solver.needs, own)

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Tell whether kernels can be proved to have no weight."""
        return (
            not problem.per_class
            and problem.weights.sparse
            and problem.loss.concavity > 0
        )

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
