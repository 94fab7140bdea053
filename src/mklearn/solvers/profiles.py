"""Profile likelihood intervals of a weight or of a share of the variance."""

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

_CLOSE = 1e-4  # accuracy of the log evidence in a profile


@dataclass(frozen=True)
class Profile:
    """The restricted likelihood as a function of one weight or share of variance.

    Parameters
    ----------
    problem : EvidenceProblem
    theta : array of shape (M,)
        The maximum-likelihood weights.
    share : bool
        Whether the profile is that of the share of the variance, not of the weight.
    """

    problem: EvidenceProblem
    theta: FloatArray
    share: bool = True

    def interval(self, m: int, drop: float) -> tuple[float, float]:
        """Return the interval in which the log likelihood drops by at most ``drop``.

        Parameters
        ----------
        m : int
            Index of the kernel.
        drop : float
            Decrease of the log likelihood, maximised over all other weights.
        """
        units = self.problem.variances() * np.mean(self.problem.weight)
        if units[m] <= 0:
            return (0.0, 0.0) if self.share else (0.0, np.inf)
        # everything is in units of the noise; a share c is c / (1 - c) of the rest
        best = _Held(self.problem, self.theta, m, units, self.share)
        here = best.place()
        top = best.value(here)
        if top is None:  # the likelihood does not exist even at the weights themselves
            return 0.0, np.inf

        def beyond(x: float) -> float:
            """Return the root of the drop in log likelihood, minus the allowed one."""
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
    """The maximum likelihood with one kernel held fixed, with warm starts."""

    def __init__(
        self,
        problem: EvidenceProblem,
        theta: FloatArray,
        m: int,
        units: FloatArray,
        share: bool,
    ) -> None:
        self._problem, self._m, self._units, self._share = problem, m, units, share
        # the other kernels; those that are zero nearby enter only if they help
        self._others = np.flatnonzero((np.arange(len(theta)) != m) & (units > 0))
        self._phi, self._theta = theta[self._others], theta

    def place(self) -> float:
        """Return the size of the kernel at the maximum-likelihood weights."""
        size = self._theta[self._m] * self._units[self._m]
        rest = 1.0 + float(self._units[self._others] @ self._phi)
        return float(size / rest if self._share else size)

    def shown(self, x: float) -> float:
        """Return a size as a share of the variance, or as a weight."""
        return x / (1.0 + x) if self._share else x / float(self._units[self._m])

    def value(self, x: float) -> float | None:
        """Return the profile log likelihood at a size, None if it does not exist."""
        M, k = len(self._theta), len(self._others)
        offset, basis = np.zeros(M), np.zeros((M, k))
        offset[self._m] = x / self._units[self._m]
        basis[self._others, np.arange(k)] = 1.0
        if self._share:  # the kernel grows with the variance of all others
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
