"""Weights of its own for each of many targets, by factors that targets share.

A target needs ``(I + C_theta)^-1 z`` at its own weights, ``C_theta`` the sum of the
centred kernels. Factorising a matrix for each target would cost the cube of the number
of samples each. Here few *references*, weights that stand for a group of targets, are
decomposed into eigenvectors; the systems of all targets of a group are solved together,
by conjugate gradients that the reference makes short, which are products of matrices.
For the evidence, determinants and traces at a target's weights follow from those of the
reference, to second order in ``log(1 + kappa theta)``, in which they are nearly
quadratic. Each target then makes a Newton step of its own, and groups are formed anew.

What the groups leave above the tolerance is finished target by target, by the solver
for a single one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from mklearn.data.compiling import njit
from mklearn.problems.mkl import MKLProblem
from mklearn.problems.targets import (
    Bounds,
    Factors,
    Likelihoods,
    OwnEvidence,
    OwnSquared,
)
from mklearn.problems.weights import LpBall
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Iterate, Need, Solution, Status, Steps
from mklearn.solvers.evidence import LARGEST, AverageInformation
from mklearn.solvers.loop import solved_within
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

_FEW = 8  # targets that are not worth a group
_SCALES = np.logspace(-3.0, 3.0, 13)  # of equal weights, that all targets start from
_ROUNDS = 12
_GROUPS = 64
_CG = 60  # iterations of conjugate gradients
_REACH = 1.5  # change of log(1 + kappa theta) in a step
_ROUGH = 0.05  # log evidence that second order can be trusted with
_SINGLE = 1e-2  # tolerances for which single precision does
_BYTES = 2**26  # of the products of a block of targets


def _single(problem: MKLProblem) -> Any:
    fixed = problem.weights.fixed or problem.bank.shape[2] == 1
    return Newton() if problem.weights.smooth and not fixed else Alternating()


@dataclass(frozen=True)
class OwnWeights:
    """Newton steps for groups of targets, then for the targets that need more.

    Parameters
    ----------
    rest : float
        A target is done if its log evidence can be expected to grow by less, or if its
        relative duality gap is below that.
    single : callable, optional
        Takes the problem of one target with the squared loss, and returns the solver
        that finishes it.
    """

    rest: float = 1e-3
    single: Callable[[MKLProblem], Any] = _single

    needs: ClassVar[tuple[Need, ...]] = ()

    def iterates(self, problem: Any, start: Iterate | None) -> Steps:
        """Yield all targets after each round, and then after each single one."""
        if isinstance(problem, OwnEvidence):
            task: _Task = _EvidenceTask(problem, self.rest)
        else:
            task = _SquaredTask(problem, self.rest, self.single)
        yield task.point().alive()
        if task.grouped:
            for _ in range(_ROUNDS):
                yield from task.round()
                yield task.point()
                if not task.active.any():
                    break
        left = np.flatnonzero(task.unfinished())
        for target in left:
            yield from task.finish(int(target))
        if len(left):
            yield task.point()
        return task.ending()


class _Task(ABC):
    """All targets: where each stands, what its next trial is, and what is claimed."""

    problem: Any
    rest: float

    def __init__(self, problem: Any, rest: float) -> None:
        self.problem, self.rest = problem, rest
        first = problem.first()
        self.theta, self.A = first.theta, first.A
        T, M = self.theta.shape
        self.value = np.full(T, np.inf)  # what is minimised, for each target
        self.promise = np.full(T, np.inf)
        self.slopes, self.quads = np.zeros((T, M)), np.zeros((T, M))
        self.bends, self.size = np.zeros((T, M, M)), np.ones(T)
        self.reach, self.doubt = np.full(T, _REACH), np.full(T, np.inf)
        self.exact = np.zeros(T, dtype=bool)
        self.trial = self.theta.copy()
        self.n_rounds = 0
        varied = np.zeros(T, dtype=bool)
        for at in problem.blocks():
            varied[at] = problem.varied(at)
        self.varied, self.active = varied, varied.copy()
        self.promise[~varied] = 0.0
        self.factors: Factors | None = None
        if np.count_nonzero(varied) > _FEW and self.suits():
            self.factors = problem.factors
        self.space = None if self.factors is None else _Space.of(self.factors, self)

    # what differs between objectives

    single_precision: bool
    accuracy: float  # of the squared energy norm of residuals

    def suits(self) -> bool:
        """Tell whether groups are of any use."""
        return True

    @abstractmethod
    def center(self) -> FloatArray:
        """Return weights to start from."""

    @abstractmethod
    def starts(self, space: _Space) -> list[tuple[_Reference, Index]]:
        """Return references to start at, and the targets of each."""

    @abstractmethod
    def objective(self, reference: _Reference, found: _Found) -> FloatArray:
        """Return what is minimised, for each target."""

    @abstractmethod
    def step(self, targets: Index) -> None:
        """Move the weights of some targets."""

    @abstractmethod
    def about(self) -> Any:
        """Return what else is known of the solution."""

    @abstractmethod
    def unfinished(self) -> NDArray[np.bool_]:
        """Tell which targets are not at their optimum."""

    @abstractmethod
    def finish(self, target: int) -> Generator[Iterate | None, Any, None]:
        """Solve for one target alone."""

    @abstractmethod
    def ending(self) -> Status | None:
        """Return how the run ended, if it has."""

    # what they share

    @property
    def grouped(self) -> bool:
        return self.space is not None and self.space.size > 0

    def point(self) -> Iterate:
        """Return where all targets stand."""
        worst = float(np.max(np.where(self.unfinished(), self.promise, 0.0)))
        slack = worst if np.isfinite(worst) and worst > self.rest else None
        return Iterate(self.theta, self.A, about=self.about(), slack=slack)

    def round(self) -> Generator[Iterate | None, Any, None]:
        """Evaluate the trials of all active targets, and make new ones."""
        space = self.space
        assert space is not None
        targets = np.flatnonzero(self.active)
        groups = (
            self.starts(space)
            if self.n_rounds == 0
            else space.groups(self.trial, targets)
        )
        self.n_rounds += 1
        for reference, members in groups:
            if isinstance(reference, np.ndarray):
                reference = _Reference.at(space, reference)
            for at in range(0, len(members), space.block):
                self.evaluate(reference, members[at : at + space.block])
                yield self.point().alive()
        self.step(targets)

    def evaluate(self, reference: _Reference, targets: Index) -> None:
        """Look at the trials of some targets, and keep what is better."""
        space, trial = self.space, self.trial[targets]
        assert space is not None
        z = self.problem.values(targets)
        inside = space.inward(z)
        found = reference.solve(inside, trial, self.accuracy)
        rest = z - space.outward(inside)
        found.quad += np.sum(rest**2, axis=0)
        value = self.objective(reference, found)
        better = value < self.value[targets]
        self.reach[targets] = np.where(
            better, np.minimum(2 * self.reach[targets], 2.0), self.reach[targets] / 3
        )
        now = targets[better]
        a = space.outward(reference.back(found.a[:, better])) + rest[:, better]
        A = self.problem.centred.coefficients(a)
        # one after the other; should Ctrl-C come between, certificates tell
        self.A[:, now] = A
        self.theta[now], self.value[now] = trial[better], value[better]
        self.quads[now], self.bends[now] = found.quads[better], found.bends[better]
        self.slopes[now], self.size[now] = found.slopes[better], found.quad[better]
        self.doubt[now] = found.doubt[better]


# --- evidence -------------------------------------------------------------------------


class _EvidenceTask(_Task):
    """Restricted likelihood: determinants from references, weights not negative."""

    problem: OwnEvidence

    def __init__(self, problem: OwnEvidence, rest: float) -> None:
        self.free = problem.all.freedom
        self.single_precision = rest >= _SINGLE
        self.accuracy = min(1e-5, 0.1 * rest / self.free)
        super().__init__(problem, rest)
        self.constant = float(problem.all.misfit(np.full(1, self.free))[0])
        # one for all points, as are their arrays: the best one is the last one
        none, T = problem.nothing, len(self.theta)
        self.claims = Likelihoods(
            none.copy(), none, np.zeros(T), np.full(T, np.nan), self.exact
        )

    def suits(self) -> bool:
        return self.problem.all.noise is None

    def center(self) -> FloatArray:
        factors = self.problem.factors
        assert factors is not None
        traces = factors.traces()
        known = traces > 1e-12 * max(float(traces.max()), 1e-300)
        n = len(factors.stack)
        return np.where(known, n / (len(traces) * np.where(known, traces, 1.0)), 0.0)

    def starts(self, space: _Space) -> list[tuple[_Reference, Index]]:
        """Return multiples of equal weights, and for which targets each is best."""
        first = space.first
        best = np.zeros(len(self.theta), dtype=np.intp)
        volumes = np.log1p(np.outer(_SCALES, first.values)).sum(axis=1)
        shrink = 1.0 / (1.0 + np.outer(_SCALES, first.values))
        targets = np.flatnonzero(self.active)
        for at in range(0, len(targets), space.block):
            here = targets[at : at + space.block]
            z = self.problem.values(here)
            inside = space.inward(z)
            rest = np.sum((z - space.outward(inside)) ** 2, axis=0)
            quads = shrink @ np.asarray(first.turn(inside), dtype=float) ** 2 + rest
            costs = self.free * np.log(np.maximum(quads, 1e-300)) + volumes[:, None]
            best[here] = np.argmin(costs, axis=0)
        self.trial[targets] = _SCALES[best[targets], None] * first.theta
        return [
            (first.scaled(scale), targets[best[targets] == i])
            for i, scale in enumerate(_SCALES)
            if np.any(best[targets] == i)
        ]

    def objective(self, reference: _Reference, found: _Found) -> FloatArray:
        volume, traces, doubt = reference.volume_at(found.theta)
        found.doubt, volume = 0.5 * doubt, volume + doubt
        s = np.maximum(found.quad, 1e-300) / self.free
        found.slopes = 0.5 * (traces - found.quads / s[:, None])
        return 0.5 * (self.free * np.log(s) + volume)

    def step(self, targets: Index) -> None:
        theta, space = self.theta[targets], self.space
        assert space is not None
        s = np.maximum(self.size[targets], 1e-300) / self.free
        model = (
            self.bends[targets], self.quads[targets], 1.0 / (self.free * s), 0.5 / s,
            self.slopes[targets], theta,
        )  # fmt: skip
        most = np.where(space.variances > 0, LARGEST / (1e-300 + space.variances), 0.0)
        wide = (np.zeros_like(theta), np.broadcast_to(most, theta.shape))
        _, gains = _own_steps(*model, *wide)
        reach = self.reach[targets]
        near = tuple(
            np.clip(space.moved(theta, sign * reach), 0.0, most) for sign in (-1, 1)
        )
        self.trial[targets], _ = _own_steps(*model, *near)
        self.promise[targets] = gains
        # those that find nothing better where they look are left to their own factor
        stuck = reach < 0.02
        done = np.maximum(gains, self.doubt[targets]) <= max(self.rest, _ROUGH)
        self.active[targets] = ~(done | stuck)

    def about(self) -> Likelihoods:
        found, seen = self.claims, self.varied & np.isfinite(self.value)
        found.evidence[seen] = -self.value[seen] - 0.5 * self.constant
        known = np.isfinite(self.promise)
        found.promise[known] = self.promise[known]
        return found

    def unfinished(self) -> NDArray[np.bool_]:
        done = self.exact | (self.promise <= self.rest) & (self.rest >= _ROUGH)
        return self.varied & ~done

    def finish(self, target: int) -> Generator[Iterate | None, Any, None]:
        one = self.problem.one(target)
        start = None
        if np.isfinite(self.value[target]):
            start = Iterate(self.theta[target], one.Y)
        solution: Solution = yield from solved_within(
            one,
            AverageInformation(rest=self.rest),
            self.point(),
            tol=self.rest,
            start=start,
        )
        self.A[:, target] = solution.A[:, 0]
        self.theta[target] = solution.theta
        self.value[target] = solution.upper - 0.5 * self.constant
        ended = solution.status is Status.STATIONARY
        self.promise[target] = self.rest if ended else float(solution.slack or np.inf)
        self.exact[target] = True

    def ending(self) -> Status | None:
        return Status.STATIONARY


# --- squared loss ---------------------------------------------------------------------


class _SquaredTask(_Task):
    """Ridge regression with weights in a ball: certificates need no determinants."""

    problem: OwnSquared

    def __init__(self, problem: OwnSquared, rest: float, single: Any) -> None:
        self.single_precision, self.single = rest >= 1e-4, single
        self.accuracy = 0.01 * min(rest, 1e-2)
        super().__init__(problem, rest)
        self.lower = np.full(len(self.theta), -np.inf)
        zero = [np.sum(problem.values(at) ** 2, axis=0) for at in problem.blocks()]
        self.claims = Bounds(0.5 * np.concatenate(zero), np.zeros(len(self.theta)))

    def suits(self) -> bool:
        return isinstance(self.problem.weights, LpBall)

    def center(self) -> FloatArray:
        return self.problem.weights.center(self.problem.bank.shape[2])

    def starts(self, space: _Space) -> list[tuple[_Reference, Index]]:
        self.trial[:] = space.first.theta
        return [(space.first, np.flatnonzero(self.active))]

    def objective(self, reference: _Reference, found: _Found) -> FloatArray:
        return 0.5 * found.quad

    def step(self, targets: Index) -> None:
        ball = self.problem.weights
        assert isinstance(ball, LpBall)
        theta, q = self.theta[targets], self.quads[targets]
        value = np.maximum(self.value[targets], 1e-300)
        best = np.array([ball.support(row) for row in q])
        gap = 0.5 * np.maximum(best - np.sum(theta * q, axis=1), 0.0)
        self.lower[targets] = value - gap
        self.promise[targets] = gap / value
        # half of the tolerance is for what was solved roughly
        self.active[targets] = (gap / value > 0.5 * self.rest) & (
            self.reach[targets] > 0.02
        )
        if not ball.fixed:
            model = _in_ball(theta, q, self.bends[targets], ball.p)
            plain = _ball_step(theta, q, ball.p)
            # a step that made it worse is taken as the formula has it, which cannot
            use = self.reach[targets] >= 1.0
            self.trial[targets] = np.where(use[:, None], model, plain)

    def about(self) -> Bounds:
        found, seen = self.claims, np.isfinite(self.value)
        found.upper[seen], found.lower[seen] = self.value[seen], self.lower[seen]
        return found

    def unfinished(self) -> NDArray[np.bool_]:
        return self.varied & ~(self.promise <= 0.5 * self.rest)

    def finish(self, target: int) -> Generator[Iterate | None, Any, None]:
        one, start = self.problem.one(target), None
        if np.isfinite(self.value[target]):
            a = np.asarray(self.A[:, [target]], dtype=float)
            start = Iterate(self.theta[target], one.loss.repair(a))
        solution: Solution = yield from solved_within(
            one, self.single(one), self.point(), tol=self.rest, start=start
        )
        self.A[:, target] = solution.A[:, 0]
        self.theta[target] = solution.theta
        self.value[target], self.lower[target] = solution.upper, solution.lower
        self.promise[target] = 0.0 if solution.gap <= self.rest else solution.gap

    def ending(self) -> Status | None:
        return Status.OPTIMAL if not self.unfinished().any() else None


# --- references -----------------------------------------------------------------------


@dataclass
class _Found:
    """What a reference has found about the trials of some targets."""

    theta: FloatArray  # (T, M)
    a: NDArray[Any]  # (r, T), in the coordinates of the reference
    quad: FloatArray  # (T,)  z'G^-1 z
    quads: FloatArray  # (T, M)  a'C_m a
    bends: FloatArray  # (T, M, M)  a'C_k P C_m a, P of the reference
    slopes: FloatArray  # (T, M)
    doubt: FloatArray  # (T,)  how far the objective may be off


@dataclass(frozen=True)
class _Space:
    """The span of all kernels, in the eigenvectors of the first reference."""

    factors: Factors  # in these coordinates
    basis: NDArray[Any] | None  # (n, r)
    kappa: FloatArray  # (M,) mean eigenvalue of each kernel
    variances: FloatArray  # (M,)
    dtype: Any
    block: int
    first: _Reference

    @classmethod
    def of(cls, factors: Factors, task: _Task) -> _Space:
        theta, n = task.center(), len(factors.stack)
        dtype = np.float32 if task.single_precision else np.float64
        scaled = factors.stack * np.sqrt(factors.columns(theta))
        values, vectors = eigh(scaled @ scaled.T, driver="evd")
        kept = values > n * np.finfo(float).eps * max(float(values[-1]), 0.0)
        values, basis = values[kept], np.ascontiguousarray(vectors[:, kept])
        inner = Factors(basis.T @ factors.stack, factors.ends)
        traces = factors.traces()
        kappa = np.where(traces > 0, traces / np.maximum(factors.ranks, 1), 1.0)
        M, r = len(traces), len(values)
        widest = max(r * (M + 4) + factors.stack.shape[1], n)
        block = int(np.clip(_BYTES // (np.dtype(dtype).itemsize * widest), 16, 4096))
        space = cls(
            inner,
            basis.astype(dtype),
            kappa,
            traces / n,
            dtype,
            block,
            None,  # type: ignore[arg-type]
        )
        first = _Reference.of(space, theta, values, None)
        return replace(space, first=first)

    @property
    def size(self) -> int:
        """Dimension r."""
        return len(self.factors.stack)

    def inward(self, z: FloatArray) -> NDArray[Any]:
        """Return coordinates of samples (n, T)."""
        assert self.basis is not None
        return self.basis.T @ z.astype(self.dtype)

    def outward(self, part: NDArray[Any]) -> FloatArray:
        """Return samples from coordinates (r, T)."""
        assert self.basis is not None
        return np.asarray(self.basis @ part, dtype=float)

    def bent(self, theta: FloatArray) -> FloatArray:
        """Return ``log(1 + kappa theta)``."""
        return np.log1p(theta * self.kappa)

    def moved(self, theta: FloatArray, by: FloatArray) -> FloatArray:
        """Return the weights whose ``log(1 + kappa theta)`` is larger by ``by``."""
        return ((1.0 + theta * self.kappa) * np.exp(by)[:, None] - 1.0) / self.kappa

    def groups(self, trial: FloatArray, targets: Index) -> list[tuple[Any, Index]]:
        """Return targets with weights that are close, and what is between them."""
        bent = self.bent(trial[targets])
        # as much work for the references as for the systems of their targets
        r, R = self.size, self.factors.stack.shape[1]
        worth = (22 * r**2 + 2 * r * R) / (40 * max(R, 1))
        least = min(8, 1 + len(targets) // 4)
        count = int(np.clip(len(targets) / max(worth, 1.0), least, _GROUPS))
        return [
            (np.expm1(bent[part].mean(axis=0)) / self.kappa, targets[part])
            for part in _split(bent, count)
        ]


@dataclass(frozen=True)
class _Reference:
    """Weights that targets are close to, with all that is known there.

    Attributes
    ----------
    values : array of shape (r,)
        Eigenvalues of ``C_theta``.
    vectors : array of shape (r, r), or None
        Its eigenvectors; None for those that the space is described in.
    V : array of shape (r, R)
        The factors of the kernels in their coordinates.
    """

    space: _Space
    theta: FloatArray
    values: FloatArray
    vectors: NDArray[Any] | None
    V: NDArray[Any]
    shrink: FloatArray
    volume: float
    traces: FloatArray
    curvature: FloatArray

    @classmethod
    def at(cls, space: _Space, theta: FloatArray) -> _Reference:
        """Return the reference of any weights: one eigendecomposition."""
        scaled = space.factors.stack * np.sqrt(space.factors.columns(theta))
        values, vectors = eigh(scaled @ scaled.T, driver="evd")
        return cls.of(space, theta, np.maximum(values, 0.0), vectors)

    @classmethod
    def of(
        cls,
        space: _Space,
        theta: FloatArray,
        values: FloatArray,
        vectors: FloatArray | None,
    ) -> _Reference:
        V = space.factors.stack if vectors is None else vectors.T @ space.factors.stack
        turned = None if vectors is None else vectors.astype(space.dtype)
        return cls._known(space, theta, values, turned, V.astype(space.dtype))

    @classmethod
    def _known(
        cls,
        space: _Space,
        theta: FloatArray,
        values: FloatArray,
        vectors: NDArray[Any] | None,
        V: NDArray[Any],
    ) -> _Reference:
        shrink = 1.0 / (1.0 + values)
        traces, curvature = _moments(
            V * np.sqrt(shrink).astype(V.dtype)[:, None], space
        )
        volume = float(np.log1p(values).sum())
        return cls(space, theta, values, vectors, V, shrink, volume, traces, curvature)

    def scaled(self, by: float) -> _Reference:
        """Return the reference of a multiple of the weights."""
        return self._known(
            self.space, by * self.theta, by * self.values, self.vectors, self.V
        )

    def turn(self, part: NDArray[Any]) -> NDArray[Any]:
        """Return coordinates here of those in the space."""
        return part if self.vectors is None else self.vectors.T @ part

    def back(self, part: NDArray[Any]) -> NDArray[Any]:
        """Return coordinates in the space of those here."""
        return part if self.vectors is None else self.vectors @ part

    def volume_at(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``log |I + C|`` and its slopes at weights nearby, (T,) and (T, M).

        They are to second order in ``log(1 + kappa theta)``. The last one says how far
        the first may be off, about: what a third order of the size of the second makes.
        """
        kappa = self.space.kappa
        by, unit = self.space.bent(theta) - self.space.bent(self.theta), 1.0 / kappa
        here = self.theta + unit
        slopes = self.traces * here
        bend = np.diag(slopes) - self.curvature * np.outer(here, here)
        turned = by @ bend
        volume = self.volume + by @ slopes + 0.5 * np.sum(turned * by, axis=1)
        traces = (slopes + turned) / (theta + unit)
        far = np.abs(by)
        doubt = far.max(axis=1) * np.sum((far @ np.abs(bend)) * far, axis=1) / 12.0
        return volume, np.maximum(traces, 1e-3 * self.traces), doubt

    def solve(self, inside: NDArray[Any], theta: FloatArray, accuracy: float) -> _Found:
        """Solve the systems of some targets, at their own weights."""
        factors, V, M = self.space.factors, self.V, len(self.theta)
        z = self.turn(inside)
        shrink = self.shrink.astype(V.dtype)[:, None]
        a = shrink * z
        if np.abs(theta - self.theta).max() > 1e-12 * np.abs(self.theta).max():
            weights = factors.columns(theta).astype(V.dtype)
            a = _conjugate_gradients(V, weights, shrink, z, a, accuracy)
        B = V.T @ a
        quads = factors.totals(np.asarray(B, dtype=float) ** 2).T
        images = np.empty((a.shape[1], M, len(V)), dtype=V.dtype)
        for m in range(M):
            part = slice(factors.ends[m], factors.ends[m + 1])
            images[:, m] = (V[:, part] @ B[part]).T
        images *= np.sqrt(shrink[:, 0])
        bends = np.asarray(images @ images.transpose(0, 2, 1), dtype=float)
        quad = np.sum(np.asarray(z, dtype=float) * a, axis=0)
        return _Found(theta, a, quad, quads, bends, np.zeros_like(theta), 0.0 * quad)


def _moments(V: NDArray[Any], space: _Space) -> tuple[FloatArray, FloatArray]:
    """Return ``tr P C_m`` and ``tr P C_k P C_m`` from ``P^½ L``, rows at a time."""
    factors, r = space.factors, len(V)
    M = len(factors.ranks)
    traces = factors.totals(np.sum(np.asarray(V, dtype=float) ** 2, axis=0))
    curvature = np.zeros((M, M))
    rows = max(1, _BYTES // (8 * max(1, M * r)))
    for at in range(0, r, rows):
        here = slice(at, at + rows)
        products = np.empty((M, len(V[here]), r), dtype=V.dtype)
        for m in range(M):
            part = slice(factors.ends[m], factors.ends[m + 1])
            np.matmul(V[here, part], V[:, part].T, out=products[m])
        flat = products.reshape(M, -1)
        curvature += flat @ flat.T
    return traces, curvature


def _conjugate_gradients(
    V: NDArray[Any],
    weights: NDArray[Any],
    shrink: NDArray[Any],
    z: NDArray[Any],
    a: NDArray[Any],
    accuracy: float,
) -> NDArray[Any]:
    """Solve ``(I + V diag(w) V') a = z`` for every column, with weights of its own.

    ``shrink`` is the diagonal of the inverse at the reference, and ``a`` a start. The
    squared error in the norm of the system is about ``accuracy`` of ``z'a``.
    """

    def system(x: NDArray[Any]) -> NDArray[Any]:
        return x + V @ (weights * (V.T @ x))

    a = a.copy()
    left = z - system(a)
    ahead = shrink * left
    along, now = ahead.copy(), np.sum(left * ahead, axis=0)
    for _ in range(_CG):
        wanted = accuracy * np.abs(np.sum(z * a, axis=0))
        if (now <= wanted).all():
            break
        turned = system(along)
        size = np.sum(along * turned, axis=0)
        step = np.divide(now, size, out=np.zeros_like(now), where=size > 0)
        a += step * along
        left -= step * turned
        ahead = shrink * left
        then = np.sum(left * ahead, axis=0)
        along *= np.divide(then, now, out=np.zeros_like(now), where=now > 0)
        along += ahead
        now = then
    return a


def _split(points: FloatArray, count: int) -> list[Index]:
    """Return groups of points that are close: the widest is halved, again and again."""
    groups = [np.arange(len(points))]

    def width(group: Index) -> float:
        return float(points[group].var(axis=0).sum()) * len(group)

    widths = [width(groups[0])]
    while len(groups) < count:
        i = int(np.argmax(widths))
        if widths[i] <= 1e-12:
            break
        group = groups[i]
        off = points[group] - points[group].mean(axis=0)
        along = off @ np.linalg.eigh(off.T @ off)[1][:, -1]
        high = along > np.median(along)
        if not high.any():
            high = along > along.min()
        groups[i], other = group[~high], group[high]
        groups.append(other)
        widths[i] = width(groups[i])
        widths.append(width(other))
    return groups


# --- steps of single targets ----------------------------------------------------------


def _ball_step(theta: FloatArray, q: FloatArray, p: float) -> FloatArray:
    """Return the analytic update of the weights of each target, LPMKL (17)."""
    norms = theta**2 * np.maximum(q, 0.0)
    top = norms.max(axis=1, keepdims=True)
    w = np.where(top > 0, norms / np.where(top > 0, top, 1.0), 1.0) ** (1.0 / (p + 1.0))
    return np.asarray(w / np.sum(w**p, axis=1, keepdims=True) ** (1.0 / p))


def _in_ball(
    theta: FloatArray, q: FloatArray, bends: FloatArray, p: float
) -> FloatArray:
    """Return where a quadratic model is about least in the ball, for each target.

    The model has the slopes ``-½ q`` and the curvature ``bends``; the analytic update
    is applied to it, with the q that its slopes stand for.
    """
    x = theta
    for _ in range(60):
        slopes = q - 2.0 * np.einsum("tkm,tk->tm", bends, x - theta)
        x = _ball_step(x, np.maximum(slopes, 1e-3 * q), p)
    return x


@njit(cache=True)
def _own_steps(  # type: ignore[no-untyped-def]
    bends, quads, share, factor, slopes, theta, low, high
):
    """Return the best weights of a quadratic model for each target, and their gains.

    The curvature is ``factor (bends - share quads quads')``, where ``share`` is lowered
    to what leaves it positive; weights stay between ``low`` and ``high``.
    """
    T, M = theta.shape
    out, gains = theta.copy(), np.zeros(T)
    for t in range(T):
        top = 0.0
        for m in range(M):
            top = max(top, bends[t, m, m])
        if not top > 0.0:
            continue
        L, y, over = np.zeros((M, M)), np.zeros(M), 0.0
        for i in range(M):
            for j in range(i + 1):
                value = bends[t, i, j]
                if i == j:
                    value = value * (1.0 + 1e-6) + 1e-10 * top
                for k in range(j):
                    value -= L[i, k] * L[j, k]
                if i == j:
                    L[i, i] = np.sqrt(max(value, 1e-12 * top))
                else:
                    L[i, j] = value / L[j, j]
            value = quads[t, i]
            for k in range(i):
                value -= L[i, k] * y[k]
            y[i] = value / L[i, i]
            over += y[i] * y[i]
        part = share[t] * min(1.0, 0.95 / max(share[t] * over, 1e-300))
        H = np.empty((M, M))
        for i in range(M):
            for j in range(M):
                H[i, j] = bends[t, i, j] - part * quads[t, i] * quads[t, j]
                H[i, j] *= factor[t]
            H[i, i] *= 1.0 + 1e-6
        x, r = theta[t].copy(), slopes[t].copy()
        for _ in range(1000):
            most = 0.0
            for m in range(M):
                if not H[m, m] > 0.0:
                    continue
                new = min(max(low[t, m], x[m] - r[m] / H[m, m]), high[t, m])
                by = new - x[m]
                if by != 0.0:
                    x[m] = new
                    for k in range(M):
                        r[k] += H[m, k] * by
                    most = max(most, by * by * H[m, m])
            if most < 1e-8:
                break
        gain = 0.0
        for m in range(M):
            gain -= (x[m] - theta[t, m]) * 0.5 * (slopes[t, m] + r[m])
        out[t], gains[t] = x, max(gain, 0.0)
    return out, gains
