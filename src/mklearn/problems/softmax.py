"""The softmax loss in feature space: all classes of a sample at once, over passes.

The problem is that of :mod:`mklearn.problems.lowrank` for the loss
``log(sum_c exp(f_c)) - f_y``, which couples the classes of a sample but no samples. At
a point a pass finds distributions p over the classes, ``a = c ([c = y] - p)``, and adds
up their entropies, ``Z'a``, and how much of all p each class has.

With free biases a dual point is feasible if each class has as much of all p as it has
samples, ``sum_i c_i p_ic = n_c``. What is missing is mixed in: one distribution q for
all samples, ``(1 - t) p_i + t q``, with the smallest t that will do. ``Z'a`` is linear
in p, and entropy is concave, so that the bound of the mixture follows from the sums of
the same pass.

Curvature couples the classes: ``c (diag(p) - p p')``. Since ``(x_c - x_d)^2`` is at
most ``2 x_c^2 + 2 x_d^2``, it is nowhere above ``2 c p_c (1 - p_c)`` for each class by
itself, and steps by that are never too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import xlogy

from mklearn.data.blocks import Block
from mklearn.problems.base import FEW, UNIT, column_sums, entries_sum, pairwise
from mklearn.problems.lowrank import (
    Anchor,
    FeatureProblem,
    FloatArray,
    Point,
    Rounded,
    Sums,
)
from mklearn.problems.pseudo_samples import squares
from mklearn.problems.scatter import Statistics


def softmax_sums(
    block: Block,
    C: float,
    start: Point,
    end: Point,
    steps: Sequence[float],
    curved: bool,
    slip: FloatArray | None = None,
) -> Sums:
    """Return what the rows of a block add, on the line between two points.

    Parameters
    ----------
    block : Block
        Raw features (n, D), targets -1 and 1 (n, T), and weights.
    C, start, end, steps, curved, slip
        As in :func:`~mklearn.problems.lowrank.sums`.

    Returns
    -------
    Sums
        With ``a`` as it is, and entropies, in the first of the two signs.
    """
    Z, own, cost = block.X, block.y > 0, C * block.weight[:, None]
    T = own.shape[1]
    both = Z @ np.hstack([start.w, end.w])
    before, after = both[:, :T] + start.bias, both[:, T:] + end.bias
    value = np.array(
        [cost[:, 0] @ _losses(before + s * (after - before), own) for s in steps]
    )
    p = _probabilities(after)
    a = cost * (own - p)
    entropy = -cost * xlogy(p, p)
    curvature: tuple[Statistics, ...] = ()
    if curved:
        bends = (2.0 * cost * p * (1.0 - p)).T
        curvature = tuple(Statistics.of(Z, None, bend) for bend in bends)
    rounded = None
    if slip is not None:
        rounded = _rounded(block, own, cost, start, slip, a, entropy)
    none = np.zeros(T)
    slope = Z.T @ a
    return Sums(
        value,
        value,
        np.stack([a.sum(axis=0), none]),
        np.stack([entropy.sum(axis=0), none]),
        0.0,
        np.stack([slope, np.zeros_like(slope)]),
        curvature,
        rounded,
    )


def _losses(f: FloatArray, own: FloatArray) -> FloatArray:
    """Return ``log(sum_c exp(f_c)) - f_y`` of each sample, shape (n,)."""
    top = f.max(axis=1)
    total = np.exp(f - top[:, None]).sum(axis=1)
    return np.asarray(np.log(total) + top - f[own])


def _probabilities(f: FloatArray) -> FloatArray:
    p = np.exp(f - f.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def _rounded(
    block: Block,
    own: FloatArray,
    cost: FloatArray,
    at: Point,
    slip: FloatArray,
    a: FloatArray,
    entropy: FloatArray,
) -> Rounded:
    """Return bounds of what the rows of a block add that rounding does not break."""
    Z, T = block.X, own.shape[1]
    f, size = Z @ at.w + at.bias, np.abs(block.X)
    reach = (Z.shape[1] + 16) * UNIT * (size @ np.abs(at.w)) + slip
    reach += 16 * UNIT * (np.abs(f) + np.abs(at.bias))
    # slopes of a sample sum to two at most in size
    off = 2.0 * reach.max(axis=1)
    off += (4 * T + 32) * UNIT * (np.abs(f).max(axis=1) + np.log(T) + 1.0)
    value = cost[:, 0] * (np.maximum(_losses(f, own), 0.0) + off)
    # shares are known to some units, which move p log p by 40 times as much
    least = column_sums(entropy) * (1.0 - pairwise(entropy.size))
    least = least - 400 * UNIT * entries_sum(cost)
    return Rounded(
        entries_sum(value) * (1.0 + pairwise(len(Z))),
        np.stack([least, np.zeros(T)]),
        size.T @ np.abs(a),
        len(Z),
        column_sums(np.abs(entropy)),
    )


@dataclass(frozen=True)
class SoftmaxProblem(FeatureProblem):
    """A kernel-learning problem of features whose loss couples the classes.

    Parameters
    ----------
    blocks : Blocks
        As in :class:`FeatureProblem`, with targets -1 and 1, one 1 in each row.
    loss : Softmax
    C, weights, slices, scaling, statistics, tasks
        As in :class:`FeatureProblem`; ``tasks`` are all targets.
    """

    loss: Any

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
        """Make one pass over the rows."""
        return self.blocks.reduce(
            partial(
                softmax_sums,
                C=self.C,
                start=start,
                end=end,
                steps=tuple(steps),
                curved=curved,
                slip=slip,
            )
        )

    def settled(self, w: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the point whose classes sum to zero: what all have makes no odds."""
        return w - w.mean(axis=1, keepdims=True), bias - bias.mean()

    @property
    def _counts(self) -> FloatArray:
        """Total cost of each class, shape (T,)."""
        H = self.statistics
        return self.C * H.total * (H.target + 1.0) / 2.0

    def _mixture(self, short: FloatArray, slack: float = 0.0) -> tuple[float, float]:
        """Return the part t that is mixed in, and the entropy of what is.

        Parameters
        ----------
        short : array of shape (T,)
            What classes lack of the distributions.
        slack : float
            How far these numbers may be off.
        """
        counts, total = self._counts, self.C * self.statistics.total
        most = max(float(((slack - short) / counts).max()), 0.0)
        t = most / (1.0 + most)
        if t == 0.0:
            return 0.0, 0.0
        q = np.maximum(t * counts + (1.0 - t) * short, 0.0)
        q = q / q.sum() if q.any() else counts / total
        return t, float(-xlogy(q, q).sum())

    def feasible(self, found: Sums) -> tuple[float, FloatArray]:
        """Return the lower bound of a pass, and ``Z'a`` of its feasible dual point."""
        H, short = self.statistics, found.count[0]
        t, entropy = self._mixture(short)
        # around the means of the features, for the sums of a are zero in the end
        centred = found.slope[0] - np.multiply.outer(H.mean, short)
        A = (1.0 - t) * centred + t * self.C * H.ZH / 2.0
        A = self.scaling.root[:, None] * A
        bound = (1.0 - t) * float(found.dual[0].sum()) + t * self.C * H.total * entropy
        return bound - 0.5 * self.weights.support(squares(A, self.slices)), A

    def lowest(self, found: Sums, A: FloatArray) -> float:
        """Return the bound of :meth:`feasible`, rounded outward.

        Sums are exact up to their size; what they may lack is mixed in, too, and counts
        as an error of ``Z'a``, which a mixture moves by no more than all features.
        """
        rounded, H = found.rounded, self.statistics
        assert rounded is not None
        unit = (rounded.chain + 32) * UNIT
        total = self.C * H.total
        t, entropy = self._mixture(found.count[0])
        more, _ = self._mixture(found.count[0], 8 * unit * total)
        value = (1.0 - more) * float(rounded.dual[0].sum()) * (1.0 - 4 * unit)
        value += t * total * entropy * (1.0 - 8 * unit)
        reach = self.C * np.sqrt(np.diagonal(H.ZZ) * H.total)[:, None]
        size = rounded.size + np.multiply.outer(
            np.abs(H.mean), np.full(A.shape[1], total)
        )
        off = self.scaling.root[:, None] * (
            4 * unit * size + (2 * (more - t) + 8 * unit * t) * reach
        )
        most = squares(A, self.slices) * (1 + A.size * UNIT)
        most = (np.sqrt(most) + np.sqrt(squares(off, self.slices))) ** 2
        value -= 0.5 * self.weights.support(most) * (1 + FEW)
        return value - FEW * abs(value)
