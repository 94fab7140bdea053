"""The ``mklearn`` command: a thin face; what it shows is computed elsewhere.

A command is a function with annotated options, listed in ``COMMANDS``. Standard output
is for results, standard error for progress and errors. Exit codes: 0 done, 2 the user
can repair it (one line says how), 1 a number of a quick reproduction left its band, 130
stopped by Ctrl-C.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import threading
import time
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
    from mklearn.demo import make_models, run_demo
    from mklearn.report import write_json

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
        with _writing(out):
            content["figures"] = _save_figures(result, out, errors)
            write_json(out / "results.json", content)
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        _show_demo(result, content, out)


def kernels() -> None:
    """List the kernels: name, formula and parameters."""
    from mklearn import kernels as module
    from mklearn.kernels.specs import BY_NAME

    table = Table("kernel", "formula", "parameters", box=None, pad_edge=False)
    for name in module.__all__:
        cls = getattr(module, name)
        if not (inspect.isclass(cls) and issubclass(cls, module.Kernel)):
            continue
        if cls is not module.Kernel:
            table.add_row(name, Text(_summary(cls)), Text(_parameters(cls)))
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


def reproduce(
    paper: Annotated[str, typer.Argument(help="dkl, kfda, subspace or bilinear.")],
    table: Annotated[
        str | None, typer.Option(help="One table by its number; all by default.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A few cells; fails if a number leaves its band."),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Cells at a time; -1 for all cores.")] = 1,
    out: Annotated[
        Path, typer.Option(help="Folder for cells, page and figures.")
    ] = Path("reproduction-output"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="In place of the paper's.")
    ] = None,
    budget: Annotated[
        float,
        typer.Option(min=1, help="Seconds for each slow method on each data set."),
    ] = 300.0,
) -> None:
    """Run the tables of a paper and compare with the printed numbers."""
    from mklearn.reproduction import Settings, protocol, run
    from mklearn.reproduction.page import outside, write

    began = time.perf_counter()
    settings = Settings(seed, quick, repetitions, budget, table)
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
    print(page)
    for name, reason in found.missing.items():
        errors.print(f"left out {name}: {reason}", markup=False)
    if not found.cells:
        _fail("no cell could be run; see the reasons above")
    broken = outside(found) if quick else []
    if broken:
        _fail("a number left its band: " + "; ".join(broken), 1)


COMMANDS = (demo, kernels, reproduce)


def make_app() -> Any:
    """Return the application with all commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for command in COMMANDS:
        app.command()(_ends_well(command))
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
    from mklearn.demo import DENSE, REFERENCE, SPARSE

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
    """Save the figures and return their names; without matplotlib there are none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        errors.print(
            "No figures: they need matplotlib, pip install mklearn[plot]", markup=False
        )
        return []
    from mklearn.demo import DENSE, SPARSE
    from mklearn.plotting import plot_convergence, plot_weights
    from mklearn.report import whole_file

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
    return list(figures)


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
