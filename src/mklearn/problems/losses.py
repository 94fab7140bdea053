"""Losses, side by side: primal value, dual value, best bias, feasible set.

A loss knows its targets and costs. With scores ``F`` (n, T) and signed dual variables
``A`` (n, T), where column t is ``y * alpha`` of task t, every loss contributes

    primal(F, b) = sum_i C_i V(F_i + b, y_i)
    dual(A) = -sum_i C_i V*(-A_i / C_i, y_i)

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

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


class BoxLoss(Loss, Protocol):
    """A loss whose dual for fixed weights is a box QP: SMO solves it."""

    def box(self, task: int) -> Box:
        """Return the QP of one task."""


class QuadraticLoss(Loss, Protocol):
    """A loss whose dual term is quadratic: for fixed weights, one linear system."""

    def system(self) -> System | None:
        """Return the system, None where the tasks have different ones."""


class SmoothLoss(Loss, Protocol):
    """A loss that is differentiable in the scores: Newton solves it."""

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``-d primal / dF`` at scores with bias: the dual point they imply."""

    def bend(self, F: FloatArray) -> FloatArray:
        """Return ``d^2 primal / dF^2`` at scores with bias."""


@dataclass(frozen=True)
class _Costs:
    """Targets ``Y`` and costs ``C``, both (n, T), and whether there is a bias."""

    Y: FloatArray
    C: FloatArray
    with_bias: bool = True

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
        """Modulus of strong concavity of the dual term: none."""
        return 0.0

    def take(self, rows: Rows, factor: float):  # type: ignore[no-untyped-def]
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        return replace(self, Y=self.Y[rows], C=factor * self.C[rows])

    def _each(self, best: Callable[[int], float]) -> FloatArray:
        """Return the bias of each task by ``best``, zeros if there is none."""
        T = self.shape[1]
        return np.array([best(t) for t in range(T)]) if self.with_bias else np.zeros(T)


class Hinge(_Costs):
    """``C_i max(0, 1 - y_i f_i)`` with targets -1 and 1.

    Without bias and with all targets 1 this is the one-class problem of LPMKL.

    Parameters
    ----------
    Y : array of shape (n, T) of -1 and 1
    C : array of shape (n, T)
        Cost of each sample in each task.
    with_bias : bool
    """

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss."""
        return float(np.sum(self.C * np.maximum(0.0, 1.0 - self.Y * (F + bias))))

    def dual(self, A: FloatArray) -> float:
        """Return ``sum alpha``."""
        return float(np.sum(self.Y * A))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias of each task."""
        # the slope starts at minus the cost of the positive samples and rises by C_i
        # at y_i - f_i
        Y, C = self.Y, self.C
        return self._each(
            lambda t: _kink(Y[:, t] - F[:, t], C[:, t], -C[Y[:, t] > 0, t].sum())
        )

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return 0 for free variables, inf at the bounds."""
        alpha = self.Y * A
        return np.where((alpha > 0) & (alpha < self.C), 0.0, np.inf)

    def box(self, task: int) -> Box:
        """Return the QP of one task."""
        y, C = self.Y[:, task], self.C[:, task]
        lower, upper = np.minimum(0.0, y * C), np.maximum(0.0, y * C)
        return Box(-y, lower, upper, np.zeros(len(y)), self.with_bias)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the box and balance."""
        A = self.Y * np.clip(self.Y * A, 0.0, self.C)
        return _balanced(A) if self.with_bias else A


class SquaredHinge(_Costs):
    """``C_i ½ max(0, 1 - y_i f_i)^2``, the 2-norm soft margin.

    Its dual is that of the hinge loss with ``K + diag(1 / C)`` and no upper bound.

    Parameters
    ----------
    Y, C, with_bias
        As in :class:`Hinge`.
    """

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of the dual term."""
        return 1.0 / float(self.C.max())

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss."""
        short = np.maximum(0.0, 1.0 - self.Y * (F + bias))
        return 0.5 * float(np.sum(self.C * short**2))

    def dual(self, A: FloatArray) -> float:
        """Return ``sum alpha - alpha^2 / (2 C)``."""
        return float(np.sum(self.Y * A) - 0.5 * np.sum(_over(A**2, self.C)))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias of each task."""
        return self._each(
            lambda t: _root(lambda b: -self._slope(F, b, t), F, self.Y, t)
        )

    def _slope(self, F: FloatArray, b: float, t: int) -> float:
        y, C = self.Y[:, t], self.C[:, t]
        return float(np.sum(C * y * np.maximum(0.0, 1.0 - y * (F[:, t] + b))))

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return ``1 / C`` for support vectors, inf for the others."""
        return np.where(self.Y * A > 0, _over(np.ones_like(A), self.C, np.inf), np.inf)

    def box(self, task: int) -> Box:
        """Return the QP of one task."""
        y, C = self.Y[:, task], self.C[:, task]
        far = np.where(C > 0, np.inf, 0.0)
        lower, upper = np.where(y < 0, -far, 0.0), np.where(y > 0, far, 0.0)
        ridge = _over(np.ones_like(C), C)
        return Box(-y, lower, upper, ridge, self.with_bias)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the orthant and balance."""
        A = np.where(self.C > 0, self.Y * np.maximum(self.Y * A, 0.0), 0.0)
        return _balanced(A) if self.with_bias else A


class Squared(_Costs):
    """``C_i ½ (y_i - f_i)^2`` for any targets: ridge regression, least-squares SVM.

    Parameters
    ----------
    Y : array of shape (n, T)
    C, with_bias
        As in :class:`Hinge`.
    """

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of the dual term."""
        return 1.0 / float(self.C.max())

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss."""
        return 0.5 * float(np.sum(self.C * (self.Y - F - bias) ** 2))

    def dual(self, A: FloatArray) -> float:
        """Return ``y'A - A^2 / (2 C)``."""
        return float(np.sum(self.Y * A) - 0.5 * np.sum(_over(A**2, self.C)))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the weighted mean residual of each task."""
        C = self.C
        return self._each(lambda t: float(C[:, t] @ (self.Y - F)[:, t] / C[:, t].sum()))

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return ``1 / C``."""
        return _over(np.ones_like(A), self.C, np.inf)

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``C (y - f)``."""
        return self.C * (self.Y - F)

    def bend(self, F: FloatArray) -> FloatArray:
        """Return ``C``."""
        return self.C

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
class EpsilonInsensitive(_Costs):
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

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss."""
        error = np.abs(self.Y - F - bias) - self.epsilon
        return float(np.sum(self.C * np.maximum(0.0, error)))

    def dual(self, A: FloatArray) -> float:
        """Return ``y'A - epsilon |A|``."""
        return float(np.sum(self.Y * A) - self.epsilon * np.abs(A).sum())

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias of each task."""

        def best(t: int) -> float:
            r, C = (self.Y - F)[:, t], self.C[:, t]
            knots = np.concatenate([r - self.epsilon, r + self.epsilon])
            return _kink(knots, np.concatenate([C, C]), -C.sum())

        return self._each(best)

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return 0 for free variables, inf at the bounds and at zero."""
        size = np.abs(A)
        return np.where((size > 0) & (size < self.C), 0.0, np.inf)

    def box(self, task: int) -> Box:
        """Return the QP of one task: positive parts, then negative parts."""
        y, C = self.Y[:, task], self.C[:, task]
        zero = np.zeros_like(C)
        return Box(
            np.concatenate([self.epsilon - y, -self.epsilon - y]),
            np.concatenate([zero, -C]),
            np.concatenate([C, zero]),
            np.zeros(2 * len(y)),
            self.with_bias,
        )

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the box and balance."""
        A = np.clip(A, -self.C, self.C)
        return _balanced(A) if self.with_bias else A


class Logistic(_Costs):
    """``C_i log(1 + exp(-y_i f_i))`` with targets -1 and 1.

    Parameters
    ----------
    Y, C, with_bias
        As in :class:`Hinge`.
    """

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of the dual term."""
        return 4.0 / float(self.C.max())

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss."""
        return float(np.sum(self.C * np.logaddexp(0.0, -self.Y * (F + bias))))

    def dual(self, A: FloatArray) -> float:
        """Return ``-sum C (s log s + (1 - s) log(1 - s))``, ``s = alpha / C``."""
        s = np.clip(_over(self.Y * A, self.C), 0.0, 1.0)
        return -float(np.sum(self.C * (xlogy(s, s) + xlogy(1 - s, 1 - s))))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the bias of each task."""
        return self._each(
            lambda t: _root(
                lambda b: -float(self.slope(F + b)[:, t].sum()), F, self.Y, t
            )
        )

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return ``C / (alpha (C - alpha))``."""
        alpha = self.Y * A
        inside = (alpha > 0) & (alpha < self.C)
        product = np.where(inside, alpha * (self.C - alpha), 1.0)
        return np.where(inside, self.C / product, np.inf)

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``y C / (1 + exp(y f))``."""
        return self.Y * self.C * expit(-self.Y * F)

    def bend(self, F: FloatArray) -> FloatArray:
        """Return ``C s (1 - s)``, ``s = 1 / (1 + exp(y f))``."""
        s = expit(-self.Y * F)
        return self.C * s * (1.0 - s)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the box and balance."""
        A = self.Y * np.clip(self.Y * A, 0.0, self.C)
        return _balanced(A) if self.with_bias else A


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


def _root(
    slope: Callable[[float], float], F: FloatArray, Y: FloatArray, t: int
) -> float:
    """Return where a non-decreasing slope in the bias vanishes, by bisection."""
    if len(np.unique(np.sign(Y[:, t]))) < 2:
        return 0.0  # one class only: the best bias is at infinity
    reach = float(np.abs(F[:, t]).max(initial=0.0)) + 2.0
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
