"""Separate weights for each of many targets, with factorisations shared by targets.

A target needs ``(I + C_theta)^-1 z`` at its own weights, where ``C_theta`` is the
combined centred kernel. A factorisation for each target would cost the cube of the
number of samples. Here only few *references*, weights that represent a group of
targets, are factorised. The systems of all targets of a group are solved together, by
conjugate gradients with the reference as preconditioner, which consist of matrix
products. For the evidence, determinants and traces at a target's weights follow from
those of the reference, to second order in ``log(1 + kappa theta)``, in which they are
nearly quadratic. Each target then makes its own Newton step, and new groups are formed.

Targets that are still above the tolerance at the end are solved one by one, by the
solver for a single target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from mklearn.data.compiling import njit
from mklearn.kernels.factors import cholesky, invert_triangle
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

_FEW = 8  # number of targets up to which there are no groups
_SCALES = np.logspace(-3.0, 3.0, 13)  # multiples of equal weights, as starting points
_ROUNDS = 12
_GROUPS = 256
_CG = 60  # iterations of conjugate gradients
_REACH = 1.5  # change of log(1 + kappa theta) in a step
_ROUGH = 0.05  # accuracy of the log evidence to second order
_SINGLE = 1e-2  # tolerance from which single precision suffices
_BYTES = 2**26  # memory for the products of a block of targets


def _single(problem: MKLProblem) -> Any:
    fixed = problem.weights.fixed or problem.bank.shape[2] == 1
    return Newton() if problem.weights.smooth and not fixed else Alternating()


@dataclass(frozen=True)
class OwnWeights:
    """Newton steps for groups of targets, then for the targets that need more.

    Parameters
    ----------
    rest : float
        A target is finished if the expected increase of its log evidence, or its
        relative duality gap, is below this.
    single : callable, optional
        Function of the problem of one target with the squared loss that returns a
        solver for it.
    few : int
        Number of targets up to which there are no groups.
    rounds : int
        Number of rounds with groups. With 0, all targets keep the first point of the
        problem, which takes hardly any computation.
    """

    rest: float = 1e-3
    single: Callable[[MKLProblem], Any] = _single
    few: int = _FEW
    rounds: int = _ROUNDS

    needs: ClassVar[tuple[Need, ...]] = ()

    def iterates(self, problem: Any, start: Iterate | None) -> Steps:
        """Yield a point of all targets after each round, and after single targets."""
        if not self.rounds:
            yield problem.first()
            return None
        if isinstance(problem, OwnEvidence):
            task: _Task = _EvidenceTask(problem, self.rest, self.few)
        else:
            task = _SquaredTask(problem, self.rest, self.few, self.single)
        if task.grouped:
            task.begin()  # before the clock is looked at: targets have weights
        yield task.point().alive()
        if task.grouped:
            for _ in range(self.rounds):
                yield from task.round()
                yield task.point()
                if task.settled() or not task.active.any():
                    break
        left = np.flatnonzero(task.unfinished())
        for target in left[np.argsort(-task.promise[left], kind="stable")]:
            yield from task.finish(int(target))
            if task.settled():
                break
        if len(left):
            yield task.point()
        return task.ending()


class _Task(ABC):
    """State of all targets: current point, next trial, and claims."""

    problem: Any
    rest: float

    def __init__(self, problem: Any, rest: float, few: int) -> None:
        self.problem, self.rest = problem, rest
        first = problem.first()
        self.theta, self.A = first.theta, first.A
        T, M = self.theta.shape
        self.value = np.full(T, np.inf)  # the objective of each target
        self.promise = np.full(T, np.inf)
        self.slopes, self.quads = np.zeros((T, M)), np.zeros((T, M))
        self.bends, self.size = np.zeros((T, M, M)), np.ones(T)
        self.reach, self.loss = np.full(T, _REACH), np.full(T, np.inf)
        self.exact = np.zeros(T, dtype=bool)
        self.trial = self.theta.copy()
        self.scale = np.ones(T)  # of the kernels of each target
        self.fresh = np.ones(T, dtype=bool)  # whose derivatives are not known
        self.n_rounds = 0
        varied = np.zeros(T, dtype=bool)
        for at in problem.blocks():
            varied[at] = problem.varied(at)
        self.varied, self.active = varied, varied.copy()
        self.promise[~varied] = 0.0
        self.factors: Factors | None = None
        if np.count_nonzero(varied) > few and self.suits():
            self.factors = problem.factors
        self.space = None if self.factors is None else _Space.of(self.factors, self)

    # specific to the objective

    single_precision: bool
    accuracy: float  # of the squared energy norm of residuals

    def suits(self) -> bool:
        """Return whether groups can be used."""
        return True

    @abstractmethod
    def center(self) -> FloatArray:
        """Return the weights of the first reference."""

    @abstractmethod
    def multiples(self) -> FloatArray:
        """Return multiples of the weights of the first reference, to start from."""

    @abstractmethod
    def scales(self, energy: FloatArray, rest: FloatArray, targets: Index) -> Index:
        """Return the starting point of some targets, as indices of ``self.levels``.

        Parameters
        ----------
        energy : array of shape (r, count)
            Squared coordinates in the space.
        rest : array of shape (count,)
            Squared length of the part outside it.
        targets : array of shape (count,)
        """

    @abstractmethod
    def level(self, quads: FloatArray, scales: Index, targets: Index) -> FloatArray:
        """Return the objective at starting points from ``z'G^-1 z``."""

    @abstractmethod
    def look(self, reference: _Reference, found: _Found) -> _Seen:
        """Return the objective and its gradient at the trials of some targets."""

    def standing(self, reference: _Reference, targets: Index) -> FloatArray:
        """Return the value that a trial must improve on, for each target."""
        return self.value[targets]

    @abstractmethod
    def step(self, targets: Index) -> None:
        """Compute new trial weights of some targets."""

    @abstractmethod
    def about(self) -> Any:
        """Return the claims about the solution."""

    @abstractmethod
    def unfinished(self) -> NDArray[np.bool_]:
        """Return which targets are not at their optimum."""

    def settled(self) -> bool:
        """Return whether the unfinished targets are close enough to their optimum."""
        return False

    @abstractmethod
    def finish(self, target: int) -> Generator[Iterate | None, Any, None]:
        """Solve the problem of a single target."""

    @abstractmethod
    def ending(self) -> Status | None:
        """Return the status at the end of the run, or None."""

    # common to all objectives

    @property
    def grouped(self) -> bool:
        return self.space is not None and self.space.size > 0

    def point(self) -> Iterate:
        """Return the current point of all targets."""
        return Iterate(self.theta, self.A, about=self.about(), slack=self.slack())

    def slack(self) -> float | None:
        """Return the expected further gain, None if it is unknown or negligible."""
        worst = float(np.max(np.where(self.unfinished(), self.promise, 0.0)))
        return worst if np.isfinite(worst) and worst > self.rest else None

    def round(self) -> Generator[Iterate | None, Any, None]:
        """Evaluate the trials of all active targets, and compute new ones."""
        space = self.space
        assert space is not None
        targets = np.flatnonzero(self.active)
        groups = (
            self.starts(space)
            if self.n_rounds == 0
            else space.groups(self.trial * self.scale[:, None], targets)
        )
        self.n_rounds += 1
        for reference, members in groups:
            if isinstance(reference, np.ndarray):
                reference = _Reference.at(space, reference)
            for at in range(0, len(members), space.block):
                self.evaluate(reference, members[at : at + space.block])
                yield self.point().alive()
        self.step(targets)

    def begin(self) -> None:
        """Give each target its starting point: a multiple of the first weights.

        At such weights, all systems are diagonal in the space. A run that is stopped
        later has at least these weights.
        """
        space = self.space
        assert space is not None
        self.levels = self.multiples()
        self.number = np.zeros(len(self.theta), dtype=np.intp)
        targets = np.flatnonzero(self.active)
        for at in range(0, len(targets), space.block):
            here = targets[at : at + space.block]
            z = self.problem.values(here)
            inside = space.inward(z)
            energy = np.asarray(inside, dtype=float) ** 2
            # the part outside the span is noise at any weights
            rest = np.maximum(np.sum(z**2, axis=0) - energy.sum(axis=0), 0.0)
            which = self.scales(energy, rest, here)
            scale = self.levels[which]
            shrink = 1.0 / (1.0 + np.outer(space.values, scale))
            quad = np.sum(energy * shrink, axis=0) + rest
            a = z - space.outward(inside * (1.0 - shrink).astype(space.dtype))
            own = self.scale[here]
            self.A[:, here] = self.problem.centred.coefficients(a) * own
            self.theta[here] = (scale / own)[:, None] * space.theta
            self.size[here] = quad * own
            self.value[here] = self.level(quad * own, which, here)
            self.number[here] = which
        self.trial[targets] = self.theta[targets]

    def starts(self, space: _Space) -> list[tuple[_Reference, Index]]:
        """Return the references of the starting points, and the targets of each."""
        targets = np.flatnonzero(self.active)
        number = self.number[targets]
        return [
            (space.first(scale), targets[number == i])
            for i, scale in enumerate(self.levels)
            if np.any(number == i)
        ]

    def evaluate(self, reference: _Reference, targets: Index) -> None:
        """Evaluate the trials of some targets, and keep those that are better."""
        space, trial = self.space, self.trial[targets]
        assert space is not None
        z, scale = self.problem.values(targets), self.scale[targets]
        inside = space.inward(z)
        found = reference.solve(inside, trial * scale[:, None], self.accuracy)
        rest = z - space.outward(inside)
        found.quad += np.sum(rest**2, axis=0)
        found.multiply(scale)
        seen = self.look(reference, found)
        better = seen.value < self.standing(reference, targets)
        better |= self.fresh[targets]
        self.reach[targets] = np.where(
            better, np.minimum(2 * self.reach[targets], 2.0), self.reach[targets] / 3
        )
        now = targets[better]
        a = space.outward(reference.back(found.a[:, better])) + rest[:, better]
        A = self.problem.centred.coefficients(a) * scale[better]
        # not atomic; if Ctrl-C comes in between, certificates detect it
        self.A[:, now] = A
        self.theta[now], self.value[now] = trial[better], seen.value[better]
        self.quads[now], self.bends[now] = found.quads[better], found.bends[better]
        self.slopes[now], self.size[now] = seen.slopes[better], found.quad[better]
        self.loss[now], self.fresh[now] = seen.loss[better], False


# --- evidence -------------------------------------------------------------------------


class _EvidenceTask(_Task):
    """Restricted likelihood: determinants from references, nonnegative weights."""

    problem: OwnEvidence

    def __init__(self, problem: OwnEvidence, rest: float, few: int) -> None:
        self.free = problem.all.freedom
        self.single_precision = rest >= _SINGLE
        self.accuracy = min(1e-5, 0.1 * rest / self.free)
        super().__init__(problem, rest, few)
        self.constant = float(problem.all.misfit(np.full(1, self.free))[0])
        # shared by all points, as are their arrays: the last point is the best one
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

    def multiples(self) -> FloatArray:
        assert self.space is not None
        volumes = np.log1p(np.outer(_SCALES, self.space.values)).sum(axis=1)
        self.volumes = volumes
        return _SCALES

    def scales(self, energy: FloatArray, rest: FloatArray, targets: Index) -> Index:
        """Return the multiples of equal weights with the largest likelihood."""
        assert self.space is not None
        shrink = 1.0 / (1.0 + np.outer(_SCALES, self.space.values))
        quads = np.maximum(shrink @ energy + rest, 1e-300)
        costs = self.free * np.log(quads) + self.volumes[:, None]
        return np.asarray(np.argmin(costs, axis=0))

    def level(self, quads: FloatArray, scales: Index, targets: Index) -> FloatArray:
        s = np.maximum(quads, 1e-300) / self.free
        return 0.5 * (self.free * np.log(s) + self.volumes[scales])

    def look(self, reference: _Reference, found: _Found) -> _Seen:
        volume, traces, tilt = reference.volume_at(found.theta)
        s = np.maximum(found.quad, 1e-300) / self.free
        slopes = 0.5 * (traces - found.quads / s[:, None])
        value = 0.5 * (self.free * np.log(s) + volume)
        # an error e of the gradient moves the weights, which costs about ½ e'H^-1 e
        bent = np.einsum("tmm->tm", found.bends)
        own = bent - found.quads**2 / (self.free * s)[:, None]
        H = 0.5 * np.maximum(own, 0.05 * bent) / s[:, None]
        off = np.maximum(0.5 * tilt - (found.theta == 0) * np.maximum(slopes, 0), 0.0)
        each = np.divide(off**2, H, out=np.zeros_like(off), where=H > 0)
        return _Seen(value, slopes, 0.5 * each.sum(axis=1))

    def standing(self, reference: _Reference, targets: Index) -> FloatArray:
        # an error of an earlier determinant must not prevent progress
        volume = reference.volume_at(self.theta[targets])[0]
        again = 0.5 * (self.free * np.log(self.size[targets] / self.free) + volume)
        return np.maximum(self.value[targets], again)

    def step(self, targets: Index) -> None:
        theta, space = self.theta[targets], self.space
        assert space is not None
        s = np.maximum(self.size[targets], 1e-300) / self.free
        model = (
            self.bends[targets], self.quads[targets], 1.0 / (self.free * s), 0.5 / s,
            self.slopes[targets], theta,
        )  # fmt: skip
        most = np.where(space.variances > 0, LARGEST / (1e-300 + space.variances), 0.0)
        wide = (np.zeros_like(theta), np.tile(most, (len(theta), 1)))
        _, gains = _own_steps(*model, *wide)
        reach = self.reach[targets]
        near = tuple(
            np.clip(space.moved(theta, sign * reach), 0.0, most) for sign in (-1, 1)
        )
        self.trial[targets], _ = _own_steps(*model, *near)
        self.promise[targets] = gains
        # targets that make no progress in a group are solved individually
        stuck = reach < 0.02
        done = np.maximum(gains, self.loss[targets]) <= max(self.rest, _ROUGH)
        self.active[targets] = ~(done | stuck)

    def about(self) -> Likelihoods:
        found, seen = self.claims, self.varied & np.isfinite(self.value)
        found.evidence[seen] = -self.value[seen] - 0.5 * self.constant
        known = np.isfinite(self.promise)
        found.promise[known] = self.promise[known]
        return found

    def unfinished(self) -> NDArray[np.bool_]:
        done = self.exact | (self.promise <= self.rest) & (self.rest >= _ROUGH)
        return self.varied & ~(done | self.settled())

    def settled(self) -> bool:
        # the mean over targets decides: the last few would cost more than all others
        return self.rest >= _ROUGH and self._mean() <= self.rest

    def slack(self) -> float | None:
        mean = self._mean()
        if self.rest < _ROUGH or not np.isfinite(mean):
            return super().slack()
        return mean

    def _mean(self) -> float:
        return float(np.mean(self.promise[self.varied])) if self.varied.any() else 0.0

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

    def __init__(self, problem: OwnSquared, rest: float, few: int, single: Any) -> None:
        self.single_precision, self.single = rest >= 1e-4, single
        self.accuracy = 0.01 * min(rest, 1e-2)
        super().__init__(problem, rest, few)
        self.scale = problem.multiples
        self.lower = np.full(len(self.theta), -np.inf)
        T = len(self.theta)
        upper = problem.at_zero(slice(0, T))
        self.claims = Bounds(upper, np.zeros(T), np.ones(T, dtype=bool))

    def suits(self) -> bool:
        return isinstance(self.problem.weights, LpBall)

    def center(self) -> FloatArray:
        return self.problem.weights.center(self.problem.bank.shape[2])

    def multiples(self) -> FloatArray:
        return np.unique(self.scale)

    def scales(self, energy: FloatArray, rest: FloatArray, targets: Index) -> Index:
        return np.searchsorted(self.levels, self.scale[targets])

    def level(self, quads: FloatArray, scales: Index, targets: Index) -> FloatArray:
        return 0.5 * quads

    def look(self, reference: _Reference, found: _Found) -> _Seen:
        none = np.zeros_like(found.quad)
        return _Seen(0.5 * found.quad, np.zeros_like(found.theta), none)

    def step(self, targets: Index) -> None:
        ball = self.problem.weights
        assert isinstance(ball, LpBall)
        theta, q = self.theta[targets], self.quads[targets]
        value = np.maximum(self.value[targets], 1e-300)
        gap = 0.5 * np.maximum(ball.supports(q) - np.sum(theta * q, axis=1), 0.0)
        self.lower[targets] = value - gap
        self.promise[targets] = gap / value
        # half of the tolerance allows for systems that were solved approximately
        self.active[targets] = (gap / value > 0.5 * self.rest) & (
            self.reach[targets] > 0.02
        )
        if not ball.fixed:
            model = in_ball(theta, q, self.bends[targets], ball.p)
            plain = _ball_step(theta, q, ball.p)
            # after a step that failed, use the analytic update, which always descends
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
    """Solutions and quadratic forms of the trials of some targets."""

    theta: FloatArray  # (T, M)
    a: NDArray[Any]  # (r, T), in the coordinates of the reference
    quad: FloatArray  # (T,)  z'G^-1 z
    quads: FloatArray  # (T, M)  a'C_m a
    bends: FloatArray  # (T, M, M)  a'C_k P C_m a, P of the reference

    def multiply(self, scale: FloatArray) -> None:
        """Make these the forms of costs ``scale`` (T,), in units of their weights."""
        # the objective is ½ c z'a with G = I + c C, and each derivative brings a c
        self.theta = self.theta / scale[:, None]
        self.quad *= scale
        self.quads *= scale[:, None] ** 2
        self.bends *= scale[:, None, None] ** 3


@dataclass
class _Seen:
    """The objective at the trials of some targets."""

    value: FloatArray  # (T,)
    slopes: FloatArray  # (T, M)
    loss: FloatArray  # (T,)  bound on the cost of errors in the gradient


@dataclass(frozen=True)
class _Space:
    """The span of all kernels, in the basis of eigenvectors of the first reference."""

    factors: Factors  # in these coordinates
    basis: NDArray[Any]  # (n, r)
    kappa: FloatArray  # (M,) mean eigenvalue of each kernel
    variances: FloatArray  # (M,)
    stack: NDArray[Any]  # the stack of factors, in working precision
    block: int
    theta: FloatArray  # (M,) weights of the first reference
    values: FloatArray  # (r,) eigenvalues of the first reference

    @classmethod
    def of(cls, factors: Factors, task: _Task) -> _Space:
        theta, n = task.center(), len(factors.stack)
        dtype = np.float32 if task.single_precision else np.float64
        span, stack = None, factors.stack
        if 2 * stack.shape[1] <= n:  # few columns: work within their span
            span, stack = np.linalg.qr(stack)
        scaled = stack * np.sqrt(factors.columns(theta))
        values, vectors = eigh(scaled @ scaled.T, driver="evd")
        kept = values > n * np.finfo(float).eps * max(float(values[-1]), 0.0)
        values, basis = values[kept], np.ascontiguousarray(vectors[:, kept])
        if span is not None:
            basis = span @ basis
        inner = Factors(basis.T @ factors.stack, factors.ends)
        traces = factors.traces()
        kappa = np.where(traces > 0, traces / np.maximum(factors.ranks, 1), 1.0)
        M, r = len(traces), len(values)
        widest = max(r * (M + 4) + factors.stack.shape[1], n)
        block = int(np.clip(_BYTES // (np.dtype(dtype).itemsize * widest), 16, 4096))
        return cls(
            inner,
            basis.astype(dtype),
            kappa,
            traces / n,
            inner.stack.astype(dtype),
            block,
            theta,
            values,
        )

    @property
    def dtype(self) -> Any:
        """Working precision of computations with many columns."""
        return self.stack.dtype

    def first(self, scale: float = 1.0) -> _Reference:
        """Return the first reference, or that of a multiple of its weights."""
        return _Reference.diagonal(self, scale * self.theta, scale * self.values)

    @property
    def size(self) -> int:
        """Dimension r."""
        return len(self.factors.stack)

    def inward(self, z: FloatArray) -> NDArray[Any]:
        """Return coordinates in the space from values of samples (n, T)."""
        return self.basis.T @ z.astype(self.dtype)

    def outward(self, part: NDArray[Any]) -> FloatArray:
        """Return values of samples from coordinates in the space (r, T)."""
        return np.asarray(self.basis @ part, dtype=float)

    def bent(self, theta: FloatArray) -> FloatArray:
        """Return ``log(1 + kappa theta)``."""
        return np.log1p(theta * self.kappa)

    def moved(self, theta: FloatArray, by: FloatArray) -> FloatArray:
        """Return the weights whose ``log(1 + kappa theta)`` is larger by ``by``."""
        return ((1.0 + theta * self.kappa) * np.exp(by)[:, None] - 1.0) / self.kappa

    def groups(self, trial: FloatArray, targets: Index) -> list[tuple[Any, Index]]:
        """Return groups of targets with similar weights, and their mean weights."""
        bent = self.bent(trial[targets])
        # balance the work for references with that for the systems of their targets
        r, R = self.size, self.factors.stack.shape[1]
        worth = 1.5 * (r**2 / 3 + 4 * r * R) / (30 * max(R, 1) + 4 * len(self.basis))
        least = min(4, 1 + len(targets) // 4)
        count = int(np.clip(len(targets) / max(worth, 1.0), least, _GROUPS))
        return [
            (np.expm1(bent[part].mean(axis=0)) / self.kappa, targets[part])
            for part in nearby_groups(bent, count)
        ]


@dataclass(frozen=True)
class _Reference:
    """Weights near those of some targets, with a factorisation of their system.

    Coordinates are those in which the system ``I + C`` of these weights is the
    identity.

    Attributes
    ----------
    inverse : array of shape (r, r), or (r,)
        ``S`` with ``S (I + C) S' = I``, lower triangular; only its diagonal if it is
        diagonal.
    V : array of shape (r, R)
        The factors of the kernels in these coordinates.
    volume : float
        ``log |I + C|``.
    traces, curvature : arrays of shape (M,) and (M, M)
        Its gradient, and minus its Hessian, in the weights.
    """

    space: _Space
    theta: FloatArray
    inverse: NDArray[Any]
    V: NDArray[Any]
    volume: float
    traces: FloatArray
    curvature: FloatArray

    @classmethod
    def at(cls, space: _Space, theta: FloatArray) -> _Reference:
        """Return the reference at given weights, by a Cholesky factorisation."""
        scaled = space.factors.stack * np.sqrt(space.factors.columns(theta))
        system = np.asfortranarray(scaled @ scaled.T)
        system[np.diag_indices(len(system))] += 1.0
        root, definite = cholesky(system)
        assert definite  # the identity plus a semidefinite matrix
        volume = 2.0 * float(np.log(np.diagonal(root)).sum())
        inverse = np.tril(invert_triangle(root)).astype(space.dtype)
        return cls._known(space, theta, inverse, inverse @ space.stack, volume)

    @classmethod
    def diagonal(
        cls, space: _Space, theta: FloatArray, values: FloatArray
    ) -> _Reference:
        """Return the reference at weights whose ``C`` is diagonal in the space."""
        inverse = (1.0 / np.sqrt(1.0 + values)).astype(space.dtype)
        volume = float(np.log1p(values).sum())
        return cls._known(space, theta, inverse, inverse[:, None] * space.stack, volume)

    @classmethod
    def _known(
        cls,
        space: _Space,
        theta: FloatArray,
        inverse: NDArray[Any],
        V: NDArray[Any],
        volume: float,
    ) -> _Reference:
        return cls(space, theta, inverse, V, volume, *_moments(V, space))

    def turn(self, part: NDArray[Any]) -> NDArray[Any]:
        """Return right-hand sides in the coordinates of the reference."""
        if self.inverse.ndim == 1:
            return np.asarray(self.inverse[:, None] * part)
        return np.asarray(self.inverse @ part)

    def back(self, part: NDArray[Any]) -> NDArray[Any]:
        """Return solutions in the space from those in these coordinates."""
        if self.inverse.ndim == 1:
            return np.asarray(self.inverse[:, None] * part)
        return np.asarray(self.inverse.T @ part)

    def volume_at(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ``log |I + C|`` and its gradient at weights nearby, (T,) and (T, M).

        They are computed to second order in ``log(1 + kappa theta)``. The last result
        estimates the error of the gradient, assuming a third-order term of the size of
        the second-order term.
        """
        kappa = self.space.kappa
        by, unit = self.space.bent(theta) - self.space.bent(self.theta), 1.0 / kappa
        here = self.theta + unit
        slopes = self.traces * here
        bend = np.diag(slopes) - self.curvature * np.outer(here, here)
        turned = by @ bend
        volume = self.volume + by @ slopes + 0.5 * np.sum(turned * by, axis=1)
        traces = (slopes + turned) / (theta + unit)
        # terms of either sign are added as the root of the sum of squares
        far = by**2
        third = np.sqrt(far.max(axis=1)[:, None] * (far @ bend**2))
        tilt = third / (4.0 * (theta + unit))
        return volume, np.maximum(traces, 1e-3 * self.traces), tilt

    def solve(self, inside: NDArray[Any], theta: FloatArray, accuracy: float) -> _Found:
        """Solve the systems of some targets, at their own weights."""
        factors, V, M = self.space.factors, self.V, len(self.theta)
        z = self.turn(inside)
        a = z
        if np.abs(theta - self.theta).max() > 1e-12 * np.abs(self.theta).max():
            change = factors.columns(theta - self.theta).astype(V.dtype)
            a = _conjugate_gradients(V, change, z, accuracy)
        B = V.T @ a
        quads = factors.totals(np.asarray(B, dtype=float) ** 2).T
        images = np.empty((a.shape[1], M, len(V)), dtype=V.dtype)
        for m in range(M):
            part = slice(factors.ends[m], factors.ends[m + 1])
            images[:, m] = B[part].T @ V[:, part].T
        bends = np.asarray(images @ images.transpose(0, 2, 1), dtype=float)
        quad = np.einsum("rt,rt->t", z, a, dtype=float)
        return _Found(theta, a, quad, quads, bends)


def _moments(V: NDArray[Any], space: _Space) -> tuple[FloatArray, FloatArray]:
    """Return ``tr P C_m`` and ``tr P C_k P C_m`` from ``P^½ L``, by blocks of rows."""
    factors, r = space.factors, len(V)
    M = len(factors.ranks)
    traces = factors.totals(np.sum(V**2, axis=0, dtype=float))
    curvature = np.zeros((M, M))
    rows = max(1, _BYTES // (8 * max(1, 4 * M * r)))
    for at in range(0, r, rows):
        here, end = slice(at, at + rows), min(at + rows, r)
        products = np.empty((M, end - at, end), dtype=V.dtype)
        for m in range(M):
            part = V[:, factors.ends[m] : factors.ends[m + 1]]
            np.matmul(part[here], part[:end].T, out=products[m])
        # by symmetry, blocks left of the diagonal count twice
        curvature += 2.0 * _inner(products)
        curvature -= _inner(np.ascontiguousarray(products[:, :, at:]))
    return traces, curvature


def _inner(parts: NDArray[Any]) -> FloatArray:
    """Return the inner products of matrices (M, ...)."""
    flat = parts.reshape(len(parts), -1)
    return np.asarray(flat @ flat.T, dtype=float)


def _conjugate_gradients(
    V: NDArray[Any], change: NDArray[Any], z: NDArray[Any], accuracy: float
) -> NDArray[Any]:
    """Solve ``(I + V diag(w) V') a = z`` for every column, with its ``change`` w.

    The squared error in the energy norm is about ``accuracy`` times ``z'a``. Columns
    that have converged are dropped.
    """
    out, which = z.copy(), np.arange(z.shape[1])
    a = z.copy()
    left = -(V @ (change * (V.T @ a)))
    along, now = left.copy(), np.einsum("rt,rt->t", left, left)
    for _ in range(_CG):
        on = now > accuracy * np.abs(np.einsum("rt,rt->t", z, a))
        if not on.any():
            break
        if 4 * np.count_nonzero(on) <= 3 * len(on):
            out[:, which] = a
            which, now = which[on], now[on]
            z, a, left, along = z[:, on], a[:, on], left[:, on], along[:, on]
            change = change[:, on]
        turned = V @ (change * (V.T @ along))
        turned += along
        size = np.einsum("rt,rt->t", along, turned)
        step = np.divide(now, size, out=np.zeros_like(now), where=size > 0)
        a += step * along
        turned *= step
        left -= turned
        then = np.einsum("rt,rt->t", left, left)
        along *= np.divide(then, now, out=np.zeros_like(now), where=now > 0)
        along += left
        now = then
    out[:, which] = a
    return out


def nearby_groups(points: FloatArray, count: int) -> list[Index]:
    """Return groups of nearby points, by repeatedly splitting the widest group."""
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


def in_ball(
    theta: FloatArray, q: FloatArray, bends: FloatArray, p: float
) -> FloatArray:
    """Return the approximate minimiser of a quadratic model in the ball, by target.

    The model has the gradient ``-½ q`` and the Hessian ``bends``. The analytic update
    is iterated, with the q that corresponds to the gradient of the model.
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
    """Return the optimal weights of a quadratic model for each target, and their gains.

    The Hessian is ``factor (bends - share quads quads')``, where ``share`` is lowered
    such that it is positive definite; weights are between ``low`` and ``high``.
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
