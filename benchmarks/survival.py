"""Survival analysis: concordance and time compared with scikit-survival, on its data.

Part ``sets``: the data sets of scikit-survival (breast cancer GSE7390, flchain,
veteran, whas500), on the same folds for all methods, stratified by events. Categories
become indicators, missing values are imputed by medians and columns are standardised,
on the training part of each fold. The ridge penalty of Cox regression is chosen on five
inner folds, by ``GridSearchCV`` over the seven costs of ``MKLCoxCV``; everything else
is at its defaults. ``error`` is the standard error over folds, ``CPU`` the mean CPU
time of a fit in seconds, including the choice. The cause of death in flchain, which is
known only after death, is left out, and the kernel machine of scikit-survival is
trained on the first 1000 rows of each training part there. ``minus Cox`` is the mean
difference to ridge Cox regression on the same folds, with its standard error.

Part ``large``: rows of flchain resampled with noise, so that no two are equal, up to
100 000; each fit runs in its own process, whose peak memory is measured (with
``--quick``, all in one, and both parts can be named).

Part ``costs``: GSE7390 as one table and as two views, clinic and genes, with the
default kernels and with linear ones only: the mean concordance over the same folds at
each norm and cost, to tell what kernels and norms lose from what their choice loses.

    python benchmarks/survival.py sets|large|costs [--quick] [--only SET] [--resume LOG]
        [--page FILE]
"""

from __future__ import annotations

import argparse
import ast
import resource
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from pages import page
from parts import alone, each_part
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mklearn import MKLCox, MKLCoxCV, MKLSurvivalSVM, MultiView
from mklearn.survival import concordance_index

COSTS = np.logspace(-3, 3, 7)
FEW = 1000  # training rows of the kernel machine if there are thousands
SETS = ("veteran", "whas500", "GSE7390", "flchain")


# --- data -----------------------------------------------------------------------------


def load(name: str):
    """Return a table and a structured array of events and times."""
    from sksurv import datasets

    maker = {
        "veteran": datasets.load_veterans_lung_cancer,
        "whas500": datasets.load_whas500,
        "GSE7390": datasets.load_breast_cancer,
        "flchain": datasets.load_flchain,
    }[name]
    X, raw = maker()
    event, at = raw.dtype.names
    y = np.empty(len(raw), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = raw[event], np.maximum(raw[at], 0.5)
    if name == "flchain":
        X = X.drop(columns="chapter")
    if name == "whas500":
        X = X.astype(float)
    return X, y


def preparation():
    """Return indicators for categories, standard scores for numbers."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    groups = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include=np.number)),
        (groups, make_column_selector(dtype_exclude=np.number)),
    )


def prepared(X: pd.DataFrame, train, test):
    """Return the parts of a fold as arrays, with the column names."""
    made = preparation().fit(X.iloc[train])
    return made.transform(X.iloc[train]), made.transform(X.iloc[test]), (
        made.get_feature_names_out()
    )  # fmt: skip


def as_views(X: np.ndarray, names) -> MultiView:
    """Return genes and clinical columns as views."""
    genes = np.array(["X" in name.split("__")[1][:1] for name in names])
    return MultiView({"clinic": X[:, ~genes], "genes": X[:, genes]})


# --- methods --------------------------------------------------------------------------


def methods(name: str, quick: bool) -> dict:
    """Return the methods by name; a second value requests views."""
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.svm import FastKernelSurvivalSVM

    inner = StratifiedByEvent(5)
    large = name == "flchain"
    costs = COSTS[2:5] if quick or large else COSTS
    low = {"approximation": "nystroem"} if large else {}
    ridge = GridSearchCV(
        CoxPHSurvivalAnalysis(), {"alpha": 1 / costs}, cv=inner, error_score=0.5
    )
    found = {
        "ridge Cox, chosen": ridge,
        "random survival forest": RandomSurvivalForest(random_state=0),
    }
    machine = FastKernelSurvivalSVM(kernel="rbf", random_state=0)
    # with thousands of rows, a fit takes many minutes
    found[f"kernel survival SVM, {FEW} rows" if large else "kernel survival SVM"] = (
        machine
    )
    found["MKLCox()" if not large else "MKLCox(approximation='nystroem')"] = MKLCox(
        **low
    )
    label = "MKLSurvivalSVM(approximation='nystroem')" if large else "MKLSurvivalSVM()"
    found[label] = MKLSurvivalSVM(**low)
    if not large:
        norms = [1, 2] if quick else MKLCoxCV().norms
        found["MKLCoxCV()"] = MKLCoxCV(Cs=costs, norms=norms)
    if name == "GSE7390":
        found["MKLCoxCV(), two views"] = MKLCoxCV(Cs=costs, norms=norms)
    return found


class StratifiedByEvent(StratifiedKFold):
    """Folds with equal shares of the events."""

    def __init__(self, n_splits=5, *, shuffle=True, random_state=0):
        super().__init__(n_splits, shuffle=shuffle, random_state=random_state)

    def split(self, X, y, groups=None):
        return super().split(np.zeros(len(y)), y["event"], groups)


def sets(quick: bool, only: str, rows: list[dict]) -> list[dict]:
    """Return concordance and time of all methods, on the sets not yet in ``rows``."""
    known = {row["set"] for row in rows}
    for name in SETS[:1] if quick else SETS:
        if name in known or name not in (only or name):
            continue
        X, y = load(name)
        models = methods(name, quick)
        scores = {label: [] for label in models}
        seconds = {label: [] for label in models}
        n_folds = 3 if quick or name == "flchain" else 5
        for train, test in StratifiedByEvent(n_folds).split(X, y):
            A, B, names = prepared(X, train, test)
            for label, model in models.items():
                here, there = (
                    (as_views(A, names), as_views(B, names))
                    if "views" in label
                    else (A, B)
                )
                target = y[train]
                if label.endswith(" rows"):
                    here, target = here[:FEW], target[:FEW]
                started = time.process_time()
                model.fit(here, target)
                seconds[label].append(time.process_time() - started)
                risk = model.predict(there)
                scores[label].append(concordance_index(y[test], risk))
        base = np.array(scores["ridge Cox, chosen"])
        for label in models:
            c = np.array(scores[label])
            apart = c - base
            root = len(c) ** 0.5
            rows.append(
                {
                    "set": name, "n": len(y), "events": int(y["event"].sum()),
                    "method": label, "concordance": float(c.mean()),
                    "error": float(c.std(ddof=1) / root),
                    "minus Cox": f"{apart.mean():+.3f} ± "
                    f"{apart.std(ddof=1) / root:.3f}",
                    "CPU": float(np.mean(seconds[label])),
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


# --- many rows ------------------------------------------------------------------------


def drawn(n: int):
    """Return rows of flchain, resampled with noise."""
    X, y = load("flchain")
    Z = preparation().fit_transform(X)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(Z), n)
    Z = Z[rows] + 0.05 * rng.normal(size=(n, Z.shape[1]))
    y = y[rows]
    y["time"] *= np.exp(0.01 * rng.normal(size=n))
    return Z, y


def one(method: str, n: int) -> dict:
    """Fit one method to n rows, in this process; return its cost."""
    warnings.simplefilter("ignore")
    Z, y = drawn(n)
    if method == "ridge Cox":
        from sksurv.linear_model import CoxPHSurvivalAnalysis

        model = CoxPHSurvivalAnalysis(alpha=1.0)
    else:
        kind = MKLCox if method.startswith("MKLCox") else MKLSurvivalSVM
        model = kind(approximation="nystroem")
    clone(model).fit(Z[:500], y[:500])  # compiles, and loads what is loaded once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(Z, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": n, "method": method, "columns": Z.shape[1],
        "seconds": wall, "CPU": cpu, "MB beyond the data": (most - before) / 1024,
        "gap": float(getattr(model, "duality_gap_", np.nan)),
        "passes": int(getattr(model, "n_iter_", 0)) or "",
        "concordance": concordance_index(y, model.predict(Z)),
    }  # fmt: skip


def large(quick: bool, only: str, rows: list[dict]) -> list[dict]:
    """Return time and memory of fits to many rows."""
    rows = []
    sizes = [1000] if quick else [10_000, 30_000, 100_000]
    for n in sizes:
        for method in (
            "ridge Cox", "MKLCox(approximation='nystroem')",
            "MKLSurvivalSVM(approximation='nystroem')",
        ):  # fmt: skip
            row = alone(one, method, n, here=quick)
            rows.append({k: "" if v != v else v for k, v in row.items()})
            print(rows[-1], flush=True)
    return rows


# --- costs and norms ------------------------------------------------------------------


def costs(quick: bool, only: str, rows: list[dict]) -> list[dict]:
    """Return the concordance of GSE7390 at each norm and cost."""
    X, y = load("GSE7390")
    found: dict[tuple, dict] = {}
    for train, test in StratifiedByEvent(5).split(X, y):
        A, B, names = prepared(X, train, test)
        for samples, here, there in (
            ("one table", A, B),
            ("two views", as_views(A, names), as_views(B, names)),
        ):
            for kind in ("auto", "linear"):
                for p in (2.0,) if quick else (1.0, 2.0, np.inf):
                    for C in COSTS[::3] if quick else COSTS:
                        model = MKLCox(kind, norm=p, C=C, tol=1e-2).fit(here, y[train])
                        c = concordance_index(y[test], model.predict(there))
                        row = found.setdefault((samples, kind, p), {})
                        row.setdefault(C, []).append(c)
        if quick:
            break
    rows = [
        {
            "samples": samples, "kernels": kind, "norm": p,
            **{f"C = {C:g}": float(np.mean(c)) for C, c in row.items()},
        }
        for (samples, kind, p), row in found.items()
    ]  # fmt: skip
    print(*rows, sep="\n", flush=True)
    return rows


PARTS = {"sets": sets, "large": large, "costs": costs}
TITLES = {
    "costs": "Times to an event: costs and norms on GSE7390",
    "sets": "Times to an event: concordance compared with scikit-survival",
    "large": "Times to an event: many rows",
}
MORE = {
    "costs": " Mean concordance over five folds of 198 patients with 51 events, by "
    "cost; its standard error over folds is about 0.04, that of differences is "
    "smaller. A single linear kernel has the same weight for each norm.",
    "sets": " Five folds (three of flchain, if listed). `error` is the standard "
    "error over folds, `CPU` the mean CPU time of a fit in seconds, including the "
    "choice of settings. `minus Cox` is the mean difference to ridge Cox regression "
    "(with a chosen penalty) on the same folds, with its standard error.",
    "large": " Rows of flchain, resampled with noise; rank 200 for each of six "
    "kernels. A kernel matrix of 100 000 rows would take 80 GB.",
}


def main() -> int:
    """Run the parts; return 1 if a quick one is behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="one of the sets")
    parser.add_argument("--resume", type=Path, help="output of an earlier run")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    warnings.simplefilter("ignore")
    behind = False
    for args in each_part(parser, PARTS):
        if find_spec("sksurv") is None:
            print("scikit-survival is not installed: pip install scikit-survival")
            return 0
        behind |= run_part(args)
    return int(args.quick and behind)


def run_part(args: argparse.Namespace) -> bool:
    """Run one part; return whether ours are far behind ridge Cox regression."""
    rows = []
    if args.resume is not None:
        lines = args.resume.read_text().splitlines()
        rows = [ast.literal_eval(line) for line in lines if line.startswith("{")]
    rows = PARTS[args.part](args.quick, args.only, rows)
    if args.page:
        title, more = TITLES[args.part], MORE[args.part]
        args.page.write_text(page(title, f"survival.py {args.part}", rows, more))
    if args.part == "costs":
        return max(max(list(row.values())[3:]) for row in rows) < 0.5
    ours = [row for row in rows if row["method"].startswith("MKLCox")]
    base = [row for row in rows if row["method"].startswith("ridge")]
    return min(r["concordance"] for r in ours) < base[0]["concordance"] - 0.1


if __name__ == "__main__":
    sys.exit(main())
