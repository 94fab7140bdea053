"""Threads over blocks of rows, and limits on those of BLAS."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import chain, islice
from threading import Lock, local
from typing import Any

from threadpoolctl import ThreadpoolController

from mklearn.data.clock import check_time

_ALONE: ContextVar[bool] = ContextVar("one thread", default=False)


@contextmanager
def alone() -> Iterator[None]:
    """Use only the calling thread, because other tasks occupy the other cores."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def n_threads() -> int:
    """Return the number of threads to use (NUMBA_NUM_THREADS, lowered by joblib)."""
    if _ALONE.get():
        return 1
    import numba  # takes longer to import than all of this library

    settings: Any = numba.config
    return int(settings.NUMBA_NUM_THREADS)


class _OneBlasThread(ContextDecorator):
    """A context, and a decorator of functions, in which BLAS uses one thread.

    BLAS splits sums according to the number of its threads. With one BLAS thread, and
    our threads on blocks that depend only on the sizes of the arrays, results have the
    same bits for any number of threads. BLAS threads also busy-wait for their next
    call, in competition with ours and with those of a second copy of BLAS (numpy and
    scipy have one each): small products and factorisations are twice as fast with a
    single BLAS thread.

    The number is a property of the process: the first thread to enter sets it and the
    last one to leave restores it, in whatever order threads enter and leave.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: Any = None
        self._mine = local()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self._mine.inside = self._own() + 1
            if self._inside == 1:
                _take_control()
                self._limit = _controller().limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            self._mine.inside = self._own() - 1
            if self._inside == 0:
                self._restore()

    def _restore(self) -> None:
        _take_control()
        self._limit.restore_original_limits()

    def _own(self) -> int:
        return int(getattr(self._mine, "inside", 0))

    def after_fork(self) -> None:
        """Forget the threads that a forked process does not have."""
        self._lock, others = Lock(), self._inside > self._own()
        self._inside = self._own()
        if others and self._inside == 0:
            self._restore()


one_blas_thread = _OneBlasThread()


class _Pool:
    """The threads of this process, started when needed and kept.

    They sleep while there is no work. A forked process starts its own.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the threads that a forked process does not have."""
        self._lock = Lock()
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        with self._lock:
            if self._threads is None:
                most = max(n_threads(), os.cpu_count() or 1)
                self._threads = ThreadPoolExecutor(most, "mklearn")
            return self._threads.submit(function, *args)


_pool = _Pool()
_WORTH = 1e-3  # seconds of work that are worth waking a thread for

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.after_fork)
    os.register_at_fork(after_in_child=one_blas_thread.after_fork)


def run_blocks(function: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
    """Call ``function`` on each block, on all threads, and return the results.

    The first block is processed in the calling thread, and the time it takes determines
    how many threads to use for the others. The caller processes blocks as well, so that
    nested calls, and calls from several threads, never wait for each other.
    """
    helpers = min(n_threads(), len(blocks)) - 1
    with one_blas_thread:
        if helpers < 1:
            return [function(block) for block in _in_time(blocks)]
        out: list[Any] = [None] * len(blocks)
        numbers = iter(range(1, len(blocks)))  # next() is atomic

        def work() -> None:
            for i in _in_time(numbers):
                out[i] = function(blocks[i])

        began = time.thread_time()
        out[0] = function(blocks[0])
        rest = (time.thread_time() - began) * (len(blocks) - 1)
        busy = [_pool.submit(work) for _ in range(min(helpers, int(rest / _WORTH)))]
        try:
            work()
        finally:
            for _ in numbers:  # after an error, skip the remaining blocks
                pass
            late = [helper for helper in busy if not helper.cancel()]
            wait(late)
        for helper in late:
            helper.result()
        return out


def _in_time(items: Iterable[Any]) -> Iterator[Any]:
    """Yield all items; raise OutOfTimeError if time is over after the first one."""
    for number, item in enumerate(items):
        if number:
            check_time()
        yield item


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
            if len(first) < 2:  # threads would take longer to wake
                workers = 1
        if workers == 1:
            yield from map(function, _in_time(items))
            return
        waiting: deque[tuple[Future[Any], Any]] = deque()

        def oldest() -> Any:
            future, item = waiting.popleft()
            # do it here if no thread has started it, so that threads never deadlock
            return function(item) if future.cancel() else future.result()

        try:
            for item in _in_time(items):
                waiting.append((_pool.submit(function, item), item))
                if len(waiting) > workers:
                    yield oldest()
            while waiting:
                yield oldest()
        finally:
            wait([future for future, _ in waiting if not future.cancel()])


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finds the loaded libraries, which takes 4 ms


def _take_control() -> None:
    """Make this thread the one that controls the settings of BLAS.

    Since version 3.8, threadpoolctl lets only the first thread that set a number change
    it, and silently ignores all other threads. Our number is that of the process, and
    the last thread to leave need not be the first that entered.
    """
    for library in _controller().lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
