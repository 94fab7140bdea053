"""Losses that are not sums over samples and tasks.

The threshold of :class:`OneClass` couples all samples; :class:`CrammerSinger` and
:class:`Multinomial` couple the classes of each sample, which are their tasks. The table
in :mod:`mklearn.problems.losses` has their formulas beside those of the other losses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from mklearn.problems.base import (
    FEW,
    UNIT,
    column_sums,
    entries_sum,
    pairwise,
    per_cost,
)
from mklearn.problems.design import (
    Design,
    Exchange,
    Peaks,
    decisions,
    middle_bias,
)
from mklearn.problems.protocols import Box, Rows

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class OneClass:
    """The ν one-class problem: ``-rho + sum_i C_i max(0, rho - f_i)``.

    The bias is ``-rho``, so that ``f + bias`` is negative for outliers.

    Parameters
    ----------
    C : array of shape (n, 1)
        ``1 / (nu n)`` for each sample; the costs must sum to one or more. If rounding
        makes their sum slightly smaller, A sums to it, and rho is multiplied by it.
    """

    C: FloatArray

    def __post_init__(self) -> None:
        if self.C.sum() < 1 - 1e-9:
            raise ValueError(
                "The costs of a one-class problem must sum to one or more."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples, and one task."""
        return self.C.shape[0], 1

    hyperplane = True
    concavity = 0.0
    design: ClassVar[None] = None  # there is no place for covariates

    @cached_property
    def mass(self) -> float:
        """What A sums to: one, or the sum of the costs if that is less."""
        return min(1.0, entries_sum(self.C))

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss, minus rho."""
        short = np.maximum(0.0, -(F + bias))
        return float(np.sum(self.C * short) + self.mass * bias.sum())

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return an upper bound on ``primal``, for scores off by up to ``error``."""
        reach = error + 4 * UNIT * (np.abs(F) + np.abs(bias))
        short = entries_sum(self.C * np.maximum(0.0, reach - (F + bias)))
        rho = self.mass * float(bias.sum())
        rounded = pairwise(len(F)) * (short + abs(rho))
        return short + rho + rounded

    def below(self, A: FloatArray) -> float:
        """Return 0."""
        return 0.0

    def strain(self, A: FloatArray) -> FloatArray:
        """Return bounds on the distance of ``A`` from an exactly feasible point.

        Its entries are larger, in proportion to ``C - A``, or all smaller.
        """
        total, most = entries_sum(A), entries_sum(self.C)
        slip = 2 * pairwise(len(A)) * max(most, 1.0)
        off = abs(total - self.mass) + slip
        left = max(most - total - slip, 0.0)
        grown = np.maximum(self.C - A, 0.0) * (min(1.0, off / left) if left else 1.0)
        return np.asarray(np.maximum(grown, A * (off / total)))

    def dual(self, A: FloatArray) -> float:
        """Return 0."""
        return 0.0

    def bias(self, F: FloatArray) -> FloatArray:
        """Return ``-rho``."""
        return middle_bias(-F, self.C, np.array([self.mass - self.C.sum()]))

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return 0 for free variables, inf at the bounds."""
        return np.where((A > 0) & (A < self.C), 0.0, np.inf)

    def box(self, task: int) -> Box:
        """Return the QP."""
        C = self.C[:, 0]
        zero = np.zeros_like(C)
        return Box(zero, zero, C, zero, True)

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip to the box and make the entries sum to one."""
        A = np.clip(A, 0.0, self.C)
        total, left = entries_sum(A), entries_sum(self.C - A)
        short = self.mass - total
        if short <= 0.0:
            return A * (self.mass / total)
        # all that is left, where rounding asks for more
        return A + (self.C - A) * (short / left if short < left else 1.0)

    def take(self, rows: Rows, factor: float) -> OneClass:
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        C = factor * self.C[rows]
        return OneClass(C * max(1.0, 1.0 / C.sum()))


@dataclass(frozen=True)
class _OfClasses:
    """What losses of labels, with a task for each class, have in common.

    Parameters
    ----------
    labels : array of shape (n,)
        Indices of the classes, from 0.
    C : array of shape (n,)
        Cost of each sample.
    n_classes : int
    design : Design, optional
        Ones and covariates, whose coefficients are free for each class.
    """

    labels: NDArray[np.intp]
    C: FloatArray
    n_classes: int
    design: Design | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or np.shape(self.C) != labels.shape:
            raise ValueError(
                f"{type(self).__name__} needs one label and one cost for each sample, "
                f"got shapes {labels.shape} and {np.shape(self.C)}."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and classes."""
        return len(self.labels), self.n_classes

    @cached_property
    def own(self) -> NDArray[np.bool_]:
        """Whether a class is that of the sample, shape (n, n_classes)."""
        return np.asarray(self.labels[:, None] == np.arange(self.n_classes))

    @cached_property
    def _exchange(self) -> Exchange:
        """The constraints that covariates put on the rows of A."""
        assert self.design is not None
        return Exchange(self.design, self.labels, self.n_classes)

    def _known_bias(self, F: FloatArray) -> FloatArray | None:
        """Return a copy of the last biases or effects, if they belong to these F."""
        known = self._known.get("bias")
        if known is None or known[0].shape != F.shape or (known[0] != F).any():
            return None
        return known[1].copy()

    @cached_property
    def _known(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """The last scores and their best biases, which are often asked for again."""
        return {}

    def take(self, rows: Rows, factor: float):  # type: ignore[no-untyped-def]
        """Return the loss on some samples, their costs multiplied by ``factor``."""
        design = None if self.design is None else self.design.take(rows)
        C = factor * self.C[rows]
        return replace(self, labels=self.labels[rows], C=C, design=design)


@dataclass(frozen=True)
class CrammerSinger(_OfClasses):
    """``C_i (max_c (f_ic + 1 - [c = y_i]) - f_iy)``: all classes at once, no bias.

    Tasks are classes. The dual variables satisfy ``A_ic <= C_i [c = y_i]``, and their
    rows sum to zero: what the class of a sample gains, the other classes (its rivals)
    lose. With covariates there is a bias, too, and ``E'A = 0``.

    Parameters
    ----------
    labels : array of shape (n,)
        Indices of the classes, from 0.
    C : array of shape (n,)
        Cost of each sample.
    n_classes : int
    design : Design, optional
        Ones and covariates, whose coefficients are free for each class.
    """

    hyperplane = False
    concavity = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        labels = np.asarray(self.labels)
        if self.n_classes < 2 or labels.min() < 0 or labels.max() >= self.n_classes:
            raise ValueError(
                f"Labels must be numbers from 0 to {self.n_classes - 1}, of at least 2 "
                f"classes; got {labels.min()} to {labels.max()}."
            )

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss.

        Without covariates there is no bias, and ``bias`` is zero; with them it has
        shape (1 + k, T).
        """
        return float(self.C @ self.slacks(decisions(self.design, F, bias)))

    def slacks(self, F: FloatArray) -> FloatArray:
        """Return the loss of each sample at unit cost, shape (n,)."""
        top = (F + 1.0 - self.own).max(axis=1)
        return np.asarray(top - F[np.arange(len(F)), self.labels])

    def dual(self, A: FloatArray) -> float:
        """Return ``sum_i A_iy``."""
        return float(A[np.arange(len(A)), self.labels].sum())

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return an upper bound on ``primal``, for scores off by up to ``error``."""
        f, terms = decisions(self.design, F, bias), 4
        size = np.abs(F)
        if self.design is not None:
            size, terms = (
                decisions(self.design, size, np.abs(bias), np.abs),
                4 + len(bias),
            )
        size = error + terms * UNIT * (size + 1.0)
        reach = size.max(axis=1) + size[np.arange(len(F)), self.labels]
        total = entries_sum(self.C * (np.maximum(self.slacks(f), 0.0) + reach))
        return total * (1.0 + pairwise(len(F)))

    def below(self, A: FloatArray) -> float:
        """Return a lower bound on ``dual`` at the exactly feasible point near A."""
        own = A[np.arange(len(A)), self.labels]
        return entries_sum(own) * (1.0 - self._misses(A) - pairwise(len(A)))

    def strain(self, A: FloatArray) -> FloatArray:
        """Return bounds on the distance of ``A`` from an exactly feasible point."""
        return np.asarray(self._misses(A) * np.abs(A))

    def _misses(self, A: FloatArray) -> float:
        """Return the relative error of a row: that of a sum over rivals and a quotient.

        With covariates, plus the share by which the masses of rivals must shrink.
        """
        part = 2 * self.n_classes * UNIT + FEW
        return part if self.design is None else part + self._exchange.misses(A)

    def bias(self, F: FloatArray) -> FloatArray:
        """Return zeros; with covariates the best effects, shape (1 + k, T).

        The loss is piecewise linear. The effects are found first for a smoothed loss, a
        softmax with decreasing temperature, and from there by linear programs without
        the classes whose scores are far below the highest.
        """
        if self.design is None:
            return np.zeros(self.n_classes)
        known = self._known_bias(F)
        if known is not None:
            return known
        soft = Multinomial(self.labels, self.C, self.n_classes, design=self.design)
        raised = F + 1.0 - self.own
        g = np.zeros((self.design.basis.shape[1], self.n_classes))
        size = max(float(np.ptp(F)), 1.0)  # margins are one, however small the scores
        heat = 0.3 * size
        while heat > 1e-3 * size:
            heat *= 0.2
            g = heat * soft._best(raised / heat, g / heat, 1e-6)
        g = g - g.mean(axis=1, keepdims=True)
        peaks = Peaks(self.design.basis, raised, self.labels, self.C)
        tried = [np.zeros_like(g), g, peaks.least(g, 20.0 * heat)]
        lost = [
            float(self.C @ self.slacks(F + self.design.basis @ one)) for one in tried
        ]
        effects = self.design.effects(tried[int(np.argmin(lost))])
        self._known["bias"] = F.copy(), effects
        return effects.copy()

    def repair(self, A: FloatArray) -> FloatArray:
        """Clip the entries of rivals, and let the sample's class gain what they lose.

        With covariates, the masses of rivals are tilted until they are feasible, and
        all are scaled down if a sample exceeds its cost.
        """
        own = self.own
        rivals = np.where(own, 0.0, np.minimum(A, 0.0))
        lost = -rivals.sum(axis=1)
        part = np.divide(self.C, lost, out=np.ones_like(lost), where=lost > self.C)
        rivals *= part[:, None]
        if self.design is not None:
            exchange = self._exchange
            A = exchange.signed(-rivals)
            if self.design.is_met(A):
                return A
            m = exchange.tilted(-rivals)
            total = m.sum(axis=1)
            over = float(np.max(total[total > 0] / self.C[total > 0], initial=0.0))
            return exchange.settled(exchange.signed(m / max(over, 1.0)))
        return np.asarray(np.where(own, -rivals.sum(axis=1)[:, None], rivals))

    def curvature(self, A: FloatArray) -> FloatArray:
        """Return 0 below the bounds, inf at them."""
        bound = np.where(self.own, self.C[:, None], 0.0)
        return np.where(bound > A, 0.0, np.inf)


@dataclass(frozen=True)
class Multinomial(_OfClasses):
    """``C_i (log(sum_c exp(f_ic)) - f_iy)``: all classes at once, with biases.

    Tasks are classes. A dual point is a distribution p over the classes for each
    sample, ``A = C ([c = y] - p)``, and its term is the sum of their entropies, times
    C. With free biases, the total probability of a class is the total cost of its
    samples: ``sum_i C_i p_ic = n_c``. With covariates, ``E'A = 0``.

    Parameters
    ----------
    labels : array of shape (n,)
        Indices of the classes, from 0.
    C : array of shape (n,)
        Cost of each sample.
    n_classes : int
    design : Design, optional
        Ones and covariates, whose coefficients are free for each class, like the
        biases.
    """

    hyperplane = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.C).all() and (self.C >= 0).all()):
            raise ValueError(
                "The costs C of a loss must be finite numbers, none below zero."
            )

    @property
    def concavity(self) -> float:
        """Two over the largest cost: no second derivative exceeds half of it."""
        return 2.0 / max(float(self.C.max(initial=0.0)), 1e-300)

    @cached_property
    def counts(self) -> FloatArray:
        """Total cost of each class, shape (k,)."""
        return np.bincount(self.labels, self.C, self.n_classes).astype(float)

    def probabilities(self, F: FloatArray) -> FloatArray:
        """Return the probabilities of the classes at scores with bias, shape (n, k)."""
        p = np.exp(F - F.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def _values(self, F: FloatArray) -> FloatArray:
        """Return the loss of each sample at unit cost, shape (n,)."""
        rows, where = np.arange(len(F)), F.argmax(axis=1)
        top = F[rows, where]
        rest = np.exp(F - top[:, None])
        rest[rows, where] = 0.0  # so that losses near zero keep their digits
        return np.asarray(np.log1p(rest.sum(axis=1)) + (top - F[rows, self.labels]))

    def primal(self, F: FloatArray, bias: FloatArray) -> float:
        """Return the summed loss; with covariates ``bias`` has shape (1 + k, T)."""
        return float(self.C @ self._values(decisions(self.design, F, bias)))

    def dual(self, A: FloatArray) -> float:
        """Return the entropies of the distributions of A, times the costs."""
        p = self._behind(A)
        return float(-np.sum(self.C[:, None] * xlogy(p, p)))

    def _behind(self, A: FloatArray) -> FloatArray:
        """Return the distributions p that a feasible A stands for, clipped at zero."""
        share = per_cost(A, np.broadcast_to(self.C[:, None], A.shape))
        return np.maximum(self.own - share, 0.0)

    def slope(self, F: FloatArray) -> FloatArray:
        """Return ``C ([c = y] - p)``."""
        return self.C[:, None] * (self.own - self.probabilities(F))

    def bent(self, F: FloatArray, V: FloatArray) -> FloatArray:
        """Return ``C (diag(p) - p p')`` times V, sample by sample."""
        p = self.probabilities(F)
        part = p * V
        return self.C[:, None] * (part - p * part.sum(axis=1, keepdims=True))

    def bias(self, F: FloatArray) -> FloatArray:
        """Return the best biases (k,), or effects (1 + k, k), that sum to zero.

        A class without samples is made as unlikely as exp(-50).
        """
        known = self._known_bias(F)
        if known is not None:
            return known
        present = self.counts > 0
        start = np.zeros((self._basis.shape[1], self.n_classes))
        if not present.all():
            start[0, ~present] = (F.min() - F.max() - 50.0) / self._basis[0, 0]
        found = self._best(F, start)
        found[:, present] -= found[:, present].mean(axis=1, keepdims=True)
        bias = found[0] if self.design is None else self.design.effects(found)
        self._known["bias"] = F.copy(), bias
        return bias.copy()

    @cached_property
    def _basis(self) -> FloatArray:
        """The columns that enter without a penalty, shape (n, q)."""
        return np.ones((len(self.C), 1)) if self.design is None else self.design.basis

    def _best(self, F: FloatArray, start: FloatArray, tol: float = 1e-15) -> FloatArray:
        """Return the best coefficients of the basis (q, k), by Newton's method.

        ``tol`` bounds the gradient of the loss there, relative to the sum of the costs.
        """
        b, present = start.copy(), self.counts > 0
        k, total = int(present.sum()), max(float(self.C.sum()), 1e-300)
        q = len(b)
        value, slope, H = self._in_bias(F, b, present)
        for _ in range(100):
            steep = float(np.abs(slope).max())
            if steep <= tol * total or np.trace(H) <= 1e-280:
                break  # in the latter case all probabilities are zero or one
            # all classes may move together: that direction is held
            held = np.kron(np.ones((k, k)), np.eye(q))
            H += (np.trace(H) / (q * k**2) + 1e-300) * held
            H[np.diag_indices(q * k)] += 1e-14 * np.trace(H)
            step, moved = np.linalg.solve(H, slope), b.copy()
            for _ in range(40):
                moved[:, present] = b[:, present] - step.reshape(k, q).T
                found = self._in_bias(F, moved, present)
                # near the end the slope still tells what rounding hides in the value
                near = found[0] <= value + 1e-12 * abs(value)
                if found[0] < value or (near and np.abs(found[1]).max() < steep):
                    break
                step = step / 2
            else:
                break  # rounding
            b, (value, slope, H) = moved, found
        return b

    def _in_bias(
        self, F: FloatArray, b: FloatArray, present: NDArray[np.bool_]
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss and its first two derivatives in the classes' coefficients.

        Coefficients are ordered by class.
        """
        f, B = F + self._basis @ b, self._basis
        p = self.probabilities(f)[:, present]
        off = self.C[:, None] * (p - self.own[:, present])
        parts = (p[:, :, None] * B[:, None, :]).reshape(len(F), -1)
        H = -parts.T @ (self.C[:, None] * parts)
        for c, one in enumerate(p.T):
            at = slice(c * B.shape[1], (c + 1) * B.shape[1])
            H[at, at] += B.T @ ((self.C * one)[:, None] * B)
        return float(self.C @ self._values(f)), (B.T @ off).T.ravel(), H

    def repair(self, A: FloatArray) -> FloatArray:
        """Return distributions, each mixed with one that all samples share.

        ``(1 - t) p_i + t q`` has the right shares of the classes, for the smallest t
        for which q is not negative. With covariates, distributions are instead tilted
        to the nearest feasible ones in relative entropy, which are proportional to
        ``p_ic exp(e_i'x_c)``.
        """
        n_c, present = self.counts, self.counts > 0
        p = np.where(present, self._behind(A), 0.0)
        total = p.sum(axis=1, keepdims=True)
        p = np.divide(p, total, out=self.own.astype(float), where=total > 0)
        if self.design is not None:
            A = self._signed(p)
            if self.design.is_met(A):
                return A
            return self._tilted(p)
        short = np.where(present, n_c - self.C @ p, 0.0)
        ratio = -short[present] / n_c[present]
        most = max(float(ratio.max(initial=0.0)), 0.0)
        if most > 0:
            t = most / (1.0 + most)
            q = np.maximum(t * n_c + (1.0 - t) * short, 0.0)
            q = q if q.any() else n_c  # nothing but rounding is missing
            p = (1.0 - t) * p + t * (q / q.sum())
        return self._signed(p)

    def _tilted(self, p: FloatArray) -> FloatArray:
        """Return the feasible point of tilted distributions.

        No tilt changes shares of zero. If there is no feasible point because of these,
        distributions are first mixed with a small part of the shares of the classes.
        """
        start = np.zeros((self._basis.shape[1], self.n_classes))
        found = np.zeros_like(p)
        for part in (0.0, 0.01):
            mixed = (1.0 - part) * p + part * self.counts / self.counts.sum()
            logs = np.log(np.maximum(mixed, 1e-300))
            tilted = self.probabilities(logs + self._basis @ self._best(logs, start))
            before = self._signed(tilted)
            found = self._exchange.settled(before)
            if np.abs(found).sum() > 0.5 * np.abs(before).sum():
                break
        return found

    def _signed(self, p: FloatArray) -> FloatArray:
        """Return ``C ([c = y] - p)``, whose rows sum to zero."""
        C, rivals = self.C[:, None], np.where(self.own, 0.0, p)
        return np.where(self.own, C * rivals.sum(axis=1, keepdims=True), -C * rivals)

    def above(self, F: FloatArray, bias: FloatArray, error: FloatArray) -> float:
        """Return an upper bound on ``primal``, for scores off by up to ``error``."""
        f = decisions(self.design, F, bias)
        # slopes of a sample sum to two at most in size
        off = 2.0 * error.max(axis=1)
        size = decisions(self.design, np.abs(F), np.abs(bias), np.abs).max(axis=1)
        terms = 4 * self.n_classes + 32
        terms += 0 if self.design is None else 2 * len(bias)
        off += terms * UNIT * (size + np.log(self.n_classes) + 1.0)
        total = entries_sum(self.C * (np.maximum(self._values(f), 0.0) + off))
        return total * (1.0 + pairwise(len(F)))

    def below(self, A: FloatArray) -> float:
        """Return a lower bound on ``dual`` at the exactly feasible point near A.

        Entropy is concave: that of a mixture is at least the mixture of the entropies.
        With covariates, the shares of rivals shrink by different factors. None of the
        terms ``-p log p`` shrinks by more than the largest of these, because the terms
        are concave in the shares of the rivals, and zero where these are zero.
        """
        p = self._behind(A)
        found = -entries_sum(self.C[:, None] * xlogy(p, p))
        # own shares are known to some units, which move p log p by 40 times as much
        off = 400 * self.n_classes * UNIT * entries_sum(self.C)
        return found * (1.0 - self._mixed(A) - pairwise(p.size)) - off

    def strain(self, A: FloatArray) -> FloatArray:
        """Return bounds on the distance of ``A`` from an exactly feasible point."""
        part = self._mixed(A) + 8 * self.n_classes * UNIT
        return np.broadcast_to(part * self.C[:, None], A.shape)

    def _mixed(self, A: FloatArray) -> float:
        """Return the share that has to be mixed in to correct for rounding.

        With covariates, the share by which rivals must shrink.
        """
        if self.design is not None:
            return self._exchange.misses(A)
        total = entries_sum(self.C)
        slip = 2 * pairwise(len(A)) * total + 16 * self.n_classes * UNIT * total
        off = np.abs(column_sums(A)) + slip
        present = self.counts > 0
        ratio = float(np.max(off[present] / self.counts[present], initial=0.0))
        return ratio / (1.0 + ratio) * (1.0 + FEW)
