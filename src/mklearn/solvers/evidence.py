"""Kernel weights of maximum evidence, by a damped Newton method."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from mklearn.problems.evidence import Evidence, EvidenceProblem
from mklearn.solvers.base import Iterate, Need, Steps

FloatArray = NDArray[np.float64]

LARGEST = 1e8  # largest variance of the kernels, in units of the noise
_FIRST, _LEAST = 1e-2, 1e-8  # damping, relative to the curvature
_LITTLE = 2.0  # gain in log evidence over zero weights that counts as small
_MANY = 300  # number of kernels above which all weights start from zero,
_ENTER = 100  # and the number that may enter in one iteration


@dataclass(frozen=True)
class AverageInformation:
    """Damped Newton steps on the restricted likelihood, with nonnegative weights.

    The evidence is not concave, so the solution is a local maximum. The search starts
    from weights that share the variance of the noise equally, or zero if there are more
    than 300 kernels. If the result is hardly better than zero weights, the method also
    starts from weights that are 10, 100 or 1000 times larger.

    Parameters
    ----------
    rest : float
        Weights count as a local maximum if the expected increase of the log evidence is
        below this.
    """

    rest: float = 1e-3

    needs: ClassVar[tuple[Need, ...]] = ()

    def iterates(self, problem: EvidenceProblem, start: Iterate | None) -> Steps:
        """Yield the weights after each step."""
        variances = problem.variances()
        known = variances > 1e-12 * max(float(variances.max()), 1e-300)
        # in units of the noise of a typical sample
        variances = variances * np.mean(problem.weight)
        first = np.where(
            known, 1.0 / (len(known) * np.where(known, variances, 1.0)), 0.0
        )
        if len(known) > _MANY:
            first = np.zeros(len(known))
        nothing = problem.nothing()
        here = _definite(problem, first if start is None else start.theta)
        damping, resting = _FIRST, None
        while True:
            model = _Model.of(here, known, variances)
            promise = model.step(_LEAST)[1]
            point = Iterate(here.theta, here.A, about=here, slack=promise)
            if promise <= self.rest:
                if resting is None and here.value - nothing < _LITTLE:
                    far = _far(problem, first)
                    if far is not None:
                        yield replace(point, slack=np.inf)
                        resting, here, damping = point, far, _FIRST
                        continue
                if resting is not None and resting.about.value >= here.value:
                    point = resting
            yield point
            if point is resting:
                return None
            found, damping = yield from _improve(problem, point, model, damping)
            if found is None:
                if resting is not None and resting.about.value >= here.value:
                    yield resting
                return None
            here = found


def weights_without(
    theta: FloatArray, model: tuple[FloatArray, FloatArray], removed: list[int]
) -> FloatArray:
    """Return the best weights with some of them zero, by a quadratic model.

    Parameters
    ----------
    theta : array of shape (M,)
    model : tuple of arrays of shape (M,) and (M, M)
        Gradient and curvature of minus the evidence at ``theta``.
    removed : list of int
    """
    slopes, curvature = model
    bent = np.sqrt(np.maximum(np.diagonal(curvature), 0.0))
    kept = np.setdiff1d(np.flatnonzero(bent > 0), removed)
    new = np.zeros(len(bent))
    if len(kept):
        units = np.divide(1.0, bent, where=bent > 0, out=np.zeros_like(bent))
        scaled = curvature * np.outer(units, units)
        values, vectors = np.linalg.eigh(scaled[np.ix_(kept, kept)])
        values = np.maximum(values, 0.0) + _LEAST
        goal = (scaled @ (theta * bent) - slopes * units)[kept]
        root = np.sqrt(values)[:, None] * vectors.T
        new[kept] = nnls(root, vectors.T @ goal / np.sqrt(values))[0]
        new *= units
    return new


@dataclass(frozen=True)
class _Model:
    """A quadratic model of minus the evidence around some weights.

    Weights are scaled such that the curvature along each of them is one.
    """

    x: FloatArray
    slopes: FloatArray
    spectrum: tuple[FloatArray, FloatArray]  # of the curvature
    units: FloatArray
    which: NDArray[np.intp]
    variances: FloatArray  # of the kernels, in these units

    @classmethod
    def of(cls, here: Evidence, known: Any, variances: FloatArray) -> _Model:
        slopes, curvature = here.model()
        bent = np.sqrt(np.maximum(np.diagonal(curvature), 0.0))
        steep = np.divide(slopes, bent, where=bent > 0, out=np.zeros_like(slopes))
        # a zero weight with a nonnegative slope stays zero
        idle = ~known | (bent == 0) | ((here.theta == 0) & (steep >= 0))
        new = np.flatnonzero(~idle & (here.theta == 0))
        idle[new[np.argsort(steep[new], kind="stable")[_ENTER:]]] = True
        which = np.flatnonzero(~idle)
        units = 1.0 / bent[which]
        return cls(
            here.theta[which] / units,
            slopes[which] * units,
            np.linalg.eigh(curvature[np.ix_(which, which)] * np.outer(units, units)),
            units,
            which,
            variances[which] * units,
        )

    def step(self, damping: float) -> tuple[FloatArray, float]:
        """Return the optimal weights of the damped model, and their predicted gain."""
        if not len(self.which):
            return self.x, 0.0
        values, vectors = self.spectrum
        values = np.maximum(values, 0.0) + damping
        H = (vectors * values) @ vectors.T
        R = np.sqrt(values)[:, None] * vectors.T

        def best(price: float) -> FloatArray:
            """Return the optimal weights with a multiplier on the variance."""
            goal = H @ self.x - self.slopes - price * self.variances
            return np.asarray(nnls(R, vectors.T @ goal / np.sqrt(values))[0])

        x = best(0.0)
        if self.variances @ x > LARGEST:
            low, high = 0.0, 1e-12 * float(np.abs(self.slopes).max())
            while self.variances @ best(high) > LARGEST:
                low, high = high, 4.0 * high
            for _ in range(40):
                price = 0.5 * (low + high)
                over = self.variances @ best(price) > LARGEST
                low, high = (price, high) if over else (low, price)
            x = best(high)
        change = x - self.x
        gain = -float(self.slopes @ change + 0.5 * change @ H @ change)
        return x, max(0.0, gain)


def _improve(
    problem: EvidenceProblem, point: Iterate, model: _Model, damping: float
) -> Generator[Iterate, Any, tuple[Evidence | None, float]]:
    """Find better weights (None if rounding prevents it), and the next damping."""
    here: Evidence = point.about
    for _ in range(25):
        x, gain = model.step(damping)
        theta = np.zeros(len(here.theta))
        theta[model.which] = x * model.units
        found = problem.at(theta)
        grown = -np.inf if found is None else found.value - here.value
        if grown > 0 and grown >= 1e-3 * gain:
            good = grown > 0.5 * gain
            return found, max(damping / 10.0, _LEAST) if good else damping
        damping = max(10.0 * damping, 1e-4)
        yield point.alive()
    return None, damping


def _far(problem: EvidenceProblem, start: FloatArray) -> Evidence | None:
    """Return the best of several multiples of the weights, None if all fail."""
    tried = [problem.at(scale * start) for scale in (10.0, 100.0, 1000.0)]
    found = [evidence for evidence in tried if evidence is not None]
    if not found or not start.any():
        return None
    return max(found, key=lambda evidence: evidence.value)


def _definite(problem: EvidenceProblem, start: FloatArray) -> Evidence:
    """Return the evidence of the start, or of smaller weights if it is indefinite."""
    for _ in range(40):
        found = problem.at(start)
        if found is not None:
            return found
        start = start / 4.0
    found = problem.at(0.0 * start)
    assert found is not None  # the noise itself is positive definite
    return found
