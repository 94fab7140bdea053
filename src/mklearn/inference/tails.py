"""Tail probabilities of quadratic forms in normal variables.

``Q = sum_i w_i X_i^2`` with independent standard normal ``X_i`` and weights of any sign
has the cumulant generating function ``K(s) = -½ sum_i log(1 - 2 w_i s)``, and ::

    P(Q > q) = 1 / (2 pi i)  times the integral of  exp(K(s) - s q) / s  ds

along any path from below to above that crosses the real axis between zero and
``1 / (2 max w)``. The path here crosses it where the integrand is smallest (the
saddlepoint), so that what is added up is of the size of the answer: unlike inversions
along the imaginary axis (Imhof, Davies) it loses no digits far out in the tail. On a
path that bends away from the poles the integrand decays twice exponentially, and the
trapezoidal rule converges as fast as digits can be had.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

FloatArray = NDArray[np.float64]

_STEP, _HALVINGS = 0.5, 7  # of the trapezoidal rule
_CHUNK = 8  # nodes at a time
_BEND = 0.5
_DRAWS = 10_000  # for likelihood ratios
_ROUNDED = 1e-7  # difference of eigenvalues, relative to them, that says nothing


def tail_probability(
    q: float, weights: ArrayLike, counts: ArrayLike | None = None, rtol: float = 1e-10
) -> float:
    """Return ``P(sum_i w_i X_i^2 > q)`` for independent standard normal ``X_i``.

    Parameters
    ----------
    q : float
    weights : array of shape (r,)
        Of any sign.
    counts : array of shape (r,), optional
        How many variables have each weight; one by default.
    rtol : float
        Relative accuracy of the integral.

    Returns
    -------
    float

    Examples
    --------
    >>> from scipy.stats import chi2
    >>> from mklearn.inference import tail_probability
    >>> bool(abs(tail_probability(60.0, [1.0, 1.0]) / chi2.sf(60.0, 2) - 1) < 1e-9)
    True
    """
    w = np.asarray(weights, dtype=np.float64).ravel()
    k = np.ones(len(w)) if counts is None else np.asarray(counts, dtype=np.float64)
    if k.shape != w.shape or not (np.isfinite(w).all() and np.isfinite(q)):
        raise ValueError(
            f"Weights and counts must be finite and of equal number, and q finite; got "
            f"shapes {w.shape} and {k.shape} and q={q}."
        )
    used = (w != 0) & (k > 0)
    w, k = w[used], k[used]
    if not len(w):
        return float(q < 0)
    scale = float(np.abs(w).max())
    w, q = w / scale, float(q) / scale
    if q < k @ w:  # below the mean: the other tail is the small one
        return 1.0 - _upper(-q, -w, k, rtol)
    return _upper(q, w, k, rtol)


def ratio_tail(
    r: float, values: ArrayLike, counts: ArrayLike | None = None, rtol: float = 1e-10
) -> float:
    """Return ``P(sum_i v_i X_i^2 / sum_i X_i^2 > r)``.

    This is the distribution of ``y'Ky / y'y`` for normal y of unknown variance, where
    the v are the eigenvalues of K: exact in samples of any size.

    Parameters
    ----------
    r : float
    values : array
        All of them, zeros included.
    counts : array, optional
        How many variables have each value.
    rtol : float

    Examples
    --------
    >>> from scipy.stats import beta
    >>> from mklearn.inference import ratio_tail
    >>> found = ratio_tail(0.9, [1.0, 0.0], [3, 20])
    >>> bool(abs(found / beta.sf(0.9, 1.5, 10) - 1) < 1e-9)
    True
    """
    v = np.asarray(values, dtype=np.float64)
    if r >= v.max():
        return 0.0
    if r < v.min():
        return 1.0
    return tail_probability(0.0, v - r, counts, rtol)


def flat(values: ArrayLike, counts: ArrayLike) -> bool:
    """Tell whether all values are the same, so that their ratio is known beforehand.

    A kernel of this kind cannot be told from noise: what differs is rounding.

    Parameters
    ----------
    values, counts : arrays of shape (r,)
        As in :func:`ratio_tail`.
    """
    v = np.asarray(values)[np.asarray(counts) > 0]
    return not len(v) or bool(np.ptp(v) <= _ROUNDED * np.abs(v).max())


def _upper(q: float, w: FloatArray, k: FloatArray, rtol: float) -> float:
    """Return ``P(Q > q)`` for q at or above the mean."""
    if q >= 0 and w.max() <= 0:
        return 0.0
    c = _saddlepoint(q, w, k)
    curvature = 2.0 * k @ (w / (1.0 - 2.0 * w * c)) ** 2 + 1.0 / c**2
    a, b = curvature**-0.5, _BEND * np.sign(q)
    top = float(-0.5 * k @ np.log1p(-2.0 * w * c) - c * q)

    def terms(u: FloatArray) -> FloatArray:
        s = c + b * a * (np.cosh(u) - 1.0) + 1j * a * np.sinh(u)
        along = b * a * np.sinh(u) + 1j * a * np.cosh(u)
        cgf = -0.5 * np.log1p(-2.0 * np.multiply.outer(s, w)) @ k
        return np.asarray(np.imag(np.exp(cgf - s * q - top) / s * along))

    h, first = _STEP, float(terms(np.zeros(1))[0])
    tail = [np.inf]
    ahead: list[FloatArray] = []
    while np.abs(tail).max() > 1e-17 * abs(first) and len(ahead) < 500:
        tail = terms(h * (np.arange(1, _CHUNK + 1) + _CHUNK * len(ahead)))
        ahead.append(tail)
    total = h * (0.5 * first + float(np.sum(ahead)))
    for _ in range(_HALVINGS):  # nodes halfway between those so far
        between = (np.arange(_CHUNK * len(ahead) * (_STEP / h)) + 0.5) * h
        found = 0.5 * (total + h * float(terms(between).sum()))
        close = abs(found - total) <= rtol * abs(found)
        total, h = found, h / 2.0
        if close:
            break
    return float(np.exp(top) * total / np.pi)


def _saddlepoint(q: float, w: FloatArray, k: FloatArray) -> float:
    """Return the s > 0 where ``K(s) - s q - log s`` is smallest."""

    def slope(s: float) -> float:
        return float(k @ (w / (1.0 - 2.0 * w * s)) - q - 1.0 / s)

    # convex, from minus infinity at zero to plus infinity (or -q > 0) at the end
    high = 0.5 / w.max() if w.max() > 0 else np.inf
    low = 1.0 if np.isinf(high) else 0.5 * high
    while slope(low) > 0:
        low *= 0.25
    if np.isinf(high):
        high = 2.0 * low
        while slope(high) < 0:
            high *= 4.0
    else:
        gap = high - low
        while slope(high - gap) < 0 and gap > 1e-14 * high:
            gap *= 0.25
        high -= gap
        if slope(high) < 0:
            return high
    return low if high <= low else float(brentq(slope, low, high, rtol=1e-12))


# --- the largest of many likelihood ratios ------------------------------------------


def largest_ratio_tail(
    observed: float, values: FloatArray, rest: int, steps: FloatArray, rng: Any
) -> tuple[float, float]:
    """Return the chance of a largest ratio from ``observed`` on, and its error.

    The density of residuals, up to their size, with a weight is ``exp(r / 2)`` times
    that without it, where r is the ratio of that weight. Draws from a mixture of
    weights, the null among them, have the density ``sum_k part_k exp(r_k / 2)`` in
    these units (importance sampling; Naiman and Priebe 2001 for maxima like this one).

    Parameters
    ----------
    observed : float
        Positive.
    values : array of shape (r,)
        Positive eigenvalues of the kernel where residuals are white.
    rest : int
        How many eigenvalues are zero.
    steps : array of shape (k,)
        Weights that are tried, the first of them zero.
    rng : RandomState or Generator
    """
    grown = 1.0 + np.multiply.outer(values, steps)
    free = len(values) + rest
    # how far a model is from the null: about half of the ratio that it makes
    mean = (grown.sum(axis=0) + rest) / free
    far = 0.5 * (free * np.log(mean) - np.log(grown).sum(axis=0))
    least = max(0.1, observed / 20.0)
    chosen = np.flatnonzero((far >= least) & (far <= max(observed, 2.0)))
    if not len(chosen):
        chosen = np.array([int(np.argmax(far))])
    parts = np.zeros(len(steps))
    parts[0] = 0.5
    parts[chosen] += 0.5 / len(chosen)
    counts = np.floor(parts * _DRAWS).astype(int)
    parts = counts / counts.sum()
    source = np.repeat(np.arange(len(steps)), counts)
    shares = []
    for start in range(0, len(source), 1000):
        here = source[start : start + 1000]
        normal = rng.standard_normal((len(here), len(values))) ** 2 * grown.T[here]
        others = rng.chisquare(rest, len(here)) if rest else np.zeros(len(here))
        ratios = weight_ratios(normal, others, values, rest, steps)
        top = ratios.max(axis=1)
        density = np.exp(0.5 * (ratios - top[:, None])) @ parts
        shares.append(np.where(top >= observed, np.exp(-0.5 * top) / density, 0.0))
    share = np.concatenate(shares)
    # no more than the sum of the chances of single weights, each exp(-r / 2) at most
    bound = min(1.0, len(steps) * float(np.exp(-0.5 * observed)))
    if not share.any():
        return bound, bound
    # of draws from a mixture with fixed counts: their spread within each part
    within = [share[source == k].var() * (source == k).sum() for k in np.unique(source)]
    return float(min(share.mean(), bound)), float(np.sum(within) ** 0.5 / len(share))


def weight_ratios(
    squares: FloatArray,
    beyond: FloatArray,
    values: FloatArray,
    rest: int,
    steps: FloatArray,
) -> FloatArray:
    """Return restricted log likelihood ratios of weights, twice, shape (draws, k).

    Parameters
    ----------
    squares : array of shape (draws, r)
        Of residuals along eigenvectors of the kernel.
    beyond : array of shape (draws,)
        Sums of squares along the ``rest`` eigenvectors of eigenvalue zero.
    values : array of shape (r,)
    rest : int
    steps : array of shape (k,)
    """
    free = len(values) + rest
    grown = 1.0 + np.multiply.outer(values, steps)
    quads = squares @ (1.0 / grown) + beyond[:, None]
    total = squares.sum(axis=1, keepdims=True) + beyond[:, None]
    return np.asarray(free * np.log(total / quads) - np.log(grown).sum(axis=0))
