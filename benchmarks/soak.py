"""Soak test: fit, predict, save, load and cancel on two threads, without leaks.

One process does on two threads what a server does all day: it fits models of several
kinds, predicts with them, saves and loads them (both threads use the same file), and
cancels running fits by their callback and by an error in it. At the end memory, open
files, threads, temporary files and the settings of BLAS must be the same as at the
start, which is after a warm-up that fills caches and pools.

    python benchmarks/soak.py              # ten minutes
    python benchmarks/soak.py --quick      # ten seconds
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from threadpoolctl import threadpool_info

from mklearn import (
    MKLClassifier,
    MKLClassifierCV,
    MKLDiscriminant,
    MKLOneClass,
    MKLRegressor,
    SubspaceClassifier,
)
from mklearn.data.threads import n_threads, run_blocks
from mklearn.data.writing import whole_file
from mklearn.persistence import load, save

sys.path.insert(0, str(Path(__file__).parent))
from pages import page

GROWTH = 32 * 2**20  # bytes that the allocator may retain


class CancelledError(Exception):
    """Raised by a callback in the middle of a fit."""


def state(folder):
    """Return the state that must be the same at the end."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in status if line.startswith("VmRSS"))
    return {
        "memory": 1024 * int(kilobytes),
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "Python threads": threading.active_count(),
        "BLAS": sorted((i["prefix"], i["num_threads"]) for i in threadpool_info()),
        "files": sorted(os.listdir(folder)),
        "temporary files": sorted(os.listdir(tempfile.gettempdir())),
    }


def work(folder, seconds, seed, counts, faults):
    """Work like a server until the time is over."""
    rng = random.Random(seed)
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    end, path = time.time() + seconds, folder / "model.mkl"
    while time.time() < end:
        rows = rng.sample(range(len(X)), rng.choice([40, 80, 160]))
        few, labels = X[rows], y[rows]
        model = rng.choice([
            MKLClassifier(), MKLClassifier(norm=1, loss="logistic"), MKLOneClass(),
            MKLClassifier(approximation="nystroem", rank=20), MKLDiscriminant(),
            MKLRegressor(), MKLClassifierCV(Cs=[0.1, 1.0], norms=[1, 2], cv=2),
            SubspaceClassifier(["linear", "rbf"]),
        ])  # fmt: skip
        kind, stop = rng.random(), None
        if kind < 0.15 and "callback" in model.get_params():

            def stop(history):
                raise CancelledError
        elif kind < 0.3 and "callback" in model.get_params():

            def stop(history):
                return True

        if stop is not None:
            model.set_params(callback=stop)
        try:
            model.fit(few, labels)
            before = model.predict(X[:50])
            save(model, path)
            load(path).predict(X[:50])
            other = folder / f"{threading.get_ident()}.mkl"
            save(model, other)
            if not np.array_equal(before, load(other).predict(X[:50])):
                faults.append(f"{model} predicts differently after it was loaded")
            counts["fits"] += 1
        except CancelledError:
            counts["cancelled"] += 1
        except Exception as error:
            faults.append(f"{type(error).__name__} {error} of {model}")
    (folder / f"{threading.get_ident()}.mkl").unlink(missing_ok=True)


def soak(folder, seconds, seed):
    """Return the counts and the faults of two threads."""
    counts, faults = Counter(), []
    threads = [
        threading.Thread(target=work, args=(folder, seconds, seed + i, counts, faults))
        for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, faults


def fill_pool():
    """Make the pool start all of its threads, which it otherwise does on demand.

    Whether the warm-up needs the last one depends on how two fits overlap.
    """
    both = threading.Barrier(2)

    def busy(_):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    def caller():
        both.wait()
        run_blocks(busy, range(2 * n_threads()))

    threads = [threading.Thread(target=caller) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="ten seconds")
    parser.add_argument("--write", action="store_true", help="docs/results/soak.md")
    args = parser.parse_args()
    seconds = 10.0 if args.quick else args.seconds
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder, tempfile.tempdir = Path(name) / "models", str(Path(name) / "temporary")
        for path in (folder, Path(tempfile.tempdir)):
            path.mkdir()
        first = state(folder)["BLAS"]
        soak(folder, min(60.0, max(5.0, seconds / 5)), args.seed + 100)  # warm-up
        fill_pool()
        before = {**state(folder), "BLAS": first}  # no pool of it is made later
        counts, faults = soak(folder, seconds, args.seed)
        after = state(folder)
    rows = []
    for what in before:
        same = before[what] == after[what]
        if what == "memory":
            same = after[what] - before[what] < GROWTH
        rows.append({
            "what": what, "at the start": before[what], "at the end": after[what],
            "verdict": "as it was" if same else "GROWN",
        })  # fmt: skip
        if not same:
            faults.append(f"{what}: {before[what]} at the start, {after[what]} after")
        if what == "memory":
            rows[-1].update({k: f"{rows[-1][k] / 2**20:.0f} MB"
                             for k in ("at the start", "at the end")})  # fmt: skip
    print(f"{seconds:.0f} seconds, two threads: {dict(counts)}")
    for row in rows:
        print(row)
    for fault in faults[:20]:
        print(f"FINDING {fault}")
    if args.write:
        more = (
            f" In {seconds:.0f} seconds two threads made {counts['fits']} fits, each "
            f"saved and loaded twice, and cancelled {counts['cancelled']} others; "
            f"{len(faults)} findings."
        )
        text = page(
            "Results of the soak test",
            f"soak.py --seconds {seconds:.0f} --write",
            rows,
            more,
        )
        path = Path(__file__).parent.parent / "docs" / "results" / "soak.md"
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
