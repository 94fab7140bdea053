"""Null models: covariates, and kernels that are not tested, with white residuals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning

from mklearn.inference.forms import Form, Root
from mklearn.kernels.bank import KernelBank
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.laplace import LaplaceProblem, Posed, Reduced, Space, Whole
from mklearn.solvers import Iterate, Solution, solve
from mklearn.solvers.evidence import AverageInformation

FloatArray = NDArray[np.float64]

_REST = 1e-6  # tolerance for the log likelihood of the other weights
_LOW = 0.5  # fraction of n below which the ranks of kernels and covariates are low
_NOTHING = 1e-7  # relative size of a kernel that counts as zero up to rounding
# Largest variance of the log odds that other kernels may explain. Beyond it, labels
# are fitted so closely that their residuals are no longer what the null model says,
# and far too many p-values are small: simulations in benchmarks/calibration.py.
_ODDS = 1.0


@dataclass(frozen=True)
class Null:
    """A model without the kernel, in coordinates where its residuals are white.

    Attributes
    ----------
    left : array of shape (n, T)
        Residuals of the null model, white and orthogonal to ``basis``.
    basis : array of shape (n, q)
        Orthonormal columns of covariates in these coordinates.
    root : callable
        Map from vectors to these coordinates.
    others : tuple of Form
        Kernels whose weights were estimated, in these coordinates and projected.
    scaled : bool
        Whether the variance of the residuals is one; otherwise it is unknown.
    """

    left: FloatArray
    basis: FloatArray
    root: Root
    others: tuple[Form, ...] = ()
    scaled: bool = False
    _information: FloatArray | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, Y: FloatArray, Z: FloatArray, root: Root, kernels: Sequence[Form] = ()
    ) -> Null:
        """Return the null model with the whitening map ``root``."""
        basis = qr(root(Z), mode="economic")[0]
        left = root(Y)
        left = left - basis @ (basis.T @ left)
        others = tuple(kernel.seen(root, basis) for kernel in kernels)
        free = len(Y) - basis.shape[1]
        known = None
        if others:
            products = np.array([[a.inner(b) for b in others] for a in others])
            traces = np.array([a.trace() for a in others])
            known = products - np.outer(traces, traces) / free
        return cls(left, basis, root, others, _information=known)

    @property
    def free(self) -> int:
        """Degrees of freedom of the residuals."""
        return len(self.left) - self.basis.shape[1]

    def seen(self, kernel: Form) -> Form:
        """Return a kernel in these coordinates."""
        return kernel.seen(self.root, self.basis)

    def adjusted(self, B: Form) -> Form | None:
        """Return a kernel made orthogonal to the estimated ones; None if it vanishes.

        The score of its weight is made uncorrelated with the scores of the estimated
        weights and of the noise variance.

        Parameters
        ----------
        B : Form
            The kernel in these coordinates.
        """
        size = B.inner(B)
        if size <= 0:
            return None
        if self._information is None:
            return B
        across = np.array([B.inner(other) for other in self.others])
        traces = np.array([other.trace() for other in self.others])
        across -= traces * B.trace() / self.free
        c = np.linalg.lstsq(self._information, across, rcond=1e-10)[0]
        left = B.minus(c, self.others)
        return None if left.inner(left) <= _NOTHING**2 * size else left


class Target(Protocol):
    """Interface of a target for null models."""

    Y: FloatArray  # values, or indicators of classes, (n, T)

    @property
    def binary(self) -> bool:
        """Whether there are two classes."""


def null_models(
    kernels: Sequence[Form], target: Target, Z: FloatArray, parts: Sequence[Any] | None
) -> Callable[[int], Null]:
    """Return a function from the index of a part to the null model without it.

    Parameters
    ----------
    kernels : sequence of Form
    target : Target
    Z : array of shape (n, q)
        Ones and covariates.
    parts : sequence of lists of int, or None
        Kernels that are tested together; the null model of a part has all others. None
        for null models with covariates only.
    """
    if parts is None:
        same = _covariates(target, Z)
        return lambda k: same
    M = len(kernels)
    if len(parts) == 1:
        left = [m for m in range(M) if m not in parts[0]]
        return lambda k: _Fitted.of(left, kernels, target, Z).null()
    every = _Fitted.of(list(range(M)), kernels, target, Z)
    whole = every.null()

    def without(k: int) -> Null:
        if not every.theta[list(parts[k])].any():
            return whole  # the optimal weights without the part are the same
        left = [m for m in range(M) if m not in parts[k]]
        return _Fitted.of(left, kernels, target, Z, every.theta[left]).null()

    return without


def _covariates(target: Target, Z: FloatArray) -> Null:
    """Return the model with covariates only."""
    if not target.binary:
        return Null.of(target.Y, Z, lambda V: V)
    y = target.Y[:, 0]
    mean = _logistic(y, Z)
    spread = np.sqrt(mean * (1.0 - mean))
    null = Null.of(np.zeros((len(Z), 1)), Z, lambda V: V * spread[:, None])
    left = ((y - mean) / spread)[:, None]
    left = left - null.basis @ (null.basis.T @ left)
    return Null(left, null.basis, null.root)


def _logistic(y: FloatArray, Z: FloatArray) -> FloatArray:
    """Return the fitted probabilities of an unpenalised logistic model."""
    beta = np.zeros(Z.shape[1])
    for _ in range(100):
        mean = expit(Z @ beta)
        w = mean * (1.0 - mean)
        information = Z.T @ (w[:, None] * Z)
        step = np.linalg.lstsq(information, Z.T @ (y - mean), rcond=None)[0]
        size = float(np.abs(step).max())
        beta = beta + step * min(1.0, 5.0 / max(size, 1e-300))
        if np.abs(Z @ beta).max() > 30.0:
            break
        if size < 1e-10:
            return np.asarray(expit(Z @ beta))
    raise ValueError(
        "The covariates separate the two classes, in all samples or in some of them, "
        "which leaves nothing for the kernels to explain there. Use fewer covariates, "
        "merge categories in which all samples belong to one class, or leave out the "
        "covariate that encodes the target."
    )


# --- estimated weights ----------------------------------------------------------------


@dataclass(frozen=True)
class _Fitted:
    """Covariates and some kernels, with maximum-likelihood weights.

    Attributes
    ----------
    kernels : list of Form
    theta : array of shape (k,)
    Z : array of shape (n, q)
    posed : Posed
        The restricted likelihood of values, or of working values.
    """

    kernels: list[Form]
    theta: FloatArray
    Z: FloatArray
    posed: Posed

    @classmethod
    def of(
        cls,
        which: list[int],
        kernels: Sequence[Form],
        target: Target,
        Z: FloatArray,
        start: FloatArray | None = None,
    ) -> _Fitted:
        """Estimate the weights of some kernels, starting from ``start``."""
        some = [kernels[m] for m in which]
        space = _space(some, Z)
        if not target.binary:
            posed = space.posed(target.Y, np.ones(len(Z)), None)
            return cls(some, _solved(posed.problem, start).theta, Z, posed)
        y = target.Y[:, 0]
        problem = LaplaceProblem(space, y, logit(_logistic(y, Z)))
        theta = _bounded(problem, np.array([k.trace() / len(y) for k in some]), start)
        found = problem.at(theta)
        assert found is not None  # or there would be no solution
        return cls(some, theta, Z, found.posed)

    def null(self) -> Null:
        """Return the model in coordinates where its residuals are white."""
        used = [self.kernels[k] for k in np.flatnonzero(self.theta > 0)]
        posed = self.posed
        return Null.of(posed.Y, self.Z, posed.root(self.theta), used)


def _space(kernels: list[Form], Z: FloatArray) -> Space:
    """Return kernels as matrices, or as columns if their ranks are low."""
    ranks = sum(kernel.rank for kernel in kernels) + Z.shape[1]
    low = all(kernel.scales is not None for kernel in kernels)
    if low and ranks <= _LOW * len(Z):
        return Reduced([kernel.columns for kernel in kernels], Z)
    return Whole(KernelBank.from_grams([kernel.dense() for kernel in kernels]), Z)


class _StrongError(Exception):
    """Weights so large that the labels are nearly separated."""


def _bounded(
    problem: LaplaceProblem, sizes: FloatArray, start: FloatArray | None
) -> FloatArray:
    """Return the best weights, or a multiple of them with the largest variance allowed.

    Where kernels separate the classes, weights grow without bound, so the search ends
    as soon as they are far above what is allowed.
    """

    def watch(history: Any) -> None:
        if history.theta[-1] @ sizes > 20.0 * _ODDS:
            raise _StrongError(history.theta[-1])

    try:
        theta = _solved(problem, start, watch).theta
    except _StrongError as strong:
        theta = strong.args[0]
    return np.asarray(theta * (_ODDS / max(float(theta @ sizes), _ODDS)))


def _solved(
    problem: EvidenceProblem | LaplaceProblem,
    start: FloatArray | None,
    callback: Callable[[Any], None] | None = None,
) -> Solution:
    first = None
    if start is not None and start.any():
        first = Iterate(start, problem.first().A)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return solve(
                problem,
                AverageInformation(rest=_REST),
                tol=_REST,
                max_iter=500,
                callback=callback,
                start=first,
            )
        except ConvergenceWarning as warning:
            raise ValueError(
                "The weights of the other kernels did not converge, so tests given "
                f"these kernels are not possible: {warning}"
            ) from None
