"""The saved state of a bank: plain values, validated when they are loaded.

This is the part of the training samples that a saved model contains. Values from a file
are validated: inconsistent ones raise a ValueError instead of giving wrong results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.kernels.columns import (
    Features,
    FeatureSet,
    JointFeatures,
    columns_in,
    is_linear,
)
from mklearn.kernels.computed_source import BaseSource, ComputedSource
from mklearn.kernels.feature_source import SharedSource
from mklearn.kernels.functions import prepare
from mklearn.kernels.joint import Joint
from mklearn.kernels.sources import Known, Source
from mklearn.kernels.specs import ComputedKernel, Kernel, Product, VectorKernel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """Kernels on the same features, and the samples that new ones are compared with.

    Attributes
    ----------
    kernels : tuple of Kernel
        Kernels with the same base, or without one.
    positions : array of int
        Their positions in the bank.
    features : FeatureSet or JointFeatures
    samples : array of shape (n, d), CSR matrix, array of strings, or Joint of these
        The features of the kernels, minus ``shift``.
    shift : array of shape (d,), or None
    """

    kernels: tuple[Kernel, ...]
    positions: NDArray[np.intp]
    features: Features | None
    samples: Any
    shift: FloatArray | None = None

    @classmethod
    def of(
        cls, known: Known, positions: NDArray[np.intp], features: Features | None
    ) -> Reference:
        """Return the state of a source, with the positions of its kernels."""
        return cls(known.kernels, positions, features, known.samples, known.shift)

    def source(self) -> Source:
        """Return the validated source, with the samples as columns and no rows."""
        _require(len(self.kernels) == len(self.positions), "a kernel has no position")
        features, samples, shift = self.features, self.samples, self.shift
        if not isinstance(features, Features):
            raise ValueError("a kernel has no features")
        features.check()
        products = {isinstance(kernel, Product) for kernel in self.kernels}
        if isinstance(features, JointFeatures):
            alike = isinstance(samples, Joint) and shift is None and products == {True}
            alike = alike and len(samples.parts) == len(features.parts)
            _require(alike, "a product and its factors differ in their samples")
            for own, part in zip(features.parts, samples.parts, strict=True):
                _check_samples(own, part, None)
        else:
            _require(True not in products, "a product has the samples of one kernel")
            _check_samples(features, samples, shift)
        vector = tuple(k for k in self.kernels if isinstance(k, VectorKernel))
        computed = tuple(k for k in self.kernels if isinstance(k, ComputedKernel))
        if vector:
            same = len({k.base for k in vector}) == 1 and not computed
            plain = isinstance(features, FeatureSet) and not features.text
            _require(same and plain, "kernels of several kinds are mixed")
            assert isinstance(features, FeatureSet)
            if len({repr(k.columns) for k in vector}) > 1 and is_linear(vector):
                _require(shift is None, "linear kernels have a shift")
                groups = columns_in(vector, features)
                return SharedSource.of(vector, samples, groups).without_rows()
            cols = prepare(samples)
            return BaseSource(vector, cols.take(slice(0, 0)), cols, shift)
        _require(len(computed) == len(self.kernels), "a kernel is of an unknown kind")
        return ComputedSource(computed, samples[:0], samples)


@dataclass(frozen=True)
class BankState:
    """A bank without rows.

    Attributes
    ----------
    names : sequence of str
    references : sequence of Reference
    present : array of shape (n_kernels, n_cols) of ones and zeros, or None for ones
        Whether a column sample has the view of a kernel.
    """

    names: Sequence[str]
    references: Sequence[Reference]
    present: FloatArray | None = None

    def sources(self) -> list[Source]:
        """Return the sources of the references; raise ValueError if inconsistent."""
        names, M, references = self.names, len(self.names), self.references
        _require(M > 0 and len(references) > 0, "there are no kernels")
        _require(all(isinstance(name, str) for name in names), "a name is not text")
        _require(len(set(names)) == M, "two kernels have the same name")
        known = all(isinstance(reference, Reference) for reference in references)
        _require(known, "a reference is invalid")
        places = np.concatenate([_whole_numbers(of.positions) for of in references])
        sound = sorted(places.tolist()) == list(range(M))
        _require(sound, "a kernel has no position, or several")
        sizes = {int(of.samples.shape[0]) for of in references}
        _require(len(sizes) == 1, "the views differ in their number of samples")
        if self.present is not None:
            sound = np.shape(self.present) == (M, sizes.pop())
            _require(sound, "the mask of samples has another shape")
            sound = self.present.dtype == np.float64
            sound = sound and bool(np.isin(self.present, (0.0, 1.0)).all())
            _require(sound, "the mask is not 0 and 1")
        return [of.source() for of in references]


def _check_samples(features: FeatureSet, samples: Any, shift: Any) -> None:
    """Raise ValueError unless samples have the form of some features."""
    if features.text:
        texts = isinstance(samples, np.ndarray) and samples.ndim == 1
        _require(texts and all(isinstance(s, str) for s in samples), "not strings")
        return
    width = features.n_columns
    _require(samples.shape[1:] == (width,), "samples have different columns")
    _require(sparse.issparse(samples) == features.sparse, "samples are not sparse")
    values = samples.data if sparse.issparse(samples) else samples
    _require(values.dtype == np.float64, "samples are not numbers")
    _require(bool(np.isfinite(values).all()), "samples are not finite")
    if shift is not None:
        sound = np.shape(shift) == (width,) and np.isfinite(shift).all()
        _require(bool(sound), "the shift has another shape, or is not finite")


def _whole_numbers(values: Any) -> NDArray[np.intp]:
    array = np.asarray(values)
    _require(array.ndim == 1 and array.dtype.kind == "i", "positions are not numbers")
    return array


def _require(sound: bool, why: str) -> None:
    if not sound:
        raise ValueError(f"the saved kernels do not fit together: {why}")
