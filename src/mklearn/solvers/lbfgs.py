"""L-BFGS on the smooth dual of the squared loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from mklearn.problems.losses import Squared
from mklearn.problems.mkl import Problem
from mklearn.problems.weights import LpBall
from mklearn.solvers.base import Iterate, Iterates, Need

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class LBFGS:
    """``max y'A - |A|^2 / (2 C) - ½ |(<A, K_m A>)_m|_{p*}`` without constraints.

    For the squared loss the dual of LPMKL (section 3.4) is smooth for p in (1, inf):
    a quasi-Newton method needs no inner solver, only one pass over the kernels for
    each step, and no combined kernel is factorised. This is useful if n is large and
    C small; with large C or p near 1 the dual is badly conditioned, and Newton is the
    better choice. The variables are scaled by ``sqrt(C)``; the bias is handled by
    projection onto columns that sum to zero.

    Parameters
    ----------
    memory : int
        Number of pairs of vectors that approximate the curvature.
    stretch : int
        Number of steps between the first two iterates; it doubles each time.
    """

    memory: int = 20
    stretch: int = 5

    needs = (
        Need(
            "solver='lbfgs' needs loss='squared' and a norm in (1, inf), for which the "
            "dual is smooth and free; got {loss} and {weights}. Use solver='newton' or "
            "solver='alternating'.",
            loss=Squared,
            weights=LpBall,
            holds=lambda problem: 1 < problem.weights.exponent < np.inf,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield an iterate after each run of steps."""
        dual = _Dual(problem)
        A = np.zeros(problem.loss.shape) if start is None else start.A
        A = problem.loss.repair(A)
        before, steps = np.inf, self.stretch
        while True:
            found = minimize(
                dual,
                dual.variables(A),
                jac=True,
                method="L-BFGS-B",
                options={
                    "maxiter": steps,
                    "maxcor": self.memory,
                    "ftol": 1e-16,
                    "gtol": 1e-15 * dual.size,
                },
            )
            A = dual.point(found.x)
            quads = problem.bank.quad(A)
            theta = dual.weights(quads)
            yield Iterate(theta, A, quads=quads)
            if not found.fun < before:  # rounding: no step improves
                return
            before = float(found.fun)
            # each call starts without curvature information, so runs get longer
            steps *= 2


class _Dual:
    """Minus the dual and its gradient, in the variables ``A / sqrt(C)``."""

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.loss, Squared) and isinstance(problem.weights, LpBall)
        self.problem, self.loss, self.p = problem, problem.loss, problem.weights.p
        self.root = np.sqrt(self.loss.C)
        self.size = max(float(np.abs(self.root * self.loss.Y).max()), 1e-300)

    def point(self, x: FloatArray) -> FloatArray:
        return self.loss.repair(self.root * x.reshape(self.root.shape))

    def variables(self, A: FloatArray) -> FloatArray:
        return np.divide(
            A, self.root, out=np.zeros_like(A), where=self.root > 0
        ).ravel()

    def weights(self, quads: FloatArray) -> FloatArray:
        """Return the gradient of the dual norm, a member of the ball."""
        q = np.maximum(quads, 0.0)
        if not q.any():
            return self.problem.weights.center(len(q))
        # p* - 1 = 1 / (p - 1)
        theta = (q / q.max()) ** (1.0 / (self.p - 1.0))
        norm = float(np.sum(theta**self.p)) ** (1.0 / self.p)
        return np.asarray(theta / norm)

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        A = self.point(x)
        quads = self.problem.bank.quad(A)
        value = -self.loss.dual(A) + 0.5 * self.problem.weights.support(quads)
        scores = self.problem.bank.apply(self.weights(quads), A)
        slope = np.divide(A, self.loss.C, out=np.zeros_like(A), where=self.root > 0)
        slope = self.root * (slope - self.loss.Y + scores)
        if self.loss.design is not None:
            for t, root in enumerate(self.root.T):
                E = np.linalg.qr(root[:, None] * self.loss.design.basis)[0]
                slope[:, t] -= E @ (E.T @ slope[:, t])
        elif self.loss.hyperplane:
            # in these variables, repair is the orthogonal projection away from root
            along = np.sum(self.root * slope, axis=0) / np.sum(self.root**2, axis=0)
            slope = slope - self.root * along
        return value, slope.ravel()
