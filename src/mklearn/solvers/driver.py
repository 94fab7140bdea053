"""The one loop: it judges iterates, keeps the best, and decides when to stop."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mklearn.kernels.threads import one_blas_thread
from mklearn.problems.losses import CrammerSinger
from mklearn.problems.mkl import Problem, relative_gap
from mklearn.problems.multiclass import BilinearProblem
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import History, Iterate, Solution, Solver, Status
from mklearn.solvers.bilinear import MulticlassNewton, ProjectedGradient
from mklearn.solvers.conic import Conic
from mklearn.solvers.cutting_plane import CuttingPlane
from mklearn.solvers.interleaved import Interleaved
from mklearn.solvers.lbfgs import LBFGS
from mklearn.solvers.multilevel import Multilevel
from mklearn.solvers.newton import Newton
from mklearn.solvers.reduced_gradient import ReducedGradient
from mklearn.solvers.screened import Screened
from mklearn.solvers.semidefinite import Semidefinite

SOLVERS: dict[str, Callable[[], Solver]] = {
    "alternating": Alternating,
    "conic": Conic,
    "cutting_plane": CuttingPlane,
    "interleaved": Interleaved,
    "lbfgs": LBFGS,
    "multilevel": Multilevel,
    "newton": Newton,
    "reduced_gradient": ReducedGradient,
    "screened": Screened,
    "sdp": Semidefinite,
}

# what the names mean for the Crammer-Singer loss
MULTICLASS: dict[str, Callable[[], Solver]] = {
    "alternating": Alternating,
    "conic": Conic,
    "cutting_plane": CuttingPlane,
    "multilevel": partial(Multilevel, MulticlassNewton()),
    "newton": MulticlassNewton,
    "projected_gradient": ProjectedGradient,
    "reduced_gradient": ReducedGradient,
}

_PATIENCE = 100  # iterations without progress before a run counts as stalled


def choose_solver(solver: str | Solver, problem: Problem) -> Solver:
    """Return the solver that a name means for a problem."""
    if solver == "auto":
        solver = _automatic(problem)
    known = MULTICLASS if isinstance(problem.loss, CrammerSinger) else SOLVERS
    if isinstance(solver, str):
        if solver not in known:
            raise ValueError(
                f"Unknown solver {solver!r}; known are 'auto' and {sorted(known)}."
            )
        solver = known[solver]()
    if not hasattr(solver, "iterates"):
        raise ValueError(
            f"solver must be 'auto', one of {sorted(known)} or an instance of a "
            f"solver, got {solver!r}."
        )
    solver.check(problem)
    return solver


def _automatic(problem: Problem) -> Solver:
    """Choose as docs/solvers.md says."""
    n, _, M = problem.bank.shape
    p = getattr(problem.weights, "p", 2.0)
    if M == 1 or np.isinf(p) or not hasattr(problem.weights, "constraint"):
        return Alternating()  # one step is all, or the set has no smooth description
    if isinstance(problem.loss, CrammerSinger):
        per_class = isinstance(problem, BilinearProblem)
        size = M * problem.loss.shape[1] if per_class else M
        if size > 2000 or (per_class and p != 1):
            return Alternating()
        newton = MulticlassNewton()
        return Multilevel(newton) if n >= 2500 else newton
    box = hasattr(problem.loss, "box")
    if box and problem.bank.row_budget() < min(n, 500):
        return Interleaved()  # too little memory for the rows of a working set
    solver: Solver = CuttingPlane() if p == 1 else Alternating()
    if M <= 1000 and p <= 8:
        solver = Multilevel(Newton()) if n >= 1500 else Newton()
    return Screened(solver) if Screened.suits(problem) else solver


def solve(
    problem: Problem,
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
    problem : MKLProblem or BilinearProblem
    solver : str or Solver
        "auto", a name, or an instance with settings.
    tol : float
        Relative duality gap, as the problem computes it.
    max_iter : int
        Limit on the solver's iterations.
    time_limit : float, optional
        Limit in seconds.
    callback : callable, optional
        Called after each iteration with the :class:`History`; a true answer stops.
    verbose : int
        1 shows a progress bar, 2 a line for each iteration (on standard error).
    start : Iterate, optional
        Where to start from, for instance the solution of a similar problem.

    Returns
    -------
    Solution
        The best iterate; a ConvergenceWarning tells if the gap is above ``tol``. After
        Ctrl-C it is returned as well, with a warning.
    """
    solver = choose_solver(solver, problem)
    run = _Run(problem, tol, verbose)
    with one_blas_thread:
        status = run.loop(solver, start, max_iter, time_limit, callback)
        solution = run.solution(status, type(solver).__name__)
    if solution.gap > tol:
        warnings.warn(
            f"Stopped at a relative duality gap of {solution.gap:.2g}, above tol="
            f"{tol:.2g}: {status.value}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    elif status is Status.INTERRUPTED:
        warnings.warn(status.value, ConvergenceWarning, stacklevel=2)
    return solution


class _Run:
    """State of one run: best primal and dual witnesses, history, clock."""

    def __init__(self, problem: Problem, tol: float, verbose: int) -> None:
        self.problem, self.tol = problem, tol
        self.upper, self.lower = math.inf, -math.inf
        self.best: Iterate | None = None
        self.bias: Any = None
        self.dual: Any = None
        self.history = History()
        self.began = time.perf_counter()
        self.certified = False
        self.quads: Any = None
        self.progress = _Progress(verbose, tol)

    def loop(
        self,
        solver: Solver,
        start: Iterate | None,
        max_iter: int,
        time_limit: float | None,
        callback: Callable[[Any], Any] | None,
    ) -> Status:
        iterates = solver.iterates(self.problem, start)
        latest: Iterate | None = None
        answer = None
        status = Status.STALLED
        try:
            while True:
                try:
                    iterate = iterates.send(answer)
                except StopIteration:
                    break
                late = time_limit is not None and self.elapsed() > time_limit
                if not iterate.complete:
                    latest, answer = iterate, None
                    if late:
                        status = Status.TIME_LIMIT
                        break
                    continue
                latest = None
                answer = self.consider(iterate)
                self.record()
                close = self.gap() <= self.tol or self.lower > self.upper
                if close and self.certify():
                    status = Status.OPTIMAL
                    break
                if callback is not None and callback(self.history):
                    status = Status.CALLBACK
                    break
                if late:
                    status = Status.TIME_LIMIT
                    break
                if len(self.history) >= max_iter:
                    status = Status.MAX_ITER
                    break
                if self.stalled():
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        finally:
            iterates.close()
            self.progress.close()
        if latest is not None:
            self.consider(latest)
            self.record()
        if self.best is None:  # stopped before anything was found: the zero function
            zero = np.zeros(self.problem.loss.shape)
            self.consider(Iterate(self.problem.center(), zero))
            self.record()
        return status

    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def gap(self) -> float:
        return relative_gap(self.upper, self.lower)

    def stalled(self) -> bool:
        """Tell whether many iterations together brought next to nothing."""
        gap = self.history.gap
        return len(gap) > _PATIENCE and gap[-1] > 0.99 * gap[-1 - _PATIENCE]

    def consider(self, iterate: Iterate) -> Any:
        """Judge an iterate and keep what it improves."""
        judgement = self.problem.judge(
            iterate.theta, iterate.A, iterate.scores, iterate.quads
        )
        if judgement.upper < self.upper:
            self.upper, self.best, self.bias = judgement.upper, iterate, judgement.bias
            self.certified = False
        lower, dual = judgement.lower, iterate.A
        if iterate.dual is not None:
            other = self.problem.dual(iterate.dual)
            lower, dual = max((lower, 0, dual), (other, 1, iterate.dual))[::2]
        if lower > self.lower:
            self.lower, self.dual = lower, dual
            self.certified = False
        return judgement

    def certify(self) -> bool:
        """Compute both bounds afresh, without anything a solver claimed."""
        if not self.certified and self.best is not None:
            problem, best = self.problem, self.best
            self.quads = problem.quads(problem.loss.repair(self.dual))
            quads = self.quads if self.dual is best.A else None
            judgement = problem.judge(best.theta, best.A, quads=quads)
            self.upper, self.bias = judgement.upper, judgement.bias
            self.lower = problem.dual(self.dual, self.quads)
            self.certified = True
        return self.gap() <= self.tol

    def record(self) -> None:
        assert self.best is not None
        history = self.history
        history.upper.append(self.upper)
        history.lower.append(self.lower)
        history.gap.append(self.gap())
        history.theta.append(self.best.theta)
        history.time.append(self.elapsed())
        self.progress.show(history)

    def solution(self, status: Status, name: str) -> Solution:
        self.certify()
        assert self.best is not None
        loss = self.problem.loss
        return Solution(
            theta=self.best.theta,
            A=loss.repair(self.best.A),
            bias=self.bias,
            dual=loss.repair(self.dual),
            upper=self.upper,
            lower=self.lower,
            status=status,
            n_iter=len(self.history),
            time=self.elapsed(),
            solver=name,
            history=self.history,
            weight_bounds=self.problem.weight_bounds(self.dual, self.upper, self.quads),
        )


class _Progress:
    """A bar from the first gap down to the tolerance, on a logarithmic scale."""

    def __init__(self, verbose: int, tol: float, width: int = 30) -> None:
        self.verbose, self.tol, self.width = verbose, tol, width
        self.stream: TextIO = sys.stderr
        self.open = False

    def show(self, history: History) -> None:
        if not self.verbose:
            return
        n, gap = len(history), history.gap[-1]
        text = (
            f"iteration {n:4d}  objective {history.upper[-1]:.6g}  "
            f"bound {history.lower[-1]:.6g}  gap {gap:.2e}"
        )
        if self.verbose > 1:
            print(f"{text}  {history.time[-1]:.2f} s", file=self.stream)
            return
        first = max(history.gap[0], self.tol * 1.0001)
        done = math.log(first / max(gap, self.tol, 1e-300)) / math.log(first / self.tol)
        bar = "#" * round(self.width * min(1.0, max(0.0, done)))
        print(f"\r[{bar:<{self.width}}] {text}", end="", file=self.stream, flush=True)
        self.open = True

    def close(self) -> None:
        if self.open:
            print(file=self.stream)
            self.open = False
