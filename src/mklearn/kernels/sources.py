"""Sources of kernel values: given, from a distance, computed, from features.

This module is private to its package. A *source* holds some kernels over a fixed set of
rows and columns and computes blocks of them; the bank divides the work into blocks,
runs them on threads and sums the results. Sources never return more than a block.
"""

# ruff: noqa: D102 - the methods of the sources are documented by the protocol Source

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.compiling import njit
from mklearn.data.threads import run_blocks
from mklearn.kernels import functions
from mklearn.kernels.expsums import Tables
from mklearn.kernels.functions import BASES, Prepared, prepare
from mklearn.kernels.memory import Folder, Index, Storable, Storage, allocate, fill
from mklearn.kernels.specs import ComputedKernel, Kernel, VectorKernel

FloatArray = NDArray[np.float64]
# columns of a block: any of them, or a range given as slice(start, stop)
Columns = Index | slice

_MANY = 4  # targets for which BLAS is faster than a loop
_SLIP = 1e-14  # between exponentials of one table and of the next


class Request(NamedTuple):
    """What a source is asked about: some kernels on a block of rows and columns.

    ``which`` numbers kernels of the source, ``rows`` and ``cols`` its samples. ``u``
    (len(which), n_rows) and ``v`` (len(which), n_cols) scale the Grams from both sides;
    None, for both, means ones.
    """

    which: Index
    rows: Index
    cols: Columns
    u: FloatArray | None = None
    v: FloatArray | None = None


class Seen(NamedTuple):
    """What one pass over square kernels as they lie in memory saw of each of them.

    Attributes
    ----------
    means : array of shape (k, n)
        ``K_k w`` for the weights that were given.
    squares : array of shape (k,)
        The sum of all squared entries; not finite if an entry is not.
    unlike : array of shape (k,)
        Not zero if some mirror images differ by more than was allowed: the number of
        such pairs, or that of the samples where ``K g`` and ``K'g`` differ by a
        thousandth of it, for random g with entries between 1 and 2 in size. A single
        difference is seen for certain, any number of them unless they cancel, which
        has a probability below a thousandth for each of two rows.
    beyond : array of shape (k,)
        Pairs with ``K_ij^2`` above what the two diagonal entries allow.
    """

    means: FloatArray
    squares: FloatArray
    unlike: FloatArray
    beyond: FloatArray


class Limits(NamedTuple):
    """What entries of square kernels may be.

    Attributes
    ----------
    unlike : array of shape (k,)
        How far two mirror images may be apart.
    reach : array of shape (n, k)
        One over what a diagonal entry allows: a pair i, j is beyond it where
        ``K_ij^2 reach_i reach_j > 1``.
    """

    unlike: FloatArray
    reach: FloatArray


class Known(NamedTuple):
    """Kernels, and the samples, less ``shift``, that new ones are compared with."""

    kernels: tuple[Kernel, ...]
    samples: Any
    shift: FloatArray | None = None


class Source(Storable, Protocol):
    """Some kernels on the same rows and columns."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of rows, columns and kernels."""

    @property
    def storage(self) -> str:
        """How the values are kept."""

    @property
    def eps(self) -> float:
        """Relative rounding error of the values."""

    @property
    def slip(self) -> float:
        """How far a value may differ, relatively, when it is asked for again."""

    @property
    def square(self) -> bool:
        """Whether rows and columns are the same samples."""

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        """Add ``sum_k weights[k] u[k] K_k v[k]`` on a block to ``out``.

        ``tabulate`` says that enough values of this sum are asked for to be worth a
        table of it.
        """

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        """Return ``K_k v[k] A`` as (len(which), n_rows, T); ``At`` is (T, n_cols).

        The factors ``u`` are left to the caller.
        """

    def quad(
        self, asked: Request, left: FloatArray, At: FloatArray, each: bool, count: int
    ) -> FloatArray | None:
        """Return ``left[:, t]' K_k At[t]``, for ``each`` t or summed in one row.

        Asked without factors only, for one of the blocks that have ``count`` values
        together. What it returns is added up over these, and :meth:`settle` makes
        quadratic forms of the sum. None if ``multiply`` does as well.
        """

    def settle(self, which: Index, sums: FloatArray) -> FloatArray:
        """Return the quadratic forms of kernels, (T or 1, len(which)), from sums."""

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        """Return ``k(x, x)`` of row samples."""

    def survey(
        self, which: Index, at: Index | None, weight: FloatArray, limits: Limits
    ) -> Seen | None:
        """Look at square kernels on the samples ``at`` in one pass.

        None if values are not at hand as arrays.
        """

    def each(self, asked: Request) -> FloatArray | None:
        """Return the kernels on a block, (len(which), n_rows, n_cols), in one go.

        None if there is nothing to be gained by taking them together.
        """

    def rough(self) -> Source:
        """Return the source with values in single precision where that is faster."""

    def raw(self) -> Source:
        """Return the source without stored values, or raise where they are given."""

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        """Return the source on these only, None if it is better indexed."""

    def cross(self, X: Any) -> Source:
        """Return the source between new samples and the columns."""

    def travelling(self) -> Source:
        """Return the source that takes stored values along when it is pickled."""

    def known(self) -> Known:
        """Return what new samples are compared with, or raise where it is not known."""

    def store(self, storage: Storage, limit: int | None) -> Source:
        """Return the source with its values kept as ``storage`` says."""


# --- Grams that exist as arrays -------------------------------------------------------


class GivenSource(ABC):
    """What most sources have in common: nothing to store, no short cut."""

    @property
    def storage(self) -> str:
        return "given"

    @property
    def eps(self) -> float:
        return float(np.finfo(np.float64).eps)

    @property
    def slip(self) -> float:
        return 0.0

    def quad(
        self, asked: Request, left: FloatArray, At: FloatArray, each: bool, count: int
    ) -> FloatArray | None:
        return None

    def settle(self, which: Index, sums: FloatArray) -> FloatArray:
        return sums

    def survey(
        self, which: Index, at: Index | None, weight: FloatArray, limits: Limits
    ) -> Seen | None:
        return None

    def each(self, asked: Request) -> FloatArray | None:
        return None

    def rough(self) -> Any:
        return self

    @abstractmethod
    def raw(self) -> Source:
        """Return the source that can compute new values, or raise ValueError."""

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        return None

    def cross(self, X: Any) -> Source:
        return self.raw().cross(X)

    def known(self) -> Known:
        return self.raw().known()

    def travelling(self) -> Any:
        return self

    def stored_bytes(
        self, n_kernels: int, n_rows: int, n_cols: int, itemsize: int
    ) -> int:
        return 0

    def held_bytes(self) -> int:
        return 0  # they are the user's

    def slow(self) -> bool:
        return False

    def store(self, storage: Storage, limit: int | None) -> Any:
        return self


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
        if self.stack is not None and 4 * np.count_nonzero(weights) > n_kernels:
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
        for k in np.flatnonzero(weights).tolist():
            K = self.grams[which[k]]
            if u is None or v is None:
                _add_gram(K, weights[k], rows, start, index, out)
            else:
                scaled = np.zeros(out.shape)
                _add_gram(K, weights[k], rows, start, index, scaled)
                out += _scale(scaled, u[k], v[k])

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

    def scatters(self, count: int) -> bool:
        """Tell whether so many of its kernels are read faster from a copy."""
        return self.stack is not None and 4 * count <= self.stack.shape[2]

    def gathered(self, which: Index) -> GramSource:
        """Return the source of copies of some Grams of a stack."""
        assert self.stack is not None
        grams = np.empty((*self.stack.shape[:2], len(which)), self.stack.dtype)
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

    def survey(
        self, which: Index, at: Index | None, weight: FloatArray, limits: Limits
    ) -> Seen | None:
        n, k = len(limits.reach), len(which)
        diag = np.stack([self.grams[m].diagonal() for m in which], axis=1)
        diag = np.asarray(diag if at is None else diag[at], dtype=np.float64)
        if self.stack is not None and 4 * k > len(self.grams):
            index = np.arange(n, dtype=np.intp) if at is None else at
            every = len(self.grams)
            unlike, reach = np.full(every, np.inf), np.zeros((n, every))
            unlike[which], reach[:, which] = limits
            parts = run_blocks(
                partial(_survey_stack, self.stack, index, weight, unlike, reach),
                _triangle(n, every),
            )
            sums, counts = (sum(part[i] for part in parts) for i in (0, 1))
            sums, counts = sums[:, which], counts[:, which]
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


def _scale(K: FloatArray, u: FloatArray | None, v: FloatArray | None) -> FloatArray:
    """Multiply ``K`` in place by ``u`` from the left and ``v`` from the right."""
    if u is not None:
        K *= u[:, None]
    if v is not None:
        K *= v
    return K


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


_TILE = 16  # samples whose entries with as many others, of all kernels, are near by
_PIECE = 2**21  # entries whose survey is worth a thread


def _triangle(n: int, n_kernels: int) -> list[tuple[int, int]]:
    """Cut the rows of a triangle, right of the diagonal, into about equal parts."""
    count = int(np.clip(n * n * n_kernels // _PIECE, 1, 16))
    share = 1.0 - np.sqrt(1.0 - np.arange(count + 1) / count)
    inner = (n * share[1:-1]).round().astype(int) // _TILE * _TILE
    return list(itertools.pairwise(np.unique([0, *inner, n]).tolist()))


@njit(cache=True, nogil=True)
def _survey_stack(stack, at, weight, unlike, reach, part):  # type: ignore[no-untyped-def]
    n, n_kernels = at.size, stack.shape[2]
    sums, counts = np.zeros((n, n_kernels)), np.zeros((3, n_kernels))
    squares, differ, over = counts[0], counts[1], counts[2]
    for top in range(part[0], part[1], _TILE):
        for left in range(top, n, _TILE):
            for i in range(top, min(top + _TILE, part[1])):
                mine, own, wi = sums[i], reach[i], weight[i]
                for j in range(max(left, i + 1), min(left + _TILE, n)):
                    a, b = stack[at[i], at[j]], stack[at[j], at[i]]
                    theirs, other, wj = sums[j], reach[j], weight[j]
                    for m in range(n_kernels):
                        x, y = np.float64(a[m]), np.float64(b[m])
                        squares[m] += x * x + y * y
                        differ[m] += abs(x - y) > unlike[m]
                        over[m] += x * x * own[m] * other[m] > 1.0
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


# --- kernels that are maps of one base matrix -----------------------------------------


@dataclass
class BaseSource:
    """Kernels that share a base (dot product, distance ...) on the same columns.

    ``shift`` is subtracted from all samples: distances do not change with it, and lose
    fewer digits near the mean.
    """

    kernels: tuple[VectorKernel, ...]
    rows: Prepared
    cols: Prepared
    shift: FloatArray | None = None
    matrix: NDArray[Any] | None = None
    folder: Folder | None = field(default=None, repr=False)
    travels: bool = False
    single: bool = False
    tables: Tables = field(default_factory=Tables, repr=False)

    @classmethod
    def of(cls, kernels: tuple[VectorKernel, ...], X: Any) -> BaseSource:
        """Return the source of all pairs of samples."""
        centred = kernels[0].base == "sqdist" and not sparse.issparse(X)
        shift = X.mean(axis=0) if centred else None
        rows = prepare(X if shift is None else X - shift)
        return cls(kernels, rows, rows, shift)

    def __post_init__(self) -> None:
        maps = [kernel.exponential() for kernel in self.kernels]
        self._fused = np.array([m is not None for m in maps], dtype=bool)
        self._maps = np.array([m or (0.0, 0.0, 0.0, 0.0) for m in maps])

    def __getstate__(self) -> dict[str, Any]:
        if self.travels:
            return self.__dict__
        return {**self.__dict__, "matrix": None, "folder": None}

    @property
    def storage(self) -> str:
        if self.matrix is None:
            return "recompute"
        return _precision(self.matrix) if self.folder is None else "mmap"

    @property
    def eps(self) -> float:
        dtype = np.float64 if self.matrix is None else self.matrix.dtype
        return float(np.finfo(np.float32 if self.single else dtype).eps)

    @property
    def slip(self) -> float:
        if self.matrix is not None:
            return _SLIP
        # blocks of other shapes: products of the samples in another order
        eps = float(np.finfo(np.float64).eps)
        steep = float(np.max(self._maps[self._fused, 0], initial=0.0))
        size = max(np.max(side.sqnorms, initial=0.0) for side in (self.rows, self.cols))
        return _SLIP + eps * self.rows.rows.shape[1] * (1.0 + steep * float(size))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows.n_rows, self.cols.n_rows, len(self.kernels)

    @property
    def square(self) -> bool:
        return self.rows is self.cols

    def block(self, rows: Index, cols: Columns) -> NDArray[Any]:
        """Return the base matrix on a block, contiguous."""
        if self.matrix is not None:
            if isinstance(cols, slice):
                return np.ascontiguousarray(self.matrix[_as_slice(rows), cols])
            out = np.empty((len(rows), len(cols)), dtype=self.matrix.dtype)
            _gather(self.matrix, rows, cols, out)
            return out
        whole = isinstance(cols, slice) and cols == slice(0, self.cols.n_rows)
        b = self.cols if whole else self.cols.take(cols)
        base = BASES[str(self.kernels[0].base)]
        return np.ascontiguousarray(base(self.rows.take(_as_slice(rows)), b))

    def _kernel(
        self, k: int, B: NDArray[Any], rows: Index, cols: Columns
    ) -> FloatArray:
        if self._fused[k]:
            out = np.empty_like(B)
            functions.exponential_map(B, self._maps[k], out)
            return np.asarray(out, dtype=np.float64)
        sq = self.rows.sqnorms[rows], self.cols.sqnorms[cols]
        return np.asarray(self.kernels[k].from_base(B, *sq), dtype=np.float64)

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        which, rows, cols, u, v = asked
        used = weights != 0
        if not used.any():
            return
        B = self.block(rows, cols)
        fused = used & self._fused[which] & (u is None)
        if fused.any():
            maps, theta = self._maps[which[fused]], weights[fused]
            found = self.tables.table(maps, theta) if tabulate else None
            if found is None:
                if self.single:
                    B = np.asarray(B, dtype=np.float32)
                functions.exponential_combine(B, maps, theta, out)
            else:
                grid, table = found
                grid.add(table, B, out)
        for k in np.flatnonzero(used & ~fused):
            K = self._kernel(which[k], B, rows, cols)
            K *= weights[k]
            out += K if u is None or v is None else _scale(K, u[k], v[k])

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        which, rows, cols, _, v = asked
        B = self.block(rows, cols)
        if v is None and self._fused[which].all():
            out = np.zeros((len(which), len(rows), len(At)))
            if self.single:
                B = np.asarray(B, dtype=np.float32)
            functions.exponential_multiply(B, self._maps[which], At, out)
            return out
        out = np.empty((len(which), len(rows), len(At)))
        for position, k in enumerate(which):
            K = self._kernel(k, B, rows, cols)
            out[position] = _scale(K, None, None if v is None else v[position]) @ At.T
        return out

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        return self.kernels[k].diag(self.rows.take(rows))

    def quad(
        self, asked: Request, left: FloatArray, At: FloatArray, each: bool, count: int
    ) -> FloatArray | None:
        which, rows, cols, _, _ = asked
        if not self._fused[which].all():
            return None
        grid = self.tables.grid(self._maps[which])
        if grid is None or count < 2 * grid.nodes.size:
            return None
        B = self.block(rows, cols)
        if not each:
            return grid.moments(B, left, At.T)[None]
        parts = [slice(t, t + 1) for t in range(len(At))]
        return np.stack([grid.moments(B, left[:, t], At[t].T) for t in parts])

    def settle(self, which: Index, sums: FloatArray) -> FloatArray:
        grid = self.tables.grid(self._maps[which])
        assert grid is not None
        return np.stack([grid.of_moments(moments) for moments in sums])

    def survey(
        self, which: Index, at: Index | None, weight: FloatArray, limits: Limits
    ) -> Seen | None:
        return None

    def each(self, asked: Request) -> FloatArray | None:
        return None

    def rough(self) -> Source:
        if not self._fused.any():
            return self
        # values of one formula in single precision cost a third of those in double
        source = replace(self, single=True)
        if self.matrix is None and self._single_base():
            # the product of the samples half of what it costs in double
            source.rows = _halved(self.rows)
            source.cols = source.rows if self.cols is self.rows else _halved(self.cols)
        return source

    def _single_base(self) -> bool:
        """Tell whether a base in single precision errs less than the values may."""
        if self.kernels[0].base != "sqdist" or sparse.issparse(self.rows.rows):
            return False
        size = max(self.rows.sqnorms.max(), self.cols.sqnorms.max())
        steepest = self._maps[self._fused, 0].max()
        return bool(steepest * size * np.finfo(np.float32).eps < 1e-4)

    def raw(self) -> Source:
        return replace(self, matrix=None, folder=None)

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        if self.matrix is not None:
            return None
        a, b = self.rows, self.cols
        shared = a is b and same(rows, cols)
        if rows is not None:
            a = a.take(rows)
        if shared or cols is not None:
            b = a if shared else b.take(cols)
        return replace(self, kernels=_pick(self.kernels, which), rows=a, cols=b)

    def cross(self, X: Any) -> Source:
        rows = prepare(X if self.shift is None else X - self.shift)
        return BaseSource(self.kernels, rows, self.cols, self.shift, tables=self.tables)

    def known(self) -> Known:
        return Known(self.kernels, self.cols.rows, self.shift)

    def travelling(self) -> Source:
        return replace(self, travels=True)

    def stored_bytes(
        self, n_kernels: int, n_rows: int, n_cols: int, itemsize: int
    ) -> int:
        return n_rows * n_cols * itemsize if self.matrix is None else self.held_bytes()

    def held_bytes(self) -> int:
        return self.matrix.nbytes if self.matrix is not None and not self.folder else 0

    def slow(self) -> bool:
        # a disk gives an entry in the time of some thousand multiplications
        per_column = 1 if self.kernels[0].base in ("dot", "sqdist") else 8
        return bool(per_column * self.rows.rows.shape[1] > 4000)

    def store(self, storage: Storage, limit: int | None) -> Source:
        if self.matrix is not None or storage == "recompute":
            return self
        [matrix], folder = allocate(storage, 1, (self.rows.n_rows, self.cols.n_rows))
        fill(matrix, self.block, self.rows is self.cols, limit)
        return replace(self, matrix=matrix, folder=folder)


@njit(cache=True, nogil=True)
def _gather(matrix, rows, cols, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        row, o = matrix[rows[i]], out[i]
        for j in range(cols.size):
            o[j] = row[cols[j]]


def _halved(samples: Prepared) -> Prepared:
    """Return samples in single precision."""
    return Prepared(samples.rows.astype(np.float32), samples.sqnorms.astype(np.float32))


def _as_slice(rows: Index) -> Index | slice:
    """Return consecutive rows as a slice, which numpy need not copy."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def same(a: Index | None, b: Index | None) -> bool:
    """Tell whether two choices of samples, None for all, are equal."""
    if a is b or a is None or b is None:
        return a is b
    return bool(np.array_equal(a, b))


def _pick(kernels: tuple[Any, ...], which: Index) -> tuple[Any, ...]:
    return tuple(kernels[k] for k in which)


# --- kernels that are functions of two sets of samples ------------------------------


@dataclass
class ComputedSource(GivenSource):
    """Kernels evaluated by a function of the samples: sequences, callables."""

    kernels: tuple[ComputedKernel, ...]
    rows: Any
    cols: Any

    @property
    def storage(self) -> str:
        return "recompute"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows.shape[0], self.cols.shape[0], len(self.kernels)

    @property
    def square(self) -> bool:
        return self.rows is self.cols

    @property
    def slip(self) -> float:
        return _SLIP

    def _gram(self, k: int, rows: Index, cols: Columns) -> FloatArray:
        return self.kernels[k].compute(self.rows[rows], self.cols[cols])

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        which, rows, cols, u, v = asked
        for k in np.flatnonzero(weights):
            K = self._gram(which[k], rows, cols)
            K *= weights[k]
            out += K if u is None or v is None else _scale(K, u[k], v[k])

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        which, rows, cols, _, v = asked
        out = np.empty((len(which), len(rows), len(At)))
        for position, k in enumerate(which):
            K = self._gram(k, rows, cols)
            out[position] = _scale(K, None, None if v is None else v[position]) @ At.T
        return out

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        return self.kernels[k].diag(self.rows[rows])

    def raw(self) -> Source:
        return self

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        a = self.rows if rows is None else self.rows[rows]
        b = self.cols if cols is None else self.cols[cols]
        if self.rows is self.cols and same(rows, cols):
            b = a
        return ComputedSource(_pick(self.kernels, which), a, b)

    def cross(self, X: Any) -> Source:
        return ComputedSource(self.kernels, X, self.cols)

    def known(self) -> Known:
        return Known(self.kernels, self.cols)

    def stored_bytes(
        self, n_kernels: int, n_rows: int, n_cols: int, itemsize: int
    ) -> int:
        return n_kernels * n_rows * n_cols * itemsize

    def slow(self) -> bool:
        return True

    def store(self, storage: Storage, limit: int | None) -> Source:
        if storage == "recompute":
            return self
        n_rows, n_cols = self.rows.shape[0], self.cols.shape[0]
        grams, folder = allocate(storage, len(self.kernels), (n_rows, n_cols))
        for k, kernel in enumerate(self.kernels):
            # a formula of ours is symmetric; a function of the user may not be
            half = self.rows is self.cols and kernel.definite
            fill(grams[k], partial(self._gram, k), half, limit)
        return StoredSource(self, grams, folder)


class StoredSource(GramSource):
    """Stored values of a ComputedSource; pickled without them unless they travel."""

    travels = False

    def __init__(
        self,
        source: ComputedSource,
        grams: Sequence[NDArray[Any]],
        folder: Folder | None,
    ) -> None:
        diag = np.stack([kernel.diag(source.rows) for kernel in source.kernels], axis=1)
        super().__init__(grams, diag, source)
        self.folder = folder

    @property
    def storage(self) -> str:
        return _precision(self.grams[0]) if self.folder is None else "mmap"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.travels:
            return object.__new__, (type(self),), self.__getstate__()
        return _identity, (self.origin,)

    def travelling(self) -> Source:
        source = object.__new__(type(self))  # a copy would be pickled as well
        source.__dict__.update(self.__dict__, travels=True)
        return source

    def held_bytes(self) -> int:
        return 0 if self.folder else sum(K.nbytes for K in self.grams)

    def stored_bytes(
        self, n_kernels: int, n_rows: int, n_cols: int, itemsize: int
    ) -> int:
        return self.held_bytes()


def source_of(kernels: Sequence[Kernel], samples: Any) -> Source:
    """Return the source of kernels with one base, or of kernels without any."""
    vector = tuple(k for k in kernels if isinstance(k, VectorKernel))
    if vector:
        return BaseSource.of(vector, samples)
    computed = tuple(k for k in kernels if isinstance(k, ComputedKernel))
    return ComputedSource(computed, samples, samples)


def _precision(values: NDArray[Any]) -> str:
    # asked thousands of times in a fit, where the name of a dtype takes microseconds
    return "float32" if values.dtype.itemsize == 4 else "float64"


def _identity(source: Source) -> Source:
    return source


# --- kernels that are products of features ------------------------------------------


@dataclass
class FeatureSource(GivenSource):
    """Kernels given by features of rows and columns."""

    rows: FloatArray
    cols: FloatArray
    slices: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.rows), len(self.cols), len(self.slices)

    @property
    def square(self) -> bool:
        return self.rows.shape == self.cols.shape

    @property
    def slip(self) -> float:
        # a value is a sum over features
        return float(np.finfo(np.float64).eps) * self.rows.shape[1]

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        which, rows, cols, u, v = asked
        left, right = self.rows[rows], self.cols[cols]
        if u is None or v is None:
            scale = np.zeros(self.rows.shape[1])
            for weight, k in zip(weights, which, strict=True):
                scale[self.slices[k]] += weight
            used = np.flatnonzero(scale)
            if len(used) < len(scale):
                left, right, scale = left[:, used], right[:, used], scale[used]
            out += (left * scale) @ right.T
            return
        for position, k in enumerate(which):
            s = self.slices[k]
            K = (left[:, s] * (weights[position] * u[position])[:, None]) @ right[
                :, s
            ].T
            out += K * v[position]

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        which, rows, cols, _, v = asked
        left, right = self.rows[rows], self.cols[cols]
        out = np.empty((len(which), len(rows), len(At)))
        for position, k in enumerate(which):
            s = self.slices[k]
            a = At if v is None else At * v[position]
            out[position] = left[:, s] @ (a @ right[:, s]).T
        return out

    def quad(
        self, asked: Request, left: FloatArray, At: FloatArray, each: bool, count: int
    ) -> FloatArray | None:
        which, rows, cols, _, _ = asked
        a, b = left.T @ self.rows[rows], At @ self.cols[cols]
        products = np.stack(
            [np.sum(a[:, self.slices[k]] * b[:, self.slices[k]], axis=1) for k in which]
        ).T
        return products if each else products.sum(axis=0, keepdims=True)

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        part = self.rows[rows][:, self.slices[k]]
        return np.asarray(np.einsum("ij,ij->i", part, part))

    def raw(self) -> Source:
        raise ValueError(
            "This bank was made from features and has no samples; apply the feature "
            "map to the new samples instead."
        )

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        r = self.rows if rows is None else self.rows[rows]
        c = self.cols if cols is None else self.cols[cols]
        return FeatureSource(r, c, tuple(self.slices[k] for k in which))


@dataclass
class ColumnSource(FeatureSource):
    """Kernels given by groups of the same features, which may overlap.

    The features are kept once, for any number of kernels: a weighted sum of kernels is
    one product of weighted columns, and products with all kernels are sums over them.
    ``member`` (n_kernels, n_columns) has the scale of a kernel where it has a column.
    """

    scale: FloatArray
    member: Any

    @classmethod
    def over(
        cls, features: FloatArray, groups: Sequence[Index], scale: FloatArray
    ) -> ColumnSource:
        """Return the source of the kernels ``scale[m] Z_m Z_m'``."""
        member = _members(groups, features.shape[1], scale)
        return cls(features, features, tuple(groups), scale, member)  # type: ignore[arg-type]

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        which, rows, cols, u, v = asked
        if u is None or v is None:
            self._add(weights, which, self.rows[rows], self.cols[cols], out)
        elif _all_alike(u) and _all_alike(v):  # which samples lack the view
            left, right = self.rows[rows] * u[0][:, None], self.cols[cols]
            self._add(weights, which, left, right * v[0][:, None], out)
        else:
            super().combine(asked, weights * self.scale[which], out, tabulate)

    def _add(
        self,
        weights: FloatArray,
        which: Index,
        left: FloatArray,
        right: FloatArray,
        out: FloatArray,
    ) -> None:
        scale = self.member[which].T @ weights
        used = np.flatnonzero(scale)
        if len(used) < len(scale):
            left, right, scale = left[:, used], right[:, used], scale[used]
        out += (left * scale) @ right.T

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        which, rows, cols, _, v = asked
        if v is not None and not _all_alike(v):
            return super().multiply(asked, At) * self.scale[which][:, None, None]
        left, member = self.rows[rows], self.member[which]
        sums = (At if v is None else At * v[0]) @ self.cols[cols]
        out = np.empty((len(which), len(rows), len(At)))
        for t, one in enumerate(sums):
            out[:, :, t] = member @ (left * one).T
        return out

    def quad(
        self, asked: Request, left: FloatArray, At: FloatArray, each: bool, count: int
    ) -> FloatArray | None:
        which, rows, cols, _, _ = asked
        a, b = left.T @ self.rows[rows], At @ self.cols[cols]
        products = np.asarray((self.member[which] @ (a * b).T).T)
        return products if each else products.sum(axis=0, keepdims=True)

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        return self.scale[k] * super().diag(k, rows)

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        r = self.rows if rows is None else self.rows[rows]
        c = self.cols if cols is None else self.cols[cols]
        groups = tuple(self.slices[k] for k in which)
        return ColumnSource(r, c, groups, self.scale[which], self.member[which])


@dataclass
class SharedSource(ColumnSource):
    """Linear kernels on groups of the same columns of a table."""

    kernels: tuple[Kernel, ...] = ()
    sparse: bool = False  # whether the samples were, before they were made dense

    @classmethod
    def of(
        cls, kernels: Sequence[Kernel], samples: Any, groups: Sequence[Index]
    ) -> SharedSource:
        """Return the source of all pairs of samples; groups are columns of these."""
        columns = _dense_columns(samples)
        is_sparse = sparse.issparse(samples)
        return cls._made(tuple(kernels), columns, columns, tuple(groups), is_sparse)

    @classmethod
    def _made(
        cls,
        kernels: tuple[Kernel, ...],
        rows: FloatArray,
        cols: FloatArray,
        groups: tuple[Index, ...],
        is_sparse: bool,
    ) -> SharedSource:
        scale = np.ones(len(groups))
        member = _members(groups, rows.shape[1], scale)
        return cls(rows, cols, groups, scale, member, kernels, is_sparse)  # type: ignore[arg-type]

    @property
    def square(self) -> bool:
        return self.rows is self.cols

    def raw(self) -> Source:
        return self

    def cross(self, X: Any) -> Source:
        return replace(self, rows=_dense_columns(X))

    def without_rows(self) -> SharedSource:
        """Return the source between no rows and the columns."""
        return replace(self, rows=self.cols[:0])

    def known(self) -> Known:
        samples = sparse.csr_array(self.cols) if self.sparse else self.cols
        return Known(self.kernels, samples)

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        a, b = self.rows, self.cols
        shared = a is b and same(rows, cols)
        a = a if rows is None else a[rows]
        b = a if shared else (b if cols is None else b[cols])
        groups = tuple(np.asarray(self.slices[k]) for k in which)
        return self._made(_pick(self.kernels, which), a, b, groups, self.sparse)


def _members(groups: Sequence[Index], width: int, scale: FloatArray) -> Any:
    """Return the sparse matrix (n_groups, width) of which columns are in a group.

    The entries of a group are its scale.
    """
    sizes = [len(group) for group in groups]
    ends = np.cumsum([0, *sizes])
    entries = (np.repeat(scale, sizes), np.concatenate(groups), ends)
    return sparse.csr_array(entries, shape=(len(groups), width))


def _dense_columns(samples: Any) -> FloatArray:
    dense = samples.toarray() if sparse.issparse(samples) else samples
    return np.ascontiguousarray(dense, dtype=np.float64)


def _all_alike(factors: FloatArray) -> bool:
    return bool((factors == factors[0]).all())


# --- the identity as a kernel -------------------------------------------------------


@dataclass
class DiagonalSource(GivenSource):
    """One kernel: a diagonal matrix on the training samples."""

    values: FloatArray

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.values), len(self.values), 1

    @property
    def square(self) -> bool:
        return True

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        _, rows, cols, u, v = asked
        i, j = _meetings(rows, cols)
        for k, weight in enumerate(weights):
            both = 1.0 if u is None or v is None else u[k, i] * v[k, j]
            out[i, j] += weight * both * self.values[rows[i]]

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        which, rows, cols, _, v = asked
        i, j = _meetings(rows, cols)
        out = np.zeros((len(which), len(rows), len(At)))
        for k in range(len(which)):
            a = self.values[rows[i]] if v is None else self.values[rows[i]] * v[k, j]
            np.add.at(out[k], i, a[:, None] * At.T[j])
        return out

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        return self.values[rows]

    def raw(self) -> Source:
        raise ValueError(
            "A diagonal kernel is only defined on the training samples; leave it out "
            "of the bank before computing cross kernels, where it is zero."
        )


def _meetings(rows: Index, cols: Columns) -> tuple[Index, Index]:
    """Return the places in a block where row and column are the same sample."""
    if isinstance(cols, slice):
        i = np.flatnonzero((rows >= cols.start) & (rows < cols.stop))
        return i, rows[i] - cols.start
    order = np.argsort(cols, kind="stable")
    ordered = cols[order]
    first = np.searchsorted(ordered, rows, "left")
    count = np.searchsorted(ordered, rows, "right") - first
    i = np.repeat(np.arange(len(rows)), count)
    # a column may come more than once: number its copies
    copies = np.arange(len(i)) - np.repeat(np.cumsum(count) - count, count)
    return i, order[first[i] + copies]
