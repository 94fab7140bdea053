"""Grams in one array, and a weighted sum of Grams, kept for repeated use."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mklearn.data.compiling import njit
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.gram_source import GramSource

FloatArray = NDArray[np.float64]


class DenseGrams:
    """Gram matrices in one array in memory, and a cache of their last weighted sum.

    A bank handles samples, normalisation and memory in every operation; if all values
    easily fit into memory, this overhead dominates.

    Parameters
    ----------
    values : array of shape (n_kernels, n_rows, n_cols)
        Single precision suffices for approximate solutions.
    """

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        self._theta = np.full(len(values), np.nan)
        self._sum = values[0]

    @classmethod
    def of(cls, bank: KernelBank, dtype: Any = np.float64) -> DenseGrams:
        """Return the values of a bank."""
        n_rows, n_cols, M = bank.shape
        values = np.empty((M, n_rows, n_cols), dtype)
        for m in range(M):
            values[m] = bank.gram(m)
        return cls(values)

    @property
    def bank(self) -> KernelBank:
        """A bank with these values."""
        return KernelBank.from_sources([GramSource(list(self.values))])

    def select(self, kernels: Any) -> DenseGrams:
        """Return some of the kernels, by index."""
        return DenseGrams(self.values[kernels])

    def sum(self) -> DenseGrams:
        """Return the sum of all kernels as the only one."""
        return DenseGrams(self.combine(np.ones(len(self.values)))[None])

    def combine(self, theta: FloatArray) -> NDArray[Any]:
        """Return ``sum_m theta[m] K[m]``, which must not be modified."""
        if not np.array_equal(theta, self._theta):
            M, *size = self.values.shape
            weights = theta.astype(self.values.dtype)
            self._sum = (weights @ self.values.reshape(M, -1)).reshape(size)
            self._theta = theta.copy()
        return self._sum

    def apply(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return ``sum_m theta[m] K[m] A``."""
        K = self.combine(theta)
        return np.asarray(K @ A.astype(K.dtype), dtype=np.float64)

    def __getitem__(self, samples: tuple[Any, Any]) -> DenseRows:
        """Return the Grams between some samples: ``grams[np.ix_(rows, cols)]``."""
        rows, cols = samples
        return DenseRows(self, np.ravel(rows), np.ravel(cols))

    def multiply(self, A: FloatArray) -> FloatArray:
        """Return ``K[m] A`` for every kernel, shape (n_rows, n_targets, n_kernels)."""
        products = np.matmul(self.values, A.astype(self.values.dtype))
        return np.moveaxis(products, 0, 2).astype(np.float64)

    def quad(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` for every kernel, shape (n_kernels,)."""
        used = np.flatnonzero(A.any(axis=1))
        products = (A[used] @ A.T).astype(self.values.dtype)
        return np.asarray(_inner_products(self.values, used, products))


class WeightedSum:
    """The last weighted sum of the kernels of a bank, which several steps need.

    The solver of the inner problem, the certificate and the check of definiteness ask
    for the same sum, and computing it reads all Gram matrices.

    Parameters
    ----------
    bank : KernelBank
        Square, with kernels that :meth:`KernelBank.holds_sum` describes.
    """

    def __init__(self, bank: KernelBank) -> None:
        self.bank = bank
        self._theta: FloatArray | None = None
        self._values: FloatArray | None = None

    def known(self, theta: FloatArray) -> FloatArray | None:
        """Return the sum if it was the last one, else None."""
        same = self._theta is not None and np.array_equal(theta, self._theta)
        return self._values if same else None

    def at(self, theta: FloatArray) -> FloatArray:
        """Return ``sum_m theta[m] K[m]``, valid until another sum is asked for.

        It must not be modified.
        """
        values = self.known(theta)
        if values is None:
            self._theta = None  # in case of an interruption
            values = self.bank.combine_symmetric(theta, self._values)
            self._theta, self._values = theta.copy(), values
        return values


class DenseRows(NamedTuple):
    """Some rows and columns of Gram matrices in memory."""

    grams: DenseGrams
    rows: NDArray[np.intp]
    cols: NDArray[np.intp]

    def multiply(self, a: FloatArray) -> FloatArray:
        """Return ``K[m] a`` for every kernel, shape (n_rows, 1, n_kernels)."""
        values = self.grams.values
        every = np.zeros(values.shape[2], values.dtype)
        every[self.cols] = a
        return np.asarray(_row_products(values, self.rows, every))[:, None, :]


@njit(cache=True, nogil=True, fastmath=True)
def _row_products(values, rows, a):  # type: ignore[no-untyped-def]
    out = np.empty((rows.size, values.shape[0]))
    for m in range(values.shape[0]):
        for r in range(rows.size):
            row = values[m, rows[r]]
            total = a[0] * 0
            for j in range(a.size):
                total += row[j] * a[j]
            out[r, m] = total
    return out


@njit(cache=True, nogil=True, fastmath=True)
def _inner_products(values, rows, products):  # type: ignore[no-untyped-def]
    # for symmetric matrices: off-diagonal pairs count twice
    out = np.zeros(values.shape[0])
    for m in range(values.shape[0]):
        total = 0.0
        for r in range(rows.size):
            i = rows[r]
            K, P = values[m, i], products[r]
            part = K[i] * 0
            for j in range(i):
                part += K[j] * P[j]
            total += 2.0 * np.float64(part) + K[i] * P[i]
        out[m] = total
    return out
