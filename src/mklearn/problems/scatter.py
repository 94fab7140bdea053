"""Statistics of features that are computed in one pass and can be added.

Let Z be the features of all kernels side by side. Then the weighted counts, means and
scatter are sufficient statistics for the squared loss and the discriminant criteria.
They are computed block by block, possibly in parallel, and merged in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from mklearn.data.blocks import Block
from mklearn.data.spelling import plural

FloatArray = NDArray[np.float64]


# --- statistics -----------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """Weighted count, means and scatter of features Z and targets H.

    The scatter is centred at the means, and merging recentres it at the common means:
    raw sums of squares would suffer from cancellation if features are far from zero.

    Attributes
    ----------
    n : int
        Number of rows.
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
    n_weighted : int
        Number of rows with nonzero weight.
    """

    n: int
    total: float
    mean: FloatArray
    target: FloatArray
    ZZ: FloatArray = field(repr=False)
    ZH: FloatArray = field(repr=False)
    HH: FloatArray = field(repr=False)
    n_weighted: int = 0

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
            Nonnegative; rows of weight zero affect only the number of rows.
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
        return cls(n, total, mean, target, gram(Z), Z.T @ H, H.T @ H, len(w))

    @classmethod
    def of_block(cls, block: Block) -> Statistics:
        """Return the statistics of a block of features and targets.

        Complex targets, whose imaginary part is a mark, enter with their real part.
        """
        y = None if block.y is None else np.real(block.y)
        return cls.of(block.X, y, block.weight)

    def __add__(self, other: Statistics) -> Statistics:
        """Return the statistics of both together."""
        if (
            self.mean.shape != other.mean.shape
            or self.target.shape != other.target.shape
        ):
            raise ValueError(
                f"Statistics of {plural(len(self.mean), 'feature')} and "
                f"{plural(len(self.target), 'target')} cannot be added to those of "
                f"{len(other.mean)} and {len(other.target)}; use one feature map and "
                "one list of classes."
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
            self.n_weighted + other.n_weighted,
        )

    def __radd__(self, other: int) -> Statistics:
        """Allow ``sum``, which starts from zero."""
        if other != 0:
            return NotImplemented
        return self

    def weighted(self, factor: float) -> Statistics:
        """Return the statistics with all weights multiplied by ``factor``."""
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

    def at(self, places: NDArray[np.intp]) -> Statistics:
        """Return the statistics of the features ``Z[:, places]``."""
        return replace(
            self,
            mean=self.mean[places],
            ZZ=self.ZZ[np.ix_(places, places)],
            ZH=self.ZH[places],
        )

    def apart(self, k: int) -> tuple[Statistics, Beside]:
        """Return the statistics after regressing out the last k columns.

        The other columns and the targets are replaced by the residuals of their
        least-squares regression on these columns and a constant.
        """
        D = len(self.mean) - k
        if not k:
            T = len(self.target)
            zero = np.zeros
            return self, Beside(zero(0), zero((0, 0)), zero((0, D)), zero((0, T)))
        CC, CZ, CH = self.ZZ[D:, D:], self.ZZ[D:, :D], self.ZH[D:]
        inverse = _inverse(CC)
        along, effects = inverse @ CZ, inverse @ CH
        rest = replace(
            self,
            mean=self.mean[:D],
            ZZ=self.ZZ[:D, :D] - CZ.T @ along,
            ZH=self.ZH[:D] - CZ.T @ effects,
            HH=self.HH - CH.T @ effects,
        )
        return rest, Beside(self.mean[D:], inverse, along, effects)


@dataclass(frozen=True)
class Beside:
    """Unpenalised columns, and the regression of features and targets on them.

    Attributes
    ----------
    mean : array of shape (k,)
    inverse : array of shape (k, k)
        Inverse of their scatter.
    along : array of shape (k, D)
        Regression coefficients of the features on them.
    effects : array of shape (k, T)
        Regression coefficients of the targets on them.
    """

    mean: FloatArray
    inverse: FloatArray
    along: FloatArray
    effects: FloatArray


def _inverse(S: FloatArray) -> FloatArray:
    """Return the pseudo-inverse of a scatter."""
    root = np.sqrt(np.maximum(np.diagonal(S), 0.0))
    safe = np.where(root > 0, root, 1.0)
    scaled = np.linalg.pinv(S / np.outer(safe, safe), 1e-13, hermitian=True)
    return np.asarray(scaled / np.outer(safe, safe))


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
    """Return the statistics of a block for quadratic losses and normalisation.

    ``factors`` are the class factors by which ``against_rest`` has multiplied the
    weights; the normalisation uses the weights without them.
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


def gram(Z: FloatArray) -> FloatArray:
    """Return ``Z'Z``, computing one triangle."""
    if Z.shape[0] == 0 or Z.shape[1] == 0:
        return np.zeros((Z.shape[1], Z.shape[1]))
    # BLAS reads a row-major array as its transpose
    upper = dsyrk(1.0, np.ascontiguousarray(Z).T)
    return np.asarray(upper + np.triu(upper, 1).T)
