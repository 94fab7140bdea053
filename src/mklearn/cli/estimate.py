"""Estimate the time and memory of a run, from fits on a sample."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from mklearn.cli.inputs import Data
from mklearn.cli.models import (
    BOOSTED,
    GUESSES,
    Settings,
    few_threads,
    kernel_count,
)
from mklearn.data.spelling import plural

LONG = 1000  # number of rows from which a run may take long
SAMPLE = 200  # number of rows of the timed fits, and twice as many
GROWTH = 2.0  # time for kernels grows with this power of the rows
COPIES = 3  # copies of all Grams during a search: raw, normalised, of a fold
PASSES = 4  # over all rows, on the held-out part and on all, for low-rank features


@dataclass(frozen=True)
class Estimate:
    """Approximate seconds and bytes of a run, and the number of rows timed."""

    seconds: float
    n_bytes: float
    rows: int

    def words(self) -> str:
        """Return the estimate as a sentence."""
        return (
            f"This will take about {duration(self.seconds)} and "
            f"{self.n_bytes / 2**30:.1f} GB of memory, estimated from fits on up to "
            f"{plural(self.rows, 'row')}."
        )


def duration(seconds: float) -> str:
    """Return a time in suitable units."""
    if seconds < 90:
        return f"{max(seconds, 1.0):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def estimate(
    models: Mapping[str, Any], whole: Data, data: Data, options: Settings
) -> Estimate | None:
    """Return the estimated cost of a comparison and the final fit; None if small.

    Each model is fitted on a few rows and on twice as many. What a fit takes however
    few its rows are is constant; the rest grows with the square of the number of rows
    for kernels, and in proportion for boosting.

    Parameters
    ----------
    models : mapping of str to estimators
    whole, data : Data
        All samples, and those of the comparison.
    options : Settings
    """
    n = len(data.y)
    if n < LONG or data.layout is None:
        return None
    least = 2 * options.cv
    few = data.part(data.drawn(SAMPLE, options.seed, least)[0])
    more = data.part(data.drawn(2 * len(few.y), options.seed, least)[0])
    sizes, rows = (len(few.y), len(more.y)), n * (1.0 - 1.0 / options.cv)
    seconds, timed = 0.0, [m for m in models.items() if m[0] not in GUESSES]
    for i, (name, model) in enumerate(timed):
        if i == 0:
            _taken(model, few)  # compiles what is compiled, once for all models
        power = 1.0 if name == BOOSTED else GROWTH
        taken = _taken(model, few), _taken(model, more)
        one = extrapolated(sizes, taken, rows, power)
        seconds += one * options.cv * options.repeats
    M = kernel_count(data, options)
    n_bytes = 8.0 * COPIES * M * n**2
    if options.low_rank(whole):
        D = M * options.rank
        seconds += PASSES * len(whole.y) * _per_row(D)
        n_bytes += 8.0 * (len(whole.y) * D + COPIES * D**2)
    return Estimate(seconds, n_bytes, len(more.y))


def extrapolated(
    sizes: tuple[int, int], seconds: tuple[float, float], n: float, power: float
) -> float:
    """Return ``a + b n^power`` through two timings, with neither a nor b negative."""
    small, large = (size**power for size in sizes)
    b = max(seconds[1] - seconds[0], 0.0) / max(large - small, 1.0)
    if b * small > seconds[0]:  # no constant: all of it grows
        return max(seconds[0] / small, seconds[1] / large) * n**power
    return seconds[0] + b * (n**power - small)


def _taken(model: Any, data: Data) -> float:
    """Return the seconds of a fit."""
    with warnings.catch_warnings(), few_threads(data):
        warnings.simplefilter("ignore")  # warnings about the few rows of a sample
        began = time.perf_counter()
        clone(model).fit(data.X, data.y, **data.given())
    return time.perf_counter() - began


def _per_row(D: int, rows: int = 500) -> float:
    """Return the seconds per row for products of D features."""
    Z = np.random.default_rng(0).random((rows, D))
    began = time.perf_counter()
    Z.T @ Z
    return (time.perf_counter() - began) / rows
