"""The page of a paper: our numbers, the printed ones and how far they are apart."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import scipy
import sklearn

import mklearn
from mklearn.report import whole_file
from reproduction.cells import Band, Protocol, Results, Table, Values, commit
from reproduction.claims import Means, conclusions

Printed = dict[tuple[str, str, str, str], tuple[float, float]]

TIMES = ("seconds",)

BEYOND = "**no**"
ONE_RUN = "All numbers are from the same run."
DIFFERING = "Rows that differ by more than the combined error:"
AGREEMENT = "How many rows agree with the printed ones"
UNKNOWN = "We do not know why, and have not examined this row separately."
COLUMNS = (
    "*Ours* is the mean over repetitions ± its standard error. *Within* says whether "
    "the difference is within the combined standard error of both means (if no spread "
    "is printed, ours is used for both), within two of them, or neither; one unit of "
    "the last printed digit is subtracted from the difference first. Repetitions share "
    "most of their samples, so the true errors are larger. *Why* refers to the "
    "explanations below a table."
)
FEW = 4  # repetitions
HARDLY = (
    "There are only two or three repetitions, so that the standard error is itself "
    "uncertain; it is zero if they happen to agree."
)
CHANCE = "Within two combined errors; by chance alone, one row in three is beyond one."


def published_folder() -> Path | None:
    """Return the folder of the printed numbers, None if there is none.

    It is the one that the environment variable MKLEARN_PUBLISHED names, otherwise
    ``published`` beside the folder that MKLEARN_DATA names.
    """
    named = os.environ.get("MKLEARN_PUBLISHED")
    data = os.environ.get("MKLEARN_DATA")
    if named:
        folder = Path(named)
    elif data:
        folder = Path(data).resolve().parent / "published"
    else:
        return None
    return folder if folder.is_dir() else None


def read_rows(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a file of printed numbers; none if there is no such file."""
    try:
        with open(folder / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []


@dataclass(frozen=True)
class Row:
    """One value of a method on a data set: ours and the printed one.

    ``error`` is the standard error of our mean, ``printed_error`` that of the printed
    one, ``unit`` one of the last digit printed. NaN is what is not known.
    """

    data: str
    method: str
    key: str
    repetitions: int
    mean: float
    error: float
    printed: float
    printed_error: float
    unit: float = 0.0

    @property
    def difference(self) -> float:
        """Ours minus the printed one."""
        return self.mean - self.printed

    @property
    def combined(self) -> float:
        """The combined standard error; a spread not printed is taken to be ours."""
        other = self.error if np.isnan(self.printed_error) else self.printed_error
        return float(np.hypot(self.error, other))

    @property
    def differs(self) -> bool:
        """Whether the difference exceeds the combined standard error."""
        return self.verdict not in ("", "yes")

    @property
    def verdict(self) -> str:
        """Whether the difference is within the combined standard error.

        Less than one of the last digit printed is no difference: some papers round, and
        some cut off.
        """
        return judged(self.difference, self.combined, self.unit)


def judged(difference: float, combined: float, unit: float) -> str:
    """Return "yes", "within two" or no; nothing if the difference is not known."""
    size = max(abs(difference) - unit, 0.0)
    if np.isnan(size) or np.isnan(combined):
        return ""
    if size <= combined:
        return "yes"
    return "within two" if size <= 2 * combined else BEYOND


def rows(results: Results, table: Table, printed: Printed) -> Iterator[Row]:
    """Yield the rows of a table that have a number, ours or printed."""
    for data in table.data:
        for method in table.methods:
            cells = results.of(table, data, method)
            keys = list(table.keys)
            keys += [
                k for c in cells[:1] for k in c if any(_part(k, t) for t in table.keys)
            ]
            for key in dict.fromkeys(keys):
                values = [c[key] for c in cells if c.get(key) is not None]
                at = printed.get((table.name, data, method, key), (np.nan, np.nan))
                if values or not np.isnan(at[0]):
                    mean, error = summary(values)
                    unit = last_digit(printed, table.name, key)
                    yield Row(data, method, key, len(values), mean, error, *at, unit)


def _part(key: str, of: str) -> bool:
    return key.startswith(f"{of} ")


def last_digit(printed: Printed, table: str, key: str) -> float:
    """Return one of the last digit that a table prints; digits count, zeros do not."""
    values = [v for (t, _, _, k), (v, _) in printed.items() if (t, k) == (table, key)]
    places = [len(f"{v:.6f}".rstrip("0").partition(".")[2]) for v in values]
    return 10.0 ** -max(places) if places else 0.0


@dataclass(frozen=True)
class Compared:
    """One row beside its printed number: where it is, by how much and what of it."""

    table: str
    data: str
    method: str
    key: str
    difference: str
    verdict: str

    @property
    def kind(self) -> str:
        """What is measured: "accuracy" for "accuracy 3"."""
        return self.key.rstrip("0123456789 ")


def compared(results: Results) -> list[Compared]:
    """Return the rows of all tables that have a printed number, times left out."""
    folder = published_folder()
    printed = results.protocol.printed(folder) if folder else {}
    return [
        Compared(
            table.name,
            row.data,
            row.method,
            row.key,
            f"{row.difference:+.3g}",
            row.verdict,
        )
        for table in results.tables
        if table.name.isdigit() and not set(table.keys) <= set(TIMES)
        for row in rows(results, table, printed)
        if row.verdict
    ]


def agreement(found: list[Compared]) -> list[str]:
    """Say how many rows agree, for each thing that is measured."""
    lines = []
    for kind in dict.fromkeys(row.kind for row in found):
        part = [row for row in found if row.kind == kind]
        one, two = within(part)
        lines.append(
            f"{kind}: {one} of {len(part)} rows are within one combined standard error "
            f"of the printed number, {two} within two ({two / len(part):.0%})"
        )
    return lines


def within(found: list[Compared]) -> tuple[int, int]:
    """Return how many rows are within one and two combined standard errors."""
    one = sum(row.verdict == "yes" for row in found)
    return one, sum(row.verdict != BEYOND for row in found)


def reasons(found: list[Compared], protocol: Protocol) -> list[str]:
    """Count the rows beyond two errors by how the explanation of them begins."""
    counts: dict[str, list[Compared]] = {}
    for row in found:
        if row.verdict == BEYOND:
            at = (row.table, row.data, row.method, row.key)
            fitting = [e.text for e in protocol.explanations if e.fits(*at)]
            said = fitting[0] if fitting else UNKNOWN
            counts.setdefault(said.partition(". ")[0].rstrip("."), []).append(row)
    if not counts:
        return []
    text = [
        "",
        "Rows beyond two combined errors, by how the explanation below their table "
        "begins:",
        "",
    ]
    for said, part in sorted(counts.items(), key=lambda item: -len(item[1])):
        sets = ", ".join(dict.fromkeys(row.data for row in part))
        text.append(f"- {len(part)} on {sets}: {said}.")
    return text


def agreements(found: list[Compared], protocol: Protocol) -> list[str]:
    """Show how many rows of each table agree, and which are beyond two errors."""
    if not found:
        return []
    text = ["", f"## {AGREEMENT}", "", *(f"- {line}." for line in agreement(found))]
    text += [
        "",
        "Rows of one table share their splits, so the comparisons are not independent.",
        "",
        "| table | data | value | rows | within one | within two | beyond two |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for at in dict.fromkeys((row.table, row.data, row.kind) for row in found):
        part = [row for row in found if (row.table, row.data, row.kind) == at]
        one, two = within(part)
        beyond = [
            f"{row.method}{row.key.removeprefix(row.kind)} ({row.difference})"
            for row in part
            if row.verdict == BEYOND
        ]
        text.append(
            f"| {' | '.join(at)} | {len(part)} | {one} | {two} | {', '.join(beyond)} |"
        )
    return text + reasons(found, protocol)


def summary(values: list[float]) -> tuple[float, float]:
    """Return mean and standard error, NaN where there are too few values."""
    if not values:
        return np.nan, np.nan
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, np.nan
    return mean, float(np.std(values, ddof=1) / np.sqrt(len(values)))


def write(results: Results, out: Path, seconds: float) -> Path:
    """Write the page and its figures into the paper's folder; return the page's path.

    The page is README.md, or quick.md for a quick run.
    """
    folder = out / results.protocol.name
    folder.mkdir(parents=True, exist_ok=True)
    figures = results.protocol.figures
    names = figures(results, folder) if figures and results.cells else []
    path = folder / ("quick.md" if results.settings.quick else "README.md")
    with whole_file(path) as temporary:
        text = "\n".join(lines(results, names, seconds)) + "\n"
        temporary.write_text(text, encoding="utf-8")
    return path


def content(results: Results) -> dict[str, Any]:
    """Return the numbers of the page, ready for JSON; what is not known is None."""
    protocol, folder = results.protocol, published_folder()
    printed = protocol.printed(folder) if folder else {}
    names = ("difference", "combined", "verdict")

    def plain(row: Row) -> dict[str, Any]:
        values = asdict(row) | {name: getattr(row, name) for name in names}
        return {k: None if v == "" or v != v else v for k, v in values.items()}

    return {
        "paper": protocol.name,
        "title": protocol.title,
        "commits": sorted({v["commit"] for v in results.cells.values()}),
        "seed": results.settings.seed,
        "choices": dict(protocol.choices),
        "missing": dict(results.missing),
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "absent": table.absent or None,
                "rows": [plain(row) for row in rows(results, table, printed)],
            }
            for table in results.tables
        ],
    }


def save(figure: Any, path: Path) -> str:
    """Write a figure as a whole file, and return its name for the page."""
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return path.name


def lines(results: Results, figures: list[str], seconds: float) -> list[str]:
    """Return the page in Markdown."""
    protocol = results.protocol
    folder = published_folder()
    printed = protocol.printed(folder) if folder else {}
    text = [f"# {protocol.title}", "", *_head(results, seconds)]
    if protocol.conclusions is not None and not results.settings.quick:
        text += conclusions(protocol.conclusions(Means(results, figures=True).mean))
    if not results.settings.quick:
        text += agreements(compared(results), protocol)
        text += evidence(protocol)
        text += protocol.beside(results) if protocol.beside else []
    if folder and not printed:
        text += ["", "This paper prints no numbers; the page contains only ours."]
    if not folder:
        text += [
            "",
            "**The printed numbers are not available**, so this page contains only "
            "ours. Set MKLEARN_PUBLISHED to the folder that contains them.",
        ]
    text += ["", "## What the paper leaves open, and what was chosen", ""]
    text += [f"- {name}: {value}." for name, value in protocol.choices.items()]
    if results.missing:
        text += ["", "## Data that are not available", ""]
        text += [f"- {name}: {reason}" for name, reason in results.missing.items()]
    for table in results.tables:
        text += section(results, table, printed)
    if protocol.remarks is not None:
        text += protocol.remarks(results)
    for name in figures:
        text += ["", f"![{name}]({name})"]
    return text


def section(results: Results, table: Table, printed: Printed) -> list[str]:
    """Return the section of a table, or of a figure."""
    text = ["", f"## {table.heading}: {table.title}", ""]
    text += [f"Not run: {table.absent}", ""] if table.absent else []
    if table.name.isdigit():
        found = list(rows(results, table, printed))
        notes = explained(results, table, found)
        text += _table(results, table, found, notes)
        text += _notes(notes)
    else:
        text += _grid(results, table)
    return text + _stopped(results, table)


def evidence(protocol: Protocol) -> list[str]:
    """Return what the printed numbers say of themselves."""
    folder = published_folder()
    return protocol.evidence(folder) if protocol.evidence and folder else []


def _head(results: Results, seconds: float) -> list[str]:
    settings = results.settings
    commits = sorted({v["commit"] for v in results.cells.values()}) or [commit()]
    command = f"python -m reproduction {results.protocol.name} --seed {settings.seed}"
    command += f" --budget {settings.budget:g}"
    command += f" --cap {settings.cap:g}" if settings.cap else ""
    command += f" --table {settings.table}" if settings.table else ""
    command += " --quick" * settings.quick
    if settings.repetitions:
        command += f" --repetitions {settings.repetitions}"
    spent = sum(v["spent"] for v in results.cells.values())
    asked = sum(
        len(table.cells(results.protocol.name, settings.repetitions))
        for table in results.tables
    )
    unfinished = [
        "",
        f"**{asked - len(results.cells)} of {asked} cells were not run**, for lack of "
        "time; rows show their number of repetitions, and those without a number of "
        f"ours have none. {ONE_RUN}",
    ]
    return [
        f"Made by `{command}`. Seed {settings.seed}; {len(results.cells)} cells, which "
        f"took {spent:.0f} seconds of computation in all; the last run took "
        f"{seconds:.0f} seconds.",
        f"mklearn {mklearn.__version__} (commit {', '.join(commits)}; + means that "
        f"files were changed since), Python {platform.python_version()}, numpy "
        f"{np.__version__}, scipy {scipy.__version__}, scikit-learn "
        f"{sklearn.__version__}.",
        *(unfinished if len(results.cells) < asked else ()),
        "",
        COLUMNS,
    ]


def explained(results: Results, table: Table, found: list[Row]) -> dict[str, list[Row]]:
    """Return the rows that differ by more than the combined error, by what is said.

    Rows within two of these errors say nothing of their own if nothing is said of them.
    """
    notes: dict[str, list[Row]] = {}
    if set(table.keys) <= set(TIMES):  # other computers
        return notes
    for row in found:
        if not row.differs:
            continue
        at = (table.name, row.data, row.method, row.key)
        fitting = [e.text for e in results.protocol.explanations if e.fits(*at)]
        said = fitting[0] if fitting else unexplained(row.verdict, row.repetitions)
        notes.setdefault(said, []).append(row)
    return notes


def unexplained(verdict: str, repetitions: int) -> str:
    """Return what is said of a row that differs and that no explanation is for."""
    if verdict != BEYOND:
        return CHANCE
    return HARDLY if repetitions < FEW else UNKNOWN


def _notes(notes: dict[str, list[Row]]) -> list[str]:
    """Show what is said of rows that differ, by the letters in the table."""
    if not notes:
        return []
    text = ["", DIFFERING, ""]
    return text + [
        f"- ({letter}) {note}" for letter, note in zip(_letters(), notes, strict=False)
    ]


def _letters() -> Iterator[str]:
    for size in (1, 2):
        yield from map("".join, product(ascii_lowercase, repeat=size))


def _table(
    results: Results, table: Table, found: list[Row], notes: dict[str, list[Row]]
) -> list[str]:
    if not found:
        return [] if table.absent else ["No cell is finished."]
    timed = set(table.keys) <= set(TIMES)
    title = "| data | method | value | repetitions | ours | printed | "
    title += (
        "ratio |" if timed else "difference | combined | within | why | largest gap |"
    )
    text = [title, "|---|---|---|" + "---:|" * (title.count("|") - 4)]
    why = {
        row: f"({letter})"
        for letter, said in zip(_letters(), notes.values(), strict=False)
        for row in said
    }
    for row in found:
        parts = [row.data, row.method, row.key, str(row.repetitions)]
        parts += [number(row.mean, row.error), number(row.printed, row.printed_error)]
        if timed:
            parts.append(_plain(row.mean / row.printed, "{:.3g}"))
        else:
            gaps = [
                v["gap"]
                for v in results.of(table, row.data, row.method)
                if v.get("gap") is not None
            ]
            parts += [
                _plain(row.difference, "{:+.3g}"),
                "" if np.isnan(row.printed) else _plain(row.combined, "{:.3g}"),
                row.verdict,
                why.get(row, ""),
                f"{max(gaps):.0e}" if gaps else "",
            ]
        text.append("| " + " | ".join(parts) + " |")
    return text


def _grid(results: Results, table: Table) -> list[str]:
    """Return the numbers of a figure, methods by data: the paper prints none."""
    text: list[str] = []
    for key in table.keys:
        body = []
        for method in table.methods:
            row = [
                number(*summary([c[key] for c in cells if c.get(key) is not None]))
                for cells in (results.of(table, data, method) for data in table.data)
            ]
            if any(row):
                body.append(f"| {method} | " + " | ".join(row) + " |")
        if body:
            title = f"| {key} | " + " | ".join(table.data) + " |"
            text += [title, "|---|" + "---:|" * len(table.data), *body, ""]
    if not text:
        return [] if table.absent else ["No cell is finished."]
    every = [
        cell
        for data in table.data
        for method in table.methods
        for cell in results.of(table, data, method)
    ]
    gaps = [cell["gap"] for cell in every if cell.get("gap") is not None]
    repetitions = table.wanted(results.settings.repetitions)
    line = f"{repetitions} repetition{'s' * (repetitions > 1)}"
    line += f"; the largest relative duality gap is {max(gaps):.0e}" if gaps else ""
    return [*text, line + "."]


def _stopped(results: Results, table: Table) -> list[str]:
    """Say what slow methods did not do."""
    if table.absent:
        return []
    text = []
    for data in table.data:
        for method in table.methods:
            cells = results.of(table, data, method)
            wanted = table.wanted(results.settings.repetitions)
            reasons = {v["stopped"] for v in cells if v.get("stopped")}
            done = sum(not v.get("stopped") for v in cells)
            if data in results.missing or (done >= wanted and not reasons):
                continue
            why = f" ({'; '.join(sorted(reasons))})" if reasons else ""
            text.append(f"- {method} on {data}: {done} of {wanted} repetitions{why}.")
    return ["", "Fewer repetitions than asked for:", "", *text] if text else []


def number(mean: float, error: float) -> str:
    """Return a mean with its standard error, where it has one."""
    if np.isnan(mean):
        return ""
    digits = 2 if abs(mean) >= 2 else 4  # percent, or shares and short times
    return f"{mean:.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def _plain(value: float, form: str) -> str:
    return "" if np.isnan(value) else form.format(value)


def outside(results: Results) -> list[str]:
    """Return one line for each band that a number left or has no number for."""
    return [line for band in results.protocol.bands if (line := _leaves(results, band))]


def _leaves(results: Results, band: Band) -> str | None:
    asked = any(
        band.data in table.data and band.method in table.methods
        for table in results.tables
    )
    if not asked or band.data in results.missing:
        return None
    if band.seed is not None and band.seed != results.settings.seed:
        return None
    cells: list[Values] = [
        values
        for cell, values in results.cells.items()
        if (cell.data, cell.method) == (band.data, band.method)
    ]
    mean, _ = summary([v[band.key] for v in cells if v.get(band.key) is not None])
    if band.low <= mean <= band.high:
        return None
    return (
        f"{band.method} on {band.data}: {band.key} is {mean:.4g}, and must be from "
        f"{band.low:g} to {band.high:g}: {band.reason}"
    )
