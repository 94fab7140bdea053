"""Newton's method in feature space, one pass over the samples for each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.lowrank import Anchor, FeatureProblem, Passed, Sums
from mklearn.problems.pseudo_samples import Expansion, squares
from mklearn.solvers.alternating import Alternating
from mklearn.solvers.base import Iterate, Need, Solver, Steps
from mklearn.solvers.newton import Newton

FloatArray = NDArray[np.float64]

_STEPS = (0.0, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0)
_FLAT = 0.1  # damping outside the band, relative to the curvature within it
_PATIENCE = 30  # passes without progress before a run counts as stalled


@dataclass(frozen=True)
class PassNewton:
    """Proximal Newton steps on the primal, from sums over all samples.

    At a point the loss is replaced by its second-order expansion. With the regulariser
    and the kernel weights this is the kernel-learning problem of the squared loss,
    which is solved to optimality from the sums of the last pass, without another pass.
    The next pass evaluates several points on the line to its solution, and computes the
    sums at its end. Kinks are smoothed around multipliers. These are updated from the
    current point once the problem with the old ones is solved well enough: the method
    of multipliers, which converges faster the narrower the band is.

    Parameters
    ----------
    band : float
        Initial width of the smoothing of kinks, in units of the margin (hinge) or of
        half the spread of the targets.
    narrowing : float
        Factor by which the width is reduced with new multipliers, down to a hundredth.
    damping : float
        Curvature that is added for all samples, as a share of the mean, because samples
        outside the band have none; it is adapted to the success of the steps.
    share : float
        Multipliers are updated when the gap of the problem with the old ones is at most
        this share of the total gap.
    """

    band: float = 1.0
    narrowing: float = 0.7
    damping: float = 1e-3
    share: float = 0.2

    needs: ClassVar[tuple[Need, ...]] = ()

    def iterates(self, problem: FeatureProblem, start: Iterate | None) -> Steps:
        """Yield the best point of each pass."""
        scale = problem.loss.band(problem.spread())
        mu, damping = self.band * scale, self.damping
        anchors: list[Anchor] = []
        T, D = problem.n_tasks, len(problem.scaling.root)
        w, bias, theta = np.zeros((D, T)), problem.no_bias(), problem.center()
        steps: tuple[float, ...] = _STEPS
        w1, b1, theta1 = self._first(problem)
        w1, b1 = problem.settled(w1, b1)
        gaps: list[float] = []
        reached, bound = np.inf, -np.inf
        while True:
            start_at, end = problem.raw(w, bias), problem.raw(w1, b1)
            narrow = max(self.narrowing * mu, 0.01 * self.band * scale)
            ahead = narrow if problem.loss.kinks else None
            found = problem.look(start_at, end, steps, mu, anchors, ahead=ahead)
            line = self._line(problem, w, w1, theta1, steps)
            lower, _ = problem.feasible(found)
            best_lower, behind = lower, (mu, tuple(anchors))
            if found.later is not None:
                other, _ = problem.feasible(found.later)
                if other > lower:
                    best_lower = other
                    behind = (narrow, (*anchors, Anchor(end, mu)))
            upper, at = min(zip((found.value + line).tolist(), steps, strict=True))
            here = w + at * (w1 - w)
            about = Passed(
                here, bias + at * (b1 - bias), end, *behind, upper, best_lower
            )
            yield problem.point(_weights_at(problem, here, theta1), about)
            reached, bound = min(reached, upper), max(bound, best_lower)
            gaps.append(reached - bound)
            if len(gaps) > _PATIENCE and gaps[-1] > 0.9 * gaps[-1 - _PATIENCE]:
                return None
            values = found.smooth + line
            best = int(np.argmin(values))
            if steps is _STEPS and values[0] - values[-1] < 0.1 * (
                values[0] - values[best]
            ):
                # too long: go to the best point on the line
                step = max(steps[best], 1e-6)
                w1, b1 = w + step * (w1 - w), bias + step * (b1 - bias)
                theta1 = _weights_at(problem, w1, theta1)
                steps, damping = (0.0, 1.0), min(damping / step**0.5, 1.0)
                continue
            w, bias, theta = w1, b1, theta1
            inner = values[-1] - (lower - found.apart)
            outer = float(found.value[-1] + line[-1]) - lower
            if problem.loss.kinks and inner <= self.share * outer:
                assert found.later is not None
                anchors.append(Anchor(end, mu))
                mu, found = narrow, found.later
            damping = max(0.3 * damping, 1e-8)
            w1, b1, theta1 = self._step(problem, found, w, bias, theta, damping, mu)
            w1, b1 = problem.settled(w1, b1)
            steps = _STEPS

    def _first(
        self, problem: FeatureProblem
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the solution of the expansion at zero, which needs no pass."""
        H = problem.statistics
        slope, bend = problem.loss.outset(problem.spread())
        curved = problem.curvature(H.weighted(problem.C * bend))
        rest, beside = H.apart(problem.free)
        g = problem.scaling.root[:, None] * (problem.C * slope * rest.ZH)
        S = (curved.scatter,) * problem.n_tasks
        model = Expansion(S, g, problem.slices, problem.weights)
        theta, w = minimised(model, None)
        known = slope / bend * np.vstack([H.target, beside.effects])
        effects = (known - curved.along.T @ w).T
        return w, _shaped(problem, [curved.own(one) for one in effects]), theta

    def _line(
        self,
        problem: FeatureProblem,
        w: FloatArray,
        w1: FloatArray,
        theta: FloatArray,
        steps: tuple[float, ...] = _STEPS,
    ) -> FloatArray:
        """Return the regulariser on the line, at the optimal kernel weights."""
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
        mu: float,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the solution of the expansion at the end of a pass."""
        slope, count = problem.gradient(found)
        everywhere = problem.statistics.with_targets(np.zeros((problem.n_tasks, 0)))
        bends, g, slopes = [], np.empty_like(w), []
        for t, curvature in enumerate(found.curvature):
            mean_bend = curvature.total / everywhere.total
            added = max(damping * mean_bend, 1e-8 * problem.C)
            if problem.loss.kinks:
                added = damping * (mean_bend + _FLAT * problem.C / mu)
            both = curvature + everywhere.weighted(added)
            curved = problem.curvature(both)
            own = curved.centred(count[:, t])
            g[:, t] = slope[:, t] - curved.along @ own + curved.scatter @ w[:, t]
            bends.append(curved)
            slopes.append(own)
        S = tuple(curved.scatter for curved in bends)
        model = Expansion(S, g, problem.slices, problem.weights)
        theta, w1 = minimised(model, theta)
        moves = [
            curved.own(curved.free(own) - curved.along.T @ (w1 - w)[:, t])
            for t, (curved, own) in enumerate(zip(bends, slopes, strict=True))
        ]
        return w1, bias + _shaped(problem, moves), theta


def _shaped(problem: FeatureProblem, effects: list[FloatArray]) -> FloatArray:
    """Return effects of ones and covariates for each task, in the shape of a bias."""
    columns = np.column_stack(effects)
    return columns if problem.free else columns[0]


def _weights_at(problem: FeatureProblem, w: FloatArray, near: FloatArray) -> FloatArray:
    """Return the optimal kernel weights for ``w``."""
    safe = np.where(near > 0, near, 1.0)
    return problem.weights.step(safe, squares(w, problem.slices) / safe**2)


def minimised(
    problem: Expansion,
    start: FloatArray | None,
    tol: float = 1e-12,
    max_iter: int = 60,
) -> tuple[FloatArray, FloatArray]:
    """Return optimal kernel weights and w of an expansion, up to rounding."""
    solver: Solver = Newton() if problem.weights.smooth else Alternating()
    first = None
    if start is not None:
        # the updates cannot increase a weight that is exactly zero
        theta = 0.98 * start + 0.02 * problem.center()
        first = Iterate(theta, np.zeros(problem.loss.shape))
    iterates = solver.iterates(problem, first)
    answer, best, found, idle = None, np.inf, None, 0
    for _ in range(max_iter):
        try:
            iterate = iterates.send(answer)
        except StopIteration:
            break
        assert iterate is not None
        answer = problem.judge(iterate)
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
