"""Multi-class MKL with weights for each class and kernel: formula and certificate.

    min  sum_i C_i xi_i + ½ sum_c ( sum_r |w_c^r|^2 / d_c^r + |d_c| )          BIL (7)
    s.t. f_y(x_i) - f_c(x_i) + [c = y_i] >= 1 - xi_i,   f_c = sum_r <w_c^r, phi_r>

The penalty ``|d_c|`` is the sum of the weights in the paper; here it is the gauge of
any set of weights, such as an lp norm. Minimised over d, the regulariser is
``sum_c |w_c|``, where the norm of a class is ``sum_r |w_c^r|`` for p = 1: a group lasso
over classes and kernels. The dual maximises ``sum_i A_iy`` over the dual variables of
:class:`CrammerSinger` with ``support(q_c) <= 1`` for every class, where
``q_cr = A_c' K_r A_c`` (the paper states a different bound, which does not follow from
its own gradient). Any A therefore gives a lower bound once it is scaled down to be
feasible.

Weights shared by all classes do not need this problem: they are
``MKLProblem(bank, CrammerSinger(...), LpBall(p))``, which for p = 1 is the problem of
Zien & Ong (2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.bank import KernelBank
from mklearn.problems.base import (
    FEW,
    UNIT,
    Certificate,
    Iterate,
    Judgement,
    Kind,
    shares,
)
from mklearn.problems.coupled import CrammerSinger
from mklearn.problems.mkl import certified, check_square
from mklearn.problems.weights import LpBall, WeightSet, excess

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class BilinearProblem:
    """Bank of kernels x Crammer-Singer loss x a set of weights for each class.

    Weights ``theta`` are the d of (7), shape (n_classes, n_kernels).

    Parameters
    ----------
    bank : KernelBank
        A square, normalised bank.
    loss : CrammerSinger
    weights : WeightSet
        Convex. The penalty on ``d_c`` is the gauge of the set, the factor by which it
        must be scaled to contain ``d_c``; for :class:`LpBall`, the p-norm.
    """

    bank: KernelBank
    loss: CrammerSinger
    weights: WeightSet

    def __post_init__(self) -> None:
        check_square(self.bank, self.loss)
        if not self.weights.smooth:
            raise ValueError(
                "Weights per class need a convex set such as LpBall(1), got "
                f"{type(self.weights).__name__}."
            )

    kind: ClassVar[Kind] = "classes"
    per_class = True

    def center(self) -> FloatArray:
        """Return equal weights for all classes and kernels."""
        k = self.loss.n_classes
        return np.tile(self.weights.center(self.bank.shape[2]), (k, 1))

    def step(self, theta: FloatArray, quads: FloatArray) -> FloatArray:
        """Return the optimal weights for the ``w`` defined by ``theta`` and A.

        For p = 1 these are ``d_c^r = |w_c^r|``. A class with ``w_c = 0`` keeps its
        weights, because w may become nonzero later.
        """
        out = theta.copy()
        for c, (d, q) in enumerate(zip(theta, quads, strict=True)):
            direction, norm = self._best(d, q)
            if norm > 0:
                out[c] = norm * direction
        return out

    def norms(self, theta: FloatArray, quads: FloatArray) -> FloatArray:
        """Return ``|w_c|`` of each class, at ``w_c^r = d_c^r Phi_r' A_c``, shape (k,).

        This is the minimum of ``½ (sum_r |w_c^r|^2 / d_c^r + |d_c|)`` over ``d_c``.
        """
        pairs = zip(theta, quads, strict=True)
        return np.array([self._best(d, q)[1] for d, q in pairs])

    def _best(self, d: FloatArray, q: FloatArray) -> tuple[FloatArray, float]:
        """Return the optimal member of the weight set for w, and the norm of w."""
        norms2 = d**2 * np.maximum(q, 0.0)
        theta = self.weights.step(d, q)
        parts = np.divide(norms2, theta, out=np.zeros_like(d), where=theta > 0)
        return theta, float(np.sqrt(parts.sum()))

    def first(self) -> Iterate:
        """Return the zero function at equal weights."""
        return Iterate(self.center(), np.zeros(self.loss.shape))

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds given by ``theta`` (k, M) and ``A`` (n, k).

        ``scores`` are ``K_c A_c`` (n, k) and ``quads`` ``A_c' K_r A_c`` (k, M) as
        claimed by a solver; if missing, they are computed from the bank.
        """
        theta, A = point.theta, self.loss.repair(point.A)
        if not (np.isfinite(theta).all() and (theta >= 0).all()):
            raise ValueError(
                "theta is negative somewhere; this is a bug in the solver; please "
                "report it."
            )
        F = self.bank.apply_each(theta, A) if point.scores is None else point.scores
        q = self.bank.quads(A) if point.quads is None else point.quads
        bias = self.loss.bias(F)
        upper = self.loss.primal(F, bias) + float(self.norms(theta, q).sum())
        return Judgement(upper, self.dual(A, q), bias)

    @cached_property
    def sizes(self) -> FloatArray:
        """Bounds on the values of the kernels, shape (n, M)."""
        return self.bank.sizes()

    def penalty(self, theta: FloatArray, quads: FloatArray) -> float:
        """Return an upper bound on the sum of the norms for q of at most ``quads``."""
        total = 0.0
        for d, q in zip(theta, quads, strict=True):
            member, norm = self._best(d, q)
            total += norm * excess(self.weights, member)
        return total * (1.0 + quads.size * UNIT)

    def lowest(self, A: FloatArray, quads: FloatArray) -> float:
        """Return a lower bound on ``dual`` of a feasible A with q at most ``quads``."""
        return self.loss.below(A) / (self._excess(quads) * (1.0 + FEW))

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, computed from the bank alone."""
        return certified(self, point, dual)

    def certify_to(self, point: Iterate, dual: Iterate, tol: float) -> Certificate:
        """Return the bounds; rounding errors far below ``tol`` may remain."""
        if type(self).certify is not BilinearProblem.certify:  # a subclass has its own
            return self.certify(point, dual)
        return certified(self, point, dual, tol)

    def dual(self, A: FloatArray, quads: FloatArray | None = None) -> float:
        """Return the lower bound given by A, scaled down to be feasible."""
        A = self.loss.repair(A)
        q = self.bank.quads(A) if quads is None else quads
        return self.loss.dual(A) / self._excess(q)

    def _excess(self, quads: FloatArray) -> float:
        """Return the divisor that makes A feasible in the dual."""
        return max(1.0, max(self.weights.support(q) for q in quads)) ** 0.5

    def products(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return the scores ``K_c A_c``, shape (n, k)."""
        return self.bank.apply_each(theta, A)

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``A_c' K[m] A_c`` for every class, shape (k, M)."""
        return self.bank.quads(A)

    def weight_bounds(
        self,
        A: FloatArray,
        upper: float,
        quads: FloatArray | None = None,
        most: FloatArray | None = None,
    ) -> FloatArray:
        """Return upper bounds on all optimal weights, shape (k, M).

        At the optimum half of the regulariser is the penalty on d, so no weight of an
        lp ball exceeds ``upper``. For p = 1 and a feasible A, a weight raises the lower
        bound by ``½ d_c^r (1 - q_cr)`` and cannot raise it above ``upper``.
        """
        A = self.loss.repair(A)
        q = self.bank.quads(A) if quads is None else quads
        ball = isinstance(self.weights, LpBall)
        bounds = np.full(q.shape, upper if ball else np.inf)
        if self.weights.sparse:
            most = q if most is None else most  # rounding aside
            gap = max(upper - self.lowest(A, most), 0.0)
            short = 1.0 - most / self._excess(most) ** 2 - FEW
            below = short * upper > 2 * gap
            bounds[below] = 2 * gap / short[below]
        return bounds

    def take(self, rows: NDArray[np.intp], factor: float = 1.0) -> BilinearProblem:
        """Return the problem on some samples, their costs multiplied by ``factor``."""
        bank = self.bank[np.ix_(rows, rows)].stored(self.bank.memory_limit)
        return BilinearProblem(bank, self.loss.take(rows, factor), self.weights)

    def contributions(
        self, theta: FloatArray, A: FloatArray, quads: FloatArray | None = None
    ) -> FloatArray:
        """Return each kernel's share of ``|w_c|^2`` in each class, shape (k, M).

        Every row sums to one (uniform for a class with ``w_c = 0``). ``quads`` are
        those of A, if they are known.
        """
        return shares(theta * (self.bank.quads(A) if quads is None else quads))
