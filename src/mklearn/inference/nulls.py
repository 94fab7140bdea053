"""Null models: covariates, and kernels that are not tested, in white coordinates."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr, solve_triangular
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning

from mklearn.inference.forms import Form, Root
from mklearn.kernels.bank import KernelBank
from mklearn.problems.evidence import EvidenceProblem
from mklearn.solvers import Iterate, Solution, solve
from mklearn.solvers.evidence import AverageInformation

FloatArray = NDArray[np.float64]

_ROUNDS = 50  # of penalised quasi-likelihood
_REST = 1e-6  # log likelihood that other weights may yet gain
_LOW = 0.5  # part of n below which the ranks of kernels and covariates are low
_NOTHING = 1e-7  # part of a kernel that rounding leaves of it


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
        From vectors to these coordinates.
    others : tuple of Form
        Kernels whose weights were estimated, in these coordinates and projected.
    """

    left: FloatArray
    basis: FloatArray
    root: Root
    others: tuple[Form, ...] = ()
    _information: FloatArray | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, Y: FloatArray, Z: FloatArray, root: Root, kernels: Sequence[Form] = ()
    ) -> Null:
        """Return the null model whose ``root`` makes vectors white."""
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
        return cls(left, basis, root, others, known)

    @property
    def free(self) -> int:
        """Degrees of freedom of the residuals."""
        return len(self.left) - self.basis.shape[1]

    def seen(self, kernel: Form) -> Form:
        """Return a kernel in these coordinates."""
        return kernel.seen(self.root, self.basis)

    def adjusted(self, B: Form) -> Form | None:
        """Return a kernel made orthogonal to what was estimated; None if none is left.

        The score of its weight is made uncorrelated with the scores of the weights
        that were estimated, and of the noise.

        Parameters
        ----------
        B : Form
            In these coordinates.
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
    """What null models ask of a target."""

    Y: FloatArray  # values, or indicators of classes, (n, T)

    @property
    def binary(self) -> bool:
        """Whether there are two classes."""


def null_models(
    kernels: Sequence[Form], target: Target, Z: FloatArray, parts: Sequence[Any] | None
) -> Callable[[int], Null]:
    """Return a function from the number of a part to the null model without it.

    Parameters
    ----------
    kernels : sequence of Form
    target : Target
    Z : array of shape (n, q)
        Ones and covariates.
    parts : sequence of lists of int, or None
        The kernels that are tested together; the null model of a part has all others.
        None for covariates alone.
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
            return whole  # the best weights without the part are the same
        left = [m for m in range(M) if m not in parts[k]]
        return _Fitted.of(left, kernels, target, Z, every.theta[left]).null()

    return without


def _covariates(target: Target, Z: FloatArray) -> Null:
    """Return the model of covariates alone."""
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
    """Return the fitted probabilities of a logistic model without a penalty."""
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
        "The covariates separate the two classes, so that nothing is left for kernels "
        "to explain; give fewer covariates, or leave out the one that holds the target."
    )


# --- weights that are estimated -------------------------------------------------------


@dataclass(frozen=True)
class _Fitted:
    """Covariates and some kernels, by restricted likelihood or quasi-likelihood.

    Attributes
    ----------
    kernels : list of Form
    theta : array of shape (k,)
    Y, Z : arrays of shape (n, T) and (n, q)
        Values, or working values, and covariates.
    weight : array of shape (n,)
        How exact the values are.
    fitted : array of shape (n, T)
        Covariates and kernels, without the noise.
    root : callable
        What makes residuals white.
    """

    kernels: list[Form]
    theta: FloatArray
    Y: FloatArray
    Z: FloatArray
    fitted: FloatArray
    root: Root

    @classmethod
    def of(
        cls,
        which: list[int],
        kernels: Sequence[Form],
        target: Target,
        Z: FloatArray,
        start: FloatArray | None = None,
    ) -> _Fitted:
        """Return the best weights of some kernels, found from ``start``."""
        some = [kernels[m] for m in which]
        if not target.binary:
            return cls._restricted(some, target.Y, Z, np.ones(len(Z)), None, start)
        y = target.Y[:, 0]
        eta = logit(_logistic(y, Z))
        for _ in range(_ROUNDS):
            mean = np.clip(expit(eta), 1e-6, 1.0 - 1e-6)
            w = mean * (1.0 - mean)
            work = eta + (y - mean) / w
            found = cls._restricted(some, work[:, None], Z, w, 1.0, start)
            start, before = found.theta, eta
            eta = found.fitted[:, 0]
            if np.abs(eta - before).max() < 1e-3 * max(1.0, float(np.abs(eta).max())):
                return found
        raise ValueError(
            "Penalised quasi-likelihood did not settle on the weights of the other "
            "kernels; use given='covariates'."
        )

    @classmethod
    def _restricted(
        cls,
        kernels: list[Form],
        Y: FloatArray,
        Z: FloatArray,
        weight: FloatArray,
        noise: float | None,
        start: FloatArray | None,
    ) -> _Fitted:
        ranks = sum(kernel.rank for kernel in kernels) + Z.shape[1]
        low = all(kernel.scales is not None for kernel in kernels)
        make = _reduced if low and ranks <= _LOW * len(Z) else _whole
        theta, fitted, root = make(kernels, Y, Z, weight, noise, start)
        return cls(kernels, theta, Y, Z, fitted, root)

    def null(self) -> Null:
        """Return the model in coordinates where its residuals are white."""
        used = [self.kernels[k] for k in np.flatnonzero(self.theta > 0)]
        return Null.of(self.Y, self.Z, self.root, used)


Found = tuple[FloatArray, FloatArray, Root]  # weights, fitted values, root


def _whole(
    kernels: list[Form],
    Y: FloatArray,
    Z: FloatArray,
    weight: FloatArray,
    noise: float | None,
    start: FloatArray | None,
) -> Found:
    """Return the best weights of kernels as matrices."""
    bank = KernelBank.from_grams([kernel.dense() for kernel in kernels])
    solution = _solved(EvidenceProblem(bank, Y, weight, Z, noise), start)
    G = bank.combine(solution.theta)
    G[np.diag_indices(len(G))] += 1.0 / weight
    L = np.linalg.cholesky(G)

    def root(V: FloatArray) -> FloatArray:
        return np.asarray(solve_triangular(L, V, lower=True))

    return solution.theta, Y - solution.A / weight[:, None], root


def _reduced(
    kernels: list[Form],
    Y: FloatArray,
    Z: FloatArray,
    weight: FloatArray,
    noise: float | None,
    start: FloatArray | None,
) -> Found:
    """Return the same from the few coordinates that kernels and covariates reach."""
    scale = np.sqrt(weight)[:, None]
    ranks = [kernel.rank for kernel in kernels]
    columns = [kernel.columns for kernel in kernels]
    Q, R = qr(scale * np.column_stack([Z, *columns]), mode="economic")
    values = scale * Y
    along = Q.T @ values
    rest = values - Q @ along
    rest -= Q @ (Q.T @ rest)
    q, ends = Z.shape[1], Z.shape[1] + np.cumsum([0, *ranks])
    slices = [slice(a - q, b - q) for a, b in pairwise(ends)]
    bank = KernelBank.from_features(R[:, q:], slices)
    problem = EvidenceProblem(
        bank,
        along,
        np.ones(len(along)),
        R[:, :q],
        noise,
        np.sum(rest**2, axis=0),
        len(Y) - len(along),
    )
    solution = _solved(problem, start)
    values_of, vectors = eigh(bank.combine(solution.theta))
    shrunk = 1.0 / np.sqrt(1.0 + np.maximum(values_of, 0.0)) - 1.0
    inner = (vectors * shrunk) @ vectors.T

    def root(V: FloatArray) -> FloatArray:
        V = scale * V
        return np.asarray(V + Q @ (inner @ (Q.T @ V)))

    unexplained = (Q @ solution.A + rest) / scale
    return solution.theta, Y - unexplained, root


def _solved(problem: EvidenceProblem, start: FloatArray | None) -> Solution:
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
                start=first,
            )
        except ConvergenceWarning as warning:
            raise ValueError(
                "The weights of the other kernels did not converge, so that nothing "
                f"can be tested given them: {warning}"
            ) from None
