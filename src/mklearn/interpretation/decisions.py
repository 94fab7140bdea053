"""Parts of decisions: what each kernel adds to the score of a sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mklearn.data.frames import pandas_for
from mklearn.data.views import MultiView
from mklearn.estimators import BilinearMKLClassifier, MKLCox
from mklearn.estimators._base import BaseKernelMachine

FloatArray = NDArray[np.float64]


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
        pd = pandas_for("to_frame()", "read the arrays")
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
    zero, or centre the kernels (``normalize="center"``). The decision of
    :class:`MKLCox` is the log hazard, that of :class:`MKLSurvivalSVM` the log time.

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
    parts, intercept = parts_of(estimator, X)
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


def parts_of(estimator: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """Return what kernels add to decisions, shape (n, T, M), and intercepts (T,)."""
    check_sums(estimator)
    parts = estimator.predictor_.parts(estimator.checked(X))
    intercept = intercepts(estimator)
    if isinstance(estimator, BilinearMKLClassifier) and parts.shape[1] == 2:
        # two classes are decided by the difference of their scores
        parts = parts[:, [1]] - parts[:, [0]]
        intercept = intercept[[1]] - intercept[[0]]
    return parts, intercept


def intercepts(estimator: Any) -> FloatArray:
    """Return the intercepts of the decision, shape (T,).

    A log hazard has none, except that of the coding of covariates.
    """
    if isinstance(estimator, MKLCox):
        return np.asarray(estimator.predictor_.bias)
    return np.asarray(estimator.intercept_)


def check_sums(estimator: Any) -> None:
    """Raise unless the estimator's decision is a sum over kernels."""
    check_ours(estimator)
    check_is_fitted(estimator)
    if not hasattr(estimator, "intercept_") and not isinstance(estimator, MKLCox):
        raise ValueError(
            f"{type(estimator).__name__} computes features and makes no decisions; use "
            "SubspaceClassifier."
        )


def check_ours(estimator: Any) -> None:
    """Raise unless the estimator is one of mklearn."""
    if not isinstance(estimator, BaseKernelMachine):
        raise ValueError(
            "Only estimators of mklearn have decisions that are sums over kernels, "
            f"got {type(estimator).__name__}; for a pipeline or a search pass the "
            "fitted estimator itself, and samples in the form that it expects."
        )
