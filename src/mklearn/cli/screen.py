"""Output of the commands: tables on standard output, progress on standard error."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from mklearn.cli.demo import GAPS, LEARNED, NOISY, PLAIN
from mklearn.cli.ends import visible
from mklearn.cli.estimate import duration
from mklearn.data.spelling import plural
from mklearn.report import words
from mklearn.report.facts import headline


def standard_output() -> Console:
    """Return the console for results."""
    return Console(highlight=False)


def standard_error() -> Console:
    """Return the console for progress, notes and errors."""
    return Console(stderr=True, highlight=False)


@contextmanager
def notes(errors: Console) -> Iterator[None]:
    """Print each warning once, on its own line.

    Deprecations, which are for developers, are not shown.
    """
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for category in (DeprecationWarning, PendingDeprecationWarning):
            warnings.simplefilter("ignore", category)
        yield
    for text in dict.fromkeys(str(w.message) for w in found):
        errors.print(f"note: {visible(' '.join(text.split()))}", markup=False)


class Ticker:
    """Shows the progress of a run: on a terminal, and line by line in a file.

    Called after each fit with the model, the index of the fold, and the total number of
    fits.
    """

    def __init__(
        self, errors: Console, progress: Progress, log: TextIO | None, total: int | None
    ) -> None:
        self._errors, self._progress, self._log = errors, progress, log
        self._task = progress.add_task("compiling", total=total)
        self._done, self._began = 0, time.monotonic()

    def __call__(self, name: str, fold: int, total: int) -> None:
        """Report that a fit is done, and the expected remaining time."""
        done = f"fold {fold + 1}: {name}, done"
        self._progress.update(self._task, advance=1, total=total, description=done)
        self._done += 1
        left = (time.monotonic() - self._began) / self._done * (total - self._done)
        self._write(f"{done}; {self._done} of {total}, about {duration(left)} left")

    def say(self, text: str) -> None:
        """Show a message about the next step, on a terminal or in a file."""
        if self._errors.is_terminal:
            self._errors.print(text, markup=False)
        self._write(text)
        if not self._done:  # messages before the first fit do not count
            self._began = time.monotonic()

    def _write(self, text: str) -> None:
        if self._log is not None:
            stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
            self._log.write(f"{stamp} {visible(text)}\n")
            self._log.flush()


@contextmanager
def ticking(
    errors: Console, total: int | None = None, log: Path | None = None
) -> Iterator[Ticker]:
    """Yield a :class:`Ticker`, which shows progress and the remaining time.

    Parameters
    ----------
    errors : Console
        Progress is shown if it is a terminal.
    total : int, optional
        Total number of fits, if known.
    log : Path, optional
        File to which a line is written for each step.
    """
    progress = Progress(console=errors)
    with ExitStack() as stack:
        # otherwise, older versions of rich print an empty line at the end
        if errors.is_terminal:
            stack.enter_context(progress)
        file = None
        if log is not None:
            file = stack.enter_context(log.open("w", encoding="utf-8"))
        yield Ticker(errors, progress, file, total)


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(*left, box=None, pad_edge=False)
    for heading in right:
        table.add_column(heading, justify="right")
    return table


# --- models and comparisons -----------------------------------------------------------


def shown(content: Any) -> Any:
    """Return the content with control characters escaped in all texts."""
    if isinstance(content, str):
        return visible(content)
    if isinstance(content, dict):
        return {shown(key): shown(value) for key, value in content.items()}
    return [shown(v) for v in content] if isinstance(content, list) else content


def show_comparison(console: Console, content: dict[str, Any]) -> None:
    """Show messages about the data, and the comparison of methods."""
    content = shown(content)
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
    console.print(
        f"\n{plural(data['n_samples'], 'sample')}, {plural(content['n_folds'], 'fold')}"
    )
    console.print(table)
    console.print(words.differences(scoring))
    if "large" in content:
        large = content["large"]
        console.print(
            f"\nThe model on features of rank {large['rank']}, fitted on "
            f"{plural(large['n_learned'], 'row')}, has {words.scoring_name(scoring)} "
            f"{words.value(large['score'], scoring)} on {large['n_tested']} held-out "
            "rows. "
            f"The final model is fitted on all {plural(large['n_samples'], 'row')}."
        )
    if "test" in content:
        test = content["test"]
        console.print(f"\n{test['n_samples']} other samples: {test['name']}")
        table = _table(["method"], [words.scoring_name(scoring)])
        for name, value in test["scores"].items():
            table.add_row(name, words.value(value, scoring))
        console.print(table)


def show_verdict(console: Console, verdict: dict[str, Any]) -> None:
    """Show the conclusion of the comparison."""
    console.print(f"\n[bold]{verdict['words']}[/bold]")


def show_times(console: Console, times: dict[str, Any]) -> None:
    """Show the cross-validated areas under the curve at several times."""
    table = _table(["time"], ["events by then", "area under the curve"])
    for at, count, area in zip(
        times["at"], times["events_by_then"], times["areas"], strict=True
    ):
        table.add_row(f"{at:.4g}", str(count), "-" if area is None else f"{area:.3f}")
    console.print("")
    console.print(table)


def show_model(
    console: Console,
    model: dict[str, Any],
    views: Sequence[dict[str, Any]] = (),
    scoring: str = "accuracy",
) -> None:
    """Show the kernels of a model, the chosen settings, and the certificate.

    ``views`` are facts about the views, in terms of the score ``scoring``.
    """
    model, views = shown(model), shown(list(views))
    first = headline(model["kernels"])
    if views and all(view["p_value"] is not None for view in views):
        console.print("")
        console.print(_shares(views, scoring, _block(console)))
        if all(view["low"] is not None for view in views):
            console.print(words.SHARES_SHORT)
    elif first["views"]:
        table = _table(["view"], ["share", "kernels"])
        for row in first["views"]:
            share = words.percent(row["contribution"])
            table.add_row(Text(row["name"]), share, words.weight(row))
        console.print("")
        console.print(table)
    table = _table(["kernel"], ["weight", "contribution"])
    for row in first["kernels"]:
        table.add_row(Text(row["name"]), words.weight(row), words.contribution(row))
    console.print("")
    console.print(table)
    if len(first["kernels"]) < len(model["kernels"]):
        console.print(words.WIDTHS)
    if "rejected" in model:
        console.print(words.rejected(model["rejected"]), markup=False)
    if "covariates" in model:
        _show_covariates(console, model["covariates"])
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


def _show_covariates(console: Console, found: dict[str, Any]) -> None:
    """Show the effects of covariates, and what they explain besides the kernels."""
    table = _table(["covariate"], ["effect"])
    for name, *effects in zip(found["names"], *found["effects"], strict=True):
        table.add_row(Text(name), ", ".join(f"{effect:.4g}" for effect in effects))
    console.print("")
    console.print(table)
    if found["dropped"]:
        dropped = ", ".join(found["dropped"])
        console.print(f"Dropped as collinear or constant: {dropped}.", markup=False)
    if "explained" in found:
        parts = found["explained"]
        console.print(
            f"Of the variance of the scores, {parts['covariates']:.0%} is due to "
            f"covariates, {parts['kernels']:.0%} to kernels, and {parts['both']:.0%} "
            "is their covariance.",
            markup=False,
        )


def show_views(
    console: Console,
    found: dict[str, Any] | None,
    views: Sequence[dict[str, Any]],
    refits: dict[str, Any] | None,
    scoring: str,
) -> None:
    """Show what each view accounts for in the score.

    Parameters
    ----------
    console : Console
    found : dict or None
        Parts of the score.
    views : sequence of dict
        What is known of each view.
    refits : dict or None
        What was fitted to some of the views.
    scoring : str
        What the scores of ``views`` are.
    """
    found, views, refits = shown(found), shown(list(views)), shown(refits)
    kinds = {k: words.REFITS[k] for k in (refits or {}).get("kinds", ())}
    parts = found is not None and found["kind"] not in kinds
    if parts or kinds:
        table = _table(["view"], [*(["part of the score"] if parts else []),
                                  *kinds.values()])  # fmt: skip
        rows = {row["name"]: row for row in found["views"]} if parts else {}
        for name in dict.fromkeys([*(v["view"] for v in views), *rows]):
            view = next((v for v in views if v["view"] == name), None)
            cells = []
            if parts:
                row = rows.get(name)
                cells.append(words.view_score(row, found["scoring"]) if row else "-")
            for kind in kinds:
                known = view is not None and view[kind] is not None
                cells.append(words.refit_score(view, kind, scoring) if known else "-")
            table.add_row(Text(name), *cells)
        console.print("")
        console.print(table)
    if found is not None:
        said = words.by_view(found)
        console.print(f"{said[0].upper()}{said[1:]}.", markup=False)
    if refits:
        console.print(refits["words"], markup=False)


def show_file(console: Console, content: dict[str, Any]) -> None:
    """Show a saved model: its origin and its content."""
    content = shown(content)
    data = content["notes"].get("data", {})
    console.print(f"{content['model']['class']}, {content['bytes']} bytes")
    if data:
        console.print(
            f"fitted on {data['name']}: {plural(data['n_samples'], 'sample')}, "
            f"{data['task']} of {data['target']}",
            markup=False,
        )
    saved = ", ".join(f"{k} {v}" for k, v in content["versions"].items())
    console.print(f"saved by {saved}", markup=False)
    show_model(console, content["model"])


def show_kernels(
    console: Console, content: dict[str, Any], families: dict[str, str]
) -> None:
    """Show the available kernels, and the functions that create families."""
    table = _table(["kernel", "formula", "parameters"], [])
    for row in content["kernels"]:
        table.add_row(row["kernel"], Text(row["formula"]), Text(row["parameters"]))
    console.print(table)
    console.print(
        "\nEvery kernel also takes columns=, view= and name=. With default "
        "parameters, these kernels can be given by name: "
        f"{', '.join(content['by_name'])}.\n"
    )
    table = _table(["families of kernels", ""], [])
    for name, formula in families.items():
        table.add_row(name, Text(formula))
    console.print(table)


# --- the demonstration ----------------------------------------------------------------


def show_demo(console: Console, content: dict[str, Any], out: Path) -> None:
    """Show the scores, which views matter, and the certificate."""
    data, model, scoring = content["data"], content["model"], content["scoring"]
    situations = content["situations"]
    own = situations[PLAIN]["views"]
    console.print(
        f"\n[bold]{data['n_samples']} handwritten digits in four views: "
        f"{', '.join(own)}[/bold]"
    )
    console.print(
        "Then four views of noise are added, each as wide as the pixels; finally "
        f"{situations[GAPS]['absent']} of the {len(own) * data['n_samples']} "
        "descriptions of digits are removed.\n"
    )
    table = _table(["accuracy"], list(situations))
    rows = [situation["methods"] for situation in situations.values()]
    for methods in zip(*rows, strict=True):
        table.add_row(methods[0]["model"], *(words.score(m, scoring) for m in methods))
    console.print(table)
    console.print(
        f"Means on the same {plural(content['n_folds'], 'fold')}; ± is one standard "
        "error. All methods but the forest choose their settings by cross-validation "
        "on the training samples. Missing views are imputed by the mean for SVC and "
        "forest."
    )
    console.print("\n[bold]Learned weights against the others, in points[/bold]")
    table = _table([""], list(situations))
    for methods in zip(*rows, strict=True):
        if methods[0]["model"] != LEARNED:
            cells = [_learned_better(m, scoring) for m in methods]
            table.add_row(methods[0]["model"], *cells)
    console.print(table)
    console.print("* marks a clear difference: more than two standard errors.")
    console.print(f"\n[bold]Which views matter, {NOISY}[/bold]")
    console.print(_shares(model["views"], scoring, _block(console)))
    console.print(words.SHARES_SHORT)
    console.print("\n[bold]Certificate of the training objective[/bold]")
    console.print(model["certificate"]["message"], markup=False)
    console.print(model["certificate"]["plain_words"])
    files = ", ".join(["results.json", *content["figures"]])
    console.print(f"\nSaved in {out}: {files}", soft_wrap=True, markup=False)


def _learned_better(row: dict[str, Any], scoring: str) -> str:
    mean, error = row["learned_better_by"], row["learned_better_by_error"]
    shown = words.difference({"difference": mean, "difference_error": error}, scoring)
    return f"{shown} {'*' if abs(mean) > 2 * error else ' '}"


def _block(console: Console) -> str:
    return "#" if console.options.ascii_only else "█"


def _shares(views: Sequence[dict[str, Any]], scoring: str, block: str) -> Table:
    top = max([view["share"] for view in views] + [1e-300])
    sure = all(view["low"] is not None for view in views)
    heads = ["share", *(["interval"] if sure else []), "permuted", "p"]
    table = _table(["view", ""], heads)
    for view in views:
        between = (
            f"{100 * view['low']:.1f} to {100 * view['high']:.1f} %" if sure else ""
        )
        table.add_row(
            Text(view["view"]),
            block * round(20 * view["share"] / top),
            words.percent(view["share"]),
            *([between] if sure else []),
            words.gain(view["importance"], scoring),
            words.p_value(view["p_value"]),
        )
    return table
