"""How likely values are, given kernel weights: the evidence of a Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.factors import cholesky, inverse, solve_triangle
from mklearn.problems.base import Certificate, Iterate, Judgement, Kind, shares

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class EvidenceProblem:
    """The restricted likelihood of values, a function of the kernel weights.

    Values are ``b + sum_m f_m(x) + noise``, where ``f_m`` is a Gaussian process with
    the covariance ``s theta_m K_m`` and the noise of a sample of weight w has the
    variance ``s / w``. What is left of the values once the constant b is taken out has,
    in units of the noise, the log density ::

        -½ (n - 1) (log(2 pi s) + 1) - ½ log |W G| - ½ log(1'G^-1 1 / 1'W 1)

    with ``G = sum_m theta_m K_m + W^-1`` and the best ``s = y'Py / (n - 1)``, where ``P
    = G^-1 - G^-1 1 1'G^-1 / 1'G^-1 1`` (Patterson and Thompson 1971). Several outputs
    share the weights and have a noise of their own each; their log densities are added.

    Parameters
    ----------
    bank : KernelBank
        Square.
    Y : array of shape (n, T)
        A column of one value only says nothing about kernels.
    weight : array of shape (n,)
        Positive: how exact the values are. With a factor for all of them, s and one
        over theta have it, too, and predictions stay.
    """

    bank: KernelBank
    Y: FloatArray
    weight: FloatArray

    kind: ClassVar[Kind] = "evidence"

    @property
    def freedom(self) -> float:
        """``n - 1``."""
        return max(len(self.Y) - 1.0, 1e-12)

    @property
    def varied(self) -> NDArray[np.bool_]:
        """Which outputs have different values."""
        return np.asarray(np.ptp(self.Y, axis=0) > 0)

    def variances(self) -> FloatArray:
        """Return the variance of the samples in feature space, for each kernel."""
        share = self.weight / self.weight.sum()
        _, mean = self.bank.totals(share)
        return np.asarray(share @ self.bank.diag() - mean)

    def first(self) -> Iterate:
        """Return noise and a constant alone."""
        return Iterate(np.zeros(self.bank.shape[2]), np.zeros_like(self.Y))

    def judge(self, point: Iterate) -> Judgement:
        """Return minus the evidence, which nothing bounds from below."""
        found = point.about
        if found is None:
            found = self.at(point.theta)
        if found is None:
            return Judgement(np.inf, -np.inf, np.zeros(self.Y.shape[1]))
        return Judgement(-found.value, -np.inf, found.bias)

    def dual(self, A: FloatArray) -> float:
        """Return minus infinity: the evidence is not concave."""
        return -np.inf

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the evidence of the weights alone, and what follows from it."""
        found = self.at(point.theta)
        if found is None:
            raise ValueError(
                "These weights make no positive definite matrix; a solver is at fault."
            )
        about = Likelihood(found.value, self.nothing(), found.noise, point.slack)
        return Certificate(
            upper=-found.value,
            lower=-np.inf,
            bias=found.bias,
            theta=point.theta,
            A=found.A,
            dual=found.A,
            weight_bounds=np.full(len(point.theta), np.inf),
            about=about,
            claim=about.message.rstrip("."),
            doubt=about.message.rstrip("."),
        )

    def contributions(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (M,)."""
        return shares(theta * self.bank.quad(A))

    def nothing(self) -> float:
        """Return the evidence of weights of zero: noise and a constant alone."""
        w, Y = self.weight, self.Y[:, self.varied]
        free, mean = self.freedom, w @ Y / w.sum()
        quads = w @ (Y - mean) ** 2
        return float(-0.5 * np.sum(free * (np.log(2.0 * np.pi * quads / free) + 1.0)))

    def at(self, theta: FloatArray) -> Evidence | None:
        """Return the evidence of weights; None if G is not positive definite.

        Parameters
        ----------
        theta : array of shape (M,)
            Not negative.
        """
        n, w = len(self.Y), self.weight
        G = self.bank.combine(theta)
        G[np.diag_indices(n)] += 1.0 / w
        # of the transpose, which is in the order of LAPACK
        L, found = cholesky(G.T)
        if not found:
            return None
        ahead = np.column_stack([self.Y, np.ones(n)])
        ahead = solve_triangle(L, ahead)
        one = ahead[:, -1]
        size = float(one @ one)
        left = ahead[:, :-1] - np.outer(one, one @ ahead[:, :-1]) / size
        quads, varied = np.sum(left**2, axis=0), self.varied
        if not (quads[varied] > 0).all():
            return None  # nothing is left of the values: rounding
        back = np.column_stack([left, one])
        back = solve_triangle(L, back, trans=True)
        volume = 2.0 * np.log(np.diagonal(L)).sum() + np.log(w).sum()
        volume += np.log(size / w.sum())
        free = self.freedom
        fit = free * (np.log(2.0 * np.pi * quads[varied] / free) + 1.0)
        return Evidence(
            problem=self,
            theta=theta,
            value=float(-0.5 * (fit.sum() + len(fit) * volume)),
            A=back[:, :-1],
            bias=np.asarray(one @ ahead[:, :-1] / size),
            noise=quads / free,
            _factor=L,
            _one=back[:, -1] / np.sqrt(size),
            _size=size,
        )


@dataclass(frozen=True)
class Likelihood:
    """What is known about the weights that were found.

    Attributes
    ----------
    evidence : float
        Log density of the values, summed over outputs.
    nothing : float
        The same for weights of zero: noise and a constant alone.
    noise : array of shape (T,)
        Variances.
    promise : float or None
        How much more evidence the quadratic model at these weights sees, over all
        weights that are not negative. Zero at weights that no small change improves.
    """

    evidence: float
    nothing: float
    noise: FloatArray
    promise: float | None = None

    @property
    def message(self) -> str:
        """What was found, in words."""
        promise = ""
        if self.promise is not None:
            promise = f"; small changes of the weights promise {self.promise:.2g} more"
        return (
            f"The log evidence is {self.evidence:.6g}, "
            f"{self.evidence - self.nothing:.3g} above that of no kernel at all"
            f"{promise}. Whether weights far from these are better nothing tells."
        )


@dataclass(frozen=True)
class Evidence:
    """The evidence at some weights.

    Attributes
    ----------
    problem : EvidenceProblem
    theta : array of shape (M,)
    value : float
        The log density, summed over outputs.
    A : array of shape (n, T)
        ``P Y``: the best prediction is ``f(x) = sum_i A_i k_theta(x_i, x) + bias``.
    bias : array of shape (T,)
    noise : array of shape (T,)
        The variance s of each output.
    """

    problem: EvidenceProblem = field(repr=False)
    theta: FloatArray
    value: float
    A: FloatArray = field(repr=False)
    bias: FloatArray
    noise: FloatArray
    _factor: FloatArray = field(repr=False)
    _one: FloatArray = field(repr=False)  # G^-1 1 / sqrt(1'G^-1 1)
    _size: float = field(repr=False)  # 1'G^-1 1

    def model(self) -> tuple[FloatArray, FloatArray]:
        """Return slopes and curvature of minus the value, shapes (M,) and (M, M).

        The slopes are exact. In the curvature, ``tr P K_a P K_b`` is replaced by ``y'P
        K_a P K_b P y / s``, whose mean it is if the weights are the true ones: that
        needs products of matrices and vectors only, and what remains is positive
        semidefinite (the average information of Gilmour, Thompson and Cullis 1995).
        """
        bank, P = self.problem.bank, self._projector()
        varied = np.flatnonzero(self.problem.varied)
        slopes = 0.5 * len(varied) * bank.inner(P)
        curvature = np.zeros((bank.shape[2], bank.shape[2]))
        free, products = self.problem.freedom, bank.multiply(self.A)
        for t in varied:
            U, s = products[:, t], self.noise[t]
            along = U.T @ self.A[:, t]
            slopes -= 0.5 * along / s
            bend = U.T @ (P @ U)
            # what is subtracted may be all there is: what rounding leaves stays small
            bend[np.diag_indices(len(bend))] *= 1.0 + 1e-10
            curvature += 0.5 / s * (bend - np.outer(along, along) / (free * s))
        return slopes, curvature

    def spread(self) -> Spread:
        """Return what the uncertainty of predictions needs."""
        return Spread(
            self._projector(), self._one / self._size**0.5, 1.0 / self._size, self.noise
        )

    def _projector(self) -> FloatArray:
        """Return P."""
        P = inverse(self._factor)
        P += np.tril(P, -1).T
        P -= np.outer(self._one, self._one)
        return np.asarray(P)


@dataclass(frozen=True)
class Spread:
    """How far values at new samples may lie from their predictions.

    Attributes
    ----------
    P : array of shape (n, n)
    constant : array of shape (n,)
        ``G^-1 1 / 1'G^-1 1``: what the samples add to the constant b.
    floor : float
        Variance of the constant, in units of the noise.
    noise : array of shape (T,)
    """

    P: FloatArray
    constant: FloatArray
    floor: float
    noise: FloatArray

    def deviations(self, K: FloatArray, diag: FloatArray) -> FloatArray:
        """Return standard deviations of new values of weight one, shape (n_new, T).

        Parameters
        ----------
        K : array of shape (n_new, n)
            ``sum_m theta_m K_m`` between new samples and those of the fit.
        diag : array of shape (n_new,)
            The same between the new samples and themselves.
        """
        known = np.einsum("ij,ij->i", K @ self.P, K) + 2.0 * K @ self.constant
        variance = np.maximum(diag - known + self.floor, 0.0) + 1.0
        return np.sqrt(np.outer(variance, self.noise))
