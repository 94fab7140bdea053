"""Cells: what is worked on, written at once and never twice."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

import mklearn
from mklearn.datasets import load
from mklearn.report import write_json

# Repetitions that a long method gets whatever the budget.
LEAST = 3

Values = dict[str, Any]
Work = Callable[["Cell", int], Values]


@dataclass(frozen=True)
class Cell:
    """One method on one repetition of one data set, for one table of a paper."""

    paper: str
    table: str
    data: str
    method: str
    repetition: int

    @property
    def file(self) -> str:
        """Name of the file that holds the result."""
        table = f"table{self.table}" if self.table.isdigit() else self.table
        parts = (table, self.data, self.method)
        safe = "-".join(re.sub(r"[^\w]+", "_", part) for part in parts)
        return f"{safe}-{self.repetition:03d}.json"


@dataclass(frozen=True)
class Table:
    """Methods and data of one table, or of one figure.

    Parameters
    ----------
    name : str
        Its number in the paper; "figure1" and the like are figures, "figure1-50" a
        part of one.
    data, methods : tuple of str
    repetitions : int
        As many as the paper has; where they are fewer the title says so.
    keys : tuple of str
        Which values of a cell are shown: "accuracy", "seconds" ...
    of : tuple of str
        Tables whose cells it shows; it has none of its own then.
    absent : str
        Why it cannot be run; it has no cells then, and the page shows what is printed.
    """

    name: str
    title: str
    data: tuple[str, ...]
    methods: tuple[str, ...]
    repetitions: int
    keys: tuple[str, ...] = ("accuracy",)
    of: tuple[str, ...] = ()
    absent: str = ""

    @property
    def heading(self) -> str:
        """What the page calls it."""
        number = self.name.removeprefix("figure").split("-")[0]
        return f"{'Table' if number == self.name else 'Figure'} {number}"

    def wanted(self, asked: int | None) -> int:
        """Return the number of repetitions of a run that was asked for so many."""
        return min(asked or self.repetitions, self.repetitions)

    def cells(self, paper: str, repetitions: int | None = None) -> list[Cell]:
        """Return the table's own cells, the first repetition of all methods first."""
        if self.of or self.absent:
            return []
        return [
            Cell(paper, self.name, data, method, repetition)
            for repetition in range(self.wanted(repetitions))
            for data in self.data
            for method in self.methods
        ]


@dataclass(frozen=True)
class Band:
    """Where the mean of a value must be in a quick run, and why."""

    data: str
    method: str
    key: str
    low: float
    high: float
    reason: str
    seed: int | None = None  # the only one that it is for, if any


def on_splits(
    data: str,
    methods: Iterable[str],
    key: str,
    percent: float,
    testing: int,
    change: int = 1,
) -> tuple[Band, ...]:
    """Return the bands of a percentage that is known on the splits of the default seed.

    Splits come from the seed, and a certified optimum is the same on every machine but
    for its gap. Only test samples that are next to the boundary can change sides.

    Parameters
    ----------
    percent : float
        What was found on these splits.
    testing : int
        Test samples of all splits together.
    change : int
        How many of them may change sides.
    """
    step = 100.0 / testing
    reason = (
        f"it is {percent:.2f} on these {testing} test samples, of which {change} may "
        "change sides within the precision of the solution"
    )
    # a little more, for percentages that are given rounded
    low, high = (percent + sign * (change + 0.1) * step for sign in (-1, 1))
    return tuple(Band(data, m, key, low, high, reason, seed=0) for m in methods)


@dataclass(frozen=True)
class Explanation:
    """Why our numbers differ from printed ones, or what was tried to find out.

    Parameters
    ----------
    text : str
        One or more sentences.
    tables, data, methods, keys : tuple of str
        The rows that it is for; all of them where a tuple is empty.
    """

    text: str
    tables: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def fits(self, table: str, data: str, method: str, key: str) -> bool:
        """Return whether it is for a row."""
        return all(
            not wanted or given in wanted
            for given, wanted in (
                (table, self.tables),
                (data, self.data),
                (method, self.methods),
                (key, self.keys),
            )
        )


@dataclass(frozen=True)
class Protocol:
    """The experiments of a paper.

    Parameters
    ----------
    name, title : str
    tables : tuple of Table
    work : callable
        Takes a cell and the seed and returns its values; importable, so that other
        processes can call it.
    choices : mapping
        What the paper leaves open, as it was chosen. Part of every result: cells that
        were made with other choices are made again.
    files : mapping
        Which sets of :mod:`mklearn.datasets` the data of the tables are cut from; data
        that are not named here are generated, or taken to be at hand.
    slow : set of str
        Methods with a time cap for each cell, which get as many repetitions as fit
        into the budget, one at least.
    long : set of str
        Methods that get as many repetitions as fit into the budget, three at least,
        without a cap.
    explanations : tuple of Explanation
        For rows that differ from the printed ones; of those that fit a row the first
        is shown.
    printed : callable
        Takes the folder of the published numbers and returns
        ``{(table, data, method, key): (mean, standard error)}``.
    quick : tuple of Table
        What ``--quick`` runs in place of the tables.
    bands : tuple of Band
        For the quick run.
    conclusions : callable, optional
        Takes a function that returns the mean of a value by data, method and name, and
        yields the claims for the top of the page.
    evidence : callable, optional
        Takes the folder of the published numbers and returns lines about these alone.
    beside : callable, optional
        Takes the results and returns a section about cells that solve one problem in
        several ways, or nothing without such cells.
    remarks : callable, optional
        Takes the results and returns lines for the end of the page.
    figures : callable, optional
        Takes the results and a folder, and returns the names of the files drawn.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    work: Work
    choices: Mapping[str, Any]
    files: Mapping[str, str]
    printed: Callable[[Path], dict[tuple[str, str, str, str], tuple[float, float]]]
    quick: tuple[Table, ...]
    bands: tuple[Band, ...]
    slow: frozenset[str] = frozenset()
    long: frozenset[str] = frozenset()
    explanations: tuple[Explanation, ...] = ()
    conclusions: Callable[[Callable[[str, str, str], float]], Iterable[Any]] | None = (
        None
    )
    evidence: Callable[[Path], list[str]] | None = None
    beside: Callable[[Results], list[str]] | None = None
    remarks: Callable[[Results], list[str]] | None = None
    figures: Callable[[Results, Path], list[str]] | None = None

    def select(self, table: str | None, quick: bool) -> tuple[Table, ...]:
        """Return the tables of a run; a table that shows others brings these along."""
        known = self.quick if quick else self.tables
        if table is None:
            return known
        wanted = [t for t in known if t.name == table]
        if not wanted:
            raise ValueError(
                f"There is no table {table} in {'the quick run of ' if quick else ''}"
                f"{self.name}; there are {', '.join(t.name for t in known)}."
            )
        brought = [t for t in known if t.name in wanted[0].of]
        return (*brought, *wanted)


@dataclass(frozen=True)
class Settings:
    """What a run was asked for.

    Parameters
    ----------
    seed : int
    quick : bool
    repetitions : int, optional
        At most so many.
    budget : float
        Seconds for the repetitions of a slow or long method on one data set.
    table : str, optional
        The only one.
    cap : float, optional
        Seconds after which a cell of a slow method is ended; the budget by default.
    """

    seed: int = 0
    quick: bool = False
    repetitions: int | None = None
    budget: float = 300.0
    table: str | None = None
    cap: float | None = None

    @property
    def most(self) -> float:
        """Seconds that a cell of a slow method may take."""
        return self.budget if self.cap is None else self.cap


@dataclass(frozen=True)
class Results:
    """Finished cells and what kept the others from being finished."""

    protocol: Protocol
    tables: tuple[Table, ...]
    settings: Settings
    cells: dict[Cell, Values]
    missing: dict[str, str] = field(default_factory=dict)  # data set: reason

    def of(self, table: Table, data: str, method: str) -> list[Values]:
        """Return the finished repetitions of one row of a table, in their order."""
        names = table.of or (table.name,)
        found = [
            (cell.repetition, values)
            for cell, values in self.cells.items()
            if cell.table in names and (cell.data, cell.method) == (data, method)
        ]
        return [values for _, values in sorted(found, key=lambda pair: pair[0])]


# --- running --------------------------------------------------------------------------


def run(
    protocol: Protocol,
    out: Path,
    settings: Settings,
    *,
    jobs: int = 1,
    tick: Callable[[int, int, str], Any] | None = None,
) -> Results:
    """Work on all cells that have no result yet, and return the results of all.

    Every cell is written by the process that finished it, whole or not at all, so that
    a run that was stopped goes on where it was. Cells run through joblib: within
    ``joblib.parallel_config(backend="dask")`` a cluster works on them. Machines that do
    not share the folder send their results, which are written here as they arrive.

    Parameters
    ----------
    out : Path
        Results are in ``cells`` in its folder of the paper.
    jobs : int
        Cells at a time.
    tick : callable, optional
        Called with the number of cells done, of all cells, and the one just finished.
    """
    folder = cells_folder(protocol, out)
    folder.mkdir(parents=True, exist_ok=True)
    tables = protocol.select(settings.table, settings.quick)
    missing = _without_data(protocol, tables)
    cells = [
        cell
        for table in tables
        for cell in table.cells(protocol.name, settings.repetitions)
        if cell.data not in missing
    ]
    limited = protocol.slow | protocol.long
    # what has no limit first: a run that is stopped early has most rows whole
    _work_on(
        protocol,
        folder,
        settings,
        [c for c in cells if c.method not in limited],
        jobs,
        tick,
    )
    first = [c for c in cells if c.method not in limited or not c.repetition]
    _work_on(protocol, folder, settings, first, jobs, tick)
    done = finished(protocol, folder, settings, cells)
    cells = affordable(protocol, cells, done, settings.budget)
    _work_on(protocol, folder, settings, cells, jobs, tick)
    return results(protocol, out, settings)


def results(protocol: Protocol, out: Path, settings: Settings) -> Results:
    """Return what is finished in a folder, and work on nothing."""
    tables = protocol.select(settings.table, settings.quick)
    cells = [c for t in tables for c in t.cells(protocol.name, settings.repetitions)]
    done = finished(protocol, cells_folder(protocol, out), settings, cells)
    return Results(protocol, tables, settings, done, _without_data(protocol, tables))


def cells_folder(protocol: Protocol, out: Path) -> Path:
    """Return the folder of the finished cells of a paper."""
    return out / protocol.name / "cells"


def affordable(
    protocol: Protocol,
    cells: Iterable[Cell],
    done: Mapping[Cell, Values],
    budget: float,
) -> list[Cell]:
    """Leave out the repetitions of slow and long methods that the budget has not.

    The first repetition tells how long one takes; if it hit the cap it stays the only
    one. The decision depends on what is written alone, so that a run that resumes
    decides alike.
    """
    kept = []
    for cell in cells:
        limited = cell.method in protocol.slow | protocol.long
        if limited and cell.repetition:
            one = done.get(Cell(*_row(cell), repetition=0))
            if one is None or one.get("stopped"):
                continue
            least = LEAST if cell.method in protocol.long else 1
            if cell.repetition >= max(least, budget / max(one["spent"], 1e-3)):
                continue
        kept.append(cell)
    return kept


def finished(
    protocol: Protocol, folder: Path, settings: Settings, cells: Iterable[Cell]
) -> dict[Cell, Values]:
    """Return the results that are written and were made with these settings."""
    condition = conditions(protocol, settings)
    found = {}
    for cell in cells:
        try:
            content = json.loads((folder / cell.file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if content.get("conditions") != condition or content["cell"] != asdict(cell):
            continue
        values = content["values"]
        # with more time than it had a cell may be finished yet
        if not (values.get("stopped") and values["cap"] < settings.most):
            found[cell] = values
    return found


def conditions(protocol: Protocol, settings: Settings) -> Values:
    """Return what a result depends on besides its cell, as JSON has it."""
    content = {
        "seed": settings.seed,
        "version": mklearn.__version__,
        "choices": dict(protocol.choices),
    }
    return json.loads(json.dumps(content))  # type: ignore[no-any-return]


def _row(cell: Cell) -> tuple[str, str, str, str]:
    return cell.paper, cell.table, cell.data, cell.method


def _work_on(
    protocol: Protocol,
    folder: Path,
    settings: Settings,
    cells: list[Cell],
    jobs: int,
    tick: Callable[[int, int, str], Any] | None,
) -> None:
    done = finished(protocol, folder, settings, cells)
    left = [cell for cell in cells if cell not in done]
    work = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(_finish)(protocol, folder, settings, cell) for cell in left
    )
    pairs = zip(left, work, strict=True)
    for count, (cell, content) in enumerate(pairs, len(done) + 1):
        if not finished(protocol, folder, settings, [cell]):
            write_json(folder / cell.file, content)
        if tick is not None:
            name = f"{cell.data}, {cell.method}, repetition {cell.repetition + 1}"
            tick(count, len(cells), name)


def _finish(protocol: Protocol, folder: Path, settings: Settings, cell: Cell) -> Values:
    """Work on one cell, write what was found if the folder is here, and return it."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        # the gap is a part of the result and says more than a warning
        warnings.simplefilter("ignore")
        if cell.method in protocol.slow:
            values = capped(protocol.work, cell, settings.seed, settings.most)
            values["cap"] = settings.most
        else:
            values = protocol.work(cell, settings.seed)
    values["spent"] = time.perf_counter() - began
    content = {
        "cell": asdict(cell),
        "conditions": conditions(protocol, settings),
        "values": values | {"commit": commit()},
    }
    if folder.is_dir():
        write_json(folder / cell.file, content)
    return content


def capped(work: Work, cell: Cell, seed: int, seconds: float) -> Values:
    """Return the values of a cell, or that it was stopped after so many seconds.

    A general conic solver cannot be asked to stop: it runs in a process that can.
    """
    known = multiprocessing.get_all_start_methods()
    if multiprocessing.get_start_method(allow_none=True) not in (None, *known):
        # a worker of joblib, whose own method a new process would not know
        multiprocessing.set_start_method("spawn", force=True)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, cell, seed, sender))
    process.start()
    sender.close()
    try:
        receiver.recv()  # it has started: imports are not the solver's time
        if not receiver.poll(seconds):
            return {"stopped": f"not done after {seconds:g} s"}
        return receiver.recv()  # type: ignore[no-any-return]
    except EOFError:
        process.join()
        return {"stopped": f"ended by itself with exit code {process.exitcode}"}
    finally:
        process.terminate()
        process.join()
        receiver.close()


def _send(work: Work, cell: Cell, seed: int, sender: Any) -> None:
    _end_with_parent()
    warnings.simplefilter("ignore")
    sender.send("started")
    try:
        values = work(cell, seed)
    except (MemoryError, RuntimeError) as error:
        values = {"stopped": str(error)}
    sender.send(values)


def _end_with_parent() -> None:
    """On Linux, be killed with the process that waits; nobody would read the answer.

    A process that is killed cannot end others, and a solver in C hears of nothing.
    """
    if sys.platform == "linux":
        on_death_of_parent = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(on_death_of_parent, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)


def _without_data(protocol: Protocol, tables: Iterable[Table]) -> dict[str, str]:
    """Return the data that no source has, with the reason."""
    missing = {}
    wanted = (d for table in tables if not table.absent for d in table.data)
    for name in dict.fromkeys(wanted):
        try:
            if name in protocol.files:
                _find(protocol.files[name])
        except FileNotFoundError as error:
            missing[name] = str(error)
    return missing


@cache
def _find(file: str) -> None:
    """Raise FileNotFoundError if no source has a set; it is not kept in memory."""
    load(file)


@cache
def commit() -> str:
    """Return the commit of the code that runs, "+" if it was changed since."""
    here, code = Path(__file__).parent, ("*.py", "../src")

    def git(*args: str) -> str:
        command = ["git", "-C", str(here), *args]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *code)
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# --- what protocols share -------------------------------------------------------------


@cache
def load_set(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return data and labels of a set, read once in each process."""
    X, y = load(name, return_X_y=True)
    X = np.asarray(X, dtype=np.float64)
    X.flags.writeable = False
    return X, y


def rng(seed: int, repetition: int) -> np.random.Generator:
    """Return the random numbers of a repetition, the same for all methods."""
    return np.random.default_rng([seed, repetition])


def first_classes(
    X: NDArray[Any],
    y: NDArray[Any],
    n_classes: int | None,
    size: int | None,
    random: np.random.Generator,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the first classes by label, with at most ``size`` random samples each."""
    rows = [
        random.permutation(np.flatnonzero(y == label))[:size]
        for label in np.unique(y)[:n_classes]
    ]
    index = np.concatenate(rows)
    return X[index], y[index]


def stratified(
    y: NDArray[Any], share: float, random: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows to learn from and to test on: of every class the rounded share."""
    train, test = [], []
    for label in np.unique(y):
        rows = random.permutation(np.flatnonzero(y == label))
        at = int(np.floor(share * len(rows) + 0.5))
        train.append(rows[:at])
        test.append(rows[at:])
    return np.concatenate(train), np.concatenate(test)


def standardised(
    X: NDArray[Any], train: NDArray[np.intp], test: NDArray[np.intp]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both parts with the mean 0 and variance 1 of the training columns."""
    centre, spread = X[train].mean(axis=0), X[train].std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return (X[train] - centre) / spread, (X[test] - centre) / spread


def unit_range(
    X: NDArray[Any], train: NDArray[np.intp], test: NDArray[np.intp]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both parts with training columns from 0 to 1."""
    low, width = X[train].min(axis=0), np.ptp(X[train], axis=0)
    width = np.where(width > 0, width, 1.0)
    return (X[train] - low) / width, (X[test] - low) / width
