"""Dask arrays and data frames as blocks, and lazy predictions.

Every computation is a graph of pure functions of partitions, so that any Dask scheduler
can run it, on threads, processes or machines, and the results of a lost worker are
recomputed from its partitions. Workers share neither files nor memory: only partial
sums are transferred, the samples stay where they are.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from itertools import pairwise
from time import monotonic
from typing import Any, TypeVar, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.data.blocks import ROWS, ArrayBlocks, Block, Blocks
from mklearn.data.checks import check_values
from mklearn.data.spelling import plural
from mklearn.data.threads import alone, one_blas_thread
from mklearn.data.views import MultiView

T = TypeVar("T")

FAN_IN = 4  # number of partial sums that one task adds
LEAVES = 4  # approximate number of partial sums per core at the leaves of the tree
PATIENCE = 300.0  # seconds that a cluster may be without any worker


class ClusterError(RuntimeError):
    """The cluster has lost a computation and cannot repeat it."""


def is_dask(X: Any) -> bool:
    """Return whether ``X`` is a Dask collection, without importing Dask."""
    package = type(X).__module__.split(".")[0]
    return package in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


class DaskBlocks(Blocks):
    """The partitions of a Dask array or data frame as blocks.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame
        Samples in rows. An array may be cut into chunks along both axes.
    y, sample_weight : dask.array.Array, dask.dataframe.Series, or array, optional
        Partitioned like X, or an array that can be partitioned alike.
    rows : int
        Maximum number of rows that a worker turns into features at a time, however
        large a partition is; this bounds the memory of a worker.

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
        self._room = 0
        self._steps: tuple[Any, ...] = ()
        self._graph, self._keys = _joined([X, *columns], count)

    def __repr__(self) -> str:
        return f"DaskBlocks({len(self)} partitions)"

    def __len__(self) -> int:
        return len(self._keys)

    def map(self, function: Callable[[Block], T]) -> list[T]:
        """Return the function's value for each block, in the order of the blocks."""
        from dask.delayed import Delayed

        graph, keys = self._tasks(_each, function)
        parts = computed([Delayed(key, graph) for key in keys])
        return [value for part in parts for value in part]

    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return the sum of the function's values over all blocks.

        Workers sum over chains of consecutive partitions, and the sums of the chains
        are added in a tree. There are only as many chains as the cores of the cluster
        need, so that a worker holds few sums however many partitions there are. The
        number of chains is a power of four: for up to 4 cores, 16, 64 and so on the
        result is the same to the last digit for any number of workers; otherwise it is
        the same up to rounding.
        """
        total = self.total(function)
        if total is None:
            raise ValueError(f"{self!r} contains no samples.")
        return total

    def total(self, function: Callable[[Block], T]) -> T | None:
        """Return what ``reduce`` returns, None if there are no samples."""
        [total] = computed([self.sum(function)])
        return cast("T | None", total)

    def sum(self, function: Callable[[Block], T]) -> Any:
        """Return what ``reduce`` computes as a ``dask.delayed`` value."""
        from dask.delayed import Delayed

        graph, keys = self._tasks(_total, function)
        ends = np.linspace(0, len(keys), min(_leaves(), len(keys)) + 1).astype(int)
        for i in set(range(len(keys))).difference(ends):
            graph[keys[i]] += (keys[i - 1],)  # continues the sum of its neighbour
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
        """Return the blocks ``function(block)``, recomputed by workers in every pass.

        The function, which may be large, is sent to the cluster only once. Use
        :meth:`held` to keep the resulting blocks.
        """
        import dask

        made = copy(self)
        step = dask.delayed(function, pure=False, traverse=False).persist()
        made._steps = (*self._steps, step.key)
        made._graph = {**self._graph, **step.__dask_graph__()}
        return made

    def keeping(self, room: int) -> DaskBlocks:
        """Return the blocks with a limit, in bytes, on storage without a cluster."""
        made = copy(self)
        made._room = room
        return made

    def held(self, size: int) -> DaskBlocks:
        """Return the same blocks, stored by the workers if memory suffices.

        They may take half of the total free memory of the workers or, without a
        cluster, the limit of ``keeping``. The blocks of a lost worker are recomputed.
        """
        import dask
        from dask.delayed import Delayed

        if not self._room or size > _free(self._room):
            return self
        graph, keys = self._tasks(_keep, _same)
        made = copy(self)
        made._graph, made._keys, made._steps = {}, [], ()
        for part in dask.persist(*(Delayed(key, graph) for key in keys)):
            made._graph.update(part.__dask_graph__())
            made._keys.append(part.key)
        return made

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, transferred one partition at a time."""
        from dask.delayed import Delayed

        graph, keys = self._tasks(_each, _same)
        for key in keys:
            yield from computed([Delayed(key, graph)])[0]

    def portions(self, count: int) -> Iterator[tuple[int, DaskBlocks]]:
        """Yield ``count`` partitions at a time, with the index of the first."""
        for start in range(0, len(self._keys), count):
            made = copy(self)
            made._keys = self._keys[start : start + count]
            yield start, made

    def _tasks(
        self, task: Callable[..., Any], function: Any
    ) -> tuple[dict[Any, Any], list[Any]]:
        """Return a graph that calls ``task`` on each partition, and its keys."""
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


def computed(values: list[Any]) -> list[Any]:
    """Compute delayed values, or raise ClusterError if the cluster fails."""
    import dask

    client = _client()
    if client is None:
        return list(dask.compute(*values))
    with _futures() as futures:
        futures += client.compute(values)
        while not all(future.done() for future in futures):
            _wait(client, futures, "ALL_COMPLETED")
        return list(client.gather(futures))


def _client() -> Any:
    """Return the client of a cluster; None for threads or processes of this machine."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)
    return client if hasattr(client, "nthreads") else None


@contextmanager
def _futures() -> Iterator[list[Any]]:
    """Release futures in the end, and raise ClusterError if the cluster fails.

    Dask recovers from the loss of a worker. But a restarted scheduler has lost its
    tasks, a task that kills every worker is abandoned, and without workers a scheduler
    waits indefinitely: these cases raise an error here.
    """
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    futures: list[Any] = []
    try:
        yield futures
    except (KilledWorker, CancelledError, CommClosedError) as error:
        raise ClusterError(
            "The cluster has lost this computation: its scheduler was stopped or "
            "restarted, or every worker that tried it has died, often for lack of "
            f"memory. Check the cluster and fit again. {_ADVICE} (Dask says: {error})"
        ) from error
    finally:
        # tracebacks keep them alive, and a scheduler does not try again what has failed
        # as long as somebody waits for it
        for future in futures:
            future.release()


def _wait(client: Any, futures: list[Any], until: str) -> None:
    """Wait for futures as long as there are workers, or raise ClusterError."""
    from distributed import wait

    seen = monotonic()
    while True:
        try:
            wait(futures, timeout=1.0, return_when=until)
            return
        except TimeoutError:
            if client.nthreads():
                seen = monotonic()
            elif monotonic() - seen > _patience():
                raise _deserted(monotonic() - seen) from None


def _sent(client: Any, value: Any) -> Any:
    """Return the future of a value that every worker holds."""
    try:
        return client.scatter(value, broadcast=True, hash=False, timeout=_patience())
    except TimeoutError as error:
        raise _deserted(_patience()) from error


def _ended(error: CancelledError) -> bool:
    """Return whether the scheduler has dropped its tasks, not only lost a worker."""
    return str(getattr(error, "reason", None)).startswith("scheduler-")


def _allowed_failures() -> int:
    """Return how many workers may die of a task before Dask gives it up."""
    import dask

    return int(dask.config.get("distributed.scheduler.allowed-failures", 3))


def _deserted(seconds: float) -> ClusterError:
    return ClusterError(
        f"The cluster has had no worker for {seconds:.0f} seconds; start workers and "
        f"fit again. {_ADVICE}"
    )


_ADVICE = (
    "Sums that survive the loss of a cluster can be accumulated with "
    "model.accumulator(X).update(X, y), for the squared loss and discriminants."
)


class ColumnChunks:
    """Columns of a Dask array (n, T), read by the tasks that compute with them.

    Parameters
    ----------
    Y : dask.array.Array of shape (n, T)
        A chunk consists of all rows, however they are divided.
    rows : array of int, optional
        The rows that are used.

    Attributes
    ----------
    shape : tuple of int
    slices : list of slice
        The columns of each chunk.
    """

    def __init__(self, Y: Any, rows: NDArray[np.intp] | None = None) -> None:
        if np.isnan(Y.shape).any():
            raise ValueError(
                f"y is a Dask array of unknown shape {Y.shape}; call "
                "y.compute_chunk_sizes() first."
            )
        self._Y, self._rows = Y, rows
        self.shape = (Y.shape[0] if rows is None else len(rows), Y.shape[1])
        ends = np.cumsum([0, *Y.chunks[1]]).tolist()
        self.slices = [slice(i, j) for i, j in pairwise(ends) if i < j]

    @staticmethod
    def suit(Y: Any) -> bool:
        """Return whether Y is a Dask array with several chunks of columns."""
        return (
            is_dask(Y) and hasattr(Y, "chunks") and Y.ndim == 2 and Y.numblocks[1] > 1
        )

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: NDArray[np.intp]) -> ColumnChunks:
        """Return the same columns at some rows."""
        return ColumnChunks(self._Y, rows if self._rows is None else self._rows[rows])

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """Return all values."""
        return np.hstack(self.map(_as_is)).astype(dtype, copy=False)

    def map(self, function: Callable[[NDArray[Any], Any], T]) -> list[T]:
        """Return the function's value for each chunk, in the order of the columns."""
        found = dict(self.each(function, range(len(self.slices))))
        return [found[number] for number in range(len(self.slices))]

    def each(
        self,
        function: Callable[[NDArray[Any], Any], T],
        chunks: Sequence[int],
        left: Callable[[], float | None] | None = None,
    ) -> Iterator[tuple[int, T]]:
        """Yield the number and the function's value of chunks, as soon as it is ready.

        The function is sent to each worker once. There are no more tasks at a time than
        the cluster, or this machine, has threads, and each of them uses one thread.

        Parameters
        ----------
        function : callable
            Of the checked values of a chunk, (n, width), and the seconds that it has.
        chunks : sequence of int
            Numbers of chunks.
        left : callable, optional
            Returns the seconds that are left when a task starts, None for no limit.
        """
        task = _OnRows(function, self._Y.shape[0], self._rows)
        left = _no_limit if left is None else left
        client = _client()
        if client is None:
            yield from self._here(task, chunks, left)
            return
        with _futures() as futures:
            held, losses = _sent(client, task), 0
            waiting, running = deque(chunks), dict[Any, tuple[int, Any]]()
            while waiting or running:
                most = max(1, sum(client.nthreads().values()))
                while waiting and len(running) < most:
                    part = client.compute(self._Y[:, self.slices[waiting[0]]])
                    # the clocks of machines differ, so this is the time from now on
                    future = client.submit(_call, held, part, left(), pure=False)
                    del part  # only the task needs it
                    running[future] = waiting.popleft(), held
                    futures[:] = [held, *running]
                with suppress(CancelledError):  # each future says below what it met
                    _wait(client, list(running), "FIRST_COMPLETED")
                lost: CancelledError | None = None
                for future in [one for one in running if one.done()]:
                    number, source = running.pop(future)
                    try:
                        value = future.result()
                    except CancelledError as error:
                        waiting.appendleft(number)
                        lost = error if source is held else lost
                    else:
                        yield number, value
                    finally:
                        future.release()
                if lost is not None:  # the last worker that held the function has died
                    losses += 1
                    if _ended(lost) or losses > _allowed_failures():
                        raise lost
                    held = _sent(client, task)

    def _here(
        self, task: _OnRows, chunks: Sequence[int], left: Callable[[], Any]
    ) -> Iterator[tuple[int, Any]]:
        """Yield what ``each`` does, computed on this machine."""
        import dask

        held = dask.delayed(task, pure=False, traverse=False)
        most = dask.config.get("num_workers", None) or os.cpu_count() or 1
        for start in range(0, len(chunks), most):
            now = chunks[start : start + most]
            parts = [
                dask.delayed(_call)(held, self._Y[:, self.slices[number]], left)
                for number in now
            ]
            yield from zip(now, dask.compute(*parts), strict=True)


class _OnRows:
    """A function of the checked values of a chunk, at some rows."""

    def __init__(self, function: Any, n: int, rows: NDArray[np.intp] | None) -> None:
        self._function, self._n, self._rows = function, n, rows

    def __call__(self, values: NDArray[Any], seconds: float | None) -> Any:
        with one_blas_thread, alone():
            values = check_values(values, self._n, large=True)
            taken = values if self._rows is None else values[self._rows]
            return self._function(taken, seconds)


def _call(task: _OnRows, values: NDArray[Any], left: Any) -> Any:
    return task(values, left() if callable(left) else left)


def _as_is(values: NDArray[Any], seconds: float | None) -> NDArray[Any]:
    return values


def _no_limit() -> None:
    return None


def _patience() -> float:
    """Return the time to wait for workers, as configured in Dask or by default."""
    import dask
    from dask.utils import parse_timedelta

    told = dask.config.get("distributed.scheduler.no-workers-timeout", None)
    return PATIENCE if told is None else float(parse_timedelta(told))


def _free(room: int) -> float:
    """Return the bytes that blocks may take: half the free memory of the workers."""
    client = _client()
    if client is None:
        return room
    free = 0.0
    for worker in client.scheduler_info(n_workers=-1)["workers"].values():
        if not worker["memory_limit"]:  # unknown: assume as much as on this machine
            return room
        used = worker.get("metrics", {}).get("memory", 0)
        free += max(0.0, 0.5 * (worker["memory_limit"] - used))
    return free


def _leaves() -> int:
    """Return the number of concurrent partial sums, a power of four."""
    cores = os.cpu_count() or 1
    try:
        from distributed import get_client

        cores = sum(get_client().nthreads().values())
    except (ImportError, ValueError):
        pass  # no cluster: the threads of this machine
    return max(16, int(FAN_IN ** math.ceil(math.log(max(1, LEAVES * cores), FAN_IN))))


def _joined(columns: list[Any], count: int) -> tuple[dict[Any, Any], list[Any]]:
    """Return one graph of samples, targets and weights, and their keys by partition.

    Arrays are optimised together, so that shared parts are computed once.
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
    """Return targets or weights partitioned like the samples."""
    if part is None:
        return [None] * count
    known = sizes is not None and not np.isnan(sizes).any()
    if is_dask(part):
        if known and hasattr(part, "chunks") and not np.isnan(part.shape[0]):
            if part.shape[0] != sum(sizes):
                raise ValueError(
                    f"X has {plural(sum(sizes), 'sample')} but {name} has "
                    f"{part.shape[0]}; they must have the same number."
                )
            part = part.rechunk({0: sizes} | ({1: -1} if part.ndim > 1 else {}))
        if part.npartitions != count:
            raise ValueError(
                f"X has {count} partitions but {name} has {part.npartitions}, and "
                "their sizes are not known; partition them alike, for instance by "
                "taking both from the same data frame."
            )
        return part
    if not known:
        raise ValueError(
            f"The sizes of X's partitions are not known, so {name} in memory cannot be "
            f"partitioned alike; pass {name} as a Dask collection, or call "
            "X.compute_chunk_sizes() on the array first."
        )
    values = np.asarray(part)
    if len(values) != sum(sizes):
        raise ValueError(
            f"X has {plural(sum(sizes), 'sample')} but {name} has {len(values)}; they "
            "must have the same number."
        )
    return np.split(values, np.cumsum(sizes)[:-1])


# --- tasks of workers -----------------------------------------------------------------


class _Partition(ArrayBlocks):
    """A partition in blocks, whose errors name the partition."""

    def __init__(self, parts: Any, width: int, rows: int, where: str) -> None:
        X, y, weight = parts
        self._where = where
        super().__init__(X, y, weight, rows=rows)
        if X.shape[1] != width:
            raise ValueError(
                f"{where} has {plural(X.shape[1], 'column')}, but its metadata says "
                f"{width}."
            )

    def __repr__(self) -> str:
        return self._where

    def _values(self, function: Callable[[Block], T]) -> Iterator[T]:
        # sequentially, since a cluster runs as many tasks as it has cores
        for make in self._makers():
            yield function(make())


class _Kept:
    """The blocks of a partition after some functions."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks


def _values(chain: Any, parts: Any, width: int, rows: int, where: str) -> Iterator[Any]:
    """Yield the values of a chain of functions on the blocks of a partition."""
    function = partial(_through, chain)
    if isinstance(parts, _Kept):
        return map(function, parts.blocks)
    if not parts[0].shape[0]:
        return iter(())
    return _Partition(parts, width, rows, where)._values(function)


def _each(chain: Any, *partition: Any) -> list[Any]:
    return list(_values(chain, *partition))


def _keep(chain: Any, *partition: Any) -> _Kept:
    return _Kept(_each(chain, *partition))


def _total(
    chain: Any, parts: Any, width: int, rows: int, where: str, before: Any = None
) -> Any:
    """Return the sum over a partition plus ``before``, None if both are empty."""
    total = None
    for value in _values(chain, parts, width, rows, where):
        total = value if total is None else total + value
    return _add([before, total])


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
    # one sample determines the type of the result, and validates the form of X
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
    """Return values as a data frame if columns have names; sparse ones as a view."""
    if columns is None:
        return values
    if sparse.issparse(values):  # a data frame would have a column for each entry
        return MultiView.from_table(values, columns)
    import pandas as pd

    return pd.DataFrame(values, columns=columns)
