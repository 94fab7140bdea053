"""The five figures of the page of results, read from the pages that they come from.

``results/index.md`` names its place by the line ``<!-- summary -->``, which becomes a
table when the documentation is built. Nothing is typed by hand, so that the summary
cannot contradict the pages.
"""

import re
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
MARK = "<!-- summary -->"


def tables(name, folder=RESULTS):
    """Return the tables of a page, each as a list of dicts from heading to cell."""
    found, heads, rows = [], None, []
    lines = (folder / f"{name}.md").read_text(encoding="utf-8").splitlines()
    for line in [*lines, ""]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|"):
            if rows:
                found.append(rows)
            heads, rows = None, []
        elif heads is None:
            heads = cells
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            rows.append(dict(zip(heads, cells, strict=False)))
    return found


def row(name, column, value, *needed, folder=RESULTS):
    """Return the first row of a page with a value in a column, and needed columns."""
    for table in tables(name, folder):
        for one in table:
            if one.get(column) == value and all(one.get(head) for head in needed):
                return one
    raise LookupError(f"{name}.md has no row with {column} = {value} and {needed}")


def accuracy():
    """Return what learned weights add over the plain sum and over one SVM."""
    plain = row("field", "against", "unweighted sum", "mean, points", "several views")
    svm = row("field", "against", "SVC + grid", "mean, points", "several views")
    n = sum(int(plain[head]) for head in ("better", "equal", "worse"))
    return (
        f"{plain['mean, points']} points",
        "accuracy of learned weights minus that of the plain sum of the kernels, over "
        f"{n} data sets ({plain['several views']} where samples have several views); "
        f"against one tuned SVM on all columns {svm['mean, points']} "
        f"({svm['several views']})",
        "[data sets](field.md)",
    )


def cost():
    """Return the time of a search with learned weights beside that of an SVM."""
    found = row("field", "method", "MKL p=2", "time / SVC + grid")
    return (
        f"{found['time / SVC + grid']} times",
        "the time of a search for C with p = 2, relative to the grid search of one SVM "
        "(median over the same data sets)",
        "[data sets](field.md)",
    )


def certificates():
    """Return how many certificates were found wrong when computed again."""
    found = row("certificates", "family", "all", "certificates", "understated")
    return (
        f"{found['understated']} of {found['certificates']}",
        "certificates that claim more than other code, in extended precision, can "
        "confirm, over random fits of all kinds and scales",
        "[certificates](certificates.md)",
    )


def calibration():
    """Return how often tests reject a true null hypothesis at 5 %."""
    levels = [
        float(one["p <= 0.05"])
        for table in tables("calibration")
        for one in table
        if one.get("method") == "score"
        and one.get("p <= 0.05")
        and float(one["p-values"]) >= 1000
    ]
    if not levels:
        raise LookupError("calibration.md has no score tests with 1000 p-values")
    return (
        f"{100 * min(levels):.1f} to {100 * max(levels):.1f} %",
        "of score tests with a p-value below 0.05 where the null hypothesis is true "
        f"({len(levels)} settings)",
        "[calibration](calibration.md)",
    )


def rows_per_fit():
    """Return what a fit of a million rows takes."""
    found = row("large-growth", "n", "1000000", "cpu_s", "peak_mb")
    minutes, memory = float(found["cpu_s"]) / 60, float(found["peak_mb"]) / 1000
    return (
        f"{minutes:.0f} minutes",
        f"of CPU time to learn from a million rows with {found['M']} kernels, in "
        f"{memory:.1f} GB of memory",
        "[many rows](large-growth.md)",
    )


def summary():
    """Return the table in Markdown."""
    lines = ["| figure | what it is | page |", "|---:|---|---|"]
    for one in (accuracy, cost, certificates, calibration, rows_per_fit):
        number, meaning, page = one()
        lines.append(f"| **{number}** | {meaning} | {page} |")
    return "\n".join(lines)


def insert(app, docname, source):
    """Put the table into its place."""
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, summary())


def setup(app):
    """Connect to Sphinx."""
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
