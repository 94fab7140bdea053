"""Losses for censored times to an event.

*The partial likelihood* of Cox couples the samples. With scores f, weights s and costs
``C s``, each event time g of a stratum has the samples ``R_g`` that are still at risk,
and the loss is

    L(f) = sum_g k_g log(sum over j in R_g of s_j exp(f_j)) - sum over events C s_i f_i,

where ``k_g`` are the costs of the events at that time (Breslow's method for ties). Its
negative gradient A assigns each sample the mass ``m_j = C s_j [event] - A_j``: each
event distributes its cost over the samples at risk, in proportion to ``s exp(f)``. A
dual point thus corresponds to distributions of the costs, and the dual term is the
largest total entropy of all distributions with these masses. Risk sets are nested:
``rho_g``, the mass of ``R_g`` minus the costs of events at g and later, comes from
earlier events, and the maximum is known in closed form,

    D(A) = sum_g phi(rho_g + k_g) - phi(rho_g) - sum_j m_j log(m_j / s_j),

``phi(x) = x log x``. A point is feasible if all ``m_j`` and ``rho_g`` are nonnegative
and ``rho_g`` of the first event is zero. All of this needs only cumulative sums over
samples in the order of their times, and no sums over pairs.

Covariates have unpenalised coefficients. Then the masses must have the same sums of
covariates as the events: ``Z'A = 0``.

Efron's method draws the l-th of d tied events from a risk set in which the tied samples
have weight ``1 - l / d``. The masses of the tied samples are then determined by one
unknown number for each time with ties, the root of a monotone function; any estimate of
it corresponds to a feasible distribution, and so gives a bound.

*Regression of the log time* is a pointwise loss in which the error of a censored sample
counts only if it is predicted too early. A target is a complex number: the log time,
plus ``1j`` if it is censored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise as pairs
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import xlogy

from mklearn.problems.base import FEW, UNIT, entries_sum, pairwise
from mklearn.problems.design import Design, decisions, least
from mklearn.problems.losses import FloatArray, Piece, Piecewise
from mklearn.problems.protocols import Rows

Ties = str
TIES = ("breslow", "efron")
_BISECTIONS = 64  # of an interval of the logarithm, down to rounding
_WIDE = 60.0  # half the length of that interval
_FAR = 12.0  # range of scores of covariates above which effects may be infinite
_FEW_STEPS = 4  # for effects at scores that may be far from optimal
_COLUMNS = 64  # columns of a product with the Hessian that are computed together
_TINY = 1e-150  # relative to the largest sum at risk: its square can be inverted
_STILL = 1e-12  # relative to the largest: eigenvalues that count as zero


# --- regression of the log time -------------------------------------------------------


@dataclass(frozen=True)
class CensoredSquared(Piecewise):
    """``½ (y - f)^2``; for censored samples ``½ max(0, y - f)^2``."""

    ridge = 1.0

    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss."""
        short = y.real - f
        return 0.5 * np.where(y.imag > 0, np.maximum(short, 0.0), short) ** 2

    def pieces(self, y: FloatArray) -> tuple[Piece, ...]:
        """Return ``y a - ½ a^2``, with ``a >= 0`` for censored samples."""
        return (Piece(y.real, np.where(y.imag > 0, 0.0, -np.inf), np.inf),)


@dataclass(frozen=True)
class CensoredEpsilon(Piecewise):
    """``max(0, |y - f| - epsilon)``; if censored, ``max(0, y - f - epsilon)``."""

    epsilon: float = 0.1

    def value(self, f: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss."""
        short = y.real - f
        error = np.where(y.imag > 0, short, np.abs(short))
        return np.maximum(0.0, error - self.epsilon)

    def pieces(self, y: FloatArray) -> tuple[Piece, ...]:
        """Return ``y a - epsilon |a|`` for a in [-1, 1], in [0, 1] if censored."""
        late = np.where(y.imag > 0, 0.0, -1.0)
        return (
            Piece(y.real - self.epsilon, 0.0, 1.0),
            Piece(y.real + self.epsilon, late, 0.0),
        )


# --- risk sets ------------------------------------------------------------------------


class Stratum(NamedTuple):
    """Slices of rows, event times and terms of the samples with the same baseline."""

    rows: slice
    groups: slice
    parts: slice


@dataclass(frozen=True)
class RiskSets:
    """Risk sets of samples that are ordered by stratum and descending time.

    Among equal times events come last, so that every risk set, with or without the
    events at its time, consists of the first rows of its stratum.

    Attributes
    ----------
    order : array of shape (n,)
        Samples in that order.
    strata : tuple of Stratum
    first, last : arrays of shape (n_groups,)
        Rows of the events of each event time, from ``first`` up to, but not including,
        ``last``, which is the end of the risk set.
    own : array of shape (n,)
        The latest event time whose risk set contains a row; n_groups if there is none.
    dies : array of bool of shape (n,)
    count : array of shape (n_groups,)
        Number of tied events that are treated one after the other; ones for Breslow's
        method.
    part : array of shape (n_parts,)
        The event time of each term of the likelihood.
    left : array of shape (n_parts,)
        The weight of the tied samples in that term.
    """

    order: Rows
    strata: tuple[Stratum, ...]
    first: Rows
    last: Rows
    own: Rows
    dies: NDArray[np.bool_]
    count: Rows
    part: Rows
    left: FloatArray

    @cached_property
    def edges(self) -> Rows:
        """``first`` and ``last`` in turn, for sums over the events of each time."""
        return np.c_[self.first, self.last].ravel()

    @cached_property
    def starts(self) -> Rows:
        """The first term of each event time."""
        return np.cumsum(self.count) - self.count

    @cached_property
    def tied(self) -> Rows:
        """Event times with several terms."""
        return np.flatnonzero(self.count > 1)

    @classmethod
    def of(
        cls,
        time: FloatArray,
        event: NDArray[np.bool_],
        stratum: FloatArray,
        weight: FloatArray,
        ties: Ties,
    ) -> RiskSets:
        """Return the risk sets of samples, all arguments of shape (n,)."""
        n = len(time)
        order = np.lexsort((event, -time, stratum))
        t, dies, s, w = time[order], event[order], stratum[order], weight[order]
        new = np.ones(n, dtype=bool)
        new[1:] = (t[1:] != t[:-1]) | (s[1:] != s[:-1]) | (dies[1:] != dies[:-1])
        starts = np.flatnonzero(new)
        ends = np.append(starts[1:], n)
        kept = dies[starts]
        first, last = starts[kept], ends[kept]
        count = np.ones(len(first), dtype=np.intp)
        if ties == "efron" and len(first):
            edges = np.c_[first, last].ravel()
            total = np.add.reduceat(np.append(w, 0.0), edges)[::2]
            count = np.maximum(np.rint(total), 1).astype(np.intp)
        part = np.repeat(np.arange(len(first)), count)
        within = np.arange(len(part)) - np.repeat(np.cumsum(count) - count, count)
        left = 1.0 - within / count[part]
        own = np.searchsorted(last, np.arange(n), side="right")
        begin = np.ones(n, dtype=bool)
        begin[1:] = s[1:] != s[:-1]
        rows = np.append(np.flatnonzero(begin), n)
        groups = np.searchsorted(first, rows)
        parts = np.append(0, np.cumsum(count))[groups]
        strata = tuple(
            Stratum(*(slice(*pair) for pair in one))
            for one in zip(*(pairs(x.tolist()) for x in (rows, groups, parts)),
                           strict=True)
        )  # fmt: skip
        for one in strata:  # samples censored before the first event are never at risk
            stop = one.groups.stop
            end = last[stop - 1] if _some(one.groups) else one.rows.start
            own[end : one.rows.stop] = len(first)
        return cls(order, strata, first, last, own, dies, count, part, left)


def _running(x: FloatArray) -> FloatArray:
    """Return cumulative sums along the first axis, with few additions for each.

    Sums are computed within blocks and over blocks, so that a term takes part in about
    ``2 sqrt(n)`` additions instead of n.
    """
    n = len(x)
    size = max(int(np.sqrt(n)), 1)
    if n < 64:
        return np.cumsum(x, axis=0)
    full = (n // size) * size
    inside = np.cumsum(x[:full].reshape(-1, size, *x.shape[1:]), axis=1)
    before = np.zeros_like(inside[:, -1])
    before[1:] = np.cumsum(inside[:-1, -1], axis=0)
    out = np.empty_like(x)
    out[:full] = (inside + before[:, None]).reshape(full, *x.shape[1:])
    out[full:] = out[full - 1] + np.cumsum(x[full:], axis=0)
    return out


def _steps(n: int) -> float:
    """Return the error of :func:`_running` relative to the sum of absolute terms."""
    return (2.0 * float(np.sqrt(n)) + 96.0) * UNIT


class Sweep(NamedTuple):
    """The Hessian at some scores, for rows in the order of the risk sets.

    It is ``diag(mass) - sum_i rate_i P_i P_i'``, where ``P_i`` is ``part`` on the rows
    of the stratum up to row i; ``begins`` marks the first row of each stratum.
    """

    mass: FloatArray
    part: FloatArray
    rate: FloatArray
    begins: NDArray[np.bool_]


# --- the partial likelihood -----------------------------------------------------------


@dataclass(frozen=True)
class CoxFormula:
    """Cox's partial likelihood, without samples.

    Targets have three columns: time, event (0 or 1) and the index of the stratum.
    """

    ties: Ties = "breslow"

    kinks: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False

    def of(self, Y: FloatArray, cost: FloatArray, C: float) -> Cox:
        """Return the loss of samples with targets (n, 3), weights (n,) and C."""
        return Cox(Y[:, 0], Y[:, 1] > 0, Y[:, 2], cost, C, self.ties)

    def band(self, spread: float) -> float:
        """Return an arbitrary width: there are no kinks to be smoothed."""
        return 1.0

    def outset(self, spread: float) -> tuple[float, float]:
        """Return s and h of ``½ h f^2 - s y f``, y the slope at zero for unit cost."""
        return 1.0, 1.0


@dataclass(frozen=True)
class Cox:
    """C times the negative log partial likelihood of Cox; one task, no bias.

    Parameters
    ----------
    time : array of shape (n,)
    event : array of bool of shape (n,)
        False for censored times.
    stratum : array of shape (n,)
        Only samples of the same stratum are compared with each other.
    weight : array of shape (n,)
        A sample of weight 2 is equivalent to two samples. Efron's method counts ties,
        and therefore requires integers.
    C : float
    ties : {"breslow", "efron"}
    design : Design, optional
        Covariates, whose coefficients are unpenalised; its ones have no effect.
    """

    time: FloatArray
    event: NDArray[np.bool_]
    stratum: FloatArray
    weight: FloatArray
    C: float
    ties: Ties = "breslow"
    design: Design | None = field(default=None, kw_only=True)

    hyperplane: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight).all() and (self.weight > 0).all()):
            raise ValueError("The weights of a partial likelihood must be positive.")
        if self.ties == "efron" and not (np.rint(self.weight) == self.weight).all():
            raise ValueError(
                "ties='efron' requires integer sample weights, because it counts tied "
                "events; use ties='breslow' otherwise."
            )

    # --- constants --------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples, and one task."""
        return len(self.time), 1

    @cached_property
    def sets(self) -> RiskSets:
        """The risk sets."""
        return RiskSets.of(self.time, self.event, self.stratum, self.weight, self.ties)

    @cached_property
    def _s(self) -> FloatArray:
        """Weights in the order of the risk sets."""
        return np.asarray(self.weight[self.sets.order])

    @cached_property
    def _given(self) -> FloatArray:
        """Costs of the events, in the order of the risk sets; zero if censored."""
        return np.where(self.sets.dies, self.C * self._s, 0.0)

    @cached_property
    def _k(self) -> FloatArray:
        """Costs of the terms of the likelihood, shape (n_parts,)."""
        sets = self.sets
        if not len(sets.first):
            return np.zeros(0)
        total = self._over_events(self._given)
        return np.asarray((total / sets.count)[sets.part])

    @cached_property
    def _costs(self) -> FloatArray:
        """Costs of the events at each event time."""
        return self._over_events(self._given)

    @cached_property
    def _cost_sums(self) -> FloatArray:
        """Cumulative sums of these costs in each stratum."""
        parts = [_running(self._costs[one.groups]) for one in self.sets.strata]
        return np.concatenate([np.zeros(0), *parts])

    @cached_property
    def _ends(self) -> Rows:
        """The first event time of each stratum with events, where ``rho`` is zero."""
        return np.array(
            [one.groups.stop - 1 for one in self.sets.strata if _some(one.groups)],
            dtype=np.intp,
        )

    @cached_property
    def _total(self) -> float:
        """Costs of all events."""
        return entries_sum(self._costs)

    @cached_property
    def concavity(self) -> float:
        """Modulus of strong concavity of the dual term.

        The eigenvalues of the Hessian of log-sum-exp are at most ½.
        """
        most = [entries_sum(self._costs[one.groups]) for one in self.sets.strata]
        return 2.0 / max(*most, 1e-300) if self._total else 0.0

    @cached_property
    def _free(self) -> tuple[FloatArray, FloatArray]:
        """Basis of covariates within strata, in order, and its map to effects."""
        assert self.design is not None
        sets = self.sets
        sizes = [one.rows.stop - one.rows.start for one in sets.strata]
        groups = np.repeat(np.arange(len(sizes)), sizes)
        ordered = self.design.take(sets.order)
        return ordered.within(groups, sets.own < len(sets.first))

    def _over_events(self, x: FloatArray) -> FloatArray:
        """Return sums over the events at each event time, shape (n_groups, ...)."""
        sets = self.sets
        if not len(sets.first):
            return np.zeros((0, *x.shape[1:]))
        padded = np.concatenate([x, np.zeros((1, *x.shape[1:]))])
        return np.asarray(np.add.reduceat(padded, sets.edges, axis=0)[::2])

    def _back(self, x: FloatArray) -> FloatArray:
        """Return rows in the order of the samples."""
        out = np.empty_like(x)
        out[self.sets.order] = x
        return out

    # --- values -----------------------------------------------------------------------

    def _logs(self, f: FloatArray) -> FloatArray:
        """Return logarithms of sums over risk sets, for scores in order, (n_parts,).

        A sum is over the samples at risk without an event at the time, and over those
        with one, as weighted in each term.
        """
        sets = self.sets
        if not len(sets.first):
            return np.zeros(0)
        g = f + self._log_s
        others = np.full(len(sets.first), -np.inf)
        for one in sets.strata:
            if not _some(one.groups):
                continue
            sums = np.logaddexp.accumulate(g[one.rows])
            at = sets.first[one.groups] - one.rows.start
            others[one.groups] = np.where(at > 0, sums[at - 1], -np.inf)
        # a sentinel at the end, which belongs to no event time
        dying = np.logaddexp.reduceat(np.append(g, 0.0), sets.edges)[::2]
        if not len(sets.tied):
            return np.asarray(np.logaddexp(others, dying))
        part = sets.part
        return np.asarray(np.logaddexp(others[part], self._log_left + dying[part]))

    @cached_property
    def _log_s(self) -> FloatArray:
        return np.asarray(np.log(self._s))

    @cached_property
    def _log_k(self) -> FloatArray:
        return np.asarray(np.log(self._k))

    @cached_property
    def _log_left(self) -> FloatArray:
        return np.asarray(np.log(self.sets.left))

    def _hazards(self, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return logarithms of cumulative hazards, the mass per unit of ``s exp(f)``.

        They are for the events of each event time, and for the others in its risk set.
        """
        sets = self.sets
        own = self._log_k - self._logs(f)
        each = own
        if len(sets.tied):
            each = np.logaddexp.reduceat(own, sets.starts)
        hazard = np.full(len(sets.first), -np.inf)
        later = np.full(len(sets.first), -np.inf)  # from earlier times only
        for one in sets.strata:
            if not _some(one.groups):
                continue
            sums = np.logaddexp.accumulate(each[one.groups][::-1])[::-1]
            hazard[one.groups] = sums
            later[one.groups] = np.append(sums[1:], -np.inf)
        if not len(sets.tied):
            return hazard, hazard
        counted = np.logaddexp.reduceat(own + self._log_left, sets.starts)
        return np.logaddexp(later, counted), hazard

    def _mass(self, f: FloatArray) -> FloatArray:
        """Return the mass of each sample for scores in order, in order.

        The last ones are kept: slopes and curvatures are asked for at the same scores.
        """
        known = self._known.get("mass")
        if known is not None and np.array_equal(known[0], f):
            return known[1]
        sets = self.sets
        at_event, hazard = self._hazards(f)
        rate = np.append(hazard, -np.inf)[sets.own]
        if at_event is not hazard:
            rate[sets.dies] = at_event[sets.own[sets.dies]]
        mass = np.exp(f + self._log_s + rate)
        mass.flags.writeable = False
        self._known["mass"] = f.copy(), mass
        return mass

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the loss; ``bias`` has an effect only with covariates."""
        return self._value(decisions(self.design, F, bias)[self.sets.order, 0])

    def _value(self, f: FloatArray) -> float:
        """Return the loss of scores in order."""
        return entries_sum(self._k * self._logs(f)) - entries_sum(self._given * f)

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``-d primal / dF``: observed minus expected events of each sample."""
        f = F[self.sets.order, 0]
        return self._back(self._given - self._mass(f))[:, None]

    def bent(self, F: FloatArray, V: FloatArray) -> FloatArray:
        """Return ``d^2 primal / dF^2`` at scores (n, 1), times ``V`` (n, k)."""
        order = self.sets.order
        f, out = F[order, 0], np.empty_like(V, dtype=np.float64)
        for at in range(0, V.shape[1], _COLUMNS):  # which stay in the cache
            here = slice(at, at + _COLUMNS)
            out[order, here] = self._bent(f, V[order, here])
        return out

    def _bent(self, f: FloatArray, V: FloatArray) -> FloatArray:
        """Return the same for scores (n,) and V in order."""
        out = self._mass(f)[:, None] * V
        for one, u, rate in self._rates(f):
            self._couple(one, u, rate, V[one.rows], out[one.rows])
        return out

    def _rates(self, f: FloatArray) -> list[tuple[Stratum, FloatArray, FloatArray]]:
        """Return strata with events, their ``s exp(f)``, and the terms' curvatures.

        Those of the last scores in order are kept: conjugate gradients ask for many
        products at the same scores.
        """
        known = self._known.get("rates")
        if known is not None and np.array_equal(known[0], f):
            return list(known[1])
        found = []
        for one in self.sets.strata:
            if _some(one.groups):
                here = f[one.rows]
                u = np.exp(here - here.max()) * self._s[one.rows]
                size = self._sizes(one, u)
                inverse = np.divide(
                    1.0, size, out=np.zeros_like(size), where=size > _TINY
                )
                found.append((one, u, self._k[one.parts] * inverse**2))
        self._known["rates"] = f.copy(), found
        return found

    def _sizes(self, one: Stratum, u: FloatArray) -> FloatArray:
        """Return the sums of ``u`` over the risk set of each term of a stratum."""
        sets = self.sets
        sums = np.append(0.0, np.cumsum(u))
        if not len(sets.tied):
            return sums[sets.last[one.groups] - one.rows.start]
        edges = sets.edges[2 * one.groups.start : 2 * one.groups.stop] - one.rows.start
        part = sets.part[one.parts] - one.groups.start
        dying = np.add.reduceat(np.append(u, 0.0), edges)[::2]
        return np.asarray(sums[edges[::2]][part] + sets.left[one.parts] * dying[part])

    def sweep(self, F: FloatArray) -> Sweep:
        """Return ``d^2 primal / dF^2`` for passes over rows in order.

        Ties are treated by Breslow's method, which has about the same curvature.
        """
        if self.ties != "breslow":
            return self._untied.sweep(F)
        sets, f = self.sets, F[self.sets.order, 0]
        part, rate = np.zeros(len(f)), np.zeros(len(f))
        begins = np.zeros(len(f), dtype=bool)
        for one in sets.strata:
            begins[one.rows.start] = True
            if _some(one.groups):
                here = f[one.rows]
                u = np.exp(here - here.max()) * self._s[one.rows]
                end = sets.last[one.groups] - 1
                size = np.cumsum(u)[end - one.rows.start]
                inverse = np.divide(
                    1.0, size, out=np.zeros_like(size), where=size > _TINY
                )
                part[one.rows] = u
                rate[end] = self._k[one.parts] * inverse**2
        return Sweep(self._mass(f), part, rate, begins)

    @cached_property
    def _untied(self) -> Cox:
        return replace(self, ties="breslow")

    def _couple(
        self, one: Stratum, u: FloatArray, rate: FloatArray, V: FloatArray,
        out: FloatArray,
    ) -> None:  # fmt: skip
        """Subtract the terms of the means over risk sets, in place."""
        sets = self.sets
        U = u[:, None] * V
        end = sets.last[one.groups] - one.rows.start
        mean = U.cumsum(axis=0)[end - 1]
        tied = bool(len(sets.tied))
        if tied:
            edges = sets.edges[2 * one.groups.start : 2 * one.groups.stop]
            edges = edges - one.rows.start
            starts = sets.starts[one.groups] - one.parts.start
            part, left = sets.part[one.parts] - one.groups.start, sets.left[one.parts]
            events = np.add.reduceat(np.vstack([U, np.zeros_like(U[:1])]), edges)[::2]
            mean = mean[part] - (1.0 - left)[:, None] * events[part]
        mean *= rate[:, None]
        each = np.add.reduceat(mean, starts, axis=0) if tied else mean
        # the last row is for samples that no event time has at risk
        rates = np.zeros((len(each) + 1, each.shape[1]))
        rates[-2::-1] = each[::-1].cumsum(axis=0)
        own = np.minimum(sets.own[one.rows] - one.groups.start, len(each))
        rates = rates[own]
        if tied:
            counted = np.add.reduceat(left[:, None] * mean, starts, axis=0)
            dies = sets.dies[one.rows]
            rates[dies] += (counted - each)[own[dies]]
        out -= u[:, None] * rates

    def bias(self, F: FloatArray) -> FloatArray:
        """Return zero, (1,); with covariates, zero and their effects, (1 + k, 1)."""
        if self.design is None:
            return np.zeros(1)
        f = F[self.sets.order, 0]
        known = self._known.get("bias")
        if known is None or (known[0] != f).any():
            near = None if known is None else known[1]
            near = self._effects(f, near, steps=_FEW_STEPS)
            rest = self._free[0].T @ (
                self._given - self._mass(f + self._free[0] @ near)
            )
            if np.linalg.norm(rest) < 1e-3 * self._total:
                near = self._effects(f, near)
            # else f is far from any solution, and approximate effects are good enough
            known = f, near
            self._known["bias"] = known
        return np.asarray(self._free[1] @ known[1])[:, None]

    @cached_property
    def _known(self) -> dict[str, tuple[FloatArray, Any]]:
        """Cache of the last scores and what follows from them."""
        return {}

    def _effects(
        self, f: FloatArray, near: FloatArray | None = None, steps: int = 60
    ) -> FloatArray:
        """Return optimal coefficients of covariates for scores in order, (r,)."""
        E, _ = self._free
        start = np.zeros(E.shape[1])
        if near is not None and self._value(f + E @ near) < self._value(f):
            start = near
        return least(
            E,
            lambda g: self._value(f + g),
            lambda g: self._given - self._mass(f + g),
            lambda g: E.T @ self._bent(f + g, E),
            start,
            steps=steps,
        )

    def unbounded(self) -> bool:
        """Return whether the optimal effects of covariates are infinite.

        This is the case if some linear combination of the covariates attains its
        maximum over each risk set at the samples with the event, but is not constant on
        all risk sets.
        """
        if self.design is None:
            return False
        E, _ = self._free
        f = E @ self._effects(np.zeros(len(self.time)))
        if np.ptp(f) < _FAR:
            return False
        sets = self.sets
        r = E.shape[1]
        G = len(sets.first)
        # variables: d, and the maximum of E d in each risk set; the sets are nested
        rows, cols, values, limits = [], [], [], 0

        def limit(parts: list[tuple[int, float]]) -> None:
            nonlocal limits
            for col, value in parts:
                rows.append(limits)
                cols.append(col)
                values.append(value)
            limits += 1

        def of(i: int, sign: float) -> list[tuple[int, float]]:
            return [(j, sign * float(E[i, j])) for j in range(r)]

        for one in sets.strata:
            for g in range(one.groups.start, one.groups.stop):
                begin = one.rows.start if g == one.groups.start else sets.last[g - 1]
                if g > one.groups.start:
                    limit([(r + g - 1, 1.0), (r + g, -1.0)])
                for i in range(begin, sets.last[g]):
                    limit([*of(i, 1.0), (r + g, -1.0)])
                for i in range(sets.first[g], sets.last[g]):
                    limit([*of(i, -1.0), (r + g, 1.0)])
        shape = (limits, r + G)
        gain = E.T @ (self._given - self._even_handed)
        found = linprog(
            np.append(-gain / max(self._total, 1e-300), np.zeros(G)),
            A_ub=sparse.csr_array((values, (rows, cols)), shape=shape),
            b_ub=np.zeros(limits),
            bounds=[(-1.0, 1.0)] * r + [(None, None)] * G,
        )
        return bool(found.status == 0 and -found.fun > 1e-9)

    @cached_property
    def _even_handed(self) -> FloatArray:
        """Masses at equal scores, in order."""
        return self._mass(np.zeros(len(self.time)))

    # --- the dual ---------------------------------------------------------------------

    def _masses(self, A: FloatArray) -> FloatArray:
        """Return the masses of a dual point, in order; zero if never at risk."""
        m = self._given - A[self.sets.order, 0]
        return np.where(self.sets.own < len(self.sets.first), np.maximum(m, 0.0), 0.0)

    def _flow(self, m: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return, by event time, masses of events, of others at risk, and ``rho``."""
        sets = self.sets
        events = self._over_events(m)
        rho = np.zeros(len(sets.first))
        for one in sets.strata:
            if _some(one.groups):
                mass = _running(m[one.rows])[sets.last[one.groups] - 1 - one.rows.start]
                rho[one.groups] = mass - self._cost_sums[one.groups]
        rho[self._ends] = 0.0
        others = np.maximum(rho + self._costs - events, 0.0)
        return events, others, rho

    def dual(self, A: FloatArray) -> float:
        """Return the largest entropy of distributions with the masses of ``A``."""
        m = self._masses(A)
        events, others, rho = self._flow(m)
        terms = self._entropies(events, others, np.maximum(rho, 0.0))
        return entries_sum(terms) - entries_sum(xlogy(m, m / self._s))

    def _entropies(
        self, events: FloatArray, others: FloatArray, rho: FloatArray
    ) -> FloatArray:
        """Return the contribution of each event time to the dual term."""
        k = self._costs
        ratio = np.divide(k, rho, out=np.zeros_like(k), where=rho > 0)
        terms = xlogy(k, rho + k) + rho * np.log1p(ratio)
        tied = self.sets.tied
        if len(tied):
            terms[tied] = self._tied(tied, events[tied], others[tied])
        return np.asarray(terms)

    def _tied(self, tied: Rows, events: FloatArray, others: FloatArray) -> FloatArray:
        """Return the same for times with ties, by Efron's method."""
        sets = self.sets
        count, cost = sets.count[tied], self._costs[tied]
        chosen = np.isin(sets.part, tied)
        place = np.searchsorted(tied, sets.part[chosen])
        left = sets.left[chosen]
        k = self._k[chosen]
        starts = np.cumsum(count) - count

        def total(x: FloatArray) -> FloatArray:
            return np.asarray(np.add.reduceat(x, starts))

        low, high = np.full(len(tied), -_WIDE), np.full(len(tied), _WIDE)
        for _ in range(_BISECTIONS):
            z = (low + high) / 2
            x = np.exp(z)
            lost = total(k * (1.0 - left) / (1.0 + left * x[place]))
            above = x * (others - lost) > events
            low, high = np.where(above, low, z), np.where(above, z, high)
        odds = left * np.exp((low + high) / 2)[place]
        q, p = odds / (1.0 + odds), 1.0 / (1.0 + odds)
        share, rest = total(k * q), total(k * p)
        early, late = np.maximum(events - share, 0.0), np.maximum(others - rest, 0.0)
        inside = total(k * (xlogy(q, left) - xlogy(q, q) - xlogy(p, p)))
        return (
            inside
            + (cost - rest) * _log(events)
            + xlogy(early, _over(events, early))
            + rest * _log(others)
            + xlogy(late, _over(others, late))
        )

    def repair(self, A: FloatArray) -> FloatArray:
        """Return a feasible point near ``A``.

        Masses are clipped at zero and scaled to the total cost of the events; with
        covariates, they are also shifted to the same sums of these. If some ``rho_g``
        is still negative, the point moves towards the gradient at equal scores, or at
        the optimal scores without kernels, as far as necessary.
        """
        m = self._masses(A)
        for one in self.sets.strata:
            have = entries_sum(self._costs[one.groups])
            size = entries_sum(m[one.rows])
            if size > 0:
                m[one.rows] *= have / size
            elif have:
                m[one.rows] = self._even[0][one.rows]
        even, flow = self._even
        room = 8 * _steps(len(m))
        if self.design is not None:
            m = self._orthogonal(m, even)
            room += 4 * self._tilt(m)
        rho = self._flow(m)[2]
        least_here = np.minimum(room * self._total, 0.5 * flow)
        short = rho < least_here
        short[self._ends] = False
        if short.any():
            part = (least_here - rho)[short] / (flow - rho)[short]
            share = float(np.max(part))
            m = (1.0 - share) * m + share * even
        return self._back(self._given - m)[:, None]

    @cached_property
    def _even(self) -> tuple[FloatArray, FloatArray]:
        """Masses at equal scores, and their ``rho``.

        With covariates, the scores are those of the optimal effects without kernels.
        """
        even = self._even_handed
        if self.design is not None:
            E, _ = self._free
            even = self._mass(E @ self._effects(np.zeros(len(even))))
            even = self._orthogonal(even, even)
        return even, self._flow(even)[2]

    # --- covariates -------------------------------------------------------------------

    def _orthogonal(self, m: FloatArray, even: FloatArray) -> FloatArray:
        """Return nonnegative masses near ``m`` with the covariate sums of the events.

        They are ``m (1 - E x)`` with E centred in each stratum, which does not change
        their sums. If some would be negative, they move towards ``even`` as far as
        necessary.
        """
        E, _ = self._free
        for _ in range(3):  # repeated to remove what rounding left
            off = E.T @ (m - self._given)
            centred, values, vectors = self._spread(m)
            if not len(values):
                return m
            changed = m * (1.0 - centred @ (vectors @ ((vectors.T @ off) / values)))
            below = changed < 0
            if below.any():
                part = -changed[below] / (even - changed)[below]
                if not (part <= 1.0).all():
                    return even
                share = min(1.0, float(part.max()) * (1.0 + 1e-12))
                changed = np.maximum((1.0 - share) * changed + share * even, 0.0)
            m = changed
        return m

    def _spread(self, m: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return covariates centred by masses, eigenvalues and -vectors of E'mE.

        Directions in which masses cannot move contain only rounding errors and are left
        out.
        """
        centred = self._free[0].copy()
        for one in self.sets.strata:
            size = entries_sum(m[one.rows])
            if size > 0:
                centred[one.rows] -= m[one.rows] @ centred[one.rows] / size
        values, vectors = np.linalg.eigh(centred.T @ (m[:, None] * centred))
        kept = values > _STILL * max(float(values.max(initial=0.0)), 1e-300)
        return centred, values[kept], vectors[:, kept]

    def _tilt(self, m: FloatArray) -> float:
        """Return the relative change of masses that makes them orthogonal."""
        E, _ = self._free
        a = m - self._given
        size = np.abs(E).T @ (m + self._given)
        off = np.abs(E.T @ a) + 2 * pairwise(len(m)) * size
        centred, values, vectors = self._spread(m)
        if not len(values):
            return 0.0
        # the signs of rounding errors are unknown: add absolute values
        most = (np.abs(vectors).T @ off) / values
        reach = float((np.abs(centred @ vectors) @ most)[m > 0].max(initial=0.0))
        return min(1.0, reach * (1.0 + 1e-6))

    # --- rounding ---------------------------------------------------------------------

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return an upper bound on ``primal`` if scores are off by up to ``error``."""
        order = self.sets.order
        f, reach = decisions(self.design, F, bias)[order, 0], error[order, 0]
        if self.design is not None:
            size = decisions(self.design, np.abs(F), np.abs(bias), np.abs)[order, 0]
            reach = reach + (16 + len(bias)) * UNIT * size
        both = self._logs(f + reach)
        gains = entries_sum(self._k * both) - entries_sum(self._given * (f - reach))
        # each addition contributes to the error of a logarithm of sums
        size = float(np.abs(both).max(initial=0.0)) + float(np.abs(f).max(initial=0.0))
        steps = (4.0 * len(f) + 32.0) * UNIT * (size + 4.0) * self._total
        sums = entries_sum(self._k * np.abs(both)) + entries_sum(
            self._given * (np.abs(f) + reach)
        )
        return gains + steps + pairwise(len(f)) * sums

    def below(self, A: FloatArray) -> float:
        """Return a lower bound on ``dual`` at an exactly feasible point near A.

        The contribution of an event time increases with the masses at risk.
        """
        m = self._masses(A)
        slip = self._slip(m)
        events, others, rho = self._flow(m)
        off = 2 * (_steps(len(m)) + slip) * self._total
        ends = np.zeros(len(rho), dtype=bool)
        ends[self._ends] = True
        lower = np.where(ends, rho, np.maximum(rho - off, 0.0))
        fewer, less = np.maximum(events - off, 0.0), np.maximum(others - off, 0.0)
        plain = self._entropies(events, others, np.maximum(rho, 0.0))
        terms = np.minimum(plain, self._entropies(fewer, less, lower))
        tied = ends & (self.sets.count > 1)
        if tied.any():  # their sum is fixed: bound the change of the split both ways
            terms[tied] = plain[tied]
            shifted = self._entropies(events + off, less, lower)
            terms[tied] -= 2 * np.abs(plain - shifted)[tied] + off
            shifted = self._entropies(fewer, others + off, lower)
            terms[tied] -= 2 * np.abs(plain - shifted)[tied] + off
        entropy = xlogy(m, m / self._s)
        lost = (slip + FEW) * (entries_sum(np.abs(entropy)) + 2 * entries_sum(m))
        sums = entries_sum(np.abs(terms)) + entries_sum(np.abs(entropy))
        rounded = (pairwise(len(m)) + FEW) * sums
        return entries_sum(terms) - entries_sum(entropy) - lost - rounded

    def strain(self, A: FloatArray) -> FloatArray:
        """Return the distance from ``A`` to an exactly feasible point."""
        m = self._masses(A)
        return self._back(self._slip(m) * m)[:, None]

    def _slip(self, m: FloatArray) -> float:
        """Return the relative change of masses that makes them exactly feasible."""
        worst = 0.0
        for one in self.sets.strata:
            have = entries_sum(self._costs[one.groups])
            if have:
                worst = max(worst, abs(entries_sum(m[one.rows]) - have) / have)
        if self.design is not None:
            worst += self._tilt(m)
        return worst + 4 * pairwise(len(m))

    # --- parts ------------------------------------------------------------------------

    def take(self, rows: Rows, factor: float) -> Cox:
        """Return the loss on some samples, its cost multiplied by ``factor``."""
        return Cox(
            self.time[rows],
            self.event[rows],
            self.stratum[rows],
            self.weight[rows],
            factor * self.C,
            self.ties,
            design=None if self.design is None else self.design.take(rows),
        )


def _some(part: slice) -> bool:
    return bool(part.stop > part.start)


def _log(x: FloatArray) -> FloatArray:
    """Return the logarithm, and zero at zero, where it is multiplied by zero."""
    return np.log(np.where(x > 0, x, 1.0))


def _over(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return ``x / y``, one where y is zero."""
    return np.where(y > 0, x / np.where(y > 0, y, 1.0), 1.0)
