"""Solving a problem with a solver given by name, with a warning if it ends early."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mklearn.data.threads import one_blas_thread
from mklearn.problems.base import Judge
from mklearn.solvers.base import Iterate, Solution, Solver, Status
from mklearn.solvers.loop import Run
from mklearn.solvers.registry import choose_solver


def solve(
    problem: Judge,
    solver: str | Solver = "auto",
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
    start: Iterate | None = None,
) -> Solution:
    """Solve a problem until its relative duality gap is below ``tol``.

    Parameters
    ----------
    problem : MKLProblem, BilinearProblem, or any other problem of the library
    solver : str or Solver
        "auto", a name, or a solver object.
    tol : float
        Relative duality gap to reach, as computed by the problem. For objectives that
        are not convex, whose bounds need not meet, the expected further gain.
    max_iter : int
        Limit on the solver's iterations.
    time_limit : float, optional
        Limit in seconds.
    callback : callable, optional
        Called with the :class:`History` after each iteration; it may return True to
        stop.
    verbose : int
        1 shows a progress bar, 2 prints a line for each iteration (to standard error).
    start : Iterate, optional
        Starting point, for instance the solution of a similar problem.

    Returns
    -------
    Solution
        The best iterate. A ConvergenceWarning is issued if the gap is above ``tol``.
        After Ctrl-C the best iterate is returned as well, with a warning.
    """
    limits = tol, max_iter, time_limit, callback, verbose
    solution = run_solver(problem, choose_solver(solver, problem), *limits, start)
    warn_if_early(solution, tol, stacklevel=3)
    return solution


def run_solver(
    problem: Judge,
    solver: Solver,
    tol: float,
    max_iter: int,
    time_limit: float | None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
    start: Iterate | None = None,
) -> Solution:
    """Return what :func:`solve` does, without a warning if it ends early."""
    run = Run(problem, tol, verbose)
    steps = run.steps(solver, start, max_iter, time_limit, callback)
    with one_blas_thread:
        try:
            status = _last(steps)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        finally:
            steps.close()
        return run.solution(status, type(solver).__name__)


def warn_if_early(solution: Solution, tol: float, stacklevel: int = 2) -> None:
    """Issue a ConvergenceWarning if a run ended before it reached ``tol``."""
    status = solution.status
    if solution.gap > tol and status not in (Status.OPTIMAL, Status.STATIONARY):
        reached = f"at a relative duality gap of {solution.gap:.2g}"
        if solution.rounding > 0.1 * tol:
            reached += f" ({solution.rounding:.2g} of it by rounding)"
        above = f", above tol={tol:.2g}"
        if np.isinf(solution.gap):
            reached, above = "before it was known how much could still be gained", ""
            if solution.slack is not None:
                reached = f"where the objective may yet improve by {solution.slack:.2g}"
                above = f", above tol={tol:.2g}"
        warnings.warn(
            f"Stopped {reached}{above}: {status.value}.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
    elif status is Status.INTERRUPTED:
        warnings.warn(status.value, ConvergenceWarning, stacklevel=stacklevel)


def _last(steps: Generator[None, None, Status]) -> Status:
    """Return how a run ended."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return Status(end.value)
