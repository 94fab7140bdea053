"""Newton's method in feature space, one pass over the samples for each step."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from mklearn.kernels.threads import one_blas_thread
from mklearn.problems.mkl import relative_gap
from mklearn.problems.passes import Anchor, FeatureProblem, Sums
from mklearn.problems.reduction import Expansion, by_kernel, squares
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import History, Iterate, Solution, Solver, Status
from mklearn.solvers.driver import _Progress
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]

_STEPS = (0.0, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0)
_PATIENCE = 15  # passes without progress before a run counts as stalled


@dataclass(frozen=True)
class Reached:
    """Where a pass has led: normalised weights, biases, kernel weights, bounds.

    ``dual`` (D, T) is ``Z'a`` of the feasible dual point behind ``lower``.
    """

    w: FloatArray
    bias: FloatArray
    theta: FloatArray
    upper: float
    lower: float
    dual: FloatArray


@dataclass(frozen=True)
class PassNewton:
    """Proximal Newton steps on the primal, from sums over all samples.

    At a point the loss is replaced by its second-order expansion. With the regulariser
    and the kernel weights this is the kernel-learning problem of the squared loss,
    solved to optimality from the sums of the last pass, with no further one. The next
    pass looks at several points on the way to its solution and takes the sums at the
    end. Kinks are rounded off around multipliers, which follow from the point reached
    as soon as the problem with these multipliers is solved well enough: the method of
    multipliers, whose errors shrink faster the narrower the band.

    Parameters
    ----------
    band : float
        Width in which kinks are rounded off at first, in units of the margin (hinge) or
        of half the spread of the targets.
    narrowing : float
        Factor of the width with new multipliers, down to a hundredth.
    damping : float
        Curvature added everywhere, as a share of the mean, for samples outside of the
        band have none; it follows the success of the steps.
    share : float
        New multipliers are taken when the gap of the problem with the old ones is this
        share of the whole.
    """

    band: float = 1.0
    narrowing: float = 0.5
    damping: float = 1e-3
    share: float = 0.3

    def passes(self, problem: FeatureProblem) -> Iterator[Reached]:
        """Yield the best point of each pass."""
        scale, width = self._widths(problem)
        mu, damping = self.band * scale, self.damping
        anchors: list[Anchor] = []
        T, D = problem.n_tasks, len(problem.scaling.root)
        w, bias, theta = np.zeros((D, T)), np.zeros(T), problem.center()
        w1, b1, theta1 = self._first(problem, width)
        steps: tuple[float, ...] = _STEPS
        while True:
            start, end = problem.raw(w, bias), problem.raw(w1, b1)
            found = problem.look(start, end, steps, mu, anchors)
            line = self._line(problem, w, w1, theta1, steps)
            lower, dual = problem.dual(found)
            upper, at = min(zip((found.value + line).tolist(), steps, strict=True))
            here = w + at * (w1 - w)
            yield Reached(
                here, bias + at * (b1 - bias), _weights_at(problem, here, theta1),
                upper, lower, dual,
            )  # fmt: skip
            values = found.smooth + line
            best = int(np.argmin(values))
            if steps is _STEPS and values[0] - values[-1] < 0.1 * (
                values[0] - values[best]
            ):
                # too far: to the best point on the line
                step = max(steps[best], 0.01)
                w1, b1 = w + step * (w1 - w), bias + step * (b1 - bias)
                theta1 = _weights_at(problem, w1, theta1)
                steps, damping = (0.0, 1.0), min(4.0 * damping, 0.1)
                continue
            w, bias, theta = w1, b1, theta1
            inner = values[-1] - (lower - found.apart)
            outer = float(found.value[-1] + line[-1]) - lower
            if problem.loss.kinks and inner <= self.share * outer:
                anchors.append(Anchor(problem.raw(w, bias), mu))
                mu = max(self.narrowing * mu, 0.01 * self.band * scale)
                steps = (0.0, 1.0)
                continue
            damping = max(0.3 * damping, 1e-8)
            w1, b1, theta1 = self._step(problem, found, w, bias, theta, damping)
            steps = _STEPS

    def _widths(self, problem: FeatureProblem) -> tuple[float, float]:
        """Return the width of the first band, and one that all samples lie in."""
        spread = 1.0
        if not hasattr(problem.loss, "epsilon"):
            return spread, 2.0
        H = problem.statistics
        spread = float(np.sqrt(np.trace(H.HH) / max(H.total * len(H.HH), 1e-300)))
        return max(0.5 * spread, 1e-12), max(2.0 * spread, 1e-12)

    def _first(
        self, problem: FeatureProblem, width: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the solution of the expansion at zero, known without a pass."""
        loss, H = problem.loss, problem.statistics
        if hasattr(loss, "epsilon"):
            slope, bend = 1.0 / width, 1.0 / width
        else:
            one = np.ones(1)
            slope = float(loss.slope(0 * one, one, width, 0 * one)[0])
            bend = float(loss.bend(0 * one, one, width, 0 * one)[0])
        scatter, mean, _ = problem.curvature(H.weighted(problem.C * bend))
        g = problem.scaling.root[:, None] * (problem.C * slope * H.ZH)
        S = (scatter,) * problem.n_tasks
        model = Expansion(S, g, problem.slices, problem.weights)
        theta, w = minimised(model, None)
        return w, slope / bend * H.target - mean @ w, theta

    def _line(
        self,
        problem: FeatureProblem,
        w: FloatArray,
        w1: FloatArray,
        theta: FloatArray,
        steps: tuple[float, ...] = _STEPS,
    ) -> FloatArray:
        """Return the regulariser on the way, at the best kernel weights."""
        out = []
        for step in steps:
            at = w + step * (w1 - w)
            out.append(problem.regulariser(at, _weights_at(problem, at, theta)))
        return np.array(out)

    def _step(
        self,
        problem: FeatureProblem,
        found: Sums,
        w: FloatArray,
        bias: FloatArray,
        theta: FloatArray,
        damping: float,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the solution of the expansion at the end of a pass."""
        slope, count = problem.gradient(found)
        everywhere = problem.statistics.with_targets(np.zeros((problem.n_tasks, 0)))
        S, g, means, totals = [], np.empty_like(w), [], []
        for t, curvature in enumerate(found.curvature):
            mean_bend = curvature.total / everywhere.total
            added = max(damping * mean_bend, 1e-8 * problem.C)
            both = curvature + everywhere.weighted(added)
            scatter, mean, total = problem.curvature(both)
            S.append(scatter)
            g[:, t] = slope[:, t] - mean * count[t] + scatter @ w[:, t]
            means.append(mean)
            totals.append(total)
        model = Expansion(tuple(S), g, problem.slices, problem.weights)
        theta, w1 = minimised(model, theta)
        move = np.array([mean @ (w1 - w)[:, t] for t, mean in enumerate(means)])
        return w1, bias + count / np.array(totals) - move, theta


def _weights_at(problem: FeatureProblem, w: FloatArray, near: FloatArray) -> FloatArray:
    """Return the best kernel weights for ``w``."""
    safe = np.where(near > 0, near, 1.0)
    return problem.weights.step(safe, squares(w, problem.slices) / safe**2)


def minimised(
    problem: Expansion,
    start: FloatArray | None,
    tol: float = 1e-12,
    max_iter: int = 60,
) -> tuple[FloatArray, FloatArray]:
    """Return kernel weights and w of an expansion, as good as rounding allows."""
    smooth = hasattr(problem.weights, "constraint")
    solver: Solver = Newton() if smooth else Alternating()
    first = None
    if start is not None:
        # a weight that is zero has no slope to leave it by
        theta = 0.98 * start + 0.02 * problem.center()
        first = Iterate(theta, np.zeros(problem.loss.shape))
    iterates = solver.iterates(problem, first)  # type: ignore[arg-type]
    answer, best, found, idle = None, np.inf, None, 0
    for _ in range(max_iter):
        try:
            iterate = iterates.send(answer)
        except StopIteration:
            break
        answer = problem.judge(iterate.theta, iterate.A, iterate.scores, iterate.quads)
        idle += 1
        if answer.upper < best:
            if answer.upper < best - 1e-12 * abs(best):
                idle = 0
            best, found = answer.upper, iterate
        if answer.gap <= tol or idle > 3:
            break
    iterates.close()
    assert found is not None and found.scores is not None
    return found.theta, found.scores


def solve_passes(
    problem: FeatureProblem,
    solver: PassNewton | None = None,
    *,
    tol: float = 1e-3,
    max_iter: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
) -> Solution:
    """Solve a problem in feature space until its relative duality gap is below ``tol``.

    Parameters
    ----------
    problem : FeatureProblem
    solver : PassNewton, optional
    tol, max_iter, time_limit, callback, verbose
        As in :func:`~mklearn.solvers.driver.solve`; an iteration is a pass.

    Returns
    -------
    Solution
        Its ``A`` and ``dual`` are in the coordinates of the features, shape (D, T):
        ``f(x) = sum_m theta_m <z_m(x), A_m> + bias``.
    """
    solver = PassNewton() if solver is None else solver
    history, progress = History(), _Progress(verbose, tol)
    began = time.perf_counter()
    best: Reached | None = None
    status = Status.STALLED
    with one_blas_thread:
        passes = solver.passes(problem)
        try:
            for reached in passes:
                best = reached if best is None else _better(best, reached)
                history.upper.append(best.upper)
                history.lower.append(best.lower)
                history.gap.append(relative_gap(best.upper, best.lower))
                history.theta.append(best.theta)
                history.time.append(time.perf_counter() - began)
                progress.show(history)
                if history.gap[-1] <= tol:
                    status = Status.OPTIMAL
                elif callback is not None and callback(history):
                    status = Status.CALLBACK
                elif time_limit is not None and history.time[-1] > time_limit:
                    status = Status.TIME_LIMIT
                elif len(history) >= max_iter:
                    status = Status.MAX_ITER
                elif not _stuck(history.gap):
                    continue
                break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            if best is None:
                raise
        finally:
            passes.close()  # type: ignore[attr-defined]
            progress.close()
    assert best is not None
    solution = _solution(problem, best, status, history, began)
    if solution.gap > tol or status is Status.INTERRUPTED:
        warnings.warn(
            f"Stopped at a relative duality gap of {solution.gap:.2g}, above tol="
            f"{tol:.2g}: {status.value}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return solution


def _better(one: Reached, other: Reached) -> Reached:
    """Return the point with the least objective, and the best bound of both."""
    best = other if other.upper < one.upper else one
    bound = other if other.lower > one.lower else one
    return replace(best, lower=bound.lower, dual=bound.dual)


def _stuck(gap: list[float]) -> bool:
    return len(gap) > _PATIENCE and gap[-1] > 0.9 * gap[-1 - _PATIENCE]


def _solution(
    problem: FeatureProblem,
    best: Reached,
    status: Status,
    history: History,
    began: float,
) -> Solution:
    by_feature = by_kernel(best.theta, problem.slices)[:, None]
    A = np.divide(best.w, by_feature, out=np.zeros_like(best.w), where=by_feature > 0)
    q = squares(best.dual, problem.slices)
    bounds = np.ones(len(best.theta))
    if getattr(problem.weights, "p", None) == 1:
        # as MKLProblem.weight_bounds: what no optimal weight exceeds
        gap, short = max(best.upper - best.lower, 0.0), q.max() - q
        below = short > 2 * gap
        bounds[below] = 2 * gap / short[below]
    return Solution(
        theta=best.theta,
        A=A,
        bias=best.bias,
        dual=best.dual,
        upper=best.upper,
        lower=best.lower,
        status=status,
        n_iter=len(history),
        time=time.perf_counter() - began,
        solver="PassNewton",
        history=history,
        weight_bounds=bounds,
    )


__all__ = ["PassNewton", "Reached", "minimised", "solve_passes"]
