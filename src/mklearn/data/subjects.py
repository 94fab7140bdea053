"""Groups of samples, such as the measurements of one subject, that stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold
from sklearn.utils import column_or_1d

from mklearn.data.spelling import plural

Index = NDArray[np.intp]


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
    what = f"got {plural(count, 'group')}"
    if classifier:
        known, labels = np.unique(np.asarray(y), return_inverse=True)
        by_class = [len(np.unique(group[labels == k])) for k in range(len(known))]
        least = int(np.argmin(by_class))
        if by_class[least] < count:
            count = by_class[least]
            what = f"class {known[least]!s} is in {plural(count, 'group')}"
    if count < 2:
        raise ValueError(
            "Folds that keep groups together need at least two groups of each class, "
            f"but {what}. Use other groups, or none."
        )
    shuffle: dict[str, Any] = {}
    if seed is not None:
        shuffle = {"shuffle": True, "random_state": seed}
    if classifier:
        return StratifiedGroupKFold(min(n_folds, count), **shuffle)
    return GroupKFold(min(n_folds, count), **shuffle)


__all__ = ["check_groups", "group_folds"]
