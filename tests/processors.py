"""Run the tests on processors that this machine can imitate, and print a table.

Libraries choose their code by the processor: BLAS its kernels, numpy its loops, Numba
the instructions it emits. Each can be told to choose as if on another one, and sums are
then added up in another order. ``make test-processors`` runs the whole suite on all of
them; give arguments as ``PROCESSORS_ARGS="--only prescott --repeats 3 -- -k grid"``.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The tests that compare numbers to many digits, without those of conventions and files.
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
    """Return the features that numpy would choose its loops by, as it names them."""
    import numpy as np

    umath = getattr(np, "_core", None) or np.core
    features = umath._multiarray_umath.__cpu_dispatch__
    return " ".join(name for name in features if pattern.fullmatch(name))


def imitations():
    """Return the environment of each imitation by name."""
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
    """Return why this machine cannot run an imitation, None if it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        if not name.startswith(("own", "threads")):
            return "this is no x86-64 processor"
    if name == "skylakex":
        known = Path("/proc/cpuinfo")
        flags = known.read_text().split() if known.exists() else []
        if not {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(flags):
            return "this processor has no AVX-512"
    return None


def run(environment, arguments):
    """Run pytest; return the numbers of its last line, the failures and seconds."""
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
    worse = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    numbers = (counts.get("passed", 0), failed, counts.get("skipped", 0))
    return numbers, worse, time.perf_counter() - began


def main():
    known = imitations()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=known, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sensitive", action="store_true")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args()
    arguments = ["-n", "2", *options.pytest]
    if options.sensitive:
        arguments += ["-k", LEFT_OUT, *SENSITIVE]
    print(f"| {'processor':14} | runs | passed | failed | skipped | seconds |")
    print(f"|{'-' * 16}|-----:|-------:|-------:|--------:|--------:|", flush=True)
    every = []
    for name in options.only or known:
        why = missing(name)
        if why is not None:
            print(f"| {name:14} |    0 | skipped: {why}", flush=True)
            continue
        total, seconds = [0, 0, 0], 0.0
        for _ in range(options.repeats):
            numbers, worse, took = run(known[name], arguments)
            total = [a + b for a, b in zip(total, numbers, strict=True)]
            seconds += took
            every += [f"{name}: {line}" for line in worse]
        passed, failed, skipped = total
        print(
            f"| {name:14} | {options.repeats:4} | {passed:6} | {failed:6} | "
            f"{skipped:7} | {seconds:7.0f} |",
            flush=True,
        )
        every += [name] * (failed > 0)
    print("\n".join(every))
    return bool(every)


if __name__ == "__main__":
    sys.exit(main())
