"""Groups of columns that matter at different scales, or not at all; any size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

WIDTH = 4  # columns of a group


def make_groups(
    n_samples: int,
    *,
    n_noise: int = 2,
    flip: float = 0.05,
    random_state: Any = None,
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return standard normal samples whose class depends on three groups of columns.

    Each group has four columns. The class depends on the distance of the first group
    from zero (a shell), on a wave along the diagonal of the second, and linearly on the
    third; all other groups are noise. A single kernel on all columns cannot separate
    these effects; with kernels of several widths for each group, learning shows which
    groups matter, and at which scale.

    Rows are independent, so that a large data set can be generated in blocks, each with
    its own seed: ``random_state=[7, block]``.

    Parameters
    ----------
    n_samples : int
    n_noise : int
        Number of uninformative groups.
    flip : float
        Share of labels that are flipped; no classifier can have a smaller error.
    random_state : int, sequence of int, Generator or None
        As for :func:`numpy.random.default_rng`.

    Returns
    -------
    X : array of shape (n_samples, 12 + 4 * n_noise)
    y : array of shape (n_samples,) of 0 and 1

    Examples
    --------
    >>> from mklearn.datasets import make_groups
    >>> X, y = make_groups(1000, random_state=[7, 0])
    >>> X.shape, bool(0.4 < y.mean() < 0.6)
    ((1000, 20), True)
    """
    if n_samples < 1 or n_noise < 0:
        raise ValueError(
            "make_groups needs n_samples >= 1 and n_noise >= 0, got "
            f"{n_samples!r} and {n_noise!r}."
        )
    if not 0 <= flip < 0.5:
        raise ValueError(f"flip must be from 0 to less than 0.5, got {flip!r}.")
    rng = np.random.default_rng(random_state)
    X = rng.standard_normal((n_samples, WIDTH * (3 + n_noise)))
    shell = 0.5 * ((X[:, :WIDTH] ** 2).sum(axis=1) - WIDTH)
    wave = 1.5 * np.sin(X[:, WIDTH : 2 * WIDTH].sum(axis=1))
    line = 0.5 * X[:, 2 * WIDTH : 3 * WIDTH].sum(axis=1)
    turned = rng.random(n_samples) < flip
    return X, ((shell + wave + line > 0) ^ turned).astype(np.intp)
