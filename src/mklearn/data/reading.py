"""Reading of samples in blocks, and methods of models that accept them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mklearn.data.blocks import Block, Blocks
from mklearn.data.dask import DaskBlocks, is_dask, lazily, with_names
from mklearn.data.files import GeneratorBlocks

T = TypeVar("T")


def as_blocks(X: Any, y: Any = None, sample_weight: Any = None) -> Blocks | None:
    """Return the samples as blocks, or None if they do not come in blocks.

    Objects with ``map``, ``reduce`` and ``then`` are used as they are, functions and
    generators are wrapped in :class:`GeneratorBlocks`, and Dask collections are read by
    partition. Tables, arrays and views are not blocks: an estimator that wants to read
    them in blocks wraps them in :class:`ArrayBlocks`.
    """
    if not comes_in_blocks(X):
        return None
    if is_dask(X):
        return DaskBlocks(X, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError(
            "Blocks contain their targets and weights, so y and sample_weight must be "
            "None; let each block be (X, y) or (X, y, weight)."
        )
    if isinstance(X, Blocks):
        return X
    return _Foreign(X) if hasattr(X, "reduce") else GeneratorBlocks(X)


def comes_in_blocks(X: Any) -> bool:
    """Return whether :func:`as_blocks` can read the samples."""
    if is_dask(X) or isinstance(X, Blocks):
        return True
    if hasattr(X, "shape") or isinstance(X, type):
        return False
    return (
        isinstance(X, Iterator)
        or callable(X)
        or (hasattr(X, "reduce") and hasattr(X, "map"))
    )


class _Foreign(Blocks):
    """An object of another class that has the interface of a source."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.one_pass = bool(getattr(source, "one_pass", False))

    @property
    def names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """Names of the columns, if there are any."""
        return getattr(self.source, "names", None)

    def __repr__(self) -> str:
        return repr(self.source)

    def map(self, function: Callable[[Block], T]) -> list[T]:
        """Return the function's value for each block."""
        return list(self.source.map(function))

    def reduce(self, function: Callable[[Block], T]) -> T:
        """Return the sum of the function's values."""
        total: T = self.source.reduce(function)
        return total

    def then(self, function: Callable[[Block], Block]) -> Blocks:
        """Return the blocks after the function."""
        return _Foreign(self.source.then(function))


def by_blocks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of a fitted model accept samples in blocks.

    For a Dask collection the result is lazy: the method is called on each partition
    when the result is computed. Other blocks are read one by one, and the result is an
    array. Any other input is passed on to the method unchanged.
    """

    @wraps(method)
    def either(self: Any, X: Any) -> Any:
        if is_dask(X):
            return lazily(self, method.__name__, X)
        blocks = as_blocks(X)
        if blocks is None:
            return method(self, X)
        return _in_turn(self, method.__name__, blocks)

    return either


def _in_turn(model: Any, name: str, blocks: Blocks) -> NDArray[Any]:
    """Return the values of a model's method on the rows of all blocks.

    Blocks are processed one after the other, since models use threads themselves.
    """
    method = getattr(model, name)
    parts = [np.asarray(method(with_names(block.X, blocks.names))) for block in blocks]
    if not parts:
        raise ValueError(f"{blocks!r} contains no samples.")
    return np.concatenate(parts)
