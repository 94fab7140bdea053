"""The problem of all samples as a problem of as many as there are features.

For quadratic losses the scatter of features and targets says everything. With the
centred ``Z'Z = R'R``, R of shape (r, D), and ``T`` such that ``R'T = Z'H``,

    |H - Zw|^2 = |T - Rw|^2 + |H|^2 - |T|^2    for all w,

so the rows of R are *pseudo-samples*: kernels on them are ``R_m R_m'``, targets are T,
and what T lacks in length is given to as many more pseudo-samples as there are targets,
with features zero. The problem on them has the same objective for every w, hence the
same solution, the same bounds and the same path in the regularisation, whatever the
number of samples was. A free bias is the centring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.lowrank import Scaling, feature_bank
from mklearn.problems.losses import Rows, Squared, System
from mklearn.problems.mkl import Judgement, MKLProblem
from mklearn.problems.statistics import Statistics
from mklearn.problems.weights import WeightSet

FloatArray = NDArray[np.float64]


def factorised(S: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return R of shape (r, D) with ``R'R = S`` up to rounding, and its pivots.

    A Cholesky factor with pivots stops where what is left of the diagonal is rounding,
    so that r is the numerical rank. The first r pivots are columns of R that form a
    triangle.
    """
    D = len(S)
    top = float(np.max(np.diagonal(S), initial=0.0))
    if top <= 0:
        return np.zeros((0, D)), np.zeros(0, dtype=np.intp)
    # scaled to a unit diagonal: kernels of small scale are not rounding
    scale = np.sqrt(np.maximum(np.diagonal(S), 0.0))
    safe = np.where(scale > 0, scale, 1.0)
    C, pivots, rank, info = dpstrf(S / np.outer(safe, safe), tol=1e-14 * D, lower=0)
    if info < 0:
        raise ValueError(
            "The scatter of the features holds values that are no numbers."
        )
    order = pivots.astype(np.intp) - 1
    R = np.zeros((rank, D))
    R[:, order] = np.triu(C[:rank]) * scale[order]
    return R, order[:rank]


@dataclass(frozen=True)
class Reduced:
    """Pseudo-samples that stand for all samples.

    Attributes
    ----------
    bank : KernelBank
        Low-rank kernels of the r + T pseudo-samples.
    targets : array of shape (r + T, T)
    R : array of shape (r + T, D)
        Their normalised features.
    slices : the columns of each kernel
    total : float
        Sum of the sample weights.
    """

    bank: KernelBank
    targets: FloatArray
    R: FloatArray
    slices: tuple[slice, ...]
    total: float

    @classmethod
    def of(
        cls,
        statistics: Statistics,
        scaling: Scaling,
        slices: Sequence[slice],
        names: Sequence[str] | None = None,
    ) -> Reduced:
        """Return the pseudo-samples of statistics of raw features."""
        root = scaling.root
        R, pivots = factorised(root[:, None] * statistics.ZZ * root)
        ZH = root[:, None] * statistics.ZH
        r, T = len(R), ZH.shape[1]
        known = np.zeros((0, T))
        if r:
            known = solve_triangular(R[:, pivots], ZH[pivots], trans=1)
        values, vectors = np.linalg.eigh(statistics.HH - known.T @ known)
        rest = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        rows = np.vstack([R, np.zeros((T, R.shape[1]))])
        return cls(
            feature_bank(rows, slices, names),
            np.vstack([known, rest]),
            rows,
            tuple(slices),
            statistics.total,
        )

    def squared(
        self, C: float, weights: WeightSet, tasks: slice = slice(None)
    ) -> MKLProblem:
        """Return the problem with the squared loss and costs ``C`` times the weights.

        Its value is that of all samples with a free bias.
        """
        Y = self.targets[:, tasks]
        return MKLProblem(self.bank, Squared(Y, np.full(Y.shape, C), False), weights)

    def dual(self, A: FloatArray) -> FloatArray:
        """Return ``Z'A`` of all samples, shape (D, T), from A of the pseudo-samples."""
        return np.asarray(self.R.T @ A)

    def bias(
        self, statistics: Statistics, scaling: Scaling, w: FloatArray
    ) -> FloatArray:
        """Return the free bias that goes with weights (D, T) of normalised features."""
        mean = scaling.root * (statistics.mean - scaling.shift)
        return np.asarray(statistics.target - mean @ w)


def by_kernel(theta: FloatArray, slices: Sequence[slice]) -> FloatArray:
    """Return the weight of the kernel of each feature, shape (D,) or (T, D)."""
    widths = [s.stop - s.start for s in slices]
    return np.repeat(theta, widths, axis=-1)


def squares(w: FloatArray, slices: Sequence[slice]) -> FloatArray:
    """Return ``|w_m|^2`` of all tasks together for each kernel, shape (M,)."""
    starts = [s.start for s in slices]
    return np.asarray(np.add.reduceat(np.sum(w * w, axis=1), starts))


# --- second-order expansions ----------------------------------------------------------


@dataclass(frozen=True)
class Expansion:
    """``½ sum f_i^2`` over all pseudo-samples but the last, and ``-f`` of the last.

    The expansion ``½ w'Sw - g'w`` of any loss, with the rows of R (``S = R'R``) and g
    as pseudo-samples. The dual variable of the last is one.

    Parameters
    ----------
    n : int
        Pseudo-samples.
    """

    n: int

    hyperplane = True
    concavity = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """Number of pseudo-samples, and one task."""
        return self.n, 1

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the value at scores."""
        return 0.5 * float(np.sum(F[:-1] ** 2)) - float(F[-1, 0])

    def dual(self, A: FloatArray) -> float:
        """Return ``-½ sum A^2`` without the last."""
        return -0.5 * float(np.sum(A[:-1] ** 2))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return zero."""
        return np.zeros(1)

    def repair(self, A: FloatArray) -> FloatArray:
        """Set the last entry to one."""
        A = np.array(A)
        A[-1] = 1.0
        return A

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return ones; the last cannot move."""
        out = np.ones(A.shape)
        out[-1] = np.inf
        return out

    def take(self, rows: Rows, factor: float) -> Expansion:
        """Refuse: pseudo-samples belong together."""
        raise ValueError("An expansion cannot be restricted to some pseudo-samples.")

    def system(self) -> System:
        """Return ``(K + diag(1, ..., 1, 0)) A + e b = 0``, ``e'A = 1``, e the last."""
        ridge = np.ones(self.n)
        ridge[-1] = 0.0
        last = np.zeros((self.n, 1))
        last[-1] = 1.0
        return System(ridge, np.zeros((self.n, 1)), last, np.ones((1, 1)))


def expansion(
    S: FloatArray, g: FloatArray, slices: Sequence[slice], weights: WeightSet
) -> MKLProblem:
    """Return ``min ½ w'Sw - g'w + ½ sum_m |w_m|^2 / theta_m`` over w and theta.

    Parameters
    ----------
    S : array of shape (D, D)
        Positive semidefinite.
    g : array of shape (D,)
    slices : the columns of each kernel
    weights : WeightSet
    """
    rows = np.vstack([factorised(S)[0], g])
    return MKLProblem(feature_bank(rows, slices), Expansion(len(rows)), weights)


@dataclass(frozen=True)
class StackedProblem:
    """Problems with kernels of their own that share the weights.

    Their samples stand one below the other, and their kernels form a matrix of blocks
    along the diagonal that is never made.

    Parameters
    ----------
    parts : tuple of MKLProblem
        Each with one task and the same weight set.
    """

    parts: tuple[MKLProblem, ...]

    @property
    def weights(self) -> WeightSet:
        """Where the weights live."""
        return self.parts[0].weights

    @property
    def bank(self) -> Any:
        """The kernels, by blocks."""
        return _Blocks(tuple(part.bank for part in self.parts))

    @property
    def loss(self) -> Any:
        """The losses, by blocks."""
        return _Losses(tuple(part.loss for part in self.parts))

    def split(self, A: FloatArray) -> list[FloatArray]:
        """Return the rows of each part."""
        ends = np.cumsum([part.bank.shape[0] for part in self.parts])
        return np.split(A, ends[:-1])

    def center(self) -> FloatArray:
        """Return weights that treat all kernels alike."""
        return self.parts[0].center()

    def step(self, theta: FloatArray, quads: FloatArray) -> FloatArray:
        """Return the best weights for the ``w`` that ``theta`` and A give."""
        return self.weights.step(theta, quads)

    def judge(
        self,
        theta: FloatArray,
        A: FloatArray,
        scores: FloatArray | None = None,
        quads: FloatArray | None = None,
    ) -> Judgement:
        """Return the bounds that ``(theta, A)`` proves."""
        A = self.loss.repair(A)
        F = self.bank.apply(theta, A) if scores is None else scores
        q = self.bank.quad(A) if quads is None else quads
        upper = self.loss.primal(F, np.zeros(1)) + self.weights.regulariser(theta, q)
        return Judgement(upper, self.dual(A, q), np.zeros(1))

    def dual(self, A: FloatArray, quads: FloatArray | None = None) -> float:
        """Return the lower bound that a feasible ``A`` proves."""
        A = self.loss.repair(A)
        q = self.bank.quad(A) if quads is None else quads
        return float(self.loss.dual(A) - 0.5 * self.weights.support(q))

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` for every kernel, shape (M,)."""
        return np.asarray(self.bank.quad(A))

    def weight_bounds(
        self, A: FloatArray, upper: float, quads: FloatArray | None = None
    ) -> FloatArray:
        """Return ones: nothing is known."""
        return np.ones(self.bank.shape[2])

    def take(self, rows: NDArray[np.intp], factor: float = 1.0) -> StackedProblem:
        """Refuse: the samples of the parts are different ones."""
        raise ValueError("Problems that are stacked cannot be restricted to samples.")


@dataclass(frozen=True)
class _Blocks:
    """Kernels along the diagonal."""

    banks: tuple[KernelBank, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        n = sum(bank.shape[0] for bank in self.banks)
        return n, n, self.banks[0].shape[2]

    def _split(self, A: FloatArray) -> list[FloatArray]:
        return np.split(A, np.cumsum([bank.shape[0] for bank in self.banks])[:-1])

    def _pairs(self, A: FloatArray) -> list[tuple[KernelBank, FloatArray]]:
        return list(zip(self.banks, self._split(A), strict=True))

    def apply(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        return np.vstack([bank.apply(theta, a) for bank, a in self._pairs(A)])

    def multiply(self, A: FloatArray) -> FloatArray:
        return np.concatenate([bank.multiply(a) for bank, a in self._pairs(A)])

    def quad(self, A: FloatArray) -> FloatArray:
        return np.sum([bank.quad(a) for bank, a in self._pairs(A)], axis=0)


@dataclass(frozen=True)
class _Losses:
    """Losses of one task each, one below the other."""

    losses: tuple[Any, ...]

    hyperplane = True
    concavity = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        return sum(loss.shape[0] for loss in self.losses), 1

    def _pairs(self, A: FloatArray) -> list[tuple[Any, FloatArray]]:
        ends = np.cumsum([loss.shape[0] for loss in self.losses])
        return list(zip(self.losses, np.split(A, ends[:-1]), strict=True))

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        return sum(loss.primal(f, bias) for loss, f in self._pairs(F))

    def dual(self, A: FloatArray) -> float:
        return sum(loss.dual(a) for loss, a in self._pairs(A))

    def repair(self, A: FloatArray) -> FloatArray:
        return np.vstack([loss.repair(a) for loss, a in self._pairs(A)])
