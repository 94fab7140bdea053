"""ViewTransformer: applies a scikit-learn transformer to each view."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from mklearn.data.spelling import plural
from mklearn.data.views import MultiView

TABLE = "X"  # name of the only view of a table
KEEP, DROP = "passthrough", "drop"


class ViewTransformer(  # type: ignore[call-arg]  # of what scikit-learn adds
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Apply a separate transformer to each view of a ``MultiView``.

    As the first step of a pipeline it learns only from the training samples of each
    fold, so that imputation, scaling or feature selection never uses test samples. Each
    transformer is fitted on the samples that have its view; samples without the view
    remain without it. Views without a transformer are passed through unchanged.

    Parameters
    ----------
    transformers : mapping of str to transformer, "passthrough" or "drop", optional
        The transformer of each view. Views of strings are passed to their transformer
        as an array of strings. The parameters of a transformer can be accessed as
        ``view__parameter``, and the transformer itself as ``view``.

    Attributes
    ----------
    transformers_ : dict of str to fitted transformer
        The fitted transformers, without the views that are passed through or dropped.
    views_in_ : dict of str to int
        Number of columns of each view in ``fit``, 1 for strings.
    views_out_ : dict of str to int
        Number of columns of each transformed view.
    n_features_in_ : int
        Total number of columns of all views.

    See Also
    --------
    sklearn.compose.ColumnTransformer : The same for columns of one table.

    Notes
    -----
    ``MultiView(..., allow_nan=True)`` keeps rows in which only some values are NaN, so
    that they can be imputed here. A table is treated as a single view ``"X"`` and
    returned as a table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.impute import SimpleImputer
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from mklearn import MKLClassifier, MultiView, ViewTransformer, kernels
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> mrna = rng.normal(size=(60, 5)) + y[:, None]
    >>> mrna[::7, 2] = np.nan
    >>> X = MultiView({"mrna": mrna, "age": rng.normal(size=60)}, allow_nan=True)
    >>> model = make_pipeline(
    ...     ViewTransformer({"mrna": make_pipeline(SimpleImputer(), StandardScaler())}),
    ...     MKLClassifier(kernels.per_view(kernels.Linear())),
    ... )
    >>> bool(cross_val_score(model, X, y, cv=3).mean() > 0.7)
    True
    """

    def __init__(self, transformers: Mapping[str, Any] | None = None) -> None:
        self.transformers = transformers

    # --- fitting ----------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, **params: Any) -> ViewTransformer:
        """Fit the transformer of each view on the samples that have the view.

        Parameters
        ----------
        X : MultiView, mapping of str to view, or table of shape (n_samples, n_features)
        y : array of shape (n_samples,), optional
        **params : dict
            Metadata routed to the transformers.
        """
        self._learn(X, y, params, "fit")
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Fit the transformers and return the transformed training samples.

        Parameters
        ----------
        X : MultiView, mapping of str to view, or table of shape (n_samples, n_features)
        y : array of shape (n_samples,), optional
        **params : dict
            Metadata routed to the transformers.
        """
        views, table = self._learn(X, y, params, "fit_transform")
        return views[TABLE] if table else views

    def transform(self, X: Any) -> Any:
        """Return the samples with transformed views.

        Parameters
        ----------
        X : MultiView, mapping of str to view, or table of shape (n_samples, n_features)

        Returns
        -------
        MultiView, or an array if X is a table
        """
        check_is_fitted(self)
        data, table = self._views(X, reset=False)
        data = data.in_form_of(self._columns_in)
        self._check_views(data)
        made = {
            view: _spread(
                self._apply(transformer, data, view),
                data.absent(view),
                self.views_out_[view],
            )
            for view, transformer in self.transformers_.items()
        }
        views = self._replaced(data, made)
        return views[TABLE] if table else views

    def _learn(
        self, X: Any, y: Any, params: dict[str, Any], caller: str
    ) -> tuple[MultiView, bool]:
        """Fit all transformers and return the transformed samples."""
        data, table = self._views(X, reset=True)
        wanted = self._wanted(data)
        routed = self._routed(wanted, caller, params)
        target = None if y is None else np.asarray(y)
        if target is not None and len(target) != len(data):
            raise ValueError(
                f"X has {plural(len(data), 'sample')} and y has {len(target)}."
            )
        self.transformers_: dict[str, Any] = {}
        self._columns_out: dict[str, tuple[str, ...] | None] = {}
        made = {}
        for view, what in wanted.items():
            if isinstance(what, str):
                continue
            there = ~data.absent(view)
            if not there.any():
                raise ValueError(
                    f"No training sample has view {view!r}, so its transformer cannot "
                    "be fitted; drop the view ('drop'), or name it "
                    "'passthrough'."
                )
            transformer, values = clone(what), data[view][there]
            given = {
                key: {k: _rows(v, there) for k, v in routed[view].get(key, {}).items()}
                for key in ("fit", "fit_transform")
            }
            labels = None if target is None else target[there]
            if hasattr(transformer, "fit_transform"):
                found = transformer.fit_transform(
                    values, labels, **given["fit_transform"]
                )
            else:
                transformer.fit(values, labels, **given["fit"])
                found = transformer.transform(values)
            array, names = _as_array(found, view, int(there.sum()))
            if names is None:
                names = _names_out(transformer, data.column_names(view))
            self.transformers_[view] = transformer
            self._columns_out[view] = names
            made[view] = _spread(array, ~there, array.shape[1])
        self._dropped = [view for view, what in wanted.items() if what == DROP]
        self.views_in_ = {view: _width(data, view) for view in data}
        self._columns_in = {view: data.column_names(view) for view in data}
        views = self._replaced(data, made)
        self.views_out_ = {view: _width(views, view) for view in views}
        return views, table

    def _views(self, X: Any, reset: bool) -> tuple[MultiView, bool]:
        """Return samples as views, and whether they were a table."""
        if isinstance(X, Mapping) and not sparse.issparse(X):  # one kind is a dict
            X = MultiView(X, allow_nan=True)
        if isinstance(X, MultiView):
            if reset:
                self.n_features_in_ = X.shape[1]
            return X, False
        data = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            reset=reset,
        )
        views = MultiView({TABLE: data}, allow_nan=True)
        names = getattr(self, "feature_names_in_", None)
        return views.with_views({TABLE: data}, {TABLE: names}), True

    def _wanted(self, data: MultiView) -> dict[str, Any]:
        """Return the transformer of each view that is named."""
        named = self.transformers
        if named is None:
            return {}
        if not isinstance(named, Mapping):
            raise ValueError(
                "transformers must be a mapping from views to transformers, got "
                f"{type(named).__name__}; try ViewTransformer({{'view': "
                "StandardScaler()})."
            )
        for view, what in named.items():
            if view not in data:
                near = difflib.get_close_matches(str(view), data.names, 1, 0.5)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ValueError(
                    f"Unknown view {view!r} in transformers; the data has "
                    f"{list(data.names)}.{hint}"
                )
            words = isinstance(what, str) and what in (KEEP, DROP)
            if not words and not (hasattr(what, "fit") and hasattr(what, "transform")):
                raise ValueError(
                    f"View {view!r} needs a transformer with fit and transform, "
                    f"'passthrough' or 'drop', got {what!r}."
                )
        return dict(named)

    def _check_views(self, data: MultiView) -> None:
        """Raise ValueError unless new samples have the columns of the training."""
        for view, width in self.views_in_.items():
            if view not in data:  # a single view may have another name
                raise ValueError(
                    f"View {view!r} was present in fit, but the new samples have "
                    f"{list(data.names)}."
                )
            gone = data.absent(view).all()
            if not gone and _width(data, view) != width:
                raise ValueError(
                    f"View {view!r} has {plural(_width(data, view), 'column')} but had "
                    f"{width} in fit."
                )

    def _apply(self, transformer: Any, data: MultiView, view: str) -> Any:
        there = ~data.absent(view)
        if not there.any():
            return np.empty((0, self.views_out_[view]))
        found = transformer.transform(data[view][there])
        return _as_array(found, view, int(there.sum()))[0]

    def _replaced(self, data: MultiView, made: dict[str, Any]) -> MultiView:
        dropped = dict.fromkeys(self._dropped)
        return data.with_views({**made, **dropped}, self._columns_out)

    # --- names and parameters ---------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of all output columns, as ``view__column``.

        Columns without a name are numbered. The names of a table's columns have no
        prefix.

        Parameters
        ----------
        input_features : array of str, optional
            Column names for a table that has none of its own.
        """
        check_is_fitted(self)
        if list(self.views_out_) == [TABLE] and list(self.views_in_) == [TABLE]:
            return self._names_of_table(input_features)
        names = []
        for view, width in self.views_out_.items():
            known = self._columns_out.get(view) or range(width)
            names += [f"{view}__{name}" for name in known]
        return np.asarray(names, dtype=object)

    def _names_of_table(self, given: Any) -> NDArray[np.object_]:
        known = getattr(self, "feature_names_in_", None)
        if given is not None:
            given = np.asarray(given, dtype=object)
            if known is not None and not np.array_equal(given, known):
                raise ValueError("input_features is not equal to feature_names_in_")
            if len(given) != self.n_features_in_:
                raise ValueError(
                    "input_features should have length equal to number of features "
                    f"({self.n_features_in_}), got {len(given)}"
                )
            known = given
        names = known
        if names is None:
            names = [f"x{i}" for i in range(self.n_features_in_)]
        if TABLE in self.transformers_:
            found = _names_out(self.transformers_[TABLE], tuple(names))
            names = found or [f"x{i}" for i in range(self.views_out_[TABLE])]
        return np.asarray(names, dtype=object)

    def _named(self) -> dict[str, Any]:
        """Return the transformers in a new dict; ``fit`` reports invalid ones."""
        named = self.transformers
        return dict(named) if isinstance(named, Mapping) else {}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, and those of the transformers as ``view__parameter``.

        Parameters
        ----------
        deep : bool
            Whether to include the parameters of the transformers.
        """
        found: dict[str, Any] = {"transformers": self.transformers}
        if deep:
            for view, what in self._named().items():
                found[view] = what
                if hasattr(what, "get_params") and not isinstance(what, type):
                    inner = what.get_params(deep=True)
                    found |= {f"{view}__{key}": value for key, value in inner.items()}
        return found

    def set_params(self, **params: Any) -> ViewTransformer:
        """Set parameters: ``transformers``, ``view`` or ``view__parameter``.

        Parameters
        ----------
        **params : dict
        """
        if "transformers" in params:
            self.transformers = params.pop("transformers")
        known = self._named()
        for key in list(params):
            if key in known:
                known[key] = params.pop(key)
                self.transformers = known
        for key, value in params.items():
            # names of views may contain underscores
            owners = [view for view in known if key.startswith(f"{view}__")]
            owner = max(owners, key=len, default=None)
            if owner is None or not hasattr(known[owner], "set_params"):
                raise ValueError(
                    f"Invalid parameter {key!r} for estimator {self}. Valid are "
                    f"'transformers', the views {list(known)} and view__parameter."
                )
            known[owner].set_params(**{key[len(owner) + 2 :]: value})
        return self

    # --- interface of scikit-learn ----------------------------------------------------

    def _routed(
        self, wanted: Mapping[str, Any], caller: str, params: dict[str, Any]
    ) -> Any:
        """Return the metadata for the methods of each transformer."""
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, caller, **params)
        if params:
            raise ValueError(
                f"{sorted(params)} can only be passed on to the transformers with "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
        return {view: {"fit": {}, "fit_transform": {}} for view in wanted}

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata that the transformers request."""
        router = MetadataRouter(owner=self.__class__.__name__)
        for view, what in self._named().items():
            if isinstance(what, str):
                continue
            mapping = MethodMapping()
            whole = hasattr(what, "fit_transform")
            for caller in ("fit", "fit_transform"):
                mapping.add(caller=caller, callee="fit_transform" if whole else "fit")
            router.add(method_mapping=mapping, **{view: what})
        return router

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        made = [what for what in self._named().values() if hasattr(what, "fit")]
        tags.input_tags.sparse = all(get_tags(what).input_tags.sparse for what in made)
        tags.input_tags.allow_nan = True
        return tags


# --- rows and columns -----------------------------------------------------------------


def _rows(value: Any, there: NDArray[np.bool_]) -> Any:
    """Return the entries of some samples, if a value has an entry for each."""
    if isinstance(value, str) or np.ndim(value) == 0 or len(value) != len(there):
        return value
    return np.asarray(value)[there]


def _as_array(found: Any, view: str, n: int) -> tuple[Any, tuple[str, ...] | None]:
    """Return the output of a transformer as array or CSR matrix, and its names."""
    names = None
    if hasattr(found, "columns") and hasattr(found, "to_numpy"):
        names, found = tuple(map(str, found.columns)), found.to_numpy()
    found = found.tocsr() if sparse.issparse(found) else np.asarray(found)
    if found.ndim != 2 or found.shape[0] != n or found.shape[1] == 0:
        raise ValueError(
            f"The transformer of view {view!r} must return (n_samples, n_columns) with "
            f"at least one column, got shape {found.shape} for {plural(n, 'sample')}."
        )
    return found, names


def _spread(values: Any, absent: NDArray[np.bool_], width: int) -> Any:
    """Return values of the samples that have a view, and NaN for those that lack it."""
    if not absent.any():
        return values
    place = np.empty(len(absent), dtype=np.intp)  # of a sample, those that lack it last
    place[~absent] = np.arange(values.shape[0])
    place[absent] = values.shape[0] + np.arange(np.count_nonzero(absent))
    holes = np.full((np.count_nonzero(absent), width), np.nan)
    if sparse.issparse(values):
        return sparse.vstack([values, sparse.csr_array(holes)], format="csr")[place]
    return np.vstack([values, holes])[place]


def _width(data: MultiView, view: str) -> int:
    return 1 if data.is_text(view) else int(data[view].shape[1])


def _names_out(
    transformer: Any, columns: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the names of the output columns of a transformer, None if unknown."""
    ask = getattr(transformer, "get_feature_names_out", None)
    if ask is None:
        return None
    try:
        return tuple(map(str, ask() if columns is None else ask(list(columns))))
    except (AttributeError, TypeError, ValueError):  # a step of a pipeline has none
        return None
