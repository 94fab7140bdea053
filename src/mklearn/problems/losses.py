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

The last three are not sums over samples and tasks: they have no formula for one sample,
and are defined in :mod:`mklearn.problems.coupled`. What problems and solvers ask of a
loss is in :mod:`mklearn.problems.protocols`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, xlog1py, xlogy

from mklearn.problems.base import (
    UNIT,
    column_sums,
    entries_sum,
    pairwise,
    per_cost,
)
from mklearn.problems.coupled import Multinomial
from mklearn.problems.design import Design, Kinks, decisions, middle_bias
from mklearn.problems.protocols import Box, Loss, Rows, System
from mklearn.problems.separation import separated, signs, step_apart

FloatArray = NDArray[np.float64]

_SMALL = 2000  # size of a design from which on its effects need a good start
End = FloatArray | float


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
        """Whether there are kinks, which passes over the samples round off."""
        return False

    @property
    def quadratic(self) -> bool:
        """Whether V is quadratic in f, so that sums over the samples are enough."""
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
        """Return the bounds of the interval, around zero, in which a is feasible."""

    @abstractmethod
    def slope(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return ``-V'(f, y)``, the dual variable that a score implies.

        Kinks are rounded off around a dual variable ``a0``, to ::

            V_mu(f) = max over a of D(a, y) - a f - ½ mu (a - a0)^2;

        a loss without kinks ignores ``mu`` and ``a0``.
        """

    @abstractmethod
    def bend(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return ``V''(f, y)``, kinks rounded off as in :meth:`slope`."""

    @abstractmethod
    def curvature(self, a: FloatArray, y: FloatArray) -> FloatArray:
        """Return ``-D''(a, y)``, inf where a cannot move both ways."""

    def content(self, y: FloatArray) -> FloatArray | None:
        """Return scores from which on V is zero, where one sign of a is feasible.

        They are lower bounds on f where ``a >= 0``, and upper bounds where ``a <= 0``.
        None means that V is never zero.
        """
        return None

    def bias(self, f: FloatArray, y: FloatArray, C: FloatArray) -> float:
        """Return the b that minimises ``sum C V(f + b, y)``, zero if it is infinite."""
        lower, upper = self.domain(y)
        rises, falls = (np.any((C > 0) & (end != 0)) for end in (upper, lower))
        if not (rises and falls):
            return 0.0  # one class only
        slopes = self._slopes(y)
        return _root(lambda b: -float(np.sum(C * slopes(f + b))), f)

    def effects(
        self, f: FloatArray, y: FloatArray, C: FloatArray, design: Design
    ) -> FloatArray:
        """Return the coefficients of the design's basis that minimise the summed loss.

        If there is no minimum, because covariates separate the labels, the iteration
        ends when it no longer improves.
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
        """Return the width within which kinks are rounded off at first."""
        return 1.0 if self.targets == "labels" else max(0.5 * spread, 1e-12)

    def outset(self, spread: float) -> tuple[float, float]:
        """Return s and h of ``½ h f^2 - s y f``, which approximates the loss near zero.

        Kinks are rounded off so much that all samples lie in the band.
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
    """A loss whose dual term is piecewise quadratic, with one ``ridge``.

    There is one piece, or one for ``a >= 0`` and one for ``a <= 0``, in this order. For
    ``ridge = 0`` the loss is piecewise linear, with kinks where f is the ``linear`` of
    a piece. Dual term, derivatives and box follow from the pieces.
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

    def content(self, y: FloatArray) -> FloatArray:
        """Return the ``linear`` of the piece of the feasible sign."""
        pieces = self.pieces(y)
        return np.where(self.domain(y)[0] == 0, pieces[0].linear, pieces[-1].linear)

    def slope(
        self, f: FloatArray, y: FloatArray, mu: float = 0.0, a0: FloatArray | float = 0
    ) -> FloatArray:
        """Return the maximiser of each piece, of which at most one is not zero."""
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
        """Return the maximiser of ``rise a - ½ ridge a^2``, with kinks rounded off."""
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
            return middle_bias(knots[0], rises[0], start)
        return middle_bias(np.concatenate(knots), np.concatenate(rises), start)

    def effects(
        self, f: FloatArray, y: FloatArray, C: FloatArray, design: Design
    ) -> FloatArray:
        """Return the coefficients of the design's basis that minimise the summed loss.

        With kinks this is a linear program, whose vertices are followed from the
        minimum of the loss with its kinks rounded off, or, if there are few samples,
        from the best intercept.
        """
        if not self.kinks:
            return super().effects(f, y, C, design)
        start = np.zeros(design.basis.shape[1])
        start[0] = self.bias(f, y, C) * len(f) ** 0.5
        near = start
        if design.basis.size > _SMALL:
            mu = 0.05 * max(float(np.ptp(f)), float(np.ptp(np.real(y))), 1e-12)
            rounded = _Rounded(self, f, y, C, mu, np.zeros_like(f))
            near = design.least(
                rounded.value, rounded.slope, rounded.bend, start, 1e-4, 12
            )
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
    """A loss with its kinks rounded off around dual variables, at scores ``f + g``."""

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

    With two classes, whose targets are one column, it is the logistic loss.
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
        """Return s and h of ``½ h f^2 - s y f``, which bounds the loss near zero."""
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
        Parameters such as ``epsilon``; those that the loss does not have are ignored.
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
        Ones and covariates, whose coefficients are free like the bias.
    apart : array of shape (1 + k, T), optional
        Effects that separate samples (:mod:`mklearn.problems.separation`), which cost
        nothing: biases move along these effects until the losses of the samples vanish.
    spared : array of shape (n, T), optional
        What these samples would cost; zero for the others.
    """

    Y: FloatArray
    C: FloatArray
    with_bias: bool = True
    design: Design | None = field(default=None, kw_only=True)
    apart: FloatArray | None = field(default=None, kw_only=True, repr=False)
    spared: FloatArray | None = field(default=None, kw_only=True, repr=False)

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
        largest = float(self.C.max())  # zero if no sample is left
        return self.point.concavity / largest if largest > 0 else 0.0

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss; with covariates ``bias`` has shape (1 + k, T)."""
        return float(np.sum(self._values(F, bias)))

    def primal_each(self, F: FloatArray, bias: FloatArray) -> FloatArray:
        """Return the loss of each task, summed over samples, shape (T,)."""
        return column_sums(self._values(F, bias))

    def _values(self, F: FloatArray, bias: FloatArray) -> FloatArray:
        """Return the loss of each sample in each task."""
        f = decisions(self.design, F, bias)
        return np.asarray(self.C * self.point.value(f, self.Y))

    def dual(self, A: FloatArray) -> float:
        """Return the summed dual term."""
        return float(np.sum(self._terms(A)))

    def dual_each(self, A: FloatArray) -> FloatArray:
        """Return the dual term of each task, summed over samples, shape (T,)."""
        return column_sums(self._terms(A))

    def _terms(self, A: FloatArray) -> FloatArray:
        """Return the dual term of each sample in each task."""
        return np.asarray(self.C * self.point.dual(per_cost(A, self.C), self.Y))

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return an upper bound on ``primal``, for scores off by up to ``error``.

        The maximum of a convex loss over an interval is at one of its ends. Separated
        samples count, so that the bound is one for the loss of all samples.
        """
        most = self._at_most(F, bias, error)
        return entries_sum(most) * (1.0 + pairwise(most.size))

    def above_each(
        self, F: FloatArray, bias: FloatArray, error: FloatArray
    ) -> FloatArray:
        """Return the bound ``above`` of each task, shape (T,)."""
        most = self._at_most(F, bias, error)
        return column_sums(most) * (1.0 + pairwise(len(most)))

    def _at_most(
        self, F: FloatArray, bias: FloatArray, error: FloatArray
    ) -> FloatArray:
        """Return an upper bound on the loss of each sample in each task."""
        f = decisions(self.design, F, bias)
        size = decisions(self.design, np.abs(F), np.abs(bias), np.abs)
        terms = 16 if self.design is None else 16 + len(bias)
        reach = error + terms * UNIT * (size + np.abs(self.Y))
        ends = (self.point.value(end, self.Y) for end in (f - reach, f + reach))
        cost = self.C if self.spared is None else self.C + self.spared
        return np.asarray(cost * np.maximum(*ends))

    def below(self, A: FloatArray) -> float:
        """Return a lower bound on ``dual`` at the exactly feasible point near A.

        The minimum of a concave term over an interval is at one of its ends. A term
        that is zero at zero shrinks by no more than its argument, which is scaled to
        make the columns sum to zero.
        """
        terms = self._at_least(A)
        lost = self._misses(A) @ column_sums(np.maximum(terms, 0.0))
        rounded = pairwise(terms.size) * entries_sum(np.abs(terms))
        return entries_sum(terms) - rounded - float(lost)

    def below_each(self, A: FloatArray) -> FloatArray:
        """Return the bound ``below`` of each task, shape (T,)."""
        terms = self._at_least(A)
        lost = self._misses(A) * column_sums(np.maximum(terms, 0.0))
        rounded = pairwise(len(terms)) * column_sums(np.abs(terms))
        return column_sums(terms) - rounded - lost

    def _at_least(self, A: FloatArray) -> FloatArray:
        """Return a lower bound on the dual term of each sample in each task."""
        lower, upper = self._interval
        ends = (np.clip(A * (1.0 + k * UNIT), lower, upper) for k in (-16, 16))
        return np.asarray(np.minimum(*(self._terms(end) for end in ends)))

    def strain(self, A: FloatArray) -> FloatArray:
        """Return bounds on the distance of ``A`` from an exactly feasible point."""
        return np.asarray(self._misses(A) * np.abs(A))

    def _misses(self, A: FloatArray) -> FloatArray:
        """Return the share by which columns must shrink, on one side, to sum to 0."""
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
            found = np.zeros((self.design.columns.shape[1], F.shape[1]))
            for t, (used, design) in enumerate(self._used):
                f, y, C = F[used, t], self.Y[used, t], self.C[used, t]
                if len(f):  # none if all are separated
                    found[:, t] = design.effects(self.point.effects(f, y, C, design))
            return self._moved_apart(F, found)
        if not self.with_bias:
            return np.zeros(self.shape[1])
        known = self._known.get("bias")
        if known is None or known[0].shape != F.shape or (known[0] != F).any():
            known = F.copy(), self.point.biases(F, self.Y, self.C)
            self._known["bias"] = known
        return np.array(known[1])

    @cached_property
    def _used(self) -> list[tuple[Any, Design]]:
        """Samples that determine the effects of each task, and their design."""
        assert self.design is not None
        if self.apart is None:
            return [(slice(None), self.design)] * self.shape[1]
        rows = [np.flatnonzero(C) for C in self.C.T]
        return [(used, self.design.take(used)) for used in rows]

    def _moved_apart(self, F: FloatArray, bias: FloatArray) -> FloatArray:
        """Return effects with which the losses of separated samples just vanish."""
        if self.apart is None:
            return bias
        assert self.design is not None
        enough = self.point.content(self.Y)
        assert enough is not None
        C = self.design.columns[:, 1:]
        f = decisions(self.design, F, bias)
        step = step_apart(C, f, signs(self.point, self.Y), enough, self.apart)
        return bias + self.apart * np.where(np.isfinite(step), step, 0.0)

    def leaving(self, apart: FloatArray):  # type: ignore[no-untyped-def]
        """Return the loss in which samples cost nothing that effects separate."""
        assert self.design is not None
        columns, sign = self.design.columns[:, 1:], signs(self.point, self.Y)
        told, _ = separated(columns, sign, apart)
        kept, spared = np.where(told, 0.0, self.C), np.where(told, self.C, 0.0)
        return replace(self, C=kept, spared=spared, apart=apart)

    @cached_property
    def _known(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """The last scores and their biases, which are often asked for again."""
        return {}

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return minus the second derivative of the dual term, inf at the bounds."""
        unit = self.point.curvature(per_cost(A, self.C), self.Y)
        return per_cost(unit, self.C, np.inf)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the feasible interval and, with a bias, balance the columns."""
        if self.design is not None:
            return self.design.project(A, *self._interval)
        A = np.clip(A, *self._interval)
        return _balanced(A) if self.with_bias else A

    @cached_property
    def _interval(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on A, shapes (n, T)."""
        lower, upper = self.point.domain(self.Y)
        return _times(self.C, lower), _times(self.C, upper)

    def take(self, rows: Rows, factor: float):  # type: ignore[no-untyped-def]
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        design = None if self.design is None else self.design.take(rows)
        spared = None if self.spared is None else factor * self.spared[rows]
        return replace(
            self, Y=self.Y[rows], C=factor * self.C[rows], design=design, spared=spared
        )


class BoxSummed(Summed):
    """Sums of piecewise losses: the dual for fixed weights is a QP in a box."""

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
        return self._boxes[task]

    @cached_property
    def _boxes(self) -> list[Box]:
        """The QPs of all tasks: solvers and models ask for them again and again."""
        C, pieces = self.C, self.point.pieces(self.Y)
        ridge = self.point.ridge * per_cost(np.ones_like(C), C)

        def rows(parts: list[FloatArray]) -> FloatArray:
            """Return a row of contiguous values for each task."""
            return np.ascontiguousarray(np.concatenate(parts, axis=0).T)

        return [
            Box(*parts, self.with_bias)
            for parts in zip(
                rows([-piece.linear + np.zeros_like(C) for piece in pieces]),
                rows([_times(C, piece.lower) for piece in pieces]),
                rows([_times(C, piece.upper) for piece in pieces]),
                rows([ridge] * len(pieces)),
                strict=True,
            )
        ]


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
    """Any piecewise loss on samples: what :meth:`Piecewise.on` returns.

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
    """Any differentiable loss on samples: what :meth:`Pointwise.on` returns.

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
        Ones and covariates, whose coefficients are free like the bias.
    apart : array of shape (1 + k, T), optional
        Effects that separate samples, as made by ``leaving``.
    spared : array of shape (n, T), optional
        Costs of these samples, which are not in C.
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
        Ones and covariates, whose coefficients are free like the bias.
    apart, spared : arrays, optional
        As in :class:`Hinge`.
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
        Ones and covariates, whose coefficients are free like the bias.
    apart, spared : arrays, optional
        As in :class:`Hinge`.
    """

    point = PointwiseSquared()

    def system(self) -> System | None:
        """Return ``(K + 1 / C) A + b = y``, None if costs are 0 or differ by task."""
        C = self.C[:, 0]
        if not ((C > 0).all() and (self.C == C[:, None]).all()):
            return None
        E = np.ones((len(C), int(self.with_bias)))
        if self.design is not None:
            E = self.design.basis
        return System(1.0 / C, self.Y, E, np.zeros((E.shape[1], self.Y.shape[1])))

    def repair(self, A: FloatArray) -> FloatArray:
        """Shift the columns to sum zero, in proportion to the costs."""
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
        Ones and covariates, whose coefficients are free like the bias.
    apart, spared : arrays, optional
        As in :class:`Hinge`.
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
        Ones and covariates, whose coefficients are free like the bias.
    apart, spared : arrays, optional
        As in :class:`Hinge`.
    """

    point = PointwiseLogistic()


def _times(C: FloatArray, end: End) -> FloatArray:
    """Return ``C end``, zero without cost even where the end is infinite."""
    return np.multiply(C, end, out=np.zeros_like(C), where=C > 0)


def _balanced(A: FloatArray) -> FloatArray:
    """Return A with the heavier sign of each column scaled to make it sum to zero."""
    up = A > 0
    positive = np.where(up, A, 0.0).sum(axis=0)
    negative = -np.where(up, 0.0, A).sum(axis=0)
    if (positive == negative).all():
        return A
    least = np.minimum(positive, negative)
    # a sign that is missing has no sum to divide by, and nothing to scale
    more = least / np.where(positive > 0, positive, 1.0)
    less = least / np.where(negative > 0, negative, 1.0)
    return A * np.where(up, more, less)


def _root(slope: Callable[[float], float], f: FloatArray) -> float:
    """Return where a non-decreasing slope in the bias vanishes."""
    reach = float(np.abs(f).max(initial=0.0)) + 2.0
    low, high = -reach, reach
    while slope(low) > 0:
        low *= 2
    while slope(high) < 0:
        high *= 2
    # more accurate than scores of that size; this takes many steps if the slope is
    # nearly constant far from its root
    tol = {"xtol": UNIT * reach, "rtol": 8 * UNIT}
    return float(brentq(slope, low, high, maxiter=10_000, **tol))
