"""What a pass over the data returns: statistics of features that can be added up.

With features Z of all kernels side by side, everything that the squared loss and the
discriminant criteria know about the samples is in their weighted counts, means and
scatter. These are computed block by block, anywhere, and merged in any order.

Data come as :class:`Blocks`: rows in portions that a function is applied to, one after
the other in memory or from disk, or on many machines. Whoever has such portions can
fit a model: nothing here asks for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from mklearn.kernels.threads import in_order

FloatArray = NDArray[np.float64]
T = TypeVar("T", bound="Mergeable")


# --- blocks ---------------------------------------------------------------------------


class Block(NamedTuple):
    """Some rows: samples or their features, targets, and sample weights (n,).

    ``y`` is what ``fit`` was given for these rows, or targets (n, T) made from it; None
    where there are none.
    """

    X: Any
    y: Any
    weight: FloatArray

    @property
    def n_rows(self) -> int:
        """Number of rows (``len`` is that of the tuple)."""
        return len(self.weight)


class Mergeable(Protocol):
    """Results of two blocks can be added; the sum is the result of both together."""

    def __add__(self: T, other: T) -> T: ...


class Blocks(Protocol):
    """All rows, in portions.

    Functions must not change a block, and can be pickled where the blocks are on other
    machines: they are functions of a module, or ``functools.partial`` of them.
    """

    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return ``function(block) + function(block) + ...``, in any order."""

    def map(self, function: Callable[[Block], Any]) -> list[Any]:
        """Return ``[function(block), ...]`` in the order of the rows."""

    def then(self, function: Callable[[Block], Block]) -> Blocks:
        """Return the blocks ``function(block)``.

        They are computed when asked for; where there is room they may be kept.
        """


@dataclass
class MemoryBlocks:
    """Blocks of rows of arrays in memory, worked on by threads.

    Parameters
    ----------
    X : array, CSR matrix or MultiView, sliced by ``X[start:stop]``
    y : array of shape (n,) or (n, T), or None
    weight : array of shape (n,), or None for ones
    size : int
        Rows of a block.
    keep : int
        Bytes that blocks made by :meth:`then` may take; what does not fit is computed
        again in every pass.
    steps : tuple of callables
        What :meth:`then` has appended.
    """

    X: Any
    y: Any = None
    weight: FloatArray | None = None
    size: int = 4096
    keep: int = 0
    steps: tuple[Callable[[Block], Block], ...] = ()
    kept: dict[int, Block] = field(default_factory=dict, repr=False)
    held: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows in all."""
        return int(self.X.shape[0])

    def _starts(self) -> range:
        return range(0, self.n_rows, self.size)

    def _block(self, start: int) -> Block:
        if start in self.kept:
            return self.kept[start]
        rows = slice(start, min(start + self.size, self.n_rows))
        y = None if self.y is None else self.y[rows]
        if self.weight is None:
            weight = np.ones(rows.stop - rows.start)
        else:
            weight = self.weight[rows]
        block = Block(self.X[rows], y, weight)
        for step in self.steps:
            block = step(block)
        if self.steps:
            taken = sum(int(getattr(part, "nbytes", 0)) for part in block)
            if self.held + taken <= self.keep:
                self.held += taken
                self.kept[start] = block
        return block

    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return the sum of ``function`` over the blocks, in the order of the rows."""
        total: T | None = None
        for part in in_order(lambda at: function(self._block(at)), self._starts()):
            total = part if total is None else total + part
        assert total is not None
        return total

    def map(self, function: Callable[[Block], Any]) -> list[Any]:
        """Return ``function`` of each block, in order."""
        return [function(self._block(start)) for start in self._starts()]

    def then(self, function: Callable[[Block], Block]) -> MemoryBlocks:
        """Return the blocks after ``function``, kept as far as ``keep`` allows."""
        return replace(self, steps=(*self.steps, function), kept={}, held=0)


# --- statistics -----------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """Weighted count, means and scatter of features Z and targets H.

    The scatter is kept around the means, and merging moves it to the common ones: sums
    of squares of features far from zero would lose the digits that matter.

    Attributes
    ----------
    n : int
        Rows.
    total : float
        Sum of the weights.
    mean : array of shape (D,)
        Weighted mean of Z.
    target : array of shape (T,)
        Weighted mean of H.
    ZZ : array of shape (D, D)
        ``sum_i w_i (z_i - mean)(z_i - mean)'``.
    ZH : array of shape (D, T)
    HH : array of shape (T, T)
    """

    n: int
    total: float
    mean: FloatArray
    target: FloatArray
    ZZ: FloatArray = field(repr=False)
    ZH: FloatArray = field(repr=False)
    HH: FloatArray = field(repr=False)

    @classmethod
    def of(
        cls,
        Z: FloatArray,
        H: FloatArray | None = None,
        weight: FloatArray | None = None,
    ) -> Statistics:
        """Return the statistics of some rows.

        Parameters
        ----------
        Z : array of shape (n, D)
        H : array of shape (n, T), optional
        weight : array of shape (n,), optional
            Not negative; rows without weight count as rows and nothing else.
        """
        n, D = Z.shape
        H = np.zeros((n, 0)) if H is None else H
        w = np.ones(n) if weight is None else weight
        total = float(w.sum())
        if total <= 0:
            zero = np.zeros
            k = H.shape[1]
            return cls(
                n, 0.0, zero(D), zero(k), zero((D, D)), zero((D, k)), zero((k, k))
            )
        if not (w > 0).all():
            Z, H, w = Z[w > 0], H[w > 0], w[w > 0]
        mean, target = w @ Z / total, w @ H / total
        root = np.sqrt(w)[:, None]
        Z, H = root * (Z - mean), root * (H - target)
        return cls(n, total, mean, target, gram(Z), Z.T @ H, H.T @ H)

    @classmethod
    def of_block(cls, block: Block) -> Statistics:
        """Return the statistics of a block of features and targets."""
        return cls.of(block.X, block.y, block.weight)

    def __add__(self, other: Statistics) -> Statistics:
        """Return the statistics of both together."""
        if (
            self.mean.shape != other.mean.shape
            or self.target.shape != other.target.shape
        ):
            raise ValueError(
                f"Statistics of {len(self.mean)} features and {len(self.target)} "
                f"targets cannot be added to those of {len(other.mean)} and "
                f"{len(other.target)}; use one feature map and one list of classes."
            )
        n, total = self.n + other.n, self.total + other.total
        if self.total == 0 or other.total == 0:
            return replace(self if other.total == 0 else other, n=n)
        share = other.total / total
        apart, gap = other.mean - self.mean, other.target - self.target
        between = self.total * share
        ZZ = self.ZZ + other.ZZ
        ZZ += np.multiply.outer(between * apart, apart)
        return Statistics(
            n,
            total,
            self.mean + share * apart,
            self.target + share * gap,
            ZZ,
            self.ZH + other.ZH + np.multiply.outer(between * apart, gap),
            self.HH + other.HH + np.multiply.outer(between * gap, gap),
        )

    def __radd__(self, other: int) -> Statistics:
        """Let ``sum`` begin with its zero."""
        if other != 0:
            return NotImplemented
        return self

    def weighted(self, factor: float) -> Statistics:
        """Return the statistics of the same rows, their weights times ``factor``."""
        return replace(
            self,
            total=factor * self.total,
            ZZ=factor * self.ZZ,
            ZH=factor * self.ZH,
            HH=factor * self.HH,
        )

    def with_targets(self, B: FloatArray) -> Statistics:
        """Return the statistics with the targets ``H B``, B of shape (T, T')."""
        return replace(
            self, target=self.target @ B, ZH=self.ZH @ B, HH=B.T @ self.HH @ B
        )


def gram(Z: FloatArray) -> FloatArray:
    """Return ``Z'Z``, computing one triangle."""
    if Z.shape[0] == 0 or Z.shape[1] == 0:
        return np.zeros((Z.shape[1], Z.shape[1]))
    # a row-major array is the transpose of what BLAS reads
    upper = dsyrk(1.0, np.ascontiguousarray(Z).T)
    return np.asarray(upper + np.triu(upper, 1).T)
