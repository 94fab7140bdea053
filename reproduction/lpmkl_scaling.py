"""How the time of ℓp-norm MKL grows (Kloft et al. 2011, section 5.5, figure 5).

Odd against even digits of MNIST; Grams of Gaussian kernels are given, C = 1. A cell is
one solver at one number of samples n and of kernels M.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from mklearn import Hinge, KernelBank, LpBall, MKLProblem, solve
from mklearn.datasets import load
from mklearn.kernels import rbf_ladder
from mklearn.plotting import OKABE_ITO
from mklearn.solvers import CuttingPlane, ReducedGradient
from reproduction.cells import Cell, Results, Table, Values, rng
from reproduction.claims import Claim, Mean, of_sets
from reproduction.page import save

FloatArray = NDArray[np.float64]

TOL = 1e-3
LIMIT = 60.0  # seconds of one solve
REPETITIONS = 3
SAMPLES = (250, 500, 1000, 2000, 4000)
KERNELS = (10, 30, 100, 300, 1000)
DOUBLES = 4 * 10**8  # numbers of all Grams above which they are in single precision
SMALL = (200, 10)

# method: norm and solver
SOLVERS: dict[str, tuple[float, Callable[[], Any]]] = {
    "p = 1": (1.0, lambda: "auto"),
    "p = 4/3": (4 / 3, lambda: "auto"),
    "p = 2": (2.0, lambda: "auto"),
    "p = 4": (4.0, lambda: "auto"),
    "SILP wrapper": (1.0, lambda: CuttingPlane(level=0.0)),
    "SimpleMKL": (1.0, ReducedGradient),
}
SUM = "sum + SVC"
FLY = "p = 2, on the fly"
METHODS = (SUM, *SOLVERS, FLY)


def name_of(n: int, M: int) -> str:
    """Return what a size is called."""
    return f"n = {n}, M = {M}"


ALONG = {
    "n": [(n, 50) for n in SAMPLES],
    "M": [(1000, M) for M in KERNELS],
}
SIZES = {name_of(*size): size for size in (*ALONG["n"], *ALONG["M"], SMALL)}

TABLE = Table(
    "figure5",
    "mean seconds of training on given Grams, for growing numbers of samples and of "
    f"kernels; {REPETITIONS} repetitions, 5 in the paper",
    tuple(name_of(*size) for size in (*ALONG["n"], *ALONG["M"])),
    METHODS,
    REPETITIONS,
    keys=("seconds",),
)
QUICK = Table(
    "figure5", "seconds at a small size", (name_of(*SMALL),), METHODS, 1, ("seconds",)
)


# --- one cell -------------------------------------------------------------------------


def work(cell: Cell, seed: int) -> Values:
    """Time one method; what it needs is compiled before."""
    _warm_up(cell.method)
    n, M = SIZES[cell.data]
    X, y = samples(n, seed, cell.repetition)
    return measure(cell.method, X, y, M, given(n, M, seed, cell.repetition))


def measure(
    method: str, X: FloatArray, y: FloatArray, M: int, grams: tuple[NDArray[Any], ...]
) -> Values:
    """Return seconds, and for MKL the certificate."""
    if method == SUM:
        began = time.perf_counter()
        total = np.zeros(grams[0].shape)
        for K in grams:
            total += K
        summed = time.perf_counter()
        SVC(kernel="precomputed", C=1.0, cache_size=1000).fit(total, y)
        ended = time.perf_counter()
        return {"seconds": ended - began, "seconds of SVC": ended - summed}
    p, solver = SOLVERS["p = 2" if method == FLY else method]
    Y = y[:, None]
    bank = KernelBank.from_grams(list(grams))
    began = time.perf_counter()
    if method == FLY:
        bank = KernelBank(X, rbf_ladder(gammas=widths(M))).stored()
    problem = MKLProblem(bank, Hinge(Y, np.ones_like(Y)), LpBall(p))
    solution = solve(problem, solver(), tol=TOL, time_limit=LIMIT)
    return {
        "seconds": time.perf_counter() - began,
        "gap": float(solution.gap),
        "objective": float(solution.upper),
        "iterations": int(solution.n_iter),
    }


def widths(M: int) -> FloatArray:
    """Return the gammas: 2 sigma^2 = 1.2^0 ... 1.2^(M - 1)."""
    return np.asarray(1.2 ** -np.arange(M, dtype=float))


@cache
def digits() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the training images of MNIST, and 1 for odd digits and -1 for even."""
    mnist = load("mnist")
    kept = np.asarray(mnist.split) == "train"
    label = np.asarray(mnist.target)[kept].astype(int)
    return np.asarray(mnist.data)[kept], np.where(label % 2 == 1, 1.0, -1.0)


def samples(n: int, seed: int, repetition: int) -> tuple[FloatArray, FloatArray]:
    """Return random images, values from 0 to 1, and their signs."""
    X, y = digits()
    rows = rng(seed, repetition).permutation(len(y))[:n]
    return X[rows] / 255.0, y[rows]


@lru_cache(maxsize=1)
def given(n: int, M: int, seed: int, repetition: int) -> tuple[NDArray[Any], ...]:
    """Return the Grams, which the methods that follow each other share."""
    X, _ = samples(n, seed, repetition)
    bank = KernelBank(X, rbf_ladder(gammas=widths(M))).stored(storage="float64")
    dtype = np.float64 if n * n * M <= DOUBLES else np.float32
    return tuple(bank.gram(m).astype(dtype) for m in range(M))


@cache
def _warm_up(method: str) -> None:
    """Compile what a method needs on a small problem."""
    X = np.random.default_rng(0).standard_normal((150, 5))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    bank = KernelBank(X, rbf_ladder(gammas=widths(10))).stored(storage="float64")
    for dtype in (np.float64, np.float32):
        grams = tuple(bank.gram(m).astype(dtype) for m in range(10))
        measure(method, X, y, 10, grams)


# --- what the results say -------------------------------------------------------------


def seconds(results: Results, method: str, axis: str, key: str = "seconds") -> Any:
    """Return the sizes along an axis that are done, and the mean seconds."""
    tables = [t for t in results.tables if t.name == TABLE.name]
    at, mean = [], []
    for size in ALONG[axis]:
        cells = [c for t in tables for c in results.of(t, name_of(*size), method)]
        if cells:
            at.append(size[axis == "M"])
            mean.append(float(np.mean([c[key] for c in cells])))
    return np.array(at), np.array(mean)


def exponent(at: FloatArray, mean: FloatArray) -> float:
    """Return the power with which the time grows, fitted on logarithmic scales."""
    return float(np.polyfit(np.log(at), np.log(mean), 1)[0])


def conclusions(mean: Mean) -> Iterator[Claim]:
    """Yield what the paper concludes from the figure, from its means."""
    ends = {
        f"{axis} = {max(pair[axis == 'M'] for pair in along)}": name_of(*max(along))
        for axis, along in ALONG.items()
    }

    def ratio(data: str, one: str, other: str) -> float:
        return mean(data, one, "seconds") / mean(data, other, "seconds")

    rivals = [method for method in METHODS if method != SUM]
    yield of_sets(
        "The sum-kernel SVM is the fastest (5.5).",
        {end: min(ratio(data, m, SUM) for m in rivals) for end, data in ends.items()},
        lambda value: value > 1,
        form="{:.1f}",
        what="Time of the fastest MKL relative to that of the sum: ",
    )
    yield of_sets(
        "SimpleMKL is up to two orders of magnitude slower than lp-norm MKL in one "
        "with its SVM, more than 120 times with 50 Grams of 8000 samples (5.5).",
        {end: ratio(data, "SimpleMKL", "p = 1") for end, data in ends.items()},
        lambda value: value > 100,
        form="{:.0f}",
        what="Time of SimpleMKL relative to that of p = 1, on fewer samples: ",
    )
    yield of_sets(
        "1000 Grams of 1000 samples take less than three minutes with l1 (5.5).",
        {name_of(1000, 1000): mean(name_of(1000, 1000), "SILP wrapper", "seconds")},
        lambda value: value < 180,
        form="{:.1f}",
        unit=" seconds",
    )


def claims(results: Results) -> list[str]:
    """Compare with what the paper says about the figure."""
    text: list[str] = []
    for axis in ALONG:
        found = {m: seconds(results, m, axis) for m in METHODS}
        found = {m: pair for m, pair in found.items() if len(pair[0]) > 1}
        if len(found) < len(METHODS):
            continue
        last = {m: mean[-1] for m, (_, mean) in found.items()}
        mkl = {m: s for m, s in last.items() if m != SUM}
        simple, silp = (last[m] / last["p = 1"] for m in ("SimpleMKL", "SILP wrapper"))
        powers = ", ".join(f"{m}: {exponent(*pair):.2f}" for m, pair in found.items())
        text += [
            f"- Along {axis} the time grows with the powers {powers}.",
            f"- At the largest {axis}, {found[SUM][0][-1]}: the sum kernel is the "
            f"fastest: {'holds' if last[SUM] <= min(mkl.values()) else 'fails'}; the "
            f"fastest MKL is {min(mkl, key=mkl.__getitem__)}, the slowest "
            f"{max(mkl, key=mkl.__getitem__)} (the paper: the l1 SILP in one with its "
            "SVM, and SimpleMKL).",
            f"- There SimpleMKL takes {simple:.0f} times as long as p = 1, and the "
            f"SILP wrapper {silp:.1f} times; the paper has more than 120 for SimpleMKL "
            "against its l1 SILP, with 50 Grams of 8000 samples.",
        ]
        if axis == "M":
            svc = seconds(results, SUM, axis, "seconds of SVC")
            text.append(
                "- The sum-kernel SVM is hardly affected by the number of kernels: "
                f"without the sum itself its time grows with the power "
                f"{exponent(*svc):.2f}."
            )
            text.append(
                "- 1000 Grams of 1000 samples take less than 3 minutes with the l1 "
                f"SILP: here {last['SILP wrapper']:.1f} s with the SILP wrapper and "
                f"{last['p = 1']:.1f} s with p = 1 at M = {found[SUM][0][-1]}."
            )
    if not text:
        return []
    return ["", "## The paper's claims about run time", "", *text]


def draw(results: Results, folder: Path) -> list[str]:
    """Draw time against n and M on logarithmic scales."""
    done = {
        (axis, m): pair
        for axis in ALONG
        for m in METHODS
        if len((pair := seconds(results, m, axis))[0]) > 1
    }
    if not done:
        return []
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = dict(zip(ALONG, figure.subplots(1, 2), strict=True))
    for (axis, method), (at, mean) in done.items():
        j = METHODS.index(method)
        label = f"{method}: {axis}$^{{{exponent(at, mean):.2f}}}$"
        axes[axis].loglog(
            at, mean, color=OKABE_ITO[j % 7], marker="osD^v<>P"[j], ms=5, label=label
        )
    for axis, ax in axes.items():
        sizes = [size[axis == "M"] for size in ALONG[axis]]
        ax.set_xticks(sizes, [str(value) for value in sizes])
        ax.set_xticks([], minor=True)
        ax.set_xlabel("samples n (50 kernels)" if axis == "n" else "kernels M (n 1000)")
        ax.set_ylabel("seconds")
        ax.legend(frameon=False, fontsize="x-small")
        ax.spines[["top", "right"]].set_visible(False)
    return [save(figure, folder / "figure5.png")]
