"""Cost of a search with default settings, compared with a grid search of ``SVC``.

On each table ``MKLClassifierCV()`` with all defaults is compared with
``GridSearchCV(make_pipeline(StandardScaler(), SVC()))`` over 16 cells of C and gamma,
both with 5 stratified folds. Each runs several times in its own process, and the
smallest values count: CPU seconds of ``fit``, of the whole process with its imports,
and wall seconds. Accuracies are means over random halves of the table, the same for
all.

    python benchmarks/search.py [--quick] [--json FILE]
    python benchmarks/search.py --against ../other/src    # another checkout beside it
    python benchmarks/search.py --others                  # the other searches, too
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np
from parts import alone

SOURCE = Path(__file__).parents[1] / "src"
TABLES = {
    "wine": (178, 13, 3),
    "breast cancer": (569, 30, 2),
    "digits": (600, 64, 10),
    "vehicle-like": (846, 18, 4),
    "vowel-like": (990, 10, 11),
    "spam-like": (1500, 57, 2),
}
SVC, OURS = "GridSearchCV(SVC)", "MKLClassifierCV()"
OTHERS = {
    "MKLRegressorCV()": "GridSearchCV(SVR)",
    "SubspaceClassifierCV()": SVC,
    "BestKernelClassifier()": SVC,
}


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels, of scikit-learn or simulated with similar shapes."""
    from sklearn import datasets

    n, d, k = TABLES[name]
    if name == "wine":
        X, y = datasets.load_wine(return_X_y=True)
    elif name == "breast cancer":
        X, y = datasets.load_breast_cancer(return_X_y=True)
    elif name == "digits":
        X, y = datasets.load_digits(return_X_y=True)
    else:
        X, y = datasets.make_classification(
            n, d, n_informative=min(d, 10), n_redundant=min(d // 4, d - 10),
            n_classes=k, class_sep=1.5, flip_y=0.03, random_state=0,
        )  # fmt: skip
    return X[:n], y[:n]


def model(name: str, X: np.ndarray):
    """Return a search by name."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name.startswith("GridSearchCV"):
        from sklearn.svm import SVC, SVR

        part = SVR() if "SVR" in name else SVC()
        step = type(part).__name__.lower()
        grid = {
            f"{step}__C": [0.1, 1.0, 10.0, 100.0],
            f"{step}__gamma": [f / X.shape[1] for f in (0.1, 0.3, 1.0, 3.0)],
        }
        return GridSearchCV(make_pipeline(StandardScaler(), part), grid, cv=5)
    import mklearn

    return getattr(mklearn, name.removesuffix("()"))()


def measured(name: str, on: str, halves: int) -> dict:
    """Return the cost of one search in this process, and the scores of its models."""
    X, y = table(on)
    search = model(name, X)
    cpu, wall = time.process_time(), time.perf_counter()
    search.fit(X, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    whole = time.process_time()
    scores = []
    for seed in range(halves):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[: len(X) // 2], order[len(X) // 2 :]
        scores.append(model(name, X).fit(X[train], y[train]).score(X[test], y[test]))
    return {"cpu": cpu, "wall": wall, "process": whole, "scores": scores}


def in_process(name: str, on: str, source: Path, repeats: int, halves: int) -> dict:
    """Return the smallest costs over several processes, and the scores."""
    found = [
        alone(measured, name, on, 0 if number else halves, source=source)
        for number in range(repeats)
    ]
    best = {key: min(one[key] for one in found) for key in ("cpu", "wall", "process")}
    return {**best, "scores": found[0]["scores"]}


def shown(name: str, own: dict, unit: dict) -> str:
    """Return a line about one search, relative to another."""
    ratios = "  ".join(f"{own[k] / unit[k]:6.2f}" for k in ("cpu", "process", "wall"))
    text = f"  {name:30s} {ratios}   {own['cpu']:8.2f} s"
    if own["scores"]:
        off = np.subtract(own["scores"], unit["scores"])
        error = np.std(off) / max(1.0, len(off) - 1) ** 0.5
        text += f"   {np.mean(own['scores']):.4f} ({np.mean(off):+.4f} ± {error:.4f})"
    return text


def main() -> None:
    """Run all tables and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small table")
    parser.add_argument("--against", help="src folder of another checkout")
    parser.add_argument("--others", action="store_true", help="all that search")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES))
    parser.add_argument("--repeats", type=int, help="3 by default, 1 with --quick")
    parser.add_argument("--halves", type=int, help="number of splits for accuracies")
    parser.add_argument("--json", type=Path, help="write all figures here")
    args = parser.parse_args()
    halves = (1 if args.quick else 5) if args.halves is None else args.halves
    repeats = args.repeats or (1 if args.quick else 3)
    names = args.tables or (["wine"] if args.quick else list(TABLES))
    pairs = {OURS: SVC, **(OTHERS if args.others else {})}
    sources = {"": SOURCE}
    if args.against:
        sources[", other"] = Path(args.against).resolve()
    if repeats > 1:  # fill the cache of compiled functions
        for source, ours in product(sources.values(), pairs):
            in_process(ours, "wine", source, 1, 0)
    print("ratios of CPU time of fit, CPU time with imports, wall time")
    rows = []
    for on in names:
        print("{}: {} samples, {} columns, {} classes".format(on, *TABLES[on]))
        units: dict = {}
        for ours, unit in pairs.items():
            if unit not in units:
                units[unit] = in_process(unit, on, SOURCE, repeats, halves)
                print(shown(unit, units[unit], units[unit]))
            for note, source in sources.items():
                own = in_process(ours, on, source, repeats, halves)
                print(shown(ours + note, own, units[unit]), flush=True)
                rows.append({"table": on, "search": ours + note, **own})
        rows += [{"table": on, "search": unit, **own} for unit, own in units.items()]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
