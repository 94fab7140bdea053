"""``python -m reproduction PAPER``, from the root of the project.

Standard output is for the path of the page or its numbers, standard error for progress
and errors. Exit codes: 0 done, 1 a number of a quick run left its band, 2 the user can
repair it (one line says how), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from reproduction import PAPERS, Settings, protocol, run
from reproduction.page import agreement, compared, content, outside, write
from reproduction.renew import compared as on_page
from reproduction.renew import renew


def main(argv: Sequence[str] | None = None) -> None:
    """Run the tables of a paper and compare with the printed numbers."""
    began = time.perf_counter()
    args = parser().parse_args(argv)
    settings = Settings(
        args.seed, args.quick, args.repetitions, args.budget, args.table, args.cap
    )
    try:
        plan = protocol(args.paper)
        plan.select(args.table, args.quick)
    except ValueError as error:
        fail(str(error))
    if args.jobs == 0:
        fail("--jobs must not be 0; -1 takes all cores")
    if args.renew:
        with writing(args.out):
            page = renew(plan, args.out, settings)
        print(page)
        text = page.read_text(encoding="utf-8").splitlines()
        for line in agreement(list(on_page(text))):
            print(line, file=sys.stderr)
        return
    with writing(args.out):
        found = run(plan, args.out, settings, jobs=args.jobs, tick=tick)
        page = write(found, args.out, time.perf_counter() - began)
    if args.json:
        print(json.dumps({**content(found), "page": str(page)}, allow_nan=False))
    else:
        print(page)
    for line in agreement(compared(found)):
        print(line, file=sys.stderr)
    for name, reason in found.missing.items():
        print(f"left out {name}: {reason}", file=sys.stderr)
    if not found.cells:
        fail("no cell could be run; see the reasons above")
    broken = outside(found) if args.quick else []
    if broken:
        fail("a number is outside of its expected range: " + "; ".join(broken), 1)


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser(
        prog="python -m reproduction",
        description=main.__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = made.add_argument
    add("paper", help=", ".join(PAPERS))
    add(
        "--table",
        help="number of one table, or a figure such as figure1; all by default",
    )
    add(
        "--quick",
        action="store_true",
        help="run a few cells; fail if a number is outside of its expected range",
    )
    add(
        "--jobs",
        type=int,
        default=1,
        help="number of cells that run in parallel; -1 for all cores",
    )
    add(
        "--out",
        type=Path,
        default=Path("reproduction-output"),
        help="output folder; page, figures and cells are written to its subfolder "
        "PAPER",
    )
    add("--seed", type=at_least(0, int), default=0, help="seed of the splits")
    add(
        "--repetitions",
        type=at_least(1, int),
        help="maximum number of repetitions in each table",
    )
    add(
        "--budget",
        type=at_least(1, float),
        default=300.0,
        help="seconds for each slow method on each data set",
    )
    add(
        "--cap",
        type=at_least(1, float),
        help="seconds for one conic program; by default the same as --budget",
    )
    add(
        "--renew",
        action="store_true",
        help="run nothing; rewrite what a page says about the numbers in its tables",
    )
    add("--json", action="store_true", help="print the numbers of the page as JSON")
    return made


def at_least(least: int, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return what reads a number that is not below the least."""

    def number(text: str) -> Any:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    number.__name__ = kind.__name__  # which argparse shows
    return number


def tick(done: int, total: int, name: str) -> None:
    """Say that a cell is finished."""
    print(f"{done}/{total} {name}", file=sys.stderr, flush=True)


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """End with one line where a file cannot be written."""
    try:
        yield
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror or error}")


def fail(message: str, code: int = 2) -> NoReturn:
    """End with a line and an exit code."""
    print(f"reproduction: {message}", file=sys.stderr)
    raise SystemExit(code)


def stop(*_: Any) -> NoReturn:
    """End on Ctrl-C, which as a KeyboardInterrupt would only make a solver return."""
    fail("stopped; the same command continues where it was stopped", 130)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop)
    main()
