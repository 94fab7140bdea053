"""Subspace kernels: criteria, their solutions, and bounds for the joint problem.

A subspace kernel (Chen et al. 2008, "SUB") is the linear kernel of a few features
``Z = G W``, where G is a centred Gram and the coefficients W maximise their dependence
on targets L, ``H = LL'``:

- *HSIC* (8): ``max tr((W'(G + lam I)W)^-1 W'GHGW)``;
- *uHSIC* (19): ``max tr(Q'GHGQ)`` subject to ``Q'(GG + xi G)Q = I``.

Both have at most as many features as L has columns, and need one Cholesky factorisation
of ``G + reg I`` and an eigenproblem of the size of L'L. With the signed dual variables
of SVMs in place of L, the same solution is used for the joint problems (9) and (20).

Samples may have weights w (two equal samples are one of weight two), ``D = diag(w)``;
then ``reg I`` becomes ``reg D^-1``, GG becomes GDG, and L becomes DL. Without weights D
is the identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dpotrs

from mklearn.data.threads import one_blas_thread
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.factors import cholesky, inverse, lower_gram, solve_triangle
from mklearn.problems.base import (
    FEW,
    UNIT,
    Certificate,
    Iterate,
    Judgement,
    Kind,
    entries_sum,
    pairwise,
)
from mklearn.problems.protocols import Loss

FloatArray = NDArray[np.float64]

LABEL_KERNELS = ("H1", "H2")

# Eigenvalues below this fraction of the largest one count as zero.
_ZERO = 1e-10


def label_factor(
    labels: NDArray[np.intp],
    n_classes: int,
    kind: str = "H2",
    weight: FloatArray | None = None,
) -> FloatArray:
    """Return L with ``P H P = L L'`` for a label kernel, centred, shape (n, k).

    Parameters
    ----------
    labels : array of shape (n,)
        Indices of the classes.
    n_classes : int
    kind : {"H1", "H2"}
        ``Y Y'`` with class indicators Y, or ``Y (Y'Y)^-1 Y'``, in which all classes
        have equal influence whatever their size. Multiplied by ``sqrt(n)``, the factor
        of the latter is the target matrix of discriminant analysis, DKL (24).
    weight : array of shape (n,), optional
    """
    w = np.ones(len(labels)) if weight is None else weight
    Y = np.asarray(labels[:, None] == np.arange(n_classes), dtype=np.float64)
    L = Y / np.sqrt(w @ Y) if kind == "H2" else Y
    return np.asarray(L - w @ L / w.sum())


class Subspace(NamedTuple):
    """Coefficients W (or Q), training features ``G W``, and terms of the criterion.

    The ``values`` are the eigenvalues, in descending order, whose sum is the criterion.
    ``rank`` is the number of nonzero eigenvalues, including those that were dropped.
    """

    coef: FloatArray  # (n, q)
    features: FloatArray  # (n, q)
    values: FloatArray  # (q,)
    rank: int


class Criterion:
    """HSIC (8) or uHSIC (19) of a Gram matrix, factorised once for all targets.

    Parameters
    ----------
    G : array of shape (n, n)
        Centred Gram matrix.
    reg : float
        The regularisation parameter, lam or xi.
    uncorrelated : bool
        Whether to use (19) instead of (8).
    weight : array of shape (n,), optional
        Sample weights.
    """

    def __init__(
        self,
        G: FloatArray,
        reg: float,
        uncorrelated: bool = True,
        weight: FloatArray | None = None,
    ) -> None:
        self.G, self.reg, self.uncorrelated = G, reg, uncorrelated
        self.weight = np.ones(len(G)) if weight is None else weight
        self._factor = self._factorise()  # lower, in Fortran order

    def best(self, N: FloatArray, n_components: int | None = None) -> Subspace:
        """Return the subspace that maximises the criterion.

        Parameters
        ----------
        N : array of shape (n, k)
            Targets, ``D L``; their columns sum to zero.
        n_components : int, optional
            Number of features; by default as many as possible. There are at most as
            many as the rank of ``G N``, and those with eigenvalue zero are left out.
        """
        if self.uncorrelated:
            # Q = (G + xi I)^-1 L U s^(-1/2), where L'G(G + xi I)^-1 L = U diag(s) U'
            B = self.inverse_apply(N / self.weight[:, None])
            F = self.multiply(B)
            S = N.T @ F
        else:
            # W = (G + lam I)^-1 GL U s^(-1/2), L'G(G + lam I)^-1 GL = U diag(s) U'
            V = self.multiply(N)
            B = self.inverse_apply(V)
            F = self.multiply(B)
            S = V.T @ B
        values, U = np.linalg.eigh((S + S.T) / 2)
        values, U = values[::-1], U[:, ::-1]
        rank = int(np.sum(values > _ZERO * max(float(values[0]), 0.0)))
        q = rank if n_components is None else min(rank, n_components)
        turn = _signed(U[:, :q]) / np.sqrt(values[:q])
        return Subspace(B @ turn, F @ turn, values[:q].copy(), rank)

    def value(self, W: FloatArray, N: FloatArray) -> float:
        """Return the criterion at any coefficients W of full rank.

        Coefficients of (19) are first scaled to ``Q'(GG + xi G)Q = I``.
        """
        Z = self.G @ W
        return float(np.trace(np.linalg.solve(self._metric(W, Z), _gram(Z.T @ N))))

    def constraint(self, W: FloatArray) -> FloatArray:
        """Return ``W'(G + lam I)W`` or ``Q'(GG + xi G)Q``; I at the optimum."""
        return self._metric(W, self.G @ W)

    def total(self, N: FloatArray) -> float:
        """Return the maximum of the criterion, with as many features as possible."""
        if self.uncorrelated:
            B = self.inverse_apply(N / self.weight[:, None])
            return float(np.sum(N * self.multiply(B)))
        V = self.multiply(N)
        return float(np.sum(V * self.inverse_apply(V)))

    def whole(self) -> FloatArray:
        """Return the kernel of all directions together, shape (n, n).

        ``G(G + lam I)^-1 G``, or ``G(G + xi I)^-1``: it is an upper bound on every
        subspace kernel, and for targets N the optimal subspace kernel with as many
        features attains it on N.
        """
        scale = 1.0 / self.weight
        if self.uncorrelated:
            # D^-1 - xi D^-1 (G + xi D^-1)^-1 D^-1
            M = inverse(self._factor)
            M *= -self.reg * scale[:, None] * scale
            M[np.diag_indices_from(M)] += scale
        else:
            M = lower_gram(solve_triangle(self._factor, self.G.T))
        M += np.tril(M, -1).T
        return np.ascontiguousarray(M)

    def _metric(self, W: FloatArray, Z: FloatArray) -> FloatArray:
        if self.uncorrelated:
            return Z.T @ (self.weight[:, None] * Z) + self.reg * W.T @ Z
        return W.T @ (Z + self.reg * W / self.weight[:, None])

    def inverse_apply(self, right: FloatArray) -> FloatArray:
        """Return ``(G + reg I)^-1`` times some columns."""
        ridge = (self.reg / self.weight)[:, None]
        with one_blas_thread:
            found = dpotrs(self._factor, right, lower=1)[0]
            # one step of iterative refinement
            rest = right - self.multiply(found) - ridge * found
            return np.asarray(found + dpotrs(self._factor, rest, lower=1)[0])

    def multiply(self, A: FloatArray) -> FloatArray:
        """Return ``G A``, with the same copy of BLAS as the factorisation."""
        with one_blas_thread:
            return np.asarray(dsymm(1.0, self.G.T, A, lower=1))

    def _factorise(self) -> FloatArray:
        extra = 0.0
        while True:
            K = self.G.copy()
            size = max(float(np.abs(np.diagonal(K)).max()), 1e-300)
            K[np.diag_indices_from(K)] += self.reg / self.weight + extra * size
            factor, found = cholesky(K.T)
            if found:
                return factor
            # indefinite by rounding; iterative refinement removes the added diagonal
            extra = max(100 * extra, 1e-15 * len(K))


def principal(criterion: Criterion, found: Subspace) -> Subspace:
    """Return the same subspace kernel with features that are exactly uncorrelated.

    The constraint of (19) makes ``Z'Z + xi Q'GQ`` the identity, so the features are
    uncorrelated only up to xi. A rotation changes neither constraint, nor criterion,
    nor kernel; along the eigenvectors of ``Q'GQ`` both parts are diagonal. Features are
    ordered by their variance. Their ``values`` are the terms of the criterion along
    them, which are no longer eigenvalues.
    """
    S = found.coef.T @ found.features
    _, R = np.linalg.eigh((S + S.T) / 2)
    R = _signed(R)
    return Subspace(
        found.coef @ R,
        found.features @ R,
        np.asarray(found.values @ R**2),
        found.rank,
    )


def _signed(U: FloatArray) -> FloatArray:
    """Fix the arbitrary signs of eigenvectors: the largest entry becomes positive."""
    if U.shape[1] == 0:
        return U
    largest = U[np.abs(U).argmax(axis=0), np.arange(U.shape[1])]
    return U * np.where(largest < 0, -1.0, 1.0)


def _gram(A: FloatArray) -> FloatArray:
    return np.asarray(A @ A.T)


# --- the joint problem ----------------------------------------------------------------


@dataclass
class Kernels:
    """The kernels of a joint problem: criteria for given weights, and derivatives.

    Parameters
    ----------
    bank : KernelBank
        Centred kernels, of unit trace if there are several.
    reg : float
        The regularisation parameter, lam or xi.
    uncorrelated : bool
    weight : array of shape (n,)
        Sample weights.
    theta : array of shape (M,), optional
        Fixed kernel weights; by default they are learned.
    """

    bank: KernelBank
    reg: float
    uncorrelated: bool
    weight: FloatArray
    theta: FloatArray | None = None
    _at: tuple[FloatArray, Criterion] | None = field(default=None, repr=False)

    def start(self) -> FloatArray:
        """Return the fixed weights, or else equal ones."""
        if self.theta is not None:
            return self.theta
        M = self.bank.shape[2]
        return np.full(M, 1.0 / M)

    def criterion(self, theta: FloatArray) -> Criterion:
        """Return the criterion on the combined kernel; the last one is cached."""
        if self._at is None or not np.array_equal(self._at[0], theta):
            self._at = None  # free its memory first
            G = self.bank.combine(theta)
            made = Criterion(G, self.reg, self.uncorrelated, self.weight)
            self._at = (theta, made)
        return self._at[1]

    def slopes(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return the gradient of ``-½ tr A'MA`` in the weights, shape (M,).

        M is the kernel of all directions, ``G(G + xi I)^-1``.
        """
        B = self.criterion(theta).inverse_apply(A / self.weight[:, None])
        return -0.5 * self.reg * self.bank.quad(B)


class Cut(NamedTuple):
    """A cutting plane of the SVM value in the weights, and its share in a mixture."""

    theta: FloatArray
    A: FloatArray
    share: float


@dataclass(frozen=True)
class JointPoint:
    """Further parts of a point: the subspace, and bounds for all other subspaces.

    Attributes
    ----------
    subspace : Subspace
    largest : float
        Upper bound on ``tr A'KA`` over all subspaces, infinite if it is not known.
    floor : float
        Lower bound that follows from ``cuts``.
    cuts : tuple of Cut
    """

    subspace: Subspace
    largest: float = np.inf
    floor: float = -np.inf
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class JointProblem:
    """Subspace and SVMs together: (9), (20) and, over several kernels, (39).

        min over subspaces   max over A   dual(A) - ½ tr A'KA,     K = ZZ'

    where A are the signed dual variables of the SVMs. For given features, the primal
    value of the SVMs is an *upper* bound on the optimum. For given A, the subspace that
    maximises ``tr A'KA`` gives a *lower* bound, since the value of A in any other
    subspace is at least as large. If the two meet, subspace and SVMs are jointly
    optimal.

    They can meet if there are as many features as SVMs (or as the rank of A): then the
    maximum of ``tr A'KA`` is ``tr A'MA`` with :meth:`Criterion.whole` M, the lower
    bound is a concave function of A, and the SVMs on M are a solution. With fewer
    features the problem is not convex, and a gap may remain even at an optimum.

    Parameters
    ----------
    loss : Loss
        Loss of the SVMs: hinge, with one task for each class.
    n_components : int
    kernels : Kernels
    targets : array of shape (n, k)
        Centred targets of the first subspace, from the labels.
    """

    loss: Loss
    n_components: int
    kernels: Kernels
    targets: FloatArray = field(repr=False)

    kind: ClassVar[Kind] = "joint"

    def __post_init__(self) -> None:
        if self.kernels.theta is None and not self.kernels.uncorrelated:
            raise ValueError(
                "Kernel weights are learned together with uncorrelated features only; "
                "give Kernels the weights as theta, for instance those that suit the "
                "targets best."
            )

    @property
    def complete(self) -> bool:
        """Whether there are as many features as SVMs."""
        return self.n_components >= self.loss.shape[1]

    def widened(self) -> JointProblem:
        """Return the relaxation with as many features as SVMs."""
        return replace(self, n_components=self.loss.shape[1])

    def subspace(self, theta: FloatArray, N: FloatArray) -> Subspace:
        """Return the optimal subspace for some weights and targets."""
        return self.kernels.criterion(theta).best(N, self.n_components)

    def first(self) -> Iterate:
        """Return the zero function on the subspace of the labels."""
        theta = self.kernels.start()
        found = self.subspace(theta, self.kernels.weight[:, None] * self.targets)
        return Iterate(theta, np.zeros(self.loss.shape), about=JointPoint(found, 0.0))

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds given by features and SVMs."""
        about = self._about(point)
        lower = max(self.value(point.A, about.largest), about.floor)
        return self._judged(about.subspace.features, point.A, lower)

    def _about(self, point: Iterate) -> JointPoint:
        """Return the parts of a point; by default, the best subspace for its SVMs."""
        if point.about is None:
            return JointPoint(self.subspace(point.theta, point.A))
        return point.about

    def _judged(self, Z: FloatArray, A: FloatArray, lower: float) -> Judgement:
        F = Z @ (Z.T @ A)
        bias = self.loss.bias(F)
        upper = self.loss.primal(F, bias) + 0.5 * float(np.sum(A * F))
        return Judgement(upper, lower, bias)

    def value(self, A: FloatArray, largest: float) -> float:
        """Return the lower bound given by a feasible A."""
        return self.loss.dual(A) - 0.5 * largest

    def dual(self, A: FloatArray) -> float:
        """Return the lower bound given by A for fixed weights."""
        return self.value(A, float(self.subspace(self.kernels.start(), A).values.sum()))

    def tangent(self, cut: Cut) -> tuple[float, FloatArray]:
        """Return intercept and slopes of a linear lower bound on the SVM value.

        It holds for all weights, because the value is convex in them.
        """
        made = self.kernels.criterion(cut.theta)
        value = self.value(cut.A, made.total(cut.A))
        if self.kernels.theta is not None:
            return value, np.zeros(len(cut.theta))
        slope = self.kernels.slopes(cut.theta, cut.A)
        return value - float(slope @ cut.theta), slope

    def floor(self, cuts: tuple[Cut, ...]) -> float:
        """Return the lower bound given by a convex combination of cutting planes."""
        if not cuts:
            return -np.inf
        total, slopes = 0.0, np.zeros(len(cuts[0].theta))
        for cut in cuts:
            value, slope = self.tangent(cut)
            total += cut.share * value
            slopes = slopes + cut.share * slope
        return total + min(0.0, float(slopes.min()))

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, recomputed from their coefficients."""
        found, below = self._about(point).subspace, self._about(dual)
        Z = self.kernels.bank.apply(point.theta, found.coef)
        if self.kernels.theta is not None:
            plain, largest = self.dual(dual.A), self._largest(dual.A)
        else:  # (27) has certified it
            plain, largest = self.value(dual.A, below.largest), below.largest
        plain = max(plain, self.floor(below.cuts))
        judged = self._judged(Z, point.A, plain)
        upper = self._above(point, found.coef, Z, judged.bias)
        far = self._far(self.kernels.start(), self.loss.strain(dual.A))
        root = np.sqrt(max(largest, 0.0)) + np.sqrt(far)
        lower = self.loss.below(dual.A) - 0.5 * root**2 * (1.0 + FEW)
        lower = max(lower, self._floor_below(below.cuts))
        lower -= FEW * abs(lower) if np.isfinite(lower) else 0.0
        return Certificate(
            upper=upper,
            lower=lower,
            bias=judged.bias,
            theta=point.theta,
            A=point.A,
            dual=dual.A,
            weight_bounds=np.ones_like(point.theta),
            about=replace(below, subspace=found),
            error=upper - judged.upper + plain - lower if np.isfinite(lower) else 0.0,
            claim=(
                f"Subspace and SVMs have an objective of {upper:.6g}, and no "
                f"other subspace can have one below {lower:.6g}"
            ),
            doubt=(
                f"The best objective found is {upper:.6g}, and the bounds do "
                f"not meet: the best lower bound is {lower:.6g}. There is no "
                "certificate of global optimality"
            ),
        )

    def _sides(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the relative error of sums, and roots of bounds on the diagonal.

        No entry ``G[i, j]`` exceeds the product of roots i and j.
        """
        bank = self.kernels.bank
        return bank.rounding(bank.shape[0]), np.sqrt(bank.sizes() ** 2 @ np.abs(theta))

    def _far(self, theta: FloatArray, strain: FloatArray) -> float:
        """Return an upper bound on ``tr S'KS`` over all subspaces, for entries up to S.

        No subspace kernel exceeds ``D^-1`` (19), or G (8).
        """
        if self.kernels.uncorrelated:
            return float(np.sum(strain**2 / self.kernels.weight[:, None]))
        return float(np.sum((self._sides(theta)[1] @ strain) ** 2))

    def _above(
        self, point: Iterate, W: FloatArray, Z: FloatArray, bias: FloatArray
    ) -> float:
        """Return an upper bound on the objective of a subspace, including rounding.

        Features that violate the constraint by e, ``|constraint - I| <= e``, become
        feasible when they are divided by ``sqrt(1 + e)``; the regulariser of the same
        scores then increases by a factor of at most ``1 + e``.
        """
        unit, side = self._sides(point.theta)
        size, w = np.abs(Z), self.kernels.weight[:, None]
        off = unit * np.outer(side, side @ np.abs(W))
        P, A = Z.T @ point.A, np.abs(point.A)
        off_P = off.T @ A + unit * size.T @ A
        off_F = off @ np.abs(P) + size @ off_P + off @ off_P + unit * size @ np.abs(P)
        reg, other = self.kernels.reg, np.abs(W)
        if self.kernels.uncorrelated:
            metric = Z.T @ (w * Z) + reg * W.T @ Z
            doubt = (size + off).T @ (w * off) * 2 + unit * size.T @ (w * size)
            doubt += reg * (other.T @ off + unit * other.T @ size)
        else:
            metric = W.T @ Z + reg * W.T @ (W / w)
            doubt = other.T @ off + unit * other.T @ (size + reg * other / w)
        excess = float(np.linalg.norm(metric - np.eye(len(metric))))
        excess += float(np.linalg.norm(doubt))
        total = float(np.sum((np.abs(P) + off_P) ** 2)) * (1.0 + excess)
        upper = self.loss.above(Z @ P, bias, off_F) + 0.5 * total
        return upper * (1.0 + FEW)

    def _largest(self, A: FloatArray) -> float:
        """Return an upper bound on ``tr A'KA`` over all subspaces, for fixed weights.

        With ``H = G + reg D^-1`` and ``R = N - HB`` for any B,

            N'H^-1 N = N'B + B'N - B'HB + R'H^-1 R,    0 <= R'H^-1 R <= R'DR / reg,

        so an inaccurate factor of H makes the bound weaker, but never invalid.
        """
        kernels, theta = self.kernels, self.kernels.start()
        made, reg, w = kernels.criterion(theta), kernels.reg, kernels.weight[:, None]
        unit, side = self._sides(theta)
        rest = 0.0
        if kernels.uncorrelated:
            N = A / w
            B = made.inverse_apply(N)
            GB, across = made.multiply(B), np.abs(B)
            S = A.T @ N - reg * (N.T @ B + B.T @ N - B.T @ (GB + reg * B / w))
            off = np.abs(N).T @ across
            off = reg * (off + off.T + reg * across.T @ (across / w))
            off = unit * (np.abs(A).T @ np.abs(N) + off)
            off += unit * reg * np.outer(side @ across, side @ across)
        else:
            N = made.multiply(A)
            B = made.inverse_apply(N)
            GB, across = made.multiply(B), np.abs(B)
            off_N = unit * np.outer(side, side @ np.abs(A))
            R = N - GB - reg * B / w
            S = N.T @ B + B.T @ R
            off_R = off_N + unit * np.outer(side, side @ across)
            off_R += 4 * UNIT * (np.abs(N) + np.abs(GB) + reg * across / w)
            rest = float(np.sum(w * (np.abs(R) + off_R) ** 2)) / reg
            off = across.T @ (off_N + off_R)
            off += unit * (np.abs(N).T @ across + across.T @ np.abs(R))
        values = np.linalg.eigvalsh((S + S.T) / 2)[::-1][: self.n_components]
        slip = float(np.linalg.norm(off)) + 16 * len(S) * UNIT * np.linalg.norm(S)
        total = float(np.maximum(values, 0.0).sum()) + np.sqrt(len(values)) * slip
        return float(total + rest) * (1.0 + FEW)

    def _floor_below(self, cuts: tuple[Cut, ...]) -> float:
        """Return a lower bound on :meth:`floor`, including rounding.

        Any B gives a bound that is linear in the weights, as in :meth:`_largest`:
        ``tr A'MA <= A'N - xi (2 N'B - xi B'D^-1 B) + xi sum_m theta[m] B'K[m]B``.
        """
        kernels = self.kernels
        if not cuts:
            return -np.inf
        if not kernels.uncorrelated:  # here the weights are fixed
            whole, found = self.widened(), 0.0
            for cut in cuts:
                far = self._far(cut.theta, self.loss.strain(cut.A))
                root = np.sqrt(whole._largest(cut.A)) + np.sqrt(far)
                found += cut.share * (self.loss.below(cut.A) - 0.5 * root**2)
            return float(found)
        xi, w = kernels.reg, kernels.weight[:, None]
        unit, sizes = kernels.bank.rounding(len(w)), kernels.bank.sizes()
        total, slopes = 0.0, np.zeros(len(cuts[0].theta))
        for cut in cuts:
            N = cut.A / w
            B = kernels.criterion(cut.theta).inverse_apply(N)
            terms = np.stack([cut.A * N, -2.0 * xi * N * B, xi * xi * B**2 / w])
            most = entries_sum(terms)
            most += pairwise(terms.size) * entries_sum(np.abs(terms))
            far = self._far(cut.theta, self.loss.strain(cut.A))
            most += far + 2.0 * float(np.sqrt(far * np.sum(cut.A * N)))
            quads = kernels.bank.quad(B) + unit * np.sum(
                (np.abs(B).T @ sizes) ** 2, axis=0
            )
            total += cut.share * (self.loss.below(cut.A) - 0.5 * most)
            slopes = slopes - cut.share * 0.5 * xi * quads
        if kernels.theta is not None:
            return float(total + slopes @ kernels.theta)
        return float(total + min(0.0, slopes.min()))


# --- alignment ------------------------------------------------------------------------


class Alignment:
    """Kernel-target alignment of ``GW(W'GW)^-1 W'G`` (Wu and Farquhar 2007, "SKFE").

    ``<K, LL'> / (|K| |LL'|)``, to be maximised over W. It has many local maxima.

    Parameters
    ----------
    G : array of shape (n, n)
        Centred Gram matrix.
    L : array of shape (n, k)
        Centred targets.
    weight : array of shape (n,), optional
    """

    def __init__(
        self, G: FloatArray, L: FloatArray, weight: FloatArray | None = None
    ) -> None:
        self.G, self.L = G, L
        self.weight = np.ones(len(G)) if weight is None else weight
        self.N = self.weight[:, None] * L
        self.GN = G @ self.N
        self.size = float(np.linalg.norm(L.T @ self.N))

    def start(self, n_components: int, seed: int = 0) -> FloatArray:
        """Return coefficients of the class means, completed by random ones."""
        S = self.N.T @ self.GN
        values, U = np.linalg.eigh((S + S.T) / 2)
        keep = values > _ZERO * max(float(values[-1]), 0.0)
        U = _signed(U[:, keep][:, ::-1])
        W = self.N @ (U / np.sqrt(values[keep][::-1]))
        more = n_components - W.shape[1]
        if more > 0:
            R = np.random.default_rng(seed).standard_normal((len(W), more))
            W = np.c_[W, R / np.sqrt(np.sum(R * (self.G @ R), axis=0))]
        return W[:, :n_components]

    def value_and_gradient(self, W: FloatArray) -> tuple[float, FloatArray]:
        """Return the alignment and its gradient in W, shape (n, q).

        With ``V = GW``, ``N = W'V``, ``P = V'LL'V``, ``E = V'V`` it is
        ``a / (sqrt(e) |LL'|)``, ``a = tr N^-1 P`` and ``e = tr (N^-1 E)^2``.
        """
        V = self.G @ W
        DV = self.weight[:, None] * V
        N = W.T @ V
        inverse = np.linalg.pinv((N + N.T) / 2, hermitian=True)
        T = self.N.T @ V
        NP = inverse @ (T.T @ T)
        NE = inverse @ (V.T @ DV)
        a, e = float(np.trace(NP)), float(np.sum(NE * NE.T))
        slope_a = 2.0 * (self.GN @ T - V @ NP) @ inverse
        slope_e = 4.0 * (self.G @ DV - V @ NE) @ (NE @ inverse)
        root = np.sqrt(e) * self.size
        return a / root, slope_a / root - 0.5 * a / (root * e) * slope_e

    def features(self, W: FloatArray) -> Subspace:
        """Return the subspace of W, scaled such that ``W'GW`` is the identity.

        Directions in the null space of ``W'GW`` are left out; ``values`` are the terms
        of ``<K, LL'>`` along the others.
        """
        V = self.G @ W
        S = W.T @ V
        values, U = np.linalg.eigh((S + S.T) / 2)
        keep = values > _ZERO * max(float(values[-1]), 0.0)
        W, V = (A @ (U[:, keep] / np.sqrt(values[keep])) for A in (W, V))
        T = V.T @ self.N
        part, R = np.linalg.eigh(T @ T.T)
        R = _signed(R[:, ::-1])
        return Subspace(W @ R, V @ R, part[::-1].copy(), int(keep.sum()))
