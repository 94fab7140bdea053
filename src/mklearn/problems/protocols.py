"""Protocols of losses: what problems and solvers require of a loss."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.base import Asked
from mklearn.problems.design import Design

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


class Box(NamedTuple):
    """``min ½ c'(K + diag(ridge))c + linear'c`` over a box.

    ``lower <= c <= upper`` and, if ``hyperplane``, ``sum(c)`` as it is at the start.
    There are n variables, or 2 n, where variables i and n + i belong to sample i.
    """

    linear: FloatArray
    lower: FloatArray
    upper: FloatArray
    ridge: FloatArray
    hyperplane: bool


class System(NamedTuple):
    """The linear system that the best A for fixed weights solves.

    ``(K + diag(ridge)) A + E b = right`` and ``E'A = sums``, where b are biases.
    """

    ridge: FloatArray  # (n,)
    right: FloatArray  # (n, T)
    E: FloatArray  # (n, c), c may be zero
    sums: FloatArray  # (c, T)


class Loss(Protocol, metaclass=Asked):
    """What problems and solvers require of every loss."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and tasks."""

    @property
    def hyperplane(self) -> bool:
        """Whether the columns of A have a given sum."""

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of ``dual``, 0 if there is none."""

    @property
    def design(self) -> Design | None:
        """Ones and covariates whose coefficients are free, None without covariates."""

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss at scores ``F`` (n, T) and ``bias`` (T,)."""

    def dual(self, A: FloatArray) -> float:
        """Return the concave dual term at feasible ``A`` (n, T)."""

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias (T,) that minimises ``primal(F, bias)``."""

    def repair(self, A: FloatArray) -> FloatArray:
        """Return a feasible point near ``A`` (``A`` itself up to rounding)."""

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return an upper bound on ``primal``, for scores off by up to ``error``."""

    def below(self, A: FloatArray) -> float:
        """Return a lower bound on ``dual`` at the exactly feasible point near A."""

    def strain(self, A: FloatArray) -> FloatArray:
        """Return bounds on how far ``A`` is from that point, entry by entry.

        A comes from :meth:`repair`, which rounds.
        """

    def take(self, rows: Rows, factor: float) -> Loss:
        """Return the loss on some samples, their costs multiplied by ``factor``."""


@runtime_checkable
class SeparableLoss(Loss, Protocol):
    """A loss whose dual term is a sum over samples: its curvature is a diagonal."""

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return minus the second derivative of ``dual``, inf at a bound on A."""


@runtime_checkable
class BoxLoss(SeparableLoss, Protocol):
    """A loss whose dual for fixed weights is a box QP: SMO solves it."""

    def box(self, task: int) -> Box:
        """Return the QP of one task."""


@runtime_checkable
class QuadraticLoss(Loss, Protocol):
    """A loss whose dual term is quadratic: for fixed weights, one linear system."""

    def system(self) -> System | None:
        """Return the system, None where the tasks have different ones."""


class DifferentiableLoss(Loss, Protocol):
    """A loss that is differentiable in the scores."""

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``-d primal / dF`` at scores with bias: the dual point they imply."""


@runtime_checkable
class SmoothLoss(DifferentiableLoss, SeparableLoss, Protocol):
    """A loss that is differentiable in the scores: Newton solves it."""

    def bend(self, F: FloatArray) -> FloatArray:
        """Return ``d^2 primal / dF^2`` at scores with bias."""


@runtime_checkable
class CoupledLoss(DifferentiableLoss, Protocol):
    """A smooth loss that is not a sum over samples and tasks: Newton solves it, too.

    It has one task and couples samples, or it couples the tasks of each sample.
    """

    def bent(self, F: FloatArray, V: FloatArray) -> FloatArray:
        """Return ``d^2 primal / dF^2`` at scores F times V, both with biases.

        For one task, F has shape (n, 1) and V (n, k); for several both have (n, T).
        """


class Formula(Protocol):
    """A loss without samples, from which a training poses its problem."""

    @property
    def kinks(self) -> bool:
        """Whether there are kinks, which passes over the samples round off."""

    @property
    def quadratic(self) -> bool:
        """Whether sums over the samples are enough to solve the problem."""

    def of(self, Y: FloatArray, cost: FloatArray, C: float) -> Loss:
        """Return the loss of samples with targets Y and costs (n,) times C."""
