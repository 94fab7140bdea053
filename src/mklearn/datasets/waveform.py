"""Breiman's waveforms: mixtures of two of three triangles, plus noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

N_POINTS = 21
# where the waves h1, h2, h3 of Breiman et al. (1984) have their peaks, from 1
PEAKS = (7, 15, 11)
PAIRS = ((0, 1), (0, 2), (1, 2))


def make_waveform(
    n_samples: int, n_noise: int = 0, *, random_state: Any = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return noisy mixtures of two triangular waves; the class says which two.

    A sample is ``u h + (1 - u) g + noise`` at 21 points, with ``u`` uniform on [0, 1],
    the noise standard normal at each point, and ``(h, g)`` the pair of the class:
    ``(h1, h2)`` for 0, ``(h1, h3)`` for 1, ``(h2, h3)`` for 2. The waves are
    ``max(6 - |i - c|, 0)`` for i = 1, ..., 21 with peaks c = 7, 15 and 11. The three
    classes are equally likely. The labels are those of UCI's files.

    Parameters
    ----------
    n_samples : int
    n_noise : int
        Number of columns of standard normal noise after the wave; 19 give the 40
        features of UCI's second version.
    random_state : int, RandomState or None

    Returns
    -------
    X : array of shape (n_samples, 21 + n_noise)
    y : array of shape (n_samples,) of 0, 1 and 2

    References
    ----------
    Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984,
    section 2.6.2.

    Examples
    --------
    >>> from mklearn.datasets import make_waveform
    >>> X, y = make_waveform(300, n_noise=19, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((300, 40), [0, 1, 2])
    """
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples!r}.")
    if n_noise < 0:
        raise ValueError(f"n_noise must be at least 0, got {n_noise!r}.")
    rng = check_random_state(random_state)
    points = np.arange(1, N_POINTS + 1)
    waves = np.maximum(6.0 - np.abs(points - np.array(PEAKS)[:, None]), 0.0)
    y = rng.randint(len(PAIRS), size=n_samples).astype(np.int64)
    first, second = np.array(PAIRS)[y].T
    u = rng.uniform(size=(n_samples, 1))
    X = rng.standard_normal((n_samples, N_POINTS + n_noise))
    X[:, :N_POINTS] += u * waves[first] + (1.0 - u) * waves[second]
    return X, y
