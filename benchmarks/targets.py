"""Separate weights for many targets: cost and held-out R2 compared with himalaya.

Targets are sums of linear functions of M feature spaces of 60 columns each, with
shares of the variance drawn from a Dirichlet distribution (half of them near zero), and
noise of 30 to 90 percent. Both packages get the same precomputed linear kernels,
centred and of mean diagonal one, and the same centred targets, in double precision;
300 further samples are held out.

himalaya is `MultipleKernelRidgeCV`, eleven alphas, five folds, with its numpy backend
unless the row says torch (on the processor; left out where torch is not installed);
`candidates` are the kernel weights of its random search, 100 by default. Ours is
`EvidenceMKLRegressor("precomputed", weights="per-target")` with all other settings at
their defaults, unless the row says otherwise. `CPU s` is the time of the fit alone, in
a process that has imported the package and compiled its functions; `seconds` is its
wall time. Rows without a size show the time of a process that imports the package, and
does what else the row names. `ratio` is the CPU time of himalaya's random search with
20 candidates relative to that of the row, in the same run, and `of 100` the same with
100 candidates. BLAS has one thread; `load` is the number of processes that were ready
to run on the machine, on average over the minute before the row, the row itself
included. Sizes may have been measured in separate runs; `commit` is that of a row, and
rows of older commits lack wall times.

`elsewhere` uses other targets than those on which the default tolerance was chosen: one
space each; spaces with most of their columns in common; little signal in noise with
heavy tails (Student's t, three degrees of freedom); and pixels of real images, the
right half of scikit-learn's digits predicted from the four columns of pixels on the
left, with 600 training images.

    python benchmarks/targets.py versus|recovery|large|shared|elsewhere [--quick]
        [--cell N,M,T ...] [--rows FILE] [--page FILE]

With --rows, rows are appended to FILE, and the page is made from all rows in it. With
--quick several parts can be named.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pages import commit, page
from parts import each_part
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from mklearn import EvidenceMKLRegressor, MKLRegressor, MKLRegressorCV

try:
    from himalaya.kernel_ridge import MultipleKernelRidgeCV
except ImportError:  # the comparison is optional
    MultipleKernelRidgeCV = None

COLUMNS, TEST = 60, 300
CELLS = [(n, M, t) for t in (1000, 30_000) for n in (300, 1000) for M in (4, 20)]


def drawn(n: int, M: int, t: int, seed: int = 0, dtype=np.float64):
    """Return kernels (n + TEST, n, M), values, and the true shares of variance."""
    rng = np.random.default_rng(seed)
    N = n + TEST
    common = rng.standard_normal((N, 10))
    shares = rng.dirichlet(np.full(M, 0.5), size=t)
    explained = rng.uniform(0.1, 0.7, size=t)
    Y = np.empty((N, t), dtype=dtype)
    K = np.empty((N, n, M))
    spaces = []
    for m in range(M):
        X = rng.standard_normal((N, COLUMNS)) * np.linspace(1.5, 0.3, COLUMNS)
        X += common @ rng.standard_normal((10, COLUMNS)) / 6
        X -= X[:n].mean(axis=0)
        X /= np.sqrt(np.mean(np.sum(X[:n] ** 2, axis=1)))
        K[:, :, m] = X @ X[:n].T
        spaces.append(X)
    for at in range(0, t, 4096):
        here = slice(at, min(at + 4096, t))
        count = here.stop - here.start
        noise = rng.standard_normal((N, count))
        block = noise * np.sqrt(1 - explained[here])
        for m, X in enumerate(spaces):
            F = X @ rng.standard_normal((COLUMNS, count))
            F /= F.std(axis=0)
            block += F * np.sqrt(shares[here, m] * explained[here])
        Y[:, here] = block - block[:n].mean(axis=0)
    return K, Y, shares * explained[:, None]


def r2(truth, values) -> np.ndarray:
    """Return R2 of each target."""
    off = np.sum((truth - values) ** 2, axis=0)
    return 1.0 - off / np.sum((truth - truth.mean(axis=0)) ** 2, axis=0)


def measured(model, K, Y, n: int):
    """Return the fitted model, and the cost of the fit with the median R2."""
    began, clock = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(K[0], Y[:n])
    cost = {
        "CPU s": time.process_time() - began,
        "seconds": time.perf_counter() - clock,
    }
    score = float(np.median(r2(Y[n:], np.asarray(model.predict(K[1])))))
    return model, cost | {"median R2": score, "load": os.getloadavg()[0]}


def ours(K, n: int):
    """Return kernels in the form of mklearn."""
    return K[:n], K[n:]


def theirs(K, n: int):
    """Return kernels in the form of himalaya."""
    first = np.moveaxis(K, 2, 0)
    return first[:, :n].copy(), first[:, n:].copy()


def own(**options):
    """Return our model."""
    return EvidenceMKLRegressor("precomputed", weights="per-target", **options)


def search(candidates: int, t: int):
    """Return himalaya's random search."""
    return MultipleKernelRidgeCV(
        kernels="precomputed",
        solver="random_search",
        solver_params={
            "n_iter": candidates,
            "alphas": np.logspace(-1, 4, 11),
            "n_targets_batch": min(t, 1000),
            "n_targets_batch_refit": 200,
            "progress_bar": False,
        },
        cv=5,
        random_state=0,
    )


@contextmanager
def on_torch():
    """Let himalaya compute with torch, on one thread of the processor."""
    import torch
    from himalaya.backend import set_backend

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    set_backend("torch")
    try:
        yield
    finally:
        set_backend("numpy")
        torch.set_num_threads(before)


def simulated(kind: str, n: int, M: int, t: int, seed: int = 1):
    """Return kernels (n + TEST, n, M) and values of other kinds of targets."""
    rng = np.random.default_rng(seed)
    N = n + TEST
    shares = rng.dirichlet(np.full(M, 0.5), size=t)
    explained = rng.uniform(0.1, 0.7, size=t)
    noise, common = rng.standard_normal((N, t)), 1 / 6
    if kind == "one space each":
        shares = np.eye(M)[rng.integers(0, M, t)]
    elif kind == "spaces alike":
        common = 1.0
    else:
        explained = rng.uniform(0.02, 0.15, size=t)
        noise = rng.standard_t(3, (N, t)) / 3**0.5
    shared = rng.standard_normal((N, 10))
    Y, spaces = noise * np.sqrt(1 - explained), []
    for m in range(M):
        X = rng.standard_normal((N, COLUMNS)) * np.linspace(1.5, 0.3, COLUMNS)
        X += common * (shared @ rng.standard_normal((10, COLUMNS)))
        F = X @ rng.standard_normal((COLUMNS, t))
        Y += F / F.std(axis=0) * np.sqrt(shares[:, m] * explained)
        spaces.append(X)
    return kernels_of(spaces, n), Y - Y[:n].mean(axis=0)


def images(n: int):
    """Return kernels of columns of pixels, and the right half of images as values."""
    pixels = load_digits().images
    pixels = pixels[np.random.default_rng(0).permutation(len(pixels))[: n + TEST]]
    Y = pixels[:, :, 4:].reshape(len(pixels), -1)
    Y = Y[:, Y[:n].std(axis=0) > 0.5]  # some pixels are dark in nearly all images
    return kernels_of([pixels[:, :, j] for j in range(4)], n), Y - Y[:n].mean(axis=0)


def kernels_of(spaces, n: int):
    """Return linear kernels (N, n, M), centred and with mean diagonal one."""
    made = []
    for X in spaces:
        X = X - X[:n].mean(axis=0)
        X = X / np.sqrt(np.mean(np.sum(X[:n] ** 2, axis=1)))
        made.append(X @ X[:n].T)
    return np.stack(made, axis=2)


def elsewhere(args):
    """Yield rows of other simulations, and of real images."""
    n, M, t = (80, 3, 40) if args.quick else (200, 4, 300)
    kinds = ("one space each", "spaces alike", "little signal", "digits")
    for kind in kinds:
        size = (200 if args.quick else 600) if kind == "digits" else n
        K, Y = images(size) if kind == "digits" else simulated(kind, n, M, t)
        cell = {"targets": kind, "n": size, "M": K.shape[2], "t": Y.shape[1]}
        measured(own(), ours(K, size), Y[:, :20], size)  # compiles
        models = {
            "defaults": (own(), ours),
            "tol=0.1": (own(tol=0.1), ours),
            "tol=0.001": (own(tol=1e-3), ours),
        }
        if MultipleKernelRidgeCV is not None:
            for candidates in (20, 100):
                name = f"himalaya, {candidates} candidates"
                models[name] = (search(candidates, Y.shape[1]), theirs)
        for name, (model, made) in models.items():
            _, found = measured(model, made(K, size), Y, size)
            yield [cell | {"model": name} | found]


IMPORTS = {
    "import of mklearn": "from mklearn import EvidenceMKLRegressor",
    "import of himalaya": "from himalaya.kernel_ridge import MultipleKernelRidgeCV",
    "import, and a first fit of ten targets, mklearn": """
import numpy as np
from mklearn import EvidenceMKLRegressor
rng = np.random.default_rng(0)
K = np.stack([X @ X.T for X in rng.standard_normal((3, 50, 5))], axis=2)
EvidenceMKLRegressor("precomputed", weights="per-target").fit(
    K, rng.standard_normal((50, 10)))
""",
}


def imports():
    """Yield rows of processes that import the packages, and compile."""
    for name, code in IMPORTS.items():
        if "himalaya" in name and MultipleKernelRidgeCV is None:
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        clock = time.perf_counter()
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            check=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        cost = {"CPU s": cpu, "seconds": time.perf_counter() - clock}
        yield [{"n": "", "M": "", "t": "", "model": name} | cost]


def versus(args):
    """Yield rows of all cells."""
    quick = [(100, 3, 60)]
    if not args.cells:
        yield from imports()
    for n, M, t in args.cells or (quick if args.quick else CELLS):
        K, Y, _ = drawn(n, M, t)
        cell = {"n": n, "M": M, "t": t}
        small = n * M * t <= 6_000_000
        measured(own(), ours(K, n), Y[:, :20], n)  # compiles
        units = {}

        def row(name, found, cell=cell, units=units):
            against = {
                label: units[k] / found["CPU s"]
                for k, label in ((20, "ratio"), (100, "of 100"))
                if k in units and "himalaya" not in name
            }
            return [cell | {"model": name} | found | against]

        for candidates in (20, 100):
            if MultipleKernelRidgeCV is None or n * t * candidates > args.most:
                continue
            _, found = measured(search(candidates, t), theirs(K, n), Y, n)
            units[candidates] = found["CPU s"]
            yield row(f"himalaya, {candidates} candidates", found)
        if 20 in units and importlib.util.find_spec("torch"):
            with on_torch():
                _, found = measured(search(20, t), theirs(K, n), Y, n)
            yield row("himalaya on torch, 20 candidates", found)
        models = {"defaults": own()}
        if small:
            models["tol=0.1"] = own(tol=0.1)
            for one in (MKLRegressor, MKLRegressorCV):
                models[f"{one.__name__}()"] = one("precomputed", weights="per-target")
        for name, model in models.items():
            yield row(name, measured(model, ours(K, n), Y, n)[1])
        if MultipleKernelRidgeCV is not None and small:
            gradient = MultipleKernelRidgeCV(
                kernels="precomputed", solver="hyper_gradient", cv=5,
                solver_params={"progress_bar": False}, random_state=0,
            )  # fmt: skip
            _, found = measured(gradient, theirs(K, n), Y, n)
            yield row("himalaya, hyper-gradient", found)


def recovery(args):
    """Yield bias and spread of estimated shares of variance, by true share."""
    n, M, t = (100, 3, 60) if args.quick else (300, 4, 1000)
    K, Y, truth = drawn(n, M, t)
    found = {}
    for name, options in (("mklearn", {}), ("mklearn, tol=0.1", {"tol": 0.1})):
        model, _ = measured(own(**options), ours(K, n), Y, n)
        # kernels have mean diagonal one: variances are in units of the noise
        weights = model.kernel_weights_
        found[name] = weights / (1.0 + weights.sum(axis=1, keepdims=True))
    if MultipleKernelRidgeCV is not None:
        for candidates in (20,) if args.quick else (20, 100):
            other, _ = measured(search(candidates, t), theirs(K, n), Y, n)
            # its penalty is one for kernels times exp(deltas)
            theta = np.exp(np.asarray(other.deltas_)).T
            share = theta / (1.0 + theta.sum(axis=1, keepdims=True))
            found[f"himalaya, {candidates} candidates"] = share
    edges = [0.0, 0.02, 0.1, 0.2, 0.4, 0.7]
    for low, high in itertools.pairwise(edges):
        here = (truth >= low) & (truth < high)
        if here.sum() < 10:
            continue
        rows = []
        for name, share in found.items():
            off = (share - truth)[here]
            rows.append(
                {
                    "true share": f"{low:g} to {high:g}",
                    "estimates": int(here.sum()),
                    "model": name,
                    "bias": float(off.mean()),
                    "spread": float(off.std()),
                    "root mean square": float(np.sqrt(np.mean(off**2))),
                }
            )
        yield rows


def large(args):
    """Yield time and memory of very many targets."""
    n, M, t = (150, 3, 200) if args.quick else (3000, 5, 100_000)
    K, Y, _ = drawn(n, M, t, dtype=np.float32)
    train, test, held = K[:n].copy(), K[n:].copy(), Y[n:, :2000].copy()
    values = Y[:n].copy()
    del K, Y
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began = time.process_time()
    np.linalg.eigh(train.sum(axis=2))
    unit = time.process_time() - began
    began, clock = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = own().fit(train, values)
    cpu, seconds = time.process_time() - began, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    score = np.median(r2(held, model.predict(test)[:, : held.shape[1]]))
    yield [
        {
            "n": n, "M": M, "t": t, "rounds": model.n_iter_, "CPU s": cpu,
            "seconds": seconds, "eigendecompositions": cpu / unit,
            "GB before": base, "GB at most": peak, "median R2": float(score),
        }
    ]  # fmt: skip


def shared(args):
    """Yield the cost of shared weights with more targets than samples."""
    n, M, t = (60, 3, 120) if args.quick else (300, 4, 1000)
    tiny = drawn(40, M, 50)
    measured(MKLRegressor("precomputed"), ours(tiny[0], 40), tiny[1], 40)  # compiles
    models = {
        "MKLRegressor(norm=1)": MKLRegressor("precomputed", norm=1),
        "MKLRegressor(norm=2)": MKLRegressor("precomputed", norm=2),
        "MKLRegressor(norm=inf)": MKLRegressor("precomputed", norm=np.inf),
        "MKLRegressorCV()": MKLRegressorCV("precomputed"),
        "EvidenceMKLRegressor()": EvidenceMKLRegressor("precomputed"),
    }
    for count in (n, t):  # as many targets as samples, then more
        K, Y, _ = drawn(n, M, count)
        for name, model in models.items():
            _, found = measured(model, ours(K, n), Y, n)
            yield [{"n": n, "M": M, "t": count, "model": name} | found]


PARTS = {
    "versus": versus,
    "recovery": recovery,
    "large": large,
    "shared": shared,
    "elsewhere": elsewhere,
}
TITLES = {
    "versus": "Separate weights for many targets, compared with himalaya",
    "recovery": "Are weights recovered? Shares of variance with known truth",
    "large": "A hundred thousand targets",
    "shared": "Shared weights of more targets than samples",
    "elsewhere": "Separate weights for targets of other kinds",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--most", type=float, default=2e8,
                        help="maximum of samples times targets times candidates "
                        "of a search")  # fmt: skip
    parser.add_argument("--cell", dest="cells", action="append", default=[],
                        type=lambda text: tuple(map(int, text.split(","))))  # fmt: skip
    parser.add_argument("--rows", type=Path, help="append rows to this file")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    for args in each_part(parser, PARTS):
        run_part(args)


def run_part(args: argparse.Namespace) -> None:
    """Run one part."""
    rows = []
    if args.rows and args.rows.exists():
        rows = [json.loads(line) for line in args.rows.read_text().splitlines()]
    if not rows or args.cells:
        with threadpool_limits(1, user_api="blas"):
            for each in PARTS[args.part](args):
                found = [row | {"commit": commit()} for row in each]
                for row in found:
                    cells = (
                        f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
                        for k, v in row.items()
                    )
                    print("  ".join(cells), flush=True)
                rows += found
                if args.rows:
                    with args.rows.open("a") as file:
                        file.writelines(json.dumps(row) + "\n" for row in found)
    if args.page:
        order = {cell: i for i, cell in enumerate(CELLS)}
        if args.part == "versus":
            rows.sort(key=lambda row: order.get((row["n"], row["M"], row["t"]), 99))
        _, *about = __doc__.split("\n\n    python")[0].split("\n\n")
        if args.part != "elsewhere":
            about = [one for one in about if not one.startswith("`elsewhere`")]
        text = page(
            TITLES[args.part],
            f"targets.py {args.part}",
            rows,
            " " + " ".join(" ".join(about).split()),
        )
        args.page.write_text(text)


if __name__ == "__main__":
    main()
