"""Quality of the defaults, compared with the unweighted sum and ``SVC`` with a grid.

    python benchmarks/defaults.py [--quick] [--json FILE] [--page FILE]

Models are trained on random parts of each table, of at most ``--rows`` rows, and tested
on the rest. ``default`` selects like ``mklearn fit`` (range of widths, cost, and norm,
by ``rule="sum"``); ``best`` is ``MKLClassifierCV()``; ``sum`` has the same choices but
equal weights; ``all widths`` keeps all widths; ``SVC`` is a grid of 16 cells, on all
columns if there are several views. For regression these are ``MKLRegressorCV`` and
``SVR`` with a standardised target. All select on five folds of the training part, or on
as many as the smallest class has samples. Differences are paired, with the standard
error over parts, corrected for their overlap. A difference to the sum below minus one
standard error, or to SVC below minus two, is marked.

``--read`` combines the figures of several runs, for instance of one for each table.

The rule of ``select="widths"`` was developed on the tables of ``CHOSEN_ON``; the others
were not used for it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pages import page
from sklearn import datasets
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import (
    GridSearchCV,
    ShuffleSplit,
    StratifiedShuffleSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, SVR

from mklearn import MKLClassifierCV, MKLRegressorCV, MultiView
from mklearn.datasets import load

CHOSEN_ON = (
    "sonar", "heart_statlog", "breast_cancer_original", "waveform21",
    "quadratic 0", "waves 0", "clusters 0",
)  # fmt: skip
HELD_OUT = (
    "ionosphere", "heart_cleveland", "pima", "breast_cancer_diagnostic", "wine", "iris",
    "segment", "satimage", "digits", "quadratic 1", "waves 1", "clusters 1",
    # several views
    "msrcv1", "protein_fold_reduced", "tcga_breast",
    # more columns than samples
    "brain_tumor1", "brain_tumor2",
    # numbers
    "diabetes", "friedman1 0", "friedman2 0", "line 0",
)  # fmt: skip
NUMBERS = ("diabetes", "friedman1", "friedman2", "line")
QUICK = ("heart_statlog", "wine")
REFERENCE = "default"
FEW = 5  # number of parts below which standard errors are unreliable
COMPARED = {"sum": 1.0, "SVC": 2.0}  # tolerated difference, in standard errors


def table(name: str) -> tuple[Any, np.ndarray]:
    """Return samples and targets, of a data set or simulated."""
    kind, _, seed = name.partition(" ")
    rng = np.random.default_rng(int(seed or 0))
    if kind == "diabetes":
        return datasets.load_diabetes(return_X_y=True)
    if kind == "friedman1":
        return datasets.make_friedman1(600, 10, noise=1.0, random_state=int(seed))
    if kind == "friedman2":
        return datasets.make_friedman2(600, noise=100.0, random_state=int(seed))
    if kind == "line":  # a linear kernel is sufficient
        X = rng.normal(size=(600, 12))
        return X, X[:, :4].sum(axis=1) + 2.0 * rng.normal(size=600)
    if kind == "quadratic":  # a covariance for each class: smooth boundaries
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


def columns(X: Any) -> np.ndarray:
    """Return all columns of all views."""
    if isinstance(X, MultiView):
        return np.hstack([np.asarray(X[view]) for view in X.names])
    return np.asarray(X)


def models(X: Any, numbers: bool, folds: int) -> dict:
    """Return the models to compare."""
    ours: Any = MKLRegressorCV if numbers else MKLClassifierCV
    alone: Any = SVR() if numbers else SVC()
    n_features = columns(X[:1]).shape[1]
    name = type(alone).__name__.lower()
    grid = {
        f"{name}__C": [0.1, 1.0, 10.0, 100.0],
        f"{name}__gamma": [f / n_features for f in (1 / 16, 1 / 4, 1.0, 4.0)],
    }
    pipe = make_pipeline(StandardScaler(), alone)
    search: Any = GridSearchCV(pipe, grid, cv=folds)
    if numbers:
        search = TransformedTargetRegressor(search, transformer=StandardScaler())
    return {
        "default": ours(rule="sum", cv=folds),
        "best": ours(cv=folds),
        "sum": ours(norms=[np.inf], cv=folds),
        "all widths": ours(select=None, cv=folds),
        "SVC": make_pipeline(FunctionTransformer(columns), search),
    }


def measured(
    name: str, parts: int, most: int, wanted: Sequence[str] | None = None
) -> dict:
    """Return scores and CPU seconds of models on parts of a table."""
    X, y = table(name)
    numbers = name.partition(" ")[0] in NUMBERS
    n = min(most, 2 * len(y) // 3)
    make: Any = ShuffleSplit if numbers else StratifiedShuffleSplit
    splitter = make(
        parts, train_size=n, test_size=min(len(y) - n, 2000), random_state=0
    )
    found: dict = {"table": name, "n": n, "parts": parts, "scores": {}, "cpu": {}}
    for train, test in splitter.split(np.zeros(len(y)), y):
        least = n if numbers else np.unique(y[train], return_counts=True)[1].min()
        known, new = X[train], X[test]
        for label, model in models(X, numbers, int(np.clip(least, 2, 5))).items():
            if label not in (wanted or (label,)):
                continue
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = clone(model).fit(known, y[train])
            found["cpu"].setdefault(label, []).append(time.process_time() - began)
            score = float(fitted.score(new, y[test]))
            found["scores"].setdefault(label, []).append(score)
        found["n_test"] = len(test)
    return found


def difference(found: dict, to: str) -> tuple[float, float]:
    """Return the difference of the default to another, in points, and its error."""
    off = 100 * np.subtract(found["scores"][REFERENCE], found["scores"][to])
    if len(off) < 2:
        return float(off.mean()), float("nan")
    overlap = 1.0 / len(off) + found["n_test"] / found["n"]
    return float(off.mean()), float(np.sqrt(overlap) * off.std(ddof=1))


def row(found: dict) -> dict:
    """Return the row of the page for a table."""
    name = found["table"]
    out = {
        "table": name,
        "role": "chosen on" if name in CHOSEN_ON else "held out",
        "n": found["n"],
    }
    for label, scores in found["scores"].items():
        out[label] = f"{100 * np.mean(scores):.1f}"
    for to, limit in COMPARED.items():
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
    parser.add_argument("--rows", type=int, default=300, help="to train on, at most")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--read", type=Path, nargs="+", help="take figures from there")
    parser.add_argument(
        "--models", nargs="+", help="default, sum and SVC, and others by name"
    )
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    wanted = args.models and {REFERENCE, *COMPARED, *args.models}
    names = args.tables or (QUICK if args.quick else (*CHOSEN_ON, *HELD_OUT))
    parts = args.parts or (2 if args.quick else 5)
    found = []
    if args.read:
        found = [one for file in args.read for one in json.loads(file.read_text())]
        names, parts = (), found[0]["parts"]
    else:  # the first fit of a process compiles functions
        MKLClassifierCV(cv=2).fit(*datasets.load_iris(return_X_y=True))
    for name in names:
        found.append(measured(name, parts, args.rows, wanted))
        print("  ".join(f"{k} {v}" for k, v in row(found[-1]).items()), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1))
    rows = [row(one) for one in found]
    said = []
    for to, limit in COMPARED.items():
        off = [one["table"] for one in rows if "(behind)" in one[f"default - {to}"]]
        said.append(
            f"Worse than {to} by more than {limit:g} standard error"
            f"{'s' if limit > 1 else ''}: {len(off)} of {len(rows)} tables"
            f"{' (' + ', '.join(off) + ')' if off else ''}."
        )
    print("\n".join(said))
    if args.page:
        more = (
            f" Accuracies (R² for {', '.join(NUMBERS)}) in %, means over {parts} "
            "random splits with n training rows. The rule for leaving out widths was "
            "developed on the tables marked *chosen on*; *held out* tables were not "
            f"used for it. {' '.join(said)}"
        )
        if parts < FEW:
            more += f" From {parts} parts, only large differences would show."
        tables = shlex.join(one["table"] for one in found)
        most = max(one["n"] for one in found)
        command = f"defaults.py --parts {parts} --rows {most} --tables {tables}"
        first = found[0]["scores"]
        if len(first) < len(models(np.zeros((1, 1)), False, 5)):
            command += f" --models {shlex.join(first)}"
        text = page("Defaults compared with the sum and SVC", command, rows, more)
        args.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
