"""A small interior-point method over a set of weights, optionally with linear cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from mklearn.problems.weights import Constraint

FloatArray = NDArray[np.float64]
Describe = Callable[[FloatArray], Constraint]


class _Point(NamedTuple):
    """Variables y (weights and level), positive quantities p, and multipliers q.

    ``p`` are the weights, the slack of the set and the slacks of the cuts, ``q`` their
    multipliers in the same order.
    """

    y: FloatArray
    p: FloatArray
    q: FloatArray


def _room(p: FloatArray, step: FloatArray) -> float:
    """Return the largest step in [0, 1] that keeps ``p`` positive."""
    # only negative steps limit the length
    least = float((step / p).min())
    return 1.0 if least >= -1.0 else -1.0 / least


def minimise_quadratic(
    H: FloatArray,
    g: FloatArray,
    constraint: Describe,
    start: FloatArray,
    tol: float = 1e-9,
    max_iter: int = 60,
) -> FloatArray:
    """Minimise ``½ x'Hx + g'x`` over ``x >= 0, constraint(x).value <= 1``.

    ``H`` must be positive semidefinite and the constraint convex and zero at zero.

    Parameters
    ----------
    H : array of shape (M, M)
    g : array of shape (M,)
    constraint : callable
        Value, gradient and Hessian at a positive point.
    start : array of shape (M,)
        Initial guess.
    tol : float
        Tolerance for complementarity and residuals, relative to the optimal value.

    Returns
    -------
    x : array of shape (M,)
    """
    scale = max(float(np.abs(g).max(initial=0.0)), float(np.abs(H).max()), 1e-300)
    none = np.zeros((0, len(g)))
    inner = _Program(H / scale, g / scale, none, np.zeros(0), False, constraint)
    return inner.weights(inner.solve(start, tol, 0.0, max_iter))


def minimise_level(
    values: FloatArray,
    slopes: FloatArray,
    constraint: Describe,
    start: FloatArray,
    accuracy: float,
) -> tuple[FloatArray, FloatArray]:
    """Minimise ``max_t values[t] - slopes[t]'x`` over the set.

    Parameters
    ----------
    values : array of shape (T,)
    slopes : array of shape (T, M)
    constraint, start
        As in :func:`minimise_quadratic`.
    accuracy : float
        Allowed error of the minimum.

    Returns
    -------
    x : array of shape (M,)
    share : array of shape (T,)
        Multipliers of the cuts, which sum to one.
    """
    scale = max(float(np.abs(slopes).max()), 1e-300)
    M = len(start)
    # near convergence the values are almost equal: remove their offset, to save digits
    inner = _Program(
        np.zeros((M, M)), np.zeros(M), slopes / scale,
        (values - values.max()) / scale, True, constraint,
    )  # fmt: skip
    at = inner.solve(start, 0.0, accuracy / scale, 100)
    share = at.q[M + 1 :]
    return inner.weights(at), share / share.sum()


def project(
    center: FloatArray,
    values: FloatArray,
    slopes: FloatArray,
    constraint: Describe,
    start: FloatArray,
    tol: float = 1e-6,
) -> FloatArray:
    """Return the member nearest to ``center`` with ``values - slopes x <= 0``.

    The arguments are as in :func:`minimise_level`; ``start`` should satisfy the cuts.
    """
    scale = np.maximum(np.abs(slopes).max(axis=1), 1e-300)
    inner = _Program(
        np.eye(len(center)), -center, slopes / scale[:, None], values / scale, False,
        constraint,
    )  # fmt: skip
    return inner.weights(inner.solve(start, 0.0, tol, 60))


class _Program:
    """``min ½ x'Hx + g'x (+ e)`` over the set and ``Bx (+ e) >= b``.

    Solved by a primal-dual interior-point method with a predictor-corrector choice of
    the centring.
    """

    def __init__(
        self, H: FloatArray, g: FloatArray, B: FloatArray, b: FloatArray, free: bool,
        constraint: Describe,
    ) -> None:  # fmt: skip
        M, size = len(g), len(g) + int(free)
        self.M, self.b, self.constraint = M, b, constraint
        # the level is an additional variable, and cuts are additional slacks
        self.H, self.g = H, g
        if free:
            self.H = np.zeros((size, size))
            self.H[:M, :M] = H
            self.g = np.append(g, 1.0)
        self.G = np.zeros((1 + len(b), size))  # slopes of the slacks
        self.G[1:, :M], self.G[1:, M:] = B, 1.0

    def weights(self, at: _Point) -> FloatArray:
        """Return the weights, with exact zeros where the solution is zero."""
        x, z = at.y[: self.M], at.q[: self.M]
        if (x > z).any():
            # complementarity: weights below their multiplier are zero at the solution
            x = np.where(x > z, x, 0.0)
        return _pull(x, self.constraint, 1.0)

    def solve(
        self, start: FloatArray, tol: float, allowed: float, max_iter: int
    ) -> _Point:
        """Solve until the error is at most ``allowed`` or ``tol`` times the value."""
        H, g, b, G, M = self.H, self.g, self.b, self.G, self.M
        size, count = len(g), M + len(G)
        at, c = self._start(start)
        slack, diagonal = np.empty(len(G)), np.arange(size) * (size + 1)
        for _ in range(max_iter):
            y, p, q = at
            G[0, :M] = -c.gradient
            slope = H @ y
            value = abs(float(y @ (0.5 * slope + g)))
            # residuals of the optimality conditions
            dual = slope + g - G.T @ q[M:]
            dual[:M] -= q[:M]
            slack[0], slack[1:] = 1.0 - c.value, G[1:] @ y - b
            short = p[M:] - slack
            products = float(p @ q)
            error = products + float(np.abs(dual) @ np.abs(y) + np.abs(short) @ q[M:])
            if error <= max(tol * value, allowed) or products <= 1e-25 * value:
                break  # done, or only rounding errors remain
            ratio = q / p
            K = H + (G.T * ratio[M:]) @ G
            K[:M, :M] += q[M] * c.hessian
            flat = K.ravel()
            flat[diagonal[:M]] += ratio[:M]
            flat[diagonal] *= 1 + 1e-14
            factor, failed = dpotrf(K, lower=1, clean=0)
            if failed:  # the limit of precision is reached
                break
            here = (factor, at, dual, ratio, short)
            dy, dp, dq = self._direction(*here, 0.0)
            a = min(_room(p, dp), _room(q, dq))
            after = float((p + a * dp) @ (q + a * dq))
            share = min(max((after / products) ** 3, 1e-4), 0.8)
            dy, dp, dq = self._direction(*here, share * products / count)
            a = 0.99 * min(_room(p, dp), _room(q, dq))
            c = self.constraint(y[:M] + a * dy[:M])
            while a > 1e-12 and not c.value <= 1.5:
                a *= 0.5  # the linearised constraint is inaccurate for long steps
                c = self.constraint(y[:M] + a * dy[:M])
            at = _Point(y + a * dy, p + a * dp, q + a * dq)
        return at

    def _start(self, start: FloatArray) -> tuple[_Point, Constraint]:
        """Return a point strictly inside, and the constraint there."""
        M, B, b = self.M, self.G[1:, : self.M], self.b
        # mixed with its mean, and scaled down
        x = _pull(0.95 * (0.9 * start + 0.1 * start.mean()), self.constraint, 0.95)
        c = self.constraint(x)
        free = len(self.g) - M
        e = np.full(free, float((b - B @ x).max(initial=0.0)) + 0.1)
        r = np.maximum(B @ x + e.sum() - b, 0.1)
        p = np.concatenate([x, [1.0 - c.value], r])
        q = 0.1 * max(1.0, float(np.abs(self.g[:M] @ x))) / p
        if free:  # the multipliers of the cuts sum to one
            q[M + 1 :] /= q[M + 1 :].sum()
        return _Point(np.concatenate([x, e]), p, q), c

    def _direction(self, factor, at, dual, ratio, short, target):  # type: ignore[no-untyped-def]
        """Return the Newton step towards complementarity ``target``."""
        _, p, q = at
        M = self.M
        pull = target / p - q
        right = self.G.T @ (pull[M:] + ratio[M:] * short) - dual
        right[:M] += pull[:M]
        dy = dpotrs(factor, right, lower=1)[0]
        dp = np.concatenate([dy[:M], self.G @ dy - short])
        return dy, dp, pull - ratio * dp


def outward(x: FloatArray, constraint: Describe) -> FloatArray:
    """Return the boundary point on the ray of ``x``, which is optimal on the ray."""
    return _inside(_scaled(x, constraint, 1.0), constraint, 1.0)


def _pull(x: FloatArray, constraint: Describe, limit: float) -> FloatArray:
    """Shrink ``x`` until the constraint's value is at most ``limit``."""
    if constraint(x).value > limit:
        x = _scaled(x, constraint, limit)
    return _inside(x, constraint, limit)


def _scaled(x: FloatArray, constraint: Describe, limit: float) -> FloatArray:
    """Return the point on the ray of ``x`` with the value ``limit``, up to rounding.

    Newton on the logarithms of scale and value, which is exact for powers.
    """
    for _ in range(6):
        at = constraint(x)
        along = float(at.gradient @ x)
        if not (along > 0 and np.isfinite(at.value)):
            break
        if abs(at.value - limit) <= 4e-16 * limit:
            break
        x = x * (limit / at.value) ** (at.value / along)
    return x


def _inside(x: FloatArray, constraint: Describe, limit: float) -> FloatArray:
    while (value := constraint(x).value) > limit:
        # convex and zero at zero: the value decreases at least in proportion
        x = x * (limit / value) * (1 - 1e-15)
    return x


# --- boxes ----------------------------------------------------------------------------


def minimise_in_box(
    Q: FloatArray,
    linear: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    total: float | None,
    tol: float = 1e-12,
    max_iter: int = 100,
) -> FloatArray:
    """Minimise ``½ c'Qc + linear'c`` over ``lower <= c <= upper``.

    A primal-dual method with Mehrotra's corrector: one factorisation in each of a few
    dozen steps, however badly Q is conditioned.

    Parameters
    ----------
    Q : array of shape (n, n)
        Positive semidefinite.
    linear, lower, upper : arrays of shape (n,)
    total : float or None
        Prescribed sum of c, if any.
    tol : float
        Tolerance for complementarity, relative to the size of the objective.

    Returns
    -------
    c : array of shape (n,)
        A point within the box whose sum is correct up to rounding.
    """
    c = np.clip(0.0, lower, upper)
    free = np.flatnonzero(upper > lower)
    if not len(free):
        return c
    g = linear[free] + Q[np.ix_(free, np.flatnonzero(c))] @ c[c != 0]
    found = _in_unit_box(
        Q[np.ix_(free, free)], g, lower[free] - c[free], upper[free] - c[free],
        None if total is None else total - float(c.sum()), tol, max_iter,
    )  # fmt: skip
    c[free] += found
    return np.clip(c, lower, upper)


class _BoxPoint(NamedTuple):
    """A point within a unit box, its multipliers, and the factor of its system."""

    x: FloatArray
    low: FloatArray
    high: FloatArray
    residual: FloatArray
    factor: FloatArray
    e: FloatArray
    missing: float
    summed: bool

    def step(
        self, mu: float, a: FloatArray, b: FloatArray
    ) -> tuple[FloatArray, float, FloatArray, FloatArray]:
        """Return steps towards complementarity mu, corrected by the products a, b."""
        x, low, high = self.x, self.low, self.high
        want_low, want_high = (mu - a) / x - low, (mu - b) / (1.0 - x) - high
        right = want_low - want_high - self.residual
        dx, dy = dpotrs(self.factor, right, lower=1)[0], 0.0
        if self.summed:
            along = dpotrs(self.factor, self.e, lower=1)[0]
            dy = (float(self.e @ dx) + self.missing) / float(self.e @ along)
            dx = dx - dy * along
        return dx, dy, want_low - low / x * dx, want_high + high / (1.0 - x) * dx


def _in_unit_box(
    Q: FloatArray, g: FloatArray, lower: FloatArray, upper: FloatArray,
    total: float | None, tol: float, max_iter: int,
) -> FloatArray:  # fmt: skip
    """Return the same for a box with an interior, in units of its widths."""
    width = upper - lower
    Q = Q * width[:, None] * width
    g = g * width + Q @ (lower / width)
    scale = max(float(np.abs(g).max()), float(np.abs(Q).max()), 1e-300)
    Q, g = Q / scale, g / scale
    n = len(g)
    # x in (0, 1), with the weighted sum e'x = s
    e = width / float(np.abs(width).max())
    s = 0.0
    if total is not None:
        s = (total - float(lower.sum())) / float(np.abs(width).max())
    x = np.full(n, 0.5)
    low, high, y = np.ones(n), np.ones(n), 0.0
    for _ in range(max_iter):
        left, right = x, 1.0 - x
        residual = Q @ x + g - low + high + (y * e if total is not None else 0.0)
        missing = float(e @ x) - s if total is not None else 0.0
        gap = float(left @ low + right @ high)
        size = max(abs(float(x @ (Q @ x))), abs(float(g @ x)), 1e-300)
        wrong = max(float(np.abs(residual).max()) / max(size / n, 1e-300), abs(missing))
        if gap <= tol * size and wrong <= 1e-9:
            break
        H = Q.copy()
        H[np.diag_indices_from(H)] += low / left + high / right
        factor, info = dpotrf(H, lower=1)
        ridge = 1e-16
        while info != 0 and ridge < 1e-6:  # indefinite by rounding
            H[np.diag_indices_from(H)] += ridge * np.abs(np.diagonal(H)).max()
            factor, info = dpotrf(H, lower=1)
            ridge *= 100
        if info != 0:
            break

        at = _BoxPoint(x, low, high, residual, factor, e, missing, total is not None)
        zero = np.zeros(n)
        dx, dy, dl, dh = at.step(0.0, zero, zero)
        reach = min(_room(x, dx), _room(1.0 - x, -dx))
        dual = min(_room(low, dl), _room(high, dh))
        after = float(
            (x + reach * dx) @ (low + dual * dl)
            + (1.0 - x - reach * dx) @ (high + dual * dh)
        )
        mu = gap / (2 * n) * min(1.0, (after / gap) ** 3)
        dx, dy, dl, dh = at.step(mu, dx * dl, -dx * dh)
        reach = 0.995 * min(_room(x, dx), _room(1.0 - x, -dx))
        dual = 0.995 * min(_room(low, dl), _room(high, dh))
        if max(reach, dual) < 1e-12:
            break
        x = x + reach * dx
        low, high, y = low + dual * dl, high + dual * dh, y + dual * dy
    # variables that converge to a bound are set to it
    x = np.where(low > 1e3 * x, 0.0, np.where(high > 1e3 * (1.0 - x), 1.0, x))
    return lower + width * x
