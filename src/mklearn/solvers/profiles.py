"""Profiles of the restricted likelihood: what a weight or a share may as well be."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.exceptions import ConvergenceWarning

from mklearn.problems.evidence import AffineEvidence, EvidenceProblem
from mklearn.solvers.base import Iterate
from mklearn.solvers.driver import solve
from mklearn.solvers.evidence import LARGEST, AverageInformation

FloatArray = NDArray[np.float64]

_CLOSE = 1e-4  # log evidence that a profile may miss


@dataclass(frozen=True)
class Profile:
    """How likely the values are if one weight, or one share of variance, is known.

    Parameters
    ----------
    problem : EvidenceProblem
    theta : array of shape (M,)
        The most likely weights.
    share : bool
        Whether it is the share of the variance that is known, not the weight.
    """

    problem: EvidenceProblem
    theta: FloatArray
    share: bool = True

    def interval(self, m: int, drop: float) -> tuple[float, float]:
        """Return the ends of what is less likely by at most a factor of exp(-drop).

        Parameters
        ----------
        m : int
            The kernel.
        drop : float
            Of the log likelihood, all other weights the best ones beside it.
        """
        units = self.problem.variances() * np.mean(self.problem.weight)
        if units[m] <= 0:
            return (0.0, 0.0) if self.share else (0.0, np.inf)
        # all is counted in units of the noise; a share c is c / (1 - c) of the rest
        best = _Held(self.problem, self.theta, m, units, self.share)
        here = best.place()
        top = best.value(here)
        if top is None:  # no likelihood at the weights themselves: nothing is known
            return 0.0, np.inf

        def beyond(x: float) -> float:
            """Return the root of the loss of log likelihood, minus what is allowed."""
            found = best.value(x)
            loss = np.inf if found is None else max(top - found, 0.0)
            return float(min(loss, 1e6) ** 0.5 - drop**0.5)

        low = 0.0
        if here > 0 and beyond(0.0) > 0:
            low = float(brentq(beyond, 0.0, here, xtol=1e-6 * here, rtol=1e-4))
        step = max(here, 1e-3)
        high = here + step
        while beyond(high) < 0:
            step *= 3.0
            high = here + step
            if high > LARGEST:
                return best.shown(low), 1.0 if self.share else np.inf
        below = max(high - step, here)
        high = float(brentq(beyond, below, high, xtol=1e-6 * high, rtol=1e-4))
        return best.shown(low), best.shown(high)


class _Held:
    """The best likelihood with one kernel held at some size, found from the last."""

    def __init__(
        self,
        problem: EvidenceProblem,
        theta: FloatArray,
        m: int,
        units: FloatArray,
        share: bool,
    ) -> None:
        self._problem, self._m, self._units, self._share = problem, m, units, share
        # kernels that are always zero in the neighbourhood come in only if they pay
        self._others = np.flatnonzero((np.arange(len(theta)) != m) & (units > 0))
        self._phi, self._theta = theta[self._others], theta

    def place(self) -> float:
        """Return the size of the kernel at the best weights."""
        size = self._theta[self._m] * self._units[self._m]
        rest = 1.0 + float(self._units[self._others] @ self._phi)
        return float(size / rest if self._share else size)

    def shown(self, x: float) -> float:
        """Return a size as a share of the variance, or as a weight."""
        return x / (1.0 + x) if self._share else x / float(self._units[self._m])

    def value(self, x: float) -> float | None:
        """Return the log likelihood at a size, None where there is none."""
        M, k = len(self._theta), len(self._others)
        offset, basis = np.zeros(M), np.zeros((M, k))
        offset[self._m] = x / self._units[self._m]
        basis[self._others, np.arange(k)] = 1.0
        if self._share:  # of all that varies beside the kernel
            basis[self._m] = offset[self._m] * self._units[self._others]
        along = AffineEvidence(self._problem, offset, basis)
        if not k:
            found = along.at(np.zeros(0))
            return None if found is None else found.value
        start = Iterate(self._phi, self._problem.first().A)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solve(
                along, AverageInformation(_CLOSE), tol=_CLOSE, max_iter=60, start=start
            )
        self._phi = solution.theta
        return -solution.upper
