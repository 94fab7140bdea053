"""Cost of models with default settings on small tables, and cost of the first fit.

    python benchmarks/tables.py fit      # fit and predict, defaults, kernels="auto"
    python benchmarks/tables.py first    # import, first fit, compilation

The unit of ``fit`` is ``make_pipeline(StandardScaler(), SVC())``, fitted and used for
predictions on the same table in the same process, alternating with the models, so that
all have the same load; the shortest times count. Times are CPU times of all threads,
with ratios of wall times in brackets. ``first`` starts separate processes and measures
``import mklearn`` in units of ``import sklearn.svm``, the difference between the first
and second fits of a process if compiled functions are on disk, and the time if nothing
is compiled yet.

``--against SRC`` measures the library in another folder (``src`` of another checkout)
alternately with this one and prints both; ``--json FILE`` writes all figures.
``--quick`` runs two small tables in one process, and the first fits of one model; both
parts can be named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from parts import alone, each_part

OWN = Path(__file__).parents[1] / "src"
TABLES = ("wine", "breast cancer", "digits", "two of 57", "four of 18")
QUICK = ("wine", "four of 18")
CALLS = {
    "p = 2": "MKLClassifier(norm=2)",
    "p = 1": "MKLClassifier(norm=1)",
    "discriminant": "MKLDiscriminant()",
    "bilinear": "BilinearMKLClassifier()",
}
AIMS = {"p = 2": 4.0, "p = 1": 8.0, "discriminant": 10.0, "bilinear": 10.0}


def table(name: str):
    """Return samples and labels."""
    from sklearn import datasets

    if name == "two of 57":  # like spam, with many uninformative columns
        return datasets.make_classification(
            1500, 57, n_informative=20, n_redundant=10, flip_y=0.05, random_state=0
        )
    if name == "four of 18":
        return datasets.make_classification(
            846, 18, n_informative=10, n_redundant=4, n_classes=4, flip_y=0.05,
            class_sep=1.5, random_state=0,
        )  # fmt: skip
    return getattr(datasets, f"load_{name.replace(' ', '_')}")(return_X_y=True)


def clocked(function: Callable[[], object]) -> tuple[float, float]:
    """Return CPU and wall seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return time.process_time() - cpu, time.perf_counter() - wall


# --- in separate processes ------------------------------------------------------------


def measure_fit(name: str, seconds: float, least: int) -> dict:
    """Return the CPU and wall times of fit and predict, the shortest of each.

    There are at least ``least`` repetitions, and more within some seconds.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    import mklearn

    X, y = table(name)
    models = {"unit": make_pipeline(StandardScaler(), SVC())}
    for label, call in CALLS.items():
        models[label] = eval(call, vars(mklearn))  # the text that is printed, too
    out: dict = {label: {"fit": [], "predict": []} for label in models}
    for model in models.values():  # load compiled functions, and warm up caches
        model.fit(X, y).predict(X)
    began, turns = time.perf_counter(), 0
    while turns < least or time.perf_counter() - began < seconds:
        for label, model in models.items():
            out[label]["fit"].append(clocked(lambda m=model: m.fit(X, y)))
            out[label]["predict"].append(clocked(lambda m=model: m.predict(X)))
        turns += 1
    for label, model in models.items():
        for what, times in out[label].items():
            out[label][what] = [min(column) for column in zip(*times, strict=True)]
        if label != "unit":
            out[label]["gap"] = float(model.duality_gap_)
            out[label]["ended"] = model.solution_.status.name
    return {"n": len(X), "classes": len(set(y.tolist())), "turns": turns, **out}


def measure_first(labels: list[str]) -> dict:
    """Return the CPU and wall times of the first and of the second fits."""
    import mklearn

    X, y = table("wine")
    out: dict = {}
    for label in labels:
        model = eval(CALLS[label], vars(mklearn))
        out[label] = [clocked(lambda m=model: m.fit(X, y).predict(X)) for _ in "12"]
    return out


# --- the tables -----------------------------------------------------------------------


def fit(sources: list[Path], quick: bool, seconds: float) -> list[dict]:
    """Print the ratios of all tables."""
    rows = []
    print("CPU time of fit and predict in units of StandardScaler + SVC (wall in [])")
    for name in QUICK if quick else TABLES:
        for source in sources:
            if quick and source == OWN:
                row = measure_fit(name, 0.0, 1)
            else:
                row = alone(measure_fit, name, seconds, 3, source=source)
            rows.append({"table": name, "source": str(source), **row})
            unit = row["unit"]
            print(
                f"\n{name}, n = {row['n']}, {row['classes']} classes"
                f"{'' if source == OWN else f', {source}'}: unit "
                f"{1e3 * unit['fit'][0]:.2f} ms, {1e3 * unit['predict'][0]:.2f} ms"
            )
            for label in CALLS:
                found = row[label]
                parts = [
                    f"{what} {found[what][0] / unit[what][0]:6.1f} "
                    f"[{found[what][1] / unit[what][1]:6.1f}]"
                    for what in ("fit", "predict")
                ]
                print(
                    f"  {label:14s}{'   '.join(parts)}   "
                    f"aim {AIMS[label]:g}   {found['ended']}, gap {found['gap']:.1e}"
                )
    return rows


IMPORT = (
    "import time; c = time.process_time(), time.perf_counter(); import {}; "
    "print(time.process_time() - c[0], time.perf_counter() - c[1])"
)


def imported(source: Path, module: str, repeats: int) -> list[float]:
    """Return the shortest CPU and wall seconds of several imports."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed ones have bytecode
    times = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT.format(module)],
            capture_output=True,
            text=True,
            check=True,
            env={**environment, "PYTHONPATH": str(source)},
        )
        times.append([float(value) for value in done.stdout.split()])
    return [min(column) for column in zip(*times, strict=True)]


def first(sources: list[Path], quick: bool, seconds: float) -> list[dict]:
    """Print the cost of the first fits."""
    rows, repeats = [], 1 if quick else 7
    labels = list(CALLS)[: 1 if quick else None]
    for source in sources:
        print(f"\n{source}" if len(sources) > 1 else "")
        unit = imported(source, "sklearn.svm", repeats)
        ours = imported(source, "mklearn", repeats)
        print(
            f"import mklearn {ours[0]:.2f} s CPU, {ours[0] / unit[0]:.2f} "
            f"[{ours[1] / unit[1]:.2f}] times that of sklearn.svm"
        )
        row: dict = {"source": str(source), "import": ours, "unit": unit}
        with tempfile.TemporaryDirectory() as folder:
            for when in ("nothing compiled", "compiled on disk"):
                found = alone(
                    measure_first, labels, source=source, NUMBA_CACHE_DIR=folder
                )
                row[when] = found
                print(f"{when}: first fit and predict above the second, seconds of CPU")
                total = 0.0
                for label, (one, two) in found.items():
                    total += one[0] - two[0]
                    print(
                        f"  {label:14s}{one[0] - two[0]:7.2f} [{one[1] - two[1]:.2f}]"
                    )
                print(f"  together      {total:7.2f}")
        rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small tables")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each table")
    parser.add_argument("--against", type=Path, help="src of another checkout")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parts = {"fit": fit, "first": first}
    for args in each_part(parser, parts):
        sources = [OWN] + ([args.against.resolve()] if args.against else [])
        rows = parts[args.part](sources, args.quick, args.seconds)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
