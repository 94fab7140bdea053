"""Run the tests as if on other processors that this machine can emulate.

Libraries choose their code by the processor: BLAS its kernels, numpy its loops, Numba
the instructions it emits. Each can be made to choose as if on another one, which
changes the order of summation. ``make test-processors`` runs the whole suite on all of
them and prints a table; give arguments as ``PROCESSORS_ARGS="--only prescott --repeats
3 -- -k grid"``. With ``--record`` every finished run is added to a file: the same
command continues where it was stopped, as long as the commit is the same. The committed
file keeps the runs of all commits, and docs/results/processors.md is written from it.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "recorded" / "processors.jsonl"
PAGE = ROOT / "docs" / "results" / "processors.md"
# two workers, each with the tests of a file as long as they can share what it prepares
WORKERS = ["-n", "2", "--dist", "worksteal"]

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


def processor():
    """Return the name of this processor, as exactly as the system knows it."""
    known = Path("/proc/cpuinfo")
    text = known.read_text(encoding="utf-8") if known.exists() else ""
    found = re.search(r"^model name\s*: (.+)$", text, flags=re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def versions():
    """Return the versions of what computes."""
    import numpy as np
    import scipy

    found = ("Python", platform.python_version()), ("numpy", np.__version__)
    return ", ".join(" ".join(one) for one in (*found, ("scipy", scipy.__version__)))


def run(environment, arguments):
    """Run pytest; return the counts of its outcomes, and which tests failed.

    None is returned of a run that did not come to its end, whatever stopped it.
    """
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        if "NUMBA_CPU_NAME" in environment:
            environment = {**environment, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *arguments],
            cwd=ROOT,
            # wide enough for what went wrong beside the name of a test
            env={**os.environ, "COLUMNS": "240", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1):  # neither "all passed" nor "tests failed"
        print("\n".join(lines[-20:]), flush=True)
        return None
    last = next((line for line in reversed(lines) if " in " in line), "")
    counts = {what: int(n) for n, what in re.findall(r"(\d+) ([a-z]+)", last)}
    failed = counts.get("failed", 0) + counts.get("errors", 0) + counts.get("error", 0)
    return {
        "passed": counts.get("passed", 0),
        "failed": max(failed, done.returncode),
        "skipped": counts.get("skipped", 0),
        "seconds": round(time.perf_counter() - began, 1),
        "failures": [x for x in lines if x.startswith(("FAILED", "ERROR"))],
    }


def git(*arguments):
    """Return what git prints, nothing without git."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def commit():
    """Return the current commit, with a mark if files differ from it.

    The record and its page change with every run, and do not count.
    """
    written = [
        f":(exclude){file.relative_to(ROOT).as_posix()}" for file in (RECORD, PAGE)
    ]
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *written)
    return (git("rev-parse", "HEAD") or "unknown") + ("-dirty" if changed else "")


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


def in_a_row(runs):
    """Return how many of the last runs had no failure."""
    failed = [r["failed"] > 0 for r in reversed(runs)]
    return failed.index(True) if True in failed else len(runs)


def results(runs):
    """Return the lines of a Markdown table of the runs of several commits."""
    lines = [
        "| imitation | runs | last runs without a failure | passed | failed | skipped "
        "| commits |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name in imitations():
        of = [r for r in runs if r["imitation"] == name]
        if not of:
            lines.append(f"| {name} | 0 | | | | | |")
            continue
        numbers = [sum(r[key] for r in of) for key in ("passed", "failed", "skipped")]
        commits = ", ".join(dict.fromkeys(short(r["commit"]) for r in of))
        cells = [name, len(of), in_a_row(of), *numbers, commits]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    failures = [
        f"- {r['imitation']}, {short(r['commit'])}: `{line}`"
        for r in runs
        for line in r["failures"]
    ]
    return [*lines, "", *(failures or ["No test failed in these runs."]), ""]


def short(commit):
    """Return the first letters of a commit, and the mark of changed files."""
    known, *mark = commit.split("-")
    return "-".join([known[:9], *mark])


def page(runs):
    """Return the page of all recorded runs, a table for each selection of tests."""
    lines = [
        "# Tests on imitated processors",
        "",
        "Written by `make test-processors PROCESSORS_ARGS=--record`. Each line of "
        f"`{RECORD.relative_to(ROOT).as_posix()}` is a completed run of the tests in a "
        "process that behaves as on another processor, as described in "
        "[Reproducibility](../reproducibility.md#testing-it), with its commit, date, "
        "processor, versions and numbers. Numbers of tests are sums over the runs.",
        "",
    ]
    selections = dict.fromkeys(tuple(r["arguments"]) for r in runs)
    for arguments in sorted(selections, key=lambda words: len(words)):
        of = [r for r in runs if tuple(r["arguments"]) == arguments]
        days = sorted(r["date"][:10] for r in of)
        processors = ", ".join(dict.fromkeys(r["processor"] for r in of))
        versions = ", ".join(dict.fromkeys(r["versions"] for r in of))
        lines += [
            "## " + ("All tests" if list(arguments) == WORKERS else "Selected tests"),
            "",
            f"`pytest {shlex.join(arguments)}` on {processors} with {versions}, "
            + (days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}")
            + ":",
            "",
            *results(of),
        ]
    if not runs:
        lines += ["No run has been recorded yet.", ""]
    return "\n".join(lines)


def main(words=None):
    known = imitations()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=known, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sensitive", action="store_true")
    parser.add_argument(
        "--record",
        type=Path,
        nargs="?",
        const=RECORD,
        metavar="FILE",
        help="append each run, as a line of JSON, and skip runs of this commit that "
        "are already in the file; without FILE, the committed record",
    )
    parser.add_argument(
        "--show", action="store_true", help="print the table of --record, run nothing"
    )
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args(words)
    if options.show and options.record is None:
        parser.error("--show needs --record")
    arguments = [*WORKERS, *options.pytest]
    if options.sensitive:
        arguments += ["-k", LEFT_OUT, *SENSITIVE]
    names = options.only or list(known)
    same = {"commit": commit(), "arguments": arguments}
    if options.record == RECORD and same["commit"].endswith("-dirty"):
        parser.error("files differ from the commit: commit them, or give --record FILE")
    runs = [
        r
        for r in recorded(options.record)
        if r["imitation"] in names and same.items() <= r.items()
    ]
    stopped = False
    # in turns, so that all have run about equally often whenever it is stopped
    for number in range(1, 1 if options.show else options.repeats + 1):
        for name in names:
            done = sum(r["imitation"] == name for r in runs)
            if missing(name) is not None or done >= number:
                continue
            date = datetime.datetime.now(datetime.UTC)
            found = run(known[name], arguments)
            if found is None or commit() != same["commit"]:
                print(f"{name}: not completed, or the files were changed", flush=True)
                stopped = True
                continue
            about = {
                "date": f"{date:%Y-%m-%dT%H:%M:%SZ}",
                "processor": processor(),
                "versions": versions(),
            }
            runs.append({**same, "imitation": name, "run": done + 1, **about, **found})
            passed, failed = found["passed"], found["failed"]
            print(
                f"{name}, run {done + 1}: {passed} passed, {failed} failed", flush=True
            )
            if options.record is not None:
                with options.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
            if options.record == RECORD:
                PAGE.write_text(page(recorded(RECORD)), encoding="utf-8")
    if options.record == RECORD:
        PAGE.write_text(page(recorded(RECORD)), encoding="utf-8")
    print(table(names, runs))
    return stopped or any(r["failed"] for r in runs)


if __name__ == "__main__":
    sys.exit(main())
