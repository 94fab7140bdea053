"""Formulas of kernels: a *base* that compares two samples, and an elementwise map.

Most kernels are an elementwise function of one of a few base matrices: the dot
product, the squared Euclidean, L1 or chi-square distance. Kernels that share a base
on the same columns share one base matrix, whatever their number (see ``bank.py``).
The maps of the exponential family (RBF, Laplacian, Matérn, chi-square) have the form

    K = (1 + c1 * s + c2 * s**2) * exp(-s),    s = gamma * B  or  gamma * sqrt(B)

and are described by the four numbers ``(gamma, root, c1, c2)``, so that the jitted
loops below evaluate, sum and multiply any number of them without storing a Gram.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from mklearn.data.compiling import njit

FloatArray = NDArray[np.floating[Any]]
Features = Any  # (n, d) float64 array or CSR matrix


class Prepared(NamedTuple):
    """Feature rows prepared for a base: the rows and their squared norms."""

    rows: Features
    sqnorms: NDArray[np.float64]

    def take(self, index: Any) -> Prepared:
        """Return the rows in ``index``."""
        return Prepared(self.rows[index], self.sqnorms[index])

    @property
    def n_rows(self) -> int:
        """Number of rows (``len`` is that of the tuple)."""
        return int(self.rows.shape[0])


def prepare(X: Features) -> Prepared:
    """Return ``X`` with the squared norms of its rows."""
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            sq = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        else:
            X = np.ascontiguousarray(X, dtype=np.float64)
            sq = np.einsum("ij,ij->i", X, X)
    # distances are computed from sums of up to four squares, which must not overflow
    if sq.size and not sq.max() < np.finfo(np.float64).max / 4:
        raise ValueError(
            "The squared norm of a sample overflows: the largest value is "
            f"{np.abs(X).max():.3g}. Scale the columns, for example by "
            "standardize=True."
        )
    return Prepared(X, sq)


def moments(
    X: Features, weight: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted mean and variance of each column, in two passes.

    A column that does not vary among the samples of positive weight has a variance of
    exactly zero.
    """
    w = np.ones(X.shape[0]) if weight is None else weight
    if (w == 0).any():
        X, w = X[w > 0], w[w > 0]
    w = w / w.sum()
    mean = np.asarray(w @ X, dtype=np.float64).ravel()
    if sparse.issparse(X):
        deviation = X.copy()
        deviation.data = (X.data - mean[X.indices]) ** 2
        present = X.copy()
        present.data = np.ones_like(X.data)
        absent = np.maximum(1.0 - np.asarray(w @ present).ravel(), 0.0)
        variance = np.asarray(w @ deviation).ravel() + absent * mean**2
        low, high = (np.asarray(f(axis=0).todense()).ravel() for f in (X.min, X.max))
    else:
        variance = w @ (X - mean) ** 2
        low, high = X.min(axis=0), X.max(axis=0)
    return mean, np.where(low == high, 0.0, variance)


def dot(a: Prepared, b: Prepared) -> FloatArray:
    """Return the dot products of the rows, shape ``(a.n_rows, b.n_rows)``."""
    product = a.rows @ b.rows.T
    if sparse.issparse(product):
        return np.asarray(product.toarray(), dtype=np.float64)
    return np.asarray(product)


def sqdist(a: Prepared, b: Prepared) -> FloatArray:
    """Return the squared Euclidean distances of the rows."""
    D = dot(a, b)
    D *= -2.0
    D += a.sqnorms[:, None]
    D += b.sqnorms[None, :]
    return np.maximum(D, 0.0, out=D)


def l1dist(a: Prepared, b: Prepared) -> FloatArray:
    """Return the sums of absolute differences of the rows."""
    if sparse.issparse(a.rows):
        return _sparse_pairs(a.rows, b.rows, _L1)
    return np.asarray(cdist(a.rows, b.rows, "cityblock"))


def chi2dist(a: Prepared, b: Prepared) -> FloatArray:
    """Return ``sum_j (x_j - z_j)**2 / (x_j + z_j)`` (0/0 counts as 0)."""
    if sparse.issparse(a.rows):
        return _sparse_pairs(a.rows, b.rows, _CHI2)
    return np.asarray(_chi2_block(a.rows, b.rows))


def intersection(a: Prepared, b: Prepared) -> FloatArray:
    """Return ``sum_j min(x_j, z_j)``."""
    if sparse.issparse(a.rows):
        return _sparse_pairs(a.rows, b.rows, _INTERSECTION)
    return np.asarray(_intersection_block(a.rows, b.rows))


BASES: dict[str, Callable[[Prepared, Prepared], FloatArray]] = {
    "dot": dot,
    "sqdist": sqdist,
    "l1dist": l1dist,
    "chi2dist": chi2dist,
    "intersection": intersection,
}


@njit(cache=True, nogil=True)
def _chi2_block(X, Z):  # type: ignore[no-untyped-def]
    out = np.zeros((X.shape[0], Z.shape[0]))
    for i in range(X.shape[0]):
        for j in range(Z.shape[0]):
            total = 0.0
            for k in range(X.shape[1]):
                s = X[i, k] + Z[j, k]
                if s != 0.0:
                    d = X[i, k] - Z[j, k]
                    total += d * d / s
            out[i, j] = total
    return out


@njit(cache=True, nogil=True, fastmath=True)
def _intersection_block(X, Z):  # type: ignore[no-untyped-def]
    out = np.zeros((X.shape[0], Z.shape[0]))
    for i in range(X.shape[0]):
        for j in range(Z.shape[0]):
            total = 0.0
            for k in range(X.shape[1]):
                total += min(X[i, k], Z[j, k])
            out[i, j] = total
    return out


_L1, _CHI2, _INTERSECTION = 0, 1, 2


def _sparse_pairs(X: Features, Z: Features, which: int) -> FloatArray:
    parts = (X.indptr, X.indices, X.data, Z.indptr, Z.indices, Z.data)
    return np.asarray(_sparse_block(*parts, X.shape[1], which))


@njit(cache=True, nogil=True)
def _sparse_block(xp, xi, xv, zp, zi, zv, n_columns, which):  # type: ignore[no-untyped-def]
    # If z_k is zero, a distance has the term |x_k|. So start from the sum of |x| and
    # correct it where z is nonzero: the cost is proportional to the entries of z.
    out = np.zeros((xp.size - 1, zp.size - 1))
    x = np.zeros(n_columns)
    for i in range(xp.size - 1):
        total = 0.0
        for p in range(xp[i], xp[i + 1]):
            x[xi[p]] = xv[p]
            total += abs(xv[p])
        for j in range(zp.size - 1):
            value = 0.0 if which == _INTERSECTION else total
            for p in range(zp[j], zp[j + 1]):
                a, b = x[zi[p]], zv[p]
                if which == _L1:
                    value += abs(a - b) - abs(a)
                elif which == _CHI2:
                    if a + b != 0.0:
                        value += (a - b) * (a - b) / (a + b) - a
                else:
                    value += min(a, b)
            out[i, j] = max(value, 0.0)
        for p in range(xp[i], xp[i + 1]):
            x[xi[p]] = 0.0
    return out


# --- the exponential family, evaluated on tiles that stay in the first-level cache ---

TILE = 1024
# 'reassoc' must stay out: it would cancel the rounding constant in _exp64.
_FAST = {"contract", "nsz", "arcp"}
_LOG2E = 1.4426950408889634
_LN2_HI, _LN2_LO = 0.6931471803691238, 1.9082149292705877e-10
_ROUND64 = 6755399441055744.0  # 1.5 * 2**52: adding it leaves round(x) in the low bits


# The polynomials of degrees 11 and 6 that interpolate exp on [-ln2/2, ln2/2] at
# Chebyshev points. The first coefficient is exact, so that k(x, x) = 1 at distance 0.
_C0, _C1 = 1.0, 1.0000000000000049
_C2, _C3 = 0.4999999999997473, 0.16666666666586138
_C4, _C5 = 0.041666666687351375, 0.008333333378340616
_C6, _C7 = 0.0013888883303759278, 0.0001984116719288926
_C8, _C9 = 2.4807484026530633e-05, 2.765649071428148e-06
_C10, _C11 = 2.5460283757889105e-07, -8.745415666378513e-09


@njit(cache=True, nogil=True, fastmath=_FAST)
def _exp64(x):  # type: ignore[no-untyped-def]
    # exp(x) for x <= 0, branch-free so that LLVM can vectorise the loops around it:
    # x = k ln2 + r, exp(x) = 2**k * poly(r); relative error below 5e-15.
    x = x if x > -708.0 else -708.0
    t = x * _LOG2E + _ROUND64
    k = t - _ROUND64
    r = x - k * _LN2_HI - k * _LN2_LO
    p = _C11 * r + _C10
    p = p * r + _C9
    p = p * r + _C8
    p = p * r + _C7
    p = p * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = p * r + _C1
    p = p * r + _C0
    exponent = np.float64(t).view(np.int64) << 52
    return np.int64(np.float64(p).view(np.int64) + exponent).view(np.float64)


_F0, _F1 = np.float32(1.0), np.float32(1.0000000377204035)
_F2, _F3 = np.float32(0.5000000047123155), np.float32(0.16666415496048143)
_F4, _F5 = np.float32(0.04166635287315116), np.float32(0.008375127947255121)
_F6 = np.float32(0.0013941110391161742)
_ROUND32 = np.float32(12582912.0)  # 1.5 * 2**23
_LOG2E_32, _LOW_32 = np.float32(_LOG2E), np.float32(-87.0)
_LN2_HI_32, _LN2_LO_32 = np.float32(0.693359375), np.float32(-2.12194440e-4)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _exp32(x):  # type: ignore[no-untyped-def]
    # The same in single precision, for twice as many at a time; relative error 2e-7.
    x = x if x > _LOW_32 else _LOW_32
    t = x * _LOG2E_32 + _ROUND32
    k = t - _ROUND32
    r = x - k * _LN2_HI_32 - k * _LN2_LO_32
    p = _F6 * r + _F5
    p = p * r + _F4
    p = p * r + _F3
    p = p * r + _F2
    p = p * r + _F1
    p = p * r + _F0
    exponent = np.int32(np.float32(t).view(np.int32) << np.int32(23))
    return np.int32(np.float32(p).view(np.int32) + exponent).view(np.float32)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _map64(b, gamma, root, c1, c2, out):  # type: ignore[no-untyped-def]
    if root:
        for j in range(b.size):
            s = gamma * np.sqrt(b[j])
            out[j] = (1.0 + s * (c1 + s * c2)) * _exp64(-s)
    else:
        for j in range(b.size):
            out[j] = _exp64(-gamma * b[j])


@njit(cache=True, nogil=True, fastmath=_FAST)
def _map32(b, gamma, root, c1, c2, out):  # type: ignore[no-untyped-def]
    one, g = np.float32(1.0), np.float32(gamma)
    d1, d2 = np.float32(c1), np.float32(c2)
    if root:
        for j in range(b.size):
            s = g * np.sqrt(b[j])
            out[j] = (one + s * (d1 + s * d2)) * _exp32(-s)
    else:
        for j in range(b.size):
            out[j] = _exp32(-g * b[j])


@njit(cache=True, nogil=True)
def _map(b, gamma, root, c1, c2, out):  # type: ignore[no-untyped-def]
    if b.itemsize == 4:
        _map32(b, gamma, root, c1, c2, out)
    else:
        _map64(b, gamma, root, c1, c2, out)


@njit(cache=True, nogil=True, fastmath=True)
def _add_scaled(values, weight, out):  # type: ignore[no-untyped-def]
    for j in range(values.size):
        out[j] += weight * np.float64(values[j])


@njit(cache=True, nogil=True, fastmath=True)
def _dot64(values, weights):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(values.size):
        total += np.float64(values[j]) * weights[j]
    return total


@njit(cache=True, nogil=True)
def exponential_map(B, numbers, out):  # type: ignore[no-untyped-def]
    """Write the map of ``B`` to ``out``, both (n_rows, n_cols) of one dtype."""
    gamma, root, c1, c2 = numbers[0], numbers[1] != 0.0, numbers[2], numbers[3]
    for i in range(B.shape[0]):
        _map(B[i], gamma, root, c1, c2, out[i])


@njit(cache=True, nogil=True)
def exponential_combine(B, maps, theta, out):  # type: ignore[no-untyped-def]
    """Add ``sum_m theta[m] * map_m(B)`` to ``out`` (float64 sums for any base)."""
    buffer = np.empty(TILE, dtype=B.dtype)
    for i in range(B.shape[0]):
        for start in range(0, B.shape[1], TILE):
            b, o = B[i, start : start + TILE], out[i, start : start + TILE]
            v = buffer[: b.size]
            for m in range(theta.size):
                if theta[m] != 0.0:
                    _map(b, maps[m, 0], maps[m, 1] != 0.0, maps[m, 2], maps[m, 3], v)
                    _add_scaled(v, theta[m], o)


@njit(cache=True, nogil=True)
def exponential_multiply(B, maps, At, out):  # type: ignore[no-untyped-def]
    """Add ``map_m(B) @ At.T`` to ``out[m]``; ``At`` is (T, n_cols)."""
    buffer = np.empty(TILE, dtype=B.dtype)
    for i in range(B.shape[0]):
        for start in range(0, B.shape[1], TILE):
            b = B[i, start : start + TILE]
            v = buffer[: b.size]
            for m in range(maps.shape[0]):
                _map(b, maps[m, 0], maps[m, 1] != 0.0, maps[m, 2], maps[m, 3], v)
                for t in range(At.shape[0]):
                    out[m, i, t] += _dot64(v, At[t, start : start + TILE])
