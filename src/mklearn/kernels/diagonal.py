"""The identity as one more kernel of a training bank: soft margins and ridges."""

# ruff: noqa: D102 - the methods of a source are documented by the protocol Source

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mklearn.kernels.bank import Affine, KernelBank, Mask, Terms, _Part, _unique
from mklearn.kernels.sources import Columns, GivenSource, Index, Source

FloatArray = NDArray[np.float64]


def add_diagonal(
    bank: KernelBank, values: ArrayLike, name: str = "identity"
) -> KernelBank:
    """Return a square bank with ``diag(values)`` as a further, last kernel.

    Its value is ``values[i]`` for sample i with itself and zero for any two samples, so
    that it says nothing about new ones: it is left out of cross kernels. It takes n
    numbers, not n^2, and is not changed by the bank's normalisation.

    Parameters
    ----------
    bank : KernelBank
        Square.
    values : array of shape (n,)
        Not negative.
    name : str

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import KernelBank
    >>> from mklearn.kernels.diagonal import add_diagonal
    >>> bank = add_diagonal(KernelBank.from_grams(np.ones((2, 2, 1))), [1.0, 3.0])
    >>> bank.combine([1.0, 2.0]).tolist()
    [[3.0, 1.0], [1.0, 7.0]]
    """
    n, n_cols, M = bank.shape
    values = np.asarray(values, dtype=np.float64)
    if n != n_cols or values.shape != (n,):
        raise ValueError(
            f"A diagonal needs a square bank and one value for each sample, got a bank "
            f"of shape {bank.shape} and values of shape {values.shape}."
        )
    new = copy.copy(bank)
    new.names = _unique([*bank.names, name])
    new.kernels = (*bank.kernels, None)
    new._parts = [
        *bank._parts,
        _Part(DiagonalSource(values), np.zeros(1, np.intp), np.array([M]), None),
    ]

    def further(array: Any, value: float) -> Any:
        if array is None:
            return None
        return np.concatenate([array, np.full((1, *array.shape[1:]), value)])

    if bank._mask is not None:
        new._mask = Mask(*(further(side, 1.0) for side in bank._mask))
    affine = bank._affine
    if affine is not None:
        outer = affine.outer
        new._affine = Affine(
            np.append(affine.scale, 1.0),
            further(affine.u, 1.0),
            further(affine.v, 1.0),
            further(affine.row, 0.0),
            further(affine.col, 0.0),
            further(affine.const, 0.0),
            None if outer is None else Terms(*(further(term, 0.0) for term in outer)),
        )
    return new


@dataclass
class DiagonalSource(GivenSource):
    """One kernel: a diagonal matrix on the training samples."""

    values: FloatArray

    @property
    def square(self) -> bool:
        return True

    def combine(
        self,
        which: Index,
        weights: FloatArray,
        rows: Index,
        cols: Columns,
        u: FloatArray | None,
        v: FloatArray | None,
        out: FloatArray,
        tabulate: bool,
    ) -> None:
        i, j = _meetings(rows, cols)
        for k, weight in enumerate(weights):
            both = 1.0 if u is None or v is None else u[k, i] * v[k, j]
            out[i, j] += weight * both * self.values[rows[i]]

    def multiply(
        self,
        which: Index,
        rows: Index,
        cols: Columns,
        At: FloatArray,
        v: FloatArray | None,
    ) -> FloatArray:
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
            "A diagonal is known on the training samples only; leave it out of the "
            "bank before cross kernels are asked for: it is zero there."
        )

    def cross(self, X: Any) -> Source:
        return self.raw()


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
