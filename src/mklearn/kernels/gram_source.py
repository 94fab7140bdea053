"""Sources of Gram matrices that exist as arrays, given by the user or stored."""

# ruff: noqa: D102 - the methods of the sources are documented by the protocol Source

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.compiling import njit
from mklearn.data.threads import run_blocks
from mklearn.kernels.memory import Index
from mklearn.kernels.sources import (
    Columns,
    FloatArray,
    GivenSource,
    Limits,
    Request,
    Seen,
    Source,
    scale,
)

_MANY = 4  # targets for which BLAS is faster than a loop
_TILE = 16  # samples whose entries with as many others, of all kernels, are near by
_SINGLE = 12  # kernels of a stack that take as long to read as one of them alone
_PIECE = 2**21  # entries whose survey is worth a thread


class GramSource(GivenSource):
    """Grams given or stored: one array for each kernel, or one with kernels last.

    Parameters
    ----------
    grams : sequence of (n_rows, n_cols) arrays, or array (n_rows, n_cols, n_kernels)
        Used where they lie.
    row_diag : array of shape (n_rows, n_kernels), optional
        ``k(x, x)``; the diagonals of the Grams by default.
    origin : Source, optional
        What the Grams were computed from.
    square : bool
        Whether rows and columns are the same samples.
    """

    def __init__(
        self,
        grams: Sequence[NDArray[Any]] | NDArray[Any],
        row_diag: FloatArray | None = None,
        origin: Source | None = None,
        square: bool = True,
    ) -> None:
        self._given = grams
        self.row_diag, self.origin, self.square = row_diag, origin, square
        self._find_layout()

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self.grams[0].shape, len(self.grams))

    @property
    def eps(self) -> float:
        return max(float(np.finfo(K.dtype).eps) for K in self.grams)

    def _find_layout(self) -> None:
        given = self._given
        self.stack: NDArray[Any] | None = None
        if isinstance(given, np.ndarray):
            # kernels that lie side by side are read together, others one by one
            if given.shape[2] > 1 and given.strides[2] == given.itemsize:
                self.stack = given
            self.grams = [given[:, :, m] for m in range(given.shape[2])]
        else:
            self.grams = list(given)

    def __getstate__(self) -> dict[str, Any]:
        # views would be pickled as arrays of their own
        derived = ("stack", "grams")
        return {k: v for k, v in self.__dict__.items() if k not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._find_layout()

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        which, rows, cols, u, v = asked
        start, index = _split(cols)
        n_kernels = len(self.grams)
        # a pass over the stack reads all its kernels, whatever their weight
        if self.stack is not None and _SINGLE * np.count_nonzero(weights) > n_kernels:
            by_kernel = np.zeros((n_kernels, 1 if u is None else len(rows)))
            np.add.at(by_kernel, which, weights[:, None] * (1.0 if u is None else u))
            by_row = np.ascontiguousarray(
                np.broadcast_to(by_kernel.T, (len(rows), n_kernels))
            )
            by_col = np.zeros((0 if v is None else v.shape[1], n_kernels))
            if v is not None:
                by_col[:, which] = v.T
            _combine_stack(self.stack, by_row, by_col, rows, start, index, out)
            return
        span = _span(index) if u is None else None
        if span is not None:
            # reading all columns between the first and the last one is faster
            between = np.zeros((len(rows), span.stop - span.start))
            self.combine(Request(which, rows, span), weights, between, tabulate)
            out += between[:, index - span.start]
            return
        left = np.flatnonzero(weights).tolist()
        if u is None and len(index) == 0:
            # the sums are read and written once for four kernels
            for four in _fours([self.grams[which[k]] for k in left]):
                _add_grams(*four, weights[left[:4]], rows, start, out)
                left = left[4:]
        for k in left:
            K = self.grams[which[k]]
            if u is None or v is None:
                _add_gram(K, weights[k], rows, start, index, out)
            else:
                scaled = np.zeros(out.shape)
                _add_gram(K, weights[k], rows, start, index, scaled)
                out += scale(scaled, u[k], v[k])

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        which, rows, cols, _, v = asked
        start, index = _split(cols)
        n_kernels = len(self.grams)
        many = len(At) >= _MANY and len(index) == 0  # worth products of matrices
        if self.stack is not None and 4 * len(which) > n_kernels and not many:
            by_col = np.zeros((0 if v is None else v.shape[1], n_kernels))
            if v is not None:
                by_col[:, which] = v.T
            every = np.empty((n_kernels, len(rows), len(At)))
            _multiply_stack(self.stack, rows, start, index, At, by_col, every)
            return every[which]
        span = _span(index) if v is None else None
        if span is not None:
            between = np.zeros((span.stop - span.start, len(At)))
            np.add.at(between, index - span.start, At.T)
            return self.multiply(
                Request(which, rows, span), np.ascontiguousarray(between.T)
            )
        out = np.empty((len(which), len(rows), len(At)))
        for position, k in enumerate(which):
            a = At if v is None else At * v[position]
            K = self.grams[k]
            if many:
                _multiply_blas(K, rows, start, a, out[position])
            else:
                _multiply_gram(K, rows, start, index, a, out[position])
        return out

    def multiply_half(
        self, which: Index, at: Index, rows: slice, At: FloatArray
    ) -> FloatArray | None:
        if not self.square or len(At) >= _MANY:
            return None
        first, last = rows.start, rows.stop
        T, count = len(At), len(at) - first
        if self.stack is not None and 4 * len(which) > len(self.grams):
            sums = np.zeros((count, T, self.stack.shape[2]))
            _multiply_half_stack(self.stack, at, first, last, At, sums)
            return sums[:, :, which]
        width = int(at[-1]) + 1
        out = np.zeros((len(which), T, count))
        spread = np.zeros((T, width))
        spread[:, at] = At
        dense = 3 * len(at) > width
        sums = np.empty((T, width))
        for k, found in zip(which, out, strict=True):
            K = self.grams[k]
            if dense:  # reading all columns is faster than choosing some
                sums[:] = 0.0
                _multiply_half_gram(K, at, first, last, spread, sums)
                found[:] = sums[:, at[first:]]
            else:
                _multiply_half_some(K, at, first, last, At, found)
        return np.moveaxis(out, 0, 2).swapaxes(0, 1)

    def copied_bytes(self, count: int) -> int:
        # a pass over a stack reads all of its kernels, even for a few of them
        if self.stack is None or 2 * count > self.stack.shape[2]:
            return 0
        n_rows, n_cols, _ = self.shape
        return 8 * n_rows * n_cols * count

    def gathered(self, which: Index, single: bool) -> Source | None:
        if self.stack is None or not self.copied_bytes(len(which)):
            return None
        dtype = np.float32 if single else self.stack.dtype
        grams = np.empty((*self.stack.shape[:2], len(which)), dtype)
        _gather_stack(self.stack, which, self.square, grams)
        diag = None if self.row_diag is None else self.row_diag[:, which]
        return GramSource(grams, diag, square=self.square)

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        if self.row_diag is not None:
            return self.row_diag[rows, k]
        if not self.square:
            raise ValueError(
                "The diagonal k(x, x) of the new samples is needed, but a cross Gram "
                "matrix does not contain it; pass row_diag= to KernelBank.from_grams, "
                "or use a normalisation other than 'spherical'."
            )
        return np.diagonal(self.grams[k])[rows].astype(np.float64)

    def diags(self, which: Index, rows: Index | slice) -> FloatArray:
        if self.row_diag is None and self.square:
            return self._diagonals(which, rows)
        return super().diags(which, rows)

    def _diagonals(self, which: Index, rows: Index | slice) -> FloatArray:
        if self.stack is None:
            found = np.stack([self.grams[k].diagonal()[rows] for k in which], axis=1)
        else:
            found = np.einsum("iik->ik", self.stack)[rows][:, which]
        return np.asarray(found, dtype=np.float64)

    def survey(
        self, which: Index, at: Index | None, weight: FloatArray, limits: Limits
    ) -> Seen | None:
        n, k = len(limits.reach), len(which)
        diag = self._diagonals(which, slice(None) if at is None else at)
        if self.stack is not None and 4 * k > len(self.grams):
            index = np.arange(n, dtype=np.intp) if at is None else at
            every = len(self.grams)
            reach = np.zeros((n, every))
            reach[:, which] = limits.reach
            parts = run_blocks(
                partial(_survey_stack, self.stack, index, weight, reach),
                triangle(n, every),
            )
            sums = sum(part[0] for part in parts)[:, which]
            counts = np.stack([part[1] for part in parts])[:, :, which]
            apart, beyond = counts[:, 1:].max(axis=0)
            counts = np.stack(
                [counts[:, 0].sum(axis=0), apart > limits.unlike, beyond > 1.0]
            )
        else:
            probe = np.random.default_rng(0).uniform(-1.0, 1.0, n)
            probe += np.sign(probe)

            def look(k: int) -> tuple[FloatArray, FloatArray]:
                K = self.grams[which[k]]
                K = K if at is None else K[np.ix_(at, at)]
                K = K if K.flags.c_contiguous or not K.flags.f_contiguous else K.T
                reach = np.ascontiguousarray(limits.reach[:, k])
                sums, sides, counts = _survey_gram(K, weight, probe, reach)
                apart = np.abs(sides[0] - sides[1]) > 1e-3 * limits.unlike[k]
                counts[1] = np.count_nonzero(apart)
                return sums, counts

            parts = run_blocks(look, range(k))
            sums, counts = (np.stack([part[i] for part in parts], 1) for i in (0, 1))
        sums += weight[:, None] * diag
        return Seen(
            np.ascontiguousarray(sums.T),
            counts[0] + np.sum(diag**2, axis=0),
            counts[1],
            counts[2],
        )

    def each(self, asked: Request) -> FloatArray | None:
        which, rows, cols, _, _ = asked
        start, index = _split(cols)
        width = cols.stop - start if isinstance(cols, slice) else len(index)
        out = np.empty((len(which), len(rows), width))
        if self.stack is not None:
            _take_stack(self.stack, which, rows, start, index, out)
            return out
        for k, block in zip(which, out, strict=True):
            _take_gram(self.grams[k], rows, start, index, block)
        return out

    def raw(self) -> Source:
        if self.origin is None:
            raise ValueError(
                "This bank was made from Gram matrices and has no samples, so it "
                "cannot compute new kernels; pass the (n_new, n, n_kernels) cross "
                "Grams instead."
            )
        return self.origin


def _fours(grams: list[NDArray[Any]]) -> Iterator[list[NDArray[Any]]]:
    """Yield four matrices at a time, as long as all four lie alike in memory."""
    for k in range(0, len(grams) - 3, 4):
        four = grams[k : k + 4]
        if any(not K.flags.c_contiguous or K.dtype != four[0].dtype for K in four):
            return
        yield four


def _split(cols: Columns) -> tuple[int, Index]:
    """Return where a range of columns starts, or else the columns one by one."""
    if isinstance(cols, slice):
        return int(cols.start), np.empty(0, dtype=np.intp)
    return 0, cols


def _span(index: Index) -> slice | None:
    """Return the range that the columns lie in, if they fill a good part of it."""
    if len(index) < 8:
        return None
    first, last = int(index.min()), int(index.max())
    return slice(first, last + 1) if last - first < 5 * len(index) else None


# In the loops below an empty `cols` stands for the range from `start` as wide as `out`.


@njit(cache=True, nogil=True, fastmath=True)
def _add_gram(K, weight, rows, start, cols, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        row, o = K[rows[i]], out[i]
        if cols.size == 0:
            part = row[start : start + o.size]
            for j in range(o.size):
                o[j] += weight * np.float64(part[j])
        else:
            for j in range(o.size):
                o[j] += weight * np.float64(row[cols[j]])


@njit(cache=True, nogil=True, fastmath=True)
def add_each(values, weights, out, top, left):  # type: ignore[no-untyped-def]
    """Add ``weights[t] * values`` to the block of ``out[t]`` that begins there."""
    for i in range(values.shape[0]):
        row = values[i]
        for t in range(weights.size):
            w = weights[t]
            if w != 0.0:
                o = out[t, top + i, left:]
                for j in range(row.size):
                    o[j] += w * row[j]


@njit(cache=True, nogil=True, fastmath=True)
def _combine_stack(stack, by_row, by_col, rows, start, cols, out):  # type: ignore[no-untyped-def]
    n_kernels = stack.shape[2]
    for i in range(rows.size):
        weights = by_row[i]
        for j in range(out.shape[1]):
            entry = stack[rows[i], cols[j] if cols.size else start + j]
            total = 0.0
            if by_col.shape[0] == 0:
                for m in range(n_kernels):
                    total += weights[m] * np.float64(entry[m])
            else:
                for m in range(n_kernels):
                    total += weights[m] * by_col[j, m] * np.float64(entry[m])
            out[i, j] += total


@njit(cache=True, nogil=True, fastmath=True)
def _add_grams(K, L, M, N, weights, rows, start, out):  # type: ignore[no-untyped-def]
    k, u, m, n = weights[0], weights[1], weights[2], weights[3]
    for i in range(rows.size):
        o = out[i]
        a, b = K[rows[i]][start : start + o.size], L[rows[i]][start : start + o.size]
        c, d = M[rows[i]][start : start + o.size], N[rows[i]][start : start + o.size]
        for j in range(o.size):
            both = k * np.float64(a[j]) + u * np.float64(b[j])
            o[j] += both + (m * np.float64(c[j]) + n * np.float64(d[j]))


@njit(cache=True, nogil=True)
def _gather_stack(stack, which, half, out):  # type: ignore[no-untyped-def]
    for i in range(stack.shape[0]):
        for j in range(i if half else 0, stack.shape[1]):
            entry, o = stack[i, j], out[i, j]
            for k in range(which.size):
                o[k] = entry[which[k]]
            if half and j > i:
                out[j, i] = o


@njit(cache=True, nogil=True, fastmath=True)
def _multiply_gram(K, rows, start, cols, At, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        row = K[rows[i]]
        for t in range(At.shape[0]):
            a = At[t]
            total = 0.0
            if cols.size == 0:
                part = row[start : start + a.size]
                for j in range(a.size):
                    total += a[j] * np.float64(part[j])
            else:
                for j in range(a.size):
                    total += a[j] * np.float64(row[cols[j]])
            out[i, t] = total


def _multiply_blas(
    K: NDArray[Any], rows: Index, start: int, At: FloatArray, out: FloatArray
) -> None:
    """Write ``K A`` for many targets: values are read and converted once for all."""
    columns = slice(start, start + At.shape[1])
    for i in range(0, len(rows), 32):  # few rows, which stay in the cache
        part = rows[i : i + 32]
        dense = bool((np.diff(part) == 1).all())
        values = K[part[0] : part[-1] + 1, columns] if dense else K[part, columns]
        np.matmul(np.ascontiguousarray(values, np.float64), At.T, out=out[i : i + 32])


@njit(cache=True, nogil=True, fastmath=True)
def _multiply_stack(stack, rows, start, cols, At, by_col, out):  # type: ignore[no-untyped-def]
    n_kernels = stack.shape[2]
    total = np.empty(n_kernels)
    for i in range(rows.size):
        for t in range(At.shape[0]):
            total[:] = 0.0
            for j in range(At.shape[1]):
                entry = stack[rows[i], cols[j] if cols.size else start + j]
                a = At[t, j]
                if by_col.shape[0] == 0:
                    for m in range(n_kernels):
                        total[m] += a * np.float64(entry[m])
                else:
                    for m in range(n_kernels):
                        total[m] += a * by_col[j, m] * np.float64(entry[m])
            for m in range(n_kernels):
                out[m, i, t] = total[m]


@njit(cache=True, nogil=True, fastmath=True)
def _multiply_half_stack(stack, at, first, last, At, out):  # type: ignore[no-untyped-def]
    n_kernels = stack.shape[2]
    for i in range(first, last):
        for t in range(At.shape[0]):
            mine, ai, entry = out[i - first, t], At[t, i], stack[at[i], at[i]]
            for m in range(n_kernels):
                mine[m] += ai * np.float64(entry[m])
            for j in range(i + 1, at.size):
                entry, theirs, aj = stack[at[i], at[j]], out[j - first, t], At[t, j]
                for m in range(n_kernels):
                    value = np.float64(entry[m])
                    mine[m] += aj * value
                    theirs[m] += ai * value


@njit(cache=True, nogil=True, fastmath=True)
def _multiply_half_gram(K, at, first, last, a, out):  # type: ignore[no-untyped-def]
    for r in range(first, last):
        i = at[r]
        row = K[i]
        for t in range(a.shape[0]):
            ai, total = a[t, i], a[t, i] * np.float64(row[i])
            part, right, below = row[i + 1 : a.shape[1]], a[t, i + 1 :], out[t, i + 1 :]
            for j in range(right.size):
                value = np.float64(part[j])
                total += right[j] * value
                below[j] += ai * value
            out[t, i] += total


@njit(cache=True, nogil=True, fastmath=True)
def _multiply_half_some(K, at, first, last, At, out):  # type: ignore[no-untyped-def]
    for r in range(first, last):
        row = K[at[r]]
        for t in range(At.shape[0]):
            ai, total = At[t, r], At[t, r] * np.float64(row[at[r]])
            for j in range(r + 1, at.size):
                value = np.float64(row[at[j]])
                total += At[t, j] * value
                out[t, j - first] += ai * value
            out[t, r - first] += total


@njit(cache=True, nogil=True)
def _take_stack(stack, which, rows, start, cols, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        for j in range(out.shape[2]):
            entry = stack[rows[i], cols[j] if cols.size else start + j]
            for k in range(which.size):
                out[k, i, j] = entry[which[k]]


@njit(cache=True, nogil=True)
def _take_gram(K, rows, start, cols, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        row = K[rows[i]]
        for j in range(out.shape[1]):
            out[i, j] = row[cols[j] if cols.size else start + j]


def triangle(n: int, n_kernels: int) -> list[tuple[int, int]]:
    """Cut the rows of a triangle, right of the diagonal, into about equal parts."""
    count = int(np.clip(n * n * n_kernels // _PIECE, 1, 16))
    share = 1.0 - np.sqrt(1.0 - np.arange(count + 1) / count)
    inner = (n * share[1:-1]).round().astype(int) // _TILE * _TILE
    return list(itertools.pairwise(np.unique([0, *inner, n]).tolist()))


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _survey_stack(stack, at, weight, reach, part):  # type: ignore[no-untyped-def]
    # sums of rows and of squares, the largest difference, and the largest square
    # compared with what the diagonal allows; a NaN shows in the squares
    n, n_kernels = at.size, stack.shape[2]
    sums, counts = np.zeros((n, n_kernels)), np.zeros((3, n_kernels))
    squares, apart, beyond = counts[0], counts[1], counts[2]
    for top in range(part[0], part[1], _TILE):
        for left in range(top, n, _TILE):
            for i in range(top, min(top + _TILE, part[1])):
                mine, own, wi = sums[i], reach[i], weight[i]
                for j in range(max(left, i + 1), min(left + _TILE, n)):
                    a, b = stack[at[i], at[j]], stack[at[j], at[i]]
                    theirs, other, wj = sums[j], reach[j], weight[j]
                    for m in range(n_kernels):
                        x, y = np.float64(a[m]), np.float64(b[m])
                        square, far = x * x, abs(x - y)
                        squares[m] += square + y * y
                        square *= own[m] * other[m]
                        apart[m] = far if far > apart[m] else apart[m]
                        beyond[m] = square if square > beyond[m] else beyond[m]
                        mine[m] += wj * x
                        theirs[m] += wi * y
    return sums, counts


@njit(cache=True, nogil=True)
def _survey_gram(K, weight, probe, reach):  # type: ignore[no-untyped-def]
    n = K.shape[0]
    sums, sides, counts = np.zeros(n), np.zeros((2, n)), np.zeros(3)
    for i in range(n):
        row = K[i]
        sums[i], sides[0, i], squares = _survey_row(row, weight, probe)
        counts[0] += squares
        counts[2] += _count_over(row, reach, reach[i])
        _add_row(probe[i], row, sides[1])
        value = np.float64(row[i])
        sums[i] -= weight[i] * value  # the diagonal is added by the caller
        counts[0] -= value * value
        counts[2] -= value * value * reach[i] * reach[i] > 1.0
    return sums, sides, counts


# a few simple loops are faster than one: each is done several entries at a time


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _survey_row(row, weight, probe):  # type: ignore[no-untyped-def]
    total = side = squares = 0.0
    for j in range(row.size):
        value = np.float64(row[j])
        total += weight[j] * value
        side += probe[j] * value
        squares += value * value
    return total, side, squares


@njit(cache=True, nogil=True)
def _count_over(row, reach, own):  # type: ignore[no-untyped-def]
    over = 0
    for j in range(row.size):
        over += np.float64(row[j]) * row[j] * reach[j] * own > 1.0
    return over


@njit(cache=True, nogil=True)
def _add_row(weight, row, out):  # type: ignore[no-untyped-def]
    for j in range(out.size):
        out[j] += weight * np.float64(row[j])
