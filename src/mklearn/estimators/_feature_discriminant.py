"""Discriminant analysis from statistics of features and of class indicators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from mklearn.data.blocks import Block
from mklearn.estimators._features import weights_of
from mklearn.kernels.feature_map import FeatureMap
from mklearn.kernels.normalise import CENTRED_TRACE, Scaling
from mklearn.problems import MKLProblem
from mklearn.problems.discriminant import (
    FLOOR,
    Projection,
    joint_reg,
    press,
    projection,
    rkda,
)
from mklearn.problems.losses import System
from mklearn.problems.reduction import Reduced, by_kernel
from mklearn.problems.statistics import Statistics
from mklearn.problems.weights import WeightSet
from mklearn.solvers import Solution
from mklearn.solvers.inner import LinearSolver

FloatArray = NDArray[np.float64]

_LEFT_OUT = 20_000  # rows, at least, that are left out one by one if there are as many


@dataclass(frozen=True)
class FeatureFit:
    """A solved problem, the least-squares model, and scores of left-out rows.

    ``w`` (D, T) are weights of normalised features, ``A`` and ``F`` (r, T) coefficients
    and scores of the pseudo-samples.
    """

    problem: MKLProblem
    solution: Solution
    theta: FloatArray
    reg: float
    A: FloatArray
    F: FloatArray
    w: FloatArray
    out: FloatArray
    labels: NDArray[Any]
    weight: FloatArray
    press: float
    gcv: float


class FeatureSpace:
    """All that statistics tell about classes: targets, scatter, class means.

    Parameters
    ----------
    features : FeatureMap
    statistics : Statistics
        With indicators of the k classes or labels as targets.
    exclusive : bool
        Whether a sample has one class.
    rows : Blocks or None
        Features with indicators, to leave rows out; without them nothing is known of
        left-out rows, and ``out`` is empty.
    memory : int
        Bytes that the Grams of pseudo-samples may take.
    """

    def __init__(
        self,
        features: FeatureMap,
        statistics: Statistics,
        exclusive: bool,
        rows: Any,
        memory: int,
    ) -> None:
        self.features, self.statistics, self.rows = features, statistics, rows
        self.total = statistics.total
        self.scaling = Scaling.fit(
            CENTRED_TRACE,
            features,
            self.total,
            statistics.mean,
            np.diagonal(statistics.ZZ),
        )
        share = statistics.target
        self.counts = self.total * share
        if exclusive and len(share) == 2:  # DKL (3)
            self.B = np.array([[-1.0 / self.counts[0]], [1.0 / self.counts[1]]])
        else:  # DKL (24)
            self.B = np.diag(1.0 / np.sqrt(share))
        self.reduced = Reduced.of(
            statistics.with_targets(self.B),
            self.scaling,
            features.slices,
            features.names,
            memory,
        )
        root = self.scaling.root
        self.scatter = root[:, None] * statistics.ZZ * root
        # sums of the centred features over each class, and their means
        self.sums = root[:, None] * statistics.ZH
        self.means = self.sums / self.counts

    def fit(
        self,
        reg: Any,
        weights: WeightSet,
        run: Callable[..., Solution],
        start: Any = None,
    ) -> FeatureFit:
        """Solve for one reg, then the least-squares model on the combined kernel."""
        reduced = self.reduced
        bank, T = reduced.bank, reduced.targets
        if isinstance(reg, str):
            each = np.full(len(T), 1.0 / self.total)
            problem = rkda(bank.with_diagonal(each), T, FLOOR / self.total, weights)
        else:
            problem = rkda(bank, T, float(reg), weights)
        solution = run(problem, start)
        theta = solution.theta[: bank.shape[2]]
        if isinstance(reg, str):
            reg = joint_reg(solution.theta, self.total)
        ridge = np.full(len(T), float(reg))
        system = System(ridge, T, np.zeros((len(T), 0)), np.zeros((0, T.shape[1])))
        linear = LinearSolver(bank, system, theta)
        A, F = linear.best(theta)
        freedom = 1.0 + float(np.sum(1.0 - reg * linear.inverse_diagonal()))
        error = reg**2 * float(np.sum(A**2)) / self.total
        w = weights_of(theta, reduced.dual(A), self.features.slices)
        H, out, labels, weight = self._left_out(theta, w, float(reg))
        return FeatureFit(
            problem=problem,
            solution=solution,
            theta=theta,
            reg=float(reg),
            A=A,
            F=F,
            w=w,
            out=out,
            labels=labels,
            weight=weight,
            press=press(H, out, weight) if len(H) else np.nan,
            gcv=error / max(1.0 - freedom / self.total, 1e-150) ** 2,
        )

    def _left_out(
        self, theta: FloatArray, w: FloatArray, reg: float
    ) -> tuple[FloatArray, FloatArray, NDArray[Any], FloatArray]:
        """Return targets, left-out scores, indicators and weights of some rows."""
        if self.rows is None:
            none = np.zeros((0, w.shape[1]))
            return none, none, np.zeros((0, len(self.counts))), np.zeros(0)
        root = np.sqrt(by_kernel(theta, self.features.slices))
        used = np.flatnonzero(root)
        matrix = root[used, None] * self.scatter[np.ix_(used, used)] * root[used]
        matrix[np.diag_indices_from(matrix)] += reg
        parts = self.rows.map(
            partial(
                left_out_rows,
                scaling=self.scaling,
                w=w,
                root=root,
                factor=cholesky(matrix, lower=True, check_finite=False),
                B=self.B,
                target=self.statistics.target,
                total=self.total,
                stride=max(1, self.statistics.n // _LEFT_OUT),
            )
        )
        H, out, labels, weight = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        return H, out, labels, weight

    def projection(self, fit: FeatureFit, rank: int) -> Projection:
        """Return the discriminant directions, from scores on the targets."""
        ones = np.ones(len(fit.F))
        return projection(self.reduced.targets, fit.F, ones, rank)

    def within(self, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the class means (k, q) and the scatter (q, q) around them."""
        means = self.means.T @ coef
        scatter = coef.T @ self.scatter @ coef
        return means, scatter - means.T @ (self.counts[:, None] * means)


def left_out_rows(
    block: Block,
    scaling: Scaling,
    w: FloatArray,
    root: FloatArray,
    factor: FloatArray,
    B: FloatArray,
    target: FloatArray,
    total: float,
    stride: int,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return targets, left-out scores, indicators and weights of some rows of a block.

    A residual without the row itself is the residual divided by one minus the row's
    leverage, ``w_i (1/n + z_i'(S + reg/theta)^-1 z_i)``.
    """
    Z, Y, weight = block.X[::stride], block.y[::stride], block.weight[::stride]
    Z = (Z - scaling.shift) * scaling.root
    H, F = (Y - target) @ B, Z @ w
    used = root > 0
    half = solve_triangular(factor, (Z[:, used] * root[used]).T, lower=True)
    leverage = weight * (1.0 / total + np.einsum("ij,ij->j", half, half))
    out = H - (H - F) / np.maximum(1.0 - leverage, 1e-12)[:, None]
    return H, out, Y, weight
