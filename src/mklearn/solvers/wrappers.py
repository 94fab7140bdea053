"""Solvers that use another solver on subsets of the kernels or of the samples."""

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
from mklearn.solvers.inner import inner_solver
from mklearn.solvers.interior import outward
from mklearn.solvers.loop import solved_within
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

_ROUGH = 0.1  # gap on the first kernels, which are chosen arbitrarily
_SINGLE = 1e-5  # gap above which kernels in single precision are accurate enough
_NEAR = 0.7  # share of the largest form below which kernels are unlikely to enter


@dataclass(frozen=True)
class Multilevel:
    """Start a solver from the solution on nested random samples of growing size.

    A pass over the kernels of n samples costs n^2, so the weights are cheap to find on
    a subset. The full problem then needs few steps, and the certificate is that of the
    full problem. Costs are scaled up on the subsets to keep the balance of loss and
    regulariser.

    Parameters
    ----------
    solver : Solver
    coarsest : int
        Size of the smallest subset.
    factor : int
        Ratio of consecutive sizes.
    tol : float
        Relative duality gap on the subsets.
    """

    solver: Solver = field(default_factory=Newton)
    coarsest: int = 500
    factor: int = 3
    tol: float = 1e-2

    @property
    def needs(self) -> tuple[Need, ...]:
        """The requirements of the solver."""
        return self.solver.needs

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield intermediate points on the subsets, then the solver's iterates."""
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
        """Return the last point of the solver on a subset, without a certificate."""
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
    """Remove kernels whose weight is provably zero at every optimum, and continue.

    For p = 1 and a loss whose dual is strongly concave, ``problem.weight_bounds``
    identifies such kernels from the gap. The problem without them has the same optima
    and the same value, so bounds on its value are valid for the full problem;
    nevertheless, the final certificate is computed for the full problem.

    Parameters
    ----------
    solver : Solver
        The solver of the problems; it is restarted from its last weights.
    share : float
        Remove kernels when they are at least this share of the remaining ones.
    """

    solver: Solver = field(default_factory=Newton)
    share: float = 0.2

    @property
    def needs(self) -> tuple[Need, ...]:
        """The requirements of the solver, and those of screening."""
        own = Need(
            "solver='screened' needs weights on the simplex (norm=1) and a loss whose "
            "dual is strongly concave, such as the squared hinge loss; use "
            "solver='newton'.",
            holds=self.suits,
        )
        return (*self.solver.needs, own)

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Return whether a gap can prove that kernels have zero weight."""
        return (
            not problem.per_class
            and problem.weights.sparse
            and problem.loss.concavity > 0
        )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield the iterates of the solver, with zeros for removed kernels."""
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
        """Return the kernels whose weight may be nonzero."""
        if iterate.quads is not None:
            likely = part.weight_bounds(iterate.A, upper, iterate.quads)
            if np.mean(likely == 0) < self.share:
                return np.arange(len(likely))  # not worth a closer look
        # removal is final, so it must be based on exact values
        value = part.judge(Iterate(iterate.theta, iterate.A)).upper
        return np.flatnonzero(part.weight_bounds(iterate.A, value) > 0)


@dataclass(frozen=True)
class ActiveSet:
    """Solve on few kernels at a time, and check the others (column generation).

    A solution on some kernels is a point of the full problem with zero weights on the
    others. Its A is feasible whatever the kernels, and gives a lower bound from the
    quadratic forms of all kernels, which take one pass over the kernels. Those with the
    largest forms, which limit the bound, enter; kernels with zero weight leave. Apart
    from this pass, the cost of a step depends only on the number of kernels with
    nonzero weight.

    Parameters
    ----------
    solver : Solver
        The solver of the problems on few kernels.
    first : int
        Number of initial kernels, those with the largest quadratic forms at equal
        weights; problems with no more kernels than that are solved directly.
    enter : int
        Maximum number of kernels that enter together.
    most : int
        If all weights are nonzero (p > 1), the number of active kernels above which the
        analytic update continues with all kernels.
    accuracy : float
        Accuracy of the problems on few kernels, relative to the gap.
    """

    solver: Solver = field(default_factory=Newton)
    first: int = 150
    enter: int = 150
    most: int = 1000
    accuracy: float = 0.2

    @property
    def needs(self) -> tuple[Need, ...]:
        """The requirements of the solver, and a set that any kernels can have."""
        own = Need(
            "solver='active_set' needs weights that all classes share, in a set that "
            "treats all kernels alike (a norm p >= 1 or an elastic net), not "
            "{weights}; use solver='alternating' or 'newton'.",
            holds=self.suits,
        )
        return (*self.solver.needs, own)

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Return whether the weight set has the same form on any subset of kernels."""
        weights = problem.weights
        alike = isinstance(weights, (LpBall, ElasticNet)) and not weights.fixed
        return alike and not problem.per_class

    def iterates(self, problem: Problem, start: Iterate | None) -> Steps:
        """Yield one iterate for each pass over all kernels."""
        M = problem.bank.shape[2]
        if M <= self.first:
            yield from self.solver.iterates(problem, start)
            return None
        point, held, rough = start, None, True
        if start is None:
            # the forms at equal weights say which kernels matter
            inner = inner_solver(problem, None)
            A, scores = yield from inner.solve(problem.center(), np.inf)
            A = problem.loss.repair(A)
            quads = problem.quads(A)
            point = Iterate(problem.center(), A, scores, quads)
            active = np.sort(np.argsort(-quads, kind="stable")[: self.first])
            yield point
        else:
            quads = problem.quads(problem.loss.repair(start.A))
            known = np.flatnonzero(start.theta)
            if len(known) > min(self.most, M // 2):  # most weights are nonzero
                known = np.argsort(-start.theta, kind="stable")[: self.first]
            active = self._entering(known, quads, self._least(problem, 1.0))
        tol, best = _ROUGH, np.inf
        while True:
            # a gap that single precision could not show takes exact copies
            single = tol > _SINGLE
            held = held if single == rough else None
            held, rough = problem.bank.select(active).gathered(held, single), single
            part = MKLProblem(held, problem.loss, problem.weights)
            found, point = yield from self._on_part(problem, part, active, point, tol)
            judgement = yield point
            assert judgement is not None and point.quads is not None
            value, quads = judgement.upper, point.quads
            gap, own = judgement.gap, value - judgement.lower
            if len(active) > self.most and not problem.weights.sparse:
                yield from Alternating().iterates(problem, _spread(problem, point))
                return None
            # without progress, the accuracy on the active kernels was too low
            tol = min(
                self.accuracy * gap, tol if value < best - 0.01 * own else 0.3 * tol
            )
            best = min(best, value)
            least = self._least(problem, gap)
            # while the gap is large, vanishing weights are small but not yet zero
            used = found.theta > 1e-3 * min(1.0, gap) * found.theta.max()
            near = quads[active] >= least * quads[active].max()
            before = active
            active = self._entering(active[used | near], quads, least)
            if found.status is not Status.OPTIMAL and np.array_equal(active, before):
                return None

    def _on_part(
        self,
        problem: Problem,
        part: Problem,
        active: Index,
        point: Iterate | None,
        tol: float,
    ) -> Generator[Iterate | None, Judgement | None, tuple[Solution, Iterate]]:
        """Solve on some kernels; return the solution there, and as a point of all."""
        M = problem.bank.shape[2]

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
        scores, quads = part.products(found.theta, found.A), problem.quads(found.A)
        own = part.judge(Iterate(found.theta, found.A, scores, quads[active]))
        # another dual point, if its bound is much better, takes a second pass
        worse = own.lower < found.lower - tol * abs(found.upper)
        return found, replace(
            whole(found.iterate()),
            scores=scores,
            quads=quads,
            dual=found.dual if worse else None,
        )

    def _least(self, problem: Problem, gap: float) -> float:
        """Return the share of the largest form above which kernels enter, at a gap."""
        return max(_NEAR, 1.0 - 3.0 * gap) if problem.weights.sparse else 0.0

    def _entering(self, active: Index, quads: FloatArray, least: float) -> Index:
        """Return the active kernels plus the others with the largest forms."""
        outside = np.setdiff1d(np.arange(len(quads)), active)
        # if all weights are nonzero, adding few at a time would take too long
        more = 0 if least else len(active)
        count = min(max(self.enter, more), len(outside))
        if count < len(outside):
            largest = np.argpartition(-quads[outside], count - 1)[:count]
            outside = outside[largest]
        least = least * float(np.max(quads[active], initial=0.0))
        return np.sort(np.concatenate([active, outside[quads[outside] > least]]))


def _spread(problem: Problem, point: Iterate) -> Iterate:
    """Return a point with positive weights, which the analytic update can increase."""
    assert isinstance(problem.weights, ConvexSet)
    theta = np.maximum(point.theta, 0.01 * problem.center())
    return Iterate(outward(theta, problem.weights.constraint), point.A)


def _with_zeros(iterate: Iterate, kept: NDArray[np.intp], M: int) -> Iterate:
    """Convert an iterate of the ``kept`` kernels to one of all kernels."""
    if len(kept) == M:
        return iterate
    theta = np.zeros(M)
    theta[kept] = iterate.theta
    quads = None
    if iterate.quads is not None:
        quads = np.zeros(M)  # kernels with zero weight do not affect the bound
        quads[kept] = iterate.quads
    return Iterate(
        theta, iterate.A, iterate.scores, quads, iterate.dual, iterate.complete
    )
