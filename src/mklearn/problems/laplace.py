"""The evidence of kernel weights for two classes, by Laplace's approximation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr
from scipy.linalg.lapack import dposv
from scipy.special import expit

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.factors import cholesky, solve_triangle
from mklearn.problems.base import Certificate, Iterate, Judgement, Kind
from mklearn.problems.evidence import Evidence, EvidenceProblem, Likelihood

FloatArray = NDArray[np.float64]
Root = Callable[[FloatArray], FloatArray]

_NEWTON = 100  # steps to the mode
_STILL = 1e-7  # relative change of the linear predictor that counts as convergence
_FLAT = 1e-10  # smallest variance of a label; below it, the probability is 0 or 1


# --- kernels as matrices, or in coordinates of their low-dimensional range ------------


class Space(Protocol):
    """Kernels and covariates of samples."""

    Z: FloatArray  # ones and covariates, (n, q)

    def part(self, which: Sequence[int]) -> Space:
        """Return the space with some of the kernels."""

    def posed(self, Y: FloatArray, weight: FloatArray, noise: float | None) -> Posed:
        """Return the restricted likelihood of values with these weights."""

    def fit(
        self, theta: FloatArray, y: FloatArray, weight: FloatArray
    ) -> FloatArray | None:
        """Return the values fitted by covariates and kernels, (n,); None on failure."""


@dataclass(frozen=True)
class Posed:
    """A restricted likelihood, and the map between its coordinates and the samples.

    Attributes
    ----------
    problem : EvidenceProblem
    Y : array of shape (n, T)
        The values of the samples.
    weight : array of shape (n,)
    basis : array of shape (n, k) or None
        Orthonormal columns, the coordinates of the problem; None if these are samples.
    rest : array of shape (n, T) or None
        The part of the scaled values orthogonal to the basis.
    """

    problem: EvidenceProblem
    Y: FloatArray
    weight: FloatArray
    basis: FloatArray | None = None
    rest: FloatArray | None = None

    @cached_property
    def _scale(self) -> FloatArray:
        return np.asarray(np.sqrt(self.weight)[:, None])

    def left(self, A: FloatArray) -> FloatArray:
        """Return ``P Y`` in samples, (n, T), from that in the problem's coordinates."""
        if self.basis is None or self.rest is None:
            return A
        return np.asarray(self._scale * (self.basis @ A + self.rest))

    def fitted(self, A: FloatArray) -> FloatArray:
        """Return the values fitted by covariates and kernels, (n, T)."""
        return np.asarray(self.Y - self.left(A) / self.weight[:, None])

    def seen(self, v: FloatArray) -> FloatArray:
        """Return a vector of samples, (n,), in the coordinates of the problem."""
        if self.basis is None:
            return v
        return np.asarray(self.basis.T @ (self._scale[:, 0] * v))

    def variances(self, P: FloatArray) -> FloatArray:
        """Return the variances of the fitted values, (n,)."""
        if self.basis is None:
            return np.asarray((1.0 - np.diagonal(P) / self.weight) / self.weight)
        Q = self.basis
        return np.asarray(np.sum((Q - Q @ P) * Q, axis=1) / self.weight)

    def root(self, theta: FloatArray) -> Root:
        """Return the map that whitens the residuals of samples, at some weights."""
        bank = self.problem.bank
        if self.basis is None:
            G = bank.combine(theta)
            G[np.diag_indices(len(G))] += 1.0 / self.weight
            L, _ = cholesky(G.T)
            return lambda V: solve_triangle(L, V)
        values, vectors = eigh(bank.combine(theta))
        shrunk = 1.0 / np.sqrt(1.0 + np.maximum(values, 0.0)) - 1.0
        inner = (vectors * shrunk) @ vectors.T
        Q, scale = self.basis, self._scale

        def root(V: FloatArray) -> FloatArray:
            V = scale * V
            return np.asarray(V + Q @ (inner @ (Q.T @ V)))

        return root


@dataclass(frozen=True)
class Whole:
    """Kernels as matrices.

    Parameters
    ----------
    bank : KernelBank
    Z : array of shape (n, q)
    """

    bank: KernelBank
    Z: FloatArray

    def part(self, which: Sequence[int]) -> Whole:
        """Return the space with some of the kernels."""
        return Whole(self.bank.select(list(which)), self.Z)

    def posed(self, Y: FloatArray, weight: FloatArray, noise: float | None) -> Posed:
        """Return the restricted likelihood of values with these weights."""
        problem = EvidenceProblem(self.bank, Y, weight, self.Z, noise)
        return Posed(problem, Y, weight)

    def fit(
        self, theta: FloatArray, y: FloatArray, weight: FloatArray
    ) -> FloatArray | None:
        """Return the values fitted by covariates and kernels, (n,); None on failure."""
        posed = self.posed(y[:, None], weight, 1.0)
        found = posed.problem.at(theta)
        return None if found is None else posed.fitted(found.A)[:, 0]


@dataclass(frozen=True)
class Reduced:
    """Kernels ``L_m L_m'`` of few columns, in coordinates of their common range.

    Parameters
    ----------
    columns : sequence of arrays of shape (n, r_m)
    Z : array of shape (n, q)
    """

    columns: Sequence[FloatArray]
    Z: FloatArray

    def part(self, which: Sequence[int]) -> Reduced:
        """Return the space with some of the kernels."""
        return Reduced([self.columns[m] for m in which], self.Z)

    @cached_property
    def _all(self) -> FloatArray:
        return np.column_stack([self.Z, *self.columns])

    @cached_property
    def _slices(self) -> list[slice]:
        ends = np.cumsum([0, *(L.shape[1] for L in self.columns)])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def posed(self, Y: FloatArray, weight: FloatArray, noise: float | None) -> Posed:
        """Return the restricted likelihood of values with these weights."""
        scale, q = np.sqrt(weight)[:, None], self.Z.shape[1]
        Q, R = qr(scale * self._all, mode="economic")
        values = scale * Y
        along = Q.T @ values
        rest = values - Q @ along
        rest -= Q @ (Q.T @ rest)
        problem = EvidenceProblem(
            KernelBank.from_features(R[:, q:], self._slices),
            along,
            np.ones(len(along)),
            R[:, :q],
            noise,
            np.sum(rest**2, axis=0),
            len(Y) - len(along),
        )
        return Posed(problem, Y, weight, Q, rest)

    def fit(
        self, theta: FloatArray, y: FloatArray, weight: FloatArray
    ) -> FloatArray | None:
        """Return the values fitted by covariates and kernels, (n,); None on failure."""
        used = [t**0.5 * L for t, L in zip(theta, self.columns, strict=True) if t > 0]
        F, q = np.column_stack([self.Z, *used]), self.Z.shape[1]
        weighted = weight[:, None] * F
        H = F.T @ weighted
        H[np.arange(q, len(H)), np.arange(q, len(H))] += 1.0
        units = 1.0 / np.sqrt(np.diagonal(H))
        _, x, failed = dposv(H * np.outer(units, units), units * (weighted.T @ y))
        if failed:  # the weights are so large that covariates drown in rounding
            posed = self.posed(y[:, None], weight, 1.0)
            found = posed.problem.at(theta)
            return None if found is None else posed.fitted(found.A)[:, 0]
        return np.asarray(F @ (units * x.ravel()))


# --- two classes ----------------------------------------------------------------------


@dataclass(frozen=True)
class LaplaceProblem:
    """The evidence of labels, a function of the kernel weights.

    A label is 1 with probability ``expit(eta)``, where ``eta = Z b + sum_m f_m`` and
    ``f_m`` is a Gaussian process with the covariance ``theta_m K_m``. For given weights
    b and f are at their mode, the maximum of a penalised likelihood. Laplace's
    approximation there gives the log density of the labels, up to a constant, ::

        log p(y | eta) - ½ f'S^-1 f - ½ log |W V| - ½ log |Z'V^-1 Z|

    with ``S = sum_m theta_m K_m``, ``W`` the variances of the labels at the mode and
    ``V = S + W^-1``. If W were held fixed in the derivative with respect to the
    weights, this would be that of the restricted likelihood of the working values
    (penalised quasi-likelihood of Breslow and Clayton 1993). Here the dependence of W
    on the weights is included: ::

        ½ a'K_m a - ½ tr P K_m - ½ t'P K_m a,   a = y - expit(eta),
        t_i = (1 - 2 expit(eta_i)) times the variance of eta_i

    so that this is the gradient of an objective, and steps towards its maximum
    converge.

    Parameters
    ----------
    space : Space
    y : array of shape (n,)
        Zeros and ones.
    linear : array of shape (n,)
        ``Z b`` without kernels, where the search for modes starts.
    """

    space: Space
    y: FloatArray
    linear: FloatArray
    _near: dict[str, FloatArray] = field(default_factory=dict, repr=False)

    kind: ClassVar[Kind] = "evidence"

    @cached_property
    def _nothing(self) -> Labels:
        # does not depend on earlier points, so that runs are reproducible
        found = self._around(np.zeros(self.size), self.linear)
        if found is None:
            raise ValueError(
                "Covariates alone have no mode; this is a bug; please report it."
            )
        return found

    @cached_property
    def size(self) -> int:
        """Number of kernels."""
        first = self.space.posed(self.linear[:, None], _variance(self.linear), 1.0)
        return first.problem.bank.shape[2]

    @property
    def weight(self) -> FloatArray:
        """Precisions of working values, in the coordinates of :meth:`variances`."""
        return self._nothing.posed.problem.weight

    def variances(self) -> FloatArray:
        """Return the variance of the samples in feature space, for each kernel."""
        return self._nothing.posed.problem.variances()

    def first(self) -> Iterate:
        """Return zero weights: only covariates."""
        return Iterate(np.zeros(self.size), self._nothing.A)

    def nothing(self) -> float:
        """Return the evidence of zero weights."""
        return self._nothing.value

    def judge(self, point: Iterate) -> Judgement:
        """Return minus the evidence; no lower bound is known."""
        found = point.about if point.about is not None else self.at(point.theta)
        if found is None:
            return Judgement(np.inf, -np.inf, np.zeros(1))
        return Judgement(-found.value, -np.inf, found.evidence.effects)

    def dual(self, A: FloatArray) -> float:
        """Return minus infinity: the evidence is not concave."""
        return -np.inf

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the evidence, recomputed from the weights alone."""
        found = self._around(point.theta, self.linear)
        if found is None:
            raise ValueError(
                "These weights have no mode; this is a bug in the solver; please "
                "report it."
            )
        about = Likelihood(found.value, self.nothing(), np.ones(1), point.slack)
        claim = about.message.rstrip(".")
        return Certificate(
            upper=-found.value,
            lower=-np.inf,
            bias=found.evidence.effects,
            theta=point.theta,
            A=found.A,
            dual=found.A,
            weight_bounds=np.full(len(point.theta), np.inf),
            about=about,
            claim=claim,
            doubt=claim,
        )

    def at(self, theta: FloatArray) -> Labels | None:
        """Return the evidence of weights; None if there is no mode.

        Parameters
        ----------
        theta : array of shape (M,)
            Nonnegative.
        """
        found = self._around(theta, self._near.get("eta", self.linear))
        if found is not None:
            self._near["eta"] = found.eta
        return found

    def _around(self, theta: FloatArray, eta: FloatArray) -> Labels | None:
        """Return the evidence of weights; the search for the mode starts at ``eta``."""
        A, value = None, -np.inf
        for _ in range(_NEWTON):
            work, w = self._work(eta)
            new = self.space.fit(theta, work, w)
            if new is None or not np.isfinite(new).all():
                return None
            new_A = w * (work - new)
            still = np.abs(new - eta).max() <= _STILL * max(1.0, np.abs(new).max())
            if A is None:  # the starting eta belongs to other weights
                A, eta, value = new_A, new, self._penalised(new_A, new)
            else:
                part = 1.0
                while True:
                    there = A + part * (new_A - A), eta + part * (new - eta)
                    now = self._penalised(*there)
                    if now >= value - 1e-12 * (1.0 + abs(value)) or part < 1e-6:
                        break
                    part /= 2.0
                (A, eta), value = there, now
            if still:
                return self._labels(theta, eta, A)
        return None

    def _work(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return working values at a linear predictor, and their precisions."""
        w = _variance(eta)
        return eta + (self.y - expit(eta)) / w, w

    def _penalised(self, A: FloatArray, eta: FloatArray) -> float:
        """Return the penalised log likelihood, with ``½ f'S^-1 f = ½ A'eta``."""
        return float(self.y @ eta - np.logaddexp(0.0, eta).sum() - 0.5 * A @ eta)

    def _labels(
        self, theta: FloatArray, eta: FloatArray, A: FloatArray
    ) -> Labels | None:
        work, w = self._work(eta)
        posed = self.space.posed(work[:, None], w, 1.0)
        problem = posed.problem
        found = problem.at(theta)
        if found is None:
            return None
        quads = float(np.sum(posed.Y * posed.left(found.A)))
        # the terms of the restricted likelihood without values: log |WV| and so on
        volume = -2.0 * found.value - problem.freedom * np.log(2.0 * np.pi) - quads
        F = problem.design
        volume += np.linalg.slogdet(F.T @ (problem.weight[:, None] * F))[1]
        value = self._penalised(A, eta) - 0.5 * float(volume)
        return Labels(theta, value, A[:, None], eta, posed, found)


@dataclass(frozen=True)
class Labels:
    """The evidence of labels at some weights.

    Attributes
    ----------
    theta : array of shape (M,)
    value : float
        The log density, up to a constant.
    A : array of shape (n, 1)
        Labels minus their probabilities.
    eta : array of shape (n,)
        The linear predictor at the mode.
    posed : Posed
        The restricted likelihood of the working values at the mode.
    evidence : Evidence
        The evidence of that likelihood at these weights.
    """

    theta: FloatArray
    value: float
    A: FloatArray = field(repr=False)
    eta: FloatArray = field(repr=False)
    posed: Posed = field(repr=False)
    evidence: Evidence = field(repr=False)

    def model(self) -> tuple[FloatArray, FloatArray]:
        """Return gradient and curvature of minus the value, shapes (M,) and (M, M)."""
        slopes, curvature = self.evidence.model()
        P = self.evidence.spread().P
        t = (1.0 - 2.0 * expit(self.eta)) * self.posed.variances(P)
        products: Any = self.posed.problem.bank.multiply(self.evidence.A)
        across = (P @ self.posed.seen(t)) @ products[:, 0]
        return slopes + 0.5 * across, curvature


def _variance(eta: FloatArray) -> FloatArray:
    mean = expit(eta)
    return np.maximum(mean * (1.0 - mean), _FLAT)
