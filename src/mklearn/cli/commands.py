"""The ``mklearn`` command: options only; results are computed elsewhere.

A command is a function with annotated options, listed in ``COMMANDS``. Results go to
standard output, progress and errors to standard error. Exit codes: 0 success, 2 an
error that the user can fix (explained in one line), 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

from mklearn import __version__
from mklearn.cli import application, inputs, models
from mklearn.cli import demo as demonstration
from mklearn.cli.ends import (
    ends_well,
    fail,
    not_an_input,
    require,
    results_folder,
    sound,
    user_errors,
    visible,
    writing,
)
from mklearn.data.spelling import plural
from mklearn.data.writing import whole_file, whole_files, write_json
from mklearn.persistence import load, read_header

try:
    import typer

    from mklearn.cli import screen
except ImportError as missing:
    if (missing.name or "").split(".")[0] not in ("typer", "rich", "click"):
        raise
    typer = None  # type: ignore[assignment]  # main tells how to get it


def main() -> None:
    """Run the command line."""
    if typer is None:
        if sys.argv[1:] == ["--version"]:
            print(f"mklearn {__version__}")
            return
        fail("the command line needs two additional packages: pip install typer rich")
    for stream in (sys.stdout, sys.stderr):
        # characters that a terminal does not have must not end a command
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    make_app()()


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for results.json, report.html and the figures.")
    ] = Path("demo-output"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False,
    folds: Annotated[int, typer.Option(min=2, max=50, help="Number of folds.")] = 5,
) -> None:
    """Compare learned kernel weights with simpler methods on real data."""
    errors = screen.standard_error()
    with results_folder(out):
        total = demonstration.n_fits(folds)
        errors.print(
            f"Comparing methods on the same {plural(folds, 'fold')}, "
            f"{plural(total, 'fit')} in total; the first run includes compilation and "
            "takes longer."
        )
        with screen.ticking(errors, total) as tick:
            result = demonstration.run_demo(
                folds, lambda name, fold: tick(name, fold, total)
            )
        content = result.as_dict()
        with writing(out), whole_files(out) as folder:
            content["figures"] = demonstration.save_figures(result, folder)
            write_json(folder / "results.json", content)
    if content["figures"] == ["report.html"]:
        errors.print(
            "No figures are drawn: they need matplotlib, pip install matplotlib",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        screen.show_demo(screen.standard_output(), content, out)


def kernels(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False,
) -> None:
    """List the kernels: name, formula and parameters."""
    content = application.list_kernels()
    if as_json:
        print(json.dumps(content))
    else:
        families = application.list_families()
        screen.show_kernels(screen.standard_output(), content, families)


# --- tables of the user ---------------------------------------------------------------

_DATA = "A table (.csv, .tsv, .parquet) or Gram matrices (.npz, .npy; kernels last)."
_TARGET = (
    "Target column; for Gram matrices, an array in the npz file or a file of labels."
)
_SURVIVAL = "Columns time,event instead of --target; event is 1, or 0 if censored."
_VIEWS = (
    'A view as name=column,column,... or "name=pattern*"; repeat the option for each '
    "view."
)
_COVARIATES = "Comma-separated covariates, such as age,sex, that enter linearly."
_GROUPS = "Column of subjects; samples of a subject stay in the same fold."
_KERNELS = (
    "Comma-separated kernel names; 'auto' is linear and five RBF widths per view."
)
_ID = "Column of sample names, in each table; it is copied to the predictions."
_TABLE = "An additional table as name=FILE, joined on --id as a view; may be repeated."
_SETS = "Gene sets in a GMT file, one kernel per set: FILE, or view=FILE."
_NORM = (
    "Norm p of the kernel weights: 1 (sparse) to inf (plain sum); two norms as 2:1, "
    "between views and within them; or 'auto' (the default for mkl) to choose p by "
    "cross-validation."
)
_REG = (
    "C for mkl, sum and bilinear, reg for the other methods: a number, or 'auto' (the "
    "default for mkl and sum) to choose it by cross-validation; for discriminant also "
    "'learn', 'loo' or 'gcv'."
)
_LOSS = (
    "Loss for mkl and sum, such as logistic or squared; the default is hinge for "
    "classes, and squared for numbers and for low-rank features."
)
_SCORING = f"Score used to compare the methods: {', '.join(inputs.SCORES)}"
_SCORING_OF_FIT = f"{_SCORING}; with --survival it is always {inputs.OF_TIMES}."
_APPROXIMATION = (
    "none for exact kernels, nystroem for low-rank features, or auto, which uses "
    "low-rank features above 5000 rows."
)
_TASK = "classification, regression, or auto to infer it from the --target."
_BY_VIEW = (
    "Attribute the score to views: product (parts that sum to the score), unique "
    "(loss without the view), shapley, none, or auto (all of them); unique and shapley "
    "fit additional models, which auto omits if they would take too long."
)
_BY_VIEWS = ("auto", "product", "unique", "shapley", "none")
_REG_WORDS = ("auto", "learn", "loo", "gcv")
MOST = 1e20  # largest --reg, so that squares and sums do not overflow


def fit(
    data: Annotated[Path, typer.Argument(help=_DATA)],
    target: Annotated[str | None, typer.Option(help=_TARGET)] = None,
    survival: Annotated[str | None, typer.Option(help=_SURVIVAL)] = None,
    views: Annotated[list[str] | None, typer.Option(help=_VIEWS)] = None,
    sequences: Annotated[
        str, typer.Option(help="Comma-separated columns of strings such as DNA.")
    ] = "",
    covariates: Annotated[str, typer.Option(help=_COVARIATES)] = "",
    groups: Annotated[str | None, typer.Option(help=_GROUPS)] = None,
    kernels: Annotated[str, typer.Option(help=_KERNELS)] = "auto",
    method: Annotated[
        str,
        typer.Option(help="mkl, sum, discriminant, subspace, bilinear or evidence."),
    ] = "mkl",
    norm: Annotated[str | None, typer.Option(help=_NORM)] = None,
    reg: Annotated[str | None, typer.Option(help=_REG)] = None,
    loss: Annotated[str | None, typer.Option(help=_LOSS)] = None,
    task: Annotated[str, typer.Option(help=_TASK)] = "auto",
    cv: Annotated[int, typer.Option(min=2, max=50, help="Number of folds.")] = 5,
    jobs: Annotated[
        int | None,
        typer.Option(help="Parallel processes for searches and single kernels."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for model.mkl, report.html and more.")
    ] = Path("mklearn-output"),
    scoring: Annotated[str | None, typer.Option(help=_SCORING_OF_FIT)] = None,
    class_weight: Annotated[
        str | None, typer.Option(help="'balanced' gives classes the same weight.")
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            max=100,
            help="Number of times cross-validation is repeated with new folds.",
        ),
    ] = 1,
    approximation: Annotated[str, typer.Option(help=_APPROXIMATION)] = "auto",
    rank: Annotated[
        int, typer.Option(min=2, help="Features for each kernel, if approximated.")
    ] = 300,
    subsample: Annotated[
        int | None,
        typer.Option(
            min=20,
            help="Number of rows on which methods are compared; by default all, or "
            "2000 if there are more than 5000.",
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="Another table on which all methods are scored.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds.")] = 0,
    by_view: Annotated[str, typer.Option(help=_BY_VIEW)] = "auto",
    name: Annotated[str | None, typer.Option("--id", help=_ID)] = None,
    table: Annotated[list[str] | None, typer.Option(help=_TABLE)] = None,
    gene_sets: Annotated[list[str] | None, typer.Option(help=_SETS)] = None,
    log: Annotated[
        Path | None, typer.Option(help="Log file; one line is written after each step.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False,
) -> None:
    """Learn kernel weights from a table and compare with simpler methods."""
    errors = screen.standard_error()
    with user_errors():
        require("--method", method, models.METHODS)
        require("--approximation", approximation, ("auto", "none", "nystroem"))
        require("--by-view", by_view, _BY_VIEWS)
        if survival is not None and scoring == inputs.OF_TIMES:
            scoring = None  # there is no other
        options = models.Settings(
            method,
            None if norm is None else inputs.parse_norm("--norm", norm, ["auto"]),
            None if reg is None else _parse_reg(reg, _REG_WORDS),
            kernels, cv, jobs, seed, by_view, *_scores(scoring, class_weight), repeats,
            approximation, rank, subsample, _parse_sets(gene_sets or []), loss,
        )  # fmt: skip
        if (target is None) == (survival is None):
            fail("fit takes either --target column or --survival time,event")
        tables = inputs.parse_files("--table", table or [])
        if survival is not None:
            if task != "auto":
                fail(f"--task {task} is for --target; omit it with --survival")
            loaded = _load_times(
                data, survival, views, sequences, covariates, groups, name, tables
            )
        else:
            assert target is not None
            loaded = _load_data(
                data, target, views, sequences, task, covariates, groups, name, tables
            )
        unseen = None
        if test is not None:
            if tables:
                fail(
                    "--test takes a single table; omit --table, or join the tables "
                    "first"
                )
            unseen = inputs.load_test(test, loaded)
        named = [Path(one) for one in (target, test) if one is not None]
        if log is not None:
            not_an_input(log, data, *named, *tables.values())
        for file in application.FILES:
            not_an_input(out / file, data, *named, *tables.values())
        with results_folder(out):
            with screen.notes(errors), screen.ticking(errors, log=log) as tick:
                result = application.run_fit(loaded, options, tick, unseen, tick.say)
            content = result.as_dict()
            with screen.notes(errors), writing(out), whole_files(out) as folder:
                application.write_files(result, content, folder, out)
    if as_json:
        print(json.dumps(content, allow_nan=False))
        return
    console = screen.standard_output()
    screen.show_comparison(console, content)
    found = content.get("views", [])
    screen.show_model(console, content["model"], found, content["scoring"])
    if "times" in content:
        screen.show_times(console, content["times"])
    screen.show_views(
        console, content.get("by_view"), found, content.get("refits"),
        content["scoring"],
    )  # fmt: skip
    screen.show_verdict(console, content["verdict"])
    console.print(
        f"\nSaved in {out}: {', '.join(application.FILES)}. "
        "To predict: "
        f"mklearn predict {out / 'model.mkl'} DATA",
        soft_wrap=True, markup=False,
    )  # fmt: skip


def predict(
    model: Annotated[Path, typer.Argument(help="Model file written by mklearn fit.")],
    data: Annotated[Path, typer.Argument(help=_DATA)],
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file to write; standard output by default."),
    ] = None,
    name: Annotated[str | None, typer.Option("--id", help=_ID)] = None,
    table: Annotated[list[str] | None, typer.Option(help=_TABLE)] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add the probability of each class.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False,
) -> None:
    """Predict new samples with a saved model."""
    errors = screen.standard_error()
    with user_errors():
        tables = inputs.parse_files("--table", table or [])
        if out is not None:
            not_an_input(out, model, data, *tables.values())
        loaded = _load_model(model)
        with sound(model):
            columns, said = application.run_predict(loaded, data, proba, name, tables)
    for line in said:
        errors.print(visible(line), markup=False)
    text = application.as_csv(columns)
    if out is not None:
        with writing(out), whole_file(out) as path:
            path.write_text(text, encoding="utf-8", newline="\n")
    if as_json:
        print(json.dumps(columns, allow_nan=False))
    elif out is None:
        sys.stdout.write(text)
    else:
        n = len(columns["prediction"])
        errors.print(f"{n} predictions written to {out}", markup=False)


def inspect_model(
    model: Annotated[Path, typer.Argument(help="Model file written by mklearn fit.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False,
) -> None:
    """Show a saved model: kernels, weights, certificate, versions."""
    with user_errors():
        loaded = _load_model(model)
        with sound(model):
            content = {**read_header(model), "model": application.describe(loaded)}
    if as_json:
        print(json.dumps(content, allow_nan=False))
        return
    with sound(model):
        screen.show_file(screen.standard_output(), content)


def compare(
    data: Annotated[Path, typer.Argument(help=_DATA)],
    target: Annotated[str, typer.Option(help=_TARGET)],
    methods: Annotated[
        str,
        typer.Option(
            help=f"Comma-separated methods, from {', '.join(models.METHODS)}."
        ),
    ] = "mkl",
    norms: Annotated[str, typer.Option(help="Comma-separated norms.")] = "1,1.33,2,inf",
    views: Annotated[list[str] | None, typer.Option(help=_VIEWS)] = None,
    sequences: Annotated[
        str, typer.Option(help="Comma-separated columns of strings such as DNA.")
    ] = "",
    covariates: Annotated[str, typer.Option(help=_COVARIATES)] = "",
    groups: Annotated[str | None, typer.Option(help=_GROUPS)] = None,
    kernels: Annotated[str, typer.Option(help=_KERNELS)] = "auto",
    reg: Annotated[
        str | None,
        typer.Option(
            help="C for mkl, sum and bilinear, reg for the other methods: a number, or "
            "'auto' (the default for mkl and sum) to choose it by cross-validation.",
        ),
    ] = None,
    loss: Annotated[str | None, typer.Option(help=_LOSS)] = None,
    task: Annotated[str, typer.Option(help=_TASK)] = "auto",
    cv: Annotated[int, typer.Option(min=2, max=50, help="Number of folds.")] = 5,
    jobs: Annotated[
        int | None,
        typer.Option(help="Parallel processes for searches and single kernels."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="JSON file for the results; not written by default."),
    ] = None,
    scoring: Annotated[str | None, typer.Option(help=f"{_SCORING}.")] = None,
    class_weight: Annotated[
        str | None, typer.Option(help="'balanced' gives classes the same weight.")
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            max=100,
            help="Number of times cross-validation is repeated with new folds.",
        ),
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False,
) -> None:
    """Compare several norms and methods on the same folds of a table."""
    errors = screen.standard_error()
    with user_errors():
        wanted = inputs.parse_list(methods)
        for method in wanted or [""]:
            require("--methods", method, models.METHODS)
        sizes = [inputs.parse_norm("--norms", p) for p in inputs.parse_list(norms)]
        if not sizes:
            fail("--norms takes comma-separated numbers, got none")
        cost = None if reg is None else _parse_reg(reg, ("auto",))
        scored, weights = _scores(scoring, class_weight)
        options = models.Settings(
            reg=cost, kernels=kernels, cv=cv, jobs=jobs, seed=seed, scoring=scored,
            class_weight=weights, repeats=repeats, loss=loss,
        )  # fmt: skip
        if out is not None:
            not_an_input(out, data, Path(target))
        loaded = _load_data(data, target, views, sequences, task, covariates, groups)
        with screen.notes(errors), screen.ticking(errors) as tick:
            result = application.run_compare(loaded, options, wanted, sizes, tick)
        content = result.as_dict()
        if out is not None:
            with writing(out):
                write_json(out, content)
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        screen.show_comparison(screen.standard_output(), content)


def _parse_reg(text: str, words: tuple[str, ...]) -> float | str:
    return inputs.parse_number("--reg", text, words, MOST)


def _parse_sets(texts: list[str]) -> tuple[tuple[str | None, str], ...]:
    """Return view and file of each ``--gene-sets``; a file alone has no view."""
    found: list[tuple[str | None, str]] = []
    for text in texts:
        view, sign, file = text.partition("=")
        found.append((view.strip(), file.strip()) if sign else (None, text))
    return tuple(found)


def _scores(
    scoring: str | None, class_weight: str | None
) -> tuple[str | None, str | None]:
    if scoring is not None:
        if f"neg_{scoring}" in inputs.SCORES:
            scoring = f"neg_{scoring}"
        require("--scoring", scoring, inputs.SCORES)
    if class_weight is not None:
        require("--class-weight", class_weight, ("balanced",))
    return scoring, class_weight


def _load_data(
    data: Path,
    target: str,
    views: list[str] | None,
    sequences: str,
    task: str,
    covariates: str,
    groups: str | None,
    name: str | None = None,
    tables: dict[str, Path] | None = None,
) -> inputs.Data:
    require("--task", task, ("auto", inputs.CLASSES, inputs.VALUES))
    return inputs.load_data(
        data,
        target,
        inputs.parse_views(views or []),
        inputs.parse_list(sequences),
        task,
        inputs.parse_list(covariates),
        groups,
        name,
        tables,
    )


def _load_times(
    data: Path,
    survival: str,
    views: list[str] | None,
    sequences: str,
    covariates: str,
    groups: str | None,
    name: str | None,
    tables: dict[str, Path],
) -> inputs.Data:
    columns = inputs.parse_list(survival)
    if len(columns) != 2 or columns[0] == columns[1]:
        fail(f"--survival takes two columns, time,event, got {survival!r}")
    return inputs.load_times(
        data,
        *columns,
        inputs.parse_views(views or []),
        inputs.parse_list(sequences),
        inputs.parse_list(covariates),
        groups,
        name,
        tables,
    )


def _load_model(path: Path) -> Any:
    if not path.is_file():
        fail(f"there is no model file {path}")
    return load(path)


COMMANDS = (demo, kernels, fit, predict, inspect_model, compare)


def make_app() -> Any:
    """Return the application with all commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for command in COMMANDS:
        name = command.__name__.removesuffix("_model")
        app.command(name)(ends_well(command))
    return app


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=lambda value: _version(value),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:  # fmt: skip
    """Combine several descriptions of samples and learn which of them matter."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mklearn {__version__}")
        raise typer.Exit
