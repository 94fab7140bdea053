"""Elements of a page: tables, figures, paragraphs, and the page itself.

A page contains no external address, and its policy forbids all requests and all scripts
except the one below, which sorts tables; without it the page shows the same, unsorted.
A page is also well-formed XML, so that a parser can check it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --line: #c9c9c9;
  --soft: #595959; --bar: #0072B2; --card: #f5f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --paper: #16181c;
  --line: #4a4d53; --soft: #b4b4b4; --bar: #56B4E9; --card: #202329; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, sans-serif;
  overflow-wrap: break-word; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1rem; padding: 0;
  list-style: none; }
a { color: var(--bar); }
.scroll { overflow-x: auto; margin-bottom: 1.2rem; }
table { border-collapse: collapse; min-width: min(100%, 26rem); }
table.full { width: 100%; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; }
caption span { display: inline-block; max-width: calc(100vw - 2rem); }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
th[scope=row] { min-width: 8rem; max-width: 22rem; overflow-wrap: break-word; }
td.share { background: rgb(0 114 178 / var(--part)); }
.bar { display: block; height: .7rem; min-width: 1px; background: var(--bar); }
td.wide { min-width: 6rem; width: 30%; }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { color: var(--soft); }
figure svg { max-width: 100%; height: auto; }
figure svg text { fill: currentColor; }
figure.dots svg { width: 40rem; font: 13px system-ui, sans-serif; }
figure.dots circle { fill: var(--bar); fill-opacity: .65; }
figure.dots .mean { fill: currentColor; } figure.dots .rule { stroke: var(--line); }
pre { background: var(--card); padding: .8rem; overflow-x: auto; }
footer { color: var(--soft); }
.words { background: var(--card); border-left: 4px solid var(--bar);
  padding: .6rem 1rem; }
th button { all: unset; cursor: pointer; }
th button::after { content: " \\2195"; color: var(--soft); font-weight: normal; }
th[aria-sort=ascending] button::after { content: " \\2191"; color: inherit; }
th[aria-sort=descending] button::after { content: " \\2193"; color: inherit; }
a:focus-visible, button:focus-visible, .scroll:focus-visible, figure:focus-visible {
  outline: 3px solid var(--bar); outline-offset: 2px; }
li.warning { font-weight: 600; }
blockquote { margin: 0; }
@media print { :root { color-scheme: light; --ink: #000000; --paper: #ffffff;
  --soft: #444444; --line: #999999; --bar: #0072B2; --card: #ffffff; }
  body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; }
  th button::after { content: ""; } .scroll, figure { overflow: visible; }
  figure, tr, .words { break-inside: avoid; } h2 { break-after: avoid; }
  pre { white-space: pre-wrap; } }
@media (max-width: 40rem) { th, td { padding: .3rem .4rem; font-size: .92rem; }
  figure.wide svg { max-width: none; width: 40rem; } }
"""
_FORBIDDEN = r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
# sorts a table by a column; no character in it needs escaping, in HTML or in XML
SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, j) => row.cells[j].dataset.value ?? row.cells[j].textContent;
  const number = text => parseFloat(text.replace(/^[^-+.0-9]+/, ""));
  heads.forEach((head, j) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      const words = rows.every(row => isNaN(number(key(row, j))));
      const finite = value => isNaN(value) ? -1e300 : value;
      const size = row => finite(number(key(row, j)));
      rows.sort((a, b) => (up ? 1 : -1) * (words
        ? key(a, j).localeCompare(key(b, j)) : size(a) - size(b)));
      table.tBodies[0].append(...rows);
    });
  });
}
"""
_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    f"script-src 'sha256-{_HASH}'"
)


def text(value: Any) -> str:
    """Return a value as text that can be used anywhere in a page."""
    return escape(clean(value))


def clean(value: Any) -> str:
    """Return a value as text without characters that HTML or XML forbids."""
    shown = str(value).encode("utf-8", "replace").decode("utf-8")
    return re.sub(_FORBIDDEN, "\ufffd", shown)


def page(title: str, sections: Sequence[tuple[str, str]], foot: str = "") -> str:
    """Return a complete page: title, contents, and sections of heading and HTML."""
    links = "".join(
        f'<li><a href="#part{i}">{text(head)}</a></li>'
        for i, (head, _) in enumerate(sections)
    )
    body = "\n".join(
        f'<section id="part{i}" aria-labelledby="head{i}">'
        f'<h2 id="head{i}">{text(head)}</h2>\n{content}\n</section>'
        for i, (head, content) in enumerate(sections)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>{text(title)}</h1>
<nav aria-label="Contents"><ul>{links}</ul></nav></header>
<main>
{body}
</main>
<footer><p>{text(foot)}</p></footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def paragraph(content: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{text(content)}</p>"


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; the first cell of a row is its heading, numbers are floats.

    A cell may also be a :class:`Bar`, a :class:`Share` or a :class:`Number`.
    """
    numeric = [
        bool(rows) and all(_is_number(row[j]) for row in rows)
        for j in range(len(heads))
    ]
    top = "".join(
        f'<th scope="col"{_number(n)}>{text(head)}</th>'
        for head, n in zip(heads, numeric, strict=True)
    )
    lines = []
    for first, *rest in rows:
        cells = "".join(
            _cell(value, n) for value, n in zip(rest, numeric[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{_shown(first)}</th>{cells}</tr>')
    kinds = [*(["full"] if len(heads) > 3 else []), *(["sortable"] if rows[2:] else [])]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    # scrollable parts can be focused by keyboard
    place = f' tabindex="0" role="region" aria-label="{text(caption)}"'
    return (
        f'<div class="scroll"{place}><table{kind}>{_caption(caption)}'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _caption(words: str) -> str:
    # a span, which is no wider than the window even if the table is
    return f"<caption><span>{text(words)}</span></caption>"


class Bar(float):
    """A share, shown as the length of a bar; the number is in another cell."""


class Number(str):
    """A number that is already formatted as text."""


class Share(int):
    """A count, with its share of the row shown as a shade."""

    part: float

    def __new__(cls, count: int, total: int) -> Share:
        """Return a count out of ``total``."""
        share = super().__new__(cls, count)
        share.part = count / total if total else 0.0
        return share


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Number)) and not isinstance(value, Bar)


def _number(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def _cell(value: Any, numeric: bool) -> str:
    if isinstance(value, Bar):
        width = 100.0 * min(max(float(value), 0.0), 1.0)
        bar = (
            f'<span class="bar" style="width: {width:.1f}%" aria-hidden="true"></span>'
        )
        return f'<td class="wide" data-value="{float(value):.6g}">{bar}</td>'
    if isinstance(value, Share):
        style = f"--part: {0.35 * value.part:.3f}"  # faint enough to be legible
        return f'<td class="number share" style="{style}">{int(value)}</td>'
    return f"<td{_number(numeric)}>{_shown(value)}</td>"


def _shown(value: Any) -> str:
    return text(f"{value:.4g}" if isinstance(value, float) else value)


def listing(items: Sequence[tuple[str, bool]]) -> str:
    """Return a list of sentences; those with True are emphasised."""
    quiet, warning = "<li>", '<li class="warning">'
    lines = "".join(
        f"{warning if loud else quiet}{text(said)}</li>" for said, loud in items
    )
    return f"<ul>{lines}</ul>" if lines else ""


def dots(
    rows: Sequence[tuple[str, Sequence[float]]], label: str, alt: str, unit: str = ""
) -> str:
    """Return a figure with a row of dots for each name, and a line at their mean.

    Each dot shows its value when the pointer is on it.
    """
    values = [value for _, row in rows for value in row]
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - room, high + room
    left, width, step = 210, 640, 30

    def x(value: float) -> float:
        return left + (width - left - 20) * (value - low) / (high - low)

    parts = []
    for i, (name, row) in enumerate(rows):
        y, mean = 20 + step * i, sum(row) / len(row)
        shown = name if len(name) <= 30 else f"{name[:29]}…"
        parts.append(
            f'<line class="rule" x1="{left}" x2="{width - 20}" y1="{y}" y2="{y}"/>'
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{text(shown)}</text>'
        )
        parts += [
            f'<circle cx="{x(value):.1f}" cy="{y}" r="4.5"><title>'
            f"{text(f'{name}, fold {k + 1}: {value:.4g}{unit}')}</title></circle>"
            for k, value in enumerate(row)
        ]
        parts.append(
            f'<rect class="mean" x="{x(mean) - 1.5:.1f}" y="{y - 11}" width="3" '
            f'height="22"><title>{text(f"{name}, mean: {mean:.4g}{unit}")}</title>'
            "</rect>"
        )
    foot = 20 + step * len(rows)
    ends = (low + room, high - room)
    for at in np.linspace(*ends, 5) if ends[1] > ends[0] else ends[:1]:
        parts.append(
            f'<text x="{x(at):.1f}" y="{foot}" text-anchor="middle">{at:.3g}</text>'
        )
    parts.append(
        f'<text x="{(left + width - 20) / 2}" y="{foot + 22}" text-anchor="middle">'
        f"{text(label)}</text>"
    )
    return (
        '<figure class="wide dots" tabindex="0">'
        f'<svg role="img" aria-label="{text(alt)}" '
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {foot + 32}">'
        f"{''.join(parts)}</svg><figcaption>{text(alt)}</figcaption></figure>"
    )


def new_figure(figsize: tuple[float, float]) -> Any:
    """Return a figure without a window, None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=figsize, layout="constrained")


def figure(drawn: Any, alt: str, name: str, wide: bool = False) -> str:
    """Return a matplotlib figure as inline SVG with a text alternative.

    ``name`` makes its internal names unique on the page. A ``wide`` figure scrolls on a
    phone instead of becoming too small to read.
    """
    from matplotlib import rc_context

    stream = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": "mklearn"}
    with rc_context(settings), warnings.catch_warnings():
        # letters that matplotlib's font lacks are drawn by the browser
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        # the size of the figure is chosen such that everything fits
        warnings.filterwarnings("ignore", "constrained_layout", UserWarning)
        drawn.savefig(stream, format="svg", transparent=True)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("stroke: #000000", "stroke: currentColor")
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{text(alt)}"', 1)
    # scrollable parts can be focused by keyboard
    kind = ' class="wide" tabindex="0"' if wide else ""
    return f"<figure{kind}>{svg}<figcaption>{text(alt)}</figcaption></figure>"
