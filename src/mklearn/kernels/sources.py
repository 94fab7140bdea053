"""Sources of kernel values: what the bank requires of them.

A *source* holds some kernels over a fixed set of rows and columns and computes blocks
of them; the bank divides the work into blocks, runs them on threads and sums the
results. Sources never return more than a block. Those of given Gram matrices are in
``gram_source.py``, those of kernels that are computed from samples in
``computed_source.py``, and those of explicit features in ``feature_source.py``; all of
them are private to this package.
"""

# ruff: noqa: D102 - the methods of the sources are documented by the protocol Source

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mklearn.kernels.memory import Index, Storable, Storage
from mklearn.kernels.specs import Kernel

FloatArray = NDArray[np.float64]
# columns of a block: any of them, or a range given as slice(start, stop)
Columns = Index | slice


class Request(NamedTuple):
    """A request to a source: some kernels on a block of rows and columns.

    ``which`` are indices of kernels, ``rows`` and ``cols`` of samples. ``u``
    (len(which), n_rows) and ``v`` (len(which), n_cols) scale the Grams from both sides;
    None, for both, means ones.
    """

    which: Index
    rows: Index
    cols: Columns
    u: FloatArray | None = None
    v: FloatArray | None = None


class Seen(NamedTuple):
    """Statistics of square kernels, from one pass over their values in memory.

    Attributes
    ----------
    means : array of shape (k, n)
        ``K_k w`` for the weights that were given.
    squares : array of shape (k,)
        The sum of all squared entries, which is not finite if an entry is not.
    unlike : array of shape (k,)
        Not zero if some ``K_ij`` and ``K_ji`` differ by more than is allowed. It is one
        if all pairs were compared, or else the number of samples for which ``K g`` and
        ``K'g`` differ by more than a thousandth of it, where the entries of g are
        random, with absolute values between 1 and 2. A single difference is always
        found; several are missed only if they cancel, with a probability below a
        thousandth for each of two rows.
    beyond : array of shape (k,)
        Not zero if some ``K_ij^2`` is above what the two diagonal entries allow.
    """

    means: FloatArray
    squares: FloatArray
    unlike: FloatArray
    beyond: FloatArray


class Limits(NamedTuple):
    """Limits on the entries of square kernels.

    Attributes
    ----------
    unlike : array of shape (k,)
        How much ``K_ij`` and ``K_ji`` may differ.
    reach : array of shape (n, k)
        One over what a diagonal entry allows: a pair i, j exceeds the limit if
        ``K_ij^2 reach_i reach_j > 1``.
    """

    unlike: FloatArray
    reach: FloatArray


class Known(NamedTuple):
    """Kernels, and the samples (minus ``shift``) that new ones are compared with."""

    kernels: tuple[Kernel, ...]
    samples: Any
    shift: FloatArray | None = None


class Source(Storable, Protocol):
    """Some kernels on the same rows and columns."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of rows, columns and kernels."""

    @property
    def storage(self) -> str:
        """How the values are kept."""

    @property
    def eps(self) -> float:
        """Relative rounding error of the values."""

    @property
    def slip(self) -> float:
        """Relative difference of a value between two requests."""

    @property
    def square(self) -> bool:
        """Whether rows and columns are the same samples."""

    def combine(
        self, asked: Request, weights: FloatArray, out: FloatArray, tabulate: bool
    ) -> None:
        """Add ``sum_k weights[k] u[k] K_k v[k]`` on a block to ``out``.

        ``tabulate`` says that enough values of this sum are asked for to be worth a
        table of it.
        """

    def multiply(self, asked: Request, At: FloatArray) -> FloatArray:
        """Return ``K_k v[k] A`` as (len(which), n_rows, T); ``At`` is (T, n_cols).

        The factors ``u`` are left to the caller.
        """

    def multiply_half(
        self, which: Index, at: Index, rows: slice, At: FloatArray
    ) -> FloatArray | None:
        """Return ``K_k A`` from a part of one triangle, for square, symmetric kernels.

        ``at`` are increasing sample numbers, and ``At`` (T, len(at)) their targets. The
        entries read are those between the samples ``at[rows]`` and all from
        themselves on; each counts for its row and for its column. The answer is for the
        samples ``at[rows.start:]``, (len(at) - rows.start, T, len(which)). None if this
        is not faster than ``multiply``.
        """

    def quad(
        self, asked: Request, left: FloatArray, At: FloatArray, each: bool, count: int
    ) -> FloatArray | None:
        """Return ``left[:, t]' K_k At[t]``, for ``each`` t or summed in one row.

        Asked without factors only, for one of the blocks that have ``count`` values
        together. What it returns is added up over these, and :meth:`settle` makes
        quadratic forms of the sum. None if ``multiply`` does as well.
        """

    def settle(self, which: Index, sums: FloatArray) -> FloatArray:
        """Return the quadratic forms of kernels, (T or 1, len(which)), from sums."""

    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        """Return ``k(x, x)`` of row samples."""

    def diags(self, which: Index, rows: Index | slice) -> FloatArray:
        """Return :meth:`diag` of several kernels, (n_rows, len(which))."""

    def survey(
        self, which: Index, at: Index | None, weight: FloatArray, limits: Limits
    ) -> Seen | None:
        """Return statistics of square kernels on the samples ``at``, from one pass.

        None if values are not at hand as arrays.
        """

    def each(self, asked: Request) -> FloatArray | None:
        """Return the kernels on a block, (len(which), n_rows, n_cols), in one go.

        None if this is not faster than computing them one by one.
        """

    def rough(self) -> Source:
        """Return the source with values in single precision where that is faster."""

    def raw(self) -> Source:
        """Return the source without stored values, or raise where they are given."""

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        """Return the source on these only, None if it is better indexed."""

    def cross(self, X: Any) -> Source:
        """Return the source between new samples and the columns."""

    def copied_bytes(self, count: int) -> int:
        """Return the size of a copy of so many kernels, 0 if it would be no faster."""

    def gathered(self, which: Index, single: bool) -> Source | None:
        """Return the source of copies of some kernels, None if it is no faster.

        ``single`` asks for copies in single precision.
        """

    def travelling(self) -> Source:
        """Return the source that takes stored values along when it is pickled."""

    def known(self) -> Known:
        """Return what new samples are compared with, or raise where it is not known."""

    def store(self, storage: Storage, limit: int | None) -> Source:
        """Return the source with its values kept as ``storage`` says."""


class GivenSource(ABC):
    """Defaults for most sources: nothing to store, no short cuts."""

    @property
    def storage(self) -> str:
        return "given"

    @property
    def eps(self) -> float:
        return float(np.finfo(np.float64).eps)

    @property
    def slip(self) -> float:
        return 0.0

    def multiply_half(
        self, which: Index, at: Index, rows: slice, At: FloatArray
    ) -> FloatArray | None:
        return None

    def quad(
        self, asked: Request, left: FloatArray, At: FloatArray, each: bool, count: int
    ) -> FloatArray | None:
        return None

    def settle(self, which: Index, sums: FloatArray) -> FloatArray:
        return sums

    def survey(
        self, which: Index, at: Index | None, weight: FloatArray, limits: Limits
    ) -> Seen | None:
        return None

    def each(self, asked: Request) -> FloatArray | None:
        return None

    def rough(self) -> Any:
        return self

    @abstractmethod
    def diag(self, k: int, rows: Index | slice) -> FloatArray:
        """Return ``k(x, x)`` of row samples."""

    def diags(self, which: Index, rows: Index | slice) -> FloatArray:
        return np.stack([self.diag(int(k), rows) for k in which], axis=1)

    @abstractmethod
    def raw(self) -> Source:
        """Return the source that can compute new values, or raise ValueError."""

    def restrict(
        self, which: Index, rows: Index | None, cols: Index | None
    ) -> Source | None:
        return None

    def cross(self, X: Any) -> Source:
        return self.raw().cross(X)

    def known(self) -> Known:
        return self.raw().known()

    def copied_bytes(self, count: int) -> int:
        return 0

    def gathered(self, which: Index, single: bool) -> Source | None:
        return None

    def travelling(self) -> Any:
        return self

    def stored_bytes(
        self, n_kernels: int, n_rows: int, n_cols: int, itemsize: int
    ) -> int:
        return 0

    def held_bytes(self) -> int:
        return 0  # they are the user's

    def slow(self) -> bool:
        return False

    def store(self, storage: Storage, limit: int | None) -> Any:
        return self


def scale(K: FloatArray, u: FloatArray | None, v: FloatArray | None) -> FloatArray:
    """Multiply ``K`` in place by ``u`` from the left and ``v`` from the right."""
    if u is not None:
        K *= u[:, None]
    if v is not None:
        K *= v
    return K


def same(a: Index | None, b: Index | None) -> bool:
    """Tell whether two choices of samples, None for all, are equal."""
    if a is b or a is None or b is None:
        return a is b
    return bool(np.array_equal(a, b))


def pick(kernels: tuple[Any, ...], which: Index) -> tuple[Any, ...]:
    """Return some of the kernels, by number."""
    return tuple(kernels[k] for k in which)
