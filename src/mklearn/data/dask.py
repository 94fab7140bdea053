"""Samples on a cluster: Dask arrays and data frames as blocks, and lazy predictions.

Everything here is a graph of pure functions of partitions, so that any scheduler of
Dask can run it, on threads, processes or machines, and what a lost worker held is
computed again from its partitions. No worker needs a file, or memory, that another
wrote: partial sums travel, samples stay where they are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from mklearn.data.blocks import ROWS, ArrayBlocks, Block, Blocks

T = TypeVar("T")

FAN_IN = 4  # partial sums that one task adds up
LEAVES = 4  # partial sums at the foot of the tree for each core, about


def is_dask(X: Any) -> bool:
    """Tell whether ``X`` is a Dask collection, without importing Dask."""
    package = type(X).__module__.split(".")[0]
    return package in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


class DaskBlocks(Blocks):
    """The partitions of a Dask array or data frame as blocks.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame
        Samples in rows. An array may be cut into chunks along both axes.
    y, sample_weight : dask.array.Array, dask.dataframe.Series, or array, optional
        Cut like X, or of a size that lets them be cut so.
    rows : int
        Most rows that a worker turns into features at a time, however large a
        partition is: this bounds the memory of a worker.

    Attributes
    ----------
    names : tuple of str or None
        Names of the columns of a data frame.

    Examples
    --------
    >>> import dask.array as da
    >>> from mklearn.data.dask import DaskBlocks
    >>> blocks = DaskBlocks(da.ones((10, 2), chunks=(4, 1)), da.arange(10, chunks=5))
    >>> blocks.reduce(lambda block: float(block.y.sum()))
    45.0
    """

    def __init__(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, rows: int = ROWS
    ) -> None:
        if not is_dask(X) or X.ndim != 2:
            raise ValueError(
                "DaskBlocks needs a Dask array or data frame of shape (n_samples, "
                f"n_columns), got {type(X).__name__}."
            )
        if hasattr(X, "columns"):
            self.names = tuple(str(c) for c in X.columns)
        elif X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        self.rows = rows
        self.width = int(X.shape[1])
        sizes = None if self.names is not None else X.chunks[0]
        count = X.npartitions
        columns = [
            _aligned(part, name, count, sizes)
            for part, name in ((y, "y"), (sample_weight, "sample_weight"))
        ]
        self._steps: tuple[Any, ...] = ()
        self._graph, self._keys = _joined([X, *columns], count)

    def __repr__(self) -> str:
        return f"DaskBlocks({len(self)} partitions)"

    def __len__(self) -> int:
        return len(self._keys)

    def map(self, function: Callable[[Block], T]) -> list[T]:
        """Return the function's value for each block, in the order of the blocks."""
        import dask
        from dask.delayed import Delayed

        graph, keys = self._tasks(_each, function)
        parts = dask.compute(*(Delayed(key, graph) for key in keys))
        return [value for part in parts for value in part]

    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return the sum of the function's values over all blocks.

        Workers add up the blocks of a partition, go on with the next ones, and add the
        sums of these rows of partitions in a tree. There are only as many rows as the
        cores of the cluster need, so that a worker holds a few sums however many
        partitions there are. The number is a power of four: up to 4 cores, 16, 64 and
        so on the answer is the same to the last digit for any number of workers, and
        beyond up to rounding.
        """
        total = self.sum(function).compute()
        if total is None:
            raise ValueError(f"{self!r} holds no samples.")
        return total

    def sum(self, function: Callable[[Block], T]) -> Any:
        """Return what ``reduce`` computes as a ``dask.delayed`` value."""
        from dask.delayed import Delayed

        graph, keys = self._tasks(_total, function)
        ends = np.linspace(0, len(keys), min(_leaves(), len(keys)) + 1).astype(int)
        for i in set(range(len(keys))).difference(ends):
            graph[keys[i]] += (keys[i - 1],)  # goes on where its neighbour ended
        keys = [keys[i - 1] for i in ends[1:]]
        name, level = f"mklearn-add-{uuid4().hex}", 0
        while len(keys) > 1:
            above = []
            for start in range(0, len(keys), FAN_IN):
                key = (name, level, start // FAN_IN)
                graph[key] = (_add, keys[start : start + FAN_IN])
                above.append(key)
            keys, level = above, level + 1
        return Delayed(keys[0], graph)

    def then(self, function: Callable[[Block], Block]) -> DaskBlocks:
        """Return the blocks ``function(block)``, made anew by workers in every pass.

        The function, which may be large, is sent to the cluster here and only once.
        """
        import dask

        made = copy(self)
        step = dask.delayed(function, pure=False, traverse=False).persist()
        made._steps = (*self._steps, step.key)
        made._graph = {**self._graph, **step.__dask_graph__()}
        return made

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, brought here by one partition at a time."""
        from dask.delayed import Delayed

        graph, keys = self._tasks(_each, _same)
        for key in keys:
            yield from Delayed(key, graph).compute()

    def _tasks(
        self, task: Callable[..., Any], function: Any
    ) -> tuple[dict[Any, Any], list[Any]]:
        """Return a graph that calls ``task`` on each partition, and the keys of it."""
        token = uuid4().hex
        last = f"mklearn-function-{token}"
        graph = {**self._graph, last: function}
        keys = []
        for i, part in enumerate(self._keys):
            keys.append((f"mklearn{task.__name__}-{token}", i))
            where = f"Partition {i} of {self!r}"
            chain = [*self._steps, last]
            graph[keys[-1]] = (task, chain, part, self.width, self.rows, where)
        return graph, keys


def _leaves() -> int:
    """Return how many sums may grow at a time: a power of four, enough for cores."""
    cores = os.cpu_count() or 1
    try:
        from distributed import get_client

        cores = sum(get_client().nthreads().values())
    except (ImportError, ValueError):
        pass  # no cluster: the threads of this machine
    return max(16, int(FAN_IN ** math.ceil(math.log(max(1, LEAVES * cores), FAN_IN))))


def _joined(columns: list[Any], count: int) -> tuple[dict[Any, Any], list[Any]]:
    """Return one graph of samples, targets and weights, and their keys by partition.

    Arrays are optimised together, so that what they share is computed once.
    """
    from dask.array.optimization import optimize
    from dask.highlevelgraph import HighLevelGraph

    graph: dict[Any, Any] = {}
    keys: list[list[Any]] = [[] for _ in range(count)]
    arrays, wanted = [], []
    for column in columns:
        if hasattr(column, "chunks"):
            found = _flat(column.__dask_keys__())
            arrays.append(column.__dask_graph__())
            wanted += found
        elif is_dask(column):
            column = column.optimize()
            found = _flat(column.__dask_keys__())
            graph.update(column.__dask_graph__())
        else:
            token = uuid4().hex
            found = [(f"mklearn-column-{token}", j) for j in range(count)]
            graph.update(zip(found, column, strict=True))
        for own, key in zip(keys, found, strict=True):
            own.append(key)
    if arrays:
        graph.update(optimize(HighLevelGraph.merge(*arrays), wanted))
    return graph, keys


def _flat(keys: Any) -> list[Any]:
    """Return nested lists of keys as one list."""
    if not isinstance(keys, list):
        return [keys]
    return [key for part in keys for key in _flat(part)]


def _aligned(part: Any, name: str, count: int, sizes: Any) -> Any:
    """Return targets or weights cut as the samples are cut."""
    if part is None:
        return [None] * count
    known = sizes is not None and not np.isnan(sizes).any()
    if is_dask(part):
        if known and hasattr(part, "chunks") and not np.isnan(part.shape[0]):
            if part.shape[0] != sum(sizes):
                raise ValueError(
                    f"X has {sum(sizes)} samples and {name} has {part.shape[0]}; they "
                    "must be as many."
                )
            part = part.rechunk({0: sizes} | ({1: -1} if part.ndim > 1 else {}))
        if part.npartitions != count:
            raise ValueError(
                f"X has {count} partitions and {name} has {part.npartitions}, and "
                "their sizes are not known; cut them alike, for instance by taking "
                "both from the same data frame."
            )
        return part
    if not known:
        raise ValueError(
            f"The sizes of X's partitions are not known, so that {name} in memory "
            f"cannot be cut alike; pass {name} as a Dask collection, or call "
            "X.compute_chunk_sizes() on the array first."
        )
    values = np.asarray(part)
    if len(values) != sum(sizes):
        raise ValueError(
            f"X has {sum(sizes)} samples and {name} has {len(values)}; they must be as "
            "many."
        )
    return np.split(values, np.cumsum(sizes)[:-1])


# --- what workers do ------------------------------------------------------------------


class _Partition(ArrayBlocks):
    """A partition in blocks; errors say which partition it is."""

    def __init__(self, parts: Any, width: int, rows: int, where: str) -> None:
        X, y, weight = parts
        self._where = where
        super().__init__(X, y, weight, rows=rows)
        if X.shape[1] != width:
            raise ValueError(
                f"{where} has {X.shape[1]} columns, but {width} were announced."
            )

    def __repr__(self) -> str:
        return self._where

    def _values(self, function: Callable[[Block], T]) -> Iterator[T]:
        # one by one: a cluster runs as many tasks as it has cores
        for make in self._makers():
            yield function(make())


def _each(chain: Any, parts: Any, width: int, rows: int, where: str) -> list[Any]:
    if not parts[0].shape[0]:
        return []
    return _Partition(parts, width, rows, where).map(partial(_through, chain))


def _total(
    chain: Any, parts: Any, width: int, rows: int, where: str, before: Any = None
) -> Any:
    """Return the sum over a partition and what is before it, None if all is empty."""
    if not parts[0].shape[0]:
        return before
    partition = _Partition(parts, width, rows, where)
    return _add([before, partition.reduce(partial(_through, chain))])


def _through(chain: list[Callable[[Any], Any]], block: Block) -> Any:
    value: Any = block
    for function in chain:
        value = function(value)
    return value


def _same(block: Block) -> Block:
    return block


def _add(parts: list[Any]) -> Any:
    present = [part for part in parts if part is not None]
    if not present:
        return None
    total = present[0]
    for part in present[1:]:
        total = total + part
    return total


# --- predictions ----------------------------------------------------------------------


def lazily(model: Any, name: str, X: Any) -> Any:
    """Return the values of a model's method on the partitions of X as a Dask array."""
    import dask

    columns = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    # one sample tells the type of the answer, and whether X is what it should be
    probe = getattr(model, name)(with_names(np.zeros((1, X.shape[1])), columns))
    if columns is not None:
        X = X.to_dask_array()
    elif X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    flat = probe.ndim == 1
    return X.map_blocks(
        _answer,
        model=dask.delayed(model, pure=False, traverse=False),
        method=name,
        columns=columns,
        empty=probe[:0],
        dtype=probe.dtype,
        drop_axis=1 if flat else None,
        chunks=X.chunks[:1] if flat else (X.chunks[0], probe.shape[1:]),
        meta=probe[:0],
        token=f"mklearn-{name}",
    )


def _answer(
    part: Any, model: Any, method: str, columns: list[str] | None, empty: NDArray[Any]
) -> NDArray[Any]:
    if part.shape[0] == 0:
        return empty
    return np.asarray(getattr(model, method)(with_names(part, columns)))


def with_names(values: Any, columns: Sequence[str] | None) -> Any:
    """Return values as a data frame if their columns have names."""
    if columns is None:
        return values
    import pandas as pd

    return pd.DataFrame(values, columns=columns)
