"""Columns of tables: what they hold, which view they belong to, how they are coded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.spelling import did_you_mean, plural
from mklearn.data.subjects import MANY
from mklearn.table.errors import TableError, enumerated

FloatArray = NDArray[np.float64]

NUMBER, CATEGORY, SEQUENCE = "number", "category", "sequence"


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
        require_column(frame, column)
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
            said.append(f"In no view and left out: {enumerated(left)}.")
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
            f"covariate {name!r} is missing in {missing} of "
            f"{plural(len(values), 'row')}; fill it in, or leave these rows out."
        )
    kind, why = _kind(values, sequence=False)
    if kind is None:
        raise TableError(f"column {name!r} cannot be a covariate: {why}.")
    return kind


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
    rows = [f"{name} ({plural(n, 'row')})" for name, n in counts.items()]
    shown = enumerated(rows)
    return [
        f"Missing views (all columns empty): {shown}. These rows are assigned the "
        "view's average; nothing is filled in."
    ]


def require_column(frame: Any, column: str) -> None:
    """Raise TableError if a table has no such column."""
    if column not in frame.columns:
        hint = did_you_mean(column, frame.columns).strip()
        raise TableError(
            f"there is no column {column!r}; the table has "
            f"{enumerated(frame.columns)}. {hint}".rstrip()
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
                    f"no column matches {text!r}; the table has {enumerated(columns)}."
                )
            found += some
        else:
            for name in (first, last) if sign else (text,):
                require_column(frame, name)
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
    count = len(set(as_words(present)))
    if count == 1 and len(present) == len(values):
        return None, "it is constant"
    if count > MANY and count > len(present) / 2:
        return None, f"its {count} different texts seem to be names or dates"
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


def as_words(values: Any) -> list[str]:
    """Return values as text."""
    return [str(v) for v in values]


def _told(
    frame: Any, kinds: Mapping[str, str], views: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return what happens to categories and missing values, in words."""
    said = []
    categories = [c for c, kind in kinds.items() if kind == CATEGORY]
    if categories:
        said.append(f"Categories, one column for each: {enumerated(categories)}.")
    said += absent_words(absent_rows(frame, views))
    holes = filled_in(frame, views)
    if holes:
        shown = enumerated([f"{c} ({count})" for c, count in holes.items()])
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
        holes = frame[column].isna().to_numpy() & ~lacking(frame, column, views, absent)
        if holes.any():
            found[column] = int(holes.sum())
    return found


def lacking(
    frame: Any,
    column: str,
    views: Mapping[str, Sequence[str]],
    absent: Mapping[str, NDArray[np.bool_]],
) -> NDArray[np.bool_]:
    """Return the rows in which all views that hold a column are absent."""
    none = np.zeros(len(frame), dtype=bool)
    masks = [absent.get(v, none) for v, columns in views.items() if column in columns]
    return np.logical_and.reduce(masks)


@dataclass(frozen=True)
class Column:
    """What is learned about a column from the training samples.

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
            words, counts = np.unique(as_words(present), return_counts=True)
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
        """Raise ValueError unless this is a valid column of that name."""
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
            filled = [self.fill if m else str(v) for v, m in with_holes(values)]
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


def with_holes(values: Any) -> Any:
    """Return pairs of a value and whether it is missing."""
    return zip(values.tolist(), values.isna().tolist(), strict=True)
