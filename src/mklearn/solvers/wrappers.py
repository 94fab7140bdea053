"""Solvers around a solver: on fewer and fewer kernels, on more and more samples."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.base import Judgement
from mklearn.problems.mkl import MKLProblem, Problem
from mklearn.problems.weights import ConvexSet, ElasticNet, LpBall
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import (
    Iterate,
    Iterates,
    Need,
    Solution,
    Solver,
    Status,
    Steps,
)
from mklearn.solvers.interior import outward
from mklearn.solvers.loop import solved_within
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

_ROUGH = 0.1  # gap on the first few kernels, which are not those that matter
_NEAR = 0.7  # of the largest form: kernels with less are far from having a weight


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


@dataclass(frozen=True)
class ActiveSet:
    """Solve on few kernels at a time, and price the others.

    A solution on some kernels is one of the whole problem with no weight on the others,
    and its A, feasible for any kernels, bounds the optimum by the quadratic forms of
    all of them. One pass over the kernels finds these. The largest of them, which are
    what the bound falls short for, enter; kernels that are left without weight go. What
    a step costs beside the pass is a matter of the kernels that have a weight, not of
    those that are there.

    Parameters
    ----------
    solver : Solver
        What solves the problems on few kernels.
    first : int
        Kernels to begin with, evenly spread; problems with no more are solved at once.
    enter : int
        Kernels that enter together at the most.
    most : int
        Where every kernel has some weight (p > 1), so many kernels are no longer few:
        the analytic update goes on with all of them.
    accuracy : float
        How exactly the problems on few kernels are solved, as a share of the gap.
    """

    solver: Solver = field(default_factory=Newton)
    first: int = 100
    enter: int = 200
    most: int = 1000
    accuracy: float = 0.2

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the solver needs, and a set that is one on some of the kernels, too."""
        own = Need(
            "solver='active_set' needs weights that all classes share, in a set that "
            "treats all kernels alike (a norm p >= 1 or an elastic net), not "
            "{weights}; use solver='alternating' or 'newton'.",
            holds=self.suits,
        )
        return (*self.solver.needs, own)

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Tell whether the weight set is the same one on any part of the kernels."""
        weights = problem.weights
        alike = isinstance(weights, (LpBall, ElasticNet)) and not weights.fixed
        return alike and not problem.per_class

    def iterates(self, problem: Problem, start: Iterate | None) -> Steps:
        """Yield one iterate for each pass over all kernels."""
        M = problem.bank.shape[2]
        if M <= self.first:
            yield from self.solver.iterates(problem, start)
            return None
        active = np.unique(np.linspace(0, M - 1, self.first).round().astype(np.intp))
        point = start
        if start is not None:
            quads = problem.quads(problem.loss.repair(start.A))
            known = np.flatnonzero(start.theta)
            if len(known) > min(self.most, M // 2):  # some weight on every kernel
                known = np.argsort(-start.theta, kind="stable")[: self.first]
            active = self._entering(known, quads, self._least(problem, 1.0))
        tol, best = _ROUGH, np.inf
        while True:
            found, point = yield from self._on_part(problem, active, point, tol)
            judgement = yield point
            assert judgement is not None and point.quads is not None
            value, quads = judgement.upper, point.quads
            gap, own = judgement.gap, value - judgement.lower
            if len(active) > self.most and not problem.weights.sparse:
                yield from Alternating().iterates(problem, _spread(problem, point))
                return None
            # what brings no progress was not solved exactly enough
            tol = min(
                self.accuracy * gap, tol if value < best - 0.01 * own else 0.3 * tol
            )
            best = min(best, value)
            least = self._least(problem, gap)
            # while the gap is wide, weights on their way out are small rather than zero
            used = found.theta > 1e-3 * min(1.0, gap) * found.theta.max()
            near = quads[active] >= least * quads[active].max()
            before = active
            active = self._entering(active[used | near], quads, least)
            if found.status is not Status.OPTIMAL and np.array_equal(active, before):
                return None

    def _on_part(
        self, problem: Problem, active: Index, point: Iterate | None, tol: float
    ) -> Generator[Iterate | None, Judgement | None, tuple[Solution, Iterate]]:
        """Solve on some kernels; return the solution there, and as one of all."""
        M = problem.bank.shape[2]
        bank = problem.bank.select(active).gathered()
        part = MKLProblem(bank, problem.loss, problem.weights)

        def whole(iterate: Iterate) -> Iterate:
            theta = np.zeros(M)
            theta[active] = iterate.theta
            return Iterate(theta, iterate.A)

        inside = None
        if point is not None:
            theta = point.theta[active]
            inside = Iterate(theta if theta.any() else part.center(), point.A)
        found = yield from solved_within(
            part, self.solver, point, tol=tol, start=inside, shown=whole
        )
        scores, quads = bank.apply(found.theta, found.A), problem.quads(found.A)
        own = part.judge(Iterate(found.theta, found.A, scores, quads[active]))
        # a second pass over all kernels, if another point bounds much better
        worse = own.lower < found.lower - tol * abs(found.upper)
        return found, replace(
            whole(found.iterate()),
            scores=scores,
            quads=quads,
            dual=found.dual if worse else None,
        )

    def _least(self, problem: Problem, gap: float) -> float:
        """Return which share of the largest form may deserve a weight, at a gap."""
        return max(_NEAR, 1.0 - 3.0 * gap) if problem.weights.sparse else 0.0

    def _entering(self, active: Index, quads: FloatArray, least: float) -> Index:
        """Return kernels with those of the others whose forms are the largest."""
        outside = np.setdiff1d(np.arange(len(quads)), active)
        # where every kernel has some weight, few at a time would never be enough
        more = 0 if least else len(active)
        count = min(max(self.enter, more), len(outside))
        if count < len(outside):
            largest = np.argpartition(-quads[outside], count - 1)[:count]
            outside = outside[largest]
        least = least * float(np.max(quads[active], initial=0.0))
        return np.sort(np.concatenate([active, outside[quads[outside] > least]]))


def _spread(problem: Problem, point: Iterate) -> Iterate:
    """Return a point with some weight on every kernel, which an update can raise."""
    assert isinstance(problem.weights, ConvexSet)
    theta = np.maximum(point.theta, 0.01 * problem.center())
    return Iterate(outward(theta, problem.weights.constraint), point.A)


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
