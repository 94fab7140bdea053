"""Sources that compute kernels from samples: from one base matrix, or one by one."""

# ruff: noqa: D102 - the methods of the sources are documented by the protocol Source

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.compiling import njit
from mklearn.kernels import functions
from mklearn.kernels.expsums import Tables
from mklearn.kernels.functions import BASES, Prepared, prepare
from mklearn.kernels.gram_source import GramSource
from mklearn.kernels.memory import Folder, Index, Storage, allocate, fill
from mklearn.kernels.sources import (
    Columns,
    FloatArray,
    GivenSource,
    Known,
    Request,
    Source,
    pick,
    same,
    scale,
)
from mklearn.kernels.specs import ComputedKernel, Kernel, VectorKernel

_SLIP = 1e-14  # between exponentials of one table and of the next


@dataclass
class BaseSource(GivenSource):
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
            out += K if u is None or v is None else scale(K, u[k], v[k])

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
            out[position] = scale(K, None, None if v is None else v[position]) @ At.T
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
        return replace(self, kernels=pick(self.kernels, which), rows=a, cols=b)

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
            out += K if u is None or v is None else scale(K, u[k], v[k])

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        which, rows, cols, _, v = asked
        out = np.empty((len(which), len(rows), len(At)))
        for position, k in enumerate(which):
            K = self._gram(k, rows, cols)
            out[position] = scale(K, None, None if v is None else v[position]) @ At.T
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
        return ComputedSource(pick(self.kernels, which), a, b)

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
