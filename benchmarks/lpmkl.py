"""Speed of lp-norm MKL, as ratios within one run.

    python benchmarks/lpmkl.py solvers   # (a) every solver and norm, Grams given
    python benchmarks/lpmkl.py kernels   # (b) n = 1000 and growing numbers of kernels
    python benchmarks/lpmkl.py columns   # (b) as users call it, a kernel per column
    python benchmarks/lpmkl.py large     # (c) kernels on the fly, bounded memory
    python benchmarks/lpmkl.py growth    # exponents of n and M, with --figure FILE
    python benchmarks/lpmkl.py profile   # where the time goes

A fit is one of ``MKLClassifier`` with its defaults, but for what a column of the table
names (norm, solver, tolerance), and includes the validation of the kernels. The unit of
(a) and (b) is "sum + SVC": forming the sum of the given Grams and one
``SVC(kernel="precomputed")`` fit on it. The unit of (c) is one single-kernel
``SVC(kernel="rbf")`` fit on the same samples. ``ratio`` compares CPU time,
``wall_ratio`` wall time. ``--quick`` runs small sizes, ``--json FILE`` writes all
numbers, ``--page FILE`` a Markdown table. With ``--quick`` several parts can be named.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import sys
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
from pages import page
from parts import each_part
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC
from svm_ratio import cost, samples, widths
from textbook import silp, simple_mkl

from mklearn import KernelBank, MKLClassifier, kernels

NORMS = (1.0, 4 / 3, 2.0, 4.0, np.inf)
PARTS = ("solvers", "kernels", "columns", "large", "growth", "profile")
SOLVERS = ("auto", "newton", "alternating", "cutting_plane", "interleaved")


def run(given: object, X: object, y: np.ndarray, limit: float = 120.0, **options):
    """Return CPU and wall time, iterations and gap of one fit, with default settings.

    ``given`` are kernels of the samples X, or "precomputed" for Gram matrices X.
    """
    model = MKLClassifier(given, time_limit=limit, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cpu, wall, _ = cost(lambda: model.fit(X, y), 1)
    solution = model.solution_
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "gap": solution.gap,
        "iterations": solution.n_iter,
        "solver": solution.solver,
        "status": solution.status.name,
    }


def beside(row: dict, unit: tuple[float, float], **about) -> dict:
    """Return the row with its sizes, and its times relative to a unit."""
    ratios = {
        "ratio": row["cpu_s"] / unit[0],
        "wall_ratio": row["wall_s"] / unit[1],
    }
    return row | about | ratios


def given_grams(n: int, M: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return M Gram matrices and the labels.

    Above 4000 samples they are in single precision: 50 of 8000 take 26 GB in double.
    """
    X, y, _ = samples(n)
    bank = KernelBank(X, kernels.rbf_ladder(gammas=widths(M))).stored(storage="float64")
    dtype = np.float64 if n <= 4000 else np.float32
    return [bank.gram(m).astype(dtype) for m in range(M)], y


def sum_and_svc(grams: list[np.ndarray], y: np.ndarray) -> tuple[float, float]:
    """Return the CPU and wall seconds of summing and fitting."""

    def total() -> np.ndarray:
        S = np.zeros(grams[0].shape)
        for K in grams:
            S += K
        return S

    *summing, S = cost(total, 2)
    svc = SVC(kernel="precomputed", cache_size=1000)
    *fitting, _ = cost(lambda: svc.fit(S, y), 2)
    return summing[0] + fitting[0], summing[1] + fitting[1]


def warm_up() -> None:
    """Compile everything on a small problem."""
    X, y, _ = samples(60)
    ladder = kernels.rbf_ladder(gammas=widths(3))
    bank = KernelBank(X, ladder).stored()
    grams = [bank.gram(m) for m in range(3)]
    given = KernelBank.from_grams(grams)
    single = KernelBank.from_grams([K.astype(np.float32) for K in grams])
    for solver in SOLVERS:
        options = {"norm": 1, "solver": solver, "tol": 1e-7}
        run(ladder, X, y, 5.0, **options)
        for bank in (given, single):
            run("precomputed", bank, y, 5.0, **options)


def solvers(quick: bool) -> list[dict]:
    """(a) Each solver and norm on given Gram matrices."""
    warm_up()
    rows = []
    sizes = [(200, 5)] if quick else [(1000, 50), (4000, 50), (8000, 50)]
    for n, M in sizes:
        grams, y = given_grams(n, M)
        unit = sum_and_svc(grams, y)
        print(
            f"\nn = {n}, M = {M}: sum + SVC {unit[0]:.3f} s CPU, {unit[1]:.3f} s wall"
        )
        bank = KernelBank.from_grams(grams)
        for tol in (1e-3, 1e-6):
            for p in NORMS:
                for solver in SOLVERS:
                    slow = solver in ("alternating", "interleaved")
                    if solver == "cutting_plane" and p != 1:
                        continue
                    if slow and (tol < 1e-3 or p == 1 or n > 4000):
                        continue
                    row = run("precomputed", bank, y, norm=p, solver=solver, tol=tol)
                    row = beside(row, unit, n=n, M=M, p=p, tol=tol, asked=solver)
                    rows.append(row)
                    print(
                        f"  tol {tol:.0e} p {p:5.3g} {solver:14s} {row['ratio']:7.1f}  "
                        f"{row['iterations']:4d} it  gap {row['gap']:.1e} "
                        f"{row['status']}",
                        flush=True,
                    )
        if n <= 1000 or quick:
            for name, other in (("SILP", silp), ("SimpleMKL", simple_mkl)):
                cpu, wall, out = cost(partial(other, grams, y, tol=1e-3), 1)
                took = {"cpu_s": cpu, "wall_s": wall}
                rows.append(
                    beside(took, unit, n=n, M=M, p=1.0, tol=1e-3,
                           asked=f"{name} wrapper", **out)
                )  # fmt: skip
                print(
                    f"  tol 1e-03 p     1 {name + ' wrapper':14s} "
                    f"{rows[-1]['ratio']:7.1f}  {out['fits']:4d} fits "
                    f"gap {out['gap']:.1e}"
                )
    return rows


def many(quick: bool) -> list[dict]:
    """(b) n = 1000 and growing numbers of kernels, computed on the fly."""
    warm_up()
    n = 200 if quick else 1000
    X, y, _ = samples(n)
    rows = []
    for M in (5, 20) if quick else (50, 200, 1000, 10_000):
        ladder = kernels.rbf_ladder(gammas=1.0 / 1.2 ** np.linspace(0, 49, M))

        def alternative(ladder=ladder, M=M):
            S = KernelBank(X, ladder).combine(np.ones(M))
            return SVC(kernel="precomputed").fit(S, y)

        *unit, _ = cost(alternative, 1)
        for p in (1.0, 2.0):
            row = beside(run(ladder, X, y, 600.0, norm=p), unit, n=n, M=M, p=p)
            rows.append(row)
            print(
                f"M {M:6d} p {p:3g}: {row['cpu_s']:8.2f} s CPU, {row['ratio']:6.1f} x "
                f"(computing and summing the kernels + SVC), {row['iterations']} it, "
                f"gap {row['gap']:.1e} {row['solver']}",
                flush=True,
            )
    return rows


def columns(quick: bool) -> list[dict]:
    """(b) Independent kernels, one Gram for each of many columns, most of them noise.

    They are passed as a stack in single precision to ``MKLClassifier("precomputed")``,
    which validates them; CPU time.
    """
    warm_up()
    rows = []
    for n, M in [(40, 250)] if quick else [(100, 1500), (400, 4000), (400, 10_000)]:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, M))
        y = X[:, :20].sum(axis=1) + rng.standard_normal(n) > 0
        B = np.empty((n, n, M), np.float32)
        for i in range(n):
            B[i] = np.exp(-0.5 * (X[i] - X) ** 2)
        start, began = time.process_time(), time.perf_counter()
        SVC(kernel="precomputed").fit(B.mean(axis=2, dtype=float), y)
        unit, wall = time.process_time() - start, time.perf_counter() - began
        for p in (1.0, 2.0):
            MKLClassifier("precomputed", norm=p).fit(B[:40, :40], y[:40])  # compile
            for psd in ("check", "ignore"):
                model = MKLClassifier("precomputed", norm=p, psd=psd, time_limit=600)
                start, began = time.process_time(), time.perf_counter()
                model.fit(B, y)
                cpu = time.process_time() - start
                took = time.perf_counter() - began
                found = model.solution_
                rows.append(
                    {"n": n, "M": M, "p": p, "psd": psd, "cpu_s": cpu,
                     "ratio": cpu / unit, "wall_ratio": took / wall,
                     "gap": found.gap, "solver": found.solver,
                     "iterations": found.n_iter, "status": found.status.name}
                )  # fmt: skip
                print(rows[-1], flush=True)
    return rows


def large(quick: bool, sizes: list[int], alternative: bool) -> list[dict]:
    """(c) 50 kernels on the fly, with all defaults, against one-kernel SVC."""
    warm_up()
    rows = []
    for n in [600] if quick else sizes:
        X, y, name = samples(n)
        M = 5 if quick else 50
        ladder = kernels.rbf_ladder(gammas=widths(M))
        row = run(ladder, X, y, 7200.0)
        row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        row |= {"n": n, "M": M, "p": 2.0, "data": name}
        print(
            f"{name} n {n}: {row['cpu_s']:.1f} s CPU, {row['wall_s']:.1f} s, gap "
            f"{row['gap']:.1e}, {row['iterations']} it, peak {row['peak_mb']:.0f} MB "
            f"(all Grams: {8e-6 * n * n * M:,.0f} MB)",
            flush=True,
        )
        if alternative:
            gamma = float(widths(50)[30])
            svc = SVC(kernel="rbf", gamma=gamma, cache_size=2000)
            cpu, wall, _ = cost(lambda svc=svc, X=X, y=y: svc.fit(X, y), 1)
            row = beside(row, (cpu, wall), svc_cpu_s=cpu, svc_wall_s=wall)
            print(
                f"   SVC(kernel='rbf') {cpu:.1f} s CPU: ratio {row['ratio']:.2f}, "
                f"wall {row['wall_ratio']:.2f}",
                flush=True,
            )
        rows.append(row)
    return rows


def growth(quick: bool, figure: Path | None) -> list[dict]:
    """Growth of CPU time: exponents of n and M, fitted on a logarithmic scale."""
    warm_up()
    along = {
        "n": [(n, 20) for n in ((100, 200) if quick else (500, 1000, 2000, 4000))],
        "M": [(n, m) for n in (200 if quick else 1000,)
              for m in ((5, 10) if quick else (10, 30, 100, 300))],
    }  # fmt: skip
    rows, lines = [], {}
    for axis, cells in along.items():
        for p in (1.0, 2.0, np.inf):
            times = []
            for n, M in cells:
                X, y, _ = samples(n)
                ladder = kernels.rbf_ladder(gammas=widths(M))
                best = min((run(ladder, X, y, norm=p) for _ in range(3)),
                           key=lambda row: row["cpu_s"])  # fmt: skip
                times.append(best["cpu_s"])
                rows.append(best | {"n": n, "M": M, "p": p, "along": axis})
            at = [cell[axis == "M"] for cell in cells]
            exponent = float(np.polyfit(np.log(at), np.log(times), 1)[0])
            lines[axis, p] = (at, times, exponent)
            rows[-1]["exponent"] = exponent
            print(f"along {axis}, p = {p:g}: CPU time grows as {axis}^{exponent:.2f}")
    if figure is not None:
        draw(lines, figure)
    return rows


def draw(lines: dict, figure: Path) -> None:
    """Plot time against n and M on logarithmic scales."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    styles = {1.0: ("#0072B2", "o"), 2.0: ("#D55E00", "s"), np.inf: ("#009E73", "^")}
    for (axis, p), (at, times, exponent) in lines.items():
        ax = axes[int(axis == "M")]
        colour, marker = styles[p]
        name = "∞" if np.isinf(p) else f"{p:g}"
        label = f"p = {name}: {axis}$^{{{exponent:.2f}}}$"
        ax.loglog(at, times, color=colour, marker=marker, label=label)
        ax.set_xlabel("samples n (20 kernels)" if axis == "n" else "kernels M")
        ax.set_ylabel("CPU seconds to a gap of 1e-3")
        ax.set_xticks(at, [str(value) for value in at])
        ax.set_xticks([], minor=True)
    for ax in axes:
        ax.legend(frameon=False)
        ax.grid(which="both", alpha=0.2)
    fig.savefig(figure, dpi=120)
    plt.close(fig)


# parts of the time: label, and the function that is profiled
STAGES = {
    "rows of the combined kernel": ("bank.py", "columns"),
    "scores of all samples": ("bank.py", "apply"),
    "quadratic forms": ("bank.py", "quad"),
    "products for the Hessian": ("bank.py", "multiply"),
    "distances kept for a part of the samples": ("computed_source.py", "store"),
    "SMO steps": ("smo.py", "_smo"),
    "Cholesky factors": ("newton.py", "stable_factor"),
    "steps over the weight set": ("interior.py", "minimise_quadratic"),
}


def profile(quick: bool) -> list[dict]:
    """Shares of the total time, for given Gram matrices and for samples."""
    warm_up()
    rows = []
    for n, given in (
        [(300, True)] if quick else [(1000, True), (4000, True), (20_000, False)]
    ):
        M = 5 if quick else 50
        if given:
            grams, y = given_grams(n, M)
            what: tuple = ("precomputed", KernelBank.from_grams(grams))
        else:
            X, y, _ = samples(n)
            what = (kernels.rbf_ladder(gammas=widths(M)), X)
        for p in (1.0, 2.0):
            run(*what, y, 3600.0, norm=p)
            watch = cProfile.Profile()
            watch.enable()
            row = run(*what, y, 3600.0, norm=p)
            watch.disable()
            row |= {"n": n, "kernels": "given" if given else "computed", "p": p}
            spent = Counter()
            for (file, _, name), entry in pstats.Stats(watch).stats.items():
                if "mklearn" in file:
                    spent[Path(file).name, name] += entry[3]
            for label, function in STAGES.items():
                row[label] = f"{spent[function] / row['wall_s']:.0%}"
            rows.append(row)
            print(row)
        what = grams = None
    return rows


SUM = "that of the sum of the given Grams and one `SVC` on it"
UNITS = {
    "solvers": SUM,
    "kernels": SUM,
    "columns": "that of computing and summing the kernels and one `SVC` on the sum",
    "large": "that of one `SVC` with a single RBF kernel",
}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=[5000, 20_000, 60_000])
    parser.add_argument("--no-alternative", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="draw growth here (PNG)")
    parser.add_argument("--page", type=Path, help="write a Markdown table here")
    for args in each_part(parser, PARTS):
        run_part(args)


def run_part(args: argparse.Namespace) -> None:
    """Run one part, and fail if a certificate is missing."""
    if args.part == "solvers":
        rows = solvers(args.quick)
    elif args.part == "kernels":
        rows = many(args.quick)
    elif args.part == "columns":
        rows = columns(args.quick)
    elif args.part == "growth":
        rows = growth(args.quick, args.figure)
    elif args.part == "profile":
        rows = profile(args.quick)
    else:
        rows = large(args.quick, args.sizes, not args.no_alternative)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.page:
        args.page.write_text(
            page(
                f"Speed of lp-norm MKL: {args.part}",
                f"lpmkl.py {args.part}",
                rows,
                unit=UNITS.get(args.part, ""),
            )
        )
    if any(row.get("status") not in (None, "OPTIMAL") for row in rows):
        sys.exit("a certificate is missing, see above")


if __name__ == "__main__":
    main()
