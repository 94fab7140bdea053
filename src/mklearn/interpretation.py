"""Interpretation: stability of weights, importance of kernels, parts of decisions.

Weights alone are a weak basis for conclusions: similar kernels share weight, and the
weights vary in small samples. The functions of this module answer four questions:

- :func:`weight_stability`: would other samples have given the same weights?
- :func:`kernel_importance`: does a kernel improve the score on held-out samples?
- :func:`score_by_view`: how much of a score is due to each view, or kernel?
- :func:`decision_parts`: which kernels decided about this sample?
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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
from sklearn.utils.validation import check_is_fitted

from mklearn.data.subjects import check_groups, group_folds
from mklearn.data.views import MultiView, paired
from mklearn.estimators import BilinearMKLClassifier, SingleKernelCV
from mklearn.estimators._base import BaseKernelMachine
from mklearn.estimators._folds import Subsets
from mklearn.estimators._predictor import KnownScores
from mklearn.estimators._targets import one_vs_rest
from mklearn.fitted import NEGLIGIBLE, kernels_by_view
from mklearn.model_selection import (
    ctrl_c_ends_all,
    error_over_folds,
    stop_if_interrupted,
)

FloatArray = NDArray[np.float64]

# --- weights over resamples -----------------------------------------------------------


@dataclass(frozen=True)
class WeightStability:
    """Kernel weights of one model fitted on many resamples.

    Attributes
    ----------
    kernel_names : tuple of str
    weights : array of shape (n_resamples, n_kernels) or (.., n_classes, n_kernels)
    contributions : array of the same shape
        Scale-free shares, which sum to one over the kernels.
    classes : tuple or None
        Classes of the second axis, if each class has its own weights.
    method : {"bootstrap", "folds", "pairs"}
    level : float
        Share of the resamples that lie within the intervals.
    """

    kernel_names: tuple[str, ...]
    weights: FloatArray = field(repr=False)
    contributions: FloatArray = field(repr=False)
    classes: tuple[Any, ...] | None
    method: str
    level: float

    @property
    def mean(self) -> FloatArray:
        """Mean weights, shape (n_kernels,) or (n_classes, n_kernels)."""
        return self.weights.mean(axis=0)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of the weights over resamples."""
        return self.weights.std(axis=0, ddof=1)

    @property
    def interval(self) -> FloatArray:
        """Lower and upper quantiles of the weights, shape (2, ..).

        Between them lies the central ``level`` of the resamples.
        """
        tail = (1.0 - self.level) / 2.0
        return np.quantile(self.weights, [tail, 1.0 - tail], axis=0)

    @property
    def selection_frequency(self) -> FloatArray:
        """Share of resamples in which a kernel has more than a negligible weight."""
        return np.mean(self.used, axis=0)

    @property
    def used(self) -> NDArray[np.bool_]:
        """Where a kernel has more than a negligible weight, in the shape of weights."""
        size = np.abs(self.weights)
        largest = size.reshape(len(size), -1).max(axis=1)
        least = NEGLIGIBLE * largest.reshape(-1, *[1] * (size.ndim - 1))
        return np.asarray(size > least)

    def select(self, threshold: float = 0.75) -> StabilitySelection:
        """Return the kernels that most halves of the samples select.

        Parameters
        ----------
        threshold : float
            Share of the halves that must select a kernel, above ½ and at most 1.

        Returns
        -------
        StabilitySelection
        """
        if self.method != "pairs":
            raise ValueError(
                "The error bounds of stability selection need halves of the samples: "
                f"use method='pairs', not {self.method!r}."
            )
        if not 0.5 < threshold <= 1:
            raise ValueError(f"threshold must be in (0.5, 1], got {threshold!r}.")
        used = self.used
        if self.classes is not None:  # a kernel that any class uses
            used = used.any(axis=1)
        return StabilitySelection(
            self.kernel_names, used.mean(axis=0), float(threshold),
            float(used.sum(axis=1).mean()), len(used) // 2,
        )  # fmt: skip

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row for each kernel (and class)."""
        low, high = self.interval
        columns = {
            "mean": self.mean,
            "std": self.std,
            "low": low,
            "high": high,
            "selected": self.selection_frequency,
            "contribution": self.contributions.mean(axis=0),
        }
        return _frame(self.kernel_names, self.classes, columns)


@dataclass(frozen=True)
class StabilitySelection:
    """Kernels selected in most half-samples, with bounds on false selections.

    Attributes
    ----------
    kernel_names : tuple of str
    frequency : array of shape (n_kernels,)
        Share of the halves in which a kernel has nonzero weight.
    threshold : float
    per_half : float
        Average number of kernels selected in a half, q.
    n_pairs : int
        Number of complementary pairs of halves, B.

    Notes
    -----
    With p kernels, both bounds are on the expected number of selected kernels among
    those that a half selects with a chance of at most q / p, as it would at random.
    ``bound``, ``q^2 / ((2 threshold - 1) p)``, holds whatever the model does; if no
    kernel of noise is selected more often than at random and all of them alike, it is
    that of Meinshausen and Bühlmann (2010) on all of them, and Shah and Samworth (2013)
    show that complementary pairs need neither assumption. ``unimodal_bound`` is
    smaller, and assumes that how often both halves of a pair select such a kernel has
    one mode.

    References
    ----------
    Meinshausen, N. and Bühlmann, P. (2010). Stability selection. *Journal of the Royal
    Statistical Society B* 72, 417-473.

    Shah, R. D. and Samworth, R. J. (2013). Variable selection with error control:
    another look at stability selection. *Journal of the Royal Statistical Society B*
    75, 55-80.
    """

    kernel_names: tuple[str, ...]
    frequency: FloatArray
    threshold: float
    per_half: float
    n_pairs: int

    @property
    def selected(self) -> tuple[str, ...]:
        """Names of the kernels that are selected often enough."""
        pairs = zip(self.kernel_names, self.frequency, strict=True)
        return tuple(name for name, often in pairs if often >= self.threshold - 1e-12)

    @property
    def bound(self) -> float:
        """On the expected number of kernels selected by chance, without assumptions."""
        q, p = self.per_half, len(self.kernel_names)
        return q**2 / ((2.0 * self.threshold - 1.0) * p)

    @property
    def unimodal_bound(self) -> float:
        """The same under unimodality; ``bound`` where there is no better one."""
        q, p, t, B = (
            self.per_half, len(self.kernel_names), self.threshold, self.n_pairs
        )  # fmt: skip
        share = q / p
        least = min(0.5 + share**2, 0.5 + 0.5 / B + 0.75 * share**2)
        if share > 3**-0.5 or t <= least:
            return self.bound
        if t <= 0.75:
            factor = 0.5 / (2.0 * t - 1.0 - 0.5 / B)
        else:
            factor = 4.0 * (1.0 - t + 0.5 / B) / (1.0 + 1.0 / B)
        return min(factor * q**2 / p, self.bound)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row for each kernel."""
        often = self.frequency >= self.threshold - 1e-12
        columns = {"frequency": self.frequency, "selected": often}
        return _frame(self.kernel_names, None, columns)


def weight_stability(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    method: str = "bootstrap",
    n_resamples: int = 100,
    cv: Any = 10,
    groups: Any = None,
    level: float = 0.95,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> WeightStability:
    """Fit a model on resamples to measure how much its kernel weights vary.

    Resampling uses sample weights: a sample drawn twice has weight 2. Hence precomputed
    Gram matrices and banks can be resampled like tables, and data-dependent parameters
    of kernels (widths, standardisation, normalisation) are computed anew each time.

    Parameters
    ----------
    estimator : estimator of mklearn with kernel weights
        The model, which is cloned and never modified.
    X, y
        Samples and targets, in the form that the estimator expects.
    method : {"bootstrap", "folds", "pairs"}
        "bootstrap" draws as many samples with replacement, within each class for
        classifiers; "folds" leaves out one fold at a time; "pairs" draws one half of
        the samples, and then the other half, as stability selection does (see the
        method ``select`` of the result). Since folds share most of their samples, their
        weights vary less than they would for new samples.
    n_resamples : int
        Number of bootstrap samples, or of halves (an even number).
    cv : int, splitter or iterable of (train, test)
        The folds.
    groups : array of shape (n_samples,), optional
        Subject of each sample. Subjects are drawn as a whole; for folds they are passed
        on to ``cv.split``.
    level : float
        Share of the resamples that lie within the intervals.
    n_jobs : int, optional
        Number of fits in parallel.
    random_state : int, RandomState or None
        Seed for the bootstrap and for pairs.

    Returns
    -------
    WeightStability

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier, kernels
    >>> from mklearn.interpretation import weight_stability
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(["linear", "rbf"], norm=1)
    >>> result = weight_stability(model, X, y, n_resamples=5, random_state=0)
    >>> result.weights.shape, result.interval.shape
    ((5, 2), (2, 2))

    Stability selection:

    >>> model = MKLClassifier(kernels.per_feature("rbf"), norm=1)
    >>> halves = weight_stability(
    ...     model, X, y, method="pairs", n_resamples=20, random_state=0
    ... )
    >>> found = halves.select(threshold=0.8)
    >>> len(found.selected), bool(found.unimodal_bound <= found.bound)
    (2, True)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    labels = None if y is None or not is_classifier(estimator) else np.asarray(y)
    if method in ("bootstrap", "pairs"):
        if n_resamples < 2:
            raise ValueError(
                "n_resamples must be at least 2 to measure variation, got "
                f"{n_resamples!r}."
            )
        rng, units = check_random_state(random_state), _Units.made(n, labels, groups)
        if method == "bootstrap":
            counts = [units.bootstrap(rng) for _ in range(n_resamples)]
        elif n_resamples % 2:
            raise ValueError(
                f"method='pairs' needs an even n_resamples, got {n_resamples!r}."
            )
        else:
            counts = [c for _ in range(n_resamples // 2) for c in units.halves(rng)]
    elif method == "folds":
        splitter = check_cv(cv, y, classifier=labels is not None)
        if groups is not None and isinstance(cv, Integral):
            classes = np.zeros(n) if labels is None else labels
            splitter = group_folds(int(cv), groups, classes, labels is not None)
        counts = [
            np.bincount(train, minlength=n).astype(float)
            for train, _ in splitter.split(np.zeros((n, 1)), y, groups)
        ]
        if len(counts) < 2:
            raise ValueError("cv must yield at least 2 folds to measure variation.")
    else:
        raise ValueError(
            f"method must be 'bootstrap', 'folds' or 'pairs', got {method!r}."
        )
    with ctrl_c_ends_all():
        models = Parallel(n_jobs=n_jobs)(
            delayed(_weights_of)(clone(estimator), X, y, count) for count in counts
        )
    names, classes = models[0][:2]
    weights, contributions = (np.stack([m[i] for m in models]) for i in (2, 3))
    return WeightStability(names, weights, contributions, classes, method, level)


@dataclass(frozen=True)
class _Units:
    """What is drawn: samples or subjects, within each class where they have one.

    ``of`` says which unit each sample belongs to, ``strata`` are the units of each
    class.
    """

    of: NDArray[np.intp]
    strata: list[NDArray[np.intp]]

    @classmethod
    def made(cls, n: int, labels: NDArray[Any] | None, groups: Any) -> _Units:
        unit, count = np.arange(n), n
        if groups is not None:
            groups = np.asarray(groups)
            if groups.shape != (n,):
                raise ValueError(f"groups must have shape ({n},), got {groups.shape}.")
            unit = np.unique(groups, return_inverse=True)[1]
            count = int(unit.max()) + 1
            if count < 2:
                raise ValueError(
                    "groups has only one value, so there is nothing to draw."
                )
        if labels is None or labels.ndim != 1:
            return cls(unit, [np.arange(count)])
        codes = np.unique(labels, return_inverse=True)[1]
        first = np.full(count, -1)
        first[unit] = codes
        if (first[unit] != codes).any():  # subjects with samples of several classes
            return cls(unit, [np.arange(count)])
        return cls(unit, [np.flatnonzero(first == c) for c in np.unique(codes)])

    def bootstrap(self, rng: np.random.RandomState) -> FloatArray:
        """Return how often each sample is drawn, classes as large as they are."""
        drawn = np.concatenate([rng.choice(s, len(s)) for s in self.strata])
        times = np.bincount(drawn, minlength=int(self.of.max()) + 1)
        return times[self.of].astype(float)

    def halves(self, rng: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
        """Return a half of the samples and the other one, as weights of 0 and 1."""
        first = np.zeros(int(self.of.max()) + 1)
        for stratum in self.strata:
            first[rng.permutation(stratum)[: len(stratum) // 2]] = 1.0
        half = first[self.of]
        return half, 1.0 - half


def _weights_of(
    model: Any, X: Any, y: Any, weight: FloatArray
) -> tuple[tuple[str, ...], tuple[Any, ...] | None, FloatArray, FloatArray]:
    model.fit(X, y, sample_weight=weight)
    stop_if_interrupted(model)
    classes = None
    if np.ndim(model.kernel_weights_) == 2:
        rows = getattr(model, "classes_", np.arange(len(model.kernel_weights_)))
        classes = tuple(rows.tolist())
    return (
        model.kernel_names_, classes, model.kernel_weights_, model.kernel_contributions_
    )  # fmt: skip


# --- permutation ----------------------------------------------------------------------


@dataclass(frozen=True)
class KernelImportance:
    """Decrease of a score when the rows of kernels are permuted.

    Attributes
    ----------
    names : tuple of str
        The kernels, or the views.
    members : tuple of tuple of str
        The kernels that were permuted together, for each name.
    score : float
        Score of the model without permutation.
    permuted : array of shape (n_names, n_repeats)
        Scores after permuting.
    """

    names: tuple[str, ...]
    members: tuple[tuple[str, ...], ...] = field(repr=False)
    score: float
    permuted: FloatArray = field(repr=False)

    @property
    def mean(self) -> FloatArray:
        """Mean loss of score, shape (n_names,)."""
        # a mean of equal scores need not be equal to them, one of zeros is zero
        return (self.score - self.permuted).mean(axis=1)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of the loss over repeats."""
        return self.permuted.std(axis=1, ddof=1)

    @property
    def p_values(self) -> FloatArray:
        """One-sided p-values: how often a permuted score is as good as the true one.

        ``(1 + #{permuted >= score}) / (1 + n_repeats)``, never zero. With many kernels
        some are small by chance; compare them with a level divided by their number.
        """
        # scores that differ by rounding are ties
        as_good = self.permuted >= self.score - 1e-12 * max(1.0, abs(self.score))
        return (1.0 + as_good.sum(axis=1)) / (1.0 + self.permuted.shape[1])

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row for each kernel or view."""
        columns = {"importance": self.mean, "std": self.std, "p_value": self.p_values}
        return _frame(self.names, None, columns)


def kernel_importance(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    by: str = "kernel",
    n_repeats: int = 100,
    scoring: Any = None,
    groups: Any = None,
    random_state: Any = None,
) -> KernelImportance:
    """Test by permutation whether kernels improve the score of a model.

    Permuting the rows of an uninformative kernel does not lower the score. A kernel
    enters the decision only by its own part (see :func:`decision_parts`), so that
    permuting the rows of its view, of its columns or of its precomputed test block
    means permuting that part: kernels are evaluated once, whatever the number of
    repeats.

    Parameters
    ----------
    estimator : fitted estimator of mklearn
    X, y
        Held-out samples, in the form that the estimator expects; with precomputed
        kernels (n_samples, n_training, n_kernels).
    by : {"kernel", "view"}
        "kernel" permutes one kernel at a time and measures what it adds to all the
        others; "view" permutes all kernels of a view together. Without views, kernels
        on the same columns are permuted together.
    n_repeats : int
        Number of permutations; the smallest p-value is ``1 / (1 + n_repeats)``.
    scoring : str or callable, optional
        The estimator's own score by default.
    groups : array of shape (n_samples,), optional
        Subject of each sample. Rows are exchanged between whole subjects, because
        samples of one subject are not independent.
    random_state : int, RandomState or None

    Returns
    -------
    KernelImportance

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from mklearn import MKLClassifier, kernels
    >>> from mklearn.interpretation import kernel_importance
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> size = kernels.RBF(columns=[20, 22, 23], standardize=True, name="size")
    >>> wrinkles = kernels.RBF(columns=[9], standardize=True, name="fractal dimension")
    >>> model = MKLClassifier([size, wrinkles]).fit(X[:300], y[:300])
    >>> found = kernel_importance(model, X[300:], y[300:], random_state=0)
    >>> found.names[found.mean.argmax()], float(found.p_values[0]) < 0.05
    ('size', True)
    """
    _check_sums(estimator)
    if isinstance(estimator, SingleKernelCV):
        raise ValueError(
            "SingleKernelCV uses only one kernel, so there are no others to compare "
            "it with; its score is the importance of its kernel."
        )
    if n_repeats < 2:
        raise ValueError(f"n_repeats must be at least 2, got {n_repeats!r}.")
    kernels = _groups(estimator.kernel_names_, estimator.kernels_, by)
    samples = estimator.checked(X)
    parts = estimator.predictor_.parts(samples)
    beside = estimator.intercept_
    if estimator.predictor_.effects is not None:
        beside = beside + estimator.predictor_.of_covariates(samples)
    scorer = check_scoring(estimator, scoring=scoring)
    model = copy.copy(estimator)

    def score(of_kernels: FloatArray) -> float:
        model.predictor_ = KnownScores.of(of_kernels + beside)
        return float(scorer(model, X, y))

    rng = check_random_state(random_state)
    n = len(parts)
    orders = [rng.permutation(n) for _ in range(n_repeats)]
    if groups is not None:
        subjects = check_groups(groups, n)
        orders = [_of_others(subjects, rng) for _ in range(n_repeats)]
    whole = parts.sum(axis=2)
    score(whole)  # raises if there is anything wrong with y
    if scoring is None:
        scorer = _own_score(estimator, X, y) or scorer
    permuted = np.empty((len(kernels), n_repeats))
    for g, group in enumerate(kernels.values()):
        part = parts[:, :, group].sum(axis=2)
        for r, order in enumerate(orders):
            # what has no part changes nothing, not even by rounding
            permuted[g, r] = score(whole - part + part[order] if part.any() else whole)
    known = estimator.kernel_names_
    members = tuple(tuple(known[m] for m in group) for group in kernels.values())
    return KernelImportance(tuple(kernels), members, score(whole), permuted)


def _own_score(estimator: Any, X: Any, y: Any) -> Callable[..., float] | None:
    """Return ``estimator.score`` as a scorer that checks y once; None if it cannot.

    Otherwise most of the time of a permutation test is spent on checking the same y.
    """
    truth = np.asarray(paired(X, y))
    if is_classifier(estimator) and truth.ndim == 1:

        def accuracy(model: Any, X: Any, y: Any) -> float:
            return float(np.mean(model.predict(X) == truth))

        return accuracy
    if not is_regressor(estimator) or not np.issubdtype(truth.dtype, np.number):
        return None
    if len(truth) < 2 or not np.isfinite(truth).all():
        return None
    spread = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    if not np.all(spread > 0.0):
        return None

    def r2(model: Any, X: Any, y: Any) -> float:
        left = ((truth - model.predict(X)) ** 2).sum(axis=0)
        return float(np.mean(1.0 - left / spread))

    return r2


def _of_others(
    subjects: NDArray[np.intp], rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Return rows in which each subject has those of another, in turn."""
    rows = [np.flatnonzero(subjects == s) for s in range(int(subjects.max()) + 1)]
    if len(rows) < 2:
        raise ValueError("groups has only one value, so there is nothing to permute.")
    order = np.empty(len(subjects), dtype=np.intp)
    for mine, other in zip(rows, rng.permutation(len(rows)), strict=True):
        order[mine] = np.resize(rows[other], len(mine))
    return order


def _groups(
    names: tuple[str, ...], kernels: tuple[Any, ...], by: str
) -> dict[str, list[int]]:
    """Return the kernels that go together, by name."""
    if by == "kernel":
        return {name: [m] for m, name in enumerate(names)}
    if by != "view":
        raise ValueError(f"by must be 'kernel' or 'view', got {by!r}.")
    return kernels_by_view(names, kernels)


# --- scores by view -------------------------------------------------------------------

_MEASURES = ("r2", "correlation")  # scores of which parts can be told
_KINDS = ("product", "unique", "shapley")
_EXACT = 12  # views up to which Shapley values are over all coalitions
_PERMUTATIONS = 50


@dataclass(frozen=True)
class ScoreByView:
    """A score on held-out samples, attributed to views or kernels.

    Attributes
    ----------
    names : tuple of str
        The views, or the kernels.
    members : tuple of tuple of str
        The kernels of each name, on the first fold.
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

        For ``kind="product"``, what is lost because predictions are too high or too low
        on average (zero for correlations); for "shapley", the score of a model without
        kernels; for "unique", the part that several names share, positive if they are
        redundant and negative if they are synergistic.
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
        """Return a pandas DataFrame: a row for each name and one for the rest.

        The column "score" sums to the total.
        """
        columns: dict[str, Any] = {
            "score": [*self.scores, self.rest],
            "standard_error": [*self.standard_errors, np.nan],
        }
        if self.sampling_errors is not None:
            columns["sampling_error"] = [*self.sampling_errors, 0.0]
        frame = _frame((*self.names, "rest"), None, columns)
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

    These sum to the score, for R2 up to the cost of a wrong mean (``rest``). Views with
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
        of "unique".
    scoring : str or callable, optional
        "r2" (of all regressors by default) or "correlation": of predictions or, for
        classifiers, of decision values with targets of -1 and 1, mean over outputs or
        classes. For "unique" and "shapley" any other scoring of scikit-learn is
        possible. For classifiers the default is "correlation" for the product measure,
        otherwise their own score.
    cv : int, splitter or iterable of (train, test), optional
        Cross-validation folds; 5 by default if models have to be fitted.
    groups : array of shape (n_samples,), optional
        Group labels, such as subjects, passed on to ``cv.split``. With an integer
        ``cv`` all samples of a group fall into the same fold.
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
    without views predicts the mean, or the share of each class.

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
    (('a', 'b', 'c'), True)
    >>> bool(np.isclose(found.scores.sum() + found.rest, found.total))
    True
    """
    _check_ours(model)
    scorer = ViewScorer(
        model, kind, by, scoring, n_permutations, n_jobs, random_state
    )  # fmt: skip
    y = np.asarray(paired(X, y, "y"))
    if kind == "product" and cv is None and hasattr(model, "predictor_"):
        scorer.add(model, None, (X, y))
        return scorer.result()
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    if len(y) != n:
        raise ValueError(f"X has {n} samples and y has {len(y)}.")
    cv = 5 if cv is None else cv
    splitter = check_cv(cv, y, classifier=is_classifier(model))
    if groups is not None:
        groups = check_groups(groups, n)
        if isinstance(cv, Integral):
            splitter = group_folds(int(cv), groups, y, is_classifier(model))
    pairwise = get_tags(model).input_tags.pairwise
    with ctrl_c_ends_all():
        for train, test in splitter.split(np.zeros((n, 1)), y, groups):
            rows = _rows_of(X, train, train if pairwise else None)
            new = _rows_of(X, test, train if pairwise else None)
            fold = model
            if kind == "product":
                fold = clone(model).fit(rows, y[train])
                stop_if_interrupted(fold)
            scorer.add(fold, (rows, y[train]), (new, y[test]))
    return scorer.result()


class ViewScorer:
    """Scores by view of one fold after the other; what :func:`score_by_view` uses.

    Parameters
    ----------
    model : estimator of mklearn
        Of the kind that :meth:`add` is given.
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
        classifier = is_classifier(model)
        if not (classifier or is_regressor(model)):
            raise ValueError(
                "score_by_view needs a classifier or a regressor, whose predictions can"
                f" be compared with y, got {type(model).__name__}."
            )
        if kind not in _KINDS:
            raise ValueError(f"kind must be one of {_KINDS}, got {kind!r}.")
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
        if "shapley" in kinds and model.fixed is not None:
            raise ValueError(
                "Shapley values start from a model without kernels, which is not "
                "available with covariates (fixed=); use kind='unique', or 'product', "
                "in which covariates have their own part."
            )
        if scoring is None:
            scoring = "r2"
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

    def add(self, model: Any, train: tuple[Any, Any] | None, test: Any) -> None:
        """Score the views on one more fold.

        Parameters
        ----------
        model : estimator
            For the product measure, fitted on ``train``; else it is cloned.
        train : tuple of (X, y), or None
            Samples of the fold to learn from; None where they are not known, and not
            needed either.
        test : tuple of (X, y)
            Samples to be scored on.
        """
        X, y = test[0], np.asarray(test[1])
        if "product" in self._kinds:
            scores, total = self._product(model, X, y)
        else:
            assert train is not None
            scores, total = self._refitted(model, train[0], np.asarray(train[1]), X, y)
        for kind, values in scores.items():
            self._folds[kind].append(values)
        self._totals.append(total)
        self._sizes.append((None if train is None else len(train[1]), len(y)))

    def result(self, kind: str | None = None) -> ScoreByView:
        """Return the scores of all folds so far, of the first kind by default."""
        if self._named is None:
            raise ValueError("cv must yield at least one fold.")
        kind, errors = kind or self._kinds[0], None
        if kind == "shapley" and self._draws:
            draws = np.mean(self._draws, axis=0)  # one row for each pair of orders
            errors = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
        return ScoreByView(
            *self._named,
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
        groups = _groups(names, kernels, self._by)
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
        parts, bias = _parts(model, X)
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
        self, model: Any, X: Any, y: NDArray[Any], X_test: Any, y_test: NDArray[Any]
    ) -> tuple[dict[str, FloatArray], float]:
        subsets = Subsets.of(model, X, y, X_test)
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
    """Return the product measure of parts (n, T, V), shape (T, V), and scores (T,)."""
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
    """Return the score of a model of some kernels; of none, that of a constant."""
    measured = isinstance(scoring, str) and scoring in _MEASURES
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
    fitted, X_test = subsets.fitted(which)
    if measured and (scoring == "correlation" or is_classifier(model)):
        parts, bias = _parts(fitted, X_test)
        whole = parts.sum(axis=2, keepdims=True)
        return float(
            _divided(whole, bias, _as_targets(fitted, y_test), scoring)[1].mean()
        )
    return float(check_scoring(fitted, scoring=scoring)(fitted, X_test, y_test))


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


# --- parts of decisions ---------------------------------------------------------------


@dataclass(frozen=True)
class DecisionParts:
    """Contribution of each kernel to each decision.

    Attributes
    ----------
    kernel_names : tuple of str
    parts : array of shape (n_samples, n_kernels) or (n_samples, n_scores, n_kernels)
        The latter if the decision has a score for each class, label or output.
    intercept : float, or array of shape (n_scores,)
    classes : tuple or None
        Classes of the second axis.
    ids : array of shape (n_samples,) or None
        The names of the samples, where they have any.
    covariates : array of shape (n_samples,) or (n_samples, n_scores), or None
        Contribution of the covariates to the decisions, if there are any.
    """

    kernel_names: tuple[str, ...]
    parts: FloatArray = field(repr=False)
    intercept: Any
    classes: tuple[Any, ...] | None
    ids: NDArray[Any] | None = field(default=None, repr=False)
    covariates: FloatArray | None = field(default=None, repr=False)

    @property
    def decision(self) -> FloatArray:
        """The decision function: the sum of all parts and the intercept."""
        total = self.parts.sum(axis=-1) + self.intercept
        return np.asarray(total if self.covariates is None else total + self.covariates)

    @property
    def shares(self) -> FloatArray:
        """Parts with their signs, divided by the sum of their sizes."""
        total = np.abs(self.parts).sum(axis=-1, keepdims=True)
        return self.parts / np.where(total > 0, total, 1.0)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row for each sample (and score)."""
        pd = _pandas()
        rows = self.parts.reshape(-1, len(self.kernel_names))
        samples = pd.RangeIndex(len(self.parts))
        if self.ids is not None:
            samples = pd.Index(self.ids)
        index = samples.rename("sample")
        if self.classes is not None:
            index = pd.MultiIndex.from_product(
                [samples, self.classes], names=["sample", "class"]
            )
        frame = pd.DataFrame(rows, columns=list(self.kernel_names), index=index)
        shape = self.parts.shape[:-1]
        if self.covariates is not None:
            frame["covariates"] = self.covariates.ravel()
        frame["intercept"] = np.broadcast_to(self.intercept, shape).ravel()
        frame["decision"] = self.decision.ravel()
        return frame


def decision_parts(estimator: Any, X: Any) -> DecisionParts:
    """Return the contribution of each kernel to the decision for each sample.

    The decision function is a sum over kernels, ``sum_m theta_m sum_i A_i k_m(x_i, x)``
    plus the intercept; this function returns its terms. The mean of a term over the
    samples depends on ``normalize``: compare terms between samples rather than with
    zero, or centre the kernels (``normalize="center"``).

    Parameters
    ----------
    estimator : fitted estimator of mklearn
    X : as the estimator takes it

    Returns
    -------
    DecisionParts

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier
    >>> from mklearn.interpretation import decision_parts
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(["linear", "rbf"]).fit(X, y)
    >>> found = decision_parts(model, X)
    >>> found.parts.shape
    (150, 3, 2)
    >>> bool(np.allclose(found.decision, model.decision_function(X)))
    True
    """
    parts, intercept = _parts(estimator, X)
    samples = estimator.checked(X)
    ids = samples.ids if isinstance(samples, MultiView) else None
    names = estimator.kernel_names_
    beside = None
    if estimator.predictor_.effects is not None:
        beside = estimator.predictor_.of_covariates(samples)
    if parts.shape[1] == 1:
        beside = None if beside is None else beside[:, 0]
        constant = float(intercept[0])
        return DecisionParts(names, parts[:, 0], constant, None, ids, beside)
    known = getattr(estimator, "classes_", np.arange(parts.shape[1]))
    return DecisionParts(names, parts, intercept, tuple(known.tolist()), ids, beside)


def _parts(estimator: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """Return what kernels add to decisions, shape (n, T, M), and intercepts (T,)."""
    _check_sums(estimator)
    parts = estimator.predictor_.parts(estimator.checked(X))
    intercept = np.asarray(estimator.intercept_)
    if isinstance(estimator, BilinearMKLClassifier) and parts.shape[1] == 2:
        # two classes are decided by the difference of their scores
        parts = parts[:, [1]] - parts[:, [0]]
        intercept = intercept[[1]] - intercept[[0]]
    return parts, intercept


def _check_sums(estimator: Any) -> None:
    """Raise unless the estimator's decision is a sum over kernels."""
    _check_ours(estimator)
    check_is_fitted(estimator)
    if not hasattr(estimator, "intercept_"):
        raise ValueError(
            f"{type(estimator).__name__} computes features and makes no decisions; use "
            "SubspaceClassifier."
        )


def _check_ours(estimator: Any) -> None:
    if not isinstance(estimator, BaseKernelMachine):
        raise ValueError(
            "Only estimators of mklearn have decisions that are sums over kernels, "
            f"got {type(estimator).__name__}; for a pipeline or a search pass the "
            "fitted estimator itself, and samples in the form that it expects."
        )


# --- tables ---------------------------------------------------------------------------


def _frame(
    names: tuple[str, ...], classes: tuple[Any, ...] | None, columns: dict[str, Any]
) -> Any:
    """Return a table by kernel, or by class and kernel."""
    pd = _pandas()
    index = pd.Index(list(names), name="kernel")
    if classes is not None:
        index = pd.MultiIndex.from_product([classes, names], names=["class", "kernel"])
    return pd.DataFrame({key: np.ravel(v) for key, v in columns.items()}, index=index)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "to_frame() returns a pandas DataFrame; install pandas, or read the arrays."
        ) from error
    return pandas
