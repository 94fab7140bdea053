"""The null model of times to an event: Cox regression on covariates.

The score of a kernel's variance is ``½ (m'Km - tr KV)``, where ``m`` are the martingale
residuals of the null model (events minus expected events) and V is the information of
the scores. Residuals have the covariance V, less what the covariates explain, so that
``m'Km`` is a quadratic form of known variance: for one column it is the score test of
Cox regression, and the log-rank test if the column has two values.

V is the Laplacian of a graph of the samples, in which those that are at risk together
are joined, by ``u_i u_j`` times a number that depends only on the earlier of their
times, u being their hazards. Eliminating samples in the order of their times leaves a
graph of the same kind, so there is a factor ``V = L L'`` whose columns are multiples of
u, and products with it are cumulative sums. All terms are positive, so nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mklearn.data.checks import check_strata, check_times
from mklearn.data.spelling import plural
from mklearn.inference.nulls import Null
from mklearn.problems.design import Design
from mklearn.problems.survival import TIES, Cox, RiskSets

FloatArray = NDArray[np.float64]

_FLAT = 1e-10  # residuals that are zero up to rounding
_NONE = 1e-12  # relative size of vectors that are zero up to rounding
_RANK = 1e-10  # singular values below this fraction of the size count as zero


def are_times(y: Any) -> bool:
    """Return whether a target has the format of times to an event.

    Parameters
    ----------
    y : structured array, or array or DataFrame of two columns
    """
    if getattr(getattr(y, "dtype", None), "names", None):
        return True
    shape = np.shape(y)
    return len(shape) == 2 and shape[1] == 2


def strata_of(strata: Any, n: int) -> NDArray[np.intp]:
    """Return the index of the stratum of each sample, from 0.

    Parameters
    ----------
    strata : array of shape (n,)
    n : int
    """
    values = check_strata(strata)
    if len(values) != n:
        raise ValueError(f"strata has {len(values)} values for {plural(n, 'sample')}.")
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.intp)


@dataclass(frozen=True)
class EventTimes:
    """Times to an event as the target of tests.

    Attributes
    ----------
    time : array of shape (n,)
    event : array of bool of shape (n,)
    stratum : array of shape (n,)
        Indices; samples of different strata are not compared.
    ties : {"breslow", "efron"}
    """

    time: FloatArray
    event: NDArray[np.bool_]
    stratum: NDArray[np.intp]
    ties: str

    many: ClassVar[bool] = False
    binary: ClassVar[bool] = False

    @classmethod
    def of(cls, y: Any, n: int, strata: Any, ties: str) -> EventTimes:
        """Check times, events and strata of n samples.

        Parameters
        ----------
        y : as in :func:`check_times`
        n : int
        strata : array of shape (n,) or None
        ties : str
        """
        if ties not in TIES:
            raise ValueError(f"ties must be one of {TIES}, got {ties!r}.")
        target = check_times(y, n)
        stratum = np.zeros(n, dtype=np.intp)
        if strata is not None:
            stratum = strata_of(strata, n)
        return cls(target[:, 0], target[:, 1] > 0, stratum, ties)

    @property
    def Y(self) -> FloatArray:  # noqa: N802
        """Times and events, shape (n, 2)."""
        return np.column_stack([self.time, self.event])

    def null(self, Z: FloatArray, permuted: bool) -> Null:
        """Return the model with covariates only.

        Parameters
        ----------
        Z : array of shape (n, q)
            Ones and covariates.
        permuted : bool
            Whether residuals are permuted, and therefore stay as they are. Otherwise
            they are white.
        """
        loss = self._loss(None)
        f = np.zeros((len(Z), 1))
        if np.abs(loss.slope(f)).max() <= _FLAT:
            raise ValueError(
                "No event has other samples of its stratum at risk that outlive it, so "
                "there is no order to be tested; events before the last time, or "
                "larger strata, are needed."
            )
        if Z.shape[1] > 1:
            beside = self._loss(Design(Z))
            if beside.unbounded():
                raise ValueError(
                    "The covariates alone order some of the events perfectly, so their "
                    "effects are infinite, which leaves nothing for the kernels to "
                    "explain there. Use fewer covariates, or merge rare categories."
                )
            f = Z @ beside.bias(f)
        left = loss.slope(f)
        if permuted:
            inside = self.stratum[:, None] == np.arange(self.stratum.max() + 1)
            basis = _spanned(np.column_stack([inside, Z[:, 1:]]), float(len(Z)) ** 0.5)
            return Null(left - basis @ (basis.T @ left), basis, lambda V: V)
        root = Factor.of(loss.sets, f[:, 0])
        basis = _spanned(root(Z), root.size * float(np.abs(Z).max()))
        if basis.shape[1] >= len(root.place):
            raise ValueError(
                f"There are {basis.shape[1]} covariates, but events compare only "
                f"{plural(len(root.place) + 1, 'sample')}; use fewer covariates."
            )
        left = root.solved(left[:, 0])[:, None]
        return Null(left - basis @ (basis.T @ left), basis, root, scaled=True)

    def _loss(self, design: Design | None) -> Cox:
        one = np.ones(len(self.time))
        return Cox(
            self.time, self.event, self.stratum.astype(float), one, 1.0, self.ties,
            design=design,
        )  # fmt: skip


def _spanned(columns: FloatArray, size: float) -> FloatArray:
    """Return an orthonormal basis of columns of a given size, maybe dependent."""
    U, s, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(U[:, s > _RANK * size])


@dataclass(frozen=True)
class Factor:
    """The map ``L'`` for the information ``V = L L'`` of scores.

    Samples are in the order of the risk sets, from late to early times, and eliminated
    in the opposite one. The column of a sample in L is zero in the rows of those
    eliminated before, and a negative multiple of u in those of the others: one multiple
    for the events tied with it, and one for later times, which differ only for Efron's
    method.

    Attributes
    ----------
    order : array of shape (n,)
        The samples in that order.
    u : array of shape (n,)
        Their hazards.
    place : array of shape (r,)
        The rows that have a column: all but the last one of each stratum to be
        eliminated, and those that are never at risk.
    tied, begin : arrays of shape (r,)
        The first row of the events tied with a sample (its own if it is not one of
        them), and the first row of its stratum.
    pivot, beside, beyond : arrays of shape (r,)
        The diagonal of L, and the multiples of -u for tied events and for later times.
    """

    order: NDArray[np.intp]
    u: FloatArray
    place: NDArray[np.intp]
    tied: NDArray[np.intp]
    begin: NDArray[np.intp]
    pivot: FloatArray
    beside: FloatArray
    beyond: FloatArray

    @classmethod
    def of(cls, sets: RiskSets, scores: FloatArray) -> Factor:
        """Return the factor for the risk sets of samples with unit weights.

        Parameters
        ----------
        sets : RiskSets
        scores : array of shape (n,)
        """
        f = scores[sets.order]
        u = np.zeros(len(f))
        found: list[tuple[float, ...]] = []
        for one in sets.strata:
            first, last = sets.first[one.groups], sets.last[one.groups]
            if not len(first):
                continue
            start, here = one.rows.start, f[one.rows]
            u[one.rows] = np.exp(here - here.max())
            ahead = np.append(0.0, np.cumsum(u[one.rows]))  # sums before each row
            past = 0.0  # link of two samples by the events so far
            filled = 0.0  # what the samples eliminated so far have added to it
            for g in range(len(first))[::-1]:
                low, high = first[g] - start, last[g] - start
                at = sets.starts[one.groups][g]
                left = sets.left[at : at + sets.count[one.groups][g]]
                size = ahead[low] + left * (ahead[high] - ahead[low])
                rate = (high - low) / len(left) / size**2
                within = past + filled + float(rate @ left**2)
                link = past + filled + float(rate @ left)
                past += float(rate.sum())
                stop = last[g - 1] - start if g else 0
                for i in range(high - 1, stop - 1, -1):
                    if i < low:  # not an event
                        within = link = past + filled
                    base = min(i, low)
                    degree = within * (ahead[i] - ahead[base]) + link * ahead[base]
                    hazard = u[start + i]
                    square = hazard * degree
                    if square <= 0.0:
                        continue
                    found.append((start + i, start + base, start, square, within, link))
                    filled += hazard * link**2 / degree
                    within, link = (
                        within + hazard * within**2 / degree,
                        link + hazard * within * link / degree,
                    )
        columns = np.array(found).T
        place, tied, begin = columns[:3].astype(np.intp)
        pivot = np.sqrt(columns[3])
        beside, beyond = columns[4:] * (u[place] / pivot)
        return cls(sets.order, u, place, tied, begin, pivot, beside, beyond)

    @property
    def size(self) -> float:
        """The Euclidean norm of the diagonal."""
        return float(np.linalg.norm(self.pivot))

    def __call__(self, V: FloatArray) -> FloatArray:
        """Return ``L'V`` for vectors (n, k), shape (r, k)."""
        V = V[self.order]
        sums = np.zeros((len(V) + 1, V.shape[1]))
        np.cumsum(self.u[:, None] * V, axis=0, out=sums[1:])
        later = sums[self.tied] - sums[self.begin]
        tied = sums[self.place] - sums[self.tied]
        out = self.pivot[:, None] * V[self.place]
        out -= self.beside[:, None] * tied + self.beyond[:, None] * later
        # constants in each stratum have no effect, and become zero up to rounding
        small = _NONE * self.size * np.abs(V).max(axis=0)
        out[:, np.linalg.norm(out, axis=0) <= small] = 0.0
        return np.asarray(out)

    def solved(self, m: FloatArray) -> FloatArray:
        """Return the e (r,) with ``L e = m`` (n,), by forward substitution."""
        hazards, values = (
            self.u[self.place].tolist(),
            m[self.order][self.place].tolist(),
        )
        out = []
        stratum = group = -1
        earlier = within = waiting = 0.0
        for k, (row, begin) in enumerate(
            zip(self.tied.tolist(), self.begin.tolist(), strict=True)
        ):
            if begin != stratum:
                stratum, earlier, waiting = begin, 0.0, 0.0
            if row != group:
                group, earlier, within, waiting = row, earlier + waiting, 0.0, 0.0
            e = (values[k] + hazards[k] * (earlier + within)) / self.pivot[k]
            within += self.beside[k] * e
            waiting += self.beyond[k] * e
            out.append(e)
        return np.array(out)
