"""The demonstration: learned kernel weights against what they have to beat.

The data ship with scikit-learn: 569 tumours, described by ten measurements of cell
nuclei in three ways (mean, standard error and worst value), which are the views.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from mklearn import __version__
from mklearn.estimators import (
    BestKernelClassifier,
    MKLClassifier,
    UniformMKLClassifier,
)
from mklearn.kernels import Kernel, Linear, MultiView, rbf_ladder
from mklearn.model_selection import Comparison, compare
from mklearn.plotting import plot_convergence, plot_weights
from mklearn.report import (
    Predictions,
    Report,
    describe_data,
    kernel_alignment,
    whole_file,
    write_html,
)
from mklearn.report.facts import comparison_facts, model_facts

VIEWS = {"mean": slice(0, 10), "error": slice(10, 20), "worst": slice(20, 30)}
REFERENCE = "SVC (one RBF kernel)"
SPARSE, DENSE = "MKL, norm=1 (sparse)", "MKL, norm=2"


def load_views() -> tuple[MultiView, NDArray[Any]]:
    """Return the three views and the diagnoses."""
    data = load_breast_cancer()
    X = MultiView.from_columns(data.data, VIEWS)
    return X, data.target_names[data.target]


def make_kernels() -> list[Kernel]:
    """Return a linear kernel and three RBF widths around the median for each view."""
    kernels: list[Kernel] = []
    for view in VIEWS:
        name = f"{view}:linear"
        # standardize=True: scaled by the training samples of each fold alone
        kernels.append(Linear(view=view, standardize=True, name=name))
        kernels += rbf_ladder(3, spread=16, view=view, standardize=True)
    return kernels


def make_models() -> dict[str, Any]:
    """Return what is compared, all with the default C."""
    kernels = make_kernels()
    plain = make_pipeline(FunctionTransformer(side_by_side), StandardScaler(), SVC())
    return {
        REFERENCE: plain,
        "best single kernel": BestKernelClassifier(kernels),
        "unweighted sum": UniformMKLClassifier(kernels),
        DENSE: MKLClassifier(kernels, norm=2),
        SPARSE: MKLClassifier(kernels, norm=1),
    }


def side_by_side(X: MultiView) -> NDArray[np.float64]:
    """Return all views as one table."""
    return np.hstack([X[name] for name in X])


@dataclass(frozen=True)
class Demo:
    """Results of the demonstration."""

    comparison: Comparison
    models: dict[str, MKLClassifier]  # fitted on all samples
    shape: tuple[int, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the results, ready for JSON."""
        return {
            "mklearn": __version__,
            "data": {
                "name": "breast_cancer",
                "n_samples": self.shape[0],
                "n_features": self.shape[1],
                "views": list(VIEWS),
            },
            "scoring": "accuracy",
            "n_folds": self.comparison.scores.shape[1],
            "reference": REFERENCE,
            "methods": comparison_facts(self.comparison),
            "fits": {name: _fit_as_dict(model) for name, model in self.models.items()},
        }

    def report(self) -> Report:
        """Return what ``report.html`` shows, with predictions on the same folds."""
        X, y = load_views()
        model = self.models[DENSE]
        scores = cross_val_predict(
            model, X, y, cv=self.comparison.splits, method="decision_function"
        )
        predicted = model.classes_[(scores > 0).astype(int)]
        return Report(
            title="Tumours, benign or malignant: what multiple kernel learning found",
            data=describe_data(X, y, source="breast_cancer of scikit-learn"),
            model=model,
            comparison=self.comparison,
            alignment=kernel_alignment(model, X),
            predictions=Predictions(y, predicted, scores),
        )


def run_demo(
    n_folds: int = 5, callback: Callable[[str, int], Any] | None = None
) -> Demo:
    """Compare all methods on the same stratified folds, then fit MKL on all samples.

    Parameters
    ----------
    n_folds : int
    callback : callable, optional
        Called with the method and the fold after each fit, as by ``compare``.
    """
    X, y = load_views()
    models = make_models()
    _compile(models, X, y)
    cv = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    comparison = compare(models, X, y, cv, callback=callback)
    final = {name: models[name].fit(X, y) for name in (SPARSE, DENSE)}
    return Demo(comparison, final, X.shape)


def _compile(models: dict[str, Any], X: MultiView, y: NDArray[Any]) -> None:
    """Fit each method once on few samples, so that no compiling is timed later."""
    for model in models.values():
        model.fit(X[:60], y[:60]).predict(X[60:70])


def _fit_as_dict(model: MKLClassifier) -> dict[str, Any]:
    facts, history = model_facts(model), model.solution_.history
    return {
        **facts["chosen"],
        "kernels": facts["kernels"],
        "certificate": facts["certificates"][0],
        "history": {"upper": list(history.upper), "lower": list(history.lower)},
    }


def save_figures(result: Demo, out: Path) -> list[str]:
    """Save figures and report and return their names.

    Without matplotlib there are no figures, and the report has numbers alone.
    """
    write_html(out / "report.html", result.report())
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ["report.html"]
    weights = Figure(figsize=(10, 5), layout="constrained")
    axes = weights.subplots(1, 2)
    for ax, name in zip(axes, (SPARSE, DENSE), strict=True):
        plot_weights(result.models[name], ax, label=name)
    convergence = Figure(figsize=(7, 4.5), layout="constrained")
    plot_convergence(result.models[SPARSE].solution_, convergence.subplots())
    figures = {"weights.png": weights, "convergence.png": convergence}
    for name, figure in figures.items():
        with whole_file(out / name) as path:
            figure.savefig(path, format="png", dpi=150)
    return [*figures, "report.html"]
