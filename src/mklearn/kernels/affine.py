"""Affine terms by which a bank evaluates normalised kernels and absent samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.memory import Index

FloatArray = NDArray[np.float64]


class Mask(NamedTuple):
    """Indicators of the samples that have the view of a kernel: 1 if so, else 0.

    Shapes (M, n_rows) and (M, n_cols).
    """

    rows: FloatArray
    cols: FloatArray

    def take(
        self, kernels: Any = None, rows: Index | None = None, cols: Index | None = None
    ) -> Mask | None:
        """Return the mask of some kernels, rows and columns; None if all are ones."""
        p, q = self.rows, self.cols
        if kernels is not None:
            p, q = p[kernels], q[kernels]
        p, q = p if rows is None else p[:, rows], q if cols is None else q[:, cols]
        return None if p.all() and q.all() else Mask(p, q)

    def extended(self) -> Mask:
        """Return the mask with another kernel, which all samples have."""
        return Mask(_extended(self.rows, 1.0), _extended(self.cols, 1.0))


class Terms(NamedTuple):
    """Terms that are added to rows (M, n_rows), columns (M, n_cols), kernels (M,)."""

    row: FloatArray
    col: FloatArray
    const: FloatArray


@dataclass(frozen=True)
class Affine:
    """Normalised kernels as affine functions of raw ones, entry by entry.

    ``K~[m] = scale[m] * u[m, i] * v[m, j] * K[m] - row[m, i] - col[m, j] + const[m]``;
    None stands for ones (u and v, together) or zeros (row, col and const, together).
    All of this is zero if a sample lacks the kernel's view; the ``outer`` terms are
    added afterwards, also for absent samples.
    """

    scale: FloatArray
    u: FloatArray | None = None
    v: FloatArray | None = None
    row: FloatArray | None = None
    col: FloatArray | None = None
    const: FloatArray | None = None
    outer: Terms | None = None

    @cached_property
    def curved(self) -> NDArray[np.bool_]:
        """Which kernels have a separate scale for each sample."""
        if self.u is None or self.v is None:
            return np.zeros(len(self.scale), dtype=bool)
        return np.asarray((self.u != 1).any(axis=1) | (self.v != 1).any(axis=1))

    def take(
        self, kernels: Any = None, rows: Index | None = None, cols: Index | None = None
    ) -> Affine:
        """Return the terms of some kernels, rows and columns; None means all."""

        def part(array: Any, samples: Any) -> Any:
            if array is None:
                return None
            array = array if kernels is None else array[kernels]
            return array if samples is None else array[:, samples]

        return Affine(
            self.scale if kernels is None else self.scale[kernels],
            part(self.u, rows),
            part(self.v, cols),
            part(self.row, rows),
            part(self.col, cols),
            part(self.const, None),
            None
            if self.outer is None
            else Terms(
                part(self.outer.row, rows),
                part(self.outer.col, cols),
                part(self.outer.const, None),
            ),
        )

    def extended(self) -> Affine:
        """Return the terms with another kernel, which is not normalised."""

        def more(array: FloatArray | None, value: float) -> FloatArray | None:
            return None if array is None else _extended(array, value)

        outer = self.outer
        return Affine(
            _extended(self.scale, 1.0),
            more(self.u, 1.0),
            more(self.v, 1.0),
            more(self.row, 0.0),
            more(self.col, 0.0),
            more(self.const, 0.0),
            None if outer is None else Terms(*(_extended(term, 0.0) for term in outer)),
        )


def _extended(array: FloatArray, value: float) -> FloatArray:
    """Return an array with a further, last entry along its first axis."""
    return np.concatenate([array, np.full((1, *array.shape[1:]), value)])
