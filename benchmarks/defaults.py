"""Whether defaults are good enough: beside the plain sum, and beside ``SVC`` + grid.

    python benchmarks/defaults.py [--quick] [--json FILE] [--page FILE]

Of each table some random parts are learned from, at most ``--rows`` of them, and the
rest is predicted. ``default`` chooses as ``mklearn fit`` does (range of widths, cost,
and norm, by ``rule="sum"``); ``best`` is ``MKLClassifierCV()``; ``sum`` has the same
choices but equal weights; ``all widths`` keeps all of them; ``SVC`` is a grid of 16
cells. All choose on five folds of what they learn from. Differences are paired, with
the standard error over parts, corrected for their overlap. A difference to the sum
below minus one standard error, or to SVC below minus two, is marked.

What ``select="widths"`` leaves out, and how it is chosen, was settled on the tables of
``CHOSEN_ON``; the others had no part in it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
import warnings
from pathlib import Path

import numpy as np
from pages import page
from sklearn import datasets
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mklearn import MKLClassifierCV
from mklearn.datasets import load

CHOSEN_ON = (
    "sonar", "heart_statlog", "breast_cancer_original", "waveform21",
    "quadratic 0", "waves 0", "clusters 0",
)  # fmt: skip
HELD_OUT = (
    "ionosphere", "heart_cleveland", "pima", "breast_cancer_diagnostic", "wine", "iris",
    "segment", "satimage", "digits", "quadratic 1", "waves 1", "clusters 1",
)  # fmt: skip
QUICK = ("heart_statlog", "wine")
REFERENCE = "default"


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels, of a data set or drawn."""
    kind, _, seed = name.partition(" ")
    rng = np.random.default_rng(int(seed or 0))
    if kind == "quadratic":  # classes with covariances of their own: smooth borders
        y = rng.integers(0, 4, 846)
        X = np.zeros((846, 18))
        for c in range(4):
            axes, mean = rng.normal(size=(18, 4)), 0.3 * rng.normal(size=18)
            drawn = rng.normal(size=(846, 4)) @ axes.T + mean
            X[y == c] = (drawn + 2.0 * rng.normal(size=(846, 18)))[y == c]
        return X, y
    if kind == "waves":  # a fine pattern: narrow widths are needed
        X = rng.uniform(-1, 1, size=(800, 3))
        wave = np.sin(7 * X[:, 0]) * np.sin(7 * X[:, 1])
        return X, (wave + 0.2 * rng.normal(size=800) > 0).astype(int)
    if kind == "clusters":
        return datasets.make_classification(
            990, 10, n_informative=10, n_redundant=0, n_classes=11, class_sep=1.5,
            flip_y=0.03, random_state=int(seed),
        )  # fmt: skip
    return load(name, return_X_y=True)


def models(n_features: int) -> dict:
    """Return what is compared."""
    grid = {
        "svc__C": [0.1, 1.0, 10.0, 100.0],
        "svc__gamma": [f / n_features for f in (1 / 16, 1 / 4, 1.0, 4.0)],
    }
    return {
        "default": MKLClassifierCV(rule="sum"),
        "best": MKLClassifierCV(),
        "sum": MKLClassifierCV(norms=[np.inf]),
        "all widths": MKLClassifierCV(select=None),
        "SVC": GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5),
    }


def measured(name: str, parts: int, most: int) -> dict:
    """Return scores and CPU seconds of all models on parts of a table."""
    X, y = table(name)
    n = min(most, 2 * len(X) // 3)
    splitter = StratifiedShuffleSplit(
        parts, train_size=n, test_size=min(len(X) - n, 2000), random_state=0
    )
    found: dict = {"table": name, "n": n, "parts": parts, "scores": {}, "cpu": {}}
    for train, test in splitter.split(X, y):
        for label, model in models(X.shape[1]).items():
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = clone(model).fit(X[train], y[train])
            found["cpu"].setdefault(label, []).append(time.process_time() - began)
            score = float(fitted.score(X[test], y[test]))
            found["scores"].setdefault(label, []).append(score)
        found["n_test"] = len(test)
    return found


def difference(found: dict, to: str) -> tuple[float, float]:
    """Return how far the default is above another, in points, and its error."""
    off = 100 * np.subtract(found["scores"][REFERENCE], found["scores"][to])
    if len(off) < 2:
        return float(off.mean()), float("nan")
    overlap = 1.0 / len(off) + found["n_test"] / found["n"]
    return float(off.mean()), float(np.sqrt(overlap) * off.std(ddof=1))


def row(found: dict) -> dict:
    """Return what the page shows of a table."""
    name = found["table"]
    out = {
        "table": name,
        "role": "chosen on" if name in CHOSEN_ON else "held out",
        "n": found["n"],
    }
    for label, scores in found["scores"].items():
        out[label] = f"{100 * np.mean(scores):.1f}"
    for to, limit in (("sum", 1.0), ("SVC", 2.0)):
        mean, error = difference(found, to)
        mark = " (behind)" if mean < -limit * error else ""
        out[f"default - {to}"] = f"{mean:+.1f} ± {error:.1f}{mark}"
    cpu = {label: np.median(found["cpu"][label]) for label in ("default", "SVC")}
    out["CPU / SVC"] = f"{cpu['default'] / cpu['SVC']:.1f}"
    return out


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small tables")
    parser.add_argument("--tables", nargs="+", help="by name")
    parser.add_argument("--parts", type=int, help="random parts of each table")
    parser.add_argument("--rows", type=int, default=300, help="to learn from, at most")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--read", type=Path, help="take figures from there")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    names = args.tables or (QUICK if args.quick else (*CHOSEN_ON, *HELD_OUT))
    parts = args.parts or (2 if args.quick else 5)
    found = []
    if args.read:
        found = json.loads(args.read.read_text())
        names, parts = (), found[0]["parts"]
    else:  # the first fit of a process compiles
        MKLClassifierCV(cv=2).fit(*datasets.load_iris(return_X_y=True))
    for name in names:
        found.append(measured(name, parts, args.rows))
        print("  ".join(f"{k} {v}" for k, v in row(found[-1]).items()), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1))
    rows = [row(one) for one in found]
    behind = sum("(behind)" in one["default - sum"] for one in rows)
    print(
        f"worse than the sum by more than one standard error: {behind} of {len(rows)}"
    )
    if args.page:
        more = (
            f" Accuracies in %, means over {parts} random splits with n training "
            "rows. The rule for leaving out widths was developed on the tables marked "
            "*chosen on*; *held out* tables were not used for it."
        )
        tables = shlex.join(one["table"] for one in found)
        most = max(one["n"] for one in found)
        command = f"defaults.py --parts {parts} --rows {most} --tables {tables}"
        text = page("Defaults compared with the sum and SVC", command, rows, more)
        args.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
