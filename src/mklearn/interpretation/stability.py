"""Stability of kernel weights over resamples, and stability selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state

from mklearn.data.subjects import (
    check_groups,
    folds_from,
    warn_of_subjects,
    warned_of_subjects,
)
from mklearn.data.views import MultiView, holds_views, paired
from mklearn.fitted import NEGLIGIBLE
from mklearn.interpretation.frames import by_kernel
from mklearn.model_selection import (
    ctrl_c_ends_all,
    requesting_groups,
    stop_if_interrupted,
    takes_groups,
)

FloatArray = NDArray[np.float64]

_DRAWS = 1000  # until a resample has all classes


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
        return by_kernel(self.kernel_names, self.classes, columns)


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
    those that a half selects with a probability of at most q / p, which is that of a
    random selection. ``bound``, ``q^2 / ((2 threshold - 1) p)``, holds for any model
    (Shah and Samworth 2013, for complementary pairs). It equals the bound of
    Meinshausen and Bühlmann (2010) on the number of uninformative kernels, who assume
    that these are selected with equal probabilities, and not more often than at random.
    ``unimodal_bound`` is smaller, and assumes a unimodal distribution of how often both
    halves of a pair select such a kernel.

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
        """Bound on the expected number of false selections, without assumptions."""
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
        return by_kernel(self.kernel_names, None, columns)


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
    of kernels (widths, standardisation, normalisation) are computed again each time.

    Parameters
    ----------
    estimator : estimator of mklearn with kernel weights
        The model, which is cloned and never modified.
    X, y
        Samples and targets, in the form that the estimator expects.
    method : {"bootstrap", "folds", "pairs"}
        "bootstrap" draws n_samples samples with replacement, within each class for
        classifiers; "folds" leaves out one fold at a time; "pairs" draws one half of
        the samples, and then the other half, as stability selection does (see the
        method ``select`` of the result). Since folds share most of their samples, their
        weights vary less than they would for new samples.
    n_resamples : int
        Number of bootstrap samples, or of halves (an even number).
    cv : int, splitter or iterable of (train, test)
        The folds.
    groups : array of shape (n_samples,), optional
        Subject of each sample. Subjects are drawn as a whole, again if a class is
        missing; for folds they are passed on to ``cv.split``. A model that
        cross-validates gets them too.
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
    X = MultiView(X) if holds_views(X) else X
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    y, groups = paired(X, y), paired(X, groups, "groups")
    given: dict[str, Any] = {}
    if groups is not None:
        groups = check_groups(groups, n)
        estimator = requesting_groups(estimator)
        given = {"groups": groups} if takes_groups(estimator) else {}
    labels = None if y is None or not is_classifier(estimator) else np.asarray(y)
    warn_of_subjects(X, y, groups, cv if method == "folds" else None)
    if method in ("bootstrap", "pairs"):
        if n_resamples < 2:
            raise ValueError(
                "n_resamples must be at least 2 to measure variation, got "
                f"{n_resamples!r}."
            )
        rng, units = check_random_state(random_state), _Units.made(n, labels, groups)
        if method == "bootstrap":
            draws = [
                units.complete(lambda: (units.bootstrap(rng),))
                for _ in range(n_resamples)
            ]
        elif n_resamples % 2:
            raise ValueError(
                f"method='pairs' needs an even n_resamples, got {n_resamples!r}."
            )
        else:
            draws = [
                units.complete(lambda: units.halves(rng))
                for _ in range(n_resamples // 2)
            ]
        counts = [count for draw in draws for count in draw]
    elif method == "folds":
        splitter = folds_from(cv, y, groups, labels is not None)
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
            delayed(_weights_of)(clone(estimator), X, y, count, given)
            for count in counts
        )
    names, classes = models[0][:2]
    weights, contributions = (np.stack([m[i] for m in models]) for i in (2, 3))
    return WeightStability(names, weights, contributions, classes, method, level)


@dataclass(frozen=True)
class _Units:
    """What is drawn: samples or subjects, within each class where they have one.

    ``of`` says which unit each sample belongs to, ``strata`` are the units of each
    class. If subjects have samples of several classes, there is one stratum, and
    ``codes`` are the classes of the samples.
    """

    of: NDArray[np.intp]
    strata: list[NDArray[np.intp]]
    codes: NDArray[np.intp] | None = None

    @classmethod
    def made(cls, n: int, labels: NDArray[Any] | None, groups: Any) -> _Units:
        unit, count = np.arange(n), n
        if groups is not None:
            unit = check_groups(groups, n)
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
        if (first[unit] != codes).any():
            return cls(unit, [np.arange(count)], codes)
        return cls(unit, [np.flatnonzero(first == c) for c in np.unique(codes)])

    def complete(
        self, draw: Callable[[], tuple[FloatArray, ...]]
    ) -> tuple[FloatArray, ...]:
        """Draw resamples, again if one of them lacks a class."""
        for _ in range(_DRAWS):
            counts = draw()
            if self.codes is None or all(
                np.bincount(self.codes, count).all() for count in counts
            ):
                return counts
        raise ValueError(
            "Resamples of whole subjects lack some of the classes, because too few "
            "subjects have samples of a class; merge or drop that class, or use "
            "method='folds'."
        )

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
    model: Any, X: Any, y: Any, weight: FloatArray, given: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[Any, ...] | None, FloatArray, FloatArray]:
    with warned_of_subjects():
        model.fit(X, y, sample_weight=weight, **given)
    stop_if_interrupted(model)
    classes = None
    if np.ndim(model.kernel_weights_) == 2:
        rows = getattr(model, "classes_", np.arange(len(model.kernel_weights_)))
        classes = tuple(rows.tolist())
    return (
        model.kernel_names_, classes, model.kernel_weights_, model.kernel_contributions_
    )  # fmt: skip
