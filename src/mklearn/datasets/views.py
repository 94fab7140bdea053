"""Several views, only some of which separate the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from sklearn.utils import check_random_state

from mklearn.data.views import MultiView

FloatArray = NDArray[np.float64]


def make_multiview(
    n_samples: int,
    n_views: int = 6,
    *,
    relevant: int | Sequence[float] = (1.5, 1.0),
    n_redundant: int = 1,
    n_classes: int = 2,
    n_features: int = 5,
    random_state: Any = None,
) -> tuple[MultiView, NDArray[np.int64], NDArray[np.intp]]:
    """Return views of three kinds, and which of them are relevant.

    - A *relevant* view of strength s is normal with unit covariance around the centre
      of its class; any two centres are 2 s apart, and each view has its own directions.
    - A *redundant* view is a rotated copy of a relevant view with additional noise of
      the same variance: given the original, it is uninformative about the class.
    - A *noise* view is standard normal.

    Given the class, the relevant views are independent. Two classes can therefore be
    distinguished with the error ``bayes_error(s)`` from one view of strength s, and
    with ``bayes_error(norm(strengths))`` from all.

    Parameters
    ----------
    n_samples : int
        Number of samples, divided among the classes as evenly as possible.
    n_views : int
        Number of all views; those that are neither relevant nor redundant are noise.
    relevant : int or sequence of float
        Strengths of the relevant views; a number of views means strength 1 each.
    n_redundant : int
        Number of redundant views, which copy the relevant views in turn.
    n_classes : int
    n_features : int
        Number of columns of each view, at least ``n_classes - 1``.
    random_state : int, RandomState or None

    Returns
    -------
    X : MultiView
        Views "relevant0", ..., "redundant0", ..., "noise0", ... in random order.
    y : array of shape (n_samples,) of 0, ..., n_classes - 1
    indices : array of int
        Positions of the relevant views in ``X.names``, in the order of the given
        strengths; the kernels of ``per_view`` have the same order.

    Examples
    --------
    >>> from mklearn.datasets import make_multiview
    >>> X, y, relevant = make_multiview(60, random_state=0)
    >>> [X.names[i] for i in relevant], X.shape
    (['relevant0', 'relevant1'], (60, 30))
    """
    strengths = np.ones(relevant) if isinstance(relevant, int) else np.array(relevant)
    _require_possible(n_samples, n_views, strengths, n_redundant, n_classes, n_features)
    rng = check_random_state(random_state)
    y = rng.permutation(np.arange(n_samples) % n_classes).astype(np.int64)
    shape = (n_samples, n_features)
    views: dict[str, FloatArray] = {}
    for i, strength in enumerate(strengths):
        centres = strength * _centres(n_classes, n_features, rng)
        views[f"relevant{i}"] = centres[y] + rng.standard_normal(shape)
    for i in range(n_redundant):
        turned = views[f"relevant{i % len(strengths)}"] @ _frame(n_features, rng)
        views[f"redundant{i}"] = turned + rng.standard_normal(shape)
    for i in range(n_views - len(views)):
        views[f"noise{i}"] = rng.standard_normal(shape)
    names = list(rng.permutation(list(views)))
    indices = [names.index(f"relevant{i}") for i in range(len(strengths))]
    X = MultiView({str(name): views[name] for name in names})
    return X, y, np.array(indices, dtype=np.intp)


def _centres(n_classes: int, n_features: int, rng: Any) -> FloatArray:
    """Return the corners of a regular simplex with edges of length 2, turned."""
    corners = np.sqrt(2.0) * helmert(n_classes).T
    return np.asarray(corners @ _frame(n_features, rng)[: n_classes - 1])


def _frame(n: int, rng: Any) -> FloatArray:
    """Return an orthogonal matrix in a random direction."""
    return np.asarray(np.linalg.qr(rng.standard_normal((n, n)))[0])


def _require_possible(
    n_samples: int,
    n_views: int,
    strengths: FloatArray,
    n_redundant: int,
    n_classes: int,
    n_features: int,
) -> None:
    if strengths.ndim != 1 or len(strengths) == 0 or not np.all(strengths > 0):
        raise ValueError(
            "relevant must be a positive number of views or their strengths, all "
            f"above 0, got {strengths.tolist()}."
        )
    if n_redundant < 0 or len(strengths) + n_redundant > n_views:
        raise ValueError(
            f"n_views={n_views} cannot hold {len(strengths)} relevant and "
            f"n_redundant={n_redundant} redundant views; ask for more views."
        )
    if not 2 <= n_classes <= n_samples:
        raise ValueError(
            f"n_classes must be from 2 to n_samples={n_samples}, got {n_classes!r}."
        )
    if n_features < n_classes - 1:
        raise ValueError(
            f"n_features must be at least n_classes - 1 = {n_classes - 1} for centres "
            f"at equal distances, got {n_features!r}."
        )
