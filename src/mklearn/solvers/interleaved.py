"""Interleaved optimisation: weight updates within the working-set method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.bank import KernelBank
from mklearn.problems.mkl import Problem
from mklearn.problems.protocols import Box, BoxLoss
from mklearn.solvers.base import Iterate, Iterates, Need
from mklearn.solvers.smo import Variables, solve_dense

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Interleaved:
    """Algorithm 2 of LPMKL: few variables at a time, weights updated in between.

    The scores of each kernel, ``S_m = K_m A``, are kept up to date. The gradient for
    any weights, the update of the weights and the duality gap then follow from the
    (n, M) entries of S, and a step only needs the columns of its working set: neither
    Gram matrices nor rows are stored, whatever the number of kernels.

    It is for problems whose rows do not fit into memory. If they fit, other solvers are
    much faster, because this one computes the same kernel values repeatedly.

    Parameters
    ----------
    working_set : int
        Number of variables that are optimised together.
    every : int
        Number of working-set steps between two updates of the weights.
    """

    working_set: int = 128
    every: int = 1

    needs = (
        Need(
            "solver='interleaved' needs a loss with a box in the dual (hinge, squared "
            "hinge, epsilon-insensitive, one-class), not {loss}; use solver='newton'.",
            loss=BoxLoss,
        ),
        Need(
            "solver='interleaved' supports one equality constraint on the dual "
            "variables, but covariates (fixed=) need several; use solver='newton'.",
            holds=lambda problem: problem.loss.design is None,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield an iterate after each round over the tasks."""
        loss = problem.loss
        assert isinstance(loss, BoxLoss)
        theta = problem.weights.center(problem.bank.shape[2])
        A = np.zeros(loss.shape)
        if start is not None:
            A, theta = start.A, start.theta
        A = loss.repair(A)
        boxes = [loss.box(t) for t in range(loss.shape[1])]
        tasks = [_Task(box, A[:, t]) for t, box in enumerate(boxes)]
        bank = problem.bank.rough()
        S = bank.multiply(A)
        rounds, size, gap = 0, np.inf, np.inf
        while True:
            if bank is not problem.bank and gap < 1e-5 * size:
                bank = problem.bank  # the limit of single precision is reached
                S = bank.multiply(np.stack([task.a for task in tasks], axis=1))
            for t, task in enumerate(tasks):
                moved, change = task.step(bank, theta, S[:, t, :], self.working_set)
                if len(moved):
                    S[:, t, :] += bank[:, moved].multiply(change)[:, 0, :]
            A = np.stack([task.a for task in tasks], axis=1)
            quads = np.maximum(np.einsum("it,itm->m", A, S), 0.0)
            judgement = yield Iterate(theta, A, S @ theta, quads)
            assert judgement is not None
            size, gap = abs(judgement.upper), judgement.upper - judgement.lower
            rounds += 1
            if rounds % self.every == 0:
                theta = problem.weights.step(theta, quads)


class _Task(Variables):
    """The variables of one task, with steps on a working set."""

    def step(
        self, bank: KernelBank, theta: FloatArray, S: FloatArray, count: int
    ) -> tuple[Index, FloatArray]:
        """Optimise the worst violators; return changed samples and their changes."""
        box, before = self.box, self.a.copy()
        scores = S @ theta
        if self.split:
            scores = np.concatenate([scores, scores])
        gradient = scores + box.linear + box.ridge * self.c
        chosen = self._worst(gradient, count)
        samples = chosen % self.n
        K = bank[np.ix_(samples, samples)].combine(theta)
        part = Box(
            gradient[chosen], box.lower[chosen], box.upper[chosen],
            box.ridge[chosen], box.hyperplane,
        )  # fmt: skip
        violation = _violation(gradient, self.c, box)
        self.c[chosen] = solve_dense(K, part, self.c[chosen], 0.1 * violation)
        change = self.a - before
        moved = np.flatnonzero(change)
        return moved, change[moved, None]

    def _worst(self, gradient: FloatArray, count: int) -> Index:
        """Return the variables that violate most in both directions."""
        up = np.where(self.c < self.box.upper, -gradient, -np.inf)
        down = np.where(self.c > self.box.lower, gradient, -np.inf)
        half = min(count // 2, len(gradient))
        worst = [np.argpartition(v, -half)[-half:] for v in (up, down)]
        return np.unique(np.concatenate(worst))


def _violation(gradient: FloatArray, c: FloatArray, box: Box) -> float:
    """Return the largest violation of optimality by a pair (or a variable)."""
    up = np.max(-gradient[c < box.upper], initial=-np.inf)
    down = np.max(gradient[c > box.lower], initial=-np.inf)
    return max(float(up + down if box.hyperplane else max(up, down)), 0.0)
