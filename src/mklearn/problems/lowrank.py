"""Problems in feature space, solved in passes over blocks of rows.

The problem is that of :mod:`mklearn.problems.mkl` with kernels ``Z_m Z_m'``,

    min over w, b, theta   sum_i c_i V(z_i'w + b, y_i) + ½ sum_m |w_m|^2 / theta_m,

accessed only through sums over the rows of each block. One pass at a point (w, b)
computes the value, the gradient, the curvature, and the lower bound given by the dual
point ``a_i = -c_i V'(f_i)``: its quadratic forms are ``|Z_m'a|^2``, and the sums over
its positive and its negative entries determine how to rescale the two signs so that the
columns of a sum to zero. Covariates are the last columns of the rows, and their
coefficients are not penalised: with ``E = [1, C]``, entries are multiplied by
``1 - sign(a_i) e_i'x``, with x such that ``E'a = 0``, and by a common factor.

The hinge and the epsilon-insensitive loss have kinks. They are smoothed, for each
sample, around a dual variable ``a0`` of an earlier point (a multiplier):

    V_mu(f) = max over a of (dual term of a and f) - ½ mu (a - a0)^2.

The dual points of V_mu are feasible for V, so every bound here is valid for the problem
with its kinks; and if the multipliers are optimal, smoothing causes no error, whatever
mu is. Nothing is stored for the samples: the multipliers of a block are computed from
the scores at earlier points, the *anchors*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mklearn.data.blocks import Block, Blocks
from mklearn.kernels.normalise import Scaling
from mklearn.problems.base import (
    FEW,
    UNIT,
    Certificate,
    Iterate,
    Judgement,
    Kind,
    column_sums,
    entries_sum,
    pairwise,
)
from mklearn.problems.losses import Pointwise
from mklearn.problems.pseudo_samples import by_kernel, feature_shares, squares
from mklearn.problems.scatter import Statistics
from mklearn.problems.separation import separated, signs, step_apart
from mklearn.problems.weights import WeightSet, excess

FloatArray = NDArray[np.float64]


# --- one pass -------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Weights (D, T) of raw features, and biases (T,)."""

    w: FloatArray
    bias: FloatArray

    def towards(self, other: Point, step: float) -> Point:
        """Return the point at ``step`` on the line from here to the other."""
        return Point(
            self.w + step * (other.w - self.w),
            self.bias + step * (other.bias - self.bias),
        )


@dataclass(frozen=True)
class Sums:
    """Sums over the rows, computed in one pass.

    Attributes
    ----------
    value, smooth : arrays of shape (n_steps,)
        Losses at points on a line, without and with smoothing.
    count : array of shape (2, T)
        Sums of the positive dual variables, and of the others.
    dual : array of shape (2, T)
        Sums of the dual terms of each sign.
    apart : float
        Sum of ``½ mu (a - a0)^2``, the cost of multipliers that are not optimal yet.
    slope : array of shape (2, D, T)
        ``Z'a`` of each sign.
    curvature : tuple of Statistics
        Statistics of the raw features, with ``c V''`` as weights, for each task; empty
        if not requested.
    later : Sums or None
        The same except for the losses, with the dual variables at the end of the line
        as multipliers; None if not requested.
    leaning : Leaning, or the equivalent of another loss, or None
        With covariates, the sums that make the dual point orthogonal to them.
    """

    value: FloatArray
    smooth: FloatArray
    count: FloatArray
    dual: FloatArray
    apart: float
    slope: FloatArray = field(repr=False)
    curvature: tuple[Statistics, ...] = field(repr=False)
    rounded: Rounded | None = field(default=None, repr=False)
    later: Sums | None = field(default=None, repr=False)
    leaning: Any = field(default=None, repr=False)

    def __add__(self, other: Sums) -> Sums:
        later = None
        if self.later is not None and other.later is not None:
            later = self.later + other.later
        return Sums(
            self.value + other.value,
            self.smooth + other.smooth,
            self.count + other.count,
            self.dual + other.dual,
            self.apart + other.apart,
            self.slope + other.slope,
            tuple(a + b for a, b in zip(self.curvature, other.curvature, strict=True)),
            None if self.rounded is None else self.rounded + other.rounded,
            later,
            None if self.leaning is None else self.leaning + other.leaning,
        )


@dataclass(frozen=True)
class Leaning:
    """Sums with which a dual point is made orthogonal to ones and covariates.

    Attributes
    ----------
    cross : array of shape (D + k, 1 + k, T)
        ``X'diag(|a|)E`` of all columns X, ``E = [1, C]``.
    tilt : array of shape (1 + k, T)
        ``E'(sign(a) d)`` of the dual terms d.
    most : array of shape (1 + k,)
        The largest entries of E.
    """

    cross: FloatArray
    tilt: FloatArray
    most: FloatArray

    def __add__(self, other: Leaning | None) -> Leaning:
        assert other is not None
        return Leaning(
            self.cross + other.cross,
            self.tilt + other.tilt,
            np.maximum(self.most, other.most),
        )

    @classmethod
    def of(
        cls, X: FloatArray, free: int, a: FloatArray, dual: FloatArray
    ) -> Leaning | None:
        """Return the sums of some rows; a, dual (n, T) are dual variables and terms."""
        if not free:
            return None
        E = np.column_stack([np.ones(len(X)), X[:, -free:]])
        cross = [X.T @ (np.abs(column)[:, None] * E) for column in a.T]
        tilt = _tilted(X, free, a, dual)
        assert tilt is not None
        return cls(np.stack(cross, axis=2), tilt, np.abs(E).max(axis=0, initial=0.0))


class Turned(NamedTuple):
    """Factors ``(1 - t)(1 - sign(a_i) e_i'x)`` that make a dual point feasible.

    ``extra`` bounds the further decrease that rounding may require. All have shape
    (.., T).
    """

    x: FloatArray
    t: FloatArray
    extra: FloatArray


@dataclass(frozen=True)
class Rounded:
    """Sums for a certificate: bounds that hold despite rounding.

    Attributes
    ----------
    value : float
        Upper bound on the losses at the first of the steps.
    dual : array of shape (2, T)
        Lower bounds on the dual terms of each sign.
    size : array of shape (D, T)
        ``|Z|'|a|``, to which the error of ``Z'a`` is proportional.
    chain : int
        Maximum number of additions that a term takes part in.
    whole : array of shape (T,)
        Sum of the absolute dual terms.
    tilt : array of shape (1 + k, T) or None
        As in :class:`Leaning`, from the lower bounds on the dual terms.
    """

    value: float
    dual: FloatArray
    size: FloatArray
    chain: int
    whole: FloatArray
    tilt: FloatArray | None = None

    def __add__(self, other: Rounded | None) -> Rounded:
        assert other is not None
        tilt = None
        if self.tilt is not None and other.tilt is not None:
            tilt = self.tilt + other.tilt
        return Rounded(
            self.value + other.value,
            self.dual + other.dual,
            self.size + other.size,
            max(self.chain, other.chain) + 1,
            self.whole + other.whole,
            tilt,
        )

    @classmethod
    def of(
        cls,
        block: Block,
        loss: Pointwise,
        Y: FloatArray,
        cost: FloatArray,
        at: Point,
        slip: FloatArray,
        a: FloatArray,
        free: int = 0,
        every: FloatArray | None = None,
    ) -> Rounded:
        """Return the sums over the rows of a block.

        Parameters
        ----------
        block : Block
        loss : Pointwise
        Y, cost : arrays of shape (n, T), (n, 1) or (n, T)
        at : Point
            Where losses are evaluated.
        slip : array of shape (T,)
            Bound on the error of its bias.
        a : array of shape (n, T)
            Dual variables at unit cost.
        free : int
            Number of covariates, which are the last columns.
        every : array of shape (n, 1), optional
            Costs in the primal, if some samples are left out of the dual.
        """
        Z = block.X
        # on an interval, convex losses are maximal, concave terms minimal at an end
        f, size = Z @ at.w + at.bias, np.abs(Z)
        reach = (Z.shape[1] + 16) * UNIT * (size @ np.abs(at.w)) + slip
        reach += 16 * UNIT * (np.abs(f) + np.abs(at.bias) + np.abs(Y))
        value = np.maximum(loss.value(f - reach, Y), loss.value(f + reach, Y))
        ends = (np.clip(a * (1 + k * UNIT), *loss.domain(Y)) for k in (-16, 16))
        dual = cost * np.minimum(*(loss.dual(end, Y) for end in ends))
        sides = [np.where(side, dual, 0.0) for side in (a > 0, a <= 0)]
        rounding = pairwise(dual.size)
        return cls(
            entries_sum((cost if every is None else every) * value) * (1 + rounding),
            np.stack(
                [column_sums(s) - rounding * column_sums(np.abs(s)) for s in sides]
            ),
            size.T @ np.abs(cost * a),
            len(Z),
            column_sums(np.abs(dual)),
            _tilted(Z, free, a, dual),
        )


def _tilted(
    X: FloatArray, free: int, a: FloatArray, dual: FloatArray
) -> FloatArray | None:
    """Return ``E'(sign(a) d)``, None without covariates."""
    if not free:
        return None
    signed = np.sign(a) * dual
    return np.vstack([signed.sum(axis=0), X[:, -free:].T @ signed])


class Anchor(NamedTuple):
    """A point whose dual variables are used as multipliers, and its mu."""

    point: Point
    mu: float


def sums(
    block: Block,
    loss: Pointwise,
    C: float,
    start: Point,
    end: Point,
    steps: Sequence[float],
    mu: float,
    anchors: Sequence[Anchor],
    curved: bool,
    tasks: slice | NDArray[np.intp] = slice(None),
    slip: FloatArray | None = None,
    ahead: float | None = None,
    free: int = 0,
    apart: FloatArray | None = None,
) -> Sums:
    """Return the sums over the rows of a block, on the line between two points.

    Losses are evaluated at all ``steps`` from ``start`` to ``end``, gradients and
    curvatures at ``end``.

    Parameters
    ----------
    block : Block
        Raw features (n, D), targets (n, T), and weights.
    loss : Pointwise
    C : float
        Cost of a sample of weight one.
    start, end : Point
    steps : sequence of float
    mu : float
        Smoothing parameter.
    anchors : sequence of Anchor
        The points that define the multipliers, in order; if empty, these are zero.
    curved : bool
        Whether to compute the curvature.
    tasks : slice or array of int
        The targets to use.
    slip : array of shape (T,), optional
        For a certificate: bound on the error of the bias of ``start``.
    ahead : float, optional
        If given, sums are also computed with the dual variables at ``end`` as
        multipliers and this smoothing parameter.
    free : int
        Number of covariates, which are the last columns.
    apart : array of shape (1 + k, T), optional
        Effects that separate samples, which are left out; only ``rounded.value``
        includes them.
    """
    Z, Y, cost = block.X, block.y[:, tasks], C * block.weight[:, None]
    every = cost
    if apart is not None:
        cost = np.where(separated(Z[:, -free:], signs(loss, Y), apart)[0], 0.0, cost)
    points = [start, end, *(anchor.point for anchor in anchors)]
    scores = Z @ np.hstack([point.w for point in points])
    before, after, *earlier = (
        f + point.bias
        for f, point in zip(np.split(scores, len(points), axis=1), points, strict=True)
    )
    a0 = np.zeros_like(after)
    for f, anchor in zip(earlier, anchors, strict=True):
        a0 = loss.slope(f, Y, anchor.mu, a0)
    value, smooth = np.zeros(len(steps)), np.zeros(len(steps))
    for k, step in enumerate(steps):
        f = before + step * (after - before)
        value[k] = np.sum(cost * loss.value(f, Y))
        smooth[k] = value[k]
        if loss.kinks:
            a = loss.slope(f, Y, mu, a0)
            best = loss.dual(a, Y) - a * f - 0.5 * mu * (a - a0) ** 2
            smooth[k] = np.sum(cost * best)
    found = _at_end(Z, Y, cost, loss, after, mu, a0, curved, free)
    a = loss.slope(after, Y, mu, a0)
    later = rounded = None
    if ahead is not None:
        later = _at_end(Z, Y, cost, loss, after, ahead, a, curved, free)
    if slip is not None:
        rounded = Rounded.of(block, loss, Y, cost, start, slip, a, free, every)
    return replace(found, value=value, smooth=smooth, rounded=rounded, later=later)


def lacking(
    block: Block,
    loss: Pointwise,
    at: Point,
    apart: FloatArray,
    tasks: slice | NDArray[np.intp] = slice(None),
) -> FloatArray:
    """Return the least step along effects that makes losses of a block zero, (T,).

    Parameters
    ----------
    block : Block
    loss : Pointwise
    at : Point
    apart : array of shape (1 + k, T)
        Effects that separate samples; the losses of others do not change.
    tasks : slice or array of int
        The targets to use.
    """
    Z, Y = block.X, block.y[:, tasks]
    sign, enough = signs(loss, Y), loss.content(Y)
    assert enough is not None
    return step_apart(Z[:, 1 - len(apart) :], Z @ at.w + at.bias, sign, enough, apart)


def _at_end(
    Z: FloatArray,
    Y: FloatArray,
    cost: FloatArray,
    loss: Pointwise,
    f: FloatArray,
    mu: float,
    a0: FloatArray,
    curved: bool,
    free: int = 0,
) -> Sums:
    """Return the sums at the scores f of some rows, without the losses on a line."""
    a = loss.slope(f, Y, mu, a0)
    apart = 0.5 * mu * np.sum(cost * (a - a0) ** 2) if loss.kinks else 0.0
    dual = cost * loss.dual(a, Y)
    positive = a > 0
    signs = (np.where(positive, cost * a, 0.0), np.where(positive, 0.0, cost * a))
    curvature: list[Statistics] = []
    if curved:
        for h in (cost * loss.bend(f, Y, mu, a0)).T:
            curvature.append(Statistics.of(Z, None, h))
    return Sums(
        np.zeros(1),
        np.zeros(1),
        np.stack([sign.sum(axis=0) for sign in signs]),
        np.stack(
            [np.where(side, dual, 0.0).sum(axis=0) for side in (positive, ~positive)]
        ),
        float(apart),
        np.stack([Z.T @ sign for sign in signs]),
        tuple(curvature),
        leaning=Leaning.of(Z, free, cost * a, dual),
    )


@dataclass(frozen=True)
class Passed:
    """Further parts of a point that was computed in passes.

    Attributes
    ----------
    w : array of shape (D, T)
        Weights of normalised features.
    bias : array of shape (T,), or (1 + k, T) with covariates
    end, mu, anchors
        The point, smoothing and multipliers that define the dual point.
    upper, lower : float
        Bounds computed in a pass, NaN if there was none.
    """

    w: FloatArray
    bias: FloatArray
    end: Point
    mu: float
    anchors: tuple[Anchor, ...] = ()
    upper: float = np.nan
    lower: float = np.nan


@dataclass(frozen=True)
class FeatureProblem:
    """A kernel-learning problem whose samples are read only in passes.

    Parameters
    ----------
    blocks : Blocks
        Raw features (n, D), targets (n, T), and weights; covariates are k more columns.
    loss : Pointwise
    C : float
        Cost of a sample of weight one.
    weights : WeightSet
    slices : tuple of slice
        The columns of each kernel.
    scaling : Scaling
        Normalisation of the features; the problem is about normalised ones.
    statistics : Statistics
        Statistics of all rows, with their weights and these targets: the curvature of a
        loss with constant second derivative.
    tasks : slice or array of int
        The targets to use.
    free : int
        The number k of covariates.
    apart : array of shape (1 + k, T), optional
        Effects that separate samples (:mod:`mklearn.problems.separation`). Passes leave
        these samples out; the effects of the certified point make their losses zero.
    """

    blocks: Blocks
    loss: Pointwise
    C: float
    weights: WeightSet
    slices: tuple[slice, ...]
    scaling: Scaling
    statistics: Statistics
    tasks: slice | NDArray[np.intp] = field(default_factory=lambda: slice(None))
    free: int = field(default=0, kw_only=True)
    apart: FloatArray | None = field(default=None, kw_only=True, repr=False)

    kind: ClassVar[Kind] = "features"

    @property
    def n_tasks(self) -> int:
        """Number of targets that share the kernel weights."""
        return len(self.statistics.target)

    @property
    def n_features(self) -> int:
        """Number of features D, without covariates."""
        return len(self.scaling.root)

    def no_bias(self) -> FloatArray:
        """Return a zero bias; with covariates, zero effects."""
        T = self.n_tasks
        return np.zeros((1 + self.free, T)) if self.free else np.zeros(T)

    def spread(self) -> float:
        """Return the standard deviation of the targets, pooled over tasks."""
        H = self.statistics
        return float(np.sqrt(np.trace(H.HH) / max(H.total * len(H.HH), 1e-300)))

    def center(self) -> FloatArray:
        """Return equal weights."""
        return self.weights.center(len(self.slices))

    def first(self) -> Iterate:
        """Return the zero function."""
        w = np.zeros((self.n_features, self.n_tasks))
        bias = self.no_bias()
        return self.point(self.center(), Passed(w, bias, self.raw(w, bias), 1.0))

    def point(self, theta: FloatArray, about: Passed) -> Iterate:
        """Return the weights of features as a point, ``w_m = theta_m A_m``."""
        by_feature = by_kernel(theta, self.slices)[:, None]
        zero = np.zeros_like(about.w)
        A = np.divide(about.w, by_feature, out=zero, where=by_feature > 0)
        return Iterate(theta, A, about=about)

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds of the pass that made the point, or else of a new pass."""
        about: Passed = point.about
        if np.isnan(about.upper):
            return self.certify(point, point)
        return Judgement(about.upper, about.lower, about.bias)

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, recomputed in a pass over all rows."""
        about, below = point.about, dual.about
        bias = self._moved_apart(about.w, about.bias)
        start = self.raw(about.w, bias)
        D = len(start.w)
        slip = self.slips(start, bias)
        found = self.look(
            start,
            below.end,
            (0.0,),
            below.mu,
            below.anchors,
            curved=False,
            slip=(D + 16) * UNIT * slip,
        )
        penalty = self.regulariser(about.w, point.theta)
        plain = float(found.value[0]) + penalty
        assert found.rounded is not None
        upper = found.rounded.value * (1 + found.rounded.chain * UNIT)
        upper += penalty * (excess(self.weights, point.theta) + about.w.size * UNIT)
        upper *= 1 + FEW
        bound, A = self.feasible(found)
        lower = self.lowest(found, A)
        return Certificate(
            upper=upper,
            lower=lower,
            error=upper - plain + bound - lower,
            bias=bias,
            theta=point.theta,
            A=point.A,
            dual=A,
            weight_bounds=self.weight_bounds(A, upper, lower),
            about=replace(below, w=about.w, bias=bias, upper=upper, lower=lower),
        )

    def _moved_apart(self, w: FloatArray, bias: FloatArray) -> FloatArray:
        """Return effects with which the losses of separated samples just vanish."""
        if self.apart is None:
            return bias
        least = partial(
            lacking,
            loss=self.loss,
            at=self.raw(w, bias),
            apart=self.apart,
            tasks=self.tasks,
        )
        step = np.max(self.blocks.map(least), axis=0)
        return bias + self.apart * np.where(np.isfinite(step), step, 0.0)

    def slips(self, start: Point, bias: FloatArray) -> FloatArray:
        """Return the scale of the rounding error in the bias of a raw point."""
        bias = bias[0] if self.free else bias
        part = np.abs(self.scaling.shift) @ np.abs(start.w[: self.n_features])
        return np.asarray(part + np.abs(bias))

    def weight_bounds(self, A: FloatArray, upper: float, lower: float) -> FloatArray:
        """Return upper bounds on all optimal weights, as for kernels."""
        q = squares(A, self.slices)
        bounds = np.ones(len(q))
        if self.weights.sparse:
            gap, short = max(upper - lower, 0.0), q.max() - q
            below = short > 2 * gap
            bounds[below] = 2 * gap / short[below]
        return bounds

    def contributions(self, theta: FloatArray, A: FloatArray) -> FloatArray:
        """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (M,)."""
        return feature_shares(theta, A, self.slices)

    def dual(self, A: FloatArray) -> float:
        """Return minus infinity: dual points are bounded only in passes."""
        return -np.inf

    def regulariser(self, w: FloatArray, theta: FloatArray) -> float:
        """Return ``½ sum_m |w_m|^2 / theta_m``.

        It is infinite if ``theta_m`` is zero but ``w_m`` is not.
        """
        norms2 = squares(w, self.slices)
        used = theta > 0
        if norms2[~used].any():
            return np.inf
        q = np.zeros_like(norms2)
        q[used] = norms2[used] / theta[used] ** 2
        return self.weights.regulariser(theta, q)

    def settled(self, w: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the point with the smallest regulariser among those of equal loss."""
        return w, bias

    def raw(self, w: FloatArray, bias: FloatArray) -> Point:
        """Return the point of normalised weights and bias."""
        if not self.free:
            return Point(*self.scaling.raw(w, bias))
        raw, constant = self.scaling.raw(w, bias[0])
        return Point(np.vstack([raw, bias[1:]]), constant)

    def look(
        self,
        start: Point,
        end: Point,
        steps: Sequence[float],
        mu: float,
        anchors: Sequence[Anchor] = (),
        curved: bool = True,
        slip: FloatArray | None = None,
        ahead: float | None = None,
    ) -> Sums:
        """Make one pass over the rows; see :func:`sums`."""
        return self.blocks.reduce(
            partial(
                sums,
                loss=self.loss,
                C=self.C,
                start=start,
                end=end,
                steps=tuple(steps),
                mu=mu,
                anchors=tuple(anchors),
                curved=curved,
                tasks=self.tasks,
                slip=slip,
                ahead=ahead,
                free=self.free,
                apart=self.apart,
            )
        )

    def feasible(self, found: Sums) -> tuple[float, FloatArray]:
        """Return the lower bound of a pass, and ``Z'a`` of its feasible dual point.

        With a free bias the dual variables must sum to zero: the sign with the larger
        sum is scaled down. A concave term that is zero at zero decreases at most in
        proportion to its argument. The same holds with covariates, where each entry has
        its own factor.
        """
        if found.leaning is not None:
            turned = self._turned(found, found.leaning)
            A = self._along(found, found.leaning, turned)
            value = found.dual.sum(axis=0) - np.sum(turned.x * found.leaning.tilt, 0)
            q = squares(A, self.slices)
            bound = float(np.sum((1.0 - turned.t) * value))
            return bound - 0.5 * self.weights.support(q), A
        share = self._kept(found)
        A = np.einsum("st,sdt->dt", share, found.slope)
        # the columns of a sum to zero, so the centring of features cancels
        A = self.scaling.root[:, None] * A
        q = squares(A, self.slices)
        bound = float(np.sum(share * found.dual)) - 0.5 * self.weights.support(q)
        return bound, A

    def _turned(self, found: Sums, leaning: Leaning, unit: float = 0.0) -> Turned:
        """Return the factors that make the dual point orthogonal to the covariates.

        Directions in which it cannot move contain only rounding errors.
        """
        D, T = self.n_features, found.count.shape[1]
        off = np.vstack([found.count.sum(axis=0), found.slope.sum(axis=0)[D:]])
        ones = found.slope[0, D:] - found.slope[1, D:]
        x, t, extra = np.zeros_like(off), np.zeros(T), np.zeros(T)
        for j in range(T):
            total = float(found.count[0, j] - found.count[1, j])
            if total <= 0:
                continue
            W = np.vstack([np.append(total, ones[:, j]), leaning.cross[D:, :, j]])
            values, vectors = np.linalg.eigh((W + W.T) / 2)
            kept = values > 1e-12 * values[-1]
            V, values = vectors[:, kept], values[kept]
            x[:, j] = V @ ((V.T @ off[:, j]) / values)
            t[j] = min(1.0, float(np.abs(x[:, j]) @ leaning.most) * (1 + 1e-9))
            if unit:
                size = np.append(total, found.rounded.size[D:, j])  # type: ignore[union-attr]
                reach = np.abs(V) @ ((np.abs(V).T @ (4 * unit * size)) / values)
                extra[j] = float(reach @ leaning.most)
        return Turned(x, t, extra)

    def _along(self, found: Sums, leaning: Leaning, turned: Turned) -> FloatArray:
        """Return ``Z'a`` of normalised features at the feasible dual point."""
        D = self.n_features
        back = np.einsum("djt,jt->dt", leaning.cross[:D], turned.x)
        # the columns of a sum to zero, so the centring of features cancels
        A = (1.0 - turned.t) * (found.slope.sum(axis=0)[:D] - back)
        return np.asarray(self.scaling.root[:, None] * A)

    def _kept(self, found: Sums) -> FloatArray:
        """Return the factors of both signs that make columns sum to zero, (2, T)."""
        up, down = found.count[0], -found.count[1]
        least = np.minimum(up, down)
        sides = (
            np.divide(least, side, out=np.zeros_like(least), where=side > 0)
            for side in (up, down)
        )
        return np.stack(list(sides))

    def lowest(self, found: Sums, A: FloatArray) -> float:
        """Return the bound of :meth:`feasible`, rounded outward.

        The distance to an exactly feasible point is bounded by the error of the sums.
        """
        rounded = found.rounded
        assert rounded is not None
        unit = (rounded.chain + 32) * UNIT
        strain = np.full(A.shape[1], 4 * unit)
        if found.leaning is None:
            terms = self._kept(found) * rounded.dual
            value = float(np.sum(terms)) - 4 * unit * float(np.sum(np.abs(terms)))
        else:
            turned = self._turned(found, found.leaning, unit)
            assert rounded.tilt is not None
            terms = rounded.dual.sum(axis=0) - np.sum(turned.x * rounded.tilt, axis=0)
            strain = strain + 2 * turned.extra
            value = float(np.sum((1.0 - turned.t) * terms))
            value -= float(strain @ (rounded.whole * (1.0 + turned.t)))
        size = self.scaling.root[:, None] * rounded.size[: self.n_features]
        off = squares(strain * size, self.slices)
        most = (np.sqrt(squares(A, self.slices) * (1 + A.size * UNIT)) + off**0.5) ** 2
        value -= 0.5 * self.weights.support(most) * (1 + FEW)
        return value - FEW * abs(value)

    def gradient(self, found: Sums) -> tuple[FloatArray, FloatArray]:
        """Return ``Z'a`` of normalised features and ``[1, C]'a``, without rescaling."""
        D, count = self.n_features, found.count.sum(axis=0)
        slope = found.slope.sum(axis=0)
        centred = slope[:D] - np.multiply.outer(self.scaling.shift, count)
        return self.scaling.root[:, None] * centred, np.vstack([count, slope[D:]])

    def curvature(self, of: Statistics) -> Curved:
        """Return the curvature in normalised features, from statistics of raw ones."""
        root = self.scaling.root
        rest, beside = of.apart(self.free)
        return Curved(
            root[:, None] * rest.ZZ * root,
            np.column_stack(
                [root * (rest.mean - self.scaling.shift), (beside.along * root).T]
            ),
            max(of.total, 1e-300),
            beside.inverse,
            beside.mean,
        )


class Curved(NamedTuple):
    """Hessian of a loss in the features and in the unpenalised coefficients.

    In the columns ``e = [1, c - middle]`` it is block diagonal.

    Attributes
    ----------
    scatter : array of shape (D, D)
        Schur complement of the features, after minimising over the unpenalised
        coefficients.
    along : array of shape (D, 1 + k)
        Coefficients of the features on e.
    total : float
        Block of the constant.
    inverse : array of shape (k, k)
        Inverse of the block of the covariates.
    middle : array of shape (k,)
        Weighted means of the covariates.
    """

    scatter: FloatArray
    along: FloatArray
    total: float
    inverse: FloatArray
    middle: FloatArray

    def centred(self, count: FloatArray) -> FloatArray:
        """Return the gradient in e from that in ones and covariates, (1 + k,)."""
        return np.append(count[0], count[1:] - self.middle * count[0])

    def free(self, slope: FloatArray) -> FloatArray:
        """Return the Newton step of the unpenalised coefficients of e, (1 + k,)."""
        return np.append(slope[0] / self.total, self.inverse @ slope[1:])

    def own(self, step: FloatArray) -> FloatArray:
        """Return coefficients of ones and covariates from those of e."""
        return np.append(step[0] - self.middle @ step[1:], step[1:])
