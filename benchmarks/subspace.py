"""Speed of subspace kernels, as ratios within one run.

    python benchmarks/subspace.py eigen   # (8), (19) against the n x n eigenproblem
    python benchmarks/subspace.py skfe    # against SKFE, kernel-target alignment
    python benchmarks/subspace.py joint   # (9), (20) against one round of k SVMs
    python benchmarks/subspace.py mkl     # (27), (39) over kernels, in Cholesky factors

The unit of ``eigen`` and ``skfe`` is the closed form of (19), one Cholesky
factorisation and a k x k eigenproblem. The unit of ``joint`` is one round of k SVMs on
the features of (19), the unit of ``mkl`` one Cholesky factorisation of size n. The time
for the Gram matrix is not included. ``--quick`` runs small sizes, ``--json FILE``
writes all numbers, ``--page FILE`` a Markdown table. With ``--quick`` several parts can
be named.

Data: USPS digits if MKLEARN_DATA names a folder with usps.npz, otherwise the digits of
scikit-learn with noise.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from discriminant import floor, rbf, samples
from pages import page
from parts import each_part
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning
from svm_ratio import seconds

from mklearn import Hinge, KernelBank
from mklearn.kernels.normalise import CENTRED_TRACE, fit_normaliser
from mklearn.problems.subspace import (
    Alignment,
    Criterion,
    JointProblem,
    Kernels,
    label_factor,
)
from mklearn.solvers import solve_joint
from mklearn.solvers.subspace import integrate, maximise_alignment, svm_on

REG = 5e-4
CLASSES = 10


def task(n: int, M: int = 1):
    """Return kernels of unit trace, targets, labels and the name of the data."""
    X, y, name = samples(n, CLASSES)
    specs = rbf(M if M > 1 else 5, X)
    bank = KernelBank(X, specs if M > 1 else specs[2:3]).stored()
    return fit_normaliser(CENTRED_TRACE, bank).train(bank), y, name


def costs(features: np.ndarray, y: np.ndarray) -> Hinge:
    """Return the hinge loss of k SVMs, with the default cost for the features."""
    Y = np.where(y[:, None] == np.arange(CLASSES), 1.0, -1.0)
    return Hinge(Y, np.full(Y.shape, len(y) / np.sum(features**2)))


def sizes(quick: bool) -> tuple[int, ...]:
    return (100, 200) if quick else (500, 1000, 2000, 4000)


def closed(G: np.ndarray, L: np.ndarray, uncorrelated: bool):
    """Return the seconds of the closed form, and the subspace."""
    return seconds(lambda: Criterion(G, REG, uncorrelated).best(L), 3)


def eigen(quick: bool) -> list[dict]:
    """The closed forms against eigenproblems of size n, for all or the largest."""
    rows = []
    for n in sizes(quick):
        bank, y, name = task(n)
        G, L = bank.gram(0), label_factor(y, CLASSES)
        unit = closed(G, L, True)[0]
        for method, uncorrelated in (("uHSIC (19)", True), ("HSIC (8)", False)):
            took, found = closed(G, L, uncorrelated)
            left = G @ L
            left = left @ left.T
            right = G @ G + REG * G if uncorrelated else G + REG * np.eye(n)
            # regularise the vector of ones, on which both sides of (19) vanish, and
            # directions that are lost by rounding
            right = right + np.trace(right) / n * (1 / n + 1e-12 * np.eye(n))
            first = n - CLASSES
            theirs, values = seconds(
                lambda a=left, b=right, f=first, n=n: eigh(
                    a, b, subset_by_index=[f, n - 1]
                )[0]
            )
            every = seconds(lambda a=left, b=right: eigh(a, b))[0]
            q = len(found.values)
            error = abs(values[::-1][:q].sum() / found.values.sum() - 1)
            rows.append(
                {"data": name, "n": n, "k": CLASSES, "method": method, "time_s": took,
                 "in_units": took / unit, "eigh_k_largest": theirs / unit,
                 "eigh_all": every / unit, "relative_difference": float(error)}
            )  # fmt: skip
            print(
                f"n {n:5d} {method:10s} {took:7.3f} s, eigh of the {CLASSES} largest "
                f"{theirs / unit:6.1f} x, of all {every / unit:6.1f} x, objectives "
                f"differ by {error:.1e}",
                flush=True,
            )
    return rows


def skfe(quick: bool) -> list[dict]:
    """Alignment by conjugate gradients, until it stops, against the closed form."""
    rows = []
    for n in sizes(quick):
        bank, y, name = task(n)
        G, L = bank.gram(0), label_factor(y, CLASSES)
        unit = closed(G, L, True)[0]
        took, (_, value, steps) = seconds(
            lambda G=G, L=L: maximise_alignment(Alignment(G, L), CLASSES - 1)
        )
        rows.append(
            {"data": name, "n": n, "k": CLASSES, "uhsic_s": unit, "skfe_s": took,
             "ratio": took / unit, "steps": steps, "alignment": value}
        )  # fmt: skip
        print(f"n {n:5d} SKFE {took / unit:6.1f} x uHSIC, {steps} steps", flush=True)
    return rows


def joint(quick: bool) -> list[dict]:
    """The joint problems in rounds of k SVMs."""
    rows = []
    for n in sizes(quick):
        bank, y, name = task(n)
        G, L = bank.gram(0), label_factor(y, CLASSES)
        found = Criterion(G, REG).best(L)
        loss = costs(found.features, y)
        svm_on(found.features, loss, tol=1e-2)  # compiled
        unit = seconds(
            lambda Z=found.features, loss=loss: svm_on(Z, loss, tol=1e-5), 2
        )[0]
        for uncorrelated in (True, False):
            if not uncorrelated:
                loss = costs(Criterion(G, REG, False).best(L).features, y)
            for method, q in (
                ("exact", CLASSES), ("damped", CLASSES // 2), ("alternating", CLASSES)
            ):  # fmt: skip
                kernels = Kernels(bank, REG, uncorrelated, np.ones(n), np.ones(1))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    solution = solve_joint(
                        JointProblem(loss, q, kernels, L), method, max_iter=20
                    )
                rows.append(
                    {"data": name, "n": n, "k": CLASSES,
                     "problem": "(20)" if uncorrelated else "(9)", "method": method,
                     "features": q, "round_s": unit, "time_s": solution.time,
                     "rounds": solution.time / unit, "iterations": solution.n_iter,
                     "objective": solution.upper, "gap": solution.gap,
                     "status": solution.status.name}
                )  # fmt: skip
                print(
                    f"n {n:5d} {rows[-1]['problem']:4s} {method:11s} "
                    f"{rows[-1]['rounds']:6.1f} rounds of SVMs, "
                    f"{solution.n_iter:3d} iterations, gap {solution.gap:.1e} "
                    f"{solution.status.name}",
                    flush=True,
                )
    return rows


def mkl(quick: bool) -> list[dict]:
    """HSIC_mkl (27) and SVM_mkl (39) over several kernels."""
    rows = []
    for n in (60, *sizes(quick)):  # the first one compiles and does not count
        M = 3 if quick else 10
        bank, y, name = task(n, M)
        L = label_factor(y, CLASSES)
        unit = floor(n)
        kernels = Kernels(bank, REG, True, np.ones(n))
        took, weights = seconds(
            lambda kernels=kernels, L=L: integrate(kernels, L, tol=1e-6)
        )
        made = kernels.criterion(weights.theta)
        loss = costs(made.best(L).features, y)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            both = solve_joint(JointProblem(loss, CLASSES, kernels, L), tol=1e-3)
        joined = time.perf_counter() - start
        for method, used, found in (
            ("HSIC_mkl (27)", took, weights), ("SVM_mkl (39)", joined, both)
        ):  # fmt: skip
            rows.append(
                {"data": name, "n": n, "k": CLASSES, "M": M, "method": method,
                 "cholesky_s": unit, "time_s": used, "ratio": used / unit,
                 "iterations": found.n_iter, "gap": found.gap,
                 "status": found.status.name}
            )  # fmt: skip
            print(
                f"n {n:5d} M {M} {method:13s} {used / unit:7.1f} x Cholesky, "
                f"{found.n_iter} iterations, gap {found.gap:.1e} {found.status.name}",
                flush=True,
            )
    return [row for row in rows if row["n"] > 60]


PARTS = {"eigen": eigen, "skfe": skfe, "joint": joint, "mkl": mkl}

CLOSED = "the closed form of (19), a Cholesky factorisation and a k x k eigenproblem"
MORE = {
    "eigen": f" `in_units` is the time relative to {CLOSED}.",
    "skfe": f" `ratio` is the time of SKFE relative to {CLOSED}.",
    "joint": " `rounds` is the time relative to one round of k SVMs on the features "
    "of (19).",
    "mkl": " `ratio` is the time relative to one Cholesky factorisation of size n.",
}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="write a Markdown table here")
    for args in each_part(parser, PARTS):
        run_part(args)


def run_part(args: argparse.Namespace) -> None:
    """Run one part."""
    rows = PARTS[args.part](args.quick)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.page:
        args.page.write_text(
            page(
                f"Speed of subspace kernels: {args.part}",
                f"subspace.py {args.part}",
                rows,
                MORE[args.part],
            )
        )


if __name__ == "__main__":
    main()
