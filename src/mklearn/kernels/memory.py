"""Memory budgets, estimates, memory-mapped files, and blocks of rows."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from mklearn.data.threads import n_threads, run_blocks

Index = NDArray[np.intp]
Storage = Literal["float64", "float32", "mmap", "recompute"]
STORAGES: tuple[Storage, ...] = get_args(Storage)

_GRAMS = "mklearn-grams-"


class Folder:
    """A temporary folder that is removed when its files are no longer mapped.

    Files are unlinked as soon as they are mapped, so that nothing is left even if the
    process is killed. Windows does not allow this: there the next process removes what
    killed processes have left behind.
    """

    def __init__(self) -> None:
        if os.name == "nt":
            for left in Path(tempfile.gettempdir()).glob(f"{_GRAMS}*"):
                shutil.rmtree(left, ignore_errors=True)
        self.path = tempfile.mkdtemp(prefix=_GRAMS)
        weakref.finalize(self, shutil.rmtree, self.path, True)

    def mapped(
        self, name: str, shape: tuple[int, int], dtype: Any = np.float64
    ) -> NDArray[Any]:
        """Return a new memory-mapped array."""
        path = os.path.join(self.path, name)
        array = np.asarray(np.memmap(path, dtype, "w+", 0, shape))
        if os.name != "nt":
            os.unlink(path)
        return array

    def close(self) -> None:
        """Remove the folder if it is empty."""
        with suppress(OSError):
            os.rmdir(self.path)


def fill(
    out: NDArray[Any],
    block: Callable[[Index, slice], NDArray[Any]],
    half: bool,
    limit: int | None,
) -> None:
    """Fill ``out`` by blocks of rows; with ``half``, use symmetry."""
    n_rows, n_cols = out.shape

    def work(rows: Index) -> None:
        here = slice(int(rows[0]), int(rows[-1]) + 1)
        right = slice(here.start if half else 0, n_cols)
        values = block(rows, right)
        out[here, right] = values
        if half:
            out[right, here] = values.T

    run_blocks(work, row_blocks(n_rows, 8 * n_cols, limit))


def allocate(
    storage: Storage, count: int, shape: tuple[int, int]
) -> tuple[list[NDArray[Any]], Folder | None]:
    """Return empty arrays, and the folder of their files, if any."""
    if storage != "mmap":
        return [np.empty(shape, dtype=np.dtype(storage)) for _ in range(count)], None
    folder = Folder()
    needed = 8 * count * shape[0] * shape[1]
    _check_disk(folder, needed, "Grams", "use storage='recompute'")
    arrays = [folder.mapped(f"{k}.f64", shape) for k in range(count)]
    folder.close()
    return arrays, folder


def room_for(shape: tuple[int, int], dtype: Any, limit: int | None) -> NDArray[Any]:
    """Return an empty array, in a file if it takes more bytes than ``limit``."""
    needed = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if limit is None or needed <= limit:
        return np.empty(shape, dtype=dtype)
    folder = Folder()
    _check_disk(folder, needed, "coefficients", "raise memory_limit")
    array = folder.mapped("coefficients", shape, dtype)
    folder.close()
    return array


def _check_disk(folder: Folder, needed: int, what: str, otherwise: str) -> None:
    """Raise OSError if there is too little space in a folder."""
    free = shutil.disk_usage(folder.path).free
    if needed > free:
        raise OSError(
            f"Memory-mapped {what} need {needed:,} bytes in {folder.path}, but only "
            f"{free:,} are free; set TMPDIR to a larger disk or {otherwise}."
        )


def available_memory() -> int:
    """Return the number of bytes that are available without swapping."""
    free = 2**31
    try:
        with open("/proc/meminfo", encoding="ascii") as info:
            line = next(line for line in info if line.startswith("MemAvailable:"))
        free = int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    try:  # a container may have less than the machine
        with (
            open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit,
            open("/sys/fs/cgroup/memory.current", encoding="ascii") as used,
        ):
            free = min(free, int(limit.read()) - int(used.read()))
    except (OSError, ValueError):
        pass
    return max(free, 2**24)


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimate of the memory of a bank, in bytes, before anything is allocated.

    ``storage`` is the choice within the budget ``limit``; ``stored`` the size of the
    stored values; ``working`` that of the blocks in progress; ``float64``, ``float32``
    the size for each choice; ``all_grams`` that of one float64 Gram for each kernel.
    """

    storage: Storage
    limit: int
    stored: int
    working: int
    float64: int
    float32: int
    all_grams: int

    def __str__(self) -> str:
        return (
            f"storage={self.storage!r}: {_human(self.stored)} stored and "
            f"{_human(self.working)} working, of a budget of {_human(self.limit)} "
            f"(all Grams in float64: {_human(self.all_grams)})"
        )


class Storable(Protocol):
    """A source of kernels whose values can be stored."""

    def stored_bytes(
        self, n_kernels: int, n_rows: int, n_cols: int, itemsize: int
    ) -> int:
        """Return the bytes needed to store the values, zero if already stored."""

    def held_bytes(self) -> int:
        """Return the size of the stored values."""

    def slow(self) -> bool:
        """Return whether reading values from disk is faster than recomputing them."""


# sources, and the numbers of their kernels, rows and columns that a bank uses
Uses = Sequence[tuple[Storable, int, int, int]]


def estimate(
    uses: Uses, shape: tuple[int, int, int], memory_limit: int | None, storage: str
) -> MemoryEstimate:
    """Choose the storage of values within a budget."""
    if storage != "auto" and storage not in STORAGES:
        raise ValueError(
            f"storage must be 'auto' or one of {STORAGES}, got {storage!r}."
        )
    n_rows, n_cols, n_kernels = shape
    limit = default_limit(uses) if memory_limit is None else int(memory_limit)
    working = BLOCKS * n_threads() * max(block_bytes(limit), 8 * n_cols)
    if working > limit:
        raise ValueError(
            f"memory_limit={limit} is too small: blocks of one row on {n_threads()} "
            f"threads take {working} bytes; use a multiple of that."
        )
    full = {
        size: sum(s.stored_bytes(k, rows, cols, size) for s, k, rows, cols in uses)
        for size in (8, 4)
    }
    room = limit - working - min(8 * n_rows * n_cols, limit // 3)  # rows for a solver
    chosen: Storage
    if storage != "auto":
        chosen = next(s for s in STORAGES if s == storage)
    elif full[8] <= room:
        chosen = "float64"
    elif full[4] <= room:
        chosen = "float32"
    else:
        chosen = "mmap" if any(use[0].slow() for use in uses) else "recompute"
    kept = {"float64": full[8], "float32": full[4]}.get(chosen)
    if kept is None:
        kept = sum(use[0].held_bytes() for use in uses)
    return MemoryEstimate(
        chosen, limit, kept, working, full[8], full[4], 8 * n_rows * n_cols * n_kernels
    )


def default_limit(uses: Uses) -> int:
    """Return the default budget.

    It is at most two gigabytes: beyond that, values of formulas are recomputed faster
    than they are read from memory, and other processes need memory, too. Values that
    are expensive to compute (of strings, or of user functions) may take half of the
    free memory.
    """
    half = available_memory() // 2
    return half if any(use[0].slow() for use in uses) else min(half, ENOUGH)


def _human(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


ENOUGH = 2 * 10**9  # bytes for values that can be recomputed
BLOCKS = 4  # blocks in memory at a time: the values, and temporaries
_PARTS = 16  # minimum number of blocks of rows, if they are large enough
_MIN_WORK = 2**19  # kernel values that can be read in the time to start a thread
_MIN_ROWS = 32  # minimum number of rows for an efficient matrix product


def block_bytes(limit: int | None = None) -> int:
    """Return the size of one block of rows, smaller if the budget is small."""
    if limit is None:
        return 2**21
    return min(2**21, max(1, limit // (4 * BLOCKS * n_threads())))


def row_blocks(
    n_rows: int, row_bytes: int, limit: int | None = None, row_work: float = 0.0
) -> list[Index]:
    """Divide rows into blocks of about two megabytes, enough for many threads.

    ``row_work`` is the number of kernel values in a row if they are stored: a block is
    then large enough to be worth a thread. If they are computed, it has enough rows for
    an efficient matrix product. The blocks do not depend on the number of threads, so
    sums over blocks are the same on all machines.
    """
    size = max(1, block_bytes(limit) // max(1, row_bytes))
    least = int(_MIN_WORK // row_work) if row_work else _MIN_ROWS
    size = min(size, max(-(-n_rows // _PARTS), least, 1))
    return [
        np.arange(i, min(i + size, n_rows), dtype=np.intp)
        for i in range(0, n_rows, size)
    ]
