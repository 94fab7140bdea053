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
from mklearn.cli.models import BOOSTED, MAJORITY, MEAN, Settings, kernel_count

LONG = 1000  # number of rows from which a run may take long
SAMPLE = 200  # number of rows of the timed fits
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
            f"{self.n_bytes / 2**30:.1f} GB of memory, estimated from fits on "
            f"{self.rows} "
            "rows."
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

    Each model is fitted once on a few rows. The time for kernels grows with the square
    of the number of rows, that for boosting in proportion.

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
    part = data.part(data.drawn(SAMPLE, options.seed, 2 * options.cv)[0])
    ratio = n * (1.0 - 1.0 / options.cv) / len(part.y)
    seconds = 0.0
    for name, model in models.items():
        if name in (MAJORITY, MEAN):
            continue
        power = 1.0 if name == BOOSTED else GROWTH
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the few rows of a sample
            began = time.perf_counter()
            clone(model).fit(part.X, part.y, **part.given())
        taken = time.perf_counter() - began
        seconds += taken * ratio**power * options.cv * options.repeats
    M = kernel_count(data, options)
    n_bytes = 8.0 * COPIES * M * n**2
    if options.low_rank(whole):
        D = M * options.rank
        seconds += PASSES * len(whole.y) * _per_row(D)
        n_bytes += 8.0 * (len(whole.y) * D + COPIES * D**2)
    return Estimate(seconds, n_bytes, len(part.y))


def _per_row(D: int, rows: int = 500) -> float:
    """Return the seconds per row for products of D features."""
    Z = np.random.default_rng(0).random((rows, D))
    began = time.perf_counter()
    Z.T @ Z
    return (time.perf_counter() - began) / rows
