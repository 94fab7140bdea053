"""Losses: each formula once, for one sample at unit cost; the rest follows from it.

A *pointwise* loss is a value without data: ``V(f, y)`` and its dual term

    D(a, y) = -V*(-a, y) = min over f of V(f, y) + a f,

concave in a and zero at zero. Passes over samples in feature space take it as it is.
``pointwise.on(Y, C)`` is the loss of samples with targets and costs. With scores ``F``
(n, T) and signed dual variables ``A`` (n, T), where column t is ``y * alpha`` of task
t, it contributes

    primal(F, b) = sum_i C_i V(F_i + b, y_i)
    dual(A) = sum_i C_i D(A_i / C_i, y_i)

to the pair (P), (D) of LPMKL; all tasks share the kernel weights. A free bias makes the
columns of A sum to zero.

| loss | V(f, y) | dual term | feasible set |
|---|---|---|---|
| Hinge | max(0, 1 - y f) | sum alpha | 0 <= alpha <= C |
| SquaredHinge | ½ max(0, 1 - y f)^2 | sum alpha - alpha^2 / (2 C) | alpha >= 0 |
| Squared | ½ (y - f)^2 | y'A - A^2 / (2 C) | all |
| EpsilonInsensitive | max(0, |y - f| - eps) | y'A - eps |A| | |A| <= C |
| Logistic | log(1 + exp(-y f)) | entropy of alpha / C | 0 <= alpha <= C |
| OneClass | max(0, rho - f), minus rho | 0 | 0 <= A <= C, sum 1 |
| CrammerSinger | max_c (f_c + 1 - [c = y]) - f_y | A_y | A <= C [c = y], rows sum 0 |
| Multinomial | log(sum_c exp(f_c)) - f_y | C entropy of p | A = C ([c = y] - p) |

The last three are no sums over samples and tasks, and stand for themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlog1py, xlogy

from mklearn.problems.base import (
    FEW,
    UNIT,
    Asked,
    column_sums,
    entries_sum,
    pairwise,
)
from mklearn.problems.design import Design, Exchange, Kinks, Peaks

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
End = FloatArray | float


# --- what solvers ask for -------------------------------------------------------------


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
    """Linear conditions that the best A for fixed weights satisfies.

    ``(K + diag(ridge)) A + E b = right`` and ``E'A = sums``, where b are biases.
    """

    ridge: FloatArray  # (n,)
    right: FloatArray  # (n, T)
    E: FloatArray  # (n, c), c may be zero
    sums: FloatArray  # (c, T)


class Loss(Protocol, metaclass=Asked):
    """What problems and solvers ask of a loss."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and tasks."""

    @property
    def hyperplane(self) -> bool:
        """Whether the columns of A have a given sum."""

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of ``dual``, 0 if there is none."""

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss at scores ``F`` (n, T) and ``bias`` (T,)."""

    def dual(self, A: FloatArray) -> float:
        """Return the concave dual term at feasible ``A`` (n, T)."""

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias (T,) that minimises ``primal(F, bias)``."""

    def repair(self, A: FloatArray) -> FloatArray:
        """Return a feasible point near ``A`` (``A`` itself up to rounding)."""

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return what ``primal`` is at most, for scores that err by up to ``error``."""

    def below(self, A: FloatArray) -> float:
        """Return what ``dual`` is at least, where A is feasible without rounding."""

    def strain(self, A: FloatArray) -> FloatArray:
        """Return how far from ``A`` that point is at most, entry by entry.

        A comes from :meth:`repair`, which rounds.
        """

    def take(self, rows: Rows, factor: float) -> Loss:
        """Return the loss on some samples, their costs multiplied by ``factor``."""


@runtime_checkable
class SeparableLoss(Loss, Protocol):
    """A loss whose dual term is a sum over samples: its curvature is a diagonal."""

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return minus the second derivative of ``dual``, inf where A cannot move."""


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
    """A loss that has a slope in the scores."""

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``-d primal / dF`` at scores with bias: the dual point they imply."""


@runtime_checkable
class SmoothLoss(DifferentiableLoss, SeparableLoss, Protocol):
    """A loss that is differentiable in the scores: Newton solves it."""

    def bend(self, F: FloatArray) -> FloatArray:
        """Return ``d^2 primal / dF^2`` at scores with bias."""


@runtime_checkable
class CoupledLoss(DifferentiableLoss, Protocol):
    """A smooth loss that is no sum over samples and tasks: Newton solves it, too.

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
        """Whether there are kinks, which passes round off."""

    @property
    def quadratic(self) -> bool:
        """Whether statistics of the samples are enough."""

    def of(self, Y: FloatArray, cost: FloatArray, C: float) -> Loss:
        """Return the loss of samples with targets Y and costs (n,) times C."""


# --- formulas, for one sample at unit cost --------------------------------------------


@dataclass(frozen=True)
class Pointwise(ABC):
    """A loss ``V(f, y)`` at unit cost, for scores and targets of any shape.

    Subclasses are frozen dataclasses whose fields are the parameters of the formula.
    A loss that is differentiable gives the methods without a default below; one with
    kinks is a :class:`Piecewise`.
    """

    targets: ClassVar[Literal["labels", "numbers", "any"]] = "numbers"
    """What y is: labels -1 and 1, numbers, or either."""

    @property
    def kinks(self) -> bool:
        """Whether there are kinks, which passes round off."""
        return False

    @property
    def quadratic(self) -> bool:
        """Whether V is quadratic in f, so that statistics of the samples are enough."""
        return False

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of ``dual``: one over the largest ``V''``."""
        return 0.0

    @abstractmethod
    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return ``V(f, y)``, at least zero."""

    @abstractmethod
    def dual(self, a: FloatArray, y: FloatArray) -> FloatArray:
        """Return ``D(a, y) = -V*(-a, y)``, concave in a and zero at zero."""

    @abstractmethod
    def domain(self, y: FloatArray) -> tuple[End, End]:
        """Return between what a may be, an interval that holds zero."""

    @abstractmethod
    def slope(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return ``-V'(f, y)``, the dual variable that a score implies.

        Kinks are rounded off around a dual variable ``a0``, to ::

            V_mu(f) = max over a of D(a, y) - a f - ½ mu (a - a0)^2;

        a loss without kinks takes no notice of ``mu`` and ``a0``.
        """

    @abstractmethod
    def bend(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return ``V''(f, y)``, kinks rounded off as in :meth:`slope`."""

    @abstractmethod
    def curvature(self, a: FloatArray, y: FloatArray) -> FloatArray:
        """Return ``-D''(a, y)``, inf where a cannot move both ways."""

    def bias(self, f: FloatArray, y: FloatArray, C: FloatArray) -> float:
        """Return the b with the least ``sum C V(f + b, y)``, zero if it is infinite."""
        lower, upper = self.domain(y)
        rises, falls = (np.any((C > 0) & (end != 0)) for end in (upper, lower))
        if not (rises and falls):
            return 0.0  # one class only
        slopes = self._slopes(y)
        return _root(lambda b: -float(np.sum(C * slopes(f + b))), f)

    def effects(
        self, f: FloatArray, y: FloatArray, C: FloatArray, design: Design
    ) -> FloatArray:
        """Return coefficients of the design's basis with the least summed loss.

        Where none is least, as covariates tell the labels apart, steps end where they
        gain no more.
        """
        start = np.zeros(design.basis.shape[1])
        start[0] = self.bias(f, y, C) * len(f) ** 0.5
        return design.least(
            lambda g: float(np.sum(C * self.value(f + g, y))),
            lambda g: C * self.slope(f + g, y),
            lambda g: C * self.bend(f + g, y),
            start,
        )

    def biases(self, F: FloatArray, Y: FloatArray, C: FloatArray) -> FloatArray:
        """Return the bias of each column."""
        columns = zip(F.T, Y.T, C.T, strict=True)
        return np.array([self.bias(f, y, cost) for f, y, cost in columns])

    def _slopes(self, y: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the slope as a function of the score, for many calls."""
        return lambda f: self.slope(f, y)

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> Loss:
        """Return the loss of samples with targets and costs of shape (n, T)."""
        return Smooth(Y, C, with_bias, formula=self)

    def of(self, Y: FloatArray, cost: FloatArray, C: float) -> Loss:
        """Return the loss of samples with targets (n, T) and costs (n,) times C."""
        return self.on(Y, np.repeat((C * cost)[:, None], Y.shape[1], axis=1))

    # before the first pass only the spread of the targets is known

    def band(self, spread: float) -> float:
        """Return the width in which kinks are first rounded off."""
        return 1.0 if self.targets == "labels" else max(0.5 * spread, 1e-12)

    def outset(self, spread: float) -> tuple[float, float]:
        """Return s and h of ``½ h f^2 - s y f``, which stands for the loss near zero.

        Kinks are rounded off so far that all samples lie in the band.
        """
        if self.targets == "labels":
            zero, one = np.zeros(1), np.ones(1)
            slope = float(self.slope(zero, one, 2.0, zero)[0])
            bend = float(self.bend(zero, one, 2.0, zero)[0])
            return slope, max(bend, 0.5 * slope)
        if self.kinks:
            bend = 1.0 / max(2.0 * spread, 1e-12)
        else:
            bend = float(self.bend(np.zeros(1), np.zeros(1))[0])
        return bend, bend


class Piece(NamedTuple):
    """Where ``lower <= a <= upper``, the dual term is ``linear a - ½ ridge a^2``."""

    linear: FloatArray
    lower: End
    upper: End


class Piecewise(Pointwise):
    """A loss whose dual term is quadratic in pieces, all with one ``ridge``.

    There is one piece, or one for ``a >= 0`` and one for ``a <= 0``, in this order. For
    ``ridge = 0`` the loss is made of straight lines, with kinks where f is the
    ``linear`` of a piece. Dual term, derivatives and box follow from the pieces.
    """

    ridge: ClassVar[float] = 0.0

    @abstractmethod
    def pieces(self, y: FloatArray) -> tuple[Piece, ...]:
        """Return one piece or two; bounds may be numbers, the same for all y."""

    @property
    def kinks(self) -> bool:
        """Whether there are kinks."""
        return self.ridge == 0

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of the dual term."""
        return self.ridge

    def dual(self, a: FloatArray, y: FloatArray) -> FloatArray:
        """Return the sum of the pieces."""
        pieces = self.pieces(y)
        parts = (a,) if len(pieces) == 1 else (np.maximum(a, 0.0), np.minimum(a, 0.0))
        terms = [piece.linear * part for piece, part in zip(pieces, parts, strict=True)]
        value = sum(terms[1:], start=terms[0])
        return value - 0.5 * self.ridge * a**2 if self.ridge else value

    def domain(self, y: FloatArray) -> tuple[End, End]:
        """Return the ends of the pieces."""
        pieces = self.pieces(y)
        return pieces[-1].lower, pieces[0].upper

    def slope(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return the highest point of each piece; only one of them is not zero."""
        return self._highest(self.pieces(y), f, mu, a0)

    def _slopes(self, y: FloatArray) -> Callable[[FloatArray], FloatArray]:
        pieces = self.pieces(y)
        return lambda f: self._highest(pieces, f)

    def _highest(
        self,
        pieces: tuple[Piece, ...],
        f: FloatArray,
        mu: float = 0.0,
        a0: FloatArray | float = 0,
    ) -> FloatArray:
        found = [
            np.minimum(np.maximum(self._peak(linear - f, mu, a0), lower), upper)
            for linear, lower, upper in pieces
        ]
        return sum(found[1:], start=found[0])

    def bend(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return one over the ridge, or over ``mu``, between the ends of a piece."""
        inside = np.zeros(np.shape(f), dtype=bool)
        for linear, lower, upper in self.pieces(y):
            a = self._peak(linear - f, mu, a0)
            inside |= (a > lower) & (a < upper)
        return np.where(inside, 1.0 / (self.ridge or mu), 0.0)

    def _peak(self, rise: FloatArray, mu: float, a0: FloatArray | float) -> FloatArray:
        """Return where ``rise a - ½ ridge a^2``, or what rounding makes of it, ends."""
        return rise / self.ridge if self.ridge else a0 + rise / mu

    def curvature(self, a: FloatArray, y: FloatArray) -> FloatArray:
        """Return the ridge, inf at the ends of the pieces."""
        inside = np.zeros(np.shape(a), dtype=bool)
        for _, lower, upper in self.pieces(y):
            inside |= (a > lower) & (a < upper)
        return np.where(inside, self.ridge, np.inf)

    def bias(self, f: FloatArray, y: FloatArray, C: FloatArray) -> float:
        """Return the middle of the minimisers."""
        if not self.kinks:
            return super().bias(f, y, C)
        return float(self.biases(f[:, None], y[:, None], C[:, None])[0])

    def biases(self, F: FloatArray, Y: FloatArray, C: FloatArray) -> FloatArray:
        """Return the middle of the minimisers for each column."""
        if not self.kinks:
            return super().biases(F, Y, C)
        pieces = self.pieces(Y)
        knots = [piece.linear - F for piece in pieces]
        rises = [C * (piece.upper - piece.lower) for piece in pieces]
        start = -np.sum(C * pieces[0].upper, axis=0)
        if len(pieces) == 1:
            return _kinks(knots[0], rises[0], start)
        return _kinks(np.concatenate(knots), np.concatenate(rises), start)

    def effects(
        self, f: FloatArray, y: FloatArray, C: FloatArray, design: Design
    ) -> FloatArray:
        """Return coefficients of the design's basis with the least summed loss.

        With kinks it is a linear program, whose corners are followed from where the
        loss is least with its kinks rounded off.
        """
        if not self.kinks:
            return super().effects(f, y, C, design)
        start = np.zeros(design.basis.shape[1])
        start[0] = self.bias(f, y, C) * len(f) ** 0.5
        mu = 0.05 * max(float(np.ptp(f)), float(np.ptp(np.real(y))), 1e-12)
        rounded = _Rounded(self, f, y, C, mu, np.zeros_like(f))
        near = design.least(rounded.value, rounded.slope, rounded.bend, start, 1e-4, 12)
        pieces = self.pieces(y)
        kinks = Kinks(
            np.tile(design.basis, (len(pieces), 1)),
            np.concatenate([piece.linear - f for piece in pieces]),
            np.concatenate([-_times(C, piece.upper) for piece in pieces]),
            np.concatenate([-_times(C, piece.lower) for piece in pieces]),
        )
        tried = (start, near, kinks.least(near))
        lost = [np.sum(C * self.value(f + design.basis @ g, y)) for g in tried]
        return tried[int(np.argmin(lost))]

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> Loss:
        """Return the loss of samples with targets and costs of shape (n, T)."""
        return Boxed(Y, C, with_bias, formula=self)


class _Rounded(NamedTuple):
    """A loss whose kinks are rounded off around dual variables, added to scores f."""

    loss: Piecewise
    f: FloatArray
    y: FloatArray
    C: FloatArray
    mu: float
    a0: FloatArray

    def value(self, g: FloatArray) -> float:
        a = self.loss.slope(self.f + g, self.y, self.mu, self.a0)
        V = self.loss.dual(a, self.y) - a * (self.f + g)
        return float(np.sum(self.C * (V - 0.5 * self.mu * (a - self.a0) ** 2)))

    def slope(self, g: FloatArray) -> FloatArray:
        return self.C * self.loss.slope(self.f + g, self.y, self.mu, self.a0)

    def bend(self, g: FloatArray) -> FloatArray:
        return self.C * self.loss.bend(self.f + g, self.y, self.mu, self.a0)


@dataclass(frozen=True)
class PointwiseHinge(Piecewise):
    """``max(0, 1 - y f)``."""

    targets = "labels"

    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss."""
        return np.maximum(0.0, 1.0 - y * f)

    def pieces(self, y: FloatArray) -> tuple[Piece, ...]:
        """Return ``y a`` for ``y a`` in [0, 1]."""
        return (Piece(y, np.minimum(0.0, y), np.maximum(0.0, y)),)

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> Hinge:
        """Return the loss of samples."""
        return Hinge(Y, C, with_bias)


@dataclass(frozen=True)
class PointwiseSquaredHinge(Piecewise):
    """``½ max(0, 1 - y f)^2``."""

    targets = "labels"
    ridge = 1.0

    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss."""
        return 0.5 * np.maximum(0.0, 1.0 - y * f) ** 2

    def pieces(self, y: FloatArray) -> tuple[Piece, ...]:
        """Return ``y a - ½ a^2`` for ``y a >= 0``."""
        lower, upper = np.where(y < 0, -np.inf, 0.0), np.where(y > 0, np.inf, 0.0)
        return (Piece(y, lower, upper),)

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> SquaredHinge:
        """Return the loss of samples."""
        return SquaredHinge(Y, C, with_bias)


@dataclass(frozen=True)
class PointwiseSquared(Piecewise):
    """``½ (y - f)^2``."""

    targets = "any"
    ridge = 1.0
    quadratic = True

    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss."""
        return 0.5 * (y - f) ** 2

    def pieces(self, y: FloatArray) -> tuple[Piece, ...]:
        """Return ``y a - ½ a^2``."""
        return (Piece(y, -np.inf, np.inf),)

    def bias(self, f: FloatArray, y: FloatArray, C: FloatArray) -> float:
        """Return the weighted mean residual."""
        return float(C @ (y - f) / C.sum())

    def effects(
        self, f: FloatArray, y: FloatArray, C: FloatArray, design: Design
    ) -> FloatArray:
        """Return the coefficients of least squares of the residual."""
        root = np.sqrt(C)
        E = root[:, None] * design.basis
        return np.asarray(np.linalg.lstsq(E, root * (y - f), rcond=None)[0])

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> Squared:
        """Return the loss of samples."""
        return Squared(Y, C, with_bias)


@dataclass(frozen=True)
class PointwiseEpsilon(Piecewise):
    """``max(0, |y - f| - epsilon)``."""

    epsilon: float = 0.1

    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss."""
        return np.maximum(0.0, np.abs(y - f) - self.epsilon)

    def pieces(self, y: FloatArray) -> tuple[Piece, ...]:
        """Return ``y a - epsilon |a|`` for a in [-1, 1]."""
        return Piece(y - self.epsilon, 0.0, 1.0), Piece(y + self.epsilon, -1.0, 0.0)

    def on(
        self, Y: FloatArray, C: FloatArray, with_bias: bool = True
    ) -> EpsilonInsensitive:
        """Return the loss of samples."""
        return EpsilonInsensitive(Y, C, with_bias, self.epsilon)


@dataclass(frozen=True)
class PointwiseLogistic(Pointwise):
    """``log(1 + exp(-y f))``."""

    targets = "labels"
    concavity = 4.0

    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss."""
        return np.logaddexp(0.0, -y * f)

    def dual(self, a: FloatArray, y: FloatArray) -> FloatArray:
        """Return the entropy of ``y a``."""
        s = np.clip(y * a, 0.0, 1.0)
        return -(xlogy(s, s) + xlog1py(1.0 - s, -s))

    def domain(self, y: FloatArray) -> tuple[End, End]:
        """Return the interval in which ``y a`` is in [0, 1]."""
        return np.minimum(0.0, y), np.maximum(0.0, y)

    def slope(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return ``y / (1 + exp(y f))``."""
        return y * expit(-y * f)

    def bend(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return ``s (1 - s)``, ``s = 1 / (1 + exp(y f))``."""
        s = expit(-y * f)
        return s * (1.0 - s)

    def curvature(self, a: FloatArray, y: FloatArray) -> FloatArray:
        """Return ``1 / (s (1 - s))``, ``s = y a``."""
        s = y * a
        inside = (s > 0) & (s < 1)
        return np.where(inside, 1.0 / np.where(inside, s * (1.0 - s), 1.0), np.inf)

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> Logistic:
        """Return the loss of samples."""
        return Logistic(Y, C, with_bias)


@dataclass(frozen=True)
class Softmax:
    """``log(sum_c exp(f_c)) - f_y``: the classes of a sample together.

    Of two classes, whose targets are one column, it is the logistic loss.
    """

    targets: ClassVar[Literal["labels", "numbers", "any"]] = "labels"
    kinks: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False

    def of(self, Y: FloatArray, cost: FloatArray, C: float) -> Loss:
        """Return the loss of samples with targets -1 and 1 (n, T) and costs (n,)."""
        if Y.shape[1] == 1:
            return PointwiseLogistic().of(Y, cost, C)
        return Multinomial(Y.argmax(axis=1), C * cost, Y.shape[1])

    def band(self, spread: float) -> float:
        """Return any width: there are no kinks to be rounded off."""
        return 1.0

    def outset(self, spread: float) -> tuple[float, float]:
        """Return s and h of ``½ h f^2 - s y f``, at least the loss near zero."""
        return 0.5, 0.5


LOSSES: dict[str, type[Pointwise] | type[Softmax]] = {
    "hinge": PointwiseHinge,
    "squared_hinge": PointwiseSquaredHinge,
    "squared": PointwiseSquared,
    "logistic": PointwiseLogistic,
    "multinomial": Softmax,
    "epsilon_insensitive": PointwiseEpsilon,
}


def loss_names(targets: Literal["labels", "numbers"]) -> list[str]:
    """Return the names of the losses for labels, or for numbers."""
    return [name for name, loss in LOSSES.items() if loss.targets in (targets, "any")]


def by_name(name: str, **options: Any) -> Any:
    """Return the loss of a name, as a formula without samples.

    Parameters
    ----------
    name : str
        One of ``LOSSES``.
    **options
        Parameters such as ``epsilon``; those that the loss does not have are left out.
    """
    loss = LOSSES[name]
    known = {one.name for one in fields(loss)}
    return loss(**{key: value for key, value in options.items() if key in known})


# --- losses of samples ----------------------------------------------------------------


@dataclass(frozen=True)
class Summed(ABC):
    """``sum_i C_i V(f_i, y_i)``: a pointwise loss on samples, in one task or several.

    Parameters
    ----------
    Y, C : arrays of shape (n, T)
        Targets and costs of each sample in each task.
    with_bias : bool
    design : Design, optional
        Ones and covariates, whose coefficients are free as the bias is.
    """

    Y: FloatArray
    C: FloatArray
    with_bias: bool = True
    design: Design | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.C).all() and (self.C >= 0).all()):
            raise ValueError(
                "The costs C of a loss must be finite numbers, none below zero, got "
                f"values from {np.min(self.C)} to {np.max(self.C)}; for a hard margin "
                "take large ones."
            )

    @property
    @abstractmethod
    def point(self) -> Pointwise:
        """The loss of one sample at unit cost."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and tasks."""
        return self.Y.shape[0], self.Y.shape[1]

    @property
    def hyperplane(self) -> bool:
        """Whether the columns of A sum to zero."""
        return self.with_bias

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of the dual term, 0 if there is none."""
        return self.point.concavity / float(self.C.max())

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss; with covariates ``bias`` has shape (1 + k, T)."""
        f = decisions(self, F, bias)
        return float(np.sum(self.C * self.point.value(f, self.Y)))

    def dual(self, A: FloatArray) -> float:
        """Return the summed dual term."""
        return float(np.sum(self._terms(A)))

    def _terms(self, A: FloatArray) -> FloatArray:
        """Return the dual term of each sample in each task."""
        return np.asarray(self.C * self.point.dual(_over(A, self.C), self.Y))

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return what ``primal`` is at most, for scores that err by up to ``error``.

        A convex loss is largest at an end of an interval.
        """
        f = decisions(self, F, bias)
        size = decisions(self, np.abs(F), np.abs(bias), np.abs)
        terms = 16 if self.design is None else 16 + len(bias)
        reach = error + terms * UNIT * (size + np.abs(self.Y))
        ends = (self.point.value(end, self.Y) for end in (f - reach, f + reach))
        total = entries_sum(self.C * np.maximum(*ends))
        return total * (1.0 + pairwise(f.size))

    def below(self, A: FloatArray) -> float:
        """Return what ``dual`` is at least, where A is feasible without rounding.

        A concave term is least at an end of an interval. One that is zero at zero
        shrinks by no more than its argument, which makes the columns sum to zero.
        """
        lower, upper = self._interval
        ends = (np.clip(A * (1.0 + k * UNIT), lower, upper) for k in (-16, 16))
        terms = np.minimum(*(self._terms(end) for end in ends))
        lost = self._misses(A) @ column_sums(np.maximum(terms, 0.0))
        rounded = pairwise(terms.size) * entries_sum(np.abs(terms))
        return entries_sum(terms) - rounded - float(lost)

    def strain(self, A: FloatArray) -> FloatArray:
        """Return how far from ``A`` a point lies that is feasible without rounding."""
        return np.asarray(self._misses(A) * np.abs(A))

    def _misses(self, A: FloatArray) -> FloatArray:
        """Return by what part columns of A must shrink, where positive, to sum to 0."""
        if self.design is not None:
            return self.design.misses(A)
        if not self.with_bias:
            return np.zeros(A.shape[1])
        size = column_sums(np.abs(A))
        off = np.abs(column_sums(A)) + pairwise(len(A)) * size
        return np.divide(2 * off, size, out=np.zeros_like(size), where=size > 0)

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias of each task, (T,); with covariates effects, (1 + k, T)."""
        if self.design is not None:
            columns = zip(F.T, self.Y.T, self.C.T, strict=True)
            found = [self.point.effects(f, y, C, self.design) for f, y, C in columns]
            return self.design.effects(np.column_stack(found))
        if not self.with_bias:
            return np.zeros(self.shape[1])
        known = self._known.get("bias")
        if known is None or known[0].shape != F.shape or (known[0] != F).any():
            known = F.copy(), self.point.biases(F, self.Y, self.C)
            self._known["bias"] = known
        return np.array(known[1])

    @cached_property
    def _known(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """The last scores whose biases were asked for: they are asked for again."""
        return {}

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return minus the second derivative of the dual term, inf at the bounds."""
        unit = self.point.curvature(_over(A, self.C), self.Y)
        return _over(unit, self.C, np.inf)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the feasible interval and, with a bias, balance the columns."""
        if self.design is not None:
            return self.design.project(A, *self._interval)
        A = np.clip(A, *self._interval)
        return _balanced(A) if self.with_bias else A

    @cached_property
    def _interval(self) -> tuple[FloatArray, FloatArray]:
        """Between what A may be, shapes (n, T)."""
        lower, upper = self.point.domain(self.Y)
        return _times(self.C, lower), _times(self.C, upper)

    def take(self, rows: Rows, factor: float):  # type: ignore[no-untyped-def]
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        design = None if self.design is None else self.design.take(rows)
        return replace(self, Y=self.Y[rows], C=factor * self.C[rows], design=design)


class BoxSummed(Summed):
    """Sums of losses in pieces: the dual for fixed weights is a QP in a box."""

    @property
    @abstractmethod
    def point(self) -> Piecewise:
        """The loss of one sample at unit cost."""

    def _terms(self, A: FloatArray) -> FloatArray:
        """Return the dual term of each sample in each task."""
        if self.point.ridge:
            return super()._terms(A)
        # linear in pieces: costs cancel
        return self.point.dual(A, self.Y)

    def box(self, task: int) -> Box:
        """Return the QP of one task; with two pieces, positive parts come first."""
        y, C = self.Y[:, task], self.C[:, task]
        pieces = self.point.pieces(y)
        ridge = self.point.ridge * _over(np.ones_like(C), C)
        return Box(
            np.concatenate([-piece.linear for piece in pieces]),
            np.concatenate([_times(C, piece.lower) for piece in pieces]),
            np.concatenate([_times(C, piece.upper) for piece in pieces]),
            np.tile(ridge, len(pieces)),
            self.with_bias,
        )


class SmoothSummed(Summed):
    """Sums of losses that are differentiable in the scores."""

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``-d primal / dF``."""
        return self.C * self.point.slope(F, self.Y)

    def bend(self, F: FloatArray) -> FloatArray:
        """Return ``d^2 primal / dF^2``."""
        return self.C * self.point.bend(F, self.Y)


@dataclass(frozen=True)
class Boxed(BoxSummed):
    """Any loss in pieces, on samples: what :meth:`Piecewise.on` returns.

    Parameters
    ----------
    Y, C, with_bias
        As in :class:`Summed`.
    formula : Piecewise
    """

    formula: Piecewise = field(kw_only=True)

    @property
    def point(self) -> Piecewise:
        """The loss of one sample at unit cost."""
        return self.formula


@dataclass(frozen=True)
class Smooth(SmoothSummed):
    """Any differentiable loss, on samples: what :meth:`Pointwise.on` returns.

    Parameters
    ----------
    Y, C, with_bias
        As in :class:`Summed`.
    formula : Pointwise
        Without kinks.
    """

    formula: Pointwise = field(kw_only=True)

    @property
    def point(self) -> Pointwise:
        """The loss of one sample at unit cost."""
        return self.formula


class Hinge(BoxSummed):
    """``C_i max(0, 1 - y_i f_i)`` with targets -1 and 1.

    Without bias and with all targets 1 this is the one-class problem of LPMKL.

    Parameters
    ----------
    Y : array of shape (n, T) of -1 and 1
    C : array of shape (n, T)
        Cost of each sample in each task.
    with_bias : bool
    design : Design, optional
        Ones and covariates, whose coefficients are free as the bias is.
    """

    point = PointwiseHinge()


class SquaredHinge(BoxSummed):
    """``C_i ½ max(0, 1 - y_i f_i)^2``, the 2-norm soft margin.

    Its dual is that of the hinge loss with ``K + diag(1 / C)`` and no upper bound.

    Parameters
    ----------
    Y, C, with_bias
        As in :class:`Hinge`.
    design : Design, optional
        Ones and covariates, whose coefficients are free as the bias is.
    """

    point = PointwiseSquaredHinge()


class Squared(SmoothSummed):
    """``C_i ½ (y_i - f_i)^2`` for any targets: ridge regression, least-squares SVM.

    Parameters
    ----------
    Y : array of shape (n, T)
    C, with_bias
        As in :class:`Hinge`.
    design : Design, optional
        Ones and covariates, whose coefficients are free as the bias is.
    """

    point = PointwiseSquared()

    def system(self) -> System | None:
        """Return ``(K + 1 / C) A + b = y``, None if costs are zero or of a task."""
        C = self.C[:, 0]
        if not ((C > 0).all() and (self.C == C[:, None]).all()):
            return None
        E = np.ones((len(C), int(self.with_bias)))
        if self.design is not None:
            E = self.design.basis
        return System(1.0 / C, self.Y, E, np.zeros((E.shape[1], self.Y.shape[1])))

    def repair(self, A: FloatArray) -> FloatArray:
        """Shift to sum zero, by shares of the cost."""
        A = np.where(self.C > 0, A, 0.0)
        if self.design is not None:
            return self.design.metric(A, self.C)
        if not self.with_bias:
            return A
        return A - self.C * (A.sum(axis=0) / self.C.sum(axis=0))


@dataclass(frozen=True)
class EpsilonInsensitive(BoxSummed):
    """``C_i max(0, |y_i - f_i| - epsilon)``: support vector regression.

    Parameters
    ----------
    Y : array of shape (n, T)
    C, with_bias
        As in :class:`Hinge`.
    epsilon : float
        Errors up to this size cost nothing.
    design : Design, optional
        Ones and covariates, whose coefficients are free as the bias is.
    """

    epsilon: float = 0.1

    @property
    def point(self) -> Piecewise:
        """The loss of one sample at unit cost."""
        return PointwiseEpsilon(self.epsilon)


class Logistic(SmoothSummed):
    """``C_i log(1 + exp(-y_i f_i))`` with targets -1 and 1.

    Parameters
    ----------
    Y, C, with_bias
        As in :class:`Hinge`.
    design : Design, optional
        Ones and covariates, whose coefficients are free as the bias is.
    """

    point = PointwiseLogistic()


# --- losses that are no sums ----------------------------------------------------------


@dataclass(frozen=True)
class OneClass:
    """The ν one-class problem: ``-rho + sum_i C_i max(0, rho - f_i)``.

    The bias is ``-rho``, so that ``f + bias`` is negative for outliers.

    Parameters
    ----------
    C : array of shape (n, 1)
        ``1 / (nu n)`` for each sample; the costs must sum to one or more. Where they
        sum to a little less, for rounding, this is what rho counts and A sums to.
    """

    C: FloatArray

    def __post_init__(self) -> None:
        if self.C.sum() < 1 - 1e-9:
            raise ValueError(
                "The costs of a one-class problem must sum to one or more."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples, and one task."""
        return self.C.shape[0], 1

    hyperplane = True
    concavity = 0.0

    @cached_property
    def mass(self) -> float:
        """What A sums to: one, or the sum of the costs if that is less."""
        return min(1.0, entries_sum(self.C))

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss, minus rho."""
        short = np.maximum(0.0, -(F + bias))
        return float(np.sum(self.C * short) + self.mass * bias.sum())

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return what ``primal`` is at most, for scores that err by up to ``error``."""
        reach = error + 4 * UNIT * (np.abs(F) + np.abs(bias))
        short = entries_sum(self.C * np.maximum(0.0, reach - (F + bias)))
        rho = self.mass * float(bias.sum())
        rounded = pairwise(len(F)) * (short + abs(rho))
        return short + rho + rounded

    def below(self, A: FloatArray) -> float:
        """Return 0."""
        return 0.0

    def strain(self, A: FloatArray) -> FloatArray:
        """Return how far from ``A`` a point lies that is feasible without rounding.

        It has larger entries, by parts of what the costs leave, or smaller ones.
        """
        total, most = entries_sum(A), entries_sum(self.C)
        slip = 2 * pairwise(len(A)) * max(most, 1.0)
        off = abs(total - self.mass) + slip
        left = max(most - total - slip, 0.0)
        grown = np.maximum(self.C - A, 0.0) * (min(1.0, off / left) if left else 1.0)
        return np.asarray(np.maximum(grown, A * (off / total)))

    def dual(self, A: FloatArray) -> float:
        """Return 0."""
        return 0.0

    def bias(self, F: FloatArray) -> FloatArray:
        """Return ``-rho``."""
        return _kinks(-F, self.C, np.array([self.mass - self.C.sum()]))

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return 0 for free variables, inf at the bounds."""
        return np.where((A > 0) & (A < self.C), 0.0, np.inf)

    def box(self, task: int) -> Box:
        """Return the QP."""
        C = self.C[:, 0]
        zero = np.zeros_like(C)
        return Box(zero, zero, C, zero, True)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the box and give the entries the sum one."""
        A = np.clip(A, 0.0, self.C)
        total, left = entries_sum(A), entries_sum(self.C - A)
        short = self.mass - total
        if short <= 0.0:
            return A * (self.mass / total)
        # all that is left, where rounding asks for more
        return A + (self.C - A) * (short / left if short < left else 1.0)

    def take(self, rows: Rows, factor: float) -> OneClass:
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        C = factor * self.C[rows]
        return OneClass(C * max(1.0, 1.0 / C.sum()))


@dataclass(frozen=True)
class CrammerSinger:
    """``C_i (max_c (f_ic + 1 - [c = y_i]) - f_iy)``: all classes at once, no bias.

    Tasks are classes. The dual variables have ``A_ic <= C_i [c = y_i]`` and rows that
    sum to zero: what the class of a sample gains its rivals lose. With covariates there
    is a bias, too, and ``E'A = 0``.

    Parameters
    ----------
    labels : array of shape (n,)
        Numbers of the classes, from 0.
    C : array of shape (n,)
        Cost of each sample.
    n_classes : int
    design : Design, optional
        Ones and covariates, whose coefficients are free for each class.
    """

    labels: NDArray[np.intp]
    C: FloatArray
    n_classes: int
    design: Design | None = field(default=None, kw_only=True)

    hyperplane = False
    concavity = 0.0

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or np.shape(self.C) != labels.shape:
            raise ValueError(
                "CrammerSinger needs one label and one cost for each sample, got "
                f"shapes {labels.shape} and {np.shape(self.C)}."
            )
        if self.n_classes < 2 or labels.min() < 0 or labels.max() >= self.n_classes:
            raise ValueError(
                f"Labels must be numbers from 0 to {self.n_classes - 1}, of at least 2 "
                f"classes; got {labels.min()} to {labels.max()}."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and classes."""
        return len(self.labels), self.n_classes

    @property
    def own(self) -> NDArray[np.bool_]:
        """Which class is the sample's own, shape (n, k)."""
        return np.asarray(self.labels[:, None] == np.arange(self.n_classes))

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss.

        Without covariates there is no bias, and ``bias`` is zero; with them it has
        shape (1 + k, T).
        """
        return float(self.C @ self.slacks(decisions(self, F, bias)))

    def slacks(self, F: FloatArray) -> FloatArray:
        """Return the loss of each sample at unit cost, shape (n,)."""
        top = (F + 1.0 - self.own).max(axis=1)
        return np.asarray(top - F[np.arange(len(F)), self.labels])

    def dual(self, A: FloatArray) -> float:
        """Return ``sum_i A_iy``."""
        return float(A[np.arange(len(A)), self.labels].sum())

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return what ``primal`` is at most, for scores that err by up to ``error``."""
        f, terms = decisions(self, F, bias), 4
        size = np.abs(F)
        if self.design is not None:
            size, terms = decisions(self, size, np.abs(bias), np.abs), 4 + len(bias)
        size = error + terms * UNIT * (size + 1.0)
        reach = size.max(axis=1) + size[np.arange(len(F)), self.labels]
        total = entries_sum(self.C * (np.maximum(self.slacks(f), 0.0) + reach))
        return total * (1.0 + pairwise(len(F)))

    def below(self, A: FloatArray) -> float:
        """Return what ``dual`` is at least, where A is feasible without rounding."""
        own = A[np.arange(len(A)), self.labels]
        return entries_sum(own) * (1.0 - self._misses(A) - pairwise(len(A)))

    def strain(self, A: FloatArray) -> FloatArray:
        """Return how far from ``A`` a point lies that is feasible without rounding."""
        return np.asarray(self._misses(A) * np.abs(A))

    def _misses(self, A: FloatArray) -> float:
        """Return by what part a row may be off: a sum of rivals, and a quotient.

        With covariates, and by what part the masses of rivals must shrink.
        """
        part = 2 * self.n_classes * UNIT + FEW
        return part if self.design is None else part + self._exchange.misses(A)

    @cached_property
    def _exchange(self) -> Exchange:
        """What covariates ask of the rows of A."""
        assert self.design is not None
        return Exchange(self.design, self.labels, self.n_classes)

    def bias(self, F: FloatArray) -> FloatArray:
        """Return zeros; with covariates the best effects, shape (1 + k, T).

        The loss is made of straight pieces. Effects are found for one that is rounded
        off, a softmax of scores over a temperature that falls, and from there by linear
        programs in which far classes do not take part.
        """
        if self.design is None:
            return np.zeros(self.n_classes)
        known = self._known.get("bias")
        if known is not None and known[0].shape == F.shape and (known[0] == F).all():
            return known[1].copy()
        soft = Multinomial(self.labels, self.C, self.n_classes, design=self.design)
        raised = F + 1.0 - self.own
        g = np.zeros((self.design.basis.shape[1], self.n_classes))
        size = max(float(np.ptp(F)), 1.0)  # margins are one, however small the scores
        heat = 0.3 * size
        while heat > 1e-3 * size:
            heat *= 0.2
            g = heat * soft._best(raised / heat, g / heat, 1e-6)
        g = g - g.mean(axis=1, keepdims=True)
        peaks = Peaks(self.design.basis, raised, self.labels, self.C)
        tried = [np.zeros_like(g), g, peaks.least(g, 20.0 * heat)]
        lost = [
            float(self.C @ self.slacks(F + self.design.basis @ one)) for one in tried
        ]
        effects = self.design.effects(tried[int(np.argmin(lost))])
        self._known["bias"] = F.copy(), effects
        return effects.copy()

    @cached_property
    def _known(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """The last scores whose effects were asked for: they are asked for again."""
        return {}

    def repair(self, A: FloatArray) -> FloatArray:
        """Cut what rivals gain, and let the own class gain what they lose.

        With covariates, masses of rivals are tilted until they are feasible, and all of
        them shrink where a sample has more than it may.
        """
        own = self.own
        rivals = np.where(own, 0.0, np.minimum(A, 0.0))
        lost = -rivals.sum(axis=1)
        part = np.divide(self.C, lost, out=np.ones_like(lost), where=lost > self.C)
        rivals *= part[:, None]
        if self.design is not None:
            exchange = self._exchange
            A = exchange.signed(-rivals)
            if self.design.is_met(A):
                return A
            m = exchange.tilted(-rivals)
            total = m.sum(axis=1)
            over = float(np.max(total[total > 0] / self.C[total > 0], initial=0.0))
            return exchange.settled(exchange.signed(m / max(over, 1.0)))
        return np.asarray(np.where(own, -rivals.sum(axis=1)[:, None], rivals))

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return 0 below the bounds, inf at them."""
        bound = np.where(self.own, self.C[:, None], 0.0)
        return np.where(bound > A, 0.0, np.inf)

    def take(self, rows: Rows, factor: float) -> CrammerSinger:
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        design = None if self.design is None else self.design.take(rows)
        C = factor * self.C[rows]
        return replace(self, labels=self.labels[rows], C=C, design=design)


def decisions(
    loss: Any,
    F: FloatArray,
    bias: FloatArray,
    size: Callable[[FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Return scores F (n, T) with the bias (T,), or with effects (1 + k, T).

    ``size`` is applied to the design, where there is one.
    """
    design: Design | None = getattr(loss, "design", None)
    if design is None:
        return F + bias
    columns = design.columns if size is None else size(design.columns)
    return np.asarray(F + columns @ bias)


@dataclass(frozen=True)
class Multinomial:
    """``C_i (log(sum_c exp(f_ic)) - f_iy)``: all classes at once, with biases.

    Tasks are classes. A dual point is a distribution p over the classes for each
    sample, ``A = C ([c = y] - p)``, and its term is the sum of their entropies, times
    C. With free biases, each class has as much of all p as there are samples of it:
    ``sum_i C_i p_ic = n_c``. With covariates the same holds of their sums: ``E'A = 0``.

    Parameters
    ----------
    labels : array of shape (n,)
        Numbers of the classes, from 0.
    C : array of shape (n,)
        Cost of each sample.
    n_classes : int
    design : Design, optional
        Ones and covariates, whose coefficients are free as the biases are, for each
        class.
    """

    labels: NDArray[np.intp]
    C: FloatArray
    n_classes: int
    design: Design | None = field(default=None, kw_only=True)

    hyperplane = True

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or np.shape(self.C) != labels.shape:
            raise ValueError(
                "Multinomial needs one label and one cost for each sample, got shapes "
                f"{labels.shape} and {np.shape(self.C)}."
            )
        if not (np.isfinite(self.C).all() and (self.C >= 0).all()):
            raise ValueError(
                "The costs C of a loss must be finite numbers, none below zero."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and classes."""
        return len(self.labels), self.n_classes

    @property
    def concavity(self) -> float:
        """Two over the largest cost: no second derivative exceeds half of it."""
        return 2.0 / max(float(self.C.max(initial=0.0)), 1e-300)

    @cached_property
    def own(self) -> NDArray[np.bool_]:
        """Which class is the sample's own, shape (n, k)."""
        return np.asarray(self.labels[:, None] == np.arange(self.n_classes))

    @cached_property
    def counts(self) -> FloatArray:
        """Total cost of each class, shape (k,)."""
        return np.bincount(self.labels, self.C, self.n_classes).astype(float)

    def probabilities(self, F: FloatArray) -> FloatArray:
        """Return those of the classes at scores with bias, shape (n, k)."""
        p = np.exp(F - F.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _values(self, F: FloatArray) -> FloatArray:
        """Return the loss of each sample at unit cost, shape (n,)."""
        rows, where = np.arange(len(F)), F.argmax(axis=1)
        top = F[rows, where]
        rest = np.exp(F - top[:, None])
        rest[rows, where] = 0.0  # so that losses near zero keep their digits
        return np.asarray(np.log1p(rest.sum(axis=1)) + (top - F[rows, self.labels]))

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss; with covariates ``bias`` has shape (1 + k, T)."""
        return float(self.C @ self._values(decisions(self, F, bias)))

    def dual(self, A: FloatArray) -> float:
        """Return the entropies of the distributions behind A, times the costs."""
        p = self._behind(A)
        return float(-np.sum(self.C[:, None] * xlogy(p, p)))

    def _behind(self, A: FloatArray) -> FloatArray:
        """Return the distributions p of a feasible A, none below zero."""
        share = _over(A, np.broadcast_to(self.C[:, None], A.shape))
        return np.maximum(self.own - share, 0.0)

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``C ([c = y] - p)``."""
        return self.C[:, None] * (self.own - self.probabilities(F))

    def bent(self, F: FloatArray, V: FloatArray) -> FloatArray:
        """Return ``C (diag(p) - p p')`` times V, sample by sample."""
        p = self.probabilities(F)
        part = p * V
        return self.C[:, None] * (part - p * part.sum(axis=1, keepdims=True))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the best biases (k,), or effects (1 + k, k), that sum to zero.

        A class without samples is made as unlikely as exp(-50).
        """
        known = self._known.get("bias")
        if known is not None and known[0].shape == F.shape and (known[0] == F).all():
            return known[1].copy()
        present = self.counts > 0
        start = np.zeros((self._basis.shape[1], self.n_classes))
        if not present.all():
            start[0, ~present] = (F.min() - F.max() - 50.0) / self._basis[0, 0]
        found = self._best(F, start)
        found[:, present] -= found[:, present].mean(axis=1, keepdims=True)
        bias = found[0] if self.design is None else self.design.effects(found)
        self._known["bias"] = F.copy(), bias
        return bias.copy()

    @cached_property
    def _known(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """The last scores whose biases were asked for: they are asked for again."""
        return {}

    @cached_property
    def _basis(self) -> FloatArray:
        """What enters without a penalty, shape (n, q)."""
        return np.ones((len(self.C), 1)) if self.design is None else self.design.basis

    @cached_property
    def _exchange(self) -> Exchange:
        """What covariates ask of the rows of A."""
        assert self.design is not None
        return Exchange(self.design, self.labels, self.n_classes)

    def _best(self, F: FloatArray, start: FloatArray, tol: float = 1e-15) -> FloatArray:
        """Return the best coefficients of the basis (q, k), by Newton's method.

        ``tol`` is how steep the loss may be there, relative to all costs.
        """
        b, present = start.copy(), self.counts > 0
        k, total = int(present.sum()), max(float(self.C.sum()), 1e-300)
        q = len(b)
        value, slope, H = self._in_bias(F, b, present)
        for _ in range(100):
            steep = float(np.abs(slope).max())
            if steep <= tol * total or np.trace(H) <= 1e-280:
                break  # in the latter case all probabilities are zero or one
            # all classes may move together: that direction is held
            held = np.kron(np.ones((k, k)), np.eye(q))
            H += (np.trace(H) / (q * k**2) + 1e-300) * held
            H[np.diag_indices(q * k)] += 1e-14 * np.trace(H)
            step, moved = np.linalg.solve(H, slope), b.copy()
            for _ in range(40):
                moved[:, present] = b[:, present] - step.reshape(k, q).T
                found = self._in_bias(F, moved, present)
                # near the end the slope still tells what rounding hides in the value
                near = found[0] <= value + 1e-12 * abs(value)
                if found[0] < value or (near and np.abs(found[1]).max() < steep):
                    break
                step = step / 2
            else:
                break  # rounding
            b, (value, slope, H) = moved, found
        return b

    def _in_bias(
        self, F: FloatArray, b: FloatArray, present: NDArray[np.bool_]
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss with its first two derivatives in coefficients of classes.

        These are in the order of the classes, those of a class together.
        """
        f, B = F + self._basis @ b, self._basis
        p = self.probabilities(f)[:, present]
        off = self.C[:, None] * (p - self.own[:, present])
        parts = (p[:, :, None] * B[:, None, :]).reshape(len(F), -1)
        H = -parts.T @ (self.C[:, None] * parts)
        for c, one in enumerate(p.T):
            at = slice(c * B.shape[1], (c + 1) * B.shape[1])
            H[at, at] += B.T @ ((self.C * one)[:, None] * B)
        return float(self.C @ self._values(f)), (B.T @ off).T.ravel(), H

    def repair(self, A: FloatArray) -> FloatArray:
        """Return distributions that are mixed with one for all samples.

        ``(1 - t) p_i + t q`` has the right shares of the classes for the smallest t
        that leaves q none below zero. With covariates, distributions are tilted instead
        to those in proportion to ``p_ic exp(e_i'x_c)``, the nearest in relative
        entropy.
        """
        n_c, present = self.counts, self.counts > 0
        p = np.where(present, self._behind(A), 0.0)
        total = p.sum(axis=1, keepdims=True)
        p = np.divide(p, total, out=self.own.astype(float), where=total > 0)
        if self.design is not None:
            A = self._signed(p)
            if self.design.is_met(A):
                return A
            return self._tilted(p)
        short = np.where(present, n_c - self.C @ p, 0.0)
        ratio = -short[present] / n_c[present]
        most = max(float(ratio.max(initial=0.0)), 0.0)
        if most > 0:
            t = most / (1.0 + most)
            q = np.maximum(t * n_c + (1.0 - t) * short, 0.0)
            q = q if q.any() else n_c  # nothing but rounding is missing
            p = (1.0 - t) * p + t * (q / q.sum())
        return self._signed(p)

    def _tilted(self, p: FloatArray) -> FloatArray:
        """Return the feasible point of tilted distributions.

        Where shares of zero, which no tilt moves, leave none, the classes have a small
        part of each first.
        """
        start = np.zeros((self._basis.shape[1], self.n_classes))
        found = np.zeros_like(p)
        for part in (0.0, 0.01):
            mixed = (1.0 - part) * p + part * self.counts / self.counts.sum()
            logs = np.log(np.maximum(mixed, 1e-300))
            tilted = self.probabilities(logs + self._basis @ self._best(logs, start))
            before = self._signed(tilted)
            found = self._exchange.settled(before)
            if np.abs(found).sum() > 0.5 * np.abs(before).sum():
                break
        return found

    def _signed(self, p: FloatArray) -> FloatArray:
        """Return ``C ([c = y] - p)``, whose rows sum to zero."""
        C, rivals = self.C[:, None], np.where(self.own, 0.0, p)
        return np.where(self.own, C * rivals.sum(axis=1, keepdims=True), -C * rivals)

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return what ``primal`` is at most, for scores that err by up to ``error``."""
        f = decisions(self, F, bias)
        # slopes of a sample sum to two at most in size
        off = 2.0 * error.max(axis=1)
        size = decisions(self, np.abs(F), np.abs(bias), np.abs).max(axis=1)
        terms = 4 * self.n_classes + 32
        terms += 0 if self.design is None else 2 * len(bias)
        off += terms * UNIT * (size + np.log(self.n_classes) + 1.0)
        total = entries_sum(self.C * (np.maximum(self._values(f), 0.0) + off))
        return total * (1.0 + pairwise(len(F)))

    def below(self, A: FloatArray) -> float:
        """Return what ``dual`` is at least, where A is feasible without rounding.

        Entropy is concave: a mixture has at least the share of what is mixed. With
        covariates, where shares of rivals shrink by parts of their own, none of the
        terms ``-p log p`` shrinks by more than the largest of these parts, for they are
        concave in the shares of the rivals and zero with them.
        """
        p = self._behind(A)
        found = -entries_sum(self.C[:, None] * xlogy(p, p))
        # own shares are known to some units, which move p log p by 40 times as much
        off = 400 * self.n_classes * UNIT * entries_sum(self.C)
        return found * (1.0 - self._mixed(A) - pairwise(p.size)) - off

    def strain(self, A: FloatArray) -> FloatArray:
        """Return how far from ``A`` a point lies that is feasible without rounding."""
        part = self._mixed(A) + 8 * self.n_classes * UNIT
        return np.broadcast_to(part * self.C[:, None], A.shape)

    def _mixed(self, A: FloatArray) -> float:
        """Return what part has to be mixed in, to make good what rounding has left.

        With covariates, by what part rivals must shrink.
        """
        if self.design is not None:
            return self._exchange.misses(A)
        total = entries_sum(self.C)
        slip = 2 * pairwise(len(A)) * total + 16 * self.n_classes * UNIT * total
        off = np.abs(column_sums(A)) + slip
        present = self.counts > 0
        ratio = float(np.max(off[present] / self.counts[present], initial=0.0))
        return ratio / (1.0 + ratio) * (1.0 + FEW)

    def take(self, rows: Rows, factor: float) -> Multinomial:
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        design = None if self.design is None else self.design.take(rows)
        C = factor * self.C[rows]
        return replace(self, labels=self.labels[rows], C=C, design=design)


def _over(a: FloatArray, C: FloatArray, otherwise: float = 0.0) -> FloatArray:
    """Return ``a / C`` where C is positive."""
    return np.where(C > 0, a / np.where(C > 0, C, 1.0), otherwise)


def _times(C: FloatArray, end: End) -> FloatArray:
    """Return ``C end``, zero without cost even where the end is infinite."""
    return np.multiply(C, end, out=np.zeros_like(C), where=C > 0)


def _balanced(A: FloatArray) -> FloatArray:
    """Shrink the heavier sign of each column until it sums to zero."""
    positive = np.where(A > 0, A, 0.0).sum(axis=0)
    negative = np.where(A < 0, -A, 0.0).sum(axis=0)
    least = np.minimum(positive, negative)
    up = np.divide(least, positive, out=np.zeros_like(least), where=positive > 0)
    down = np.divide(least, negative, out=np.zeros_like(least), where=negative > 0)
    return A * np.where(A > 0, up, down)


def _kinks(knots: FloatArray, rises: FloatArray, start: FloatArray) -> FloatArray:
    """Return the middle of the minimisers of convex piecewise linear functions.

    Of each column: its slope is ``start`` on the left and rises by ``rises`` at
    ``knots``.
    """
    columns = np.arange(knots.shape[1])
    order = knots.argsort(axis=0, kind="stable")
    slope = start + rises[order, columns].cumsum(axis=0)
    flat = 1e-12 * rises.sum(axis=0)
    last = len(knots) - 1
    ends = (slope < -flat).sum(axis=0), (slope <= flat).sum(axis=0)
    low, high = (knots[order[np.minimum(end, last), columns], columns] for end in ends)
    return np.asarray((low + high) / 2)


def _root(slope: Callable[[float], float], f: FloatArray) -> float:
    """Return where a non-decreasing slope in the bias vanishes, by bisection."""
    reach = float(np.abs(f).max(initial=0.0)) + 2.0
    low, high = -reach, reach
    while slope(low) > 0:
        low *= 2
    while slope(high) < 0:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2
