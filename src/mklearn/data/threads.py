"""Threads: ours over blocks of rows, and those of BLAS, which must not meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numba
from threadpoolctl import ThreadpoolController


def n_threads() -> int:
    """Return how many threads to use (NUMBA_NUM_THREADS, which joblib lowers)."""
    settings: Any = numba.config
    return int(settings.NUMBA_NUM_THREADS)


def blas_threads(count: int) -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses ``count`` threads.

    Threads of BLAS wait busily for their next call, beside ours and beside those of a
    second copy of BLAS (numpy and scipy have one each): small products and factors are
    twice as fast with one thread.
    """
    return _controller().limit(limits=count, user_api="blas")


def factor_threads(n: int) -> AbstractContextManager[Any]:
    """Return a context with the threads of BLAS that suit a factor of size ``n``."""
    return blas_threads(n_threads() if n >= 1000 else 1)


def run_blocks(function: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
    """Call ``function`` on each block, on all threads, and return the results."""
    workers = min(n_threads(), len(blocks))
    if workers <= 1:
        return [function(block) for block in blocks]
    with blas_threads(1), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, blocks))


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finds the loaded libraries, which takes 4 ms
