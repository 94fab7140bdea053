"""Facts about a model and a run, as values that can be stored as JSON.

``results.json``, ``mklearn inspect``, the tables on the screen and the page all show
the results of these functions, worded by :mod:`mklearn.report.words`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

from mklearn.data.checks import check_times
from mklearn.estimators._folds import error_over_folds
from mklearn.estimators._inference import inference_columns
from mklearn.estimators.event_times import (
    concordance_index,
    dynamic_auc,
    kaplan_meier,
)
from mklearn.fitted import kernel_rows, kernels_by_view, proofs, widest
from mklearn.inference import KernelTests
from mklearn.interpretation import KernelImportance, ScoreByView, WeightStability
from mklearn.kernels import KernelBank, MultiView
from mklearn.model_selection import Comparison
from mklearn.report.words import MOST_LIKELY, plain_words, verdict_words
from mklearn.solvers import Solution


@dataclass(frozen=True)
class DataSummary:
    """Summary of the training data.

    Attributes
    ----------
    n_samples : int
    views : mapping of str to int
        Number of columns of each view.
    classes : mapping of str to int
        Number of samples of each class; empty without classes.
    missing : int
        Number of missing values that were filled in.
    source : str
        Origin of the samples.
    absent : mapping of str to int
        Number of samples that lack a view, for each view that some samples lack.
    events : int, optional
        Number of samples with an event; None unless the target is times to an event.
    """

    n_samples: int
    views: Mapping[str, int]
    classes: Mapping[str, int] = field(default_factory=dict)
    missing: int = 0
    source: str = ""
    absent: Mapping[str, int] = field(default_factory=dict)
    events: int | None = None


@dataclass(frozen=True)
class Predictions:
    """Cross-validated predictions, each by a model that was not trained on the sample.

    Attributes
    ----------
    truth, predicted : arrays of shape (n_samples,)
        Class labels, or numbers if the model of the report is a regressor.
    scores : array of shape (n_samples,), optional
        Decision values for the second of two classes.
    decisions : array of shape (n_samples, n_classes) or (n_samples, 1), optional
        Decision values for each class, or for the second of two.
    classes : array of shape (n_classes,), optional
        The classes of ``decisions`` and ``probabilities``.
    probabilities : array of shape (n_samples, n_classes), optional
    parts : array of shape (n_samples, n_decisions, n_views), optional
        Contribution of each view to each decision, or to a predicted number.
    views : tuple of str
        The views of ``parts``.
    folds : array of shape (n_samples,), optional
        The fold in which a sample was a test sample.
    ids : array of shape (n_samples,), optional
        Names of the samples; their indices by default.

    If ``truth`` is a structured array of ``event`` and ``time``, ``predicted`` contains
    risks, which are only compared within a fold.
    """

    truth: NDArray[Any]
    predicted: NDArray[Any]
    scores: NDArray[np.float64] | None = None
    decisions: NDArray[np.float64] | None = None
    classes: NDArray[Any] | None = None
    probabilities: NDArray[np.float64] | None = None
    parts: NDArray[np.float64] | None = None
    views: tuple[str, ...] = ()
    folds: NDArray[np.intp] | None = None
    ids: NDArray[Any] | None = None

    def columns(self) -> dict[str, list[Any]]:
        """Return all values of each sample, as the columns of a table."""
        ids = np.arange(len(self.truth)) if self.ids is None else self.ids
        found = {"sample": ids, "truth": self.truth, "predicted": self.predicted}
        if self.of_times:
            del found["truth"]
            found |= {name: self.truth[name] for name in ("time", "event")}
        if self.folds is not None:
            found["fold"] = self.folds + 1
        if self.classes is not None:
            if self.decisions is not None:
                one = self.decisions.shape[1] == 1
                for label, values in zip(
                    self.classes[1:] if one else self.classes,
                    self.decisions.T,
                    strict=True,
                ):
                    found[f"score_{label}"] = values
            if self.probabilities is not None:
                for label, values in zip(
                    self.classes, self.probabilities.T, strict=True
                ):
                    found[f"probability_{label}"] = values
        return {name: np.asarray(values).tolist() for name, values in found.items()}

    @property
    def of_times(self) -> bool:
        """Whether the predictions are risks of survival data."""
        return self.truth.dtype.names is not None


@dataclass(frozen=True)
class ViewShare:
    """Importance of a view: all its kernels together.

    Attributes
    ----------
    view : str
    n_kernels, used : int
        Kernels of the view, and those with more than a negligible weight.
    share : float
        Share of its kernels in the squared norm of the decision function; the shares of
        all views sum to one.
    low, high : float or None
        Interval that contains the share in 95 % of resamples.
    importance : float or None
        Decrease of the score on new samples if the view is permuted.
    p_value : float or None
        Probability of such a decrease for an uninformative view.
    unique, unique_error : float or None
        Decrease of the score if the model is fitted without the view, and its standard
        error over folds.
    shapley, shapley_error, sampling_error : float or None
        Shapley value of the view, its standard error over folds, and that of sampling
        orders of the views, if they were sampled.
    """

    view: str
    n_kernels: int
    used: int
    share: float
    low: float | None = None
    high: float | None = None
    importance: float | None = None
    p_value: float | None = None
    unique: float | None = None
    unique_error: float | None = None
    shapley: float | None = None
    shapley_error: float | None = None
    sampling_error: float | None = None


@dataclass(frozen=True)
class LearningCurve:
    """Scores of a model trained on subsets of the training samples of each fold.

    Attributes
    ----------
    sizes : tuple of int
        Numbers of training samples, ascending.
    scores : array of shape (n_sizes, n_folds)
        Scores on the test samples of the folds.
    folds : tuple of (int, int)
        Numbers of training and test samples of each fold.
    """

    sizes: tuple[int, ...]
    scores: NDArray[np.float64]
    folds: tuple[tuple[int, int], ...]

    @property
    def rise(self) -> tuple[float, float]:
        """Increase of the score in the last step, and its standard error."""
        steps = self.scores[-1] - self.scores[-2]
        return float(steps.mean()), float(error_over_folds(steps, self.folds))

    def rows(self) -> list[dict[str, float]]:
        """Return size, mean score and its standard error over folds, for each size."""
        folds = self.scores.shape[1]
        spread = self.scores.std(axis=1, ddof=1) if folds > 1 else self.scores[:, 0] * 0
        return [
            {"size": size, "score": float(mean), "standard_error": float(error)}
            for size, mean, error in zip(
                self.sizes, self.scores.mean(axis=1), spread / folds**0.5, strict=True
            )
        ]


@dataclass(frozen=True)
class Report:
    """The content of ``report.html``; parts that are None are left out.

    Attributes
    ----------
    title : str
    data : DataSummary
    model : fitted estimator of mklearn
    comparison : Comparison, optional
        As returned by :func:`mklearn.model_selection.compare`.
    scoring : str
        Name of its score.
    alignment : array of shape (n_kernels, n_kernels), optional
        As returned by :func:`mklearn.report.kernel_alignment`.
    predictions : Predictions, optional
    views : ScoreByView, optional
        As returned by :func:`mklearn.interpretation.score_by_view`.
    tests : KernelTests, optional
        As returned by :func:`mklearn.inference.kernel_tests`, for the same kernels.
    profile : array of shape (n_kernels, 2), optional
        95 % intervals of the shares of variance by profile likelihood.
    stability : WeightStability, optional
        As returned by :func:`mklearn.interpretation.weight_stability`, for the same
        kernels.
    loading : str
        Code that loads the model, shown verbatim.
    shares : tuple of ViewShare
        As returned by :func:`view_shares`; those of the model by default.
    refits : str
        How the scores without views in ``shares`` were computed, or why they were not.
    verdict : str
        Conclusion of the comparison in one sentence; shown first.
    findings : tuple of str
        The warnings of :func:`~mklearn.report.sample_checks`.
    notes : tuple of str
        Decisions about the data, including what was left out.
    origin : mapping of str to str
        Origin of the report: command, date, seed, versions.
    curve : LearningCurve, optional
    """

    title: str
    data: DataSummary
    model: Any
    comparison: Comparison | None = None
    scoring: str = "accuracy"
    alignment: NDArray[np.float64] | None = None
    predictions: Predictions | None = None
    views: ScoreByView | None = None
    tests: KernelTests | None = None
    profile: NDArray[np.float64] | None = None
    stability: WeightStability | None = None
    loading: str = ""
    shares: tuple[ViewShare, ...] = ()
    refits: str = ""
    verdict: str = ""
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    curve: LearningCurve | None = None


# --- the data -------------------------------------------------------------------------


def describe_data(
    X: Any, y: Any = None, *, missing: int = 0, source: str = ""
) -> DataSummary:
    """Return the summary of samples and, if ``y`` is given, of classes or events.

    Times and events are given as a structured array.
    """
    absent = {}
    if isinstance(X, MultiView):
        views = {name: 1 if X.is_text(name) else X[name].shape[1] for name in X}
        lacking = {name: int(X.absent(name).sum()) for name in X}
        absent = {name: count for name, count in lacking.items() if count}
    elif isinstance(X, KernelBank) or np.ndim(X) == 3:
        views = {"precomputed kernels": X.shape[2]}
    else:
        views = {"X": np.shape(X)[1]}
    if y is not None and np.asarray(y).dtype.names:
        events = int(check_times(y, X.shape[0], needs_event=False)[:, 1].sum())
        return DataSummary(X.shape[0], views, {}, missing, source, absent, events)
    classes = {} if y is None else class_counts(y)
    return DataSummary(X.shape[0], views, classes, missing, source, absent)


def class_counts(y: Any) -> dict[str, int]:
    """Return the number of samples of each class, in sorted order."""
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
    if getattr(model, "rejected_", ()):
        content["rejected"] = list(model.rejected_)
    if hasattr(model, "evidence_"):
        content["evidence"] = evidence(model.solution_, model.noise_)
    if getattr(model, "_fixed", None) is not None:
        content["covariates"] = {
            "names": list(model.fixed_names_),
            "effects": np.atleast_2d(model.fixed_effects_).tolist(),
            "dropped": list(model.fixed_dropped_),
        }
    return _finite(content)


def view_shares(
    model: Any,
    stability: WeightStability | None = None,
    importance: KernelImportance | None = None,
    unique: ScoreByView | None = None,
    shapley: ScoreByView | None = None,
) -> tuple[ViewShare, ...]:
    """Return the importance of each view in a fitted model, summed over its kernels.

    Parameters
    ----------
    model : fitted estimator
    stability : WeightStability, optional
        For the same kernels; provides the intervals.
    importance : KernelImportance, optional
        By view; provides the p-values.
    unique, shapley : ScoreByView, optional
        Scores by view of these kinds.
    """
    rows = kernel_rows(model)
    groups = kernels_by_view(model.kernel_names_, model.kernels_)
    found = []
    for name, members in groups.items():
        more: dict[str, float | None] = {}
        if stability is not None:
            # models of resamples lack the kernels that a search has left out
            place = {kernel: j for j, kernel in enumerate(stability.kernel_names)}
            known = [model.kernel_names_[m] for m in members]
            there = [place[kernel] for kernel in known if kernel in place]
            parts = stability.contributions[..., there].sum(axis=-1)
            parts = parts.reshape(len(parts), -1).mean(axis=1)  # over classes
            tail = (1.0 - stability.level) / 2.0
            low, high = np.quantile(parts, [tail, 1.0 - tail])
            more |= {"low": float(low), "high": float(high)}
        if importance is not None and name in importance.names:
            place = importance.names.index(name)
            more["importance"] = float(importance.mean[place])
            more["p_value"] = float(importance.p_values[place])
        for kind, scores in (("unique", unique), ("shapley", shapley)):
            if scores is not None and name in scores.names:
                row = _view_score(scores, scores.names.index(name))
                more |= {kind: row["score"], f"{kind}_error": row["standard_error"]}
                if kind == "shapley":
                    more["sampling_error"] = row["sampling_error"]
        share = sum(rows[m].contribution for m in members)
        used = sum(rows[m].used for m in members)
        found.append(ViewShare(name, len(members), used, share, **more))
    return tuple(found)


def headline(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a summary of the kernels: shares of views, and merged widths.

    Kernels that differ only in their width are similar, and the division of a weight
    among them means little; three or more of them are merged into one row.

    Parameters
    ----------
    kernels : sequence of mappings
        As returned by :func:`model_facts`.

    Returns
    -------
    dict
        ``views``, empty unless there are two or more, and ``kernels``.
    """
    views: dict[str, list[Mapping[str, Any]]] = {}
    ladders: dict[Any, list[Mapping[str, Any]]] = {}
    for row in kernels:
        if row["view"] is not None:
            views.setdefault(row["view"], []).append(row)
        kind, sign, _ = row["name"].partition("(")
        width = sign and "gamma" in row["parameters"]
        ladders.setdefault(kind if width else (row["name"], len(ladders)), []).append(
            row
        )
    rows: list[dict[str, Any]] = []
    for kind, members in ladders.items():
        if isinstance(kind, tuple) or len(members) < 3:
            rows += [dict(row) for row in members]
            continue
        rows.append({**_together(members), "name": f"{kind}, {len(members)} widths"})
    known = len(views) > 1 and all(row["view"] is not None for row in kernels)
    shown = [{**_together(members), "name": view} for view, members in views.items()]
    return {"views": shown if known else [], "kernels": rows}


def _together(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    used = sum(bool(row["used"]) for row in members)
    return {
        "contribution": sum(row["contribution"] for row in members),
        "used": used > 0,
        "n_used": used,
        "n_kernels": len(members),
    }


def certificate(solution: Solution, model: Any = None) -> dict[str, Any]:
    """Return the bounds and their meaning, ready for JSON."""
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


def evidence(solutions: Any, noise: Any) -> dict[str, Any]:
    """Return the evidence and what it means, ready for JSON.

    If targets, or groups of them, have their own weights, it is the sum over these,
    with the largest promise.

    Parameters
    ----------
    solutions : Solution or list of Solution
    noise : array of shape (n_outputs,)
    """
    each = solutions if isinstance(solutions, list) else [solutions]
    last = widest(solutions)
    promises = [
        float(value)
        for one in each
        if one.about.promise is not None
        for value in np.atleast_1d(one.about.promise)
        if np.isfinite(value)
    ]
    return {
        "log_evidence": sum(float(np.sum(one.about.evidence)) for one in each),
        "log_evidence_of_nothing": sum(
            float(np.sum(one.about.nothing)) for one in each
        ),
        "promise": max(promises, default=None),
        "noise": noise.tolist(),
        "status": last.status.name,
        "n_iter": max(one.n_iter for one in each),
        "message": last.message,
        "plain_words": MOST_LIKELY,
    }


def _finite(value: Any) -> Any:
    """Return plain values with infinities and NaN, which JSON lacks, as strings."""
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


def verdict(
    comparison: Comparison,
    scoring: str,
    *,
    method: str,
    plain: str | None = None,
    guess: str | None = None,
) -> dict[str, Any]:
    """Return which model of a comparison to use and why, ready for JSON.

    A difference is clear if it exceeds two standard errors.

    Parameters
    ----------
    comparison : Comparison
    scoring : str
        Name of its score.
    method : str
        The model that the comparison is about.
    plain : str, optional
        The unweighted sum of the same kernels.
    guess : str, optional
        A model that predicts without using the samples.

    Returns
    -------
    dict
        ``use``, the name of a model; ``why``, one of "nothing found", "rival",
        "sum better", "sum as good", "learned better" and "best"; ``over``, the model
        that ``difference`` and ``difference_error`` refer to; ``words``.
    """

    def clear(a: str, b: str) -> bool:
        mean, error = comparison.difference(a, b)
        return mean > 2.0 * error

    names = [name for name in comparison.names if name != guess]
    by_score = dict(zip(comparison.names, comparison.mean.tolist(), strict=True))
    best = max(names, key=by_score.__getitem__)
    rivals = [name for name in names if name not in (method, plain)]
    rival = max(rivals, key=by_score.__getitem__, default=None)
    use, why, over = method, "best", rival
    if guess is not None and not clear(best, guess):
        use, why, over = guess, "nothing found", guess
    elif rival is not None and clear(rival, method):
        use, why, over = rival, "rival", method
    elif plain is not None and clear(plain, method):
        use, why, over = plain, "sum better", method
    elif plain is not None and clear(method, plain):
        use, why, over = method, "learned better", plain
    elif plain is not None:
        use, why, over = plain, "sum as good", plain
    found: dict[str, Any] = {"use": use, "why": why, "over": over}
    if over is not None:
        a, b = {
            "nothing found": (best, over),
            "sum as good": (method, over),
            "best": (method, over),
        }.get(why, (use, over))
        mean, error = comparison.difference(a, b)
        found |= {"difference": mean, "difference_error": error, "best": best}
    return {**found, "words": verdict_words(found, scoring)}


def view_facts(found: ScoreByView) -> dict[str, Any]:
    """Return the scores attributed to views, with their standard errors."""
    return {
        "kind": found.kind,
        "by": found.by,
        "scoring": found.scoring,
        "total": found.total,
        "total_error": _plain(found.total_error),
        "rest": found.rest,
        "views": [
            {"name": name, **_view_score(found, i)}
            for i, name in enumerate(found.names)
        ],
    }


def _view_score(found: ScoreByView, i: int) -> dict[str, float | None]:
    drawn = found.sampling_errors
    return {
        "score": float(found.scores[i]),
        "standard_error": _plain(found.standard_errors[i]),
        "sampling_error": None if drawn is None else float(drawn[i]),
    }


def inference_facts(
    model: Any,
    tests: KernelTests | None = None,
    profile: Any = None,
    stability: WeightStability | None = None,
) -> dict[str, Any]:
    """Return tests and intervals of weights by column, if any, ready for JSON."""
    if np.ndim(model.kernel_weights_) == 2:  # whose errors take a while
        return {}
    if stability is not None and stability.kernel_names != tuple(model.kernel_names_):
        stability = None  # resamples may lack columns that vary too little
    known = hasattr(model, "weight_errors_") or tests is not None or stability
    if not known:
        return {}
    columns = inference_columns(model, tests, stability, profile=profile)
    content: dict[str, Any] = {
        name: [_plain(value) for value in values]
        for name, values in columns.items()
        if name not in ("kernel", "weight", "share")
    }
    if hasattr(model, "weight_errors_"):
        content["share"] = [float(value) for value in columns["share"]]
    return content


def _plain(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def errors_of_values(found: Predictions) -> dict[str, float]:
    """Return measures of the errors of predicted numbers."""
    truth, predicted = found.truth, found.predicted
    return {
        "r2": float(r2_score(truth, predicted)),
        "mean_absolute_error": float(mean_absolute_error(truth, predicted)),
        "root_mean_squared_error": float(root_mean_squared_error(truth, predicted)),
        "standard_deviation": float(np.std(truth)),
    }


def errors_of_classes(found: Predictions) -> dict[str, Any]:
    """Return the confusion matrix, true classes in rows, and the area under the ROC.

    The area is None unless there are two classes and scores.
    """
    truth, predicted = found.truth, found.predicted
    labels = np.unique(np.concatenate([truth, predicted]))
    area = None
    if found.scores is not None and len(labels) == 2:
        area = float(roc_auc_score(truth == labels[1], found.scores))
    table = confusion_matrix(truth, predicted, labels=labels)
    right, true, said = np.diag(table), table.sum(axis=1), table.sum(axis=0)
    recall = right / np.maximum(true, 1)
    precision = right / np.maximum(said, 1)
    f1 = 2.0 * right / np.maximum(true + said, 1)
    return {
        "classes": [str(label) for label in labels],
        "recall": recall.tolist(),
        "precision": precision.tolist(),
        "f1": f1.tolist(),
        "balanced_accuracy": float(recall[true > 0].mean()),
        "confusion": table.tolist(),
        "accuracy": float(np.mean(truth == predicted)),
        "roc_auc": area,
    }


def errors_of_times(found: Predictions) -> dict[str, Any]:
    """Return concordance, areas under the curve, and groups by risk.

    Risks are compared only within folds. Areas are computed at quartiles of the event
    times; groups are thirds, or halves if there are few events, as far as equal risks
    allow.
    """
    y, risk = found.truth, np.asarray(found.predicted, dtype=float)
    fold = np.zeros(len(y), dtype=int) if found.folds is None else found.folds
    folds = [np.flatnonzero(fold == k) for k in np.unique(fold)]
    c = np.array([concordance_index(y[rows], risk[rows]) for rows in folds])
    c = c[np.isfinite(c)]
    at = np.quantile(y["time"][y["event"]], [0.25, 0.5, 0.75])
    areas = np.array([dynamic_auc(y, y[rows], risk[rows], at) for rows in folds])
    names = (
        ["low", "middle", "high"] if int(y["event"].sum()) >= 30 else ["low", "high"]
    )
    group = np.zeros(len(y), dtype=int)
    for rows in folds:
        # equal risks are in the same group, whatever the order of rows
        _, which, count = np.unique(risk[rows], return_inverse=True, return_counts=True)
        place = np.cumsum(count) - (count + 1) / 2  # the mean of those with this risk
        group[rows] = (place * len(names) / len(rows)).astype(int)[which]
    known = np.isfinite(areas)
    sums, counts = np.where(known, areas, 0.0).sum(axis=0), known.sum(axis=0)
    return {
        "concordance": float(c.mean()) if len(c) else None,
        "standard_error": float(c.std(ddof=1) / len(c) ** 0.5) if len(c) > 1 else None,
        "at": at.tolist(),
        "events_by_then": [int(np.sum(y["event"] & (y["time"] <= t))) for t in at],
        "areas": [
            float(s / n) if n else None for s, n in zip(sums, counts, strict=True)
        ],
        "groups": {
            name: _curve(y[group == k])
            for k, name in enumerate(names)
            if (group == k).any()
        },
    }


def _curve(y: NDArray[Any]) -> dict[str, Any]:
    """Return the Kaplan-Meier curve of a group, and its size."""
    curve = kaplan_meier(y)
    return {
        "n_samples": len(y),
        "events": int(y["event"].sum()),
        "times": [0.0, *curve.x.tolist()],
        "share_without_event": [1.0, *curve.y.tolist()],
    }
