"""Conic programs: the full dual problem, for a general interior-point solver."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.spelling import plural
from mklearn.problems.coupled import CrammerSinger
from mklearn.problems.discriminant import Fisher
from mklearn.problems.losses import Logistic, Squared, Summed
from mklearn.problems.mkl import Problem
from mklearn.problems.protocols import BoxLoss
from mklearn.problems.weights import BlockNorm, ConvexSet, ElasticNet, Ellipsoid, LpBall
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Iterate, Iterates, Need
from mklearn.solvers.inner import LinearSolver, inner_solver, linear_system
from mklearn.solvers.interior import outward
from mklearn.solvers.multiclass_newton import MulticlassNewton
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]

_LOSSES = (BoxLoss, Squared, Logistic, Fisher, CrammerSinger)
_SETS = (LpBall, Ellipsoid, ElasticNet, BlockNorm)


@dataclass(frozen=True)
class Conic:
    """``max D(A) - ½ support(q)`` subject to ``<A, K_m A> <= q_m``, by cvxpy.

    With p = 1 this is the QCQP of Lanckriet et al. (2004): the hinge loss gives their
    1-norm soft margin (SM1), the squared hinge loss the 2-norm soft margin (SM2), and
    :func:`mklearn.problems.learned_cost` the latter with C learned (SM2_C). The
    weights are the multipliers of the constraints. Other norms become second-order or
    power cones, the logistic loss exponential cones. The criteria of discriminant
    analysis give the QCQPs of DKL: (13), (34) and, with reg learned, (43), (46). With
    the Crammer-Singer loss and p = 1 it is the program of Zien & Ong (2007); weights
    per class give the second-order cone program ``max sum_i A_iy`` with ``A_c' K_r A_c
    <= 1``.

    It factorises every kernel and passes all of them to a general solver, so it is
    meant as a reference for up to a few hundred samples. Interior points do not reach
    the bounds of A, so A is recomputed at the weights that were found. If none of
    several settings of the backend is accurate enough, Newton's method continues from
    the last answer (alternation, for block norms).

    Parameters
    ----------
    accuracy : float
        Relative accuracy requested from the conic solver.
    backend : {"clarabel", "scs"}
        An interior-point method, or a less accurate first-order method.
    """

    accuracy: float = 1e-11
    backend: str = "clarabel"

    needs = (
        Need(
            "solver='conic' supports losses with a box, and otherwise only losses and "
            "weight sets of the library, got {loss} and {weights}; use "
            "solver='alternating', which needs only their methods.",
            loss=_LOSSES,
            weights=_SETS,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield the solution, and further ones if the first is not accurate enough."""
        packages(self.backend)
        n = problem.bank.shape[0]
        if n > 500:
            warnings.warn(
                f"solver='conic' with {plural(n, 'sample')} will be slow and need a "
                "lot of memory; use solver='newton' above a few hundred samples.",
                UserWarning,
                stacklevel=2,
            )
        last = None
        for accuracy, settings in self._attempts():
            answer = self._solve(problem, accuracy, settings)
            if answer is None:
                continue
            theta, A = answer
            last = Iterate(theta, A)
            system = linear_system(problem)
            if system is not None:
                # for a quadratic loss, the exact A of these weights is a better primal
                best, _ = LinearSolver(problem.bank, system, theta).best(theta)
                yield Iterate(theta, best, dual=A)
                continue
            judged = yield Iterate(theta, A)
            if judged is not None and isinstance(problem.loss, BoxLoss):
                # interior points do not reach the bounds, where most entries of A are
                inner = inner_solver(problem, Iterate(theta, A))
                best, F = yield from inner.solve(theta, 1e-10 * abs(judged.upper))
                yield Iterate(theta, best, F, dual=A)
        # if all attempts fail because of the scale of kernels or costs, hand over
        second: Any = MulticlassNewton() if problem.kind == "classes" else Newton()
        exact = second if problem.weights.smooth else Alternating()
        yield from exact.iterates(problem, last)

    def _attempts(self) -> list[tuple[float, dict[str, Any]]]:
        """Return accuracies and settings to try until one of them works.

        The last steps of a solver may worsen its result; then a lower accuracy helps.
        Shorter steps stay near the centre of narrow cones, especially those of norms
        near one, where the default steps fail before the first digit is correct.
        """
        attempts: list[tuple[float, dict[str, Any]]] = [(self.accuracy, {}), (1e-8, {})]
        if self.backend == "clarabel":
            short = {"equilibrate_enable": False, "max_step_fraction": 0.9}
            attempts += [(self.accuracy, short), (1e-9, {"max_step_fraction": 0.7})]
        return attempts

    def _solve(
        self, problem: Problem, accuracy: float, settings: dict[str, Any]
    ) -> tuple[FloatArray, FloatArray] | None:
        cp = packages(self.backend)
        bank, loss, weights = problem.bank, problem.loss, problem.weights
        M = bank.shape[2]
        grams = [bank.gram(m) for m in range(M)]
        unit, size_of_y = _units(loss, grams)
        A, value, limits = _loss(cp, loss, unit, size_of_y)
        size = [np.sqrt(unit) * _factor(K).T @ A for K in grams]
        if problem.per_class:
            return self._per_class(problem, A, value, limits, size, accuracy, settings)
        q = cp.Variable(M, nonneg=True)
        if isinstance(weights, BlockNorm):
            # |w|_{2,q*} in the norms themselves: the squares are not jointly convex
            quads = [cp.norm(S, "fro") <= q[m] for m, S in enumerate(size)]
            length, more = _norm(cp, q, weights.q / (weights.q - 1.0))
            penalty = cp.square(length)
        else:
            quads = [cp.sum_squares(S) <= q[m] for m, S in enumerate(size)]
            penalty, more = _support(cp, weights, q)
        program = cp.Maximize(value - 0.5 * penalty)
        model = cp.Problem(program, [*quads, *limits, *more])
        run(cp, model, self.backend, accuracy, factors="qdldl", **settings)
        if A.value is None:
            return None
        point = loss.repair(unit * size_of_y * np.asarray(A.value, dtype=float))
        if not isinstance(weights, ConvexSet) or weights.fixed:
            return weights.step(weights.center(M), bank.quad(point)), point
        # stationarity in q: the weights are twice the multipliers
        theta = np.array([2.0 * np.sum(limit.dual_value) for limit in quads])
        theta = np.maximum(theta, 0.0)
        if not theta.any():  # no kernel matters: all weights are optimal
            theta = weights.center(M)
        return outward(theta, weights.constraint), point

    def _per_class(
        self,
        problem: Problem,
        A: Any,
        value: Any,
        limits: list[Any],
        size: list[Any],
        accuracy: float,
        settings: dict[str, Any],
    ) -> tuple[FloatArray, FloatArray] | None:
        """Solve with separate weights for each class, ``support(q_c) <= 1``."""
        cp = packages(self.backend)
        k, M = A.shape[1], len(size)
        every, quads = list(limits), []
        sparse = problem.weights.sparse
        for c in range(k):
            if sparse:  # cones of norms are better conditioned than those of squares
                quads += [cp.norm(S[:, c]) <= 1.0 for S in size]
                continue
            q = cp.Variable(M, nonneg=True)
            quads += [cp.sum_squares(S[:, c]) <= q[m] for m, S in enumerate(size)]
            penalty, more = _support(cp, problem.weights, q)
            every += [penalty <= 1.0, *more]
        every += quads
        model = cp.Problem(cp.Maximize(value), every)
        run(cp, model, self.backend, accuracy, factors="qdldl", **settings)
        if A.value is None:
            return None
        point = problem.loss.repair(np.asarray(A.value, dtype=float))
        # the multiplier is d / 2 for the square, and d for the norm
        d = np.array([float(np.sum(limit.dual_value)) for limit in quads])
        d = np.maximum(d if sparse else 2.0 * d, 0.0)
        return d.reshape(k, M), point


def packages(backend: str) -> Any:
    """Return cvxpy, or raise if it or the backend is missing."""
    if backend not in ("clarabel", "scs"):
        raise ValueError(f"backend must be 'clarabel' or 'scs', got {backend!r}.")
    try:
        import_module(backend)
        import cvxpy
    except ImportError as error:
        raise ImportError(
            "Conic programs need cvxpy and a backend, Clarabel or SCS: pip install "
            "cvxpy clarabel"
        ) from error
    return cvxpy


def run(
    cp: Any,
    model: Any,
    backend: str,
    accuracy: float,
    *,
    factors: str | None = None,
    **more: Any,
) -> None:
    """Solve a model; if the backend fails, the variables have no value.

    Parameters
    ----------
    cp : module
        cvxpy.
    model : cvxpy.Problem
    backend : {"clarabel", "scs"}
    accuracy : float
    factors : str, optional
        Method by which Clarabel factorises its matrices. Its default, a method for
        dense blocks, is eight times faster for semidefinite cones; for second-order
        cones "qdldl" takes a quarter of the time.
    **more
        Other settings of the backend.
    """
    if backend == "clarabel":
        names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        settings: dict[str, Any] = dict.fromkeys(names, accuracy)
        if factors is not None:
            settings["direct_solve_method"] = factors
    else:
        # a first-order method would not terminate
        settings = dict.fromkeys(("eps_abs", "eps_rel"), max(accuracy, 1e-9))
        settings["max_iters"] = 50_000
    with warnings.catch_warnings():
        # a less accurate answer is judged like any other
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        try:
            model.solve(solver=backend.upper(), **settings, **more)
        except cp.error.SolverError:
            return


def _units(loss: Any, grams: list[FloatArray]) -> tuple[float, float]:
    """Return the units of A and of the targets, as powers of ten.

    A problem with costs ``C`` and kernels ``K`` is equivalent to one with ``C / unit``
    and ``unit K`` in the variables ``A / unit``; the unit is about the largest possible
    size of A. If A is large, interior-point methods may need more iterations, or fail.
    """
    if not isinstance(loss, Summed):
        return 1.0, 1.0
    ridge = 1.0 / float(loss.C[loss.C > 0].mean())
    variance = float(np.mean([np.trace(K) / len(K) for K in grams]))
    # in most directions, a kernel has less than its mean variance
    least = 0.1 * variance if loss.point.quadratic else variance
    size = float(np.abs(loss.Y).max())
    return _power(1.0 / max(ridge, least)), _power(size) if size > 0 else 1.0


def _power(size: float) -> float:
    return float(10.0 ** np.round(np.log10(size)))


def _loss(
    cp: Any, loss: Any, unit: float = 1.0, size: float = 1.0
) -> tuple[Any, Any, list[Any]]:
    """Return A and the dual term as expressions of variables, and their constraints.

    A is in units of ``unit * size``, targets in units of ``size``. Samples with zero
    cost also have variables, with bounds of their own, because interior-point methods
    need a feasible set with nonempty interior.
    """
    if isinstance(loss, BoxLoss):
        return _box(cp, loss, unit, size)
    Z = cp.Variable(loss.shape)
    if isinstance(loss, Fisher):
        ridge, _, E, sums = loss.system()
        half = cp.sum_squares(cp.multiply(np.sqrt(ridge)[:, None], Z - loss.a))
        return Z, -0.5 * half, [E.T @ Z == sums]
    used = (loss.C > 0).astype(float)
    C = np.where(loss.C > 0, loss.C / unit, 1.0)
    if isinstance(loss, CrammerSinger):
        own = loss.own.astype(float)
        A = cp.multiply(np.repeat(used[:, None], loss.n_classes, axis=1), Z)
        limits = [C[:, None] * own >= Z, cp.sum(Z, axis=1) == 0]
        if loss.design is not None:
            limits.append(loss.design.basis.T @ A == 0.0)
        return A, cp.sum(cp.multiply(own * used[:, None], Z)), limits
    A = Z if used.all() else cp.multiply(used, Z)
    limits = [cp.sum(A, axis=0) == 0.0] if loss.hyperplane else []
    if loss.design is not None:
        limits = [loss.design.basis.T @ A == 0.0]
    if loss.point.quadratic:
        half = 0.5 * cp.sum_squares(cp.multiply(1.0 / np.sqrt(C), Z))
        return A, cp.sum(cp.multiply(used * loss.Y / size, Z)) - half, limits
    share = cp.multiply(loss.Y / C, Z)  # the logistic loss
    entropy = cp.entr(share) + cp.entr(1.0 - share)
    value = cp.sum(cp.multiply(loss.C / unit, entropy))
    return A, value, [*limits, share >= 0, share <= 1]


def _box(
    cp: Any, loss: BoxLoss, unit: float, size: float
) -> tuple[Any, Any, list[Any]]:
    """Return the same for any loss whose dual is a box QP for each task."""
    n, T = loss.shape
    boxes = [loss.box(t)[:4] for t in range(T)]
    linear, lower, upper, ridge = map(np.column_stack, zip(*boxes, strict=True))
    used = lower < upper
    Z = cp.Variable(linear.shape)
    parts = Z if used.all() else cp.multiply(used.astype(float), Z)
    A = parts if len(linear) == n else parts[:n] + parts[n:]
    lower = np.where(used, lower / (unit * size), -1.0)
    upper = np.where(used, upper / (unit * size), 1.0)
    above, below = np.isfinite(lower), np.isfinite(upper)
    limits = []
    if above.any():
        limits.append(Z[above] >= lower[above])
    if below.any():
        limits.append(Z[below] <= upper[below])
    design = loss.design
    if design is not None:
        limits.append(design.basis.T @ A == 0.0)
    elif loss.hyperplane:
        sums = loss.repair(np.zeros(loss.shape)).sum(axis=0)
        limits.append(cp.sum(A, axis=0) == sums / (unit * size))
    value = -cp.sum(cp.multiply(used * linear / size, Z))
    if ridge.any():
        root = np.sqrt(np.where(used, unit * ridge, 1.0))
        value -= 0.5 * cp.sum_squares(cp.multiply(root, Z))
    return A, value, limits


def _support(cp: Any, weights: Any, q: Any) -> tuple[Any, list[Any]]:
    """Return the support function as an expression, and its constraints."""
    if isinstance(weights, LpBall):
        if weights.p == 1:
            return cp.max(q), []
        if np.isinf(weights.p):
            return cp.sum(q), []
        return _norm(cp, q, weights.p / (weights.p - 1.0))
    if isinstance(weights, Ellipsoid):
        # erratum 3: minimise the norm of the inverse over all vectors >= q
        half = np.linalg.inv(np.linalg.cholesky(weights.E))
        above = cp.Variable(q.shape[0])
        return cp.norm(half @ above), [above >= q]
    # the elastic net, in terms of the multiplier of its constraint
    lam = cp.Variable(nonneg=True)
    rest = cp.pos(q - lam * (1.0 - weights.mix))
    return lam + cp.quad_over_lin(rest, lam) / (4.0 * weights.mix), []


def _norm(cp: Any, q: Any, r: float) -> tuple[Any, list[Any]]:
    """Return the r-norm of ``q >= 0`` as a variable, 1 < r < inf, and its cones.

    ``q_m <= s_m^(1/r) t^(1-1/r)`` with ``sum(s) = t``: any r, not only rational ones.
    """
    if r == 2:
        return cp.norm(q), []
    t, s = cp.Variable(), cp.Variable(q.shape[0])
    cones = cp.constraints.PowCone3D(s, t * np.ones(q.shape[0]), q, 1.0 / r)
    return t, [cones, cp.sum(s) == t]


def _factor(K: FloatArray) -> FloatArray:
    """Return L with ``L L' = K``, without directions that are due to rounding."""
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    kept = values > 1e-13 * max(float(values[-1]), 0.0)
    if not kept.any():
        return np.zeros((len(K), 1))
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
