"""Two Gaussians that differ in only some of the features: LPMKL, section 5.1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.utils import check_random_state

FloatArray = NDArray[np.float64]


def make_toy(
    n_samples: int,
    sparsity: float = 0.0,
    *,
    n_features: int = 50,
    distance: float = 1.75,
    random_state: Any = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return samples of two Gaussians with opposite means and unit covariance.

    The means are ``± distance * weights / |weights|``, where ``weights`` is binary and
    has a share ``sparsity`` of zeros, the features that carry no information. Their
    number does not affect the overlap of the classes, see :func:`bayes_error`.

    Parameters
    ----------
    n_samples : int
        Number of samples; half of them, rounded down, are positive.
    sparsity : float
        Share of uninformative features, from 0 to less than 1; at least one feature
        is informative.
    n_features : int
    distance : float
        Distance of each mean from zero.
    random_state : int, RandomState or None

    Returns
    -------
    X : array of shape (n_samples, n_features)
    y : array of shape (n_samples,) of -1 and 1, in random order
    weights : array of shape (n_features,) of 0 and 1
        The informative features come first.

    Examples
    --------
    >>> from mklearn.datasets import make_toy
    >>> X, y, weights = make_toy(100, sparsity=0.92, random_state=0)
    >>> X.shape, float(y.sum()), float(weights.sum())
    ((100, 50), 0.0, 4.0)
    """
    if n_samples < 2:
        raise ValueError(f"n_samples must be at least 2, got {n_samples!r}.")
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity must be from 0 to less than 1, got {sparsity!r}.")
    rng = check_random_state(random_state)
    informative = max(1, round((1 - sparsity) * n_features))
    weights = np.zeros(n_features)
    weights[:informative] = 1.0
    y = np.where(np.arange(n_samples) < n_samples // 2, 1.0, -1.0)
    y = rng.permutation(y)
    mean = distance * weights / np.sqrt(informative)
    return rng.standard_normal((n_samples, n_features)) + y[:, None] * mean, y, weights


def bayes_error(distance: float = 1.75) -> float:
    """Return the smallest error that a classifier of :func:`make_toy` can have.

    Parameters
    ----------
    distance : float
        Distance of either mean from the origin.

    Returns
    -------
    float

    Examples
    --------
    >>> from mklearn.datasets import bayes_error
    >>> round(bayes_error(), 4)
    0.0401
    """
    return float(ndtr(-distance))
