"""Effects of covariates that separate samples, found in passes over the rows.

Where only one sign of a dual variable is feasible, as with labels (``y_i a_i >= 0``) or
with censored times (``a_i >= 0``), let ``s_i`` be this sign, and ``e_i = (1, c_i)`` the
rows of the design. Effects g *separate* samples if ``s_i e_i'g >= 0`` for these rows,
``e_i'g = 0`` for all others, and some of the products are positive. An example is the
indicator of a batch in which all samples have the same label. Since a feasible dual
point is orthogonal to the design, its entries are zero for all separated samples; and
the effects can move along g until the losses of these samples vanish, which does not
change the other scores.

All such g follow from the cone that the vectors ``s_i e_i`` generate. The cone of a
block is reduced to few vectors, and the cones of blocks can be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from mklearn.data.blocks import Block, Blocks

FloatArray = NDArray[np.float64]

_SAME = 1e-9  # relative size below which a vector counts as zero
_BEYOND = 1e-8  # distance from the kink at which a loss is zero despite rounding
_ROWS = 128  # that are added to a cone at a time
_RAYS = 1024  # that a cone keeps
_ROUNDS = 20  # passes to add rays that cones did not keep


class Separation(NamedTuple):
    """The samples that effects of covariates separate, for each task.

    Attributes
    ----------
    effects : array of shape (1 + k, T)
        Effects of ones and covariates that separate as many samples as possible; zero
        if there are none.
    perfect : array of bool of shape (T,)
        Whether all samples are separated.
    """

    effects: FloatArray
    perfect: NDArray[np.bool_]

    @property
    def some(self) -> NDArray[np.bool_]:
        """Whether any sample is separated, shape (T,)."""
        return np.asarray(self.effects.any(axis=0))


def find_separation(blocks: Blocks, loss: Any, free: int) -> Separation:
    """Return the effects that separate samples, from one pass over the rows.

    More passes are made only if a cone has too many rays.

    Parameters
    ----------
    blocks : Blocks
        Rows whose last columns are covariates, targets (n, T), and weights.
    loss : Pointwise
        The signs of its dual variables are used.
    free : int
        Number of covariates.
    """
    gather = partial(_Cones.of, loss=loss, free=free)
    cones = blocks.reduce(gather)
    for _ in range(_ROUNDS):
        found = [cone.direction() for cone in cones.each]
        if all(
            cone.whole or g is None for g, cone in zip(found, cones.each, strict=True)
        ):
            break
        spans = [cone.span for cone in cones.each]
        more = blocks.reduce(
            partial(gather, known=tuple(zip(found, spans, strict=True)))
        )
        if not any(cone.any() for cone in more.each):
            break
        cones = cones.joined(more)
    else:
        # not known to hold for all rows
        found = [
            g if cone.whole else None for g, cone in zip(found, cones.each, strict=True)
        ]
    effects = np.zeros((1 + free, len(found)))
    for t, g in enumerate(found):
        if g is not None:
            effects[:, t] = g
    none = np.array([cone.span.shape[1] == 0 for cone in cones.each])
    return Separation(effects, none & effects.any(axis=0))


def one_sided(loss: Any) -> bool:
    """Return whether there may be samples with only one feasible sign."""
    lower, upper = loss.domain(np.ones((1, 1)))
    return bool(np.ndim(lower) or np.ndim(upper) or not lower < 0 < upper)


def signs(loss: Any, Y: FloatArray) -> FloatArray:
    """Return the only feasible sign of dual variables, 0 if both are, shape (n, T)."""
    lower, upper = loss.domain(Y)
    return np.zeros(Y.shape) + (np.equal(lower, 0) * 1.0 - np.equal(upper, 0))


def separated(
    C: FloatArray, sign: FloatArray, effects: FloatArray
) -> tuple[NDArray[np.bool_], FloatArray]:
    """Return which samples are separated, and the products ``s_i e_i'g``, (n, T).

    Parameters
    ----------
    C : array of shape (n, k)
        Covariates.
    sign : array of shape (n, T)
        As from :func:`signs`.
    effects : array of shape (1 + k, T)
    """
    along = sign * (C @ effects[1:] + effects[0])
    size = np.sqrt(1.0 + np.sum(C**2, axis=1))[:, None]
    return along > _SAME * size, along


def step_apart(
    C: FloatArray,
    scores: FloatArray,
    sign: FloatArray,
    enough: FloatArray,
    effects: FloatArray,
) -> FloatArray:
    """Return the least step along effects at which losses vanish, (T,).

    It is minus infinity if no sample is separated.

    Parameters
    ----------
    C, sign, effects
        As in :func:`separated`.
    scores : array of shape (n, T)
    enough : array of shape (n, T)
        Scores from which on the losses of separated samples are zero.
    """
    told, along = separated(C, sign, effects)
    short = sign * (enough - scores) + _BEYOND * (1.0 + np.abs(enough))
    steps = np.divide(short, along, out=np.full(sign.shape, -np.inf), where=told)
    return np.asarray(steps.max(axis=0, initial=-np.inf))


def most_positive(E: Any) -> tuple[FloatArray, FloatArray]:
    """Return the g that maximises the mean of ``min(1, E g)``, with ``E g >= 0``.

    Parameters
    ----------
    E : array or sparse matrix of shape (N, r)

    Returns
    -------
    g : array of shape (r,)
    positive : array of shape (N,)
        ``min(1, E g)``.
    """
    n, r = E.shape
    # variables g and s, where s <= E g and 0 <= s <= 1
    found = linprog(
        np.r_[np.zeros(r), np.full(n, -1.0 / n)],
        A_ub=sparse.hstack([-sparse.csr_array(E), sparse.eye_array(n)]).tocsr(),
        b_ub=np.zeros(n),
        bounds=[(None, None)] * r + [(0.0, 1.0)] * n,
    )
    x = found.x if found.status == 0 else np.zeros(r + n)
    return np.asarray(x[:r]), np.asarray(x[r:])


@dataclass(frozen=True, eq=False)
class Cone:
    """All sums of some vectors with nonnegative weights.

    Attributes
    ----------
    span : array of shape (q, r)
        Orthonormal basis of the vectors v for which the cone also contains -v.
    rays : array of shape (m, q)
        Unit vectors, orthogonal to ``span``, that generate the rest.
    whole : bool
        False if some rays were left out, because there are too many.
    """

    span: FloatArray
    rays: FloatArray
    whole: bool = True

    @classmethod
    def of(cls, rows: FloatArray, lines: FloatArray) -> Cone:
        """Return the cone of vectors (n, q), and of others with both signs."""
        q = rows.shape[1]
        cone = cls(_basis(lines), np.zeros((0, q)))
        step = max(1, -(-len(rows) // _ROWS))
        for first in range(step):  # rows are often sorted: take distant ones together
            if cone.span.shape[1] == q:
                break
            cone = cone._with(rows[first::step])._thinned()
        return cone

    def __add__(self, other: Cone) -> Cone:
        return self.joined(other)._thinned()

    def joined(self, other: Cone) -> Cone:
        """Return the cone of the vectors of both, with all rays."""
        span = _basis(np.vstack([self.span.T, other.span.T]))
        whole = self.whole and other.whole
        both = np.vstack([self.rays, other.rays])
        return Cone(span, np.zeros((0, both.shape[1])), whole)._with(both)

    def any(self) -> bool:
        """Return whether the cone contains a nonzero vector."""
        return bool(self.span.size or self.rays.size)

    def outside(self, rows: FloatArray) -> FloatArray:
        """Return the parts of vectors (n, q) that are orthogonal to the span."""
        for _ in range(2):  # the second time removes what rounding left
            rows = rows - (rows @ self.span) @ self.span.T
        return rows

    def direction(self) -> FloatArray | None:
        """Return a g with products of at least one with all rays, zero in the span.

        It is None if there are no rays.
        """
        if not len(self.rays):
            return None
        g = self.rays.mean(axis=0)
        if not self._all_positive(g):
            g = self.outside(most_positive(self.rays)[0][None])[0]
            if not self._all_positive(g):  # up to rounding there is none
                return None
        return np.asarray(g / (self.rays @ g).min())

    def _all_positive(self, g: FloatArray) -> bool:
        least = float((self.rays @ g).min(initial=np.inf))
        return least > _SAME * float(np.linalg.norm(g))

    def _with(self, rows: FloatArray) -> Cone:
        """Return the cone of the same and more vectors."""
        more = self._units(rows)
        if not len(more):
            return self
        rays = np.vstack([self.rays, more])
        found = Cone(self.span, _distinct(rays), self.whole)
        if not found._all_positive(found.rays.mean(axis=0)):
            flat = found._flat()
            if flat.any():
                # positive multiples of these vectors sum to zero: they span a subspace
                span = np.hstack([self.span, _basis(found.rays[flat])])
                left = Cone(span, found.rays[:0], self.whole)
                rest = _distinct(left._units(found.rays[~flat]))
                found = Cone(span, rest, self.whole)
        return found

    def _thinned(self) -> Cone:
        """Return the cone with no more rays than it may keep."""
        step = -(-len(self.rays) // _RAYS)
        return self if step <= 1 else Cone(self.span, self.rays[::step], False)

    def _flat(self) -> NDArray[np.bool_]:
        """Return which rays have products of zero with all directions, shape (m,)."""
        # none has another if some positive weights give zero; these are quickly tried
        fit = np.linalg.lstsq(self.rays, np.ones(len(self.rays)), rcond=None)[0]
        if (1.0 - self.rays @ fit).min() > 1e-3:
            return np.ones(len(self.rays), dtype=bool)
        return np.asarray(most_positive(self.rays)[1] < 0.5)

    def _units(self, rows: FloatArray) -> FloatArray:
        """Return the directions of vectors outside the span, except for zeros."""
        left, size = self.outside(rows), np.linalg.norm(rows, axis=1)
        length = np.linalg.norm(left, axis=1)
        kept = length > _SAME * size
        return np.asarray(left[kept] / length[kept, None])


def _basis(rows: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the span of vectors (n, q), shape (q, r)."""
    if not len(rows):
        return np.zeros((rows.shape[1], 0))
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(Vt[s > _SAME * s[0]].T)


def _distinct(rays: FloatArray) -> FloatArray:
    """Return unit vectors without repetitions."""
    _, first = np.unique(np.round(rays, 9), axis=0, return_index=True)
    return rays[first]


@dataclass(frozen=True, eq=False)
class _Cones:
    """The cones of all tasks."""

    each: tuple[Cone, ...]

    def __add__(self, other: _Cones) -> _Cones:
        pairs = zip(self.each, other.each, strict=True)
        return _Cones(tuple(a + b for a, b in pairs))

    def joined(self, other: _Cones) -> _Cones:
        pairs = zip(self.each, other.each, strict=True)
        return _Cones(tuple(a.joined(b) for a, b in pairs))

    @classmethod
    def of(
        cls,
        block: Block,
        loss: Any,
        free: int,
        known: Sequence[tuple[FloatArray | None, FloatArray]] | None = None,
    ) -> _Cones:
        """Return the cones of the rows of a block.

        Given a direction and the span of each task in ``known``, only those rows are
        used that are neither separated by the direction nor in the span.
        """
        used = block.weight > 0
        C = block.X[used, block.X.shape[1] - free :]
        E = np.column_stack([np.ones(len(C)), C])
        cones = []
        for t, sign in enumerate(signs(loss, block.y[used]).T):
            new = np.ones(len(E), dtype=bool)
            if known is not None:
                g, span = known[t]
                new &= g is not None
                if g is not None:
                    told, _ = separated(C, sign[:, None], g[:, None])
                    left = Cone(span, E[:0]).outside(E)
                    size, length = (np.linalg.norm(x, axis=1) for x in (E, left))
                    new = ~told[:, 0] & (length > _SAME * size)
            one, both = new & (sign != 0), new & (sign == 0)
            cones.append(Cone.of(sign[one, None] * E[one], E[both]))
        return cls(tuple(cones))
