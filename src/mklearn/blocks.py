"""Samples that come in blocks: arrays, files and generators larger than memory.

A source is read as often as a method needs passes, one block at a time, and never held
as a whole. It answers with :meth:`~BlockSource.map`, the values of a function on its
blocks, and :meth:`~BlockSource.reduce`, their sum. Whatever is learned from many
samples is asked for in this form, so that a table in memory, a file on disk and a
cluster (:mod:`mklearn.distributed`) are the same to an estimator.
"""

from __future__ import annotations

import os
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.kernels.threads import in_order
from mklearn.problems.statistics import Block

T = TypeVar("T")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

ROWS = 4096


class BlockSource(ABC):
    """What all sources share: passes that are checked, and sums in a fixed order.

    Subclasses yield blocks in ``_read`` and may say in ``_stamp`` what tells that the
    samples have changed.

    Attributes
    ----------
    names : tuple of str or None
        Names of the columns, where there are any, once a block was read.
    one_pass : bool
        Whether the samples can be read only once.
    keep : int
        Bytes that blocks made by :meth:`then` may take in memory, so that they need
        not be made again in every pass; none by default.
    threads : int or None
        How many work on blocks at a time; as many as numba uses by default.
    """

    names: tuple[str, ...] | None = None
    one_pass = False
    keep = 0
    threads: int | None = None

    _known: Any = None  # what the first block looked like
    _first: Any = None  # what the first pass found: rows and checksum
    _opened: Any = None  # the stamp when the source was first read

    def map(self, function: Callable[[Block], T]) -> list[T]:
        """Return the function's value for each block, in the order of the blocks."""
        return list(self._values(function))

    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return the sum of the function's values, whatever ``+`` means for them.

        Blocks are worked on by threads while the next one is read, but added up in
        their order, so that the answer is always the same.
        """
        values = self._values(function)
        try:
            total: Any = next(values)
        except StopIteration:
            raise ValueError(f"{self!r} holds no samples.") from None
        for value in values:
            total = total + value
        return total  # type: ignore[no-any-return]

    def then(self, function: Callable[[Block], Block]) -> BlockSource:
        """Return the blocks ``function(block)``, computed when they are asked for."""
        return _Derived(self, function)

    def keeping(self, room: int) -> BlockSource:
        """Return the source with room for blocks that :meth:`then` makes, in bytes."""
        made = copy(self)
        made.keep = room
        return made

    def __iter__(self) -> Iterator[Block]:
        """Yield all blocks once: a pass."""
        stamp = self._stamp()
        if self._opened is None:
            self._opened = stamp
        self._require(stamp == self._opened, "was changed after it was first read")
        rows, digest = 0, 0
        for number, raw in enumerate(self._read()):
            block = self._checked(raw, number, rows)
            if block.n_rows == 0:
                continue
            rows += block.n_rows
            digest = self._digest(block, digest)
            yield block
        self._require(self._stamp() == stamp, "was changed while it was read")
        if self._first is None:
            self._first = (rows, digest)
        self._require(
            self._first[0] == rows,
            f"had {self._first[0]} samples in the first pass and has {rows} now",
        )
        self._require(
            self._first[1] == digest, "holds other values than in the first pass"
        )

    def __repr__(self) -> str:
        return type(self).__name__

    # --- work -------------------------------------------------------------------------

    def _makers(self) -> Iterator[Callable[[], Block]]:
        """Yield for each block a function that makes it; it may run in a thread."""
        for block in self:
            yield partial(_same, block)

    def _values(self, function: Callable[[Block], T]) -> Iterator[T]:
        """Yield the function's values in order; a few blocks are in memory at once."""
        return in_order(partial(_applied, function), self._makers(), self.threads)

    # --- for subclasses ---------------------------------------------------------------

    @abstractmethod
    def _read(self) -> Iterable[Any]:
        """Yield ``X``, ``(X, y)`` or ``(X, y, weight)`` for each block."""

    def _stamp(self) -> Any:
        """Return what is different if the samples were changed."""
        return ()

    def _digest(self, block: Block, before: int) -> int:
        """Return a checksum of all samples read so far."""
        return 0

    # --- checks -----------------------------------------------------------------------

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(
                f"{self!r} {what}: a model is fitted in several passes over the same "
                "samples. Keep them as they are during fit."
            )

    def _checked(self, raw: Any, number: int, row: int) -> Block:
        """Return a block in its usual form."""
        given = tuple(raw) if isinstance(raw, (tuple, list)) else (raw,)
        if not 1 <= len(given) <= 3:
            raise ValueError(
                f"Block {number} of {self!r} has {len(given)} parts; a block is (X, y) "
                "or (X, y, weight)."
            )
        X, y, weight = (*given, None, None)[:3]
        where = f"Block {number} of {self!r} (samples from {row} on)"
        X, names = _rows_of(X, where)
        n = X.shape[0]
        for part, name in ((y, "targets"), (weight, "weights")):
            if part is not None and np.shape(part)[:1] != (n,):
                raise ValueError(
                    f"{where} has {n} samples and {name} of shape {np.shape(part)}; it "
                    "needs one for each sample."
                )
        y = None if y is None else _targets_of(y, where)
        weight = np.ones(n) if weight is None else _weights_of(weight, where)
        kind = _kind(X, y)
        if self._known is None:
            self._known = kind
            if self.names is None:
                self.names = names
        if kind != self._known:
            raise ValueError(
                f"{where} has {_told(kind)}, but the first block has "
                f"{_told(self._known)}; all blocks must be alike."
            )
        if names is not None and self.names is not None and names != self.names:
            raise ValueError(
                f"{where} has columns {list(names[:5])} ..., but the first block has "
                f"{list(self.names[:5])} ...; name and order must be the same."
            )
        return Block(X, y, weight)


class _Derived(BlockSource):
    """The blocks of a source after some functions, kept as far as there is room."""

    def __init__(
        self, source: BlockSource, *functions: Callable[[Block], Block]
    ) -> None:
        self.source, self.functions = source, functions
        self.names, self.one_pass = source.names, source.one_pass
        self.keep, self.threads = source.keep, source.threads
        self._kept: dict[int, Block] = {}
        self._held = 0
        self._count: int | None = None  # blocks, once they were all made
        self._lock = Lock()

    def then(self, function: Callable[[Block], Block]) -> BlockSource:
        """Return the blocks after one more function; only these are kept."""
        return _Derived(self.source, *self.functions, function)

    def __repr__(self) -> str:
        return repr(self.source)

    def __iter__(self) -> Iterator[Block]:
        for make in self._makers():
            yield make()

    def _read(self) -> Iterator[Block]:
        return iter(self)  # checked where they come from

    def _makers(self) -> Iterator[Callable[[], Block]]:
        if self._count == len(self._kept):  # nothing to read
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
    """Samples in memory, or a ``numpy.memmap``, cut into blocks of rows.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame or MultiView
    y : array of shape (n_samples,) or (n_samples, n_outputs), optional
    sample_weight : array of shape (n_samples,), optional
    rows : int
        Rows in a block.

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
        self.rows = _check_rows(rows)
        n = _length(X)
        for part, name in ((y, "y"), (sample_weight, "sample_weight")):
            if part is not None and _length(part) != n:
                raise ValueError(
                    f"X has {n} samples and {name} has {_length(part)}; they must be "
                    "as many."
                )

    def __repr__(self) -> str:
        return f"ArrayBlocks({_length(self.X)} samples)"

    def _read(self) -> Iterator[Any]:
        for start in range(0, _length(self.X), self.rows):
            part = slice(start, start + self.rows)
            yield _cut(self.X, part), _cut(self.y, part), _cut(self.sample_weight, part)


class NpyBlocks(BlockSource):
    """Samples in ``.npy`` files, read through a memory map.

    Parameters
    ----------
    X, y, sample_weight : path
        Files of ``numpy.save``; y and sample_weight are optional.
    rows : int
        Rows in a block.
    """

    def __init__(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, rows: int = ROWS
    ) -> None:
        self.paths = [None if p is None else Path(p) for p in (X, y, sample_weight)]
        self.rows = _check_rows(rows)
        lengths = [len(self._map(p)) for p in self.paths if p is not None]
        if len(set(lengths)) > 1:
            files = [str(p) for p in self.paths if p is not None]
            raise ValueError(
                f"The files {files} hold {lengths} samples; they must be as many."
            )
        self._n = lengths[0]
        self._opened = self._stamp()

    def __repr__(self) -> str:
        return f"NpyBlocks({str(self.paths[0])!r})"

    def _map(self, path: Path) -> NDArray[Any]:
        with _readable(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)

    def _read(self) -> Iterator[Any]:
        for start in range(0, self._n, self.rows):
            part = slice(start, start + self.rows)
            # a map of its own for each block: what was read leaves memory with it
            yield tuple(
                None if p is None else np.array(self._map(p)[part]) for p in self.paths
            )

    def _stamp(self) -> Any:
        return _stamps(p for p in self.paths if p is not None)


def _listed(paths: Paths) -> list[Path]:
    """Return one path or several as a list."""
    if isinstance(paths, (str, os.PathLike)):
        return [Path(paths)]
    return [Path(path) for path in paths]


class _TableBlocks(BlockSource):
    """Tables in files: features, a target and perhaps weights, each in its column."""

    def __init__(
        self,
        paths: Paths,
        target: Any = None,
        *,
        columns: Sequence[Any] | None = None,
        sample_weight: Any = None,
        rows: int = ROWS,
    ) -> None:
        self.paths = _listed(paths)
        if not self.paths:
            raise ValueError(f"{type(self).__name__} needs at least one file.")
        self.target = target
        self.columns = None if columns is None else list(columns)
        self.sample_weight = sample_weight
        self.rows = _check_rows(rows)
        self._opened = self._stamp()

    def __repr__(self) -> str:
        more = f", and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{type(self).__name__}({str(self.paths[0])!r}{more})"

    def _stamp(self) -> Any:
        return _stamps(self.paths)

    def _read(self) -> Iterator[Any]:
        for path in self.paths:
            with _readable(path):
                yield from self._tables(path)

    @abstractmethod
    def _tables(self, path: Path) -> Iterator[Any]:
        """Yield the tables of a file, some rows at a time."""

    def _split(self, frame: Any, path: Path) -> tuple[Any, Any, Any]:
        """Return features, target and weights of some rows of a table."""
        special = [c for c in (self.target, self.sample_weight) if c is not None]
        wanted = self.columns
        if wanted is None:
            wanted = [c for c in frame.columns if c not in special]
        missing = [c for c in (*wanted, *special) if c not in frame.columns]
        if missing:
            raise ValueError(
                f"{path} has no column {missing[0]!r}; it has "
                f"{list(frame.columns)[:20]}."
            )
        y = None if self.target is None else frame[self.target]
        weight = None if self.sample_weight is None else frame[self.sample_weight]
        return frame[wanted], y, weight


class CSVBlocks(_TableBlocks):
    """Samples in CSV files, read in chunks by pandas.

    Parameters
    ----------
    paths : path or list of paths
        Files with the same columns, one after the other.
    target : str, optional
        The column to learn.
    columns : list of str, optional
        The features; all other columns by default.
    sample_weight : str, optional
        The column of the weights.
    rows : int
        Rows in a block.
    **options
        For :func:`pandas.read_csv`, for instance ``sep=";"`` or
        ``dtype={"label": str}``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from mklearn.blocks import CSVBlocks
    >>> path = Path(tempfile.mkdtemp()) / "table.csv"
    >>> lines = ["a,b,label", "1,2,yes", "3,4,no", "5,6,yes"]
    >>> size = path.write_text(chr(10).join(lines))
    >>> for block in CSVBlocks(path, target="label", rows=2):
    ...     print(block.X.tolist(), block.y.tolist())
    [[1.0, 2.0], [3.0, 4.0]] ['yes', 'no']
    [[5.0, 6.0]] ['yes']
    """

    def __init__(
        self,
        paths: Paths,
        target: Any = None,
        *,
        columns: Sequence[Any] | None = None,
        sample_weight: Any = None,
        rows: int = ROWS,
        **options: Any,
    ) -> None:
        super().__init__(
            paths, target, columns=columns, sample_weight=sample_weight, rows=rows
        )
        self.options = options

    def _tables(self, path: Path) -> Iterator[Any]:
        pandas = _imported("pandas", "CSV files are read by pandas")
        # types are those of each chunk; _checked tells if they do not agree
        options = {"low_memory": False, **self.options}
        with pandas.read_csv(path, chunksize=self.rows, **options) as chunks:
            for frame in chunks:
                yield self._split(frame, path)


class ParquetBlocks(_TableBlocks):
    """Samples in parquet files, read by row groups, or less at a time, by pyarrow.

    Parameters
    ----------
    paths : path or list of paths
        Files with the same columns, one after the other. A folder stands for the
        parquet files in it, in the order of their names.
    target : str, optional
        The column to learn.
    columns : list of str, optional
        The features; all other columns by default.
    sample_weight : str, optional
        The column of the weights.
    rows : int
        Most rows in a block.
    """

    def __init__(
        self,
        paths: Paths,
        target: Any = None,
        *,
        columns: Sequence[Any] | None = None,
        sample_weight: Any = None,
        rows: int = ROWS,
    ) -> None:
        listed = _listed(paths)
        files = [
            file
            for path in listed
            for file in (sorted(path.rglob("*.parquet")) if path.is_dir() else [path])
        ]
        if listed and not files:
            raise ValueError(f"There is no parquet file in {str(listed[0])!r}.")
        super().__init__(
            files, target, columns=columns, sample_weight=sample_weight, rows=rows
        )

    def _tables(self, path: Path) -> Iterator[Any]:
        pq = _imported("pyarrow.parquet", "Parquet files are read by pyarrow")
        wanted = None
        if self.columns is not None:
            special = [c for c in (self.target, self.sample_weight) if c is not None]
            wanted = [*self.columns, *special]
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(
                    batch_size=self.rows, row_groups=[group], columns=wanted
                ):
                    yield self._split(batch.to_pandas(), path)


class GeneratorBlocks(BlockSource):
    """Blocks that a function makes, anew for each pass, or a generator makes once.

    Parameters
    ----------
    source : callable or iterator
        A function without arguments that returns an iterator of ``(X, y)`` or
        ``(X, y, weight)``, the same at every call. An iterator can be read only once,
        which is enough where one pass is.

    Examples
    --------
    >>> import numpy as np
    >>> from mklearn.blocks import GeneratorBlocks
    >>> def produce():
    ...     for seed in range(3):
    ...         X = np.random.default_rng(seed).standard_normal((5, 2))
    ...         yield X, X[:, 0] > 0
    >>> blocks = GeneratorBlocks(produce)
    >>> blocks.reduce(lambda block: block.n_rows), blocks.one_pass
    (15, False)
    """

    def __init__(self, source: Any) -> None:
        if not callable(source) and not isinstance(source, Iterable):
            raise ValueError(
                "GeneratorBlocks takes a function that returns an iterator of blocks, "
                f"or an iterator, got {type(source).__name__}."
            )
        self.source = source
        # lists can be read again, iterators are their own
        self.one_pass = not callable(source) and iter(source) is source
        self._used = False

    def __repr__(self) -> str:
        name = getattr(self.source, "__name__", type(self.source).__name__)
        return f"GeneratorBlocks({name})"

    def _read(self) -> Iterator[Any]:
        if self.one_pass and self._used:
            raise ValueError(
                f"{self!r} was read already and cannot be read again, but this fit "
                "needs several passes over the samples. Pass a function that returns "
                "a new iterator at each call."
            )
        self._used = True
        source = self.source() if callable(self.source) else self.source
        if callable(self.source) and isinstance(source, (tuple, np.ndarray)):
            raise ValueError(
                f"The function of {self!r} returned {type(source).__name__}; it must "
                "return an iterator of blocks: write yield in place of return."
            )
        yield from source

    def _digest(self, block: Block, before: int) -> int:
        if self.one_pass or not isinstance(block.X, np.ndarray):
            return 0
        return zlib.crc32(np.ascontiguousarray(block.X).data, before)


def as_blocks(X: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Return the samples as blocks if they come so, else None.

    What has ``map`` and ``reduce`` is taken as it is, a function or a generator is
    read as :class:`GeneratorBlocks`, and a Dask collection by its partitions. Tables,
    arrays and views are no blocks: an estimator that wants to read them so makes
    :class:`ArrayBlocks` of them.
    """
    from mklearn.distributed import DaskBlocks, is_dask

    if not comes_in_blocks(X):
        return None
    if is_dask(X):
        return DaskBlocks(X, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError(
            "Blocks carry their targets and weights, so y and sample_weight stay None; "
            "let each block be (X, y) or (X, y, weight)."
        )
    return X if hasattr(X, "reduce") else GeneratorBlocks(X)


def comes_in_blocks(X: Any) -> bool:
    """Tell whether :func:`as_blocks` can read the samples."""
    from mklearn.distributed import is_dask

    if is_dask(X):
        return True
    if hasattr(X, "shape") or isinstance(X, type):
        return False
    return (
        isinstance(X, Iterator)
        or callable(X)
        or (hasattr(X, "reduce") and hasattr(X, "map"))
    )


# --- files ----------------------------------------------------------------------------


def _stamps(paths: Iterable[Path]) -> tuple[Any, ...]:
    """Return size and time of change of each file."""
    found = []
    for path in paths:
        try:
            state = path.stat()
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
        found.append((str(path), state.st_size, state.st_mtime_ns))
    return tuple(found)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say which file it was that could not be read."""
    try:
        yield
    except ImportError:
        raise
    except (OSError, EOFError, ValueError, zlib.error, struct.error) as error:
        if str(path) in str(error):
            raise
        text = str(error).strip().rstrip(".") or type(error).__name__
        raise ValueError(
            f"{path} cannot be read to its end ({text}); it may be truncated or of "
            "another kind."
        ) from error


def _imported(module: str, why: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"{why}; install {package}.") from error


# --- parts of a block -----------------------------------------------------------------


def _check_rows(rows: Any) -> int:
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise ValueError(f"rows must be a whole number >= 1, got {rows!r}.")
    return int(rows)


def _length(part: Any) -> int:
    shape = getattr(part, "shape", None)
    return int(shape[0]) if shape else len(part)


def _cut(part: Any, rows: slice) -> Any:
    if part is None:
        return None
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


def _rows_of(X: Any, where: str) -> tuple[Any, tuple[str, ...] | None]:
    """Return rows as float64 array, CSR matrix or views, and the columns' names."""
    names = None
    if hasattr(X, "names") and hasattr(X, "column_names"):  # MultiView checked itself
        return X, None
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        names = tuple(str(c) for c in X.columns)
        strange = [
            c for c in X.columns if getattr(X[c].dtype, "kind", "O") not in "biuf"
        ]
        if strange:
            raise ValueError(
                f"{where} has values in column {strange[0]!r} that are not numbers; "
                "encode them, or leave the column out by columns=[...]."
            )
        X = X.to_numpy(dtype=np.float64, na_value=np.nan)
    if sparse.issparse(X):
        X = X.tocsr().astype(np.float64)
        values = X.data
    else:
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where} is no table of numbers ({error}).") from error
        values = X
    if X.ndim != 2:
        raise ValueError(
            f"{where} has samples of shape {X.shape}; they must be a table of shape "
            "(n_samples, n_columns)."
        )
    # the sum is finite if all is, and is found without a copy
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():
        rows, cols = (X.tocoo() if sparse.issparse(X) else X).nonzero()
        bad = ~np.isfinite(np.asarray(X[rows, cols]).ravel())
        row, col = int(rows[bad][0]), int(cols[bad][0])
        raise ValueError(
            f"{where} contains NaN or infinity, first in row {row} of the block, "
            f"column {col if names is None else names[col]!r}: a value is missing or "
            "the file is truncated. Impute values or drop the samples first."
        )
    return X, names


def _targets_of(y: Any, where: str) -> NDArray[Any]:
    """Return targets as an array that holds no missing values."""
    y = np.asarray(y)
    if y.dtype.kind in "fc":
        absent = ~np.isfinite(y)
    elif y.dtype.kind == "O":
        absent = np.array([v is None or v != v for v in y.ravel()], dtype=bool)
        if not absent.any():
            kinds = {isinstance(v, str) for v in y.ravel()}
            if kinds == {True}:
                y = y.astype(str)
    else:
        return y
    if absent.any():
        raise ValueError(
            f"{where} lacks the target of {int(absent.sum())} samples (missing, NaN or "
            "infinity); drop them, or see whether the file is truncated."
        )
    return y


def _weights_of(weight: Any, where: str) -> NDArray[np.float64]:
    """Return weights as finite numbers that are not negative."""
    weight = np.asarray(weight, dtype=np.float64)
    if weight.ndim != 1 or not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError(
            f"{where} has weights that are missing, infinite, negative or no column; "
            "they must be finite numbers from 0 on."
        )
    return weight


def _kind(X: Any, y: Any) -> tuple[Any, ...]:
    """Return what all blocks must have in common."""
    if y is None:
        return (X.shape[1], None, None)
    text = y.dtype.kind in "OUST"
    return (X.shape[1], y.shape[1:], "text" if text else "numbers")


def _told(kind: tuple[Any, ...]) -> str:
    width, outputs, content = kind
    columns = f"{width} column{'s' if width != 1 else ''}"
    if content is None:
        return f"{columns} and no targets"
    several = f" in {outputs[0]} columns" if outputs else ""
    return f"{columns} and targets that are {content}{several}"
