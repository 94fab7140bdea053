"""Samples in blocks of rows, and arrays in memory divided into such blocks.

A source is read one block at a time, as many times as a method needs passes, and is
never held in memory as a whole. :meth:`~Blocks.map` returns the values of a function on
the blocks, and :meth:`~Blocks.reduce` their sum. All methods for many samples use this
interface, so that a table in memory, a file on disk (:mod:`mklearn.data.files`) and a
cluster (:mod:`mklearn.data.dask`) look the same to an estimator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.checks import (
    check_count,
    check_rows,
    check_targets,
    check_weight,
)
from mklearn.data.spelling import plural
from mklearn.data.threads import in_order, n_threads

T = TypeVar("T")

ROWS = 4096


class Block(NamedTuple):
    """Some rows: samples or their features, targets, and sample weights (n,).

    ``y`` holds the targets of these rows as passed to ``fit``, or encoded targets (n,
    T); None if there are none.
    """

    X: Any
    y: Any
    weight: NDArray[np.float64]

    @property
    def n_rows(self) -> int:
        """Number of rows (``len`` is that of the tuple)."""
        return len(self.weight)


class Blocks(ABC):
    """All rows, divided into blocks.

    Functions must not modify a block. If the blocks are on other machines, the
    functions must be picklable: functions of a module, or ``functools.partial`` of
    them.

    Attributes
    ----------
    names : tuple of str or None
        Names of the columns, if there are any, available once a block has been read.
    one_pass : bool
        Whether the samples can be read only once.
    """

    names: tuple[str, ...] | None = None
    one_pass: bool = False

    @abstractmethod
    def map(self, function: Callable[[Block], T]) -> list[T]:
        """Return ``[function(block), ...]`` in the order of the rows."""

    @abstractmethod
    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return ``function(block) + function(block) + ...``, in a fixed order."""

    @abstractmethod
    def then(self, function: Callable[[Block], Block]) -> Blocks:
        """Return the blocks ``function(block)``, computed on demand."""

    def keeping(self, room: int) -> Blocks:
        """Return the blocks with a cache, in bytes, for the results of :meth:`then`.

        Cached blocks need not be computed again in every pass; a source without its own
        cache stores nothing.
        """
        return self

    def held(self, size: int) -> Blocks:
        """Return the same blocks, stored where they are computed if memory suffices.

        This is for sources that cannot know in advance the ``size`` in bytes of all
        blocks; other sources store blocks as they compute them, as long as they fit.
        """
        return self

    def within(self, rows: int, threads: int) -> Blocks:
        """Return the blocks with limits on their rows and on threads, if supported.

        This bounds the memory for blocks in progress; a cluster has its own limits.
        """
        return self

    def __iter__(self) -> Iterator[Block]:
        """Yield all blocks once, in the order of the rows."""
        return iter(self.map(_same))


class BlockSource(Blocks):
    """Base class of sources: checked passes, and sums in a fixed order.

    Subclasses yield blocks in ``_read`` and may return in ``_stamp`` a value that
    changes if the samples have changed.

    Attributes
    ----------
    names : tuple of str or None
        Names of the columns, if there are any, available once a block has been read.
    one_pass : bool
        Whether the samples can be read only once.
    keep : int
        Memory, in bytes, for caching the results of :meth:`then`, so that they need not
        be computed again in every pass; none by default.
    threads : int or None
        Number of threads that work on blocks; by default as many as numba uses.
    """

    keep = 0
    threads: int | None = None
    most: int | None = None  # maximum number of rows that are processed together

    _known: Any = None  # form of the first block
    _first: Any = None  # number of rows and checksum of the first pass
    _opened: Any = None  # the stamp when the source was first read

    def map(self, function: Callable[[Block], T]) -> list[T]:
        """Return the function's value for each block, in the order of the blocks."""
        return list(self._values(function))

    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return the sum, by ``+``, of the function's values over all blocks.

        Blocks are processed by threads while the next one is read, but summed in order,
        so that the result is always the same.
        """
        values = self._values(function)
        try:
            total: Any = next(values)
        except StopIteration:
            raise ValueError(f"{self!r} contains no samples.") from None
        for value in values:
            total = total + value
        return total

    def then(self, function: Callable[[Block], Block]) -> BlockSource:
        """Return the blocks ``function(block)``, computed on demand."""
        return _Derived(self, function)

    def keeping(self, room: int) -> BlockSource:
        """Return the source with a cache, in bytes, for the results of :meth:`then`."""
        made = copy(self)
        made.keep = room
        return made

    def within(self, rows: int, threads: int) -> BlockSource:
        """Return the source with limits on the rows of a block and on threads."""
        made = copy(self)
        made.most = rows
        made.threads = min(
            n_threads() if self.threads is None else self.threads, threads
        )
        return made

    def __iter__(self) -> Iterator[Block]:
        """Yield all blocks once: a pass."""
        stamp = self._stamp()
        if self._opened is None:
            self._opened = stamp
        self._require(stamp == self._opened, "was changed after it was first read")
        rows, digest = 0, 0
        for number, raw in enumerate(self._read()):
            parts = _parts(raw)
            if parts and _empty(parts[0]):  # without rows, types are meaningless
                continue
            block = self._checked(parts, number, rows)
            rows += block.n_rows
            digest = self._digest(block, digest)
            yield block
        self._require(self._stamp() == stamp, "was changed while it was read")
        if self._first is None:
            self._first = (rows, digest)
        self._require(
            self._first[0] == rows,
            f"had {plural(self._first[0], 'sample')} in the first pass and has {rows} "
            "now",
        )
        self._require(
            self._first[1] == digest, "has other values than in the first pass"
        )

    def __repr__(self) -> str:
        return type(self).__name__

    # --- work -------------------------------------------------------------------------

    def _makers(self) -> Iterator[Callable[[], Block]]:
        """Yield a function for each block that computes it, possibly in a thread."""
        for block in self:
            size = block.n_rows if self.most is None else self.most
            for start in range(0, block.n_rows, size):
                part = slice(start, start + size)
                yield partial(_same, Block(*(_cut(column, part) for column in block)))

    def _values(self, function: Callable[[Block], T]) -> Iterator[T]:
        """Yield the function's values in order, with few blocks in memory at a time."""
        return in_order(partial(_applied, function), self._makers(), self.threads)

    # --- for subclasses ---------------------------------------------------------------

    @abstractmethod
    def _read(self) -> Iterable[Any]:
        """Yield ``X``, ``(X, y)`` or ``(X, y, weight)`` for each block."""

    def _stamp(self) -> Any:
        """Return a value that changes when the samples are changed."""
        return ()

    def _digest(self, block: Block, before: int) -> int:
        """Return a checksum of all samples read so far."""
        return 0

    # --- checks -----------------------------------------------------------------------

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(
                f"{self!r} {what}: fitting needs several passes over the same samples. "
                "Do not change them during fit."
            )

    def _checked(self, given: tuple[Any, ...], number: int, row: int) -> Block:
        """Return a validated block."""
        if not 1 <= len(given) <= 3:
            raise ValueError(
                f"Block {number} of {self!r} has {len(given)} parts, but must be (X, "
                "y) or (X, y, weight)."
            )
        X, y, weight = (*given, None, None)[:3]
        where = f"Block {number} of {self!r} (starting at sample {row})"
        X, names = check_rows(X, where)
        n = X.shape[0]
        y = None if y is None else check_targets(y, n, where)
        weight = check_weight(weight, n, where)
        kind = _kind(X, y)
        if self._known is None:
            self._known = kind
            if self.names is None:
                self.names = names
        if kind != self._known:
            raise ValueError(
                f"{where} has {_told(kind)}, but the first block has "
                f"{_told(self._known)}; all blocks must have the same form."
            )
        if names is not None and self.names is not None and names != self.names:
            raise ValueError(
                f"{where} has columns {list(names[:5])} ..., but the first block has "
                f"{list(self.names[:5])} ...; names and order must be the same."
            )
        return Block(X, y, weight)


class _Derived(BlockSource):
    """The blocks of a source after some functions, cached as far as they fit."""

    def __init__(
        self, source: BlockSource, *functions: Callable[[Block], Block]
    ) -> None:
        self.source, self.functions = source, functions
        self.names, self.one_pass = source.names, source.one_pass
        self.keep, self.threads = source.keep, source.threads
        self._kept: dict[int, Block] = {}
        self._held = 0
        self._count: int | None = None  # number of blocks, after the first pass
        self._lock = Lock()

    def then(self, function: Callable[[Block], Block]) -> BlockSource:
        """Return the blocks after another function; only the results are cached."""
        return _Derived(self.source, *self.functions, function)

    def within(self, rows: int, threads: int) -> BlockSource:
        """Return the blocks of the source with these limits."""
        return _Derived(self.source.within(rows, threads), *self.functions)

    def __repr__(self) -> str:
        return repr(self.source)

    def __iter__(self) -> Iterator[Block]:
        for make in self._makers():
            yield make()

    def _read(self) -> Iterator[Block]:
        return iter(self)  # validated by the source

    def _makers(self) -> Iterator[Callable[[], Block]]:
        if self._count == len(self._kept):  # all blocks are cached
            for number in range(len(self._kept)):
                yield partial(_same, self._kept[number])
            return
        number = -1
        for number, make in enumerate(self.source._makers()):
            if number in self._kept:
                yield partial(_same, self._kept[number])
            else:
                yield partial(self._made, number, make)
        self._count = number + 1

    def _made(self, number: int, make: Callable[[], Block]) -> Block:
        block = make()
        for function in self.functions:
            block = function(block)
        taken = sum(int(getattr(part, "nbytes", 0)) for part in block)
        with self._lock:
            if self._held + taken <= self.keep:
                self._held += taken
                self._kept[number] = block
        return block


def _same(block: Block) -> Block:
    return block


def _applied(function: Callable[[Block], T], make: Callable[[], Block]) -> T:
    return function(make())


class ArrayBlocks(BlockSource):
    """Samples in memory, or in a ``numpy.memmap``, divided into blocks of rows.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame or MultiView
    y : array of shape (n_samples,) or (n_samples, n_outputs), optional
    sample_weight : array of shape (n_samples,), optional
    rows : int
        Number of rows in a block.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn.blocks import ArrayBlocks
    >>> blocks = ArrayBlocks(np.ones((10, 2)), np.arange(10), rows=4)
    >>> [block.n_rows for block in blocks]
    [4, 4, 2]
    >>> float(blocks.reduce(lambda block: block.y.sum()))
    45.0
    """

    def __init__(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, rows: int = ROWS
    ) -> None:
        self.X = X.tocsr() if sparse.issparse(X) else X
        self.y = y
        self.sample_weight = sample_weight
        self.rows = check_count("rows", rows)
        n = _length(X)
        for part, name in ((y, "y"), (sample_weight, "sample_weight")):
            if part is not None and _length(part) != n:
                raise ValueError(
                    f"X has {plural(n, 'sample')} but {name} has {_length(part)}; they "
                    "must have the same number."
                )

    def __repr__(self) -> str:
        return f"ArrayBlocks({plural(_length(self.X), 'sample')})"

    def _read(self) -> Iterator[Any]:
        for start in range(0, _length(self.X), self.rows):
            part = slice(start, start + self.rows)
            yield _cut(self.X, part), _cut(self.y, part), _cut(self.sample_weight, part)


# --- parts of a block -----------------------------------------------------------------


def _parts(raw: Any) -> tuple[Any, ...]:
    return tuple(raw) if isinstance(raw, (tuple, list)) else (raw,)


def _empty(X: Any) -> bool:
    shape: Any = getattr(X, "shape", None)
    return not X if isinstance(X, list) else bool(shape) and shape[0] == 0


def _length(part: Any) -> int:
    shape = getattr(part, "shape", None)
    return int(shape[0]) if shape else len(part)


def _cut(part: Any, rows: slice) -> Any:
    if part is None:
        return None
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


def _kind(X: Any, y: Any) -> tuple[Any, ...]:
    """Return the form that all blocks must have in common."""
    if y is None:
        return (X.shape[1], None, None)
    text = y.dtype.kind in "OUST"
    return (X.shape[1], y.shape[1:], "text" if text else "numbers")


def _told(kind: tuple[Any, ...]) -> str:
    width, outputs, content = kind
    columns = plural(width, "column")
    if content is None:
        return f"{columns} and no targets"
    several = f" in {plural(outputs[0], 'column')}" if outputs else ""
    return f"{columns} and targets that are {content}{several}"
