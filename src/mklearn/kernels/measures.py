"""Measures of one or several kernels: alignment, HSIC, spectrum, definiteness."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from mklearn.kernels.bank import KernelBank

FloatArray = NDArray[np.float64]


def symmetry_error(bank: KernelBank) -> float:
    """Return the largest ``|K - K'|`` of a one-kernel bank, relative to ``max |K|``.

    Up to 2000 samples are compared in full, more by a product with random vectors.
    """
    n = bank.shape[0]
    if n <= 2000:
        K = bank.gram(0)
        return float(np.abs(K - K.T).max() / max(np.abs(K).max(), 1e-300))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, n, 8))
    left = np.einsum("it,it->t", x, bank.apply([1.0], y))
    right = np.einsum("it,it->t", y, bank.apply([1.0], x))
    size = max(np.abs(left).max(), np.abs(right).max(), 1e-300)
    return float(np.abs(left - right).max() / size)


def smallest_eigenvalue(bank: KernelBank) -> tuple[float, float]:
    """Return (an estimate of) the smallest and the largest eigenvalue of one kernel.

    Exact up to 500 samples, by Lanczos iteration above; a negative entry on the
    diagonal is a bound that costs nothing.
    """
    n = bank.shape[0]
    if n <= 500:
        values = np.linalg.eigvalsh(bank.gram(0))
        return float(values[0]), float(values[-1])

    def product(x: FloatArray) -> FloatArray:
        return bank.apply([1.0], x.reshape(n, -1)).reshape(x.shape)

    operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    try:
        values = eigsh(
            operator, k=2, which="BE", v0=start, ncv=20, maxiter=20, tol=1e-3,
            return_eigenvectors=False,
        )  # fmt: skip
    except ArpackNoConvergence as error:
        values = np.asarray(error.eigenvalues)
    # the trace bounds the largest eigenvalue from below if Lanczos gave nothing
    diag = bank.diag()[:, 0]
    low = min(float(diag.min()), *values.tolist(), 0.0)
    high = max(float(diag.max()), *values.tolist(), 0.0)
    return low, high


def hsic(K: ArrayLike, L: ArrayLike) -> float:
    """Return the Hilbert-Schmidt independence criterion ``tr(P K P L) / (n - 1)^2``.

    Examples
    --------
    >>> import numpy as np
    >>> round(hsic(np.eye(3), np.eye(3)), 3)
    0.5
    """
    K, L = np.asarray(K, float), np.asarray(L, float)
    n = len(K)
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return float(np.sum(centred * L) / (n - 1) ** 2)


def alignment(bank: KernelBank) -> FloatArray:
    """Return the centred alignment of each pair of kernels, shape (M, M).

    ``<G_a, G_b> / (|G_a| |G_b|)`` with centred Grams; one means equal up to scale.
    """
    n, _, M = bank.shape
    grams = np.empty((M, n * n))
    for m in range(M):
        K = bank.gram(m)
        grams[m] = (K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()).ravel()
    inner = grams @ grams.T
    size = np.sqrt(np.diagonal(inner))
    size = np.where(size > 0, size, 1.0)
    return np.asarray(inner / np.outer(size, size))
