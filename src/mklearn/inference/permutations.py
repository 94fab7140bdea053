"""Permutations that keep covariates and subjects, and the p-values that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln
from scipy.stats import false_discovery_control

from mklearn.data.subjects import check_groups

FloatArray = NDArray[np.float64]
Index = NDArray[np.intp]

_STEPS = 50  # of the sampler; the number that Berrett et al. use
_ENTRIES = 2**20  # labels that the sampler exchanges at a time
_LAGS = (
    25  # distances of the pairs that are compared within a set; all of them up to 50
)


@dataclass(frozen=True)
class Exchange:
    """What may be exchanged: samples, or subjects as a whole.

    Attributes
    ----------
    n : int
        Number of samples.
    sets : tuple of arrays
        Units that may be exchanged with one another.
    members : tuple of arrays or None
        The samples of each unit, if units are subjects; None if they are samples.
    parts : array of int of shape (n,), or None
        Part of each sample, such as its stratum, or subjects of the same size, if no
        permutation changes the mean of the target in any part; None if there is only
        one part.
    """

    n: int
    sets: tuple[Index, ...]
    members: tuple[Index, ...] | None = None
    parts: Index | None = None

    @classmethod
    def of(
        cls,
        n: int,
        Y: NDArray[Any],
        groups: ArrayLike | None = None,
        strata: Index | None = None,
    ) -> Exchange:
        """Return what may be exchanged without touching subjects or strata.

        Parameters
        ----------
        n : int
        Y : array of shape (n, T)
            The target. If it is constant within each subject, subjects of equal size
            are exchanged as a whole, otherwise samples within subjects.
        groups : array of shape (n,), optional
            Subject of each sample.
        strata : array of int of shape (n,), optional
            Samples stay within their strata.
        """
        if strata is None:
            strata = np.zeros(n, dtype=np.intp)
        if groups is None:
            return cls._of_samples(n, strata)
        groups = check_groups(groups, n)
        members = _parts(groups)
        if len(members) < 2:
            raise ValueError(
                "groups has only one value; leave it out to permute samples."
            )
        if not all((Y[rows] == Y[rows[:1]]).all() for rows in members):
            return cls._of_samples(n, groups * (strata.max() + 1) + strata)
        sizes: dict[tuple[int, ...], list[int]] = {}
        for g, rows in enumerate(members):
            sizes.setdefault((len(rows), *strata[rows]), []).append(g)
        if all(len(same) == 1 for same in sizes.values()):
            raise ValueError(
                "y is constant within subjects, and no two subjects have the same "
                "number of samples, so none can be exchanged; give one sample for each "
                "subject."
            )
        sets = tuple(np.array(same) for same in sizes.values())
        parts = strata.copy()
        for k, same in enumerate(sets):
            for unit in same:
                parts[members[unit]] += k * (strata.max() + 1)
        return cls(n, sets, members, parts if np.ptp(parts) else None)

    @classmethod
    def _of_samples(cls, n: int, parts: Index) -> Exchange:
        """Return that samples may be exchanged within parts."""
        sets = _parts(parts)
        return cls(n, sets, None, parts if len(sets) > 1 else None)

    def centred(self, values: FloatArray) -> FloatArray:
        """Return values minus their means in each part, shape (n, k)."""
        if self.parts is None:
            return np.asarray(values - values.mean(axis=0))
        part = np.unique(self.parts, return_inverse=True)[1]
        sums = np.zeros((int(part.max()) + 1, values.shape[1]))
        np.add.at(sums, part, values)
        return np.asarray(values - (sums / np.bincount(part)[:, None])[part])

    def slopes(self, Z: FloatArray) -> FloatArray:
        """Return an orthonormal basis of covariates, apart from means of parts.

        Permutations keep the means of parts. If they are not part of the regression on
        covariates, as intercepts are, its slopes also reflect differences between
        parts, and permuted targets would not depend on covariates as the target does.

        Parameters
        ----------
        Z : array of shape (n, q)

        Returns
        -------
        array of shape (n, r)
        """
        spread = (Z - Z.mean(axis=0)).std(axis=0)
        within = self.centred(Z / np.where(spread > 0, spread, 1.0))
        basis, sizes, _ = np.linalg.svd(within, full_matrices=False)
        return np.asarray(basis[:, sizes > 1e-9 * len(Z) ** 0.5])

    def design(self, Z: FloatArray) -> FloatArray:
        """Return orthonormal columns that span means of parts and covariates (n, q)."""
        parts = np.zeros(self.n, dtype=np.intp) if self.parts is None else self.parts
        means = (parts[:, None] == np.unique(parts)).astype(np.float64)
        return np.column_stack([means / np.sqrt(means.sum(axis=0)), self.slopes(Z)])

    def odds_within(self, Z: FloatArray, kinds: Index) -> FloatArray | None:
        """Return the log odds of classes given covariates, up to constants of sets.

        Each set may have its own intercepts, which cancel when two of its units are
        compared: given which two labels they have, the probability of either order
        depends on the difference of their covariates only. Slopes maximise the product
        of these probabilities over pairs (a composite conditional likelihood).

        Parameters
        ----------
        Z : array of shape (n_units, q)
        kinds : array of int of shape (n_units,)
            Class of each unit.

        Returns
        -------
        array of shape (n_units, n_classes), or None
            None if the labels of all pairs follow the covariates exactly.
        """
        rows = []
        for same in self.sets:
            half = len(same) // 2
            if half:
                lags = np.linspace(1, half, min(half, _LAGS)).astype(int)
                rows += [np.column_stack([same, np.roll(same, -k)]) for k in lags]
        one, other = np.concatenate(rows).T
        kept = kinds[one] != kinds[other]
        one, other = one[kept], other[kept]
        K = int(kinds.max()) + 1
        signs = np.eye(K)[kinds[one]] - np.eye(K)[kinds[other]]
        steps = Z[one] - Z[other]
        D = (signs[:, 1:, None] * steps[:, None, :]).reshape(len(one), -1)
        beta = np.zeros(D.shape[1])
        for _ in range(100):
            odds = D @ beta
            if np.abs(odds).max() > 30.0:
                return None
            w = expit(odds) * expit(-odds)
            slope = D.T @ expit(-odds)
            step = np.linalg.lstsq(D.T @ (w[:, None] * D), slope, rcond=None)[0]
            size = float(np.abs(step).max())
            beta = beta + step * min(1.0, 5.0 / max(size, 1e-300))
            if size < 1e-10:
                of_class = np.vstack([np.zeros(Z.shape[1]), beta.reshape(K - 1, -1)])
                return np.asarray(Z @ of_class.T)
        return None

    def of_units(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the mean of values of samples in each unit, (n, k) to (n_units, k)."""
        if self.members is None:
            return values
        return np.array([values[rows].mean(axis=0) for rows in self.members])

    def possible(self, kinds: Index | None = None) -> float:
        """Return the number of different permutations.

        Parameters
        ----------
        kinds : array of int of shape (n,), optional
            Samples of one kind are alike, and their order does not count.
        """
        log = 0.0
        for same in self.sets:
            log += float(gammaln(len(same) + 1.0))
            if kinds is not None:
                which = same
                if self.members is not None:
                    which = np.array([self.members[u][0] for u in same])
                log -= float(np.sum(gammaln(np.bincount(kinds[which]) + 1.0)))
        return float(np.exp(min(log, 700.0)))

    def check_changes(self, Y: NDArray[Any]) -> None:
        """Raise ValueError if exchanging subjects never changes the target."""
        if self.members is None:
            return
        for same in self.sets:
            rows = np.concatenate([self.members[u] for u in same])
            if (Y[rows] != Y[rows[:1]]).any():
                return
        raise ValueError(
            "y is constant within subjects, and all subjects with the same number of "
            "samples have the same value, so exchanging them changes nothing; give one "
            "sample for each subject."
        )

    def drawn(self, count: int, rng: Any) -> Index:
        """Return random permutations of samples, shape (count, n)."""
        found = np.tile(np.arange(self.n), (count, 1))
        for same in self.sets:
            for k in range(count):
                self._assign(found[k], same, rng.permutation(same))
        return found

    def drawn_given(
        self, chances: FloatArray, kinds: Index, count: int, rng: Any
    ) -> Index:
        """Return permutations whose probability follows a model of the labels.

        A permutation has a probability proportional to the product, over units, of the
        chances of the labels that it assigns to them. All are reached by pairwise
        exchanges from one arrangement, which is itself reached from the one observed,
        so that the latter is exchangeable with them.

        Parameters
        ----------
        chances : array of shape (n_units, n_classes)
            Logarithms of the probabilities of the classes.
        kinds : array of int of shape (n_units,)
            Class of each unit.
        count : int
        rng : RandomState

        Returns
        -------
        array of shape (count, n)
        """
        # Berrett, Wang, Barber and Samworth (2020), algorithms 1 and 2
        draw = np.random.default_rng(rng.randint(2**31 - 1))
        start = np.arange(len(kinds))[None, :]
        middle = self._exchanged(start, chances, kinds, draw)
        found = np.tile(np.arange(self.n), (count, 1))
        block = max(1, _ENTRIES // len(kinds))
        for first in range(0, count, block):
            copies = np.repeat(middle, min(block, count - first), axis=0)
            ends = self._exchanged(copies, chances, kinds, draw)
            for k, end in enumerate(ends, first):
                for same in self.sets:
                    self._assign(found[k], same, end[same])
        return found

    def _exchanged(
        self, state: Index, chances: FloatArray, kinds: Index, draw: np.random.Generator
    ) -> Index:
        """Return orders of units, (copies, n_units), after rounds of exchanges."""
        state = state.copy()
        rows = np.arange(len(state))[:, None]
        for _ in range(_STEPS):
            for same in self.sets:
                half = len(same) // 2
                if not half:
                    continue
                pairs = draw.permuted(np.tile(same, (len(state), 1)), axis=1)
                i, j = pairs[:, :half], pairs[:, half : 2 * half]
                one, other = state[rows, i], state[rows, j]
                a, b = kinds[one], kinds[other]
                odds = chances[i, b] + chances[j, a] - chances[i, a] - chances[j, b]
                swap = draw.random(odds.shape) < expit(odds)
                state[rows, i] = np.where(swap, other, one)
                state[rows, j] = np.where(swap, one, other)
        return state

    def _assign(self, found: Index, units: Index, order: Index) -> None:
        """Enter into a permutation of samples that units come from others."""
        if self.members is None:
            found[units] = order
            return
        for a, b in zip(units, order, strict=True):
            found[self.members[a]] = self.members[b]


def _parts(labels: Index) -> tuple[Index, ...]:
    """Return the samples of each label."""
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    return tuple(np.split(order, ends))


# --- p-values -------------------------------------------------------------------------


def permutation_p_values(
    statistic: FloatArray, permuted: FloatArray, resolution: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return p-values, their standard errors, and joint p-values.

    The joint ones refer to the largest of the standardised statistics (Westfall and
    Young).

    Parameters
    ----------
    statistic : array of shape (M,)
    permuted : array of shape (M, count)
    resolution : float
        The smallest possible p-value.
    """
    count = permuted.shape[1]
    if not count:
        one = np.ones(len(statistic))
        return one, one / 2, one
    # statistics of equivalent permutations may differ by rounding
    slack = 1e-10 * np.abs(permuted).max(axis=1)
    p = (1 + np.sum(permuted >= (statistic - slack)[:, None], axis=1)) / (count + 1)
    p = np.maximum(p, resolution)
    # with the statistic itself among them, because a single value deviates more from
    # the mean of the others than each of these does
    every = np.column_stack([statistic, permuted])
    center, spread = every.mean(axis=1), every.std(axis=1)
    spread = np.where(spread > 0, spread, 1.0)
    highest = ((permuted - center[:, None]) / spread[:, None]).max(axis=0)
    own = (statistic - slack - center) / spread
    joint = (1 + np.sum(highest >= own[:, None], axis=1)) / (count + 1)
    error = np.sqrt(p * (1 - p) / count)
    return p, error, np.maximum(joint, p)


def adjusted_p_values(
    p: FloatArray, control: str, joint: FloatArray | None = None
) -> FloatArray:
    """Return p-values adjusted for their number.

    Parameters
    ----------
    p : array of shape (M,)
    control : {"holm", "bonferroni", "bh", "by", "joint"}
    joint : array of shape (M,), optional
        Joint p-values of permutations.
    """
    M = len(p)
    if control in ("bh", "by"):
        return np.asarray(false_discovery_control(p, method=control))
    if control == "bonferroni":
        return np.minimum(M * p, 1.0)
    if control == "holm":
        order = np.argsort(p, kind="stable")
        steps = np.maximum.accumulate((M - np.arange(M)) * p[order])
        found = np.empty(M)
        found[order] = np.minimum(steps, 1.0)
        return found
    if control == "joint" and joint is not None:
        return joint
    if control == "joint":
        raise ValueError("control='joint' needs method='permutation'.")
    raise ValueError(
        f"control must be 'holm', 'bonferroni', 'bh', 'by' or 'joint', got {control!r}."
    )


def check_count(count: Any) -> int:
    """Return the number of permutations, a whole number of at least one."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise ValueError(f"n_permutations must be a whole number, got {count!r}.")
    if count < 1:
        raise ValueError(f"n_permutations must be at least 1, got {count}.")
    return int(count)


def smallest_p_value(count: int, possible: float) -> float:
    """Return the smallest p-value of ``count`` permutations out of those possible."""
    return max(1.0 / (count + 1), 1.0 / possible)
