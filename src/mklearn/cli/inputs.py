"""What the commands read: options, and tables or Gram matrices with a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from mklearn.report.facts import class_counts
from mklearn.table import (
    MANY,
    Layout,
    TableError,
    find_layout,
    is_gram_file,
    read_grams,
    read_table,
)

CLASSES, VALUES = "classification", "regression"


# --- options --------------------------------------------------------------------------


def parse_views(texts: Sequence[str]) -> dict[str, list[str]] | None:
    """Return views from options such as ``genes=g1,g2``; None if there are none."""
    views: dict[str, list[str]] = {}
    for text in texts:
        name, sign, columns = text.partition("=")
        listed = parse_list(columns)
        name = name.strip()
        if not sign or not name or not listed:
            raise TableError(
                f"--views takes name=column,column,... and got {text!r}; repeat the "
                "option for each view."
            )
        if name in views:
            raise TableError(f"--views names {name!r} twice.")
        if len(set(listed)) < len(listed):
            raise TableError(f"view {name!r} names a column twice.")
        views[name] = listed
    return views or None


def parse_number(option: str, text: str, words: Sequence[str]) -> float | str:
    """Return a positive number, ``inf`` included, or one of the words."""
    if text in words:
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        known = ", ".join(map(repr, words))
        raise TableError(f"{option} takes a positive number or {known}, got {text!r}.")
    return number


def parse_list(text: str) -> list[str]:
    """Return what stands between the commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


# --- data -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Samples and targets, and what was decided about them."""

    X: Any  # DataFrame or KernelBank
    y: NDArray[Any]
    task: str
    target: str
    layout: Layout | None  # None for Grams
    said: list[str]
    name: str

    def as_dict(self) -> dict[str, Any]:
        """Return what the data are, ready for JSON."""
        content: dict[str, Any] = {
            "name": self.name,
            "n_samples": len(self.y),
            "target": self.target,
            "task": self.task,
            "notes": self.said,
        }
        if self.task == CLASSES:
            content["classes"] = class_counts(self.y)
        if self.layout is None:
            content["kernels"] = list(self.X.names)
        else:
            content["views"] = {k: list(v) for k, v in self.layout.views.items()}
            content["columns"] = dict(self.layout.kinds)
        return content


def load_data(
    path: Path,
    target: str,
    views: Mapping[str, Sequence[str]] | None = None,
    sequences: Sequence[str] = (),
    task: str = "auto",
) -> Data:
    """Read a table or Gram matrices and say what is to be learned from them."""
    if is_gram_file(path):
        if views or sequences:
            raise TableError("Gram matrices have no columns, so no views or sequences.")
        bank, labels = read_grams(path, target)
        assert labels is not None
        if bank.shape[0] != bank.shape[1]:
            raise TableError(
                f"{path} holds kernels of shape {bank.shape}; to fit, they must be "
                "(n, n, n_kernels), kernels last."
            )
        y, kind, why = _target(labels, target, task)
        return Data(bank, y, kind, target, None, [why], path.name)
    frame = read_table(path)
    layout = find_layout(frame, target, views, sequences)
    said = list(layout.said)
    absent = frame[target].isna()
    if absent.any():
        said.append(f"{int(absent.sum())} rows without a value of {target!r} are out.")
        frame = frame[~absent].reset_index(drop=True)
    if len(frame) == 0:
        raise TableError(f"all values of {target!r} are missing.")
    values = frame[target]
    if getattr(values.dtype, "kind", "O") not in "biuf":
        values = values.astype(str)
    y, kind, why = _target(np.asarray(values.tolist()), target, task)
    X = frame.drop(columns=[target])
    return Data(X, y, kind, target, layout, [why, *said], path.name)


def _target(y: NDArray[Any], name: str, task: str) -> tuple[NDArray[Any], str, str]:
    """Return the target, whether it is classes or values, and why."""
    numbers = y.dtype.kind in "iuf"
    if numbers and not np.isfinite(y).all():
        raise TableError(f"the target {name!r} has infinite or missing values.")
    count = len(np.unique(y))
    whole = numbers and bool((y == np.round(y)).all())
    if task == "auto":
        values = numbers and (not whole or count > MANY)
        task = VALUES if values else CLASSES
        if values:
            why = f"{count} different numbers: a regression"
        else:
            why = f"{count} different values: a classification"
    else:
        why = f"{count} different values: a {task}, as asked for"
    if task == VALUES and not numbers:
        raise TableError(f"the target {name!r} holds no numbers, so no regression.")
    if count < 2:
        raise TableError(
            f"the target {name!r} has one value only, {y[0]!s}; there is nothing to "
            "learn."
        )
    if task == CLASSES and whole:
        y = y.astype(np.int64)
    return y, task, f"The target {name!r} has {why} (--task changes that)."


def make_folds(data: Data, n_folds: int, seed: int) -> Any:
    """Return the splitter, or raise TableError if there are too few samples."""
    if data.task == VALUES:
        if len(data.y) < 2 * n_folds:
            raise TableError(
                f"{len(data.y)} samples are too few for {n_folds} folds; lower --cv."
            )
        return KFold(n_folds, shuffle=True, random_state=seed)
    labels, counts = np.unique(data.y, return_counts=True)
    if counts.min() < n_folds:
        raise TableError(
            f"class {labels[counts.argmin()]!s} has {counts.min()} samples, too few "
            f"for {n_folds} folds; lower --cv, or merge or drop the class."
        )
    return StratifiedKFold(n_folds, shuffle=True, random_state=seed)
