"""Products with a Gram matrix in twice the working precision."""

from __future__ import annotations

import numpy as np

from mklearn.data.compiling import njit

# Error-free transformations: sums and products of floating-point numbers with their
# exact rounding errors (Dekker 1971, Knuth 1969). Compiler optimisations that change
# the order of operations are not allowed in this file.


@njit(cache=True, nogil=True)
def add_products(K, A, used, weights, hi, lo):  # type: ignore[no-untyped-def]
    """Add ``weights[t] K A[:, t]`` to ``hi + lo``, and return ``A[:, t]' K A[:, t]``.

    Parameters
    ----------
    K : array of shape (n, n_used)
    A : array of shape (n, T)
    used : array of shape (n_used,)
        Nonzero rows of A, which are the columns of K.
    weights : array of shape (T,)
    hi, lo : arrays of shape (n, T)
        Sums, and their rounding errors.

    Returns
    -------
    array of shape (T,)
    """
    n, T = A.shape
    quads = np.zeros(T)
    for t in range(T):
        quad, quad_rest = 0.0, 0.0
        for i in range(n):
            total, rest = 0.0, 0.0
            for j in range(used.size):
                p, e = _product(K[i, j], A[used[j], t])
                total, d = _sum(total, p)
                rest += d + e
            total, rest = _sum(total, rest)
            p, e = _product(weights[t], total)
            s, d = _sum(hi[i, t], p)
            hi[i, t] = s
            lo[i, t] += d + e + weights[t] * rest
            p, e = _product(A[i, t], total)
            quad, d = _sum(quad, p)
            quad_rest += d + e + A[i, t] * rest
        quads[t] = quad + quad_rest
    return quads


@njit(cache=True, nogil=True)
def _sum(a, b):  # type: ignore[no-untyped-def]
    s = a + b
    c = s - a
    return s, (a - (s - c)) + (b - c)


@njit(cache=True, nogil=True)
def _product(a, b):  # type: ignore[no-untyped-def]
    p = a * b
    c = 134217729.0 * a
    a1 = c - (c - a)
    a2 = a - a1
    c = 134217729.0 * b
    b1 = c - (c - b)
    b2 = b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2
