"""Reduction of a quadratic problem to as many pseudo-samples as there are features.

For quadratic losses, the scatter of features and targets is a sufficient statistic.
With the centred ``Z'Z = R'R``, R of shape (r, D), and ``T`` such that ``R'T = Z'H``,

    |H - Zw|^2 = |T - Rw|^2 + |H|^2 - |T|^2    for all w,

so the rows of R are *pseudo-samples*: their kernels are ``R_m R_m'`` and their targets
T. The remainder ``|H|^2 - |T|^2`` is assigned to further pseudo-samples, one for each
target, whose features are zero. The reduced problem has the same objective for every w,
hence the same solution, the same bounds and the same regularisation path, whatever the
number of samples was. A free bias corresponds to centring, and covariates are columns
that are regressed out of features and targets in the scatter in the same way.

The same holds for the evidence: on the pseudo-samples, the values without the constant
have the covariance ``R diag(theta) R' + 1``; in the orthogonal complement there is only
noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from mklearn.kernels.bank import KernelBank
from mklearn.kernels.normalise import Scaling
from mklearn.problems.base import Certificate, Iterate, Judgement, Kind, shares
from mklearn.problems.evidence import Evidence, EvidenceProblem
from mklearn.problems.losses import Squared
from mklearn.problems.mkl import MKLProblem
from mklearn.problems.scatter import Beside, Statistics
from mklearn.problems.weights import WeightSet

FloatArray = NDArray[np.float64]

_WIDE = 8  # features per kernel above which sums of Grams are faster than products


def factorised(S: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return R of shape (r, D) with ``R'R = S`` up to rounding, and its pivots.

    The pivoted Cholesky factorisation stops when the remaining diagonal consists of
    rounding errors, so r is the numerical rank. The columns of R at the first r pivots
    form a triangular matrix.
    """
    D = len(S)
    top = float(np.max(np.diagonal(S), initial=0.0))
    if top <= 0:
        return np.zeros((0, D)), np.zeros(0, dtype=np.intp)
    # scaled to a unit diagonal, so that kernels of small scale are not lost
    scale = np.sqrt(np.maximum(np.diagonal(S), 0.0))
    safe = np.where(scale > 0, scale, 1.0)
    C, pivots, rank, info = dpstrf(S / np.outer(safe, safe), tol=1e-14 * D, lower=0)
    if info < 0:
        raise ValueError(
            "The scatter matrix of the features has values that are not finite."
        )
    order = pivots.astype(np.intp) - 1
    R = np.zeros((rank, D))
    R[:, order] = np.triu(C[:rank]) * scale[order]
    return R, order[:rank]


@dataclass(frozen=True)
class Reduced:
    """Pseudo-samples that represent all samples.

    Attributes
    ----------
    bank : KernelBank
        Kernels of the r + T pseudo-samples.
    targets : array of shape (r + T, T)
    R : array of shape (r + T, d)
        Their normalised features, or the columns from which these are selected.
    slices : the columns of each kernel
    total : float
        Sum of the sample weights.
    n : int
        Number of samples with nonzero weight.
    middle : array of shape (D,)
        Mean of the normalised features.
    target : array of shape (T,)
        Mean of the targets.
    variances : array of shape (M,)
        Variance of the samples in the feature space of each kernel, for unit weights of
        the pseudo-samples. What covariates explain is part of it, though not of R.
    beside : Beside or None
        Covariates, which have been regressed out; None if there are none.
    spread : sparse array of shape (d, D) or None
        ``R @ spread`` are the features; None if they are R itself.
    """

    bank: KernelBank
    targets: FloatArray
    R: FloatArray
    slices: tuple[slice, ...]
    total: float
    n: int
    middle: FloatArray
    target: FloatArray
    variances: FloatArray
    beside: Beside | None = None
    spread: Any = None

    @classmethod
    def of(
        cls,
        statistics: Statistics,
        scaling: Scaling,
        slices: Sequence[slice],
        names: Sequence[str] | None = None,
        memory: int = 0,
        free: int = 0,
        places: NDArray[np.intp] | None = None,
    ) -> Reduced:
        """Return pseudo-samples from the statistics of raw features.

        The last ``free`` columns are covariates. With ``places`` (D,), the statistics
        are those of columns, and feature j is column ``places[j]``: the sizes of sums,
        factors and pseudo-samples depend on the number of columns, however many kernels
        share them. Gram matrices are stored if they take no more than ``memory`` bytes
        and their weighted sum is faster to compute than that of the features.
        """
        root, beside = scaling.root, None
        squares = np.diagonal(statistics.ZZ)[: len(statistics.mean) - free]
        if free:
            statistics, beside = statistics.apart(free)
        # each kernel normalises shared columns differently, so this is done later
        own = root if places is None else np.ones(len(statistics.mean))
        at = slice(None) if places is None else places
        begin = [s.start for s in slices]
        variances = np.add.reduceat(root**2 * squares[at], begin)
        variances = variances / max(statistics.n_weighted, 1)
        if beside is not None:  # from here on in units of normalised features
            beside = replace(beside, along=beside.along[:, at] * root)
        R, pivots = factorised(own[:, None] * statistics.ZZ * own)
        ZH = own[:, None] * statistics.ZH
        r, T = len(R), ZH.shape[1]
        known = np.zeros((0, T))
        if r:
            known = solve_triangular(R[:, pivots], ZH[pivots], trans=1)
        values, vectors = np.linalg.eigh(statistics.HH - known.T @ known)
        rest = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        rows = np.vstack([R, np.zeros((T, R.shape[1]))])
        spread = None
        if places is not None:
            D = len(places)
            entries = (root, (places, np.arange(D)))
            spread = sparse.csr_array(entries, shape=(rows.shape[1], D))
            scale = root[begin] ** 2  # one for each kernel
            groups = [places[s] for s in slices]
            bank = KernelBank.from_features(rows, groups, names, scale=scale)
        elif 8 * len(slices) * len(rows) ** 2 <= memory and len(root) >= _WIDE * len(
            slices
        ):
            parts = (rows[:, s] for s in slices)
            grams = [part @ part.T for part in parts]
            bank = KernelBank.from_grams(grams, names, finite=True)
        else:
            bank = KernelBank.from_features(rows, slices, names)
        return cls(
            bank,
            np.vstack([known, rest]),
            rows,
            tuple(slices),
            statistics.total,
            statistics.n_weighted,
            root * (statistics.mean[at] - scaling.shift),
            statistics.target,
            variances,
            beside,
            spread,
        )

    def squared(
        self,
        C: float,
        weights: WeightSet,
        tasks: slice | NDArray[np.intp] = slice(None),
    ) -> ReducedProblem:
        """Return the problem with the squared loss and costs ``C`` times the weights.

        Its value is that of the problem of all samples with a free bias.
        """
        Y = self.targets[:, tasks]
        loss = Squared(Y, np.full(Y.shape, C), False)
        return ReducedProblem(self.bank, loss, weights, self, tasks)

    def among(self, tasks: NDArray[np.intp]) -> Reduced:
        """Return the pseudo-samples of some targets, without those of the others."""
        r, k = len(self.R) - self.targets.shape[1], len(tasks)
        rows = np.arange(r + k)
        # only the inner products of the remainders matter
        rest = np.linalg.qr(self.targets[r:, tasks], mode="r")
        beside = self.beside
        if beside is not None:
            beside = replace(beside, effects=beside.effects[:, tasks])
        return replace(
            self,
            bank=self.bank[np.ix_(rows, rows)],
            targets=np.vstack([self.targets[:r, tasks], rest]),
            R=self.R[rows],
            target=self.target[tasks],
            beside=beside,
        )

    def evidence(self) -> ReducedEvidence:
        """Return the restricted likelihood of the values of all samples."""
        return ReducedEvidence(
            self.bank,
            self.targets,
            np.ones(len(self.targets)),
            np.zeros((len(self.targets), 0)),  # the constant has been removed
            reduced=self,
        )

    def dual(self, A: FloatArray) -> FloatArray:
        """Return ``Z'A`` of all samples, shape (D, T), from A of the pseudo-samples."""
        found = self.R.T @ A
        return np.asarray(found if self.spread is None else self.spread.T @ found)

    def apply(self, w: FloatArray) -> FloatArray:
        """Return the features of the pseudo-samples times ``w``, (D,) or (D, T)."""
        return np.asarray(self.R @ (w if self.spread is None else self.spread @ w))

    def bias(
        self, w: FloatArray, tasks: slice | NDArray[np.intp] = slice(None)
    ) -> FloatArray:
        """Return the optimal bias for weights (D, T) of normalised features.

        With covariates, the effects of the constant and the covariates, (1 + k, T).
        """
        bias = np.asarray(self.target[tasks] - self.middle @ w)
        if self.beside is None:
            return bias
        effects = self.beside.effects[:, tasks] - self.beside.along @ w
        return np.vstack([bias - self.beside.mean @ effects, effects])


@dataclass(frozen=True)
class ReducedProblem(MKLProblem):
    """The squared loss of all samples, as a problem on pseudo-samples.

    Solvers work on the pseudo-samples. Certificates, and therefore solutions, are about
    all samples: A is in the coordinates of the features, (D, T), and there is a bias.
    """

    loss: Squared
    reduced: Reduced
    tasks: slice | NDArray[np.intp]

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, computed from the bank alone."""
        found = super().certify(self._own(point), self._own(dual))
        A = self.reduced.dual(found.A)
        w = weights_of(found.theta, A, self.reduced.slices)
        return replace(
            found,
            A=A,
            dual=self.reduced.dual(found.dual),
            bias=self.reduced.bias(w, self.tasks),
            about=_IN_FEATURES,
        )

    def _own(self, point: Iterate) -> Iterate:
        """Convert a point in the coordinates of the features to pseudo-samples.

        The optimal A for a function is the cost times its residuals.
        """
        if point.about != _IN_FEATURES:
            return point
        w = weights_of(point.theta, point.A, self.reduced.slices)
        A = self.loss.C * (self.loss.Y - self.reduced.apply(w))
        return Iterate(point.theta, A)

    def contributions(
        self, theta: FloatArray, A: FloatArray, quads: FloatArray | None = None
    ) -> FloatArray:
        """Return each kernel's share, from A (D, T) of the features."""
        return feature_shares(theta, A, self.reduced.slices)


@dataclass(frozen=True)
class ReducedEvidence(EvidenceProblem):
    """The restricted likelihood of the values of all samples, from pseudo-samples.

    Without the constant, n - 1 contrasts of the values remain (n - 1 - k with k
    covariates). Only as many of them as there are pseudo-samples depend on the
    features.
    """

    reduced: Reduced = field(kw_only=True)

    @property
    def freedom(self) -> float:
        """``n - 1`` for all samples, minus the number of covariates."""
        beside = self.reduced.beside
        taken = 1.0 if beside is None else 1.0 + len(beside.mean)
        return max(self.reduced.n - taken, 1e-12)

    @property
    def varied(self) -> NDArray[np.bool_]:
        """Which outputs are not constant, up to the rounding of their mean."""
        size = np.sum(self.Y**2, axis=0)
        rounding = 8.0 * np.finfo(float).eps * np.abs(self.reduced.target)
        return np.asarray(size > self.reduced.total * rounding**2)

    def variances(self) -> FloatArray:
        """Return the variance of the samples in feature space, for each kernel."""
        return self.reduced.variances

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the evidence of the weights, with the solution in features."""
        found = super().certify(point, dual)
        A = self.reduced.dual(found.A)
        w = weights_of(found.theta, A, self.reduced.slices)
        return replace(found, A=A, dual=A, bias=self.reduced.bias(w))

    def effects_std(
        self, found: Evidence, units: FloatArray | None = None
    ) -> FloatArray:
        """Return standard errors of the constant and of covariates, shape (1 + k, T).

        The covariance of effects of centred columns E is ``s ((E'E)^-1 + B'(diag(1 /
        theta) + R'R)^-1 B)``, with the coefficients B of the features on E; those on
        the constant are their means.
        """
        reduced, beside = self.reduced, self.reduced.beside
        B = reduced.middle[:, None]
        to_own = np.eye(1)
        inverse = np.full((1, 1), 1.0 / reduced.total)
        if beside is not None:
            k = len(beside.mean)
            B = np.column_stack([B, beside.along.T])
            inverse = np.block(
                [[inverse, np.zeros((1, k))], [np.zeros((k, 1)), beside.inverse]]
            )
            to_own = np.eye(1 + k)
            to_own[0, 1:] = -beside.mean
        to_own = to_own if units is None else units @ to_own
        B, variance = B @ to_own.T, np.sum((to_own @ inverse) * to_own, axis=1)
        weights = by_kernel(found.theta, reduced.slices)
        for j, column in enumerate(B.T):
            weighted = weights * column
            known = found.explained(reduced.apply(weighted))
            variance[j] += max(float(column @ weighted) - known, 0.0)
        return np.sqrt(np.outer(variance, found.noise))

    def contributions(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return each kernel's share, from A (D, T) of the features."""
        return feature_shares(theta, A, self.reduced.slices)


_IN_FEATURES = "coordinates of features"


def weights_of(theta: FloatArray, A: FloatArray, slices: Sequence[slice]) -> FloatArray:
    """Return ``w_m = theta_m A_m``, shape (D, T)."""
    return np.asarray(by_kernel(theta, slices)[:, None] * A)


def feature_shares(
    theta: FloatArray, A: FloatArray, slices: Sequence[slice]
) -> FloatArray:
    """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (M,)."""
    return shares(theta * squares(A, slices))


def by_kernel(theta: FloatArray, slices: Sequence[slice]) -> FloatArray:
    """Return the weight of the kernel of each feature, shape (D,) or (T, D)."""
    widths = [s.stop - s.start for s in slices]
    return np.repeat(theta, widths, axis=-1)


def squares(w: FloatArray, slices: Sequence[slice]) -> FloatArray:
    """Return ``|w_m|^2`` of all tasks together for each kernel, shape (M,)."""
    starts = [s.start for s in slices]
    return np.asarray(np.add.reduceat(np.sum(w * w, axis=1), starts))


# --- second-order expansions ----------------------------------------------------------


@dataclass(frozen=True)
class Expansion:
    """``min sum_t ½ w_t'S_t w_t - g_t'w_t + ½ sum_m |w_m|^2 / theta_m`` over w, theta.

    The second-order expansion of any loss in feature space; tasks t share the kernel
    weights. For given weights, the solution is ``w_t = (S_t + diag(1/theta))^-1 g_t``.
    The dual variables A of the solvers are the vectors ``v_t = g_t - S_t w_t`` in the
    coordinates of the features. There, kernels are projections, ``q_m = |v_m|^2``, and
    at the solution ``w_m = theta_m v_m``. The dual value of v is
    ``-½ sum_t w_t'S_t w_t - ½ support``.

    Parameters
    ----------
    S : tuple of arrays of shape (D, D)
        Positive semidefinite, one for each task.
    g : array of shape (D, T)
    slices : tuple of slice
        The features of each kernel.
    weights : WeightSet
    """

    S: tuple[FloatArray, ...]
    g: FloatArray
    slices: tuple[slice, ...]
    weights: WeightSet

    kind: ClassVar[Kind] = "kernels"
    per_class = False

    @property
    def bank(self) -> Any:
        """Projections onto the features of each kernel."""
        return _Projections(self.slices)

    @property
    def loss(self) -> Any:
        """A loss without constraints on A."""
        return _Free((self.g.shape[0], self.g.shape[1]))

    def center(self) -> FloatArray:
        """Return equal weights."""
        return self.weights.center(len(self.slices))

    def step(self, theta: FloatArray, quads: FloatArray) -> FloatArray:
        """Return the optimal weights for the ``w`` defined by ``theta`` and A."""
        return self.weights.step(theta, quads)

    def quads(self, A: FloatArray) -> FloatArray:
        """Return ``|v_m|^2`` for every kernel, shape (M,)."""
        return squares(A, self.slices)

    def bend(self, w: FloatArray) -> float:
        """Return ``½ sum_t w_t'S_t w_t``."""
        return 0.5 * sum(float(w[:, t] @ (S @ w[:, t])) for t, S in enumerate(self.S))

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds given by ``(theta, v)``; ``scores`` are its w."""
        theta, A, w = point.theta, point.A, point.scores
        if w is None:
            raise ValueError("An expansion is judged by the w behind v.")
        q = self.quads(A) if point.quads is None else point.quads
        bend = self.bend(w)
        upper = bend - float(np.sum(self.g * w))
        return Judgement(
            upper + self.weights.regulariser(theta, q),
            -bend - 0.5 * self.weights.support(q),
            np.zeros(self.g.shape[1]),
        )


@dataclass(frozen=True)
class _Projections:
    """Kernels that are projections onto their features."""

    slices: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        D = self.slices[-1].stop
        return D, D, len(self.slices)

    def multiply(self, A: FloatArray) -> FloatArray:
        out = np.zeros((*A.shape, len(self.slices)))
        for m, part in enumerate(self.slices):
            out[part, :, m] = A[part]
        return out

    def quad(self, A: FloatArray) -> FloatArray:
        return squares(A, self.slices)


@dataclass(frozen=True)
class _Free:
    """An unconstrained loss, defined only by the shape of its dual variables."""

    shape: tuple[int, int]

    hyperplane = True
    concavity = 0.0
    design = None

    def repair(self, A: FloatArray) -> FloatArray:
        return A
