"""Parts of a benchmark: several in one process, or a function in its own."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

FILES = ("json", "page", "figure", "rows", "resume")


def each_part(
    parser: argparse.ArgumentParser, names: Iterable[str]
) -> Iterator[argparse.Namespace]:
    """Yield the arguments for each part that the command line names, as ``part``.

    A part that is measured has a process to itself, because peak memory and the state
    of caches depend on what was run before. In quick mode several parts can share a
    process, which imports the library once, and write no files.
    """
    parser.add_argument("parts", nargs="+", choices=list(names), metavar="part",
                        help=f"{', '.join(names)}; several with --quick")  # fmt: skip
    args = parser.parse_args()
    written = [name for name in FILES if getattr(args, name, None) is not None]
    if len(args.parts) > 1 and (written or not args.quick):
        parser.error(
            "several parts need --quick"
            + (f" and cannot be combined with --{written[0]}" if written else "")
        )
    for part in args.parts:
        began = time.process_time()
        yield argparse.Namespace(**vars(args), part=part)
        if len(args.parts) > 1:
            print(f"-- {part}: {time.process_time() - began:.1f} s of CPU", flush=True)


def alone(
    function: Callable[..., Any],
    *args: object,
    here: bool = False,
    source: Path | None = None,
    timeout: float | None = None,
    **env: str,
) -> Any:
    """Return the result of a function of a benchmark, run in a separate process.

    Parameters
    ----------
    function : callable
        Its arguments and its result are values of JSON.
    here : bool
        Run it in this process instead, as quick modes do, in which peak memory and the
        cost of imports are not measured.
    source : Path, optional
        The folder from which mklearn is imported, if not the default.
    timeout : float, optional
        Seconds after which ``subprocess.TimeoutExpired`` is raised.
    **env
        Further environment variables.
    """
    if here and source is None and not env:
        return function(*args)
    file = Path(inspect.getfile(function)).resolve()
    code = (
        "import importlib, json, sys; sys.path.insert(0, sys.argv[1]); "
        "function = getattr(importlib.import_module(sys.argv[2]), sys.argv[3]); "
        "print(json.dumps(function(*json.loads(sys.argv[4]))))"
    )
    told = [str(file.parent), file.stem, function.__name__, json.dumps(args)]
    if source is not None:
        paths = [str(source), os.environ.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    done = subprocess.run(
        [sys.executable, "-c", code, *told],
        env=os.environ | env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=timeout,
    )
    return json.loads(done.stdout.splitlines()[-1])
