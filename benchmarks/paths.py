"""Cost of choosing C and the norm, relative to a grid search and to a single fit.

For each data set ``MKLClassifierCV`` (one bank, one warm-started path for each fold)
and ``GridSearchCV(MKLClassifier())`` run over the same grid of C and p on the same
folds. The output is the ratio of their times, the difference of the scores of the cells
if kernels are the same, and whether the choices are the same.

    python benchmarks/paths.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from mklearn import KernelBank, MKLClassifier, MKLClassifierCV, kernels
from mklearn.estimators._path_search import choose_cell

NORMS = [1.0, 4 / 3, 2.0, 4.0, np.inf]


def data_sets(quick: bool):
    """Yield name, samples, labels and kernels."""
    X, y = load_breast_cancer(return_X_y=True)
    if quick:
        yield "breast cancer, 100 samples", X[:100], y[:100], "auto"
        return
    yield "breast cancer", X, y, "auto"
    X, digit = load_digits(return_X_y=True)
    ladder = kernels.rbf_ladder(gammas=np.geomspace(1e-4, 1e-2, 20))
    yield "digits, odd against even, 800 samples", X[:800], digit[:800] % 2, ladder
    X, y = make_classification(300, 20, n_informative=6, flip_y=0.1, random_state=0)
    yield (
        "20 columns, a linear kernel each",
        X,
        y,
        kernels.per_feature(kernels.Linear()),
    )


def timed(function):
    """Return the seconds of a call and its result."""
    start = time.perf_counter()
    answer = function()
    return time.perf_counter() - start, answer


def compare(name, X, y, kernel, Cs, n_folds, tol) -> dict:
    """Measure one data set."""
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(X, y))
    ours = MKLClassifierCV(kernel, Cs=Cs, norms=NORMS, cv=folds, tol=tol)
    grid = {"C": list(Cs), "norm": NORMS}
    MKLClassifierCV(kernel, Cs=[1.0], cv=2).fit(X[:60], y[:60])  # compile
    cv_s, model = timed(lambda: ours.fit(X, y))
    search = GridSearchCV(MKLClassifier(kernel, tol=tol), grid, cv=folds)
    search_s, search = timed(lambda: search.fit(X, y))
    # the same search on precomputed kernels, with the same parameters, whose scores
    # must be those of the paths
    bank = KernelBank(X, kernel).stored()
    given = MKLClassifier("precomputed", tol=tol)
    given = GridSearchCV(given, grid, cv=folds, refit=False)
    given_s, given = timed(lambda: given.fit(bank, y))
    table = np.empty_like(model.scores_)
    for j, cell in enumerate(given.cv_results_["params"]):
        i = NORMS.index(cell["norm"])
        k = int(np.flatnonzero(model.Cs_ == cell["C"])[0])
        for f in range(n_folds):
            table[i, k, f] = given.cv_results_[f"split{f}_test_score"][j]
    best = MKLClassifier(kernel, C=model.C_, norm=model.norm_, tol=tol)
    fit_s, _ = timed(lambda: best.fit(X, y))
    warm = sum(float(path.n_iter.sum()) for path in model.path_)
    i, k = choose_cell(table, model.Cs_, model.norms_)
    return {
        "data": name,
        "n": len(X),
        "M": len(model.kernel_names_),
        "cells": int(model.mean_scores_.size),
        "cv_s": cv_s,
        "search_s": search_s,
        "search_given_s": given_s,
        "fit_s": fit_s,
        "iterations": warm,
        "score_difference": float(np.abs(table - model.scores_).max()),
        "choice": [model.norm_, model.C_],
        "choice_search": [float(model.norms_[i]), float(model.Cs_[k])],
        "largest_gap": max(float(path.gap.max()) for path in model.path_),
    }


def main() -> None:
    """Run all data sets and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small data set")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--json", type=Path, help="write all figures here")
    args = parser.parse_args()
    Cs = np.logspace(-2, 2, 2 if args.quick else 9)
    n_folds = 2 if args.quick else 5
    rows = []
    for case in data_sets(args.quick):
        row = compare(*case, Cs, n_folds, args.tol)
        rows.append(row)
        same = row["choice"] == row["choice_search"]
        print(
            f"{row['data']}: n = {row['n']}, M = {row['M']}, {row['cells']} cells, "
            f"{n_folds} folds\n"
            f"  paths {row['cv_s']:.2f} s, GridSearchCV {row['search_s']:.2f} s: "
            f"{row['search_s'] / row['cv_s']:.1f} times as long "
            f"({row['search_given_s'] / row['cv_s']:.1f} with kernels given); the "
            f"paths cost {row['cv_s'] / row['fit_s']:.0f} fits at the choice\n"
            f"  choice p = {row['choice'][0]:.3g}, C = {row['choice'][1]:.3g}, "
            f"{'the same' if same else 'not the same'} as that of the search "
            f"(p = {row['choice_search'][0]:.3g}, C = {row['choice_search'][1]:.3g}); "
            f"scores of single folds differ by up to {row['score_difference']:.3f}; "
            f"gaps up to {row['largest_gap']:.1e}"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
