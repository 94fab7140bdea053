"""Measures of one or several kernels: alignment, HSIC, spectrum, definiteness."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigvalsh_tridiagonal

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.memory import row_blocks

FloatArray = NDArray[np.float64]


def symmetry_error(bank: KernelBank) -> float:
    """Return the largest ``|K - K'|`` of a one-kernel bank, relative to ``max |K|``."""
    n = bank.shape[0]
    largest = difference = 0.0
    for rows in row_blocks(n, 8 * n, bank.memory_limit):
        K = bank[rows].gram(0)
        largest = max(largest, np.abs(K).max())
        K -= bank[:, rows].gram(0).T
        difference = max(difference, np.abs(K).max())
    return float(difference / largest) if largest > 0 else 0.0


def extreme_eigenvalues(bank: KernelBank, steps: int = 100) -> tuple[float, float]:
    """Return (estimates of) the smallest and the largest eigenvalue of one kernel.

    Exact up to 500 samples. Above, the extreme Ritz values of ``steps`` Lanczos steps:
    they lie between the two eigenvalues, so that a negative one proves the kernel
    indefinite. A negative entry on the diagonal is a bound that costs nothing.
    """
    n = bank.shape[0]
    if n <= 500:
        values = np.linalg.eigvalsh(bank.gram(0))
        return float(values[0]), float(values[-1])
    diag = bank.diag()[:, 0]
    if diag.min() < 0:
        return float(diag.min()), float(diag.max())
    Q = np.zeros((n, steps))
    alpha, beta = np.zeros(steps), np.zeros(steps)
    q = np.random.default_rng(0).standard_normal(n)
    q /= np.linalg.norm(q)
    k = 0
    while k < steps:
        Q[:, k] = q
        r = bank.apply([1.0], q)[:, 0]
        alpha[k] = q @ r
        for _ in range(2):  # without this, rounding brings found directions back
            r -= Q[:, : k + 1] @ (Q[:, : k + 1].T @ r)
        beta[k] = np.linalg.norm(r)
        k += 1
        if beta[k - 1] <= 1e-12 * np.abs(alpha[:k]).max():
            break  # the directions found hold all that the kernel does to q
        q = r / beta[k - 1]
    values = eigvalsh_tridiagonal(alpha[:k], beta[: k - 1])
    return float(values[0]), float(max(values[-1], diag.max()))


def hsic(K: ArrayLike, L: ArrayLike) -> float:
    """Return the Hilbert-Schmidt independence criterion ``tr(P K P L) / (n - 1)^2``.

    Parameters
    ----------
    K, L : arrays of shape (n, n)
        Gram matrices of the same samples.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> round(hsic(np.eye(3), np.eye(3)), 3)
    0.5
    """
    K, L = np.asarray(K, float), np.asarray(L, float)
    n = len(K)
    if K.shape != (n, n) or L.shape != (n, n) or n < 2:
        raise ValueError(
            "hsic needs two square Grams of the same two or more samples, got shapes "
            f"{K.shape} and {L.shape}."
        )
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return float(np.sum(centred * L) / (n - 1) ** 2)


def alignment(bank: KernelBank) -> FloatArray:
    """Return the centred alignment of each pair of kernels, shape (M, M).

    ``<G_a, G_b> / (|G_a| |G_b|)`` with centred Grams; one means equal up to scale.

    Parameters
    ----------
    bank : KernelBank
        Square; centring is done here.

    Returns
    -------
    array of shape (M, M)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import KernelBank
    >>> from mklearn.kernels import alignment
    >>> found = alignment(KernelBank(load_iris().data, ["linear", "rbf"]))
    >>> found.shape, bool(0 < found[0, 1] < found[0, 0])
    ((2, 2), True)
    """
    inner, _ = centred_products(bank)
    size = np.sqrt(np.diagonal(inner))
    size = np.where(size > 0, size, 1.0)
    return np.asarray(inner / np.outer(size, size))


def centred_products(
    bank: KernelBank, target: ArrayLike | None = None, weight: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the inner products of centred Grams, with each other and with a target.

    Parameters
    ----------
    bank : KernelBank
        Square.
    target : array of shape (n, T), optional
        Features Z of a target kernel ``Z Z'``.
    weight : array of shape (n,), optional
        A sample of weight 2 counts as two equal samples.

    Returns
    -------
    inner : array of shape (M, M)
        ``<G_a, G_b> = sum_ij w_i w_j G_a[i, j] G_b[i, j]``.
    with_target : array of shape (M,)
        ``<G_a, Z Z'>``; zeros without a target.
    """
    n, _, M = bank.shape
    w = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    Z = np.zeros((n, 1)) if target is None else np.asarray(target, dtype=np.float64)
    Z = w[:, None] * Z
    means, mean = bank.totals(w / w.sum())
    inner, with_target = np.zeros((M, M)), np.zeros(M)
    # a block holds the values of all kernels, side by side
    for rows in row_blocks(n, 8 * n * M, bank.memory_limit):
        block = bank[rows]
        grams = np.stack([block.gram(m) for m in range(M)])
        grams -= means[:, rows, None] + means[:, None, :]
        grams += mean[:, None, None]
        with_target += np.einsum("aij,ij->a", grams, Z[rows] @ Z.T)
        if weight is not None:
            grams *= np.sqrt(w[rows])[:, None] * np.sqrt(w)
        inner += np.einsum("aij,bij->ab", grams, grams, optimize=True)
    return inner, with_target
