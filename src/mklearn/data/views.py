"""MultiView: several named descriptions of the same samples, sliced together."""

from __future__ import annotations

import copy
import warnings
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.containers import (
    Table,
    anndata_tables,
    mudata_tables,
    require_table,
)
from mklearn.data.labels import (
    Labels,
    agreed,
    as_labels,
    is_missing,
    joined,
    order_of,
    places,
    require_common,
    require_distinct,
    spelt_otherwise,
    told,
)
from mklearn.data.spelling import did_you_mean, plural

Columns = int | str | slice | Sequence[int] | Sequence[str] | None


class MultiView:
    """Named views of the same samples.

    A view is a 2-D array, a DataFrame, a sparse matrix, a 1-D numeric array (taken as
    one column) or a sequence of strings. Slicing selects the same rows in all views, so
    that scikit-learn's splitters, ``GridSearchCV`` and ``cross_val_score`` accept a
    ``MultiView`` like an array. Kernels refer to views by name.

    DataFrames are aligned on their index: rows with the same label are the same sample.
    It is an error if their labels differ; :meth:`from_frames` joins tables of different
    samples.

    A sample may lack a view: then all its numbers in the view are NaN, or its string is
    None. A row in which only some numbers are NaN is an error, because it has to be
    imputed first. To impute within each fold, use ``allow_nan=True`` and a
    :class:`~mklearn.ViewTransformer`.

    Parameters
    ----------
    views : mapping of str to view
        All views must have the same number of rows, in the same order; the rows of
        DataFrames with an index may be in any order.
    allow_nan : bool
        Whether to accept rows in which only some numbers are NaN. Estimators reject
        such rows until a transformer has imputed them.

    Attributes
    ----------
    names : tuple of str
    ids : array of shape (n_samples,) or None
        Names of the samples, from the index of the first DataFrame that has one.
    shape : tuple of int
        Number of samples, and total number of columns of all views (a view of strings
        counts as one).

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
    ids: NDArray[Any] | None = None
    _hidden: dict[str, NDArray[np.intp]]
    covariates: NDArray[np.float64] | None = None

    allow_nan = False

    def __init__(self, views: Mapping[str, Any], *, allow_nan: bool = False) -> None:
        if not isinstance(views, Mapping) or not views:
            raise ValueError(
                "MultiView needs a non-empty mapping from view names to data, got "
                f"{type(views).__name__}; try MultiView({{'name': array, ...}})."
            )
        self._data: dict[str, Any] = {}
        self._columns: dict[str, tuple[str, ...] | None] = {}
        self._absent, self._hidden = {}, {}
        self.allow_nan = bool(allow_nan)
        for name, view in views.items():
            if not isinstance(name, str):
                # a number in [] would mean a sample
                raise ValueError(f"Views are named by strings, got {name!r}.")
            self._data[name], self._columns[name] = _as_view(view, name)
            known = view.absent if isinstance(view, Table) else None
            self._absent[name] = _find_absent(self._data[name], name, allow_nan, known)
        sizes = {name: _n_rows(view) for name, view in self._data.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"All views need the same number of samples, got {sizes}; align the "
                "rows of the views first, or join DataFrames on their index with "
                "MultiView.from_frames(frames, join='inner' or 'outer')."
            )
        self.ids, orders = agreed({k: _labels(view) for k, view in views.items()})
        for name, order in orders.items():
            self._data[name] = self._data[name][order]
            self._absent[name] = _cut(self._absent[name], order)

    @classmethod
    def from_frames(
        cls,
        frames: Mapping[str, Any],
        join: str = "outer",
        *,
        on: str | None = None,
        allow_nan: bool = False,
    ) -> MultiView:
        """Join tables of different samples on their index.

        Parameters
        ----------
        frames : mapping of str to DataFrame or Series
            One table for each view, from pandas, with the sample names in the index, or
            from polars, with the sample names in the column ``on``. No name may occur
            twice in a table. The default index of pandas (0, 1, 2, ...) is refused,
            unless it has a name, because it only numbers the rows.
        join : {"outer", "inner"}
            "outer" keeps all samples that are in any of the tables; a sample that is
            not in a table lacks its view. "inner" keeps only the samples that are in
            all tables. In both cases, each table must have a sample in common with
            another one. A warning lists names that differ only in their type (5 and
            "5"), in spaces or in capitals.
        on : str, optional
            The column of sample names, to be used instead of the index. It may also be
            the name of the index, for instance if other tables are from polars.
        allow_nan : bool
            Whether to accept rows in which only some numbers are NaN, as in
            ``MultiView``.

        Returns
        -------
        MultiView
            The joined samples, in the order of their first occurrence, with their names
            in ``ids``.

        Examples
        --------
        >>> import pandas as pd
        >>> from mklearn import MultiView
        >>> rna = pd.DataFrame({"TP53": [1.0, 2.0, 3.0]}, index=["p1", "p2", "p3"])
        >>> protein = pd.DataFrame({"P53": [4.0, 5.0]}, index=["p3", "p2"])
        >>> X = MultiView.from_frames({"rna": rna, "protein": protein})
        >>> X
        MultiView(3 samples; rna: 1, protein: 1 (1 absent))
        >>> X["protein"].ravel().tolist()
        [nan, 5.0, 4.0]
        >>> MultiView.from_frames(
        ...     {"rna": rna, "protein": protein}, "inner"
        ... ).ids.tolist()
        ['p2', 'p3']
        """
        if join not in ("outer", "inner"):
            raise ValueError(f"join must be 'outer' or 'inner', got {join!r}.")
        if not isinstance(frames, Mapping) or not frames:
            raise ValueError(
                "from_frames needs a mapping from view names to DataFrames, got "
                f"{type(frames).__name__}."
            )
        tables = {name: _table(frame, name, on) for name, frame in frames.items()}
        return cls._joined(tables, join, allow_nan)

    @classmethod
    def from_anndata(
        cls,
        adata: Any,
        *,
        X: str | None = "X",
        layers: Iterable[str] | Mapping[str, str] | None = (),
        obsm: Iterable[str] | Mapping[str, str] | None = (),
    ) -> MultiView:
        """Use the matrices of an AnnData object as views of its cells.

        Sparse matrices stay sparse. The matrices of a backed object
        (``read_h5ad(path, backed="r")``) are read in blocks of rows.

        Parameters
        ----------
        adata : anndata.AnnData
        X : str or None
            Name of the view of ``adata.X``; None leaves it out.
        layers, obsm : iterable of str, mapping of view name to key, or None
            The entries of ``adata.layers`` and ``adata.obsm`` to use as further views;
            none by default.

        Returns
        -------
        MultiView
            Its ``ids`` are ``adata.obs_names``.
        """
        return cls._joined(anndata_tables(adata, X, layers, obsm), "outer")

    @classmethod
    def from_mudata(
        cls,
        mdata: Any,
        join: str = "outer",
        *,
        layers: Mapping[str, str] | None = None,
        obsm: Mapping[str, str] | None = None,
    ) -> MultiView:
        """Use the modalities of a MuData object as views.

        Parameters
        ----------
        mdata : mudata.MuData
        join : {"outer", "inner"}
            "outer" keeps all cells, which may lack some modalities; "inner" only those
            that have all of them.
        layers, obsm : mapping of modality to key, optional
            For each of the given modalities, the layer or the entry of ``obsm`` to use
            instead of ``X``.
        """
        if join not in ("outer", "inner"):
            raise ValueError(f"join must be 'outer' or 'inner', got {join!r}.")
        return cls._joined(mudata_tables(mdata, layers or {}, obsm or {}), join)

    @classmethod
    def _joined(
        cls, tables: Mapping[str, Table], join: str, allow_nan: bool = False
    ) -> MultiView:
        """Return the joined views of tables with named rows."""
        known = {k: table.ids for k, table in tables.items() if table.ids is not None}
        for name, some in known.items():
            if len(some) == 0:
                raise ValueError(f"View {name!r} has no rows; leave it out.")
        require_common(known, "Check that all tables name samples in the same way.")
        ids = joined(known.values(), join)
        if len(ids) == 0:
            parts = ", ".join(
                f"{k!r} has {told(some[:3])}" for k, some in known.items()
            )
            raise ValueError(
                f"No sample is in all tables: {parts}, ... Use join='outer' to keep "
                f"samples that lack some of them.{spelt_otherwise(known)}"
            )
        alike = spelt_otherwise(known).strip()
        if alike:
            warnings.warn(
                f"{alike} Unless this is meant, give them the same spelling first, for "
                "instance with frame.index.astype(str).str.strip().",
                stacklevel=3,
            )
        placed = {name: table.at(ids) for name, table in tables.items()}
        views = cls(placed, allow_nan=allow_nan)
        views.ids = ids
        return views

    @classmethod
    def from_columns(cls, X: Any, views: Mapping[str, Columns]) -> MultiView:
        """Split a table into views by column indices or names.

        Parameters
        ----------
        X : array, DataFrame or sparse matrix of shape (n_samples, n_features)
        views : mapping of str to columns
            The columns of each view; a column may be in several views.
        """
        table = cls._unchecked(X)
        names = table.column_names()
        parts = {}
        for name, columns in views.items():
            index = table.column_index(None, columns)
            known = None if names is None else tuple(names[i] for i in index)
            parts[name] = Table(table["X"][:, index], known)
        made = cls(parts)
        made.ids = table.ids
        return made

    @classmethod
    def stacked(cls, parts: Sequence[MultiView], views: Mapping[str, Any]) -> MultiView:
        """Return the samples of all parts, whose ``views`` have been stacked."""
        made = parts[0]._like(dict(views))
        made._absent = {
            name: _cut(np.concatenate([part.absent(name) for part in parts]), ...)
            for name in views
        }
        known = [part.ids for part in parts if part.ids is not None]
        made.ids = np.concatenate(known) if len(known) == len(parts) else None
        if made.covariates is not None:
            made.covariates = np.concatenate([part.covariates for part in parts])
        return made

    @classmethod
    def from_table(cls, X: Any, columns: Iterable[str] | None = None) -> MultiView:
        """Return one view ``"X"`` of a validated table, with column names if any."""
        names = None if columns is None else tuple(str(c) for c in columns)
        return cls._whole(X if names is None else Table(X, names))

    @classmethod
    def wrap(cls, X: Any) -> MultiView:
        """Return ``X`` itself if it has views, else a single view ``"X"`` of it.

        A mapping is taken as views. In a single table no sample can be absent: a row of
        NaN is an error.
        """
        if holds_views(X):
            return cls(X)
        return X.imputed() if isinstance(X, MultiView) else cls._whole(X)

    def imputed(self) -> MultiView:
        """Return the samples; raise ValueError if a view is missing only in part."""
        if self.allow_nan:
            for name, view in self._data.items():
                _find_absent(view, name)
        return self

    def with_views(
        self,
        views: Mapping[str, Any],
        columns: Mapping[str, Sequence[str] | None] | None = None,
    ) -> MultiView:
        """Return the same samples with some views replaced, added or removed.

        Parameters
        ----------
        views : mapping of str to array or None
            None removes a view; new names are added.
        columns : mapping of str to sequence of str, optional
            Column names of the new views.
        """
        named = columns or {}
        made = copy.copy(self)
        made._data, made._columns = dict(self._data), dict(self._columns)
        made._absent = dict(self._absent)
        made._hidden = {k: v for k, v in self._hidden.items() if k not in views}
        for name, values in views.items():
            if values is None:
                del made._data[name], made._columns[name], made._absent[name]
                continue
            known = named.get(name)
            array, _ = _as_view(values, name)
            if _n_rows(array) != len(self):
                raise ValueError(
                    f"The new view {name!r} has {plural(_n_rows(array), 'sample')}, "
                    f"but the others have {len(self)}."
                )
            made._data[name] = array
            made._columns[name] = None if known is None else tuple(map(str, known))
            made._absent[name] = _find_absent(array, name, self.allow_nan)
        if not made._data:
            raise ValueError("No view is left; keep at least one.")
        return made

    def in_form_of(self, views: Mapping[str, Sequence[str] | None]) -> MultiView:
        """Return new samples in the form of training samples.

        Views that the new samples do not have are added, without any sample that has
        them, and columns with the same names in another order are reordered. The name
        of a single view does not matter.

        Parameters
        ----------
        views : mapping of str to sequence of str or None
            Names of the views in training, with the names of their columns, if any.
        """
        if len(views) == len(self.names) == 1:
            views = {self.names[0]: next(iter(views.values()))}
        lacking = [view for view in views if view not in self]
        strange = [view for view in self.names if view not in views]
        if lacking and strange:
            hint = did_you_mean(strange[0], lacking)
            raise ValueError(
                f"The new samples lack view {lacking[0]!r} and have "
                f"{told(strange)} instead, which training samples did not have. {hint}"
                f"The views in training were {told(views)}; new samples may lack some "
                "of them, but not have others in their place."
            )
        made = self._like(dict(self._data))
        for view, names in views.items():
            if view in lacking:
                made._data[view] = np.full((len(self), 1), np.nan)
                made._absent[view] = np.ones(len(self), dtype=bool)
                made._columns[view] = None
                continue
            own = self._columns[view]
            if names is None or own is None or own == tuple(names):
                continue
            place = {name: j for j, name in enumerate(own)}
            if len(place) == len(own) == len(names) and place.keys() == set(names):
                made._data[view] = self._data[view][:, [place[name] for name in names]]
                made._columns[view] = tuple(names)
        return made

    @classmethod
    def _whole(cls, X: Any) -> MultiView:
        """Return a single view ``"X"`` without absent samples."""
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
        table._absent, table._hidden = {"X": None}, {}
        table.ids, _ = agreed({"X": _labels(X)})
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

    def items(self) -> ItemsView[str, Any]:
        """Return names and views, like those of a dict."""
        return self._data.items()

    def copy(self) -> MultiView:
        """Return a copy with copies of all arrays."""
        made = self._like({name: view.copy() for name, view in self._data.items()})
        made._absent = {
            k: None if mask is None else mask.copy() for k, mask in self._absent.items()
        }
        made.ids = None if self.ids is None else self.ids.copy()
        if self.covariates is not None:
            made.covariates = self.covariates.copy()
        return made

    def _like(self, data: dict[str, Any]) -> MultiView:
        """Return some views with other values in the same columns."""
        made = copy.copy(self)
        made._data = data
        made._columns = {name: self._columns[name] for name in data}
        made._absent = {name: self._absent[name] for name in data}
        return made

    def __getitem__(self, key: Any) -> Any:
        """Return a view (by name), some views (by names), or samples of all views."""
        if isinstance(key, str):
            return self._data[self.view_name(key)]
        if isinstance(key, list) and key and all(isinstance(k, str) for k in key):
            return self._like({self.view_name(k): self._data[k] for k in key})
        if isinstance(key, tuple):  # scikit-learn asks for X[rows, ...]
            rest = [k for k in key[1:] if k is not Ellipsis]
            if not key or any(
                not isinstance(k, slice) or k != slice(None) for k in rest
            ):
                raise IndexError(
                    "A MultiView can only be sliced by samples, X[rows]; kernels "
                    "choose columns and views."
                )
            key = key[0]
        if not isinstance(key, slice):
            key = np.atleast_1d(np.asarray(key))
            if key.size == 0:
                key = key.astype(np.intp)
        part = self._like({name: view[key] for name, view in self._data.items()})
        part._absent = {k: _cut(mask, key) for k, mask in self._absent.items()}
        part.ids = None if self.ids is None else self.ids[key]
        if self.covariates is not None:
            part.covariates = self.covariates[key]
        return part

    def with_covariates(
        self,
        values: NDArray[np.float64],
        hidden: Mapping[str, NDArray[np.intp]],
        views: Iterable[str] = (),
    ) -> MultiView:
        """Return the samples with covariates, which kernels do not use by default.

        Parameters
        ----------
        values : array of shape (n_samples, k)
            Coded covariates, which are sliced together with the samples.
        hidden : mapping of str to array of int
            Columns, by view, that no kernel uses unless it names them.
        views : iterable of str
            Views that no kernel uses.
        """
        part = self[:]
        gone = set(views)
        part._data = {k: v for k, v in self._data.items() if k not in gone}
        part._hidden = {k: np.asarray(v) for k, v in hidden.items() if len(v)}
        part.covariates = values
        return part

    def visible(self, view: str) -> NDArray[np.intp] | None:
        """Return the columns that a kernel uses by default; None means all."""
        hidden = self._hidden.get(view)
        if hidden is None:
            return None
        return np.setdiff1d(np.arange(self._data[view].shape[1]), hidden)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise TypeError(
            f"A MultiView is not an array: it has views {list(self.names)}; get one "
            "with X['name'], or pass the MultiView to an estimator of mklearn."
        )

    def __repr__(self) -> str:
        kinds = []
        for name, v in self._data.items():
            mask = self._absent[name]
            holes = "" if mask is None else f" ({np.count_nonzero(mask)} absent)"
            kinds.append(f"{name}: {'strings' if v.ndim == 1 else v.shape[1]}{holes}")
        return f"MultiView({plural(len(self), 'sample')}; {', '.join(kinds)})"

    def _repr_html_(self) -> str:
        """Return a table of the views, as notebooks show it."""
        rows = []
        for name, view in self._data.items():
            kind = "strings" if view.ndim == 1 else "numbers"
            kind = "sparse numbers" if sparse.issparse(view) else kind
            width = 1 if view.ndim == 1 else view.shape[1]
            absent = int(np.count_nonzero(self.absent(name)))
            cells = (escape(name), kind, str(width), str(absent))
            rows.append("".join(f"<td>{cell}</td>" for cell in cells))
        head = "".join(f"<th>{h}</th>" for h in ("view", "holds", "columns", "absent"))
        known = "" if self.ids is None else f": {escape(told(self.ids[:3]))}, ..."
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return (
            f"<p>MultiView, {plural(len(self), 'sample')}{known}</p><table><thead>"
            f"<tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def align(self, y: Any, on: str | None = None) -> tuple[MultiView, Any]:
        """Return the samples that have a label, and their labels, in the same order.

        A warning names what is left out: samples without a label (not in the index of
        ``y``, or missing there) and labels without a sample. Do this before
        cross-validation, which selects samples by position.

        Parameters
        ----------
        y : Series or DataFrame of pandas, DataFrame of polars, or mapping
            Labels, with an index, a column ``on`` or keys that match ``ids``. Labels
            without names (an array, or a Series with the default index) are assigned
            row by row.
        on : str, optional
            The column of ``y`` with the names of samples, to be used instead of the
            index.

        Returns
        -------
        X : MultiView
        y : as given
            An array for a mapping; if ``on`` is given, a Series if one column is left.

        Examples
        --------
        >>> import pandas as pd
        >>> from mklearn import MultiView
        >>> X = MultiView({"a": pd.DataFrame({"x": [1.0, 2.0]}, index=["p1", "p2"])})
        >>> X, y = X.align(pd.Series({"p2": "ill", "p1": "well"}))
        >>> y.tolist()
        ['well', 'ill']
        """
        labels: Labels | None
        if on is not None:
            labels, y = _labels_on(y, on)
        elif isinstance(y, Mapping):
            labels = Labels(as_labels(y))
            y = np.array(list(y.values()))
        else:
            labels = Labels.of(y)
        n = len(y)
        if labels is None or (labels.counted and self._counts_otherwise(labels)):
            if n != len(self):
                raise ValueError(
                    "Without names, each sample needs a label: got "
                    f"{plural(n, 'label')} for {plural(len(self), 'sample')}. Give a "
                    "Series with the ids of the samples as its index, or a DataFrame "
                    "and the column of ids as on=..."
                )
            place = np.arange(n)
        elif self.ids is None:
            raise ValueError(
                "The samples have no ids to find their labels by; create the "
                "MultiView from DataFrames with an index, or give the labels as an "
                "array."
            )
        else:
            require_distinct(labels.values, "y")
            place = places(labels.values, self.ids)
        lacking = _missing_rows(y)
        known = (place >= 0) & ~lacking[place]
        self._tell_dropped(known, labels, place)
        rows = np.flatnonzero(known)
        if len(rows) == 0:
            raise ValueError(
                "No sample has a label; check that the index of y has "
                "the same names as ids."
            )
        chosen = place[rows]
        return self[rows], y.iloc[chosen] if hasattr(y, "iloc") else y[chosen]

    def _counts_otherwise(self, labels: Labels) -> bool:
        """Return whether the default index differs from the ids of the samples."""
        return self.ids is None or set(self.ids.tolist()) != set(labels.values.tolist())

    def _tell_dropped(
        self, known: NDArray[np.bool_], labels: Labels | None, place: NDArray[np.intp]
    ) -> None:
        parts = []
        if not known.all():
            rows = np.flatnonzero(~known)
            who = rows if self.ids is None else self.ids[rows]
            fate = (
                "has no label and is dropped"
                if len(rows) == 1
                else "have no label and are dropped"
            )
            parts.append(f"{plural(len(rows), 'sample')} {fate}: {told(who)}")
        if labels is not None and self.ids is not None:
            unused = np.setdiff1d(np.arange(len(labels.values)), place)
            if len(unused):
                who = labels.values[unused]
                belong = "belongs" if len(unused) == 1 else "belong"
                these = plural(len(unused), "label")
                parts.append(f"{these} {belong} to no sample: {told(who)}")
        if parts:
            warnings.warn("; ".join(parts) + ".", stacklevel=3)

    def absent(self, name: str) -> NDArray[np.bool_]:
        """Return which samples lack a view, shape (n_samples,)."""
        mask = self._absent[self.view_name(name)]
        return np.zeros(len(self), dtype=bool) if mask is None else mask

    def has_absent(self, name: str) -> bool:
        """Return whether any sample lacks a view."""
        return self._absent[self.view_name(name)] is not None

    def is_text(self, name: str) -> bool:
        """Return whether a view contains strings."""
        return bool(self._data[name].ndim == 1)

    def column_names(self, view: str | None = None) -> tuple[str, ...] | None:
        """Return the column names of a view, None if it has none."""
        return self._columns[self.view_name(view)]

    def view_name(self, view: str | None) -> str:
        """Return the name of a view; None stands for the only view."""
        if view is None:
            if len(self._data) == 1:
                return self.names[0]
            raise ValueError(
                f"The data has several views {list(self.names)}, and the kernel does "
                "not say which one to use; pass view=... to the kernel, or use "
                "per_view(kernel)."
            )
        if view not in self._data:
            raise ValueError(f"Unknown view {view!r}; the data has {list(self.names)}.")
        return view

    def column_index(self, view: str | None, columns: Columns) -> NDArray[np.intp]:
        """Return the indices of ``columns`` (indices, names or a slice) in a view."""
        name = self.view_name(view)
        data = self._data[name]
        if data.ndim == 1:
            raise ValueError(f"View {name!r} contains strings and has no columns.")
        n = data.shape[1]
        if columns is None:
            seen = self.visible(name)
            return np.arange(n) if seen is None else seen
        if isinstance(columns, slice):
            return np.arange(n)[columns]
        wanted: list[Any] = (
            [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)
        )
        if wanted and all(isinstance(column, (bool, np.bool_)) for column in wanted):
            if len(wanted) != n:
                raise ValueError(
                    "A mask of columns needs one entry for each column: view "
                    f"{name!r} has {plural(n, 'column')}, got {len(wanted)}."
                )
            return np.flatnonzero(wanted)
        return np.array([self._find(name, column, n) for column in wanted], np.intp)

    def _find(self, name: str, column: Any, n: int) -> int:
        """Return the index of one column of a view."""
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
                    f"View {name!r} has {plural(count, 'column')} called {column!r}; "
                    "give the index of one of them."
                )
            return names.index(column)
        if isinstance(column, (bool, np.bool_)) or not isinstance(
            column, (int, np.integer)
        ):
            raise ValueError(
                f"A column must be given by index or name, got {column!r} for view "
                f"{name!r}."
            )
        if not -n <= column < n:
            raise ValueError(
                f"Column {column} is out of range: view {name!r} has "
                f"{plural(n, 'column')}."
            )
        return int(column) % n


def holds_views(X: Any) -> bool:
    """Return whether X is a mapping from names to views.

    Some sparse arrays derive from dict, but are not such mappings.
    """
    return isinstance(X, Mapping) and not sparse.issparse(X)


def paired(X: Any, values: Any, what: str = "y") -> Any:
    """Return targets or weights in the order of the samples, if both are named.

    Raise ValueError if they name different samples. Values without names are assigned
    row by row.
    """
    if Labels.of(values) is not None and holds_views(X):
        X = MultiView.wrap(X)
    return in_order_of(X.ids if isinstance(X, MultiView) else None, values, what)


def in_order_of(ids: NDArray[Any] | None, values: Any, what: str) -> Any:
    """Return targets or weights in the order of ``ids``, as :func:`paired` does."""
    labels = Labels.of(values)
    if ids is None or labels is None:
        return values
    order = order_of(
        labels, ids, what, "the samples",
        "X, y = X.align(y) keeps the samples that have a label, and names the others.",
    )  # fmt: skip
    return values if order is None else values.iloc[order]


def _labels(view: Any) -> Labels | None:
    """Return the names of the rows of a view, if any."""
    if isinstance(view, Table):
        return None if view.ids is None else Labels(view.ids)
    return Labels.of(view)


def _table(frame: Any, name: str, on: str | None) -> Table:
    """Return a frame as a table: values, column names and row names."""
    frame = _collected(frame)
    columns = getattr(frame, "columns", None)
    labels = Labels.of(frame)
    if on is not None:
        ids, frame = _split_off(frame, on, f"View {name!r}")
    elif labels is None:
        raise ValueError(
            f"View {name!r} has no index to join on (got {type(frame).__name__}); give "
            "the column of sample names as on=..., or use a pandas DataFrame."
        )
    elif labels.counted and not labels.called and len(labels.values):
        has = "" if columns is None else f" It has the columns {told(columns)}."
        raise ValueError(
            f"View {name!r} has the default index 0, 1, 2, ..., which numbers rows and "
            "does not name samples. Give the column of sample names as on=..., or make "
            "it the index with frame.set_index(...); if the numbers are the names, use "
            f"frame.rename_axis('sample').{has}"
        )
    else:
        ids = labels.values
    require_distinct(ids, f"view {name!r}")
    data, known = _as_view(frame, name)
    return Table(data, known, ids)


def _split_off(frame: Any, on: str, what: str) -> tuple[NDArray[Any], Any]:
    """Return a column of sample names, and the frame without it.

    The index of a pandas table counts as a column if it has this name.
    """
    columns = getattr(frame, "columns", None)
    if hasattr(frame, "iloc") and (columns is None or on not in list(columns)):
        if frame.index.name == on:
            return as_labels(frame.index), frame
    if columns is None or on not in list(columns):
        has = "no columns" if columns is None else f"{list(columns)[:20]}"
        raise ValueError(f"{what} has no column {on!r}; it has {has}.")
    ids = as_labels(frame[on].to_numpy().tolist())
    return ids, frame.drop(columns=on) if hasattr(frame, "iloc") else frame.drop(on)


def _labels_on(y: Any, on: str) -> tuple[Labels, Any]:
    """Return the names of labels in a column, and the labels: a Series if one."""
    ids, rest = _split_off(_collected(y), on, "y")
    if hasattr(rest, "iloc"):
        rest = rest.set_axis(list(ids), axis=0).rename_axis(on)
    if len(rest.shape) > 1 and rest.shape[1] == 1:
        rest = rest[rest.columns[0]]
    return Labels(ids), rest


def _missing_rows(y: Any) -> NDArray[np.bool_]:
    """Return which labels are missing, in any column of them."""
    if hasattr(y, "isna"):
        missing = np.asarray(y.isna())
    else:
        flat = np.asarray(y)
        cells = [is_missing(value) for value in flat.ravel().tolist()]
        missing = np.array(cells, dtype=bool).reshape(flat.shape)
    return np.asarray(missing if missing.ndim == 1 else missing.any(axis=1))


def _n_rows(view: Any) -> int:
    return int(view.shape[0])


def _as_view(view: Any, name: str) -> tuple[Any, tuple[str, ...] | None]:
    """Return a view as float64 array, CSR matrix or object array, and column names."""
    columns = None
    view = _collected(view)
    require_table(view, f"View {name!r}")
    if isinstance(view, Table):
        view, columns = view.values, view.columns
    elif hasattr(view, "columns") and hasattr(view, "to_numpy"):  # DataFrame
        columns = tuple(str(c) for c in view.columns)
        values = view.to_numpy()
        if len(columns) == 1 and _is_text(values.ravel()):
            return _as_text(values.ravel()), None
        if values.dtype == object:  # missing values of nullable columns become NaN
            options = {"dtype": np.float64, "na_value": np.nan}
            try:
                # polars has None for missing values, which numpy makes NaN
                pandas = hasattr(view, "iloc")
                values = view.to_numpy(**options) if pandas else values.astype(float)
            except (TypeError, ValueError) as error:
                strange = [columns[j] for j in _not_numeric(values)]
                which = f": {told(strange)}" if strange else f" ({error})"
                raise ValueError(
                    f"View {name!r} has columns that are not numeric{which}; encode "
                    "them, or make a column of sequences a separate view."
                ) from error
        view = values
    array: Any
    if sparse.issparse(view):
        array = view.tocsr() if view.ndim == 2 else view.toarray()
    else:
        # numpy would convert numbers to strings if there are strings among them
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
            f"View {name!r} has shape {array.shape}; a view must be (n_samples, "
            "n_columns) with at least one column, or a sequence of strings."
        )
    if columns is not None and len(columns) != array.shape[1]:
        raise ValueError(
            f"View {name!r} got {plural(len(columns), 'name')} for "
            f"{plural(array.shape[1], 'column')}."
        )
    if sparse.issparse(array) and not array.has_canonical_format:
        array = array.copy()  # duplicate entries are summed, not in the input
        array.sum_duplicates()
    return array, columns


def _collected(frame: Any) -> Any:
    """Return a lazy frame of polars as a DataFrame, anything else as it is."""
    lazy = hasattr(frame, "collect") and hasattr(frame, "collect_schema")
    return frame.collect() if lazy and not hasattr(frame, "to_numpy") else frame


def _not_numeric(values: NDArray[Any]) -> list[int]:
    """Return the columns of an array of objects that are not numbers."""
    found = []
    for j, column in enumerate(values.T):
        try:
            np.array([np.nan if is_missing(v) else v for v in column], np.float64)
        except (TypeError, ValueError):
            found.append(j)
    return found


def _is_text(array: NDArray[Any]) -> bool:
    """Return whether an array contains only strings and missing values."""
    if array.ndim != 1 or array.size == 0:
        return False
    if array.dtype.kind not in "OT":
        return array.dtype.kind == "U"
    strings = [isinstance(s, str) for s in array]
    return any(strings) and all(
        known or is_missing(s) for s, known in zip(array, strings, strict=True)
    )


def _as_text(array: NDArray[Any]) -> NDArray[Any]:
    """Return strings as an array of objects, with None for missing ones."""
    out = array.astype(object)
    for i, value in enumerate(out):
        if not isinstance(value, str):
            out[i] = None
    return out


def _find_absent(
    array: Any,
    name: str,
    allow_nan: bool = False,
    known: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_] | None:
    """Return which rows are missing as a whole, None for none; raise on other NaN.

    Rows that are known to be absent may contain anything.
    """
    if known is not None and known.any():
        mask = known.copy()
        others = _find_absent(array[~known], name, allow_nan)
        if others is not None:
            mask[np.flatnonzero(~known)[others]] = True
        return mask
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
        rest = values[~mask[owner]]
    else:
        mask = np.isnan(array).all(axis=1)
        rest = array[~mask]
    _require_finite(rest[~np.isnan(rest)] if allow_nan else rest, name)
    return mask if mask.any() else None


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
            "its values are missing. Drop these samples, or pass the view in a "
            "MultiView."
        )


def _require_finite(values: NDArray[np.float64], name: str) -> None:
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise ValueError(
            f"View {name!r} contains NaN or infinity in {plural(int(bad), 'entry')}; "
            "impute the values or drop the samples first. (Only entire rows of a view "
            "may be missing; to impute within each fold, use MultiView(..., "
            "allow_nan=True) and a ViewTransformer.)"
        )
