"""Multi-class MKL against its competitors: ratios of time within one run, and errors.

    python benchmarks/multiclass.py paper    # 1000 samples, 10 RBF kernels, 4 data sets
    python benchmarks/multiclass.py general  # Zien & Ong by a general conic solver
    python benchmarks/multiclass.py protein  # up to 5000 sequences, 69 kernels

The Gram matrices are given, so that only learning is timed. The unit is "sum + SVC":
summing the Grams and fitting ``OneVsRestClassifier(SVC(kernel="precomputed"))`` on the
sum. Every method stops at a relative duality gap of 1e-3 of its own problem; ``status``
shows which did not reach it within ``--limit`` seconds. ``--cost cv`` chooses C of each
method from 0.5, 1 and 10 by 3-fold cross-validation, like Kobayashi & Otsu; only the
final fit is timed. ``--quick`` runs small sizes, ``--json FILE`` writes all numbers,
``--page FILE`` a Markdown table. With ``--quick`` several parts can be named.

Data: the .npz files in the folder named by MKLEARN_DATA; without them, the digits of
scikit-learn and random sequences. The 69 kernels of the protein task are not available;
those of ``reproduction.proteins`` are used instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pages import page
from parts import each_part
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC
from svm_ratio import cost as timed

from mklearn import (
    BilinearMKLClassifier,
    CrammerSingerClassifier,
    KernelBank,
    MKLClassifier,
    kernels,
)
from mklearn.datasets import load
from mklearn.solvers import Conic, CuttingPlane

sys.path.insert(0, str(Path(__file__).parents[1]))
from reproduction.proteins import (
    LETTERS,
    PATTERNS,
    sequences,
    string_grams,
)

SETS = ("waveform", "satimage", "segment", "usps")
SIGMAS = np.geomspace(0.1, 100.0, 10)
COSTS = (0.5, 1.0, 10.0)


class SumSVC:
    """One-vs-rest SVC on the sum of the Grams, with the interface of the others."""

    def __init__(self, C: float = 1.0) -> None:
        self.C = C

    def fit(self, bank: KernelBank, y: np.ndarray) -> SumSVC:
        """Sum the Grams and fit."""
        svc = SVC(kernel="precomputed", C=self.C, cache_size=1000)
        self.model = OneVsRestClassifier(svc).fit(total(bank), y)
        return self

    def score(self, bank: KernelBank, y: np.ndarray) -> float:
        """Return the accuracy."""
        return float(self.model.score(total(bank), y))

    def set_params(self, C: float) -> SumSVC:
        """Return a new instance with this cost."""
        return SumSVC(C)


def total(bank: KernelBank) -> np.ndarray:
    """Return the unweighted sum of the Grams."""
    return bank.combine(np.ones(bank.shape[2]))


def methods(limit: float, slow: bool = True) -> dict[str, Any]:
    """Return the methods by name; ``slow`` adds those of the literature."""
    given: dict[str, Any] = {
        "kernels": "precomputed", "normalize": None, "psd": "ignore", "tol": 1e-3,
        "time_limit": limit, "max_iter": 10**6,
    }  # fmt: skip

    def bilinear(**more: Any) -> BilinearMKLClassifier:
        return BilinearMKLClassifier(**given, **more)

    def simple(weights: str) -> MKLClassifier:
        return MKLClassifier(
            **given, norm=1, solver="reduced_gradient", weights=weights
        )

    table = {
        "sum + SVC": SumSVC(),
        "bilinear": bilinear(),
        "bilinear, shared weights": bilinear(weights="shared"),
        "Crammer-Singer, sum": CrammerSingerClassifier(**given),
        "SimpleMKL per class": simple("per-class"),
        "SimpleMKL shared": simple("shared"),
    }
    if slow:
        table |= {
            "bilinear, closed form": bilinear(solver="alternating"),
            "bilinear, projected gradient": bilinear(solver="projected_gradient"),
            "Zien & Ong, SILP": bilinear(
                weights="shared", solver=CuttingPlane(level=0.0)
            ),
        }
    return table


def samples(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return a data set and its name; the digits of scikit-learn if it is missing."""
    try:
        X, y = load(
            "waveform21" if name == "waveform" else name,
            download=False,
            return_X_y=True,
        )
    except FileNotFoundError:
        X, y = load_digits(return_X_y=True)
        return X / 16.0, y, "digits"
    return X.astype(float), np.unique(y, return_inverse=True)[1], name


def rbf_task(name: str, n: int, seed: int) -> tuple[Any, ...]:
    """Return training and test Grams of ten RBF kernels, with the labels."""
    X, y, name = samples(name)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:n], order[n : n + 4000]
    if name not in ("usps", "digits"):  # columns of different units
        spread = X[train].std(axis=0)
        X = (X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    ladder = kernels.rbf_ladder(gammas=1.0 / (2.0 * SIGMAS**2))
    bank = KernelBank(X[train], ladder)
    cross = bank.cross(X[test])
    M = len(SIGMAS)
    return (
        KernelBank.from_grams([bank.gram(m) for m in range(M)]),
        y[train],
        KernelBank.from_grams([cross.gram(m) for m in range(M)], cross=True),
        y[test],
        name,
    )


def best_cost(model: Any, bank: KernelBank, y: np.ndarray) -> float:
    """Return the C with the best accuracy in 3-fold cross-validation."""
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(y, y))

    def score(C: float) -> float:
        return float(
            np.mean(
                [
                    copy_of(model, C)
                    .fit(bank[np.ix_(a, a)], y[a])
                    .score(bank[np.ix_(b, a)], y[b])
                    for a, b in folds
                ]
            )
        )

    return max(COSTS, key=score)


def copy_of(model: Any, C: float) -> Any:
    """Return an unfitted copy with another cost."""
    return SumSVC(C) if isinstance(model, SumSVC) else clone(model).set_params(C=C)


def measure(
    model: Any, cost: str, train: KernelBank, y: np.ndarray,
    test: KernelBank, y_test: np.ndarray,
) -> dict:  # fmt: skip
    """Fit one method; return its time, error and certificate."""
    C = best_cost(model, train, y) if cost == "cv" else float(cost)
    model = copy_of(model, C)
    if isinstance(model, MKLClassifier) and model.weights == "per-class":
        # a problem for each class; the limit is for all of them together
        model.set_params(time_limit=model.time_limit / len(np.unique(y)))
    cpu, took, _ = timed(lambda: model.fit(train, y), 1)
    row = {"C": C, "cpu_s": cpu, "time_s": took}
    row["error"] = 1.0 - float(model.score(test, y_test))
    solutions = getattr(model, "solution_", None)
    if solutions is not None:
        every = solutions if isinstance(solutions, list) else [solutions]
        late = [s.status.name for s in every if s.gap > 1e-3]
        row |= {
            "gap": float(model.duality_gap_),
            "iterations": int(model.n_iter_),
            "kernels_used": int(np.count_nonzero(model.kernel_weights_)),
            "status": late[0] if late else "OPTIMAL",
        }
    return row


def warm_up() -> None:
    """Compile everything on a small problem."""
    train, y, test, y_test, _ = rbf_task("digits", 60, 0)
    for model in methods(5.0).values():
        measure(model, "1", train, y, test, y_test)


def compare(
    task: Callable[[], tuple[Any, ...]], table: dict[str, Any], cost: str, about: dict
) -> list[dict]:
    """Run all methods on one task and print them as multiples of the unit."""
    train, y, test, y_test, name = task()
    rows, unit = [], np.nan
    print(f"\n{name}: n = {len(y)}, {len(np.unique(y))} classes, M = {train.shape[2]}")
    for method, model in table.items():
        row = {"data": name, **about, "method": method}
        row |= measure(model, cost, train, y, test, y_test)
        unit = row["time_s"] if method == "sum + SVC" else unit
        row["ratio"] = row["time_s"] / unit
        rows.append(row)
        print(
            f"  {method:30s} {row['time_s']:8.2f} s {row['ratio']:8.1f} x  error "
            f"{100 * row['error']:5.2f} %  C {row['C']:g}  gap {row.get('gap', 0):.0e} "
            f"{row.get('status', '')}",
            flush=True,
        )
    return rows


def paper(args: argparse.Namespace) -> Iterator[list[dict]]:
    """The setting of Kobayashi & Otsu, section 4."""
    warm_up()
    n, names = (120, SETS[:1]) if args.quick else (1000, SETS)
    for name, seed in product(names, range(args.repeats)):
        yield compare(
            lambda name=name, seed=seed: rbf_task(name, n, seed),
            methods(args.limit), args.cost, {"n": n, "repeat": seed},
        )  # fmt: skip


def general(args: argparse.Namespace) -> Iterator[list[dict]]:
    """Zien & Ong's problem by a conic solver, with the same tolerance as ours."""
    warm_up()
    for n in (40,) if args.quick else args.sizes or (100, 200):
        for name in ("waveform",) if args.quick else ("waveform", "segment"):
            given: dict[str, Any] = {
                "kernels": "precomputed", "normalize": None, "psd": "ignore",
            }  # fmt: skip
            shared = {"weights": "shared", **given}
            table = {
                "sum + SVC": SumSVC(),
                "bilinear": BilinearMKLClassifier(**given),
                "bilinear, shared weights": BilinearMKLClassifier(**shared),
                "Zien & Ong, conic solver": BilinearMKLClassifier(
                    **shared, solver=Conic(accuracy=1e-5)
                ),
                "bilinear, conic solver": BilinearMKLClassifier(
                    **given, solver=Conic(accuracy=1e-5)
                ),
            }
            found = compare(
                lambda name=name, n=n: rbf_task(name, n, 0), table, args.cost, {"n": n}
            )
            times = {row["method"]: row["time_s"] for row in found}
            ours, theirs = times["bilinear"], times["Zien & Ong, conic solver"]
            print(f"  Zien & Ong by a conic solver takes {theirs / ours:.0f} x as long")
            for row in found:
                row["ratio_to_bilinear"] = row["time_s"] / ours
            yield found


# --- protein localisation -------------------------------------------------------------


def proteins(n: int) -> tuple[list[str], np.ndarray, str]:
    """Return sequences of proteins and their locations in the cell."""
    rng = np.random.default_rng(0)
    try:
        strings, y = sequences()
    except FileNotFoundError:
        y = np.arange(n) % 4
        even = np.full(20, 0.05)
        odds = [rng.dirichlet(40 * even) for _ in range(4)]
        letters = list(LETTERS)
        found = ["".join(rng.choice(letters, 150, p=odds[c])) for c in y]
        return found, y, "random sequences"
    chosen = rng.permutation(len(y))[:n]
    found = [strings[i] for i in chosen]
    y = np.unique(y, return_inverse=True)[1]
    return found, y[chosen], "MultiLoc"


def protein(args: argparse.Namespace) -> Iterator[list[dict]]:
    """Many kernels and many samples; the other sequences are test samples."""
    warm_up()
    sizes = [80] if args.quick else args.sizes or [1000, 2400, 5000]
    rest = 40 if args.quick else 900
    strings, y, name = proteins(max(sizes) + rest)
    few = {"patterns": PATTERNS[:1], "spectra": (3,)} if args.quick else {}
    start = time.perf_counter()
    grams = string_grams(strings, **few)
    print(f"{len(grams)} kernels: {time.perf_counter() - start:.0f} s")
    test = np.arange(len(y) - rest, len(y))
    for n in sizes:
        kept = np.arange(n)

        def task(kept: np.ndarray = kept) -> tuple[Any, ...]:
            train = [K[: len(kept), : len(kept)] for K in grams]
            cross = [K[test, : len(kept)] for K in grams]
            return (
                KernelBank.from_grams(train),
                y[kept],
                KernelBank.from_grams(cross, cross=True),
                y[test],
                name,
            )

        table = methods(args.limit, slow=False)
        yield compare(task, table, args.cost, {"n": n, "M": len(grams)})


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cost", default="1", help="a number, or cv")
    parser.add_argument("--repeats", type=int, default=1, help="random splits (paper)")
    parser.add_argument(
        "--limit",
        type=float,
        default=300.0,
        help="seconds of a fit, all classes together",
    )
    parser.add_argument("--sizes", type=int, nargs="*", help="of general, protein")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="write a Markdown table here")
    parts = {"paper": paper, "general": general, "protein": protein}
    for args in each_part(parser, parts):
        rows: list[dict] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for found in parts[args.part](args):
                rows += found
                write(args, rows)


def write(args: argparse.Namespace, rows: list[dict]) -> None:
    """Write the results so far, so that an interrupted run keeps its measurements."""
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.page:
        sizes = "".join(f" {n}" for n in args.sizes or ())
        args.page.write_text(
            page(
                f"Multi-class MKL and its competitors: {args.part}",
                f"multiclass.py {args.part} --cost {args.cost}"
                + (f" --sizes{sizes}" if sizes else "")
                + f" --limit {args.limit:g}",
                rows,
                " `error` is that on samples not used for training.",
                "that of summing the Grams and fitting one-vs-rest `SVC` on the sum",
            )
        )


if __name__ == "__main__":
    main()
