"""Sources of kernels that are products of explicit features, or diagonal matrices."""

# ruff: noqa: D102 - the methods of the sources are documented by the protocol Source

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from mklearn.kernels.memory import Index
from mklearn.kernels.sources import (
    Columns,
    FloatArray,
    GivenSource,
    Known,
    Request,
    Source,
    pick,
    same,
)
from mklearn.kernels.specs import Kernel


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
        return self._made(pick(self.kernels, which), a, b, groups, self.sparse)


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
