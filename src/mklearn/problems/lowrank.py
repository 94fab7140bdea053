"""Losses in feature space, over passes: what the rows of a block add to a problem.

The problem is that of :mod:`mklearn.problems.mkl` with kernels ``Z_m Z_m'``,

    min over w, b, theta   sum_i c_i V(z_i'w + b, y_i) + ½ sum_m |w_m|^2 / theta_m,

seen through functions of a block that return sums. One pass at a point (w, b) tells the
value, the gradient, the curvature, and the lower bound that the dual point
``a_i = -c_i V'(f_i)`` proves: its quadratic forms are ``|Z_m'a|^2``, and what it takes
to make the columns of a sum to zero follows from sums over its two signs.

The hinge and the epsilon-insensitive loss have kinks. They are rounded off, sample by
sample, around a dual variable ``a0`` that an earlier point implied (a multiplier):

    V_mu(f) = max over a of (dual term of a and f) - ½ mu (a - a0)^2.

The dual points of V_mu are feasible for V, so that every bound here is one of the
problem with its kinks, and where the multipliers are right there is no error at all,
whatever mu. Nothing is stored for the samples: the multipliers of a block follow from
the earlier points, the *anchors*, by the scores there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mklearn.data.blocks import Block, Blocks
from mklearn.kernels.normalise import Scaling
from mklearn.problems.base import Certificate, Iterate, Judgement, Kind
from mklearn.problems.losses import Pointwise
from mklearn.problems.pseudo_samples import by_kernel, feature_shares, squares
from mklearn.problems.scatter import Statistics
from mklearn.problems.weights import WeightSet

FloatArray = NDArray[np.float64]


# --- one pass -------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Weights (D, T) of raw features, and biases (T,)."""

    w: FloatArray
    bias: FloatArray

    def towards(self, other: Point, step: float) -> Point:
        """Return the point at ``step`` on the way from here to the other."""
        return Point(
            self.w + step * (other.w - self.w),
            self.bias + step * (other.bias - self.bias),
        )


@dataclass(frozen=True)
class Sums:
    """What a pass adds up.

    Attributes
    ----------
    value, smooth : arrays of shape (n_steps,)
        Losses at points on a line, as they are and rounded off.
    count : array of shape (2, T)
        Sums of the dual variables that are positive, and of the others.
    dual : array of shape (2, T)
        Sums of the dual terms of each sign.
    apart : float
        Sum of ``½ mu (a - a0)^2``: what multipliers that are not yet right cost.
    slope : array of shape (2, D, T)
        ``Z'a`` of each sign.
    curvature : tuple of Statistics
        Of the raw features, with ``c V''`` as weights, for each task; empty if they
        were not asked for.
    """

    value: FloatArray
    smooth: FloatArray
    count: FloatArray
    dual: FloatArray
    apart: float
    slope: FloatArray = field(repr=False)
    curvature: tuple[Statistics, ...] = field(repr=False)

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.value + other.value,
            self.smooth + other.smooth,
            self.count + other.count,
            self.dual + other.dual,
            self.apart + other.apart,
            self.slope + other.slope,
            tuple(a + b for a, b in zip(self.curvature, other.curvature, strict=True)),
        )


class Anchor(NamedTuple):
    """A point whose dual variables are multipliers, and the mu it was found with."""

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
    tasks: slice = slice(None),
) -> Sums:
    """Return what the rows of a block add, on the line between two points.

    Losses are taken at all ``steps`` from ``start`` to ``end``, slopes and curvatures
    at ``end``.

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
        How far kinks are rounded off.
    anchors : sequence of Anchor
        The points behind the multipliers, in their order; none for zeros.
    curved : bool
        Whether the curvature is asked for.
    tasks : slice
        The targets that are meant.
    """
    Z, Y, cost = block.X, block.y[:, tasks], C * block.weight[:, None]
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
    a = loss.slope(after, Y, mu, a0)
    apart = 0.5 * mu * np.sum(cost * (a - a0) ** 2) if loss.kinks else 0.0
    dual = cost * loss.dual(a, Y)
    positive = a > 0
    signs = (np.where(positive, cost * a, 0.0), np.where(positive, 0.0, cost * a))
    curvature: list[Statistics] = []
    if curved:
        for h in (cost * loss.bend(after, Y, mu, a0)).T:
            curvature.append(Statistics.of(Z, None, h))
    return Sums(
        value,
        smooth,
        np.stack([sign.sum(axis=0) for sign in signs]),
        np.stack(
            [np.where(side, dual, 0.0).sum(axis=0) for side in (positive, ~positive)]
        ),
        float(apart),
        np.stack([Z.T @ sign for sign in signs]),
        tuple(curvature),
    )


@dataclass(frozen=True)
class Passed:
    """What belongs to a point that was reached by passes.

    Attributes
    ----------
    w : array of shape (D, T)
        Weights of normalised features.
    bias : array of shape (T,)
    end, mu, anchors
        Where, and how far rounded off, the dual point was taken.
    upper, lower : float
        What a pass has found, NaN if none was made.
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
    """A kernel-learning problem whose samples are seen in passes only.

    Parameters
    ----------
    blocks : Blocks
        Raw features (n, D), targets (n, T), and weights.
    loss : Pointwise
    C : float
        Cost of a sample of weight one.
    weights : WeightSet
    slices : tuple of slice
        The columns of each kernel.
    scaling : Scaling
        Normalisation of the features; the problem is about normalised ones.
    statistics : Statistics
        Of all rows, with their weights and these targets: the curvature of a loss that
        bends equally everywhere.
    tasks : slice
        The targets that are meant.
    """

    blocks: Blocks
    loss: Pointwise
    C: float
    weights: WeightSet
    slices: tuple[slice, ...]
    scaling: Scaling
    statistics: Statistics
    tasks: slice = field(default_factory=lambda: slice(None))

    kind: ClassVar[Kind] = "features"

    @property
    def n_tasks(self) -> int:
        """Number of targets that share the kernel weights."""
        return len(self.statistics.target)

    def spread(self) -> float:
        """Return the standard deviation of the targets, all tasks together."""
        H = self.statistics
        return float(np.sqrt(np.trace(H.HH) / max(H.total * len(H.HH), 1e-300)))

    def center(self) -> FloatArray:
        """Return weights that treat all kernels alike."""
        return self.weights.center(len(self.slices))

    def first(self) -> Iterate:
        """Return the zero function."""
        w = np.zeros((len(self.scaling.root), self.n_tasks))
        bias = np.zeros(self.n_tasks)
        return self.point(self.center(), Passed(w, bias, self.raw(w, bias), 1.0))

    def point(self, theta: FloatArray, about: Passed) -> Iterate:
        """Return the weights of features as a point, ``w_m = theta_m A_m``."""
        by_feature = by_kernel(theta, self.slices)[:, None]
        zero = np.zeros_like(about.w)
        A = np.divide(about.w, by_feature, out=zero, where=by_feature > 0)
        return Iterate(theta, A, about=about)

    def judge(self, point: Iterate) -> Judgement:
        """Return the bounds that a pass has found; make one if there was none."""
        about: Passed = point.about
        if np.isnan(about.upper):
            return self.certify(point, point)
        return Judgement(about.upper, about.lower, about.bias)

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, by one more pass over all rows."""
        about, below = point.about, dual.about
        start = self.raw(about.w, about.bias)
        found = self.look(
            start, below.end, (0.0,), below.mu, below.anchors, curved=False
        )
        upper = float(found.value[0]) + self.regulariser(about.w, point.theta)
        lower, A = self.feasible(found)
        return Certificate(
            upper=upper,
            lower=lower,
            bias=about.bias,
            theta=point.theta,
            A=point.A,
            dual=A,
            weight_bounds=self.weight_bounds(A, upper, lower),
            about=replace(below, w=about.w, bias=about.bias, upper=upper, lower=lower),
        )

    def weight_bounds(self, A: FloatArray, upper: float, lower: float) -> FloatArray:
        """Return bounds that no optimal weights exceed, as for kernels."""
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
        """Return minus infinity: a dual point is known by the pass that found it."""
        return -np.inf

    def regulariser(self, w: FloatArray, theta: FloatArray) -> float:
        """Return ``½ sum_m |w_m|^2 / theta_m``, infinite where theta is zero only."""
        norms2 = squares(w, self.slices)
        used = theta > 0
        if norms2[~used].any():
            return np.inf
        q = np.zeros_like(norms2)
        q[used] = norms2[used] / theta[used] ** 2
        return self.weights.regulariser(theta, q)

    def raw(self, w: FloatArray, bias: FloatArray) -> Point:
        """Return the point of normalised weights and bias."""
        return Point(*self.scaling.raw(w, bias))

    def look(
        self,
        start: Point,
        end: Point,
        steps: Sequence[float],
        mu: float,
        anchors: Sequence[Anchor] = (),
        curved: bool = True,
    ) -> Sums:
        """Make one pass over the rows."""
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
            )
        )

    def feasible(self, found: Sums) -> tuple[float, FloatArray]:
        """Return the lower bound of a pass, and ``Z'a`` of its feasible dual point.

        A free bias wants the dual variables to sum to zero: the heavier sign shrinks. A
        concave term that is zero at zero shrinks by no more than its argument.
        """
        up, down = found.count[0], -found.count[1]
        least = np.minimum(up, down)
        share = np.stack(
            [
                np.divide(least, side, out=np.zeros_like(least), where=side > 0)
                for side in (up, down)
            ]
        )
        A = np.einsum("st,sdt->dt", share, found.slope)
        # the sums are zero, so that a shift of the features makes no difference
        A = self.scaling.root[:, None] * A
        q = squares(A, self.slices)
        bound = float(np.sum(share * found.dual)) - 0.5 * self.weights.support(q)
        return bound, A

    def gradient(self, found: Sums) -> tuple[FloatArray, FloatArray]:
        """Return ``Z'a`` of normalised features and ``1'a``, as they are."""
        count = found.count.sum(axis=0)
        slope = found.slope.sum(axis=0)
        centred = slope - np.multiply.outer(self.scaling.shift, count)
        return self.scaling.root[:, None] * centred, count

    def curvature(self, of: Statistics) -> tuple[FloatArray, FloatArray, float]:
        """Return scatter, mean and total of normalised features, from raw ones."""
        root = self.scaling.root
        scatter = root[:, None] * of.ZZ * root
        return scatter, root * (of.mean - self.scaling.shift), of.total
