"""The demonstration: learned weights find the informative views among noise.

The data ship with scikit-learn: 300 handwritten digits, described in four ways (pixels,
profiles, Fourier magnitudes and edges). Then four views of noise are added, and finally
three tenths of the descriptions of digits are removed. The usual alternatives are
evaluated on the same samples and the same folds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from mklearn import __version__
from mklearn.cli.shares import mean_importance
from mklearn.estimators import MKLClassifier, MKLClassifierCV
from mklearn.interpretation import (
    KernelImportance,
    WeightStability,
    kernel_importance,
    weight_stability,
)
from mklearn.kernels import RBF, Linear, MultiView, per_view
from mklearn.model_selection import Comparison, Split, compare
from mklearn.plotting import KernelWeightsDisplay, plot_convergence
from mklearn.report import (
    Predictions,
    Report,
    ViewShare,
    describe_data,
    kernel_alignment,
    view_shares,
    whole_file,
    write_html,
)
from mklearn.report.facts import comparison_facts, model_facts

SVM, FOREST = "tuned SVC", "random forest"
SUM, LEARNED = "sum of the kernels", "learned weights"
PLAIN, NOISY, GAPS = "four views", "with noise", "with gaps"
SAMPLES = 30  # of each digit
NOISE = 4  # number of views, as wide as the pixels
GONE = 0.3  # share of the views of digits that are removed
SEED = 0


# --- data -----------------------------------------------------------------------------


def load_views() -> tuple[dict[str, MultiView], NDArray[np.intp]]:
    """Return the samples in each of the three situations, and their digits."""
    data, rng = load_digits(), np.random.default_rng(SEED)
    rows = [
        rng.permutation(np.flatnonzero(data.target == digit))[:SAMPLES]
        for digit in range(10)
    ]
    keep = np.sort(np.concatenate(rows))
    images, y = data.images[keep], data.target[keep]
    views = {
        "pixels": images.reshape(len(images), -1),
        "profiles": np.hstack([images.sum(axis=1), images.sum(axis=2)]),
        "Fourier": _magnitudes(images),
        "edges": _edges(images),
    }
    shape = views["pixels"].shape
    noise = {f"noise {i + 1}": rng.normal(size=shape) for i in range(NOISE)}
    gone = rng.random((len(y), len(views))) < GONE
    gone[gone.all(axis=1), 0] = False  # each sample keeps at least one view
    holes = {
        name: np.where(gone[:, [j]], np.nan, view)
        for j, (name, view) in enumerate(views.items())
    }
    found = {PLAIN: views, NOISY: {**views, **noise}, GAPS: {**holes, **noise}}
    return {name: MultiView(parts) for name, parts in found.items()}, y


def _magnitudes(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the magnitude of each frequency, which does not depend on position."""
    centred = images - images.mean(axis=(1, 2), keepdims=True)
    return np.abs(np.fft.rfft2(centred)).reshape(len(images), -1)


def _edges(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the amount of edges in eight directions, for each quarter."""
    down, right = np.gradient(images, axis=(1, 2))
    size, angle = np.hypot(down, right), np.arctan2(down, right) / (2 * np.pi)
    direction = np.floor(8 * (angle % 1.0)).astype(int) % 8
    halves = (slice(0, 4), slice(4, 8))
    return np.stack(
        [
            np.where(direction == k, size, 0.0)[:, top, left].sum(axis=(1, 2))
            for top in halves
            for left in halves
            for k in range(8)
        ],
        axis=1,
    )


# --- models ---------------------------------------------------------------------------


def make_models() -> dict[str, Any]:
    """Return the models to compare; all but the forest tune their settings."""
    # scaled using only the training samples of each fold
    widths = [RBF("scale", factor, standardize=True) for factor in (0.25, 1.0)]
    kernels = per_view(Linear(standardize=True), *widths)
    search = GridSearchCV(
        SVC(), {"C": [1.0, 10.0, 100.0], "gamma": [1e-3, 3e-3, 1e-2, 3e-2]}, cv=3
    )
    forest = RandomForestClassifier(random_state=SEED)
    costs = {"Cs": [0.1, 1.0, 10.0, 100.0], "cv": 3}
    return {
        SVM: make_pipeline(*_one_table(), StandardScaler(), search),
        FOREST: make_pipeline(*_one_table(), forest),
        SUM: MKLClassifierCV(kernels, norms=[np.inf], **costs),
        LEARNED: MKLClassifierCV(kernels, norms=[1.0, 2.0, np.inf], **costs),
    }


def _one_table() -> tuple[Any, Any]:
    return FunctionTransformer(side_by_side), SimpleImputer()


def side_by_side(X: MultiView) -> NDArray[np.float64]:
    """Return all views as one table."""
    return np.hstack([X[name] for name in X])


# --- results --------------------------------------------------------------------------


@dataclass(frozen=True)
class Demo:
    """Results of the demonstration."""

    comparisons: dict[str, Comparison]  # by situation
    model: MKLClassifierCV  # fitted on all samples, including the views of noise
    stability: WeightStability  # of its weights
    importance: KernelImportance  # of views, on test samples
    predictions: Predictions  # of the folds
    X: dict[str, MultiView]
    y: NDArray[Any]

    @property
    def views(self) -> tuple[ViewShare, ...]:
        """Importance of each view, with intervals."""
        return view_shares(self.model, self.stability, self.importance)

    def as_dict(self) -> dict[str, Any]:
        """Return the results, ready for JSON."""
        facts, history = model_facts(self.model), self.model.solution_.history
        return {
            "mklearn": __version__,
            "data": {
                "name": "digits",
                "n_samples": len(self.y),
                "views": {k: X.shape[1] for k, X in self._each_view().items()},
            },
            "scoring": "accuracy",
            "n_folds": self.comparisons[NOISY].scores.shape[1],
            "reference": SVM,
            "situations": {
                name: {
                    "views": list(self.X[name].names),
                    "absent": sum(
                        int(self.X[name].absent(v).sum()) for v in self.X[name]
                    ),
                    "methods": _situation(comparison),
                }
                for name, comparison in self.comparisons.items()
            },
            "model": {
                "situation": NOISY,
                **facts["chosen"],
                "kernels": facts["kernels"],
                "views": [asdict(view) for view in self.views],
                "certificate": facts["certificates"][0],
                "history": {"upper": list(history.upper), "lower": list(history.lower)},
            },
        }

    def _each_view(self) -> dict[str, NDArray[np.float64]]:
        return {name: self.X[NOISY][name] for name in self.X[NOISY]}

    def report(self) -> Report:
        """Return what ``report.html`` shows: the situation with noise."""
        X = self.X[NOISY]
        return Report(
            title="Digits in four views, and four views of noise",
            data=describe_data(X, self.y, source="digits of scikit-learn, and noise"),
            model=self.model,
            comparison=self.comparisons[NOISY],
            alignment=kernel_alignment(self.model, X),
            predictions=self.predictions,
            shares=self.views,
        )


def _situation(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the facts of each method, with the difference to learned weights."""
    rows = comparison_facts(comparison)
    for row in rows:
        mean, error = comparison.difference(LEARNED, row["model"])
        row |= {"learned_better_by": mean, "learned_better_by_error": error}
    return rows


def n_fits(n_folds: int) -> int:
    """Return the number of fits of the comparisons."""
    return 3 * len(make_models()) * n_folds


def run_demo(
    n_folds: int = 5, callback: Callable[[str, int], Any] | None = None
) -> Demo:
    """Compare all methods on the same stratified folds in each situation.

    Parameters
    ----------
    n_folds : int
    callback : callable, optional
        Called with the method and the fold after each fit, as by ``compare``.
    """
    data, y = load_views()
    models = make_models()
    _compile(models, data[PLAIN], y)
    cv = StratifiedKFold(n_folds, shuffle=True, random_state=SEED)
    tested: list[KernelImportance] = []
    predicted = np.empty_like(y)

    def watch(name: str, model: Any, split: Split) -> None:
        if name == LEARNED:
            X, test = data[NOISY], split[1]
            predicted[test] = model.predict(X[test])
            tested.append(
                kernel_importance(model, X[test], y[test], by="view", random_state=SEED)
            )

    comparisons = {
        name: compare(
            models, X, y, cv, callback=callback, watch=watch if name == NOISY else None
        )
        for name, X in data.items()
    }
    model = models[LEARNED].fit(data[NOISY], y)
    again = MKLClassifier(model.kernels, C=model.C_, norm=model.norm_)
    stability = weight_stability(
        again, data[NOISY], y, n_resamples=20, random_state=SEED
    )
    found = Predictions(y, predicted)
    return Demo(comparisons, model, stability, mean_importance(tested), found, data, y)


def _compile(models: dict[str, Any], X: MultiView, y: NDArray[Any]) -> None:
    """Fit each method once on few samples, so that compilation is not timed later."""
    for model in models.values():
        model.fit(X[:60], y[:60]).predict(X[60:70])


def save_figures(result: Demo, out: Path) -> list[str]:
    """Save figures and report and return their names.

    Without matplotlib there are no figures, and the report has only numbers.
    """
    write_html(out / "report.html", result.report())
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ["report.html"]
    weights = Figure(figsize=(11, 6), layout="constrained")
    left, right = weights.subplots(1, 2)
    views = result.views
    shares = KernelWeightsDisplay(
        weights=[view.share for view in views],
        names=[view.view for view in views],
        notes=[f"{100 * view.share:.0f} %" for view in views],
        interval=[[view.low for view in views], [view.high for view in views]],
        label="share in the decision, 95 % of resamples",
    )
    shares.plot(left, title="Views")
    KernelWeightsDisplay.from_estimator(result.model, ax=right, title="Kernels")
    convergence = Figure(figsize=(7, 4.5), layout="constrained")
    plot_convergence(result.model.solution_, convergence.subplots())
    figures = {"weights.png": weights, "convergence.png": convergence}
    for name, figure in figures.items():
        with whole_file(out / name) as path:
            figure.savefig(path, format="png", dpi=150)
    return [*figures, "report.html"]
