"""Files and generators, larger than memory, as blocks of rows."""

from __future__ import annotations

import os
import struct
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.blocks import ROWS, Block, BlockSource
from mklearn.data.checks import check_count
from mklearn.data.containers import rows_of

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class NpyBlocks(BlockSource):
    """Samples in ``.npy`` files, read through a memory map.

    Parameters
    ----------
    X, y, sample_weight : path
        Files written by ``numpy.save``; y and sample_weight are optional.
    rows : int
        Number of rows in a block.
    """

    def __init__(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, rows: int = ROWS
    ) -> None:
        self.paths = [None if p is None else Path(p) for p in (X, y, sample_weight)]
        self.rows = check_count("rows", rows)
        lengths = [len(self._map(p)) for p in self.paths if p is not None]
        if len(set(lengths)) > 1:
            files = [str(p) for p in self.paths if p is not None]
            raise ValueError(
                f"The files {files} have different numbers of samples, {lengths}; they "
                "must have the same number."
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
            # a new map for each block, so that its pages are released with it
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
    """Tables in files, with columns of features, a target and perhaps weights."""

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
        self.rows = check_count("rows", rows)
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
        """Yield the table of a file in blocks of rows."""

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
        Files with the same columns, read one after the other.
    target : str, optional
        The target column.
    columns : list of str, optional
        The features; all other columns by default.
    sample_weight : str, optional
        The column of sample weights.
    rows : int
        Number of rows in a block.
    **options
        Options of :func:`pandas.read_csv`, for instance ``sep=";"`` or
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
        # each chunk has its own types; _checked raises if they differ
        options = {"low_memory": False, **exact_numbers(pandas), **self.options}
        with pandas.read_csv(path, chunksize=self.rows, **options) as chunks:
            for frame in chunks:
                yield self._split(frame, path)


class ParquetBlocks(_TableBlocks):
    """Samples in parquet files, read with pyarrow by row groups or smaller blocks.

    Parameters
    ----------
    paths : path or list of paths
        Files with the same columns, read one after the other. A folder stands for the
        parquet files in it, sorted by name.
    target : str, optional
        The target column.
    columns : list of str, optional
        The features; all other columns by default.
    sample_weight : str, optional
        The column of sample weights.
    rows : int
        Maximum number of rows in a block.
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


class AnnDataBlocks(BlockSource):
    """The cells of an ``.h5ad`` file or AnnData object, in blocks of rows.

    The file is opened in backed mode: its matrix is never in memory as a whole, unless
    it is a sparse matrix stored by columns. Sparse matrices stay sparse.

    Parameters
    ----------
    adata : path or anndata.AnnData
    target : str, optional
        The column of ``obs`` with the target.
    layer : str, optional
        The layer to read instead of ``X``.
    sample_weight : str, optional
        The column of ``obs`` with the sample weights.
    rows : int
        Number of rows in a block.
    """

    def __init__(
        self,
        adata: Any,
        target: str | None = None,
        *,
        layer: str | None = None,
        sample_weight: str | None = None,
        rows: int = ROWS,
    ) -> None:
        self.path = Path(adata) if isinstance(adata, (str, os.PathLike)) else None
        self.adata: Any = None if self.path is not None else adata
        self.target, self.layer, self.sample_weight = target, layer, sample_weight
        self.rows = check_count("rows", rows)
        self._opened = self._stamp()
        with self._open() as found:
            self.names = tuple(map(str, found.var_names))
            for column in (target, sample_weight):
                if column is not None and column not in found.obs.columns:
                    raise ValueError(
                        f"{self!r} has no column {column!r} in obs, which has "
                        f"{list(found.obs.columns)[:20]}."
                    )
            if layer is not None and layer not in found.layers:
                raise ValueError(
                    f"{self!r} has no layer {layer!r}; it has {list(found.layers)}."
                )

    def __repr__(self) -> str:
        if self.path is not None:
            return f"AnnDataBlocks({str(self.path)!r})"
        return f"AnnDataBlocks({self.adata.n_obs} cells)"

    @contextmanager
    def _open(self) -> Iterator[Any]:
        if self.path is None:
            yield self.adata
            return
        anndata = _imported("anndata", "h5ad files are read by anndata")
        with _readable(self.path):
            found = anndata.read_h5ad(self.path, backed="r")
        try:
            yield found
        finally:
            found.file.close()

    def _read(self) -> Iterator[Any]:
        with self._open() as found:
            matrix = found.X if self.layer is None else found.layers[self.layer]
            special = [
                None if column is None else found.obs[column].to_numpy()
                for column in (self.target, self.sample_weight)
            ]
            for number, rows in enumerate(rows_of(matrix, self.rows)):
                part = slice(number * self.rows, (number + 1) * self.rows)
                y, weight = (None if s is None else s[part] for s in special)
                yield rows, y, weight

    def _stamp(self) -> Any:
        return () if self.path is None else _stamps([self.path])


class GeneratorBlocks(BlockSource):
    """Blocks from a function that generates them for each pass, or from a generator.

    Parameters
    ----------
    source : callable or iterator
        A function without arguments that returns an iterator of ``(X, y)`` or
        ``(X, y, weight)``, the same at every call. An iterator can be read only once,
        which suffices for methods that need a single pass.

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
        # lists can be read again; iterators, which return themselves, cannot
        self.one_pass = not callable(source) and iter(source) is source
        self._used = False

    def __repr__(self) -> str:
        name = getattr(self.source, "__name__", type(self.source).__name__)
        return f"GeneratorBlocks({name})"

    def _read(self) -> Iterator[Any]:
        if self.one_pass and self._used:
            raise ValueError(
                f"{self!r} has already been read and cannot be read again, but this "
                "fit needs several passes over the samples. Pass a function that "
                "returns a new iterator at each call."
            )
        self._used = True
        source = self.source() if callable(self.source) else self.source
        if callable(self.source) and isinstance(source, (tuple, np.ndarray)):
            raise ValueError(
                f"The function of {self!r} returned {type(source).__name__}; it must "
                "return an iterator of blocks: use yield instead of return."
            )
        yield from source

    def _digest(self, block: Block, before: int) -> int:
        if self.one_pass or not isinstance(block.X, np.ndarray):
            return 0
        return zlib.crc32(np.ascontiguousarray(block.X).data, before)


# --- opening --------------------------------------------------------------------------


def _stamps(paths: Iterable[Path]) -> tuple[Any, ...]:
    """Return size and modification time of each file."""
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
    """Name the file in errors about reading it."""
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


def exact_numbers(pandas: Any) -> dict[str, Any]:
    """Return the options with which pandas reads numbers exactly.

    Before version 3.1, pandas reads only fifteen digits by default; since then it reads
    all of them, and warns about the option.
    """
    version = tuple(int(part) for part in pandas.__version__.split(".")[:2])
    return {} if version >= (3, 1) else {"float_precision": "round_trip"}


def _imported(module: str, why: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"{why}; install {package}.") from error
