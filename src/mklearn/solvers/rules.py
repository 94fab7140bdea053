"""Kernel weights by closed-form rules, without a loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

FloatArray = NDArray[np.float64]


def alignment_weights(inner: FloatArray, with_target: FloatArray) -> FloatArray:
    """Return the weights of the combined kernel that is best aligned with a target.

    Maximises ``<G_theta, L> / |G_theta|`` over ``theta >= 0, |theta| = 1``, for centred
    Grams. The maximiser is ``v / |v|`` where ``v >= 0`` minimises ``v'Mv - 2 v'a``
    (Cortes, Mohri and Rostamizadeh 2012, proposition 9): least squares, ``|R v - R^-T
    a|^2`` with ``M = R'R``.

    Parameters
    ----------
    inner : array of shape (M, M)
        ``<G_a, G_b>``.
    with_target : array of shape (M,)
        ``<G_a, L>``, nonnegative, since both are positive semidefinite.

    Returns
    -------
    array of shape (M,)
        Equal weights if all kernels are orthogonal to the target.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn.solvers.rules import alignment_weights
    >>> alignment_weights(np.eye(2), np.array([3.0, 4.0])).tolist()
    [0.6, 0.8]
    """
    n_kernels = len(inner)
    size = np.sqrt(np.diagonal(inner))
    used = np.flatnonzero((size > 0) & (with_target > 0))
    theta = np.zeros(n_kernels)
    if len(used) == 0:
        return np.full(n_kernels, n_kernels**-0.5)
    # scaled to unit norms; the matrix is singular if kernels are equal
    M = inner[np.ix_(used, used)] / np.outer(size[used], size[used])
    a = with_target[used] / size[used]
    values, vectors = np.linalg.eigh(M)
    keep = values > 1e-12 * values[-1]
    R = np.sqrt(values[keep])[:, None] * vectors[:, keep].T
    goal = (vectors[:, keep].T @ a) / np.sqrt(values[keep])
    v = nnls(R, goal)[0] / size[used]
    theta[used] = v / np.linalg.norm(v)
    return theta
