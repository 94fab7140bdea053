"""A small interior-point method: quadratic functions over an ℓp ball of weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

FloatArray = NDArray[np.float64]


def minimise_quadratic(
    H: FloatArray,
    g: FloatArray,
    p: float,
    start: FloatArray,
    tol: float = 1e-9,
    max_iter: int = 60,
) -> FloatArray:
    """Minimise ``½ x'Hx + g'x`` over ``x >= 0, |x|_p <= 1`` for 1 <= p < inf.

    A primal-dual interior-point method with a predictor-corrector choice of the
    centring; ``H`` must be positive semidefinite.

    Parameters
    ----------
    H : array of shape (M, M)
    g : array of shape (M,)
    p : float
    start : array of shape (M,)
        A guess; only its direction is used.
    tol : float
        Complementarity and residual at the end, relative to the size of the problem.

    Returns
    -------
    x : array of shape (M,)
    """
    M = len(g)
    scale = max(float(np.abs(g).max(initial=0.0)), float(np.abs(H).max()), 1e-300)
    H, g = H / scale, g / scale
    # strictly inside: blended with the centre, and shrunk
    centre = np.full(M, M ** (-1.0 / p))
    x = 0.9 * start + 0.1 * centre
    x *= 0.95 / np.linalg.norm(x, p)
    s = 1.0 - np.sum(x**p)  # slack of sum x^p <= 1
    mu = 0.1 * max(1.0, float(np.abs(g @ x)))
    z, v = mu / x, mu / s
    for _ in range(max_iter):
        power = p * x ** (p - 1.0)  # gradient of sum x^p
        dual = H @ x + g - z + v * power
        gap = float(x @ z + s * v) / (M + 1)
        value = abs(float(x @ (0.5 * H @ x + g)))
        excess = float(np.sum(x**p)) - 1.0 + s
        if (M + 1) * gap + np.abs(dual) @ x + v * abs(excess) <= tol * value:
            break
        bend = v * p * (p - 1.0) * x ** (p - 2.0) if p > 1 else 0.0
        K = H + np.diag(z / x + bend) + (v / s) * np.outer(power, power)
        K[np.diag_indices(M)] += 1e-14 * np.trace(K)
        factor = cho_factor(K, lower=True, check_finite=False)
        step = _direction(factor, x, s, z, v, power, dual, excess, 0.0)
        a, b = _room(x, step[0], s, step[1]), _room(z, step[2], v, step[3])
        after = (x + a * step[0]) @ (z + b * step[2])
        after += (s + a * step[1]) * (v + b * step[3])
        share = min(max((float(after) / (M + 1) / gap) ** 3, 1e-4), 0.8)
        dx, ds, dz, dv = _direction(
            factor, x, s, z, v, power, dual, excess, share * gap
        )
        a = 0.99 * min(_room(x, dx, s, ds), _room(z, dz, v, dv))
        while np.sum((x + a * dx) ** p) > 1.5:  # far outside large powers mislead
            a *= 0.5
        x, s, z, v = x + a * dx, s + a * ds, z + a * dz, v + a * dv
    if p == 1 and (x > z).any():
        # complementarity: what is below its multiplier is zero at the solution
        x, total = np.where(x > z, x, 0.0), x.sum()
        x *= total / x.sum()
    size = np.linalg.norm(x, p)
    return np.asarray(x / size if size > 1 else x)


def _direction(factor, x, s, z, v, power, dual, excess, target):  # type: ignore[no-untyped-def]
    """Return the Newton step of (x, s, z, v) towards complementarity ``target``."""
    rhs = -dual - z + target / x - power * (target - v * s + v * excess) / s
    dx = cho_solve(factor, rhs, check_finite=False)
    ds = -excess - power @ dx
    return dx, ds, (target - z * x - z * dx) / x, (target - v * s - v * ds) / s


def _room(x: FloatArray, dx: FloatArray, s: float, ds: float) -> float:
    """Return the largest step in [0, 1] that keeps both ``x`` and ``s`` positive."""
    x, dx = np.append(x, s), np.append(dx, ds)
    shrinking = dx < 0
    if not shrinking.any():
        return 1.0
    return float(min(1.0, np.min(-x[shrinking] / dx[shrinking])))
