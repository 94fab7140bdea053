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

The last two are no sums over samples and tasks, and stand for themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

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


class Loss(Protocol):
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

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return minus the second derivative of ``dual``, inf where A cannot move."""

    def take(self, rows: Rows, factor: float) -> Loss:
        """Return the loss on some samples, their costs multiplied by ``factor``."""


@runtime_checkable
class BoxLoss(Loss, Protocol):
    """A loss whose dual for fixed weights is a box QP: SMO solves it."""

    def box(self, task: int) -> Box:
        """Return the QP of one task."""


@runtime_checkable
class QuadraticLoss(Loss, Protocol):
    """A loss whose dual term is quadratic: for fixed weights, one linear system."""

    def system(self) -> System | None:
        """Return the system, None where the tasks have different ones."""


@runtime_checkable
class SmoothLoss(Loss, Protocol):
    """A loss that is differentiable in the scores: Newton solves it."""

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``-d primal / dF`` at scores with bias: the dual point they imply."""

    def bend(self, F: FloatArray) -> FloatArray:
        """Return ``d^2 primal / dF^2`` at scores with bias."""


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

    def _slopes(self, y: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the slope as a function of the score, for many calls."""
        return lambda f: self.slope(f, y)

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> Loss:
        """Return the loss of samples with targets and costs of shape (n, T)."""
        return Smooth(Y, C, with_bias, formula=self)

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
        pieces = self.pieces(y)
        knots = [piece.linear - f for piece in pieces]
        rises = [C * (piece.upper - piece.lower) for piece in pieces]
        start = -float(np.sum(C * pieces[0].upper))
        return _kink(np.concatenate(knots), np.concatenate(rises), start)

    def on(self, Y: FloatArray, C: FloatArray, with_bias: bool = True) -> Loss:
        """Return the loss of samples with targets and costs of shape (n, T)."""
        return Boxed(Y, C, with_bias, formula=self)


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
        return -(xlogy(s, s) + xlogy(1.0 - s, 1.0 - s))

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


LOSSES: dict[str, type[Pointwise]] = {
    "hinge": PointwiseHinge,
    "squared_hinge": PointwiseSquaredHinge,
    "squared": PointwiseSquared,
    "logistic": PointwiseLogistic,
    "epsilon_insensitive": PointwiseEpsilon,
}


def loss_names(targets: Literal["labels", "numbers"]) -> list[str]:
    """Return the names of the losses for labels, or for numbers."""
    return [name for name, loss in LOSSES.items() if loss.targets in (targets, "any")]


def by_name(name: str, **options: Any) -> Pointwise:
    """Return the pointwise loss of a name.

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
    """

    Y: FloatArray
    C: FloatArray
    with_bias: bool = True

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
        """Return the summed loss."""
        return float(np.sum(self.C * self.point.value(F + bias, self.Y)))

    def dual(self, A: FloatArray) -> float:
        """Return the summed dual term."""
        return float(np.sum(self.C * self.point.dual(_over(A, self.C), self.Y)))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias of each task."""
        if not self.with_bias:
            return np.zeros(self.shape[1])
        columns = zip(F.T, self.Y.T, self.C.T, strict=True)
        return np.array([self.point.bias(f, y, C) for f, y, C in columns])

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return minus the second derivative of the dual term, inf at the bounds."""
        unit = self.point.curvature(_over(A, self.C), self.Y)
        return _over(unit, self.C, np.inf)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the feasible interval and, with a bias, balance the columns."""
        A = np.clip(A, *self._interval)
        return _balanced(A) if self.with_bias else A

    @cached_property
    def _interval(self) -> tuple[FloatArray, FloatArray]:
        """Between what A may be, shapes (n, T)."""
        lower, upper = self.point.domain(self.Y)
        return _times(self.C, lower), _times(self.C, upper)

    def take(self, rows: Rows, factor: float):  # type: ignore[no-untyped-def]
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        return replace(self, Y=self.Y[rows], C=factor * self.C[rows])


class BoxSummed(Summed):
    """Sums of losses in pieces: the dual for fixed weights is a QP in a box."""

    @property
    @abstractmethod
    def point(self) -> Piecewise:
        """The loss of one sample at unit cost."""

    def dual(self, A: FloatArray) -> float:
        """Return the summed dual term."""
        if self.point.ridge:
            return super().dual(A)
        # linear in pieces: costs cancel
        return float(np.sum(self.point.dual(A, self.Y)))

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
    """

    point = PointwiseHinge()


class SquaredHinge(BoxSummed):
    """``C_i ½ max(0, 1 - y_i f_i)^2``, the 2-norm soft margin.

    Its dual is that of the hinge loss with ``K + diag(1 / C)`` and no upper bound.

    Parameters
    ----------
    Y, C, with_bias
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
    """

    point = PointwiseSquared()

    def system(self) -> System | None:
        """Return ``(K + 1 / C) A + b = y``, None if costs are zero or of a task."""
        C = self.C[:, 0]
        if not ((C > 0).all() and (self.C == C[:, None]).all()):
            return None
        E = np.ones((len(C), int(self.with_bias)))
        return System(1.0 / C, self.Y, E, np.zeros((E.shape[1], self.Y.shape[1])))

    def repair(self, A: FloatArray) -> FloatArray:
        """Shift to sum zero, by shares of the cost."""
        A = np.where(self.C > 0, A, 0.0)
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
        ``1 / (nu n)`` for each sample; the costs must sum to one or more.
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

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss, minus rho."""
        short = np.maximum(0.0, -(F + bias))
        return float(np.sum(self.C * short) + bias.sum())

    def dual(self, A: FloatArray) -> float:
        """Return 0."""
        return 0.0

    def bias(self, F: FloatArray) -> FloatArray:
        """Return ``-rho``."""
        return np.array([_kink(-F[:, 0], self.C[:, 0], 1.0 - self.C.sum())])

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
        total = A.sum()
        if total >= 1.0:
            return A / total
        return A + (self.C - A) * ((1.0 - total) / (self.C.sum() - total))

    def take(self, rows: Rows, factor: float) -> OneClass:
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        C = factor * self.C[rows]
        return OneClass(C * max(1.0, 1.0 / C.sum()))


@dataclass(frozen=True)
class CrammerSinger:
    """``C_i (max_c (f_ic + 1 - [c = y_i]) - f_iy)``: all classes at once, no bias.

    Tasks are classes. The dual variables have ``A_ic <= C_i [c = y_i]`` and rows that
    sum to zero: what the class of a sample gains its rivals lose.

    Parameters
    ----------
    labels : array of shape (n,)
        Numbers of the classes, from 0.
    C : array of shape (n,)
        Cost of each sample.
    n_classes : int
    """

    labels: NDArray[np.intp]
    C: FloatArray
    n_classes: int

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
        """Return the summed loss; there is no bias, and ``bias`` is zero."""
        return float(self.C @ self.slacks(F + bias))

    def slacks(self, F: FloatArray) -> FloatArray:
        """Return the loss of each sample at unit cost, shape (n,)."""
        top = (F + 1.0 - self.own).max(axis=1)
        return np.asarray(top - F[np.arange(len(F)), self.labels])

    def dual(self, A: FloatArray) -> float:
        """Return ``sum_i A_iy``."""
        return float(A[np.arange(len(A)), self.labels].sum())

    def bias(self, F: FloatArray) -> FloatArray:
        """Return zeros."""
        return np.zeros(self.n_classes)

    def repair(self, A: FloatArray) -> FloatArray:
        """Cut what rivals gain, and let the own class gain what they lose."""
        own = self.own
        rivals = np.where(own, 0.0, np.minimum(A, 0.0))
        lost = -rivals.sum(axis=1)
        part = np.divide(self.C, lost, out=np.ones_like(lost), where=lost > self.C)
        rivals *= part[:, None]
        return np.asarray(np.where(own, -rivals.sum(axis=1)[:, None], rivals))

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return 0 below the bounds, inf at them."""
        bound = np.where(self.own, self.C[:, None], 0.0)
        return np.where(bound > A, 0.0, np.inf)

    def take(self, rows: Rows, factor: float) -> CrammerSinger:
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        return replace(self, labels=self.labels[rows], C=factor * self.C[rows])


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


def _kink(knots: FloatArray, rises: FloatArray, start: float) -> float:
    """Return the middle of the minimisers of a convex piecewise linear function.

    Its slope is ``start`` on the left and rises by ``rises`` at ``knots``.
    """
    order = np.argsort(knots, kind="stable")
    slope = start + np.cumsum(rises[order])
    flat = 1e-12 * rises.sum()
    first = int(np.searchsorted(slope, -flat))
    last = int(np.searchsorted(slope, flat, side="right"))
    k = knots[order]
    return float((k[min(first, len(k) - 1)] + k[min(last, len(k) - 1)]) / 2)


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
