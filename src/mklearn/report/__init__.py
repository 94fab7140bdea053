"""A fitted model in facts, words and a page, and files written whole or not.

``facts`` has the values, ``words`` the sentences, ``html`` the page, ``files`` the
writing.
"""

from mklearn.fitted import (
    KernelRow,
    kernel_alignment,
    kernel_rows,
    rows_by_view,
    used_kernels,
    widest,
)
from mklearn.report.facts import (
    DataSummary,
    Predictions,
    Report,
    certificate,
    describe_data,
    evidence,
)
from mklearn.report.files import whole_file, whole_files, write_json
from mklearn.report.html import report_html, write_html
from mklearn.report.words import plain_words

__all__ = [
    "DataSummary",
    "KernelRow",
    "Predictions",
    "Report",
    "certificate",
    "describe_data",
    "evidence",
    "kernel_alignment",
    "kernel_rows",
    "plain_words",
    "report_html",
    "rows_by_view",
    "used_kernels",
    "whole_file",
    "whole_files",
    "widest",
    "write_html",
    "write_json",
]
