"""Newton's method in the weights for quadratic losses, from one factor each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.mkl import Problem
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Iterate, Iterates
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.inner import LinearSolver
from mklearn.solvers.interior import minimise_quadratic, outward

FloatArray = NDArray[np.float64]

_PATIENCE = 4  # steps that lower neither value nor gap before another solver goes on


def exact_newton(problem: Problem, inner: LinearSolver) -> Iterates:
    """Yield one iterate for each Cholesky factor: value, gradient and Hessian.

    For a quadratic loss the inner problem is a linear system, solved exactly, so that
    the steps can be trusted to the last digits. The quadratic model is minimised over
    the weight set by an interior-point method of the size of the number of kernels.
    Where no step lowers value or gap any more, cutting planes (p = 1) or the analytic
    update go on.
    """
    weights = problem.weights
    theta = base = inner.theta
    value, gap, slope, idle = np.inf, np.inf, np.zeros_like(theta), 0
    while idle < _PATIENCE:
        A, scores = inner.best(theta)
        S = problem.bank.multiply(A)  # (n, T, M)
        quads = np.einsum("it,itm->m", A, S)
        judgement = yield Iterate(theta, A, scores, quads)
        assert judgement is not None
        if len(theta) == 1 or getattr(weights, "p", None) == np.inf:
            return  # there is nothing to choose
        now, own = judgement.upper, judgement.upper - judgement.lower
        if now > value and own > 0.9 * gap:
            # too far: back along the line, to where the slopes at both ends say
            # that the value is least
            move = theta - base
            before, after = slope @ move, -0.5 * quads @ move
            part = before / (before - after) if before < 0 < after else 0.5
            theta, idle = base + min(max(part, 0.05), 0.7) * move, idle + 1
            continue
        idle = 0 if own < 0.9 * gap or value - now > 0.01 * own else idle + 1
        base, value, gap, slope = theta, now, own, -0.5 * quads
        model = inner.hessian(S)
        if now > 0 and not inner.system.sums.any():
            # The value J is of degree -1 in the matrix, so that 1 / J is concave
            # and nearly linear. Half of the curvature that this takes away makes
            # steps long enough where a weight is far too small.
            model -= np.outer(slope, slope) / now
        constraint = weights.constraint  # type: ignore[attr-defined]
        theta = minimise_quadratic(
            model, slope - model @ base, constraint, base, tol=1e-13
        )
        if getattr(weights, "p", None) == 1:
            theta = _polished(theta, slope + model @ (theta - base), model)
        if own > 1e-2 * abs(now):
            # near zero the value is steep: far from the end no weight goes there
            theta = outward(np.maximum(theta, 0.1 * base), constraint)
    sparse = getattr(weights, "p", None) == 1
    other = CuttingPlane() if sparse else Alternating()
    yield from other.iterates(problem, Iterate(base, A))


def _polished(theta: FloatArray, gradient: FloatArray, model: FloatArray) -> FloatArray:
    """Return where the quadratic model is least among weights with the same zeros.

    An interior-point method ends with errors that the last steps would feel; on the
    kernels that it chose, and a plane, the minimum is the solution of linear equations.
    """
    kept = np.flatnonzero(theta)
    k = len(kept)
    system = np.ones((k + 1, k + 1))
    system[:k, :k] = model[np.ix_(kept, kept)]
    system[k, k] = 0.0
    size = max(float(np.abs(system[:k, :k]).max()), 1e-300)
    system[:k, :k] /= size
    right = np.append(-gradient[kept] / size, 0.0)
    found = theta.copy()
    found[kept] += np.linalg.lstsq(system, right, rcond=1e-13)[0][:k]
    if (found < 0).any():
        return theta
    return np.asarray(found / found.sum())
