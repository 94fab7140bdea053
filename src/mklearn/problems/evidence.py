"""How likely values are, given kernel weights: the evidence of a Gaussian process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymm

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.factors import cholesky, inverse, solve_triangle
from mklearn.problems.base import Certificate, Iterate, Judgement, Kind, shares

FloatArray = NDArray[np.float64]

_COLUMNS = 128  # that are worked on at a time
_BLIND = 1e-8  # information, in units of that about a single weight, that is rounding


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
    With covariates their matrix F, of full rank q, takes the place of 1: n - q degrees
    of freedom, ``|F'G^-1 F| / |F'WF|``, and ``P = G^-1 - G^-1 F (F'G^-1 F)^-1 F'G^-1``.

    Parameters
    ----------
    bank : KernelBank
        Square.
    Y : array of shape (n, T)
        A column of one value only says nothing about kernels.
    weight : array of shape (n,)
        Positive: how exact the values are. With a factor for all of them, s and one
        over theta have it, too, and predictions stay.
    fixed : array of shape (n, q), optional
        What enters without a penalty: ones first, then covariates; ones by default.
    noise : float, optional
        The s, if it is known; the best one by default.
    rest : array of shape (T,), optional
        Sums of squares of ``n_rest`` more values, in coordinates that neither kernels
        nor covariates reach, so that they tell about the noise only.
    n_rest : int
    """

    bank: KernelBank
    Y: FloatArray
    weight: FloatArray
    fixed: FloatArray | None = None
    noise: float | None = None
    rest: FloatArray | None = None
    n_rest: int = 0

    kind: ClassVar[Kind] = "evidence"

    @property
    def design(self) -> FloatArray:
        """What enters without a penalty, shape (n, q)."""
        return np.ones((len(self.Y), 1)) if self.fixed is None else self.fixed

    @property
    def freedom(self) -> float:
        """``n - q``."""
        count = len(self.Y) + self.n_rest - self.design.shape[1]
        return max(float(count), 1e-12)

    @property
    def varied(self) -> NDArray[np.bool_]:
        """Which outputs have different values."""
        varied = np.asarray(np.ptp(self.Y, axis=0) > 0)
        return varied if self.rest is None else varied | (self.rest > 0)

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

    def effects_std(
        self, found: Evidence, units: FloatArray | None = None
    ) -> FloatArray:
        """Return standard errors of what enters without a penalty, shape (q, T).

        Parameters
        ----------
        found : Evidence
            Of this problem.
        units : array of shape (q, q), optional
            Those of ``units @ effects``.
        """
        return found.effects_std(units)

    def nothing(self) -> float:
        """Return the evidence of weights of zero: noise and a constant alone."""
        root = np.sqrt(self.weight)[:, None]
        Q, left = np.linalg.qr(root * self.design)[0], root * self.Y[:, self.varied]
        quads = np.sum((left - Q @ (Q.T @ left)) ** 2, axis=0)
        if self.rest is not None:
            quads = quads + self.rest[self.varied]
        return float(-0.5 * np.sum(self.misfit(quads)))

    def noises(self, quads: FloatArray) -> FloatArray:
        """Return the s of each output, from its ``y'Py``."""
        if self.noise is None:
            return quads / self.freedom
        return np.full(len(quads), self.noise)

    def misfit(self, quads: FloatArray) -> FloatArray:
        """Return minus twice the part of the log density that is about the values."""
        s = self.noises(quads)
        return np.asarray(self.freedom * np.log(2.0 * np.pi * s) + quads / s)

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
        F, T = self.design, self.Y.shape[1]
        ahead = solve_triangle(L, np.column_stack([self.Y, F]))
        Q, R = np.linalg.qr(ahead[:, T:])
        along = Q.T @ ahead[:, :T]
        left = ahead[:, :T] - Q @ along
        quads, varied = np.sum(left**2, axis=0), self.varied
        if self.rest is not None:
            quads = quads + self.rest
        if not (quads[varied] > 0).all():
            return None  # nothing is left of the values: rounding
        back = solve_triangle(L, np.column_stack([left, Q]), trans=True)
        volume = 2.0 * np.log(np.diagonal(L)).sum() + np.log(w).sum()
        volume += 2.0 * np.log(np.abs(np.diagonal(R))).sum()
        volume -= np.linalg.slogdet(F.T @ (w[:, None] * F))[1]
        fit = self.misfit(quads[varied])
        return Evidence(
            problem=self,
            theta=theta,
            value=float(-0.5 * (fit.sum() + len(fit) * volume)),
            A=back[:, :T],
            effects=np.linalg.solve(R, along),
            noise=self.noises(quads),
            _factor=L,
            _known=back[:, T:],
            _triangle=R,
        )


@dataclass(frozen=True)
class Likelihood:
    """What is known about the weights that were found.

    Attributes
    ----------
    evidence : float
        Log density of the values, summed over outputs.
    nothing : float
        The same for weights of zero: noise, a constant and covariates alone.
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
            f"{promise}. This is a local optimum: distant weights may be better."
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
        ``P Y``: the best prediction is ``sum_i A_i k_theta(x_i, x)`` and the effects.
    effects : array of shape (q, T)
        Coefficients of what enters without a penalty: the constant first, then the
        covariates.
    noise : array of shape (T,)
        The variance s of each output.
    """

    problem: EvidenceProblem = field(repr=False)
    theta: FloatArray
    value: float
    A: FloatArray = field(repr=False)
    effects: FloatArray
    noise: FloatArray
    _factor: FloatArray = field(repr=False)
    _known: FloatArray = field(repr=False)  # G^-1 F R^-1
    _triangle: FloatArray = field(repr=False)  # R with R'R = F'G^-1 F

    @property
    def bias(self) -> FloatArray:
        """The constant of each output, shape (T,); with covariates all effects."""
        if self.problem.fixed is None:
            return np.asarray(self.effects[0])
        return self.effects

    def effects_std(self, units: FloatArray | None = None) -> FloatArray:
        """Return standard errors of the coefficients without a penalty, (q, T).

        Parameters
        ----------
        units : array of shape (q, q), optional
            Those of ``units @ effects``.
        """
        back = np.linalg.inv(self._triangle)
        if units is not None:
            back = units @ back
        return np.sqrt(np.outer(np.sum(back**2, axis=1), self.noise))

    def explained(self, k: FloatArray) -> float:
        """Return ``k'G^-1 k`` of a vector of shape (n,)."""
        return float(np.sum(solve_triangle(self._factor, k[:, None]) ** 2))

    def model(self) -> tuple[FloatArray, FloatArray]:
        """Return slopes and curvature of minus the value, shapes (M,) and (M, M).

        The slopes are exact. In the curvature, ``tr P K_a P K_b`` is replaced by ``y'P
        K_a P K_b P y / s``, whose mean it is if the weights are the true ones: that
        needs products of matrices and vectors only, and what remains is positive
        semidefinite (the average information of Gilmour, Thompson and Cullis 1995).
        """
        bank, P = self.problem.bank, self._projector()
        varied = np.flatnonzero(self.problem.varied)
        # of the transpose, whose rows lie in memory one after the other
        slopes = 0.5 * len(varied) * bank.inner(P.T, upper=True)
        curvature = np.zeros((bank.shape[2], bank.shape[2]))
        if len(varied) > len(P):
            return self._model_of_many(P, varied, slopes)
        free, products = self.problem.freedom, bank.multiply(self.A)
        for t in varied:
            U, s = products[:, t], self.noise[t]
            along = U.T @ self.A[:, t]
            slopes -= 0.5 * along / s
            bend = U.T @ dsymm(1.0, P, U, lower=1)
            # what is subtracted may be all there is: what rounding leaves stays small
            bend[np.diag_indices(len(bend))] *= 1.0 + 1e-10
            if self.problem.noise is None:  # which follows the weights
                bend -= np.outer(along, along) / (free * s)
            curvature += 0.5 / s * bend
        return slopes, curvature

    def _model_of_many(
        self, P: FloatArray, varied: NDArray[np.intp], traces: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the model of more outputs than samples.

        The sum over outputs of ``U'PU / s`` sees A through ``A diag(1 / s) A'`` only,
        for which n columns stand.
        """
        bank, n = self.problem.bank, len(P)
        A, s = self.A[:, varied], self.noise[varied]
        along = bank.quads(A) / s[:, None]
        few = np.asarray(np.linalg.qr((A / np.sqrt(s)).T, mode="r")).T
        whole = P + np.tril(P, -1).T
        bend = np.zeros((bank.shape[2], bank.shape[2]))
        for start in range(0, few.shape[1], _COLUMNS):
            U = bank.multiply(few[:, start : start + _COLUMNS])
            turned = (whole @ U.reshape(n, -1)).reshape(U.shape)
            bend += np.einsum("ijk,ijm->km", U, turned, optimize=True)
        bend[np.diag_indices(len(bend))] *= 1.0 + 1e-10
        if self.problem.noise is None:
            bend -= along.T @ along / self.problem.freedom
        return traces - 0.5 * along.sum(axis=0), 0.5 * bend

    def errors(self) -> WeightErrors:
        """Return how far weights and shares of variance may be from the true ones.

        Standard errors are those of the average information, for shares by the delta
        method. A weight of zero lies at the end of what is allowed: the positive
        weights take it for known, and its own error is what it would have beside them.
        """
        theta, curvature = self.theta, self.model()[1]
        # in units of the noise of a typical sample
        variances = self.problem.variances() * np.mean(self.problem.weight)
        active, M = np.flatnonzero(theta > 0), len(theta)
        total = 1.0 + float(variances @ theta)
        shares = variances * theta / total
        # row m is how share m changes with the weights; the last row is of their sum
        slopes = np.diag(variances) / total - np.outer(shares, variances) / total
        slopes = np.vstack([slopes, variances / total**2])
        known = _Inverse.of(curvature, active)
        spread = known.deviations(np.vstack([np.eye(M), slopes]))
        for m in np.flatnonzero(theta <= 0):
            beside = _Inverse.of(curvature, np.append(active, m))
            row = [m, M + m]
            spread[row] = beside.deviations(np.vstack([np.eye(M)[m], slopes[m]]))
        return WeightErrors(
            weights=spread[:M],
            shares=shares,
            shares_std=spread[M:-1],
            explained=float(shares.sum()),
            explained_std=float(spread[-1]),
        )

    def spread(self) -> Spread:
        """Return what the uncertainty of predictions needs."""
        P = self._projector()
        P += np.tril(P, -1).T
        if self.problem.fixed is None:
            size = self._triangle[0, 0]
            return Spread(P, self._known[:, 0] / size, size**-2, self.noise)
        back = np.linalg.inv(self._triangle)
        return Spread(P, self._known @ back.T, back @ back.T, self.noise)

    def _projector(self) -> FloatArray:
        """Return the lower triangle of P, zeros above it."""
        P = inverse(self._factor)
        for start in range(0, len(P), _COLUMNS):
            here = slice(start, start + _COLUMNS)
            P[start:, here] -= np.tril(self._known[start:] @ self._known[here].T)
        return P


@dataclass(frozen=True)
class WeightErrors:
    """What is known of weights and shares of variance.

    Attributes
    ----------
    weights : array of shape (M,)
        Standard errors of the weights; infinite where kernels say the same, so that
        values do not determine any single one of their weights.
    shares : array of shape (M,)
        The part of the variance of a value at a typical sample, covariates apart, that
        each kernel explains: ``theta_m v_m / (1 + sum_k theta_k v_k)``, where ``v_m``
        is the variance of the samples in the feature space of the kernel.
    shares_std : array of shape (M,)
        Their standard errors.
    explained, explained_std : float
        The sum of the shares, and its standard error.
    """

    weights: FloatArray
    shares: FloatArray
    shares_std: FloatArray
    explained: float
    explained_std: float


@dataclass(frozen=True)
class _Inverse:
    """The inverse of an information matrix for some weights, where it has one."""

    which: NDArray[np.intp]
    units: FloatArray
    values: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, information: FloatArray, which: NDArray[np.intp]) -> _Inverse:
        part = information[np.ix_(which, which)]
        size = np.sqrt(np.maximum(np.diagonal(part), 0.0))
        units = np.divide(1.0, size, where=size > 0, out=np.zeros_like(size))
        values, vectors = np.linalg.eigh(part * np.outer(units, units))
        return cls(which, units, values, vectors)

    def deviations(self, slopes: FloatArray) -> FloatArray:
        """Return standard errors of linear functions of all weights, shape (k,).

        Infinite where the information says nothing about one.
        """
        along = slopes[:, self.which]
        scaled = (along * self.units) @ self.vectors
        blind = self.values <= _BLIND
        seen = np.where(blind, 1.0, self.values)
        found = np.sqrt(np.sum(np.where(blind, 0.0, scaled**2 / seen), axis=1))
        size = np.sum(scaled**2, axis=1)
        lost = np.sum(np.where(blind, scaled**2, 0.0), axis=1) > _BLIND * size
        lost |= np.any((self.units == 0) & (along != 0), axis=1)
        return np.where(lost, np.inf, found)


@dataclass(frozen=True)
class AffineEvidence:
    """The evidence of weights ``offset + basis phi``, a function of phi >= 0.

    That a weight, or a share of the variance, has a given value is such a restriction.

    Parameters
    ----------
    problem : EvidenceProblem
    offset : array of shape (M,)
    basis : array of shape (M, k)
        Not negative.
    """

    problem: EvidenceProblem
    offset: FloatArray
    basis: FloatArray

    kind: ClassVar[Kind] = "evidence"

    @property
    def weight(self) -> FloatArray:
        """How exact the values are, shape (n,)."""
        return self.problem.weight

    def variances(self) -> FloatArray:
        """Return the variance of the samples that comes with each phi, shape (k,)."""
        return np.asarray(self.basis.T @ self.problem.variances())

    def first(self) -> Iterate:
        """Return the offset alone."""
        return Iterate(np.zeros(self.basis.shape[1]), np.zeros_like(self.problem.Y))

    def nothing(self) -> float:
        """Return the evidence of the offset alone."""
        found = self.problem.at(self.offset)
        return -np.inf if found is None else found.value

    def at(self, phi: FloatArray) -> Restricted | None:
        """Return the evidence at phi; None if there is no density."""
        found = self.problem.at(self.offset + self.basis @ phi)
        if found is None:
            return None
        return Restricted(phi, found.A, found, self.basis)

    def judge(self, point: Iterate) -> Judgement:
        """Return minus the evidence, which nothing bounds from below."""
        found = point.about if point.about is not None else self.at(point.theta)
        if found is None:
            return Judgement(np.inf, -np.inf, np.zeros(self.problem.Y.shape[1]))
        return Judgement(-found.value, -np.inf, found.evidence.bias)

    def dual(self, A: FloatArray) -> float:
        """Return minus infinity: the evidence is not concave."""
        return -np.inf

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the evidence of phi alone."""
        full = self.offset + self.basis @ point.theta
        found = self.problem.certify(Iterate(full, point.A, slack=point.slack), dual)
        return replace(
            found, theta=point.theta, weight_bounds=np.full(len(point.theta), np.inf)
        )


@dataclass(frozen=True)
class Restricted:
    """The evidence at some phi, as a solver reads it."""

    theta: FloatArray
    A: FloatArray = field(repr=False)
    evidence: Evidence = field(repr=False)
    basis: FloatArray = field(repr=False)

    @property
    def value(self) -> float:
        """The log density."""
        return self.evidence.value

    def model(self) -> tuple[FloatArray, FloatArray]:
        """Return slopes and curvature of minus the value along phi."""
        slopes, curvature = self.evidence.model()
        B = self.basis
        return B.T @ slopes, B.T @ curvature @ B


@dataclass(frozen=True)
class Spread:
    """How far values at new samples may lie from their predictions.

    Attributes
    ----------
    P : array of shape (n, n)
    constant : array of shape (n,), or (n, q) with covariates
        ``G^-1 1 / 1'G^-1 1``: what the samples add to the constant b. With covariates
        ``G^-1 F (F'G^-1 F)^-1``.
    floor : float, or array of shape (q, q) with covariates
        Variance of the constant, in units of the noise: ``(F'G^-1 F)^-1``.
    noise : array of shape (T,)
    """

    P: FloatArray
    constant: FloatArray
    floor: Any
    noise: FloatArray

    def deviations(
        self, K: FloatArray, diag: FloatArray, design: FloatArray | None = None
    ) -> FloatArray:
        """Return standard deviations of new values of weight one, shape (n_new, T).

        Parameters
        ----------
        K : array of shape (n_new, n)
            ``sum_m theta_m K_m`` between new samples and those of the fit.
        diag : array of shape (n_new,)
            The same between the new samples and themselves.
        design : array of shape (n_new, q), optional
            Ones and covariates of the new samples, where the fit had covariates.
        """
        known = np.einsum("ij,ij->i", K @ self.P, K)
        if design is None:
            known += 2.0 * K @ self.constant
            unknown = self.floor
        else:
            known += 2.0 * np.einsum("ij,ij->i", K @ self.constant, design)
            unknown = np.einsum("ij,ij->i", design @ self.floor, design)
        variance = np.maximum(diag - known + unknown, 0.0) + 1.0
        return np.sqrt(np.outer(variance, self.noise))
