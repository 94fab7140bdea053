"""An estimator for raw tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from mklearn.data.spelling import plural
from mklearn.data.subjects import warned_of_subjects
from mklearn.estimators._state import check_answers
from mklearn.kernels import MultiView
from mklearn.table.columns import (
    CATEGORY,
    SEQUENCE,
    Column,
    absent_rows,
    as_words,
    find_layout,
    lacking,
    require_column,
    with_holes,
)
from mklearn.table.errors import TableError, enumerated, need_pandas


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
            require_column(X, column)
        absent = absent_rows(X, self.views_)
        self.columns_ = {}
        for c in wanted:
            known = X[c][~lacking(X, c, self.views_, absent)]
            self.columns_[c] = Column.learn(known, c, kinds[c], self.standardize)
        self.covariates_ = tuple(self.covariates)
        for c in self.covariates_:
            require_column(X, c)
            # in the units of the user, unless they are features like others
            units = self.standardize and not self.as_views
            self.columns_[c] = Column.learn(X[c], c, kinds[c], units)
        model = clone(self.estimator)
        inner = getattr(model, "regressor", model)
        search = isinstance(inner, (GridSearchCV, RandomizedSearchCV))
        asks = groups is not None and (search or has_fit_parameter(model, "groups"))
        given = {"groups": groups} if asks else {}
        with warned_of_subjects():  # the command line looks at the table itself
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
            pd = need_pandas()
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
                f"the table lacks columns that the model needs: {enumerated(listed)}."
            )
        if not missing:
            return X
        return X.reindex(
            columns=[*X.columns, *(c for c in self.columns_ if c in missing)]
        )

    def transform_table(self, X: Any) -> Any:
        """Return the views of a table, or their numbers side by side."""
        X = self.with_columns(X)
        pd = need_pandas()
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
                f"of {plural(len(values), 'row')}; fill it in, or leave these rows out."
            )
        if column.kind == CATEGORY:
            return np.array(as_words(values), dtype=object)
        return need_pandas().DataFrame({column.name: column.numbers(values)[:, 0]})

    def new_categories(self, X: Any) -> dict[str, list[str]]:
        """Return the categories of a table that training did not have, by column."""
        check_is_fitted(self)
        found = {}
        for name, column in self.columns_.items():
            if column.kind == CATEGORY and name in X.columns:
                new = sorted(set(as_words(X[name].dropna())) - set(column.categories))
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
        """Return the estimator's score: accuracy, R² for numbers, or concordance."""
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
    listed = [None if m else v for v, m in with_holes(values)]
    strange = [v for v in listed if not isinstance(v, str)]
    bad = [v for v in strange if v is not None or not may_lack]
    if bad:
        raise TableError(
            f"column {values.name!r} must contain sequences; {bad[0]!r} is not one."
        )
    return np.array(listed, dtype=object)
