"""Cost of a fit on given Gram matrices with default settings, relative to plain SVC.

The unit is the sum of the given Grams plus one ``SVC(kernel="precomputed")`` fit. It is
compared with ``MKLClassifier("precomputed", norm=p).fit(K, y)`` with all defaults,
including the validation of the kernels, for K with kernels last and for ``np.moveaxis``
of kernels first. CPU seconds, wall seconds and the load of the machine are reported.
Each row runs in its own process (except with ``--quick``), after functions have been
compiled.

    python benchmarks/as_called.py [--quick] [--against CHECKOUT/src] [--busy]

More than 64 kernels are RBF kernels of one noisy column each, at p = 1 alone
(``--many`` adds such rows); fewer are widths of one distance. ``--against`` runs the
same rows with the package in another folder, for a comparison of before and after.
``--busy`` repeats one row next to two busy processes, and reports the increase in CPU
seconds. ``--predict`` compares predictions of 100 000 samples with
those of an ``SVC`` with one kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
from pages import commit, page
from parts import alone
from sklearn.svm import SVC
from svm_ratio import cost, samples, widths

NORMS = (1.0, 4 / 3, 2.0, 4.0)
FULL = [(500, 10), (500, 50), (1000, 10), (1000, 50), (2000, 50), (4000, 50)]
MANY = [(300, 2000), (100, 10_000)]
QUICK = [(200, 5)]
WIDTHS = 64  # kernels up to which they are widths of one distance
PATIENCE = 120  # seconds after which a row of another package is abandoned


def grams(X: np.ndarray, M: int) -> np.ndarray:
    """Return M RBF Gram matrices, with the kernels first."""
    if M > WIDTHS:
        rng = np.random.default_rng(0)
        varied = X[:, X.std(axis=0) > 0.1]
        Z = varied[:, rng.integers(varied.shape[1], size=M)]
        Z = Z + 0.3 * rng.standard_normal(Z.shape)
        return np.stack([np.exp(-((z[:, None] - z) ** 2)) for z in Z.T])
    squares = (X**2).sum(axis=1)
    D = np.maximum(squares[:, None] + squares - 2 * X @ X.T, 0.0)
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0.0)
    first = np.empty((M, len(X), len(X)))
    for gamma, out in zip(widths(M), first, strict=True):
        np.exp(-gamma * D, out=out)
    return first


def run(n: int, M: int, norms: list[float]) -> dict:
    """Measure one row."""
    from mklearn import MKLClassifier  # the package of this process, not of the parent

    X, y, name = samples(n)
    first = grams(X, M)
    last = np.ascontiguousarray(np.moveaxis(first, 0, -1))

    def total() -> np.ndarray:
        S = np.zeros((n, n))
        for K in first:
            S += K
        return S

    sum_cpu, sum_wall, S = cost(total, 3)
    svc = SVC(kernel="precomputed", cache_size=1000)
    svc_cpu, svc_wall, _ = cost(lambda: svc.fit(S, y), 3)
    row: dict = {"n": n, "M": M, "data": name, "load": os.getloadavg()[0]}
    row["unit"] = [sum_cpu + svc_cpu, sum_wall + svc_wall]
    row["fits"] = []
    layouts = [("last", last), ("first", np.moveaxis(first, 0, -1))]
    for order, K in layouts if M <= WIDTHS else layouts[:1]:
        for p in norms if M <= WIDTHS else norms[:1]:
            model = MKLClassifier("precomputed", norm=p)
            model.fit(K[:60, :60], y[:60])  # compile
            cpu, wall, _ = cost(lambda model=model, K=K: model.fit(K, y))
            row["fits"].append(
                {"order": order, "p": p, "cpu": cpu, "wall": wall,
                 "gap": float(model.duality_gap_)}
            )  # fmt: skip
    return row


def measured(
    n: int, M: int, norms: list[float], source: Path | None, here: bool = False
) -> dict | None:
    """Run a row in its own process; None if another version takes too long."""
    limit = None if source is None else PATIENCE
    try:
        return alone(run, n, M, norms, here=here, source=source, timeout=limit)
    except subprocess.TimeoutExpired:
        return None


def show(row: dict | None, title: str) -> None:
    """Print the ratios of one row."""
    if row is None:
        print(f"{title}: not done after {PATIENCE} s")
        return
    cpu, wall = row["unit"]
    print(
        f"{title}: {row['data']}, unit {1e3 * cpu:.3g} ms CPU, {1e3 * wall:.3g} ms "
        f"wall, load {row['load']:.1f}"
    )
    for fit in row["fits"]:
        print(
            f"   kernels {fit['order']:5}  p = {fit['p']:.3g}:  "
            f"{fit['cpu'] / cpu:7.1f} x CPU  "
            f"{fit['wall'] / wall:7.1f} x wall   gap {fit['gap']:.1e}"
        )


def beside_others(n: int, M: int) -> dict:
    """Return the CPU seconds of one row, alone and next to two busy processes."""
    alone = measured(n, M, [2.0], None)
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop) for _ in range(2)]
    try:
        crowded = measured(n, M, [2.0], None)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert alone is not None and crowded is not None
    cpu = [min(fit["cpu"] for fit in row["fits"]) for row in (alone, crowded)]
    wall = [min(fit["wall"] for fit in row["fits"]) for row in (alone, crowded)]
    print(
        f"\nn = {n}, M = {M}, p = 2: {cpu[0]:.3g} s CPU ({wall[0]:.3g} s wall) alone, "
        f"{cpu[1]:.3g} s ({wall[1]:.3g} s) beside two busy processes: "
        f"{cpu[1] / cpu[0]:.2f} x the CPU time"
    )
    return {"n": n, "M": M, "cpu": cpu, "wall": wall}


def predicting(n: int, M: int, new: int, columns: int = 20) -> dict:
    """Return the cost of predictions, relative to ``SVC.predict`` with one RBF kernel.

    Labels are noise, so nearly all of the n training samples are support vectors.
    """
    from mklearn import MKLClassifier, kernels

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, columns)), rng.integers(2, size=n)
    X_new = rng.normal(size=(new, columns))
    svc = SVC(gamma=1 / columns).fit(X, y)
    ladder = kernels.rbf_ladder(gammas=np.logspace(-1, 1, M) / columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few iterations are enough here
        model = MKLClassifier(ladder, norm=4, max_iter=1).fit(X, y)
    model.predict(X_new[:500])
    theirs, _, _ = cost(lambda: svc.predict(X_new), 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours, _, _ = cost(lambda: model.predict(X_new), 1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    vectors = len(model.support_), int(svc.n_support_.sum())
    print(
        f"\n{new} new samples: {M} kernels, {vectors[0]} support vectors {ours:.3g} s "
        f"CPU; SVC, {vectors[1]} of them {theirs:.3g} s: {ours / theirs:.2f} x; "
        f"{grown:.0f} MB above the peak before"
    )
    return {"new": new, "M": M, "support": vectors, "cpu": [ours, theirs], "mb": grown}


def written(found: list[dict], against: Path | None) -> str:
    """Return the page of all rows."""
    rows: list[dict] = []
    more = (
        " A fit is `MKLClassifier('precomputed', norm=p).fit(K, y)` with all defaults,"
        " including validation. Ratios are relative to the sum of the given Grams and"
        " one `SVC` on it, in CPU time and in wall time. `load` is the load at the"
        " start; if it exceeds the number of cores, wall time is mostly waiting."
    )
    if against is not None:
        more += f" Rows `before` were measured at commit {commit(against)}."
    for row in found:
        if "support" in row:
            ours, theirs = row["cpu"]
            more += (
                f" Predicting {row['new']} rows with {row['M']} kernels and "
                f"{row['support'][0]} support vectors took {ours:.3g} s of CPU time, "
                f"`SVC.predict` with {row['support'][1]} of them and one kernel "
                f"{theirs:.3g} s, which is {ours / theirs:.2f} times as much with "
                f"{row['mb']:.0f} MB above the peak before."
            )
        elif "cpu" in row:
            alone, crowded = row["cpu"]
            more += (
                f" Next to two processes that only count, a fit of n = "
                f"{row['n']}, M = {row['M']}, p = 2 takes {crowded / alone:.2f} times "
                f"the CPU time ({crowded:.3g} s, {alone:.3g} s without them)."
            )
        for when in ("before", "after"):
            if when not in row:
                continue
            one = row[when]
            if one is None:
                n, M = (row["after"][key] for key in ("n", "M"))
                rows.append(
                    {
                        "n": n,
                        "M": M,
                        "of": when,
                        "wall s": f"all of them above {PATIENCE}",
                    }
                )
                continue
            for fit in one["fits"]:
                cpu, wall = one["unit"]
                rows.append(
                    {"n": one["n"], "M": one["M"], "kernels": fit["order"],
                     "p": fit["p"], **({"of": when} if "before" in row else {}),
                     "unit CPU s": cpu, "unit wall s": wall, "CPU s": fit["cpu"],
                     "wall s": fit["wall"], "CPU ratio": fit["cpu"] / cpu,
                     "wall ratio": fit["wall"] / wall, "gap": fit["gap"],
                     "load": round(one["load"], 1)}
                )  # fmt: skip
    title, command = "Fits on given Gram matrices", "as_called.py"
    if against is not None:
        title += ", before and after"
        command += " --against CHECKOUT/src"
    return page(title, command, rows, more)


def main() -> None:
    """Run all rows and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small row")
    parser.add_argument("--against", type=Path, help="src of another checkout")
    parser.add_argument("--busy", action="store_true", help="next to busy processes")
    parser.add_argument("--predict", action="store_true", help="predicting, too")
    parser.add_argument("--many", action="store_true", help="thousands of kernels")
    parser.add_argument("--cells", help="n,M n,M ... instead of the default")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    parser.add_argument("--norms", default=",".join(map(str, NORMS)))
    args = parser.parse_args()
    norms = [float(p) for p in args.norms.split(",")]
    cells = QUICK if args.quick else FULL + (MANY if args.many else [])
    if args.cells:
        cells = [tuple(map(int, cell.split(","))) for cell in args.cells.split()]
    found = []
    for n, M in cells:
        row = {"after": measured(n, M, norms, None, args.quick)}
        show(row["after"], f"\nn = {n}, M = {M}")
        if args.against:
            row["before"] = measured(n, M, norms, args.against)
            show(row["before"], "  before")
        found.append(row)
    if args.busy:
        found.append(beside_others(*cells[min(1, len(cells) - 1)]))
    if args.predict:
        size = (300, 5, 1000) if args.quick else (5000, 50, 100_000)
        found.append(predicting(*size))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    if args.page:
        args.page.write_text(written(found, args.against))


if __name__ == "__main__":
    main()
