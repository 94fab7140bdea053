"""What a model rests on: stable weights, kernels that matter, parts of decisions.

Weights alone are a thin basis for conclusions: kernels that resemble each other share
weight, and small samples move it. Three questions are answered here, each by a function
that returns names beside numbers:

- :func:`weight_stability`: would other samples have given the same weights?
- :func:`kernel_importance`: does a kernel add anything on samples not learned from?
- :func:`decision_parts`: which kernels decided about this sample?
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mklearn.estimators import BilinearMKLClassifier, SingleKernelCV
from mklearn.estimators._base import BaseKernelMachine
from mklearn.estimators._predictor import KnownScores
from mklearn.fitted import NEGLIGIBLE
from mklearn.model_selection import ctrl_c_ends_all, stop_if_interrupted

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
        Of the second axis, if every class has weights of its own.
    method : {"bootstrap", "folds"}
    level : float
        What part of the resamples lies within the intervals.
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
        """Part of the resamples in which a kernel has more than a negligible weight."""
        size = np.abs(self.weights)
        largest = size.reshape(len(size), -1).max(axis=1)
        least = NEGLIGIBLE * largest.reshape(-1, *[1] * (size.ndim - 1))
        return np.mean(size > least, axis=0)

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
    """Fit a model on resamples and tell how much its kernel weights vary.

    Resampling goes by sample weights: a sample drawn twice has weight 2. So
    precomputed Grams and banks are resampled as tables are, and what the kernels take
    from the samples (widths, standardising, normalisation) is found anew each time.

    Parameters
    ----------
    estimator : estimator of mklearn with kernel weights
        Cloned, never changed.
    X, y
        As the estimator takes them.
    method : {"bootstrap", "folds"}
        Draw as many samples with replacement, within each class for classifiers; or
        leave out one fold after the other. Folds share most of their samples: their
        weights vary less than those of new samples would.
    n_resamples : int
        Of the bootstrap.
    cv : int, splitter or iterable of (train, test)
        The folds.
    groups : array of shape (n_samples,), optional
        What ``cv.split`` is given as groups.
    level : float
        What part of the resamples the intervals hold.
    n_jobs : int, optional
        Fits at the same time.
    random_state : int, RandomState or None
        Of the bootstrap.

    Returns
    -------
    WeightStability

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mklearn import MKLClassifier
    >>> from mklearn.interpretation import weight_stability
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(["linear", "rbf"], norm=1)
    >>> result = weight_stability(model, X, y, n_resamples=5, random_state=0)
    >>> result.weights.shape, result.interval.shape
    ((5, 2), (2, 2))
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}.")
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    labels = None if y is None or not is_classifier(estimator) else np.asarray(y)
    if method == "bootstrap":
        if n_resamples < 2:
            raise ValueError(
                f"n_resamples must be at least 2 to see a spread, got {n_resamples!r}."
            )
        rng = check_random_state(random_state)
        counts = [_bootstrap(n, labels, rng) for _ in range(n_resamples)]
    elif method == "folds":
        splitter = check_cv(cv, y, classifier=labels is not None)
        counts = [
            np.bincount(train, minlength=n).astype(float)
            for train, _ in splitter.split(np.zeros((n, 1)), y, groups)
        ]
        if len(counts) < 2:
            raise ValueError("cv must give at least 2 folds to see a spread.")
    else:
        raise ValueError(f"method must be 'bootstrap' or 'folds', got {method!r}.")
    with ctrl_c_ends_all():
        models = Parallel(n_jobs=n_jobs)(
            delayed(_weights_of)(clone(estimator), X, y, count) for count in counts
        )
    names, classes = models[0][:2]
    weights, contributions = (np.stack([m[i] for m in models]) for i in (2, 3))
    return WeightStability(names, weights, contributions, classes, method, level)


def _bootstrap(
    n: int, labels: NDArray[Any] | None, rng: np.random.RandomState
) -> FloatArray:
    """Return how often each sample is drawn, classes as large as they are."""
    groups = [np.arange(n)]
    if labels is not None and labels.ndim == 1:
        groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    drawn = [rng.choice(group, len(group)) for group in groups]
    return np.bincount(np.concatenate(drawn), minlength=n).astype(float)


def _weights_of(
    model: Any, X: Any, y: Any, weight: FloatArray
) -> tuple[tuple[str, ...], tuple[Any, ...] | None, FloatArray, FloatArray]:
    model.fit(X, y, sample_weight=weight)
    stop_if_interrupted(model)
    classes = None
    if np.ndim(model.kernel_weights_) == 2:
        classes = tuple(model.classes_.tolist())
    return (
        model.kernel_names_, classes, model.kernel_weights_, model.kernel_contributions_
    )  # fmt: skip


# --- permutation ----------------------------------------------------------------------


@dataclass(frozen=True)
class KernelImportance:
    """What a score loses when kernels get the rows of other samples.

    Attributes
    ----------
    names : tuple of str
        The kernels, or the views.
    members : tuple of tuple of str
        The kernels that were permuted together, for each name.
    score : float
        Of the model as it is.
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
    random_state: Any = None,
) -> KernelImportance:
    """Test whether kernels add anything, by giving them the rows of other samples.

    A kernel that tells nothing loses nothing when its samples are mixed up. What it
    sees of a sample enters the decision by its own part only (see
    :func:`decision_parts`), so that permuting the rows of its view, of its columns or
    of its precomputed test block means permuting that part: kernels are evaluated once,
    however many repeats there are.

    Parameters
    ----------
    estimator : fitted estimator of mklearn
    X, y
        Samples that the estimator has not learned from, as it takes them; with
        precomputed kernels (n_samples, n_training, n_kernels).
    by : {"kernel", "view"}
        Permute one kernel at a time, which asks what it adds to all the others; or all
        kernels of a view together, which asks the same of the view. Without views,
        kernels on the same columns go together.
    n_repeats : int
        Permutations; the smallest p-value is ``1 / (1 + n_repeats)``.
    scoring : str or callable, optional
        The estimator's own score by default.
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
            "SingleKernelCV uses one kernel, so there are no others that it could be "
            "compared with; its score is the importance of its kernel."
        )
    if n_repeats < 2:
        raise ValueError(f"n_repeats must be at least 2, got {n_repeats!r}.")
    groups = _groups(estimator, by)
    parts = estimator.predictor_.parts(estimator.checked(X))
    scorer = check_scoring(estimator, scoring=scoring)
    model = copy.copy(estimator)

    def score(of_kernels: FloatArray) -> float:
        model.predictor_ = KnownScores.of(of_kernels + estimator.intercept_)
        return float(scorer(model, X, y))

    rng = check_random_state(random_state)
    orders = [rng.permutation(len(parts)) for _ in range(n_repeats)]
    whole = parts.sum(axis=2)
    permuted = np.empty((len(groups), n_repeats))
    for g, group in enumerate(groups.values()):
        part = parts[:, :, group].sum(axis=2)
        for r, order in enumerate(orders):
            # what has no part changes nothing, not even by rounding
            permuted[g, r] = score(whole - part + part[order] if part.any() else whole)
    known = estimator.kernel_names_
    members = tuple(tuple(known[m] for m in group) for group in groups.values())
    return KernelImportance(tuple(groups), members, score(whole), permuted)


def _groups(estimator: Any, by: str) -> dict[str, list[int]]:
    """Return the kernels that are permuted together, by name."""
    names = estimator.kernel_names_
    if by == "kernel":
        return {name: [m] for m, name in enumerate(names)}
    if by != "view":
        raise ValueError(f"by must be 'kernel' or 'view', got {by!r}.")
    groups: dict[str, list[int]] = {}
    for m, (name, kernel) in enumerate(zip(names, estimator.kernels_, strict=True)):
        if kernel is None:  # a Gram that was given: nobody knows what it looks at
            key = name
        elif kernel.view is not None:
            key = kernel.view
        else:
            key = kernel.at_place("columns") if kernel.columns is not None else "X"
        groups.setdefault(key, []).append(m)
    return groups


# --- parts of decisions ---------------------------------------------------------------


@dataclass(frozen=True)
class DecisionParts:
    """What each kernel adds to each decision.

    Attributes
    ----------
    kernel_names : tuple of str
    parts : array of shape (n_samples, n_kernels) or (n_samples, n_scores, n_kernels)
        The second if the decision has a score for each class, label or output.
    intercept : float, or array of shape (n_scores,)
    classes : tuple or None
        Of the second axis.
    """

    kernel_names: tuple[str, ...]
    parts: FloatArray = field(repr=False)
    intercept: Any
    classes: tuple[Any, ...] | None

    @property
    def decision(self) -> FloatArray:
        """The decision function: the sum of all parts and the intercept."""
        return np.asarray(self.parts.sum(axis=-1) + self.intercept)

    @property
    def shares(self) -> FloatArray:
        """Parts with their signs, divided by the sum of their sizes."""
        total = np.abs(self.parts).sum(axis=-1, keepdims=True)
        return self.parts / np.where(total > 0, total, 1.0)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row for each sample (and score)."""
        pd = _pandas()
        rows = self.parts.reshape(-1, len(self.kernel_names))
        index = pd.RangeIndex(len(rows), name="sample")
        if self.classes is not None:
            samples = range(len(self.parts))
            index = pd.MultiIndex.from_product(
                [samples, self.classes], names=["sample", "class"]
            )
        frame = pd.DataFrame(rows, columns=list(self.kernel_names), index=index)
        shape = self.parts.shape[:-1]
        frame["intercept"] = np.broadcast_to(self.intercept, shape).ravel()
        frame["decision"] = self.decision.ravel()
        return frame


def decision_parts(estimator: Any, X: Any) -> DecisionParts:
    """Return what each kernel adds to the decision about each sample.

    The decision function is a sum over kernels, ``sum_m theta_m sum_i A_i k_m(x_i, x)``
    and the intercept; these are its terms. How a term divides between a kernel's mean
    over the samples and its rest depends on ``normalize``: compare terms between
    samples rather than with zero, or centre the kernels (``normalize="center"``).

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
    _check_sums(estimator)
    parts = estimator.predictor_.parts(estimator.checked(X))
    intercept = np.asarray(estimator.intercept_)
    if isinstance(estimator, BilinearMKLClassifier) and parts.shape[1] == 2:
        # two classes are decided by the difference of their scores
        parts, intercept = (
            parts[:, [1]] - parts[:, [0]],
            intercept[[1]] - intercept[[0]],
        )
    names = estimator.kernel_names_
    if parts.shape[1] == 1:
        return DecisionParts(names, parts[:, 0], float(intercept[0]), None)
    known = getattr(estimator, "classes_", np.arange(parts.shape[1]))
    return DecisionParts(names, parts, intercept, tuple(known.tolist()))


def _check_sums(estimator: Any) -> None:
    """Raise unless the estimator's decision is a sum over kernels."""
    if not isinstance(estimator, BaseKernelMachine):
        raise ValueError(
            "Only estimators of mklearn have decisions that are sums over kernels, got "
            f"{type(estimator).__name__}; of a pipeline or a search pass the fitted "
            "estimator itself, and samples as it sees them."
        )
    check_is_fitted(estimator)
    if not hasattr(estimator, "intercept_"):
        raise ValueError(
            f"{type(estimator).__name__} makes features and decides nothing; use "
            "SubspaceClassifier."
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
