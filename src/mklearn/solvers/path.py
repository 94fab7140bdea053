"""Paths: warm-started solutions for many costs and norms on one bank."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from mklearn.data.spelling import plural
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.dense import DenseGrams
from mklearn.problems.mkl import MKLProblem, RoughProblem
from mklearn.problems.protocols import BoxLoss, Loss
from mklearn.problems.weights import LpBall, WeightSet, for_kernels, weight_set
from mklearn.solvers.base import Iterate, Iterates, Need, Solution, Solver, Status
from mklearn.solvers.driver import solve
from mklearn.solvers.registry import choose_solver

FloatArray = NDArray[np.float64]

NORMS = (1.0, 4 / 3, 2.0, 4.0, math.inf)
_STEPS = np.linspace(0.0, 1.0, 33)  # exponents of the factors that are tried
_FAR = 1.5  # factor by which dual variables could grow and still stay within bounds
_STOPPED = (Status.TIME_LIMIT, Status.CALLBACK, Status.INTERRUPTED)


@dataclass(frozen=True)
class Path:
    """Solutions over a grid of P norms and K costs, on one bank of M kernels.

    Attributes
    ----------
    Cs : array of shape (K,)
        Costs, ascending.
    norms : tuple of P numbers or weight sets
    theta : array of shape (P, K, M)
        Kernel weights; this and the following arrays are NaN in cells that were not
        reached.
    objective, lower : arrays of shape (P, K)
        Bounds on the optimum of each cell.
    gap : array of shape (P, K)
        Relative duality gaps.
    n_iter : array of shape (P, K)
        Number of iterations, as floats to allow for NaN.
    seconds : array of shape (P, K)
    solutions : tuple of P tuples of K Solution or None
    """

    Cs: FloatArray
    norms: tuple[Any, ...]
    theta: FloatArray = field(repr=False)
    objective: FloatArray = field(repr=False)
    lower: FloatArray = field(repr=False)
    gap: FloatArray
    n_iter: FloatArray
    seconds: FloatArray = field(repr=False)
    solutions: tuple[tuple[Solution | None, ...], ...] = field(repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of norms, costs and kernels."""
        P, K, M = self.theta.shape
        return P, K, M

    @property
    def reached(self) -> NDArray[np.bool_]:
        """Which cells were solved, shape (P, K)."""
        return np.isfinite(self.gap)


def mkl_path(
    bank: KernelBank,
    loss_at: Callable[[float], Loss],
    Cs: ArrayLike,
    norms: Iterable[Any] = NORMS,
    *,
    solver: str | Solver = "auto",
    tol: float = 1e-3,
    max_iter: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
) -> Path:
    """Solve the problems of all costs and norms on one bank, with warm starts.

    For each norm the costs ascend. A cell starts from the cell before it: the weights
    are scaled onto the boundary of the new ball, and the dual variables are stretched
    by the factor, between one and the ratio of the costs, that gives the best lower
    bound, which does not require evaluating the kernels. The first cost of a norm
    starts from that of the previous norm.

    Parameters
    ----------
    bank : KernelBank
        A square, normalised bank.
    loss_at : callable
        The loss at a given cost, on the samples of the bank, for instance
        ``lambda C: Hinge(Y, C * costs)``.
    Cs : array of shape (K,)
        Positive costs; they are solved, and returned, in ascending order.
    norms : iterable of numbers p in [1, inf] or weight sets
    solver, tol, max_iter
        As in :func:`solve`, for each cell.
    time_limit : float, optional
        Time limit in seconds for the whole path. Cells that are not reached are NaN,
        and a ConvergenceWarning says how many there are.
    callback : callable, optional
        Called with the :class:`History` of the cell after each iteration; it may return
        True to stop the path.
    verbose : int
        1 prints a line for each cell, 2 one for each iteration (to standard error).

    Returns
    -------
    Path

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import Hinge, KernelBank, mkl_path
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(30, 3)), np.ones((30, 1))
    >>> Y[X[:, 0] < 0] = -1
    >>> bank = KernelBank(X, "auto").stored()
    >>> path = mkl_path(
    ...     bank, lambda C: Hinge(Y, C * np.ones((30, 1))), [0.1, 1], [1, 2]
    ... )
    >>> path.theta.shape, bool(path.gap.max() <= 1e-3)
    ((2, 2, 6), True)
    """
    norms = tuple(norms)
    grid = _Grid(check_costs(Cs), _sets(norms, bank), loss_at)
    return _follow(
        grid, norms, bank.shape[2], partial(MKLProblem, bank), solver, tol=tol,
        max_iter=max_iter, time_limit=time_limit, callback=callback, verbose=verbose,
    )  # fmt: skip


def rough_path(
    grams: DenseGrams,
    loss_at: Callable[[float], Loss],
    Cs: ArrayLike,
    norms: Iterable[Any] = NORMS,
    *,
    solver: str | Solver = "auto",
    tol: float = 1e-2,
    **limits: Any,
) -> Path:
    """Solve all cells approximately with Grams in memory, for their predictions only.

    The sum of the kernels (p = inf) is one kernel for all costs. Scores and quadratic
    forms of a cell are reused in the next one as long as the weights do not change, so
    a cell does not evaluate the kernels if the solution of its neighbour is good
    enough. Once no dual variable is near its bound, all larger costs have the same
    solution. Bounds are not recomputed for a certificate.

    Parameters
    ----------
    grams : DenseGrams
        A square, normalised bank.
    loss_at, Cs, norms, solver, tol
        As in :func:`mkl_path`.
    limits
        ``max_iter``, ``time_limit``, ``callback``, ``verbose``.
    """
    norms, bank = tuple(norms), grams.bank
    grid = _Grid(check_costs(Cs), _sets(norms, bank), loss_at)
    total = grams.sum() if any(weights.fixed for weights in grid.sets) else grams
    alone = total.bank

    def pose(loss: Loss, weights: WeightSet) -> RoughProblem:
        if weights.fixed:
            return RoughProblem(alone, loss, weights, total)
        return RoughProblem(bank, loss, weights, grams)

    return _follow(
        grid, norms, bank.shape[2], pose, solver, tol=tol, rough=True, **limits
    )


@dataclass(frozen=True)
class _FromStart:
    """A solver that yields its starting point first, if the scores are known."""

    solver: Solver

    @property
    def needs(self) -> tuple[Need, ...]:
        """The requirements of the solver."""
        return self.solver.needs

    def iterates(self, problem: Any, start: Iterate | None) -> Iterates:
        """Yield the start, then the solver's iterates."""
        if start is not None and start.scores is not None:
            yield start
        yield from self.solver.iterates(problem, start)


def _sets(norms: Iterable[Any], bank: KernelBank) -> list[WeightSet]:
    """Return the weight sets of norms, for the kernels of a bank."""
    return [for_kernels(weight_set(norm), bank.kernels, bank.names) for norm in norms]


class _Grid:
    """Weight sets and losses; each pair of them is a cell."""

    def __init__(
        self,
        costs: FloatArray,
        sets: list[WeightSet],
        loss_at: Callable[[float], Loss],
    ) -> None:
        if not sets:
            raise ValueError("A path needs at least one norm, got none.")
        self.costs, self.sets = costs, sets
        self.losses = [loss_at(float(C)) for C in costs]


def _follow(
    grid: _Grid,
    norms: tuple[Any, ...],
    M: int,
    pose: Callable[[Loss, WeightSet], MKLProblem],
    solver: str | Solver,
    *,
    tol: float,
    max_iter: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
    rough: bool = False,
) -> Path:
    """Solve the cells one after the other, each starting from its neighbour."""
    costs, losses = grid.costs, grid.losses
    began = time.perf_counter()
    solutions: list[list[Solution | None]] = [[None] * len(costs) for _ in grid.sets]
    stopped: Status | None = None
    first: Solution | None = None
    for i, weights in enumerate(grid.sets):
        before, k_before = first, 0
        for k, loss in enumerate(losses):
            left = None
            if time_limit is not None:
                left = time_limit - (time.perf_counter() - began)
                if left <= 0:
                    stopped = Status.TIME_LIMIT
            if stopped is not None:
                break
            if rough and k and before is not None and _rests(before, losses[k - 1]):
                solutions[i][k], k_before = solutions[i][k - 1], k
                continue
            problem, start = pose(loss, weights), None
            if before is not None:
                ratio = float(costs[k] / costs[k_before])
                start = warm_start(before, losses[k_before], loss, weights, ratio)
                if len(start.theta) > problem.bank.shape[2]:
                    start = Iterate(problem.center(), start.A)
            with warnings.catch_warnings():
                # a single warning covers all cells of the path
                warnings.simplefilter("ignore", ConvergenceWarning)
                before = solve(
                    problem,
                    _FromStart(choose_solver(solver, problem)),
                    tol=tol,
                    max_iter=max_iter,
                    time_limit=left,
                    callback=callback,
                    verbose=2 * (verbose > 1),
                    start=start,
                )
            if len(before.theta) < M:
                solutions[i][k] = replace(before, theta=weights.center(M), quads=None)
            else:
                solutions[i][k] = before
            k_before = k
            if k == 0:
                first = solutions[i][k]
            if before.status in _STOPPED:
                stopped = before.status
            if verbose:
                steps = plural(before.n_iter, "iteration")
                print(
                    f"norm {norms[i]!s:.8}  C {costs[k]:.4g}  objective "
                    f"{before.upper:.6g}  gap {before.gap:.2e}  {steps}  "
                    f"{before.time:.2f} s",
                    file=sys.stderr,
                )
    path = _gather(costs, norms, M, solutions)
    _warn(path, tol, stopped)
    return path


def _rests(solution: Solution, loss: Loss) -> bool:
    """Return whether larger costs have the same solution.

    If the dual term is linear, costs are only bounds on the dual variables, and bounds
    that no variable comes near can be raised without changing the solution.
    """
    if not isinstance(loss, BoxLoss) or loss.concavity > 0:
        return False
    beyond = _FAR * solution.A
    off = np.abs(loss.repair(beyond) - beyond)
    return bool((off <= 1e-9 * np.abs(beyond)).all())


def warm_start(
    solution: Solution, old: Loss, new: Loss, weights: WeightSet, ratio: float = 1.0
) -> Iterate:
    """Return a warm start from the solution of a similar problem.

    Parameters
    ----------
    solution : Solution
        Solution of a problem on the same bank with the loss ``old``.
    old, new : Loss
        The costs of the new loss are ``ratio`` times those of the old one; ``ratio`` is
        at least 1.
    weights : WeightSet
        The weight set of the new problem.
    """
    A, s = solution.dual, 1.0
    known = solution.about
    if isinstance(known, Iterate):
        A = known.A
    if ratio > 1:
        # lower bound along the ray s A; the kernel term is known from the old solution
        term = max(old.dual(A) - solution.lower, 0.0)
        steps = ratio**_STEPS
        if isinstance(new, BoxLoss) and new.concavity == 0:  # linear along the ray
            values = steps * new.dual(A) - steps**2 * term
            s = float(steps[int(np.argmax(values))])
        else:
            s = _highest(lambda s: new.dual(s * A) - s**2 * term, steps.tolist())
    theta = scaled(solution.theta, weights)
    if not isinstance(known, Iterate) or _differ(theta, known.theta):
        return Iterate(theta, new.repair(s * A))
    assert known.scores is not None and known.quads is not None
    return Iterate(known.theta, s * A, s * known.scores, s**2 * known.quads)


def _differ(theta: FloatArray, other: FloatArray) -> bool:
    """Return whether weights differ by more than rounding."""
    if theta.shape != other.shape:
        return True
    return bool((np.abs(theta - other) > 1e-12 * np.abs(other)).any())


def _highest(function: Callable[[float], float], at: list[float]) -> float:
    """Return the point at which a concave function is largest, of ascending ones.

    It may be minus infinity or NaN beyond some point, but not at the first.
    """
    low, high = 0, len(at) - 1
    while low < high:
        middle = (low + high) // 2
        here, beyond = function(at[middle]), function(at[middle + 1])
        if beyond > here:
            low = middle + 1
        else:
            high = middle
    return at[low]


def scaled(theta: FloatArray, weights: WeightSet) -> FloatArray:
    """Return weights in the proportions of ``theta`` on the boundary of a set.

    Zero weights are set to a hundredth of those of the centre, because the analytic
    update cannot increase a zero weight. For p = 1, where most of them stay zero, and
    for sets without a norm, members are not changed.
    """
    center = weights.center(len(theta))
    if not isinstance(weights, LpBall):
        return theta if weights.contains(theta) else center
    if np.isinf(weights.p) or not theta.any():
        return center
    if weights.p > 1:
        theta = theta / theta.max()
        theta = np.where(theta > 0, theta, 0.01 * center)
    size = float(np.linalg.norm(theta / theta.max(), weights.p)) * theta.max()
    return np.asarray(theta / size)


def check_costs(Cs: ArrayLike) -> FloatArray:
    """Return the costs in ascending order, without duplicates."""
    costs = np.unique(np.asarray(Cs, dtype=np.float64))
    if costs.ndim != 1 or not len(costs):
        raise ValueError(f"Cs must have at least one value, got {Cs!r}.")
    if not (np.isfinite(costs).all() and (costs > 0).all()):
        raise ValueError(f"Cs must be positive numbers, got {Cs!r}.")
    return costs


def _gather(
    costs: FloatArray,
    norms: tuple[Any, ...],
    M: int,
    solutions: list[list[Solution | None]],
) -> Path:
    """Return the solutions as arrays, with NaN for missing ones."""

    def table(value: Callable[[Solution], Any], *more: int) -> FloatArray:
        nothing = np.full(more, np.nan)
        return np.array(
            [[nothing if s is None else value(s) for s in row] for row in solutions],
            dtype=np.float64,
        )

    return Path(
        Cs=costs,
        norms=norms,
        theta=table(lambda s: s.theta, M),
        objective=table(lambda s: s.upper),
        lower=table(lambda s: s.lower),
        gap=table(lambda s: s.gap),
        n_iter=table(lambda s: s.n_iter),
        seconds=table(lambda s: s.time),
        solutions=tuple(tuple(row) for row in solutions),
    )


def _warn(path: Path, tol: float, stopped: Status | None) -> None:
    missing = int((~path.reached).sum())
    loose = int((path.gap > tol).sum())
    parts = []
    if missing:
        parts.append(f"{missing} of {path.gap.size} cells of the path were not reached")
    if loose:
        worst = np.nanmax(path.gap)
        parts.append(
            f"{loose} stopped at a relative duality gap above tol={tol:.2g}, the "
            f"largest is {worst:.2g}"
        )
    if not parts:
        return
    if stopped is None:
        found = [s.status for row in path.solutions for s in row if s and s.gap > tol]
        stopped = found[0]
    text = " and ".join(parts)
    warnings.warn(f"{text}: {stopped.value}.", ConvergenceWarning, stacklevel=3)
