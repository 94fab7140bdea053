"""Sweeps over samples for the Crammer-Singer loss, all classes of a sample jointly.

    max  sum_i A_iy - ½ sum_c A_c' K_c A_c     A_ic <= C_i [c = y_i],  rows sum to zero

for given kernels ``K_c`` of the classes, or one kernel for all of them. The row of one
sample has an exact solution in O(k log k) (Algorithm 1 of Kobayashi & Otsu), and the
duality gap is a sum over samples, whose terms show which samples should be visited.

Samples far inside or far outside the margin do not change and are set aside: the sweeps
use only the block of kernels between the others, as large as the bank's budget allows,
and all samples are checked again before the end. Most classes are never rivals of a
given sample, so rows of a block are combined only when they are first needed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mklearn.data.compiling import njit
from mklearn.data.threads import run_blocks
from mklearn.kernels.bank import KernelBank
from mklearn.problems.coupled import CrammerSinger
from mklearn.problems.mkl import Problem
from mklearn.solvers.base import Iterate

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

_VISITS = 20_000  # visits of samples before control returns to Python
_NONE = np.empty((0, 0, 0))


class Products:
    """``K_r A_c`` for all kernels and classes, and blocks of combined kernels.

    If the budget allows, the Grams are stored in one array, which is worthwhile if they
    are used ``many`` times, and the products of the last A are kept, from which scores
    for any weights are computed quickly.
    """

    def __init__(self, bank: KernelBank, n_classes: int, many: bool = True) -> None:
        self.bank = bank
        n, _, M = bank.shape
        spare = bank.spare_bytes()
        keep = 8 * n * n_classes * M
        self.kept = 2 * keep <= spare // 4
        spare -= 2 * keep if self.kept else 0
        self.grams: FloatArray | None = None
        if many and 8 * n * n * M <= min(spare // 2, 1 << 30):
            self.grams = np.empty((M, n, n))
            for m in range(M):
                self.grams[m] = bank.gram(m)
            spare -= self.grams.nbytes
        # two blocks may be in memory at a time: that of a sweep and that of a model
        self.block_bytes = max(spare // 2, 8 * n_classes * 64**2)
        self._A: FloatArray | None = None
        self._S: FloatArray | None = None
        self._room = np.empty(0)

    def of(self, A: FloatArray) -> FloatArray:
        """Return ``K_r A_c``, shape (M, n, k)."""
        if self._A is None or self._S is None or not np.array_equal(self._A, A):
            if self.grams is None:
                S = np.ascontiguousarray(np.moveaxis(self.bank.multiply(A), 2, 0))
            else:
                used = np.flatnonzero(A.any(axis=1))
                if len(used) > 0.7 * len(A):
                    S = self.grams @ A
                else:
                    S = np.empty((len(self.grams), *A.shape))
                    for m, K in enumerate(self.grams):
                        S[m] = K[used].T @ A[used]
            self._A, self._S = A.copy(), S
        return self._S

    def at(self, samples: Index, A: FloatArray) -> FloatArray:
        """Return ``K_r A_c`` at some samples, shape (M, w, k)."""
        if self.kept:
            return self.of(A)[:, samples]
        used = np.flatnonzero(A.any(axis=1))
        S = self.bank[np.ix_(samples, used)].multiply(A[used])
        return np.moveaxis(S, 2, 0)

    def scores(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return ``K_c A_c``, shape (n, k)."""
        if self.kept:
            if theta.ndim == 1:
                return np.asarray(np.tensordot(theta, self.of(A), axes=1))
            return np.einsum("cr,ric->ic", theta, self.of(A))
        if theta.ndim == 1:
            return self.bank.apply(theta, A)
        return self.bank.apply_each(theta, A)

    def change(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return ``K_c A_c`` for an A of few rows, without kernels of zero weight."""
        if self.grams is None:
            bank = self.bank
            return (
                bank.apply(theta, A) if theta.ndim == 1 else bank.apply_each(theta, A)
            )
        moved = np.flatnonzero(A.any(axis=1))
        out = np.zeros(A.shape)
        for m in np.flatnonzero(theta.reshape(-1, len(self.grams)).any(axis=0)):
            out += self.grams[m][moved].T @ (A[moved] * theta[..., m])
        return out

    def quads(self, A: FloatArray, each: bool) -> FloatArray:
        """Return ``A_c' K_r A_c``, shape (k, M), or the sum over classes, (M,)."""
        if self.kept:
            return np.einsum("ic,ric->cr" if each else "ic,ric->r", A, self.of(A))
        return self.bank.quads(A) if each else self.bank.quad(A)

    def rows(self, theta: FloatArray, samples: Index) -> Rows:
        """Return the same as :meth:`block`, with rows computed on demand.

        They reuse the memory of the last call.
        """
        D = np.ascontiguousarray(np.atleast_2d(theta))
        w = len(samples)
        place = np.full((len(D), w), -1)
        if self.grams is None:
            K = self.block(theta, samples)
            place.ravel()[:] = np.arange(place.size)
            lam = np.ascontiguousarray(np.diagonal(K, axis1=1, axis2=2))
            return Rows(theta, samples, K.reshape(-1, w), place, lam, _NONE, D)
        if len(self._room) < place.size * w:
            self._room = np.empty(0)  # free the old one first
            self._room = np.empty(place.size * w)
        K = self._room[: place.size * w].reshape(-1, w)
        lam = D @ self.grams[:, samples, samples]
        return Rows(theta, samples, K, place, lam, self.grams, D)

    def block(self, theta: FloatArray, samples: Index) -> FloatArray:
        """Return the combined kernels between samples, (k or 1, w, w)."""
        D = np.atleast_2d(theta)
        if self.grams is None:
            return self.bank[np.ix_(samples, samples)].combine_each(D)
        n, w = self.grams.shape[1], len(samples)
        used = np.flatnonzero(D.any(axis=0))
        grams = self.grams
        if 4 * np.count_nonzero(D) > D.size > len(grams) and w == n:
            # most weights of most classes are nonzero: one matrix product
            flat = D @ grams.reshape(len(grams), n * n)
            return np.asarray(flat.reshape(len(D), n, n))
        if len(used) < len(grams):
            D = np.ascontiguousarray(D[:, used])
        out = np.zeros((len(D), w, w))
        parts = np.array_split(np.arange(w), max(1, min(w // 64, 16)))
        run_blocks(lambda rows: _combine(grams, used, D, samples, rows, out), parts)
        return out


@njit(cache=True, nogil=True, fastmath=True)
def _combine(grams, used, D, samples, rows, out):  # type: ignore[no-untyped-def]
    w = samples.size
    values = np.empty(w)
    every = w == grams.shape[1]
    for i in rows:
        for r in range(used.size):
            row = grams[used[r], samples[i]]
            if not every:
                for j in range(w):
                    values[j] = row[samples[j]]
                row = values
            for c in range(D.shape[0]):
                weight = D[c, r]
                if weight != 0.0:
                    o = out[c, i]
                    for j in range(w):
                        o[j] += weight * row[j]


class Rows(NamedTuple):
    """Combined kernels between samples, with the rows computed so far.

    Row i of class c is row ``place[c, i]`` of ``K``. If that is negative, the row has
    not been computed from the ``grams`` (M, n, n) with weights ``D`` (k or 1, M) yet.
    The computed rows are contiguous, so memory that is never used is never touched. The
    diagonals ``lam`` have shape (k or 1, w).
    """

    theta: FloatArray
    samples: Index
    K: FloatArray
    place: Index
    lam: FloatArray
    grams: FloatArray
    D: FloatArray

    def between(self, c: int, part: Index) -> FloatArray:
        """Return the kernel of a class between some of the samples, (p, p)."""
        c = min(c, len(self.D) - 1)
        out = np.empty((len(part), len(part)))
        _between(self.K, self.place[c], self.grams, self.D[c], self.samples, part, out)
        return out


@njit(cache=True, nogil=True, fastmath=True)
def _fill(out, grams, weights, samples, i):  # type: ignore[no-untyped-def]
    # one row of a combined kernel
    out[:] = 0.0
    for r in range(weights.size):
        weight = weights[r]
        if weight != 0.0:
            row = grams[r, samples[i]]
            if samples.size == row.size:
                for j in range(out.size):
                    out[j] += weight * row[j]
            else:
                for j in range(out.size):
                    out[j] += weight * row[samples[j]]


@njit(cache=True, nogil=True)
def _between(K, place, grams, weights, samples, part, out):  # type: ignore[no-untyped-def]
    chosen = samples[part]
    for a in range(part.size):
        known = place[part[a]]
        if known < 0:
            _fill(out[a], grams, weights, chosen, a)
        else:
            for b in range(part.size):
                out[a, b] = K[known, part[b]]


class SampleSweeps:
    """The inner problem of the Crammer-Singer loss, warm-started."""

    def __init__(self, problem: Problem, start: Iterate | None, seed: int = 0) -> None:
        self.problem = problem
        loss = problem.loss
        assert isinstance(loss, CrammerSinger)
        self.loss = loss
        self.labels = np.asarray(loss.labels, dtype=np.int64)
        self.costs = np.asarray(loss.C, dtype=np.float64)
        self.coarse = 0.1 if start is None else 1e-3
        self.theta = problem.center()
        self.A = np.zeros(loss.shape)
        if start is not None:
            self.theta, self.A = start.theta, loss.repair(start.A)
        moving = not problem.weights.fixed
        self.products = Products(problem.bank, loss.n_classes, moving)
        self.sharp = 0.0  # accuracy relative to the smallest weight of a class
        self.random = np.array([2 * seed + 1], dtype=np.uint64)
        self.shift: FloatArray | None = None  # added to the scores, (n, k)
        self.visits = 0
        self._rows: Rows | None = None

    @property
    def bank(self) -> KernelBank:
        """The problem's bank."""
        return self.problem.bank

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``A_c' K_r A_c``, summed over classes if they share the weights."""
        return self.products.quads(A, self.theta.ndim == 2)

    def block(self, samples: NDArray[Any]) -> FloatArray:
        """Return the combined kernels between some samples, (k or 1, w, w)."""
        return self.products.block(self.theta, samples)

    def between(self, c: int, samples: Index) -> FloatArray:
        """Return the combined kernel of a class between some samples, (w, w)."""
        rows = self._rows
        if rows is not None and np.array_equal(rows.theta, self.theta):
            part = np.searchsorted(rows.samples, samples)
            part[part == len(rows.samples)] = 0
            if np.array_equal(rows.samples[part], samples):
                return rows.between(c, part)
        theta = self.theta if self.theta.ndim == 1 else self.theta[c]
        return self.products.block(theta, samples)[0]

    def solve(
        self, theta: FloatArray, allowed: float
    ) -> Generator[Iterate, Any, tuple[FloatArray, FloatArray]]:
        """Solve for ``theta`` until the inner duality gap is at most ``allowed``.

        Yields intermediate points; returns ``A`` and the scores ``K_c A_c``.
        """
        self.theta = theta
        n = len(self.A)
        if self.sharp > 0.0:
            total = theta.sum(axis=-1)
            least = float(np.min(total[total > 0], initial=np.inf))
            allowed = min(allowed, self.sharp * least)
        F = self.products.scores(theta, self.A)
        shift = np.zeros((1, 1)) if self.shift is None else self.shift
        F = F if self.shift is None else F + shift
        rows, samples = None, np.zeros(0, dtype=np.intp)
        last = -np.inf
        while True:
            gaps = np.empty(n)
            margins = np.empty(n)
            _look(self.labels, self.costs, self.A, F, gaps, margins)
            gap = float(gaps.sum())
            beside = float(np.sum(self.A * shift))
            norm = max(float(np.sum(self.A * F)) - beside, 0.0)
            value = self.loss.dual(self.A) - 0.5 * norm - beside
            size = value + gap
            enough = max(min(allowed, self.coarse * abs(size)), 1e-13 * abs(size))
            # exact sweeps increase the value; if they do not, only rounding remains
            if gap <= enough or value <= last + 1e-6 * enough:
                return self.A.copy(), F
            last = value
            yield Iterate(theta, self.A.copy(), complete=False)
            chosen = self._choose(gaps, margins, gap / max(abs(size), 1e-300), enough)
            if rows is None or not np.isin(chosen, samples).all():
                rows = self._rows = None  # free the old one first
                samples = np.union1d(chosen, samples) if len(chosen) < n else chosen
                if len(samples) > self._most():
                    samples = chosen
                rows = self._rows = self.products.rows(theta, samples)
            before = self.A.copy()
            scores = yield from self._run(rows, F, 0.5 * enough)
            if len(samples) == n:
                F = scores
            else:
                F = F + self.products.change(theta, self.A - before)

    def _most(self) -> int:
        """Return the maximum number of samples of a block."""
        count = self.theta.shape[0] if self.theta.ndim == 2 else 1
        return max(64, int((self.products.block_bytes / (8 * count)) ** 0.5))

    def _choose(
        self, gaps: FloatArray, margins: FloatArray, gap: float, enough: float
    ) -> Index:
        """Return the samples that may change, only the worst if there are too many."""
        margin = min(1.0, 3.0 * gap**0.5)
        awake = np.flatnonzero((margins < margin) | (gaps > 0.1 * enough / len(gaps)))
        if len(awake) > 0.9 * len(gaps):
            awake = np.arange(len(gaps))
        most = self._most()
        if len(awake) > most:
            order = np.lexsort((margins[awake], -gaps[awake]))
            awake = np.sort(awake[order[:most]])
        return awake

    def _run(
        self, rows: Rows, F: FloatArray, enough: float
    ) -> Generator[Iterate, Any, FloatArray]:
        """Sweep over some samples until their gaps sum to ``enough``.

        Returns their scores.
        """
        samples = rows.samples
        T = self.A[samples]
        f = np.ascontiguousarray(F[samples].T)
        labels, costs = self.labels[samples], self.costs[samples]
        order = np.arange(len(samples))
        last, idle = np.inf, 0
        while True:
            made, gap = _sweep(
                *rows[1:], labels, costs, T, f, order, enough, _VISITS, self.random
            )
            self.visits += made
            self.A[samples] = T
            idle = idle + 1 if gap > 0.999 * last else 0
            last = min(last, gap)
            if gap <= enough or made == 0 or idle > 20:
                return np.ascontiguousarray(f.T)
            yield Iterate(rows.theta, self.A.copy(), complete=False)


@njit(cache=True, nogil=True)
def _look(labels, costs, A, F, gaps, margins):  # type: ignore[no-untyped-def]
    # The gap of each sample, and the change of its scores up to which it does not move;
    # this margin is zero for samples with a free variable.
    for i in range(F.shape[0]):
        y = labels[i]
        top, second, where = -np.inf, -np.inf, -1
        total = 0.0
        for c in range(F.shape[1]):
            m = F[i, c] - 1.0 if c == y else F[i, c]
            total += A[i, c] * m
            if m > top:
                top, second, where = m, top, c
            elif m > second:
                second = m
        gaps[i] = max(total + costs[i] * (top - F[i, y] + 1.0), 0.0)
        margins[i] = 0.0
        # the full cost is on the class with the highest score
        full = A[i, y] <= 0.0 if where == y else A[i, where] <= -costs[i]
        if full:
            margins[i] = top - second


@njit(cache=True, nogil=True, fastmath=True)
def _axpy(a, x, y):  # type: ignore[no-untyped-def]
    for j in range(y.size):
        y[j] += a * x[j]


@njit(cache=True, nogil=True)
def _sweep(  # type: ignore[no-untyped-def]
    samples, K, place, diagonal, grams, D,
    labels, costs, T, F, order, enough, most, random,
):  # fmt: skip
    # Sweeps in random order over the samples whose gap is not far below the mean, until
    # the gaps sum to `enough`. T (w, k), F (k, w) = K_c T_c; kernels as in Rows.
    # Returns the visits made and the sum of the gaps.
    k, w = F.shape
    shared = D.shape[0] == 1
    new, beta, lam = np.empty(k), np.empty(k), np.empty(k)
    knots, rank = np.empty(k), np.empty(k, dtype=np.int64)
    made, n_known = 0, place.max() + 1
    state = random[0]
    total = np.inf
    while True:
        total = 0.0
        for i in range(w):
            total += _gap(labels[i], costs[i], T[i], F, i)
        if total <= enough or made >= most:
            break
        bar = max(0.5 * enough, 0.1 * total) / w
        for j in range(w - 1, 0, -1):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            other = np.int64(state % np.uint64(j + 1))
            order[j], order[other] = order[other], order[j]
        moved = False
        for i in order:
            y = labels[i]
            if _gap(y, costs[i], T[i], F, i) <= bar:
                continue
            for c in range(k):
                lam[c] = diagonal[0 if shared else c, i]
                beta[c] = F[c, i] - lam[c] * T[i, c]
            beta[y] -= 1.0
            solve_sample(lam, beta, costs[i], y, new, knots, rank)
            made += 1
            for c in range(k):
                change = new[c] - T[i, c]
                if change != 0.0:
                    moved = True
                    T[i, c] = new[c]
                    of = 0 if shared else c
                    if place[of, i] < 0:
                        _fill(K[n_known], grams, D[of], samples, i)
                        place[of, i] = n_known
                        n_known += 1
                    _axpy(change, K[place[of, i]], F[c])
        if not moved:
            break
    random[0] = state
    return made, total


@njit(cache=True, nogil=True)
def _gap(y, cost, t, F, i):  # type: ignore[no-untyped-def]
    own = F[y, i] - 1.0
    top, total = own, 0.0
    for c in range(t.size):
        if c != y:
            m = F[c, i]
            total += t[c] * (m - own)
            if m > top:
                top = m
    return total + cost * (top - own)


@njit(cache=True, nogil=True)
def solve_sample(lam, beta, cost, y, out, knots, rank):  # type: ignore[no-untyped-def]
    """Minimise ``½ sum lam t^2 + beta't``, ``t <= cost [c = y]``, ``sum(t) = 0``.

    Algorithm 1 of Kobayashi & Otsu: ``t_c = min(bound_c, (zeta - beta_c) / lam_c)``,
    where zeta decreases from infinity, passing one class after the other, until the sum
    is zero. A class with ``lam_c = 0`` takes the remainder once zeta reaches
    ``beta_c``. The result is written to ``out``; ``knots`` and ``rank`` are workspace.
    """
    k = lam.size
    for c in range(k):
        knots[c] = beta[c] + (lam[c] * cost if c == y else 0.0)
    _rank(knots, rank)
    zeta, top, bottom = -np.inf, -cost, 0.0
    taker = -1
    for j in range(k):
        c = rank[j]
        if zeta > knots[c]:
            break
        if lam[c] <= 0.0:
            zeta, taker = knots[c], c
            break
        top += knots[c] / lam[c]
        bottom += 1.0 / lam[c]
        zeta = top / bottom
    total = 0.0
    for c in range(k):
        bound = cost if c == y else 0.0
        out[c] = bound
        if c != taker and lam[c] > 0.0:
            out[c] = min(bound, (zeta - beta[c]) / lam[c])
        if c != taker:
            total += out[c]
    if taker >= 0:
        out[taker] = min(-total, cost if taker == y else 0.0)
    # against rounding: the own class gains exactly what the rivals lose
    lost = 0.0
    for c in range(k):
        if c != y:
            lost -= out[c]
    if lost > cost:
        for c in range(k):
            if c != y:
                out[c] *= cost / lost
        lost = cost
    out[y] = lost


@njit(cache=True, nogil=True)
def _rank(values, rank):  # type: ignore[no-untyped-def]
    # descending; few values are sorted by insertion
    k = values.size
    if k > 32:
        rank[:] = np.argsort(-values)
        return
    for j in range(k):
        v, place = values[j], j
        while place > 0 and values[rank[place - 1]] < v:
            rank[place] = rank[place - 1]
            place -= 1
        rank[place] = j
