"""Speed of discriminant kernel learning, as ratios within one run.

    python benchmarks/discriminant.py solvers  # newton, silp: n, k, M
    python benchmarks/discriminant.py conic    # qcqp, sdp against newton, few samples
    python benchmarks/discriminant.py search   # double cross-validation against newton
    python benchmarks/discriminant.py growth   # the exponent of n
    python benchmarks/discriminant.py memory   # n = 10 000, 10 kernels: peak memory

The unit of ``conic`` and ``search`` is newton; that of all other parts is a lower bound
on the work: one Cholesky factorisation of size n by LAPACK, with all cores. Newton
stops at a certified gap of 1e-6, silp at the 5e-4 of Ye, Ji and Chen (2008). Kernels
are RBF, evaluated from stored squared distances. ``--quick`` runs small sizes, ``--json
FILE`` writes all numbers, ``--page FILE`` a Markdown table. With ``--quick`` several
parts can be named.

Data: USPS digits if MKLEARN_DATA names a folder with usps.npz, otherwise the digits of
scikit-learn with noise.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pages import page
from parts import each_part
from scipy.linalg import cho_factor
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from svm_ratio import cost

from mklearn import KernelBank, MKLDiscriminant, SingleKernelCV, kernels, solve
from mklearn.datasets import load
from mklearn.kernels.normalise import CENTRED_TRACE, fit_normaliser
from mklearn.problems.discriminant import class_targets, kfda, rkda, rkda_joint
from mklearn.solvers import Conic, CuttingPlane, Newton, Semidefinite

REG = 5e-4


def samples(n: int, k: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return n samples of the first k digits, their classes and the data set's name."""
    rng = np.random.default_rng(0)
    try:
        X, y = load("usps", download=False, return_X_y=True)
        X, name = X.astype(float), "USPS"
    except FileNotFoundError:
        X, y = load_digits(return_X_y=True)
        X, name = X / 8.0 - 1.0, "digits + noise"
    rows = np.flatnonzero(y < k)
    replace = len(rows) < n
    rows = rng.choice(rows, n, replace=replace)
    noise = 0.1 * rng.standard_normal((n, X.shape[1])) if replace else 0.0
    return X[rows] + noise, y[rows], name


def rbf(M: int, X: np.ndarray) -> list:
    """Return M widths around the typical distance."""
    typical = np.sqrt(2.0 * X.var(axis=0).sum())
    return [kernels.RBF(1 / (2 * s**2)) for s in typical * np.geomspace(0.03, 30, M)]


def task(n: int, k: int, M: int, learned: bool = False, criterion: str = "rkda"):
    """Return a problem with its kernels in memory, and the name of the data."""
    X, y, name = samples(n, k)
    bank = KernelBank(X, rbf(M, X)).stored()
    bank = fit_normaliser(CENTRED_TRACE, bank).train(bank)
    if criterion == "kfda":
        return kfda(bank, y, REG), name
    H = class_targets(y, k)
    return (rkda_joint(bank, H) if learned else rkda(bank, H, REG)), name


def run(problem, solver, tol: float, limit: float = 600.0) -> dict:
    """Return time, iterations and gap of one solve."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        cpu, used, solution = cost(
            lambda: solve(problem, solver, tol=tol, time_limit=limit), 1
        )
    return {
        "cpu_s": cpu,
        "time_s": used,
        "gap": solution.gap,
        "iterations": solution.n_iter,
        "status": solution.status.name,
        "objective": solution.upper,
    }


def floor(n: int) -> float:
    """Return the seconds of one Cholesky factor of size n."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((n, 20))
    best = np.inf
    for _ in range(3):
        K = np.asfortranarray(B @ B.T)
        K[np.diag_indices(n)] += 1.0
        start = time.perf_counter()
        cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        best = min(best, time.perf_counter() - start)
    return best


def warm_up() -> None:
    """Compile everything on a small problem."""
    for learned in (False, True):
        problem, _ = task(60, 3, 3, learned)
        for solver in (Newton(), CuttingPlane(level=0.0)):
            run(problem, solver, 1e-4)


def solvers(quick: bool, chosen: Sequence[int] = (200, 1000, 2000, 4000)) -> list[dict]:
    """Newton at 1e-6 and silp at 5e-4, in multiples of one Cholesky factor."""
    warm_up()
    sizes = [(60, 3, 3)] if quick else [
        (n, k, M)
        for n in chosen for k in (2, 6, 10) for M in (10, 50)
    ]  # fmt: skip
    rows = []
    for n, k, M in sizes:
        unit = floor(n)
        for learned in (False, True):
            problem, name = task(n, k, M, learned)
            for label, solver, tol in (
                ("newton", Newton(), 1e-6),
                ("silp", CuttingPlane(level=0.0), 5e-4),
            ):
                row = {"data": name, "n": n, "k": k, "M": M, "solver": label}
                row["reg"] = "learned" if learned else "fixed"
                row |= {"tol": tol, "cholesky_s": unit} | run(problem, solver, tol)
                row["ratio"] = row["time_s"] / unit
                rows.append(row)
                print(
                    f"n {n:5d} k {k:2d} M {M:2d} reg {row['reg']:7s} {label:6s} "
                    f"{row['ratio']:8.1f} x Cholesky, {row['iterations']:3d} factors, "
                    f"gap {row['gap']:.1e} {row['status']}",
                    flush=True,
                )
    return rows


def conic(quick: bool, chosen: Sequence[int] = (50, 100, 150)) -> list[dict]:
    """The programs of the papers by general solvers, in multiples of newton."""
    warm_up()
    rows = []
    sizes = (30,) if quick else chosen
    M = 3 if quick else 10
    for n in sizes:
        for label, k, criterion, programs in (
            ("rkda", 2, "rkda", ("qcqp", "sdp", "sdp-scs")),
            ("rkda", 3, "rkda", ("qcqp", "sdp-approx-scs")),
            ("kfda", 2, "kfda", ("qcqp", "sdp", "sdp-scs")),
        ):
            problem, name = task(n, k, M, criterion=criterion)
            ours = run(problem, Newton(), 1e-6)
            rows.append(
                {"data": name, "n": n, "k": k, "M": M, "criterion": label,
                 "solver": "newton", **ours, "ratio": 1.0}
            )  # fmt: skip
            for program in programs:
                if program == "sdp" and n > 100:
                    continue
                solver = {
                    "qcqp": Conic(),
                    "sdp": Semidefinite(),
                    "sdp-scs": Semidefinite(backend="scs", accuracy=1e-6),
                    "sdp-approx-scs": Semidefinite(True, "scs", 1e-6),
                }[program]
                row = {"data": name, "n": n, "k": k, "M": M, "criterion": label}
                row |= {"solver": program} | run(problem, solver, 1e-6)
                row["status"] = "judged"  # the accuracy of general solvers varies
                row["ratio"] = row["time_s"] / ours["time_s"]
                rows.append(row)
                print(
                    f"n {n:4d} k {k} {label} {program:15s} {row['time_s']:8.2f} s, "
                    f"{row['ratio']:8.0f} x newton, gap {row['gap']:.1e}",
                    flush=True,
                )
    return rows


def search(quick: bool) -> list[dict]:
    """Double cross-validation of kernel and reg, in multiples of learning them."""
    warm_up()
    rows = []
    for n, k in [(60, 3)] if quick else [(200, 2), (200, 6), (1000, 6)]:
        X, y, name = samples(n, k)
        specs = rbf(3 if quick else 10, X)
        values = np.logspace(-6, 0, 3 if quick else 7)
        model = MKLDiscriminant(specs, reg="learn")
        cpu, took, _ = cost(lambda m=model, X=X, y=y: m.fit(X, y), 2)
        other = SingleKernelCV(MKLDiscriminant(), specs, values=values, cv=5)
        their_cpu, theirs, _ = cost(lambda m=other, X=X, y=y: m.fit(X, y), 1)
        rows.append(
            {"data": name, "n": n, "k": k, "M": len(specs), "values": len(values),
             "newton_cpu_s": cpu, "newton_s": took, "search_cpu_s": their_cpu,
             "search_s": theirs, "ratio": their_cpu / cpu, "gap": model.duality_gap_}
        )  # fmt: skip
        print(
            f"n {n} k {k}: learned {took:.2f} s, double cross-validation {theirs:.2f} "
            f"s, {theirs / took:.0f} x",
            flush=True,
        )
    return rows


def growth(quick: bool) -> list[dict]:
    """Growth of the time of newton with n, compared with a Cholesky factorisation."""
    warm_up()
    sizes = (100, 200) if quick else (500, 1000, 2000, 4000)
    rows = []
    for n in sizes:
        problem, name = task(n, 6, 5 if quick else 10)
        best = min((run(problem, Newton(), 1e-6) for _ in range(2)),
                   key=lambda row: row["time_s"])  # fmt: skip
        rows.append({"data": name, "n": n, "k": 6, **best, "cholesky_s": floor(n)})
    for column in ("time_s", "cholesky_s"):
        times = [row[column] for row in rows]
        exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
        rows[-1][f"exponent_{column}"] = exponent
        print(f"{column} grows as n^{exponent:.2f}: {np.round(times, 3)}")
    return rows


def memory(quick: bool) -> list[dict]:
    """Peak memory of a complete fit with many samples."""
    n, k, M = (300, 3, 3) if quick else (10_000, 3, 10)
    X, y, name = samples(n, k)
    model = MKLDiscriminant(rbf(M, X))
    cpu, took, _ = cost(lambda: model.fit(X, y), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"n {n} M {M}: {took:.0f} s, gap {model.duality_gap_:.1e}, {model.n_iter_} "
        f"factors, peak {peak:.0f} MB ({8e-6 * n * n:.0f} MB for one Gram)"
    )
    return [
        {"data": name, "n": n, "k": k, "M": M, "cpu_s": cpu, "time_s": took,
         "peak_mb": peak,
         "gap": model.duality_gap_, "iterations": model.n_iter_}
    ]  # fmt: skip


PARTS = {
    "solvers": solvers,
    "conic": conic,
    "search": search,
    "growth": growth,
    "memory": memory,
}

UNITS = {
    "solvers": "that of one Cholesky factorisation of size n",
    "conic": "that of Newton's method",
    "search": "that of Newton's method",
}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", help="n (solvers, conic)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="write a Markdown table here")
    for args in each_part(parser, PARTS):
        run_part(args)


def run_part(args: argparse.Namespace) -> None:
    """Run one part, and fail if a certificate is missing."""
    sized = args.sizes and args.part in ("solvers", "conic")
    rows = PARTS[args.part](args.quick, *([args.sizes] if sized else []))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.page:
        args.page.write_text(
            page(
                f"Speed of discriminant kernel learning: {args.part}",
                f"discriminant.py {args.part}",
                rows,
                unit=UNITS.get(args.part, ""),
            )
        )
    if any(row.get("status") not in (None, "OPTIMAL", "judged") for row in rows):
        sys.exit("a certificate is missing, see above")


if __name__ == "__main__":
    main()
