"""A small interior-point method: quadratic functions over a set of weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from mklearn.problems.weights import Constraint

FloatArray = NDArray[np.float64]


def minimise_quadratic(
    H: FloatArray,
    g: FloatArray,
    constraint: Callable[[FloatArray], Constraint],
    start: FloatArray,
    tol: float = 1e-9,
    max_iter: int = 60,
) -> FloatArray:
    """Minimise ``½ x'Hx + g'x`` over ``x >= 0, constraint(x).value <= 1``.

    A primal-dual interior-point method with a predictor-corrector choice of the
    centring; ``H`` must be positive semidefinite and the constraint convex and zero at
    zero.

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
    M = len(g)
    scale = max(float(np.abs(g).max(initial=0.0)), float(np.abs(H).max()), 1e-300)
    H, g = H / scale, g / scale
    # strictly inside: blended with its mean, and shrunk
    x = 0.9 * start + 0.1 * start.mean()
    x = _pull(0.95 * x, constraint, 0.95)
    at = constraint(x)
    s = 1.0 - at.value
    mu = 0.1 * max(1.0, float(np.abs(g @ x)))
    z, v = mu / x, mu / s
    for _ in range(max_iter):
        dual = H @ x + g - z + v * at.gradient
        gap = float(x @ z + s * v) / (M + 1)
        excess = at.value - 1.0 + s
        value = abs(float(x @ (0.5 * H @ x + g)))
        if (M + 1) * gap + np.abs(dual) @ x + v * abs(excess) <= tol * value:
            break
        K = H + np.diag(z / x) + v * at.hessian
        K += (v / s) * np.outer(at.gradient, at.gradient)
        K[np.diag_indices(M)] += 1e-14 * np.trace(K)
        factor = cho_factor(K, lower=True, check_finite=False)
        here = (factor, x, s, z, v, at.gradient, dual, excess)
        dx, ds, dz, dv = _direction(*here, 0.0)
        a, b = _room(x, dx, s, ds), _room(z, dz, v, dv)
        after = (x + a * dx) @ (z + b * dz) + (s + a * ds) * (v + b * dv)
        share = min(max((float(after) / (M + 1) / gap) ** 3, 1e-4), 0.8)
        dx, ds, dz, dv = _direction(*here, share * gap)
        a = 0.99 * min(_room(x, dx, s, ds), _room(z, dz, v, dv))
        while constraint(x + a * dx).value > 1.5:  # a curved constraint misleads there
            a *= 0.5
        x, s, z, v = x + a * dx, s + a * ds, z + a * dz, v + a * dv
        at = constraint(x)
    if (x > z).any():
        # complementarity: what is below its multiplier is zero at the solution
        x = np.where(x > z, x, 0.0)
    return _pull(x, constraint, 1.0)


def _pull(
    x: FloatArray, constraint: Callable[[FloatArray], Constraint], limit: float
) -> FloatArray:
    """Shrink ``x`` until the constraint's value is at most ``limit``."""
    while (value := constraint(x).value) > limit:
        # convex and zero at zero: the value falls at least in proportion
        x = x * (limit / value) * (1 - 1e-15)
    return x


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
