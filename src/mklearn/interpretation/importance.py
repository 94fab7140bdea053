"""Importance of kernels: the score that is lost when their rows are permuted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import check_scoring
from sklearn.utils import check_random_state

from mklearn.data.subjects import check_groups
from mklearn.data.views import paired
from mklearn.estimators import SingleKernelCV
from mklearn.estimators._predictor import KnownScores
from mklearn.fitted import kernel_groups
from mklearn.interpretation.decisions import check_sums, intercepts
from mklearn.interpretation.frames import by_kernel

FloatArray = NDArray[np.float64]


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
        return by_kernel(self.names, None, columns)


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
        The estimator's own score by default: accuracy, R squared, or the concordance
        of survival models.
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
    check_sums(estimator)
    if isinstance(estimator, SingleKernelCV):
        raise ValueError(
            "SingleKernelCV uses only one kernel, so there are no others to compare "
            "it with; its score is the importance of its kernel."
        )
    if n_repeats < 2:
        raise ValueError(f"n_repeats must be at least 2, got {n_repeats!r}.")
    kernels = kernel_groups(estimator.kernel_names_, estimator.kernels_, by)
    samples = estimator.checked(X)
    parts = estimator.predictor_.parts(samples)
    beside = intercepts(estimator)
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
        subjects = check_groups(paired(X, groups, "groups"), n)
        orders = [_of_others(subjects, rng) for _ in range(n_repeats)]
    whole = parts.sum(axis=2)
    # raises if there is anything wrong with y
    if not np.isfinite(score(whole)):
        raise ValueError(
            "The score is not defined on these samples, such as R2 of one sample or "
            "the area under the curve of one class; use more samples, or another "
            "scoring."
        )
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
