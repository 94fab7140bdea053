"""Blocked Cholesky factorisations with the same bits for any number of threads.

BLAS divides a large factorisation according to the number of its threads, which changes
the order of summation. Here the blocks depend only on the size; each of them is
processed by one thread of BLAS, several at a time. All matrices are in Fortran order,
all triangles are lower ones, and the part above the diagonal is not touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsm, strsm
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri, dtrtrs, spotrf

from mklearn.data.threads import one_blas_thread, run_blocks

FloatArray = NDArray[np.float64]

_SMALL = 1000  # size below which a single thread is as fast
_PIECE = 256
_COLUMNS = 32


def cholesky(matrix: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Return the factor L of ``matrix = L L'``, in place, and whether it exists.

    Parameters
    ----------
    matrix : array of shape (n, n) in Fortran order, in double or single precision
        Its lower triangle is overwritten.
    """
    n, single = len(matrix), matrix.dtype == np.float32
    potrf, trsm = (spotrf, strsm) if single else (dpotrf, dtrsm)
    if n < _SMALL:
        with one_blas_thread:
            L, info = potrf(matrix, lower=1, clean=0, overwrite_a=1)
        return np.asarray(L), info == 0
    for here in _pieces(n):

        def ahead(rows: slice, here: slice = here) -> None:
            known = slice(0, here.start)
            # the transpose has the memory order of the product
            part = matrix[here, known] @ matrix[rows, known].T
            matrix.T[here, rows] -= np.triu(part) if rows == here else part

        if here.start:
            run_blocks(ahead, _pieces(n, here.start))
        with one_blas_thread:
            corner, info = potrf(matrix[here, here], lower=1, clean=0)
        if info:
            return matrix, False
        matrix[here, here] = corner

        def below(rows: slice, here: slice = here, corner: Any = corner) -> None:
            part = matrix[rows, here]
            matrix[rows, here] = trsm(1.0, corner, part, side=1, lower=1, trans_a=1)

        run_blocks(below, _pieces(n, here.stop))
    return matrix, True


def solve_triangle(L: FloatArray, right: FloatArray, trans: bool = False) -> FloatArray:
    """Return ``L^-1 right``, or ``L^-T right``, for few columns or many.

    Parameters
    ----------
    L : array of shape (n, n) in Fortran order
    right : array of shape (n, k)
    trans : bool
    """
    if right.shape[1] == 0:
        return np.zeros_like(right)
    if len(L) < _SMALL or right.shape[1] <= _COLUMNS:
        with one_blas_thread:
            return np.asarray(dtrtrs(L, right, lower=1, trans=int(trans))[0])
    out = np.empty(right.shape, order="F")

    def work(start: int) -> None:
        columns = slice(start, start + _COLUMNS)
        out[:, columns] = dtrtrs(L, right[:, columns], lower=1, trans=int(trans))[0]

    run_blocks(work, range(0, right.shape[1], _COLUMNS))
    return out


def invert_triangle(L: FloatArray) -> FloatArray:
    """Return ``L^-1``, which overwrites L."""
    n = len(L)
    if n < _SMALL:
        with one_blas_thread:
            return np.asarray(dtrtri(L, lower=1, overwrite_c=1)[0])
    for here in _pieces(n):
        with one_blas_thread:
            corner = np.tril(dtrtri(L[here, here], lower=1)[0])

        def work(cols: slice, here: slice = here, corner: FloatArray = corner) -> Any:
            # rows above the block already contain the inverse, those of the block L
            rest = slice(cols.stop, here.start)
            part = L[here, cols] @ np.tril(L[cols, cols])
            part += L[here, rest] @ L[rest, cols]
            return -corner @ part

        before = _pieces(here.start)
        for cols, part in zip(before, run_blocks(work, before), strict=True):
            L[here, cols] = part
        L[here, here] = corner + np.triu(L[here, here], 1)
    return L


def inverse(L: FloatArray) -> FloatArray:
    """Return the lower triangle of ``(L L')^-1``, shape (n, n), zeros above it."""
    n = len(L)
    if n < _SMALL:
        with one_blas_thread:
            return np.tril(dpotri(L, lower=1)[0])
    factor = invert_triangle(L.copy(order="F"))
    for here in _pieces(n):  # the part above these blocks is not read
        factor[here, here] = np.tril(factor[here, here])
    return lower_gram(factor, triangle=True)


def lower_gram(A: FloatArray, triangle: bool = False) -> FloatArray:
    """Return the lower triangle of ``A' A``, zeros above it.

    Parameters
    ----------
    A : array of shape (n, k)
    triangle : bool
        Whether A has zeros above its diagonal.
    """
    k = A.shape[1]
    out = np.zeros((k, k), order="F")

    def work(rows: slice) -> None:
        used = slice(rows.start if triangle else 0, len(A))
        # the transpose has the memory order of the product
        product = A[used, : rows.stop].T @ A[used, rows]
        out.T[: rows.stop, rows] = product
        out[rows, rows] = np.tril(out[rows, rows])

    run_blocks(work, _pieces(k))
    return out


def _pieces(stop: int, start: int = 0) -> list[slice]:
    return [slice(i, min(i + _PIECE, stop)) for i in range(start, stop, _PIECE)]
