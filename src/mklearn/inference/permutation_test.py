"""Permutation tests of any model, which keep covariates and subjects."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import cross_validate
from sklearn.utils import check_random_state

from mklearn.data.checks import check_given, check_times, structured_times
from mklearn.data.clock import Clock
from mklearn.data.covariates import Covariates
from mklearn.data.frames import pandas_for
from mklearn.data.labels import is_missing
from mklearn.data.spelling import plural
from mklearn.data.subjects import (
    check_groups,
    folds_from,
    warn_of_subjects,
    warned_of_subjects,
)
from mklearn.data.threads import one_blas_thread
from mklearn.data.views import MultiView, holds_views, paired
from mklearn.estimators._base import BaseKernelMachine
from mklearn.estimators._folds import computed_once, stop_if_interrupted
from mklearn.fitted import kernel_groups
from mklearn.inference.event_times import are_times, strata_of
from mklearn.inference.kernel_tests import are_names, check_left, split_named
from mklearn.inference.nulls import logistic, separated
from mklearn.inference.permutations import (
    Exchange,
    adjusted_p_values,
    check_count,
    permutation_p_values,
    smallest_p_value,
)
from mklearn.model_selection import ctrl_c_ends_all, requesting_groups, takes_groups

FloatArray = NDArray[np.float64]
Statistic = str | Callable[[Any], Any]

_OF_KERNELS = {
    "weights": "kernel_weights_",
    "contributions": "kernel_contributions_",
}
_CHUNK = 1.0  # seconds of work that a process gets at a time


@dataclass(frozen=True)
class PermutationTest:
    """A statistic of a model, compared with those of permuted targets.

    Attributes
    ----------
    names : tuple of str
        What the statistics are: "score", or the kernels or views.
    statistic : array of shape (n_names,)
        For the targets given.
    permuted : array of shape (n_names, n_permutations)
        For permuted targets.
    p_values : array of shape (n_names,)
        ``(1 + #{permuted >= statistic}) / (1 + n_permutations)``.
    resolution : float
        The smallest possible p-value: ``1 / (n_permutations + 1)``, or one divided by
        the number of different arrangements of the target if there are fewer.
    error : array of shape (n_names,)
        Standard error of the p-values, from the number of permutations.
    joint : array of shape (n_names,)
        The share of permutations in which any statistic is at least as large (the
        family-wise p-values of Westfall and Young).
    covariates, dropped : tuple of str
        Columns of the design besides the intercept, and those dropped as collinear.
    """

    names: tuple[str, ...]
    statistic: FloatArray
    permuted: FloatArray = field(repr=False)
    p_values: FloatArray
    resolution: float
    error: FloatArray
    joint: FloatArray = field(repr=False)
    covariates: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def n_permutations(self) -> int:
        """Number of permutations, fewer than asked for if the test ended early."""
        return self.permuted.shape[1]

    def adjusted(self, control: str = "joint") -> FloatArray:
        """Return p-values adjusted for the number of statistics.

        Parameters
        ----------
        control : {"joint", "holm", "bonferroni", "bh", "by"}
            As in :meth:`KernelTests.adjusted`.
        """
        return adjusted_p_values(self.p_values, control, self.joint)

    def frame(self, control: str = "joint") -> Any:
        """Return a pandas DataFrame with a row for each statistic.

        Parameters
        ----------
        control : as in :meth:`adjusted`
        """
        pd = pandas_for("frame()", "read names, statistic and p_values")
        by_chance = [float(np.mean(one)) if len(one) else None for one in self.permuted]
        return pd.DataFrame(
            {
                "name": list(self.names),
                "statistic": self.statistic,
                "by chance": by_chance,
                "p": self.p_values,
                "error": self.error,
                f"p ({control})": self.adjusted(control),
            }
        )


def permutation_test(
    model: Any,
    X: Any,
    y: Any,
    *,
    statistic: Statistic = "score",
    by: str = "kernel",
    fixed: Any = None,
    groups: Any = None,
    strata: Any = None,
    scoring: Any = None,
    cv: Any = 5,
    n_permutations: int = 999,
    random_state: Any = 0,
    n_jobs: int | None = None,
    time_limit: float | None = None,
    callback: Callable[[int, int], Any] | None = None,
) -> PermutationTest:
    """Test by permutations whether a model does better than by chance.

    The target is permuted in a way that keeps its relation to covariates, and within or
    between subjects; the model is fitted again to each permuted target, and a statistic
    of it is compared with that for the target given. Large values of the statistic
    speak against the null hypothesis that, given the covariates, the target is not
    associated with the samples.

    Parameters
    ----------
    model : estimator
        Any model with ``fit`` and ``predict``, also a pipeline or a search, which is
        cloned and never modified.
    X, y
        Samples and targets, in the form that the model expects.
    statistic : {"score", "contributions", "weights"} or callable
        "score" is the mean score over cross-validation folds. "contributions" and
        "weights" are those of each kernel in a fit to all samples, with a p-value for
        each. A function is called with the model fitted to all samples and returns a
        number or an array. It can test what it likes, but kernels are computed anew for
        each fit, because it may need the samples.
    by : {"kernel", "view"}
        With "view", contributions or weights are summed over the kernels of a view.
    fixed : names or indices, array of shape (n, k), or DataFrame, optional
        Covariates, given as in :func:`kernel_tests`. By default those of the model (its
        own ``fixed``); ``()`` stands for none. The samples are not changed: whether the
        model sees covariates, and how, is up to the model.
    groups : array of shape (n_samples,), optional
        Subject of each sample. If y is constant within subjects, subjects of equal size
        are exchanged as a whole; otherwise samples are permuted within subjects. With
        an integer ``cv`` all samples of a subject fall into the same fold, and models
        whose ``fit`` takes groups get them.
    strata : array of shape (n_samples,), optional
        Samples are exchanged only within their strata, such as sites, which may differ
        in the mean of the target; they need not be covariates in addition.
    scoring : str or callable, optional
        As in ``cross_validate``; the score of the model by default.
    cv : int, splitter or iterable of (train, test)
        Cross-validation folds. A splitter that shuffles needs a ``random_state``.
    n_permutations : int
    random_state : int, RandomState or None
        Seed for the permutations.
    n_jobs : int, optional
        Number of permutations in parallel, which does not change the result.
    time_limit : float, optional
        Limit in seconds. After that, or after Ctrl-C, the result is based on the
        permutations so far, with a warning.
    callback : callable, optional
        Called with the number of permutations that are finished, and with that asked
        for; it may return True to stop.

    Returns
    -------
    PermutationTest

    Notes
    -----
    What is permuted depends on the target:

    - *Numbers.* Without covariates the numbers themselves, otherwise the residuals of
      their regression on the covariates, to which the fitted values are added again
      (Freedman and Lane). As in :func:`kernel_tests`, what covariates explain of the
      permuted residuals is removed. The residuals are assumed to be exchangeable.
      Where samples are exchanged within subjects or strata, each of these has its own
      intercept in the regression, and so do subjects of a size that are exchanged as a
      whole.
    - *Classes.* Without covariates the labels. With covariates, an arrangement of the
      labels is drawn with a probability proportional to the product of the
      probabilities of the labels given the covariates (the conditional permutation test
      of Berrett et al.), so that arrangements differ in the labels of those samples
      whose covariates are similar. The labels are assumed to follow a (multinomial)
      logistic model given the covariates, which is fitted to them. Where samples are
      exchanged within subjects or strata, each of these has its own intercepts, and the
      model is fitted to pairs of its samples (a composite conditional likelihood). Of
      subjects that are exchanged as a whole, the mean covariates count, and those of
      different sizes have different intercepts.
    - *Times to an event.* Pairs of time and event, which assumes that censoring is not
      associated with the samples either. There are no covariates; use ``strata`` for
      categories, or :func:`kernel_tests`.

    Stratified folds are those of the permuted labels, because the same rule must lead
    to all statistics. For ``statistic="score"``, "contributions" and "weights", kernels
    of models of mklearn do not depend on the target and are computed only once;
    parameters that depend on the samples, such as widths, are then determined on all
    samples, as in searches (which, as models, compute their kernels themselves).

    The model of the labels is fitted to the labels that are tested, so that p-values of
    classes are too large rather than too small if samples are strongly associated with
    covariates; a model that sees the covariates loses less power.

    Contributions are shares of one model, which sum to one: of two kernels with the
    same information neither may be larger than by chance, while the score is.

    References
    ----------
    Ojala, M. and Garriga, G. C. (2010). Permutation tests for studying classifier
    performance. *Journal of Machine Learning Research* 11, 1833-1863.

    Freedman, D. and Lane, D. (1983). A nonstochastic interpretation of reported
    significance levels. *Journal of Business and Economic Statistics* 1, 292-298.

    Berrett, T. B., Wang, Y., Barber, R. F. and Samworth, R. J. (2020). The conditional
    permutation test for independence while controlling for confounders. *Journal of the
    Royal Statistical Society B* 82, 175-197.

    Winkler, A. M., Ridgway, G. R., Webster, M. A., Smith, S. M. and Nichols, T. E.
    (2014). Permutation inference for the general linear model. *NeuroImage* 92,
    381-397.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn import MKLClassifier, MKLRegressor, kernels
    >>> from mklearn.inference import permutation_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 3))
    >>> y = X[:, 0] + 0.5 * rng.standard_normal(60)
    >>> model = MKLClassifier(kernels.per_feature("linear"))
    >>> found = permutation_test(model, X, y > 0, n_permutations=19)
    >>> found.names, found.p_values.tolist(), found.resolution
    (('score',), [0.05], 0.05)
    >>> model = MKLRegressor(kernels.per_feature("rbf"))
    >>> found = permutation_test(
    ...     model, X, y, statistic="contributions", n_permutations=19
    ... )
    >>> (found.p_values < 0.1).tolist()
    [True, False, False]
    """
    count = check_count(n_permutations)
    rng = check_random_state(random_state)
    if not hasattr(model, "fit") or not hasattr(model, "get_params"):
        raise ValueError(
            "model must be an estimator with fit and get_params, got "
            f"{type(model).__name__}; give an instance, such as MKLClassifier()."
        )
    if isinstance(model, type):
        raise ValueError(
            f"model must be an instance, got the class {model.__name__}; give "
            f"{model.__name__}()."
        )
    clock = Clock.start(_check_limit(time_limit))
    given = _Given.of(model, X, y, groups, strata)
    covariates, target, possible, orders = given.permutations(fixed, count, rng)
    job = _Job.of(given, statistic, by, scoring, cv)
    with ctrl_c_ends_all():
        began = time.perf_counter()
        names, observed = job.first(given.y)
        took = time.perf_counter() - began
    permuted = _permuted(
        job, target, orders, len(observed), took, n_jobs, clock, callback
    )
    resolution = smallest_p_value(permuted.shape[1], possible)
    p, error, joint = permutation_p_values(observed, permuted, resolution)
    return PermutationTest(
        names, observed, permuted, p, resolution, error, joint, covariates.names,
        covariates.dropped,
    )  # fmt: skip


def _check_limit(limit: Any) -> float | None:
    """Return a time limit in seconds that may be zero, or None."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, Real) or not limit >= 0:
        raise ValueError(
            f"time_limit must be a number of seconds of at least 0, got {limit!r}."
        )
    return float(limit)


@dataclass(frozen=True)
class _Targets:
    """Targets of permutations.

    Attributes
    ----------
    y : array of shape (n, ...)
        What is permuted: targets, or residuals.
    mean : array of shape (n, ...) or None
        What covariates explain, which is added to permuted residuals.
    basis : array of shape (n, r) or None
        Orthonormal columns of covariates, whose mean is zero wherever permutations
        keep the mean of the residuals.
    """

    y: NDArray[Any]
    mean: FloatArray | None = None
    basis: FloatArray | None = None

    @classmethod
    def of_residuals(cls, y: FloatArray, Z: FloatArray, exchange: Exchange) -> _Targets:
        """Return targets with permuted residuals of a regression on Z.

        Strata, or subjects whose samples are exchanged, have their own intercepts.
        """
        basis = exchange.slopes(Z)
        left = exchange.centred(y.reshape(len(y), -1)).reshape(y.shape)
        left = left - basis @ (basis.T @ left)
        return cls(left, y - left, basis)

    def at(self, order: NDArray[np.intp]) -> NDArray[Any]:
        """Return the target of a permutation.

        What covariates explain of permuted residuals is removed again, and they have
        the size of the original ones, so that the regression on covariates is the same.
        """
        found = self.y[order]
        if self.mean is None or self.basis is None:
            return found
        found = found - self.basis @ (self.basis.T @ found)
        size = np.sum(found**2, axis=0)
        size = np.sqrt(np.sum(self.y**2, axis=0) / np.where(size > 0, size, 1.0))
        return self.mean + size * found


@dataclass(frozen=True)
class _Given:
    """A model, samples and targets, with subjects and strata, checked.

    ``kind`` is "labels", "numbers" or "times", and ``Y`` are numbers that are equal if
    and only if targets are, of shape (n, T).
    """

    model: Any
    X: Any
    y: NDArray[Any]
    Y: FloatArray
    kind: str
    groups: NDArray[np.intp] | None
    strata: NDArray[np.intp] | None

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, groups: Any, strata: Any) -> _Given:
        X = MultiView(X) if holds_views(X) else X
        n = _size(X)
        y, groups = paired(X, check_given(y)), paired(X, groups, "groups")
        strata = paired(X, strata, "strata")
        strata = None if strata is None else strata_of(strata, n)
        groups = None if groups is None else check_groups(groups, n)
        untyped = not is_classifier(model) and not is_regressor(model)
        if untyped and are_times(y):
            times = check_times(y, n)
            y = structured_times(times, strata=bool(np.ptp(times[:, 2])))
            if strata is None:
                strata = times[:, 2].astype(np.intp)
            elif np.ptp(times[:, 2]):
                strata = strata_of(
                    [f"{a} {b}" for a, b in zip(strata, times[:, 2], strict=True)], n
                )
            return cls(model, X, y, times[:, :2], "times", groups, strata)
        y = np.asarray(y)
        if y.ndim not in (1, 2) or len(y) != n:
            raise ValueError(
                f"y must have a value for each of {plural(n, 'sample')}, got shape "
                f"{y.shape}."
            )
        if is_regressor(model) and y.dtype.kind == "O":
            y = _numbers(y)
        if is_classifier(model) or y.dtype.kind not in "iufb":
            _check_labels(y)
            columns = y.reshape(n, -1).T
            codes = [np.unique(column, return_inverse=True)[1] for column in columns]
            return cls(model, X, y, np.array(codes).T, "labels", groups, strata)
        Y = y.reshape(n, -1).astype(np.float64)
        if not np.isfinite(Y).all():
            raise ValueError(
                "y has missing or infinite values; leave out these samples."
            )
        return cls(model, X, y, Y, "numbers", groups, strata)

    def permutations(
        self, fixed: Any, count: int, rng: Any
    ) -> tuple[Covariates, _Targets, float, NDArray[np.intp]]:
        """Return covariates, what is permuted, in how many ways, and permutations."""
        n, Y = len(self.y), self.Y
        if (Y == Y[:1]).all():
            raise ValueError("y has only one value, so there is nothing to explain.")
        table = self._table(fixed)
        covariates = Covariates.fit(table, n)
        Z = covariates.design(table, n)
        exchange = Exchange.of(n, Y, self.groups, self.strata)
        if Z.shape[1] == 1:
            exchange.check_changes(Y)
        kinds = np.unique(Y, axis=0, return_inverse=True)[1].reshape(-1)
        possible = exchange.possible(kinds)
        whole = exchange.members is not None and Z.shape[1] > 1
        if possible < 1.5 and (self.kind == "labels" or not whole):
            raise ValueError(
                "No permutation within subjects or strata changes y, because it has "
                "only one value in each of them; leave out strata=, or use larger ones."
            )
        targets = _Targets(self.y)
        if Z.shape[1] == 1:
            return covariates, targets, possible, exchange.drawn(count, rng)
        if self.kind == "times":
            raise ValueError(
                "Times to an event cannot be permuted given covariates, got "
                f"{plural(Z.shape[1] - 1, 'covariate')} "
                f"({', '.join(covariates.names[:3])}). Use kernel_tests, whose tests "
                "of times take covariates; or strata= with categories within which "
                "samples are exchanged, and fixed=()."
            )
        if self.kind == "numbers":
            check_left(exchange.centred(Y), exchange.slopes(Z))
            targets = _Targets.of_residuals(self.y.astype(np.float64), Z, exchange)
            return covariates, targets, exchange.possible(), exchange.drawn(count, rng)
        if Y.shape[1] > 1:
            raise ValueError(
                "With covariates y must have one label for each sample, got shape "
                f"{self.y.shape}; test the columns of y one by one."
            )
        units = exchange.of_units(Z)
        labels = exchange.of_units(Y)[:, 0].astype(np.intp)
        chances = _chances(units, labels, exchange)
        orders = exchange.drawn_given(chances, labels, count, rng)
        return covariates, targets, possible, orders

    def _table(self, fixed: Any) -> Any:
        """Return the covariates; those of the model by default."""
        model, X = self.model, self.X
        if fixed is None:
            params = model.get_params()
            fixed = params.get("fixed")
            fixed = fixed.tolist() if isinstance(fixed, np.ndarray) else fixed
            within = [
                name
                for name, value in params.items()
                if name.endswith("__fixed") and value is not None
            ]
            if fixed is None and within:
                raise ValueError(
                    f"{type(model).__name__} has a model with covariates "
                    f"({within[0]}). Give them as fixed=, by name or as a table, or "
                    "pass fixed=() for a test without covariates."
                )
        if fixed is None or (isinstance(fixed, (list, tuple)) and not len(fixed)):
            return None
        if not are_names(fixed, len(self.y)):
            return paired(X, fixed, "fixed")
        return split_named(X, fixed, _precomputed(model))[1].table


def _chances(Z: FloatArray, labels: NDArray[np.intp], exchange: Exchange) -> FloatArray:
    """Return log probabilities of labels, up to constants of units and of sets.

    Parameters
    ----------
    Z : array of shape (n_units, q)
        Ones and covariates.
    labels : array of int of shape (n_units,)
    exchange : Exchange
    """
    K = int(labels.max()) + 1
    if exchange.parts is not None:
        odds = exchange.odds_within(Z[:, 1:], labels)
        if odds is None:
            raise separated(K)
        return odds
    others = logistic((labels[:, None] == np.arange(1, K)).astype(float), Z)
    chances = np.column_stack([1.0 - others.sum(axis=1), others])
    return np.log(np.maximum(chances, np.finfo(float).tiny))


def _precomputed(model: Any) -> bool:
    kernels = model.get_params(deep=False).get("kernels")
    return isinstance(kernels, str) and kernels == "precomputed"


def _size(X: Any) -> int:
    """Return the number of samples."""
    if not hasattr(X, "shape") and not hasattr(X, "__len__"):
        raise ValueError(f"X must contain samples, got {type(X).__name__}.")
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _check_labels(y: NDArray[Any]) -> None:
    """Raise ValueError if labels are missing."""
    missing = [
        i for i, row in enumerate(y.reshape(len(y), -1)) if any(map(is_missing, row))
    ]
    if missing:
        raise ValueError(
            f"The label of {plural(len(missing), 'sample')} is missing, first in row "
            f"{missing[0]}; leave out these samples."
        )


def _numbers(y: NDArray[Any]) -> FloatArray:
    """Return numbers that are stored as objects, with NaN for missing ones."""
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "The model is a regressor, but y contains something other than numbers."
        ) from None


@dataclass(frozen=True)
class _Job:
    """Computes the statistic for one target after another.

    Attributes
    ----------
    model, X : the model that is fitted, and its input
    groups : array or None
    statistic : str or callable
    by : {"kernel", "view"}
    kernels : tuple or None
        Specifications of the kernels, if they were computed in advance.
    scoring : as in :func:`permutation_test`
    splitter : cross-validation splitter, or None
    """

    model: Any
    X: Any
    groups: NDArray[np.intp] | None
    statistic: Statistic
    by: str
    kernels: tuple[Any, ...] | None
    scoring: Any
    splitter: Any

    @classmethod
    def of(
        cls, given: _Given, statistic: Statistic, by: str, scoring: Any, cv: Any
    ) -> _Job:
        """Check the statistic, and compute kernels that all fits share."""
        model, X, y, groups = given.model, given.X, given.y, given.groups
        if by not in ("kernel", "view"):
            raise ValueError(f"by must be 'kernel' or 'view', got {by!r}.")
        if isinstance(statistic, str):
            known = ("score", *_OF_KERNELS)
            if statistic not in known:
                raise ValueError(
                    f"statistic must be a function or one of {known}, got "
                    f"{statistic!r}."
                )
        elif not callable(statistic):
            raise ValueError(
                "statistic must be a name or a function of a fitted model, got "
                f"{type(statistic).__name__}."
            )
        splitter = None
        if statistic == "score":
            if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
                raise ValueError(
                    "scoring must be the name of one score or a function, got "
                    f"{scoring!r}."
                )
            check_scoring(model, scoring=scoring)
            warn_of_subjects(X, y, groups, cv)
            splitter = _splitter(given, cv)
            if not list(_splits(splitter, y, groups)):
                raise ValueError(f"cv must yield at least one fold, got {cv!r}.")
        elif scoring is not None:
            raise ValueError(
                f"scoring= is for statistic='score', got scoring={scoring!r} and "
                f"statistic={statistic!r}."
            )
        if groups is not None:
            model = requesting_groups(model)
        kernels = None
        if isinstance(statistic, str) and _shares_kernels(model):
            model, X = computed_once(model, X, y)
            kernels = X.kernels
        return cls(model, X, groups, statistic, by, kernels, scoring, splitter)

    def first(self, y: NDArray[Any]) -> tuple[tuple[str, ...], FloatArray]:
        """Return the names of the statistics, and their values for a target."""
        names, values = self._value(y)
        self._check(values, "y")
        return names, values

    @one_blas_thread
    def values(self, targets: list[NDArray[Any]]) -> list[FloatArray]:
        """Return the statistics for some targets."""
        return [self._value(y)[1] for y in targets]

    @staticmethod
    def _check(values: FloatArray, of: str, size: int | None = None) -> None:
        """Raise ValueError unless statistics are numbers, and as many as before."""
        if not values.size or values.ndim > 1:
            raise ValueError(
                "statistic must return a number or an array of one dimension, got "
                f"shape {values.shape}."
            )
        if size is not None and len(values) != size:
            raise ValueError(
                f"statistic returned {plural(size, 'value')} for y, but {len(values)} "
                f"for {of}; return as many for each model, such as one for each kernel."
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"The statistic is {values[~np.isfinite(values)][0]} for {of}, so that "
                "no p-value follows. If it is a score, there may be too few test "
                "samples for it: use fewer folds, or another scoring."
            )

    def _value(self, y: NDArray[Any]) -> tuple[tuple[str, ...], FloatArray]:
        given: dict[str, Any] = {}
        if self.groups is not None and takes_groups(self.model):
            given = {"groups": self.groups}
        with warned_of_subjects():
            if self.splitter is not None:
                return ("score",), np.array([self._score(y, given)])
            fitted = clone(self.model).fit(self.X, y, **given)
        machine = _machine(fitted)
        stop_if_interrupted(machine)
        if not isinstance(self.statistic, str):
            values = _as_numbers(self.statistic(fitted))
            return _names_of(values, machine), np.atleast_1d(values)
        return self._of_kernels(machine)

    def _score(self, y: NDArray[Any], given: dict[str, Any]) -> float:
        """Return the mean score over folds."""
        result = cross_validate(
            self.model,
            self.X,
            y,
            cv=list(_splits(self.splitter, y, self.groups)),
            scoring=self.scoring,
            return_estimator=True,
            error_score="raise",
            **({"params": given} if given else {}),
        )
        for fitted in result["estimator"]:
            stop_if_interrupted(_machine(fitted))
        if "test_score" not in result:
            raise ValueError("scoring must return one number, got a mapping.")
        return float(np.mean(result["test_score"]))

    def _of_kernels(self, machine: Any) -> tuple[tuple[str, ...], FloatArray]:
        """Return the weights or contributions of kernels or views."""
        found = getattr(machine, _OF_KERNELS[str(self.statistic)], None)
        if found is None:
            raise ValueError(
                f"statistic={self.statistic!r} needs a model of mklearn with kernel "
                f"weights, got {type(machine).__name__}; use 'score', or a function of "
                "the fitted model."
            )
        names = machine.kernel_names_
        kernels = machine.kernels_ if self.kernels is None else self.kernels
        parts = kernel_groups(names, kernels, self.by)
        sums = np.stack([found[..., g].sum(axis=-1) for g in parts.values()], axis=-1)
        if sums.ndim == 1:
            return tuple(parts), sums
        rows = getattr(machine, "classes_", np.arange(len(sums)))
        return tuple(f"{row}: {part}" for row in rows for part in parts), sums.ravel()


def _shares_kernels(model: Any) -> bool:
    """Return whether the kernels of all fits can be computed in advance.

    Searches compute them once for many fits anyway, and put the rows of a table into an
    order of their own before they divide them into folds.
    """
    if not isinstance(model, BaseKernelMachine) or hasattr(model, "cv"):
        return False
    return model.approximation is None and not _precomputed(model)


def _machine(fitted: Any) -> Any:
    """Return the model within searches, pipelines and transformed targets."""
    while True:
        if hasattr(fitted, "named_steps"):
            fitted = fitted[-1]
        elif hasattr(fitted, "best_estimator_"):
            fitted = fitted.best_estimator_
        elif isinstance(fitted, TransformedTargetRegressor):
            fitted = fitted.regressor_
        else:
            return fitted


def _as_numbers(found: Any) -> FloatArray:
    """Return what a function of the fitted model returned as an array."""
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "statistic must return a number or an array of numbers, got "
            f"{type(found).__name__}."
        ) from None


def _names_of(values: NDArray[Any], machine: Any) -> tuple[str, ...]:
    """Return names of what a function returned: kernels, if there are as many."""
    if values.ndim == 0:
        return ("statistic",)
    kernels = getattr(machine, "kernel_names_", ())
    if len(kernels) == len(values):
        return tuple(kernels)
    return tuple(f"statistic {k}" for k in range(len(values)))


def _known(y: NDArray[Any]) -> NDArray[Any]:
    """Return what folds are stratified by: labels, or events."""
    return y["event"] if y.dtype.names else y


def _splits(splitter: Any, y: NDArray[Any], groups: Any) -> Any:
    """Yield the training and test rows of each fold."""
    return splitter.split(np.zeros((len(y), 1)), _known(y), groups)


def _splitter(given: _Given, cv: Any) -> Any:
    """Return the splitter that ``cv`` stands for."""
    known, classes = _known(given.y), is_classifier(given.model)
    if given.kind == "times" and isinstance(cv, Integral):  # each fold has its events
        classes = bool(min(np.bincount(known, minlength=2)) >= cv)
    return folds_from(cv, known, given.groups, classes)


def _permuted(
    job: _Job,
    target: _Targets,
    orders: NDArray[np.intp],
    size: int,
    took: float,
    n_jobs: int | None,
    clock: Clock,
    callback: Callable[[int, int], Any] | None,
) -> FloatArray:
    """Return the statistics of permuted targets, shape (size, n_permutations).

    A time limit, Ctrl-C or the callback ends this early, which is decided without
    knowledge of the statistics.
    """
    count, workers = len(orders), effective_n_jobs(n_jobs)
    # one at a time, or a few where sending them to a process would take longer
    chunk = 1 if workers == 1 else int(np.clip(_CHUNK / max(took, 1e-3), 1, 50))
    found: list[FloatArray] = []
    ended = ""
    try:
        with ctrl_c_ends_all(), Parallel(n_jobs=n_jobs, mmap_mode="c") as parallel:
            while len(found) < count:
                if clock.left() == 0.0:
                    ended = "time_limit was reached"
                    break
                starts = range(len(found), count, chunk)[:workers]
                parts = parallel(
                    delayed(job.values)([target.at(o) for o in orders[s : s + chunk]])
                    for s in starts
                )
                for values in (one for part in parts for one in part):
                    job._check(values, f"permutation {len(found)}", size)
                    found.append(values)
                if callback is not None and callback(len(found), count):
                    ended = "the callback stopped it"
                    break
    except KeyboardInterrupt:
        ended = "Ctrl-C stopped it"
    if ended and len(found) < count:
        warnings.warn(
            f"The test ended after {len(found)} of {count} permutations, because "
            f"{ended}; no p-value can be below {1 / (len(found) + 1):.2g}.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return np.array(found).reshape(-1, size).T
