"""Interleaved optimisation: weight steps inside the working-set method, no row kept."""

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

    What each kernel says of each sample, ``S_m = K_m A``, is kept up to date. Then the
    gradient for any weights, the weights' own update and the duality gap follow from
    the (n, M) numbers of S, and a step costs the columns of its working set and nothing
    else: neither Grams nor rows are stored, whatever the number of kernels.

    It is for problems whose rows do not fit into memory. Where they do, each sample is
    looked at many times for what a row would have kept, and other solvers take a small
    part of the time.

    Parameters
    ----------
    working_set : int
        Variables that are optimised together.
    every : int
        Working-set steps between two updates of the weights.
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
            "solver='interleaved' keeps one sum of the dual variables, and covariates "
            "(fixed=) ask for several; use solver='newton'.",
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
                bank = problem.bank  # single precision has done what it can
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
    """One task's variables and how a working set of them is optimised."""

    def step(
        self, bank: KernelBank, theta: FloatArray, S: FloatArray, count: int
    ) -> tuple[Index, FloatArray]:
        """Optimise the worst violators; return which samples moved, and how far."""
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
    """Return by how much the worst pair (or variable) violates optimality."""
    up = np.max(-gradient[c < box.upper], initial=-np.inf)
    down = np.max(gradient[c > box.lower], initial=-np.inf)
    return max(float(up + down if box.hyperplane else max(up, down)), 0.0)
