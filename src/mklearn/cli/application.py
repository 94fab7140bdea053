"""What the commands ``fit`` and ``compare`` do: from a file to models and results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import SVC, SVR
from sklearn.utils import get_tags

from mklearn.estimators import (
    BestKernelClassifier,
    BilinearMKLClassifier,
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLRegressor,
    MKLRegressorCV,
    SingleKernelCV,
    SubspaceClassifier,
    UniformMKLClassifier,
)
from mklearn.kernels import RBF, KernelBank, Linear, Spectrum, per_view
from mklearn.kernels.specs import BY_NAME
from mklearn.model_selection import Comparison, Split, compare
from mklearn.persistence import versions
from mklearn.report import Predictions, certificate, evidence, kernel_rows
from mklearn.solvers.path import NORMS
from mklearn.table import (
    MANY,
    SEQUENCE,
    Layout,
    TableError,
    TableModel,
    absent_rows,
    absent_words,
    filled_in,
    find_layout,
    is_gram_file,
    read_grams,
    read_table,
)

METHODS = ("mkl", "discriminant", "subspace", "bilinear", "evidence")
CLASSES, VALUES = "classification", "regression"
NON_NEGATIVE = ("chi2", "histogramintersection", "tanimoto")
Tick = Callable[[str, int, int], Any]  # after each fit: model, fold, fits in all
COSTS = np.logspace(-3, 3, 7)  # that --reg auto chooses from
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)


# --- options --------------------------------------------------------------------------


def parse_views(texts: Sequence[str]) -> dict[str, list[str]] | None:
    """Return views from options such as ``genes=g1,g2``; None if there are none."""
    views: dict[str, list[str]] = {}
    for text in texts:
        name, sign, columns = text.partition("=")
        listed = [c.strip() for c in columns.split(",") if c.strip()]
        name = name.strip()
        if not sign or not name or not listed:
            raise TableError(
                f"--views takes name=column,column,... and got {text!r}; repeat the "
                "option for each view."
            )
        if name in views:
            raise TableError(f"--views names {name!r} twice.")
        if len(set(listed)) < len(listed):
            raise TableError(f"view {name!r} names a column twice.")
        views[name] = listed
    return views or None


def parse_number(option: str, text: str, words: Sequence[str]) -> float | str:
    """Return a positive number, ``inf`` included, or one of the words."""
    if text in words:
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        known = ", ".join(map(repr, words))
        raise TableError(f"{option} takes a positive number or {known}, got {text!r}.")
    return number


def make_kernels(text: str, layout: Layout | None) -> tuple[Any, bool]:
    """Return the kernels that ``--kernels`` means, and whether to standardise.

    Each view gets its own; "auto" is a linear kernel and five RBF widths, and spectrum
    kernels for sequences.
    """
    if layout is None:
        return "precomputed", False
    names = [n.strip().lower().replace("_", "") for n in text.split(",") if n.strip()]
    unknown = [n for n in names if n != "auto" and n not in BY_NAME]
    if unknown or not names:
        raise TableError(
            f"--kernels takes names with commas between them, got {text!r}; known are "
            f"auto, {', '.join(sorted(BY_NAME))}."
        )
    kernels: list[Any] = []
    for name in names:
        if name == "auto":
            kernels += [Linear(), *(RBF("scale", factor) for factor in WIDTHS)]
            kernels += [Spectrum(k) for k in (1, 2, 3)]
        else:
            kernels.append(BY_NAME[name]())
    text_views = any(kind == SEQUENCE for kind in layout.kinds.values())
    numbers = any(kind != SEQUENCE for kind in layout.kinds.values())
    kernels = [k for k in kernels if (text_views if k.text else numbers)]
    if not kernels:
        raise TableError(
            f"none of the kernels {text!r} fits the columns; sequence kernels are for "
            "--sequences, the others for numbers and categories."
        )
    return per_view(*kernels), not any(name in NON_NEGATIVE for name in names)


# --- data -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Samples and targets, and what was decided about them."""

    X: Any  # DataFrame or KernelBank
    y: NDArray[Any]
    task: str
    target: str
    layout: Layout | None  # None for Grams
    said: list[str]
    name: str

    def as_dict(self) -> dict[str, Any]:
        """Return what the data are, ready for JSON."""
        content: dict[str, Any] = {
            "name": self.name,
            "n_samples": len(self.y),
            "target": self.target,
            "task": self.task,
            "notes": self.said,
        }
        if self.task == CLASSES:
            labels, counts = np.unique(self.y, return_counts=True)
            content["classes"] = {
                str(a): int(b) for a, b in zip(labels, counts, strict=True)
            }
        if self.layout is None:
            content["kernels"] = list(self.X.names)
        else:
            content["views"] = {k: list(v) for k, v in self.layout.views.items()}
            content["columns"] = dict(self.layout.kinds)
        return content


def load_data(
    path: Path,
    target: str,
    views: Mapping[str, Sequence[str]] | None = None,
    sequences: Sequence[str] = (),
    task: str = "auto",
) -> Data:
    """Read a table or Gram matrices and say what is to be learned from them."""
    if is_gram_file(path):
        if views or sequences:
            raise TableError("Gram matrices have no columns, so no views or sequences.")
        bank, labels = read_grams(path, target)
        assert labels is not None
        if bank.shape[0] != bank.shape[1]:
            raise TableError(
                f"{path} holds kernels of shape {bank.shape}; to fit, they must be "
                "(n, n, n_kernels), kernels last."
            )
        y, kind, why = _target(labels, target, task)
        return Data(bank, y, kind, target, None, [why], path.name)
    frame = read_table(path)
    layout = find_layout(frame, target, views, sequences)
    said = list(layout.said)
    absent = frame[target].isna()
    if absent.any():
        said.append(f"{int(absent.sum())} rows without a value of {target!r} are out.")
        frame = frame[~absent].reset_index(drop=True)
    if len(frame) == 0:
        raise TableError(f"all values of {target!r} are missing.")
    values = frame[target]
    if getattr(values.dtype, "kind", "O") not in "biuf":
        values = values.astype(str)
    y, kind, why = _target(np.asarray(values.tolist()), target, task)
    X = frame.drop(columns=[target])
    return Data(X, y, kind, target, layout, [why, *said], path.name)


def _target(y: NDArray[Any], name: str, task: str) -> tuple[NDArray[Any], str, str]:
    """Return the target, whether it is classes or values, and why."""
    numbers = y.dtype.kind in "iuf"
    if numbers and not np.isfinite(y).all():
        raise TableError(f"the target {name!r} has infinite or missing values.")
    count = len(np.unique(y))
    whole = numbers and bool((y == np.round(y)).all())
    if task == "auto":
        values = numbers and (not whole or count > MANY)
        task = VALUES if values else CLASSES
        if values:
            why = f"{count} different numbers: a regression"
        else:
            why = f"{count} different values: a classification"
    else:
        why = f"{count} different values: a {task}, as asked for"
    if task == VALUES and not numbers:
        raise TableError(f"the target {name!r} holds no numbers, so no regression.")
    if count < 2:
        raise TableError(
            f"the target {name!r} has one value only, {y[0]!s}; there is nothing to "
            "learn."
        )
    if task == CLASSES and whole:
        y = y.astype(np.int64)
    return y, task, f"The target {name!r} has {why} (--task changes that)."


def make_folds(data: Data, n_folds: int, seed: int) -> Any:
    """Return the splitter, or raise TableError if there are too few samples."""
    if data.task == VALUES:
        if len(data.y) < 2 * n_folds:
            raise TableError(
                f"{len(data.y)} samples are too few for {n_folds} folds; lower --cv."
            )
        return KFold(n_folds, shuffle=True, random_state=seed)
    labels, counts = np.unique(data.y, return_counts=True)
    if counts.min() < n_folds:
        raise TableError(
            f"class {labels[counts.argmin()]!s} has {counts.min()} samples, too few "
            f"for {n_folds} folds; lower --cv, or merge or drop the class."
        )
    return StratifiedKFold(n_folds, shuffle=True, random_state=seed)


# --- models ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The options of a fit."""

    method: str = "mkl"
    norm: float | str = 2.0
    reg: float | str | None = None
    kernels: str = "auto"
    cv: int = 5
    jobs: int | None = None
    seed: int = 0


def make_model(data: Data, options: Settings) -> Any:
    """Return the model of a method, not fitted."""
    kernels, standardize = make_kernels(options.kernels, data.layout)
    if data.task == VALUES and options.method not in ("mkl", "evidence"):
        raise TableError(
            f"--method {options.method} is for classes, and the target holds numbers; "
            "use --method mkl or evidence, or --task classification."
        )
    if data.task == CLASSES and options.method == "evidence":
        raise TableError(
            "--method evidence is for numbers, and the target holds classes; use "
            "another method, or --task regression."
        )
    return _on_table(_estimator(data, options, kernels), data, standardize)


def method_notes(options: Settings) -> list[str]:
    """Return what is to be said about options that a method takes in its own way."""
    if options.method == "subspace" and options.norm != Settings.norm:
        return ["--norm says nothing to --method subspace: its weights sum to one."]
    if options.method == "evidence" and options.norm != Settings.norm:
        return ["--norm says nothing to --method evidence: its weights have no norm."]
    if options.method == "discriminant" and options.reg in (None, "auto"):
        return ["reg is the one of 13 values with the least leave-one-out error."]
    if options.method == "subspace" and options.reg in (None, "auto"):
        return ["reg is 0.0005 times the trace of the kernel."]
    return []


def _estimator(data: Data, options: Settings, kernels: Any) -> Any:
    norm, reg = options.norm, options.reg
    if options.method == "discriminant":
        reg = "loo" if reg in (None, "auto") else reg
        model: Any = MKLDiscriminant(kernels, reg=reg)
        return _with_norm(model, options)
    if isinstance(reg, str) and reg != "auto":
        raise TableError(f"--reg {reg} is for --method discriminant.")
    if options.method == "evidence":
        if reg is not None:
            raise TableError("--method evidence finds its regularisation; omit --reg.")
        return EvidenceMKLRegressor(kernels)
    if options.method == "subspace":
        return SubspaceClassifier(kernels, reg="auto" if reg is None else reg)
    if options.method == "bilinear":
        C = 1.0 if reg in (None, "auto") else reg
        model = BilinearMKLClassifier(kernels, C=C, random_state=options.seed)
        return _with_norm(model, options, {"C": COSTS} if reg == "auto" else {})
    values = data.task == VALUES
    if "auto" in (norm, reg):
        search = MKLRegressorCV if values else MKLClassifierCV
        return search(
            kernels,
            norms=NORMS if norm == "auto" else [norm],
            Cs=7 if reg == "auto" else [1.0 if reg is None else reg],
            n_jobs=options.jobs,
        )
    plain = MKLRegressor if values else MKLClassifier
    return plain(kernels, norm=norm, C=1.0 if reg is None else reg)


def _with_norm(
    model: Any, options: Settings, grid: Mapping[str, Any] | None = None
) -> Any:
    """Return the model with its norm, or a search for it and for what the grid has."""
    tried = dict(grid or {})
    if options.norm == "auto":
        tried["norm"] = list(NORMS)
    else:
        model.set_params(norm=options.norm)
    return GridSearchCV(model, tried, n_jobs=options.jobs) if tried else model


def _found(model: Any) -> Any:
    """Return a fitted model with what a search has found in place of the search."""
    inner = model.estimator_ if _wrapped(model) else model
    if not isinstance(inner, GridSearchCV):
        return model
    if not _wrapped(model):
        return inner.best_estimator_
    model.set_params(estimator=clone(inner.best_estimator_))
    model.estimator_ = inner.best_estimator_
    return model


class GramModel(BaseEstimator):
    """An estimator on one of several Gram matrices as it is, or on their sum.

    Parameters
    ----------
    estimator : SVC or SVR with kernel="precomputed", or an estimator of mklearn
    which : int or None
        The number of the kernel; None is the sum.
    """

    def __init__(self, estimator: Any, which: int | None = None) -> None:
        self.estimator = estimator
        self.which = which

    def fit(self, X: KernelBank, y: Any) -> GramModel:
        """Fit the estimator on a square bank."""
        self.estimator_ = clone(self.estimator).fit(self._gram(X), y)
        return self

    def predict(self, X: KernelBank) -> NDArray[Any]:
        """Return the predictions for the rows of a cross bank."""
        return self.estimator_.predict(self._gram(X))

    def score(self, X: KernelBank, y: Any) -> float:
        """Return the estimator's own score."""
        return float(self.estimator_.score(self._gram(X), y))

    def _gram(self, X: KernelBank) -> NDArray[np.float64]:
        if self.which is not None:
            return X.gram(self.which)
        return X.combine(np.ones(X.shape[2]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags.pairwise = True
        return tags


def make_baselines(data: Data, options: Settings) -> dict[str, Any]:
    """Return what learned weights have to beat, with the same cost or choice of it."""
    kernels, standardize = make_kernels(options.kernels, data.layout)
    mine = options.method in ("mkl", "bilinear")
    chosen = options.reg == "auto"
    C = float(options.reg) if mine and isinstance(options.reg, (int, float)) else 1.0
    Cs = COSTS
    found: dict[str, Any] = {}
    if data.task == CLASSES:
        if chosen:
            found["unweighted sum"] = MKLClassifierCV(
                kernels, norms=[np.inf], Cs=Cs, n_jobs=options.jobs
            )
            found["best single kernel"] = SingleKernelCV(
                MKLClassifier(norm=1), kernels, values=Cs, n_jobs=options.jobs
            )
        else:
            found["unweighted sum"] = UniformMKLClassifier(kernels, C=C)
            found["best single kernel"] = BestKernelClassifier(
                kernels, C=C, n_jobs=options.jobs
            )
        plain: Any = SVC(C=C)
    else:
        found["unweighted sum"] = (
            MKLRegressorCV(kernels, norms=[np.inf], Cs=Cs, n_jobs=options.jobs)
            if chosen
            else MKLRegressor(kernels, norm=np.inf, C=C)
        )
        alone: Any = MKLRegressor(norm=1, C=C)
        prefix = ""
        if data.layout is None:
            alone = GramModel(MKLRegressor("precomputed", norm=1, C=C, psd="ignore"))
            single: dict[str, Any] = {"which": list(range(data.X.shape[2]))}
            prefix = "estimator__"
        else:
            single = {"kernels": [[k] for k in _listed_kernels(kernels, data.layout)]}
        found["best single kernel"] = GridSearchCV(
            alone,
            {**single, **({f"{prefix}C": Cs} if chosen else {})},
            n_jobs=options.jobs,
        )
        plain = SVR(C=C)
    models = {k: _on_table(m, data, standardize) for k, m in found.items()}
    search = GridSearchCV(plain, {"C": Cs}, n_jobs=options.jobs) if chosen else plain
    name = type(plain).__name__
    if data.layout is None:
        plain.set_params(kernel="precomputed")
        models[f"{name} (sum of the Grams)"] = GramModel(search)
    elif any(kind != SEQUENCE for kind in data.layout.kinds.values()):
        models[f"{name} (one RBF kernel)"] = _on_table(search, data, True, False)
    return models


def _listed_kernels(family: Any, layout: Layout) -> list[Any]:
    return [
        replace(kernel, view=view)
        for view, columns in layout.views.items()
        for kernel in family.kernels
        if bool(kernel.text) == (layout.kinds[columns[0]] == SEQUENCE)
    ]


def _on_table(model: Any, data: Data, standardize: bool, as_views: bool = True) -> Any:
    if data.layout is None:
        return model
    return TableModel(
        model,
        kinds=data.layout.kinds,
        views=data.layout.views,
        standardize=standardize,
        as_views=as_views,
    )


# --- runs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A comparison on the same folds and, after ``fit``, a model of all samples."""

    data: Data
    comparison: Comparison
    model: Any = None
    learned: str | None = None
    predictions: Predictions | None = None  # of the folds

    def as_dict(self) -> dict[str, Any]:
        """Return the results, ready for JSON."""
        result = self.comparison
        first = result.names[0]
        methods = []
        for i, row in enumerate(result.table()):
            mean, error = result.difference(row["model"], first)
            methods.append(
                {
                    **row,
                    "fold_scores": result.scores[i].tolist(),
                    "difference": mean,
                    "difference_error": error,
                }
            )
        content: dict[str, Any] = {
            "versions": versions(),
            "data": self.data.as_dict(),
            "scoring": "accuracy" if self.data.task == CLASSES else "r2",
            "n_folds": result.scores.shape[1],
            "differences_to": first,
            "methods": methods,
        }
        if self.model is not None:
            content["model"] = describe(self.model)
        return content


def describe(model: Any) -> dict[str, Any]:
    """Return kernels, weights and certificates of a fitted model, ready for JSON."""
    inner = getattr(model, "estimator_", model) if _wrapped(model) else model
    content: dict[str, Any] = {
        "class": type(inner).__name__,
        "kernels": [
            {
                "name": row.name,
                "view": row.view,
                "parameters": row.parameters,
                "weight": row.weight,
                "contribution": row.contribution,
                "used": row.used,
            }
            for row in kernel_rows(inner)
        ],
    }
    names = ("C", "norm", "reg")
    chosen = {n: getattr(inner, f"{n}_", getattr(inner, n, None)) for n in names}
    content["chosen"] = {k: v for k, v in chosen.items() if isinstance(v, (int, float))}
    solutions = getattr(inner, "solution_", None)
    listed = solutions if isinstance(solutions, list) else [solutions]
    content["certificates"] = [certificate(s, inner) for s in listed if s is not None]
    if hasattr(inner, "evidence_"):
        content["evidence"] = evidence(inner.evidence_)
    return _finite(content)


def _wrapped(model: Any) -> bool:
    return isinstance(model, TableModel)


def _finite(value: Any) -> Any:
    """Return plain values with infinities and NaN as words, which JSON lacks."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def run_fit(data: Data, options: Settings, callback: Tick | None = None) -> Run:
    """Compare a method with what it has to beat, then fit it on all samples."""
    data = replace(data, said=[*data.said, *method_notes(options)])
    name = f"learned weights ({options.method})"
    models = {name: make_model(data, options), **make_baselines(data, options)}
    folds = make_folds(data, options.cv, options.seed)
    seen = _Unseen(data, name)
    result = _compare(models, data, folds, callback, seen)
    model = _found(models[name].fit(data.X, data.y))
    return Run(data, result, model, name, seen.predictions())


class _Unseen:
    """Collects what one model says about the test samples of each fold."""

    def __init__(self, data: Data, name: str) -> None:
        self._data, self._name = data, name
        self._classes = np.unique(data.y) if data.task == CLASSES else None
        count = 2 if self._classes is None else len(self._classes)
        shape = (len(data.y), 1 if count == 2 else count)
        self._scores = np.full(shape, np.nan)

    def __call__(self, name: str, model: Any, split: Split) -> None:
        if name == self._name:
            (train, test), X = split, self._data.X
            given = isinstance(X, KernelBank)
            part = X[np.ix_(test, train)] if given else X.iloc[test]
            ask = model.predict if self._classes is None else model.decision_function
            scores = np.asarray(ask(part))
            self._scores[test] = scores[:, None] if scores.ndim == 1 else scores

    def predictions(self) -> Predictions:
        """Return what was predicted, which each sample was once, and some scores."""
        scores, y = self._scores, self._data.y
        if self._classes is None:
            return Predictions(np.asarray(y, dtype=float), scores[:, 0])
        if scores.shape[1] == 1:
            found = self._classes[(scores[:, 0] > 0).astype(int)]
            return Predictions(y, found, scores[:, 0])
        return Predictions(y, self._classes[scores.argmax(axis=1)])


def run_compare(
    data: Data,
    options: Settings,
    methods: Sequence[str],
    norms: Sequence[float],
    callback: Tick | None = None,
) -> Run:
    """Compare several methods and norms with the baselines, on the same folds."""
    models = {}
    for method in methods:
        with_norm = method in ("mkl", "bilinear")
        for norm in norms if with_norm else [1.0]:
            one = replace(options, method=method, norm=norm)
            if not with_norm:
                one = replace(one, reg=None)  # C says nothing about their reg
            name = f"{method}, norm={norm:g}" if with_norm else method
            models[name] = make_model(data, one)
    models.update(make_baselines(data, options))
    folds = make_folds(data, options.cv, options.seed)
    return Run(data, _compare(models, data, folds, callback))


def _compare(
    models: Mapping[str, Any],
    data: Data,
    folds: Any,
    callback: Tick | None,
    watch: Any = None,
) -> Comparison:
    total = len(models) * folds.get_n_splits()

    def tick(name: str, fold: int) -> None:
        if callback is not None:
            callback(name, fold, total)

    return compare(models, data.X, data.y, folds, callback=tick, watch=watch)


def write_report(run: Run, path: Path, loading: str) -> None:
    """Write the page about a fit."""
    from mklearn import report

    X, model = run.data.X, run.model
    missing = 0
    if isinstance(model, TableModel):
        missing = sum(filled_in(X, model.views_).values())
        X, model = model.transform_table(X), model.estimator_
    classes = run.data.y if run.data.task == CLASSES else None
    page = report.Report(
        title=f"{run.data.target}: {run.data.name}",
        data=report.describe_data(X, classes, missing=missing, source=run.data.name),
        model=model,
        comparison=run.comparison,
        scoring="accuracy" if classes is not None else "R²",
        alignment=report.kernel_alignment(model, X),
        predictions=run.predictions,
        loading=loading,
    )
    report.write_html(path, page)


# --- predictions ----------------------------------------------------------------------


def run_predict(model: Any, path: Path) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the columns of a table of predictions, and what there is to say."""
    X: Any
    said: list[str] = []
    if isinstance(model, TableModel):
        if is_gram_file(path):
            raise TableError("this model was fitted on a table; give it a table.")
        X = read_table(path)
        model.require_columns(X)
        said += absent_words(absent_rows(X, model.views_))
        for column, new in model.new_categories(X).items():
            said.append(
                f"Column {column!r} has categories that training had not: "
                f"{', '.join(new[:5])}."
            )
    else:
        if not is_gram_file(path):
            raise TableError("this model was fitted on Gram matrices; give it some.")
        bank, _ = read_grams(path)
        X = KernelBank.from_grams(
            [bank.gram(m) for m in range(bank.shape[2])], bank.names, cross=True
        )
    columns: dict[str, list[Any]] = {"prediction": model.predict(X).tolist()}
    classes = getattr(model, "classes_", None)
    if classes is not None:
        scores = np.asarray(model.decision_function(X))
        named = [classes[1]] if scores.ndim == 1 else list(classes)
        for label, column in zip(named, np.atleast_2d(scores.T), strict=True):
            columns[f"score_{label}"] = column.tolist()
    return columns, said
