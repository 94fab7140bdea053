"""The softmax loss in feature space, for all classes jointly, in passes over the rows.

The problem is that of :mod:`mklearn.problems.lowrank` with the loss
``log(sum_c exp(f_c)) - f_y``, which couples the classes of a sample but not the
samples. At a point, a pass computes the class probabilities p,
``a = c ([c = y] - p)``, and sums of their entropies, of ``Z'a``, and of p for each
class.

With free biases a dual point is feasible if the probabilities of each class sum to its
total cost, ``sum_i c_i p_ic = n_c``. To make it feasible, a distribution q that is the
same for all samples is mixed in, ``(1 - t) p_i + t q``, with the smallest possible t.
``Z'a`` is linear in p, and entropy is concave, so the bound of the mixture follows from
the sums of the same pass. With covariates, classes exchange mass as described in
:class:`~mklearn.problems.design.Exchange`, until ``[1, C]'a = 0``.

The Hessian couples the classes: ``c (diag(p) - p p')``. Since ``(x_c - x_d)^2`` is at
most ``2 x_c^2 + 2 x_d^2``, it is bounded by the diagonal ``2 c p_c (1 - p_c)``, a
majorant whose steps are never too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
    free: int = 0,
) -> Sums:
    """Return the sums over the rows of a block, on the line between two points.

    Parameters
    ----------
    block : Block
        Raw features (n, D), targets -1 and 1 (n, T), and weights.
    C, start, end, steps, curved, slip, free
        As in :func:`~mklearn.problems.lowrank.sums`.

    Returns
    -------
    Sums
        The sums of ``a`` and of entropies are in the first of the two signs.
    """
    Z, own, cost = block.X, block.y > 0, C * block.weight[:, None]
    T = own.shape[1]
    both = Z @ np.hstack([start.w, end.w])
    before, after = both[:, :T] + start.bias, both[:, T:] + end.bias
    value = np.array(
        [cost[:, 0] @ _losses(before + s * (after - before), own) for s in steps]
    )
    p = _probabilities(after)
    rivals = cost * np.where(own, 0.0, p)
    a = np.where(own, rivals.sum(axis=1, keepdims=True), -rivals)
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
        leaning=_Exchanged.of(Z, free, own, rivals, entropy) if free else None,
    )


@dataclass(frozen=True)
class _Exchanged:
    """Sums with which a dual point is made orthogonal to ones and covariates.

    They are over the samples of each class a and the masses of each rival class c.

    Attributes
    ----------
    cross : array of shape (1 + k + D, 1 + k, T, T)
        ``[E, Z]'diag(m)E``, ``E = [1, C]``, with the masses m of rivals.
    tilt : array of shape (1 + k, T, T)
        ``E'd`` of entropies d, where the entropy term of the own class is distributed
        over the rivals in proportion to their masses.
    most : array of shape (1 + k,)
        The largest entries of E.
    """

    cross: FloatArray
    tilt: FloatArray
    most: FloatArray

    def __add__(self, other: Any) -> _Exchanged:
        return _Exchanged(
            self.cross + other.cross,
            self.tilt + other.tilt,
            np.maximum(self.most, other.most),
        )

    @classmethod
    def of(
        cls,
        X: FloatArray,
        free: int,
        own: FloatArray,
        m: FloatArray,
        entropy: FloatArray,
    ) -> _Exchanged:
        """Return the sums over some rows; covariates are the last columns of X."""
        E = np.column_stack([np.ones(len(X)), X[:, -free:]])
        columns = np.column_stack([E, X[:, :-free]])
        total = m.sum(axis=1, keepdims=True)
        share = np.divide(m, total, out=np.zeros_like(m), where=total > 0)
        given = np.sum(np.where(own, entropy, 0.0), axis=1, keepdims=True)
        d = np.where(own, 0.0, entropy) + share * given
        q, T = E.shape[1], own.shape[1]
        cross, tilt = np.zeros((columns.shape[1], q, T, T)), np.zeros((q, T, T))
        for a in range(T):
            rows = own[:, a]
            tilt[:, a] = E[rows].T @ d[rows]
            for c in range(T):
                weighted = m[rows, c, None] * E[rows]
                cross[:, :, a, c] = columns[rows].T @ weighted
        return cls(cross, tilt, np.abs(E).max(axis=0, initial=0.0))

    def directions(self) -> tuple[FloatArray, FloatArray]:
        """Return eigenvalues and eigenvectors of the matrix G of ``Exchange``."""
        q, T = self.tilt.shape[:2]
        lost = self.cross[:q].transpose(2, 3, 0, 1)  # (T, T, q, q)
        G = np.zeros((T, q, T, q))
        for a in range(T):
            for c in range(T):
                G[a, :, a] += lost[a, c]
                G[c, :, c] += lost[a, c]
                G[a, :, c] -= lost[a, c]
                G[c, :, a] -= lost[a, c].T
        flat = G.reshape(T * q, T * q)
        values, vectors = np.linalg.eigh((flat + flat.T) / 2)
        kept = values > 1e-12 * max(float(values[-1]), 1e-300)
        return values[kept], vectors[:, kept]

    def apart(self, x: FloatArray) -> FloatArray:
        """Return ``x_a - x_c`` for x (q, T), shape (q, T, T)."""
        return np.asarray(x[:, :, None] - x[:, None, :])

    def reach(self, apart: FloatArray) -> float:
        """Return an upper bound on ``|e_i'(x_a - x_c)|``."""
        return float(np.einsum("q,qac->ac", self.most, np.abs(apart)).max())


class _Moved(NamedTuple):
    """Factors ``(1 - t)(1 - e_i'apart)`` of masses, and an allowance for rounding."""

    apart: FloatArray
    t: float
    extra: float


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
    """Return bounds on the sums over the rows of a block that hold despite rounding."""
    Z, T = block.X, own.shape[1]
    f, size = Z @ at.w + at.bias, np.abs(block.X)
    reach = (Z.shape[1] + 16) * UNIT * (size @ np.abs(at.w)) + slip
    reach += 16 * UNIT * (np.abs(f) + np.abs(at.bias))
    # the absolute derivatives of a sample sum to at most two
    off = 2.0 * reach.max(axis=1)
    off += (4 * T + 32) * UNIT * (np.abs(f).max(axis=1) + np.log(T) + 1.0)
    value = cost[:, 0] * (np.maximum(_losses(f, own), 0.0) + off)
    # p is accurate to a few units, and errors of p log p are up to 40 times larger
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
    """A kernel-learning problem in feature space whose loss couples the classes.

    Parameters
    ----------
    blocks : Blocks
        As in :class:`FeatureProblem`; targets are -1 and 1, with one 1 in each row.
    loss : Softmax
    C, weights, slices, scaling, statistics, tasks, free
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
                free=self.free,
            )
        )

    def settled(self, w: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the point with zero sums over classes, which has the same loss."""
        middle = bias.mean(axis=-1, keepdims=True)
        return w - w.mean(axis=1, keepdims=True), bias - middle

    @property
    def _counts(self) -> FloatArray:
        """Total cost of each class, shape (T,)."""
        H = self.statistics
        return self.C * H.total * (H.target + 1.0) / 2.0

    def _mixture(self, short: FloatArray, slack: float = 0.0) -> tuple[float, float]:
        """Return the mixing proportion t, and the entropy of the distribution q.

        Parameters
        ----------
        short : array of shape (T,)
            Deficit of each class, ``n_c - sum_i c_i p_ic``.
        slack : float
            Bound on the error of these numbers.
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
        if found.leaning is not None:
            return self._exchanged(found, found.leaning)
        H, short = self.statistics, found.count[0]
        t, entropy = self._mixture(short)
        # centred features can be used, because the final a sums to zero
        centred = found.slope[0] - np.multiply.outer(H.mean, short)
        A = (1.0 - t) * centred + t * self.C * H.ZH / 2.0
        A = self.scaling.root[:, None] * A
        bound = (1.0 - t) * float(found.dual[0].sum()) + t * self.C * H.total * entropy
        return bound - 0.5 * self.weights.support(squares(A, self.slices)), A

    def _moved(self, found: Sums, leaning: Any, unit: float = 0.0) -> _Moved:
        """Return the factors that make the dual point orthogonal to the covariates."""
        D, (q, T) = self.n_features, leaning.tilt.shape[:2]
        off = np.vstack([found.count[0], found.slope[0, D:]])
        values, V = leaning.directions()
        if not len(values):  # no rival has any mass
            return _Moved(np.zeros((q, T, T)), 0.0, 0.0)
        x = (V @ ((V.T @ off.T.ravel()) / values)).reshape(T, q).T
        apart = leaning.apart(x)
        t = min(1.0, leaning.reach(apart) * (1 + 1e-9))
        extra = 0.0
        if unit:
            mass = leaning.cross[0, 0]
            size = np.vstack(
                [mass.sum(axis=0) + mass.sum(axis=1), found.rounded.size[D:]]  # type: ignore[union-attr]
            )
            most = (np.abs(V).T @ (4 * unit * size.T.ravel())) / values
            each = (np.abs(V) @ most).reshape(T, q) @ leaning.most
            extra = 2.0 * float(each.max())
        return _Moved(apart, t, extra)

    def _exchanged(self, found: Sums, leaning: Any) -> tuple[float, FloatArray]:
        """Return the bound and ``Z'a`` after the exchange of mass between classes."""
        D, q = self.n_features, len(leaning.most)
        turned = self._moved(found, leaning)
        moved = np.einsum("dqac,qac->dac", leaning.cross[q:], turned.apart)
        A = found.slope[0, :D] - moved.sum(axis=2) + moved.sum(axis=1)
        # the columns of a sum to zero, so the centring of features cancels
        A = self.scaling.root[:, None] * ((1.0 - turned.t) * A)
        tilted = float(np.sum(turned.apart * leaning.tilt))
        bound = (1.0 - turned.t) * (float(found.dual[0].sum()) - tilted)
        return bound - 0.5 * self.weights.support(squares(A, self.slices)), A

    def _lowest_exchanged(self, found: Sums, A: FloatArray) -> float:
        """Return the bound of :meth:`_exchanged`, rounded outward."""
        rounded, leaning = found.rounded, found.leaning
        assert rounded is not None and isinstance(leaning, _Exchanged)
        unit = (rounded.chain + 32) * UNIT
        turned = self._moved(found, leaning, unit)
        strain = 4 * unit + 2 * turned.extra
        tilted = float(np.sum(turned.apart * leaning.tilt))
        value = (1.0 - turned.t) * (float(rounded.dual[0].sum()) - tilted)
        value -= strain * (1.0 + turned.t) * float(rounded.whole.sum())
        # rounding errors of the entropies in the tilted sums
        known = 400 * self.n_tasks * UNIT * self.C * self.statistics.total
        value -= turned.t * known
        size = self.scaling.root[:, None] * rounded.size[: self.n_features]
        off = squares(strain * size, self.slices)
        most = (np.sqrt(squares(A, self.slices) * (1 + A.size * UNIT)) + off**0.5) ** 2
        value -= 0.5 * self.weights.support(most) * (1 + FEW)
        return value - FEW * abs(value)

    def lowest(self, found: Sums, A: FloatArray) -> float:
        """Return the bound of :meth:`feasible`, rounded outward.

        The possible errors of the sums are mixed in as well. They count as an error of
        ``Z'a``, whose change by the mixture is bounded by the spread of the features.
        """
        if found.leaning is not None:
            return self._lowest_exchanged(found, A)
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
