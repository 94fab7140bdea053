"""Quadratic forms in residuals, with kernels of low rank stored as few columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh, qr
from scipy.linalg.lapack import dpstrf

FloatArray = NDArray[np.float64]
Root = Callable[[FloatArray], FloatArray]

_EXPLAINED = 1e-12  # fraction of the trace that counts as zero up to rounding
# Tolerance of pivots, relative to the largest diagonal entry. The error of a truncated
# kernel is below n times this fraction of its largest eigenvalue, and so is that of
# log p.
_PIVOT = 1e-11
_DENSE = 0.5  # ranks above this fraction of n are not low
_FLAT = 0.2  # the same for the effective rank, from the first two spectral moments


@dataclass(frozen=True)
class Form:
    """A symmetric matrix, stored as ``W diag(d) W'`` with few columns, or dense.

    Attributes
    ----------
    columns : array of shape (n, r), or (n, n)
        W, or the dense matrix.
    scales : array of shape (r,) or None
        d; None for a dense matrix.
    """

    columns: FloatArray
    scales: FloatArray | None

    @classmethod
    def of_features(cls, L: FloatArray) -> Form:
        """Return ``L L'``, in factored form if there are few columns."""
        if L.shape[1] <= _DENSE * len(L):
            return cls(L, np.ones(L.shape[1]))
        return cls(L @ L.T, None)

    @classmethod
    def of_gram(cls, K: FloatArray) -> Form:
        """Return a positive semidefinite matrix, factored if its rank is low."""
        diag = np.diagonal(K)
        largest, size = float(diag.max()), float(np.sum(K * K))
        if largest <= 0 or size == 0:
            return cls(np.zeros((len(K), 1)), np.ones(1))
        if float(diag.sum()) ** 2 / size <= _FLAT * len(K):
            C, order, rank, _ = dpstrf(K, tol=_PIVOT * largest, lower=1)
            if rank <= _DENSE * len(K):
                L = np.empty((len(K), rank))
                L[order - 1] = np.tril(C[:, :rank])
                return cls(L, np.ones(rank))
        return cls(K, None)

    @property
    def rank(self) -> int:
        """Number of columns."""
        return self.columns.shape[1]

    def seen(self, root: Root, basis: FloatArray) -> Form:
        """Return the form in coordinates of residuals: ``Q root(.) root' Q``.

        It is exactly zero if the basis explains it up to rounding.

        Parameters
        ----------
        root : callable
            Map that whitens residuals.
        basis : array of shape (n, q)
            Orthonormal; ``Q = I - basis basis'``.
        """
        if self.scales is not None:
            whole = Form(root(self.columns), self.scales)
            left = Form(_without(whole.columns, basis), self.scales)
        else:
            B = root(root(self.columns).T)
            whole = Form(B, None)
            B = B - basis @ (basis.T @ B)
            B -= (B @ basis) @ basis.T
            left = Form((B + B.T) / 2.0, None)
        if abs(left.trace()) <= _EXPLAINED * abs(whole.trace()):
            return Form(np.zeros((len(left.columns), 1)), np.ones(1))
        return left

    def apply(self, E: FloatArray) -> FloatArray:
        """Return the product with vectors, shape (n, k)."""
        if self.scales is None:
            return np.asarray(self.columns @ E)
        W = self.columns
        return np.asarray(W @ (self.scales[:, None] * (W.T @ E)))

    def quads(self, E: FloatArray) -> FloatArray:
        """Return ``e'Be`` for each column of E, shape (k,)."""
        if self.scales is None:
            return np.asarray(np.sum(E * (self.columns @ E), axis=0))
        return np.asarray(self.scales @ (self.columns.T @ E) ** 2)

    def trace(self) -> float:
        """Return the trace."""
        if self.scales is None:
            return float(np.trace(self.columns))
        return float(self.scales @ np.sum(self.columns**2, axis=0))

    def inner(self, other: Form) -> float:
        """Return the trace of the product with another form."""
        if self.scales is None and other.scales is None:
            return float(np.sum(self.columns * other.columns))
        if self.scales is None:
            return other.inner(self)
        if other.scales is None:
            return float(self.scales @ other.quads(self.columns))
        across = self.columns.T @ other.columns
        return float(self.scales @ across**2 @ other.scales)

    def dense(self) -> FloatArray:
        """Return the matrix."""
        if self.scales is None:
            return self.columns
        return np.asarray((self.columns * self.scales) @ self.columns.T)

    def minus(self, factors: FloatArray, others: Sequence[Form]) -> Form:
        """Return the form minus multiples of other forms."""
        whole = [self, *others]
        n = len(self.columns)
        few = sum(form.rank for form in whole) <= _DENSE * n
        if few and all(form.scales is not None for form in whole):
            signs = [1.0, *(-factors)]
            scales = [
                c * form.scales
                for c, form in zip(signs, whole, strict=True)
                if form.scales is not None
            ]
            columns = np.column_stack([form.columns for form in whole])
            return Form(columns, np.concatenate(scales))
        left = self.dense().copy()
        for c, form in zip(factors, others, strict=True):
            left -= c * form.dense()
        return Form(left, None)

    def spectrum(self, free: int) -> tuple[FloatArray, FloatArray]:
        """Return eigenvalues, and their multiplicities, which sum to ``free``."""
        if self.scales is None:
            # eigenvalues of the basis are zero, up to rounding
            values = eigvalsh(self.columns)
            idle = np.argsort(np.abs(values), kind="stable")[: len(values) - free]
            values = np.delete(values, idle)
            return values, np.ones(len(values))
        values = self._core(vectors=False)[0]
        values = values[np.argsort(-np.abs(values), kind="stable")][:free]
        return np.append(values, 0.0), np.append(
            np.ones(len(values)), free - len(values)
        )

    def eigen(self) -> tuple[FloatArray, FloatArray]:
        """Return the eigenvalues that may be nonzero, and their eigenvectors (n, r)."""
        if self.scales is None:
            return eigh(self.columns)
        return self._core(vectors=True)

    def _core(self, vectors: bool) -> tuple[FloatArray, FloatArray]:
        assert self.scales is not None
        W, d = self.columns, self.scales
        if (d > 0).all() and not vectors:
            W = W * np.sqrt(d)
            return np.maximum(eigvalsh(W.T @ W), 0.0), W
        Q, R = qr(W, mode="economic")
        middle = (R * d) @ R.T
        if not vectors:
            return eigvalsh(middle), Q
        values, inner = eigh(middle)
        return values, Q @ inner


def _without(V: FloatArray, basis: FloatArray) -> FloatArray:
    V = V - basis @ (basis.T @ V)
    return np.asarray(V - basis @ (basis.T @ V))  # remove what rounding left
