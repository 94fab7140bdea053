"""A small interior-point method over a set of weights, with linear cuts if need be."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from mklearn.problems.weights import Constraint

FloatArray = NDArray[np.float64]
Describe = Callable[[FloatArray], Constraint]


class _Point(NamedTuple):
    """Weights x, level e, slacks s (set) and r (cuts), and the multipliers of each."""

    x: FloatArray
    e: FloatArray
    s: float
    r: FloatArray
    z: FloatArray
    v: float
    m: FloatArray

    def moved(self, d: _Point, a: float) -> _Point:
        return _Point(
            self.x + a * d.x,
            self.e + a * d.e,
            self.s + a * d.s,
            self.r + a * d.r,
            self.z + a * d.z,
            self.v + a * d.v,
            self.m + a * d.m,
        )

    def products(self) -> float:
        return float(self.x @ self.z + self.s * self.v + self.r @ self.m)

    def room(self, d: _Point) -> float:
        """Return the largest step in [0, 1] that keeps all of them positive."""
        here = np.hstack([self.x, self.s, self.r, self.z, self.v, self.m])
        step = np.hstack([d.x, d.s, d.r, d.z, d.v, d.m])
        down = step < 0
        return float(np.min(-here[down] / step[down], initial=1.0))


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
        A guess.
    tol : float
        Complementarity and residuals at the end, relative to the optimal value.

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
        The cuts' multipliers, which sum to one.
    """
    scale = max(float(np.abs(slopes).max()), 1e-300)
    M = len(start)
    # near the end the values differ by little: their offset would only cost digits
    inner = _Program(
        np.zeros((M, M)), np.zeros(M), slopes / scale,
        (values - values.max()) / scale, True, constraint,
    )  # fmt: skip
    at = inner.solve(start, 0.0, accuracy / scale, 100)
    return inner.weights(at), at.m / at.m.sum()


def project(
    center: FloatArray,
    values: FloatArray,
    slopes: FloatArray,
    constraint: Describe,
    start: FloatArray,
    tol: float = 1e-6,
) -> FloatArray:
    """Return the member nearest to ``center`` with ``values - slopes x <= 0``.

    Arguments as in :func:`minimise_level`; ``start`` should satisfy the cuts.
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
        self.H, self.g, self.B, self.b = H, g, B, b
        self.E = np.ones((len(b), int(free)))
        self.constraint = constraint

    def weights(self, at: _Point) -> FloatArray:
        """Return the weights, exactly zero where they are zero at the solution."""
        x = at.x
        if (x > at.z).any():
            # complementarity: what is below its multiplier is zero at the solution
            x = np.where(x > at.z, x, 0.0)
        return _pull(x, self.constraint, 1.0)

    def solve(
        self, start: FloatArray, tol: float, allowed: float, max_iter: int
    ) -> _Point:
        """Solve until the error is at most ``allowed`` or ``tol`` times the value."""
        H, g, B, b, E = self.H, self.g, self.B, self.b, self.E
        # strictly inside: blended with its mean, and shrunk
        x = 0.9 * start + 0.1 * start.mean()
        x = _pull(0.95 * x, self.constraint, 0.95)
        c = self.constraint(x)
        mu = 0.1 * max(1.0, float(np.abs(g @ x)))
        e = np.full(E.shape[1], float((b - B @ x).max(initial=0.0)) + 0.1)
        r = np.maximum(B @ x + E @ e - b, 0.1)
        s = 1.0 - c.value
        at = _Point(x, e, s, r, mu / x, mu / s, mu / r)
        if len(e):  # the multipliers of the cuts sum to one
            at = at._replace(m=at.m / at.m.sum())
        count = len(x) + 1 + len(r)
        for _ in range(max_iter):
            x, e, s, r, z, v, m = at
            dual = H @ x + g - z + v * c.gradient - B.T @ m
            total = 1.0 - m.sum() if len(e) else 0.0
            excess, short = c.value - 1.0 + s, r - (B @ x + E @ e - b)
            gap = at.products() / count
            value = abs(float(x @ (0.5 * H @ x + g) + e.sum()))
            error = count * gap + np.abs(dual) @ x + v * abs(excess)
            error += m @ np.abs(short) + abs(total) * float(np.abs(e).sum())
            if error <= max(tol * value, allowed) or count * gap <= 1e-25 * value:
                break  # done, or what is left is rounding
            w = m / r
            K = H + np.diag(z / x) + v * c.hessian + (B.T * w) @ B
            K += (v / s) * np.outer(c.gradient, c.gradient)
            K = np.block([[K, (B.T * w) @ E], [(E.T * w) @ B, (E.T * w) @ E]])
            K[np.diag_indices(len(K))] *= 1 + 1e-14
            try:
                factor = cho_factor(K, lower=True, check_finite=False)
            except LinAlgError:  # no more digits: this point has to do
                break
            here = (factor, at, c.gradient, dual, total, excess, short)
            d = self._direction(*here, 0.0)
            after = at.moved(d, at.room(d)).products()
            share = min(max((after / count / gap) ** 3, 1e-4), 0.8)
            d = self._direction(*here, share * gap)
            a = 0.99 * at.room(d)
            while a > 1e-12 and not self.constraint(x + a * d.x).value <= 1.5:
                a *= 0.5  # a curved constraint misleads far out
            at = at.moved(d, a)
            c = self.constraint(at.x)
        return at

    def _direction(self, factor, at, power, dual, total, excess, short, target):  # type: ignore[no-untyped-def]
        """Return the Newton step towards complementarity ``target``."""
        x, _, s, r, z, v, m = at
        B, E = self.B, self.E
        cut = (target - r * m + m * short) / r
        rhs = -dual - z + target / x - power * (target - v * s + v * excess) / s
        both = np.r_[rhs + B.T @ cut, E.T @ cut - total * np.ones(E.shape[1])]
        d = cho_solve(factor, both, check_finite=False)
        dx, de = d[: len(x)], d[len(x) :]
        ds = -excess - power @ dx
        dr = B @ dx + E @ de - short
        dz, dv = (target - z * x - z * dx) / x, (target - v * s - v * ds) / s
        return _Point(dx, de, ds, dr, dz, dv, (target - r * m - m * dr) / r)


def outward(x: FloatArray, constraint: Describe) -> FloatArray:
    """Return the boundary point on the ray of ``x``: no weights on it do better."""
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
        x = x * (limit / at.value) ** (at.value / along)
    return x


def _inside(x: FloatArray, constraint: Describe, limit: float) -> FloatArray:
    while (value := constraint(x).value) > limit:
        # convex and zero at zero: the value falls at least in proportion
        x = x * (limit / value) * (1 - 1e-15)
    return x
