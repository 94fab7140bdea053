"""Many targets on the same samples, each with its own kernel weights.

The problem separates into one for each target: :class:`OwnEvidence` into
:class:`~mklearn.problems.EvidenceProblem`, :class:`OwnSquared` into
:class:`~mklearn.problems.MKLProblem`. They share the kernels, so the bounds of all
targets are computed from products of the kernels with many columns at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from mklearn.data.clock import Clock, OutOfTimeError, check_time
from mklearn.data.spelling import plural
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.memory import room_for
from mklearn.problems.base import (
    Certificate,
    Iterate,
    Judgement,
    Kind,
    relative_gap,
    shares,
)
from mklearn.problems.design import Design
from mklearn.problems.evidence import EvidenceProblem, Likelihood
from mklearn.problems.losses import Squared
from mklearn.problems.mkl import MKLProblem, certified_columns
from mklearn.problems.weights import WeightSet

FloatArray = NDArray[np.float64]

_BLOCK = 2**26  # bytes of products with all kernels that are in memory at a time
_TOGETHER = 64  # targets that are certified at a time
_SOLVED = 0.3  # relative residual of a system above which its solution is rejected


def target_blocks(
    n: int, n_kernels: int, n_targets: int, most: int | None = None, start: int = 0
) -> list[slice]:
    """Return blocks of targets whose products with all kernels take little memory.

    Parameters
    ----------
    n, n_kernels, n_targets : int
    most : int, optional
        Maximum number of targets in a block.
    start : int
        The first target.
    """
    size = max(1, _BLOCK // (8 * n * max(1, n_kernels)))
    size = size if most is None else min(size, most)
    return [slice(i, min(i + size, n_targets)) for i in range(start, n_targets, size)]


@dataclass(frozen=True)
class Centred:
    """Samples in units of the noise, with unpenalised terms projected out.

    With ``W = diag(weight)`` and F the design, values are ``z = H W^½ y`` and kernels
    ``H W^½ K W^½ H``, where H is the projection onto the orthogonal complement of
    ``W^½ F``. The restricted likelihood of y is the likelihood of z, and ridge
    regression of y with unpenalised effects is that of z without any.

    Attributes
    ----------
    root : array of shape (n,)
        ``W^½``.
    basis : array of shape (n, q)
        Orthonormal basis of the span of ``W^½ F``.
    """

    root: FloatArray
    basis: FloatArray

    @classmethod
    def of(cls, weight: FloatArray, design: FloatArray) -> Centred:
        """Return the projection for weights (n,) and a design (n, q)."""
        root = np.sqrt(weight)
        return cls(root, np.linalg.qr(root[:, None] * design)[0])

    def values(self, Y: FloatArray) -> FloatArray:
        """Return ``z`` of each column."""
        # twice, because a large constant leaves rounding errors the first time
        return self._off(self._off(self.root[:, None] * Y))

    def gram(self, K: FloatArray) -> FloatArray:
        """Return the kernel between centred samples."""
        K = self.root[:, None] * K * self.root
        K = self._off(self._off(K).T)
        return np.asarray(0.5 * (K + K.T))

    def coefficients(self, a: FloatArray) -> FloatArray:
        """Return the dual variables ``W^½ a`` of the original samples."""
        return self.root[:, None] * self._off(a)

    def _off(self, X: FloatArray) -> FloatArray:
        return X - self.basis @ (self.basis.T @ X)


@dataclass(frozen=True)
class Factors:
    """Centred kernels as products ``L_m L_m'`` with as many columns as their rank.

    Attributes
    ----------
    stack : array of shape (n, R)
        The factors of all kernels side by side.
    ends : array of shape (n_kernels + 1,)
        The first columns of the factors, and the total number of columns.
    """

    stack: FloatArray = field(repr=False)
    ends: NDArray[np.intp]

    @classmethod
    def of(cls, bank: KernelBank, centred: Centred) -> Factors | None:
        """Return the factors; None if a kernel is not positive semidefinite."""
        n, _, M = bank.shape
        parts = []
        for m in range(M):
            C = centred.gram(bank.gram(m))
            diag = np.diagonal(C).copy()
            floor = n * np.finfo(float).eps * max(float(diag.max()), 0.0)
            L, order, rank, _ = dpstrf(C, lower=1, tol=floor)
            part = np.zeros((n, rank))
            part[order - 1] = np.tril(L)[:, :rank]
            off = np.abs(diag - np.sum(part**2, axis=1)).max()
            if off > 1e-8 * max(float(np.abs(diag).max()), 1e-300):
                return None
            parts.append(part)
        ends = np.cumsum([0, *(part.shape[1] for part in parts)])
        return cls(np.hstack(parts), ends)

    @property
    def ranks(self) -> NDArray[np.intp]:
        """Number of columns of each factor."""
        return np.diff(self.ends)

    def totals(self, each: FloatArray) -> FloatArray:
        """Return sums over the columns of each kernel of ``each`` (R, ...)."""
        out = np.zeros((len(self.ranks), *each.shape[1:]))
        filled = self.ranks > 0  # reduceat cannot handle empty slices
        if filled.any():
            out[filled] = np.add.reduceat(each, self.ends[:-1][filled], axis=0)
        return out

    def traces(self) -> FloatArray:
        """Return the trace of each kernel, shape (n_kernels,)."""
        return self.totals(np.sum(self.stack**2, axis=0))

    def quads(self, a: FloatArray) -> FloatArray:
        """Return ``a' C_m a`` of each column of ``a`` (n, T), shape (T, n_kernels)."""
        return self.totals((self.stack.T @ a) ** 2).T

    def columns(self, thetas: FloatArray) -> FloatArray:
        """Return the weight of each column of the stack, shape (R, ...)."""
        return np.repeat(thetas.T, self.ranks, axis=0)


# --- evidence -------------------------------------------------------------------------


@dataclass(frozen=True)
class Likelihoods:
    """The evidence of the weights of each target.

    Attributes
    ----------
    evidence : array of shape (T,)
        Log density of the values of each target.
    nothing : array of shape (T,)
        The same for zero weights: only noise and a constant.
    noise : array of shape (T,)
        Variances of the noise.
    promise : array of shape (T,)
        Increase of the log evidence that the quadratic model at these weights predicts;
        NaN if it was not computed.
    exact : array of shape (T,)
        Whether the evidence was computed from a factorisation of the target's own
        matrix; otherwise, it follows from that of targets with similar weights.
    """

    evidence: FloatArray
    nothing: FloatArray
    noise: FloatArray = field(repr=False)
    promise: FloatArray
    exact: NDArray[np.bool_] = field(repr=False)

    @classmethod
    def of(cls, each: Sequence[Likelihood]) -> Likelihoods:
        """Return the evidence of targets that were solved one by one.

        Parameters
        ----------
        each : sequence of Likelihood
            One for each target.
        """
        return cls(
            np.array([one.evidence for one in each]),
            np.array([one.nothing for one in each]),
            np.concatenate([one.noise for one in each]),
            np.array([np.nan if one.promise is None else one.promise for one in each]),
            np.ones(len(each), dtype=bool),
        )

    @property
    def message(self) -> str:
        """What was found, in words."""
        gain = np.median(self.evidence - self.nothing)
        known = self.promise[np.isfinite(self.promise)]
        promise = ""
        if len(known):
            promise = (
                "; small changes of the weights could increase it by about "
                f"{np.mean(known):.2g} on average, and by {np.max(known):.2g} for a "
                "single target"
            )
        return (
            f"The log evidence of {plural(len(self.evidence), 'target')} is {gain:.3g} "
            f"above that without kernels, in the median{promise}. These are local "
            "optima: distant weights may be better."
        )


@dataclass(frozen=True)
class OwnEvidence:
    """The restricted likelihood of each target, at its own weights.

    Parameters
    ----------
    all : EvidenceProblem
        The problem of all targets; its shared weights are not used. Values may be in
        single precision or in a memory-mapped file: they are read in blocks of targets.
    memory_limit : int, optional
        Number of bytes above which coefficients are stored in a file.
    like : OwnEvidence, optional
        A problem of other targets on the same samples, to share factors with.
    """

    all: EvidenceProblem
    memory_limit: int | None = None
    like: OwnEvidence | None = field(default=None, repr=False)

    kind: ClassVar[Kind] = "targets"

    @property
    def bank(self) -> KernelBank:
        """The kernels."""
        return self.all.bank

    @property
    def n_targets(self) -> int:
        """Number of targets T."""
        return int(self.all.Y.shape[1])

    def of(self, Y: FloatArray) -> OwnEvidence:
        """Return the problem of other targets, which shares factors with this one."""
        return replace(self, all=replace(self.all, Y=Y), like=self)

    @cached_property
    def centred(self) -> Centred:
        """The projection that removes sample weights and unpenalised terms."""
        return Centred.of(self.all.weight, self.all.design)

    def values(self, targets: NDArray[np.intp] | slice) -> FloatArray:
        """Return the centred values of some targets, shape (n, count)."""
        return self.centred.values(np.asarray(self.all.Y[:, targets], dtype=float))

    def varied(self, targets: slice) -> NDArray[np.bool_]:
        """Return which of some targets are not constant."""
        return np.asarray(np.ptp(self.all.Y[:, targets], axis=0) > 0)

    def one(self, target: int) -> EvidenceProblem:
        """Return the problem of one target."""
        y = np.asarray(self.all.Y[:, [target]], dtype=float)
        return replace(self.all, Y=y - np.median(y, axis=0))

    def first(self) -> Iterate:
        """Return zero weights: only noise and a constant."""
        A = room_for(self.all.Y.shape, self.all.Y.dtype, self.memory_limit)
        for block in self.blocks():
            A[:, block] = self.centred.coefficients(self.values(block))
        return Iterate(np.zeros((self.n_targets, self.bank.shape[2])), A)

    def judge(self, point: Iterate) -> Judgement:
        """Return minus the claimed evidence; without a claim, that of zero weights."""
        found = point.about
        value = self.nothing.sum() if found is None else found.evidence.sum()
        return Judgement(-float(value), -np.inf, np.zeros(self.n_targets))

    def dual(self, A: FloatArray) -> float:
        """Return minus infinity: the evidence is not concave."""
        return -np.inf

    @cached_property
    def nothing(self) -> FloatArray:
        """The evidence of zero weights, shape (T,); 0 for constant targets."""
        out = np.zeros(self.n_targets)
        for block in self.blocks():
            quads = np.sum(self.values(block) ** 2, axis=0) * self.varied(block)
            out[block] = self.evidence(quads, np.zeros(len(quads)))
        return out

    def evidence(self, quads: FloatArray, volumes: FloatArray) -> FloatArray:
        """Return the log densities of targets from ``z'G^-1 z`` and ``log |G|``.

        Zero for a constant target, which carries no information about the kernels.
        """
        found = -0.5 * (self.all.misfit(np.where(quads > 0, quads, 1.0)) + volumes)
        return np.where(quads > 0, found, 0.0)

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the evidence, with noise and constants recomputed from the kernels.

        It is checked that the coefficients A solve the linear system of the weights; if
        they do not, the weights of that target are set to zero. The determinants are
        those of the solver, since a factorisation for each target would take longer
        than the fit.
        """
        theta, A, about = point.theta.copy(), point.A, point.about
        T = self.n_targets
        noise, effects = np.zeros(T), np.zeros((self.all.design.shape[1], T))
        evidence, exact = self.nothing.copy(), np.ones(T, dtype=bool)
        promise = np.full(T, np.nan)
        if about is not None:
            evidence, exact = about.evidence.copy(), about.exact.copy()
            promise = about.promise.copy()
        root, factors = self.centred.root[:, None], self.factors
        for block in self.blocks():
            z, a = self.values(block), self._noise_part(A[:, block])
            size = np.sqrt(np.sum(z**2, axis=0))
            if factors is None:
                K_a = self.centred.values(self.bank.apply_each(theta[block], a * root))
            else:
                L = factors.stack
                K_a = L @ (factors.columns(theta[block]) * (L.T @ a))
            off = np.sqrt(np.sum((z - a - K_a) ** 2, axis=0))
            bad = np.flatnonzero(~(off <= _SOLVED * size))
            if len(bad):
                at = np.arange(block.start, block.stop)[bad]
                A[:, at], a[:, bad] = root * z[:, bad], z[:, bad]
                theta[at] = 0.0
                evidence[at], promise[at], exact[at] = self.nothing[at], np.nan, True
            noise[block] = self.all.noises(np.maximum(np.sum(z * a, axis=0), 0.0))
            effects[:, block] = self._effects(theta[block], root * a, block)
        found = Likelihoods(evidence, self.nothing, noise, promise, exact)
        words = found.message.rstrip(".")
        return Certificate(
            upper=-float(evidence.sum()),
            lower=-np.inf,
            bias=effects[0] if self.all.fixed is None else effects,
            theta=theta,
            A=A,
            dual=A,
            weight_bounds=np.full(theta.shape[1], np.inf),
            about=found,
            claim=words,
            doubt=words,
        )

    @cached_property
    def factors(self) -> Factors | None:
        """Factors of the centred kernels, None if one is not semidefinite."""
        if self.like is not None:
            return self.like.factors
        return Factors.of(self.bank, self.centred)

    @cached_property
    def _sums(self) -> FloatArray:
        """``(F'WF)^-1 F'W K_m``, shape (n, q, M)."""
        return self.bank.multiply(self._regression.T)

    @cached_property
    def _regression(self) -> FloatArray:
        """``(F'WF)^-1 F'W``, shape (q, n)."""
        F, w = self.all.design, self.all.weight[:, None]
        return np.asarray(np.linalg.solve(F.T @ (w * F), (w * F).T), dtype=float)

    def _effects(self, theta: FloatArray, A: FloatArray, block: slice) -> FloatArray:
        """Return the unpenalised coefficients of a block of targets, shape (q, T)."""
        explained = np.einsum("tm,iqm,it->qt", theta, self._sums, A, optimize=True)
        Y = np.asarray(self.all.Y[:, block], dtype=float)
        return np.asarray(self._regression @ Y - explained)

    def _noise_part(self, A: FloatArray) -> FloatArray:
        """Return ``a`` of dual variables ``A = W^½ a``."""
        return np.asarray(A, dtype=float) / self.centred.root[:, None]

    def until(self, clock: Clock) -> tuple[OwnEvidence, float | None]:
        """Return the problem, and the seconds that solvers have."""
        return self, clock.left()

    def contributions(
        self, theta: FloatArray, A: FloatArray, quads: FloatArray | None = None
    ) -> FloatArray:
        """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (T, M).

        ``quads`` are those of A, if they are known.
        """
        if quads is not None:
            return shares(theta * quads)
        if self.factors is None:
            return own_shares(self.bank, theta, A)
        quads = np.empty(theta.shape)
        for block in self.blocks():
            quads[block] = self.factors.quads(self._noise_part(A[:, block]))
        return shares(theta * quads)

    def blocks(self) -> list[slice]:
        """Return blocks of targets."""
        n, _, M = self.bank.shape
        return target_blocks(n, M, self.n_targets)


def own_shares(bank: KernelBank, theta: FloatArray, A: FloatArray) -> FloatArray:
    """Return the shares of kernels for targets with their own weights, (T, M)."""
    from_each = np.empty(theta.shape)
    n, _, M = bank.shape
    for block in target_blocks(n, M, len(theta)):
        from_each[block] = theta[block] * bank.quads(A[:, block])
    return shares(from_each)


# --- squared loss ---------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    """Bounds on the optimum of each target.

    Attributes
    ----------
    upper, lower : arrays of shape (T,)
    proved : array of bool of shape (T,)
        Whether these are the bounds that the weights of a target give; False if the
        time ended before, so that they are those of the zero function.
    """

    upper: FloatArray
    lower: FloatArray
    proved: NDArray[np.bool_]

    @property
    def gaps(self) -> FloatArray:
        """Relative duality gap of each target, shape (T,)."""
        pairs = zip(self.upper, self.lower, strict=True)
        return np.array([relative_gap(float(u), float(b)) for u, b in pairs])

    @property
    def message(self) -> str:
        """What is proved, in words."""
        gaps, late = self.gaps[self.proved], np.count_nonzero(~self.proved)
        rest = ""
        if late:
            rest = f"; time_limit was reached before {late} other gaps were computed"
        return (
            f"Each of {plural(len(gaps), 'target')} has its own weights, within "
            f"{100 * float(gaps.max()):.2g} % of the best possible objective; "
            f"{100 * float(np.median(gaps)):.2g} % in the median{rest}"
        )


Claims = TypeVar("Claims", Likelihoods, Bounds)


def joined(parts: Sequence[Claims]) -> Claims:
    """Return what is known about consecutive groups of targets, as that of all."""
    names = [one.name for one in fields(parts[0])]
    every = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    return type(parts[0])(**every)


@dataclass(frozen=True)
class OwnSquared:
    """Ridge regression of each target, at its own weights in a common set.

    Parameters
    ----------
    bank : KernelBank
        A square, normalised bank.
    Y : array of shape (n, T)
    cost : array of shape (n,)
        Positive.
    weights : WeightSet
    design : Design, optional
        Ones and covariates, whose coefficients are unpenalised for each target.
    like : OwnSquared, optional
        A problem of other targets on the same samples, to share factors with.
    C : array of shape (T,), optional
        The factor by which ``cost`` is multiplied for each target; one by default.
    clock : Clock
        The time at which certificates must end.
    """

    bank: KernelBank
    Y: FloatArray
    cost: FloatArray
    weights: WeightSet
    design: Design | None = None
    like: OwnSquared | None = field(default=None, repr=False)
    C: FloatArray | None = None
    clock: Clock = field(default=Clock(), repr=False)

    kind: ClassVar[Kind] = "targets"

    @property
    def n_targets(self) -> int:
        """Number of targets T."""
        return int(self.Y.shape[1])

    def of(self, Y: FloatArray) -> OwnSquared:
        """Return the problem of other targets, which shares factors with this one."""
        return replace(self, Y=Y, like=self)

    def among(
        self, targets: NDArray[np.intp], C: FloatArray, weights: WeightSet
    ) -> OwnSquared:
        """Return the problem of some targets, with other costs and another set."""
        Y = self.Y[:, targets]
        return replace(self, Y=Y, C=C, weights=weights, like=self.like or self)

    @cached_property
    def multiples(self) -> FloatArray:
        """The factor of the cost of each target, shape (T,)."""
        return np.ones(self.n_targets) if self.C is None else self.C

    @cached_property
    def centred(self) -> Centred:
        """The projection that removes costs, bias and covariates."""
        ones = np.ones((len(self.cost), 1))
        return Centred.of(self.cost, ones if self.design is None else self.design.basis)

    @cached_property
    def factors(self) -> Factors | None:
        """Factors of the centred kernels, None if one is not semidefinite."""
        if self.like is not None:
            return self.like.factors
        return Factors.of(self.bank, self.centred)

    def values(self, targets: NDArray[np.intp] | slice) -> FloatArray:
        """Return the centred values of some targets, shape (n, count)."""
        return self.centred.values(np.asarray(self.Y[:, targets], dtype=float))

    def varied(self, targets: slice) -> NDArray[np.bool_]:
        """Return which of some targets are not explained by covariates alone."""
        Y = self.Y[:, targets]
        different = np.asarray(np.ptp(Y, axis=0) > 0)
        if self.design is None:
            return different
        return different & ~self.design.explains(np.asarray(Y, dtype=float))

    def one(self, target: int) -> MKLProblem:
        """Return the problem of one target."""
        return self._of(slice(target, target + 1))

    def _of(self, block: slice) -> MKLProblem:
        y = np.asarray(self.Y[:, block], dtype=float)
        cost = self.cost[:, None] * self.multiples[block]
        loss = Squared(y, cost, design=self.design)
        return MKLProblem(self.bank, loss, self.weights)

    def first(self) -> Iterate:
        """Return the zero function at equal weights."""
        theta = np.tile(self.weights.center(self.bank.shape[2]), (self.n_targets, 1))
        return Iterate(theta, np.zeros(self.Y.shape, dtype=self.Y.dtype))

    def judge(self, point: Iterate) -> Judgement:
        """Return the claimed objective; without a claim, that of the zero function."""
        found = point.about
        if found is None:
            total = 0.0
            for block in self.blocks():
                each = np.sum(self.values(block) ** 2, axis=0)
                total += 0.5 * float(self.multiples[block] @ each)
            return Judgement(total, -np.inf, np.zeros(self.n_targets))
        # bounds of the sum may meet before those of each target: no lower bound here
        return Judgement(float(found.upper.sum()), -np.inf, np.zeros(self.n_targets))

    def dual(self, A: FloatArray) -> float:
        """Return minus infinity; :meth:`certify` computes the bounds."""
        return -np.inf

    def certify(self, point: Iterate, dual: Iterate) -> Certificate:
        """Return the bounds of each target, computed from the bank alone.

        Those of the first block are computed whatever the clock says. Once it ends, the
        bounds of further targets are those of the zero function, which take no products
        with the kernels.
        """
        T, theta, A = self.n_targets, point.theta, point.A
        upper, lower, error = (np.zeros(T) for _ in range(3))
        wide = () if self.design is None else (self.design.columns.shape[1],)
        bias, quads = np.zeros((*wide, T)), np.zeros(theta.shape)
        proved = np.ones(T, dtype=bool)
        for block in self._certified():
            clock = self.clock if block.start else Clock()
            part = np.asarray(A[:, block], dtype=float)
            try:
                with clock.within():
                    check_time()
                    found = certified_columns(self._of(block), theta[block], part)
            except OutOfTimeError:
                late = slice(block.start, T)
                upper[late], proved[late] = self.at_zero(late), False
                for rest in self._certified(block.start):
                    part = np.asarray(A[:, rest], dtype=float)
                    bias[..., rest] = self._effects(theta[rest], part, rest)
                    quads[rest] = self._quads(part)
                break
            upper[block], lower[block] = found.upper, found.lower
            error[block], bias[..., block] = found.error, found.bias
            A[:, block], quads[block] = found.A, found.quads
        bounds = Bounds(upper, lower, proved)
        return Certificate(
            upper=float(upper.sum()),
            lower=float(lower.sum()),
            bias=bias,
            theta=theta,
            A=A,
            dual=A,
            weight_bounds=np.ones(theta.shape[1]),
            about=bounds,
            claim=bounds.message,
            doubt=bounds.message,
            error=float(error.sum()),
            quads=quads,
        )

    def until(self, clock: Clock) -> tuple[OwnSquared, float | None]:
        """Return the same problem with a clock, and the seconds that solvers have.

        The rest is for the certificates, at most half of the time.
        """
        one, left = replace(self, clock=clock), clock.left()
        return one, None if left is None else left - min(one._certifying(), left / 2)

    def _certifying(self) -> float:
        """Return about how many seconds the certificates of all targets take."""
        some = next(iter(self._certified()), slice(0, 0))
        point, began = self.first().theta[some], time.perf_counter()
        A = self.centred.coefficients(self.values(some)) * self.multiples[some]
        with suppress(OutOfTimeError), self.clock.within():
            certified_columns(self._of(some), point, A)
        return (time.perf_counter() - began) * self.n_targets / max(some.stop, 1)

    def at_zero(self, targets: slice) -> FloatArray:
        """Return the objective of the zero function, for some targets."""
        sums = np.concatenate(
            [
                np.sum(self.values(block) ** 2, axis=0)
                for block in self.blocks(targets.start)
            ]
        )
        return np.asarray(0.5 * self.multiples[targets] * sums)

    @cached_property
    def regression(self) -> FloatArray:
        """The map from values to coefficients of the design's basis, shape (q, n)."""
        cost = self.cost[:, None]
        F = np.ones((len(cost), 1)) if self.design is None else self.design.basis
        found = np.linalg.solve(F.T @ (cost * F), (cost * F).T)
        return np.asarray(found, dtype=float)

    @cached_property
    def _sums(self) -> FloatArray:
        return self.bank.multiply(self.regression.T)

    def _effects(self, theta: FloatArray, A: FloatArray, block: slice) -> FloatArray:
        """Return the optimal biases or effects of a block of targets."""
        off = np.einsum("tm,iqm,it->qt", theta, self._sums, A, optimize=True)
        found = self.regression @ np.asarray(self.Y[:, block], dtype=float) - off
        return found[0] if self.design is None else self.design.effects(found)

    def _quads(self, A: FloatArray) -> FloatArray:
        """Return ``<A, K[m] A>`` of each target, from the factors if they are known."""
        if self.factors is None:
            return self.bank.quads(A)
        return self.factors.quads(A / self.centred.root[:, None])

    def contributions(
        self, theta: FloatArray, A: FloatArray, quads: FloatArray | None = None
    ) -> FloatArray:
        """Return each kernel's share of ``sum_m |w_m|^2 / theta_m``, shape (T, M).

        ``quads`` are those of A, if they are known.
        """
        return (
            own_shares(self.bank, theta, A) if quads is None else shares(theta * quads)
        )

    def blocks(self, start: int = 0) -> list[slice]:
        """Return blocks of targets, from a first one on."""
        n, _, M = self.bank.shape
        return target_blocks(n, M, self.n_targets, start=start)

    def _certified(self, start: int = 0) -> list[slice]:
        """Return the blocks of targets between which the clock is checked."""
        n, _, M = self.bank.shape
        return target_blocks(n, M, self.n_targets, _TOGETHER, start)


# --- weights shared by all targets ----------------------------------------------------


@dataclass(frozen=True)
class FewerColumns:
    """Targets (n, T) as combinations of at most n columns, ``Y = columns @ mix'``.

    The squared loss depends on Y only through ``Y Y'``: with shared weights, the
    problem of the columns is equivalent to that of Y, and ``A = A_columns @ mix'``.

    Attributes
    ----------
    columns : array of shape (n, r)
    mix : array of shape (T, r)
        Matrix with orthonormal columns.
    """

    columns: FloatArray
    mix: FloatArray

    @classmethod
    def of(cls, Y: FloatArray) -> FewerColumns:
        """Return the reduction of Y (n, T) for T above n."""
        # QR of the transpose: Y' = Q R, so that Y = R' Q'
        Q, R = np.linalg.qr(Y.T)
        return cls(np.ascontiguousarray(R.T), Q)

    def spread(self, part: FloatArray) -> FloatArray:
        """Map values of the columns, (n, r) or (r,), to the targets."""
        return np.asarray(part @ self.mix.T)
