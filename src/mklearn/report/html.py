"""The report as one self-contained HTML page."""

from __future__ import annotations

import os

from mklearn import __version__
from mklearn.data.writing import whole_file
from mklearn.report.facts import Report
from mklearn.report.page import page
from mklearn.report.sections import SECTIONS


def write_html(path: str | os.PathLike[str], report: Report) -> None:
    """Write a report as a self-contained HTML file, atomically.

    Figures need matplotlib; without it the report has tables only.
    """
    html = report_html(report)
    with whole_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8", newline="\n")


def report_html(report: Report) -> str:
    """Return the report as a page of all nonempty sections."""
    found = [(heading, show(report)) for heading, show in SECTIONS]
    sections = [(heading, content) for heading, content in found if content]
    return page(report.title, sections, f"mklearn {__version__}")
