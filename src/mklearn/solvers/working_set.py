"""The inner problem within bounded memory, by large working sets."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from mklearn.kernels.bank import KernelBank
from mklearn.problems.mkl import Problem
from mklearn.problems.protocols import Box, BoxLoss
from mklearn.solvers.base import Iterate
from mklearn.solvers.smo import BoxQP, Found, RowCache, inner_gap, unfinished

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]


class WorkingSetSolver:
    """SMO on a working set of samples whose rows fit into memory.

    A cache with fewer rows than there are support vectors would compute the same rows
    repeatedly. Rows restricted to the working set are short enough to store all of
    them, so the variables of that set are optimised with the others fixed. A product of
    the changes with all samples then shows which samples would move next. Samples that
    stay at a bound, which are the majority, never need a row.

    Parameters
    ----------
    problem : Problem
        A problem with a box loss.
    start : Iterate, optional
    spare : float
        Additional samples in the working set, as a share of those that would move.
    """

    def __init__(
        self, problem: Problem, start: Iterate | None, spare: float = 0.25
    ) -> None:
        self.problem, self.spare = problem, spare
        self.theta = problem.weights.center(problem.bank.shape[2])
        A = np.zeros(problem.loss.shape)
        if start is not None:
            A, self.theta = start.A, start.theta
        self.A = problem.loss.repair(A)
        self.coarse = 0.02 if start is None else 1e-3
        self.size = np.inf
        self.exact, self.bank = problem.bank, problem.bank.rough()
        self.at = np.full_like(self.theta, np.nan)
        self.scores = np.zeros_like(A)
        self.members = np.zeros(0, dtype=np.intp)
        self.rows: RowCache | None = None
        assert isinstance(problem.loss, BoxLoss)
        self.boxes = [problem.loss.box(t) for t in range(A.shape[1])]

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Return whether there is too little memory for SMO on all samples."""
        return _room(problem.bank, 4) < problem.bank.shape[0]

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""
        return self.bank[np.ix_(samples, samples)].combine(self.at)

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` for every kernel."""
        return self.bank.quad(A)

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve until the inner duality gap is at most ``allowed``."""
        precise = self.bank is self.exact or allowed < 1e-5 * self.size
        if precise or not np.array_equal(theta, self.at):
            self.at = theta
            self.bank = self.exact if precise else self.bank
            self.scores = self.bank.apply(theta, self.A)
            self.members = np.zeros(0, dtype=np.intp)
        eps, least, idle = np.inf, np.inf, 0
        while True:
            gap, self.size = inner_gap(self.problem, self.A, self.scores)
            size = self.size
            enough = max(min(allowed, self.coarse * size), 1e-13 * size)
            least, idle = (gap, 0) if gap < 0.99 * least else (least, idle + 1)
            if gap <= enough or idle > 50:  # the rest is rounding
                return self.A.copy(), self.scores.copy()
            yield Iterate(theta, self.A.copy(), complete=False)
            # steps are cheap compared with products with all samples, so continue until
            # the gap, which decreases with the violation, is likely to be small enough
            worst = self._choose(eps)
            wanted = 0.05 * worst if np.isinf(eps) else 0.5 * eps * enough / gap
            eps = min(max(wanted, 0.01 * worst), 0.3 * worst)
            yield from self._improve(eps)

    def _improve(self, eps: float) -> Any:
        """Optimise the variables of the working set with all others fixed."""
        members, rows = self.members, self.rows
        assert rows is not None
        before = self.A[members].copy()
        for t, box in enumerate(self.boxes):
            parts = members
            if len(box.linear) > len(self.A):
                parts = np.concatenate([members, members + len(self.A)])
            # the contribution of the fixed variables is part of the linear term
            fixed = self.scores[members, t] - rows.apply(before[:, t])
            linear = box.linear[parts] + np.tile(fixed, len(parts) // len(members))
            lower, upper, ridge = box.lower[parts], box.upper[parts], box.ridge[parts]
            own = Box(linear, lower, upper, ridge, box.hyperplane)
            task = BoxQP(rows, own, before[:, t])
            task.refresh()
            for _ in unfinished(task, partial(task.run, eps)):
                self.A[members, t] = task.a
                yield Iterate(self.at, self.A.copy(), complete=False)
            self.A[members, t] = task.a
        change = np.zeros_like(self.A)
        change[members] = self.A[members] - before
        self.scores += self.bank.apply(self.at, change)

    def _choose(self, eps: float) -> float:
        """Choose the working set; return the largest violation.

        The set does not change if it contains all samples that violate by more than
        ``eps``.
        """
        up, down = self._distances()
        far = np.minimum(up, down)
        outside = far.copy()
        outside[self.members] = np.inf
        if outside.min(initial=np.inf) < -eps or not len(self.members):
            exact = self.bank is self.exact
            moving = np.count_nonzero(far <= 0)
            count = min(len(far), max(64, int((1 + self.spare) * moving)))
            count = min(count, _room(self.exact, 8 if exact else 4))
            # the sum is fixed, so the set needs variables of both directions
            half = count // 2
            both = [np.argpartition(v, half - 1)[:half] for v in (up, down)]
            order = far.copy()
            order[np.concatenate(both)] = -np.inf
            self.members = np.sort(np.argpartition(order, count - 1)[:count])
            self.rows = None  # free the old ones first
            self.rows = RowCache(self.exact[np.ix_(self.members, self.members)])
            self.rows.set_theta(self.at, exact)
        return float(-far.min())

    def _distances(self) -> tuple[FloatArray, FloatArray]:
        """Return slopes of samples upwards and downwards, negative if it would move.

        The slopes are those at the optimal bias, minimised over the tasks.
        """
        loss, A = self.problem.loss, self.A
        n = len(A)
        # the scores of a start from few samples are correct up to their scale
        F = self._length() * self.scores
        bias = loss.bias(F)
        up, down = np.full(n, np.inf), np.full(n, np.inf)
        for t, box in enumerate(self.boxes):
            copies = len(box.linear) // n
            parts = [np.maximum(A[:, t], 0.0), np.minimum(A[:, t], 0.0)]
            c = np.concatenate(parts) if copies == 2 else A[:, t]
            slope = np.tile(F[:, t] + bias[t], copies) + box.linear + box.ridge * c
            can_rise = np.where(c < box.upper, slope, np.inf).reshape(copies, n)
            can_fall = np.where(c > box.lower, -slope, np.inf).reshape(copies, n)
            up = np.minimum(up, can_rise.min(axis=0))
            down = np.minimum(down, can_fall.min(axis=0))
        return up, down

    def _length(self) -> float:
        """Return the factor of the scores that minimises the primal value."""
        loss, F = self.problem.loss, self.scores
        norm = 0.5 * float(np.sum(self.A * F))

        def value(s: float) -> float:
            return loss.primal(s * F, loss.bias(s * F)) + s * s * norm

        return float(minimize_scalar(value, bounds=(1.0, 30.0), method="bounded").x)


def _room(bank: KernelBank, itemsize: int) -> int:
    """Return the size of the largest square of kernel values within the budget."""
    n = bank.shape[0]
    return max(64, int((bank.row_budget() * n * 8 / itemsize) ** 0.5))
