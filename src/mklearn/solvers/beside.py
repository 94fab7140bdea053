"""Inner problems with covariates: SMO and sweeps with further equality constraints.

``E'a = 0`` is one equation for the constant, which SMO satisfies, and one for each
covariate. The latter are eliminated by an augmented Lagrangian,

    min ½ a'(K + rho QQ')a + (linear + Q lam)'a     lower <= a <= upper,  sum(a) = 0,

where Q are the orthonormal, centred covariates: a kernel of fixed weight, and a linear
term whose multipliers change by ``rho Q'a`` after each solution. For the Crammer-Singer
loss all equalities of each class are eliminated in this way, and sweeps solve what
remains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.bank import KernelBank
from mklearn.problems.mkl import Problem
from mklearn.problems.protocols import BoxLoss
from mklearn.solvers.base import Iterate
from mklearn.solvers.smo import BoxQP, Found, RowCache, unfinished
from mklearn.solvers.sweeps import SampleSweeps

FloatArray = NDArray[np.float64]

_ROUNDS = 200
_SMALL = 2**18  # entries of a kernel whose rows are computed all at once
_PENALTY = 2.0  # of covariates, in units of the trace of the kernel
_STIFF = 1e4  # weight of covariates relative to kernels in the model of A


class _Best:
    """The point with the smallest gap so far, and the rounds without much progress."""

    found: tuple[FloatArray, FloatArray]

    def __init__(self) -> None:
        self.gap, self.idle = np.inf, 0

    def offer(self, found: tuple[FloatArray, FloatArray], gap: float) -> None:
        """Keep the dual variables and scores of a round if their gap is smaller."""
        self.idle = 0 if gap < 0.95 * self.gap else self.idle + 1
        if gap < self.gap:
            self.found, self.gap = found, gap


class _Rows(RowCache):
    """Rows of the combined kernel plus a linear kernel of the covariates."""

    def __init__(self, bank: KernelBank, Q: FloatArray) -> None:
        self.Q, self.rho = Q, 0.0
        super().__init__(bank)

    def set_theta(self, theta: FloatArray, exact: bool = True) -> None:
        """Change the weights; rho is large compared with the kernels."""
        super().set_theta(theta, exact)
        self.rho = max(_PENALTY * float(self.diag.sum()), 1e-300)
        self.diag = self.diag + self.rho * np.sum(self.Q**2, axis=1)

    def _fill(self) -> None:
        super()._fill()
        self.rows += self.rho * (self.Q @ self.Q.T)

    def _columns(self, part: NDArray[Any]) -> FloatArray:
        rows = super()._columns(part)
        return np.asarray(rows + self.rho * (self.Q[part] @ self.Q.T))

    def apply(self, a: FloatArray) -> FloatArray:
        """Return the sum of both kernels times a vector."""
        used = np.flatnonzero(a)
        if len(used) <= self.capacity:
            return super().apply(a)
        return super().apply(a) + self.rho * (self.Q @ (self.Q.T @ a))


class BesideSolver:
    """All tasks of a box loss with covariates for given weights, warm-started.

    Returned points are feasible: within the box, and orthogonal to the design.
    """

    def __init__(self, problem: Problem, start: Iterate | None) -> None:
        self.problem, loss = problem, problem.loss
        assert isinstance(loss, BoxLoss) and loss.design is not None
        n, T = loss.shape
        self.Q = loss.design.basis[:, 1:]
        self.rows = _Rows(problem.bank, self.Q)
        self.coarse = 0.02 if start is None else 1e-3
        self.size = np.inf
        self.theta = problem.weights.center(problem.bank.shape[2])
        A = np.zeros((n, T))
        if start is not None:
            A, self.theta = start.A, start.theta
        A = loss.repair(A)
        self.multipliers = np.zeros((self.Q.shape[1], T))
        self.boxes = [loss.box(t) for t in range(T)]
        self.tasks = [
            BoxQP(self.rows, box, A[:, t]) for t, box in enumerate(self.boxes)
        ]

    @property
    def bank(self) -> KernelBank:
        """The bank in the precision that is in use."""
        return self.rows.bank

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` in that precision."""
        return self.bank.quad(A)

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""
        both = self.rows.block(samples, samples)
        if len(samples) > self.rows.capacity:
            return both
        Q = self.Q[samples]
        return np.asarray(both - self.rows.rho * (Q @ Q.T))

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve for ``theta`` until the inner duality gap is at most ``allowed``."""
        if not np.array_equal(theta, self.rows.theta):
            self.rows.set_theta(theta)
            n = len(self.Q)
            if self.rows.capacity == n and n * n <= _SMALL:
                self.rows.load(np.arange(n))
            for t in range(len(self.tasks)):
                self._move(t)
        eps, best = 0.1, _Best()
        for _ in range(_ROUNDS):
            for task in self.tasks:
                for _ in unfinished(task, partial(task.run, eps)):
                    yield Iterate(theta, self._duals(), complete=False)
            A, F = self._feasible()
            gap = self._gap(A, F)
            best.offer((A, F), gap)
            enough = max(min(allowed, self.coarse * self.size), 1e-13 * self.size)
            if gap <= enough or best.idle > 25:  # the rest is rounding
                break
            yield Iterate(theta, A, complete=False)
            for t, task in enumerate(self.tasks):
                self.multipliers[:, t] += self.rows.rho * (self.Q.T @ task.a)
                self._move(t)
            # the gap decreases roughly in proportion to the violation
            eps = max(eps * min(max(0.5 * enough / gap, 0.2), 0.7), 1e-13)
        return best.found

    def _move(self, t: int) -> None:
        """Update the linear term of a task, and its gradient."""
        task, box = self.tasks[t], self.boxes[t]
        shift = self.Q @ self.multipliers[:, t]
        shift = np.concatenate([shift, shift]) if task.split else shift
        task.box = box._replace(linear=box.linear + shift)
        task.refresh()

    def _duals(self) -> FloatArray:
        return np.stack([task.a for task in self.tasks], axis=1)

    def _gap(self, A: FloatArray, F: FloatArray) -> float:
        """Return the duality gap for fixed weights, at the effects of the multipliers.

        These effects are optimal at the solution; computing optimal ones in each round
        would be more expensive.
        """
        loss: Any = self.problem.loss
        moved = np.column_stack([task.a for task in self.tasks])
        effects = self.multipliers + self.rows.rho * (self.Q.T @ moved)
        f = F + self.Q @ effects
        columns = zip(f.T, loss.Y.T, loss.C.T, strict=True)
        f += [loss.point.bias(*column) for column in columns]
        norm = float(np.sum(A * F))
        upper = float(np.sum(loss.C * loss.point.value(f, loss.Y))) + 0.5 * norm
        self.size = abs(upper)
        return upper - (loss.dual(A) - 0.5 * norm)

    def _feasible(self) -> tuple[FloatArray, FloatArray]:
        """Return a feasible point near that of the tasks, and its scores."""
        A = self.problem.loss.repair(self._duals())
        both = np.column_stack([self.rows.apply(a) for a in A.T])
        return A, both - self.rows.rho * (self.Q @ (self.Q.T @ A))


class BesideSweeps(SampleSweeps):
    """The inner problem of the Crammer-Singer loss with covariates, warm-started.

    Returned points are feasible.
    """

    def __init__(self, problem: Problem, start: Iterate | None, seed: int = 0) -> None:
        super().__init__(problem, start, seed)
        self.E = self.loss.design.basis  # type: ignore[union-attr]
        bank = problem.bank.with_features(self.E, "covariates")
        plain = replace(self.loss, design=None)
        beside = None
        if start is not None:
            beside = Iterate(self._with(start.theta, 0.0), self.A)
        weights = _AnyWeights(problem.weights.fixed)
        made: Any = problem
        made = replace(made, bank=bank, loss=plain, weights=weights)
        self.sweeps = SampleSweeps(made, beside, seed)
        self.sweeps.coarse = np.inf
        self.multipliers = np.zeros((self.E.shape[1], self.loss.n_classes))
        self.rho, self.size = 0.0, np.inf

    def _with(self, theta: FloatArray, rho: float) -> FloatArray:
        """Return weights of the kernels and of the covariates."""
        return np.concatenate([theta, np.full((*theta.shape[:-1], 1), rho)], axis=-1)

    def between(self, c: int, samples: NDArray[Any]) -> FloatArray:
        """Return the kernel of a class, with a penalty on violations of ``E'A = 0``."""
        K = super().between(c, samples)
        E = self.E[samples]
        return np.asarray(K + _STIFF * self.rho * (E @ E.T))

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve for ``theta`` until the inner duality gap is at most ``allowed``."""
        self.theta = theta
        traces = np.atleast_2d(theta) @ self.problem.sizes.sum(axis=0)
        # if the kernels have almost no weight, rho is such that scores are of order one
        most = float(self.costs.max(initial=0.0))
        self.rho = max(float(np.max(traces)), 1.0 / max(most, 1e-300))
        if self.sharp > 0.0:
            total = theta.sum(axis=-1)
            least = float(np.min(total[total > 0], initial=np.inf))
            allowed = min(allowed, self.sharp * least)
        inner, rough = self.sweeps, 0.1
        best, strain = _Best(), np.inf
        for _ in range(_ROUNDS):
            inner.shift = self.E @ self.multipliers
            A, _ = yield from inner.solve(
                self._with(theta, self.rho), rough * max(self.size, 0.0)
            )
            off = self.E.T @ A
            A = self.loss.repair(A)
            F = self.products.scores(theta, A)
            gap = self._gap(A, F, self.multipliers + self.rho * off)
            best.offer((A, F), gap)
            enough = max(min(allowed, self.coarse * self.size), 1e-13 * self.size)
            if gap <= enough or best.idle > 25:  # the rest is rounding
                break
            yield Iterate(theta, A, complete=False)
            self.multipliers = self.multipliers + self.rho * off
            before, strain = strain, float(np.abs(off).max())
            if strain > 0.5 * before:  # slow convergence: increase the penalty
                self.rho *= 4.0
            rough = max(min(0.5 * rough, 0.1 * gap / self.size), 1e-14)
        self.A = best.found[0]
        return best.found

    def _gap(self, A: FloatArray, F: FloatArray, effects: FloatArray) -> float:
        """Return the duality gap for fixed weights, at the effects of multipliers."""
        loss, norm = self.loss, float(np.sum(A * F))
        upper = float(loss.C @ loss.slacks(F + self.E @ effects)) + 0.5 * norm
        self.size = abs(upper)
        return upper - (loss.dual(A) - 0.5 * norm)


@dataclass(frozen=True)
class _AnyWeights:
    """Weights that the caller sets, including that of the covariates."""

    fixed: bool

    smooth = True

    def center(self, n_kernels: int) -> FloatArray:
        return np.ones(n_kernels)


def sweeps(problem: Problem, start: Iterate | None, seed: int = 0) -> SampleSweeps:
    """Return the solver of the Crammer-Singer loss for given weights."""
    if problem.loss.design is None:
        return SampleSweeps(problem, start, seed)
    return BesideSweeps(problem, start, seed)
