"""The identity as one more kernel of a training bank: soft margins and ridges."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mklearn.kernels.bank import Affine, KernelBank, Mask, Terms, _Part, _unique
from mklearn.kernels.sources import DiagonalSource

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
