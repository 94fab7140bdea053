"""The large demonstration: a million rows on two workers of a local Dask cluster.

    python examples/demo_large.py [--rows N] [--workers W] [--rank R] [--loss LOSS]

Rows are made by the workers, block by block, as they would be read from files: no
process ever holds them all. The same lines fit a model on a cluster of many machines;
only the first one, which starts a cluster here, becomes ``Client("tcp://...")``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster, SchedulerPlugin
from numpy.typing import NDArray

from mklearn.datasets import make_groups
from mklearn.estimators import MKLClassifier
from mklearn.kernels import RBF, Kernel

SEED = 7
BLOCK = 20_000  # rows of a partition
TEST = 50_000
COLUMNS = 20
GROUPS = {"shell": 0, "wave": 4, "line": 8, "noise 1": 12, "noise 2": 16}


def make_kernels() -> list[Kernel]:
    """Return two widths for each group of columns, ten kernels."""
    return [
        RBF(gamma, columns=range(first, first + 4), name=f"{name}, gamma={gamma:g}")
        for name, first in GROUPS.items()
        for gamma in (0.1, 0.5)
    ]


def make_rows(n: int, block: int = BLOCK, seed: int = SEED) -> tuple[Any, Any]:
    """Return X and y as Dask arrays whose partitions are made where they are needed."""
    sizes = tuple(min(block, n - start) for start in range(0, n, block))
    table = da.map_blocks(
        make_table,
        chunks=(sizes, (COLUMNS + 1,)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
        n=n,
        block=block,
        seed=seed,
    )
    return table[:, :COLUMNS], table[:, COLUMNS].astype(np.intp)


def make_table(
    n: int, block: int, seed: int, block_id: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the rows of one partition, the class last."""
    number = block_id[0]
    size = min(block, n - number * block)
    X, y = make_groups(size, random_state=[seed, number])
    return np.column_stack([X, y])


class Finished(SchedulerPlugin):
    """Counts the partitions that workers have finished."""

    name = "mklearn-finished"

    def __init__(self) -> None:
        self.known: set[Any] = set()
        self.done: set[Any] = set()

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any
    ) -> None:
        """Note a task that was begun, finished, or lost and begun again."""
        if not str(key).startswith(("('mklearn_total-", "('mklearn_each-")):
            return
        self.known.add(key)
        if finish == "memory":
            self.done.add(key)


@contextmanager
def progress(cluster: LocalCluster, stream: Any = None) -> Iterator[None]:
    """Draw a bar of the work that the cluster has done, until the end of the block."""
    stream = sys.stderr if stream is None else stream
    plugin, over = Finished(), threading.Event()
    cluster.scheduler.add_plugin(plugin)
    began = time.perf_counter()

    def draw() -> None:
        while not over.wait(0.25):
            done, known = len(plugin.done), max(len(plugin.known), 1)
            bar = "#" * (30 * done // known)
            stream.write(
                f"\r[{bar:<30}] {done} of {known} partitions, "
                f"{time.perf_counter() - began:.0f} s "
            )
            stream.flush()

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        stream.write("\n")
        cluster.scheduler.remove_plugin(plugin.name)


def dashboard(cluster: LocalCluster) -> str:
    """Return where to watch the cluster, or why there is nothing to see."""
    if find_spec("bokeh") is None:
        return "no dashboard (it needs the package bokeh)"
    return f"dashboard {cluster.dashboard_link}"


def learn(
    cluster: LocalCluster,
    rows: int = 1_000_000,
    rank: int = 200,
    loss: str = "squared",
    block: int = BLOCK,
    n_test: int = TEST,
) -> dict[str, Any]:
    """Fit and test a model on a cluster, and return what was found."""
    X, y = make_rows(rows, block)
    print(
        f"{rows:,} rows of {COLUMNS} columns ({X.nbytes / 1e9:.2g} GB) in "
        f"{X.numblocks[0]} partitions; ten kernels with {rank} features each",
        flush=True,
    )
    model = MKLClassifier(
        make_kernels(), norm=1, loss=loss, approximation="nystroem", rank=rank
    )
    began = time.perf_counter()
    with progress(cluster):
        model.fit(X, y)
    seconds = time.perf_counter() - began
    X_test, y_test = make_rows(n_test, block, seed=SEED + 1)
    predicted = model.predict(X_test)  # nothing is computed yet
    return {
        "rows": rows,
        "rank": rank,
        "loss": loss,
        "seconds": seconds,
        "accuracy": float((predicted == y_test).mean().compute()),
        "gap": float(model.duality_gap_),
        "weights": dict(
            zip(model.kernel_names_, model.kernel_weights_.tolist(), strict=True)
        ),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demonstration and show what it found."""
    parser = argparse.ArgumentParser(prog="demo_large.py")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rank", type=int, default=200)
    parser.add_argument(
        "--loss", default="squared", choices=["squared", "squared_hinge", "logistic"]
    )
    args = parser.parse_args(argv)
    # one thread for each worker, for numba as for BLAS: workers share the cores
    environ = {"distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1}
    with (
        dask.config.set(environ),
        LocalCluster(
            n_workers=args.workers, threads_per_worker=1, silence_logs=logging.ERROR
        ) as cluster,
        Client(cluster),
    ):
        print(f"{args.workers} workers, {dashboard(cluster)}", flush=True)
        found = learn(cluster, args.rows, args.rank, args.loss)
    print(
        f"fitted in {found['seconds']:.0f} s to a duality gap of {found['gap']:.1e}; "
        f"{100 * found['accuracy']:.2f} % of {TEST:,} new rows are right, and 95 % is "
        "the most that can be"
    )
    print("what each kernel weighs:")
    for name, weight in found["weights"].items():
        print(f"  {name:<20} {weight:6.3f} {'#' * round(40 * weight)}")


if __name__ == "__main__":
    main()
