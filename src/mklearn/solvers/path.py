"""Paths: one bank, many costs and norms, each solved from its neighbour."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from mklearn.kernels.bank import KernelBank
from mklearn.problems.losses import Loss
from mklearn.problems.mkl import MKLProblem
from mklearn.problems.weights import LpBall, WeightSet, weight_set
from mklearn.solvers.base import Iterate, Solution, Solver, Status
from mklearn.solvers.driver import solve

FloatArray = NDArray[np.float64]

NORMS = (1.0, 4 / 3, 2.0, 4.0, math.inf)
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
        Kernel weights; NaN, as all that follows, in cells that were not reached.
    objective, lower : arrays of shape (P, K)
        Bounds on the optimum of each cell.
    gap : array of shape (P, K)
        Relative duality gaps.
    n_iter : array of shape (P, K)
        Iterations, as floats for the sake of NaN.
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
    bound, which takes no look at the kernels. The first cost of a norm starts from that
    of the norm before.

    Parameters
    ----------
    bank : KernelBank
        Square and normalised.
    loss_at : callable
        The loss at a given cost, on the samples of the bank, for instance
        ``lambda C: Hinge(Y, C * costs)``.
    Cs : array of shape (K,)
        Positive costs; they are solved, and returned, in ascending order.
    norms : iterable of numbers p in [1, inf] or weight sets
    solver, tol, max_iter
        As in :func:`solve`, for each cell.
    time_limit : float, optional
        Limit in seconds for the whole path. Cells that are not reached are NaN, and a
        ConvergenceWarning tells how many.
    callback : callable, optional
        Called after each iteration with the :class:`History` of the cell; a true answer
        stops the path.
    verbose : int
        1 shows a line for each cell, 2 one for each iteration (on standard error).

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
    costs = check_costs(Cs)
    norms = tuple(norms)
    sets = [weight_set(norm) for norm in norms]
    if not sets:
        raise ValueError("A path needs at least one norm, got none.")
    losses = [loss_at(float(C)) for C in costs]
    began = time.perf_counter()
    solutions: list[list[Solution | None]] = [[None] * len(costs) for _ in sets]
    stopped: Status | None = None
    first: Solution | None = None
    for i, weights in enumerate(sets):
        before, k_before = first, 0
        for k, loss in enumerate(losses):
            left = None
            if time_limit is not None:
                left = time_limit - (time.perf_counter() - began)
                if left <= 0:
                    stopped = Status.TIME_LIMIT
            if stopped is not None:
                break
            start = None
            if before is not None:
                ratio = float(costs[k] / costs[k_before])
                start = warm_start(before, losses[k_before], loss, weights, ratio)
            with warnings.catch_warnings():
                # one warning for the path says it for all cells
                warnings.simplefilter("ignore", ConvergenceWarning)
                before = solve(
                    MKLProblem(bank, loss, weights),
                    solver,
                    tol=tol,
                    max_iter=max_iter,
                    time_limit=left,
                    callback=callback,
                    verbose=2 * (verbose > 1),
                    start=start,
                )
            solutions[i][k], k_before = before, k
            if k == 0:
                first = before
            if before.status in _STOPPED:
                stopped = before.status
            if verbose:
                print(
                    f"norm {norms[i]!s:.8}  C {costs[k]:.4g}  objective "
                    f"{before.upper:.6g}  gap {before.gap:.2e}  {before.n_iter} "
                    f"iterations  {before.time:.2f} s",
                    file=sys.stderr,
                )
    path = _gather(costs, norms, bank.shape[2], solutions)
    _warn(path, tol, stopped)
    return path


def warm_start(
    solution: Solution, old: Loss, new: Loss, weights: WeightSet, ratio: float = 1.0
) -> Iterate:
    """Return where to start from when the solution of a similar problem is known.

    Parameters
    ----------
    solution : Solution
        Of a problem on the same bank with the loss ``old``.
    old, new : Loss
        The new one has ``ratio`` times the costs of the old one, which is at least 1.
    weights : WeightSet
        Of the new problem.
    """
    A = solution.dual
    s = 1.0
    if ratio > 1:
        # the lower bound along the ray s A: its kernel term is known from the old one
        term = max(old.dual(A) - solution.lower, 0.0)
        steps = np.geomspace(1.0, ratio, 33)
        values = [new.dual(step * A) - step**2 * term for step in steps]
        s = float(steps[int(np.nanargmax(values))])
    return Iterate(scaled(solution.theta, weights), new.repair(s * A))


def scaled(theta: FloatArray, weights: WeightSet) -> FloatArray:
    """Return weights in the proportions of ``theta`` on the boundary of a set.

    Weights of zero get a hundredth of what the centre gives them: the analytic update
    could not revive them. For p = 1, where most of them stay zero, and for sets without
    a norm, members stay as they are.
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
    """Return the costs in ascending order, without repetitions."""
    costs = np.unique(np.asarray(Cs, dtype=np.float64))
    if costs.ndim != 1 or not len(costs):
        raise ValueError(f"Cs must hold at least one cost, got {Cs!r}.")
    if not (np.isfinite(costs).all() and (costs > 0).all()):
        raise ValueError(f"Cs must be positive numbers, got {Cs!r}.")
    return costs


def _gather(
    costs: FloatArray,
    norms: tuple[Any, ...],
    M: int,
    solutions: list[list[Solution | None]],
) -> Path:
    """Return the solutions as arrays, NaN where there is none."""

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
