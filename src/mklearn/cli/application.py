"""Implementation of the commands: from files to models, results and predictions."""

from __future__ import annotations

import csv
import inspect
import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from mklearn import kernels
from mklearn.cli.ends import visible
from mklearn.cli.estimate import LONG, SAMPLE, estimate
from mklearn.cli.inputs import CLASSES, TIMES, Data, make_folds, make_scorer
from mklearn.cli.learning import learning_curve
from mklearn.cli.models import (
    GUESSES,
    MOST_ROWS,
    SUM,
    Settings,
    few_threads,
    fitted_on_views,
    gene_notes,
    make_baselines,
    make_large,
    make_model,
    make_plain,
    method_name,
    method_notes,
    size_notes,
    without_search,
)
from mklearn.cli.refits import AUTO, Refits, Refitted
from mklearn.cli.shares import Shares
from mklearn.cli.unseen import Unseen
from mklearn.data.spelling import plural
from mklearn.inference import KernelTests, kernel_tests
from mklearn.interpretation import ScoreByView, ViewScorer, WeightStability
from mklearn.kernels import Kernel, KernelBank
from mklearn.kernels.families import BY_NAME
from mklearn.model_selection import Comparison, Split, compare, takes_groups
from mklearn.persistence import save, versions
from mklearn.problems import TwoLevel
from mklearn.report import (
    Predictions,
    Report,
    ViewShare,
    describe_data,
    kernel_alignment,
    sample_checks,
    write_html,
    write_json,
)
from mklearn.report.facts import (
    LearningCurve,
    comparison_facts,
    errors_of_times,
    inference_facts,
    model_facts,
    verdict,
    view_facts,
)
from mklearn.table import (
    TableError,
    TableModel,
    absent_rows,
    absent_words,
    filled_in,
    is_gram_file,
    read_grams,
    read_tables,
)
from mklearn.table.files import id_words

FILES = (
    "model.mkl", "results.json", "views.csv", "weights.csv", "predictions.csv",
    "report.html",
)  # fmt: skip
_MOST_PROFILED = 1e9  # number of kernels times samples cubed, likewise for intervals
_MOST_TESTED = 5000  # number of samples above which tests of kernels take too long
# text that spreadsheets interpret as a formula, unless it is a single character
_FORMULA = re.compile(r"[=+\-@\t].")

Tick = Callable[[str, int, int], Any]  # after each fit: model, fold, number of fits


# --- runs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A comparison on the same folds and, after ``fit``, a model of all samples."""

    data: Data
    comparison: Comparison
    model: Any = None
    learned: str | None = None
    predictions: Predictions | None = None  # of the folds
    asked: str | None = None  # the option --scoring
    test: dict[str, Any] | None = None  # scores on samples of another file
    large: dict[str, Any] | None = None  # facts about a fit on many rows
    views: ScoreByView | None = None
    tests: KernelTests | None = None
    profile: Any = None  # intervals of the shares of variance
    stability: WeightStability | None = None
    seed: int = 0  # of the folds
    curve: LearningCurve | None = None
    shares: tuple[ViewShare, ...] = ()
    refitted: Refitted = field(default_factory=Refitted)

    @property
    def scoring(self) -> str:
        """Name of the score."""
        if self.asked is not None:
            return self.asked
        names = {CLASSES: "accuracy", TIMES: "concordance"}
        return names.get(self.data.task, "r2")

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
        if self.test is not None:
            content["test"] = self.test
        if self.large is not None:
            content["large"] = self.large
        if self.model is not None:
            content["verdict"] = self.verdict()
            content["model"] = describe(self.model)
            if self.data.covariates:
                rows = self.model.transform_table(self.data.X)
                explained = fitted_on_views(self.model).explained(rows)
                content["model"]["covariates"]["explained"] = explained
            content["inference"] = inference_facts(
                fitted_on_views(self.model), self.tests, self.profile, self.stability
            )
        if self.data.task == TIMES and self.predictions is not None:
            content["times"] = errors_of_times(self.predictions)
        if self.views is not None:
            content["by_view"] = view_facts(self.views)
        if self.shares:
            content["views"] = [asdict(share) for share in self.shares]
        if refits := self.refitted.as_dict():
            content["refits"] = refits
        if self.curve is not None:
            content["learning_curve"] = self.curve.rows()
        return content

    def verdict(self) -> dict[str, Any]:
        """Return which of the methods to use, and why."""
        assert self.learned is not None
        names = self.comparison.names
        guess = next((name for name in GUESSES if name in names), None)
        return verdict(
            self.comparison,
            self.scoring,
            method=self.learned,
            plain=SUM if SUM in names else None,
            guess=guess,
        )


def describe(model: Any) -> dict[str, Any]:
    """Return kernels, weights and certificates of a fitted model, ready for JSON."""
    return model_facts(fitted_on_views(model))


def run_fit(
    data: Data,
    options: Settings,
    callback: Tick | None = None,
    test: Data | None = None,
    say: Callable[[str], Any] = lambda text: None,
) -> Run:
    """Compare a method with its baselines, then fit it on all samples.

    With ``test``, samples of another file, all methods are also fitted on all samples
    and scored on these. ``say`` is called with messages about the next step and its
    expected cost.
    """
    scorer = None
    if options.scoring is not None:
        scorer = make_scorer(data, options.scoring)
    said = [*data.said, *method_notes(options), *size_notes(data, options)]
    said += gene_notes(options, data)
    data = replace(data, said=said)
    whole, size = data, options.compared_rows(data)
    if size < len(data.y):
        data = data.part(data.drawn(size, options.seed, 2 * options.cv)[0])
    name = method_name(options.method)
    models = {name: make_model(whole, options), **make_baselines(whole, options)}
    folds = make_folds(data, options.cv, options.seed, options.repeats)
    if len(data.y) >= LONG:
        say(f"Timing fits on {plural(SAMPLE, 'row')}.")
        expected = estimate(models, whole, data, options)
        if expected is not None:
            say(expected.words())
    seen, views = Unseen(data, name), _ByView(data, name, options)
    shares = Shares(data, name, scorer, options.seed)
    refits = Refits(data, name, options, scorer)

    def watch(*fold: Any) -> None:
        for one in (seen, views, shares, refits):
            one(*fold)

    say(
        f"Comparing {plural(len(models), 'method')} on "
        f"{plural(folds.get_n_splits(), 'fold')}."
    )
    result = _compare(models, data, folds, callback, watch, scorer)
    refitted = refits.result(float(result.fit_seconds.sum()), say)
    large = None
    say(f"Fitting {name} on {plural(len(whole.y), 'row')}.")
    if options.low_rank(whole):
        found = models[name].fit(data.X, data.y, **data.given())
        models[name] = make_large(whole, options, found)
        large = _held_out(models[name], whole, options, scorer)
    model = without_search(models[name].fit(whole.X, whole.y, **whole.given()))
    if test is not None:
        say(f"Scoring on {test.name}.")
    say("Learning curve, and tests of the kernels.")
    plain = make_plain(data, options, model if large is None else found)
    shown = shares.result(model if large is None else found, plain, refitted)
    return Run(
        data,
        result,
        model,
        name,
        seen.predictions(),
        asked=options.scoring,
        test=None if test is None else _tested(models, name, whole, test, scorer),
        views=views.result() or getattr(refitted, options.by_view, None),
        large=large,
        tests=_tests(data, model, options.seed, say),
        profile=_profile(data, model),
        stability=shares.stability,
        seed=options.seed,
        curve=learning_curve(plain, data, result, scorer, options.seed),
        shares=shown,
        refitted=refitted,
    )


def _tests(
    data: Data, model: Any, seed: int, say: Callable[[str], Any]
) -> KernelTests | None:
    """Return a test of each kernel of a model; None if there are too many samples.

    More than two classes, and subjects, are tested by permutations. Where covariates
    leave nothing to test, ``say`` is told why.
    """
    if len(data.y) > _MOST_TESTED:
        return None
    try:
        return _tested_kernels(data, model, seed)
    except ValueError as error:
        say(f"The kernels are not tested. {error}")
        return None


def _tested_kernels(data: Data, model: Any, seed: int) -> KernelTests:
    """Return a test of each kernel of a model."""
    inner = fitted_on_views(model)
    many = data.task == CLASSES and len(np.unique(data.y)) > 2
    method = "permutation" if many or data.groups is not None else "score"
    # class labels may be numbers
    y = np.asarray(data.y).astype(str) if data.task == CLASSES else data.y
    if isinstance(data.X, KernelBank):
        found = kernel_tests(data.X, y, "precomputed", method=method, random_state=seed)
    else:
        X, family = model.transform_table(data.X), list(inner.kernels_)
        fixed = data.X[data.covariates] if data.covariates else None
        found = kernel_tests(
            X, y, family, fixed=fixed, groups=data.groups, method=method,
            random_state=seed,
        )  # fmt: skip
    return replace(found, names=tuple(inner.kernel_names_))


def _profile(data: Data, model: Any) -> Any:
    """Return intervals of shares of variance; None if the model has none.

    Also None if there are so many samples or kernels that it would take long.
    """
    inner = fitted_on_views(model)
    if np.ndim(inner.kernel_weights_) == 2 or not hasattr(inner, "weight_errors_"):
        return None
    if len(inner.kernel_names_) * len(data.y) ** 3 > _MOST_PROFILED:
        return None
    X = data.X if isinstance(data.X, KernelBank) else model.transform_table(data.X)
    return inner.profile_intervals(X, data.y)


def _held_out(model: Any, data: Data, options: Settings, scorer: Any) -> dict[str, Any]:
    """Return the score of low-rank features on a held-out fifth of the samples."""
    tested, learned = data.drawn(min(len(data.y) // 5, MOST_ROWS), options.seed + 1)
    known, new = data.part(learned), data.part(tested)
    model = clone(model).fit(known.X, known.y)
    score = scorer or (lambda model, X, y: model.score(X, y))
    return {
        "rank": options.rank,
        "n_learned": len(learned),
        "n_tested": len(tested),
        "score": float(score(model, new.X, new.y)),
        "n_samples": len(data.y),
    }


def _tested(
    models: Mapping[str, Any], fitted: str, data: Data, test: Data, scorer: Any
) -> dict[str, Any]:
    """Return the scores on test samples of all models, trained on all samples."""
    with few_threads(data):
        for name, model in models.items():
            if name != fitted:
                model.fit(
                    data.X, data.y, **(data.given() if takes_groups(model) else {})
                )
    score = scorer or (lambda model, X, y: model.score(X, y))
    return {
        "name": test.name,
        "n_samples": len(test.y),
        "scores": {k: float(score(m, test.X, test.y)) for k, m in models.items()},
    }


class _ByView:
    """Attributes the score of one model to views, fold by fold."""

    def __init__(self, data: Data, name: str, options: Settings) -> None:
        self._data, self._name = data, name
        one = data.layout is not None and len(data.layout.views) < 2
        wanted = options.by_view in (AUTO, "product")
        self._wanted = wanted and not one and data.task != TIMES
        self._scorer: ViewScorer | None = None

    def __call__(self, name: str, model: Any, split: Split) -> None:
        if name != self._name or not self._wanted:
            return
        (train, test), X, y = split, self._data.X, self._data.y
        inner = fitted_on_views(model)
        inner = getattr(inner, "best_estimator_", inner)
        if self._scorer is None:
            self._scorer = ViewScorer(inner)
        given = isinstance(X, KernelBank)
        new = X[np.ix_(test, train)] if given else model.transform_table(X.iloc[test])
        self._scorer.add(inner, (None, y[train]), (new, y[test]))

    def result(self) -> ScoreByView | None:
        """Return the scores of all folds, None if not requested."""
        return None if self._scorer is None else self._scorer.result()


def _norm_words(norm: Any) -> str:
    if isinstance(norm, TwoLevel):
        return f"{norm.outer:g}:{norm.inner:g}"
    return f"{norm:g}"


def run_compare(
    data: Data,
    options: Settings,
    methods: Sequence[str],
    norms: Sequence[Any],
    callback: Tick | None = None,
) -> Run:
    """Compare several methods and norms with the baselines, on the same folds."""
    models = {}
    for method in methods:
        with_norm = method in ("mkl", "bilinear")
        for norm in norms if with_norm else [1.0]:
            one = replace(options, method=method, norm=norm)
            if not with_norm:
                one = replace(one, reg=None)  # C does not apply to methods with reg
            name = f"{method}, norm={_norm_words(norm)}" if with_norm else method
            models[name] = make_model(data, one)
    models.update(make_baselines(data, options))
    folds = make_folds(data, options.cv, options.seed, options.repeats)
    scorer = None
    if options.scoring is not None:
        scorer = make_scorer(data, options.scoring)
    found = _compare(models, data, folds, callback, None, scorer)
    return Run(data, found, asked=options.scoring)


def _compare(
    models: Mapping[str, Any],
    data: Data,
    folds: Any,
    callback: Tick | None,
    watch: Any,
    scorer: Any,
) -> Comparison:
    total = len(models) * folds.get_n_splits()

    def tick(name: str, fold: int) -> None:
        if callback is not None:
            callback(name, fold, total)

    with few_threads(data):
        return compare(
            models,
            data.X,
            data.y,
            folds,
            groups=data.groups,
            scoring=scorer,
            callback=tick,
            watch=watch,
        )


# --- files ----------------------------------------------------------------------------


def write_files(run: Run, content: dict[str, Any], folder: Path, out: Path) -> None:
    """Write the files of a fit to a folder from which they are moved to ``out``."""
    notes = {"data": content["data"], "methods": content["methods"]}
    save(run.model, folder / "model.mkl", notes)
    weights = as_csv(_weight_columns(content["model"], content["inference"]))
    (folder / "weights.csv").write_text(weights, encoding="utf-8", newline="\n")
    rows = content["views"]
    views = as_csv({key: [row[key] for row in rows] for key in rows[0]})
    (folder / "views.csv").write_text(views, encoding="utf-8", newline="\n")
    if run.predictions is not None:
        unseen = as_csv(run.predictions.columns())
        (folder / "predictions.csv").write_text(unseen, encoding="utf-8", newline="\n")
    loading = (
        "from mklearn.persistence import load\n\n"
        f"model = load({str(out / 'model.mkl')!r})"
    )
    write_html(folder / "report.html", make_report(run, loading))
    write_json(folder / "results.json", content)


def make_report(run: Run, loading: str) -> Report:
    """Return the report about a fit."""
    X, model, missing = run.data.X, fitted_on_views(run.model), 0
    if isinstance(run.model, TableModel):
        missing = sum(filled_in(X, run.model.views_).values())
        X = run.model.transform_table(X)
    known = run.data.y if run.data.task in (CLASSES, TIMES) else None
    return Report(
        title=f"{run.data.target}: {run.data.name}",
        data=describe_data(X, known, missing=missing, source=run.data.name),
        model=model,
        comparison=run.comparison,
        scoring=run.scoring,
        alignment=kernel_alignment(model, X),
        predictions=run.predictions,
        views=run.views,
        tests=run.tests,
        profile=run.profile,
        stability=run.stability,
        loading=loading,
        verdict=run.verdict()["words"],
        findings=sample_checks(X, run.data.y, run.comparison.splits),
        notes=tuple(run.data.said),
        curve=run.curve,
        shares=run.shares,
        refits=run.refitted.as_dict().get("words", ""),
        origin={
            "command": shlex.join([*_program(), *sys.argv[1:]]),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "seed of the folds": str(run.seed),
            **{f"version of {k}": str(v) for k, v in versions().items()},
        },
    )


def _program() -> list[str]:
    """Return how the program was called."""
    name = Path(sys.argv[0]).name
    return ["python", "-m", "mklearn"] if name == "__main__.py" else [name]


def _weight_columns(
    model: dict[str, Any], inference: dict[str, Any]
) -> dict[str, list[Any]]:
    names = ("name", "view", "weight", "contribution", "used")
    rows = model["kernels"]
    columns: dict[str, list[Any]] = {key: [row[key] for row in rows] for key in names}
    columns["parameters"] = [json.dumps(row["parameters"]) for row in rows]
    return {**columns, **inference}


def as_csv(columns: dict[str, list[Any]]) -> str:
    """Return columns as the text of a CSV file."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([_cell(name) for name in columns])
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    return stream.getvalue()


def _cell(value: Any) -> Any:
    """Return a value that is safe in spreadsheets and terminals.

    A text that starts like a formula is prefixed with an apostrophe, unless it is a
    number, and control characters are escaped.
    """
    if not isinstance(value, str):
        return value
    text = visible(value)
    if _FORMULA.match(value):
        try:
            float(value)
        except ValueError:
            return f"'{text}"
    return text


# --- predictions ----------------------------------------------------------------------


def run_predict(
    model: Any,
    path: Path,
    proba: bool = False,
    name: str | None = None,
    tables: Mapping[str, Path] | None = None,
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the columns of a table of predictions, and messages.

    Evidence models also return standard deviations; ``proba`` requests the probability
    of each class. ``name`` is the column of sample names, on which ``tables`` are
    joined.
    """
    X: Any
    said: list[str] = []
    ids = None
    if isinstance(model, TableModel):
        if is_gram_file(path):
            raise TableError(
                "this model was fitted on a table; pass a table, not Gram matrices."
            )
        frame, parts, ids = read_tables(path, name, tables)
        said += id_words(frame, parts, ids)
        X = model.with_columns(frame)
        said += absent_words(absent_rows(X, model.views_))
        for column, new in model.new_categories(X).items():
            said.append(
                f"Column {column!r} has categories that did not occur in training: "
                f"{', '.join(new[:5])}."
            )
    else:
        if not is_gram_file(path):
            raise TableError(
                "this model was fitted on Gram matrices; pass Gram "
                "matrices, not a table."
            )
        bank, _ = read_grams(path)
        X = KernelBank.from_grams(
            [bank.gram(m) for m in range(bank.shape[2])], bank.names, cross=True
        )
    columns: dict[str, list[Any]] = {}
    if isinstance(model, TableModel) and getattr(
        model.estimator_, "uncertainty", False
    ):
        values, spread = model.predict(X, return_std=True)
        columns = {"prediction": values.tolist(), "standard_deviation": spread.tolist()}
    else:
        columns = {"prediction": model.predict(X).tolist()}
    if ids is not None:
        columns = {str(name): ids, **columns}
    classes = getattr(model, "classes_", None)
    if proba:
        if not hasattr(model, "predict_proba"):
            raise TableError(
                f"--proba: {type(fitted_on_views(model)).__name__} with these settings "
                "does not provide probabilities; fit with --loss logistic, --scoring "
                "log_loss or --method discriminant."
            )
        assert classes is not None
        for label, column in zip(classes, model.predict_proba(X).T, strict=True):
            columns[f"probability_{label}"] = column.tolist()
    if classes is not None:
        scores = np.asarray(model.decision_function(X))
        named = [classes[1]] if scores.ndim == 1 else list(classes)
        for label, column in zip(named, np.atleast_2d(scores.T), strict=True):
            columns[f"score_{label}"] = column.tolist()
    return columns, said


# --- kernels --------------------------------------------------------------------------


def list_kernels() -> dict[str, Any]:
    """Return the kernels with formula and parameters, and those that have names."""
    rows = [
        {"kernel": name, "formula": _summary(cls), "parameters": _parameters(cls)}
        for name, cls in _public_kernels()
        if inspect.isclass(cls) and issubclass(cls, Kernel) and cls is not Kernel
    ]
    return {"kernels": rows, "by_name": sorted(BY_NAME)}


def list_families() -> dict[str, str]:
    """Return the functions that create families of kernels, with descriptions."""
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
