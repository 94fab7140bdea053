"""A page that is there, with what it says of its numbers written anew.

Cells of long runs are not kept with the project. What a page concludes from its tables,
which rows agree, what the printed numbers say of themselves and why rows differ needs
the tables alone; everything else of the page is left as it is. Tables that the page has
not, and of which there are cells, are added, and rows of which there are more cells
than the page has repetitions are replaced. Figures of which there are cells are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase

import numpy as np

from mklearn.report import whole_file
from reproduction.cells import Protocol, Results, Settings, results
from reproduction.claims import CONCLUSIONS, conclusions
from reproduction.page import (
    AGREEMENT,
    CHANCE,
    COLUMNS,
    DIFFERING,
    HARDLY,
    ONE_RUN,
    UNKNOWN,
    Compared,
    agreements,
    evidence,
    judged,
    last_digit,
    published_folder,
    section,
    unexplained,
)

Values = dict[tuple[str, str, str], float]

LATER = "Added later: rows of"
SEVERAL_RUNS = "Rows that were added later are named below their table."
_HEADING = re.compile(r"## (Table|Figure) (\w+)")
_WHY = re.compile(r"\((\w+)\)")
_NOTE = re.compile(r"- \((\w+)\) (.*)")
_LEFT = re.compile(r"- (\S+) on (.+): (\d+) of (\d+) repetitions")
_FIGURE = re.compile(r"!\[(\S+)\]\(\1\)")
_ABSENT = re.compile(r"^\*\*\d+ of \d+(?= cells were not run)")
_REPETITIONS = re.compile(r"--repetitions (\d+)")


def renew(protocol: Protocol, out: Path, settings: Settings) -> Path:
    """Write the page of a paper anew from its own tables, and return its path."""
    path = out / protocol.name / "README.md"
    found = results(protocol, out, settings)
    text = renewed(found, path.read_text(encoding="utf-8"))
    text = with_figures(text, drawn(found, path.parent))
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def renewed(found: Results, text: str) -> str:
    """Return the page with its conclusions, comparison, evidence and notes anew."""
    protocol = found.protocol
    lines = add_tables(found, text.rstrip("\n").split("\n"))
    lines = verdicts(protocol, missing(protocol, lines))
    added: list[str] = []
    if protocol.conclusions is not None:
        values = means(lines)

        def mean(data: str, method: str, key: str) -> float:
            return values.get((data, method, key), np.nan)

        added += conclusions(protocol.conclusions(mean))
    added += agreements(list(compared(lines)), protocol)
    added += evidence(protocol)
    added += protocol.beside(found) if protocol.beside else []
    titles = {line for line in added if line.startswith("## ")}
    titles |= {f"## {CONCLUSIONS}", f"## {AGREEMENT}"}
    lines = notes(protocol, without(lines, titles))
    # what is about cells that are not here any more stays, after what is written anew
    at = next(i for i, line in enumerate(lines) if line.startswith("## ")) - 1
    return "\n".join([*lines[:at], *added, *lines[at:]]) + "\n"


def drawn(found: Results, folder: Path) -> list[str]:
    """Draw the figures of the paper of which there are cells, and return their names.

    Figures that are drawn from tables stay: their cells may be those of a few rows.
    """
    own = tuple(
        table
        for table in found.tables
        if table.name.startswith("figure")
        and any(cell.table == table.name for cell in found.cells)
    )
    draw = found.protocol.figures
    return draw(replace(found, tables=own), folder) if draw and own else []


def with_figures(text: str, names: list[str]) -> str:
    """Return the page with these figures at its end, unless it has them."""
    there = _FIGURE.findall(text)
    return text + "".join(f"\n![{n}]({n})\n" for n in names if n not in there)


def verdicts(protocol: Protocol, lines: list[str]) -> list[str]:
    """Return the lines, with what the page says of each difference judged anew."""
    folder = published_folder()
    printed = protocol.printed(folder) if folder else {}
    found = {}
    for name, head, row in rows(lines):
        if "within" in head and row[head.index("within")]:
            apart, combined = (
                float(row[head.index(key)]) for key in ("difference", "combined")
            )
            verdict = judged(apart, combined, last_digit(printed, name, row[2]))
            better = list(row)
            better[head.index("within")] = verdict
            if verdict == "yes":
                better[head.index("why")] = ""
            found[tuple(row)] = better
    lines = [COLUMNS if line.startswith(COLUMNS[:25]) else line for line in lines]
    return [
        "| " + " | ".join(found[at]) + " |"
        if line.startswith("|") and (at := tuple(cells_of(line))) in found
        else line
        for line in lines
    ]


def add_tables(found: Results, lines: list[str]) -> list[str]:
    """Return the lines with what cells add: rows that have more of them, and tables."""
    folder = published_folder()
    printed = found.protocol.printed(folder) if folder else {}
    for table in found.tables:
        names = table.of or (table.name,)
        of = [v for cell, v in found.cells.items() if cell.table in names]
        title = f"## {table.heading}: {table.title}"
        if not of:
            continue
        made = section(found, table, printed)
        commits = ", ".join(sorted({values["commit"] for values in of}))
        if title in lines and table.name.isdigit():
            lines = merged(lines, made, title, commits)
            continue
        made += ["", f"Added later: {len(of)} cells, commit {commits}."]
        # titles say how many repetitions there are, and may have changed
        same = f"## {table.heading}: " if table.heading.startswith("Table") else title
        lines = without(lines, {line for line in lines if line.startswith(same)})
        tables = [i for i, line in enumerate(lines) if _HEADING.match(line)]
        after = (i for i, line in enumerate(lines) if line.startswith("## "))
        at = next((i for i in after if i > tables[-1]), len(lines) + 1)
        lines = [*lines[: at - 1], *made, *lines[at - 1 :]]
    return lines


def merged(lines: list[str], made: list[str], title: str, commits: str) -> list[str]:
    """Return the lines, with rows of a table made anew where they have more cells."""
    start = lines.index(title)
    end = next(
        (i for i in range(start + 1, len(lines)) if lines[i].startswith("## ")),
        len(lines),
    )
    old, new = lines[start:end], made[made.index(title) :]
    for part in (old, new):
        while not part[-1]:
            part.pop()
    better = {tuple(row[:3]): row for _, _, row in rows(new)}
    for _, head, row in rows(old):
        count = head.index("repetitions")
        at = tuple(row[:3])
        if at in better and int(better[at][count]) <= int(row[count]):
            del better[at]
    if not better:
        return lines
    letters = {note[2]: note[1] for line in old if (note := _NOTE.match(line))}
    said = {note[1]: note[2] for line in new if (note := _NOTE.match(line))}
    kept = []
    for line in old:
        row = better.get(tuple(cells_of(line)[:3])) if line.startswith("|") else None
        left = _LEFT.match(line)
        if row is not None:
            line = "| " + " | ".join(lettered(row, said, letters)) + " |"
        elif left and any(at[:2] == (left[2], left[1]) for at in better):
            start_of = f"- {left[1]} on {left[2]}: "
            line = next((one for one in new if one.startswith(start_of)), "")
            if not line:
                continue
        kept.append(line)
    methods = dict.fromkeys(at[1] for at in better)
    where = next(i for i, line in enumerate(kept) if line.startswith("|---"))
    while where < len(kept) and kept[where].startswith("|"):
        where += 1
    noted = [line for line in kept if _NOTE.match(line)]
    fresh = [f"- ({one}) {text}" for text, one in letters.items()]
    if len(fresh) > len(noted):
        if noted:
            at = kept.index(noted[-1]) + 1
            kept[at:at] = fresh[len(noted) :]
        else:
            kept[where:where] = ["", DIFFERING, "", *fresh]
    added = (
        f"{LATER} {', '.join(methods)}, from cells of commit {commits}, on another day "
        "than the others."
    )
    kept = [line for line in kept if not line.startswith(LATER)]
    while not kept[-1]:
        kept.pop()
    return [*lines[:start], *kept, "", added, "", *lines[end:]]


def lettered(
    row: list[str], said: dict[str, str], letters: dict[str, str]
) -> list[str]:
    """Return a row with the letter that its note has on the page, or gets there."""
    why = [i for i, cell in enumerate(row) if _WHY.fullmatch(cell)]
    for i in why:
        text = said[row[i][1:-1]]
        if text not in letters:
            letters[text] = ascii_lowercase[len(letters)]
        row[i] = f"({letters[text]})"
    return row


def missing(protocol: Protocol, lines: list[str]) -> list[str]:
    """Return the lines with the number of cells that are not there, as it is now."""
    own = {
        f"{table.heading}: {table.title}" for table in protocol.tables if not table.of
    }
    left, name = 0, ""
    for line in lines:
        if line.startswith("## "):
            name = line.removeprefix("## ")
        if name in own and (found := _LEFT.match(line)):
            left += int(found[4]) - int(found[3])
    if any(line.startswith(LATER) for line in lines):
        lines = [line.replace(ONE_RUN, SEVERAL_RUNS) for line in lines]
    given = next((r for line in lines[:9] if (r := _REPETITIONS.search(line))), None)
    most = int(given[1]) if given else None
    asked = sum(len(t.cells(protocol.name, most)) for t in protocol.tables)
    return [_ABSENT.sub(f"**{left} of {asked}", line) for line in lines]


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
        elif not name.isdigit():
            for data, shown in zip(head[1:], row[1:], strict=False):
                if shown:  # what was tried beside a table is not the table
                    found.setdefault((data, row[0], head[0]), number(shown))
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
    found: list[str] = []
    starts = [i for i, line in enumerate(lines) if line.startswith("## ")]
    ends = [*starts, len(lines)]
    found += lines[: ends[0]]
    for start, end in pairwise(ends):
        found += noted(protocol, lines[start:end])
    return found


def noted(protocol: Protocol, lines: list[str]) -> list[str]:
    """Return the lines of a section with its notes anew, and the letters of these."""
    before = {note[1]: note[2] for line in lines if (note := _NOTE.match(line))}
    said: dict[tuple[str, ...], str] = {}
    for name, head, row in rows(lines):
        if "why" in head and (letter := row[head.index("why")]):
            at = (name, *row[:3])
            fitting = [e.text for e in protocol.explanations if e.fits(*at)]
            text = before[letter.strip("()")]
            if text in (CHANCE, HARDLY, UNKNOWN):
                count = int(row[head.index("repetitions")])
                text = unexplained(row[head.index("within")], count)
            said[tuple(row)] = fitting[0] if fitting else text
    letters = dict(zip(dict.fromkeys(said.values()), ascii_lowercase, strict=False))
    fresh = [f"- ({letter}) {text}" for text, letter in letters.items()]
    found = []
    for line in lines:
        row = cells_of(line) if line.startswith("|") else []
        if text := said.get(tuple(row)):
            at = next(i for i, cell in enumerate(row) if _WHY.fullmatch(cell))
            row[at] = f"({letters[text]})"
            line = "| " + " | ".join(row) + " |"
        if _NOTE.match(line):
            found += fresh  # all of them in place of the first
            fresh = []
        else:
            found.append(line)
    return found
