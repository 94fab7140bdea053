"""The loop of all solvers: it judges iterates, keeps the best, and stops.

Solvers that solve other problems within a step import this module, so it only accepts
solver instances; :mod:`mklearn.solvers.driver` resolves names.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TextIO

import numpy as np

from mklearn.data.clock import Clock, OutOfTimeError
from mklearn.problems.base import Certificate, Judge, Judgement, Precise, relative_gap
from mklearn.solvers.base import History, Iterate, Solution, Solver, Status

_PATIENCE = 100  # iterations without progress before a run counts as stalled


class Run:
    """State of one run: best primal and dual points, history, clock."""

    def __init__(self, problem: Judge, tol: float, verbose: int) -> None:
        self.problem, self.tol = problem, tol
        self.upper, self.lower = math.inf, -math.inf
        self.best: Iterate | None = None
        self.below: Iterate | None = None
        self.latest: Iterate | None = None  # intermediate point of an unfinished step
        self.certificate: Certificate | None = None
        self.history = History()
        self.began = time.perf_counter()
        self.progress = Progress(verbose, tol)

    def steps(
        self,
        solver: Solver,
        start: Iterate | None,
        max_iter: int,
        time_limit: float | None,
        callback: Callable[[Any], Any] | None,
    ) -> Generator[None, None, Status]:
        """Run the solver, pausing after every point it yields; return the status."""
        iterates = solver.iterates(self.problem, start)
        answer, clock = None, Clock.start(time_limit)
        try:
            while True:
                try:
                    with clock.within():
                        iterate = iterates.send(answer)
                except OutOfTimeError:  # within a pass; the best point so far is kept
                    return Status.TIME_LIMIT
                except StopIteration as end:
                    return end.value or Status.STALLED
                late = clock.left() == 0.0
                if iterate is None or not iterate.complete:
                    self.latest, answer = iterate, None
                    if late:
                        return Status.TIME_LIMIT
                    yield
                    continue
                self.latest = None
                answer = self.consider(iterate)
                close = self.gap() <= self.tol or self.lower > self.upper
                if close and self.certified().gap <= self.tol:
                    return Status.OPTIMAL
                if close and self.certified().rounding > self.tol:
                    return Status.ROUNDED
                if callback is not None and callback(self.history):
                    return Status.CALLBACK
                if iterate.slack is not None and iterate.slack <= self.tol:
                    return Status.STATIONARY
                if late:
                    return Status.TIME_LIMIT
                if len(self.history) >= max_iter:
                    return Status.MAX_ITER
                if self.stalled():
                    return Status.STALLED
                yield
        finally:
            iterates.close()
            self.progress.close()

    def elapsed(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self.began

    def gap(self) -> float:
        """Return the relative gap of the best bounds so far."""
        return relative_gap(self.upper, self.lower)

    def stalled(self) -> bool:
        """Return whether the gap has hardly decreased over many iterations."""
        gap = self.history.gap
        return len(gap) > _PATIENCE and gap[-1] > 0.99 * gap[-1 - _PATIENCE]

    def consider(self, iterate: Iterate) -> Judgement:
        """Judge an iterate, keep the bounds it improves, and record it."""
        judgement = self.problem.judge(iterate)
        if judgement.upper < self.upper or self.best is None:
            self.upper, self.best = judgement.upper, iterate
            self.certificate = None
        lower, below = judgement.lower, iterate
        if iterate.dual is not None:
            other = self.problem.dual(iterate.dual)
            if other >= lower:
                lower, below = other, replace(iterate, A=iterate.dual)
        if lower > self.lower or self.below is None:
            self.lower, self.below = lower, below
            self.certificate = None
        self.record(iterate, judgement)
        return judgement

    def record(self, iterate: Iterate, judgement: Judgement) -> None:
        """Record an iterate in the history, and show the progress."""
        assert self.best is not None
        history = self.history
        history.upper.append(self.upper)
        history.lower.append(self.lower)
        history.gap.append(self.gap())
        history.theta.append(self.best.theta)
        history.time.append(self.elapsed())
        history.values.append(judgement.upper)
        history.bounds.append(judgement.lower)
        history.slack.append(math.nan if iterate.slack is None else iterate.slack)
        self.progress.show(history)

    def certified(self) -> Certificate:
        """Return both bounds, recomputed without relying on claims of the solver."""
        if self.certificate is None:
            assert self.best is not None and self.below is not None
            problem, points = self.problem, (self.best, self.below)
            if isinstance(problem, Precise):
                self.certificate = problem.certify_to(*points, self.tol)
            else:
                self.certificate = problem.certify(*points)
            self.upper, self.lower = self.certificate.upper, self.certificate.lower
        return self.certificate

    def solution(self, status: Status, name: str) -> Solution:
        """Return the best point and its certificate after the end of a run."""
        if self.latest is not None:
            self.consider(self.latest)
        if self.best is None:  # stopped before the first point
            self.consider(self.problem.first())
        found = self.certified()
        assert self.best is not None
        if status is Status.STALLED and found.rounding > self.tol:
            status = Status.ROUNDED
        return Solution(
            theta=found.theta,
            A=found.A,
            bias=found.bias,
            dual=found.dual,
            upper=float(found.upper),
            lower=float(found.lower),
            status=status,
            n_iter=len(self.history),
            time=self.elapsed(),
            solver=name,
            history=self.history,
            weight_bounds=found.weight_bounds,
            about=found.about,
            slack=self.best.slack,
            claim=found.claim if status is Status.OPTIMAL else found.doubt,
            error=float(found.error),
            quads=found.quads,
        )


def solved_within(
    problem: Judge,
    solver: Solver,
    point: Iterate | None,
    *,
    tol: float,
    max_iter: int = 1000,
    start: Iterate | None = None,
    shown: Callable[[Iterate], Iterate] | None = None,
) -> Generator[Iterate | None, Judgement | None, Solution]:
    """Solve a problem inside a step of another solver.

    After each iteration it yields ``point``, at which the outer run would stop (None if
    there is none yet), marked as intermediate: in this way the limits of the outer run,
    and Ctrl-C, also apply to the inner one. ``shown`` converts the best point of this
    run to a point of the outer problem.
    """
    run = Run(problem, tol, 0)
    steps = run.steps(solver, start, max_iter, None, None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return run.solution(end.value, type(solver).__name__)
        if shown is not None and run.best is not None:
            point = shown(run.best)
        yield None if point is None else point.alive()


class Progress:
    """A progress bar from the first gap to the tolerance, on a logarithmic scale.

    Without a lower bound on the optimum, it shows the expected further gain.
    """

    def __init__(self, verbose: int, tol: float, width: int = 30) -> None:
        self.verbose, self.tol, self.width = verbose, tol, width
        self.stream: TextIO = sys.stderr
        self.open = False

    def show(self, history: History) -> None:
        """Show the last entry of the history."""
        if not self.verbose:
            return
        bounded = np.isfinite(history.lower[-1])
        left = history.gap if bounded else history.slack
        text = f"iteration {len(history):4d}  objective {history.upper[-1]:.6g}  "
        if bounded:
            text += f"bound {history.lower[-1]:.6g}  gap {left[-1]:.2e}"
        else:
            text += f"expected gain {left[-1]:.2e}"
        if self.verbose > 1:
            print(f"{text}  {history.time[-1]:.2f} s", file=self.stream)
            return
        first, now = (
            min(max(value, self.tol * 1.0001), 1e300) for value in (left[0], left[-1])
        )
        done = math.log(first / now) / math.log(first / self.tol)
        bar = "#" * round(self.width * min(1.0, max(0.0, done)))
        print(f"\r[{bar:<{self.width}}] {text}", end="", file=self.stream, flush=True)
        self.open = True

    def close(self) -> None:
        """End the line of the bar."""
        if self.open:
            print(file=self.stream)
            self.open = False
