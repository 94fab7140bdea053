"""What the commands show: tables on standard output, progress and notes beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from mklearn.cli.demo import DENSE, SPARSE
from mklearn.report import KernelRow, rows_by_view, words


def standard_output() -> Console:
    """Return where results go."""
    return Console(highlight=False)


def standard_error() -> Console:
    """Return where progress, notes and errors go."""
    return Console(stderr=True, highlight=False)


@contextmanager
def notes(errors: Console) -> Iterator[None]:
    """Say each warning once, in a line of its own."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(str(w.message) for w in found):
        errors.print(f"note: {' '.join(text.split())}", markup=False)


@contextmanager
def ticking(
    errors: Console, total: int | None = None
) -> Iterator[Callable[[str, int, int], None]]:
    """Give what shows progress after each fit, on a terminal."""
    with Progress(console=errors, disable=not errors.is_terminal) as progress:
        task = progress.add_task("compiling", total=total)

        def tick(name: str, fold: int, total: int) -> None:
            done = f"fold {fold + 1}: {name}, done"
            progress.update(task, advance=1, total=total, description=done)

        yield tick


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(*left, box=None, pad_edge=False)
    for heading in right:
        table.add_column(heading, justify="right")
    return table


# --- models and comparisons -----------------------------------------------------------


def show_comparison(console: Console, content: dict[str, Any]) -> None:
    """Show what a run says about the data, and the methods on the same folds."""
    data, scoring = content["data"], content["scoring"]
    for line in data["notes"]:
        console.print(line, markup=False)
    heads = (words.scoring_name(scoring), "difference", "seconds", "kernels used")
    table = _table(["method"], heads)
    for i, row in enumerate(content["methods"]):
        table.add_row(
            row["model"],
            words.score(row, scoring),
            words.difference(row, scoring) if i else "",
            words.seconds(row),
            words.kernels_used(row),
        )
    console.print(f"\n{data['n_samples']} samples, {content['n_folds']} folds")
    console.print(table)
    console.print(words.DIFFERENCES)


def show_model(console: Console, model: dict[str, Any]) -> None:
    """Show the kernels of a model, what was chosen, and how sure it is."""
    table = _table(["kernel"], ["weight", "contribution"])
    for row in model["kernels"]:
        table.add_row(Text(row["name"]), words.weight(row), words.contribution(row))
    console.print("")
    console.print(table)
    chosen = ", ".join(
        f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}"
        for k, v in model["chosen"].items()
    )
    if chosen:
        console.print(f"with {chosen}")
    proofs = list(model["certificates"])
    if "evidence" in model:
        proofs.append(model["evidence"])
    for proof in proofs:
        console.print(proof["message"], markup=False)
    if proofs:
        console.print(proofs[0]["plain_words"], markup=False)


def show_file(console: Console, content: dict[str, Any]) -> None:
    """Show a saved model: where it comes from, and what it is."""
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
    show_model(console, content["model"])


def show_kernels(
    console: Console, content: dict[str, Any], families: dict[str, str]
) -> None:
    """Show the kernels that there are, and the functions that make several."""
    table = _table(["kernel", "formula", "parameters"], [])
    for row in content["kernels"]:
        table.add_row(row["kernel"], Text(row["formula"]), Text(row["parameters"]))
    console.print(table)
    console.print(
        "\nEvery kernel also takes columns=, view= and name=. These may be given by "
        f"name, with default parameters: {', '.join(content['by_name'])}.\n"
    )
    table = _table(["families of kernels", ""], [])
    for name, formula in families.items():
        table.add_row(name, Text(formula))
    console.print(table)


# --- the demonstration ----------------------------------------------------------------


def show_demo(console: Console, content: dict[str, Any], out: Path) -> None:
    """Show who did how well, which kernels matter, and how sure that is."""
    data, fit = content["data"], content["fits"][SPARSE]
    console.print(
        f"\n[bold]{data['n_samples']} tumours, benign or malignant; "
        f"{len(data['views'])} views of 10 measurements each: "
        f"{', '.join(data['views'])}[/bold]"
    )
    table = _table(["method"], ["accuracy", "time (SVC = 1)", "kernels used"])
    for row in content["methods"]:
        table.add_row(
            row["model"],
            words.score(row, content["scoring"]),
            f"{row['relative_time']:.3g}",
            words.kernels_used(row, "one, on all columns"),
        )
    console.print(table)
    console.print(
        f"Accuracy on the same {content['n_folds']} folds, all with C=1; ± is one "
        "standard error. Time is that of one fit."
    )
    rows = {row["model"]: row for row in content["methods"]}
    for name in (DENSE, SPARSE):
        row = rows[name]
        clear = "a" if abs(row["difference"]) > 2 * row["difference_error"] else "no"
        console.print(
            f"{name} against SVC: {words.difference(row, content['scoring'])} points, "
            f"{clear} clear difference."
        )
    console.print(f"\n[bold]Which kernels matter: {SPARSE}, all samples[/bold]")
    block = "#" if console.options.ascii_only else "█"
    console.print(_weights_by_view(fit["kernels"], block))
    console.print(
        "rbf(4/median) is exp(-4 d / median of d), d the squared distance of two "
        "samples: the larger the number, the narrower the kernel.\n"
        "Contributions sum to 100 %; those of the views stand behind their names."
    )
    console.print("\n[bold]How sure is that?[/bold]")
    console.print(fit["certificate"]["message"], markup=False)
    console.print(fit["certificate"]["plain_words"])
    files = ", ".join(["results.json", *content["figures"]])
    console.print(f"\nSaved in {out}: {files}", soft_wrap=True, markup=False)


def _weights_by_view(
    kernels: Sequence[dict[str, Any]], block: str, width: int = 24
) -> Table:
    groups = rows_by_view([KernelRow(**kernel) for kernel in kernels])
    top = max(kernel["weight"] for kernel in kernels)
    table = _table(["view", "kernel", ""], ["weight", "contribution"])
    for view, rows in groups.items():
        share = sum(row.contribution for row in rows)
        for i, row in enumerate(rows):
            table.add_row(
                f"{view} ({share:.0%})" if i == 0 else "",
                Text(row.short_name),
                block * round(width * row.weight / top),
                words.weight(vars(row)),
                words.contribution(vars(row)),
                end_section=i == len(rows) - 1,
            )
    return table
