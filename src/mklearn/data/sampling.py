"""Samples of rows that depend on their content, not on their division into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.blocks import Block
from mklearn.data.views import MultiView

FloatArray = NDArray[np.float64]

_NUMBERS = 2**20  # numbers that are hashed at a time


@dataclass(frozen=True)
class RowSample:
    """Rows with the smallest keys: a sample that does not depend on the blocks.

    The key of a row is a hash of its content in single precision, turned into an
    exponential waiting time and divided by its weight: rows in single and in double
    precision give the same sample. Rows that are equal in single precision are ordered
    by a hash of all their digits. ``holes`` is True if any row, in the sample or not,
    lacks a view.
    """

    keys: FloatArray
    ties: NDArray[np.uint64]
    X: Any
    weight: FloatArray
    size: int
    n_rows: int
    holes: bool = False

    def __add__(self, other: RowSample) -> RowSample:
        keys = np.concatenate([self.keys, other.keys])
        ties = np.concatenate([self.ties, other.ties])
        best = np.lexsort((ties, keys))[: self.size]
        weight = np.concatenate([self.weight, other.weight])[best]
        X = stacked([self.X, other.X])[best]
        n_rows, holes = self.n_rows + other.n_rows, self.holes or other.holes
        return RowSample(keys[best], ties[best], X, weight, self.size, n_rows, holes)


def sample_rows(block: Block, size: int, seed: int) -> RowSample:
    """Return the rows of a block with the smallest keys."""
    X, w = block.X, block.weight
    u = (_hashed(X, seed, single=True).astype(np.float64) + 0.5) / 2.0**64
    keys = np.where(w > 0, -np.log(u) / np.where(w > 0, w, 1.0), np.inf)
    ties = _hashed(X, seed, single=False)
    best = np.lexsort((ties, keys))[:size]
    best = best[np.isfinite(keys[best])]
    holes = isinstance(X, MultiView) and any(map(X.has_absent, X.names))
    return RowSample(keys[best], ties[best], X[best], w[best], size, len(w), holes)


def stacked(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts, stacked vertically."""
    if isinstance(parts[0], MultiView):
        views = {name: stacked([p[name] for p in parts]) for name in parts[0].names}
        return MultiView.stacked(parts, views)
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def _hashed(X: Any, seed: int, single: bool) -> NDArray[np.uint64]:
    """Return a hash of each row, in single precision or of all digits."""
    if isinstance(X, MultiView):
        total = np.zeros(len(X), dtype=np.uint64)
        for k, name in enumerate(X.names):
            total += _mixed(_hashed(X[name], seed + k + 1, single))
        return _mixed(total)
    if X.ndim == 1:  # strings
        X = np.array(["" if s is None else s for s in X], dtype=object)
        width = max((len(s) for s in X), default=1)
        X = X.astype(f"<U{max(width, 1)}").view(np.uint32).reshape(len(X), -1)
    rng = np.random.default_rng(seed)
    odd = rng.integers(0, 2**63, X.shape[1], dtype=np.uint64) * np.uint64(2)
    odd += np.uint64(1)
    if sparse.issparse(X):  # zeros do not contribute
        bits = _bits(X.data, single)
        terms = np.append(np.uint64(0), np.cumsum(bits * odd[X.indices]))
        return _mixed(terms[X.indptr[1:]] - terms[X.indptr[:-1]])
    total = np.empty(len(X), dtype=np.uint64)
    size = max(1, _NUMBERS // max(1, X.shape[1]))
    for start in range(0, len(X), size):  # in parts, which are copied
        rows = slice(start, start + size)
        total[rows] = _bits(X[rows], single) @ odd
    return _mixed(total)


def _bits(values: NDArray[Any], single: bool) -> NDArray[np.uint64]:
    """Return mixed bits of numbers; those of zero are zero."""
    numbers = np.ascontiguousarray(values, dtype=np.float64) + 0.0  # no negative zeros
    if single:
        with np.errstate(over="ignore", under="ignore"):
            rounded = numbers.astype(np.float32)
        # numbers outside the range of single precision are not rounded
        numbers = np.where(np.isinf(rounded) | (rounded == 0), numbers, rounded)
    return _mixed(numbers.view(np.uint64))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well-mixed bits (the finaliser of a splittable random generator)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
