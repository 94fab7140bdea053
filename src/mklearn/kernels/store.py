"""Where kernel values come from: given Grams, stored bases, or recomputed blocks.

Only ``bank.py`` looks in here. A *source* holds some kernels over a fixed set of rows
and columns and answers for a block of them; the bank cuts the work into blocks, runs
them on threads and adds up. Sources never hand out more than a block.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numba import config as numba_config
from numba import njit
from numpy.typing import NDArray

from mklearn.kernels import functions
from mklearn.kernels.functions import BASES, Prepared
from mklearn.kernels.specs import ComputedKernel, VectorKernel

Index = NDArray[np.intp]
STORAGES = ("float64", "float32", "mmap", "recompute")


class Source(Protocol):
    """Some kernels on the same rows and columns."""

    n_kernels: int

    def gram(self, k: int, rows: Index, cols: Index) -> NDArray[np.float64]:
        """Return kernel ``k`` on a block."""

    def combine(
        self, weights: NDArray[Any], rows: Index, cols: Index, out: NDArray[Any]
    ) -> None:
        """Add ``sum_k weights[k] K_k`` on a block to ``out``."""

    def multiply(
        self, which: Index, rows: Index, cols: Index, At: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Return ``K_k A`` for the kernels in ``which``: (len(which), n_rows, T).

        ``At`` is (len(which) or 1, T, n_cols).
        """

    def diag(self, k: int, rows: bool, index: Index) -> NDArray[np.float64]:
        """Return ``k(x, x)`` of row samples (or column samples)."""

    def restrict(self, rows: Index | None, cols: Index | None) -> Source | None:
        """Return the source on these samples only, None if it is better indexed."""

    def stored_bytes(self, itemsize: int) -> int:
        """Return what storing would take."""

    def cost(self) -> float:
        """Return the rough price of recomputing an entry, in nanoseconds."""

    def store(self, storage: str) -> Source:
        """Return the source with its values kept as ``storage`` says."""


# --- Grams that exist as arrays -------------------------------------------------------


class GramSource:
    """Grams given or stored: one array for each kernel, or one with kernels last."""

    def __init__(
        self,
        grams: Sequence[NDArray[Any]] | NDArray[Any],
        row_diag: NDArray[np.float64] | None = None,
        col_diag: NDArray[np.float64] | None = None,
        owner: Any = None,
    ) -> None:
        self.stack: NDArray[Any] | None = None
        if isinstance(grams, np.ndarray):
            # keep the user's memory: kernels-last rows are used as they lie
            if grams.shape[2] > 1 and grams.strides[2] == grams.itemsize:
                self.stack = grams
            grams = [grams[:, :, m] for m in range(grams.shape[2])]
        self.grams = list(grams)
        self.n_kernels = len(self.grams)
        self.row_diag, self.col_diag = row_diag, col_diag
        self.owner = owner  # keeps a temporary folder alive

    def gram(self, k: int, rows: Index, cols: Index) -> NDArray[np.float64]:
        out = np.zeros((len(rows), len(cols)))
        _add_gram(self.grams[k], 1.0, rows, cols, _is_range(cols, self.grams[k].shape[1]), out)
        return out

    def combine(
        self, weights: NDArray[Any], rows: Index, cols: Index, out: NDArray[Any]
    ) -> None:
        if self.stack is not None:
            used = np.flatnonzero(weights)
            if 4 * len(used) > self.n_kernels:
                _combine_stack(self.stack, weights, rows, cols, out)
                return
        for k in np.flatnonzero(weights):
            K = self.grams[k]
            _add_gram(K, float(weights[k]), rows, cols, _is_range(cols, K.shape[1]), out)

    def multiply(
        self, which: Index, rows: Index, cols: Index, At: NDArray[Any]
    ) -> NDArray[np.float64]:
        out = np.zeros((len(which), len(rows), At.shape[1]))
        if self.stack is not None and len(which) == self.n_kernels:
            _multiply_stack(self.stack, rows, cols, At, out)
            return out
        for position, k in enumerate(which):
            a = At[position if len(At) > 1 else 0]
            K = self.grams[k]
            _multiply_gram(K, rows, cols, _is_range(cols, K.shape[1]), a, out[position])
        return out

    def diag(self, k: int, rows: bool, index: Index) -> NDArray[np.float64]:
        known = self.row_diag if rows else self.col_diag
        if known is not None:
            return known[index, k]
        K = self.grams[k]
        if K.shape[0] != K.shape[1]:
            raise ValueError(
                "The diagonal k(x, x) of the new samples is needed but a cross Gram "
                "does not hold it; pass row_diag= to KernelBank.from_grams, or use a "
                "normalisation other than 'spherical'."
            )
        return np.asarray(K[index, index], dtype=np.float64)

    def restrict(self, rows: Index | None, cols: Index | None) -> Source | None:
        return None

    def stored_bytes(self, itemsize: int) -> int:
        return 0  # they are there already

    def cost(self) -> float:
        return 0.0

    def store(self, storage: str) -> Source:
        return self


def _is_range(index: Index, n: int) -> bool:
    """Tell whether ``index`` is 0, 1, ..., n - 1 (then rows are read in one go)."""
    if len(index) != n or (n and (index[0] != 0 or index[-1] != n - 1)):
        return False
    return bool((np.diff(index) == 1).all())


def _same(a: Index | None, b: Index | None) -> bool:
    if a is None or b is None:
        return a is b
    return bool(np.array_equal(a, b))


@njit(cache=True, nogil=True, fastmath=True)
def _add_gram(K, weight, rows, cols, whole, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        row, o = K[rows[i]], out[i]
        if whole:
            for j in range(o.size):
                o[j] += weight * np.float64(row[j])
        else:
            for j in range(o.size):
                o[j] += weight * np.float64(row[cols[j]])


@njit(cache=True, nogil=True, fastmath=True)
def _combine_stack(stack, weights, rows, cols, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        for j in range(cols.size):
            entry = stack[rows[i], cols[j]]
            total = 0.0
            for m in range(weights.size):
                total += weights[m] * np.float64(entry[m])
            out[i, j] += total


@njit(cache=True, nogil=True, fastmath=True)
def _multiply_gram(K, rows, cols, whole, At, out):  # type: ignore[no-untyped-def]
    for i in range(rows.size):
        row = K[rows[i]]
        for t in range(At.shape[0]):
            a = At[t]
            total = 0.0
            if whole:
                for j in range(a.size):
                    total += a[j] * np.float64(row[j])
            else:
                for j in range(a.size):
                    total += a[j] * np.float64(row[cols[j]])
            out[i, t] = total


@njit(cache=True, nogil=True, fastmath=True)
def _multiply_stack(stack, rows, cols, At, out):  # type: ignore[no-untyped-def]
    n_kernels = stack.shape[2]
    total = np.empty(n_kernels)
    for i in range(rows.size):
        for t in range(At.shape[1]):
            total[:] = 0.0
            for j in range(cols.size):
                entry = stack[rows[i], cols[j]]
                if At.shape[0] == 1:
                    a = At[0, t, j]
                    for m in range(n_kernels):
                        total[m] += a * np.float64(entry[m])
                else:
                    for m in range(n_kernels):
                        total[m] += At[m, t, j] * np.float64(entry[m])
            for m in range(n_kernels):
                out[m, i, t] = total[m]


# --- kernels that are maps of one base matrix -----------------------------------------


@dataclass
class BaseSource:
    """Kernels that share a base (dot product, distance ...) on the same columns."""

    base: str
    kernels: tuple[VectorKernel, ...]
    rows: Prepared
    cols: Prepared
    matrix: NDArray[Any] | None = None
    owner: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.n_kernels = len(self.kernels)
        maps = [kernel.exponential() for kernel in self.kernels]
        self._fused = np.array([m is not None for m in maps], dtype=bool)
        self._maps = np.array([m or (0.0, 0.0, 0.0, 0.0) for m in maps])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "matrix": None, "owner": None}

    def block(self, rows: Index, cols: Index) -> NDArray[Any]:
        """Return the base matrix on a block, contiguous."""
        if self.matrix is not None:
            if _is_range(cols, self.matrix.shape[1]):
                return self.matrix[rows]
            return np.asarray(self.matrix[rows[:, None], cols])
        b = self.cols if _is_range(cols, len(self.cols)) else self.cols.take(cols)
        return np.ascontiguousarray(BASES[self.base](self.rows.take(rows), b))

    def _from_base(self, k: int, B: NDArray[Any], rows: Index, cols: Index) -> Any:
        if self._fused[k]:
            out = np.empty_like(B)
            functions.exponential_map(B, *self._maps[k], out)
            return out
        sq = self.rows.sqnorms[rows], self.cols.sqnorms[cols]
        return self.kernels[k].from_base(B, *sq)

    def gram(self, k: int, rows: Index, cols: Index) -> NDArray[np.float64]:
        K = self._from_base(k, self.block(rows, cols), rows, cols)
        return np.asarray(K, dtype=np.float64)

    def combine(
        self, weights: NDArray[Any], rows: Index, cols: Index, out: NDArray[Any]
    ) -> None:
        B = self.block(rows, cols)
        fused = np.flatnonzero(self._fused & (weights != 0))
        if len(fused):
            functions.exponential_combine(B, self._maps[fused], weights[fused], out)
        for k in np.flatnonzero(~self._fused & (weights != 0)):
            out += weights[k] * self._from_base(int(k), B, rows, cols)

    def multiply(
        self, which: Index, rows: Index, cols: Index, At: NDArray[Any]
    ) -> NDArray[np.float64]:
        B = self.block(rows, cols)
        out = np.zeros((len(which), len(rows), At.shape[1]))
        fused = self._fused[which]
        if fused.any():
            part = np.zeros((int(fused.sum()), *out.shape[1:]))
            At_part = np.ascontiguousarray(At[fused] if len(At) > 1 else At)
            functions.exponential_multiply(B, self._maps[which[fused]], At_part, part)
            out[fused] = part
        for position in np.flatnonzero(~fused):
            a = At[position if len(At) > 1 else 0]
            out[position] = self._from_base(int(which[position]), B, rows, cols) @ a.T
        return out

    def diag(self, k: int, rows: bool, index: Index) -> NDArray[np.float64]:
        return self.kernels[k].diag((self.rows if rows else self.cols).take(index))

    def restrict(self, rows: Index | None, cols: Index | None) -> Source | None:
        if self.matrix is not None:
            return None
        a = self.rows if rows is None else self.rows.take(rows)
        b = a if _same(rows, cols) and self.rows is self.cols else self.cols
        if b is self.cols and cols is not None:
            b = self.cols.take(cols)
        return BaseSource(self.base, self.kernels, a, b)

    def stored_bytes(self, itemsize: int) -> int:
        return len(self.rows) * len(self.cols) * itemsize

    def cost(self) -> float:
        width = self.rows.rows.shape[1]
        return 0.3 * width if self.base in ("dot", "sqdist") else 2.0 * width

    def store(self, storage: str) -> Source:
        if self.matrix is not None or storage == "recompute":
            return self
        shape = (len(self.rows), len(self.cols))
        matrix, owner = _allocate(storage, 1, shape)
        cols = np.arange(shape[1])

        def fill(block: Index) -> None:
            matrix[0][block] = self.block(block, cols)

        run_blocks(fill, row_blocks(shape[0], shape[1]))
        return BaseSource(
            self.base, self.kernels, self.rows, self.cols, matrix[0], owner
        )


# --- kernels that are functions of two sets of samples ------------------------------


@dataclass
class ComputedSource:
    """Kernels evaluated by a function of the samples: sequences, callables."""

    kernels: tuple[ComputedKernel, ...]
    rows: Any
    cols: Any
    symmetric: bool

    def __post_init__(self) -> None:
        self.n_kernels = len(self.kernels)

    def gram(self, k: int, rows: Index, cols: Index) -> NDArray[np.float64]:
        return self.kernels[k].compute(self.rows[rows], self.cols[cols])

    def combine(
        self, weights: NDArray[Any], rows: Index, cols: Index, out: NDArray[Any]
    ) -> None:
        for k in np.flatnonzero(weights):
            out += weights[k] * self.gram(int(k), rows, cols)

    def multiply(
        self, which: Index, rows: Index, cols: Index, At: NDArray[Any]
    ) -> NDArray[np.float64]:
        return np.stack(
            [
                self.gram(int(k), rows, cols) @ At[position if len(At) > 1 else 0].T
                for position, k in enumerate(which)
            ]
        )

    def diag(self, k: int, rows: bool, index: Index) -> NDArray[np.float64]:
        return self.kernels[k].diag((self.rows if rows else self.cols)[index])

    def restrict(self, rows: Index | None, cols: Index | None) -> Source | None:
        symmetric = self.symmetric and _same(rows, cols)
        a = self.rows if rows is None else self.rows[rows]
        b = self.cols if cols is None else self.cols[cols]
        return ComputedSource(self.kernels, a, a if symmetric else b, symmetric)

    def stored_bytes(self, itemsize: int) -> int:
        return self.n_kernels * self.rows.shape[0] * self.cols.shape[0] * itemsize

    def cost(self) -> float:
        return 1000.0

    def store(self, storage: str) -> Source:
        if storage == "recompute":
            return self
        n_rows, n_cols = self.rows.shape[0], self.cols.shape[0]
        grams, owner = _allocate(storage, self.n_kernels, (n_rows, n_cols))
        for k, kernel in enumerate(self.kernels):
            K = grams[k]
            # a formula of ours is symmetric; a user's function is not taken at its word
            half = self.symmetric and kernel.definite

            def fill(block: Index, k: int = k, K: Any = K, half: bool = half) -> None:
                start = block[0] if half else 0
                cols = np.arange(start, n_cols)
                values = self.gram(k, block, cols)
                K[block[0] : block[-1] + 1, start:] = values
                if half:
                    K[start:, block[0] : block[-1] + 1] = values.T

            run_blocks(fill, row_blocks(n_rows, n_cols))
        diag = [
            np.stack([self.diag(k, side, np.arange(n)) for k in range(len(grams))], 1)
            for side, n in ((True, n_rows), (False, n_cols))
        ]
        return StoredComputed(self, grams, diag[0], diag[1], owner)


class StoredComputed(GramSource):
    """Stored values of a ComputedSource; pickled without them."""

    def __init__(
        self,
        source: ComputedSource,
        grams: Sequence[NDArray[Any]],
        row_diag: NDArray[np.float64],
        col_diag: NDArray[np.float64],
        owner: Any,
    ) -> None:
        super().__init__(grams, row_diag, col_diag, owner)
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return ComputedSource, (
            self.source.kernels,
            self.source.rows,
            self.source.cols,
            self.source.symmetric,
        )


# --- memory and threads ---------------------------------------------------------------


class _Folder:
    """A temporary folder that goes when nobody maps files in it any more."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="mklearn-")
        weakref.finalize(self, shutil.rmtree, self.path, True)


def _allocate(
    storage: str, count: int, shape: tuple[int, int]
) -> tuple[list[NDArray[Any]], Any]:
    if storage == "mmap":
        folder = _Folder()
        needed = 8 * count * shape[0] * shape[1]
        free = shutil.disk_usage(folder.path).free
        if needed > free:
            raise OSError(
                f"Memory-mapped Grams need {needed:,} bytes in {folder.path} and "
                f"{free:,} are free; set TMPDIR to a larger disk or use "
                "storage='recompute'."
            )
        return [
            np.memmap(os.path.join(folder.path, f"{k}.f64"), np.float64, "w+", 0, shape)
            for k in range(count)
        ], folder
    return [np.empty(shape, dtype=np.dtype(storage)) for _ in range(count)], None


def available_memory() -> int:
    """Return how many bytes can be had without swapping."""
    free = 2**31
    try:
        with open("/proc/meminfo") as info:
            lines = dict(line.split(":", 1) for line in info)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    try:  # a container may have less than the machine
        with open("/sys/fs/cgroup/memory.max") as limit:
            with open("/sys/fs/cgroup/memory.current") as used:
                free = min(free, int(limit.read()) - int(used.read()))
    except (OSError, ValueError):
        pass
    return max(free, 2**24)


@dataclass(frozen=True)
class MemoryEstimate:
    """What a bank would take, told before anything is allocated (bytes).

    ``storage`` is what the budget ``limit`` leads to; ``stored`` what that keeps;
    ``working`` the blocks in flight; ``float64``, ``float32`` the price of each choice;
    ``all_grams`` what one float64 Gram for each kernel would take.
    """

    storage: str
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


def estimate(
    sources: Iterable[Source],
    shape: tuple[int, int, int],
    memory_limit: int | None,
    storage: str,
) -> MemoryEstimate:
    """Decide how to keep the values of ``sources`` within a budget."""
    sources = list(sources)
    limit = available_memory() // 2 if memory_limit is None else int(memory_limit)
    n_rows, n_cols, n_kernels = shape
    full = {size: sum(s.stored_bytes(size) for s in sources) for size in (8, 4)}
    working = 4 * n_threads() * block_bytes(n_cols)
    room = limit - working - min(8 * n_rows * n_cols, limit // 3)  # rows for a solver
    if storage == "auto":
        # what costs a formula per entry is recomputed rather than read from disk
        slow = any(s.cost() >= 1000.0 for s in sources)
        fits = [name for name, size in (("float64", 8), ("float32", 4))
                if full[size] <= room]  # fmt: skip
        storage = fits[0] if fits else ("mmap" if slow else "recompute")
    if storage not in STORAGES:
        raise ValueError(f"storage must be 'auto' or one of {STORAGES}, got {storage!r}.")
    kept = {"float64": full[8], "float32": full[4]}.get(storage, 0)
    return MemoryEstimate(
        storage, limit, kept, working, full[8], full[4], 8 * n_rows * n_cols * n_kernels
    )


def _human(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def n_threads() -> int:
    """Return how many threads to use (NUMBA_NUM_THREADS, which joblib lowers)."""
    return int(numba_config.NUMBA_NUM_THREADS)


def block_bytes(n_cols: int) -> int:
    """Return the size of one block of rows."""
    return max(2**21, 8 * n_cols)


def row_blocks(n_rows: int, n_cols: int) -> list[Index]:
    """Cut rows into blocks of about two megabytes, enough for all threads."""
    size = max(1, block_bytes(n_cols) // (8 * max(n_cols, 1)))
    size = max(1, min(size, -(-n_rows // n_threads())))
    return [
        np.arange(i, min(i + size, n_rows), dtype=np.intp)
        for i in range(0, n_rows, size)
    ]


def run_blocks(function: Callable[[Index], Any], blocks: Sequence[Index]) -> list[Any]:
    """Call ``function`` on each block, on all threads, and return the results."""
    workers = min(n_threads(), len(blocks))
    if workers <= 1:
        return [function(block) for block in blocks]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, blocks))
