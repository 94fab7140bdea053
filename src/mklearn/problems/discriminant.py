"""Discriminant kernel learning: class targets, criteria, projections, choice of reg.

Both criteria are the saddle point of :mod:`mklearn.problems.mkl`, on centred kernels of
unit trace. Samples may have weights ``w`` (two equal samples are one of weight two),
with the matrix ``D = diag(w)``; without weights D is the identity.

*RKDA* (Ye, Ji, Chen 2008, "DKL") minimises ``F(theta) = tr H'(I + G_theta/lam)^-1 H``
over the weights; this is ``2 lam`` times the value of the squared loss with targets H
and costs ``1/lam``. *KFDA* (Kim, Magnani, Boyd 2006) maximises the largest Fisher
discriminant ratio ``F*(theta)``; ``-lam/2`` times it is the value of :class:`Fisher`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import brentq
from scipy.special import softmax

from mklearn.data.blocks import Block
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.normalise import Scaling
from mklearn.problems.base import FEW, UNIT, column_sums, entries_sum, pairwise
from mklearn.problems.losses import Squared
from mklearn.problems.mkl import MKLProblem
from mklearn.problems.protocols import Rows, System
from mklearn.problems.scatter import Beside
from mklearn.problems.weights import LpBall, WeightSet

FloatArray = NDArray[np.float64]

# Least weight of I/n where reg is learned, relative to the weights' norm: it makes all
# members of the weight set regular matrices, and changes values by a factor 1 + 1e-9.
FLOOR = 1e-9


# --- targets --------------------------------------------------------------------------


def class_targets(
    labels: NDArray[np.intp], n_classes: int, weight: FloatArray | None = None
) -> FloatArray:
    """Return the targets of the classes, DKL (3) and (24), with centred columns.

    Parameters
    ----------
    labels : array of shape (n,)
        Numbers of the classes.
    n_classes : int
    weight : array of shape (n,), optional

    Returns
    -------
    array of shape (n, 1) for two classes
        ``1/m+`` for samples of class 1, ``-1/m-`` for those of class 0.
    array of shape (n, n_classes) otherwise
        ``sqrt(n/n_j) - sqrt(n_j/n)`` in the column of a sample's class j, else
        ``-sqrt(n_j/n)``.
    """
    w = np.ones(len(labels)) if weight is None else weight
    counts = np.bincount(labels, w, n_classes)
    if n_classes == 2:
        return np.where(labels == 1, 1.0 / counts[1], -1.0 / counts[0])[:, None]
    return label_targets(labels[:, None] == np.arange(n_classes), w)


def targets_of_indicators(
    share: FloatArray, total: float, exclusive: bool
) -> FloatArray:
    """Return the B that turns class indicators into targets, ``H = (E - mean) B``.

    Parameters
    ----------
    share : array of shape (k,)
        Proportion of the samples in each class, or with each label.
    total : float
        Total weight of the samples.
    exclusive : bool
        Whether each sample has exactly one class.
    """
    if exclusive and len(share) == 2:  # DKL (3)
        n = total * share
        return np.array([[-1.0 / n[0]], [1.0 / n[1]]])
    return np.diag(1.0 / np.sqrt(share))  # DKL (24)


def label_targets(
    Y: NDArray[np.bool_] | FloatArray, weight: FloatArray | None = None
) -> FloatArray:
    """Return the targets of labels that are not mutually exclusive.

    They are the columns of (24), with the samples that have label j as class j.

    Parameters
    ----------
    Y : array of shape (n, k)
        Indicators of the labels; each label has samples with it and without it.
    weight : array of shape (n,), optional
    """
    Y = np.asarray(Y, dtype=np.float64)
    w = np.ones(len(Y)) if weight is None else weight
    share = w @ Y / w.sum()
    return np.asarray((Y - share) / np.sqrt(share))


ALONE = 1.0 - 1e-9  # leverage of a sample whose covariate no other sample has


# --- criteria -------------------------------------------------------------------------


def rkda(
    bank: KernelBank,
    H: FloatArray,
    reg: float,
    weights: WeightSet | None = None,
    weight: FloatArray | None = None,
) -> MKLProblem:
    """Return the problem of DKL (11), (33) for a given reg.

    Its optimal A is ``(G_theta + lam I)^-1 H`` and its value ``F / (2 lam)``.

    Parameters
    ----------
    bank : KernelBank
        Centred kernels of unit trace.
    H : array of shape (n, T)
        Centred targets.
    reg : float
        The regularisation parameter lam.
    weights : WeightSet, optional
        The simplex by default.
    weight : array of shape (n,), optional
        Sample weights.
    """
    w = np.ones(len(H)) if weight is None else weight
    cost = np.repeat(w[:, None] / reg, H.shape[1], axis=1)
    # kernels and targets are centred, so the optimal bias is zero
    return MKLProblem(bank, Squared(H, cost, False), weights or LpBall(1.0))


def rkda_joint(
    bank: KernelBank,
    H: FloatArray,
    weights: WeightSet | None = None,
    weight: FloatArray | None = None,
) -> MKLProblem:
    """Return the problem that also learns reg: DKL (41)-(47).

    The identity, scaled to unit trace, is the last kernel. The value of the problem is
    half of ``tr H'(sum_m theta_m G_m)^-1 H``. :func:`joint_reg` computes the lam of a
    solution.
    """
    w = np.ones(len(H)) if weight is None else weight
    total = float(w.sum())
    return rkda(bank.with_diagonal(1.0 / (total * w)), H, FLOOR / total, weights, w)


def joint_reg(theta: FloatArray, total: float) -> float:
    """Return lam in ``G + lam I`` from all weights and the total sample weight."""
    return float(theta[-1] + FLOOR) / total


@dataclass(frozen=True)
class Fisher:
    """Minus ``lam/2`` times the regularised Fisher discriminant ratio, as a loss.

    With ``a`` of DKL (3), classes of ``m_c`` samples and scores f,

        primal(f) = -a'f + sum_c var_c(f) / (2 lam),
        dual(A) = -lam/2 sum_i m_c(i) (A_i - a_i)^2,  sums of A over classes as of a,

    so that ``max_A dual(A) - ½ A'KA = -lam/2 F*``, with F* of KFDA (8); the
    substitution ``A = a - Jv`` shows this. There is no cancellation, however small lam
    is. The optimal A is ``lam`` times the coefficients (5).

    Parameters
    ----------
    labels : array of shape (n,) of 0 and 1
    lam : float
    weight : array of shape (n,)
        Sample weights.
    """

    labels: NDArray[np.intp]
    lam: float
    weight: FloatArray

    design: ClassVar[None] = None  # there is no place for covariates

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and tasks."""
        return len(self.labels), 1

    @property
    def hyperplane(self) -> bool:
        """Whether sums of A are prescribed: here, the sum over each class."""
        return True

    @property
    def members(self) -> FloatArray:
        """Indicators of the classes, shape (n, 2)."""
        return np.asarray(self.labels[:, None] == np.arange(2), dtype=np.float64)

    @property
    def share(self) -> FloatArray:
        """Share of each sample in the weight of its class, shape (n,)."""
        return np.asarray(self.weight / (self.weight @ self.members)[self.labels])

    @property
    def a(self) -> FloatArray:
        """Coefficients of the difference between the class means, shape (n, 1)."""
        return (np.where(self.labels == 1, 1.0, -1.0) * self.share)[:, None]

    @property
    def scatter_root(self) -> FloatArray:
        """Matrix J of KFDA (5), shape (n, n); JJ' gives the within-class scatter."""
        root = np.sqrt(self.share)
        return (
            np.diag(root)
            - (self.members * self.share[:, None]) @ (self.members * root[:, None]).T
        )

    @property
    def concavity(self) -> float:
        """Modulus of strong concavity of the dual term."""
        return self.lam / float(self.share.max())

    def _inner(self, F: FloatArray) -> FloatArray:
        """Return the scores minus the mean of their class."""
        means = self.members.T @ (self.share[:, None] * F)
        return F - means[self.labels]

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the variances over ``2 lam`` minus the distance of the means."""
        inner = self._inner(F)
        spread = float(self.share @ (inner[:, 0] ** 2))
        return spread / (2 * self.lam) - float(np.sum(self.a * F))

    def dual(self, A: FloatArray) -> float:
        """Return the quadratic term."""
        return -0.5 * self.lam * float((1.0 / self.share) @ (A - self.a)[:, 0] ** 2)

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return an upper bound on ``primal`` if scores are off by up to ``error``."""
        share, ahead = self.share[:, None], self.a * F
        inner, size = np.abs(self._inner(F)), np.abs(F)
        # the error of a mean is the mean of the errors, plus its own rounding
        slip = error + len(F) * UNIT * size
        slip = slip + (self.members.T @ (share * (slip + FEW * size)))[self.labels]
        spread = entries_sum(share * (inner + slip) ** 2) / (2 * self.lam)
        far = entries_sum(np.abs(self.a) * (error + pairwise(len(F)) * size))
        rounded = pairwise(len(F)) * spread
        return spread - entries_sum(ahead) + far + rounded

    def below(self, A: FloatArray) -> float:
        """Return a lower bound on ``dual`` at an exactly feasible point near A."""
        far = np.abs(A - self.a) + self.strain(A) + UNIT * (np.abs(A) + np.abs(self.a))
        total = entries_sum(far**2 / self.share[:, None])
        return -0.5 * self.lam * total * (1.0 + pairwise(len(A)))

    def strain(self, A: FloatArray) -> FloatArray:
        """Return the distance from ``A`` to an exactly feasible point."""
        inside = self.members * A
        off = np.abs(column_sums(inside - self.members * self.a))
        off = off + 2 * pairwise(len(A)) * (1.0 + column_sums(np.abs(inside)))
        return (self.share * off[self.labels])[:, None]

    def bias(self, F: FloatArray) -> FloatArray:
        """Return zero: the criterion does not depend on a bias."""
        return np.zeros(1)

    def repair(self, A: FloatArray) -> FloatArray:
        """Shift each class to its prescribed sum, in proportion to the shares."""
        off = self.members.T @ (A - self.a)
        return np.asarray(A - self.share[:, None] * off[self.labels])

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return ``lam m_c``."""
        return np.asarray(self.lam / self.share)[:, None]

    def system(self) -> System:
        """Return ``(K + lam diag(m_c)) A + E b = 0``, ``E'A = (-1, 1)``."""
        ridge = self.curvature(self.a)[:, 0]
        return System(
            ridge, np.zeros(self.shape), self.members, np.array([[-1.0], [1.0]])
        )

    def take(self, rows: Rows, factor: float) -> Fisher:
        """Return the loss on some samples."""
        return Fisher(self.labels[rows], self.lam / factor, self.weight[rows])


def kfda(
    bank: KernelBank,
    labels: NDArray[np.intp],
    reg: float,
    weights: WeightSet | None = None,
    weight: FloatArray | None = None,
) -> MKLProblem:
    """Return the problem of KFDA (8): two classes, scatter ``S+ + S-``."""
    w = np.ones(len(labels)) if weight is None else weight
    return MKLProblem(bank, Fisher(labels, reg, w), weights or LpBall(1.0))


def criterion(problem: MKLProblem, value: float, reg: float | None) -> float:
    """Return F of DKL (minimised) or F* of KFDA (maximised) from an objective value.

    For :func:`rkda_joint`, whose F has no factor lam, ``reg`` is None.
    """
    if isinstance(problem.loss, Fisher):
        return -2.0 * value / problem.loss.lam
    return 2.0 * value * (1.0 if reg is None else reg)


# --- projections ----------------------------------------------------------------------


class Projection(NamedTuple):
    """Map from least-squares scores to discriminant directions.

    ``rotation`` (k, q) maps the least-squares scores on the k targets to coordinates
    along q directions. ``ratio`` (q,), between 0 and 1, is the between-class share of
    the regularised total scatter along each direction.
    """

    rotation: FloatArray
    ratio: FloatArray


def projection(
    H: FloatArray, F: FloatArray, weight: FloatArray, rank: int
) -> Projection:
    """Return the directions that maximise DKL (23), from a k x k eigenproblem.

    With ``A = (G + lam I)^-1 H`` and ``F = G A``, the eigenvectors U and eigenvalues s
    of ``H'F`` give the coefficients ``A U s^(-1/2)``: along these the regularised total
    scatter ``W'(S + lam I)W`` is the identity and the scatter ``W'BW`` between classes
    is ``diag(s)``, whose trace is the optimum (25).

    Parameters
    ----------
    H, F : arrays of shape (n, k)
    weight : array of shape (n,)
    rank : int
        Largest possible number of directions.
    """
    S = H.T @ (weight[:, None] * F)
    values, U = np.linalg.eigh((S + S.T) / 2)
    order = np.argsort(values)[::-1][:rank]
    order = order[values[order] > 1e-10 * max(float(values[-1]), 0.0)]
    U = U[:, order]
    # the sign of an eigenvector is arbitrary: its largest entry is made positive
    U = U * np.sign(U[np.abs(U).argmax(axis=0), np.arange(len(order))])
    # s if all scatter were between the classes: n for (24), n / (m+ m-) for (3)
    most = np.linalg.eigvalsh(H.T @ (weight[:, None] * H))[-1]
    ratio = np.clip(values[order] / most, 0.0, 1.0)
    return Projection(U / np.sqrt(values[order]), ratio)


def within_scatter(
    Z: FloatArray, labels: NDArray[np.intp], weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the class means (k, q) and the within-class scatter (q, q)."""
    E = np.asarray(labels[:, None] == np.arange(labels.max() + 1), dtype=np.float64)
    means = (E * weight[:, None]).T @ Z / (weight @ E)[:, None]
    rest = Z - means[labels]
    return means, rest.T @ (weight[:, None] * rest)


def gaussian_rule(
    means: FloatArray, covariance: FloatArray, priors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients (k, q) and intercepts (k,) of the log-posteriors.

    Classes are normal with a common covariance: the rule of linear discriminant
    analysis. A constant that all classes share is omitted.
    """
    coef = np.asarray(np.linalg.lstsq(covariance, means.T, rcond=None)[0].T, float)
    return coef, np.log(priors) - 0.5 * np.sum(coef * means, axis=1)


# --- leaving samples out --------------------------------------------------------------


def least_squares(problem: MKLProblem, reg: float, weight: FloatArray) -> System:
    """Return the least-squares system with a free mean that has the same directions.

    For RKDA it is the problem itself (DKL, Lemmas 2.1 and 3.1); for KFDA the targets
    are -1 and 1 and both classes have equal total weight.
    """
    loss = problem.loss
    E = np.ones((loss.shape[0], 1))
    if isinstance(loss, Fisher):
        right = np.where(loss.labels == 1, 1.0, -1.0)[:, None]
        ridge = loss.system().ridge
    else:
        assert isinstance(loss, Squared)
        right, ridge = loss.Y, reg / weight
        E = E if loss.design is None else loss.design.basis
    return System(ridge, right, E, np.zeros((E.shape[1], right.shape[1])))


def left_out(H: FloatArray, A: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return the leave-one-out score of each sample, shape (n, T).

    Kernels and targets are kept; coefficients and mean are those of the other samples.
    Nothing is refitted: the residual without sample i is ``A_i / inverse_i``.

    Parameters
    ----------
    H : array of shape (n, T)
        Targets of the least-squares problem with a free mean.
    A : array of shape (n, T)
        Dual coefficients of its solution.
    inverse : array of shape (n,)
        Diagonal of ``Q - Q1 1'Q / 1'Q1``, where ``Q = (G + lam D^-1)^-1``.
    """
    return np.asarray(H - A / np.maximum(inverse, 1e-300)[:, None])


def press(H: FloatArray, out: FloatArray, weight: FloatArray) -> float:
    """Return the mean squared error of leave-one-out scores."""
    return float(weight @ np.sum((H - out) ** 2, axis=1) / weight.sum())


def gcv(
    A: FloatArray, inverse: FloatArray, ridge: FloatArray, weight: FloatArray
) -> float:
    """Return the generalised cross-validation score.

    This is the mean squared residual divided by the square of the proportion of
    residual degrees of freedom. Residuals are ``ridge A`` and leverages
    ``1 - ridge inverse``.
    """
    total = weight.sum()
    error = float(weight @ np.sum((ridge[:, None] * A) ** 2, axis=1)) / total
    left = 1.0 - float(np.sum(1.0 - ridge * inverse)) / total
    return error / max(left, 1e-150) ** 2


def temperature(scores: FloatArray, labels: NDArray[Any], w: FloatArray) -> float:
    """Return the factor of at most one that maximises the likelihood of the labels.

    The cost ``-sum_i w_i log softmax(t s_i)[y_i]`` is convex in the factor t, so it is
    enough to find the root of its derivative. Its values cannot be used: if every
    left-out score is right by a wide margin, they underflow to zero from some t on.
    """
    rows = np.arange(len(scores))
    size = float(np.abs(scores).max(initial=0.0))
    if not (np.isfinite(size) and size > 0):
        return 1.0
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    ahead = scores - scores[rows, labels.astype(np.intp)][:, None]

    def slope(log_factor: float) -> float:
        p = softmax(np.exp(log_factor) * ahead, axis=1)
        return float(w @ np.sum(p * ahead, axis=1))

    # between the probabilities as given and almost uniform ones
    least = min(np.log(1e-3 / size), -1.0)
    if slope(0.0) <= 0:
        return 1.0
    if slope(least) >= 0:
        return float(np.exp(least))
    return float(np.exp(brentq(slope, least, 0.0, xtol=1e-13)))


def left_out_rows(
    block: Block,
    scaling: Scaling,
    w: FloatArray,
    root: FloatArray,
    factor: FloatArray,
    B: FloatArray,
    target: FloatArray,
    total: float,
    beside: Beside,
    stride: int,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return targets, leave-one-out scores, indicators and weights of rows of a block.

    The leave-one-out residual of a row is its residual divided by one minus its
    leverage ``w_i (1/n + c_i'S_c^-1 c_i + z_i'(S + reg/theta)^-1 z_i)``, with centred
    covariates c, which have been regressed out of z.
    """
    Z, Y, weight = block.X[::stride], block.y[::stride], block.weight[::stride]
    D = len(scaling.root)
    C = Z[:, D:] - beside.mean
    Z = (Z[:, :D] - scaling.shift - C @ beside.along) * scaling.root
    H, F = (Y - target) @ B, Z @ w + C @ beside.effects
    used = root > 0
    half = solve_triangular(factor, (Z[:, used] * root[used]).T, lower=True)
    own = 1.0 / total + np.einsum("ij,ij->i", C @ beside.inverse, C)
    leverage = weight * (own + np.einsum("ij,ij->j", half, half))
    out = H - (H - F) / np.maximum(1.0 - leverage, 1e-12)[:, None]
    if C.shape[1]:
        out[weight * own > ALONE] = 0.0
    return H, out, Y, weight
