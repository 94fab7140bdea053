"""What is known of a model and of a run, once, as values that JSON can hold.

``results.json``, ``mklearn inspect``, the tables on the screen and the page all show
what the functions here return, in the words of :mod:`mklearn.report.words`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    confusion_matrix,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from mklearn.fitted import kernel_rows, proofs
from mklearn.kernels import KernelBank, MultiView
from mklearn.model_selection import Comparison
from mklearn.report.words import MOST_LIKELY, plain_words
from mklearn.solvers import Solution


@dataclass(frozen=True)
class DataSummary:
    """What was learned from.

    Attributes
    ----------
    n_samples : int
    views : mapping of str to int
        Columns of each view.
    classes : mapping of str to int
        Samples of each class, empty without classes.
    missing : int
        Values that were missing and had to be filled in.
    source : str
        Where the samples are from.
    absent : mapping of str to int
        Samples that lack a view, for views that some lack.
    """

    n_samples: int
    views: Mapping[str, int]
    classes: Mapping[str, int] = field(default_factory=dict)
    missing: int = 0
    source: str = ""
    absent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """Cross-validated predictions: each made by a model that had not seen the sample.

    Attributes
    ----------
    truth, predicted : arrays of shape (n_samples,)
        Class labels, or numbers if the model of the report is a regressor.
    scores : array of shape (n_samples,), optional
        Decision values for the second of two classes.
    """

    truth: NDArray[Any]
    predicted: NDArray[Any]
    scores: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Report:
    """What ``report.html`` shows; parts that are None are left out.

    Attributes
    ----------
    title : str
    data : DataSummary
    model : fitted estimator of mklearn
    comparison : Comparison, optional
        As :func:`mklearn.model_selection.compare` returns it.
    scoring : str
        What its scores are.
    alignment : array of shape (n_kernels, n_kernels), optional
        As :func:`kernel_alignment` returns it.
    predictions : Predictions, optional
    loading : str
        Code that loads the model, shown as it is.
    """

    title: str
    data: DataSummary
    model: Any
    comparison: Comparison | None = None
    scoring: str = "accuracy"
    alignment: NDArray[np.float64] | None = None
    predictions: Predictions | None = None
    loading: str = ""


# --- the data -------------------------------------------------------------------------


def describe_data(
    X: Any, y: Any = None, *, missing: int = 0, source: str = ""
) -> DataSummary:
    """Return the summary of samples and, if ``y`` is given, of their classes."""
    absent = {}
    if isinstance(X, MultiView):
        views = {name: 1 if X.is_text(name) else X[name].shape[1] for name in X}
        lacking = {name: int(X.absent(name).sum()) for name in X}
        absent = {name: count for name, count in lacking.items() if count}
    elif isinstance(X, KernelBank) or np.ndim(X) == 3:
        views = {"precomputed kernels": X.shape[2]}
    else:
        views = {"X": np.shape(X)[1]}
    classes = {} if y is None else class_counts(y)
    return DataSummary(X.shape[0], views, classes, missing, source, absent)


def class_counts(y: Any) -> dict[str, int]:
    """Return the samples of each class, classes in their order."""
    labels, counts = np.unique(np.asarray(y), return_counts=True)
    return {str(k): int(n) for k, n in zip(labels, counts, strict=True)}


# --- the model ------------------------------------------------------------------------


def model_facts(model: Any) -> dict[str, Any]:
    """Return class, kernels, chosen settings and certificates of a fitted model."""
    chosen = {
        name: getattr(model, f"{name}_", getattr(model, name, None))
        for name in ("C", "norm", "reg")
    }
    content: dict[str, Any] = {
        "class": type(model).__name__,
        "kernels": [asdict(row) for row in kernel_rows(model)],
        "chosen": {k: v for k, v in chosen.items() if isinstance(v, (int, float))},
        "certificates": [certificate(solution, model) for solution in proofs(model)],
    }
    if hasattr(model, "evidence_"):
        content["evidence"] = evidence(model.solution_)
    return _finite(content)


def certificate(solution: Solution, model: Any = None) -> dict[str, Any]:
    """Return the bounds and what they say, ready for JSON."""
    return {
        "objective": solution.upper,
        "lower_bound": solution.lower,
        "relative_gap": solution.gap,
        "status": solution.status.name,
        "n_iter": solution.n_iter,
        "solver": solution.solver,
        "message": solution.message,
        "plain_words": plain_words(solution, model),
    }


def evidence(solution: Solution) -> dict[str, Any]:
    """Return how likely the values are and what that says, ready for JSON."""
    return {
        "log_evidence": solution.about.evidence,
        "log_evidence_of_nothing": solution.about.nothing,
        "promise": solution.about.promise,
        "noise": solution.about.noise.tolist(),
        "status": solution.status.name,
        "n_iter": solution.n_iter,
        "message": solution.message,
        "plain_words": MOST_LIKELY,
    }


def _finite(value: Any) -> Any:
    """Return plain values with infinities and NaN as words, which JSON lacks."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# --- the run --------------------------------------------------------------------------


def comparison_facts(comparison: Comparison) -> list[dict[str, Any]]:
    """Return scores, times and kernels of each method, and differences to the first."""
    rows = []
    for i, row in enumerate(comparison.table()):
        mean, error = comparison.difference(row["model"], comparison.names[0])
        rows.append(
            {
                **row,
                "fold_scores": comparison.scores[i].tolist(),
                "fold_fit_seconds": comparison.fit_seconds[i].tolist(),
                "difference": mean,
                "difference_error": error,
            }
        )
    return rows


def errors_of_values(found: Predictions) -> dict[str, float]:
    """Return the size of the errors of predicted numbers."""
    truth, predicted = found.truth, found.predicted
    return {
        "r2": float(r2_score(truth, predicted)),
        "mean_absolute_error": float(mean_absolute_error(truth, predicted)),
        "root_mean_squared_error": float(root_mean_squared_error(truth, predicted)),
        "standard_deviation": float(np.std(truth)),
    }


def errors_of_classes(found: Predictions) -> dict[str, Any]:
    """Return the confusion of classes, true ones in rows, and the area under the ROC.

    The area is None unless there are two classes and scores.
    """
    truth, predicted = found.truth, found.predicted
    labels = np.unique(np.concatenate([truth, predicted]))
    area = None
    if found.scores is not None and len(labels) == 2:
        area = float(roc_auc_score(truth == labels[1], found.scores))
    return {
        "classes": [str(label) for label in labels],
        "confusion": confusion_matrix(truth, predicted, labels=labels).tolist(),
        "accuracy": float(np.mean(truth == predicted)),
        "roc_auc": area,
    }
