"""Groups of targets that share kernel weights, and chunks of targets on workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from mklearn.data.blocks import Block
from mklearn.data.checks import NothingToLearnError
from mklearn.data.clock import Clock
from mklearn.data.dask import ColumnChunks
from mklearn.data.spelling import plural
from mklearn.estimators._base import EXPLAINED
from mklearn.estimators._targets import Shifted
from mklearn.kernels.memory import room_for
from mklearn.problems.base import relative_gap
from mklearn.problems.design import Design
from mklearn.problems.evidence import EvidenceProblem, WeightErrors
from mklearn.problems.targets import (
    Bounds,
    FewerColumns,
    Likelihoods,
    OwnEvidence,
    OwnSquared,
    joined,
)
from mklearn.solvers import History, Solution, Status
from mklearn.solvers.driver import run_solver, warn_if_early
from mklearn.solvers.loop import Progress
from mklearn.solvers.targets import OwnWeights

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]


def check_weights(weights: Any) -> None:
    """Raise ValueError unless ``weights`` is a known option or an array of groups."""
    if isinstance(weights, str):
        if weights not in ("shared", "per-target"):
            raise ValueError(
                "weights must be 'shared', 'per-target' or an array with the group of "
                f"each target, got {weights!r}."
            )
    elif np.ndim(weights) != 1:
        raise ValueError(
            "weights must be 'shared', 'per-target' or an array with the group of each "
            f"target, of shape (n_outputs,), got shape {np.shape(weights)}."
        )


def is_shared(weights: Any) -> bool:
    """Return whether all targets share their weights."""
    return isinstance(weights, str) and weights == "shared"


def is_own(weights: Any) -> bool:
    """Return whether each target has its own weights."""
    return isinstance(weights, str) and weights == "per-target"


def target_groups(weights: Any, n_targets: int) -> list[Index]:
    """Return the targets of each group; with weights per target, one in each."""
    if is_own(weights):
        return [np.arange(t, t + 1) for t in range(n_targets)]
    labels = np.asarray(weights)
    if len(labels) != n_targets:
        raise ValueError(
            f"weights gives the groups of {plural(len(labels), 'target')}, but y has "
            f"{plural(n_targets, 'column')}; give one group for each column."
        )
    _, number = np.unique(labels, return_inverse=True)
    return [np.flatnonzero(number == g) for g in range(number.max() + 1)]


@dataclass(frozen=True)
class Assembled:
    """The solutions of groups of targets, in the order of the targets.

    Attributes
    ----------
    theta, shares : arrays of shape (T, M)
    A : array of shape (n, T)
    bias : array of shape (T,), or (q, T) with covariates
    """

    theta: FloatArray
    shares: FloatArray
    A: FloatArray
    bias: FloatArray

    @classmethod
    def of(
        cls,
        parts: Iterable[tuple[Index | slice, Solution, FloatArray]],
        n_targets: int,
        n_kernels: int,
        memory_limit: int | None = None,
    ) -> Assembled:
        """Return the solutions of all groups.

        Parameters
        ----------
        parts : iterable
            The targets of a group, their solution, and the shares of kernels in it.
        n_targets, n_kernels : int
        memory_limit : int, optional
            Number of bytes above which A is stored in a file.
        """
        found = None
        for group, solution, shares in parts:
            if found is None:
                size = len(solution.A), n_targets
                found = cls(
                    np.empty((n_targets, n_kernels)),
                    np.empty((n_targets, n_kernels)),
                    room_for(size, solution.A.dtype, memory_limit),
                    np.empty((*solution.bias.shape[:-1], n_targets)),
                )
            found.theta[group] = solution.theta[..., :n_kernels]
            found.shares[group] = shares
            found.A[:, group], found.bias[..., group] = solution.A, solution.bias
        assert found is not None  # there is at least one group
        return found

    def solution(
        self,
        each: Sequence[Solution],
        about: Likelihoods | Bounds,
        history: History,
        stopped: Status | None = None,
    ) -> Solution:
        """Return the solutions of groups, in the order of the targets, as one.

        Parameters
        ----------
        each : sequence of Solution
        about : what is known about the targets
        history : History
            With an entry for each group.
        stopped : Status, optional
            Why there are no further groups; by default, the status of the first group
            that did not reach its tolerance.
        """
        early = [s for s in each if s.status not in (Status.OPTIMAL, Status.STATIONARY)]
        slack = [s.slack for s in early or each if s.slack is not None]
        if len(slack) < len(early):
            slack = []  # not known of some targets
        return Solution(
            theta=self.theta,
            A=self.A,
            bias=self.bias,
            dual=self.A,
            upper=sum(s.upper for s in each),
            lower=sum(s.lower for s in each),
            status=stopped or (early or each)[0].status,
            n_iter=max(s.n_iter for s in each),
            time=history.time[-1] if history.time else 0.0,
            solver=each[0].solver,
            history=history,
            weight_bounds=each[0].weight_bounds,
            about=about,
            slack=max(slack, default=None),
            claim=about.message.rstrip("."),
            error=sum(s.error for s in each),
        )


def record(history: History, last: Solution, seconds: float) -> None:
    """Add the solution of a group to the history of all groups, whose sums it holds."""
    upper = last.upper + (history.upper[-1] if history.upper else 0.0)
    lower = last.lower + (history.lower[-1] if history.lower else 0.0)
    history.upper.append(upper)
    history.lower.append(lower)
    history.gap.append(relative_gap(upper, lower))
    history.theta.append(last.theta)
    history.time.append(seconds)
    history.values.append(last.upper)
    history.bounds.append(last.lower)
    history.slack.append(np.nan if last.slack is None else last.slack)


@dataclass(frozen=True)
class LaterErrors:
    """Standard errors of targets with separate weights, for when they are needed.

    They take a factorisation for each group of targets, and the samples.

    Attributes
    ----------
    groups : list of arrays
        The targets of each group.
    problem : callable
        Function of the number of a group that returns its problem.
    units : array or None
        The map from effects of the problem to effects in the units of X.
    """

    groups: list[Index]
    problem: Callable[[int], EvidenceProblem]
    units: FloatArray | None

    def at(
        self, theta: FloatArray, only: Index | None = None
    ) -> tuple[WeightErrors, FloatArray]:
        """Return the errors at weights (T, M), and those of effects, (q, T).

        They are NaN for targets that are not in ``only``.
        """
        T, M = theta.shape
        found = {
            one.name: np.full((T, M) if one.name in _BY_KERNEL else T, np.nan)
            for one in fields(WeightErrors)
        }
        effects, wanted = None, np.full(T, only is None)
        if only is not None:
            wanted[only] = True
        for number, group in enumerate(self.groups):
            if not wanted[group].any():
                continue
            problem = self.problem(number)
            at = problem.at(theta[group[0]])
            assert at is not None  # or the solution would have no evidence
            errors, std = at.errors(), problem.effects_std(at, self.units)
            if effects is None:
                effects = np.full((len(std), T), np.nan)
            effects[:, group] = std
            for name, values in found.items():
                values[group] = getattr(errors, name)
        assert effects is not None  # there is at least one group
        return WeightErrors(**found), effects


_BY_KERNEL = ("weights", "shares", "shares_std")

# --- chunks of targets on workers -----------------------------------------------------


def as_chunks(y: Any, n: int) -> ColumnChunks | None:
    """Return the targets of ``n`` samples in chunks, None if workers have none."""
    if not ColumnChunks.suit(y):
        return None
    check_consistent_length(np.empty(n), y)
    return ColumnChunks(y)


@dataclass(frozen=True)
class ChunkFit:
    """The fit of a chunk of targets, by the worker that reads it.

    Parameters
    ----------
    problem : OwnEvidence or OwnSquared
        Without any targets; it goes to each worker once.
    solver : OwnWeights
    tol, max_iter : limits of the solver
    beside : Design or None
        The covariates.
    centred : bool
        Whether the median of each target is subtracted first.
    """

    problem: OwnEvidence | OwnSquared
    solver: OwnWeights
    tol: float
    max_iter: int
    beside: Design | None
    centred: bool

    def __call__(self, Y: NDArray[Any], seconds: float | None) -> ChunkFound:
        """Return the solution of the targets Y (n, width), within some seconds."""
        shift = np.zeros(Y.shape[1])
        if self.centred:
            shift = np.median(Y, axis=0)
            Y = Shifted(shift)(Block(None, Y, np.ones(len(Y)))).y
        explained = np.zeros(len(shift), dtype=bool)
        if self.beside is not None:
            explained = self.beside.explains(Y)
        problem = self.problem.of(Y)
        if not self.centred and explained.any():  # no evidence without residuals
            raise NothingToLearnError(EXPLAINED)
        solver = self.solver
        if seconds == 0.0:  # too late for any computation
            solver = replace(solver, rounds=0)
        problem, seconds = problem.until(Clock.start(seconds))
        found = run_solver(problem, solver, self.tol, self.max_iter, seconds)
        shares = problem.contributions(found.theta, found.A, found.quads)
        return ChunkFound(replace(found, history=History()), shares, shift, explained)


class ChunkFound(NamedTuple):
    """What a worker found for a chunk of targets."""

    solution: Solution
    shares: FloatArray
    shift: FloatArray
    explained: NDArray[np.bool_]


@dataclass
class ChunkRun:
    """The run of the fits of all chunks, which collects what workers find.

    Parameters
    ----------
    columns : ColumnChunks
    fit : ChunkFit
    clock : Clock
    callback, verbose
        As in :func:`mklearn.solvers.solve`, after each chunk instead of each iteration.
    """

    columns: ColumnChunks
    fit: ChunkFit
    clock: Clock
    callback: Callable[[Any], Any] | None
    verbose: int
    history: History = field(default_factory=History)
    stopped: Status | None = None
    shift: FloatArray = field(init=False)
    explained: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        count = self.columns.shape[1]
        self.shift, self.explained = np.zeros(count), np.zeros(count, dtype=bool)
        self.found: dict[int, Solution] = {}
        self.began = time.perf_counter()

    def solve(self, memory_limit: int | None) -> tuple[Solution, FloatArray]:
        """Return one solution of all targets, and the shares of kernels in it."""
        T, M = self.columns.shape[1], self.fit.problem.bank.shape[2]
        made = Assembled.of(self._parts(), T, M, memory_limit)
        order = [self.found[number] for number in range(len(self.found))]
        about = joined([solution.about for solution in order])
        solution = made.solution(order, about, self.history, self.stopped)
        warn_if_early(solution, self.fit.tol)
        return solution, made.shares

    def _parts(self) -> Iterator[tuple[slice, Solution, FloatArray]]:
        """Yield all chunks; after a stop, those that are left at their first point."""
        progress = Progress(self.verbose, self.fit.tol)
        try:
            yield from self._until_stopped(progress)
        except KeyboardInterrupt:
            self.stopped = Status.INTERRUPTED
        finally:
            progress.close()
        if self.stopped is not None:
            yield from self._taken(lambda: 0.0)

    def _until_stopped(
        self, progress: Progress
    ) -> Iterator[tuple[slice, Solution, FloatArray]]:
        for part in self._taken(self.clock.left):
            yield part
            record(self.history, part[1], time.perf_counter() - self.began)
            progress.show(self.history)
            if part[1].status is Status.INTERRUPTED:  # in a task of this process
                raise KeyboardInterrupt
            if self.callback is not None and self.callback(self.history):
                self.stopped = Status.CALLBACK
                return

    def _taken(
        self, left: Callable[[], float | None]
    ) -> Iterator[tuple[slice, Solution, FloatArray]]:
        """Yield the solutions of the chunks that are left, as soon as one is ready."""
        slices = self.columns.slices
        rest = [i for i in range(len(slices)) if i not in self.found]
        for number, (solution, shares, shift, known) in self.columns.each(
            self.fit, rest, left
        ):
            here = slices[number]
            self.shift[here], self.explained[here] = shift, known
            none = np.empty((0, 0))  # its coefficients are stored by whoever takes it
            self.found[number] = replace(solution, A=none, dual=none)
            yield here, solution, shares


def spread_solution(solution: Solution, fewer: FewerColumns) -> Solution:
    """Return the solution of all targets from that of the reduced columns."""
    return replace(
        solution,
        A=fewer.spread(solution.A),
        dual=fewer.spread(solution.dual),
        bias=fewer.spread(solution.bias),
    )
