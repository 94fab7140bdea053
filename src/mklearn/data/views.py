"""MultiView: several named descriptions of the same samples, sliced together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Columns = int | str | slice | Sequence[int] | Sequence[str] | None


class MultiView:
    """Named views of the same samples.

    A view is a 2-D array, a DataFrame, a sparse matrix, a 1-D numeric array (taken as
    one column) or a sequence of strings. Rows are sliced in all views at once, so
    scikit-learn's splitters, ``GridSearchCV`` and ``cross_val_score`` take a
    ``MultiView`` as they take an array. Kernels name the view they look at.

    A sample may lack a view: all its numbers there are NaN, or its string is None. A
    row with NaN beside numbers is an error, for it has to be imputed first.

    Parameters
    ----------
    views : mapping of str to view
        All views must have the same number of rows, in the same order.

    Attributes
    ----------
    names : tuple of str
    shape : tuple of int
        Number of samples, and number of columns in all views together (a view of
        strings counts as one).

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MultiView
    >>> X = MultiView({"expr": np.ones((3, 2)), "seq": ["ACGT", "ACCT", "TTTT"]})
    >>> X.shape
    (3, 3)
    >>> X[[0, 2]]["seq"].tolist()
    ['ACGT', 'TTTT']
    >>> holes = MultiView({"expr": [[1.0, 2.0], [np.nan, np.nan]], "seq": [None, "AC"]})
    >>> holes.absent("expr").tolist(), holes.absent("seq").tolist()
    ([False, True], [True, False])
    """

    _absent: dict[str, NDArray[np.bool_] | None]

    def __init__(self, views: Mapping[str, Any]) -> None:
        if not isinstance(views, Mapping) or not views:
            raise ValueError(
                "MultiView needs a non-empty mapping from view names to data, got "
                f"{type(views).__name__}; try MultiView({{'name': array, ...}})."
            )
        self._data: dict[str, Any] = {}
        self._columns: dict[str, tuple[str, ...] | None] = {}
        self._absent = {}
        for name, view in views.items():
            if not isinstance(name, str):
                # a number in [] would mean a sample
                raise ValueError(f"Views are named by strings, got {name!r}.")
            self._data[name], self._columns[name] = _as_view(view, name)
            self._absent[name] = _find_absent(self._data[name], name)
        sizes = {name: _n_rows(view) for name, view in self._data.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"All views need the same number of samples, got {sizes}; align the "
                "rows of the views first."
            )

    @classmethod
    def from_columns(cls, X: Any, views: Mapping[str, Columns]) -> MultiView:
        """Split one table into views by column numbers or names.

        Parameters
        ----------
        X : array, DataFrame or sparse matrix of shape (n_samples, n_features)
        views : mapping of str to columns
            Which columns belong to which view; a column may be in several.
        """
        table = cls._unchecked(X)
        names = table.column_names()
        parts = {}
        for name, columns in views.items():
            index = table.column_index(None, columns)
            known = None if names is None else tuple(names[i] for i in index)
            parts[name] = _Named(table["X"][:, index], known)
        return cls(parts)

    @classmethod
    def from_table(cls, X: Any, columns: Iterable[str] | None = None) -> MultiView:
        """Return one view ``"X"`` of a validated table, with column names if any."""
        names = None if columns is None else tuple(str(c) for c in columns)
        return cls._whole(X if names is None else _Named(X, names))

    @classmethod
    def wrap(cls, X: Any) -> MultiView:
        """Return ``X`` itself if it has views, else a single view ``"X"`` of it.

        What is no MultiView has no absent samples: a row of NaN is an error.
        """
        return X if isinstance(X, MultiView) else cls._whole(X)

    @classmethod
    def _whole(cls, X: Any) -> MultiView:
        """Return one view ``"X"``, of which no sample is absent."""
        table = cls._unchecked(X)
        if table.is_text("X"):
            _require_strings(table["X"], "X")
        else:
            _require_finite(_values(table["X"]), "X")
        return table

    @classmethod
    def _unchecked(cls, X: Any) -> MultiView:
        table = object.__new__(cls)
        data, columns = _as_view(X, "X")
        table._data, table._columns = {"X": data}, {"X": columns}
        table._absent = {"X": None}
        return table

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the views."""
        return tuple(self._data)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of columns over all views."""
        views = list(self._data.values())
        return _n_rows(views[0]), sum(v.shape[1] if v.ndim == 2 else 1 for v in views)

    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __getitem__(self, key: Any) -> Any:
        """Return a view (by name) or the samples in ``key`` of all views."""
        if isinstance(key, str):
            return self._data[self.view_name(key)]
        if isinstance(key, tuple):  # scikit-learn asks for X[rows, ...]
            rest = [k for k in key[1:] if k is not Ellipsis]
            if not key or any(
                not isinstance(k, slice) or k != slice(None) for k in rest
            ):
                raise IndexError(
                    "A MultiView is sliced by samples only, X[rows]; kernels choose "
                    "columns and views."
                )
            key = key[0]
        if not isinstance(key, slice):
            key = np.atleast_1d(np.asarray(key))
            if key.size == 0:
                key = key.astype(np.intp)
        part = object.__new__(MultiView)
        part._data = {name: view[key] for name, view in self._data.items()}
        part._columns = self._columns
        part._absent = {k: _cut(mask, key) for k, mask in self._absent.items()}
        return part

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise TypeError(
            f"A MultiView is not an array: it has views {list(self.names)}; take one "
            "by X['name'], or pass the MultiView to an estimator of mklearn."
        )

    def __repr__(self) -> str:
        kinds = []
        for name, v in self._data.items():
            mask = self._absent[name]
            holes = "" if mask is None else f" ({np.count_nonzero(mask)} absent)"
            kinds.append(f"{name}: {'strings' if v.ndim == 1 else v.shape[1]}{holes}")
        return f"MultiView({len(self)} samples; {', '.join(kinds)})"

    def absent(self, name: str) -> NDArray[np.bool_]:
        """Return which samples lack a view, shape (n_samples,)."""
        mask = self._absent[self.view_name(name)]
        return np.zeros(len(self), dtype=bool) if mask is None else mask

    def has_absent(self, name: str) -> bool:
        """Tell whether any sample lacks a view."""
        return self._absent[self.view_name(name)] is not None

    def is_text(self, name: str) -> bool:
        """Tell whether a view holds strings."""
        return bool(self._data[name].ndim == 1)

    def column_names(self, view: str | None = None) -> tuple[str, ...] | None:
        """Return the column names of a view, None where it has none."""
        return self._columns[self.view_name(view)]

    def view_name(self, view: str | None) -> str:
        """Return the view that a kernel means by ``view``; None is the only view."""
        if view is None:
            if len(self._data) == 1:
                return self.names[0]
            raise ValueError(
                f"The data have several views {list(self.names)} and the kernel does "
                "not say which; pass view=... to the kernel, or use per_view(kernel)."
            )
        if view not in self._data:
            raise ValueError(
                f"Unknown view {view!r}; the data have {list(self.names)}."
            )
        return view

    def column_index(self, view: str | None, columns: Columns) -> NDArray[np.intp]:
        """Return the numbers of ``columns`` (numbers, names or a slice) in a view."""
        name = self.view_name(view)
        data = self._data[name]
        if data.ndim == 1:
            raise ValueError(f"View {name!r} holds strings and has no columns.")
        n = data.shape[1]
        if columns is None:
            return np.arange(n)
        if isinstance(columns, slice):
            return np.arange(n)[columns]
        wanted: list[Any] = (
            [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)
        )
        if wanted and all(isinstance(column, (bool, np.bool_)) for column in wanted):
            if len(wanted) != n:
                raise ValueError(
                    f"A mask of columns needs one entry for each of the {n} columns of "
                    f"view {name!r}, got {len(wanted)}."
                )
            return np.flatnonzero(wanted)
        return np.array([self._find(name, column, n) for column in wanted], np.intp)

    def _find(self, name: str, column: Any, n: int) -> int:
        """Return the number of one column of a view."""
        names = self._columns[name]
        if isinstance(column, str):
            count = 0 if names is None else names.count(column)
            if names is None or count == 0:
                known = "no column names" if names is None else f"{list(names)[:20]}"
                raise ValueError(
                    f"Column {column!r} is not in view {name!r}, which has {known}."
                )
            if count > 1:
                raise ValueError(
                    f"View {name!r} has {count} columns called {column!r}; say which "
                    "by number."
                )
            return names.index(column)
        if isinstance(column, (bool, np.bool_)) or not isinstance(
            column, (int, np.integer)
        ):
            raise ValueError(
                f"A column is a number or a name, got {column!r} for view {name!r}."
            )
        if not -n <= column < n:
            raise ValueError(
                f"Column {column} is out of range: view {name!r} has {n} columns."
            )
        return int(column) % n


class _Named:
    """An array with column names, for building a MultiView."""

    def __init__(self, values: Any, names: tuple[str, ...] | None) -> None:
        self.values, self.names = values, names


def _n_rows(view: Any) -> int:
    return int(view.shape[0])


def _as_view(view: Any, name: str) -> tuple[Any, tuple[str, ...] | None]:
    """Return a view as float64 array, CSR matrix or object array, and column names."""
    columns = None
    if isinstance(view, _Named):
        view, columns = view.values, view.names
    elif hasattr(view, "columns") and hasattr(view, "to_numpy"):  # DataFrame
        columns = tuple(str(c) for c in view.columns)
        values = view.to_numpy()
        if len(columns) == 1 and _is_text(values.ravel()):
            return _as_text(values.ravel()), None
        if values.dtype == object:  # nullable columns become NaN, and are told of
            try:
                values = view.to_numpy(dtype=np.float64, na_value=np.nan)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"View {name!r} has columns that are not numbers ({error}); encode "
                    "them, or give a column of sequences as a view of its own."
                ) from error
        view = values
    array: Any
    if sparse.issparse(view):
        array = view.tocsr() if view.ndim == 2 else view.toarray()
    else:
        # numpy would make strings of numbers that stand beside strings
        listed = isinstance(view, (list, tuple)) and any(
            isinstance(entry, str) for entry in view
        )
        array = np.asarray(view, dtype=object if listed else None)
        if _is_text(array):
            return _as_text(array), None
    if array.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported (view {name!r}); give real and imaginary "
            "parts as columns."
        )
    try:
        if array.dtype.kind not in "biufO":
            raise TypeError(f"dtype {array.dtype}")
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"View {name!r} is neither numeric nor a sequence of strings ({error}); "
            "encode it as numbers."
        ) from error
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(
            f"View {name!r} has shape {array.shape}; a view is (n_samples, n_columns) "
            "with at least one column, or a sequence of strings."
        )
    if columns is not None and len(columns) != array.shape[1]:
        raise ValueError(
            f"View {name!r} got {len(columns)} names for {array.shape[1]} columns."
        )
    if sparse.issparse(array) and not array.has_canonical_format:
        array = array.copy()  # entries given twice are summed, not in the input
        array.sum_duplicates()
    return array, columns


def _is_text(array: NDArray[Any]) -> bool:
    """Tell whether an array holds strings, or strings and what is missing."""
    if array.ndim != 1 or array.size == 0:
        return False
    if array.dtype.kind not in "OT":
        return array.dtype.kind == "U"
    strings = [isinstance(s, str) for s in array]
    return any(strings) and all(
        known or _is_missing(s) for s, known in zip(array, strings, strict=True)
    )


def _as_text(array: NDArray[Any]) -> NDArray[Any]:
    """Return strings as an array of objects, None where one is missing."""
    out = array.astype(object)
    for i, value in enumerate(out):
        if not isinstance(value, str):
            out[i] = None
    return out


def _is_missing(value: Any) -> bool:
    """Tell whether a value is None, NaN, or pandas' NA."""
    if value is None or (isinstance(value, float) and value != value):
        return True
    return type(value).__name__ == "NAType"


def _find_absent(array: Any, name: str) -> NDArray[np.bool_] | None:
    """Return which rows are missing as a whole, None for none; raise on other NaN."""
    if array.ndim == 1:
        mask = np.array([s is None for s in array], dtype=bool)
        return mask if mask.any() else None
    values = _values(array)
    if np.isfinite(values).all():
        return None
    if sparse.issparse(array):
        owner = np.repeat(np.arange(array.shape[0]), np.diff(array.indptr))
        count = np.bincount(owner[np.isnan(values)], minlength=array.shape[0])
        mask = count == array.shape[1]
        _require_finite(values[~mask[owner]], name)
    else:
        mask = np.isnan(array).all(axis=1)
        _require_finite(array[~mask], name)
    return mask


def _cut(mask: NDArray[np.bool_] | None, key: Any) -> NDArray[np.bool_] | None:
    part = None if mask is None else mask[key]
    return part if part is not None and part.any() else None


def _values(array: Any) -> NDArray[np.float64]:
    return array.data if sparse.issparse(array) else array


def _require_strings(array: NDArray[Any], name: str) -> None:
    missing = sum(s is None for s in array)
    if missing:
        raise ValueError(
            f"View {name!r} is neither numeric nor a sequence of strings: {missing} of "
            "them are missing. Drop these samples, or name the view in a MultiView."
        )


def _require_finite(values: NDArray[np.float64], name: str) -> None:
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise ValueError(
            f"View {name!r} contains NaN or infinity in {bad} entries; impute them or "
            "drop the samples first. (Only whole rows of a view may be absent.)"
        )
