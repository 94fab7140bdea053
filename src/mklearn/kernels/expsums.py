"""Tabulated sums of exponentials, as a function of the base.

Kernels of the exponential family with the same base B (for example all widths of an RBF
ladder) are functions of the same numbers, so that their sum

    f(b) = sum_m theta[m] * map_m(b)

is a function of one variable, whatever the number of kernels. It is stored as
polynomials of degree five on intervals that are found from the leading bits of b: each
octave has 64 of them, from where f is almost constant to where it vanishes. The error
is below 1e-14 of ``sum_m |theta[m]|``, like that of the exponentials themselves, and a
value costs one look-up instead of M exponentials.

The transpose is used for quadratic forms: the pairs of samples are accumulated by
interval, with the powers of their position in it, and each kernel is evaluated only at
the nodes.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mklearn.data.compiling import njit
from mklearn.kernels.functions import exponential_combine, exponential_multiply

FloatArray = NDArray[np.float64]

_BITS = 6  # 2**6 intervals in each octave
_SHIFT = 52 - _BITS
_DEGREE = 5
_PER_OCTAVE = 2**_BITS
_FEWEST = 4  # number of kernels from which a look-up is faster than exponentials
_MOST_OCTAVES = 80


class Grid:
    """Intervals on which all of the given maps are nearly polynomials.

    Parameters
    ----------
    maps : array of shape (M, 4)
        Maps of the exponential family, all of them with a root, or none.
    """

    def __init__(self, maps: FloatArray) -> None:
        self.maps = maps
        self.root = bool(maps[0, 1])
        steepest, flattest = maps[:, 0].max(), maps[:, 0].min()
        low = int(np.floor(np.log2(2.0**-10 / steepest)))
        high = int(np.ceil(np.log2(800.0 / flattest)))
        octaves = 2.0 ** np.arange(low, high)
        inner = octaves[:, None] * (1.0 + np.arange(_PER_OCTAVE) / _PER_OCTAVE)
        width = np.repeat(octaves / _PER_OCTAVE, _PER_OCTAVE)
        # below the first octave f is smooth, beyond the last it is zero
        start = np.concatenate([[0.0], inner.ravel(), [2.0**high]])
        width = np.concatenate([[2.0**low], width, [2.0**high]])
        self.middle, self.half = start + width / 2, width / 2
        self.scale = 1.0 / self.half
        self.first = int(np.float64(2.0**low).view(np.int64) >> _SHIFT) - 1

    @staticmethod
    def suits(maps: FloatArray) -> bool:
        """Return whether these maps have a grid, and it is faster."""
        if len(maps) < _FEWEST or not (maps[:, 0] > 0).all():
            return False
        same = (maps[:, 1] != 0).all() or (maps[:, 1] == 0).all()
        span = np.log2(maps[:, 0].max() / maps[:, 0].min())
        return bool(same and span + 20 < _MOST_OCTAVES)

    @cached_property
    def nodes(self) -> FloatArray:
        """Values of the base at the nodes, one row for each interval."""
        at = self.middle[:, None] + self.half[:, None] * _NODES
        return np.asarray(at**2 if self.root else at)

    def coefficients(self, weights: FloatArray) -> FloatArray:
        """Return the polynomials of ``sum_m weights[m] * map_m``, one in each row."""
        nodes = self.nodes
        values = np.zeros((1, nodes.size))
        exponential_combine(nodes.reshape(1, -1), self.maps, weights, values)
        out = values.reshape(nodes.shape) @ _FROM_VALUES.T
        out[-1] = 0.0
        return np.ascontiguousarray(out)

    def add(self, table: FloatArray, B: NDArray[Any], out: NDArray[Any]) -> None:
        """Add the tabulated function of ``B`` to ``out``."""
        _look_up(B, self.root, self.first, self.middle, self.scale, table, out)

    def quads(self, B: NDArray[Any], left: FloatArray, right: FloatArray) -> FloatArray:
        """Return ``sum_t left[:, t]' map_m(B) right[:, t]`` for all m, shape (M,)."""
        return self.of_moments(self.moments(B, left, right))

    def moments(
        self, B: NDArray[Any], left: FloatArray, right: FloatArray
    ) -> FloatArray:
        """Return moments of the pairs of samples by interval, independent of the maps.

        They can be added over blocks, so that the maps are evaluated only once.
        """
        moments = np.zeros((len(self.middle), _DEGREE + 1))
        pairs = left @ right.T
        _collect(B, pairs, self.root, self.first, self.middle, self.scale, moments)
        moments[-1] = 0.0
        return moments

    def of_moments(self, moments: FloatArray) -> FloatArray:
        """Return the quadratic forms of all maps, shape (M,)."""
        at_nodes = (moments @ _FROM_VALUES).reshape(1, -1)
        out = np.zeros((len(self.maps), 1, 1))
        exponential_multiply(self.nodes.reshape(1, -1), self.maps, at_nodes, out)
        return out[:, 0, 0]


# Chebyshev nodes on [-1, 1], and the map from values there to power coefficients
_NODES = np.cos((2 * np.arange(_DEGREE + 1) + 1) * np.pi / (2 * _DEGREE + 2))
_FROM_VALUES = np.linalg.inv(np.vander(_NODES, increasing=True))


class Tables:
    """Cache of the last grids and tables, shared by threads and parts of a bank.

    Whether a sum is computed from a table depends only on the sum, not on the contents
    of the cache.
    """

    def __init__(self, size: int = 4) -> None:
        self.size = size
        self._lock = Lock()
        self._grids: OrderedDict[bytes, Grid | None] = OrderedDict()
        self._tables: OrderedDict[tuple[bytes, bytes], FloatArray] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tables, (self.size,)

    def grid(self, maps: FloatArray) -> Grid | None:
        """Return the grid of these maps, None if a grid would not be faster."""
        key = maps.tobytes()
        with self._lock:
            if key not in self._grids:
                self._grids[key] = Grid(maps) if Grid.suits(maps) else None
                self._trim(self._grids)
            self._grids.move_to_end(key)
            return self._grids[key]

    def table(
        self, maps: FloatArray, weights: FloatArray
    ) -> tuple[Grid, FloatArray] | None:
        """Return grid and table of a sum, None if a grid would not be faster."""
        grid = self.grid(maps)
        if grid is None:
            return None
        key = maps.tobytes(), weights.tobytes()
        with self._lock:
            if key not in self._tables:
                self._tables[key] = grid.coefficients(weights)
                self._trim(self._tables)
            self._tables.move_to_end(key)
            return grid, self._tables[key]

    def _trim(self, kept: OrderedDict[Any, Any]) -> None:
        while len(kept) > self.size:
            kept.popitem(last=False)


@njit(cache=True, nogil=True)
def _interval(b, first, last):  # type: ignore[no-untyped-def]
    k = (np.float64(b).view(np.int64) >> _SHIFT) - first
    return min(max(k, 0), last)


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp"})
def _look_up(B, root, first, middle, scale, table, out):  # type: ignore[no-untyped-def]
    last = middle.size - 1
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            b = np.float64(B[i, j])
            if root:
                b = np.sqrt(b)
            k = _interval(b, first, last)
            u, c = (b - middle[k]) * scale[k], table[k]
            p = c[5] * u + c[4]
            p = p * u + c[3]
            p = p * u + c[2]
            p = p * u + c[1]
            out[i, j] += p * u + c[0]


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp"})
def _collect(B, pairs, root, first, middle, scale, moments):  # type: ignore[no-untyped-def]
    last = middle.size - 1
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            b, w = np.float64(B[i, j]), pairs[i, j]
            if root:
                b = np.sqrt(b)
            k = _interval(b, first, last)
            u, m = (b - middle[k]) * scale[k], moments[k]
            m[0] += w
            w *= u
            m[1] += w
            w *= u
            m[2] += w
            w *= u
            m[3] += w
            w *= u
            m[4] += w
            m[5] += w * u
