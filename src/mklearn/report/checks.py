"""Checks for common problems of a run, with advice.

A check is a function of a :class:`~mklearn.report.Report` that returns sentences about
what was found and what to do about it. Checks that need the samples themselves are in
:func:`sample_checks`, which is called before the report is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.base import is_regressor

from mklearn.data.checks import check_times
from mklearn.data.spelling import plural
from mklearn.fitted import proofs, widest
from mklearn.kernels import KernelBank, MultiView
from mklearn.model_selection import Split
from mklearn.report.facts import (
    Report,
    errors_of_classes,
    errors_of_times,
    errors_of_values,
)
from mklearn.report.facts import view_shares as shares_of
from mklearn.solvers import Status

ALONE = 0.9  # share of a view that dominates the decision
RARE = 0.1  # share of the samples below which a class is rare
EQUAL = 0.995  # alignment of kernels that are practically equal
BY_CHANCE = 0.01  # probability of agreement above which it is no finding


def run_checks(report: Report) -> list[str]:
    """Return warnings about a run, most urgent first; empty if there are none.

    Parameters
    ----------
    report : Report
    """
    said = [sentence for check in CHECKS for sentence in check(report)]
    return [*said, *report.findings]


def _against_guessing(report: Report) -> Iterator[str]:
    found = report.predictions
    if found is None:
        return
    if found.of_times:
        c = errors_of_times(found)["concordance"]
        if c is not None and c <= 0.5:
            yield (
                "On new samples the predicted risks order the times no better than "
                "chance (the concordance is not above one half): do not use the "
                "model, and do not interpret its weights."
            )
        return
    if is_regressor(report.model):
        if errors_of_values(found)["r2"] <= 0.0:
            yield (
                "On new samples the model is no better than the mean of the target "
                "(R² is not positive): do not use it, and do not interpret its "
                "weights."
            )
        return
    _, counts = np.unique(found.truth, return_counts=True)
    most = counts.max() / counts.sum()
    right = errors_of_classes(found)["accuracy"]
    if right <= most:
        yield (
            f"The model is right for {100 * right:.1f} % of new samples, but always "
            f"predicting the largest class would be right for {100 * most:.1f} %: do "
            "not use the model as it is, and do not interpret its weights. If the "
            "classes are imbalanced, score by balanced accuracy or AUC and use class "
            "weights."
        )


def _stopped(report: Report) -> Iterator[str]:
    solutions = proofs(report.model)
    if not solutions:
        return
    worst = widest(solutions)
    if worst.status in (Status.STALLED, Status.ROUNDED):
        yield (
            f"Rounding keeps the bounds {100 * worst.gap:.2g} % apart: "
            f"{worst.status.value}."
        )
    elif worst.status is not Status.OPTIMAL:
        yield f"The solver stopped early: {worst.status.value}."


def _edge_of_the_grid(report: Report) -> Iterator[str]:
    model = report.model
    costs = np.unique(np.asarray(getattr(model, "Cs_", []), dtype=float))
    if len(costs) < 2 or model.C_ not in (costs[0], costs[-1]):
        return
    end = "smallest" if model.C_ == costs[0] else "largest"
    yield (
        f"The search chose C = {model.C_:.3g}, the {end} value tried: extend the grid "
        f"to {'smaller' if end == 'smallest' else 'larger'} values, which may be "
        "better."
    )


def _one_view(report: Report) -> Iterator[str]:
    views = report.shares or shares_of(report.model)
    top = max(views, key=lambda view: view.share)
    if len(views) > 1 and top.share > ALONE:
        yield (
            f"View {top.view!r} carries {100 * top.share:.0f} % of the decision: "
            "compare with a model of this view alone, which is simpler, and make sure "
            "that the view does not contain the target in disguise."
        )


def _rare_classes(report: Report) -> Iterator[str]:
    classes = report.data.classes
    if not classes:
        return
    name, count = min(classes.items(), key=lambda item: item[1])
    if count < RARE * report.data.n_samples and report.scoring == "accuracy":
        yield (
            f"Class {name} has {count} of {plural(report.data.n_samples, 'sample')} "
            "and hardly affects the accuracy. Look at the errors by class, and score "
            "by balanced accuracy."
        )


def _kernels_alike(report: Report) -> Iterator[str]:
    if report.alignment is None:
        return
    values = np.triu(np.asarray(report.alignment), 1)
    pairs = np.argwhere(values > EQUAL)
    if len(pairs):
        names = report.model.kernel_names_
        i, j = pairs[0]
        rest = f" and {len(pairs) - 1} other pairs" if len(pairs) > 1 else ""
        yield (
            f"The kernels {names[i]} and {names[j]}{rest} are practically equal up to "
            "scale: only the sum of their weights is meaningful."
        )


Check = Callable[[Report], Iterator[str]]
CHECKS: tuple[Check, ...] = (
    _against_guessing,
    _stopped,
    _edge_of_the_grid,
    _one_view,
    _rare_classes,
    _kernels_alike,
)


# --- checks of the samples ------------------------------------------------------------


def sample_checks(
    X: Any, y: Any, splits: Sequence[Split] = (), groups: Any = None
) -> tuple[str, ...]:
    """Return warnings about the samples, their targets and their folds.

    Parameters
    ----------
    X : MultiView, or array of shape (n_samples, n_features)
        Gram matrices cannot be checked.
    y : array of shape (n_samples,)
        Classes, numbers, or a structured array of times and events.
    splits : sequence of (train, test)
    groups : array of shape (n_samples,), optional
        The subject of each sample.
    """
    y = np.asarray(y)
    said = [*_split_groups(groups, splits)]
    if not isinstance(X, KernelBank) and np.ndim(X) != 3:
        data = MultiView.wrap(X)
        said += [*_target_in_disguise(data, y), *_same_rows(data, y, splits)]
    return tuple(said)


def _target_in_disguise(data: MultiView, y: NDArray[Any]) -> Iterator[str]:
    told_by = _tells_times if y.dtype.names else _tells_target
    for view in data:
        if data.is_text(view):
            continue
        there, names = ~data.absent(view), data.column_names(view)
        values = data[view][there]
        values = values.toarray() if hasattr(values, "toarray") else values
        tells = told_by(y[there], data.shape[1])
        for j in range(values.shape[1]):
            column = values[:, j]
            if np.ptp(column) == 0.0 if len(column) else True:
                continue
            what = tells(column)
            if what is not None:
                name = str(j) if names is None else names[j]
                yield (
                    f"Column {name!r} of view {view!r} determines {what}: leave it out "
                    "unless it is known before the target is."
                )


Teller = Callable[[NDArray[np.float64]], str | None]


def _tells_target(y: NDArray[Any], n_columns: int) -> Teller:
    """Return a function that says whether a column determines classes or numbers."""
    numbers = y.dtype.kind in "iuf" and len(np.unique(y)) > 2
    codes = np.unique(y, return_inverse=True)[1]

    def tells(column: NDArray[np.float64]) -> str | None:
        same = _in_proportion(column, y) if numbers else _one_to_one(column, codes)
        return "the target exactly" if same else None

    return tells


def _tells_times(y: NDArray[Any], n_columns: int) -> Teller:
    """Return a function that says whether a column determines times or events.

    A column determines the times if it rises or falls strictly with them, for all
    samples or for those with an event. Agreement that is likely to occur by chance,
    because there are few samples or many ties, does not count.
    """
    time, event, _ = check_times(y, len(y), needs_event=False).T
    happened = event > 0

    def surprising(values: NDArray[Any]) -> bool:
        return n_columns * _chance_of_agreement(values) < BY_CHANCE

    marks, times = surprising(event), surprising(time)
    known = surprising(time[happened])

    def tells(column: NDArray[np.float64]) -> str | None:
        if marks and _one_to_one(column, happened.astype(np.intp)):
            return "exactly which samples had an event"
        if times and (_in_proportion(column, time) or _in_order(column, time)):
            return "the time exactly"
        if known and _in_order(column[happened], time[happened]):
            return "the times of the events exactly"
        return None

    return tells


def _chance_of_agreement(values: NDArray[Any]) -> float:
    """Return the probability that a random order of values agrees with their order."""
    counts = np.unique(values, return_counts=True)[1]
    logs = gammaln(counts + 1.0).sum() - gammaln(len(values) + 1.0)
    return float(min(2.0 * np.exp(logs), 1.0))


def _in_proportion(column: NDArray[np.float64], values: NDArray[Any]) -> bool:
    """Return whether a column is a linear function of the values, up to rounding."""
    values = values.astype(float)
    if not np.ptp(values) > 0:
        return False
    return bool(abs(np.corrcoef(column, values)[0, 1]) > 1.0 - 1e-10)


def _in_order(column: NDArray[np.float64], values: NDArray[np.float64]) -> bool:
    """Return whether a column rises, or falls, strictly with the values."""
    ranks = np.unique(column, return_inverse=True)[1]
    other = np.unique(values, return_inverse=True)[1]
    same = np.array_equal(ranks, other)
    return same or np.array_equal(ranks.max(initial=0) - ranks, other)


def _one_to_one(column: NDArray[np.float64], codes: NDArray[np.intp]) -> bool:
    """Return whether the values of a column correspond one to one to the classes."""
    values, places = np.unique(column, return_inverse=True)
    classes = np.unique(codes)
    if len(values) != len(classes) or len(classes) < 2:
        return False
    return len(np.unique(np.column_stack([places, codes]), axis=0)) == len(classes)


def _same_rows(
    data: MultiView, y: NDArray[Any], splits: Sequence[Split]
) -> Iterator[str]:
    keys = np.array([hash(row) for row in _row_bytes(data)])
    _, of, counts = np.unique(keys, return_inverse=True, return_counts=True)
    if counts.max() == 1:
        return
    twins = sum(int(np.isin(of[test], of[train]).sum()) for train, test in splits)
    apart = twins / max(sum(len(test) for _, test in splits), 1)
    known = f"; {100 * apart:.1f} % of the test samples have a duplicate in training"
    same = plural(int((counts[of] > 1).sum()), "sample")
    yield (
        f"{same} are identical to another in all "
        f"views{known if apart else ''}: if they are the same subject, drop the "
        "duplicates, or keep them in one fold (groups)."
    )


def _row_bytes(data: MultiView) -> list[tuple[Any, ...]]:
    parts = []
    for view in data:
        values = data[view]
        if data.is_text(view):
            parts.append(list(values))
        elif hasattr(values, "indptr"):
            ends = values.indptr
            parts.append(
                [
                    (values.indices[a:b].tobytes(), values.data[a:b].tobytes())
                    for a, b in pairwise(ends)
                ]
            )
        else:
            parts.append([row.tobytes() for row in np.ascontiguousarray(values)])
    return list(zip(*parts, strict=True))


def _split_groups(groups: Any, splits: Sequence[Split]) -> Iterator[str]:
    if groups is None:
        return
    groups = np.asarray(groups)
    split: set[Any] = set()
    for train, test in splits:
        split |= set(np.intersect1d(groups[train], groups[test]).tolist())
    if split:
        them = plural(len(split), "subject")
        yield (
            f"The samples of {them} are in both the training and the test part of a "
            "fold, which makes the score too optimistic: split by groups (GroupKFold)."
        )
