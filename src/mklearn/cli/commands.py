"""The ``mklearn`` command: a thin face; what it shows is computed elsewhere.

A command is a function with annotated options, listed in ``COMMANDS``. Standard output
is for results, standard error for progress and errors. Exit codes: 0 done, 2 the user
can repair it (one line says how), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

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
    require,
    results_folder,
    sound,
    user_errors,
    writing,
)
from mklearn.persistence import load, read_header
from mklearn.report import whole_file, whole_files, write_json

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
        fail("the command line needs two more packages: pip install mklearn[cli]")
    make_app()()


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for results.json and the figures.")
    ] = Path("demo-output"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON and no tables.")
    ] = False,
    folds: Annotated[
        int, typer.Option(min=2, max=50, help="Folds of the cross-validation.")
    ] = 5,
) -> None:
    """Compare learned kernel weights with simpler methods on real data."""
    errors = screen.standard_error()
    with results_folder(out):
        total = len(demonstration.make_models()) * folds
        errors.print(
            f"Comparing {total // folds} methods on the same {folds} folds; the first "
            "run compiles and takes longer."
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
            "No figures, and none in the report: they need matplotlib, pip install "
            "mklearn[plot]",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        screen.show_demo(screen.standard_output(), content, out)


def kernels(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the kernels: name, formula and parameters."""
    content = application.list_kernels()
    if as_json:
        print(json.dumps(content))
    else:
        families = application.list_families()
        screen.show_kernels(screen.standard_output(), content, families)


# --- a table of one's own -------------------------------------------------------------

_DATA = "A table (.csv, .tsv, .parquet) or Gram matrices (.npz, .npy; kernels last)."
_TARGET = "Column to predict; for Grams, an array in the npz file or a file of labels."
_VIEWS = "A view as name=column,column,...; repeat it for each view."
_KERNELS = "Names with commas, for each view; 'auto' is linear and five RBF widths."
_REG = (
    "C of mkl and bilinear, reg of the others: a number or 'auto'; for discriminant "
    "also 'learn', 'loo', 'gcv'."
)
_TASK = "classification, regression, or auto to decide by the target."
_REG_WORDS = ("auto", "learn", "loo", "gcv")


def fit(
    data: Annotated[Path, typer.Argument(help=_DATA)],
    target: Annotated[str, typer.Option(help=_TARGET)],
    views: Annotated[list[str] | None, typer.Option(help=_VIEWS)] = None,
    sequences: Annotated[
        str, typer.Option(help="Columns of strings such as DNA, with commas.")
    ] = "",
    kernels: Annotated[str, typer.Option(help=_KERNELS)] = "auto",
    method: Annotated[
        str, typer.Option(help="mkl, discriminant, subspace, bilinear or evidence.")
    ] = "mkl",
    norm: Annotated[
        str, typer.Option(help="The p of the weights: 1 (sparse) to inf, or 'auto'.")
    ] = "2",
    reg: Annotated[str | None, typer.Option(help=_REG)] = None,
    task: Annotated[str, typer.Option(help=_TASK)] = "auto",
    cv: Annotated[int, typer.Option(min=2, max=50, help="Folds.")] = 5,
    jobs: Annotated[
        int | None, typer.Option(help="Processes for searches and single kernels.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for model.mkl, report.html and more.")
    ] = Path("mklearn-output"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON and no tables.")
    ] = False,
) -> None:
    """Learn kernel weights from a table and compare with simpler methods."""
    errors = screen.standard_error()
    with user_errors():
        require("--method", method, models.METHODS)
        options = models.Settings(
            method,
            inputs.parse_number("--norm", norm, ["auto"]),
            None if reg is None else inputs.parse_number("--reg", reg, _REG_WORDS),
            kernels, cv, jobs, seed,
        )  # fmt: skip
        loaded = _load_data(data, target, views, sequences, task)
        with results_folder(out):
            with screen.notes(errors), screen.ticking(errors) as tick:
                result = application.run_fit(loaded, options, tick)
            content = result.as_dict()
            with screen.notes(errors), writing(out), whole_files(out) as folder:
                application.write_files(result, content, folder, out)
    if as_json:
        print(json.dumps(content, allow_nan=False))
        return
    console = screen.standard_output()
    screen.show_comparison(console, content)
    screen.show_model(console, content["model"])
    console.print(
        f"\nSaved in {out}: model.mkl, results.json, weights.csv, report.html. "
        "To predict: "
        f"mklearn predict {out / 'model.mkl'} DATA",
        soft_wrap=True, markup=False,
    )  # fmt: skip


def predict(
    model: Annotated[Path, typer.Argument(help="model.mkl, as fit has written it.")],
    data: Annotated[Path, typer.Argument(help=_DATA)],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; the screen by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict new samples with a saved model."""
    errors = screen.standard_error()
    with user_errors():
        loaded = _load_model(model)
        with sound(model):
            columns, said = application.run_predict(loaded, data)
    for line in said:
        errors.print(line, markup=False)
    text = application.as_csv(columns)
    if out is not None:
        with writing(out), whole_file(out) as path:
            path.write_text(text, encoding="utf-8")
    if as_json:
        print(json.dumps(columns, allow_nan=False))
    elif out is None:
        sys.stdout.write(text)
    else:
        n = len(columns["prediction"])
        errors.print(f"{n} predictions written to {out}", markup=False)


def inspect_model(
    model: Annotated[Path, typer.Argument(help="model.mkl, as fit has written it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a saved model is: kernels, weights, certificate, versions."""
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
        str, typer.Option(help="Methods with commas: mkl, discriminant, ...")
    ] = "mkl",
    norms: Annotated[str, typer.Option(help="Norms with commas.")] = "1,1.33,2,inf",
    views: Annotated[list[str] | None, typer.Option(help=_VIEWS)] = None,
    sequences: Annotated[
        str, typer.Option(help="Columns of strings such as DNA, with commas.")
    ] = "",
    kernels: Annotated[str, typer.Option(help=_KERNELS)] = "auto",
    reg: Annotated[
        str | None, typer.Option(help="C of mkl and bilinear: a number or 'auto'.")
    ] = None,
    task: Annotated[str, typer.Option(help=_TASK)] = "auto",
    cv: Annotated[int, typer.Option(min=2, max=50, help="Folds.")] = 5,
    jobs: Annotated[
        int | None, typer.Option(help="Processes for searches and single kernels.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for the results; none by default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare several norms and methods on the same folds of a table."""
    errors = screen.standard_error()
    with user_errors():
        wanted = inputs.parse_list(methods)
        for method in wanted or [""]:
            require("--methods", method, models.METHODS)
        sizes = [
            float(inputs.parse_number("--norms", p, ["inf"]))
            for p in inputs.parse_list(norms)
        ]
        if not sizes:
            fail("--norms takes numbers with commas between them, got none")
        cost = None if reg is None else inputs.parse_number("--reg", reg, ["auto"])
        options = models.Settings(
            reg=cost, kernels=kernels, cv=cv, jobs=jobs, seed=seed
        )
        loaded = _load_data(data, target, views, sequences, task)
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


def _load_data(
    data: Path, target: str, views: list[str] | None, sequences: str, task: str
) -> inputs.Data:
    require("--task", task, ("auto", inputs.CLASSES, inputs.VALUES))
    return inputs.load_data(
        data,
        target,
        inputs.parse_views(views or []),
        inputs.parse_list(sequences),
        task,
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
    """Multiple kernel learning: learn which kernels matter, with a certificate."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mklearn {__version__}")
        raise typer.Exit
