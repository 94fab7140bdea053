"""Many rows: low-rank kernels, one pass, several workers.

    python benchmarks/large.py rank      # accuracy against rank, and the exact fit
    python benchmarks/large.py growth    # n = 10^4, 10^5, 10^6: time and peak memory
    python benchmarks/large.py workers   # two Dask workers against one, their memory
    python benchmarks/large.py versus    # Nystroem + LinearSVC or SGD of scikit-learn
    python benchmarks/large.py cost      # per row, kernel and rank; what 10^9 rows need
    python benchmarks/large.py passes    # how many a loss with a kink takes
    python benchmarks/large.py evidence  # weights by evidence, n = 1000, 2000, 4000
    python benchmarks/large.py evidence-rows  # the same of low rank, up to 10^6 rows

``passes`` and ``evidence`` accept ``--against PATH/src``, the sources of another
version: each cell is also run there, right after and in its own process, and
``cpu_ratio`` is the ratio of the seconds of all cores.

``--quick`` runs small sizes, of several parts if they are named, in one process;
``--json FILE`` writes all numbers, ``--page FILE`` a Markdown page. The synthetic task
is ``make_groups``: five groups of four columns, of which three matter, and ten kernels,
two widths for each group. The unit of ``growth`` and of ``evidence-rows`` is the time
for a tenth of the rows (``cpu_ratio``: in seconds of all cores, which depend less on
other load), that of ``workers`` one worker, that of ``versus`` the fit of mklearn.
Times are those of ``fit``; generating the rows is included only if they come in blocks;
``cost`` counts seconds of one core.

MNIST and satimage are used if MKLEARN_DATA names a folder with their files; otherwise
the digits of scikit-learn are used instead.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from pages import page
from parts import alone, each_part
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from mklearn import EvidenceMKLRegressor, MKLClassifier, kernels
from mklearn.blocks import DaskBlocks, GeneratorBlocks
from mklearn.datasets import load, make_groups
from mklearn.kernels.feature_map import FeatureMap
from mklearn.problems.scatter import Statistics

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from demo_large import GROUPS, make_kernels, make_rows

BLOCK = 20_000
SEED = 7


def peak_mb() -> float:
    """Return the peak memory of this process, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def timed(function: Callable) -> tuple[float, object]:
    """Return the seconds of a call, and its result."""
    start = time.perf_counter()
    answer = function()
    return time.perf_counter() - start, answer


def worked(function: Callable) -> tuple[float, object]:
    """Return the CPU seconds of a call, and its result."""
    start = time.process_time()
    answer = function()
    return time.process_time() - start, answer


def group_blocks(n: int, block: int = BLOCK, seed: int = SEED) -> Iterator:
    """Yield n rows of the synthetic task in blocks."""
    for number, start in enumerate(range(0, n, block)):
        yield make_groups(min(block, n - start), random_state=[seed, number])


def model(rank: int, specs: list | None = None, **options: object) -> MKLClassifier:
    """Return a classifier on Nyström features."""
    settings = {"norm": 1, "loss": "squared", "approximation": "nystroem"} | options
    return MKLClassifier(make_kernels() if specs is None else specs, rank=rank,
                         **settings)  # fmt: skip


def warm_up() -> None:
    """Compile everything on few rows."""
    X, y = make_groups(500, random_state=0)
    for loss in ("squared", "squared_hinge"):
        model(10, loss=loss, tol=0.1).fit(X, y).predict(X)


# --- accuracy against rank ------------------------------------------------------------


def digit_tasks(quick: bool) -> Iterator[tuple]:
    """Yield name, training and test samples, gammas and ranks."""
    ranks = (20, 40) if quick else (25, 50, 100, 200, 400, 800, 1600, 2400)
    try:
        X, y = load("satimage", download=False, return_X_y=True)
        name, cut = "satimage", 4435
        mean, spread = X[:cut].mean(axis=0), X[:cut].std(axis=0)
        X = (X - mean) / spread
    except FileNotFoundError:
        X, y = load_digits(return_X_y=True)
        name, cut, X = "digits", 1200, X / 16.0
    if quick:
        X, y, cut = X[:600], y[:600], 400
    yield name, X[:cut], y[:cut], X[cut:], y[cut:], ranks, True
    if quick:
        return
    try:
        X, y = load("mnist", download=False, return_X_y=True)
    except FileNotFoundError:
        return
    X = np.asarray(X, dtype=np.float64) / 255.0
    test = X[60_000:], y[60_000:]
    yield "MNIST, 5000 rows", X[:5000], y[:5000], *test, ranks, True
    yield "MNIST", X[:60_000], y[:60_000], *test, ranks[:-2], False


def rank(quick: bool, figure: Path | None = None) -> list[dict]:
    """Accuracy against rank, compared with the exact fit if that is possible."""
    warm_up()
    rows = []
    for name, X, y, X_test, y_test, ranks, exact in digit_tasks(quick):
        specs = kernels.rbf_ladder(5, spread=16)
        for r in (*ranks, *([None] if exact else [])):
            fitted = (
                MKLClassifier(specs, norm=1, loss="squared", C=10.0)
                if r is None
                else model(r, specs, C=10.0)
            )
            took, _ = timed(lambda m=fitted, X=X, y=y: m.fit(X, y))
            rows.append(
                {"data": name, "n": len(X), "M": len(specs), "rank": r or "exact",
                 "accuracy": 100 * fitted.score(X_test, y_test), "time_s": took,
                 "gap": float(fitted.duality_gap_)}
            )  # fmt: skip
            report(rows[-1])
    n = 5000 if quick else 1_000_000
    X_test, y_test = make_groups(5000 if quick else 50_000, random_state=[SEED + 1, 0])
    for r in (10, 20) if quick else (25, 50, 100, 200):
        blocks = GeneratorBlocks(partial(group_blocks, n))
        fitted = model(r)
        took, _ = timed(lambda m=fitted, b=blocks: m.fit(b))
        rows.append(
            {"data": "groups", "n": n, "M": 10, "rank": r,
             "accuracy": 100 * fitted.score(X_test, y_test), "time_s": took,
             "gap": float(fitted.duality_gap_)}
        )  # fmt: skip
        report(rows[-1])
    for row in rows:
        same = [r for r in rows if r["data"] == row["data"] and r["rank"] == "exact"]
        if same:
            row["below_exact"] = same[0]["accuracy"] - row["accuracy"]
    if figure is not None:
        draw_rank(rows, figure)
    return rows


def draw_rank(rows: list[dict], figure: Path) -> None:
    """Plot accuracy against rank, with the exact fit as a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in rows))
    fig, axes = plt.subplots(
        1, len(names), figsize=(3.2 * len(names), 3.2), layout="constrained"
    )
    for ax, name in zip(np.atleast_1d(axes), names, strict=True):
        own = [row for row in rows if row["data"] == name]
        curve = [row for row in own if row["rank"] != "exact"]
        ranks = [row["rank"] for row in curve]
        ax.semilogx(ranks, [row["accuracy"] for row in curve], "o-", color="#0072B2",
                    label="Nyström")  # fmt: skip
        for row in own:
            if row["rank"] == "exact":
                ax.axhline(row["accuracy"], color="#D55E00", ls="--", label="exact")
        ax.set_title(f"{name}, n = {own[0]['n']:,}", fontsize=9)
        ax.set_xticks(ranks, [str(r) for r in ranks], fontsize=8)
        ax.set_xticks([], minor=True)
        ax.set_xlabel("rank of each kernel")
        ax.set_ylabel("accuracy, %")
        ax.legend(frameon=False, fontsize=8)
        ax.grid(alpha=0.2)
    fig.savefig(figure, dpi=120)
    plt.close(fig)


# --- growth ---------------------------------------------------------------------------


def fit_blocks(n: int, r: int, loss: str) -> dict:
    """Fit on n rows in blocks; return time, memory and accuracy of this process."""
    warm_up()
    base = peak_mb()
    fitted = model(r, loss=loss)
    blocks = GeneratorBlocks(partial(group_blocks, n))
    cpu = time.process_time()
    took, _ = timed(lambda: fitted.fit(blocks))
    cpu, peak = time.process_time() - cpu, peak_mb()
    X_test, y_test = make_groups(20_000, random_state=[SEED + 1, 0])
    return {
        "time_s": took,
        "cpu_s": cpu,
        "peak_mb": peak,
        "before_mb": base,
        "gap": float(fitted.duality_gap_),
        "accuracy": 100 * fitted.score(X_test, y_test),
    }


def growth(quick: bool, sizes: Sequence[int] = (10**4, 10**5, 10**6)) -> list[dict]:
    """Growth of time and memory for tenfold rows."""
    r = 10 if quick else 200
    rows: list[dict] = []
    for n in (1000, 10_000) if quick else sizes:
        row = {"n": n, "M": 10, "rank": r, "loss": "squared"}
        row |= alone(fit_blocks, n, r, "squared", here=quick)
        if rows:
            row["ratio"] = row["time_s"] / rows[-1]["time_s"]
            row["cpu_ratio"] = row["cpu_s"] / rows[-1]["cpu_s"]
        rows.append(row)
        report(row)
    return rows


# --- workers --------------------------------------------------------------------------


def on_cluster(n: int, workers: int, r: int, block: int) -> dict:
    """Fit on a local cluster; return time, and the peak memory of a worker."""
    import logging

    import dask
    from dask.distributed import Client, LocalCluster

    dask.config.set({"distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1})
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=0,
                     dashboard_address=":0", silence_logs=logging.ERROR) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        X, y = make_rows(workers * 2 * 500, 500)
        model(10).fit(X, y)  # every worker has compiled what it needs
        before = client.run(sent)
        X, y = make_rows(n, block)
        fitted = model(r)
        took, _ = timed(lambda: fitted.fit(X, y))
        moved = client.run(sent)
        peaks = client.run(peak_mb)
    return {
        "time_s": took,
        "worker_peak_mb": max(peaks.values()),
        "sent_mb": sum(moved[w] - before[w] for w in moved) / 1e6,
        "statistics_mb": 8e-6 * len(fitted.solution_.A) ** 2,
        "gap": float(fitted.duality_gap_),
    }


def sent(dask_worker: object = None) -> int:
    """Return the bytes that a worker has sent to others."""
    return int(dask_worker.transfer_outgoing_bytes_total)


def workers(quick: bool) -> list[dict]:
    """Two workers against one; memory of a worker against n."""
    sizes, r, block = (
        ((4000,), 10, 1000) if quick else ((50_000, 200_000, 800_000), 200, 10_000)
    )
    rows = []
    for n in sizes:
        for count in (1, 2):
            row = {"n": n, "M": 10, "rank": r, "partitions": math.ceil(n / block)}
            row |= {"workers": count}
            row |= alone(on_cluster, n, count, r, block, here=quick)
            if count > 1:
                row["ratio"] = row["time_s"] / rows[-1]["time_s"]
            rows.append(row)
            report(row)
    return rows


# --- alternatives ---------------------------------------------------------------------


def side_by_side(r: int) -> ColumnTransformer:
    """Return the Nyström features of all kernels, by scikit-learn."""
    return ColumnTransformer(
        [
            (f"{name} {gamma}", Nystroem(gamma=gamma, n_components=r, random_state=0),
             list(range(first, first + 4)))
            for name, first in GROUPS.items()
            for gamma in (0.1, 0.5)
        ]
    )  # fmt: skip


def versus(quick: bool) -> list[dict]:
    """Against a linear model of scikit-learn on the same number of features."""
    warm_up()
    rows = []
    X_test, y_test = make_groups(5000 if quick else 50_000, random_state=[SEED + 1, 0])
    for n, r in [(3000, 10)] if quick else [(50_000, 100), (50_000, 200)]:
        X, y = (np.concatenate(parts) for parts in zip(*group_blocks(n), strict=True))
        # the cost of a row is the same, so all have the same trade-off
        models = {
            "mklearn, squared": model(r),
            "mklearn, squared hinge": model(r, loss="squared_hinge"),
            "Nystroem + LinearSVC": make_pipeline(side_by_side(r), LinearSVC()),
            "Nystroem + SGDClassifier": make_pipeline(
                side_by_side(r), SGDClassifier(alpha=1.0 / n, random_state=0)
            ),
        }
        first = None
        for name, estimator in models.items():
            took, _ = timed(lambda m=estimator, X=X, y=y: m.fit(X, y))
            first = took if first is None else first
            asked, accuracy = timed(lambda m=estimator: m.score(X_test, y_test))
            rows.append(
                {"model": name, "n": n, "M": 10, "rank": r, "time_s": took,
                 "ratio": took / first, "accuracy": 100 * accuracy,
                 "predict_s": asked}
            )  # fmt: skip
            report(rows[-1])
    return rows


# --- costs, and extrapolation ---------------------------------------------------------


def cost_of_rows(M: int, r: int, n: int) -> dict:
    """Measure features and statistics of some rows, in seconds of one core."""
    from threadpoolctl import threadpool_limits

    X, y = make_groups(n, random_state=[SEED, 0])
    specs = make_kernels()
    specs = [specs[m % len(specs)] for m in range(M)]
    features = FeatureMap.fit(X[: 10 * r], specs, rank=r)
    H = y[:, None].astype(float)
    with threadpool_limits(1):
        map_s = min(worked(lambda: features.transform(X))[0] for _ in range(3))
        Z = features.transform(X)
        sums = [worked(lambda: Statistics.of(Z, H)) for _ in range(3)]
        statistics = sums[0][1]
        add_s = min(worked(lambda: statistics + statistics)[0] for _ in range(3))
        stats_s = min(took for took, _ in sums)
        peak = peak_mb()  # of a worker: it does not solve
        fitted = model(r, specs)
        sums = fitted.accumulator(X)
        sums.update(X, y)
        solve_s, _ = worked(lambda: fitted.fit_statistics(sums))
    D = features.n_features
    return {
        "M": M,
        "rank": r,
        "features": D,
        "map_us_per_row": 1e6 * map_s / n,
        "statistics_us_per_row": 1e6 * stats_s / n,
        "gflops": 1e-9 * n * D**2 / stats_s,
        "merge_s": add_s,
        "solve_s": solve_s,
        "message_mb": len(pickle.dumps(statistics)) / 1e6,
        "peak_mb": peak,
    }


def small_count(block: object) -> Statistics:
    """Return the statistics of a block itself, the smallest possible summands."""
    return Statistics.of(block.X, block.y[:, None].astype(float), block.weight)


def simulate(partitions: int, workers: int, rows_each: int = 8) -> dict:
    """Sum as many partitions on a cluster as for many rows, but small ones."""
    import logging

    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=0,
                     dashboard_address=":0", silence_logs=logging.ERROR) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        n = partitions * rows_each
        X, y = make_rows(n, rows_each)
        blocks = DaskBlocks(X, y)
        client.run(peak_mb)  # workers are up
        cpu = time.process_time()
        took, found = timed(lambda: blocks.reduce(small_count))
        cpu = time.process_time() - cpu  # of the scheduler, which lives here
    parts = (make_groups(rows_each, random_state=[SEED, i]) for i in range(partitions))
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    exact = Statistics.of(X, y[:, None].astype(float))
    return {
        "partitions": partitions,
        "workers": workers,
        "levels": levels_of(partitions, workers),
        "time_s": took,
        "scheduler_s": cpu,
        "scheduler_ms_per_partition": 1e3 * cpu / partitions,
        "difference": float(np.abs(found.ZZ - exact.ZZ).max() / np.abs(exact.ZZ).max()),
        "n": found.n,
    }


CLUSTER = {"machines": 50, "cores": 16, "gigabit_per_s": 10.0, "rows": 100_000}


def levels_of(partitions: int, cores: int) -> int:
    """Return the height of the tree of sums."""
    ends = max(16, 4 ** math.ceil(math.log(4 * cores, 4)))
    return math.ceil(math.log(min(partitions, ends), 4))


def calculate(unit: dict, simulated: dict, n: int) -> dict:
    """Return the estimated cost of n rows on the given cluster, from measurements.

    Every core processes rows independently, and adds the sums of its partitions one
    after the other. The tree of sums has four branches at each node and at least four
    leaves for each core; at each level a core receives three sums and adds them, and
    the sixteen cores of a machine share its network. The scheduler spends the measured
    time on each partition. A worker holds at most three sums of each level that wait
    for the fourth.
    """
    cores = CLUSTER["machines"] * CLUSTER["cores"]
    partitions = math.ceil(n / CLUSTER["rows"])
    per_row = 1e-6 * (unit["map_us_per_row"] + unit["statistics_us_per_row"])
    waves = math.ceil(partitions / cores)
    work = n * per_row / cores + waves * unit["merge_s"]
    bandwidth = CLUSTER["gigabit_per_s"] * 1e3 / 8 / CLUSTER["cores"]  # MB/s of a core
    levels = levels_of(partitions, cores)
    received_mb = unit["message_mb"] * partitions
    tree = levels * 3 * (unit["message_mb"] / bandwidth + unit["merge_s"])
    schedule = 1e-3 * simulated["scheduler_ms_per_partition"] * partitions
    return {
        "rows": n,
        "kernels": unit["M"],
        "rank": unit["rank"],
        "cores": cores,
        "partitions": partitions,
        "work_min": work / 60,
        "tree_min": tree / 60,
        "scheduler_min": schedule / 60,
        "solve_min": unit["solve_s"] / 60,
        "total_min": (max(work, schedule) + tree + unit["solve_s"]) / 60,
        "network_gb_at_most": received_mb / 1e3,
        "worker_mb": unit["peak_mb"] + 3 * levels * unit["message_mb"],
    }


def cost(quick: bool) -> list[dict]:
    """Costs of rows, a simulated reduction, and the extrapolation to many rows."""
    n = 500 if quick else 4096
    shapes = [(2, 10)] if quick else [
        (5, 100), (5, 200), (10, 50), (10, 100), (10, 200), (20, 100)
    ]  # fmt: skip
    rows = [
        {"table": "cost"} | alone(cost_of_rows, M, r, n, here=quick) for M, r in shapes
    ]
    for row in rows:
        report(row)
    sizes = (20,) if quick else (1000, 10_000)
    simulated = [alone(simulate, size, 2, here=quick) for size in sizes]
    for row in simulated:
        report(row)
    rows += [{"table": "simulated"} | row for row in simulated]
    for unit in [r for r in rows if r["table"] == "cost" and r["M"] in (2, 10)]:
        for many in (10**8, 10**9):
            found = calculate(unit, simulated[-1], many)
            rows.append({"table": "calculated"} | found)
            report(found)
    return rows


# --- passes, and evidence -------------------------------------------------------------


def table(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels of a name."""
    if name == "digits, odd or even":
        X, y = load_digits(return_X_y=True)
        return X[:n] / 16.0, y[:n] % 2
    if name == "noisy":
        return make_classification(n, 20, n_informative=6, flip_y=0.1, random_state=0)
    return make_groups(n, random_state=[SEED, 0])


def fit_in_passes(
    name: str, n: int, C: float, norm: float, normalize: str, loss: str
) -> dict:
    """Fit with the public interface; return passes, gap and seconds."""
    X, y = table(name, n)
    settings = {"loss": loss, "norm": norm, "C": C, "normalize": normalize}
    settings |= {"approximation": "nystroem", "rank": 60}
    specs = [kernels.Linear(), *kernels.rbf_ladder(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is in the table
        MKLClassifier(specs, **settings).fit(X[:300], y[:300])  # compiles
        fitted = MKLClassifier(specs, **settings)
        cpu = time.process_time()
        took, _ = timed(lambda: fitted.fit(X, y))
    cpu = time.process_time() - cpu
    # the last one is that of the certificate
    passes = fitted.n_iter_ + 1
    gap = float(fitted.duality_gap_)
    return {"passes": passes, "gap": gap, "time_s": took, "cpu_s": cpu}


def beside(
    function: Callable, args: Sequence, quick: bool, against: Path | None
) -> dict:
    """Return a cell of this version and, under other names, of another version."""
    found = alone(function, *args, here=quick)
    if against is None:
        return found
    other = alone(function, *args, source=against)
    cpu = {"cpu_ratio": found["cpu_s"] / other["cpu_s"]}
    return found | cpu | {f"{key}_before": value for key, value in other.items()}


def passes(quick: bool, against: Path | None = None) -> list[dict]:
    """Passes of the hinge loss over data sets, costs, norms and normalisations."""
    grid = product(
        [("groups", 300)] if quick
        else [("groups", 20_000), ("noisy", 20_000), ("digits, odd or even", 1797)],
        (1.0,) if quick else (0.1, 1.0, 10.0, 100.0),
        (1.0,) if quick else (1.0, 2.0),
        ("multiplicative", "trace"),
    )  # fmt: skip
    rows = []
    for (name, n), C, norm, normalize in grid:
        row = {"data": name, "n": n, "C": C, "norm": norm, "normalize": normalize}
        args = (name, n, C, norm, normalize, "hinge")
        rows.append(row | beside(fit_in_passes, args, quick, against))
        report(rows[-1])
    return rows


def fit_evidence(n: int, outputs: int) -> dict:
    """Fit an evidence model with the public interface; return seconds and results."""
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((n, 8))
    Y = np.sin(np.cumsum(X[:, :outputs], axis=1))
    Y += 0.3 * rng.standard_normal(Y.shape)
    specs = [kernels.Linear(), *kernels.rbf_ladder(5)]
    EvidenceMKLRegressor(specs).fit(X[:100], Y[:100])  # compiles
    fitted = EvidenceMKLRegressor(specs)
    cpu = time.process_time()
    took, _ = timed(lambda: fitted.fit(X, Y))
    cpu = time.process_time() - cpu
    return {
        "iterations": fitted.n_iter_,
        "evidence": float(fitted.evidence_.evidence),
        "promise": float(fitted.evidence_.promise),
        "time_s": took,
        "cpu_s": cpu,
    }


def evidence(quick: bool, against: Path | None = None) -> list[dict]:
    """Weights that outputs share, by evidence."""
    rows = []
    for n, outputs in [(200, 1)] if quick else [(1000, 1), (2000, 1), (4000, 1),
                                                (4000, 6)]:  # fmt: skip
        row = {"n": n, "M": 6, "outputs": outputs}
        rows.append(row | beside(fit_evidence, (n, outputs), quick, against))
        report(rows[-1])
    return rows


def value_blocks(n: int, block: int = BLOCK, seed: int = SEED) -> Iterator:
    """Yield n rows in blocks, with values that depend smoothly on two of 8 columns."""
    for number, start in enumerate(range(0, n, block)):
        rng = np.random.default_rng([seed, number])
        X = rng.standard_normal((min(block, n - start), 8))
        y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2
        yield X, y + 0.3 * rng.standard_normal(len(y))


def fit_evidence_rows(n: int, r: int | None) -> dict:
    """Fit an evidence model on n rows in blocks; without a rank, the exact one."""
    specs = kernels.per_feature(["linear", "rbf"])
    options = {} if r is None else {"approximation": "nystroem", "rank": r}
    X, y = next(value_blocks(500))
    EvidenceMKLRegressor(specs, **options).fit(X[:200], y[:200])  # compiles
    base = peak_mb()
    fitted = EvidenceMKLRegressor(specs, **options)
    rows: tuple = (GeneratorBlocks(partial(value_blocks, n)),)
    if r is None:
        parts = list(value_blocks(n))
        rows = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
    cpu = time.process_time()
    took, _ = timed(lambda: fitted.fit(*rows))
    cpu, peak = time.process_time() - cpu, peak_mb()
    X_test, y_test = next(value_blocks(20_000, seed=SEED + 1))
    weights = fitted.kernel_weights_
    return {
        "time_s": took,
        "cpu_s": cpu,
        "peak_mb": peak,
        "before_mb": base,
        "iterations": fitted.n_iter_,
        "noise": float(fitted.noise_[0]),
        "kernels_used": int(np.count_nonzero(weights > 1e-4 * weights.max())),
        "R2": fitted.score(X_test, y_test),
    }


def evidence_rows(quick: bool) -> list[dict]:
    """Low-rank evidence: time and memory for tenfold rows, and the exact fit."""
    r = 10 if quick else 50
    cells = [(200, None), (200, r), (2000, r)] if quick else [
        (3000, None), (3000, r), (10**4, r), (10**5, r), (10**6, r),
    ]  # fmt: skip
    rows: list[dict] = []
    for n, rank_ in cells:
        row = {"n": n, "M": 16, "rank": "exact" if rank_ is None else rank_}
        row |= alone(fit_evidence_rows, n, rank_, here=quick)
        if len(rows) > 1 and n == 10 * rows[-1]["n"]:
            row["ratio"] = row["time_s"] / rows[-1]["time_s"]
            row["cpu_ratio"] = row["cpu_s"] / rows[-1]["cpu_s"]
        rows.append(row)
        report(row)
    return rows


# --- pages ----------------------------------------------------------------------------


def report(row: dict) -> None:
    """Print one row."""
    shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
             for k, v in row.items())  # fmt: skip
    print(", ".join(shown), flush=True)


UNITS = {
    "growth": "that for a tenth of the rows",
    "evidence-rows": "that for a tenth of the rows",
    "workers": "that of one worker",
    "versus": "that of mklearn with the squared loss at the same rank",
}
TITLES = {
    "cost": "Cost of rows, on one core",
    "simulated": "Sums of as many partitions, with small blocks, on a local cluster",
    "calculated": "What follows for a cluster of {machines} machines with {cores} "
    "cores each, joined by {gigabit_per_s:g} Gbit/s, and partitions of {rows:,} rows",
}


def write_page(part: str, rows: list[dict], path: Path) -> None:
    """Write a page; that of ``cost`` has three tables."""
    title, command = f"Many rows: {part}", f"large.py {part}"
    if part != "cost":
        text = page(title, command, rows, unit=UNITS.get(part, ""))
    else:
        tables = {}
        for row in rows:
            kept = {k: v for k, v in row.items() if k != "table"}
            tables.setdefault(row["table"], []).append(kept)
        first, *others = tables
        text = page(title, command, tables[first])
        for name in others:
            table = page("", "", tables[name]).split("\n| ", 1)[1]
            text += f"\n## {TITLES[name].format(**CLUSTER)}\n\n| {table}"
    if part == "rank" and path.with_suffix(".png").exists():
        text += f"\n![Accuracy against rank]({path.stem}.png)\n"
    path.write_text(text, encoding="utf-8")


PARTS = {
    "rank": rank,
    "growth": growth,
    "workers": workers,
    "versus": versus,
    "cost": cost,
    "passes": passes,
    "evidence": evidence,
    "evidence-rows": evidence_rows,
}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", help="n (growth, workers)")
    parser.add_argument("--against", type=Path, help="sources of another version "
                        "(passes, evidence)")  # fmt: skip
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    for args in each_part(parser, PARTS):
        run_part(args)


def run_part(args: argparse.Namespace) -> None:
    """Run one part, and fail if a certificate is missing."""
    more: list = []
    if args.part == "rank" and args.page:
        more = [args.page.with_suffix(".png")]
    elif args.part in ("growth", "workers") and args.sizes:
        more = [args.sizes]
    elif args.part in ("passes", "evidence"):
        more = [args.against]
    rows = PARTS[args.part](args.quick, *more)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.page:
        write_page(args.part, rows, args.page)
    if any(row.get("gap", 0.0) > 1e-3 for row in rows):
        sys.exit("a certificate is missing, see above")


if __name__ == "__main__":
    main()
