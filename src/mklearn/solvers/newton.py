"""Newton's method in the weights, on the optimal value for fixed weights.

The Hessian is computed from the free support vectors or, for quadratic losses, from the
Cholesky factor that solves the inner problem.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs

from mklearn.kernels.factors import cholesky
from mklearn.problems.base import Judgement
from mklearn.problems.design import decisions
from mklearn.problems.mkl import MKLProblem, Problem, RoughProblem
from mklearn.problems.protocols import BoxLoss, SeparableLoss
from mklearn.problems.weights import ConvexSet
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Iterate, Iterates, Need
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.inner import (
    CoupledSolver,
    InnerSolver,
    LinearSolver,
    inner_solver,
)
from mklearn.solvers.interior import minimise_quadratic, outward

FloatArray = NDArray[np.float64]

# A subset of the free variables underestimates the curvature, which the line search and
# the damping make up for; all of them would take n^3 time and n^2 memory.
_MOST_FREE = 4000
_FEW = 3e6  # number of kernel values up to which computing all products is fastest
_ROUNDED = 0.5  # barrier parameter mu, in gaps per variable at a relative gap of one
_STIFF = 10.0  # multiples of the kernel values above which variables count as fixed
_IDLE = 4  # steps that lower neither value nor gap before another solver takes over


@dataclass(frozen=True)
class Newton:
    """Newton steps on ``J(theta)``, the optimal value for fixed weights.

    With ``c = A`` and its free entries F, ``J`` has the gradient ``-½ c'K_m c`` and, as
    long as the active set does not change, the Hessian ``V' P V`` with
    ``V_m = (K_m c)_F`` and ``P = B - B 1 1' B / (1' B 1)``, ``B = (K_FF + D)^-1``,
    where D is the curvature of the loss in the dual: it is zero for the hinge loss, and
    for smooth losses the Hessian is exact. The quadratic model plus a small multiple of
    the majorising term of the analytic update is minimised over the weight set. If a
    step does not decrease the value, a line search follows.

    If the dual solution is not unique (kernels of low rank), there may be no single
    dual point that proves the weights to be optimal. When this solver makes no more
    progress, cutting planes (p = 1) or the analytic update continue.

    Parameters
    ----------
    accuracy : float
        Accuracy of the inner problem, relative to the current gap.
    damping : float
        Initial share of the majoriser's curvature that is added to the model.
    patience : int
        Iterations without progress before another solver takes over.
    """

    accuracy: float = 0.1
    damping: float = 1e-2
    patience: int = 20

    needs = (
        Need(
            "Newton cannot couple the classes of the Crammer-Singer loss; use "
            "MulticlassNewton() or solver='newton'.",
            holds=lambda problem: problem.kind != "classes",
        ),
        Need(
            "solver='newton' needs a convex weight set with a smooth description, "
            "which {weights} is not; use solver='alternating'.",
            weights=ConvexSet,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each inner problem solved."""
        inner = inner_solver(problem, start)
        if isinstance(inner, LinearSolver):
            yield from _exact(problem, inner)
            return
        weights = problem.weights
        assert isinstance(weights, ConvexSet)
        constraint = weights.constraint
        products: FloatArray | None = None

        def quads_of(A: FloatArray) -> FloatArray:
            nonlocal products
            if isinstance(problem, RoughProblem):
                return inner.quads(A)
            few = len(A) ** 2 * problem.bank.shape[2] <= _FEW
            if few or isinstance(inner, CoupledSolver):
                # all products at once, because the model uses all of them, too
                products = inner.bank.multiply(A)
                return np.asarray(np.einsum("it,itm->m", A, products))
            products = None
            if isinstance(problem, MKLProblem):
                products = problem.products_inside(A)
            if products is None:
                return inner.quads(A)
            return problem.quads(problem.loss.repair(A))

        def propose(at: Trial, damping: float) -> FloatArray:
            theta, quads = at.theta, at.quads
            if weights.fixed:
                return problem.center()
            majoriser = np.maximum(quads, 0.0) / np.maximum(theta, 0.1 / len(theta))
            model = _hessian(problem, inner, at, products)
            model[np.diag_indices_from(model)] += damping * majoriser
            # the model is only as accurate as the gap, so its minimum need not be exact
            enough = min(max(1e-4 * at.relative_gap, 1e-9), 1e-6)
            pull = at.slope - model @ theta
            found = minimise_quadratic(model, pull, constraint, theta, enough)
            if at.relative_gap > 0.05:
                # the value is steep near zero: limit the decrease far from the optimum
                found = np.maximum(found, 0.1 * theta)
            return outward(found, constraint)

        last = yield from trusted_steps(
            inner, self, quads_of, lambda quads: -0.5 * quads, propose
        )
        other = CuttingPlane if weights.sparse else Alternating
        yield from other(self.accuracy).iterates(problem, last)


# --- inner problems solved by iteration -----------------------------------------------


class Inner(Protocol):
    """Solver for A at given weights."""

    theta: FloatArray

    def solve(
        self, theta: FloatArray, allowed: float
    ) -> Generator[Iterate, Any, tuple[FloatArray, FloatArray]]:
        """Return A and the scores, to a gap of ``allowed``."""


class Settings(Protocol):
    """Parameters of :func:`trusted_steps`."""

    @property
    def accuracy(self) -> float:
        """Accuracy of inner problems, relative to the gap."""

    @property
    def damping(self) -> float:
        """Initial share of the majoriser's curvature."""

    @property
    def patience(self) -> int:
        """Iterations without progress before the steps end."""


@dataclass(frozen=True)
class Trial:
    """Weights with their value and gradient, from which a model is built."""

    theta: FloatArray
    A: FloatArray
    quads: FloatArray
    slope: FloatArray
    value: float
    gap: float
    scores: FloatArray

    @property
    def relative_gap(self) -> float:
        """The gap at these weights, relative to the value."""
        return self.gap / max(abs(self.value), 1e-300)


def trusted_steps(
    inner: Inner,
    settings: Settings,
    quads_of: Callable[[FloatArray], FloatArray],
    slopes_of: Callable[[FloatArray], FloatArray],
    propose: Callable[[Trial, float], FloatArray],
) -> Generator[Iterate, Judgement | None, Iterate]:
    """Minimise ``J(theta)`` by steps of a model whose damping adapts to its accuracy.

    ``propose`` computes the next weights from a model with some damping. If a step does
    not decrease the value, a line search follows, and the damping grows. Yields one
    iterate for each inner problem; returns the last good one when there is no progress.
    """
    theta, allowed, damping = inner.theta, np.inf, settings.damping
    best, lower, gap, limit = np.inf, -np.inf, np.inf, np.inf
    base, slope = theta, np.zeros_like(theta)
    refused, least, idle = False, np.inf, 0
    while True:
        A, scores = yield from inner.solve(theta, allowed)
        quads = quads_of(A)
        judgement = yield Iterate(theta, A, scores, quads)
        assert judgement is not None
        value, own = judgement.upper, max(judgement.upper - judgement.lower, 0.0)
        exact, lower = allowed, max(lower, judgement.lower)
        left = max(min(value, best) - lower, 0.0)
        least, idle = (left, 0) if left < 0.9 * least else (least, idle + 1)
        if idle >= settings.patience:
            return Iterate(base, A)
        # gradient errors are of the order of the root of the inner gap
        share = min(1.0, 3 * (own / max(abs(value), 1e-300)) ** 0.5)
        allowed = min(settings.accuracy * share * left, limit)
        # near convergence, the gap is the better measure of progress
        if value > best and (own > 0.9 * gap or value > best + 0.02 * abs(best)):
            if value - best <= 10 * exact:  # limited by the inner accuracy: increase it
                best, gap, theta = np.inf, np.inf, base
                allowed = limit = 0.01 * min(allowed, exact)
                continue
            # the step was too long: go back along the line to the minimiser according
            # to the slopes, which are known at both ends
            damping, refused = min(1.0, 10 * damping), True
            move = theta - base
            before = float(np.sum(slope * move))
            after = float(np.sum(slopes_of(quads) * move))
            part = before / (before - after) if before < 0 < after else 0.5
            theta = base + min(max(part, 0.05), 0.7) * move
            continue
        if not refused:
            damping = max(1e-6, damping / 5)  # the model was accurate: trust it more
        best, gap, refused = min(value, best), own, False
        base, slope = theta, slopes_of(quads)
        theta = propose(Trial(theta, A, quads, slope, value, own, scores), damping)


def _curvature(problem: Problem, at: Trial) -> FloatArray:
    """Return the curvature of the dual term, with bounds smoothed according to the gap.

    A variable at a bound stays there only for small steps. As on the central path of an
    interior-point method, where the product of the distance to the bound and the slope
    s is mu, it has the curvature ``s^2 / mu``. Since mu decreases faster than the gap,
    only the free variables contribute in the limit.
    """
    loss, A, F = problem.loss, at.A, at.scores
    assert isinstance(loss, SeparableLoss)
    if not isinstance(loss, BoxLoss):
        return loss.curvature(A)
    n, T = A.shape
    mu = max(_ROUNDED * min(1.0, at.relative_gap) * at.gap / A.size, 1e-300)
    f = decisions(loss.design, F, loss.bias(F))
    out = np.empty_like(A)
    for t in range(T):
        box = loss.box(t)
        copies = len(box.linear) // n
        parts = [np.maximum(A[:, t], 0.0), np.minimum(A[:, t], 0.0)]
        c = np.concatenate(parts) if copies == 2 else A[:, t]
        slope = np.tile(f[:, t], copies) + box.linear + box.ridge * c
        rests = (c <= box.lower) | (c >= box.upper)
        stiff = box.ridge + np.where(rests, slope**2 / mu, 0.0)
        stiff[box.lower >= box.upper] = np.inf
        with np.errstate(divide="ignore"):  # compliances of both parts of a sample add
            out[:, t] = 1.0 / (1.0 / stiff).reshape(copies, n).sum(axis=0)
    # the stiffest, compared with the kernel they are added to, count as fixed
    typical = float(np.sum(A * F)) / max(float(np.sum(A**2)), 1e-300)
    free = np.isfinite(loss.curvature(A))
    return np.where(free | (out <= _STIFF * typical), out, np.inf)


def _hessian(
    problem: Problem, inner: InnerSolver, at: Trial, products: FloatArray | None
) -> FloatArray:
    """Return the Hessian, shape (M, M), at the solution ``A`` for fixed weights.

    ``products`` are ``K_m A`` (n, T, M), at least where A is not zero, if they are
    known.
    """
    A = at.A
    if isinstance(inner, CoupledSolver):
        V = inner.bank.multiply(A) if products is None else products
        hessian = inner.hessian(at.scores, V)
        return (hessian + hessian.T) / 2
    M = problem.bank.shape[2]
    hessian = np.zeros((M, M))
    curvature = _curvature(problem, at)
    design = problem.loss.design
    for t in range(A.shape[1]):
        free = np.flatnonzero(np.isfinite(curvature[:, t]))
        if len(free) < 2:
            continue
        if len(free) > _MOST_FREE:
            few = np.random.default_rng(t).permutation(len(free))[:_MOST_FREE]
            free = np.sort(free[few])
        used = np.flatnonzero(A[:, t])
        V = np.empty((len(free), M)) if products is None else products[free, t]
        left = np.arange(len(free))
        if products is not None:
            left = np.flatnonzero(~A[free].any(axis=1) & ~V.any(axis=1))
        if len(left):
            rest = inner.bank[np.ix_(free[left], used)]
            V[left] = rest.multiply(A[used, t])[:, 0, :]
        K = inner.block(free)
        K[np.diag_indices_from(K)] += curvature[free, t]
        E = np.ones((len(free), 1)) if design is None else design.basis[free]
        solved = dpotrs(stable_factor(K), np.hstack([V, E]), lower=1)[0]
        hessian += V.T @ solved[:, :M]
        if design is not None:
            along = V.T @ solved[:, M:]
            hessian -= along @ np.linalg.pinv(E.T @ solved[:, M:]) @ along.T
        elif problem.loss.hyperplane:
            along = V.T @ solved[:, -1]
            hessian -= np.outer(along, along) / solved[:, -1].sum()
    return (hessian + hessian.T) / 2


def stable_factor(K: FloatArray) -> FloatArray:
    """Return a lower Cholesky factor of ``K`` with the smallest possible ridge."""
    size = max(float(np.abs(K.diagonal()).max()), 1e-300)
    ridge = 1e-10
    while True:
        regular = K.copy()
        regular.ravel()[:: len(K) + 1] += ridge * size
        factor, found = cholesky(regular.T)
        if found:
            return factor
        ridge *= 100  # single precision, or an indefinite kernel


# --- quadratic losses: inner problems solved exactly ----------------------------------


def _exact(problem: Problem, inner: LinearSolver) -> Iterates:
    """Yield one iterate for each Cholesky factor: value, gradient and Hessian.

    For a quadratic loss the inner problem is a linear system, which is solved exactly,
    so steps are accurate to the last digits. The quadratic model is minimised over the
    weight set by an interior-point method in as many variables as there are kernels.
    When no step decreases value or gap any more, cutting planes (p = 1) or the analytic
    update continue.
    """
    weights = problem.weights
    assert isinstance(weights, ConvexSet)
    constraint = weights.constraint
    theta = base = inner.theta
    value, gap, slope, idle = np.inf, np.inf, np.zeros_like(theta), 0
    refused = False
    while idle < _IDLE:
        A, scores = inner.best(theta)
        S = problem.bank.multiply(A)  # (n, T, M)
        quads = np.einsum("it,itm->m", A, S)
        judgement = yield Iterate(theta, A, scores, quads)
        assert judgement is not None
        if len(theta) == 1 or weights.fixed:
            return  # there is nothing to choose
        now, own = judgement.upper, judgement.upper - judgement.lower
        if now > value and own > 0.9 * gap:
            # too long: back along the line, to the minimiser according to the slopes
            # at both ends
            move = theta - base
            before, after = slope @ move, -0.5 * quads @ move
            part = before / (before - after) if before < 0 < after else 0.5
            theta, idle = base + min(max(part, 0.05), 0.7) * move, idle + 1
            refused = True
            continue
        idle = 0 if own < 0.9 * gap or value - now > 0.01 * own else idle + 1
        base, value, gap, slope = theta, now, own, -0.5 * quads
        model = inner.hessian(S)
        if now > 0 and not inner.system.sums.any():
            # The value J is homogeneous of degree -1 in the matrix, so 1 / J is
            # concave and nearly linear. Subtracting half of the corresponding
            # curvature makes steps long enough if a weight is far too small.
            model -= np.outer(slope, slope) / now
        # as exactly as possible, even far from the optimum: a learned regulariser may
        # have a weight of 1e-7, from whose errors later steps hardly recover
        pull = slope - model @ base
        theta = minimise_quadratic(model, pull, constraint, base, 1e-13)
        if weights.sparse:
            theta = _polished(theta, slope + model @ (theta - base), model)
        if refused or own > 1e-2 * abs(now):
            # the value is steep near zero: limit the decrease far from the optimum, and
            # where the model has just proposed a step that was too long
            theta = outward(np.maximum(theta, 0.1 * base), constraint)
        refused = False
    other = CuttingPlane() if weights.sparse else Alternating()
    yield from other.iterates(problem, Iterate(base, A))


def _polished(theta: FloatArray, gradient: FloatArray, model: FloatArray) -> FloatArray:
    """Return the minimiser of the quadratic model among weights with the same zeros.

    The errors of an interior-point method would disturb the last steps. On the kernels
    that it selected, with a fixed sum, the minimiser solves a linear system.
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
