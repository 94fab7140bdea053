"""What the commands do: from a file to models, results and predictions."""

from __future__ import annotations

import csv
import inspect
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from mklearn import kernels
from mklearn.cli.inputs import CLASSES, Data, make_folds
from mklearn.cli.models import (
    Settings,
    fitted_on_views,
    make_baselines,
    make_model,
    method_notes,
    without_search,
)
from mklearn.kernels import Kernel, KernelBank
from mklearn.kernels.families import BY_NAME
from mklearn.model_selection import Comparison, Split, compare
from mklearn.persistence import save, versions
from mklearn.report import (
    Predictions,
    Report,
    describe_data,
    kernel_alignment,
    write_html,
    write_json,
)
from mklearn.report.facts import comparison_facts, model_facts
from mklearn.table import (
    TableError,
    TableModel,
    absent_rows,
    absent_words,
    filled_in,
    is_gram_file,
    read_grams,
    read_table,
)

Tick = Callable[[str, int, int], Any]  # after each fit: model, fold, fits in all


# --- runs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A comparison on the same folds and, after ``fit``, a model of all samples."""

    data: Data
    comparison: Comparison
    model: Any = None
    learned: str | None = None
    predictions: Predictions | None = None  # of the folds

    @property
    def scoring(self) -> str:
        """What the scores are."""
        return "accuracy" if self.data.task == CLASSES else "r2"

    def as_dict(self) -> dict[str, Any]:
        """Return the results, ready for JSON."""
        result = self.comparison
        content: dict[str, Any] = {
            "versions": versions(),
            "data": self.data.as_dict(),
            "scoring": self.scoring,
            "n_folds": result.scores.shape[1],
            "differences_to": result.names[0],
            "methods": comparison_facts(result),
        }
        if self.model is not None:
            content["model"] = describe(self.model)
        return content


def describe(model: Any) -> dict[str, Any]:
    """Return kernels, weights and certificates of a fitted model, ready for JSON."""
    return model_facts(fitted_on_views(model))


def run_fit(data: Data, options: Settings, callback: Tick | None = None) -> Run:
    """Compare a method with what it has to beat, then fit it on all samples."""
    data = replace(data, said=[*data.said, *method_notes(options)])
    name = f"learned weights ({options.method})"
    models = {name: make_model(data, options), **make_baselines(data, options)}
    folds = make_folds(data, options.cv, options.seed)
    seen = _Unseen(data, name)
    result = _compare(models, data, folds, callback, seen)
    model = without_search(models[name].fit(data.X, data.y))
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


# --- files ----------------------------------------------------------------------------


def write_files(run: Run, content: dict[str, Any], folder: Path, out: Path) -> None:
    """Write the files of a fit to a folder from which they move to ``out``."""
    notes = {"data": content["data"], "methods": content["methods"]}
    save(run.model, folder / "model.mkl", notes)
    weights = as_csv(_weight_columns(content["model"]))
    (folder / "weights.csv").write_text(weights, encoding="utf-8")
    loading = (
        "from mklearn.persistence import load\n\n"
        f"model = load({str(out / 'model.mkl')!r})"
    )
    write_html(folder / "report.html", make_report(run, loading))
    write_json(folder / "results.json", content)


def make_report(run: Run, loading: str) -> Report:
    """Return what the page about a fit shows."""
    X, model, missing = run.data.X, fitted_on_views(run.model), 0
    if isinstance(run.model, TableModel):
        missing = sum(filled_in(X, run.model.views_).values())
        X = run.model.transform_table(X)
    classes = run.data.y if run.data.task == CLASSES else None
    return Report(
        title=f"{run.data.target}: {run.data.name}",
        data=describe_data(X, classes, missing=missing, source=run.data.name),
        model=model,
        comparison=run.comparison,
        scoring=run.scoring,
        alignment=kernel_alignment(model, X),
        predictions=run.predictions,
        loading=loading,
    )


def _weight_columns(model: dict[str, Any]) -> dict[str, list[Any]]:
    names = ("name", "view", "weight", "contribution", "used")
    rows = model["kernels"]
    columns: dict[str, list[Any]] = {key: [row[key] for row in rows] for key in names}
    columns["parameters"] = [json.dumps(row["parameters"]) for row in rows]
    return columns


def as_csv(columns: dict[str, list[Any]]) -> str:
    """Return columns as the text of a CSV file."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue()


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


# --- kernels --------------------------------------------------------------------------


def list_kernels() -> dict[str, Any]:
    """Return the kernels with formula and parameters, and those known by name."""
    rows = [
        {"kernel": name, "formula": _summary(cls), "parameters": _parameters(cls)}
        for name, cls in _public_kernels()
        if inspect.isclass(cls) and issubclass(cls, Kernel) and cls is not Kernel
    ]
    return {"kernels": rows, "by_name": sorted(BY_NAME)}


def list_families() -> dict[str, str]:
    """Return the functions that make families of kernels, and what these are."""
    return {
        name: _summary(function)
        for name, function in _public_kernels()
        if inspect.isfunction(function) and name.startswith(("per_", "rbf_"))
    }


def _public_kernels() -> list[tuple[str, Any]]:
    return [(name, getattr(kernels, name)) for name in kernels.__all__]


def _summary(thing: Any) -> str:
    first = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return " ".join(first.replace("``", "").split()).removeprefix("Return ").rstrip(".")


def _parameters(cls: type) -> str:
    place = {f.name for f in fields(Kernel)}
    return ", ".join(
        f"{f.name}={f.default!r}" for f in fields(cls) if f.name not in place
    )
