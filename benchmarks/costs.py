"""Cost of a fit by samples, kernels, classes, loss, norm and representation.

Every row is a call of the public API with its defaults, in its own process (except with
``--quick``), with compiled functions cached on disk: CPU seconds of ``fit`` including
validation, wall seconds, and the memory in addition to that of the data. ``growth`` is
the exponent of n between the last two sizes.

    python benchmarks/costs.py [--quick] [--page FILE]
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import time
from pathlib import Path

from pages import page
from parts import alone

SIZES = (500, 1000, 2000, 4000)
ROWS = (10_000, 40_000, 160_000)

# name: estimator, parameters, number of classes (0: numbers), kernels, sizes
CASES: dict[str, tuple[str, dict, int, str, tuple[int, ...]]] = {
    "hinge, p = 2": ("MKLClassifier", {}, 2, "auto", SIZES),
    "hinge, p = 1": ("MKLClassifier", {"norm": 1}, 2, "auto", SIZES),
    "hinge, p = 2, 50 widths": ("MKLClassifier", {}, 2, "50 widths", SIZES),
    "hinge, p = 1, 50 widths": ("MKLClassifier", {"norm": 1}, 2, "50 widths", SIZES),
    "hinge, p = 2, a kernel per column": ("MKLClassifier", {}, 2, "columns", SIZES[:3]),
    "hinge, p = 2, 10 classes": ("MKLClassifier", {}, 10, "auto", SIZES),
    "squared hinge, p = 2": (
        "MKLClassifier", {"loss": "squared_hinge"}, 2, "auto", SIZES,
    ),
    "squared, p = 2": ("MKLClassifier", {"loss": "squared"}, 2, "auto", SIZES),
    "logistic, p = 2": ("MKLClassifier", {"loss": "logistic"}, 2, "auto", SIZES[:3]),
    "search over C and p": ("MKLClassifierCV", {}, 2, "auto", SIZES[:3]),
    "regression, p = 2": ("MKLRegressor", {}, 0, "auto", SIZES),
    "evidence": ("EvidenceMKLRegressor", {}, 0, "auto", SIZES[:3]),
    "one class": ("MKLOneClass", {}, 0, "auto", SIZES),
    "discriminant": ("MKLDiscriminant", {}, 2, "auto", SIZES[:3]),
    "bilinear, 10 classes": ("BilinearMKLClassifier", {}, 10, "auto", SIZES[:3]),
    "subspace": ("SubspaceClassifier", {}, 2, "auto", SIZES[:3]),
    "squared, rank 100": (
        "MKLClassifier",
        {"loss": "squared", "approximation": "nystroem", "rank": 100},
        2, "auto", ROWS,
    ),
    "hinge, rank 100": (
        "MKLClassifier", {"approximation": "nystroem", "rank": 100}, 2, "auto", ROWS,
    ),
}  # fmt: skip


def fitted(name: str, n: int) -> dict[str, float]:
    """Fit one case in this process and return its cost."""
    import numpy as np
    from sklearn.datasets import make_classification, make_regression

    import mklearn
    from mklearn.kernels import per_feature, rbf_ladder

    estimator, parameters, classes, kernels, _ = CASES[name]
    kernels = {
        "auto": "auto",
        "50 widths": rbf_ladder(50),
        "columns": per_feature("rbf"),
    }[kernels]

    def data(n: int) -> tuple[np.ndarray, np.ndarray]:
        if classes:
            return make_classification(
                n, 20, n_informative=10, n_classes=classes, flip_y=0.05, random_state=0
            )
        return make_regression(n, 20, n_informative=10, noise=10.0, random_state=0)

    cls = getattr(mklearn, estimator)
    cls(kernels, **parameters).fit(*data(200))  # load compiled functions
    X, y = data(n)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.perf_counter()
    cls(kernels, **parameters).fit(X, y)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {
        "cpu": used,
        "wall": wall,
        "mb": (after.ru_maxrss - before.ru_maxrss) / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    rows = []
    for name in list(CASES)[:: 6 if args.quick else 1]:
        sizes = CASES[name][4][: 2 if args.quick else None]
        cpu = []
        for n in sizes:
            found = alone(fitted, name, n, here=args.quick)
            cpu.append(found["cpu"])
            row = {"fit": name, "n": n, "CPU s": found["cpu"], "wall s": found["wall"]}
            row["MB more"] = found["mb"]
            if n == sizes[-1]:
                row["growth"] = math.log(cpu[-1] / cpu[-2]) / math.log(n / sizes[-2])
            rows.append(row)
            print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
                            for k, v in row.items()), flush=True)  # fmt: skip
    if args.page:
        more = (
            f" The load of the machine was {load:.1f} at the start; unlike other "
            "pages, this one has no ratios."
        )
        title = "Cost of a fit"
        args.page.write_text(page(title, "costs.py", rows, more))


if __name__ == "__main__":
    main()
