"""Null models: covariates, and kernels that are not tested, with white residuals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.special import expit, logit, softmax
from sklearn.exceptions import ConvergenceWarning

from mklearn.inference.forms import Form, Root
from mklearn.kernels.bank import KernelBank
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.laplace import LaplaceProblem, Posed, Reduced, Space, Whole
from mklearn.solvers import Iterate, Solution, solve
from mklearn.solvers.evidence import AverageInformation, weights_without

FloatArray = NDArray[np.float64]

_REST = 1e-6  # tolerance for the log likelihood of the other weights
# The same if they are those of a model without a kernel, started from one with it: the
# statistic is orthogonal to their scores, so they need not be more exact.
_REST_WITHOUT = 1e-4
_LOW = 0.5  # fraction of n below which the ranks of kernels and covariates are low
_ROOM = 2**28  # size in bytes up to which kernels are kept as matrices
_NOTHING = 1e-7  # relative size of a kernel that counts as zero up to rounding
# Largest variance of the log odds that other kernels may explain: where they separate
# the classes, weights would grow without bound. A form in residuals of known variance
# shrinks if labels are fitted too closely, so tests only lose power there.
_ODDS = 16.0


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
    weight : array of shape (n,) or None
        Variances of the labels of two classes, if ``scaled``; None otherwise.
    scaled : bool
        Whether the variance of the residuals is one; otherwise it is unknown.
    """

    left: FloatArray
    basis: FloatArray
    root: Root
    others: tuple[Form, ...] = ()
    weight: FloatArray | None = None
    scaled: bool = False
    _information: FloatArray | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        Y: FloatArray,
        Z: FloatArray,
        root: Root,
        kernels: Sequence[Form] = (),
        weight: FloatArray | None = None,
    ) -> Null:
        """Return the null model with the whitening map ``root``."""
        basis = qr(root(Z), mode="economic")[0]
        left = root(Y)
        left = left - basis @ (basis.T @ left)
        others = tuple(kernel.seen(root, basis) for kernel in kernels)
        free = len(Y) - basis.shape[1]
        known = None
        if others:
            others = _expanded(others)
            products = np.zeros((len(others), len(others)))
            for i, a in enumerate(others):
                for j, b in enumerate(others[: i + 1]):
                    products[i, j] = products[j, i] = a.inner(b)
            known = products
            if weight is None:
                traces = np.array([a.trace() for a in others])
                known = products - np.outer(traces, traces) / free
        return cls(left, basis, root, others, weight, weight is not None, known)

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
        weights, and of an unknown noise variance.

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
        if all(other.scales is None for other in self.others):
            B = Form(B.dense(), None)  # as it will be at the end
        across = np.array([B.inner(other) for other in self.others])
        if not self.scaled:
            traces = np.array([other.trace() for other in self.others])
            across -= traces * B.trace() / self.free
        c = np.linalg.lstsq(self._information, across, rcond=1e-10)[0]
        left = B.minus(c, self.others)
        return None if left.inner(left) <= _NOTHING**2 * size else left

    def standardised(self, form: Form, value: float) -> float:
        """Return the value of a form on the scale of normal residuals.

        It is the value itself unless the target consists of labels. Then, residuals are
        a linear map of normal variables (the other kernels) and of the independent
        errors of the labels. The excess kurtosis of a label with variance w is
        ``1 / w - 6``, so the variance of the form is that for normal residuals plus
        ``sum_i (1 / w_i - 6) D_ii^2``, where D is the form in units of the labels'
        standard deviations. The distance from the mean is divided by the standard
        deviation and multiplied by that for normal residuals.

        Parameters
        ----------
        form : Form
            In these coordinates.
        value : float
        """
        if self.weight is None:
            return value
        normal = 2.0 * form.inner(form)
        diagonal = form.quads(self._labels)
        exact = normal + float((1.0 / self.weight - 6.0) @ diagonal**2)
        mean = form.trace()
        # a form that does not vary, up to rounding, stays at its mean
        exact = max(exact, _NOTHING * normal)
        return mean + (value - mean) * (normal / exact) ** 0.5

    @cached_property
    def _labels(self) -> FloatArray:
        """The errors of the labels, each of variance one, in these coordinates."""
        assert self.weight is not None
        units = self.root(np.diag(self.weight**-0.5))
        return units - self.basis @ (self.basis.T @ units)


def _expanded(forms: tuple[Form, ...]) -> tuple[Form, ...]:
    """Return forms as matrices if differences of them are, and there is room.

    Otherwise the same columns would be multiplied for every product and difference.
    """
    n, ranks = len(forms[0].columns), sum(form.rank for form in forms)
    if ranks <= _LOW * n or 8 * len(forms) * n**2 > _ROOM:
        return forms
    return tuple(Form(form.dense(), None) for form in forms)


class Target(Protocol):
    """Interface of a target for null models."""

    Y: FloatArray  # values, or indicators of classes, (n, T)

    @property
    def binary(self) -> bool:
        """Whether there are two classes."""


def null_models(
    kernels: Sequence[Form],
    target: Target,
    Z: FloatArray,
    parts: Sequence[Any] | None,
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
        return every.without(list(parts[k])).null()

    return without


def _covariates(target: Target, Z: FloatArray) -> Null:
    """Return the model with covariates only."""
    if not target.binary:
        return Null.of(target.Y, Z, lambda V: V)
    y = target.Y[:, 0]
    mean = logistic(target.Y, Z)[:, 0]
    spread = np.sqrt(mean * (1.0 - mean))
    null = Null.of(np.zeros((len(Z), 1)), Z, lambda V: V * spread[:, None])
    left = ((y - mean) / spread)[:, None]
    left = left - null.basis @ (null.basis.T @ left)
    return Null(left, null.basis, null.root)


def logistic(Y: FloatArray, Z: FloatArray) -> FloatArray:
    """Return the fitted probabilities of an unpenalised (multinomial) logistic model.

    Parameters
    ----------
    Y : array of shape (n, T)
        Indicators of all classes but one.
    Z : array of shape (n, q)
        Ones and covariates.

    Returns
    -------
    array of shape (n, T)
    """
    (_, T), q = Y.shape, Z.shape[1]
    beta = np.zeros((q, T))
    for _ in range(100):
        mean = _softmax(Z @ beta)
        information = np.empty((T, q, T, q))
        for s in range(T):
            for t in range(T):
                w = mean[:, s] * ((s == t) - mean[:, t])
                information[s, :, t] = Z.T @ (w[:, None] * Z)
        slope = (Z.T @ (Y - mean)).T.ravel()
        matrix = information.reshape(T * q, T * q)
        step = np.linalg.lstsq(matrix, slope, rcond=None)[0].reshape(T, q).T
        size = float(np.abs(step).max())
        beta = beta + step * min(1.0, 5.0 / max(size, 1e-300))
        if np.abs(Z @ beta).max() > 30.0:
            break
        if size < 1e-10:
            return _softmax(Z @ beta)
    raise separated(T + 1)


def separated(n_classes: int) -> ValueError:
    """Return the error for covariates that separate the classes.

    Parameters
    ----------
    n_classes : int
    """
    return ValueError(
        f"The covariates separate the {'two ' * (n_classes == 2)}classes, in all "
        "samples or in some of them, which leaves nothing for the kernels to explain "
        "there. Use fewer covariates, merge categories in which all samples belong to "
        "one class, or leave out the covariate that encodes the target."
    )


def _softmax(odds: FloatArray) -> FloatArray:
    """Return the probabilities of all classes but the one whose log odds are zero."""
    if odds.shape[1] == 1:
        return np.asarray(expit(odds))
    return np.asarray(softmax(np.column_stack([0.0 * odds[:, 0], odds]), axis=1)[:, 1:])


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
    space : Space
    target : Target
    here : Evidence or Labels
        The likelihood at the weights.
    """

    kernels: list[Form]
    theta: FloatArray
    Z: FloatArray
    posed: Posed
    space: Space
    target: Target
    here: Any

    @classmethod
    def of(
        cls,
        which: list[int],
        kernels: Sequence[Form],
        target: Target,
        Z: FloatArray,
    ) -> _Fitted:
        """Estimate the weights of some kernels."""
        some = [kernels[m] for m in which]
        return cls._best(some, _space(some, Z), target, None, _REST)

    def without(self, removed: list[int]) -> _Fitted:
        """Return the model without some of the kernels."""
        left = [m for m in range(len(self.kernels)) if m not in removed]
        start = weights_without(self.theta, self._model, removed)[left]
        some, space = [self.kernels[m] for m in left], self.space.part(left)
        return self._best(some, space, self.target, start, _REST_WITHOUT)

    @classmethod
    def _best(
        cls,
        kernels: list[Form],
        space: Space,
        target: Target,
        start: FloatArray | None,
        rest: float,
    ) -> _Fitted:
        Z = space.Z
        if not target.binary:
            posed = space.posed(target.Y, np.ones(len(Z)), None)
            theta = _solved(posed.problem, start, rest).theta
            here: Any = posed.problem.at(theta)
            return cls(kernels, theta, Z, posed, space, target, here)
        y = target.Y[:, 0]
        problem = LaplaceProblem(space, y, logit(logistic(target.Y, Z)[:, 0]))
        sizes = np.array([k.trace() / len(y) for k in kernels])
        theta = _bounded(problem, sizes, start, rest)
        here = problem.at(theta)
        assert here is not None  # or there would be no solution
        return cls(kernels, theta, Z, here.posed, space, target, here)

    @cached_property
    def _model(self) -> tuple[FloatArray, FloatArray]:
        model: tuple[FloatArray, FloatArray] = self.here.model()
        return model

    def null(self) -> Null:
        """Return the model in coordinates where its residuals are white."""
        used = [self.kernels[k] for k in np.flatnonzero(self.theta > 0)]
        posed = self.posed
        known = self.target.binary and bool(used)
        weight = posed.weight if known else None
        return Null.of(posed.Y, self.Z, posed.root(self.theta), used, weight)


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
    problem: LaplaceProblem,
    sizes: FloatArray,
    start: FloatArray | None,
    rest: float,
) -> FloatArray:
    """Return the best weights, or a multiple of them with the largest variance allowed.

    Where kernels separate the classes, weights grow without bound, so the search ends
    as soon as they are far above what is allowed.
    """

    def watch(history: Any) -> None:
        if history.theta[-1] @ sizes > 20.0 * _ODDS:
            raise _StrongError(history.theta[-1])

    try:
        theta = _solved(problem, start, rest, watch).theta
    except _StrongError as strong:
        theta = strong.args[0]
    return np.asarray(theta * (_ODDS / max(float(theta @ sizes), _ODDS)))


def _solved(
    problem: EvidenceProblem | LaplaceProblem,
    start: FloatArray | None,
    rest: float,
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
                AverageInformation(rest=rest),
                tol=rest,
                max_iter=500,
                callback=callback,
                start=first,
            )
        except ConvergenceWarning as warning:
            raise ValueError(
                "The weights of the other kernels did not converge, so tests given "
                f"these kernels are not possible: {warning}"
            ) from None
