"""Covariates: columns that enter linearly and unpenalised, like the intercept."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.blocks import Block, Blocks
from mklearn.data.containers import is_time, require_no_times
from mklearn.data.spelling import plural
from mklearn.data.views import MultiView

FloatArray = NDArray[np.float64]
Values = dict[str, NDArray[Any]]


# --- coding of columns ----------------------------------------------------------------


@dataclass(frozen=True)
class CodedColumn:
    """Coding of a column: as numbers, or as indicators of all categories but one.

    ``center`` and ``scale`` standardise numbers, so that collinearity does not depend
    on units; coefficients are reported in the units of the user.
    """

    name: str
    categories: tuple[Any, ...] | None = None
    center: float = 0.0
    scale: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coded columns."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={value}" for value in self.categories[1:])

    def coded(self, values: NDArray[Any], units: bool = False) -> FloatArray:
        """Return the coded columns of values, shape (n, k).

        With ``units``, numbers stay in the units of the user.
        """
        if self.categories is None:
            numbers = _numbers(values)
            if numbers is None or not np.isfinite(numbers).all():
                raise ValueError(
                    f"Covariate {self.name!r} was numeric in training, but now has "
                    "values that are missing, infinite or not numbers; fill in "
                    "missing values, or leave out these "
                    "samples."
                )
            if units:
                return numbers[:, None]
            return np.asarray((numbers - self.center) / self.scale)[:, None]
        _require_present(self.name, values)
        unknown = sorted({str(v) for v in values if v not in self.categories})
        if unknown:
            known = ", ".join(str(value) for value in self.categories)
            raise ValueError(
                f"Covariate {self.name!r} has the category {unknown[0]!r}, which does "
                f"not occur in the training samples; known categories are {known}."
            )
        return np.column_stack(
            [np.array([v == c for v in values], float) for c in self.categories[1:]]
        )


@dataclass(frozen=True)
class Covariates:
    """The design matrix of covariates, as determined on the training samples.

    Attributes
    ----------
    columns : tuple of CodedColumn
    kept : array of int
        Indices of the coded columns in the design; the others are constant or collinear
        with earlier ones.
    names : tuple of str
        Names of the columns that are kept.
    dropped : tuple of str
    """

    columns: tuple[CodedColumn, ...]
    kept: NDArray[np.intp] = field(repr=False)
    names: tuple[str, ...]
    dropped: tuple[str, ...]

    @classmethod
    def fit(cls, table: Any, n: int) -> Covariates:
        """Learn how to code the columns of a table.

        Parameters
        ----------
        table : array of shape (n, k) or (n,), DataFrame, mapping to columns, or None
            Numeric columns, or categories (strings, categorical columns).
        n : int
            The number of samples.
        """
        given = _columns(table, n)
        columns = tuple(_learn(name, values) for name, values in given)
        coded = np.zeros((n, 0))
        if columns:
            coded = np.column_stack(
                [c.coded(v) for c, (_, v) in zip(columns, given, strict=True)]
            )
        names = [name for column in columns for name in column.names]
        return cls.of(columns, _independent(coded), names, n)

    @classmethod
    def of(
        cls,
        columns: Iterable[CodedColumn],
        kept: NDArray[np.intp],
        names: Sequence[str],
        n: int,
    ) -> Covariates:
        """Return the coding of columns of which some are kept, for n samples.

        Parameters
        ----------
        columns : iterable of CodedColumn
        kept : array of int
        names : sequence of str
            Names of all coded columns.
        n : int
        """
        if len(kept) + 1 >= n:
            raise ValueError(
                f"There are {len(kept)} covariates that are not collinear for "
                f"{plural(n, 'sample')}: with the intercept they can explain any "
                "target. Use fewer covariates, or their principal components."
            )
        return cls(
            tuple(columns),
            kept,
            tuple(names[j] for j in kept),
            tuple(name for j, name in enumerate(names) if j not in kept),
        )

    def design(self, table: Any, n: int) -> FloatArray:
        """Return ones and the coded columns, shape (n, 1 + k).

        Parameters
        ----------
        table : as in :meth:`fit`, with the same columns
        n : int
        """
        return np.column_stack([np.ones(n), self._coded(table, n, units=False)])

    def values(self, table: Any, n: int) -> FloatArray:
        """Return the coded columns, numbers in the units of the user, shape (n, k).

        Parameters
        ----------
        table : as in :meth:`fit`, with the same columns
        n : int
        """
        return self._coded(table, n, units=True)

    def _coded(self, table: Any, n: int, units: bool) -> FloatArray:
        given = _columns(table, n)
        if [name for name, _ in given] != [column.name for column in self.columns]:
            raise ValueError(
                f"The covariates were {[c.name for c in self.columns]} in training, "
                f"got {[name for name, _ in given]}."
            )
        pairs = zip(self.columns, given, strict=True)
        coded = [column.coded(values, units) for column, (_, values) in pairs]
        return np.asarray(np.column_stack([np.zeros((n, 0)), *coded])[:, self.kept])

    def standardised(self, values: FloatArray) -> FloatArray:
        """Return the design of coded columns in the units of the user."""
        every = np.column_stack([np.ones(len(values)), values])
        return np.asarray(every @ self.to_units)

    def in_units(self, effects: FloatArray) -> FloatArray:
        """Return coefficients of ones and :meth:`values`, shape (1 + k, T).

        Parameters
        ----------
        effects : array of shape (1 + k, T)
            Coefficients of the columns of :meth:`design`.
        """
        return self.to_units @ effects

    @property
    def to_units(self) -> FloatArray:
        """Map from coefficients of the design to those of values, (1 + k, 1 + k)."""
        centers, scales = (
            np.array([x for c in self.columns for x in [number(c)] * len(c.names)])
            for number in (lambda c: c.center, lambda c: c.scale)
        )
        out = np.eye(1 + len(self.kept))
        if len(self.kept):
            out[1:, 1:] /= scales[self.kept]
            out[0, 1:] = -centers[self.kept] / scales[self.kept]
        return out

    def check(self) -> None:
        """Raise ValueError if the parts, read from a file, are inconsistent."""
        columns = self.columns
        sound = isinstance(columns, tuple) and all(
            isinstance(column, CodedColumn)
            and isinstance(column.name, str)
            and (column.categories is None or isinstance(column.categories, tuple))
            and np.isfinite([column.center, column.scale]).all()
            and column.scale > 0
            for column in columns
        )
        kept = np.asarray(self.kept)
        width = sum(len(column.names) for column in columns) if sound else 0
        sound = sound and kept.ndim == 1 and kept.dtype.kind == "i"
        sound = sound and bool(((kept >= 0) & (kept < width)).all())
        if not sound or len(self.names) != len(kept):
            raise ValueError("the covariates are inconsistent")

    def example(self, n: int) -> FloatArray:
        """Return values of ``n`` samples, shape (n, k): means, and first categories."""
        one = [
            np.full(len(c.names), c.center if c.categories is None else 0.0)
            for c in self.columns
        ]
        row = np.concatenate([np.zeros(0), *one])[self.kept]
        return np.tile(row, (n, 1))


def _columns(table: Any, n: int) -> list[tuple[str, NDArray[Any]]]:
    """Return the names and values of the columns of a table."""
    if table is None:
        return []
    frame_columns = getattr(table, "columns", None)
    if isinstance(table, Mapping):
        found = [(str(name), np.asarray(values)) for name, values in table.items()]
    elif frame_columns is not None:
        found = [(str(c), _values(table[c])) for c in frame_columns]
    else:
        array = np.asarray(table)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise ValueError(
                "Covariates must be a table of shape (n_samples, k), got "
                f"{array.shape}."
            )
        found = [(f"covariate {j}", array[:, j]) for j in range(array.shape[1])]
    for name, values in found:
        if len(values) != n:
            raise ValueError(
                f"Covariate {name!r} has {len(values)} values for "
                f"{plural(n, 'sample')}."
            )
    return found


def _values(column: Any) -> NDArray[Any]:
    """Return a column of a DataFrame; categories, whatever they are, as text."""
    values = np.asarray(column, dtype=object)
    if str(getattr(column, "dtype", "")) == "category":
        missing = [value is None or value != value for value in values]
        pairs = zip(values, missing, strict=True)
        values = np.array([None if gone else str(v) for v, gone in pairs], object)
    return values


def _learn(name: str, values: NDArray[Any]) -> CodedColumn:
    numbers = _numbers(values)
    if numbers is None:
        _require_present(name, values)
        return CodedColumn(name, tuple(sorted(set(values.tolist()), key=str)))
    if not np.isfinite(numbers).all():
        rows = np.flatnonzero(~np.isfinite(numbers))
        raise ValueError(
            f"Covariate {name!r} is missing or infinite for "
            f"{plural(len(rows), 'sample')}, first in row {rows[0]}; fill in the "
            "missing values, or leave out these samples."
        )
    center = float(numbers.mean())
    spread = float(numbers.std())
    constant = spread <= 1e-12 * max(abs(center), float(np.abs(numbers).max()))
    return CodedColumn(name, None, center, 1.0 if constant else spread)


def _numbers(values: NDArray[Any]) -> FloatArray | None:
    """Return values as numbers; None if they are categories."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if any(isinstance(value, str) for value in values):
        return None
    try:
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _require_present(name: str, values: NDArray[Any]) -> None:
    missing = [i for i, v in enumerate(values) if v is None or v != v]
    if missing:
        raise ValueError(
            f"Covariate {name!r} is missing for {plural(len(missing), 'sample')}, "
            f"first in row {missing[0]}; fill in the missing values, or leave out "
            "these samples."
        )


def _independent(coded: FloatArray) -> NDArray[np.intp]:
    """Return the columns that are linearly independent of ones and earlier columns."""
    n, kept = len(coded), []
    basis = np.full((n, 1), n**-0.5)
    for j in range(coded.shape[1]):
        column = coded[:, j]
        left = column - basis @ (basis.T @ column)
        left -= basis @ (basis.T @ left)  # remove what rounding left
        size = float(np.linalg.norm(left))
        if size > 1e-9 * max(float(np.linalg.norm(column)), 1.0):
            basis = np.column_stack([basis, left / size])
            kept.append(j)
    return np.asarray(kept, dtype=np.intp)


# --- selection of columns -------------------------------------------------------------


class Place(NamedTuple):
    """A column of a table or of a view; ``column`` is None for a whole view."""

    name: str
    view: str | None
    column: int | None


@dataclass(frozen=True)
class Fixed:
    """Covariates of a model: their positions in X, and their coding.

    Attributes
    ----------
    places : tuple of Place
    coding : Covariates
    """

    places: tuple[Place, ...]
    coding: Covariates

    def prepared(self, X: MultiView, table: Values | None) -> MultiView:
        """Return samples with coded covariates, which are hidden from kernels.

        Parameters
        ----------
        X : MultiView
            The ``numbers`` of a split.
        table : mapping of str to array
            The covariates of the same samples.
        """
        values = self.coding.values(table, len(X))
        return with_values(X, self.places, values)

    def check(self) -> None:
        """Raise ValueError if the parts, read from a file, are inconsistent."""
        for place in self.places:
            name, view, column = place
            sound = isinstance(name, str) and isinstance(view, (str, type(None)))
            sound = sound and (column is None or type(column) is int)
            if not sound or (view is None and column is None):
                raise ValueError("the positions of the covariates are invalid")
        self.coding.check()


class Split(NamedTuple):
    """Samples, split into the input of kernels and covariates.

    ``numbers`` is the table or the views for the kernels, with zeros in the columns of
    categorical covariates; ``table`` contains the covariates.
    """

    numbers: Any
    table: Values


def find_places(
    fixed: Any, X: Any, names: Sequence[str] | None = None
) -> tuple[Place, ...]:
    """Return the positions of the covariates in ``fixed``.

    Parameters
    ----------
    fixed : str, int, or a list of these
        Names or indices of columns of a table; names of views of a MultiView, or of
        columns that occur in only one of its views.
    X : table or MultiView
    names : sequence of str, optional
        Column names of a table that does not have them itself.
    """
    wanted = _listed(fixed)
    if isinstance(X, MultiView):
        found = tuple(place for one in wanted for place in _in_views(one, X))
    else:
        known = _names(X) if names is None else [str(name) for name in names]
        width = X.shape[1] if hasattr(X, "shape") else np.shape(X)[1]
        found = tuple(_in_table(one, known, width) for one in wanted)
        if len({place.column for place in found}) == width:
            raise ValueError(
                "fixed= names every column, which leaves none for the kernels; "
                "remove those that the kernels should use."
            )
    seen: set[tuple[str | None, int | None]] = set()
    for place in found:
        if place[1:] in seen:
            raise ValueError(f"fixed= names {place.name!r} twice.")
        seen.add(place[1:])
    if isinstance(X, MultiView) and set(X.names) <= _whole_views(found, X):
        raise ValueError(
            "fixed= names all views, which leaves none for the kernels; remove those "
            "that the kernels should use."
        )
    return found


def find_columns(fixed: Any, names: Sequence[str]) -> tuple[Place, ...]:
    """Return the selected columns of a table that contains only covariates.

    Parameters
    ----------
    fixed : str, int, or a list of these
        Names or indices of columns.
    names : sequence of str
    """
    known = list(names)
    found = tuple(_in_table(one, known, len(known)) for one in _listed(fixed))
    for k, place in enumerate(found):
        if place in found[:k]:
            raise ValueError(f"fixed= names {place.name!r} twice.")
    return found


def as_values(table: Any, n: int) -> Values:
    """Return the columns of a table of covariates by name.

    Parameters
    ----------
    table : array of shape (n, k) or (n,), DataFrame or mapping to columns
    n : int
        The number of samples.
    """
    return dict(_columns(table, n))


def _listed(fixed: Any) -> list[Any]:
    if isinstance(fixed, (str, int, np.integer)) and not isinstance(fixed, bool):
        return [fixed]
    if isinstance(fixed, slice) or not isinstance(fixed, (Sequence, np.ndarray)):
        raise ValueError(
            "fixed must be None, or names or indices of columns (or names of views of "
            f"a MultiView), got {fixed!r}."
        )
    return list(fixed)


def _names(X: Any) -> list[str] | None:
    """Return the names of the columns of a table, None if it has none."""
    columns = getattr(X, "columns", None)
    return None if columns is None else [str(c) for c in columns]


def _in_table(wanted: Any, names: list[str] | None, width: int) -> Place:
    """Return the place of one column of a table."""
    if isinstance(wanted, str):
        if names is None:
            raise ValueError(
                f"fixed= names the column {wanted!r}, but X has no column names; give "
                "a DataFrame, or column indices."
            )
        if wanted not in names:
            raise ValueError(_unknown(wanted, names, "column"))
        if names.count(wanted) > 1:
            raise ValueError(
                f"X has {plural(names.count(wanted), 'column')} called {wanted!r}; "
                "give the index of one of them."
            )
        return Place(wanted, None, names.index(wanted))
    if isinstance(wanted, (bool, np.bool_)) or not isinstance(
        wanted, (int, np.integer)
    ):
        raise ValueError(
            f"fixed= takes names or indices of columns, but got {wanted!r} among them."
        )
    if not -width <= wanted < width:
        raise ValueError(
            f"fixed= names column {wanted}, but X has {plural(width, 'column')}, "
            "numbered from 0."
        )
    number = int(wanted) % width
    return Place(f"column {number}" if names is None else names[number], None, number)


def _in_views(wanted: Any, X: MultiView) -> list[Place]:
    """Return the positions of a view, or of a column of exactly one view."""
    if not isinstance(wanted, str):
        raise ValueError(
            f"fixed= names views of a MultiView, or columns of them by name, got "
            f"{wanted!r}."
        )
    if wanted in X:
        if X.is_text(wanted) or X[wanted].shape[1] == 1:
            return [Place(wanted, wanted, None if X.is_text(wanted) else 0)]
        names = X.column_names(wanted)
        return [
            Place(f"{wanted}:{j if names is None else names[j]}", wanted, j)
            for j in range(X[wanted].shape[1])
        ]
    having = [view for view in X if wanted in (X.column_names(view) or ())]
    if len(having) == 1:
        (view,) = having
        return [Place(wanted, view, int(X.column_index(view, wanted)[0]))]
    if having:
        raise ValueError(
            f"fixed= names the column {wanted!r}, which is in the views {having}; make "
            "it a separate view."
        )
    columns = (name for view in X for name in X.column_names(view) or ())
    known = list(dict.fromkeys([*X.names, *columns]))
    raise ValueError(_unknown(wanted, known, "view or column"))


def _unknown(wanted: str, known: Sequence[str], kind: str) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
    hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    shown = ", ".join(map(repr, list(known)[:20]))
    more = ", ..." if len(known) > 20 else ""
    return (
        f"fixed= names {wanted!r}, but X has no such {kind}. {hint}X has {shown}{more}."
    )


def _whole_views(places: Iterable[Place], X: MultiView) -> set[str]:
    """Return the views that are covariates as a whole."""
    gone = set()
    for view in {place.view for place in places if place.view is not None}:
        columns = {place.column for place in places if place.view == view}
        if view in X and (X.is_text(view) or len(columns) == X[view].shape[1]):
            gone.add(view)
    return gone


def split(X: Any, places: Sequence[Place]) -> Split:
    """Split covariates from samples.

    Parameters
    ----------
    X : table or MultiView
    places : sequence of Place
        The result of :func:`find_places` for samples of this form.
    """
    if isinstance(X, MultiView):
        return Split(X, {place.name: _of_view(X, place) for place in places})
    columns = [place.column for place in places]
    if sparse.issparse(X):
        rows = X.tocsr()
        table = {p.name: rows[:, [p.column]].toarray()[:, 0] for p in places}
        return Split(rows, table)
    frame = hasattr(X, "columns") and hasattr(X, "to_numpy")
    if frame:
        named = list(X.columns)
        whole = hasattr(X, "iloc")
        table = {
            p.name: _values(X.iloc[:, p.column] if whole else X[named[p.column or 0]])
            for p in places
        }
        array = X.to_numpy()
    else:
        array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        table = {p.name: array[:, p.column] for p in places}
    numeric = array.dtype.kind in "biuf"
    if numeric and np.isfinite(array[:, columns].astype(np.float64)).all():
        return Split(array, table)
    array = array.astype(np.float64 if numeric else object)
    for column, values in zip(columns, table.values(), strict=True):
        numbers = _numbers(values)
        # missing values are reported when the column is coded
        array[:, column] = 0.0 if numbers is None else np.nan_to_num(numbers)
    return Split(array, table)


def columns_of_no_numbers(X: Any) -> tuple[Place, ...]:
    """Return the columns of a DataFrame that are not finite numbers.

    Parameters
    ----------
    X : table
        Tables other than DataFrames have no such columns.
    """
    if not (hasattr(X, "columns") and hasattr(X, "to_numpy")):
        return ()
    kinds = [getattr(dtype, "kind", "O") for dtype in getattr(X, "dtypes", "O")]
    timed = [is_time(str(dtype)) for dtype in getattr(X, "dtypes", "O")]
    if all(kind in "biu" for kind in kinds):
        return ()
    if all(kind in "biuf" for kind in kinds):
        array = X.to_numpy()
        if array.dtype.kind in "biuf" and np.isfinite(array).all():
            return ()
    found = []
    for j, column in enumerate(X.columns):
        values = _values(X.iloc[:, j] if hasattr(X, "iloc") else X[column])
        numbers = _as_floats(values)
        if timed[j] or numbers is None or not np.isfinite(numbers).all():
            found.append(Place(str(column), None, j))
    return tuple(found)


def require_numbers(X: Any, places: Iterable[Place]) -> None:
    """Raise ValueError if any of some columns of a DataFrame contains text or times.

    Parameters
    ----------
    X : DataFrame
    places : iterable of Place
        Columns that kernels use.
    """
    for place in places:
        column = (
            X.iloc[:, place.column]
            if hasattr(X, "iloc")
            else X[list(X.columns)[place.column or 0]]
        )
        require_no_times(column)
        values = _values(column)
        texts = [v for v in values.tolist() if isinstance(v, str) and not _is_float(v)]
        if texts:
            raise ValueError(
                f"Column {place.name!r} contains text ({texts[0]!r}), but kernels need "
                "numbers. Encode it as numbers, name it in fixed= as a covariate, or "
                "give the kernels other columns with columns=."
            )


def _as_floats(values: NDArray[Any]) -> FloatArray | None:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _is_float(text: str) -> bool:
    return _as_floats(np.array([text], dtype=object)) is not None


def _of_view(X: MultiView, place: Place) -> NDArray[Any]:
    view = place.view
    if view not in X:
        raise ValueError(f"The new samples lack view {view!r}, which is a covariate.")
    data = X[view]
    if place.column is None or data.ndim == 1:
        return np.asarray(data, dtype=object)
    values = data[:, [place.column]]
    return np.asarray(values.toarray() if sparse.issparse(values) else values)[:, 0]


def with_values(X: MultiView, places: Sequence[Place], values: FloatArray) -> MultiView:
    """Return samples with coded covariates, which are hidden from kernels."""
    gone = _whole_views(places, X) if places and places[0].view is not None else set()
    hidden: dict[str, list[int]] = {}
    for place in places:
        view = X.names[0] if place.view is None else place.view
        if view not in gone and place.column is not None:
            hidden.setdefault(view, []).append(place.column)
    return X.with_covariates(
        values, {view: np.array(part) for view, part in hidden.items()}, gone
    )


# --- rows in blocks -------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """Summary of the columns of covariates, over rows with nonzero weight."""

    count: int
    numbers: dict[str, FloatArray]  # count, mean, sum of squares, largest
    values: dict[str, frozenset[Any]]

    def __add__(self, other: _Seen) -> _Seen:
        if not (self.count and other.count):
            return self if self.count else other
        if self.numbers.keys() != other.numbers.keys():
            name = (self.numbers.keys() ^ other.numbers.keys()).pop()
            raise ValueError(
                f"Covariate {name!r} is numeric in some blocks and categorical in "
                "others; make it the same in all."
            )
        count = self.count + other.count
        numbers = {}
        for name, (a, aa, top) in self.numbers.items():
            b, bb, most = other.numbers[name]
            between = self.count * other.count / count * (b - a) ** 2
            mean = a + (b - a) * other.count / count
            numbers[name] = np.array([mean, aa + bb + between, max(top, most)])
        values = {name: self.values[name] | other.values[name] for name in self.values}
        return _Seen(count, numbers, values)


def _see(block: Block, places: Sequence[Place]) -> _Seen:
    """Return the summary of the covariates of a block."""
    kept = np.flatnonzero(block.weight > 0)
    table = take_rows(split(block.X, places).table, kept)
    check_present(table, np.arange(len(kept)))
    numbers: dict[str, FloatArray] = {}
    values: dict[str, frozenset[Any]] = {}
    for name, column in table.items():
        found = _numbers(column)
        if found is None:
            values[name] = frozenset(column.tolist())
        elif len(kept):
            mean, top = float(found.mean()), float(np.abs(found).max())
            numbers[name] = np.array([mean, float(np.sum((found - mean) ** 2)), top])
    return _Seen(len(kept), numbers, values)


@dataclass(frozen=True)
class _Scatter:
    """Count, means and scatter of coded columns."""

    count: int
    mean: FloatArray
    scatter: FloatArray

    def __add__(self, other: _Scatter) -> _Scatter:
        if not (self.count and other.count):
            return self if self.count else other
        count = self.count + other.count
        apart = other.mean - self.mean
        between = self.count * other.count / count * np.outer(apart, apart)
        mean = self.mean + apart * (other.count / count)
        return _Scatter(count, mean, self.scatter + other.scatter + between)


def _spread(
    block: Block, places: Sequence[Place], columns: Sequence[CodedColumn]
) -> _Scatter:
    kept = np.flatnonzero(block.weight > 0)
    table = take_rows(split(block.X, places).table, kept)
    pairs = zip(columns, table.values(), strict=True)
    coded = np.column_stack([column.coded(values) for column, values in pairs])
    width = sum(len(column.names) for column in columns)
    if not len(kept):
        return _Scatter(0, np.zeros(width), np.zeros((width, width)))
    mean = coded.mean(axis=0)
    return _Scatter(len(kept), mean, (coded - mean).T @ (coded - mean))


def code_blocks(blocks: Blocks, places: Sequence[Place], n: int) -> Covariates:
    """Learn how to code covariates of rows in blocks, in two passes.

    Collinearity is determined from the scatter matrix, which has only half of the
    digits.

    Parameters
    ----------
    blocks : Blocks
    places : sequence of Place
    n : int
        The number of rows.
    """
    seen = blocks.reduce(partial(_see, places=places))
    columns = []
    for place in places:
        name = place.name
        if name in seen.values:
            ordered = tuple(sorted(seen.values[name], key=str))
            columns.append(CodedColumn(name, ordered))
            continue
        mean, squares, top = seen.numbers[name].tolist()
        spread = float(np.sqrt(squares / seen.count))
        constant = spread <= 1e-12 * max(abs(mean), top)
        columns.append(CodedColumn(name, None, mean, 1.0 if constant else spread))
    found = blocks.reduce(partial(_spread, places=places, columns=tuple(columns)))
    # pivots of a Cholesky factorisation, column by column
    S, kept = found.scatter, list[int]()
    for j in range(len(S)):
        part, left = S[np.ix_(kept, kept)], S[j, j]
        if kept:
            left = left - S[j, kept] @ np.linalg.solve(part, S[kept, j])
        if left > 1e-11 * max(S[j, j], float(found.count)):
            kept.append(j)
    names = [name for column in columns for name in column.names]
    return Covariates.of(columns, np.array(kept, dtype=np.intp), names, n)


def check_present(table: Values, rows: NDArray[np.intp]) -> None:
    """Raise ValueError, naming a row of X, if any of ``rows`` lacks a covariate."""
    for name, values in table.items():
        numbers = _numbers(values)
        if numbers is None:
            gone = np.array([v is None or v != v for v in values], dtype=bool)
        else:
            gone = ~np.isfinite(numbers)
        missing = rows[gone[rows]]
        if len(missing):
            raise ValueError(
                f"Covariate {name!r} is missing or infinite for {len(missing)} of "
                f"{plural(len(rows), 'sample')}, first in row {missing[0]}; fill in "
                "the missing values, or leave out these samples."
            )


def sort_keys(table: Values) -> FloatArray:
    """Return numbers that are equal if and only if covariates are, shape (n, k)."""
    parts = []
    for values in table.values():
        numbers = _numbers(values)
        if numbers is None:
            texts = np.array([str(value) for value in values])
            numbers = np.unique(texts, return_inverse=True)[1].astype(np.float64)
        parts.append(numbers)
    return np.column_stack(parts)


def take_rows(table: Values, rows: Any) -> Values:
    """Return some rows of the covariates."""
    return {name: values[rows] for name, values in table.items()}
