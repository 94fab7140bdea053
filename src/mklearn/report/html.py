"""The report as one HTML page that needs nothing else, and what it is built of.

There is no script and no address in it, and its policy forbids any request. The page is
well-formed XML too, so that a parser can check it.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.metrics import roc_curve

from mklearn import __version__
from mklearn.fitted import proofs, widest
from mklearn.plotting import OKABE_ITO, ConvergenceDisplay, KernelAlignmentDisplay
from mklearn.report import words
from mklearn.report.facts import (
    DataSummary,
    Predictions,
    Report,
    certificate,
    comparison_facts,
    errors_of_classes,
    errors_of_values,
    model_facts,
)
from mklearn.report.files import whole_file

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
pre { background: var(--card); padding: .8rem; overflow-x: auto; }
footer { color: var(--soft); }
.words { background: var(--card); border-left: 4px solid var(--bar);
  padding: .6rem 1rem; }
@media (max-width: 40rem) { th, td { padding: .3rem .4rem; font-size: .92rem; }
  figure.wide svg { max-width: none; width: 40rem; } }
"""
_FORBIDDEN = r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


# --- the report -----------------------------------------------------------------------


def write_html(path: str | os.PathLike[str], report: Report) -> None:
    """Write a report as one HTML file that needs no other, whole or not at all.

    Figures need matplotlib; without it their numbers stand in tables alone.
    """
    html = report_html(report)
    with whole_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def report_html(report: Report) -> str:
    """Return the report as a page."""
    model, facts = report.model, model_facts(report.model)
    sections = [("Data", _data_section(report.data))]
    if report.comparison is not None:
        sections.append(("Comparison", _comparison_section(report)))
    sections.append(
        ("Kernels", _kernels_section(facts, np.ndim(model.kernel_weights_)))
    )
    if report.alignment is not None:
        sections.append(("Alignment", _alignment_section(report)))
    if facts["certificates"]:
        sections.append(("Certificate", _certificate_section(model)))
    if "evidence" in facts:
        sections.append(("Evidence", _evidence_section(facts["evidence"])))
    if report.predictions is not None:
        show = _values_section if is_regressor(model) else _classes_section
        sections.append(("Errors", show(report.predictions)))
    sections.append(("Loading the model", _loading_section(report.loading)))
    return page(report.title, sections, f"mklearn {__version__}")


def _data_section(data: DataSummary) -> str:
    filled = f"{data.missing} missing values were filled in"
    if not data.missing:
        filled = "no values were missing"
    start = f"{data.n_samples} samples; {filled}."
    parts = [paragraph(f"{start} Source: {data.source}." if data.source else start)]
    heads = ["view", "columns"]
    views: list[Sequence[Any]] = list(data.views.items())
    if data.absent:
        heads = [*heads, "samples without it"]
        views = [(name, n, data.absent.get(name, 0)) for name, n in views]
    parts.append(table("Views of the samples", heads, views))
    if data.absent:
        parts.append(paragraph(words.ABSENT))
    if data.classes:
        rows = [
            (k, n, Number(f"{100.0 * n / data.n_samples:.1f} %"))
            for k, n in data.classes.items()
        ]
        parts.append(table("Classes", ["class", "samples", "share"], rows))
    return "".join(parts)


def _comparison_section(report: Report) -> str:
    comparison, scoring = report.comparison, report.scoring
    assert comparison is not None
    rows = [
        (
            row["model"],
            Number(words.score(row, scoring)),
            Number(words.difference(row, scoring) if i else ""),
            Number(words.seconds(row)),
            words.kernels_used(row),
        )
        for i, row in enumerate(comparison_facts(comparison))
    ]
    name = words.scoring_name(scoring)
    heads = ["model", name, "difference", "seconds", "kernels used"]
    folds = comparison.scores.shape[1]
    caption = f"Mean {name} on the same {folds} folds, and the time of a fit"
    return table(caption, heads, rows) + paragraph(words.DIFFERENCES)


def _kernels_section(facts: dict[str, Any], dimensions: int) -> str:
    kernels = facts["kernels"]
    top = max([row["weight"] for row in kernels] + [1e-300])
    rows = [
        (
            row["name"],
            row["view"] or "-",
            Number(words.weight(row)),
            Bar(row["weight"] / top),
            Number(words.contribution(row)),
        )
        for row in kernels
    ]
    heads = ["kernel", "view", "weight", "relative", "contribution"]
    used = sum(row["used"] for row in kernels)
    caption = f"Kernel weights: {used} of {len(kernels)} kernels are used"
    if dimensions == 2:
        caption += "; each class has its own, and here are their means"
    return table(caption, heads, rows) + paragraph(words.CONTRIBUTIONS)


def _alignment_section(report: Report) -> str:
    names, values = report.model.kernel_names_, np.asarray(report.alignment)
    parts = paragraph(words.ALIKE)
    figsize = (2.5 + 0.45 * len(names), 1.8 + 0.4 * len(names))
    drawn = _new_figure(figsize)
    if drawn is not None:
        # a dollar would start a formula
        plain = [clean(name).replace("$", r"\$") for name in names]
        shown = KernelAlignmentDisplay(alignment=values, names=plain)
        shown.plot(drawn.subplots())
        alt = f"Heat map: centred alignment of the {len(names)} kernels, pair by pair"
        parts += figure(drawn, alt, 1, wide=len(names) > 4)
    above = np.triu(np.ones(values.shape, dtype=bool), 1)
    pairs = sorted(np.argwhere(above).tolist(), key=lambda ij: -values[tuple(ij)])[:10]
    rows = [(f"{names[i]} and {names[j]}", float(values[i, j])) for i, j in pairs]
    if rows:
        caption = "The pairs of kernels that are most alike"
        parts += table(caption, ["kernels", "centred alignment"], rows)
    return parts


def _certificate_section(model: Any) -> str:
    solution = widest(proofs(model))
    found = certificate(solution, model)
    parts = paragraph(found["plain_words"], "words") + paragraph(found["message"])
    drawn = _new_figure((7, 4))
    if drawn is not None:
        ConvergenceDisplay.from_solution(solution, ax=drawn.subplots())
        alt = (
            f"Upper and lower bound on the optimum over {found['n_iter']} iterations; "
            f"they end at {found['objective']:.6g} and {found['lower_bound']:.6g}"
        )
        parts += figure(drawn, alt, 2)
    return parts


def _evidence_section(found: dict[str, Any]) -> str:
    parts = paragraph(found["plain_words"], "words") + paragraph(found["message"])
    rows = [
        (f"noise of output {i + 1}, standard deviation", _size(np.sqrt(variance)))
        for i, variance in enumerate(found["noise"])
    ]
    return parts + table("What the kernels leave", ["", "value"], rows)


def _values_section(found: Predictions) -> str:
    truth, predicted = found.truth, found.predicted
    errors = errors_of_values(found)
    share = f"{errors['r2']:.3f}"
    rows = [
        ("R²", Number(share)),
        ("mean absolute error", _size(errors["mean_absolute_error"])),
        ("root of the mean squared error", _size(errors["root_mean_squared_error"])),
        ("standard deviation of the target", _size(errors["standard_deviation"])),
    ]
    caption = f"Cross-validated predictions of {len(truth)} samples"
    parts = table(caption, ["error", "value"], rows)
    drawn = _new_figure((5, 5))
    if drawn is None:
        return parts
    ax = drawn.subplots()
    ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
    ax.plot(ends, ends, color="0.5", ls="--", lw=1)
    ax.scatter(truth, predicted, color=OKABE_ITO[0], s=12, alpha=0.6, linewidths=0)
    ax.set(xlabel="target", ylabel="prediction", aspect="equal")
    alt = (
        f"Cross-validated predictions against the target, with R² {share}; on the "
        "dashed line both are equal"
    )
    return parts + figure(drawn, alt, 3)


def _classes_section(found: Predictions) -> str:
    errors = errors_of_classes(found)
    classes = errors["classes"]
    rows = [
        (label, *(Share(count, sum(counts)) for count in counts))
        for label, counts in zip(classes, errors["confusion"], strict=True)
    ]
    heads = ["true class", *(f"predicted {label}" for label in classes)]
    caption = (
        "Confusion matrix of cross-validated predictions, "
        f"{100 * errors['accuracy']:.1f} % of which are right"
    )
    parts = table(caption, heads, rows)
    if errors["roc_auc"] is None:
        return parts
    alt = (
        f"ROC curve for class {classes[1]}; the area under it is "
        f"{errors['roc_auc']:.3f}"
    )
    drawn = _new_figure((5, 5))
    if drawn is None:
        return parts + paragraph(alt)
    ax = drawn.subplots()
    second = [str(label) == classes[1] for label in found.truth]
    ax.plot(*roc_curve(second, found.scores)[:2], color=OKABE_ITO[0], lw=2)
    ax.plot([0, 1], [0, 1], color="0.5", ls="--", lw=1)
    ax.set(xlabel="false positive rate", ylabel="true positive rate", aspect="equal")
    return parts + figure(drawn, alt, 3)


def _size(value: float) -> Number:
    return Number(f"{value:.3g}")


def _loading_section(loading: str) -> str:
    if not loading:
        return paragraph("The model was not saved.")
    return f"<pre><code>{text(loading)}</code></pre>"


def _new_figure(figsize: tuple[float, float]) -> Any:
    """Return a figure that no window knows of, None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=figsize, layout="constrained")


# --- what a page is built of ----------------------------------------------------------


def text(value: Any) -> str:
    """Return a value as text that can stand anywhere in a page."""
    return escape(clean(value))


def clean(value: Any) -> str:
    """Return a value as text without what neither HTML nor XML allows."""
    shown = str(value).encode("utf-8", "replace").decode("utf-8")
    return re.sub(_FORBIDDEN, "\ufffd", shown)


def page(title: str, sections: Sequence[tuple[str, str]], foot: str = "") -> str:
    """Return a whole page: title, contents, and sections of heading and HTML."""
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
</body>
</html>
"""


def paragraph(content: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{text(content)}</p>"


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; the first cell of a row names it, numbers come as floats.

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
    return (
        f'<div class="scroll"><table{_full(heads)}>{_caption(caption)}'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _caption(words: str) -> str:
    # a span, to be no wider than the window though the table is
    return f"<caption><span>{text(words)}</span></caption>"


def _full(heads: Sequence[str]) -> str:
    return ' class="full"' if len(heads) > 3 else ""


class Bar(float):
    """A part of one, shown as the length of a bar; the number stands elsewhere."""


class Number(str):
    """Digits that are text already, and stand where numbers do."""


class Share(int):
    """A count with the part of its row that it is, shown as a shade."""

    part: float

    def __new__(cls, count: int, total: int) -> Share:
        """Return a count of so many in all."""
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
        return f'<td class="wide">{bar}</td>'
    if isinstance(value, Share):
        style = f"--part: {0.35 * value.part:.3f}"  # faint enough to read on
        return f'<td class="number share" style="{style}">{int(value)}</td>'
    return f"<td{_number(numeric)}>{_shown(value)}</td>"


def _shown(value: Any) -> str:
    return text(f"{value:.4g}" if isinstance(value, float) else value)


def figure(drawn: Any, alt: str, number: int, wide: bool = False) -> str:
    """Return a matplotlib figure as inline SVG with a text for those who hear it.

    ``number`` tells its inner names from those of other figures on the page. A ``wide``
    one is not made smaller on a phone than can be read, but scrolls.
    """
    from matplotlib import rc_context

    stream = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": "mklearn"}
    with rc_context(settings), warnings.catch_warnings():
        # letters that matplotlib's font lacks are the browser's to draw
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        drawn.savefig(stream, format="svg", transparent=True)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>f{number}-", svg)
    svg = svg.replace("stroke: #000000", "stroke: currentColor")
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{text(alt)}"', 1)
    kind = ' class="wide"' if wide else ""
    return f"<figure{kind}>{svg}<figcaption>{text(alt)}</figcaption></figure>"
