"""The ``mklearn`` command: a thin face; what it shows is computed elsewhere.

A command is a function with annotated options, listed in ``COMMANDS``. Standard output
is for results, standard error for progress and errors. Exit codes: 0 done, 2 the user
can repair it (one line says how), 1 a number of a quick reproduction left its band, 130
stopped by Ctrl-C.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

try:
    import typer
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text
except ImportError as missing:
    if (missing.name or "").split(".")[0] not in ("typer", "rich", "click"):
        raise
    typer = None  # type: ignore[assignment]  # main tells how to get it


def main() -> None:
    """Run the command line."""
    if typer is None:
        _fail("the command line needs two more packages: pip install mklearn[cli]")
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
    from mklearn.cli.demo import make_models, run_demo
    from mklearn.report import whole_files, write_json

    errors = Console(stderr=True, highlight=False)
    with _results_folder(out):
        names = list(make_models())
        errors.print(
            f"Comparing {len(names)} methods on the same {folds} folds; the first run "
            "compiles and takes longer."
        )
        with Progress(console=errors, disable=not errors.is_terminal) as progress:
            task = progress.add_task("compiling", total=len(names) * folds)

            def tick(name: str, fold: int) -> None:
                progress.update(
                    task, advance=1, description=f"fold {fold + 1}: {name}, done"
                )

            result = run_demo(folds, tick)
        content = result.as_dict()
        with _writing(out), whole_files(out) as folder:
            content["figures"] = _save_figures(result, folder, errors)
            write_json(folder / "results.json", content)
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        _show_demo(result, content, out)


def kernels(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the kernels: name, formula and parameters."""
    from mklearn import kernels as module
    from mklearn.kernels.specs import BY_NAME

    found = []
    for name in module.__all__:
        cls = getattr(module, name)
        if inspect.isclass(cls) and issubclass(cls, module.Kernel):
            if cls is not module.Kernel:
                found.append((name, _summary(cls), _parameters(cls)))
    if as_json:
        keys = ("kernel", "formula", "parameters")
        rows = [dict(zip(keys, row, strict=True)) for row in found]
        print(json.dumps({"kernels": rows, "by_name": sorted(BY_NAME)}))
        return
    table = Table("kernel", "formula", "parameters", box=None, pad_edge=False)
    for name, formula, parameters in found:
        table.add_row(name, Text(formula), Text(parameters))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "\nEvery kernel also takes columns=, view= and name=. These may be given by "
        f"name, with default parameters: {', '.join(sorted(BY_NAME))}.\n"
    )
    families = Table("families of kernels", "", box=None, pad_edge=False)
    for name in module.__all__:
        function = getattr(module, name)
        if inspect.isfunction(function) and name.startswith(("per_", "rbf_")):
            families.add_row(name, Text(_summary(function)))
    console.print(families)


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
    from mklearn.cli.application import (
        METHODS,
        Settings,
        parse_number,
        run_fit,
        write_report,
    )
    from mklearn.persistence import save
    from mklearn.report import whole_files, write_json

    errors = Console(stderr=True, highlight=False)
    with _user_errors():
        _require("--method", method, METHODS)
        options = Settings(
            method,
            parse_number("--norm", norm, ["auto"]),
            None if reg is None else parse_number("--reg", reg, _REG_WORDS),
            kernels, cv, jobs, seed,
        )  # fmt: skip
        loaded = _load_data(data, target, views, sequences, task)
        with _results_folder(out):
            with _notes(errors), _ticking(errors) as tick:
                result = run_fit(loaded, options, tick)
            content = result.as_dict()
            notes = {"data": content["data"], "methods": content["methods"]}
            with _writing(out), whole_files(out) as folder:
                save(result.model, folder / "model.mkl", notes)
                weights = _weights_csv(content["model"])
                (folder / "weights.csv").write_text(weights, encoding="utf-8")
                loading = (
                    "from mklearn.persistence import load\n\n"
                    f"model = load({str(out / 'model.mkl')!r})"
                )
                with _notes(errors):
                    write_report(result, folder / "report.html", loading)
                write_json(folder / "results.json", content)
    if as_json:
        print(json.dumps(content, allow_nan=False))
        return
    console = Console(highlight=False)
    _show_comparison(console, content)
    _show_model(console, content["model"])
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
    from mklearn.cli.application import run_predict
    from mklearn.report import whole_file

    errors = Console(stderr=True, highlight=False)
    with _user_errors():
        loaded = _load_model(model)
        with _sound(model):
            columns, said = run_predict(loaded, data)
    for line in said:
        errors.print(line, markup=False)
    text = _csv(columns)
    if out is not None:
        with _writing(out), whole_file(out) as path:
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
    from mklearn.cli.application import describe
    from mklearn.persistence import read_header

    with _user_errors():
        loaded = _load_model(model)
        with _sound(model):
            content = {**read_header(model), "model": describe(loaded)}
    if as_json:
        print(json.dumps(content, allow_nan=False))
        return
    console = Console(highlight=False)
    with _sound(model):
        data = content["notes"].get("data", {})
        console.print(f"{content['model']['class']}, {content['bytes']} bytes")
        if data:
            console.print(
                f"fitted on {data['name']}: {data['n_samples']} samples, "
                f"{data['task']} of {data['target']}",
                markup=False,
            )
        saved = ", ".join(f"{k} {v}" for k, v in content["versions"].items())
        console.print(f"saved by {saved}", markup=False)
        _show_model(console, content["model"])


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
    from mklearn.cli.application import METHODS, Settings, parse_number, run_compare
    from mklearn.report import write_json

    errors = Console(stderr=True, highlight=False)
    with _user_errors():
        wanted = _split(methods)
        for method in wanted or [""]:
            _require("--methods", method, METHODS)
        sizes = [float(parse_number("--norms", p, ["inf"])) for p in _split(norms)]
        if not sizes:
            _fail("--norms takes numbers with commas between them, got none")
        cost = None if reg is None else parse_number("--reg", reg, ["auto"])
        options = Settings(reg=cost, kernels=kernels, cv=cv, jobs=jobs, seed=seed)
        loaded = _load_data(data, target, views, sequences, task)
        with _notes(errors), _ticking(errors) as tick:
            result = run_compare(loaded, options, wanted, sizes, tick)
        content = result.as_dict()
        if out is not None:
            with _writing(out):
                write_json(out, content)
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        _show_comparison(Console(highlight=False), content)


def reproduce(
    paper: Annotated[
        str, typer.Argument(help="dkl, kfda, subspace, bilinear or lpmkl.")
    ],
    table: Annotated[
        str | None,
        typer.Option(help="One table by its number, or figure1 ...; all by default."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A few cells; fails if a number leaves its band."),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Cells at a time; -1 for all cores.")] = 1,
    out: Annotated[
        Path, typer.Option(help="Folder; page, figures and cells are in PAPER there.")
    ] = Path("reproduction-output"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="At most so many of each table.")
    ] = None,
    budget: Annotated[
        float,
        typer.Option(min=1, help="Seconds for each slow method on each data set."),
    ] = 300.0,
    cap: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds for one conic program; --budget by default."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers of the page as JSON.")
    ] = False,
) -> None:
    """Run the tables of a paper and compare with the printed numbers."""
    from mklearn.reproduction import Settings, protocol, run
    from mklearn.reproduction.page import content, outside, write

    began = time.perf_counter()
    settings = Settings(seed, quick, repetitions, budget, table, cap)
    try:
        plan = protocol(paper)
        plan.select(table, quick)
    except ValueError as error:
        _fail(str(error))
    if jobs == 0:
        _fail("--jobs must not be 0; -1 takes all cores")
    errors = Console(stderr=True, highlight=False)
    with _results_folder(out):
        with Progress(console=errors, disable=not errors.is_terminal) as progress:
            task = progress.add_task("starting", total=None)

            def tick(done: int, total: int, name: str) -> None:
                progress.update(task, completed=done, total=total, description=name)
                if not errors.is_terminal:
                    errors.print(f"{done}/{total} {name}", markup=False)

            with _writing(out):
                found = run(plan, out, settings, jobs=jobs, tick=tick)
        with _writing(out):
            page = write(found, out, time.perf_counter() - began)
    numbers = {**content(found), "page": str(page)} if as_json else {}
    print(json.dumps(numbers, allow_nan=False) if as_json else page)
    for name, reason in found.missing.items():
        errors.print(f"left out {name}: {reason}", markup=False)
    if not found.cells:
        _fail("no cell could be run; see the reasons above")
    broken = outside(found) if quick else []
    if broken:
        _fail("a number left its band: " + "; ".join(broken), 1)


COMMANDS = (demo, kernels, fit, predict, inspect_model, compare, reproduce)


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
        app.command(name)(_ends_well(command))
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
        from mklearn import __version__

        print(f"mklearn {__version__}")
        raise typer.Exit


# --- what the demonstration shows -----------------------------------------------------


def _show_demo(result: Any, content: dict[str, Any], out: Path) -> None:
    from mklearn.cli.demo import DENSE, REFERENCE, SPARSE

    console = Console(highlight=False)
    data = content["data"]
    console.print(
        f"\n[bold]{data['n_samples']} tumours, benign or malignant; "
        f"{len(data['views'])} views of 10 measurements each: "
        f"{', '.join(data['views'])}[/bold]"
    )
    console.print(_methods_table(content))
    console.print(
        f"Accuracy on the same {content['n_folds']} folds, all with C=1; ± is one "
        "standard error. Time is that of one fit."
    )
    for name in (DENSE, SPARSE):
        mean, error = result.comparison.difference(name, REFERENCE)
        clear = "a" if abs(mean) > 2 * error else "no"
        console.print(
            f"{name} against SVC: {100 * mean:+.1f} ± {100 * error:.1f} points, "
            f"{clear} clear difference."
        )
    model = result.models[SPARSE]
    console.print(f"\n[bold]Which kernels matter: {SPARSE}, all samples[/bold]")
    console.print(_weights_table(model, "#" if console.options.ascii_only else "█"))
    console.print(
        "rbf(4/median) is exp(-4 d / median of d), d the squared distance of two "
        "samples: the larger the number, the narrower the kernel.\n"
        "Contributions sum to 100 %; those of the views stand behind their names."
    )
    certificate = content["fits"][SPARSE]["certificate"]
    console.print("\n[bold]How sure is that?[/bold]")
    console.print(certificate["message"], markup=False)
    console.print(certificate["plain_words"])
    files = ", ".join(["results.json", *content["figures"]])
    console.print(f"\nSaved in {out}: {files}", soft_wrap=True, markup=False)


def _methods_table(content: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    for title in ("accuracy", "time (SVC = 1)", "kernels used"):
        table.add_column(title, justify="right")
    for row in content["methods"]:
        used = "one, on all columns"
        if row["n_kernels"]:
            used = f"{row['kernels_used']:.3g} of {row['n_kernels']}"
        table.add_row(
            row["model"],
            f"{100 * row['score']:.1f} ± {100 * row['standard_error']:.1f} %",
            f"{row['relative_time']:.3g}",
            used,
        )
    return table


def _weights_table(model: Any, block: str, width: int = 24) -> Table:
    from mklearn.report import kernel_rows, rows_by_view

    groups = rows_by_view(kernel_rows(model))
    top = max(row.weight for rows in groups.values() for row in rows)
    table = Table("view", "kernel", "", box=None, pad_edge=False)
    table.add_column("weight", justify="right")
    table.add_column("contribution", justify="right")
    for view, rows in groups.items():
        share = sum(row.contribution for row in rows)
        for i, row in enumerate(rows):
            table.add_row(
                f"{view} ({share:.0%})" if i == 0 else "",
                Text(row.short_name),
                block * round(width * row.weight / top),
                f"{row.weight:.3f}" if row.used else "-",
                f"{row.contribution:.1%}" if row.used else "-",
                end_section=i == len(rows) - 1,
            )
    return table


def _save_figures(result: Any, out: Path, errors: Console) -> list[str]:
    """Save figures and report and return their names.

    Without matplotlib there are no figures, and the report has numbers alone.
    """
    from mklearn.cli.demo import DENSE, SPARSE
    from mklearn.report import whole_file, write_html

    write_html(out / "report.html", result.report())
    try:
        from matplotlib.figure import Figure
    except ImportError:
        errors.print(
            "No figures, and none in the report: they need matplotlib, pip install "
            "mklearn[plot]",
            markup=False, soft_wrap=True,
        )  # fmt: skip
        return ["report.html"]
    from mklearn.plotting import plot_convergence, plot_weights

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


# --- what the list of kernels shows ---------------------------------------------------


def _summary(thing: Any) -> str:
    first = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return " ".join(first.replace("``", "").split()).removeprefix("Return ").rstrip(".")


def _parameters(cls: type) -> str:
    from mklearn.kernels import Kernel

    place = {f.name for f in fields(Kernel)}
    return ", ".join(
        f"{f.name}={f.default!r}" for f in fields(cls) if f.name not in place
    )


# --- what a fit shows -----------------------------------------------------------------


def _load_data(
    data: Path, target: str, views: list[str] | None, sequences: str, task: str
) -> Any:
    from mklearn.cli.application import CLASSES, VALUES, load_data, parse_views

    _require("--task", task, ("auto", CLASSES, VALUES))
    return load_data(data, target, parse_views(views or []), _split(sequences), task)


def _load_model(path: Path) -> Any:
    from mklearn.persistence import load

    if not path.is_file():
        _fail(f"there is no model file {path}")
    return load(path)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _require(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        _fail(f"{option} takes {', '.join(known)}; got {value!r}")


@contextmanager
def _user_errors() -> Iterator[None]:
    """End with one line for what the user can repair: data, options, files."""
    try:
        yield
    except (ValueError, OSError, MemoryError) as error:
        _fail(" ".join(str(error).split()) or type(error).__name__)


@contextmanager
def _sound(model: Path) -> Iterator[None]:
    """End with one line where a model file holds what no model of ours would."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        why = " ".join(str(error).split())
        _fail(
            f"{model} holds a model that cannot be used: {type(error).__name__} {why}"
        )


@contextmanager
def _notes(errors: Console) -> Iterator[None]:
    """Say each warning once, in a line of its own."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(str(w.message) for w in found):
        errors.print(f"note: {' '.join(text.split())}", markup=False)


@contextmanager
def _ticking(errors: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Give what shows progress, on a terminal."""
    with Progress(console=errors, disable=not errors.is_terminal) as progress:
        task = progress.add_task("compiling", total=None)

        def tick(name: str, fold: int, total: int) -> None:
            done = f"fold {fold + 1}: {name}, done"
            progress.update(task, advance=1, total=total, description=done)

        yield tick


def _show_comparison(console: Console, content: dict[str, Any]) -> None:
    data = content["data"]
    for line in data["notes"]:
        console.print(line, markup=False)
    percent = content["scoring"] == "accuracy"
    scale, unit = (100, " %") if percent else (1, "")
    digits = 1 if percent else 3
    title = "accuracy" if percent else "R²"
    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    for heading in (title, "difference", "seconds", "kernels used"):
        table.add_column(heading, justify="right")
    for i, row in enumerate(content["methods"]):
        mean, error = scale * row["difference"], scale * row["difference_error"]
        used = "-"
        if row["n_kernels"]:
            used = f"{row['kernels_used']:.3g} of {row['n_kernels']}"
        table.add_row(
            row["model"],
            f"{scale * row['score']:.{digits}f} ± "
            f"{scale * row['standard_error']:.{digits}f}{unit}",
            f"{round(mean, digits) + 0.0:+.{digits}f} ± {error:.{digits}f}"
            if i
            else "",
            f"{row['fit_seconds']:.2g}",
            used,
        )
    console.print(f"\n{data['n_samples']} samples, {content['n_folds']} folds")
    console.print(table)
    console.print(
        "Differences are to the first row, on the same folds; ± is one standard "
        "error, and less than two of them is no clear difference."
    )


def _show_model(console: Console, model: dict[str, Any]) -> None:
    table = Table("kernel", box=None, pad_edge=False)
    table.add_column("weight", justify="right")
    table.add_column("contribution", justify="right")
    for row in model["kernels"]:
        table.add_row(
            Text(row["name"]),
            f"{row['weight']:.3f}" if row["used"] else "-",
            f"{row['contribution']:.1%}" if row["used"] else "-",
        )
    console.print("")
    console.print(table)
    chosen = ", ".join(f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}"
                       for k, v in model["chosen"].items())  # fmt: skip
    if chosen:
        console.print(f"with {chosen}")
    proofs = list(model["certificates"])
    if "evidence" in model:
        proofs.append(model["evidence"])
    for proof in proofs:
        console.print(proof["message"], markup=False)
    if proofs:
        console.print(proofs[0]["plain_words"], markup=False)


def _weights_csv(model: dict[str, Any]) -> str:
    names = ("name", "view", "weight", "contribution", "used")
    rows = model["kernels"]
    columns: dict[str, list[Any]] = {key: [row[key] for row in rows] for key in names}
    columns["parameters"] = [json.dumps(row["parameters"]) for row in rows]
    return _csv(columns)


def _csv(columns: dict[str, list[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue()


# --- ends -----------------------------------------------------------------------------


class _Stop(BaseException):
    """Ctrl-C; not a KeyboardInterrupt, which makes a solver return and work go on."""


def _ends_well(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with Ctrl-C ending it, wherever it is, by exit code 130."""

    def stop(*_: Any) -> NoReturn:
        raise _Stop

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        own = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, stop) if own else None
        try:
            command(*args, **kwargs)
        except (_Stop, KeyboardInterrupt):
            _fail("stopped; nothing is left half-written", 130)
        finally:
            if own:
                signal.signal(signal.SIGINT, before)

    return wrapper


@contextmanager
def _results_folder(out: Path) -> Iterator[None]:
    """Make sure of a folder that can be written to, before the work and not after."""
    new = not out.exists()
    try:
        with _writing(out):
            if out.exists() and not out.is_dir():
                _fail(f"cannot write to {out}: it is a file; --out takes a folder")
            out.mkdir(parents=True, exist_ok=True)
            trial = out / f".{os.getpid()}.tmp"
            trial.touch()
            trial.unlink()
        yield
    finally:
        if new:
            with suppress(OSError):  # it goes only if it is empty
                out.rmdir()


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _fail(f"cannot write to {out}: {error.strerror or error}")


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"mklearn: {message}", file=sys.stderr)
    raise SystemExit(code)
