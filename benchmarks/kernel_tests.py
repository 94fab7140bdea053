"""Cost of kernel tests compared with a fit, and of tests of thousands of gene sets.

All score tests of 50 kernels are compared with one fit of EvidenceMKLRegressor on the
same kernels; gene sets are linear kernels of 30 columns each, tested given covariates
from one null model. ``ratio`` is CPU time in units of the fit.

    python benchmarks/kernel_tests.py [--quick] [--sets N] [--page FILE]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from pages import page

from mklearn import EvidenceMKLRegressor, kernels
from mklearn.inference import kernel_tests


def measured(work) -> tuple[float, float]:
    """Return wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", type=int, default=10_000)
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    n, M, sets = (300, 10, 50) if args.quick else (2000, 50, args.sets)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2 * M))
    y = np.sin(X[:, 0]) + X[:, 3] * X[:, 2] + rng.standard_normal(n)
    family = [kernels.RBF(0.5, columns=[2 * j, 2 * j + 1]) for j in range(M)]
    genes = rng.standard_normal((n, 5000))
    chosen = [
        kernels.Linear(
            columns=rng.choice(5000, 30, replace=False).tolist(), name=f"{g}"
        )
        for g in range(sets)
    ]
    kernel_tests(X[:50], y[:50], family[:2])  # what is compiled once
    rows, unit = [], None
    for name, count, work in (
        (
            "EvidenceMKLRegressor().fit",
            M,
            lambda: EvidenceMKLRegressor(family).fit(X, y),
        ),
        ("kernel_tests", M, lambda: kernel_tests(X, y, family)),
        ("kernel_tests, gene sets", sets, lambda: kernel_tests(genes, y, chosen)),
    ):
        wall, cpu = measured(work)
        unit = cpu if unit is None else unit
        rows.append({
            "what": name, "n": n, "kernels": count, "seconds": wall,
            "CPU seconds": cpu, "ms of CPU for each kernel": 1000 * cpu / count,
            "ratio": cpu / unit,
        })  # fmt: skip
        print(rows[-1], flush=True)
    if args.page:
        title = "Cost of kernel tests"
        unit = "that of the fit in the first row, in CPU time"
        args.page.write_text(page(title, "kernel_tests.py", rows, unit=unit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
