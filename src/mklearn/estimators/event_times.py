"""Survival data: step functions, and metrics for risk scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mklearn.data.checks import check_times, check_weight
from mklearn.data.compiling import njit

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class StepFunction:
    """A function of time that is constant between its steps: ``a y[i] + b``.

    It takes the value of step i from ``x[i]`` up to, but not including, ``x[i + 1]``,
    and the value ``start`` before the first step. It can be passed to metrics that
    expect step functions of scikit-survival.

    Parameters
    ----------
    x : array of shape (n_steps,)
        Times, ascending.
    y : array of shape (n_steps,)
        Values from each of these times onwards.
    a, b : float
    start : float
        The value of ``a y + b`` before the first step.

    Examples
    --------
    >>> from mklearn.survival import StepFunction
    >>> survival = StepFunction([1.0, 3.0], [0.9, 0.4], start=1.0)
    >>> survival([0.5, 1.0, 2.9, 3.0]).tolist()
    [1.0, 0.9, 0.9, 0.4]
    """

    x: FloatArray = field(repr=False)
    y: FloatArray = field(repr=False)
    a: float = 1.0
    b: float = 0.0
    start: float = 0.0

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, values)
        if self.x.ndim != 1 or self.x.shape != self.y.shape or not len(self.x):
            raise ValueError(
                "A step function needs one value for each time, got shapes "
                f"{self.x.shape} and {self.y.shape}."
            )
        if (np.diff(self.x) <= 0).any():
            raise ValueError("The times of a step function must be ascending.")

    @property
    def domain(self) -> tuple[float, float]:
        """From zero, or from the first step if it is earlier, to the last step."""
        return min(0.0, float(self.x[0])), float(self.x[-1])

    def __call__(self, times: ArrayLike) -> Any:
        """Return the values at some times.

        Parameters
        ----------
        times : float or array
            Times within ``domain``; beyond it the function is not defined.
        """
        at = np.asarray(times, dtype=np.float64)
        low, high = self.domain
        if not ((at >= low) & (at <= high)).all():
            raise ValueError(
                f"Times must lie between {low:g} and {high:g}, the range observed in "
                "training."
            )
        place = np.searchsorted(self.x, at, side="right")
        known = np.append(self.start, self.a * self.y + self.b)
        return known[place]


# --- estimates without scores ---------------------------------------------------------


def kaplan_meier(y: Any, sample_weight: Any = None) -> StepFunction:
    """Return the Kaplan-Meier estimate of the survival function.

    Parameters
    ----------
    y : times and events, as in :meth:`MKLCox.fit`
    sample_weight : array of shape (n_samples,), optional

    Returns
    -------
    StepFunction
        The probability of having had no event, with a step at each distinct time,
        censored or not.

    Examples
    --------
    >>> from mklearn.survival import kaplan_meier
    >>> curve = kaplan_meier([[1.0, 1], [2.0, 0], [3.0, 1], [4.0, 0]])
    >>> curve([0.5, 1.0, 3.0]).tolist()
    [1.0, 0.75, 0.375]
    """
    time, event, weight = _checked(y, sample_weight)
    times, dead, at_risk = _table(time, event, weight)
    left = np.asarray(np.cumprod(1.0 - dead / at_risk), dtype=np.float64)
    return StepFunction(times, left, start=1.0)


def _checked(y: Any, sample_weight: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    n = len(y)
    target = check_times(y, n, needs_event=False)
    return target[:, 0], target[:, 1], check_weight(sample_weight, n)


def _table(
    time: FloatArray, event: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return distinct times, the weight of their events, and of those at risk."""
    times, place = np.unique(time, return_inverse=True)
    dead = np.bincount(place, weight * event, len(times)).astype(np.float64)
    here = np.bincount(place, weight, len(times)).astype(np.float64)
    return times, dead, np.cumsum(here[::-1])[::-1]


def baseline_hazard(
    time: FloatArray, event: FloatArray, weight: FloatArray, scores: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return distinct times and Breslow's cumulative hazard at a score of zero.

    Parameters
    ----------
    time, event, weight, scores : arrays of shape (n,)
    """
    times, dead, _ = _table(time, event, weight)
    order = np.argsort(-time, kind="stable")
    with np.errstate(divide="ignore"):  # of zero, where nothing happens
        logs = (scores + np.log(weight))[order]
        steps = np.log(dead)
    n_at_risk = np.searchsorted(-time[order], -times, side="right")
    steps -= np.logaddexp.accumulate(logs)[n_at_risk - 1]
    return times, bounded_exp(np.logaddexp.accumulate(steps))


def bounded_exp(logs: ArrayLike) -> FloatArray:
    """Return exponentials, those that overflow or vanish as the nearest number."""
    range_ = np.finfo(np.float64)
    logs = np.asarray(logs, dtype=np.float64)
    kept = np.clip(logs, np.log(range_.tiny), np.log(range_.max))
    return np.where(np.isneginf(logs), 0.0, np.exp(kept))


# --- concordance ----------------------------------------------------------------------


def concordance_index(y: Any, risk: ArrayLike, sample_weight: Any = None) -> float:
    """Return the share of comparable pairs that the risks put in the right order.

    This is Harrell's c. A pair is comparable if the earlier of its two times is that of
    an event; the sample with this event should have the higher risk. Equal risks count
    one half. The computation takes O(n log n) operations.

    Parameters
    ----------
    y : times and events, as in :meth:`MKLCox.fit`
    risk : array of shape (n_samples,)
        Predicted risks: the higher the risk, the earlier an event is expected.
    sample_weight : array of shape (n_samples,), optional
        A pair counts with the product of the weights of its samples.

    Returns
    -------
    float
        1 if all pairs are in the right order, about ½ for uninformative risks, NaN if
        no pair is comparable.

    Examples
    --------
    >>> from mklearn.survival import concordance_index
    >>> y = [[1.0, 1], [2.0, 0], [3.0, 1]]
    >>> concordance_index(y, [3.0, 2.0, 1.0]), concordance_index(y, [0.0, 2.0, 0.0])
    (1.0, 0.25)
    """
    time, event, weight = _checked(y, sample_weight)
    risk = np.asarray(risk, dtype=np.float64)
    if risk.shape != time.shape or not np.isfinite(risk).all():
        raise ValueError(
            f"risk must be {len(time)} finite numbers, one for each sample, got shape "
            f"{risk.shape}."
        )
    # of equal times, events come before those censored, which are still at risk
    order = np.lexsort((-event, time))[::-1]
    _, rank = np.unique(risk, return_inverse=True)
    right, tied, all_pairs = _pairs(
        time[order], event[order] > 0, rank[order].astype(np.int64), weight[order]
    )
    return float((right + 0.5 * tied) / all_pairs) if all_pairs > 0 else float("nan")


@njit(cache=True)
def _pairs(time, event, rank, weight):  # type: ignore[no-untyped-def]
    """Return weights of concordant pairs, of pairs with equal risk, and of all."""
    n = len(time)
    size = 1
    for i in range(n):
        size = max(size, rank[i] + 2)
    tree = np.zeros(size)
    total = right = tied = pairs = 0.0
    i = 0
    while i < n:
        stop = i
        while stop < n and time[stop] == time[i] and event[stop] == event[i]:
            stop += 1
        if event[i]:
            for j in range(i, stop):
                lower = 0.0
                k = rank[j]
                while k > 0:
                    lower += tree[k]
                    k -= k & -k
                both = 0.0
                k = rank[j] + 1
                while k > 0:
                    both += tree[k]
                    k -= k & -k
                right += weight[j] * lower
                tied += weight[j] * (both - lower)
                pairs += weight[j] * total
        for j in range(i, stop):
            total += weight[j]
            k = rank[j] + 1
            while k < size:
                tree[k] += weight[j]
                k += k & -k
        i = stop
    return right, tied, pairs


def dynamic_auc(y_train: Any, y: Any, risk: ArrayLike, times: ArrayLike) -> FloatArray:
    """Return the time-dependent area under the ROC curve.

    It measures how well the risks separate the samples with an event up to a time
    (cumulative cases) from those without one (dynamic controls). Events are weighted by
    the inverse probability of not being censored before, which removes the bias due to
    censoring.

    Parameters
    ----------
    y_train : times and events
        Samples from which the censoring distribution is estimated.
    y : times and events
        Samples to which the risks belong.
    risk : array of shape (n_samples,)
    times : array of shape (n_times,)

    Returns
    -------
    array of shape (n_times,)
        NaN at times before which there are no events, or after which there are no
        samples.

    Examples
    --------
    >>> from mklearn.survival import dynamic_auc
    >>> y = [[1.0, 1], [2.0, 1], [3.0, 1], [4.0, 0]]
    >>> dynamic_auc(y, y, [4.0, 2.0, 3.0, 1.0], [1.5, 2.5]).tolist()
    [1.0, 0.75]
    """
    time, event, _ = _checked(y, None)
    free = _uncensored(y_train)
    risk = np.asarray(risk, dtype=np.float64)
    order = np.argsort(risk, kind="stable")
    time, event, risk = time[order], event[order], risk[order]
    chance = free(time)
    weight = np.where(event > 0, np.divide(1.0, chance, where=chance > 0,
                                           out=np.zeros_like(chance)), 0.0)  # fmt: skip
    first = np.searchsorted(risk, risk, side="left")
    last = np.searchsorted(risk, risk, side="right")
    out = []
    for t in np.atleast_1d(np.asarray(times, dtype=np.float64)):
        case = np.where(time <= t, weight, 0.0)
        later = np.append(0.0, np.cumsum(time > t))
        pairs = case.sum() * later[-1]
        right = case @ (later[first] + later[last]) / 2
        out.append(right / pairs if pairs > 0 else np.nan)
    return np.array(out)


def _uncensored(y: Any) -> Any:
    """Return the probability of not being censored before a time."""
    time, event, weight = _checked(y, None)
    # at equal times events come first, as they cannot be censored any more
    times, dead, at_risk = _table(time, event, weight)
    lost = np.bincount(np.searchsorted(times, time), weight * (1 - event), len(times))
    left = at_risk - dead
    share = np.divide(lost, left, out=np.zeros_like(lost), where=left > 0)
    steps = np.append(1.0, np.cumprod(1.0 - share))

    def chance(at: FloatArray) -> FloatArray:
        return np.asarray(steps[np.searchsorted(times, at, side="right")])

    return chance
