"""The inner problem of a box loss with the matrix in memory, by blocks of variables.

A few dozen of the most violating variables are optimised with all others fixed. Steps
on their block of the matrix stay in the processor's cache, and the gradient of all
variables is updated once per block (decomposition as in Joachims 1998, with working
pairs chosen by second-order information within the block).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.compiling import njit
from mklearn.problems.mkl import RoughProblem
from mklearn.problems.protocols import Box, BoxLoss
from mklearn.solvers.base import Iterate
from mklearn.solvers.smo import Found, Variables, minimise_coordinates, unfinished

FloatArray = NDArray[np.float64]

_BLOCK = 32  # variables that are optimised together
_ROUNDS = 1000  # blocks before control returns to Python, which handles Ctrl-C


class DenseSolver:
    """All tasks of a rough problem for given weights, warm-started.

    Parameters
    ----------
    problem : RoughProblem
        A problem with a box loss.
    start : Iterate, optional
    coarse : float
        Relative inner gap that is sufficient while the outer gap is unknown.
    """

    def __init__(
        self, problem: RoughProblem, start: Iterate | None, coarse: float = 3e-3
    ) -> None:
        self.problem, self.coarse = problem, coarse
        self.theta = problem.center()
        loss = problem.loss
        assert isinstance(loss, BoxLoss)
        boxes = [loss.box(t) for t in range(loss.shape[1])]
        A = np.zeros(loss.shape)
        if start is not None:
            A, self.theta = start.A, start.theta
        A = loss.repair(A)
        self.tasks = [_Task(box, A[:, t]) for t, box in enumerate(boxes)]
        self.at: FloatArray | None = None

    @property
    def bank(self) -> Any:
        """The Gram matrices, which have the interface of a bank."""
        return self.problem.grams

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` for every kernel."""
        return self.problem.quads(A)

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""
        K = self.problem.grams.combine(self.theta if self.at is None else self.at)
        return np.asarray(K[np.ix_(samples, samples)], dtype=np.float64)

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve for ``theta`` until the inner duality gap is at most ``allowed``."""
        K = self.problem.grams.combine(theta)
        A = self._duals()
        if self.at is None or not np.array_equal(theta, self.at):
            self.at = theta
            F = self.problem.grams.apply(theta, A)
            for task, f in zip(self.tasks, F.T, strict=True):
                task.refresh(f)
        else:
            F = self._scores()
        # violations are differences of scores, and scale with these
        eps = 0.2 * min(1.0, float(np.ptp(F, axis=0).max(initial=0.0)) or 1.0)
        loss = self.problem.loss
        while True:
            for task in self.tasks:
                for _ in unfinished(task, partial(task.run, K, eps)):
                    yield Iterate(theta, self._duals(), complete=False)
            A, F = self._duals(), self._scores()
            norm = float(np.sum(A * F))
            bias = np.array([task.bias for task in self.tasks])
            upper = loss.primal(F, bias) + 0.5 * norm
            gap, size = upper - (loss.dual(A) - 0.5 * norm), abs(upper)
            enough = max(min(allowed, self.coarse * size), 1e-13 * size)
            if gap <= enough or eps < 1e-13:  # smaller violations are rounding errors
                return A, F
            yield Iterate(theta, A, complete=False)
            # the gap decreases roughly in proportion to the violation
            eps *= min(max(0.5 * enough / gap, 0.02), 0.3)

    def _duals(self) -> FloatArray:
        return np.stack([task.a for task in self.tasks], axis=1)

    def _scores(self) -> FloatArray:
        return np.stack([task.scores for task in self.tasks], axis=1)


class _Task(Variables):
    """One quadratic program."""

    def __init__(self, box: Box, a: FloatArray) -> None:
        super().__init__(box, a)
        self.bias = 0.0

    @property
    def scores(self) -> FloatArray:
        """``K a``, one for each sample."""
        box = self.box
        return (self.gradient - box.linear - box.ridge * self.c)[: self.n]

    def refresh(self, scores: FloatArray) -> None:
        """Set the gradient from the scores of new weights."""
        both = np.concatenate([scores, scores]) if self.split else scores
        self.gradient = both + self.box.linear + self.box.ridge * self.c

    def run(self, K: FloatArray, eps: float) -> bool:
        """Optimise until no pair violates by more than ``eps``; return whether so."""
        box = self.box
        if not box.hyperplane:
            return minimise_coordinates(K, box, self.c, self.gradient, eps)
        top, bottom = _by_blocks(
            K, box.lower, box.upper, box.ridge, self.c, self.gradient, eps, _ROUNDS
        )
        self.bias = 0.5 * (top + bottom) if np.isfinite(top + bottom) else 0.0
        return bool(top - bottom <= eps)


@njit(cache=True, nogil=True)
def _by_blocks(K, lower, upper, ridge, c, g, eps, rounds):  # type: ignore[no-untyped-def]
    # Returns the bounds on the bias, which differ by the largest violation.
    n, size = K.shape[0], c.size
    half = min(_BLOCK, size) // 2
    up, down = np.empty(half, np.int64), np.empty(half, np.int64)
    work = np.empty(2 * half, np.int64)
    move = np.empty(2 * half)
    block = np.empty((2 * half, 2 * half))
    cw, gw, lw, uw = (
        np.empty(2 * half), np.empty(2 * half), np.empty(2 * half), np.empty(2 * half)
    )  # fmt: skip
    change = np.empty(n)
    top, bottom = np.inf, -np.inf
    for _ in range(rounds):
        n_up, n_down = 0, 0
        least, most = -np.inf, np.inf  # thresholds for the selection
        for t in range(size):
            v = -g[t]
            if c[t] < upper[t] and (n_up < half or v > least):
                k = n_up if n_up < half else half - 1
                while k > 0 and -g[up[k - 1]] < v:
                    up[k] = up[k - 1]
                    k -= 1
                up[k] = t
                n_up = min(n_up + 1, half)
                least = -g[up[n_up - 1]]
            if c[t] > lower[t] and (n_down < half or v < most):
                k = n_down if n_down < half else half - 1
                while k > 0 and -g[down[k - 1]] > v:
                    down[k] = down[k - 1]
                    k -= 1
                down[k] = t
                n_down = min(n_down + 1, half)
                most = -g[down[n_down - 1]]
        if n_up == 0 or n_down == 0:
            return 0.0, 0.0
        top, bottom = -g[up[0]], -g[down[0]]
        if top - bottom <= eps:
            return top, bottom
        # only variables of violating pairs, each of them once
        q = 0
        for k in range(n_up):
            if -g[up[k]] > bottom:
                work[q] = up[k]
                q += 1
        first = q
        for k in range(n_down):
            t = down[k]
            if -g[t] < top:
                known = False
                for other in range(first):
                    if work[other] == t:
                        known = True
                        break
                if not known:
                    work[q] = t
                    q += 1
        for a in range(q):
            t = work[a]
            s = t if t < n else t - n
            row = K[s]
            for b in range(q):
                w = work[b]
                block[a, b] = row[w if w < n else w - n]
            block[a, a] += ridge[t]
            cw[a], gw[a], lw[a], uw[a] = c[t], g[t], lower[t], upper[t]
        _within(block, q, cw, gw, lw, uw, max(0.5 * eps, 0.1 * (top - bottom)))
        for a in range(q):
            t = work[a]
            move[a] = cw[a] - c[t]
            c[t] = cw[a]
            g[t] += move[a] * ridge[t]
        change[:] = 0.0
        _add(K, work, move, q, n, change)
        for t in range(n):
            g[t] += change[t]
        for t in range(n, size):
            g[t] += change[t - n]
    return top, bottom


@njit(cache=True, nogil=True)
def _within(K, q, c, g, lower, upper, eps):  # type: ignore[no-untyped-def]
    # steps on pairs of the block until none violates by more than eps
    for _ in range(50 * q):
        top, bottom, i = -np.inf, np.inf, -1
        for t in range(q):
            if -g[t] > top and c[t] < upper[t]:
                top, i = -g[t], t
            if -g[t] < bottom and c[t] > lower[t]:
                bottom = -g[t]
        if top - bottom <= eps:
            return
        best, j, curvature = -1.0, -1, 1.0
        row_i = K[i]
        for t in range(q):
            rise = top + g[t]
            if rise > 0.0 and c[t] > lower[t]:
                a = max(K[i, i] + K[t, t] - 2.0 * row_i[t], 1e-12)
                if rise * rise > best * a:
                    best, j, curvature = rise * rise / a, t, a
        step = (top + g[j]) / curvature
        room_i, room_j = upper[i] - c[i], c[j] - lower[j]
        if step >= room_i and room_i <= room_j:
            step = room_i
            c[i], c[j] = upper[i], c[j] - step
        elif step >= room_j:
            step = room_j
            c[i], c[j] = c[i] + step, lower[j]
        else:
            c[i] += step
            c[j] -= step
        row_j = K[j]
        for t in range(q):
            g[t] += step * (row_i[t] - row_j[t])


@njit(cache=True, nogil=True, fastmath=True)
def _add(K, work, move, q, n, out):  # type: ignore[no-untyped-def]
    # four rows at a time, to read and write the sums less often
    a = 0
    while a + 4 <= q:
        w0, w1, w2, w3 = move[a], move[a + 1], move[a + 2], move[a + 3]
        if w0 != 0.0 or w1 != 0.0 or w2 != 0.0 or w3 != 0.0:
            k0, k1 = K[work[a] % n], K[work[a + 1] % n]
            k2, k3 = K[work[a + 2] % n], K[work[a + 3] % n]
            for t in range(n):
                out[t] += w0 * k0[t] + w1 * k1[t] + w2 * k2[t] + w3 * k3[t]
        a += 4
    while a < q:
        w, k = move[a], K[work[a] % n]
        for t in range(n):
            out[t] += w * k[t]
        a += 1
