"""Sequential minimal optimisation for box-and-hyperplane quadratic programs.

    min ½ c'(K + diag(ridge))c + linear'c     lower <= c <= upper,  sum(c) = const

in signed variables (``c = y * alpha`` for the hinge loss), so that the same loop solves
hinge, squared hinge, ε-insensitive and one-class problems. Working pairs are chosen by
second-order information (Fan, Chen, Lin 2005). Variables at a bound are removed from
the active set (shrinking) and checked again before the end. Rows of K come from a
bounded cache, which loads missing rows from the bank. The compiled loop returns to
Python for missing rows and after a bounded number of steps, so that Ctrl-C and time
limits work. If convergence is slow because kernels are badly scaled, an interior-point
method is tried once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.compiling import njit
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.dense import WeightedSum
from mklearn.problems.mkl import MKLProblem, Problem
from mklearn.problems.protocols import Box, BoxLoss
from mklearn.solvers.base import Iterate
from mklearn.solvers.interior import minimise_in_box

FloatArray = NDArray[np.float64]
Found = Generator[Iterate, Any, tuple[FloatArray, FloatArray]]

_DONE, _MISSING, _STEPS = 0, 1, 2
_LOAD = 2**23  # maximum number of entries of rows that are loaded together
_ALL_AT_ONCE = 6e7  # number of kernel values up to which all are computed at once
_SMALL = (
    1e6  # entries of a combined kernel up to which it is always computed as a whole
)
_MOST = 0.4  # share of rows above which all are computed, by symmetry
_PATIENCE = 10  # runs of pairs after which an interior-point method is tried, once,
_LEAP = 3000  # if there are at most this many variables
_ROUNDING = 1e-13  # violations below which steps are not worth their rounding errors


class RowCache:
    """Cache of rows of the combined kernel, within the bank's memory budget.

    Parameters
    ----------
    bank : KernelBank
    sum : WeightedSum, optional
        Where all rows together come from.
    """

    def __init__(self, bank: KernelBank, sum: WeightedSum | None = None) -> None:
        self.sum = sum
        self.exact, self.rough = bank, bank.rough()
        self.bank = self.rough
        n = bank.shape[0]
        self.budget = bank.row_budget()
        self.slot = np.full(n, -1, dtype=np.int64)  # position of the row of a sample
        self._allocate(exact=self.budget >= n)
        self._diags = bank.diag()
        self.diag = np.zeros(n)
        self.theta = np.full(bank.shape[2], np.nan)

    def set_theta(self, theta: FloatArray, exact: bool = True) -> None:
        """Change the weights or the precision, and clear the cache."""
        self.theta = theta
        self.bank = self.exact if exact else self.rough
        if self.shared or (exact and self.rows.dtype != np.float64):
            self._allocate(exact or self.shared)
        self.diag = self._diags @ theta
        self.slot[:] = -1
        self.owner[:] = -1
        self.stamp[:] = 0
        self.used = 0

    def _allocate(self, exact: bool) -> None:
        """Allocate memory for rows: float64, or twice as many in float32."""
        n = len(self.slot)
        self.shared = False  # whether the rows are those of the sum
        self.rows = np.empty((0, n))  # free the old ones first
        self.capacity = min(n, self.budget if exact else 2 * self.budget)
        self.rows = np.empty((self.capacity, n), np.float64 if exact else np.float32)
        self.owner = np.full(self.capacity, -1, dtype=np.int64)
        self.stamp = np.zeros(self.capacity, dtype=np.int64)  # time of the last use
        self.slot[:] = -1
        self.used = 0

    def load(self, samples: NDArray[Any], keep: int = -1) -> None:
        """Load the missing rows of ``samples``; never evict that of ``keep``."""
        held = self.slot[samples]
        # requested rows count as used, so that the others do not evict them
        self.stamp[held[held >= 0]] = self.stamp.max(initial=0) + 1
        wanted = samples[held < 0]
        n = len(self.slot)
        if len(wanted) == n == self.capacity and self.rows.dtype == np.float64:
            self._fill()
            self.slot[:] = self.owner[:] = np.arange(n)
            self.stamp[:] = self.stamp.max(initial=0) + 1
            self.used = n
            return
        together = max(64, _LOAD // len(self.slot))
        for i in range(0, len(wanted), together):
            part = wanted[i : i + together]
            slots = self._free_slots(len(part), keep)
            self.rows[slots] = self._columns(part)
            self.slot[part] = slots
            self.owner[slots] = part
            self.stamp[slots] = self.stamp.max(initial=0) + 1

    def _fill(self) -> None:
        """Compute all rows: one triangle of them, by symmetry."""
        if self.sum is not None:
            self.rows, self.shared = self.sum.at(self.theta), True
            return
        self.bank.combine_symmetric(self.theta, self.rows)

    def _columns(self, part: NDArray[Any]) -> FloatArray:
        """Return the rows of some samples."""
        return self.bank.columns(part, self.theta, many=True)

    def apply(self, a: FloatArray) -> FloatArray:
        """Return the combined kernel times a vector."""
        used = np.flatnonzero(a)
        if len(used) > self.capacity:
            return self.bank.apply(self.theta, a[:, None])[:, 0]
        self.load(used)
        out = np.zeros(len(a))
        _add_rows(self.rows, self.slot[used], a[used], out)
        return out

    def block(self, a: NDArray[Any], b: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between two sets of samples."""
        if len(a) <= self.capacity:
            self.load(a)
            return _gather(self.rows, self.slot[a], b)
        return self.bank[np.ix_(a, b)].combine(self.theta)

    def _free_slots(self, count: int, keep: int) -> NDArray[Any]:
        fresh = min(count, self.capacity - self.used)
        slots = np.arange(self.used, self.used + fresh)
        self.used += fresh
        if fresh < count:
            age = self.stamp.astype(np.float64)
            age[slots] = np.inf
            if keep >= 0 and self.slot[keep] >= 0:
                age[self.slot[keep]] = np.inf
            old = np.argpartition(age, count - fresh - 1)[: count - fresh]
            self.slot[self.owner[old]] = -1
            slots = np.r_[slots, old]
        return slots


class Variables:
    """The variables of a box: one for each sample, or its two parts by sign."""

    def __init__(self, box: Box, a: FloatArray) -> None:
        self.box, self.n = box, len(a)
        self.split = len(box.linear) == 2 * self.n
        parts = [np.maximum(a, 0.0), np.minimum(a, 0.0)] if self.split else [a]
        self.c = np.concatenate(parts)
        self.gradient = box.linear.copy()

    @property
    def value(self) -> float:
        """The objective, ``½ c'Qc + c'linear``."""
        return 0.5 * float(self.c @ (self.gradient + self.box.linear))

    @property
    def a(self) -> FloatArray:
        """The dual variables, one for each sample."""
        return self.c[: self.n] + self.c[self.n :] if self.split else self.c


class BoxQP(Variables):
    """One quadratic program with rows from a cache; its state is kept between calls."""

    def __init__(self, rows: RowCache, box: Box, a: FloatArray) -> None:
        super().__init__(box, a)
        self.rows = rows
        self.active = np.arange(len(self.c))
        self.n_active = len(self.c)
        self.steps = 0

    @property
    def scores(self) -> FloatArray:
        """``K a``, one for each sample."""
        box = self.box
        return (self.gradient - box.linear - box.ridge * self.c)[: self.n]

    def refresh(self) -> None:
        """Recompute the gradient after a change of the weights or of ``c``."""
        scores = self.rows.apply(self.a)
        if self.split:
            scores = np.concatenate([scores, scores])
        self.gradient = scores + self.box.linear + self.box.ridge * self.c
        self.active = np.arange(len(self.c))
        self.n_active = len(self.c)

    def run(self, eps: float, max_steps: int = 20_000) -> bool:
        """Optimise until no pair violates by more than ``eps``, or for ``max_steps``.

        Returns whether the former holds.
        """
        rows, box = self.rows, self.box
        loop = _smo if box.hyperplane else _coordinates
        left = max_steps
        while left > 0:
            status, i, keep, made, self.n_active = loop(
                rows.rows, rows.slot, rows.stamp, rows.diag, box.lower, box.upper,
                box.ridge, self.c, self.gradient, self.active, self.n_active, eps, left,
            )  # fmt: skip
            left -= made
            self.steps += made
            if status == _MISSING:
                rows.load(self._likely(i), keep)
            elif status == _DONE:
                if self.n_active == len(self.c):
                    return True
                self.refresh()  # reactivate shrunk variables and check them
        if self.n_active < len(self.c):
            self.refresh()  # callers need the gradient of all variables
        return False

    def leap(self) -> None:
        """Move to the solution of an interior-point method if it is better.

        SMO converges slowly if the kernel is badly conditioned; the time of an
        interior-point method does not depend on that. The caller makes sure that there
        are not too many variables.
        """
        n, box, c = self.n, self.box, self.c
        K = self.rows.block(np.arange(n), np.arange(n))
        Q = np.tile(K, (2, 2)) if self.split else K
        Q[np.diag_indices_from(Q)] += box.ridge
        total = float(c.sum()) if box.hyperplane else None
        before = self.value
        found = minimise_in_box(Q, box.linear, box.lower, box.upper, total)
        if total is not None:
            found = _with_sum(found, total, box)
        self.c = found
        self.refresh()
        if not self.value < before:
            self.c = c
            self.refresh()

    def _likely(self, i: int) -> NDArray[Any]:
        """Return the missing row, and those of the worst violators.

        The more rows have been needed so far, the more are loaded at once.
        """
        rows = self.rows
        half = min(rows.used // 16, rows.capacity // 8, 128)
        if half < 2 or self.steps < 100:  # the violators are not known yet
            return np.array([i])
        g, lower, upper = self.gradient, self.box.lower, self.box.upper
        missing = rows.slot < 0
        if self.split:
            missing = np.concatenate([missing, missing])
        up = np.where(missing & (self.c < upper), -g, -np.inf)
        down = np.where(missing & (self.c > lower), g, -np.inf)
        worst = [np.argpartition(v, -half)[-half:] for v in (up, down)]
        extra = np.unique(np.concatenate(worst) % self.n)
        return np.r_[i, extra[(rows.slot[extra] < 0) & (extra != i)]]


def _with_sum(c: FloatArray, total: float, box: Box) -> FloatArray:
    """Return variables within their box with the prescribed sum, up to rounding."""
    for _ in range(3):
        off = total - float(c.sum())
        room = box.upper - c if off > 0 else c - box.lower
        if off == 0.0 or not room.any():
            break
        c = np.clip(c + off * room / float(room.sum()), box.lower, box.upper)
    return c


def unfinished(task: Variables, run: Callable[[], bool]) -> Iterator[None]:
    """Call ``run`` until it returns True, yielding after each call that does not.

    If violations are rounding errors, further steps do not decrease the objective, and
    the task counts as finished.
    """
    before = np.inf
    while not run():
        value = task.value
        if not before - value > 1e-14 * abs(value):
            return
        before = value
        yield


def inner_gap(problem: Problem, A: FloatArray, F: FloatArray) -> tuple[float, float]:
    """Return the duality gap for fixed weights, and the size of the objective."""
    loss = problem.loss
    norm = float(np.sum(A * F))
    upper = loss.primal(F, loss.bias(F)) + 0.5 * norm
    return upper - (loss.dual(A) - 0.5 * norm), abs(upper)


class BoxSolver:
    """The inner problem of a box loss: all tasks for given weights, warm-started."""

    def __init__(self, problem: Problem, start: Iterate | None) -> None:
        self.problem = problem
        n, T = problem.loss.shape
        self.sum = problem.sum if isinstance(problem, MKLProblem) else None
        self.rows = RowCache(problem.bank, self.sum)
        # a rough solution suffices for initial weights, but not for a warm start
        self.coarse = 0.02 if start is None else 1e-3
        self.size = np.inf  # size of the objective, initially unknown
        self.ratio = 0.0  # of gap and violation, the last time
        self.theta = problem.weights.center(problem.bank.shape[2])
        A = np.zeros((n, T))
        if start is not None:
            A, self.theta = start.A, start.theta
        A = problem.loss.repair(A)
        assert isinstance(problem.loss, BoxLoss)
        boxes = [problem.loss.box(t) for t in range(T)]
        self.tasks = [BoxQP(self.rows, box, A[:, t]) for t, box in enumerate(boxes)]

    def solve(self, theta: FloatArray, allowed: float) -> Found:
        """Solve for ``theta`` until the inner duality gap is at most ``allowed``.

        Yields intermediate points; returns ``A`` and the scores ``K_theta A``.
        """
        rows = self.rows
        n, _, M = rows.bank.shape
        small = n * n <= _SMALL
        # rows in single precision suffice until the gap approaches their error
        exact = small or rows.bank is rows.exact or allowed < 1e-5 * self.size
        if not np.array_equal(theta, rows.theta) or (exact and rows.bank is rows.rough):
            rows.set_theta(theta, exact)
            # whether it is known which samples need a row
            known = not small and any(task.steps for task in self.tasks)
            every = not known and n * n * M < _ALL_AT_ONCE
            if self.sum is not None:
                # all rows by symmetry take less than most of them one by one
                used = int(np.count_nonzero(self._duals().any(axis=1)))
                every = every or used > _MOST * n
            if every and rows.capacity == n:
                rows.load(np.arange(n))
            for task in self.tasks:
                task.refresh()
        # the gap decreases roughly in proportion to the violation
        goal = max(min(allowed, self.coarse * self.size), 1e-13 * self.size)
        eps = 0.1
        if self.ratio > 0.0:
            eps = min(eps, max(0.5 * goal / self.ratio, _ROUNDING))
        leapt = [False] * len(self.tasks)
        while True:
            for t, task in enumerate(self.tasks):
                runs = unfinished(task, partial(task.run, eps))
                for number, _ in enumerate(runs, 1):
                    if number == _PATIENCE and len(task.c) <= _LEAP and not leapt[t]:
                        task.leap()
                        leapt[t] = True
                    yield Iterate(theta, self._duals(), complete=False)
            A, F = self._duals(), self._scores()
            gap, self.size = inner_gap(self.problem, A, F)
            size = self.size
            self.ratio = gap / eps
            enough = max(min(allowed, self.coarse * size), 1e-13 * size)
            if gap <= enough or eps < _ROUNDING:
                return A, F
            yield Iterate(theta, A, complete=False)
            eps *= min(max(0.5 * enough / gap, 0.02), 0.2)

    def _duals(self) -> FloatArray:
        return np.stack([task.a for task in self.tasks], axis=1)

    def _scores(self) -> FloatArray:
        return np.stack([task.scores for task in self.tasks], axis=1)

    @property
    def bank(self) -> KernelBank:
        """The bank in the precision that is in use."""
        return self.rows.bank

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` in that precision."""
        return self.bank.quad(A)

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernel between some samples."""
        return self.rows.block(samples, samples)


@njit(cache=True, nogil=True, fastmath=True)
def _add_rows(rows, slots, weights, out):  # type: ignore[no-untyped-def]
    for k in range(slots.size):
        row, w = rows[slots[k]], weights[k]
        for j in range(out.size):
            out[j] += w * row[j]


@njit(cache=True, nogil=True)
def _gather(rows, slots, cols):  # type: ignore[no-untyped-def]
    out = np.empty((slots.size, cols.size))
    for i in range(slots.size):
        row = rows[slots[i]]
        for j in range(cols.size):
            out[i, j] = row[cols[j]]
    return out


@njit(cache=True, nogil=True)
def _smo(  # type: ignore[no-untyped-def]
    rows, slot, stamp, diag, lower, upper, ridge, c, g, active, n_active, eps, max_steps
):
    # Returns (status, missing row, row to keep, steps made, active variables left).
    # Variables n, n + 1, ... are the second variables of samples 0, 1, ...
    n = slot.size
    clock = stamp.max() + 1
    shrink_every = min(1000, c.size)
    since = 0
    step = 0
    top, i, bottom = _extremes(c, g, lower, upper, active, n_active)
    while step < max_steps:
        if top - bottom <= eps:
            return _DONE, -1, -1, step, n_active
        if since >= shrink_every:
            n_active = _shrink(c, g, lower, upper, active, n_active, top, bottom)
            since = 0
        si = i if i < n else i - n
        if slot[si] < 0:
            return _MISSING, si, -1, step, n_active
        row_i = rows[slot[si]]
        own = diag[si] + ridge[i]
        # the partner with the largest gain: maximise (g_j - g_i)^2 / curvature
        best, j, curvature = -1.0, -1, 1.0
        for k in range(n_active):
            t = active[k]
            if c[t] > lower[t]:
                rise = top + g[t]
                if rise > 0.0:
                    s = t if t < n else t - n
                    a = own + diag[s] + ridge[t] - 2.0 * row_i[s]
                    if a <= 1e-12:
                        a = 1e-12
                    gain = rise * rise / a
                    if gain > best:
                        best, j, curvature = gain, t, a
        sj = j if j < n else j - n
        if slot[sj] < 0:
            return _MISSING, sj, si, step, n_active
        row_j = rows[slot[sj]]
        stamp[slot[si]] = clock
        stamp[slot[sj]] = clock
        clock += 1
        move = (top + g[j]) / curvature
        room_i, room_j = upper[i] - c[i], c[j] - lower[j]
        if move >= room_i and room_i <= room_j:
            move = room_i
            c[i], c[j] = upper[i], c[j] - move
        elif move >= room_j:
            move = room_j
            c[i], c[j] = c[i] + move, lower[j]
        else:
            c[i] += move
            c[j] -= move
        step += 1
        since += 1
        g[i] += move * ridge[i]
        g[j] -= move * ridge[j]
        # new gradient and, in the same loop, the next violating pair
        top, bottom, i = -np.inf, np.inf, -1
        for k in range(n_active):
            t = active[k]
            s = t if t < n else t - n
            value = g[t] + move * (row_i[s] - row_j[s])
            g[t] = value
            if -value > top and c[t] < upper[t]:
                top, i = -value, t
            if -value < bottom and c[t] > lower[t]:
                bottom = -value
    return _STEPS, -1, -1, step, n_active


@njit(cache=True, nogil=True)
def _extremes(c, g, lower, upper, active, n_active):  # type: ignore[no-untyped-def]
    top, bottom, i = -np.inf, np.inf, -1
    for k in range(n_active):
        t = active[k]
        if -g[t] > top and c[t] < upper[t]:
            top, i = -g[t], t
        if -g[t] < bottom and c[t] > lower[t]:
            bottom = -g[t]
    return top, i, bottom


@njit(cache=True, nogil=True)
def _shrink(c, g, lower, upper, active, n_active, top, bottom):  # type: ignore[no-untyped-def]
    # Removes variables at a bound that even the worst violator could not move.
    kept = 0
    for k in range(n_active):
        t = active[k]
        at_upper, at_lower = c[t] >= upper[t], c[t] <= lower[t]
        rests = (
            (at_upper and at_lower)
            or (at_upper and -g[t] > top)
            or (at_lower and -g[t] < bottom)
        )
        if not rests:
            active[kept] = t
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _coordinates(  # type: ignore[no-untyped-def]
    rows, slot, stamp, diag, lower, upper, ridge, c, g, active, n_active, eps, max_steps
):
    # The same without the hyperplane: one variable at a time, with the largest gain.
    n = slot.size
    clock = stamp.max() + 1
    for step in range(max_steps):
        best, worst, i = 0.0, 0.0, -1
        for t in range(c.size):
            if (g[t] < 0.0 and c[t] < upper[t]) or (g[t] > 0.0 and c[t] > lower[t]):
                s = t if t < n else t - n
                worst = max(worst, abs(g[t]))
                a = max(diag[s] + ridge[t], 1e-12)
                gain = g[t] * g[t] / a
                if gain > best:
                    best, i = gain, t
        if worst <= eps / 2 or i < 0:
            return _DONE, -1, -1, step, n_active
        si = i if i < n else i - n
        if slot[si] < 0:
            return _MISSING, si, -1, step, n_active
        row = rows[slot[si]]
        stamp[slot[si]] = clock
        clock += 1
        goal = c[i] - g[i] / max(diag[si] + ridge[i], 1e-12)
        goal = min(max(goal, lower[i]), upper[i])
        move = goal - c[i]
        c[i] = goal
        g[i] += move * ridge[i]
        for t in range(c.size):
            g[t] += move * row[t if t < n else t - n]
    return _STEPS, -1, -1, max_steps, n_active


def minimise_coordinates(
    K: FloatArray, box: Box, c: FloatArray, g: FloatArray, eps: float
) -> bool:
    """Optimise a QP without a hyperplane, with the matrix in memory, in place.

    Returns True if no variable violates by more than ``eps``, and False if the limit on
    the number of steps was reached before.
    """
    n = len(K)
    status = _coordinates(
        K, np.arange(n), np.zeros(n, dtype=np.int64), np.diagonal(K).copy(), box.lower,
        box.upper, box.ridge, c, g, np.arange(len(c)), len(c), eps, 20_000,
    )[0]  # fmt: skip
    return bool(status == _DONE)


def solve_dense(K: FloatArray, box: Box, c: FloatArray, eps: float) -> FloatArray:
    """Solve a small QP with the matrix in memory; ``box.linear`` is the gradient.

    The gradient at ``c`` replaces the linear term, so the matrix may be a block of a
    larger problem.
    """
    n = len(c)
    rows = np.ascontiguousarray(K)
    slot, stamp = np.arange(n), np.zeros(n, dtype=np.int64)
    c, g = c.copy(), box.linear.copy()
    loop = _smo if box.hyperplane else _coordinates
    loop(
        rows, slot, stamp, np.diagonal(K).copy(), box.lower, box.upper, box.ridge,
        c, g, np.arange(n), n, max(eps, 1e-14), 100 * n + 1000,
    )  # fmt: skip
    return c
