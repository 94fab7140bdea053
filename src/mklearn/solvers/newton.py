"""Second order in the weights: a Newton model from the free support vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from mklearn.problems.mkl import MKLProblem
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Iterate, Iterates
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.interior import minimise_quadratic
from mklearn.solvers.smo import FixedWeightsSolver, require_box

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Newton:
    """Newton steps on ``J(theta)``, the optimal value for fixed weights.

    With ``c = A`` and the free support vectors F, ``J`` has the gradient ``-½ c'K_m c``
    and, while the active set stays, the Hessian ``V' P V`` with ``V_m = (K_m c)_F`` and
    ``P = K_FF^-1 - K_FF^-1 1 1' K_FF^-1 / (1' K_FF^-1 1)``. The quadratic model plus a
    small multiple of the majorising term behind the analytic update is minimised over
    the weight set; a step that does not descend is followed by one on the line.

    Where the dual solution is not unique (kernels of low rank) no single one may prove
    that the weights are optimal. Cutting planes (p = 1) or the analytic update go on
    from where this solver makes no more progress.

    Parameters
    ----------
    accuracy : float
        How exactly the inner problem is solved, as a share of the current gap.
    damping : float
        Share of the majoriser's curvature that is added to the model at first.
    patience : int
        Iterations without progress before another solver takes over.
    """

    accuracy: float = 0.1
    damping: float = 1e-2
    patience: int = 20

    def check(self, problem: MKLProblem) -> None:
        """Require an ℓp ball and a loss whose inner problem SMO solves."""
        require_box(problem, "newton")
        if not hasattr(problem.weights, "p"):
            raise ValueError(
                "solver='newton' needs an lp ball of kernel weights; use "
                "solver='alternating' for other weight sets."
            )

    def iterates(self, problem: MKLProblem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each inner problem solved."""
        inner = FixedWeightsSolver(problem, start)
        p = problem.weights.p  # type: ignore[attr-defined]
        theta, allowed, damping = inner.theta, np.inf, self.damping
        best, lower, base, slope = np.inf, -np.inf, theta, np.zeros_like(theta)
        refused, least, idle = False, np.inf, 0
        while idle < self.patience:
            A, scores = yield from inner.solve(theta, allowed)
            quads, hessian = _second_order(problem, inner, A)
            judgement = yield Iterate(theta, A, scores, quads)
            assert judgement is not None
            value, lower = judgement.upper, max(lower, judgement.lower)
            gap = min(value, best) - lower
            least, idle = (gap, 0) if gap < 0.9 * least else (least, idle + 1)
            allowed = self.accuracy * gap
            # values are known as exactly as the inner problems were solved
            if value > best + min(allowed, 0.02 * abs(best)):
                # the model was too bold: go back along the line to where the slopes,
                # known at both ends, say that the value is least
                damping, refused = min(1.0, 10 * damping), True
                move = theta - base
                before, after = slope @ move, -0.5 * quads @ move
                share = before / (before - after) if before < 0 < after else 0.5
                theta = base + min(max(share, 0.05), 0.7) * move
                continue
            if value < best and not refused:
                damping = max(1e-6, damping / 5)  # trusted more as it proves itself
            best, base, slope, refused = value, theta, -0.5 * quads, False
            if p == np.inf:
                theta = np.ones_like(theta)
                continue
            majoriser = np.maximum(quads, 0.0) / np.maximum(theta, 0.1 / len(theta))
            model = hessian + np.diag(damping * majoriser)
            theta = minimise_quadratic(model, slope - model @ theta, p, theta)
        other = CuttingPlane(self.accuracy) if p == 1 else Alternating(self.accuracy)
        yield from other.iterates(problem, Iterate(base, A))


def _second_order(
    problem: MKLProblem, inner: FixedWeightsSolver, A: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return ``<A, K_m A>`` for each kernel, and the Hessian (M, M)."""
    used = np.flatnonzero(A.any(axis=1))
    M = problem.bank.shape[2]
    hessian = np.zeros((M, M))
    if len(used) == 0:
        return np.zeros(M), hessian
    a = A[used]
    S = problem.bank[np.ix_(used, used)].multiply(a)
    for t, task in enumerate(inner.tasks):
        box, c = task.box, a[:, t]
        free = np.flatnonzero((c > box.lower[used]) & (c < box.upper[used]))
        if len(free) < 2:
            continue
        K = inner.rows.block(used[free], used[free])
        factor = _factor(K)
        V = S[free, t, :]
        solved = cho_solve(factor, np.c_[V, np.ones(len(free))], check_finite=False)
        flat = solved[:, -1]
        along = V.T @ flat
        hessian += V.T @ solved[:, :-1] - np.outer(along, along) / flat.sum()
    return np.einsum("it,itm->m", a, S), (hessian + hessian.T) / 2


def _factor(K: FloatArray) -> tuple[FloatArray, bool]:
    """Return a Cholesky factor of ``K`` with the smallest ridge that allows one."""
    size = max(float(np.abs(np.diagonal(K)).max()), 1e-300)
    ridge = 1e-10
    while True:
        try:
            return cho_factor(K + ridge * size * np.eye(len(K)), lower=True)
        except LinAlgError:  # single precision, or a kernel that is not definite
            ridge *= 100
