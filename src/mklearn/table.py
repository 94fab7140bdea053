"""User tables: reading them, inferring the types of columns, and making views.

Numbers are standardised, categories become indicator columns, and missing values are
imputed; :class:`TableModel` learns all of this from the training samples only and
stores it with the model. If there are several views, a row that is empty in all columns
of a view lacks that view, and nothing is imputed there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from mklearn.data.files import exact_numbers
from mklearn.data.labels import as_labels, require_distinct
from mklearn.data.spelling import did_you_mean
from mklearn.estimators._base import check_answers
from mklearn.kernels import KernelBank, MultiView

FloatArray = NDArray[np.float64]

NUMBER, CATEGORY, SEQUENCE = "number", "category", "sequence"
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
PARQUET = (".parquet", ".pq")
GRAMS = (".npz", ".npy")
MANY = 20  # categories; a column of many more, mostly different ones, names samples


class TableError(ValueError):
    """Data that cannot be used; the message says what to change."""


# --- files ----------------------------------------------------------------------------


def is_gram_file(path: str | os.PathLike[str]) -> bool:
    """Tell by its name whether a file holds Gram matrices."""
    return Path(path).suffix.lower() in GRAMS


def read_table(path: str | os.PathLike[str]) -> Any:
    """Return a CSV, TSV or parquet file as a DataFrame, or raise TableError."""
    path = Path(path)
    pd = _pandas()
    kinds = [s.lower() for s in path.suffixes]
    kind = (
        kinds[-2] if kinds[-1:] == [".gz"] and len(kinds) > 1 else "".join(kinds[-1:])
    )
    if kind not in SEPARATORS and kind not in PARQUET:
        raise TableError(
            f"the format of {path} is not supported: use .csv, .tsv or .parquet for "
            "tables, .npz or .npy for Gram matrices."
        )
    if not path.is_file():
        raise TableError(f"there is no file {path}.")
    try:
        if kind in PARQUET:
            frame = _unindexed(pd.read_parquet(path))
        else:
            options = {
                "sep": SEPARATORS[kind],
                "encoding": "utf-8-sig",
                **exact_numbers(pd),
            }
            frame = pd.read_csv(path, **options)
            if kind == ".csv" and frame.shape[1] == 1 and ";" in str(frame.columns[0]):
                options["sep"] = ";"
                frame = pd.read_csv(path, **options)
            # pandas gives names that stand twice a number, and tells nobody
            first = pd.read_csv(
                path, header=None, nrows=1, dtype=str, keep_default_na=False, **options
            )
            _check_names(first.iloc[0], path)
    except ImportError as error:
        raise TableError(
            f"{path} is a parquet file; reading it needs an additional package: pip "
            "install mklearn[parquet]."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise TableError(f"{path} is empty.") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not UTF-8 text; save it as UTF-8.") from error
    except TableError:
        raise
    except Exception as error:
        # a damaged file may fail in any of zlib, pyarrow and pandas
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TableError(f"{path} cannot be read: {reason.rstrip('.')}.") from error
    frame.columns = [str(c).strip() for c in frame.columns]
    _check_names(frame.columns, path)
    if not isinstance(frame.index, pd.RangeIndex):
        # more values than names: pandas takes the first columns as names of rows
        raise TableError(f"{path} has rows with more values than there are columns.")
    if len(frame) == 0:
        raise TableError(f"{path} has a header but no rows.")
    return frame


def read_tables(
    path: str | os.PathLike[str],
    name: str | None = None,
    tables: Mapping[str, str | os.PathLike[str]] | None = None,
) -> tuple[Any, dict[str, list[str]], list[str] | None]:
    """Return one table of several, the columns of each, and the names of the rows.

    Parameters
    ----------
    path : path
        The first table.
    name : str, optional
        The column that names the samples, in each of the tables.
    tables : mapping of str to path, optional
        Additional tables. Every sample in any of the tables gets a row, which is empty
        in the columns of tables without this sample.
    """
    frame = read_table(path)
    if name is None:
        if tables:
            raise TableError(
                "tables are joined on the names of their samples; give the column of "
                "names as --id COLUMN."
            )
        return frame, {}, None
    frames = {Path(path).stem: frame}
    for view, file in (tables or {}).items():
        if view in frames:
            raise TableError(f"two tables are called {view!r}; rename one of them.")
        frames[view] = read_table(file)
    pd = _pandas()
    views: dict[str, list[str]] = {}
    parts, taken = [], set()
    for view, part in frames.items():
        _require_column(part, name)
        ids = [str(value) for value in part[name].tolist()]
        try:
            require_distinct(as_labels(ids), f"table {view!r}")
        except ValueError as error:
            raise TableError(str(error)) from error
        if part[name].isna().any():
            raise TableError(f"table {view!r} has rows without a value of {name!r}.")
        part = part.drop(columns=[name]).set_axis(pd.Index(ids, dtype=object))
        part = part.rename(columns={c: f"{view}.{c}" for c in part if c in taken})
        taken |= set(part.columns)
        views[view] = list(part.columns)
        parts.append(part)
    everyone = list(dict.fromkeys(i for part in parts for i in part.index))
    whole = pd.concat([part.reindex(everyone) for part in parts], axis=1)
    return whole.reset_index(drop=True), views if tables else {}, everyone


def _check_names(columns: Any, path: Path) -> None:
    """Raise TableError for a name that two columns have."""
    seen = set()
    for name in (str(column).strip() for column in columns):
        if name in seen:
            raise TableError(f"{path} has more than one column called {name!r}.")
        if name:  # those without a name get one
            seen.add(name)


def _unindexed(frame: Any) -> Any:
    """Return the table with row names as a column where these have a name."""
    named = any(name is not None for name in frame.index.names)
    return frame.reset_index(drop=not named)


def read_grams(
    path: str | os.PathLike[str], target: str | None = None
) -> tuple[KernelBank, NDArray[Any] | None]:
    """Return the Gram matrices of a file, and the labels called ``target`` if any.

    An npy file contains one array of shape (n_rows, n_cols, n_kernels), kernels last.
    An npz file contains such an array, optionally with the ``names`` of its kernels, or
    one matrix for each kernel, under its name. Labels are a 1-D array in the npz file
    or in a separate file, npy or text with one label per line.
    """
    path = Path(path)
    if not path.is_file():
        raise TableError(f"there is no file {path}.")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            arrays = {"K": loaded}
        else:
            with loaded:
                arrays = {**loaded}
    except Exception as error:
        # a damaged archive may fail in any of zipfile, zlib and numpy
        raise TableError(f"{path} cannot be read as numpy arrays: {error}.") from error
    labels = None
    if target is not None:
        labels = arrays.pop(target) if target in arrays else _read_labels(target, path)
    names = arrays.pop("names", None)
    stacks = {k: a for k, a in arrays.items() if a.ndim == 3}
    matrices = {k: a for k, a in arrays.items() if a.ndim == 2}
    try:
        if len(stacks) == 1:
            (stack,) = stacks.values()
            given = None if names is None else [str(n) for n in np.atleast_1d(names)]
            bank = KernelBank.from_grams(stack, given)
        elif matrices and not stacks:
            bank = KernelBank.from_grams(list(matrices.values()), list(matrices))
        else:
            shapes = {k: a.shape for k, a in arrays.items()}
            raise TableError(
                f"{path} must contain one array (n, n, n_kernels), kernels last, or "
                f"one matrix for each kernel; it contains {shapes}."
            )
    except TableError:
        raise
    except (TypeError, ValueError) as error:
        raise TableError(f"{path}: {error}") from error
    if labels is not None and labels.shape != (len(bank),):
        raise TableError(
            f"the labels {target!r} have shape {labels.shape}, but the Gram matrices "
            f"have {len(bank)} samples; give one label for each sample."
        )
    return bank, labels


def _read_labels(target: str, path: Path) -> NDArray[Any]:
    file = Path(target)
    if not file.is_file():
        raise TableError(
            f"{target!r} is neither an array in {path} nor a file of labels."
        )
    try:
        if file.suffix.lower() == ".npy":
            return np.atleast_1d(np.load(file, allow_pickle=False))
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise TableError(f"the labels {file} cannot be read: {error}.") from error
    words = np.array([line for line in lines if line])
    try:
        return words.astype(np.float64)
    except ValueError:
        return words


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise TableError(
            "tables need an additional package: pip install pandas."
        ) from error
    return pd


# --- columns --------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The columns used, their types and views; ``said`` explains the choices."""

    kinds: dict[str, str]
    views: dict[str, tuple[str, ...]]
    said: list[str] = field(default_factory=list)
    covariates: tuple[str, ...] = ()


def find_layout(
    frame: Any,
    target: str | None = None,
    views: Mapping[str, Sequence[str]] | None = None,
    sequences: Sequence[str] = (),
    covariates: Sequence[str] = (),
    groups: str | None = None,
) -> Layout:
    """Infer the types of the columns and how to use each of them.

    Parameters
    ----------
    frame : DataFrame
    target : str, optional
        The target column, which is not a feature.
    views : mapping of str to column names, optional
        By default a single view ``"X"`` of all columns. Patterns and ranges are
        expanded as in :func:`matching_columns`; unusable columns among the matches are
        left out.
    sequences : sequence of str
        Columns of strings, such as DNA, each of which becomes a separate view.
    covariates : sequence of str
        Columns that enter linearly in addition to the kernels and are in no view.
    groups : str, optional
        The column of subjects, which is not a feature.
    """
    asked = {c for columns in (views or {}).values() for c in columns} | set(sequences)
    if views:
        views = {
            name: [
                c
                for c in matching_columns(frame, columns)
                if c != target or target in asked
            ]
            for name, columns in views.items()
        }
    named = [c for columns in (views or {}).values() for c in columns]
    apart = [*covariates, *([] if groups is None else [groups])]
    for column in [*named, *sequences, *apart, *([] if target is None else [target])]:
        _require_column(frame, column)
    if target is not None and target in [*named, *sequences, *apart]:
        raise TableError(f"{target!r} is the target; it cannot be in a view as well.")
    for column in apart:
        if column in [*named, *sequences] or apart.count(column) > 1:
            raise TableError(
                f"{column!r} is used twice: a column can be in a view, a covariate or "
                "the subjects, but only one of these."
            )
    kinds: dict[str, str] = {}
    said: list[str] = []
    chosen = set(named) | set(sequences) if views else set(frame.columns) - set(apart)
    for column in frame.columns:
        if column == target or column not in chosen:
            continue
        kind, why = _kind(frame[column], column in sequences)
        if kind is not None:
            kinds[column] = kind
        elif column in asked:
            raise TableError(f"column {column!r} cannot be used: {why}.")
        else:
            said.append(f"Column {column!r} is left out: {why}.")
    if not kinds:
        strings = [c for c in frame.columns if c != target and _is_text(frame[c])]
        hints = [
            f" Columns of strings such as DNA are given as --sequences {c}."
            for c in strings
        ]
        raise TableError(
            "no column is left to learn from, apart from the "
            f"target.{''.join(hints[:1])}"
        )
    beside = {c: _covariate_kind(frame[c], c) for c in covariates}
    if views:
        out = {*chosen, *apart, target}
        left = [c for c in frame.columns if c not in out]
        if left:
            said.append(f"In no view and left out: {_listed(left)}.")
        views_of = {
            name: tuple(c for c in columns if c in kinds)
            for name, columns in views.items()
        }
        for name, columns in views_of.items():
            if not columns:
                raise TableError(f"no column of view {name!r} can be used.")
            if any(kinds[c] == SEQUENCE for c in columns) and len(columns) > 1:
                raise TableError(
                    f"view {name!r} contains sequences and other columns; sequences "
                    "must be in a separate view."
                )
    else:
        rest = tuple(c for c in kinds if kinds[c] != SEQUENCE)
        views_of = {"X": rest} if rest else {}
    clash = [c for c in covariates if c in views_of]
    if clash:
        raise TableError(
            f"{clash[0]!r} is both a covariate and a view; rename the view."
        )
    placed = {c for columns in views_of.values() for c in columns}
    views_of.update(
        {c: (c,) for c in kinds if kinds[c] == SEQUENCE and c not in placed}
    )
    if len(views_of) == 1:
        for column in kinds:
            missing = int(frame[column].isna().sum())
            if kinds[column] == SEQUENCE and missing:
                raise TableError(
                    f"column {column!r} cannot be used: {missing} of its sequences are "
                    "missing, and there is no other view."
                )
    said += _told(frame, kinds, views_of)
    return Layout({**kinds, **beside}, views_of, said, tuple(covariates))


def _covariate_kind(values: Any, name: str) -> str:
    """Return what a covariate is; raise TableError if it cannot be one."""
    missing = int(values.isna().sum())
    if missing:
        raise TableError(
            f"covariate {name!r} is missing in {missing} of {len(values)} rows; fill "
            "it in, or leave these rows out."
        )
    kind, why = _kind(values, sequence=False)
    if kind is None:
        raise TableError(f"column {name!r} cannot be a covariate: {why}.")
    return kind


_SUBJECT = re.compile(
    r"(^|[_. -])(sub|subj|subject|patient|participant|person|individual|donor|animal|"
    r"mouse|volunteer|pid)s?([_. -]?(id|no|nr|number|code|name))?$",
    re.IGNORECASE,
)


def subject_columns(frame: Any, y: NDArray[Any]) -> list[str]:
    """Return columns that seem to name subjects, each of them with several rows.

    Such columns have a telling name, contain more different texts than categories
    would, or contain whole numbers that determine the class of each row.

    Parameters
    ----------
    frame : DataFrame
    y : array of shape (n,)
        The target.
    """
    found = []
    for column in frame.columns:
        values = frame[column]
        words = np.array(_words(values))
        known, place, counts = np.unique(words, return_inverse=True, return_counts=True)
        few = 2 <= len(known) <= len(words) / 2
        if values.isna().any() or not few or getattr(values.dtype, "kind", "O") == "f":
            continue
        if _SUBJECT.search(str(column)):
            found.append(column)
            continue
        if counts.min() < 2 or len(known) <= (MANY if not _is_number(values) else 4):
            continue
        labels = np.unique(y, return_inverse=True)[1]
        alike = len(np.unique(np.stack([place, labels]), axis=1).T) == len(known)
        if alike or not _is_number(values):
            found.append(column)
    return found


def subject_words(columns: Sequence[str], frame: Any) -> list[str]:
    """Return what to do about columns that seem to name subjects, in words."""
    return [
        f"Column {c!r} seems to contain subjects, {frame[c].nunique()} of them in "
        f"{len(frame)} rows: if a subject has rows in both the training and the test "
        f"part of a fold, scores are too optimistic. Use --groups {c}, or remove the "
        "column from the table."
        for c in columns
    ]


def absent_rows(
    frame: Any, views: Mapping[str, Sequence[str]]
) -> dict[str, NDArray[np.bool_]]:
    """Return the rows that are empty in all columns of a view, by view.

    Views that no row lacks are left out. A single view is never absent.
    """
    if len(views) < 2:
        return {}
    masks = {
        name: frame[list(columns)].isna().to_numpy().all(axis=1)
        for name, columns in views.items()
    }
    return {name: mask for name, mask in masks.items() if mask.any()}


def absent_words(masks: Mapping[str, NDArray[np.bool_]]) -> list[str]:
    """Return what happens to rows without a view, in words."""
    if not masks:
        return []
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    shown = _listed([f"{name} ({n} row{'s' * (n != 1)})" for name, n in counts.items()])
    return [
        f"Missing views (all columns empty): {shown}. These rows are assigned the "
        "view's average; nothing is filled in."
    ]


def _require_column(frame: Any, column: str) -> None:
    if column not in frame.columns:
        hint = did_you_mean(column, frame.columns).strip()
        raise TableError(
            f"there is no column {column!r}; the table has "
            f"{_listed(frame.columns)}. {hint}".rstrip()
        )


def matching_columns(frame: Any, wanted: Sequence[str]) -> list[str]:
    """Return the columns that names, patterns and ranges stand for, each once.

    Parameters
    ----------
    frame : DataFrame
    wanted : sequence of str
        Names; patterns such as ``ENSG*``; ranges such as ``V2:V30``, from one column to
        another in the order of the table. A text that is the name of a column means
        that column.
    """
    columns = [str(c) for c in frame.columns]
    found: list[str] = []
    for text in wanted:
        first, sign, last = (part.strip() for part in text.partition(":"))
        if text in columns:
            found.append(text)
        elif sign and first in columns and last in columns:
            a, b = columns.index(first), columns.index(last)
            if a > b:
                raise TableError(
                    f"the range {text!r} is empty: {last!r} comes before {first!r}."
                )
            found += columns[a : b + 1]
        elif any(sign in text for sign in "*?["):
            some = [c for c in columns if fnmatchcase(c, text)]
            if not some:
                raise TableError(
                    f"no column matches {text!r}; the table has {_listed(columns)}."
                )
            found += some
        else:
            for name in (first, last) if sign else (text,):
                _require_column(frame, name)
    return list(dict.fromkeys(found))


def _kind(values: Any, sequence: bool) -> tuple[str | None, str]:
    """Return what a column is, or None and why it cannot be used."""
    present = values.dropna()
    if len(present) == 0:
        return None, "all its values are missing"
    if sequence:
        if not all(isinstance(v, str) for v in present):
            return None, "it does not contain strings"
        return SEQUENCE, ""
    if _is_number(values):
        numbers = present.to_numpy(dtype=np.float64)
        if not np.isfinite(numbers).all():
            return None, "it has infinite values"
        if (numbers == numbers[0]).all() and len(present) == len(values):
            return None, "it is constant"
        return NUMBER, ""
    count = len(set(_words(present)))
    if count == 1 and len(present) == len(values):
        return None, "it is constant"
    if count > MANY and count > len(present) / 2:
        return None, f"its {count} different texts seem to be names of samples"
    return CATEGORY, ""


def _is_text(values: Any) -> bool:
    """Tell whether a column holds strings that are all of letters, such as DNA."""
    present = values.dropna()
    return len(present) > 0 and all(
        isinstance(v, str) and len(v) > 1 and v.isalpha() for v in present
    )


def _is_number(values: Any) -> bool:
    kind = getattr(values.dtype, "kind", "O")
    return kind in "biuf"


def _words(values: Any) -> list[str]:
    return [str(v) for v in values]


def _told(
    frame: Any, kinds: Mapping[str, str], views: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return what happens to categories and missing values, in words."""
    said = []
    categories = [c for c, kind in kinds.items() if kind == CATEGORY]
    if categories:
        said.append(f"Categories, one column for each: {_listed(categories)}.")
    said += absent_words(absent_rows(frame, views))
    holes = filled_in(frame, views)
    if holes:
        shown = _listed([f"{c} ({count})" for c, count in holes.items()])
        said.append(
            f"Missing values, {sum(holes.values())} in all, are filled in with the "
            f"median of a number or the most frequent category: {shown}."
        )
    return said


def filled_in(frame: Any, views: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how many values of a column are filled in, for columns with any."""
    absent = absent_rows(frame, views)
    found = {}
    for column in dict.fromkeys(c for columns in views.values() for c in columns):
        holes = frame[column].isna().to_numpy() & ~_lacking(
            frame, column, views, absent
        )
        if holes.any():
            found[column] = int(holes.sum())
    return found


def _lacking(
    frame: Any,
    column: str,
    views: Mapping[str, Sequence[str]],
    absent: Mapping[str, NDArray[np.bool_]],
) -> NDArray[np.bool_]:
    """Return the rows in which all views that hold a column are absent."""
    none = np.zeros(len(frame), dtype=bool)
    masks = [absent.get(v, none) for v, columns in views.items() if column in columns]
    return np.logical_and.reduce(masks)


def _listed(names: Any, most: int = 8) -> str:
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + rest


@dataclass(frozen=True)
class Column:
    """What training samples say about a column.

    Attributes
    ----------
    kind : {"number", "category", "sequence"}
    fill : float, str or None
        Replacement for missing values: the median, or the most frequent category.
    mean, scale : float
        The mean is subtracted from numbers, which are then multiplied by the scale.
    categories : tuple of str
        The categories, each with an indicator column; a new category is in none of
        them.
    """

    name: str
    kind: str
    fill: float | str | None = None
    mean: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] = ()

    @classmethod
    def learn(cls, values: Any, name: str, kind: str, standardize: bool) -> Column:
        """Learn fill, scale and categories from a Series."""
        if kind == SEQUENCE:
            return cls(name, kind)
        present = values.dropna()
        if kind == CATEGORY:
            words, counts = np.unique(_words(present), return_counts=True)
            known = tuple(words.tolist())
            return cls(name, kind, known[counts.argmax()] if known else None,
                       categories=known)  # fmt: skip
        numbers = present.to_numpy(dtype=np.float64)
        if not len(numbers):
            return cls(name, kind, 0.0)
        fill = float(np.median(numbers))
        if not standardize:
            return cls(name, kind, fill)
        filled = np.append(numbers, np.full(len(values) - len(numbers), fill))
        spread = float(filled.std())
        return cls(name, kind, fill, float(filled.mean()),
                   1.0 / spread if spread > 0 else 1.0)  # fmt: skip

    def check(self, name: str) -> None:
        """Raise ValueError if it is not a sound column of that name."""
        sound = self.kind == SEQUENCE
        if self.kind == NUMBER:
            numbers = (self.fill, self.mean, self.scale)
            real = all(isinstance(n, (int, float)) for n in numbers)
            sound = real and bool(np.isfinite(numbers).all())
        elif self.kind == CATEGORY:
            words = [*self.categories, *([] if self.fill is None else [self.fill])]
            sound = all(isinstance(word, str) for word in words)
        if not sound or self.name != name:
            raise ValueError(f"column {name!r} has no kind, mean or scale")

    def example(self) -> list[Any]:
        """Return two values that it may have."""
        if self.kind == NUMBER:
            return [self.fill, self.fill + 1.0]
        return [next(iter(self.categories), "A"), "A"]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numeric columns that it becomes."""
        if self.kind == CATEGORY:
            return tuple(f"{self.name}={word}" for word in self.categories)
        return (self.name,)

    def numbers(self, values: Any) -> FloatArray:
        """Return the numeric columns, shape (n, 1 or n_categories)."""
        if self.kind == CATEGORY:
            filled = [self.fill if m else str(v) for v, m in _with_holes(values)]
            words = np.array(filled, dtype=object)[:, None]
            known = np.array(self.categories, dtype=object)
            return (words == known).astype(np.float64)
        try:
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise TableError(
                f"column {self.name!r} was numeric in training, but now has values "
                f"that are not numbers: {error}."
            ) from error
        if np.isinf(numbers).any():
            raise TableError(f"column {self.name!r} has infinite values.")
        numbers = np.where(np.isnan(numbers), self.fill, numbers)
        return np.asarray((numbers - self.mean) * self.scale)[:, None]


def _with_holes(values: Any) -> Any:
    return zip(values.tolist(), values.isna().tolist(), strict=True)


# --- the model ------------------------------------------------------------------------


def _estimator_has(name: str) -> Any:
    def check(self: TableModel) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)
        return True

    return check


class TableModel(BaseEstimator):
    """An estimator for raw DataFrames.

    Missing values are imputed, numbers standardised and categories turned into
    indicator columns, using the training samples only; the estimator then gets a
    :class:`MultiView`. Its fitted attributes are available on this object.

    Parameters
    ----------
    estimator : estimator
    kinds : mapping of str to {"number", "category", "sequence"}, optional
        Types of the columns; inferred by :func:`find_layout` by default.
    views : mapping of str to sequence of str, optional
        The columns of each view.
    standardize : bool
        Whether to scale numbers to mean 0 and variance 1; not suitable for histograms
        and counts.
    as_views : bool
        Whether the estimator gets a MultiView, or all numbers in one array.
    covariates : sequence of str
        Columns that become separate views, in the units of the table, for the parameter
        ``fixed`` of the estimator.

    Attributes
    ----------
    estimator_ : estimator
        Fitted.
    columns_ : dict of str to Column
        What was learned about each column.
    views_ : dict of str to tuple of str

    Examples
    --------
    >>> import pandas as pd
    >>> from mklearn import MKLClassifier
    >>> from mklearn.table import TableModel
    >>> X = pd.DataFrame({"size": [1.0, 2, 8, None, 7], "kind": list("aabba")})
    >>> model = TableModel(MKLClassifier()).fit(X, ["s", "s", "l", "s", "l"])
    >>> model.predict(X.iloc[1:3]).tolist(), model.columns_["size"].fill
    (['s', 'l'], 4.5)
    """

    def __init__(
        self,
        estimator: Any,
        *,
        kinds: Mapping[str, str] | None = None,
        views: Mapping[str, Sequence[str]] | None = None,
        standardize: bool = True,
        as_views: bool = True,
        covariates: Sequence[str] = (),
    ) -> None:
        self.estimator = estimator
        self.kinds = kinds
        self.views = views
        self.standardize = standardize
        self.as_views = as_views
        self.covariates = covariates

    def fit(self, X: Any, y: Any, groups: Any = None) -> TableModel:
        """Learn the columns, then fit the estimator on them.

        Parameters
        ----------
        X : DataFrame
        y : array of shape (n_samples,)
        groups : array of shape (n_samples,), optional
            Subject of each sample, for an estimator that uses cross-validation.
        """
        layout = None
        if self.kinds is None or self.views is None:
            layout = find_layout(X, None, self.views, (), tuple(self.covariates))
        kinds = self.kinds if layout is None else layout.kinds
        views = self.views if layout is None else layout.views
        self.views_ = {name: tuple(columns) for name, columns in views.items()}
        wanted = dict.fromkeys(c for columns in self.views_.values() for c in columns)
        for column in wanted:
            _require_column(X, column)
        absent = absent_rows(X, self.views_)
        self.columns_ = {}
        for c in wanted:
            known = X[c][~_lacking(X, c, self.views_, absent)]
            self.columns_[c] = Column.learn(known, c, kinds[c], self.standardize)
        self.covariates_ = tuple(self.covariates)
        for c in self.covariates_:
            _require_column(X, c)
            # in the units of the user, unless they are features like others
            units = self.standardize and not self.as_views
            self.columns_[c] = Column.learn(X[c], c, kinds[c], units)
        model = clone(self.estimator)
        inner = getattr(model, "regressor", model)
        search = isinstance(inner, (GridSearchCV, RandomizedSearchCV))
        asks = groups is not None and (search or has_fit_parameter(model, "groups"))
        given = {"groups": groups} if asks else {}
        self.estimator_ = model.fit(self.transform_table(X), y, **given)
        return self

    def _beside(self) -> tuple[str, ...]:
        """Return the covariates; files of earlier versions say nothing of them."""
        return tuple(vars(self).get("covariates_", ()))

    def check_columns(self) -> None:
        """Raise ValueError if columns and views do not fit together."""
        wanted = {c for columns in self.views_.values() for c in columns}
        wanted |= set(self._beside())
        known = all(isinstance(c, Column) for c in self.columns_.values())
        if not wanted or not known or wanted != set(self.columns_):
            raise ValueError("the columns do not match the views")
        for name, column in self.columns_.items():
            column.check(name)

    def check_answers(self) -> None:
        """Raise ValueError unless there is a finite answer for rows of a table."""
        try:
            pd = _pandas()
        except TableError:
            return  # nor will it be asked for others
        rows = {name: column.example() for name, column in self.columns_.items()}
        for name in self._beside():  # which know no other categories
            rows[name] = [rows[name][0]] * 2
        check_answers(self, pd.DataFrame(rows))

    def with_columns(self, X: Any) -> Any:
        """Return a table with the columns that the model needs, or raise TableError.

        If there are several views, a table may lack all columns of a view; its rows
        then lack the view.
        """
        missing = {c for c in self.columns_ if c not in X.columns}
        whole = {
            c
            for columns in self.views_.values()
            for c in columns
            if missing.issuperset(columns)
        }
        least = (
            self.as_views and len(self.views_) > 1 and len(whole) < len(self.columns_)
        )
        refused = missing - whole if least else missing
        if refused:
            listed = [c for c in self.columns_ if c in refused]
            raise TableError(
                f"the table lacks columns that the model needs: {_listed(listed)}."
            )
        if not missing:
            return X
        return X.reindex(
            columns=[*X.columns, *(c for c in self.columns_ if c in missing)]
        )

    def transform_table(self, X: Any) -> Any:
        """Return the views of a table, or their numbers side by side."""
        X = self.with_columns(X)
        pd = _pandas()
        absent = absent_rows(X, self.views_) if self.as_views else {}
        parts: dict[str, Any] = {}
        for name, columns in self.views_.items():
            known = [self.columns_[c] for c in columns]
            if known[0].kind == SEQUENCE:
                parts[name] = _sequences(X[known[0].name], len(self.views_) > 1)
                continue
            names = [n for column in known for n in column.names]
            numbers = np.hstack([column.numbers(X[column.name]) for column in known])
            if name in absent:
                numbers[absent[name]] = np.nan
            parts[name] = pd.DataFrame(numbers, columns=names)
        if self.as_views:
            for name in self._beside():
                parts[name] = self._covariate(X[name], self.columns_[name])
            return MultiView(parts)
        numbers = [p.to_numpy() for p in parts.values() if p.ndim == 2]
        numbers += [self.columns_[name].numbers(X[name]) for name in self._beside()]
        return np.hstack(numbers)

    def _covariate(self, values: Any, column: Column) -> Any:
        """Return a covariate as a view of its own, with nothing filled in."""
        if values.isna().any():
            raise TableError(
                f"covariate {column.name!r} is missing in {int(values.isna().sum())} "
                f"of {len(values)} rows; fill it in, or leave these rows out."
            )
        if column.kind == CATEGORY:
            return np.array(_words(values), dtype=object)
        return _pandas().DataFrame({column.name: column.numbers(values)[:, 0]})

    def new_categories(self, X: Any) -> dict[str, list[str]]:
        """Return the categories of a table that training did not have, by column."""
        check_is_fitted(self)
        found = {}
        for name, column in self.columns_.items():
            if column.kind == CATEGORY and name in X.columns:
                new = sorted(set(_words(X[name].dropna())) - set(column.categories))
                if new:
                    found[name] = new
        return found

    def predict(self, X: Any, **options: Any) -> Any:
        """Return what the estimator predicts for the rows of a table.

        Parameters
        ----------
        X : DataFrame
        **options
            Further arguments of the estimator's ``predict``, such as ``return_std``.
        """
        check_is_fitted(self)
        return self.estimator_.predict(self.transform_table(X), **options)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the estimator."""
        check_is_fitted(self)
        return self.estimator_.decision_function(self.transform_table(X))

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the estimator."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(self.transform_table(X))

    def score(self, X: Any, y: Any) -> float:
        """Return the estimator's score: accuracy, or R² for numbers."""
        check_is_fitted(self)
        return float(self.estimator_.score(self.transform_table(X), y))

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_"):
            fitted = vars(self).get("estimator_")
            if fitted is not None:
                return getattr(fitted, name)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.target_tags = inner.target_tags
        return tags


def _sequences(values: Any, may_lack: bool) -> NDArray[Any]:
    """Return strings, None for rows without one where these are allowed."""
    listed = [None if m else v for v, m in _with_holes(values)]
    strange = [v for v in listed if not isinstance(v, str)]
    bad = [v for v in strange if v is not None or not may_lack]
    if bad:
        raise TableError(
            f"column {values.name!r} must contain sequences; {bad[0]!r} is not one."
        )
    return np.array(listed, dtype=object)


__all__ = [
    "Column",
    "Layout",
    "TableError",
    "TableModel",
    "absent_rows",
    "absent_words",
    "filled_in",
    "find_layout",
    "is_gram_file",
    "read_grams",
    "read_table",
    "read_tables",
    "subject_columns",
    "subject_words",
]
