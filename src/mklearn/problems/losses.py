"""Losses, side by side: primal value, dual value, best bias, feasible set.

A loss knows its targets and costs. With scores ``F`` (n, T) and signed dual variables
``A`` (n, T), where column t is ``y * alpha`` of task t, every loss contributes

    primal(F) = sum_i C_i V(F_i, y_i)        dual(A) = -sum_i C_i V*(-A_i / C_i, y_i)

to the pair (P), (D) of LPMKL; all tasks share the kernel weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Box(NamedTuple):
    """``min ½ c'Kc + linear'c`` over ``lower <= c <= upper``, ``sum(c) = total``."""

    linear: FloatArray
    lower: FloatArray
    upper: FloatArray
    total: float


class Loss(Protocol):
    """What problems and solvers ask of a loss."""

    shape: tuple[int, int]  # samples, tasks

    def primal(self, F: FloatArray) -> float:
        """Return the summed loss at scores ``F`` (n, T), bias included."""

    def dual(self, A: FloatArray) -> float:
        """Return the concave dual term at feasible ``A`` (n, T)."""

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias (T,) that minimises ``primal(F + bias)``."""

    def repair(self, A: FloatArray) -> FloatArray:
        """Return a feasible point near ``A`` (``A`` itself up to rounding)."""

    def take(self, rows: NDArray[np.intp], factor: float) -> Loss:
        """Return the loss on some samples, their costs multiplied by ``factor``."""


class BoxLoss(Loss, Protocol):
    """A loss whose dual for fixed weights is a box-and-hyperplane QP."""

    def box(self, task: int) -> Box:
        """Return the QP of one task."""


@dataclass(frozen=True)
class Hinge:
    """``C_i max(0, 1 - y_i f_i)``; dual: ``sum_i alpha_i``, ``0 <= alpha_i <= C_i``.

    Parameters
    ----------
    Y : array of shape (n, T) of -1 and 1
    C : array of shape (n, T)
        Cost of each sample in each task.
    """

    Y: FloatArray
    C: FloatArray

    @property
    def shape(self) -> tuple[int, int]:  # noqa: D102
        return self.Y.shape[0], self.Y.shape[1]

    def primal(self, F: FloatArray) -> float:  # noqa: D102
        return float(np.sum(self.C * np.maximum(0.0, 1.0 - self.Y * F)))

    def dual(self, A: FloatArray) -> float:  # noqa: D102
        return float(np.sum(self.Y * A))

    def bias(self, F: FloatArray) -> FloatArray:  # noqa: D102
        return np.array(
            [_hinge_bias(self.Y[:, t] - F[:, t], self.Y[:, t], self.C[:, t])
             for t in range(self.shape[1])]
        )  # fmt: skip

    def box(self, task: int) -> Box:  # noqa: D102
        y, C = self.Y[:, task], self.C[:, task]
        return Box(-y, np.minimum(0.0, y * C), np.maximum(0.0, y * C), 0.0)

    def take(self, rows: NDArray[np.intp], factor: float) -> Hinge:  # noqa: D102
        return Hinge(self.Y[rows], factor * self.C[rows])

    def repair(self, A: FloatArray) -> FloatArray:  # noqa: D102
        alpha = np.clip(self.Y * A, 0.0, self.C)
        positive = np.where(self.Y > 0, alpha, 0.0).sum(axis=0)
        negative = np.where(self.Y < 0, alpha, 0.0).sum(axis=0)
        # the heavier side shrinks until sum(y * alpha) = 0
        least = np.minimum(positive, negative)
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.where(positive > 0, least / positive, 0.0)
            down = np.where(negative > 0, least / negative, 0.0)
        return self.Y * alpha * np.where(self.Y > 0, up, down)


def _hinge_bias(knots: FloatArray, y: FloatArray, C: FloatArray) -> float:
    """Return the middle of the minimisers of a sum of hinges in the bias.

    The slope starts at minus the cost of the positive samples and rises by ``C_i`` at
    ``y_i - f_i``; it vanishes at a weighted quantile of these knots.
    """
    order = np.argsort(knots, kind="stable")
    slope = np.cumsum(C[order]) - C[y > 0].sum()
    flat = 1e-12 * C.sum()
    first = int(np.searchsorted(slope, -flat))
    last = int(np.searchsorted(slope, flat, side="right"))
    k = knots[order]
    return float((k[min(first, len(k) - 1)] + k[min(last, len(k) - 1)]) / 2)
