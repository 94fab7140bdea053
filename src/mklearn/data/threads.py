"""Threads: ours over blocks of rows, and those of BLAS, which must not meet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ContextDecorator
from functools import cache
from itertools import chain, islice
from threading import Lock
from typing import Any

import numba
from threadpoolctl import ThreadpoolController


def n_threads() -> int:
    """Return how many threads to use (NUMBA_NUM_THREADS, which joblib lowers)."""
    settings: Any = numba.config
    return int(settings.NUMBA_NUM_THREADS)


class _OneBlasThread(ContextDecorator):
    """A context, and a decorator of functions, in which BLAS uses one thread.

    BLAS cuts sums by the number of its threads. With one, and ours on blocks that the
    sizes of the arrays give, an answer has the same bits on any number of threads.
    Threads of BLAS wait busily for their next call, too, beside ours and beside those
    of a second copy of BLAS (numpy and scipy have one each): small products and factors
    are twice as fast with one.

    The number belongs to the process: the first to come sets it and the last to go
    gives it back, whichever thread they are in.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._limit = _controller().limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


one_blas_thread = _OneBlasThread()


def run_blocks(function: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
    """Call ``function`` on each block, on all threads, and return the results."""
    workers = min(n_threads(), len(blocks))
    with one_blas_thread:
        if workers <= 1:
            return [function(block) for block in blocks]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(function, blocks))


def in_order(
    function: Callable[[Any], Any], items: Iterable[Any], workers: int | None = None
) -> Iterator[Any]:
    """Yield ``function`` of each item in order; threads are a few items ahead."""
    workers = n_threads() if workers is None else workers
    with one_blas_thread:
        if workers > 1:
            items = iter(items)
            first = list(islice(items, 2))
            items = chain(first, items)
            if len(first) < 2:  # threads would take longer to start
                workers = 1
        if workers == 1:
            yield from map(function, items)
            return
        waiting: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(workers) as pool:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finds the loaded libraries, which takes 4 ms
