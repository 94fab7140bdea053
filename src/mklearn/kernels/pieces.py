"""A bank without rows, taken apart into plain values and put together again.

This is what a saved model holds of its training samples. Values from a file are not
taken at their word: what does not fit together is a ValueError, not a wrong answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.kernels.bank import KernelBank, Mask, _Part
from mklearn.kernels.columns import FeatureSet
from mklearn.kernels.functions import prepare
from mklearn.kernels.sources import BaseSource, ComputedSource, Source
from mklearn.kernels.specs import ComputedKernel, Kernel, VectorKernel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Piece:
    """Kernels on the same features, and the samples that new ones are compared with.

    Attributes
    ----------
    kernels : tuple of Kernel
        Of one base, or of none.
    positions : array of int
        Their places in the bank.
    features : FeatureSet
    samples : array of shape (n, d), CSR matrix, or array of strings
        Features as the kernels see them, less ``shift``.
    shift : array of shape (d,), or None
    """

    kernels: tuple[Kernel, ...]
    positions: NDArray[np.intp]
    features: FeatureSet | None
    samples: Any
    shift: FloatArray | None = None


def take_apart(bank: KernelBank) -> tuple[tuple[Piece, ...], FloatArray | None]:
    """Return the pieces of a bank, and which column samples have which kernel's view.

    Parameters
    ----------
    bank : KernelBank
        As :meth:`KernelBank.reference` returns it.

    Returns
    -------
    pieces : tuple of Piece
    present : array of shape (n_kernels, n_cols) of ones and zeros, or None for ones
    """
    pieces = []
    for part in bank._parts:
        source, place = part.source, (part.positions, part.features)
        if isinstance(source, BaseSource) and not len(bank):
            samples = source.cols.rows
            pieces.append(Piece(source.kernels, *place, samples, source.shift))
        elif isinstance(source, ComputedSource) and not len(bank):
            pieces.append(Piece(source.kernels, *place, source.cols))
        else:
            raise ValueError(
                "Only a bank without rows that knows its samples can be taken apart: "
                "bank.reference(cols)."
            )
    return tuple(pieces), None if bank._mask is None else bank._mask.cols


def put_together(
    names: Sequence[str],
    pieces: Sequence[Piece],
    present: FloatArray | None = None,
) -> KernelBank:
    """Return the bank that was taken apart; raise ValueError if nothing fits."""
    names, M = tuple(names), len(names)
    _require(M > 0 and len(pieces) > 0, "there are no kernels")
    _require(all(isinstance(name, str) for name in names), "a kernel's name is no text")
    _require(len(set(names)) == M, "two kernels have one name")
    _require(all(isinstance(piece, Piece) for piece in pieces), "a piece is none")
    places = np.concatenate([_whole_numbers(piece.positions) for piece in pieces])
    _require(sorted(places.tolist()) == list(range(M)), "kernels have no place, or two")
    sizes = {int(piece.samples.shape[0]) for piece in pieces}
    _require(len(sizes) == 1, "the views differ in their number of samples")
    n = sizes.pop()
    bank = object.__new__(KernelBank)
    bank.names, bank._size = names, (0, n)
    found: dict[int, Kernel] = {}
    bank._parts = []
    for piece in pieces:
        _require(len(piece.kernels) == len(piece.positions), "kernels have no place")
        found.update(zip(piece.positions.tolist(), piece.kernels, strict=True))
        which = np.arange(len(piece.kernels))
        source = _source(piece)
        bank._parts.append(_Part(source, which, piece.positions, piece.features))
    bank.kernels = tuple(found[m] for m in range(M))
    if present is not None:
        _require(np.shape(present) == (M, n), "the mask of samples has another shape")
        _require(bool(np.isin(present, (0.0, 1.0)).all()), "the mask is not 0 and 1")
        bank._mask = Mask(np.ones((M, 0)), np.asarray(present, dtype=np.float64))
    return bank


def _source(piece: Piece) -> Source:
    features, samples, shift = piece.features, piece.samples, piece.shift
    if not isinstance(features, FeatureSet):
        raise ValueError("a kernel has no features")
    if features.text:
        texts = isinstance(samples, np.ndarray) and samples.ndim == 1
        _require(texts and all(isinstance(s, str) for s in samples), "no strings")
    else:
        index = features.index
        width = features.width if index is None else len(index)
        _require(samples.shape[1:] == (width,), "samples have other columns")
        _require(sparse.issparse(samples) == features.sparse, "samples are not sparse")
        values = samples.data if sparse.issparse(samples) else samples
        _require(values.dtype == np.float64, "samples are no numbers")
        _require(bool(np.isfinite(values).all()), "samples are not finite")
        if shift is not None:
            sound = np.shape(shift) == (width,) and np.isfinite(shift).all()
            _require(bool(sound), "the shift has another shape, or is not finite")
    vector = tuple(k for k in piece.kernels if isinstance(k, VectorKernel))
    computed = tuple(k for k in piece.kernels if isinstance(k, ComputedKernel))
    if vector:
        same = len({k.base for k in vector}) == 1 and not computed
        _require(same and not features.text, "kernels of several kinds are mixed")
        cols = prepare(samples)
        return BaseSource(vector, cols.take(slice(0, 0)), cols, shift)
    _require(len(computed) == len(piece.kernels), "a kernel is none")
    return ComputedSource(computed, samples[:0], samples)


def _whole_numbers(values: Any) -> NDArray[np.intp]:
    array = np.asarray(values)
    _require(array.ndim == 1 and array.dtype.kind == "i", "places are no numbers")
    return array


def _require(sound: bool, why: str) -> None:
    if not sound:
        raise ValueError(f"the saved kernels do not fit together: {why}")
