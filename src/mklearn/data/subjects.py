"""Groups of samples, such as the measurements of one subject, that stay together."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    LeavePOut,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)
from sklearn.utils import column_or_1d

from mklearn.data.spelling import plural
from mklearn.data.views import MultiView, holds_views

Index = NDArray[np.intp]

N_FOLDS = 5  # number of folds of cv=None, as in scikit-learn
MANY = 20  # number of different texts up to which a column contains categories
_FEW = 4  # number of whole numbers up to which a column contains categories
_WIDE = 1000  # number of columns from which on only names are looked at

# splitters that put rows of a subject into different parts, with or without groups
_BY_ROW = (
    KFold, StratifiedKFold, RepeatedKFold, RepeatedStratifiedKFold, ShuffleSplit,
    StratifiedShuffleSplit, LeaveOneOut, LeavePOut,
)  # fmt: skip

_WHO = "sub|subj|subject|patient|participant|volunteer|pid"
_ANY = "person|individual|donor|animal|mouse"  # may be a category without a number
_NUMBER = "[_. -]?(id|no|nr|number|code|name)"
_SUBJECT = re.compile(
    rf"(^|[_. -])(({_WHO})({_NUMBER})?|({_ANY}){_NUMBER})$|^({_WHO})s$", re.IGNORECASE
)
_PERHAPS = re.compile(rf"(^|[_. -])({_ANY})$", re.IGNORECASE)
_COUNT = re.compile(r"^(n|num|number|count|total|mean)([_. -]|$)", re.IGNORECASE)


def check_groups(groups: Any, n: int) -> Index:
    """Return the index of the group of each sample, from 0.

    Parameters
    ----------
    groups : array of shape (n,)
        Numbers or names of the groups.
    n : int
        The number of samples.
    """
    values = column_or_1d(groups)
    if len(values) != n:
        raise ValueError(
            f"groups has {plural(len(values), 'entry')} for {plural(n, 'sample')}."
        )
    missing = [i for i, v in enumerate(values.tolist()) if v is None or v != v]
    if missing:
        raise ValueError(
            f"groups is missing for {plural(len(missing), 'sample')}, first in row "
            f"{missing[0]}; give the group of each sample, or leave out these samples."
        )
    texts = values.astype(str) if values.dtype.kind == "O" else values
    return np.asarray(np.unique(texts, return_inverse=True)[1], dtype=np.intp)


def group_folds(
    n_folds: int, groups: Any, y: Any, classifier: bool, seed: int | None = None
) -> Any:
    """Return a splitter that keeps groups together and stratifies as far as possible.

    Parameters
    ----------
    n_folds : int
        Number of folds; it is reduced to the number of groups, or of groups of any
        class, if that is smaller.
    groups : array of shape (n,)
    y : array of shape (n,)
        Classes, or anything else for numbers.
    classifier : bool
    seed : int, optional
        Seed for shuffling the groups; they are not shuffled by default.
    """
    group = check_groups(groups, len(y))
    count = int(group.max(initial=-1)) + 1
    needed, what = "two groups", "there is only one"
    if classifier:
        known, labels = np.unique(np.asarray(y), return_inverse=True)
        by_class = [len(np.unique(group[labels == k])) for k in range(len(known))]
        least, needed = int(np.argmin(by_class)), "two groups of each class"
        if by_class[least] < count:
            count = by_class[least]
            what = f"class {known[least]!s} is in only one"
    if count < 2:
        raise ValueError(
            f"Folds that keep groups together need at least {needed}, but {what}. Use "
            "other groups, or none."
        )
    shuffle: dict[str, Any] = {}
    if seed is not None:
        shuffle = {"shuffle": True, "random_state": seed}
    if classifier:
        return StratifiedGroupKFold(min(n_folds, count), **shuffle)
    return GroupKFold(min(n_folds, count), **shuffle)


def folds_from(cv: Any, y: Any, groups: Any, classifier: bool) -> Any:
    """Return the splitter that ``cv`` stands for.

    Parameters
    ----------
    cv : int, splitter, iterable of (train, test) or None
        If there are groups, a number means folds of groups; None means 5 folds.
    y : array of shape (n,), or None
    groups : array of shape (n,), or None
    classifier : bool
    """
    cv = N_FOLDS if cv is None else cv
    if groups is None or not isinstance(cv, Integral):
        return check_cv(cv, y, classifier=classifier)
    known = y if classifier else np.zeros(len(groups))
    return group_folds(int(cv), groups, known, classifier)


# --- columns of subjects --------------------------------------------------------------


def subject_columns(X: Any, y: Any = None) -> list[str]:
    """Return columns that seem to name subjects, each of them with several rows.

    Such columns have a telling name; or they contain more different texts than
    categories would, or more than a few whole numbers, which determine the target of
    each row but are not in its order.

    Parameters
    ----------
    X : DataFrame, MultiView or mapping of str to view
        Anything else has no names of columns, so that nothing is found.
    y : array of shape (n,) or (n, k), optional
        The target.
    """
    columns = list(_columns(X))
    labels = None if y is None or not columns else _labels(y)
    found = [
        name
        for name, values, wide in columns
        if _names_subjects(name, values, None if wide else labels)
    ]
    return list(dict.fromkeys(found))


def subject_words(columns: Collection[str], X: Any) -> list[str]:
    """Return what is wrong with columns that seem to name subjects, in words.

    Parameters
    ----------
    columns : collection of str
        The result of :func:`subject_columns`.
    X : as in :func:`subject_columns`
    """
    known = {name: values for name, values, _ in _columns(X)}
    return [
        f"Column {c!r} seems to contain subjects, {len(set(known[c].tolist()))} of "
        f"them in {plural(len(known[c]), 'row')}: if a subject has rows in both the "
        "training and the test part of a fold, scores are too optimistic."
        for c in columns
    ]


def warn_of_subjects(
    X: Any,
    y: Any,
    groups: Any,
    cv: Any = None,
    *,
    apart: Collection[Any] = (),
    stacklevel: int = 3,
) -> None:
    """Warn if folds or resamples divide subjects that a column of X seems to name.

    Parameters
    ----------
    X, y : samples and targets
    groups : array of shape (n,), or None
        If there are any, there is no warning.
    cv : int, splitter, iterable of (train, test) or None
        There is no warning for given folds, nor for splitters that know about groups.
    apart : collection of str or int
        Names or indices of columns that have another purpose.
    stacklevel : int
        As in ``warnings.warn``; by default the caller of the caller is blamed.
    """
    by_row = cv is None or isinstance(cv, Integral) or type(cv) in _BY_ROW
    if groups is not None or not by_row:
        return
    names = [str(c) for c in X.columns] if _is_frame(X) else []
    known = {names[a] if isinstance(a, Integral) and names else a for a in apart}
    found = [c for c in subject_columns(X, y) if c not in known]
    if found:
        c = found[0]
        warnings.warn(
            f"{' '.join(subject_words(found, X))} Pass the subjects as groups=; a "
            "splitter given as cv= must keep groups together, as GroupKFold does (on "
            f"the command line, use --groups {c}). If {c!r} does not name subjects, "
            "rename it.",
            stacklevel=stacklevel,
        )


@contextmanager
def warned_of_subjects() -> Iterator[None]:
    """Be silent about subjects in fits within, because a warning was given before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Column .* seems to contain subjects")
        yield


def _labels(y: Any) -> Index:
    """Return the number of the target of each row, equal for equal targets."""
    values = np.asarray(y)
    if values.dtype.kind == "O":
        values = values.astype(str)
    axis = 0 if values.ndim > 1 else None
    return np.unique(values, axis=axis, return_inverse=True)[1].ravel()


def _columns(X: Any) -> Iterator[tuple[str, NDArray[Any], bool]]:
    """Yield names and values of columns that may name subjects, and if X is wide."""
    if isinstance(X, MultiView):
        for view in X:
            names, values = X.column_names(view), X[view]
            if X.is_text(view):
                yield view, values, True  # strings that kernels compare
            elif names is not None and not sparse.issparse(values):
                wide = len(names) > _WIDE
                for j, name in enumerate(names):
                    if not wide or _SUBJECT.search(name) or _PERHAPS.search(name):
                        yield name, _whole(values[:, j]), wide
    elif holds_views(X):
        for part in X.values():
            yield from _columns(part)
    elif _is_frame(X):
        wide = len(X.columns) > _WIDE
        for j, column in enumerate(X.columns):
            name = str(column)
            if not wide or _SUBJECT.search(name) or _PERHAPS.search(name):
                whole = hasattr(X, "iloc")
                yield name, np.asarray(X.iloc[:, j] if whole else X[column]), wide


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as integers, and others as they are."""
    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return values
    return values.astype(np.int64) if np.abs(values).max(initial=0) < 2**53 else values


def _names_subjects(name: str, values: NDArray[Any], labels: Index | None) -> bool:
    """Return whether a column seems to name subjects."""
    if values.dtype.kind not in "iuOUT":  # no floats, dates or booleans
        return False
    number = values.dtype.kind in "iu"
    if not number:
        if any(v is None or v != v for v in values.tolist()):
            return False
        values = values.astype(str)
    known, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    if not 2 <= len(known) <= len(values) / 2:
        return False
    if not _COUNT.search(name):
        if _SUBJECT.search(name):
            return True
        if _PERHAPS.search(name) and len(known) > _FEW:
            return True
    few = _FEW if number else MANY
    if labels is None or len(labels) != len(place) or len(known) <= few:
        return False
    if counts.min() < 2:
        return False
    of_value = np.zeros(len(known), dtype=np.intp)
    of_value[place] = labels
    if (of_value[place] != labels).any():
        return False
    return not number or not _in_order(of_value)


def _in_order(targets: Index) -> bool:
    """Return whether targets, by increasing value of a feature, are in some order."""
    steps, count = np.diff(targets), len(np.unique(targets))
    if count < len(targets):  # classes: each of them is an interval of values
        return int(np.count_nonzero(steps)) < count
    return bool((steps >= 0).all() or (steps <= 0).all())


__all__ = [
    "MANY",
    "N_FOLDS",
    "check_groups",
    "folds_from",
    "group_folds",
    "subject_columns",
    "subject_words",
    "warn_of_subjects",
    "warned_of_subjects",
]
