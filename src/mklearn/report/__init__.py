"""Reports about fitted models.

``facts`` computes the values, ``words`` the sentences, and ``html`` the page.
"""

from mklearn.data.writing import whole_file, whole_files, write_json
from mklearn.fitted import (
    KernelRow,
    kernel_alignment,
    kernel_rows,
    rows_by_view,
    used_kernels,
    widest,
)
from mklearn.report.checks import run_checks, sample_checks
from mklearn.report.facts import (
    DataSummary,
    LearningCurve,
    Predictions,
    Report,
    ViewShare,
    certificate,
    describe_data,
    evidence,
    view_shares,
)
from mklearn.report.html import report_html, write_html
from mklearn.report.methods import methods_text
from mklearn.report.words import plain_words

__all__ = [
    "DataSummary",
    "KernelRow",
    "LearningCurve",
    "Predictions",
    "Report",
    "ViewShare",
    "certificate",
    "describe_data",
    "evidence",
    "kernel_alignment",
    "kernel_rows",
    "methods_text",
    "plain_words",
    "report_html",
    "rows_by_view",
    "run_checks",
    "sample_checks",
    "used_kernels",
    "view_shares",
    "whole_file",
    "whole_files",
    "widest",
    "write_html",
    "write_json",
]
