"""Input of the commands: options, and tables or Gram matrices with a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    KFold,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
)

from mklearn.data.containers import is_time
from mklearn.data.labels import told
from mklearn.data.spelling import plural
from mklearn.data.subjects import group_folds
from mklearn.estimators.event_times import concordance_index
from mklearn.problems import LpBall, TwoLevel
from mklearn.report.facts import class_counts
from mklearn.table import (
    Layout,
    TableError,
    find_layout,
    is_gram_file,
    read_grams,
    read_table,
    read_tables,
    subject_columns,
    subject_words,
)
from mklearn.table.columns import MANY
from mklearn.table.files import id_words

CLASSES, VALUES, TIMES = "classification", "regression", "survival"


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
                f"--views takes name=column,column,..., got {text!r}; repeat the "
                "option for each view."
            )
        if name in views:
            raise TableError(f"--views names {name!r} twice.")
        if len(set(listed)) < len(listed):
            raise TableError(f"view {name!r} names a column twice.")
        views[name] = listed
    return views or None


def parse_files(option: str, texts: Sequence[str]) -> dict[str, Path]:
    """Return files by name from options such as ``rna=rna.csv``."""
    files: dict[str, Path] = {}
    for text in texts:
        name, sign, file = (part.strip() for part in text.partition("="))
        if not sign or not name or not file:
            raise TableError(f"{option} takes name=FILE, got {text!r}.")
        if name in files:
            raise TableError(f"{option} names {name!r} twice.")
        files[name] = Path(file)
    return files


def parse_number(
    option: str, text: str, words: Sequence[str], most: float = math.inf
) -> float | str:
    """Return a positive number up to ``most``, or one of the words.

    The inverse of ``most`` is the lower limit.
    """
    if text in words:
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        known = ", ".join(map(repr, words))
        raise TableError(f"{option} takes a positive number or {known}, got {text!r}.")
    if not 1.0 / most <= number <= most:
        raise TableError(
            f"{option} takes numbers from {1.0 / most:g} to {most:g}, got {text!r}."
        )
    return number


def parse_norm(option: str, text: str, words: Sequence[str] = ("inf",)) -> Any:
    """Return a norm, or two as a two-level norm, ``between:within``; or a word."""
    try:
        if ":" in text:
            parts = [float(parse_number(option, p, ["inf"])) for p in text.split(":")]
            return TwoLevel(*parts)
        number = parse_number(option, text, words)
        if number not in words:
            LpBall(float(number))
        return float(number) if number == "inf" else number
    except (TypeError, ValueError) as error:
        raise TableError(
            f"{option} takes a norm p from 1 to inf, or two as 2:1, between views and "
            f"within them; got {text!r}."
        ) from error


def parse_list(text: str) -> list[str]:
    """Return the nonempty parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


# --- data -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Samples and targets, with messages about them."""

    X: Any  # DataFrame or KernelBank
    y: NDArray[Any]
    task: str
    target: str
    layout: Layout | None  # None for Grams
    said: list[str]
    name: str
    ids: list[str] | None = None  # names of the samples
    groups: NDArray[Any] | None = None  # subjects
    event: str | None = None  # the column of events, if the target is a time

    def given(self) -> dict[str, Any]:
        """Return the arguments of ``fit`` other than samples and targets."""
        return {} if self.groups is None else {"groups": self.groups}

    @property
    def covariates(self) -> list[str]:
        """Columns that enter linearly, in addition to the kernels."""
        return [] if self.layout is None else list(self.layout.covariates)

    def part(self, rows: NDArray[np.intp]) -> Data:
        """Return some of the samples."""
        if self.layout is None:
            X = self.X[np.ix_(rows, rows)]
        else:
            X = self.X.iloc[rows].reset_index(drop=True)
        ids = None if self.ids is None else [self.ids[i] for i in rows]
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, X=X, y=self.y[rows], ids=ids, groups=groups)

    def drawn(
        self, size: int, seed: int, least: int = 2
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return ``size`` random rows, stratified by class or event, and the others.

        A class keeps at least ``least`` samples, or all of its samples.
        """
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.y))
        if self.task == VALUES:
            return np.sort(order[:size]), np.sort(order[size:])
        kinds = self.y["event"] if self.task == TIMES else self.y
        taken = np.zeros(len(self.y), dtype=bool)
        for label in np.unique(kinds):
            of_class = order[kinds[order] == label]
            count = round(size * len(of_class) / len(self.y))
            taken[of_class[: max(least, count)]] = True
        return np.flatnonzero(taken), np.flatnonzero(~taken)

    def as_dict(self) -> dict[str, Any]:
        """Return a description of the data, ready for JSON."""
        content: dict[str, Any] = {
            "name": self.name,
            "n_samples": len(self.y),
            "target": self.target,
            "task": self.task,
            "notes": self.said,
        }
        if self.task == CLASSES:
            content["classes"] = class_counts(self.y)
        if self.task == TIMES:
            content["events"] = int(self.y["event"].sum())
        if self.layout is None:
            content["kernels"] = list(self.X.names)
        else:
            content["views"] = {k: list(v) for k, v in self.layout.views.items()}
            content["columns"] = dict(self.layout.kinds)
            content["covariates"] = self.covariates
        if self.groups is not None:
            content["n_groups"] = len(np.unique(self.groups))
        return content


def load_data(
    path: Path,
    target: str,
    views: Mapping[str, Sequence[str]] | None = None,
    sequences: Sequence[str] = (),
    task: str = "auto",
    covariates: Sequence[str] = (),
    groups: str | None = None,
    name: str | None = None,
    tables: Mapping[str, Path] | None = None,
) -> Data:
    """Read tables or Gram matrices and their target."""
    if is_gram_file(path):
        if covariates or groups:
            raise TableError(
                "Gram matrices have no columns, hence no covariates or groups; give a "
                "table."
            )
        if views or sequences or name is not None or tables:
            raise TableError(
                "Gram matrices have no columns, hence no views, sequences or ids."
            )
        bank, labels = read_grams(path, target)
        assert labels is not None
        if bank.shape[0] != bank.shape[1]:
            raise TableError(
                f"{path} contains kernels of shape {bank.shape}; to fit, the shape "
                "must be (n, n, n_kernels), with the kernels last."
            )
        y, kind, why = _target(labels, target, task)
        return Data(bank, y, kind, target, None, [why], path.name)
    frame, parts, ids = read_tables(path, name, tables)
    if parts:
        views = _with_tables(views, parts, {target, groups, *covariates})
    layout = find_layout(frame, target, views, sequences, covariates, groups)
    said = [*id_words(frame, parts, ids), *layout.said]
    absent = frame[target].isna()
    if absent.any():
        who = ""
        if ids is not None:
            who = f": {told(np.array(ids, dtype=object)[absent.to_numpy()])}"
            ids = [i for i, out in zip(ids, absent, strict=True) if not out]
        count = int(absent.sum())
        rows = plural(count, "row")
        said.append(f"Dropped {rows} without a value of {target!r}{who}.")
        frame = frame[~absent].reset_index(drop=True)
    if len(frame) == 0:
        raise TableError(f"all values of {target!r} are missing.")
    _require_matches(frame, parts)
    values = frame[target]
    if getattr(values.dtype, "kind", "O") not in "biuf":
        values = values.astype(str)
    y, kind, why = _target(np.asarray(values.tolist()), target, task)
    X = frame.drop(columns=[target])
    if groups is None:
        found = subject_columns(X, y)
        said += [
            f"{words} Use --groups {c}; if {c!r} does not name subjects, rename it."
            for c, words in zip(found, subject_words(found, X), strict=True)
        ]
        return Data(X, y, kind, target, layout, [why, *said], path.name, ids)
    subjects, words = _subjects(X.pop(groups), groups)
    said.append(words)
    return Data(X, y, kind, target, layout, [why, *said], path.name, ids, subjects)


def _subjects(who: Any, name: str) -> tuple[NDArray[np.intp], str]:
    """Return the index of the subject of each row, and a message about them."""
    if who.isna().any():
        rows = plural(int(who.isna().sum()), "row")
        raise TableError(
            f"Column {name!r} has no subject in {rows}; fill it in for every row, or "
            "drop these rows."
        )
    subjects = np.unique(who.astype(str), return_inverse=True)[1]
    count = int(subjects.max()) + 1
    return subjects, (
        f"{plural(count, 'subject')} in {name!r}; the samples of a subject stay in "
        "the same fold."
    )


def _require_matches(frame: Any, parts: Mapping[str, Sequence[str]]) -> None:
    """Raise TableError for a table of which no sample has a target."""
    for view, columns in parts.items():
        if columns and frame[list(columns)].isna().to_numpy().all():
            raise TableError(
                f"no id in table {view!r} matches that of a sample with a target; "
                "check that the ids are the same in all files, or leave the table out."
            )


def _with_tables(
    views: Mapping[str, Sequence[str]] | None,
    parts: Mapping[str, Sequence[str]],
    apart: set[str | None],
) -> dict[str, Sequence[str]]:
    """Return the views of joined tables; the first table may have named views."""
    (first, columns), *others = parts.items()
    own = [column for column in columns if column not in apart]
    found: dict[str, Sequence[str]] = {}
    if views is None and own:
        found[first] = own
    for view, members in [*(views or {}).items(), *others]:
        if view in found:
            raise TableError(f"two views are called {view!r}; rename one of them.")
        found[view] = members
    return found


def load_times(
    path: Path,
    time: str,
    event: str,
    views: Mapping[str, Sequence[str]] | None = None,
    sequences: Sequence[str] = (),
    covariates: Sequence[str] = (),
    groups: str | None = None,
    name: str | None = None,
    tables: Mapping[str, Path] | None = None,
) -> Data:
    """Read tables with survival times and event indicators."""
    if is_gram_file(path):
        raise TableError(
            "--survival names columns of a table; Gram matrices have none."
        )
    frame, parts, ids = read_tables(path, name, tables)
    y, known = _times(frame, time, event, path.name)
    said = id_words(frame, parts, ids)
    if not known.all():
        said.append(
            f"Dropped {plural(int((~known).sum()), 'row')} without a time or an event."
        )
        frame = frame[known].reset_index(drop=True)
        if ids is not None:
            ids = [i for i, kept in zip(ids, known, strict=True) if kept]
    _require_matches(frame, parts)
    count = int(y["event"].sum())
    if count == 0:
        raise TableError(f"no row of {event!r} is 1, so there are no events.")
    frame = frame.drop(columns=[event])
    if parts:
        kept = {k: [c for c in columns if c != event] for k, columns in parts.items()}
        views = _with_tables(views, kept, {time, groups, *covariates})
    layout = find_layout(frame, time, views, sequences, covariates, groups)
    said = [f"{count} of {len(y)} times are events.", *layout.said, *said]
    X, subjects = frame.drop(columns=[time]), None
    if groups is not None:
        subjects, words = _subjects(X.pop(groups), groups)
        said.append(words)
    return Data(X, y, TIMES, time, layout, said, path.name, ids, subjects, event)


def _times(
    frame: Any, time: str, event: str, where: str
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return times and events of the rows that have both, and which rows have."""
    for column in (time, event):
        if column not in frame.columns:
            raise TableError(f"--survival: there is no column {column!r} in {where}.")
    known = frame[[time, event]].notna().all(axis=1).to_numpy()
    frame = frame[known]
    for column in (time, event):
        kind = str(frame[column].dtype)
        if is_time(kind):
            raise TableError(
                f"--survival takes times as numbers, but {column!r} contains dates or "
                f"durations ({kind}); give the days, or any other unit, since each "
                "sample entered the study."
            )
    y = np.empty(len(frame), dtype=[("event", bool), ("time", np.float64)])
    try:
        marks = frame[event].to_numpy().astype(np.float64)
        y["time"] = frame[time].to_numpy().astype(np.float64)
    except (TypeError, ValueError):
        raise TableError(
            "--survival time,event takes a column of numbers and a column of 0 and 1 "
            f"(or True and False), but {time!r} or {event!r} has other values."
        ) from None
    if not np.isin(marks, (0.0, 1.0)).all():
        raise TableError(
            f"--survival time,event: the event column {event!r} must contain 1 (event) "
            "or 0 (censored); the time column comes first."
        )
    y["event"] = marks == 1.0
    if not (np.isfinite(y["time"]).all() and (y["time"] >= 0).all()):
        raise TableError(f"the times {time!r} must be finite and not negative.")
    return y, known


def load_test(path: Path, train: Data) -> Data:
    """Read samples of the same kind, with the same target, from another file."""
    if train.layout is None:
        raise TableError(
            "--test takes a table; use mklearn predict for Gram matrices of new "
            "samples."
        )
    if is_gram_file(path):
        raise TableError(f"--test takes a table like the first, got {path}.")
    frame = read_table(path)
    if train.task == TIMES:
        return _test_times(path, frame, train)
    if train.target not in frame.columns:
        raise TableError(f"{path} has no column {train.target!r}, the target.")
    frame = frame[~frame[train.target].isna()].reset_index(drop=True)
    if len(frame) == 0:
        raise TableError(f"{path}: all values of {train.target!r} are missing.")
    values = frame[train.target]
    if train.y.dtype.kind in "US" and values.dtype.kind not in "US":
        values = values.astype(str)
    y = np.asarray(values.tolist())
    if train.task == CLASSES:
        new = sorted({str(v) for v in y} - {str(v) for v in train.y})
        if new:
            raise TableError(
                f"{path} has the class {new[0]!r} of {train.target!r}, which does not "
                "occur in the training samples."
            )
        y = y.astype(train.y.dtype)
    elif y.dtype.kind not in "biuf" or not np.isfinite(y).all():
        raise TableError(f"{path}: {train.target!r} must hold finite numbers.")
    X = frame.drop(columns=[train.target])
    return replace(train, X=X, y=y, name=path.name, ids=None, groups=None)


def _test_times(path: Path, frame: Any, train: Data) -> Data:
    """Return samples of another table with times and events."""
    assert train.event is not None
    y, known = _times(frame, train.target, train.event, path.name)
    if not len(y) or np.isnan(concordance_index(y, np.zeros(len(y)))):
        raise TableError(
            f"{path} has no event that other samples outlive, so there is no "
            "concordance."
        )
    X = frame[known].drop(columns=[train.target, train.event]).reset_index(drop=True)
    return replace(train, X=X, y=y, name=path.name, ids=None, groups=None)


def _target(y: NDArray[Any], name: str, task: str) -> tuple[NDArray[Any], str, str]:
    """Return the target, its kind (classes or values), and the reason."""
    numbers = y.dtype.kind in "iuf"
    if numbers and not np.isfinite(y).all():
        raise TableError(f"the target {name!r} has infinite or missing values.")
    count = len(np.unique(y))
    whole = numbers and bool((y == np.round(y)).all())
    if task == "auto":
        values = numbers and (not whole or count > MANY)
        task = VALUES if values else CLASSES
        if values:
            why = f"{count} different numbers: regression"
        else:
            why = f"{count} different values: classification"
    else:
        why = f"{count} different values: {task}, as requested"
    if task == VALUES and not numbers:
        raise TableError(
            f"the target {name!r} is not numeric, so regression is not possible."
        )
    if count < 2:
        raise TableError(
            f"the target {name!r} has only one value, {y[0]!s}; there is nothing to "
            "learn."
        )
    if task == CLASSES and whole:
        y = y.astype(np.int64)
    return y, task, f"The target {name!r} has {why} (use --task to change this)."


def make_folds(data: Data, n_folds: int, seed: int, repeats: int = 1) -> Any:
    """Return the splitter, or raise TableError if there are too few samples."""
    if data.task == TIMES:
        fewest = int(data.y["event"].sum())
        if fewest < n_folds:
            raise TableError(
                f"the data have {plural(fewest, 'event')}, too few for "
                f"{plural(n_folds, 'fold')}; lower --cv."
            )
        if data.groups is not None:
            _check_repeats(repeats)
            return _EventGroupFolds(n_folds, data.groups, data.y["event"], seed)
        return _EventFolds(n_splits=n_folds, n_repeats=repeats, random_state=seed)
    if data.groups is not None:
        _check_repeats(repeats)
        return group_folds(n_folds, data.groups, data.y, data.task == CLASSES, seed)
    if data.task == VALUES:
        if len(data.y) < 2 * n_folds:
            raise TableError(
                f"the data have {plural(len(data.y), 'sample')}, too few for "
                f"{plural(n_folds, 'fold')}; lower --cv."
            )
        if repeats > 1:
            return RepeatedKFold(n_splits=n_folds, n_repeats=repeats, random_state=seed)
        return KFold(n_folds, shuffle=True, random_state=seed)
    labels, counts = np.unique(data.y, return_counts=True)
    if counts.min() < n_folds:
        raise TableError(
            f"class {labels[counts.argmin()]!s} has {plural(counts.min(), 'sample')}, "
            f"too few for {plural(n_folds, 'fold')}; lower --cv, or merge or drop the "
            "class."
        )
    if repeats > 1:
        return RepeatedStratifiedKFold(
            n_splits=n_folds, n_repeats=repeats, random_state=seed
        )
    return StratifiedKFold(n_folds, shuffle=True, random_state=seed)


def _check_repeats(repeats: int) -> None:
    """Raise TableError if folds of groups should be drawn more than once."""
    if repeats > 1:
        raise TableError(
            "--repeats cannot be combined with --groups; give only one of them."
        )


class _EventGroupFolds:
    """Folds that keep groups together, and spread the events evenly where possible."""

    def __init__(
        self, n_folds: int, groups: NDArray[Any], event: NDArray[np.bool_], seed: int
    ) -> None:
        each = [len(np.unique(groups[event == kind])) for kind in (False, True)]
        try:
            self._folds = group_folds(
                n_folds, groups, event, min(each) >= n_folds, seed
            )
        except ValueError as error:
            raise TableError(str(error)) from error

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return int(self._folds.get_n_splits())

    def split(self, X: Any, y: Any, groups: Any) -> Any:
        """Yield train and test rows."""
        return self._folds.split(X, np.asarray(y["event"]), groups)


class _EventFolds(RepeatedStratifiedKFold):
    """Folds stratified by events, as far as there are enough of them."""

    def split(self, X: Any, y: Any, groups: Any = None) -> Any:
        """Yield train and test, as for two classes."""
        events = np.asarray(y["event"])
        few = min(np.bincount(events, minlength=2)) < self.cvargs["n_splits"]
        return super().split(X, np.zeros(len(events)) if few else events, groups)


# --- scores ---------------------------------------------------------------------------

LOG_LOSS = "neg_log_loss"  # the only one that needs probabilities
OF_CLASSES = (
    "accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef", LOG_LOSS,
)  # fmt: skip
OF_TWO = ("roc_auc", "average_precision", "f1")
OF_VALUES = ("r2", "neg_root_mean_squared_error", "neg_mean_absolute_error")
SCORES = (*OF_CLASSES, *OF_TWO, *OF_VALUES)
OF_TIMES = "concordance"  # the only score of --survival


def make_scorer(data: Data, name: str) -> Any:
    """Return a scorer by name; raise TableError if it does not suit the target.

    The second of two classes is the positive one.
    """
    if data.task == TIMES:
        raise TableError("--survival is compared by concordance; omit --scoring.")
    values, labels = data.task == VALUES, np.unique(data.y)
    known = (
        OF_VALUES if values else (*OF_CLASSES, *(OF_TWO if len(labels) == 2 else ()))
    )
    if name not in known:
        what = "numbers" if values else plural(len(labels), "class")
        raise TableError(
            f"--scoring {name} does not suit a target of {what}; use one of "
            f"{', '.join(known)}."
        )
    if name == LOG_LOSS:  # not all folds need to have all classes
        return metrics.make_scorer(
            metrics.log_loss, greater_is_better=False, response_method="predict_proba",
            labels=labels,
        )  # fmt: skip
    if name not in OF_TWO:
        return get_scorer(name)
    if name == "f1":
        return metrics.make_scorer(metrics.f1_score, pos_label=labels[1])
    response = ("decision_function", "predict_proba")
    if name == "roc_auc":
        return metrics.make_scorer(metrics.roc_auc_score, response_method=response)
    return metrics.make_scorer(
        metrics.average_precision_score, response_method=response, pos_label=labels[1]
    )
