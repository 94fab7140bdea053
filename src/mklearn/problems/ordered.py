"""Losses that couple samples, in feature space: passes over ordered rows.

The problem is that of :mod:`mklearn.problems.lowrank` with a loss that depends on all
samples jointly, such as Cox's partial likelihood. Evaluating a point takes two passes:
one for the scores of all rows, a number each, from which values, the dual point and its
entropy are computed; and one for sums over the features. The curvature is
``Z'diag(m)Z - sum_g k_g z_g z_g'`` with the means ``z_g`` over risk sets. Risk sets
consist of the first rows of a stratum, so their sums can be carried from block to
block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from mklearn.data.blocks import Block
from mklearn.problems.base import FEW, UNIT, Certificate, Iterate
from mklearn.problems.lowrank import (
    Anchor,
    Curved,
    FeatureProblem,
    FloatArray,
    Point,
    Sums,
)
from mklearn.problems.pseudo_samples import squares
from mklearn.problems.scatter import Statistics, gram
from mklearn.problems.survival import Cox, Sweep
from mklearn.problems.weights import excess

# columns of the targets of a row: the slope of the loss at zero, at unit cost; the
# index of the row; and the targets of the loss
SLOPE, NUMBER, TARGETS = 0, 1, slice(2, None)


def numbered(targets: FloatArray, slope: FloatArray) -> FloatArray:
    """Return the targets of ordered rows with their index, (n, 2 + n_targets)."""
    return np.column_stack([slope, np.arange(len(targets)), targets])


@dataclass(frozen=True)
class _Carried:
    """Sums over consecutive rows, which can be joined with those of earlier rows.

    Let L be the cumulative sums of ``u z`` since the first of the rows, or since the
    start of the stratum. ``lead`` is ``sum rate L`` and ``rates`` is the sum of the
    rates, both over the rows that continue a stratum of earlier rows. Earlier rows
    shift L by the same vector in all of these rows.
    """

    slope: FloatArray  # (D, 1), Z'a
    size: FloatArray  # (D, 1), |Z|'|a|, for a certificate
    scatter: FloatArray  # (D, D), or (0, 0) if not requested
    lead: FloatArray
    rates: float
    carry: FloatArray  # sum of u z over the last stratum of the rows
    through: bool  # whether no stratum begins in the rows
    chain: int

    def __add__(self, other: _Carried) -> _Carried:
        scatter, lead, rates = self.scatter + other.scatter, self.lead, self.rates
        if scatter.size:
            c = self.carry
            cross = np.multiply.outer(other.lead, c)
            scatter -= cross + cross.T + other.rates * np.multiply.outer(c, c)
            if self.through:
                lead = lead + other.lead + other.rates * c
                rates = rates + other.rates
        return _Carried(
            self.slope + other.slope,
            self.size + other.size,
            scatter,
            lead,
            rates,
            other.carry + self.carry if other.through else other.carry,
            self.through and other.through,
            max(self.chain, other.chain) + 1,
        )

    @classmethod
    def of(
        cls, block: Block, a: FloatArray, mean: FloatArray, sweep: Sweep | None,
        strain: FloatArray | None,
    ) -> _Carried:  # fmt: skip
        """Return the sums over the rows of a block."""
        start = int(block.y[0, NUMBER])
        rows = slice(start, start + block.n_rows)
        Z, own = block.X, a[rows]
        D = Z.shape[1]
        zero, size, scatter = np.zeros(D), np.zeros((D, 1)), np.zeros((0, 0))
        lead, rates, carry, through = zero, 0.0, zero, True
        if strain is not None:
            size = np.abs(Z).T @ (np.abs(own) + strain[rows])
        if sweep is not None:
            Z = Z - mean
            scatter = gram(np.sqrt(sweep.mass[rows])[:, None] * Z)
            U = sweep.part[rows][:, None] * Z
            begins = sweep.begins[rows]
            edges = [0, *(np.flatnonzero(begins[1:]) + 1).tolist(), len(U)]
            for low, high in pairwise(edges):
                np.cumsum(U[low:high], axis=0, out=U[low:high])
            rate = sweep.rate[rows]
            scatter -= gram(np.sqrt(rate)[:, None] * U)
            through = not begins.any()
            if not begins[0]:
                lead = rate[: edges[1]] @ U[: edges[1]]
                rates = float(rate[: edges[1]].sum())
            carry = U[-1].copy()
        return cls(
            block.X.T @ own, size, scatter, lead, rates, carry, through, block.n_rows
        )


def _scores(block: Block, points: Sequence[Point]) -> FloatArray:
    """Return the scores of some rows at each point."""
    return np.column_stack([block.X @ p.w + p.bias for p in points])


def _reach(block: Block, at: Point, slip: FloatArray) -> FloatArray:
    """Return bounds on the rounding errors of the scores of some rows."""
    size = np.abs(block.X) @ np.abs(at.w) + np.abs(at.bias)
    return (block.X.shape[1] + 32) * UNIT * size + slip


@dataclass(frozen=True)
class OrderedProblem(FeatureProblem):
    """A kernel-learning problem in feature space whose loss couples the rows.

    Parameters
    ----------
    blocks : Blocks
        As in :class:`FeatureProblem`, with targets as those of :func:`numbered`.
    loss : CoxFormula
    C, weights, slices, scaling, statistics, tasks, free, apart
        As in :class:`FeatureProblem`; ``tasks`` is the first column of the targets.
    joint : Cox
        The loss of all rows, which are in the order of this loss.
    """

    joint: Cox = field(kw_only=True)

    loss: Any

    def curvature(self, of: Statistics) -> Curved:
        """Return the curvature; means are zero, because there is no bias."""
        found = super().curvature(of)
        along = found.along.copy()
        along[:, 0] = 0.0
        return found._replace(along=along, middle=np.zeros_like(found.middle))

    @cached_property
    def alone(self) -> Cox:
        """The loss as a function of scores that include the covariates."""
        return replace(self.joint, design=None)

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
        """Make two passes over the rows."""
        joint = self.joint
        F = self._over_rows(partial(_scores, points=(start, end)))
        before, after = F[:, :1], F[:, 1:]
        value = np.array(
            [
                self.alone.primal(before + s * (after - before), np.zeros(1))
                for s in steps
            ]
        )
        implied = joint.slope(after)
        a = joint.repair(implied)
        both = np.column_stack([a, implied - a]) if self.free else a
        found = self._sums(both, joint.sweep(after) if curved else None)
        # the feasible dual point, and its difference to the gradient
        slope = found.slope[:, :1]
        rest = found.slope[:, 1:] if self.free else np.zeros_like(slope)
        curvature: tuple[Statistics, ...] = ()
        if curved:
            H = self.statistics.with_targets(np.zeros((self.n_tasks, 0)))
            total = float(joint.sweep(after).mass.sum())
            curvature = (replace(H, total=max(total, UNIT), ZZ=found.scatter),)
        return Sums(
            value,
            value,
            np.zeros((2, 1)),
            np.array([[joint.dual(a)], [0.0]]),
            0.0,
            np.stack([slope, rest]),
            curvature,
        )

    def _over_rows(self, function: Any) -> FloatArray:
        return np.concatenate(self.blocks.map(function))

    def _sums(
        self, a: FloatArray, sweep: Sweep | None, strain: FloatArray | None = None
    ) -> _Carried:
        return self.blocks.reduce(
            partial(
                _Carried.of, a=a, mean=self.statistics.mean, sweep=sweep, strain=strain
            )
        )

    def feasible(self, found: Sums) -> tuple[float, FloatArray]:
        """Return the lower bound from these sums, and ``Z'a`` of their dual point."""
        # a sums to zero, so the centring of features cancels
        A = self.scaling.root[:, None] * found.slope[0, : self.n_features]
        q = squares(A, self.slices)
        return float(found.dual[0, 0]) - 0.5 * self.weights.support(q), A

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of two points, recomputed in passes over all rows."""
        about, below = point.about, dual.about
        joint, zero = self.joint, np.zeros(1)
        at = self.raw(about.w, about.bias)
        slip = (len(at.w) + 16) * UNIT * self.slips(at, about.bias)
        F = self._over_rows(partial(_scores, points=(at, below.end)))
        reach = self._over_rows(partial(_reach, at=at, slip=slip))
        penalty = self.regulariser(about.w, point.theta)
        plain = self.alone.primal(F[:, :1], zero) + penalty
        upper = self.alone.above(F[:, :1], zero, reach)
        upper += penalty * (excess(self.weights, point.theta) + about.w.size * UNIT)
        upper *= 1 + FEW * np.sign(upper)
        a = joint.repair(joint.slope(F[:, 1:]))
        unit = (64 + len(a) ** 0.5) * UNIT
        found = self._sums(a, None, joint.strain(a) / unit)
        D = self.n_features
        A = self.scaling.root[:, None] * found.slope[:D]
        unit = max((found.chain + 32) * UNIT, unit)
        size = self.scaling.root[:, None] * found.size[:D]
        off = squares(4 * unit * size, self.slices)
        q = squares(A, self.slices)
        most = (np.sqrt(q * (1 + A.size * UNIT)) + off**0.5) ** 2
        lower = joint.below(a) - 0.5 * self.weights.support(most) * (1 + FEW)
        lower -= FEW * abs(lower)
        bound = joint.dual(a) - 0.5 * self.weights.support(q)
        return Certificate(
            upper=upper,
            lower=lower,
            error=upper - plain + bound - lower,
            bias=about.bias,
            theta=point.theta,
            A=point.A,
            dual=A,
            weight_bounds=self.weight_bounds(A, upper, lower),
            about=replace(below, w=about.w, bias=about.bias, upper=upper, lower=lower),
        )
