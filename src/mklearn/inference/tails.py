"""Tail probabilities of quadratic forms in normal variables.

``Q = sum_i w_i X_i^2`` with independent standard normal ``X_i`` and weights of any sign
has the cumulant generating function ``K(s) = -½ sum_i log(1 - 2 w_i s)``, and ::

    P(Q > q) = 1 / (2 pi i)  times the integral of  exp(K(s) - s q) / s  ds

along any path from below to above that crosses the real axis between zero and
``1 / (2 max w)``. The path here crosses it where the integrand is smallest (the
saddlepoint), so the terms of the sum are of the size of the result: unlike inversions
along the imaginary axis (Imhof, Davies) this causes no cancellation far out in the
tail. On a path that bends away from the poles the integrand decays
double-exponentially, and the trapezoidal rule converges rapidly to full precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

_STEP, _HALVINGS = 0.5, 7  # of the trapezoidal rule
_CHUNK = 8  # nodes at a time
_BEND = 0.5
_BISECTIONS = 24  # of the logarithm of the crossing point
_TOGETHER = 4000  # number of weights of several tails that are computed together
_DRAWS = 10_000  # for likelihood ratios
_ROUNDED = 1e-7  # relative difference below which eigenvalues count as equal


def tail_probability(
    q: float, weights: ArrayLike, counts: ArrayLike | None = None, rtol: float = 1e-10
) -> float:
    """Return ``P(sum_i w_i X_i^2 > q)`` for independent standard normal ``X_i``.

    Parameters
    ----------
    q : float
    weights : array of shape (r,)
        Weights of any sign.
    counts : array of shape (r,), optional
        Number of variables with each weight; one by default.
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
    return float(_tails(np.array([float(q)]), w[None, :], k[None, :], rtol)[0])


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
        All values, including zeros.
    counts : array, optional
        Number of variables with each value.
    rtol : float

    Examples
    --------
    >>> from scipy.stats import beta
    >>> from mklearn.inference import ratio_tail
    >>> found = ratio_tail(0.9, [1.0, 0.0], [3, 20])
    >>> bool(abs(found / beta.sf(0.9, 1.5, 10) - 1) < 1e-9)
    True
    """
    v = np.asarray(values, dtype=np.float64).ravel()
    k = np.ones(len(v)) if counts is None else np.asarray(counts, dtype=np.float64)
    return float(ratio_tails([r], [v], [k], rtol)[0])


def ratio_tails(
    r: ArrayLike,
    values: Sequence[FloatArray],
    counts: Sequence[FloatArray],
    rtol: float = 1e-10,
) -> FloatArray:
    """Return :func:`ratio_tail` of many ratios, each with its own values.

    Parameters
    ----------
    r : array of shape (b,)
    values, counts : sequences of b arrays
        Of any lengths.
    rtol : float
    """
    ratios = np.asarray(r, dtype=np.float64)
    return _of_many(np.zeros(len(ratios)), ratios, values, counts, rtol)


def tail_probabilities(
    q: ArrayLike,
    weights: Sequence[FloatArray],
    counts: Sequence[FloatArray],
    rtol: float = 1e-10,
) -> FloatArray:
    """Return :func:`tail_probability` of many values, each with its own weights.

    Parameters
    ----------
    q : array of shape (b,)
    weights, counts : sequences of b arrays
        Of any lengths.
    rtol : float
    """
    values = np.asarray(q, dtype=np.float64)
    return _of_many(values, np.zeros(len(values)), weights, counts, rtol)


def _of_many(
    q: FloatArray,
    ratios: FloatArray,
    values: Sequence[FloatArray],
    counts: Sequence[FloatArray],
    rtol: float,
) -> FloatArray:
    """Return ``P(sum_i (v_i - r) X_i^2 > q)`` for each q and r."""
    found = np.empty(len(q))
    sizes = np.array([len(v) for v in values])
    order = np.argsort(sizes, kind="stable")
    start = 0
    while start < len(order):
        # as many as possible together, of about the same length
        stop = start + 1
        while stop < len(order) and (stop - start) * sizes[order[stop]] < _TOGETHER:
            stop += 1
        some, start = order[start:stop], stop
        width = int(sizes[some].max())
        w, k = np.zeros((len(some), width)), np.zeros((len(some), width))
        for row, m in enumerate(some):
            w[row, : sizes[m]] = values[m] - ratios[m]
            k[row, : sizes[m]] = counts[m]
        found[some] = _tails(q[some], w, k, rtol)
    return found


def flat(values: ArrayLike, counts: ArrayLike) -> bool:
    """Return whether all values are equal up to rounding, so the ratio is constant.

    Such a kernel cannot be distinguished from noise.

    Parameters
    ----------
    values, counts : arrays of shape (r,)
        As in :func:`ratio_tail`.
    """
    v = np.asarray(values)[np.asarray(counts) > 0]
    return not len(v) or bool(np.ptp(v) <= _ROUNDED * np.abs(v).max())


def _tails(q: FloatArray, w: FloatArray, k: FloatArray, rtol: float) -> FloatArray:
    """Return ``P(Q > q)`` for rows of weights and counts, which are zero-padded."""
    w = np.where(k > 0, w, 0.0)
    scale = np.abs(w).max(axis=1, initial=0.0)
    found = np.where(q < 0, 1.0, 0.0)  # for Q = 0
    some = scale > 0
    q, w, k = q[some] / scale[some], w[some] / scale[some, None], k[some]
    # below the mean, compute the other tail, which is smaller
    turned = q < np.sum(k * w, axis=1)
    sign = np.where(turned, -1.0, 1.0)
    q, w = sign * q, sign[:, None] * w
    upper = np.zeros(len(q))
    open_ = (q < 0) | (w.max(axis=1, initial=0.0) > 0)
    if open_.any():
        upper[open_] = _uppers(q[open_], w[open_], k[open_], rtol)
    found[some] = np.where(turned, 1.0 - upper, upper)
    return found


def _uppers(q: FloatArray, w: FloatArray, k: FloatArray, rtol: float) -> FloatArray:
    """Return ``P(Q > q)`` for q at or above the mean."""
    c = _saddlepoints(q, w, k)
    curvature = 2.0 * np.sum(k * (w / (1.0 - 2.0 * w * c[:, None])) ** 2, axis=1)
    a, b = (curvature + 1.0 / c**2) ** -0.5, _BEND * np.sign(q)
    top = -0.5 * np.sum(k * np.log1p(-2.0 * w * c[:, None]), axis=1) - c * q

    def terms(rows: NDArray[np.intp], u: FloatArray) -> FloatArray:
        ar, br = a[rows, None], b[rows, None]
        s = c[rows, None] + br * ar * (np.cosh(u) - 1.0) + 1j * ar * np.sinh(u)
        along = br * ar * np.sinh(u) + 1j * ar * np.cosh(u)
        logs = np.log1p(-2.0 * s[:, :, None] * w[rows, None, :])
        cgf = -0.5 * (logs @ k[rows, :, None])[:, :, 0]
        value = np.exp(cgf - s * q[rows, None] - top[rows, None]) / s * along
        return np.asarray(np.imag(value))

    every = np.arange(len(q))
    first = terms(every, np.zeros(1))[:, 0]
    total, ends = 0.5 * first, np.zeros(len(q), dtype=int)
    left, chunk = every, 0
    while len(left) and chunk < 500:
        tail = terms(left, _STEP * (np.arange(1, _CHUNK + 1) + _CHUNK * chunk))
        total[left] += tail.sum(axis=1)
        chunk += 1
        ends[left] = chunk
        left = left[np.abs(tail).max(axis=1) > 1e-17 * np.abs(first[left])]
    h, total, left = _STEP, _STEP * total, every
    for _ in range(_HALVINGS):  # add nodes halfway between the existing ones
        last = _CHUNK * int(ends[left].max()) * _STEP
        between = (np.arange(round(last / h)) + 0.5) * h
        found = 0.5 * (total[left] + h * terms(left, between).sum(axis=1))
        close = np.abs(found - total[left]) <= rtol * np.abs(found)
        total[left], h = found, h / 2.0
        left = left[~close]
        if not len(left):
            break
    return np.asarray(np.exp(top) * total / np.pi)


def _saddlepoints(q: FloatArray, w: FloatArray, k: FloatArray) -> FloatArray:
    """Return an s > 0 that approximately minimises ``K(s) - s q - log s``.

    Its derivative increases from minus infinity at zero to plus infinity at the first
    pole (or to -q > 0 if there is none). Any path between the two has the same
    integral.
    """
    largest = w.max(axis=1)
    pole = 0.5 / np.where(largest > 0, largest, 1.0)
    low, high = np.full(len(q), -60.0), np.full(len(q), 60.0)

    def place(t: FloatArray) -> FloatArray:
        grown = np.exp(t)
        # keep a distance from the pole, because of rounding
        near = pole * np.minimum(grown / (1.0 + grown), 1.0 - 1e-14)
        return np.where(largest > 0, near, grown)

    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        s = place(middle)
        slope = np.sum(k * w / (1.0 - 2.0 * w * s[:, None]), axis=1) - q - 1.0 / s
        low, high = np.where(slope < 0, middle, low), np.where(slope < 0, high, middle)
    return place(0.5 * (low + high))


# --- the largest of many likelihood ratios ------------------------------------------


def largest_ratio_tail(
    observed: float, values: FloatArray, rest: int, steps: FloatArray, rng: Any
) -> tuple[float, float]:
    """Return the probability that the largest ratio is at least ``observed``.

    The density of residuals, up to their size, with a weight is ``exp(r / 2)`` times
    that without it, where r is the ratio of that weight. Draws from a mixture of
    weights, the null among them, have the density ``sum_k part_k exp(r_k / 2)`` in
    these units (importance sampling; see Naiman and Priebe 2001 for such maxima). The
    second result is the standard error.

    Parameters
    ----------
    observed : float
        Positive.
    values : array of shape (r,)
        Positive eigenvalues of the kernel in coordinates of white residuals.
    rest : int
        Number of zero eigenvalues.
    steps : array of shape (k,)
        Grid of weights, of which the first is zero.
    rng : RandomState or Generator
    """
    grown = 1.0 + np.multiply.outer(values, steps)
    free = len(values) + rest
    # distance of a model from the null: about half of its expected ratio
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
    # union bound over single weights, each with probability of at most exp(-r / 2)
    bound = min(1.0, len(steps) * float(np.exp(-0.5 * observed)))
    if not share.any():
        return bound, bound
    # stratified sampling: only the variance within each part counts
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
        Squares of residuals along eigenvectors of the kernel.
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
