"""Evidence of a Gaussian process: the likelihood of values given kernel weights."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymm

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.factors import cholesky, inverse, solve_triangle
from mklearn.problems.base import Certificate, Iterate, Judgement, Kind, shares

FloatArray = NDArray[np.float64]

_COLUMNS = 128  # columns per block
_BLIND = 1e-8  # scaled eigenvalues of the information below this count as zero


@dataclass(frozen=True)
class EvidenceProblem:
    """The restricted likelihood of values, a function of the kernel weights.

    Values are ``b + sum_m f_m(x) + noise``, where ``f_m`` is a Gaussian process with
    the covariance ``s theta_m K_m`` and the noise of a sample of weight w has the
    variance ``s / w``. The contrasts of the values that do not depend on the constant b
    have, in units of the noise, the log density ::

        -½ (n - 1) (log(2 pi s) + 1) - ½ log |W G| - ½ log(1'G^-1 1 / 1'W 1)

    with ``G = sum_m theta_m K_m + W^-1`` and the best ``s = y'Py / (n - 1)``, where ``P
    = G^-1 - G^-1 1 1'G^-1 / 1'G^-1 1`` (Patterson and Thompson 1971). Several outputs
    share the weights, but each has its own noise variance; their log densities are
    added. With covariates, the matrix F of full rank q replaces 1: n - q degrees of
    freedom, ``|F'G^-1 F| / |F'WF|``, and ``P = G^-1 - G^-1 F (F'G^-1 F)^-1 F'G^-1``.

    Parameters
    ----------
    bank : KernelBank
        Square.
    Y : array of shape (n, T)
        A constant column carries no information about the kernels.
    weight : array of shape (n,)
        Positive precisions of the values. If all are multiplied by a factor, s and one
        over theta are multiplied by it, and predictions do not change.
    fixed : array of shape (n, q), optional
        Unpenalised columns: ones first, then covariates; only ones by default.
    noise : float, optional
        The variance s, if it is known; its maximum-likelihood value by default.
    rest : array of shape (T,), optional
        Sums of squares of ``n_rest`` further values, in coordinates orthogonal to
        kernels and covariates, which depend only on the noise.
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
        """Unpenalised columns, shape (n, q)."""
        return np.ones((len(self.Y), 1)) if self.fixed is None else self.fixed

    @property
    def freedom(self) -> float:
        """``n - q``."""
        count = len(self.Y) + self.n_rest - self.design.shape[1]
        return max(float(count), 1e-12)

    @property
    def varied(self) -> NDArray[np.bool_]:
        """Which outputs are not constant."""
        varied = np.asarray(np.ptp(self.Y, axis=0) > 0)
        return varied if self.rest is None else varied | (self.rest > 0)

    def variances(self) -> FloatArray:
        """Return the variance of the samples in feature space, for each kernel."""
        share = self.weight / self.weight.sum()
        _, mean = self.bank.totals(share)
        return np.asarray(share @ self.bank.diag() - mean)

    def first(self) -> Iterate:
        """Return zero weights: only noise and a constant."""
        return Iterate(np.zeros(self.bank.shape[2]), np.zeros_like(self.Y))

    def judge(self, point: Iterate) -> Judgement:
        """Return minus the evidence; no lower bound is known."""
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
        """Return the evidence, recomputed from the weights alone."""
        found = self.at(point.theta)
        if found is None:
            raise ValueError(
                "The matrix of these weights is not positive definite; this is a bug "
                "in the solver; please report it."
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
        """Return standard errors of the unpenalised coefficients, shape (q, T).

        Parameters
        ----------
        found : Evidence
            Evidence of this problem.
        units : array of shape (q, q), optional
            If given, the standard errors are those of ``units @ effects``.
        """
        return found.effects_std(units)

    def nothing(self) -> float:
        """Return the evidence of zero weights: only noise and a constant."""
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
        """Return minus twice the part of the log density that depends on the values."""
        s = self.noises(quads)
        return np.asarray(self.freedom * np.log(2.0 * np.pi * s) + quads / s)

    def at(self, theta: FloatArray) -> Evidence | None:
        """Return the evidence of weights; None if G is not positive definite.

        Parameters
        ----------
        theta : array of shape (M,)
            Nonnegative.
        """
        n, w = len(self.Y), self.weight
        G = self.bank.combine(theta)
        G[np.diag_indices(n)] += 1.0 / w
        # the transpose is in the memory order of LAPACK
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
            return None  # the residuals vanish, up to rounding
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
    """The evidence of the weights that were found.

    Attributes
    ----------
    evidence : float
        Log density of the values, summed over outputs.
    nothing : float
        The same for zero weights: only noise, a constant and covariates.
    noise : array of shape (T,)
        Variances of the noise.
    promise : float or None
        Increase of the evidence that the quadratic model at these weights predicts,
        maximised over all nonnegative weights. Zero at a local maximum.
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
            promise = (
                "; small changes of the weights could increase it by about "
                f"{self.promise:.2g}"
            )
        return (
            f"The log evidence is {self.evidence:.6g}, "
            f"{self.evidence - self.nothing:.3g} above that of a model without kernels"
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
        ``P Y``: the best prediction is ``sum_i A_i k_theta(x_i, x)`` plus the effects.
    effects : array of shape (q, T)
        Unpenalised coefficients: the constant first, then the covariates.
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
        """The constant of each output, shape (T,); with covariates, all effects."""
        if self.problem.fixed is None:
            return np.asarray(self.effects[0])
        return self.effects

    def effects_std(self, units: FloatArray | None = None) -> FloatArray:
        """Return standard errors of the unpenalised coefficients, shape (q, T).

        Parameters
        ----------
        units : array of shape (q, q), optional
            If given, the standard errors are those of ``units @ effects``.
        """
        back = np.linalg.inv(self._triangle)
        if units is not None:
            back = units @ back
        return np.sqrt(np.outer(np.sum(back**2, axis=1), self.noise))

    def explained(self, k: FloatArray) -> float:
        """Return ``k'G^-1 k`` of a vector of shape (n,)."""
        return float(np.sum(solve_triangle(self._factor, k[:, None]) ** 2))

    def model(self) -> tuple[FloatArray, FloatArray]:
        """Return gradient and curvature of minus the value, shapes (M,) and (M, M).

        The gradient is exact. In the curvature, ``tr P K_a P K_b`` is replaced by ``y'P
        K_a P K_b P y / s``, of which it is the expectation if the weights are the true
        ones. This needs only matrix-vector products, and the result is positive
        semidefinite (the average information of Gilmour, Thompson and Cullis 1995).
        """
        bank, P = self.problem.bank, self._projector()
        varied = np.flatnonzero(self.problem.varied)
        # the rows of the transpose are contiguous in memory
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
            # the difference may vanish: keep it from becoming negative by rounding
            bend[np.diag_indices(len(bend))] *= 1.0 + 1e-10
            if self.problem.noise is None:  # s depends on the weights
                bend -= np.outer(along, along) / (free * s)
            curvature += 0.5 / s * bend
        return slopes, curvature

    def _model_of_many(
        self, P: FloatArray, varied: NDArray[np.intp], traces: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the model for more outputs than samples.

        The sum over outputs of ``U'PU / s`` depends on A only through
        ``A diag(1 / s) A'``, so n columns with the same product can replace A.
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
        """Return standard errors of the weights and of the shares of variance.

        They follow from the average information; for shares, by the delta method. A
        weight of zero lies on the boundary of the feasible set: it is treated as known
        for the errors of the positive weights, and its own error is computed jointly
        with them.
        """
        theta, curvature = self.theta, self.model()[1]
        # in units of the noise of a typical sample
        variances = self.problem.variances() * np.mean(self.problem.weight)
        active, M = np.flatnonzero(theta > 0), len(theta)
        total = 1.0 + float(variances @ theta)
        shares = variances * theta / total
        # row m is the gradient of share m; the last row is that of their sum
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
        """Return the quantities from which prediction variances are computed."""
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
    """Standard errors of weights, and shares of variance with their standard errors.

    If targets have separate weights, all of these have a first axis for targets.

    Attributes
    ----------
    weights : array of shape (M,)
        Standard errors of the weights; infinite for redundant kernels, whose individual
        weights are not identifiable.
    shares : array of shape (M,)
        The share of the variance of a value at a typical sample, apart from covariates,
        that each kernel explains: ``theta_m v_m / (1 + sum_k theta_k v_k)``, where
        ``v_m`` is the variance of the samples in the feature space of the kernel.
    shares_std : array of shape (M,)
        Their standard errors.
    explained, explained_std : float
        The sum of the shares, and its standard error.
    """

    weights: FloatArray
    shares: FloatArray
    shares_std: FloatArray
    explained: Any
    explained_std: Any

    def of_targets(self, targets: NDArray[np.intp]) -> WeightErrors:
        """Return the errors of some targets with separate weights.

        Parameters
        ----------
        targets : array of int
            Their indices.
        """
        each = {one.name: getattr(self, one.name)[targets] for one in fields(self)}
        return WeightErrors(**each)


@dataclass(frozen=True)
class _Inverse:
    """The inverse of an information matrix for some weights, on its range."""

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

        Infinite for functions that are not identifiable.
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

    A given value of a weight, or of a share of the variance, is such a restriction.

    Parameters
    ----------
    problem : EvidenceProblem
    offset : array of shape (M,)
    basis : array of shape (M, k)
        Nonnegative.
    """

    problem: EvidenceProblem
    offset: FloatArray
    basis: FloatArray

    kind: ClassVar[Kind] = "evidence"

    @property
    def weight(self) -> FloatArray:
        """Precisions of the values, shape (n,)."""
        return self.problem.weight

    def variances(self) -> FloatArray:
        """Return the variance of the samples for a unit of each phi, shape (k,)."""
        return np.asarray(self.basis.T @ self.problem.variances())

    def first(self) -> Iterate:
        """Return the point ``phi = 0``, only the offset."""
        return Iterate(np.zeros(self.basis.shape[1]), np.zeros_like(self.problem.Y))

    def nothing(self) -> float:
        """Return the evidence of the offset."""
        found = self.problem.at(self.offset)
        return -np.inf if found is None else found.value

    def at(self, phi: FloatArray) -> Restricted | None:
        """Return the evidence at phi; None if there is no density."""
        found = self.problem.at(self.offset + self.basis @ phi)
        if found is None:
            return None
        return Restricted(phi, found.A, found, self.basis)

    def judge(self, point: Iterate) -> Judgement:
        """Return minus the evidence; no lower bound is known."""
        found = point.about if point.about is not None else self.at(point.theta)
        if found is None:
            return Judgement(np.inf, -np.inf, np.zeros(self.problem.Y.shape[1]))
        return Judgement(-found.value, -np.inf, found.evidence.bias)

    def dual(self, A: FloatArray) -> float:
        """Return minus infinity: the evidence is not concave."""
        return -np.inf

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the evidence, recomputed from phi alone."""
        full = self.offset + self.basis @ point.theta
        found = self.problem.certify(Iterate(full, point.A, slack=point.slack), dual)
        return replace(
            found, theta=point.theta, weight_bounds=np.full(len(point.theta), np.inf)
        )


@dataclass(frozen=True)
class Restricted:
    """The evidence at some phi, in the form that solvers use."""

    theta: FloatArray
    A: FloatArray = field(repr=False)
    evidence: Evidence = field(repr=False)
    basis: FloatArray = field(repr=False)

    @property
    def value(self) -> float:
        """The log density."""
        return self.evidence.value

    def model(self) -> tuple[FloatArray, FloatArray]:
        """Return gradient and curvature of minus the value with respect to phi."""
        slopes, curvature = self.evidence.model()
        B = self.basis
        return B.T @ slopes, B.T @ curvature @ B


@dataclass(frozen=True)
class Spread:
    """Quantities from which prediction variances are computed.

    Attributes
    ----------
    P : array of shape (n, n)
    constant : array of shape (n,), or (n, q) with covariates
        ``G^-1 1 / 1'G^-1 1``, the coefficients of the values in the constant b. With
        covariates, ``G^-1 F (F'G^-1 F)^-1``.
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
            ``sum_m theta_m K_m`` between new and training samples.
        diag : array of shape (n_new,)
            The same for each new sample and itself.
        design : array of shape (n_new, q), optional
            Ones and covariates of the new samples, if the fit had covariates.
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
