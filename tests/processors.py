"""Run the tests as if on other processors that this machine can emulate.

Libraries choose their code by the processor: BLAS its kernels, numpy its loops, Numba
the instructions it emits. Each can be made to choose as if on another one, which
changes the order of summation. ``make test-processors`` runs the whole suite on all of
them and prints a table; give arguments as ``PROCESSORS_ARGS="--only prescott --repeats
3 -- -k grid"``. With ``--record FILE`` every finished run is recorded: the same command
continues where it was stopped, as long as the commit is the same.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Tests that compare numbers to many digits, without those of conventions and files.
SENSITIVE = [
    f"tests/test_{name}.py"
    for name in (
        "cv_estimators", "grid", "interpretation", "lowrank", "persistence", "solvers",
        "subspace",
    )
]  # fmt: skip
LEFT_OUT = "not conventions and not forged and not damaged and not refused"

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
NEWEST = re.compile("AVX512.*|X86_V4")
NEWER = re.compile("AVX.*|FMA.*|F16C|X86_V[34]")


def disabled(pattern):
    """Return numpy's names of the processor features by which it chooses its loops."""
    import numpy as np

    umath = getattr(np, "_core", None) or np.core
    features = umath._multiarray_umath.__cpu_dispatch__
    return " ".join(name for name in features if pattern.fullmatch(name))


def imitations():
    """Return the environment of each emulated processor by name."""
    found = {"own": {}}
    for kernel in ("Prescott", "Sandybridge", "Haswell", "Zen", "SkylakeX"):
        found[kernel.lower()] = {"OPENBLAS_CORETYPE": kernel}
    found["numpy-avx2"] = {"NPY_DISABLE_CPU_FEATURES": disabled(NEWEST)}
    found["numpy-sse"] = {"NPY_DISABLE_CPU_FEATURES": disabled(NEWER)}
    found["numba-generic"] = {"NUMBA_CPU_NAME": "generic"}
    parts = ("prescott", "numpy-sse", "numba-generic")
    found["oldest"] = {k: v for name in parts for k, v in found[name].items()}
    for count in (1, 2):
        found[f"threads-{count}"] = dict.fromkeys(THREADS, str(count))
    return found


def missing(name):
    """Return why this machine cannot emulate a processor, None if it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        if not name.startswith(("own", "threads")):
            return "this is not an x86-64 processor"
    if name == "skylakex":
        known = Path("/proc/cpuinfo")
        flags = known.read_text().split() if known.exists() else []
        if not {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(flags):
            return "this processor has no AVX-512"
    return None


def run(environment, arguments):
    """Run pytest; return the counts of its outcomes, and which tests failed."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        if "NUMBA_CPU_NAME" in environment:
            environment = {**environment, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    lines = done.stdout.splitlines()
    last = next((line for line in reversed(lines) if " in " in line), "")
    counts = {what: int(n) for n, what in re.findall(r"(\d+) ([a-z]+)", last)}
    failed = counts.get("failed", 0) + counts.get("errors", 0) + counts.get("error", 0)
    if done.returncode and not failed:  # killed, or nothing to run
        failed = 1
        print("\n".join(lines[-20:]), flush=True)
    return {
        "passed": counts.get("passed", 0),
        "failed": failed,
        "skipped": counts.get("skipped", 0),
        "seconds": round(time.perf_counter() - began, 1),
        "failures": [x for x in lines if x.startswith(("FAILED", "ERROR"))],
    }


def commit():
    """Return the current commit, with a mark if files differ from it."""
    git = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def recorded(file):
    """Return the runs recorded in a file, oldest first."""
    if file is None or not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def table(names, runs):
    """Return a row for each processor: runs, total numbers of tests, seconds."""
    rows = [
        "| processor      | runs | passed | failed | skipped | seconds |",
        "|----------------|-----:|-------:|-------:|--------:|--------:|",
    ]
    for name in names:
        why, of = missing(name), [r for r in runs if r["imitation"] == name]
        if why is not None and not of:
            rows.append(f"| {name:14} |    0 | not run: {why} |")
            continue
        passed, failed, skipped, seconds = (
            sum(r[key] for r in of)
            for key in ("passed", "failed", "skipped", "seconds")
        )
        rows.append(
            f"| {name:14} | {len(of):4} | {passed:6} | {failed:6} | {skipped:7} | "
            f"{seconds:7.0f} |"
        )
    failures = [f"{r['imitation']}: {line}" for r in runs for line in r["failures"]]
    return "\n".join([*rows, *failures])


def main():
    known = imitations()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=known, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sensitive", action="store_true")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="append each run, as a line of JSON, and skip runs already in the file",
    )
    parser.add_argument(
        "--show", action="store_true", help="print the table of --record, run nothing"
    )
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args()
    if options.show and options.record is None:
        parser.error("--show needs --record FILE")
    arguments = ["-n", "2", *options.pytest]
    if options.sensitive:
        arguments += ["-k", LEFT_OUT, *SENSITIVE]
    names = options.only or list(known)
    same = {"commit": commit(), "arguments": arguments}
    runs = [
        r
        for r in recorded(options.record)
        if r["imitation"] in names and same.items() <= r.items()
    ]
    if not options.show:
        # in turns, so that all have run about equally often whenever it is stopped
        for number in range(1, options.repeats + 1):
            for name in names:
                done = sum(r["imitation"] == name for r in runs)
                if missing(name) is not None or done >= number:
                    continue
                found = run(known[name], arguments)
                runs.append({**same, "imitation": name, "run": done + 1, **found})
                passed, failed = found["passed"], found["failed"]
                print(
                    f"{name}, run {done + 1}: {passed} passed, {failed} failed",
                    flush=True,
                )
                if options.record is not None:
                    with options.record.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(runs[-1]) + "\n")
    print(table(names, runs))
    return any(r["failed"] for r in runs)


if __name__ == "__main__":
    sys.exit(main())
