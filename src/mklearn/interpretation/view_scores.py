"""Scores by view: how much of a score on held-out samples is due to each view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, get_tags

from mklearn.data.checks import NothingToLearnError, check_times, structured_times
from mklearn.data.spelling import plural
from mklearn.data.subjects import check_groups, group_folds
from mklearn.data.views import MultiView, holds_views, paired
from mklearn.estimators import MKLCox, MKLSurvivalSVM
from mklearn.estimators._folds import Subsets
from mklearn.estimators._targets import one_vs_rest
from mklearn.estimators.event_times import concordance_index
from mklearn.fitted import kernel_groups
from mklearn.interpretation.decisions import check_ours, parts_of
from mklearn.interpretation.frames import by_kernel
from mklearn.model_selection import (
    ctrl_c_ends_all,
    error_over_folds,
    requesting_groups,
    stop_if_interrupted,
    takes_groups,
)

FloatArray = NDArray[np.float64]

_MEASURES = ("r2", "correlation")  # scores of which parts can be told
_OF_TIMES = "concordance"  # the score of survival models
_KINDS = ("product", "unique", "shapley")
_EXACT = 12  # views up to which Shapley values are over all coalitions
_PERMUTATIONS = 50


@dataclass(frozen=True)
class ScoreByView:
    """A score on held-out samples, attributed to views or kernels.

    Attributes
    ----------
    names : tuple of str
        The views, or the kernels. In the product measure, covariates follow as
        "covariates"; the last name for R2 is "intercept", the constant.
    members : tuple of tuple of str
        The kernels of each name, on the first fold; none for the intercept.
    kind : {"product", "unique", "shapley"}
    by : {"view", "kernel"}
    scoring : str
        What the score is.
    folds : array of shape (n_folds, n_names)
        Score attributed to each name, on each fold; a single row if samples were held
        out.
    totals : array of shape (n_folds,)
        The score of the whole model, on each fold.
    sizes : tuple of (int or None, int)
        Numbers of training and test samples of each fold.
    outputs : array of shape (n_outputs, n_names), or None
        The product measure of each output (class, for classifiers of more than two),
        mean over folds; None for the other kinds.
    sampling_errors : array of shape (n_names,), or None
        Standard errors due to sampling coalitions; None if all were evaluated.
    """

    names: tuple[str, ...]
    members: tuple[tuple[str, ...], ...] = field(repr=False)
    kind: str
    by: str
    scoring: str
    folds: FloatArray = field(repr=False)
    totals: FloatArray = field(repr=False)
    sizes: tuple[tuple[int | None, int], ...] = field(repr=False)
    outputs: FloatArray | None = field(default=None, repr=False)
    sampling_errors: FloatArray | None = field(default=None, repr=False)

    @property
    def scores(self) -> FloatArray:
        """Score attributed to each name, mean over folds, shape (n_names,)."""
        return self.folds.mean(axis=0)

    @property
    def total(self) -> float:
        """The score of the whole model, mean over folds."""
        return float(self.totals.mean())

    @property
    def rest(self) -> float:
        """What remains of the total: ``total - scores.sum()``.

        For ``kind="product"``, zero up to rounding; for "shapley", the score of a model
        without kernels; for "unique", the part that several names share, positive if
        they are redundant and negative if they are synergistic.
        """
        return self.total - float(self.scores.sum())

    @property
    def standard_errors(self) -> FloatArray:
        """Standard errors of the scores over folds, NaN without folds.

        Corrected for the overlap of training sets, as in
        :meth:`mklearn.model_selection.Comparison.difference`.
        """
        return error_over_folds(self.folds, self._known_sizes())

    @property
    def total_error(self) -> float:
        """Standard error of the total over folds, NaN without folds."""
        return float(error_over_folds(self.totals, self._known_sizes()))

    def _known_sizes(self) -> list[tuple[int, int]]:
        return [(train, test) for train, test in self.sizes if train is not None]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: a row for each name, and one for the rest.

        The column "score" sums to the total. The product measure leaves no rest.
        """
        whole = self.kind == "product"
        columns: dict[str, Any] = {
            "score": [*self.scores, *([] if whole else [self.rest])],
            "standard_error": [*self.standard_errors, *([] if whole else [np.nan])],
        }
        if self.sampling_errors is not None:
            columns["sampling_error"] = [*self.sampling_errors, 0.0]
        names = self.names if whole else (*self.names, "rest")
        frame = by_kernel(names, None, columns)
        return frame.rename_axis(self.by)

    frame = to_frame


def score_by_view(
    model: Any,
    X: Any,
    y: Any,
    kind: str = "product",
    by: str = "view",
    *,
    scoring: Any = None,
    cv: Any = None,
    groups: Any = None,
    n_permutations: int | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> ScoreByView:
    """Attribute a score on held-out samples to views, or to kernels.

    A prediction is a sum ``f = b + sum_m f_m`` over kernels or views. With deviations
    from means over the test samples, the product measure of the part m is ::

        R2:           sum f_m (2 y - f) / sum y^2
        correlation:  sum f_m y / sqrt(sum f^2 sum y^2)

    For R2 there is one more part, "intercept": with the difference d between the means
    of predictions and of targets, it is ``-n d^2 / sum y^2``, the cost of predictions
    that are too high or too low on average. The parts sum to the score. Views with
    the same information share its value according to the sizes of their parts, and a
    part that disagrees with the target is negative. The other kinds fit models on
    subsets of the views: "unique" is the decrease of the score without a view,
    "shapley" its gain when the view is added to others, averaged over all orders.

    Parameters
    ----------
    model : estimator of mklearn
        The model, which is cloned for fits and never modified.
    X, y
        Samples and targets, in the form that the model expects: held-out samples of a
        fitted model for ``kind="product"`` without ``cv``, otherwise the samples to be
        divided into folds.
    kind : {"product", "unique", "shapley"}
    by : {"view", "kernel"}
        Without views, kernels on the same columns are taken together. Covariates
        (``fixed``) have their own part in the product measure, and stay in all models
        of "unique" and "shapley".
    scoring : str or callable, optional
        "r2" (of all regressors by default) or "correlation": of predictions or, for
        classifiers, of decision values with targets of -1 and 1, mean over outputs or
        classes. For "unique" and "shapley" any other scoring of scikit-learn is
        possible. For classifiers the default is "correlation" for the product measure,
        otherwise their own score. Survival models are always scored by "concordance",
        for which there is no product measure.
    cv : int, splitter or iterable of (train, test), optional
        Cross-validation folds; 5 by default if models have to be fitted.
    groups : array of shape (n_samples,), optional
        Group labels, such as subjects, passed on to ``cv.split``. With an integer
        ``cv`` all samples of a group fall into the same fold. A model that
        cross-validates itself gets those of its training samples.
    n_permutations : int, optional
        Number of orders of the views from which Shapley values are sampled, in pairs of
        an order and its reverse. By default all coalitions are evaluated for up to 12
        views, and 50 orders are sampled for more.
    n_jobs : int, optional
        Number of fits in parallel; folds are processed one after the other.
    random_state : int, RandomState or None
        Seed for the orders.

    Returns
    -------
    ScoreByView

    Notes
    -----
    On each fold kernels are computed once, for the models of all coalitions. There are
    ``1 + n_views`` of these for "unique" and ``2^n_views`` for "shapley". A model
    without views predicts the mean, the share of each class, or the same risk for all;
    with covariates, it is their least squares regression. For other losses and for
    classifiers, there are no Shapley values with covariates.

    References
    ----------
    Pratt, J. W. (1987). Dividing the indivisible: using simple symmetry to partition
    variance explained. In *Proceedings of the Second International Tampere Conference
    in Statistics*, 245-260.

    Lipovetsky, S. and Conklin, M. (2001). Analysis of regression in game theory
    approach. *Applied Stochastic Models in Business and Industry* 17, 319-330.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLRegressor, MultiView, kernels
    >>> from mklearn.interpretation import score_by_view
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.standard_normal((3, 150, 4))
    >>> y = a[:, 0] + 0.5 * b[:, 0] + 0.2 * rng.standard_normal(150)
    >>> X = MultiView({"a": a, "b": b, "c": c})
    >>> model = MKLRegressor(kernels.per_view("linear")).fit(X[:100], y[:100])
    >>> found = score_by_view(model, X[100:], y[100:])
    >>> found.names, bool(found.scores[0] > found.scores[1] > found.scores[2])
    (('a', 'b', 'c', 'intercept'), True)
    >>> bool(np.isclose(found.scores.sum(), found.total))
    True
    """
    check_ours(model)
    scorer = ViewScorer(
        model, kind, by, scoring, n_permutations, n_jobs, random_state
    )  # fmt: skip
    X = MultiView(X) if holds_views(X) else X
    y, groups = paired(X, y), paired(X, groups, "groups")
    if _of_times(model):
        y = structured_times(check_times(y, len(y)))
    y = np.asarray(y)
    if kind == "product" and cv is None and hasattr(model, "predictor_"):
        scorer.add(model, None, (X, y))
        return scorer.result()
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if len(y) != n:
        raise ValueError(f"X has {plural(n, 'sample')} and y has {len(y)}.")
    cv = 5 if cv is None else cv
    known, classes = y, is_classifier(model)
    if _of_times(model) and isinstance(cv, Integral):  # each fold has its events
        known, classes = y["event"], min(np.bincount(y["event"], minlength=2)) >= cv
    splitter = check_cv(cv, known, classifier=classes)
    if groups is not None:
        groups, model = check_groups(groups, n), requesting_groups(model)
        if isinstance(cv, Integral):
            splitter = group_folds(int(cv), groups, known, classes)
    passed = groups is not None and takes_groups(model)
    pairwise = get_tags(model).input_tags.pairwise
    with ctrl_c_ends_all():
        for train, test in splitter.split(np.zeros((n, 1)), known, groups):
            rows = _rows_of(X, train, train if pairwise else None)
            new = _rows_of(X, test, train if pairwise else None)
            fold, given = model, {"groups": groups[train]} if passed else {}
            if kind == "product":
                fold = clone(model).fit(rows, y[train], **given)
                stop_if_interrupted(fold)
            scorer.add(fold, (rows, y[train]), (new, y[test]), **given)
    return scorer.result()


class ViewScorer:
    """Scores by view, one fold after the other; :func:`score_by_view` uses it.

    Parameters
    ----------
    model : estimator of mklearn
        An estimator of the kind that is passed to :meth:`add`.
    kind, by, scoring, n_permutations, n_jobs, random_state
        As in :func:`score_by_view`.
    also : sequence of {"unique", "shapley"}
        Further kinds, if ``kind`` is one of these: both are computed from the scores of
        the same models.
    """

    def __init__(
        self,
        model: Any,
        kind: str = "product",
        by: str = "view",
        scoring: Any = None,
        n_permutations: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        also: Sequence[str] = (),
    ) -> None:
        classifier, of_times = is_classifier(model), _of_times(model)
        if not (classifier or is_regressor(model) or of_times):
            raise ValueError(
                "score_by_view needs a classifier or a regressor, or a survival model, "
                "whose predictions can be compared with y, got "
                f"{type(model).__name__}."
            )
        if kind not in _KINDS:
            raise ValueError(f"kind must be one of {_KINDS}, got {kind!r}.")
        if of_times and kind == "product":
            raise ValueError(
                "The product measure divides a sum of squares, and the concordance of "
                f"{type(model).__name__} is not one; use kind='unique' or 'shapley'."
            )
        if of_times and scoring not in (None, _OF_TIMES):
            raise ValueError(
                f"{type(model).__name__} is scored by concordance; omit scoring, got "
                f"{scoring!r}."
            )
        if by not in ("view", "kernel"):
            raise ValueError(f"by must be 'kernel' or 'view', got {by!r}.")
        if n_permutations is not None and n_permutations < 4:
            raise ValueError(
                "n_permutations must be at least 4 (two pairs) to estimate a sampling "
                f"error, got {n_permutations!r}."
            )
        kinds = (kind, *also)
        if also and not set(kinds) <= {"unique", "shapley"}:
            raise ValueError(
                "Only 'unique' and 'shapley' are computed from the same models, got "
                f"{kinds}."
            )
        if "shapley" in kinds and not self.has_start(model):
            raise ValueError(
                "Shapley values start from a model without kernels, which with "
                "covariates (fixed=) is available for regression with the squared loss "
                "only; use kind='unique', or 'product', in which covariates have their "
                "own part."
            )
        if scoring is None:
            scoring = _OF_TIMES if of_times else "r2"
            if classifier:
                scoring = "correlation" if kind == "product" else "accuracy"
        if kind == "product" and scoring not in _MEASURES:
            raise ValueError(
                "The product measure supports 'r2' and 'correlation', got "
                f"scoring={scoring!r}; use kind='unique' or 'shapley' for other scores."
            )
        self._kinds, self._by, self._scoring = kinds, by, scoring
        self._count, self._n_jobs = n_permutations, n_jobs
        self._rng = check_random_state(random_state)
        self._named: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None = None
        self._orders: list[NDArray[np.intp]] = []
        self._folds: dict[str, list[FloatArray]] = {one: [] for one in kinds}
        self._totals: list[float] = []
        self._sizes: list[tuple[int | None, int]] = []
        self._outputs: list[FloatArray] = []
        self._draws: list[FloatArray] = []

    @staticmethod
    def has_start(model: Any) -> bool:
        """Return whether there is a model without kernels, as Shapley values need.

        Parameters
        ----------
        model : estimator
        """
        if model.fixed is None:
            return True
        return is_regressor(model) and getattr(model, "loss", "squared") == "squared"

    def add(
        self, model: Any, train: tuple[Any, Any] | None, test: Any, groups: Any = None
    ) -> None:
        """Score the views on one more fold.

        Parameters
        ----------
        model : estimator
            For the product measure, fitted on ``train``; else it is cloned.
        train : tuple of (X, y), or None
            Training samples of the fold; None if they are neither known nor needed.
        test : tuple of (X, y)
            Samples to be scored on.
        groups : array, optional
            Groups of the training samples, if ``fit`` of the model takes them.
        """
        X, y = test[0], np.asarray(test[1])
        if "product" in self._kinds:
            scores, total = self._product(model, X, y)
        else:
            assert train is not None
            known = train[0], np.asarray(train[1])
            scores, total = self._refitted(model, *known, X, y, groups)
        for kind, values in scores.items():
            self._folds[kind].append(values)
        self._totals.append(total)
        self._sizes.append((None if train is None else len(train[1]), len(y)))

    def result(self, kind: str | None = None) -> ScoreByView:
        """Return the scores of all folds so far.

        Parameters
        ----------
        kind : {"unique", "shapley"}, optional
            One of the kinds asked for, the first by default.
        """
        if self._named is None:
            raise ValueError("cv must yield at least one fold.")
        kind, errors = kind or self._kinds[0], None
        if kind == "shapley" and self._draws:
            draws = np.mean(self._draws, axis=0)  # one row for each pair of orders
            errors = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
        names, members = self._named
        if (kind, self._scoring) == ("product", "r2"):
            names, members = (*names, "intercept"), (*members, ())
        return ScoreByView(
            names,
            members,
            kind,
            self._by,
            self._scoring if isinstance(self._scoring, str) else "score",
            np.stack(self._folds[kind]),
            np.asarray(self._totals),
            tuple(self._sizes),
            np.mean(self._outputs, axis=0) if self._outputs else None,
            errors,
        )

    def _grouped(
        self, names: tuple[str, ...], kernels: tuple[Any, ...]
    ) -> list[list[int]]:
        """Return the kernels of each view; all folds must have the same views.

        A search may leave out kernels of a view on some folds.
        """
        groups = kernel_groups(names, kernels, self._by)
        members = tuple(tuple(names[m] for m in group) for group in groups.values())
        if self._named is None:
            self._named = tuple(groups), members
        elif len(groups) != len(self._named[0]) or (
            self._by == "view" and tuple(groups) != self._named[0]
        ):
            raise ValueError(
                "Folds have different kernels, so their scores cannot be averaged; "
                "give the kernels by name instead of kernels='auto'."
            )
        return list(groups.values())

    def _product(
        self, model: Any, X: Any, y: NDArray[Any]
    ) -> tuple[dict[str, FloatArray], float]:
        parts, bias = parts_of(model, X)
        names, kernels = model.kernel_names_, model.kernels_
        if model.predictor_.effects is not None:  # one more part of predictions
            known = model.predictor_.of_covariates(model.checked(X))
            parts = np.concatenate([parts, known[:, :, None]], axis=2)
            names, kernels = (*names, "covariates"), (*kernels, None)
        groups = self._grouped(names, kernels)
        sums = np.stack([parts[:, :, g].sum(axis=2) for g in groups], axis=2)
        scores, totals = _divided(sums, bias, _as_targets(model, y), self._scoring)
        self._outputs.append(scores)
        return {"product": scores.mean(axis=0)}, float(totals.mean())

    def _refitted(
        self,
        model: Any,
        X: Any,
        y: NDArray[Any],
        X_test: Any,
        y_test: NDArray[Any],
        of_train: Any,
    ) -> tuple[dict[str, FloatArray], float]:
        subsets = Subsets.of(model, X, y, X_test, of_train)
        groups = self._grouped(subsets.names, subsets.kernels)
        V = len(groups)
        every = (1 << V) - 1
        masks = {every}
        if "unique" in self._kinds:
            masks |= {every ^ (1 << v) for v in range(V)}
        sampled = self._count is not None or V > _EXACT
        if "shapley" in self._kinds and sampled:
            if not self._orders:
                pairs = -(-(self._count or _PERMUTATIONS) // 2)
                self._orders = [self._rng.permutation(V) for _ in range(pairs)]
            ways = [way for o in self._orders for way in (o, o[::-1])]
            masks |= {mask for way in ways for mask in _way(way)}
        elif "shapley" in self._kinds:
            masks |= set(range(every))
        which = {
            mask: [m for v in range(V) if mask >> v & 1 for m in groups[v]]
            for mask in sorted(masks)
        }
        found = Parallel(n_jobs=self._n_jobs, mmap_mode="c")(
            delayed(_value)(model, subsets, np.array(one), y, y_test, self._scoring)
            for one in which.values()
        )
        value = dict(zip(which, found, strict=True))
        total = value[every]
        if not np.isfinite(found).all():
            raise ValueError(
                "The score is not defined on the test samples of a fold, such as R2 of "
                "one sample; use fewer folds, or another scoring."
            )
        scores = {}
        if "unique" in self._kinds:
            lost = [total - value[every ^ (1 << v)] for v in range(V)]
            scores["unique"] = np.array(lost)
        if "shapley" in self._kinds and sampled:
            draws = np.array(
                [
                    (_gains(value, order) + _gains(value, order[::-1])) / 2
                    for order in self._orders
                ]
            )
            self._draws.append(draws)
            scores["shapley"] = draws.mean(axis=0)
        elif "shapley" in self._kinds:
            scores["shapley"] = _shapley(value, V)
        return scores, total


def _rows_of(X: Any, rows: NDArray[np.intp], cols: NDArray[np.intp] | None) -> Any:
    if cols is not None:
        return X[np.ix_(rows, cols)]
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _as_targets(model: Any, y: NDArray[Any]) -> FloatArray:
    """Return what scores of a model are compared with, shape (n, T)."""
    if not is_classifier(model):
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    if y.ndim == 2:
        return 2.0 * y - 1.0
    classes = np.asarray(model.classes_)
    strange = np.setdiff1d(y, classes)
    if len(strange):
        raise ValueError(
            f"y has the classes {strange.tolist()}, which do not occur in the model."
        )
    return one_vs_rest(np.searchsorted(classes, y), len(classes))


def _divided(
    parts: FloatArray, bias: FloatArray, Y: FloatArray, measure: str
) -> tuple[FloatArray, FloatArray]:
    """Return the product measure of parts (n, T, V), and scores (T,).

    The measure has shape (T, V), and for R2 (T, V + 1), with the constant at the end.
    """
    deviations = Y - Y.mean(axis=0)
    size = np.sum(deviations**2, axis=0)
    if not (size > 0).all():
        raise ValueError(
            "y is constant on the samples to be scored, so neither R2 nor a "
            "correlation is defined; use other folds, or leave out that output."
        )
    centred = parts - parts.mean(axis=0)
    f = centred.sum(axis=2)
    if measure == "r2":
        shares = np.einsum("itv,it->tv", centred, 2.0 * deviations - f)
        off = Y.mean(axis=0) - bias - parts.sum(axis=2).mean(axis=0)
        shares = np.column_stack([shares, -len(Y) * off**2])
        missed = np.sum((Y - bias - parts.sum(axis=2)) ** 2, axis=0)
        return shares / size[:, None], 1.0 - missed / size
    norm = np.sqrt(size * np.sum(f**2, axis=0))
    norm = np.where(norm > 0, norm, 1.0)  # constant predictions have parts of zero
    shares = np.einsum("itv,it->tv", centred, deviations) / norm[:, None]
    return shares, np.sum(f * deviations, axis=0) / norm


def _value(
    model: Any,
    subsets: Subsets,
    which: NDArray[np.intp],
    y: NDArray[Any],
    y_test: NDArray[Any],
    scoring: Any,
) -> float:
    """Return the score of a model of some kernels.

    Without kernels, it is that of a constant, or of a regression on covariates.
    """
    if scoring == _OF_TIMES:
        return _concordance(subsets, which, y_test)
    measured = isinstance(scoring, str) and scoring in _MEASURES
    if not len(which) and model.fixed is not None:
        linear, known = subsets.on_covariates()
        if not measured:
            return float(check_scoring(linear, scoring=scoring)(linear, known, y_test))
        Y_test = _as_targets(model, y_test)
        parts = linear.predict(known).reshape(*Y_test.shape, 1)
        return float(_divided(parts, np.zeros(1), Y_test, scoring)[1].mean())
    if not len(which):
        # without kernels there is nothing to look at in a sample
        known, new = np.zeros((len(y), 1)), np.zeros((len(y_test), 1))
        kind = DummyClassifier if is_classifier(model) else DummyRegressor
        constant = kind(strategy="prior" if is_classifier(model) else "mean")
        constant.fit(known, y)
        if not measured:
            return float(
                check_scoring(constant, scoring=scoring)(constant, new, y_test)
            )
        Y, Y_test = _as_targets(constant, y), _as_targets(constant, y_test)
        parts = np.zeros((*Y_test.shape, 1))
        return float(_divided(parts, Y.mean(axis=0), Y_test, scoring)[1].mean())
    try:
        fitted, X_test = subsets.fitted(which)
    except NothingToLearnError:  # constant kernels add nothing to those of others
        if len(which) == len(subsets.names):
            raise
        return _value(model, subsets, which[:0], y, y_test, scoring)
    if measured and (scoring == "correlation" or is_classifier(model)):
        parts, bias = parts_of(fitted, X_test)
        whole = parts.sum(axis=2, keepdims=True)
        return float(
            _divided(whole, bias, _as_targets(fitted, y_test), scoring)[1].mean()
        )
    return float(check_scoring(fitted, scoring=scoring)(fitted, X_test, y_test))


def _of_times(model: Any) -> bool:
    """Return whether an estimator predicts risks from times to an event."""
    return isinstance(model, (MKLCox, MKLSurvivalSVM))


def _concordance(
    subsets: Subsets, which: NDArray[np.intp], y_test: NDArray[Any]
) -> float:
    """Return the concordance of a model of some kernels; of none, all risks are equal.

    Raise ValueError if no pair of the test samples is comparable.
    """
    risk = np.zeros(len(y_test))
    if len(which):
        try:
            fitted, X_test = subsets.fitted(which)
            risk = fitted.predict(X_test)
        except NothingToLearnError:  # as without kernels
            if len(which) == len(subsets.names):
                raise
    found = concordance_index(y_test, risk)
    if np.isnan(found):
        raise ValueError(
            "The test part of a fold has no event that other samples outlive, so there "
            "is no concordance; use fewer folds."
        )
    return found


def _way(order: NDArray[np.intp]) -> list[int]:
    """Return the coalitions from none to all, as masks, in which views come."""
    masks = [0]
    for v in order.tolist():
        masks.append(masks[-1] | 1 << v)
    return masks


def _gains(value: dict[int, float], order: NDArray[np.intp]) -> FloatArray:
    """Return what each view adds to those before it."""
    gained = np.diff([value[mask] for mask in _way(order)])
    found = np.empty(len(order))
    found[order] = gained
    return found


def _shapley(value: dict[int, float], V: int) -> FloatArray:
    """Return the mean gain of each view over all orders."""
    found = np.zeros(V)
    weight = [1.0 / (V * comb(V - 1, size)) for size in range(V)]
    for mask, score in value.items():
        size = mask.bit_count()
        for v in range(V):
            if mask >> v & 1:
                found[v] += weight[size - 1] * score
            else:
                found[v] -= weight[size] * score
    return found
