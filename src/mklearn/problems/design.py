"""Unpenalised terms: an intercept and covariates, and their constraints on A.

The coefficients of covariates are not penalised, so a dual point is feasible only if it
is orthogonal to each column of the design: ``E'A = 0`` replaces ``sum(A) = 0``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from mklearn.problems.base import UNIT, pairwise
from mklearn.problems.separation import most_positive

FloatArray = NDArray[np.float64]

_RANK = 1e-10  # singular values below this fraction of the largest count as zero
_NEWTON = 60  # steps
_CORNERS = 2000
_PROGRAMS = 8
_NEAR = 1e-8  # relative to the value: where Newton's method converges quadratically


@dataclass(frozen=True, eq=False)
class Design:
    """Design matrix of some samples: a column of ones, and covariates.

    Parameters
    ----------
    columns : array of shape (n, 1 + k)
        The first column is constant one. On a subset of the samples, columns may be
        collinear; the coefficient of a direction without effect is zero.
    """

    columns: FloatArray

    @cached_property
    def _parts(self) -> tuple[FloatArray, FloatArray]:
        """Orthonormal basis, constant first, and the map from it to coefficients."""
        n, width = self.columns.shape
        means = self.columns[:, 1:].mean(axis=0)
        U, s, Vt = np.linalg.svd(self.columns[:, 1:] - means, full_matrices=False)
        # relative to the largest, as a column of rounding errors must not be rescaled
        kept = s > _RANK * max(float(s.max(initial=0.0)), 1e-300)
        U, s, Vt = U[:, kept], s[kept], Vt[kept]
        U = U - U.mean(axis=0)  # rounding
        basis = np.ascontiguousarray(np.column_stack([np.full(n, n**-0.5), U]))
        back = np.zeros((width, 1 + len(s)))
        back[1:, 1:] = Vt.T / s
        back[0, 0] = n**-0.5
        back[0, 1:] = -means @ back[1:, 1:]
        return basis, back

    @property
    def basis(self) -> FloatArray:
        """Orthonormal basis of the column space, constant first, shape (n, 1 + r)."""
        return self._parts[0]

    def effects(self, gamma: FloatArray) -> FloatArray:
        """Return coefficients of the columns (1 + k, T) from those of the basis."""
        return np.asarray(self._parts[1] @ gamma)

    def take(self, rows: NDArray[np.intp]) -> Design:
        """Return the design of some samples."""
        return Design(self.columns[rows])

    def within(
        self, groups: NDArray[np.intp], used: NDArray[np.bool_]
    ) -> tuple[FloatArray, FloatArray]:
        """Return a basis of the variation of the columns within groups of samples.

        This is for losses that compare only samples of the same group, which do not
        depend on a constant for each group.

        Parameters
        ----------
        groups : array of shape (n,)
            Index of the group of each sample.
        used : array of bool of shape (n,)
            Samples that the loss depends on.

        Returns
        -------
        basis : array of shape (n, r)
            Orthonormal columns, centred in each group; zero for samples not used.
        back : array of shape (1 + k, r)
            Map from coefficients of the basis to those of the design; the row of the
            ones is zero.
        """
        Z = np.where(used[:, None], self.columns[:, 1:], 0.0)
        count = np.bincount(groups, used).astype(float)
        means = np.zeros((len(count), Z.shape[1]))
        np.add.at(means, groups, Z)
        means /= np.maximum(count, 1.0)[:, None]
        Z = np.where(used[:, None], Z - means[groups], 0.0)
        U, s, Vt = np.linalg.svd(Z, full_matrices=False)
        # columns are in units of their spread: much smaller values are rounding errors
        size = max(float(np.linalg.norm(self.columns[:, 1:])), 1e-300)
        kept = s > _RANK * size
        back = np.zeros((self.columns.shape[1], int(kept.sum())))
        back[1:] = Vt[kept].T / s[kept]
        return np.ascontiguousarray(U[:, kept]), back

    def told_classes(self, labels: NDArray[np.intp], n_classes: int) -> float:
        """Return how well covariates separate the classes, from 0 to 1.

        It is the largest share of pairs of a sample and a rival class whose margins can
        be positive while none is negative; the margin of a pair is the score of the
        sample's own class minus that of the rival. One means that the covariates
        separate the classes perfectly. If it is positive, losses that decrease without
        end in the margin, such as the multinomial loss, have no finite minimiser.

        Parameters
        ----------
        labels, n_classes
            As in :meth:`told_pairs`.
        """
        found = self.told_pairs(labels, n_classes)
        return float(found.sum() / (len(labels) * (n_classes - 1)))

    def told_pairs(self, labels: NDArray[np.intp], n_classes: int) -> FloatArray:
        """Return which samples are separated from which rival classes, shape (n, k).

        Entries are 1 if covariates separate the two, 0 if not, and 0 for the class of
        the sample itself.

        Parameters
        ----------
        labels : array of shape (n,)
            Indices of the classes, from 0.
        n_classes : int
        """
        E = sparse.csr_array(self.basis * len(labels) ** 0.5)
        parts, rivals = [], [np.flatnonzero(labels != c) for c in range(n_classes)]
        for c, rows in enumerate(rivals):
            pairs = sparse.csr_array(
                (
                    np.tile([1.0, -1.0], len(rows)),
                    np.column_stack([labels[rows], np.full(len(rows), c)]).ravel(),
                    2 * np.arange(len(rows) + 1),
                ),
                shape=(len(rows), n_classes),
            )
            # row-wise Kronecker products
            parts.append(
                sparse.hstack(
                    [pairs[:, [d]].multiply(E[rows]) for d in range(n_classes)]
                )
            )
        _, margins = most_positive(sparse.csr_array(sparse.vstack(parts)))
        found = np.zeros((len(labels), n_classes))
        ends = np.cumsum([len(rows) for rows in rivals])[:-1]
        for c, part in enumerate(np.split(margins, ends)):
            found[rivals[c], c] = part
        return found

    def explains(self, Y: FloatArray) -> NDArray[np.bool_]:
        """Return which non-constant columns of Y are in the span of the design.

        Parameters
        ----------
        Y : array of shape (n, T)
        """
        E = self.basis
        size = np.linalg.norm(Y - Y.mean(axis=0), axis=0)
        left = np.linalg.norm(Y - E @ (E.T @ Y), axis=0)
        return np.asarray((left <= 1e-10 * size) & (size > 0))

    # --- dual points ------------------------------------------------------------------

    def misses(self, A: FloatArray) -> FloatArray:
        """Return a relative bound on the decrease of A that makes it feasible, (T,).

        With ``W = diag(|A|)`` and the residual ``r = E'A``, the point ``(1 - t) A - (1
        - t) W E (E'WE)^-1 r`` is orthogonal to the design. If ``t`` is the largest
        ``|e_i'(E'WE)^-1 r|``, each of its entries lies between ``(1 - 2t) A_i`` and
        ``A_i``, and therefore within any interval that contains zero. Directions in
        which no entry of A can move contain only rounding errors.
        """
        E = self.basis
        out = np.zeros(A.shape[1])
        for t in range(A.shape[1]):
            size = np.abs(A[:, t])
            if not size.any():
                continue
            off = np.abs(E.T @ A[:, t]) + 2 * pairwise(len(A)) * (np.abs(E).T @ size)
            values, vectors = np.linalg.eigh(E.T @ (size[:, None] * E))
            kept = values > 1e-12 * values[-1]
            V = vectors[:, kept]
            # the signs of rounding errors are unknown: add absolute values
            most = (np.abs(V).T @ off) / values[kept]
            reach = float((np.abs(E @ V) @ most).max())
            out[t] = min(1.0, 2.0 * reach * (1.0 + 1e-6))
        return out

    def is_met(self, A: FloatArray) -> bool:
        """Return whether A is orthogonal to the design, up to rounding."""
        E = self.basis
        off = np.abs(E.T @ A) - 4 * pairwise(len(A)) * (np.abs(E).T @ np.abs(A))
        return bool((off <= 0).all())

    def project(
        self, A: FloatArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Return a point near A within bounds and orthogonal to the design, (n, T).

        Zero entries stay zero if moving the others is enough.

        Parameters
        ----------
        A, lower, upper : arrays of shape (n, T)
            The intervals contain zero.
        """
        A = np.clip(A, lower, upper)
        if self.is_met(A):
            return A
        columns = zip(A.T, lower.T, upper.T, strict=True)
        return np.column_stack([self._projected(a, lo, up) for a, lo, up in columns])

    def _projected(
        self, a: FloatArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        E = self.basis
        size = np.abs(a)
        typical = float(size.max(initial=0.0))
        if typical == 0.0:
            return a
        enough = 2 * pairwise(len(a)) * (np.abs(E).T @ size)
        best, least = np.zeros_like(a), np.inf
        for weight in (size, size + 1e-3 * typical, np.full_like(a, typical)):
            found = _within(E, a, lower, upper, weight, enough)
            off = float(np.max(np.abs(E.T @ found) - enough))
            if off <= 0.0:
                return found
            if off < least:
                best, least = found, off
        return best

    def metric(self, A: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the nearest orthogonal point, in the metric ``1 / weight``.

        Parameters
        ----------
        A, weight : arrays of shape (n, T)
        """
        E, out = self.basis, A.copy()
        for t in range(A.shape[1]):
            W = weight[:, t, None] * E
            solve = np.linalg.pinv(E.T @ W, hermitian=True)
            for _ in range(2):  # the second time removes what rounding left
                out[:, t] -= W @ (solve @ (E.T @ out[:, t]))
        return out

    # --- coefficients -----------------------------------------------------------------

    def least(
        self,
        value: Callable[[FloatArray], float],
        slope: Callable[[FloatArray], FloatArray],
        bend: Callable[[FloatArray], FloatArray],
        start: FloatArray,
        tol: float = 1e-13,
        steps: int = 60,
    ) -> FloatArray:
        """Return the coefficients of the basis that minimise ``value(E gamma)``.

        Parameters
        ----------
        value : callable
            Convex function of scores (n,) that returns a number.
        slope, bend : callables
            Negative first derivative with respect to the scores, and the second, of
            shape (n,).
        start : array of shape (1 + r,)
        tol : float
            Tolerance for the predicted decrease of a step, relative to the value.
        steps : int
            Maximum number of Newton steps.
        """
        E = self.basis

        def hessian(f: FloatArray) -> FloatArray:
            return np.asarray(E.T @ (bend(f)[:, None] * E))

        return least(E, value, slope, hessian, start, tol, steps)


@dataclass(frozen=True, eq=False)
class Exchange:
    """Constraints of a design on dual points whose rows sum to zero.

    The own class y of a sample gains the mass that its rivals lose, ``A_ic = -m_ic``
    and ``A_iy = sum_c m_ic`` with ``m >= 0``. If masses are multiplied by
    ``1 - e_i'(x_y - x_c)``, the columns of ``E'A`` change by ``-G x``, where G is the
    sum of ``m_ic e_i e_i'`` times ``(u_y - u_c)(u_y - u_c)'``, and u are the unit
    vectors of the classes.

    Parameters
    ----------
    design : Design
    labels : array of shape (n,)
        Indices of the classes, from 0.
    n_classes : int
    """

    design: Design
    labels: NDArray[np.intp]
    n_classes: int

    @cached_property
    def _own(self) -> NDArray[np.bool_]:
        return np.asarray(self.labels[:, None] == np.arange(self.n_classes))

    def masses(self, A: FloatArray) -> FloatArray:
        """Return the masses of the rival classes, (n, k); zero for the own class."""
        return np.where(self._own, 0.0, np.maximum(-A, 0.0))

    def signed(self, m: FloatArray) -> FloatArray:
        """Return the dual point with given masses."""
        return np.where(self._own, m.sum(axis=1, keepdims=True), -m)

    def misses(self, A: FloatArray) -> float:
        """Return a relative bound on the decrease of masses that makes them feasible.

        With t the largest ``|e_i'(x_y - x_c)|`` for the x that cancels ``E'A``, the
        masses ``(1 - t) m (1 - e_i'(x_y - x_c))`` are feasible, and each lies between
        ``(1 - 2t) m`` and m. Directions in which no mass can move contain only rounding
        errors.
        """
        E, m = self.design.basis, self.masses(A)
        if not m.any():
            return 0.0
        slack = 2 * pairwise(len(A)) + 4 * self.n_classes * UNIT
        off = np.abs(E.T @ A) + slack * (np.abs(E).T @ np.abs(A))
        values, vectors = self._directions(m)
        # the signs of rounding errors are unknown: add absolute values
        most = (np.abs(vectors).T @ off.T.ravel()) / values
        q, reach = E.shape[1], np.zeros(m.shape)
        for v, size in zip(vectors.T, most, strict=True):
            reach += size * np.abs(self._turns(v.reshape(-1, q).T))
        return min(1.0, 2.0 * float(reach[m > 0].max()) * (1.0 + 1e-6))

    def settled(self, A: FloatArray) -> FloatArray:
        """Return the feasible point whose masses are reduced as in :meth:`misses`."""
        E = self.design.basis
        for _ in range(3):  # repeated to remove what rounding left
            m = self.masses(A)
            if self.design.is_met(A) or not m.any():
                break
            values, vectors = self._directions(m)
            x = vectors @ ((vectors.T @ (E.T @ A).T.ravel()) / values)
            turn = self._turns(x.reshape(-1, E.shape[1]).T)
            t = min(1.0, float(np.abs(turn[m > 0]).max()))
            A = self.signed((1.0 - t) * m * np.maximum(1.0 - turn, 0.0))
        return A

    def tilted(self, m: FloatArray) -> FloatArray:
        """Return masses ``m exp(-e_i'(x_y - x_c))`` that are feasible, or nearly so.

        Newton's method finds the x that minimises their sum, which is convex in x.
        """
        E, q = self.design.basis, self.design.basis.shape[1]
        x = np.zeros((q, self.n_classes))
        now = m
        for _ in range(_NEWTON):
            off = E.T @ self.signed(now)
            if not now.any() or self.design.is_met(self.signed(now)):
                break
            values, vectors = self._directions(now)
            step = vectors @ ((vectors.T @ off.T.ravel()) / values)
            step, part = step.reshape(-1, q).T, 1.0
            promise = float(np.sum(step * off))
            while part > 1e-8:
                with np.errstate(over="ignore"):
                    then = m * np.exp(-self._turns(x + part * step))
                if float(then.sum()) <= float(now.sum()) - 1e-4 * part * promise:
                    break
                part /= 2
            else:
                break  # rounding
            x, now = x + part * step, then
        return now

    def _turns(self, x: FloatArray) -> FloatArray:
        """Return ``e_i'(x_y - x_c)`` for x (q, k), shape (n, k)."""
        scores = self.design.basis @ x
        return np.asarray(scores[np.arange(len(scores)), self.labels][:, None] - scores)

    def _directions(self, m: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the numerically nonzero eigenvalues of G, and their eigenvectors.

        Coefficients are ordered by class.
        """
        E, k = self.design.basis, self.n_classes
        q = E.shape[1]
        G = np.zeros((k, q, k, q))
        for a in range(k):
            rows = self.labels == a
            parts = (m[rows][:, :, None] * E[rows][:, None, :]).reshape(-1, k * q)
            lost = (E[rows].T @ parts).reshape(q, k, q)  # to each rival
            G[a, :, a] += lost.sum(axis=1)
            G[a] -= lost
            G[:, :, a] -= lost.transpose(1, 0, 2)
            for c in range(k):
                G[c, :, c] += lost[:, c]
        flat = G.reshape(k * q, k * q)
        values, vectors = np.linalg.eigh((flat + flat.T) / 2)
        kept = values > 1e-12 * max(float(values[-1]), 1e-300)
        return values[kept], vectors[:, kept]


def least(
    E: FloatArray,
    value: Callable[[FloatArray], float],
    slope: Callable[[FloatArray], FloatArray],
    hessian: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    tol: float = 1e-13,
    steps: int = 60,
) -> FloatArray:
    """Return the gamma that minimises a convex ``value(E gamma)``, by Newton's method.

    Parameters
    ----------
    E : array of shape (n, r)
    value, slope, start, tol, steps
        As in :meth:`Design.least`.
    hessian : callable
        Function of the scores that returns the Hessian in gamma, shape (r, r).
    """
    gamma = start
    f = E @ gamma
    now, ridge, full = value(f), 0.0, False
    for _ in range(steps):
        g = E.T @ slope(f)
        H = hessian(f)
        # where the curvature vanishes, the gradient sets the scale
        top = max(float(np.trace(H)), 1e-8 * float(np.linalg.norm(g)), 1e-300)
        H[np.diag_indices_from(H)] += max(ridge, 1e-12) * top
        step = np.linalg.solve(H, g)
        promise = float(g @ step)
        if not promise > tol * abs(now):
            break
        part, ahead = 1.0, E @ step
        if full and promise < _NEAR * abs(now):
            # so close that differences of values are dominated by rounding
            if value(f + ahead) <= now + 1e-13 * abs(now):
                gamma = gamma + step
            break
        while part > 1e-10:
            new = value(f + part * ahead)
            if new <= now - 1e-4 * part * promise:
                break
            part /= 2 if part > 0.01 else 8
        else:
            if ridge > 1.0:
                break
            ridge = max(10 * ridge, 1e-8)
            continue
        full = part == 1.0
        ridge = 0.0 if full else max(ridge, 1e-10)
        gamma, now = gamma + part * step, new
        f = E @ gamma
    return gamma


@dataclass(frozen=True)
class Peaks:
    """``sum_i C_i (max_c (h_ic + e_i'g_c) - e_i'g_y)``, convex in the coefficients g.

    Parameters
    ----------
    basis : array of shape (n, q)
        The rows e.
    heights : array of shape (n, k)
        The numbers h.
    labels : array of shape (n,)
        The own classes y.
    costs : array of shape (n,)
    """

    basis: FloatArray
    heights: FloatArray
    labels: NDArray[np.intp]
    costs: FloatArray

    def least(self, start: FloatArray, reach: float) -> FloatArray:
        """Return the minimiser, found by a sequence of linear programs.

        Parameters
        ----------
        start : array of shape (q, k)
        reach : float
            Trust region of a program: classes whose scores are lower than the maximum
            by more than this are ignored.
        """
        g, lost = start, self._lost(start)
        for _ in range(_PROGRAMS):
            found = self._program(g, reach)
            if found is None:
                break
            then = self._lost(found)
            if not then < lost - 1e-14 * abs(lost):
                break
            if then < lost - 1e-4 * abs(lost):  # the minimiser is farther away
                reach *= 4.0
            g, lost = found, then
        return g

    def _lost(self, g: FloatArray) -> float:
        f = self.basis @ g
        own = f[np.arange(len(f)), self.labels]
        return float(self.costs @ ((self.heights + f).max(axis=1) - own))

    def _program(self, g: FloatArray, reach: float) -> FloatArray | None:
        """Return the minimiser among points that move no score by more than half."""
        E, (q, k) = self.basis, g.shape
        now = self.heights + E @ g
        near = now >= now.max(axis=1, keepdims=True) - reach
        tied = np.flatnonzero((near.sum(axis=1) > 1) & (self.costs > 0))
        alone = np.setdiff1d(np.arange(len(E)), tied)
        # variables: the coefficients by class, then the maxima of samples with rivals
        slope = np.zeros((k, q))
        np.add.at(slope, self.labels, -self.costs[:, None] * E)
        np.add.at(slope, now[alone].argmax(axis=1), self.costs[alone, None] * E[alone])
        rows, rival = np.nonzero(near[tied])
        size = len(rows)
        place = (rival * q)[:, None] + np.arange(q)
        entries = np.column_stack([E[tied[rows]], -np.ones(size)])
        columns = np.column_stack([place, k * q + rows])
        A = sparse.csr_array(
            (
                entries.ravel(),
                columns.ravel(),
                np.arange(0, (q + 1) * size + 1, q + 1),
            ),
            shape=(size, k * q + len(tied)),
        )
        most = 0.5 * reach / max(float(np.abs(E).sum(axis=1).max()), 1e-300)
        unit = max(float(self.costs.max()), 1e-300)
        found = linprog(
            np.concatenate([slope.ravel(), self.costs[tied]]) / unit,
            A_ub=A,
            b_ub=-now[tied[rows], rival],
            bounds=np.vstack(
                [
                    np.tile([-most, most], (k * q, 1)),
                    np.tile([-np.inf, np.inf], (len(tied), 1)),
                ]
            ),
        )
        if found.status != 0:
            return None
        return np.asarray(g + found.x[: k * q].reshape(k, q).T, dtype=float)


@dataclass(frozen=True)
class Kinks:
    """``sum_k C_k max(-upper_k (g_k - knot_k), -lower_k (g_k - knot_k))``, convex.

    Parameters
    ----------
    rows : array of shape (N, 1 + r)
        ``g = rows @ gamma``.
    knots : array of shape (N,)
    before, after : arrays of shape (N,)
        Slopes before and after the knots, with ``before <= after``.
    """

    rows: FloatArray
    knots: FloatArray
    before: FloatArray
    after: FloatArray

    def least(self, start: FloatArray) -> FloatArray:
        """Return the minimiser: from vertex to vertex, along the steepest edge.

        At a vertex as many rows as there are coefficients are at their knots. An edge
        releases one of them, and ends at the knot where the slope along the edge
        becomes positive (Barrodale and Roberts 1973).

        Parameters
        ----------
        start : array of shape (1 + r,)
            Close to the minimiser, so that few vertices have to be visited.
        """
        E, knots, before, after = self.rows, self.knots, self.before, self.after
        rises = after - before
        bends, middle = rises > 0, 0.5 * (before + after)
        r = E.shape[1]
        at = self._corner(E @ start - knots, r)
        if len(at) < r:
            return start
        for _ in range(_CORNERS):
            inverse = np.linalg.inv(E[at])
            g = E @ (inverse @ knots[at]) - knots
            g[at] = 0.0
            # rows at a knot by coincidence get the mean of both slopes
            slopes = np.where(g < 0, before, np.where(g > 0, after, middle))
            slopes[at] = 0.0
            held = -(E.T @ slopes) @ inverse  # subgradients
            size = np.abs(rises[at]) + 1e-300
            over = (held - after[at]) / size
            under = (before[at] - held) / size
            beyond = np.maximum(over, under)
            worst = int(beyond.argmax())
            if beyond[worst] <= 1e-12:
                break
            row, sign = at[worst], 1.0 if over[worst] > under[worst] else -1.0
            v = E @ (sign * inverse[:, worst])
            v[np.delete(at, worst)] = 0.0
            # directional derivative along the edge
            slope = float(
                (after[row] if sign > 0 else -before[row]) - sign * held[worst]
            )
            ahead = np.flatnonzero((g * v < 0) & bends)
            if not len(ahead):
                break
            ahead = ahead[np.argsort(-g[ahead] / v[ahead], kind="stable")]
            total = slope + np.cumsum(np.abs(v[ahead]) * rises[ahead])
            stop = int(np.searchsorted(total, -1e-14 * abs(slope)))
            at = at.copy()
            # beyond the last knot it does not fall: a negative slope is rounding
            at[worst] = ahead[min(stop, len(ahead) - 1)]
        return np.asarray(np.linalg.solve(E[at], knots[at]), float)

    def _corner(self, g: FloatArray, r: int) -> NDArray[np.intp]:
        """Return linearly independent rows that are close to their knots."""
        E, at = self.rows, []
        rest = np.zeros((0, r))
        for k in np.argsort(np.abs(g), kind="stable"):
            if self.after[k] <= self.before[k]:
                continue
            left = E[k] - rest.T @ (rest @ E[k])
            left -= rest.T @ (rest @ left)
            size = float(np.linalg.norm(left))
            if size > 1e-6 * float(np.linalg.norm(E[k])):
                at.append(int(k))
                rest = np.vstack([rest, left / size])
                if len(at) == r:
                    break
        return np.array(at, dtype=np.intp)


def _balance(
    c: FloatArray, by: FloatArray, v: FloatArray, lower: FloatArray, upper: FloatArray
) -> float:
    """Return the root t of ``sum_i v_i clip(c - t by)_i``, which is nonincreasing in t.

    ``by`` has the signs of v. The function is linear between the breakpoints t at which
    entries reach or leave a bound. If it has no root, the last breakpoint is returned.
    """
    used = by != 0
    c, by, v, lower, upper = (x[used] for x in (c, by, v, lower, upper))
    if not len(c):
        return 0.0
    ends = np.stack([(c - lower) / by, (c - upper) / by])
    into, out = np.maximum(ends.min(axis=0), 0.0), np.maximum(ends.max(axis=0), 0.0)
    times = np.concatenate([into, out])
    rates = np.concatenate([-v * by, v * by])
    finite = np.isfinite(times)
    order = np.argsort(times[finite], kind="stable")
    times, rates = times[finite][order], rates[finite][order]
    now = float(v @ np.clip(c, lower, upper))
    if now <= 0.0 or not len(times):
        return 0.0
    rate = np.cumsum(rates)
    spans = np.diff(times)
    values = now + np.concatenate([[0.0], np.cumsum(rate[:-1] * spans)])
    k = int(np.argmax(values <= 0.0)) if (values <= 0.0).any() else len(values)
    if k == len(values):
        # beyond the last breakpoint, only unbounded entries move
        return float(times[-1] - (values[-1] / rate[-1] if rate[-1] < 0 else 0.0))
    if k == 0:
        return float(times[0])
    return float(times[k - 1] - values[k - 1] / rate[k - 1])


def _within(
    E: FloatArray,
    a: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    w: FloatArray,
    enough: FloatArray,
) -> FloatArray:
    """Return ``clip(a - w E x)`` with an x that makes it orthogonal to E, if it exists.

    This is the projection of ``a`` in the norm whose squares are divided by w. Newton's
    method finds the maximiser x of the dual, which is concave and piecewise quadratic.
    """
    every = float(np.sum(w * np.sum(E**2, axis=1)))
    moved = a.copy()
    c = np.clip(moved, lower, upper)
    for _ in range(_NEWTON):
        g = E.T @ c
        if (np.abs(g) <= enough).all():
            return c
        inside = (c > lower) & (c < upper) & (w > 0)
        H = E[inside].T @ (w[inside, None] * E[inside])
        H[np.diag_indices_from(H)] += 1e-10 * every
        v = E @ np.linalg.solve(H, g)
        t = _balance(moved, w * v, v, lower, upper)
        if t == 0.0:
            break
        moved = moved - t * (w * v)
        c = np.clip(moved, lower, upper)
    # remove what rounding left, by moving entries away from their bounds
    for _ in range(2):
        g = E.T @ c
        room = np.minimum(c - lower, upper - c)
        free = np.where(w > 0, np.minimum(w, room), 0.0)
        H = E.T @ (free[:, None] * E)
        move = free * (E @ np.linalg.lstsq(H, g, rcond=1e-12)[0])
        trial = np.clip(c - move, lower, upper)
        if np.abs(E.T @ trial).max() < np.abs(g).max():
            c = trial
    return c


def decisions(
    design: Design | None,
    F: FloatArray,
    bias: FloatArray,
    size: Callable[[FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Return scores F (n, T) with the bias (T,), or with effects (1 + k, T).

    ``size``, such as ``np.abs``, is applied to the columns of the design.
    """
    if design is None:
        return F + bias
    columns = design.columns if size is None else size(design.columns)
    return np.asarray(F + columns @ bias)


def middle_bias(knots: FloatArray, rises: FloatArray, start: FloatArray) -> FloatArray:
    """Return the middle of the minimisers of convex piecewise linear functions.

    Of each column: its slope is ``start`` on the left and rises by ``rises`` at
    ``knots``.
    """
    columns = np.arange(knots.shape[1])
    order = knots.argsort(axis=0, kind="stable")
    slope = start + rises[order, columns].cumsum(axis=0)
    flat = 1e-12 * rises.sum(axis=0)
    last = len(knots) - 1
    ends = (slope < -flat).sum(axis=0), (slope <= flat).sum(axis=0)
    low, high = (knots[order[np.minimum(end, last), columns], columns] for end in ends)
    return np.asarray((low + high) / 2)
