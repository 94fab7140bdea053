"""Kernel weights under which values are most likely: a damped Newton method."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning

from mklearn.problems.evidence import Evidence, EvidenceProblem
from mklearn.solvers.base import Status

FloatArray = NDArray[np.float64]

LARGEST = 1e8  # variance of what the kernels say, in units of the noise
_FIRST, _LEAST = 1e-2, 1e-8  # damping, relative to the curvature
_LITTLE = 2.0  # log evidence above that of no kernel at all
_MANY = 300  # kernels: with more, all weights start from zero,
_ENTER = 100  # and so many may enter in an iteration


@dataclass
class EvidenceHistory:
    """One entry for each iteration."""

    evidence: list[float] = field(default_factory=list)
    promise: list[float] = field(default_factory=list)
    theta: list[FloatArray] = field(default_factory=list)
    time: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.evidence)


@dataclass(frozen=True)
class EvidenceSolution:
    """The most likely weights that were found, and what is known about them.

    Attributes
    ----------
    theta : array of shape (M,)
        Kernel weights, in units of the noise.
    A : array of shape (n, T)
        ``f(x) = sum_i A_i k_theta(x_i, x) + bias``.
    bias : array of shape (T,)
    evidence : float
        Log density of the values, summed over outputs.
    nothing : float
        The same for weights of zero: noise and a constant alone.
    noise : array of shape (T,)
        Variances.
    promise : float
        How much more evidence the quadratic model at these weights sees, over all
        weights that are not negative. Zero at weights that no small change improves.
    status : Status
    n_iter : int
    time : float
        Seconds.
    history : EvidenceHistory
    """

    theta: FloatArray
    A: FloatArray = field(repr=False)
    bias: FloatArray
    evidence: float
    nothing: float
    noise: FloatArray
    promise: float
    status: Status
    n_iter: int
    time: float
    history: EvidenceHistory = field(repr=False)

    @property
    def message(self) -> str:
        """What was found, in words."""
        return (
            f"The log evidence is {self.evidence:.6g}, "
            f"{self.evidence - self.nothing:.3g} above that of no kernel at all; small "
            f"changes of the weights promise {self.promise:.2g} more. Whether weights "
            f"far from these are better nothing tells ({self.n_iter} iterations)."
        )


def maximise_evidence(
    problem: EvidenceProblem,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
    time_limit: float | None = None,
    callback: Callable[[Any], Any] | None = None,
    verbose: int = 0,
) -> EvidenceSolution:
    """Find weights at which the evidence of the values is largest.

    The evidence is not concave: the answer is a local maximum, the one that is found
    from weights that share the variance of the noise equally, or from zero if there are
    more than 300 kernels. If that says hardly more than no kernel at all, it is looked
    for from 10, 100 or 1000 times larger weights as well.

    Parameters
    ----------
    problem : EvidenceProblem
    tol : float
        Stop when the log evidence can be expected to grow by less.
    max_iter : int
    time_limit : float, optional
        Seconds.
    callback : callable, optional
        Called after each iteration with the :class:`EvidenceHistory`; a true answer
        stops.
    verbose : int
        Above zero, a line for each iteration, on standard error.

    Returns
    -------
    EvidenceSolution
        After Ctrl-C as well, with a warning.
    """
    began = time.perf_counter()
    variances = problem.variances()
    known = variances > 1e-12 * max(float(variances.max()), 1e-300)
    # in units of the noise of a typical sample
    variances = variances * np.mean(problem.weight)
    start = np.where(known, 1.0 / (len(known) * np.where(known, variances, 1.0)), 0.0)
    if len(known) > _MANY:
        start = np.zeros(len(known))
    nothing = _at(problem, np.zeros(len(known))).value
    here, promise = _definite(problem, start), np.nan
    history, status = EvidenceHistory(), Status.STALLED
    damping, other = _FIRST, None
    try:
        while True:
            model = _Model.of(here, known, variances)
            promise = model.step(_LEAST)[1]
            history.evidence.append(here.value)
            history.promise.append(promise)
            history.theta.append(here.theta)
            history.time.append(time.perf_counter() - began)
            if verbose > 0:
                print(
                    f"iteration {len(history):4d}  log evidence {here.value:.6g}  "
                    f"promise {promise:.2e}  {history.time[-1]:.2f} s",
                    file=sys.stderr,
                )
            if promise <= tol:
                status = Status.STATIONARY
                if other is None and here.value - nothing < _LITTLE:
                    far = _far(problem, start)
                    if far is not None:
                        other, here, damping = (here, promise), far, _FIRST
                        continue
            elif callback is not None and callback(history):
                status = Status.CALLBACK
            elif time_limit is not None and history.time[-1] > time_limit:
                status = Status.TIME_LIMIT
            elif len(history) >= max_iter:
                status = Status.MAX_ITER
            else:
                found, damping = _improve(problem, here, model, damping)
                if found is not None:
                    here = found
                    continue
            break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if other is not None and other[0].value >= here.value:
        (here, promise), status = other, Status.STATIONARY
    if status is not Status.STATIONARY:
        warnings.warn(
            f"Stopped where the log evidence may still grow by {promise:.2g}, above "
            f"tol={tol:.2g}: {status.value}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return EvidenceSolution(
        theta=here.theta,
        A=here.A,
        bias=here.bias,
        evidence=here.value,
        nothing=nothing,
        noise=here.noise,
        promise=promise,
        status=status,
        n_iter=len(history),
        time=time.perf_counter() - began,
        history=history,
    )


@dataclass(frozen=True)
class _Model:
    """A quadratic model of minus the evidence around some weights.

    Weights are counted in units in which the curvature along each is one.
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
        # where a weight of zero has a slope of zero or more it stays
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
        """Return the best weights of the damped model, and what they promise."""
        if not len(self.which):
            return self.x, 0.0
        values, vectors = self.spectrum
        values = np.maximum(values, 0.0) + damping
        H = (vectors * values) @ vectors.T
        R = np.sqrt(values)[:, None] * vectors.T

        def best(price: float) -> FloatArray:
            """Return the best weights if variance has a price."""
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
    problem: EvidenceProblem, here: Evidence, model: _Model, damping: float
) -> tuple[Evidence | None, float]:
    """Return better weights, None if rounding hides them, and the next damping."""
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
    return None, damping


def _far(problem: EvidenceProblem, start: FloatArray) -> Evidence | None:
    """Return the best of some multiples of the weights, None if there is none."""
    tried = [problem.at(scale * start) for scale in (10.0, 100.0, 1000.0)]
    found = [evidence for evidence in tried if evidence is not None]
    if not found or not start.any():
        return None
    return max(found, key=lambda evidence: evidence.value)


def _definite(problem: EvidenceProblem, start: FloatArray) -> Evidence:
    """Return the start, or smaller weights if kernels have negative eigenvalues."""
    for _ in range(40):
        found = problem.at(start)
        if found is not None:
            return found
        start = start / 4.0
    return _at(problem, 0.0 * start)


def _at(problem: EvidenceProblem, theta: FloatArray) -> Evidence:
    """Return the evidence of weights whose matrix is known to be positive definite."""
    found = problem.at(theta)
    assert found is not None
    return found
