"""First- and second-order methods for the weights of the Crammer-Singer loss.

Both solvers minimise ``J(theta)``, the optimal value for given weights, whose gradient
is ``½ - ½ A_c' K_r A_c`` with weights per class (and ``-½ sum_c A_c' K_r A_c`` on the
simplex, with weights shared by the classes). The closed-form update
``d_c^r = |w_c^r|`` is implemented in :class:`Alternating`, for every problem.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dpotri, dpotrs
from scipy.optimize import linprog

from mklearn.data.compiling import njit
from mklearn.problems.base import Judgement
from mklearn.problems.coupled import CrammerSinger
from mklearn.problems.mkl import Problem
from mklearn.problems.weights import Constraint, ConvexSet, WeightSet
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Iterate, Iterates, Need
from mklearn.solvers.beside import sweeps
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.interior import Describe, minimise_quadratic
from mklearn.solvers.newton import Trial, stable_factor, trusted_steps
from mklearn.solvers.sweeps import SampleSweeps

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

# A subset of the free variables underestimates the curvature, which the line search and
# the damping make up for; all of them would take n^3 time and n^2 memory.
_MOST_FREE = 3000
_CLOSE, _MOST_MIXED, _GAIN = 0.05, 24, 0.2  # mixtures: largest gap, points, least gain
_QUICK = 0.3  # no mixtures after steps that leave a smaller share of the gap
_IDLE = 10
_FAR, _LEAST = 0.05, 0.1  # for gaps above _FAR, the largest decrease of a weight


@dataclass(frozen=True)
class MulticlassNewton:
    """Newton steps on ``J(theta)`` for the Crammer-Singer loss.

    At a solution A some variables are below their bounds, and change with the weights
    such that rows of A still sum to zero. With the kernels ``K_c`` between the free
    variables of each class, ``U_cr = K_r A_c`` on them, and E the incidence matrix of
    variables and samples, the Hessian of J is ::

        U'(B - B E (E'B E)^-1 E'B) U,    B = blockdiag(K_c^-1)

    as long as the active set does not change: one factorisation for each class and one
    for the samples. If the space of changes that keep the sums is small (especially for
    two classes), it is computed from a basis Z of this space, ``V'(Z'KZ)^-1 V`` with
    ``V = Z'U``. The quadratic model plus a small multiple of the majorising term of the
    closed-form update is minimised over the weights, which are nonnegative (per class)
    or on the simplex (shared). If a step does not decrease the value, a line search
    follows.

    Parameters
    ----------
    accuracy : float
        Accuracy of the inner problem, relative to the current gap.
    damping : float
        Initial share of the majoriser's curvature that is added to the model.
    patience : int
        Iterations without progress before the closed-form update takes over.
    first : int
        Maximum number of closed-form updates before the first model.
    seed : int
        Seed of the order in which samples are visited.
    """

    accuracy: float = 0.1
    damping: float = 1e-2
    patience: int = 20
    first: int = 1
    seed: int = 0

    needs = (
        Need(
            "This 'newton' solver is for the Crammer-Singer loss, got {loss}; use "
            "solver='auto'.",
            loss=CrammerSinger,
        ),
        Need(
            "solver='newton' with weights per class needs norm=1; use "
            "solver='alternating', which is fast for larger norms.",
            holds=lambda problem: problem.weights.sparse or not problem.per_class,
        ),
        Need(
            "solver='newton' needs a convex weight set with a smooth description, "
            "which {weights} is not; use solver='alternating'.",
            weights=ConvexSet,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each inner problem solved."""
        inner = sweeps(problem, start, self.seed)
        per_class = problem.per_class
        floor = 0.1  # lower limit for the weights of a class, relative to the mean
        first = self.first

        def propose(at: Trial, damping: float) -> FloatArray:
            nonlocal first, floor
            if problem.weights.fixed:
                return problem.center()
            if first > 0 and at.relative_gap > 0.05:
                # far from the optimum, the closed-form update is cheap and good enough
                first -= 1
                return problem.step(at.theta, at.quads)
            theta = _propose(problem, inner, at, damping)
            if per_class:
                # the A of a class is determined by a term in proportion to its weights,
                # so a model needs an inner accuracy well below that term
                inner.sharp = 0.05
                if at.relative_gap > _FAR:
                    theta = np.maximum(theta, _LEAST * at.theta)
                theta = _alive(problem, theta, at, floor * float(theta.mean()))
                floor = max(0.5 * floor, 1e-9)
            return theta

        steps = trusted_steps(
            inner, self, inner.quads, lambda quads: _slopes(quads, per_class), propose
        )
        if per_class:
            cuts = _Cuts(problem)
            yield from _with_mixtures(steps, cuts)
            last = yield from _lowest_points(inner, cuts)
        else:
            last = yield from steps
        sparse = not per_class and problem.weights.sparse
        other = CuttingPlane(self.accuracy) if sparse else Alternating(self.accuracy)
        yield from other.iterates(problem, last)


class _Cuts:
    """The dual points of the last iterates, as cutting planes and for mixtures.

    Classes with zero weight have no term in the dual, so the optimal A for given
    weights is not unique: each solution may violate ``A_c' K_r A_c <= 1`` for another
    class, while a convex combination does not. The quads of a mixture are at most the
    mixture of the quads, so a linear program finds the mixture with the best bound. Its
    multipliers are the weights that minimise the maximum of the tangents of J that the
    dual points define.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.kept: list[Iterate] = []
        self.values: list[float] = []
        self.upper, self.lower = np.inf, -np.inf
        self.left = np.inf
        self.theta = problem.center()

    def add(self, point: Iterate, judged: Judgement) -> Iterate | None:
        """Add a judged point; return a mixture with a better bound, if there is one."""
        if judged.upper < self.upper:
            self.upper, self.theta = judged.upper, point.theta
        self.lower = max(self.lower, judged.lower)
        before, left = self.left, self.upper - self.lower
        self.left = left
        if left > _CLOSE * abs(self.upper):
            return None
        loss = self.problem.loss
        self.kept = [*self.kept[1 - _MOST_MIXED :], point]
        self.values = [
            *self.values[1 - _MOST_MIXED :], loss.dual(loss.repair(point.A))
        ]  # fmt: skip
        if left <= _QUICK * before:
            return None
        shares, _ = self.lowest()
        if shares @ np.array(self.values) <= self.lower + _GAIN * left:
            return None
        A = sum(share * one.A for share, one in zip(shares, self.kept, strict=True))
        return Iterate(self.theta, np.asarray(A))

    def lowest(self) -> tuple[FloatArray, FloatArray]:
        """Return shares of the best mixture, and the weights that minimise the cuts."""
        known = [one.quads.ravel() for one in self.kept if one.quads is not None]
        quads = np.maximum(known, 0.0)
        size = max(map(abs, self.values)) or 1.0
        found = linprog(
            -np.array(self.values) / size,
            np.vstack([quads.T, np.ones(len(self.kept))]),
            np.ones(quads.shape[1] + 1),
            bounds=(0.0, None),
            method="highs-ds",
        )
        if found.status != 0:
            return np.zeros(len(self.kept)), self.theta
        weights = -2.0 * size * found.ineqlin.marginals[:-1]
        return found.x, np.maximum(weights, 0.0).reshape(self.theta.shape)


def _with_mixtures(
    steps: Generator[Iterate, Judgement | None, Iterate], cuts: _Cuts
) -> Generator[Iterate, Judgement | None, Iterate]:
    """Yield the points of the steps, and mixtures that give better bounds."""
    try:
        point = next(steps)
        while True:
            judged = yield point
            if point.complete and judged is not None:
                mixture = cuts.add(point, judged)
                if mixture is not None:
                    other = yield mixture
                    assert other is not None
                    cuts.lower = max(cuts.lower, other.lower)
            point = steps.send(judged)
    except StopIteration as end:
        last: Iterate = end.value
        return last


def _lowest_points(
    inner: SampleSweeps, cuts: _Cuts
) -> Generator[Iterate, Judgement | None, Iterate]:
    """Step halfway to the minimiser of the cuts, as long as the gap decreases."""
    A, idle = inner.A, 0
    while idle < _IDLE and cuts.kept:
        left = cuts.upper - cuts.lower
        _, goal = cuts.lowest()
        theta = 0.5 * (cuts.theta + goal)
        A, scores = yield from inner.solve(theta, 1e-3 * left)
        point = Iterate(theta, A, scores, inner.quads(A))
        judged = yield point
        assert judged is not None
        mixture = cuts.add(point, judged)
        if mixture is not None:
            other = yield mixture
            assert other is not None
            cuts.lower = max(cuts.lower, other.lower)
        idle = idle + 1 if cuts.upper - cuts.lower > 0.9 * left else 0
    return Iterate(cuts.theta, A)


def _propose(
    problem: Problem, inner: SampleSweeps, at: Trial, damping: float
) -> FloatArray:
    """Return the weights that minimise the model."""
    theta = at.theta
    # kernels near zero whose gradient keeps them there are left out of the model
    q = np.maximum(at.quads, 0.0)
    near = q > 0.7 * (1.0 if theta.ndim == 2 else float(q.max()))
    kept = near | (theta > 1e-3 * theta.mean())
    old, q, slope = theta[kept], q[kept], at.slope[kept]
    floor = 0.1 * float(theta.mean())
    model = _hessian(inner, at.A, kept)
    model[np.diag_indices_from(model)] += damping * q / np.maximum(old, floor)
    linear = slope - model @ old
    # the gain of a step is of second order in the gap, and so is the tolerance
    exactness = max(min(1e-6, 1e-3 * at.relative_gap**2), 1e-11)
    out = np.zeros_like(theta)
    if theta.ndim == 1:
        constraint = _part(problem.weights, kept)
        out[kept] = minimise_quadratic(model, linear, constraint, old, exactness)
        return out
    # the model is not valid far from the current weights
    reach = 4.0 * float(old.sum())
    out[kept] = reach * minimise_quadratic(
        reach**2 * model, reach * linear, _simplex, old / reach, exactness
    )
    return out


def _alive(problem: Problem, theta: FloatArray, at: Trial, least: float) -> FloatArray:
    """Return weights in which no class is zero.

    A class with zero weights has no term in the dual, so its optimal A is not unique,
    and few solutions prove that zero is optimal. Those that do are limits for weights
    that converge to zero. A class therefore keeps a total weight of ``least``, which
    decreases from step to step, distributed over its kernels by the closed-form update.
    """
    out = theta.copy()
    for c in np.flatnonzero(theta.sum(axis=1) < least):
        out[c] = least * problem.weights.step(at.theta[c], at.quads[c])
    return out


def _part(weights: WeightSet, kept: NDArray[np.bool_]) -> Describe:
    """Return the constraint function of a set in some weights, with the others zero."""
    assert isinstance(weights, ConvexSet)

    def constraint(x: FloatArray) -> Constraint:
        full = np.zeros(len(kept))
        full[kept] = x
        at = weights.constraint(full)
        return Constraint(at.value, at.gradient[kept], at.hessian[np.ix_(kept, kept)])

    return constraint


def _simplex(x: FloatArray) -> Constraint:
    return Constraint(float(x.sum()), np.ones_like(x), np.zeros((len(x), len(x))))


def _slopes(quads: FloatArray, per_class: bool) -> FloatArray:
    return 0.5 - 0.5 * quads if per_class else -0.5 * quads


def _hessian(inner: SampleSweeps, A: FloatArray, kept: NDArray[np.bool_]) -> FloatArray:
    """Return the Hessian of J in the weights that are kept."""
    k = A.shape[1]
    D = np.broadcast_to(inner.theta, (k, inner.theta.shape[-1]))
    place = np.broadcast_to(np.cumsum(kept).reshape(kept.shape) - 1, D.shape)
    hessian = np.zeros((int(place.max()) + 1,) * 2)
    kept = np.broadcast_to(kept, D.shape)
    free = _free(inner.loss, A)
    # a class near zero has only the curvature of the damping
    free[:, (D.max(axis=1) <= 1e-8 * D.max()) | ~kept.any(axis=1)] = False
    free[free.sum(axis=1) < 2] = False
    samples = np.flatnonzero(free.any(axis=1))
    # four matrices of this size are in use at a time
    room = int((inner.products.block_bytes / 32) ** 0.5)
    most = min(_MOST_FREE, max(room, 500))
    if len(samples) > most:
        samples = np.random.default_rng(0).permutation(samples)[:most]
        samples.sort()
    free = free[samples]
    if not free.any():
        return hessian
    S = inner.products.at(samples, A)  # (M, w, k)
    parts = []
    for c in map(int, np.flatnonzero(free.any(axis=0))):
        rows = np.flatnonzero(free[:, c])
        K = inner.between(c, samples[rows])
        # a small ridge for numerical stability
        K.ravel()[:: len(K) + 1] += 1e-8 * max(float(K.diagonal().max()), 1e-300)
        U = np.ascontiguousarray(S[kept[c]][:, rows, c].T)
        parts.append((c, rows, K, U, place[c, kept[c]]))
    # either the variables beyond one for each sample, or all variables by class
    n_beyond = int(free.sum()) - len(samples)
    work = 3 * sum(len(rows) ** 3 for _, rows, *_ in parts) + len(samples) ** 3
    if n_beyond**3 <= work and n_beyond <= most:
        return _within(free, parts, hessian)
    across = np.zeros((len(samples), len(hessian)))
    schur = np.zeros((len(samples), len(samples)), order="F")  # its lower triangle
    for _, rows, K, U, columns in parts:
        inverse = dpotri(stable_factor(K), lower=1, overwrite_c=1)[0]  # lower triangle
        moved = dsymm(1.0, inverse, U, lower=1)
        across[np.ix_(rows, columns)] += moved
        hessian[np.ix_(columns, columns)] += U.T @ moved
        _add_lower(schur, inverse, rows)
    between = stable_factor(schur.T)  # which reads the other triangle
    hessian -= across.T @ dpotrs(between, across, lower=1)[0]
    return (hessian + hessian.T) / 2


def _within(
    free: NDArray[np.bool_],
    parts: list[tuple[int, Index, FloatArray, FloatArray, Index]],
    hessian: FloatArray,
) -> FloatArray:
    """Return the same in variables that keep the sums of rows: ``V'(Z'KZ)^-1 V``.

    Each variable raises one class of a sample and lowers its first free class by the
    same amount.
    """
    base = free.argmax(axis=1)
    number = np.cumsum(free.sum(axis=1) - 1)
    first = np.concatenate([[0], number])  # the variables of each sample
    own = free.copy()
    own[np.arange(len(free)), base] = False
    own_number = np.cumsum(own).reshape(own.shape) - 1
    size = int(number[-1])
    G, V = np.zeros((size, size)), np.zeros((size, len(hessian)))
    for c, rows, K, U, columns in parts:
        lowered = base[rows] == c
        begin = np.where(lowered, first[rows], own_number[rows, c])
        end = np.where(lowered, first[rows + 1], begin + 1)
        sign = np.where(lowered, -1.0, 1.0)
        _add_within(G, V, K, U, columns, begin, end, sign)
    hessian += V.T @ dpotrs(stable_factor(G), V, lower=1)[0]
    return (hessian + hessian.T) / 2


@njit(cache=True, nogil=True)
def _add_within(G, V, K, U, columns, begin, end, sign):  # type: ignore[no-untyped-def]
    # adds one class to the upper triangle of G; variables are ordered by sample
    for a in range(len(begin)):
        for v in range(begin[a], end[a]):
            for j in range(columns.size):
                V[v, columns[j]] += sign[a] * U[a, j]
            for b in range(a, len(begin)):
                for w in range(begin[b], end[b]):
                    G[v, w] += sign[a] * sign[b] * K[a, b]


@njit(cache=True, nogil=True)
def _add_lower(out, part, rows):  # type: ignore[no-untyped-def]
    # for matrices in Fortran order and ascending rows
    for b in range(rows.size):
        for a in range(b, rows.size):
            out[rows[a], rows[b]] += part[a, b]


def _free(loss: CrammerSinger, A: FloatArray) -> NDArray[np.bool_]:
    """Return which variables are below their bounds."""
    # variables that have hardly left their bound do not count
    tiny = 1e-9 * loss.C[:, None]
    return np.asarray(np.where(loss.own, A < loss.C[:, None] - tiny, -tiny > A))


@dataclass(frozen=True)
class ProjectedGradient:
    """Projected gradient with line search and rescaling, of Kobayashi & Otsu.

    After each inner problem ``A_c`` and ``d_c`` are rescaled to ``s_c A_c`` and
    ``d_c / s_c`` with ``s_c = sqrt(sum(d_c) / d_c'q_c)``, which does not change the
    scores and minimises the regulariser; the gradient there gives the direction. The
    step is doubled after each decrease of J, and quartered otherwise.

    Parameters
    ----------
    accuracy : float
        Accuracy of the inner problem, relative to the current gap.
    seed : int
        Seed of the order in which samples are visited.
    """

    accuracy: float = 0.1
    seed: int = 0

    needs = (
        Need(
            "This 'projected_gradient' solver is for the Crammer-Singer loss, got "
            "{loss}; use solver='auto'.",
            loss=CrammerSinger,
        ),
        Need(
            "solver='projected_gradient' needs weights per class and norm=1; use "
            "solver='alternating' for other norms, solver='reduced_gradient' for "
            "weights that the classes share.",
            holds=lambda problem: problem.per_class and problem.weights.sparse,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each inner problem solved."""
        inner = sweeps(problem, start, self.seed)
        theta, allowed, step = inner.theta, np.inf, 1.0
        upper, lower = np.inf, -np.inf
        value, slope = np.inf, np.zeros_like(theta)
        base, failed = theta, 0
        while True:
            A, scores = yield from inner.solve(theta, allowed)
            quads = inner.quads(A)
            judgement = yield Iterate(theta, A, scores, quads)
            assert judgement is not None
            upper = min(upper, judgement.upper)
            lower = max(lower, judgement.lower)
            gap = max(upper - lower, 0.0)
            allowed = self.accuracy * gap * min(1.0, 10 * gap / max(upper, 1e-300))
            # once d is rescaled, (7) is the group norm of w
            if judgement.upper < value:
                value, failed = judgement.upper, 0
                base = _rescaled(theta, quads)
                ratio = np.divide(theta, base, out=np.ones_like(theta), where=base > 0)
                slope = 0.5 - 0.5 * quads * ratio**2
                step *= 2.0
            else:
                failed += 1
                step /= 4.0
            if failed > 15:  # limited by the inner accuracy: start again from here
                value, failed, step = np.inf, 0, 1.0
                allowed *= 0.01
                theta = base
                continue
            theta = np.maximum(base - step * slope * base.mean(), 0.0)
            # a class with zero weights would have no gradient to leave zero
            theta = np.where(theta.any(axis=1, keepdims=True), theta, 1e-3 * base)


def _rescaled(theta: FloatArray, quads: FloatArray) -> FloatArray:
    """Return ``d_c / s_c``, ``s_c = sqrt(sum(d_c) / d_c'q_c)``, BIL (16)-(18)."""
    norm2 = np.sum(theta * np.maximum(quads, 0.0), axis=1)
    total = theta.sum(axis=1)
    factor = np.divide(norm2, total, out=np.ones_like(total), where=total > 0) ** 0.5
    return np.asarray(theta * np.where(factor > 0, factor, 1.0)[:, None])
