"""What ``mklearn fit`` takes on large tables with its defaults: time and memory.

The tables are simulated, in the shapes of two well-known data sets: 20 000 samples of
16 small integers in 26 balanced classes, and 58 000 samples of 9 integers in 7 classes,
the smallest with 10 samples and the largest with 45 586. Each run has its own process.
The page shows CPU and wall seconds, peak memory, and the estimate that the command
printed at its start.

    python benchmarks/command.py [--quick] [--page FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from pages import page

UNEQUAL = (45_586, 50, 171, 8_903, 3_267, 10, 13)


def letters(n: int = 20_000, classes: int = 26, kinds: int = 4) -> pd.DataFrame:
    """Return integers from 0 to 15; each class comes in a few kinds."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes * kinds, 16))
    y = rng.integers(classes, size=n)
    X = centres[kinds * y + rng.integers(kinds, size=n)]
    X = X + 0.55 * rng.normal(size=X.shape)
    frame = pd.DataFrame(np.clip(np.rint(7.5 + 3.0 * X), 0, 15).astype(int))
    return frame.add_prefix("x").assign(target=[chr(65 + label) for label in y])


def unequal(share: float = 1.0) -> pd.DataFrame:
    """Return integers with heavy tails, in classes of very different sizes."""
    rng = np.random.default_rng(0)
    counts = [max(10, round(share * count)) for count in UNEQUAL]
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    centres = 2.0 * rng.normal(size=(len(counts), 9))
    X = centres[y] + rng.normal(size=(len(y), 9))
    X = X + 0.3 * rng.standard_t(3, size=X.shape)
    frame = pd.DataFrame(np.rint(10.0 * X).astype(int)).add_prefix("x")
    return frame.assign(target=[f"state{label}" for label in y])


def run(frame: pd.DataFrame) -> dict[str, object]:
    """Run ``mklearn fit`` on a table in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        frame.to_csv(here / "table.csv", index=False)
        command = [sys.executable, "-m", "mklearn", "fit", "table.csv", "--target",
                   "target", "--out", "out", "--log", "log"]  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(command, cwd=here, stdout=subprocess.DEVNULL, check=True)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads((here / "out" / "results.json").read_text("utf-8"))
        log = (here / "log").read_text("utf-8")
        said = re.search(r"will take about (.*?) and", log)
    return {
        "rows": len(frame),
        "columns": frame.shape[1] - 1,
        "classes": frame["target"].nunique(),
        "CPU s": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
        "wall s": wall,
        "MB": after.ru_maxrss / 1024,  # of the largest process so far
        "estimate": said[1] if said else "",
        "accuracy": found["large"]["score"] if "large" in found else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="on a small table")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    args = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    tables = [letters(60, 2)] if args.quick else [letters(), unequal()]
    rows = []
    for frame in tables:
        rows.append(run(frame))
        print(rows[-1], flush=True)
    if args.page:
        more = (
            f" The load of the machine was {load:.1f} at the start. `MB` is the peak "
            "memory of any process so far, `estimate` what the run announced after "
            "timing a few fits, and `accuracy` that of the model on held-out rows."
        )
        title = "Cost of `mklearn fit` on large tables"
        args.page.write_text(page(title, "command.py", rows, more))


if __name__ == "__main__":
    main()
