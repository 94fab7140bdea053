"""A page that is there, with what it says of its numbers written anew.

Cells of long runs are not kept with the project. What a page concludes from its tables,
which rows agree, what the printed numbers say of themselves and why rows differ needs
the tables alone; everything else of the page is left as it is. Tables that the page has
not, and of which there are cells, are added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mklearn.report import whole_file
from reproduction.cells import Protocol, Results, Settings, results
from reproduction.claims import CONCLUSIONS, conclusions
from reproduction.page import (
    AGREEMENT,
    Compared,
    agreements,
    evidence,
    published_folder,
    section,
)

Values = dict[tuple[str, str, str], float]

OPEN = "## What the paper leaves open"
_HEADING = re.compile(r"## (Table|Figure) (\w+)")
_NOTE = re.compile(r"- \((\w+)\) ")


def renew(protocol: Protocol, out: Path, settings: Settings) -> Path:
    """Write the page of a paper anew from its own tables, and return its path."""
    path = out / protocol.name / "README.md"
    found = results(protocol, out, settings)
    text = renewed(found, path.read_text(encoding="utf-8"))
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def renewed(found: Results, text: str) -> str:
    """Return the page with its conclusions, comparison, evidence and notes anew."""
    protocol = found.protocol
    lines = add_tables(found, text.rstrip("\n").split("\n"))
    added: list[str] = []
    if protocol.conclusions is not None:
        values = means(lines)

        def mean(data: str, method: str, key: str) -> float:
            return values.get((data, method, key), np.nan)

        added += conclusions(protocol.conclusions(mean))
    added += agreements(list(compared(lines)))
    added += evidence(protocol)
    titles = {line for line in added if line.startswith("## ")}
    titles |= {f"## {CONCLUSIONS}", f"## {AGREEMENT}"}
    lines = notes(protocol, without(lines, titles))
    at = next(i for i, line in enumerate(lines) if line.startswith(OPEN)) - 1
    return "\n".join([*lines[:at], *added, *lines[at:]]) + "\n"


def add_tables(found: Results, lines: list[str]) -> list[str]:
    """Return the lines with the tables that have cells, and are new, after the last."""
    folder = published_folder()
    printed = found.protocol.printed(folder) if folder else {}
    for table in found.tables:
        of = [v for cell, v in found.cells.items() if cell.table == table.name]
        title = f"## {table.heading}: {table.title}"
        if not of:
            continue
        commits = ", ".join(sorted({values["commit"] for values in of}))
        made = section(found, table, printed)
        made += ["", f"Added later: {len(of)} cells, commit {commits}."]
        lines = without(lines, {title})
        tables = [i for i, line in enumerate(lines) if _HEADING.match(line)]
        after = (i for i, line in enumerate(lines) if line.startswith("## "))
        at = next((i for i in after if i > tables[-1]), len(lines) + 1)
        lines = [*lines[: at - 1], *made, *lines[at - 1 :]]
    return lines


def cells_of(line: str) -> list[str]:
    """Return the cells of a row of a table."""
    return [part.strip() for part in line.strip().strip("|").split("|")]


def rows(lines: list[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the number of the table or figure, the heading and the row."""
    name, head = "", []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("## "):
            found = _HEADING.match(line)
            kind = "figure" if found and found[1] == "Figure" else ""
            name, head = (kind + found[2] if found else ""), []
        if line.startswith("|---"):
            head = cells_of(before)
        elif not line.startswith("|"):
            head = []
        elif head and name:
            yield name, head, cells_of(line)


def means(lines: list[str]) -> Values:
    """Return the means that the tables and the grids of figures show."""
    found: Values = {}
    for name, head, row in rows(lines):
        if "ours" in head:
            shown = row[head.index("ours")]
            if shown:
                found[row[0], row[1], row[2]] = number(shown)
        elif name.startswith("figure"):
            for data, shown in zip(head[1:], row[1:], strict=False):
                if shown:
                    found[data, row[0], head[0]] = number(shown)
    return found


def number(shown: str) -> float:
    """Return the mean of what is shown with its error."""
    return float(shown.split("±")[0])


def compared(lines: list[str]) -> Iterator[Compared]:
    """Yield the rows that have a printed number beside them."""
    for name, head, row in rows(lines):
        if "within" in head and row[head.index("within")]:
            shown = [row[head.index(key)] for key in ("difference", "within")]
            yield Compared(name, *row[:3], *shown)


def without(lines: list[str], titles: set[str]) -> list[str]:
    """Return the lines but for the sections of these titles."""
    kept, left_out = [], False
    for line in lines:
        if line.startswith("## "):
            left_out = line in titles
        if not left_out:
            kept.append(line)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def notes(protocol: Protocol, lines: list[str]) -> list[str]:
    """Return the lines with what is said today of rows that differ."""
    said: dict[tuple[str, str], str] = {}
    for name, head, row in rows(lines):
        if "why" in head and (letter := row[head.index("why")]):
            at = (name, *row[:3])
            fitting = [e.text for e in protocol.explanations if e.fits(*at)]
            if fitting:
                said.setdefault((name, letter), fitting[0])
    found, name = [], ""
    for line in lines:
        if line.startswith("## "):
            heading = _HEADING.match(line)
            name = heading[2] if heading else ""
        note = _NOTE.match(line)
        key = (name, f"({note[1]})") if note else ("", "")
        found.append(f"- {key[1]} {said[key]}" if key in said else line)
    return found
