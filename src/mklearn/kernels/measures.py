"""Measures of kernels: alignment, HSIC, definiteness."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from mklearn.data.threads import run_blocks
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.memory import row_blocks
from mklearn.kernels.sources import Seen

FloatArray = NDArray[np.float64]


# Up to this many samples, or operations, definiteness is checked completely, above on a
# sample.
EXACT = 256
_OPERATIONS = 1.5e8
_GROUP = 2**23  # size in bytes of a group of kernels that is examined together


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


def negative_values(
    bank: KernelBank, seen: Seen, tol: float, exact: bool = False
) -> FloatArray:
    """Return, for each kernel, an upper bound on its smallest eigenvalue.

    It is zero if nothing negative was found, and otherwise below ``-tol`` times the
    largest eigenvalue: the value ``x'Kx / x'x`` of a direction x, which proves that the
    kernel is not positive semidefinite. The following is examined, with S the first
    samples of a fixed random order (:func:`sample_size`), or all of them if ``exact``:

    - each sample, and each pair of samples;
    - every direction on S, by a Cholesky factorisation;
    - the first quarter R of S together with any other sample i, by the Schur complement
      of the diagonal entry, ``K_ii - K_iR K_RR^-1 K_Ri``.

    So a negative eigenvalue is found if its eigenvector is supported on at most two
    samples, or on S. If it is spread over all samples, ``K = P - c v v'`` with a
    positive semidefinite P, it is found if R leaves less of the trace of P than of
    ``c v v'``: for kernels of low rank, or with rapidly decaying eigenvalues. Others
    may be missed.

    Parameters
    ----------
    bank : KernelBank
        Square and symmetric, not normalised.
    seen : Seen
        The result of :meth:`KernelBank.survey`.
    tol : float
    exact : bool
        Whether S are all samples, which costs ``n^3 / 3`` operations for each kernel.
    """
    n, _, M = bank.shape
    # the Frobenius norm is an upper bound on the largest eigenvalue and its rounding
    slack = (tol + bank.eps) * np.sqrt(seen.squares)
    diag = bank.diag()
    low = diag.min(axis=0)
    for m in np.flatnonzero(seen.beyond):
        low[m] = min(low[m], _least_of_pairs(bank.select([m]), diag[:, m]))
    size = n if exact else sample_size(n, M)
    order = np.random.default_rng(0).permutation(n)[:size]
    few, rest = np.split(order, [size // 4 if size < n else 0])
    # in the order of memory, which is read faster
    few, rest = np.sort(few), np.sort(rest)
    order = np.concatenate([few, rest])
    width = 8 * (size**2 + n * len(few))
    # kernels that are adjacent in memory are read together, if they are small enough
    group = max(8 if width <= _GROUP // 2 else 1, _GROUP // width)

    def work(start: int) -> FloatArray:
        at = np.arange(start, min(start + group, M))
        part = bank.select(at)
        corners = part[np.ix_(order, order)].grams()
        strips = part[np.ix_(few, np.arange(n))].grams() if len(few) else [None] * M
        return np.array(
            [
                _least_of_sample(corner, strip, few, diag[:, m], slack[m])
                for m, corner, strip in zip(at, corners, strips, strict=False)
            ]
        )

    found = np.concatenate(run_blocks(work, range(0, M, group)))
    low = np.minimum(low, found)
    return np.where(low < -slack, low, 0.0)


def sample_size(n: int, n_kernels: int) -> int:
    """Return the number of samples on which all directions are examined.

    All samples are, if they or the kernels are few. Otherwise the number is such that
    the factorisation costs no more than a pass over all entries.
    """
    if n <= EXACT or n_kernels * n**3 / 3 <= _OPERATIONS:
        return n
    return max(64, round(0.8 * n ** (2 / 3)))


def _least_of_pairs(bank: KernelBank, diag: FloatArray) -> float:
    """Return the smallest eigenvalue of one kernel on any pair of samples."""
    least, n = 0.0, len(diag)
    for rows in row_blocks(n, 8 * n, bank.memory_limit):
        K = bank[rows].gram(0)
        K[np.arange(len(rows)), rows] = 0.0
        middle = (diag[rows, None] + diag) / 2
        apart = np.hypot((diag[rows, None] - diag) / 2, K)
        least = min(least, float(np.min(middle - apart)))
    return least


def _least_of_sample(
    corner: FloatArray,
    strip: FloatArray | None,
    few: NDArray[np.intp],
    diag: FloatArray,
    slack: float,
) -> float:
    """Return ``x'Kx / x'x`` of a negative direction, zero if none is found.

    ``corner`` is the kernel on some samples, ``strip`` that between the first ``few``
    of them and all samples.
    """
    shifted = corner.T.copy(order="F")
    shifted.ravel(order="K")[:: len(shifted) + 1] += slack + np.finfo(float).tiny
    L, minor = dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
    if minor > 0:  # the first ``minor`` samples have a negative direction
        return _rayleigh(corner[:minor, :minor], slack)
    if strip is None:
        return 0.0
    r = len(few)
    # the inverse of a small factor: its errors are those of the choice of i alone
    W = np.tril(dtrtri(L[:r, :r], lower=1)[0]) @ strip
    left = diag - np.einsum("ri,ri->i", W, W)
    left[few] = 0.0
    i = int(np.argmin(left))
    if left[i] + slack >= 0.0:
        return 0.0
    K = np.empty((r + 1, r + 1))
    K[:r, :r], K[r, r] = corner[:r, :r], diag[i]
    K[:r, r] = K[r, :r] = strip[:, i]
    return _rayleigh(K, slack)


def _rayleigh(K: FloatArray, slack: float) -> float:
    """Return ``x'Kx / x'x`` for the x of the Schur complement of the last sample."""
    shifted = K[:-1, :-1] + slack * np.eye(len(K) - 1)
    x = np.append(-np.linalg.solve(shifted, K[:-1, -1]), 1.0)
    return float(x @ K @ x / (x @ x))


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
            "hsic needs two square Gram matrices of the same samples, got shapes "
            f"{K.shape} and {L.shape}."
        )
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return float(np.sum(centred * L) / (n - 1) ** 2)


def alignment(bank: KernelBank) -> FloatArray:
    """Return the centred alignment of each pair of kernels, shape (M, M).

    ``<G_a, G_b> / (|G_a| |G_b|)`` with centred Gram matrices; one means equal up
    to scale.

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
    # a block contains the values of all kernels
    for rows in row_blocks(n, 8 * n * M, bank.memory_limit):
        block = bank[rows]
        grams = block.grams()
        grams -= means[:, rows, None] + means[:, None, :]
        grams += mean[:, None, None]
        with_target += np.einsum("aij,ij->a", grams, Z[rows] @ Z.T)
        if weight is not None:
            grams *= np.sqrt(w[rows])[:, None] * np.sqrt(w)
        inner += np.einsum("aij,bij->ab", grams, grams, optimize=True)
    return inner, with_target
