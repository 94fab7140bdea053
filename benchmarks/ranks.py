"""Ranks of several methods over many data sets, after Demšar (JMLR 2006).

``friedman`` tests whether the methods differ at all, ``critical_difference`` returns
the smallest significant difference of two mean ranks (Nemenyi), and ``draw`` shows
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Friedman:
    """Mean ranks and the test of equal ranks."""

    ranks: FloatArray  # (k,), 1 is best
    chi2: float
    F: float  # of Iman and Davenport, with k - 1 and (k - 1)(N - 1) degrees
    p: float


def ranks(scores: Any) -> FloatArray:
    """Return the rank of each method on each data set, 1 for the highest score.

    Ties get the mean of their ranks. A missing score (NaN) is worse than any other: a
    method that failed is not left out.

    Parameters
    ----------
    scores : array of shape (n_sets, n_methods)
    """
    scores = np.asarray(scores, dtype=np.float64)
    return stats.rankdata(np.where(np.isnan(scores), np.inf, -scores), axis=1)


def friedman(each: Any) -> Friedman:
    """Return the Friedman test on ranks of shape (n_sets, n_methods).

    The statistic is corrected for ties, and its p-value is that of the less
    conservative F of Iman and Davenport.
    """
    each = np.asarray(each, dtype=np.float64)
    N, k = each.shape
    if N < 2 or k < 3:
        raise ValueError(
            f"The Friedman test needs at least 2 data sets and 3 methods, got {N} and "
            f"{k}."
        )
    chi2 = float(stats.friedmanchisquare(*each.T).statistic)
    left = N * (k - 1) - chi2
    F = np.inf if left <= 1e-12 * N else (N - 1) * chi2 / left
    p = float(stats.f.sf(F, k - 1, (k - 1) * (N - 1)))
    return Friedman(each.mean(axis=0), chi2, float(F), p)


def critical_difference(n_sets: int, n_methods: int, level: float = 0.05) -> float:
    """Return the difference of mean ranks that the Nemenyi test finds significant."""
    q = stats.studentized_range.ppf(1.0 - level, n_methods, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_sets)))


def cliques(mean: Any, difference: float) -> list[tuple[int, int]]:
    """Return the longest runs of methods whose ranks do not differ significantly.

    Parameters
    ----------
    mean : array of shape (k,)
        Mean ranks, ascending.
    difference : float
        The critical difference.

    Returns
    -------
    list of (first, last)
        Runs of at least two methods, none within another.
    """
    mean = np.asarray(mean, dtype=np.float64)
    found: list[tuple[int, int]] = []
    for first, low in enumerate(mean):
        last = int(np.searchsorted(mean, low + difference, side="right")) - 1
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found


def draw(ax: Any, names: list[str], mean: Any, difference: float) -> None:
    """Draw mean ranks on a line; bars join methods that do not differ significantly.

    The best methods are on the left, the others on the right.
    """
    order = np.argsort(mean, kind="stable")
    values = np.asarray(mean, dtype=np.float64)[order]
    k = len(values)
    bars = cliques(values, difference)
    low, high = np.floor(values.min()), np.ceil(values.max())
    high = max(high, low + difference)
    width = high - low
    step, below = 1.0, 0.6 + 0.45 * len(bars)
    ax.hlines(0, low, high, color="black", linewidth=1)
    for tick in np.arange(low, high + 0.5):
        ax.vlines(tick, 0, 0.25, color="black", linewidth=1)
        ax.text(tick, 0.4, f"{tick:g}", ha="center", va="bottom", fontsize=8)
    ax.hlines(1.9, low, low + difference, color="black", linewidth=2)
    ax.text(low + difference / 2, 2.05, f"critical difference {difference:.2f}",
            ha="center", va="bottom", fontsize=8)  # fmt: skip
    for i, (first, last) in enumerate(bars):
        at = -0.4 - 0.45 * i
        ends = values[first] - 0.01 * width, values[last] + 0.01 * width
        ax.hlines(at, *ends, color="tab:red", linewidth=3)
    for i, (value, j) in enumerate(zip(values, order, strict=True)):
        left = i < (k + 1) // 2
        depth = -below - step * (i if left else k - 1 - i)
        end = low - 0.04 * width if left else high + 0.04 * width
        ax.plot([value, value, end], [0, depth, depth], color="gray", linewidth=0.8)
        ax.text(end, depth, f" {names[j]} ({value:.2f}) ", va="center", fontsize=8,
                ha="right" if left else "left")  # fmt: skip
    ax.set_xlim(low - 0.6 * width, high + 0.6 * width)
    ax.set_ylim(-below - step * ((k + 1) // 2), 3)
    ax.axis("off")
