"""A user's table: read, understood column by column, and turned into views.

Numbers are standardised, categories become indicator columns, missing values are filled
in; all of it is learned from training samples only, by :class:`TableModel`, and stays
with the model. Where there are several views, a row that is empty in all columns of one
lacks that view, and nothing is filled in there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

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
            f"{path} is no table that is known by its name: use .csv, .tsv or "
            ".parquet, or .npz and .npy for Gram matrices."
        )
    if not path.is_file():
        raise TableError(f"there is no file {path}.")
    try:
        if kind in PARQUET:
            frame = _unindexed(pd.read_parquet(path))
        else:
            frame = pd.read_csv(path, sep=SEPARATORS[kind], encoding="utf-8-sig")
            if kind == ".csv" and frame.shape[1] == 1 and ";" in str(frame.columns[0]):
                frame = pd.read_csv(path, sep=";", encoding="utf-8-sig")
    except ImportError as error:
        raise TableError(
            f"{path} is a parquet file; reading it needs one more package: "
            "pip install mklearn[parquet]."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise TableError(f"{path} is empty.") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not text in UTF-8; save it as UTF-8.") from error
    except (OSError, ValueError, pd.errors.ParserError) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{path} cannot be read: {reason}.") from error
    frame.columns = [str(c).strip() for c in frame.columns]
    repeated = sorted({c for c in frame.columns if list(frame.columns).count(c) > 1})
    if repeated:
        raise TableError(f"{path} has more than one column called {repeated[0]!r}.")
    if not isinstance(frame.index, pd.RangeIndex):
        # more values than names: pandas takes the first columns as names of rows
        raise TableError(f"{path} has rows with more values than there are columns.")
    if len(frame) == 0:
        raise TableError(f"{path} has a header and no rows.")
    return frame


def _unindexed(frame: Any) -> Any:
    """Return the table with row names as a column where these have a name."""
    named = any(name is not None for name in frame.index.names)
    return frame.reset_index(drop=not named)


def read_grams(
    path: str | os.PathLike[str], target: str | None = None
) -> tuple[KernelBank, NDArray[Any] | None]:
    """Return the Gram matrices of a file, and the labels called ``target`` if any.

    An npy file holds one array of shape (n_rows, n_cols, n_kernels), kernels last. An
    npz file holds such an array, with ``names`` for its kernels if they have some, or
    one matrix for each kernel, under its name. Labels are a 1-D array in the npz file,
    or in another file: npy, or text with one label in each line.
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
            given = None if names is None else [str(n) for n in names]
            bank = KernelBank.from_grams(stack, given)
        elif matrices and not stacks:
            bank = KernelBank.from_grams(list(matrices.values()), list(matrices))
        else:
            shapes = {k: a.shape for k, a in arrays.items()}
            raise TableError(
                f"{path} must hold one array (n, n, n_kernels), kernels last, or one "
                f"matrix for each kernel; it holds {shapes}."
            )
    except TableError:
        raise
    except ValueError as error:
        raise TableError(f"{path}: {error}") from error
    if labels is not None and labels.shape != (len(bank),):
        raise TableError(
            f"the labels {target!r} have shape {labels.shape}; the Gram matrices are "
            f"of {len(bank)} samples, and need as many labels."
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
        raise TableError("tables need one more package: pip install pandas.") from error
    return pd


# --- columns --------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Which columns are used, as what, in which views; ``said`` tells why."""

    kinds: dict[str, str]
    views: dict[str, tuple[str, ...]]
    said: list[str] = field(default_factory=list)


def find_layout(
    frame: Any,
    target: str | None = None,
    views: Mapping[str, Sequence[str]] | None = None,
    sequences: Sequence[str] = (),
) -> Layout:
    """Look at the types of the columns and say how each is used.

    Parameters
    ----------
    frame : DataFrame
    target : str, optional
        The column that is to be predicted, and is no feature.
    views : mapping of str to column names, optional
        One view ``"X"`` of all columns by default.
    sequences : sequence of str
        Columns of strings, such as DNA, that become views of their own.
    """
    named = [c for columns in (views or {}).values() for c in columns]
    for column in [*named, *sequences, *([] if target is None else [target])]:
        _require_column(frame, column)
    if target is not None and target in [*named, *sequences]:
        raise TableError(f"{target!r} is the target; it cannot be in a view as well.")
    kinds: dict[str, str] = {}
    said: list[str] = []
    chosen = set(named) | set(sequences) if views else set(frame.columns)
    for column in frame.columns:
        if column == target or column not in chosen:
            continue
        kind, why = _kind(frame[column], column in sequences)
        if kind is not None:
            kinds[column] = kind
        elif column in [*named, *sequences]:
            raise TableError(f"column {column!r} cannot be used: {why}.")
        else:
            said.append(f"Column {column!r} is left out: {why}.")
    if not kinds:
        raise TableError("no column is left to learn from, besides the target.")
    if views:
        left = [c for c in frame.columns if c not in chosen and c != target]
        if left:
            said.append(f"In no view and left out: {_listed(left)}.")
        groups = {name: tuple(columns) for name, columns in views.items()}
        for name, columns in groups.items():
            if any(kinds[c] == SEQUENCE for c in columns) and len(columns) > 1:
                raise TableError(
                    f"view {name!r} holds sequences and other columns; sequences are a "
                    "view of their own."
                )
    else:
        rest = tuple(c for c in kinds if kinds[c] != SEQUENCE)
        groups = {"X": rest} if rest else {}
    placed = {c for columns in groups.values() for c in columns}
    groups.update({c: (c,) for c in kinds if kinds[c] == SEQUENCE and c not in placed})
    if len(groups) == 1:
        for column in kinds:
            missing = int(frame[column].isna().sum())
            if kinds[column] == SEQUENCE and missing:
                raise TableError(
                    f"column {column!r} cannot be used: {missing} of its sequences are "
                    "missing, and there is no other view."
                )
    said += _told(frame, kinds, groups)
    return Layout(kinds, groups, said)


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
    shown = _listed([f"{name} ({int(m.sum())} rows)" for name, m in masks.items()])
    return [
        f"Absent views, all columns empty: {shown}. These rows count as the view's "
        "average; nothing is filled in."
    ]


def _require_column(frame: Any, column: str) -> None:
    if column not in frame.columns:
        raise TableError(
            f"there is no column {column!r}; the table has {_listed(frame.columns)}."
        )


def _kind(values: Any, sequence: bool) -> tuple[str | None, str]:
    """Return what a column is, or None and why it cannot be used."""
    present = values.dropna()
    if len(present) == 0:
        return None, "all its values are missing"
    if sequence:
        if not all(isinstance(v, str) for v in present):
            return None, "it does not hold strings"
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
        return None, f"its {count} different texts seem to name the samples"
    return CATEGORY, ""


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
            f"Missing values, {sum(holes.values())} in all, are filled in by the "
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
        In place of missing values: the median, or the most frequent category.
    mean, scale : float
        Numbers are shifted by the one and multiplied by the other.
    categories : tuple of str
        An indicator column for each; a new category is in none of them.
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
                f"column {self.name!r} held numbers in training and now holds others: "
                f"{error}."
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
    """An estimator that takes a DataFrame as the user has it.

    Missing values are filled in, numbers standardised and categories made indicator
    columns, with what the training samples say; then the estimator gets a
    :class:`MultiView`. Fitted attributes of the estimator can be asked for here.

    Parameters
    ----------
    estimator : estimator
    kinds : mapping of str to {"number", "category", "sequence"}, optional
        What the columns are; found by :func:`find_layout` by default.
    views : mapping of str to sequence of str, optional
        The columns of each view.
    standardize : bool
        Whether numbers get mean 0 and variance 1; not for histograms and counts.
    as_views : bool
        Whether the estimator takes a MultiView, or all numbers in one array.

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
    ) -> None:
        self.estimator = estimator
        self.kinds = kinds
        self.views = views
        self.standardize = standardize
        self.as_views = as_views

    def fit(self, X: Any, y: Any) -> TableModel:
        """Learn the columns, then fit the estimator on them."""
        layout = None
        if self.kinds is None or self.views is None:
            layout = find_layout(X, None, self.views)
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
        self.estimator_ = clone(self.estimator).fit(self.transform_table(X), y)
        return self

    def check_columns(self) -> None:
        """Raise ValueError if columns and views do not fit together."""
        wanted = {c for columns in self.views_.values() for c in columns}
        known = all(isinstance(c, Column) for c in self.columns_.values())
        if not wanted or not known or wanted != set(self.columns_):
            raise ValueError("the columns do not fit the views")
        for column in self.columns_.values():
            sound = np.isfinite(column.mean) and np.isfinite(column.scale)
            if column.kind not in (NUMBER, CATEGORY, SEQUENCE) or not sound:
                raise ValueError(f"column {column.name!r} has no kind, mean or scale")

    def require_columns(self, X: Any) -> None:
        """Raise TableError if a table lacks columns that the model needs."""
        missing = [c for c in self.columns_ if c not in X.columns]
        if missing:
            raise TableError(
                f"the table lacks columns that the model needs: {_listed(missing)}."
            )

    def transform_table(self, X: Any) -> Any:
        """Return the views of a table, or their numbers side by side."""
        self.require_columns(X)
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
            return MultiView(parts)
        return np.hstack([p.to_numpy() for p in parts.values() if p.ndim == 2])

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

    def predict(self, X: Any) -> NDArray[Any]:
        """Return what the estimator predicts for the rows of a table."""
        check_is_fitted(self)
        return self.estimator_.predict(self.transform_table(X))

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
        raise TableError(f"column {values.name!r} holds sequences; {bad[0]!r} is none.")
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
]
