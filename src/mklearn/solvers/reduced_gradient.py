"""Reduced gradient on the simplex with a line search: SimpleMKL."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.problems.mkl import Problem
from mklearn.solvers.base import Iterate, Iterates, Need
from mklearn.solvers.inner import inner_solver

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ReducedGradient:
    """SimpleMKL of Rakotomamonjy et al. (2008), for p = 1.

    ``J(theta)``, the optimal value for fixed weights, has the gradient
    ``-½ <A, K_m A>``. The largest weight compensates for the changes of the others;
    zero weights that the direction would make negative stay zero. The direction is
    followed from one vanishing weight to the next as long as the value decreases. Then
    a line search, which uses the slopes at each trial, finds the minimum in between.

    Parameters
    ----------
    accuracy : float
        Accuracy of the inner problem, relative to the current gap.
    """

    accuracy: float = 0.1

    needs = (
        Need(
            "solver='reduced_gradient' is for weights that all classes share; with "
            "weights per class use solver='newton' or 'projected_gradient'.",
            holds=lambda problem: not problem.per_class,
        ),
        Need(
            "solver='reduced_gradient' (SimpleMKL) needs norm=1, since it works on the "
            "simplex; for other weight sets use solver='newton', 'cutting_plane' or "
            "'alternating'.",
            holds=lambda problem: problem.weights.sparse,
        ),
    )

    def iterates(self, problem: Problem, start: Iterate | None) -> Iterates:
        """Yield one iterate for each inner problem solved."""
        trial = _Trials(problem, self.accuracy, start)
        theta = trial.inner.theta
        value, slopes = yield from trial.at(theta)
        while True:
            direction = _reduced(theta, slopes)
            if not direction.any():  # optimal, up to the accuracy of the slopes
                value, slopes = yield from trial.at(theta, finer=True)
                continue
            # from one vanishing weight to the next while the value decreases
            while True:
                step, last = _longest(theta, direction)
                ahead = theta + step * direction
                ahead[last] = 0.0
                ahead /= ahead.sum()
                there, beyond = yield from trial.at(ahead)
                if there >= value:
                    break
                theta, value, slopes = ahead, there, beyond
                direction = _without(direction, last, theta)
                if slopes @ direction >= 0:
                    break
            if there < value or slopes @ direction >= 0:
                continue
            # the minimum on the segment is where the slope along it changes sign
            base, before, move = theta, value, ahead - theta
            first = at_low = float(slopes @ move)
            low, high, at_high = 0.0, 1.0, float(beyond @ move)
            for _ in range(30):
                part = at_low / (at_low - at_high) if at_low < 0 < at_high else 0.5
                part = low + min(max(part, 0.05), 0.95) * (high - low)
                theta = base + part * move
                value, slopes = yield from trial.at(theta)
                along = float(slopes @ move)
                enough = value <= before + 1e-4 * part * first  # Armijo
                if enough and abs(along) <= 0.2 * abs(first):
                    break
                if along > 0 or not enough:
                    high, at_high = part, max(along, 0.0)
                else:
                    low, at_low = part, along
            if value > before:  # limited by the inner accuracy: increase it
                theta = base
                value, slopes = yield from trial.at(theta, finer=True)


class _Trials:
    """Values and gradients of ``J``, with the accuracy that the gap requires."""

    def __init__(
        self, problem: Problem, accuracy: float, start: Iterate | None
    ) -> None:
        self.problem, self.accuracy = problem, accuracy
        self.inner = inner_solver(problem, start)
        self.upper, self.lower = np.inf, -np.inf
        self.share = 1.0

    def at(
        self, theta: FloatArray, finer: bool = False
    ) -> Generator[Iterate, Any, tuple[float, FloatArray]]:
        """Return the value and the gradient at ``theta``."""
        if finer:
            self.share *= 0.1
        allowed = np.inf
        if np.isfinite(self.upper):
            # the line search compares values, so their errors must be smaller
            gap = max(self.upper - self.lower, 0.0)
            size = min(1.0, gap / max(abs(self.upper), 1e-300))
            allowed = self.accuracy * self.share * max(size, 1e-3) * gap
        A, scores = yield from self.inner.solve(theta, allowed)
        quads = self.problem.bank.quad(A)
        judgement = yield Iterate(theta, A, scores, quads)
        self.upper = min(self.upper, judgement.upper)
        self.lower = max(self.lower, judgement.lower)
        return judgement.upper, -0.5 * quads


def _reduced(theta: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return minus the reduced gradient, zero for weights that stay at zero."""
    pivot = int(np.argmax(theta))
    direction = slopes[pivot] - slopes
    direction[(theta <= 0) & (direction < 0)] = 0.0
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return np.asarray(direction)


def _without(direction: FloatArray, dropped: int, theta: FloatArray) -> FloatArray:
    """Return the direction after one weight has become zero."""
    direction = direction.copy()
    direction[dropped] = 0.0
    pivot = int(np.argmax(theta))
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return direction


def _longest(theta: FloatArray, direction: FloatArray) -> tuple[float, int]:
    """Return the longest feasible step, and the index of the weight that vanishes."""
    room = np.full(len(theta), np.inf)
    down = direction < 0
    room[down] = theta[down] / -direction[down]
    last = int(np.argmin(room))
    return float(room[last]), last
