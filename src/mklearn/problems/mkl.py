"""The multiple kernel learning problem: formula, values and certificate.

    min over theta in Theta   max over A   loss.dual(A) - ½ sum_m theta[m] <A, K[m] A>

For any feasible ``A`` the dual value ``loss.dual(A) - ½ support(q(A))`` bounds the
optimum from below; for any member ``theta`` and any ``A`` the primal value at
``w_m = theta_m Phi_m' A`` and the best bias bounds it from above.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.bank import KernelBank
from mklearn.problems.losses import Loss
from mklearn.problems.weights import WeightSet

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Judgement:
    """Bounds on the optimum that one iterate proves."""

    upper: float
    lower: float
    bias: FloatArray = field(repr=False)

    @property
    def gap(self) -> float:
        """Relative duality gap."""
        return relative_gap(self.upper, self.lower)


def relative_gap(upper: float, lower: float) -> float:
    """Return ``|upper - lower| / max(|upper|, |lower|, tiny)``.

    Bounds that cross by more than rounding prove nothing (a kernel is not positive
    semidefinite, or a solver claims what is not so), and count as a gap; bounds
    that are not finite make it infinite.
    """
    if not (np.isfinite(upper) and np.isfinite(lower)):
        return np.inf
    size = max(abs(upper), abs(lower), np.finfo(float).tiny)
    return abs(upper - lower) / size


@dataclass(frozen=True)
class MKLProblem:
    """Bank of kernels x loss x weight set.

    Parameters
    ----------
    bank : KernelBank
        Square and normalised.
    loss : Loss
    weights : WeightSet
    """

    bank: KernelBank
    loss: Loss
    weights: WeightSet

    def __post_init__(self) -> None:
        n, m, _ = self.bank.shape
        if n != m or n != self.loss.shape[0]:
            raise ValueError(
                f"The bank is {n} x {m} and the loss has {self.loss.shape[0]} samples; "
                "a problem needs a square bank on the samples of the loss."
            )

    def judge(
        self,
        theta: FloatArray,
        A: FloatArray,
        scores: FloatArray | None = None,
        quads: FloatArray | None = None,
    ) -> Judgement:
        """Return the bounds that ``(theta, A)`` proves.

        Parameters
        ----------
        theta : array of shape (M,)
        A : array of shape (n, T)
        scores : array of shape (n, T), optional
            ``K_theta A`` as claimed by a solver; computed from the bank otherwise.
        quads : array of shape (M,), optional
            ``<A, K[m] A>`` as claimed by a solver.
        """
        A = self.loss.repair(A)
        if not self.weights.contains(theta):
            raise ValueError("theta is not in the weight set; a solver is at fault.")
        F = self.bank.apply(theta, A) if scores is None else scores
        q = self.bank.quad(A) if quads is None else quads
        bias = self.loss.bias(F)
        upper = self.loss.primal(F, bias) + self.weights.regulariser(theta, q)
        return Judgement(upper, self.dual(A, q), bias)

    def dual(self, A: FloatArray, quads: FloatArray | None = None) -> float:
        """Return the lower bound that a feasible ``A`` proves."""
        A = self.loss.repair(A)
        q = self.bank.quad(A) if quads is None else quads
        return self.loss.dual(A) - 0.5 * self.weights.support(q)

    def weight_bounds(self, A: FloatArray, upper: float) -> FloatArray:
        """Return bounds that no optimal weights exceed, shape (M,), for p = 1.

        Every feasible ``A`` has ``J(theta) >= dual.term - ½ theta'q``, so a weight
        ``theta_m`` lifts the lower bound by ``½ theta_m (max q - q_m)`` and cannot lift
        it above ``upper``. For other norms the bounds are ones.

        Where the dual term of the loss is strongly concave (not for the hinge loss),
        the best A is in a ball around A whose radius follows from the gap; a kernel
        whose quadratic form cannot be the largest in that ball has weight zero at every
        optimum, and so has its bound.
        """
        n_kernels = self.bank.shape[2]
        if getattr(self.weights, "p", None) != 1:
            return np.ones(n_kernels)
        q = self.bank.quad(self.loss.repair(A))
        gap = max(upper - self.dual(A, q), 0.0)
        short = q.max() - q
        bounds = np.ones(n_kernels)
        below = short > 2 * gap
        bounds[below] = 2 * gap / short[below]
        if self.loss.concavity > 0:
            # the trace is at least the largest eigenvalue
            reach = (2 * gap / self.loss.concavity) ** 0.5
            reach = reach * np.maximum(self.bank.diag().sum(axis=0), 0.0) ** 0.5
            root = np.maximum(q, 0.0) ** 0.5
            bounds[root + reach < np.max(root - reach)] = 0.0
        return bounds

    def take(self, rows: NDArray[np.intp], factor: float = 1.0) -> MKLProblem:
        """Return the problem on some samples, their costs multiplied by ``factor``."""
        bank = self.bank[np.ix_(rows, rows)].stored(self.bank.memory_limit)
        return MKLProblem(bank, self.loss.take(rows, factor), self.weights)

    def contributions(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (M,).

        The shares do not depend on the scale of the kernels and sum to one (uniform
        where the solution is zero).
        """
        part = theta * np.maximum(self.bank.quad(A), 0.0)
        total = part.sum()
        return part / total if total > 0 else np.full(len(theta), 1.0 / len(theta))
