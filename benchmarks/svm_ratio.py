"""Cost of learning the kernel weights, relative to not learning them.

For n samples and M RBF kernels the unit is the cost without multiple kernel learning:
summing the given Grams plus one ``SVC(kernel="precomputed")`` fit. It is compared with
the time of ``solve`` to a certified relative duality gap of 1e-3, on the same Grams,
and on kernels evaluated from the samples. Each row runs in its own process (except with
``--quick``), after functions have been compiled, so that its peak memory can be
measured.

    python benchmarks/svm_ratio.py [--quick] [--json FILE]

Data: MNIST odd against even if its file is available (docs/datasets.md), otherwise the
digits of scikit-learn with noise.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
from parts import alone
from sklearn.svm import SVC
from sklearn.utils import Bunch

from mklearn import Hinge, KernelBank, LpBall, MKLProblem, kernels, solve
from mklearn.datasets import load

NORMS = (1.0, 4 / 3, 2.0, 4.0, np.inf)
FULL = [(1000, 10), (1000, 50), (4000, 10), (4000, 50)]
QUICK = [(200, 5)]


@cache
def mnist() -> Bunch:
    """Return MNIST, which takes a second to read."""
    return load("mnist", download=False)


def samples(n: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return n samples, odd against even digits as -1 and 1, and their name."""
    rng = np.random.default_rng(0)
    try:
        found = mnist()
    except FileNotFoundError:
        digits = load("digits")
        chosen = rng.integers(len(digits.data), size=n)
        X = digits.data[chosen] / 16.0 + 0.1 * rng.standard_normal((n, 64))
        digit, name = digits.target[chosen], "digits + noise"
    else:
        chosen = np.sort(rng.permutation(60_000)[:n])
        X, digit, name = found.data[chosen] / 255.0, found.target[chosen], "MNIST"
    return X, np.where(digit % 2 == 1, 1.0, -1.0), name


def widths(M: int) -> np.ndarray:
    """Return the gammas of LPMKL 5.5: 2 sigma^2 from 1 to 1.2^49, M of them."""
    return 1.0 / 1.2 ** np.linspace(0, 49, M)


def cost(function, repeats: int = 2) -> tuple[float, float, object]:
    """Return the smallest CPU and wall seconds of some calls, and the last result."""
    cpu = wall = np.inf
    answer = None
    for _ in range(repeats):
        began = time.perf_counter(), time.process_time()
        answer = function()
        wall = min(wall, time.perf_counter() - began[0])
        cpu = min(cpu, time.process_time() - began[1])
    return cpu, wall, answer


def seconds(function, repeats: int = 1) -> tuple[float, object]:
    """Return the shortest wall time of some calls, and the last result."""
    return cost(function, repeats)[1:]


def peak() -> float:
    """Return the peak memory of this process in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(n: int, M: int, source: str, tol: float) -> dict:
    """Measure one row; ``source`` is "grams" or "samples"."""
    X, y, name = samples(n)
    gammas = widths(M)
    small = kernels.rbf_ladder(gammas=gammas)
    row: dict = {"n": n, "M": M, "data": name, "source": source, "norms": {}}

    def stored(part: np.ndarray) -> KernelBank:
        return KernelBank(part, small).stored(storage="float64")

    def grams_of(part: np.ndarray) -> list[np.ndarray]:
        bank = stored(part)
        return [bank.gram(m) for m in range(M)]

    def bank_of(part: np.ndarray) -> KernelBank:
        if source == "samples":
            return stored(part)
        return KernelBank.from_grams(grams_of(part))

    def problem(bank: KernelBank, labels: np.ndarray, p: float) -> MKLProblem:
        Y = labels[:, None]
        return MKLProblem(bank, Hinge(Y, np.ones_like(Y)), LpBall(p))

    for p in (1.0, 2.0):  # compile on a small part
        solve(problem(bank_of(X[:60]), y[:60], p), tol=1e-3)

    if source == "grams":
        row["grams_s"], grams = seconds(lambda: grams_of(X))
        bank = KernelBank.from_grams(grams)

        def total() -> np.ndarray:
            S = np.zeros((n, n))
            for K in grams:
                S += K
            return S

        row["sum_s"], S = seconds(total, 3)
        svc = SVC(kernel="precomputed", C=1.0, cache_size=1000)
        row["svc_s"], _ = seconds(lambda: svc.fit(S, y), 3)
        row["n_support_sum"] = len(svc.support_)
        del S
    else:
        row["base_s"], bank = seconds(lambda: bank_of(X))
    for p in NORMS:
        task = problem(bank, y, p)
        time_s, solution = seconds(lambda task=task: solve(task, tol=tol), 2)
        row["norms"][str(round(p, 4))] = {
            "time_s": time_s,
            "gap": solution.gap,
            "iterations": solution.n_iter,
            "solver": solution.solver,
            "n_support": int(solution.A.any(axis=1).sum()),
        }
    row["peak_mb"] = peak()
    return row


def main() -> None:
    """Run all rows and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small row")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--json", type=Path, help="write all figures here")
    args = parser.parse_args()
    rows = []
    print(
        f"time to a certified gap of {args.tol:g}, as a multiple of sum + SVC "
        "(and of computing the Grams)"
    )
    for n, M in QUICK if args.quick else FULL:
        pair = {
            source: alone(run, n, M, source, args.tol, here=args.quick)
            for source in ("grams", "samples")
        }
        rows.append(pair)
        show(pair, args.tol)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


def show(pair: dict, tol: float) -> None:
    """Print one setting, and fail if a certificate is missing."""
    grams, direct = pair["grams"], pair["samples"]
    unit = grams["sum_s"] + grams["svc_s"]
    n, M = grams["n"], grams["M"]
    print(
        f"\n{grams['data']}, n = {n}, M = {M}: sum {grams['sum_s']:.3g} s + SVC "
        f"{grams['svc_s']:.3g} s; computing the Grams {grams['grams_s']:.3g} s;\n"
        f"peak memory {grams['peak_mb']:.0f} MB with Grams, "
        f"{direct['peak_mb']:.0f} MB without"
    )
    print("     p     Grams given      from samples   iterations  gap      support")
    for p, a in grams["norms"].items():
        b = direct["norms"][p]
        of_grams = [row["time_s"] / grams["grams_s"] for row in (a, b)]
        print(
            f"{float(p):6.3g}  {a['time_s'] / unit:6.1f} ({of_grams[0]:5.2f})"
            f"  {b['time_s'] / unit:6.1f} ({of_grams[1]:5.2f})"
            f"  {a['iterations']:6d}      {a['gap']:.1e}  {a['n_support']}"
        )
        if max(a["gap"], b["gap"]) > tol:
            sys.exit(f"p = {p}: the certificate is missing")


if __name__ == "__main__":
    main()
