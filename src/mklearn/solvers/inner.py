"""The inner problem: the best A for given weights, by what suits the loss."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.threads import factor_threads
from mklearn.problems.losses import CrammerSinger
from mklearn.problems.mkl import Problem
from mklearn.solvers.base import Iterate
from mklearn.solvers.crammer_singer import SampleSweeps
from mklearn.solvers.smo import BoxSolver, inner_gap

FloatArray = NDArray[np.float64]
Found = Generator[Iterate, Any, tuple[FloatArray, FloatArray]]


class InnerSolver(Protocol):
    """Solves for A with the weights fixed, again and again from where it was."""

    theta: FloatArray

    @property
    def bank(self) -> KernelBank:
        """The problem's bank, in the precision that the inner accuracy asks for."""

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve until the inner duality gap is at most ``allowed``."""

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` in that precision."""

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""


def inner_solver(problem: Problem, start: Iterate | None) -> InnerSolver:
    """Return SMO for box losses, sweeps for all classes at once, Newton for others."""
    if hasattr(problem.loss, "box"):
        return BoxSolver(problem, start)
    if isinstance(problem.loss, CrammerSinger):
        return SampleSweeps(problem, start)
    return SmoothSolver(problem, start)


class SmoothSolver:
    """Newton on the primal of a smooth loss, one Cholesky factor for each step.

    With curvatures ``h`` of the loss at the scores, the next dual point solves
    ``(K + diag(1/h)) a + b = scores + b_now + slope / h`` and ``sum(a) = 0``; for the
    squared loss one step is exact.
    """

    def __init__(self, problem: Problem, start: Iterate | None) -> None:
        self.problem = problem
        loss, M = problem.loss, problem.bank.shape[2]
        self.coarse = 0.02 if start is None else 1e-3
        self.theta = problem.weights.center(M)
        A = np.zeros(loss.shape)
        if start is not None:
            A, self.theta = start.A, start.theta
        self.A = loss.repair(A)
        self.bank = problem.bank
        self.K: FloatArray | None = None
        self.at: FloatArray | None = None

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>``."""
        return self.bank.quad(A)

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""
        assert self.K is not None
        return self.K[np.ix_(samples, samples)]

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve until the inner duality gap is at most ``allowed``."""
        loss = self.problem.loss
        if self.K is None or self.at is None or not np.array_equal(theta, self.at):
            self.K, self.at = self.problem.bank.combine(theta), theta
        A = self.A
        F = self.K @ A
        bias = loss.bias(F)
        value = loss.primal(F, bias) + 0.5 * float(np.sum(A * F))
        for _ in range(100):
            # the dual point that the scores imply is feasible up to the hyperplane
            implied = loss.repair(loss.slope(F + bias))  # type: ignore[attr-defined]
            scores = self.K @ implied
            gap, size = inner_gap(self.problem, implied, scores)
            if gap <= max(min(allowed, self.coarse * size), 1e-13 * size):
                self.A = implied
                return implied, scores
            yield Iterate(theta, A, complete=False)
            target = self._step(F, bias)
            # the primal value must fall: halve the step until it does
            step = 1.0
            while True:
                trial = A + step * (target - A)
                F_trial = self.K @ trial
                b_trial = loss.bias(F_trial)
                now = loss.primal(F_trial, b_trial) + 0.5 * np.sum(trial * F_trial)
                if now <= value or step < 1e-6:
                    break
                step /= 2
            A, F, bias, value = trial, F_trial, b_trial, float(now)
        self.A = loss.repair(A)
        return self.A, self.K @ self.A

    def _step(self, F: FloatArray, bias: FloatArray) -> FloatArray:
        assert self.K is not None
        loss = self.problem.loss
        slope = loss.slope(F + bias)  # type: ignore[attr-defined]
        bend = np.maximum(loss.bend(F + bias), 1e-12)  # type: ignore[attr-defined]
        out = np.zeros_like(F)
        factor, used = None, np.zeros(0)
        for t in range(F.shape[1]):
            h = bend[:, t]
            if factor is None or not np.array_equal(h, used):
                system = self.K + np.diag(1.0 / h)
                with factor_threads(len(system)):
                    factor = cho_factor(system, lower=True, overwrite_a=True)
                used = h
            right = F[:, t] + bias[t] + slope[:, t] / h
            both = cho_solve(factor, np.c_[right, np.ones(len(right))])
            out[:, t] = both[:, 0]
            if loss.hyperplane:
                shift = both[:, 0].sum() / both[:, 1].sum()
                out[:, t] -= shift * both[:, 1]
            else:
                out[:, t] = cho_solve(factor, right)
        return out
