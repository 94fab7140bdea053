"""The page that a benchmark writes about itself."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import scipy
import sklearn

_LOAD = os.getloadavg()[0]  # when the benchmark began


def commit(folder: Path = Path(__file__).parent) -> str:
    """Return the commit that a folder is at, "?" if there is none."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    ).stdout.strip()
    return found or "?"


def page(
    title: str, command: str, rows: list[dict], more: str = "", unit: str = ""
) -> str:
    """Return a Markdown page with all figures and their origin.

    ``unit`` says what the times in columns of ratios are relative to.
    """
    ratio = f"`ratio` is the time relative to {unit}. " if unit else ""
    lines = [
        f"# {title}",
        "",
        f"Written by `python benchmarks/{command}` at commit {commit()} on "
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, numpy {np.__version__}, scipy "
        f"{scipy.__version__}, scikit-learn {sklearn.__version__}. {ratio}Seconds "
        f"depend on the machine and its load, which was {_LOAD:.1f} at the start and "
        f"{os.getloadavg()[0]:.1f} at the end (processes running or waiting).{more}",
        "",
    ]
    return "\n".join(lines) + "\n" + table(rows)


def table(rows: list[dict]) -> str:
    """Return a Markdown table with the columns that any row has."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [row.get(name, "") for name in names]
        shown = [f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"
