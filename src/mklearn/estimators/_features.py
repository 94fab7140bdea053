"""Estimators in feature space: from rows in blocks to a model on explicit features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.blocks import Block, Blocks
from mklearn.data.threads import blas_threads, run_blocks
from mklearn.data.views import MultiView
from mklearn.kernels.feature_map import (
    APPROXIMATIONS,
    LANDMARKS,
    FeatureMap,
    Scaling,
    check_rank,
)
from mklearn.kernels.sources import available_memory
from mklearn.problems.reduction import by_kernel, squares
from mklearn.problems.statistics import Statistics

FloatArray = NDArray[np.float64]

SAMPLE = 20_000  # rows that a feature map is fitted on, if rows come in blocks
_BLOCK_BYTES = 2**26


@dataclass(frozen=True)
class FeatureTraining:
    """What ``fit`` learns from: rows in blocks, and the map to their features.

    ``rows`` are raw samples with checked targets (class numbers, or values of shape
    (n, T)) and weights.
    """

    rows: Blocks
    features: FeatureMap

    def encoded(self, encode: Callable[[Block], Block]) -> Blocks:
        """Return blocks of features with targets and costs made by ``encode``."""
        return self.rows.then(partial(_featurised, features=self.features, to=encode))


def _featurised(
    block: Block, features: FeatureMap, to: Callable[[Block], Block]
) -> Block:
    return to(Block(features.transform(block.X), block.y, block.weight))


# --- targets --------------------------------------------------------------------------


def indicators(block: Block, n_classes: int) -> Block:
    """Return the block with indicators of the classes (n, k); others stay."""
    y = np.asarray(block.y)
    if y.ndim == 1:
        y = y[:, None] == np.arange(n_classes)
    return Block(block.X, y.astype(np.float64), block.weight)


def against_rest(block: Block, factors: FloatArray) -> Block:
    """Return the block with targets -1 and 1, weights times the factor of the class."""
    labels, k = np.asarray(block.y), len(factors)
    columns = np.arange(1, 2) if k == 2 else np.arange(k)
    Y = np.where(labels[:, None] == columns, 1.0, -1.0)
    return Block(block.X, Y, block.weight * factors[labels])


def shifted(block: Block, shift: FloatArray) -> Block:
    """Return the block with values less ``shift``."""
    y = np.asarray(block.y, dtype=np.float64)
    return Block(block.X, y.reshape(len(y), -1) - shift, block.weight)


# --- normalisation --------------------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """Weighted total, mean and sums of squared deviations of each feature."""

    total: float
    mean: FloatArray
    scatter: FloatArray

    def __add__(self, other: Moments) -> Moments:
        total = self.total + other.total
        if total == 0:
            return self
        apart = other.mean - self.mean
        share = other.total / total
        between = self.total * share * apart**2
        return Moments(
            total, self.mean + share * apart, self.scatter + other.scatter + between
        )


@dataclass(frozen=True)
class Gathered:
    """Statistics with the costs as weights, and moments with the sample weights."""

    statistics: Statistics
    moments: Moments

    def __add__(self, other: Gathered) -> Gathered:
        return Gathered(
            self.statistics + other.statistics, self.moments + other.moments
        )


def gather(block: Block, factors: FloatArray | None = None) -> Gathered:
    """Return what the normalisation and quadratic losses need of a block.

    ``factors`` are those of the classes that ``against_rest`` has put on the weights:
    the normalisation does not know them.
    """
    statistics = Statistics.of_block(block)
    if factors is None or (factors == factors[0]).all():
        moments = Moments(
            statistics.total, statistics.mean, np.diagonal(statistics.ZZ).copy()
        )
        return Gathered(statistics, moments)
    own = block.y[:, 0] > 0 if len(factors) == 2 else block.y.argmax(axis=1)
    w = block.weight / factors[own.astype(int)]
    total = float(w.sum())
    mean = w @ block.X / max(total, 1e-300)
    return Gathered(statistics, Moments(total, mean, w @ (block.X - mean) ** 2))


# --- rows -----------------------------------------------------------------------------


def block_rows(n_features: int) -> int:
    """Return how many rows of features make a block, of 64 megabytes at most.

    It does not depend on the number of threads, so that sums over blocks do not; blocks
    are small enough to give each thread some.
    """
    return int(np.clip(_BLOCK_BYTES // (8 * n_features), 256, 2048))


def room(memory_limit: int | None) -> int:
    """Return the bytes that features may take: the limit, or half of what is free."""
    limit = available_memory() // 2 if memory_limit is None else int(memory_limit)
    return max(0, limit - 8 * _BLOCK_BYTES)


@dataclass(frozen=True)
class RowSample:
    """Rows with the least keys: a sample that does not depend on how rows are cut.

    A key is a hash of the row's content, divided by its weight as waiting times are.
    """

    keys: FloatArray
    X: Any
    weight: FloatArray
    size: int
    n_rows: int

    def __add__(self, other: RowSample) -> RowSample:
        keys = np.concatenate([self.keys, other.keys])
        best = np.argsort(keys, kind="stable")[: self.size]
        weight = np.concatenate([self.weight, other.weight])[best]
        X = stacked([self.X, other.X])[best]
        return RowSample(keys[best], X, weight, self.size, self.n_rows + other.n_rows)


def sample_rows(block: Block, size: int, seed: int) -> RowSample:
    """Return the rows of a block with the least keys."""
    X, w = block.X, block.weight
    u = (_hashed(X, seed).astype(np.float64) + 0.5) / 2.0**64
    keys = np.where(w > 0, -np.log(u) / np.where(w > 0, w, 1.0), np.inf)
    best = np.argsort(keys, kind="stable")[:size]
    best = best[np.isfinite(keys[best])]
    return RowSample(keys[best], X[best], w[best], size, len(w))


def stacked(parts: Sequence[Any]) -> Any:
    """Return rows one below the other."""
    if isinstance(parts[0], MultiView):
        return MultiView(
            {name: stacked([part[name] for part in parts]) for name in parts[0].names}
        )
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def _hashed(X: Any, seed: int) -> NDArray[np.uint64]:
    """Return a hash of each row."""
    if isinstance(X, MultiView):
        total = np.zeros(len(X), dtype=np.uint64)
        for k, name in enumerate(X.names):
            total += _mixed(_hashed(X[name], seed + k + 1))
        return _mixed(total)
    if X.ndim == 1:  # strings
        width = max((len(s) for s in X), default=1)
        X = X.astype(f"<U{max(width, 1)}").view(np.uint32).reshape(len(X), -1)
    rng = np.random.default_rng(seed)
    odd = rng.integers(0, 2**63, X.shape[1], dtype=np.uint64) * np.uint64(2)
    odd += np.uint64(1)
    if sparse.issparse(X):  # zeros add nothing
        terms = np.append(np.uint64(0), np.cumsum(_bits(X.data) * odd[X.indices]))
        return _mixed(terms[X.indptr[1:]] - terms[X.indptr[:-1]])
    return _mixed(_bits(X) @ odd)


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return mixed bits of numbers; those of zero are zero."""
    numbers = np.ascontiguousarray(values, dtype=np.float64) + 0.0  # no negative zeros
    return _mixed(numbers.view(np.uint64))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well-mixed bits (the finaliser of a splittable random generator)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


# --- what the estimators share --------------------------------------------------------


def check_approximation(approximation: Any, rank: Any, landmarks: Any) -> None:
    """Raise ValueError for parameters that make no sense."""
    if approximation is not None and approximation not in APPROXIMATIONS:
        raise ValueError(
            f"approximation must be None or one of {APPROXIMATIONS}, got "
            f"{approximation!r}."
        )
    check_rank(rank)
    if landmarks not in LANDMARKS:
        raise ValueError(f"landmarks must be one of {LANDMARKS}, got {landmarks!r}.")


def check_size(features: FeatureMap) -> None:
    """Raise ValueError if the scatter of the features does not fit into memory."""
    D, free = features.n_features, available_memory()
    if 4 * 8 * D**2 > free:  # of two blocks, their sum, and a factor
        raise ValueError(
            f"{len(features.names)} kernels have {D} features in all, whose scatter "
            f"takes {8e-9 * D**2:.3g} gigabytes, four times over, and {1e-9 * free:.3g}"
            " are free; take a lower rank or fewer kernels."
        )


@dataclass(frozen=True)
class FeatureModel:
    """A fitted model on features: scores are ``(z - shift)' coef + intercept``.

    Attributes
    ----------
    features : FeatureMap
        Of the kernels that have weight.
    coef : array of shape (D, T)
        On raw features.
    shift : array of shape (D,)
        What is subtracted from them.
    used : array
        Numbers of these kernels among all.
    """

    features: FeatureMap
    coef: FloatArray
    shift: FloatArray
    used: NDArray[np.intp]

    @classmethod
    def of(
        cls, features: FeatureMap, scaling: Scaling, theta: FloatArray, w: FloatArray
    ) -> FeatureModel:
        """Return the model of normalised weights ``w`` (D, T), without idle kernels."""
        used = np.flatnonzero(np.atleast_2d(theta).any(axis=0))
        if len(used) == 0:
            used = np.arange(1)
        columns = np.concatenate(
            [np.arange(features.slices[m].start, features.slices[m].stop) for m in used]
        )
        coef = (scaling.root[:, None] * w)[columns]
        return cls(features.select(used), coef, scaling.shift[columns], used)

    def scores(self, X: Any) -> FloatArray:
        """Return the scores without intercept, shape (n, T), by blocks of rows."""
        out = np.empty((X.shape[0], self.coef.shape[1]))
        offset = self.shift @ self.coef

        def work(rows: slice) -> None:
            out[rows] = self.features.transform(X[rows]) @ self.coef - offset

        self._by_rows(work, X.shape[0])
        return out

    def parts(self, X: Any, n_kernels: int) -> FloatArray:
        """Return what each kernel adds, shape (n, T, n_kernels)."""
        out = np.zeros((X.shape[0], self.coef.shape[1], n_kernels))

        def work(rows: slice) -> None:
            Z = self.features.transform(X[rows]) - self.shift
            for m, part in zip(self.used, self.features.slices, strict=True):
                out[rows, :, m] = Z[:, part] @ self.coef[part]

        self._by_rows(work, X.shape[0])
        return out

    def _by_rows(self, work: Callable[[slice], None], n: int) -> None:
        """Call ``work`` on blocks of rows; the digits do not depend on threads."""
        size = block_rows(self.features.n_features)
        with blas_threads(1):
            run_blocks(work, [slice(i, min(i + size, n)) for i in range(0, n, size)])


def contributions(
    theta: FloatArray, A: FloatArray, slices: Sequence[slice]
) -> FloatArray:
    """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (M,)."""
    part = theta * squares(A, slices)
    total = part.sum()
    return part / total if total > 0 else np.full(len(theta), 1.0 / len(theta))


def weights_of(theta: FloatArray, A: FloatArray, slices: Sequence[slice]) -> FloatArray:
    """Return ``w_m = theta_m A_m``, shape (D, T)."""
    return np.asarray(by_kernel(theta, slices)[:, None] * A)
