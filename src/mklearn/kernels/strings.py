"""String kernels: the spectrum kernel and the weighted degree kernel.

All functions take one-dimensional collections of Python strings (list, tuple,
NumPy array of strings or objects, pandas Series). Letters are compared as
they are: upper and lower case are *different* letters, so convert the strings
beforehand (``str.upper``) where the case carries no meaning, as for
soft-masked DNA.

Two kernels are offered:

* the spectrum kernel, for strings of any lengths, compares how often each
  substring of length k (*k-mer*) occurs, wherever it occurs;
* the weighted degree kernel, for strings of one common length, compares
  substrings at equal, or with shifts nearly equal, positions.

An ``alphabet`` given explicitly declares all other letters *unknown* (for
example ``"ACGT"`` makes the ambiguity code ``N`` unknown): a k-mer containing
an unknown letter is not counted and an unknown letter matches nothing, not
even itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = [
    "UNKNOWN",
    "encode",
    "encode_matrix",
    "spectrum_diag",
    "spectrum_features",
    "spectrum_gram",
    "spectrum_vocabulary",
    "weighted_degree_block",
    "weighted_degree_diag",
    "weighted_degree_gram",
    "weighted_degree_weights",
]

#: Code of a letter outside of the alphabet.
UNKNOWN = 255

# Largest number of letters; leaves codes free for `UNKNOWN` and for `_NEVER`.
_MAX_LETTERS = 250

# Takes the place of `UNKNOWN` on one side of a comparison, so that an unknown
# letter differs from every letter, also from another unknown one.
_NEVER = 254

# Letters translated at a time by `encode`.
_ENCODE_LETTERS = 1 << 20

# (string, k-mer) entries handled at a time by `spectrum_gram`.
_CHUNK_ENTRIES = 1 << 22

# Elements of a dense temporary block.
_BLOCK_ELEMENTS = 1 << 22

# A k-mer shared by at least this share of all pairs of strings is handled by
# a dense matrix product instead of by updating the pairs one by one.
_DENSE_SHARE = 1 / 32

# Rows of a weighted degree Gram matrix computed at a time.
_ROWS = 64


# ---------------------------------------------------------------------------
# Encoding
# ---------------------------------------------------------------------------


def _as_list(strings: Iterable[str], name: str = "strings") -> list[str]:
    """Return `strings` as a list after checking that it holds strings only."""
    if isinstance(strings, (str, bytes)):
        raise TypeError(
            f"{name} must be a collection of strings, got a single "
            f"{type(strings).__name__}; wrap it in a list."
        )
    if getattr(strings, "ndim", 1) != 1:
        shape = getattr(strings, "shape", None)
        raise ValueError(
            f"{name} must be a one-dimensional collection of strings, "
            f"got an array of shape {shape}."
        )
    values = list(strings)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise TypeError(
                f"{name}[{index}] must be a string, got {value!r} of type "
                f"{type(value).__name__}."
            )
    return values


def _check_positive(value: int, name: str, minimum: int = 1) -> int:
    """Return `value` as an int after checking that it is one, and its size."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
        raise TypeError(
            f"{name} must be an integer, got {value!r} of type {type(value).__name__}."
        )
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}.")
    return int(value)


def _code_points(strings: list[str]) -> Iterator[NDArray[Any]]:
    """Yield the code points of the concatenated strings, piece by piece."""
    start = 0
    while start < len(strings):
        stop = start
        letters = 0
        while stop < len(strings) and letters < _ENCODE_LETTERS:
            letters += len(strings[stop])
            stop += 1
        joined = "".join(strings[start:stop])
        yield np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
        start = stop


def _find_alphabet(strings: list[str]) -> str:
    """Return the sorted set of letters of all strings."""
    seen = np.zeros(0x110000, dtype=bool)
    for points in _code_points(strings):
        seen[points] = True
    letters = np.flatnonzero(seen)
    if letters.size > _MAX_LETTERS:
        raise ValueError(
            f"The strings contain {letters.size} different characters, at most "
            f"{_MAX_LETTERS} are supported; pass the relevant ones as alphabet, "
            f"all others are then treated as unknown."
        )
    return "".join(map(chr, letters.tolist()))


def _check_alphabet(alphabet: str) -> str:
    """Return `alphabet` after checking it."""
    if not isinstance(alphabet, str):
        raise TypeError(
            f"alphabet must be a string or None, got {alphabet!r} of type "
            f"{type(alphabet).__name__}."
        )
    if not 1 <= len(alphabet) <= _MAX_LETTERS:
        raise ValueError(
            f"alphabet must have between 1 and {_MAX_LETTERS} letters, "
            f"got {len(alphabet)}."
        )
    if len(set(alphabet)) < len(alphabet):
        repeated = sorted({c for c in alphabet if alphabet.count(c) > 1})
        raise ValueError(f"alphabet contains repeated letters: {repeated}.")
    return alphabet


def _encode_list(
    strings: list[str], alphabet: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Encode checked strings in a checked alphabet."""
    table = np.full(0x110000, UNKNOWN, dtype=np.uint8)
    for code, letter in enumerate(alphabet):
        table[ord(letter)] = code
    offsets = np.zeros(len(strings) + 1, dtype=np.int64)
    np.cumsum([len(s) for s in strings], out=offsets[1:])
    codes = np.empty(offsets[-1], dtype=np.uint8)
    start = 0
    for points in _code_points(strings):
        codes[start : start + points.size] = table[points]
        start += points.size
    return codes, offsets


def encode(
    strings: Iterable[str], alphabet: str | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64], str]:
    """Translate strings to small integers, one per letter.

    Parameters
    ----------
    strings : collection of str, length n
        List, tuple, NumPy array or pandas Series of strings. Case is kept:
        ``"a"`` and ``"A"`` are different letters.
    alphabet : str, optional
        The known letters, at most 250, each once. Letters outside of it get
        the code 255 (`UNKNOWN`). By default the sorted set of all letters
        that occur.

    Returns
    -------
    codes : ndarray of uint8, shape (total number of letters,)
        Index in `alphabet` of each letter of the concatenated strings.
    offsets : ndarray of int64, shape (n + 1,)
        String i occupies ``codes[offsets[i]:offsets[i + 1]]``.
    alphabet : str
        The alphabet used.

    Raises
    ------
    TypeError
        If an element is not a string.
    ValueError
        If the alphabet is invalid, or if it is None and the strings contain
        more than 250 different characters.

    Examples
    --------
    >>> codes, offsets, alphabet = encode(["GAT", "", "CN"], alphabet="ACGT")
    >>> codes.tolist(), offsets.tolist(), alphabet
    ([2, 0, 3, 1, 255], [0, 3, 3, 5], 'ACGT')
    """
    values = _as_list(strings)
    if alphabet is None:
        alphabet = _find_alphabet(values)
    else:
        alphabet = _check_alphabet(alphabet)
    codes, offsets = _encode_list(values, alphabet)
    return codes, offsets, alphabet


def _as_pair(
    strings_a: Iterable[str],
    strings_b: Iterable[str] | None,
    alphabet: str | None,
) -> tuple[list[str], list[str], str]:
    """Check two collections and find their common alphabet.

    Both lists are one object if `strings_b` is None or is `strings_a`.
    """
    list_a = _as_list(strings_a, "strings_a")
    if strings_b is None or strings_b is strings_a:
        list_b = list_a
    else:
        list_b = _as_list(strings_b, "strings_b")
    if alphabet is not None:
        alphabet = _check_alphabet(alphabet)
    elif list_b is list_a:
        alphabet = _find_alphabet(list_a)
    else:
        alphabet = _find_alphabet(list_a + list_b)
    return list_a, list_b, alphabet


def _mirror(gram: NDArray[np.float64]) -> None:
    """Copy the upper triangle of a square matrix to its lower triangle."""
    n = gram.shape[0]
    for start in range(0, n, 256):
        stop = min(start + 256, n)
        corner = gram[start:stop, start:stop]
        corner[...] = np.triu(corner) + np.triu(corner, 1).T
        gram[stop:, start:stop] = gram[start:stop, stop:].T


# ---------------------------------------------------------------------------
# Spectrum kernel
# ---------------------------------------------------------------------------


class _Counts(NamedTuple):
    """Counts of the k-mers of one length, row by row, sorted within rows."""

    indptr: NDArray[np.int64]
    kmers: NDArray[np.int64]
    counts: NDArray[np.int32]


@njit(cache=True, nogil=True)
def _list_kmers(
    codes: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    length: int,
    base: int,
    lead: int,
    kmers: NDArray[np.int64],
    indptr: NDArray[np.int64],
) -> None:
    """Write the codes of all known k-mers of each string one after another.

    `lead` is ``base ** (length - 1)``, the place value of the first letter.
    """
    position = 0
    indptr[0] = 0
    for i in range(offsets.shape[0] - 1):
        code = np.int64(0)
        known = 0
        for p in range(offsets[i], offsets[i + 1]):
            letter = np.int64(codes[p])
            if letter == UNKNOWN:
                code = np.int64(0)
                known = 0
                continue
            if known >= length:
                code -= np.int64(codes[p - length]) * lead
            code = code * base + letter
            known += 1
            if known >= length:
                kmers[position] = code
                position += 1
        indptr[i + 1] = position


@njit(cache=True, nogil=True)
def _merge_repeats(
    kmers: NDArray[np.int64],
    indptr: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """Replace repeated k-mers of each sorted row by one and count them.

    Works in place: the distinct k-mers are moved to the front of `kmers`.
    """
    position = -1
    start = indptr[0]
    for i in range(indptr.shape[0] - 1):
        stop = indptr[i + 1]
        for p in range(start, stop):
            if p > start and kmers[p] == kmers[position]:
                counts[position] += 1
            else:
                position += 1
                kmers[position] = kmers[p]
                counts[position] = 1
        start = stop
        indptr[i + 1] = position + 1


@njit(cache=True, nogil=True)
def _sum_squares(
    indptr: NDArray[np.int64],
    counts: NDArray[np.int32],
    out: NDArray[np.float64],
) -> None:
    """Add the sum of squared counts of each row to `out`."""
    for i in range(out.shape[0]):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(counts[p]) * np.float64(counts[p])
        out[i] += total


@njit(cache=True, nogil=True)
def _find_stops(
    kmers: NDArray[np.int64],
    indptr: NDArray[np.int64],
    starts: NDArray[np.int64],
    bound: int,
    stops: NDArray[np.int64],
) -> None:
    """Find where in each row the first k-mer that is at least `bound` stands."""
    for i in range(starts.shape[0]):
        low = starts[i]
        high = indptr[i + 1]
        while low < high:
            middle = (low + high) // 2
            if kmers[middle] < bound:
                low = middle + 1
            else:
                high = middle
        stops[i] = low


@njit(cache=True, nogil=True)
def _take_slices(
    kmers: NDArray[np.int64],
    counts: NDArray[np.int32],
    starts: NDArray[np.int64],
    indptr: NDArray[np.int64],
    out_kmers: NDArray[np.int64],
    out_counts: NDArray[np.float64],
) -> None:
    """Copy one slice of each row, `indptr` describes the rows of the copy."""
    for i in range(starts.shape[0]):
        shift = starts[i] - indptr[i]
        for p in range(indptr[i], indptr[i + 1]):
            out_kmers[p] = kmers[p + shift]
            out_counts[p] = counts[p + shift]


@njit(cache=True, nogil=True)
def _fill_dense(
    indptr: NDArray[np.int64],
    columns: NDArray[np.int64],
    counts: NDArray[np.float64],
    slots: NDArray[np.int64],
    first: int,
    out: NDArray[Any],
) -> None:
    """Write the counts of the columns with slots ``first, first + 1, ...``."""
    for i in range(out.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            column = columns[p]
            if column >= 0:
                slot = slots[column] - first
                if 0 <= slot < out.shape[1]:
                    out[i, slot] = counts[p]


@njit(cache=True, nogil=True)
def _invert(
    indptr: NDArray[np.int64],
    columns: NDArray[np.int64],
    counts: NDArray[np.float64],
    slots: NDArray[np.int64],
    col_indptr: NDArray[np.int64],
    col_rows: NDArray[np.int32],
    col_counts: NDArray[np.float64],
) -> None:
    """List the rows of each column without a slot, in increasing order.

    `col_indptr` has two elements more than there are columns and is zero on
    entry; column c occupies ``col_indptr[c]:col_indptr[c + 1]`` on return.
    """
    for p in range(columns.shape[0]):
        if slots[columns[p]] < 0:
            col_indptr[columns[p] + 2] += 1
    for c in range(2, col_indptr.shape[0]):
        col_indptr[c] += col_indptr[c - 1]
    for i in range(indptr.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            column = columns[p]
            if slots[column] < 0:
                position = col_indptr[column + 1]
                col_rows[position] = i
                col_counts[position] = counts[p]
                col_indptr[column + 1] = position + 1


@njit(cache=True, nogil=True)
def _add_pairs(
    indptr: NDArray[np.int64],
    columns: NDArray[np.int64],
    counts: NDArray[np.float64],
    heads: NDArray[np.int64],
    tails: NDArray[np.int64],
    col_rows: NDArray[np.int32],
    col_counts: NDArray[np.float64],
    upper: bool,
    out: NDArray[np.float64],
) -> None:
    """Add the products of counts of all pairs of rows sharing a column.

    With `upper` both sides are the same rows and only the pairs with j >= i
    are visited: row i is then at the head of the lists of all its columns.
    """
    for i in range(out.shape[0]):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            column = columns[p]
            if column < 0:
                continue
            count = counts[p]
            head = heads[column]
            for q in range(head, tails[column]):
                row[col_rows[q]] += count * col_counts[q]
            if upper:
                heads[column] = head + 1


def _count_kmers(
    codes: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    length: int,
    base: int,
) -> _Counts:
    """Count the k-mers of one length in each string."""
    sizes = np.maximum(np.diff(offsets) - length + 1, 0)
    kmers = np.empty(int(sizes.sum()), dtype=np.int64)
    indptr = np.empty(offsets.shape[0], dtype=np.int64)
    # With no letters there is no k-mer, the place value is then irrelevant.
    lead = max(base, 1) ** (length - 1)
    _list_kmers(codes, offsets, length, base, lead, kmers, indptr)
    bounds = indptr.tolist()
    for start, stop in pairwise(bounds):
        kmers[start:stop].sort()
    counts = np.empty(bounds[-1], dtype=np.int32)
    _merge_repeats(kmers, indptr, counts)
    return _Counts(indptr, kmers[: indptr[-1]], counts[: indptr[-1]])


def _check_lengths(k: int, min_k: int | None) -> range:
    """Return the lengths of the k-mers to count."""
    k = _check_positive(k, "k")
    min_k = k if min_k is None else _check_positive(min_k, "min_k")
    if min_k > k:
        raise ValueError(f"min_k must be at most k, got min_k={min_k} and k={k}.")
    return range(min_k, k + 1)


def _code_starts(lengths: range, base: int) -> list[int]:
    """Return the code of the first k-mer of each length, and the end."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + base**length)
    if starts[-1] >= 2**63:
        raise ValueError(
            f"k={lengths[-1]} with an alphabet of {base} letters gives {starts[-1]} "
            f"possible k-mers, fewer than 2**63 are supported; use a smaller k or a "
            f"smaller alphabet."
        )
    return starts


def _code_ranges(a: _Counts, b: _Counts, space: int) -> list[tuple[int, int]]:
    """Divide the codes 0..space-1 into ranges with about equally many entries."""
    kmers = [a.kmers] if a is b else [a.kmers, b.kmers]
    total = sum(x.size for x in kmers)
    parts = -(-total // _CHUNK_ENTRIES)
    cuts: list[int] = []
    if parts > 1:
        step = max(1, total // (1000 * parts))
        sample = np.sort(np.concatenate([x[::step] for x in kmers]))
        places = np.arange(1, parts) * sample.size // parts
        cuts = [cut for cut in np.unique(sample[places]).tolist() if cut > 0]
    return list(zip([0, *cuts], [*cuts, space], strict=True))


def _slice_counts(
    counts: _Counts, starts: NDArray[np.int64], bound: int
) -> tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]
]:
    """Cut the k-mers below `bound` from the rows, which begin at `starts`."""
    stops = np.empty_like(starts)
    _find_stops(counts.kmers, counts.indptr, starts, bound, stops)
    indptr = np.zeros(starts.size + 1, dtype=np.int64)
    np.cumsum(stops - starts, out=indptr[1:])
    kmers = np.empty(indptr[-1], dtype=np.int64)
    values = np.empty(indptr[-1], dtype=np.float64)
    _take_slices(counts.kmers, counts.counts, starts, indptr, kmers, values)
    return stops, indptr, kmers, values


def _largest_square(counts: _Counts) -> float:
    """Return the largest sum of squared counts of a row."""
    squares = np.zeros(counts.indptr.size - 1)
    _sum_squares(counts.indptr, counts.counts, squares)
    return float(squares.max(initial=0.0))


def _add_level(a: _Counts, b: _Counts, space: int, out: NDArray[np.float64]) -> None:
    """Add the inner products of the rows of `a` and `b` to `out`.

    The codes are visited range by range, which bounds the memory. In a range
    the k-mers that few pairs of strings share are handled pair by pair over
    lists of the strings that contain them, the others by a dense product. If
    `a` is `b` only the upper triangle of `out` is filled.
    """
    if a.kmers.size == 0 or b.kmers.size == 0:
        return
    n_a, n_b = out.shape
    same = a is b
    # No partial sum of an inner product exceeds the largest square, by the
    # inequality of Cauchy and Schwarz: up to 2**24 single precision is exact.
    square = max(_largest_square(a), _largest_square(b))
    dtype = np.float32 if square <= 2**24 else np.float64
    starts_a = a.indptr[:-1]
    starts_b = b.indptr[:-1]
    for low, high in _code_ranges(a, b, space):
        starts_b, ptr_b, kmers_b, counts_b = _slice_counts(b, starts_b, high)
        if same:
            ptr_a, kmers_a, counts_a = ptr_b, kmers_b, counts_b
        else:
            starts_a, ptr_a, kmers_a, counts_a = _slice_counts(a, starts_a, high)
        if kmers_a.size == 0 or kmers_b.size == 0:
            continue
        if high - low <= _CHUNK_ENTRIES:
            n_columns = high - low
            kmers_b -= low
            columns_b = columns_a = kmers_b
            if not same:
                kmers_a -= low
                columns_a = kmers_a
        else:
            known, columns_b = np.unique(kmers_b, return_inverse=True)
            n_columns = known.size
            columns_a = columns_b
            if not same:
                columns_a = np.searchsorted(known, kmers_a)
                columns_a[columns_a == n_columns] = 0
                columns_a[known[columns_a] != kmers_a] = -1

        rows_b = np.bincount(columns_b, minlength=n_columns)
        if same:
            rows_a = rows_b
        else:
            rows_a = np.bincount(columns_a[columns_a >= 0], minlength=n_columns)
        share = rows_a * rows_b.astype(np.float64)
        dense = np.flatnonzero(share >= max(_DENSE_SHARE * n_a * n_b, 1))
        slots = np.full(n_columns, -1, dtype=np.int64)
        slots[dense] = np.arange(dense.size)

        width = max(1, _BLOCK_ELEMENTS // (n_a + n_b))
        height = max(1, _BLOCK_ELEMENTS // n_b)
        for first in range(0, dense.size, width):
            size = min(width, dense.size - first)
            dense_b = np.zeros((n_b, size), dtype=dtype)
            _fill_dense(ptr_b, columns_b, counts_b, slots, first, dense_b)
            dense_a = dense_b
            if not same:
                dense_a = np.zeros((n_a, size), dtype=dtype)
                _fill_dense(ptr_a, columns_a, counts_a, slots, first, dense_a)
            for row in range(0, n_a, height):
                begin = row if same else 0
                rows = slice(row, row + height)
                out[rows, begin:] += dense_a[rows] @ dense_b[begin:].T

        col_indptr = np.zeros(n_columns + 2, dtype=np.int64)
        col_rows = np.empty(columns_b.size, dtype=np.int32)
        col_counts = np.empty(columns_b.size, dtype=np.float64)
        _invert(ptr_b, columns_b, counts_b, slots, col_indptr, col_rows, col_counts)
        heads = col_indptr[:-1].copy()
        _add_pairs(
            ptr_a,
            columns_a,
            counts_a,
            heads,
            col_indptr[1:],
            col_rows,
            col_counts,
            same,
            out,
        )


def spectrum_gram(
    strings_a: Iterable[str],
    strings_b: Iterable[str] | None,
    k: int,
    alphabet: str | None = None,
    min_k: int | None = None,
) -> NDArray[np.float64]:
    r"""Gram matrix of the spectrum kernel.

    .. math:: K_{ij} = \sum_{m=\mathrm{min\_k}}^{k} \sum_{u \in \Sigma^m}
              c_u(a_i)\, c_u(b_j)

    where :math:`c_u(s)` is the number of occurrences, overlaps included, of
    the k-mer u in the string s. k-mers containing a letter outside of the
    alphabet are not counted; strings shorter than `min_k` have zero rows.

    Parameters
    ----------
    strings_a : collection of str, length n_a
        Strings of any lengths. Case is kept.
    strings_b : collection of str, length n_b, or None
        None, or the very object `strings_a`, asks for the symmetric matrix of
        `strings_a`, at about half the cost.
    k : int
        Length of the longest k-mers.
    alphabet : str, optional
        The known letters; by default all letters that occur in either
        collection. The number of possible k-mers must be less than 2**63.
    min_k : int, optional
        Length of the shortest k-mers; by default `k`, which counts the k-mers
        of length `k` only.

    Returns
    -------
    gram : ndarray of float64, shape (n_a, n_b)
        Integers, exact below 2**53.

    Notes
    -----
    The lengths m are handled one after another. The memory needed beside the
    result is about 12 bytes per letter of the strings plus temporaries of
    limited size.

    References
    ----------
    .. [1] C. Leslie, E. Eskin and W. S. Noble, "The spectrum kernel: a string
       kernel for SVM protein classification", Pacific Symposium on
       Biocomputing, 2002.

    Examples
    --------
    >>> spectrum_gram(["GATTA", "ATTACA"], None, k=2)
    array([[4., 3.],
           [3., 5.]])
    """
    lengths = _check_lengths(k, min_k)
    list_a, list_b, alphabet = _as_pair(strings_a, strings_b, alphabet)
    base = len(alphabet)
    _code_starts(lengths, base)
    encoded_a = encoded_b = _encode_list(list_a, alphabet)
    same = list_b is list_a
    if not same:
        encoded_b = _encode_list(list_b, alphabet)
    out = np.zeros((len(list_a), len(list_b)))
    for length in lengths:
        counts_a = counts_b = _count_kmers(*encoded_a, length, base)
        if not same:
            counts_b = _count_kmers(*encoded_b, length, base)
        _add_level(counts_a, counts_b, base**length, out)
    if same:
        _mirror(out)
    return out


def spectrum_diag(
    strings: Iterable[str],
    k: int,
    alphabet: str | None = None,
    min_k: int | None = None,
) -> NDArray[np.float64]:
    r"""Diagonal of the Gram matrix of the spectrum kernel.

    .. math:: K_{ii} = \sum_{m=\mathrm{min\_k}}^{k} \sum_{u \in \Sigma^m}
              c_u(a_i)^2

    Parameters
    ----------
    strings : collection of str, length n
        Strings of any lengths. Case is kept.
    k, alphabet, min_k
        As for `spectrum_gram`.

    Returns
    -------
    diag : ndarray of float64, shape (n,)
        Equal to ``np.diag(spectrum_gram(strings, strings, ...))``.

    Examples
    --------
    >>> spectrum_diag(["GATTA", "ATTACA"], k=2)
    array([4., 5.])
    """
    lengths = _check_lengths(k, min_k)
    codes, offsets, alphabet = encode(strings, alphabet)
    base = len(alphabet)
    _code_starts(lengths, base)
    out = np.zeros(offsets.size - 1)
    for length in lengths:
        level = _count_kmers(codes, offsets, length, base)
        _sum_squares(level.indptr, level.counts, out)
    return out


def spectrum_vocabulary(
    strings: Iterable[str],
    k: int,
    alphabet: str,
    min_k: int | None = None,
) -> NDArray[np.int64]:
    r"""Codes of all k-mers that occur in the strings.

    The code of a k-mer of length m with the letter indices
    :math:`x_0, \dots, x_{m-1}` in an alphabet of A letters is

    .. math:: \sum_{j=\mathrm{min\_k}}^{m-1} A^j
              + \sum_{i=0}^{m-1} x_i A^{m-1-i},

    so that codes are ordered by length, then by the order of the alphabet.

    Parameters
    ----------
    strings : collection of str, length n
        Strings of any lengths. Case is kept.
    k, min_k
        As for `spectrum_gram`.
    alphabet : str
        The known letters. Required, because the codes depend on it.

    Returns
    -------
    vocabulary : ndarray of int64, shape (n_kmers,)
        Strictly increasing codes, to be passed to `spectrum_features`.

    Examples
    --------
    >>> spectrum_vocabulary(["GATTA", "ATTACA"], k=2, alphabet="ACGT")
    array([ 1,  3,  4,  8, 12, 15])
    """
    if alphabet is None:
        raise ValueError("The codes depend on the alphabet: alphabet must be given.")
    lengths = _check_lengths(k, min_k)
    codes, offsets, alphabet = encode(strings, alphabet)
    levels = _count_levels(codes, offsets, lengths, len(alphabet))
    return _merge_vocabularies(levels)


def _count_levels(
    codes: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    lengths: range,
    base: int,
) -> list[_Counts]:
    """Count the k-mers of all lengths, with codes that differ among lengths."""
    starts = _code_starts(lengths, base)
    levels = []
    for start, length in zip(starts, lengths, strict=False):
        level = _count_kmers(codes, offsets, length, base)
        np.add(level.kmers, start, out=level.kmers)
        levels.append(level)
    return levels


def _merge_vocabularies(levels: list[_Counts]) -> NDArray[np.int64]:
    """Return the sorted codes that occur; the levels are in order."""
    return np.concatenate([np.unique(level.kmers) for level in levels])


def spectrum_features(
    strings: Iterable[str],
    k: int,
    alphabet: str | None = None,
    min_k: int | None = None,
    vocabulary: NDArray[np.int64] | None = None,
) -> csr_array:
    """Count the k-mers of each string.

    The columns are the k-mers that occur in `strings`, ordered by length and
    then by the order of the alphabet; two calls with different strings have
    therefore different columns in general. To obtain matching columns fix
    them: ``vocabulary = spectrum_vocabulary(train, k, alphabet)``, then pass
    `vocabulary` and the same `k`, `alphabet` and `min_k` in each call. Inner
    products over *all* k-mers are given by `spectrum_gram`.

    Parameters
    ----------
    strings : collection of str, length n
        Strings of any lengths. Case is kept.
    k, alphabet, min_k
        As for `spectrum_gram`.
    vocabulary : ndarray of int64, shape (n_kmers,), optional
        Result of `spectrum_vocabulary`: strictly increasing codes of the
        k-mers to count, all others are left out. Needs `alphabet`.

    Returns
    -------
    features : csr_array of float64, shape (n, n_kmers)
        ``features[i, j]`` is the number of occurrences, overlaps included, of
        k-mer j in string i. Strings shorter than `min_k` have zero rows.

    Examples
    --------
    >>> spectrum_features(["GATTA", "ATTACA"], k=2).toarray()
    array([[0., 1., 0., 1., 1., 1.],
           [1., 1., 1., 0., 1., 1.]])
    """
    lengths = _check_lengths(k, min_k)
    if vocabulary is not None:
        if alphabet is None:
            raise ValueError(
                "The codes in vocabulary depend on the alphabet: alphabet must be "
                "given too."
            )
        vocabulary = np.asarray(vocabulary)
        if vocabulary.ndim != 1 or vocabulary.dtype.kind not in "iu":
            raise ValueError(
                f"vocabulary must be a one-dimensional array of integers, got shape "
                f"{vocabulary.shape} and dtype {vocabulary.dtype}."
            )
        if np.any(vocabulary[1:] <= vocabulary[:-1]):
            raise ValueError("vocabulary must be strictly increasing.")
    codes, offsets, alphabet = encode(strings, alphabet)
    n = offsets.size - 1
    levels = _count_levels(codes, offsets, lengths, len(alphabet))
    if vocabulary is None:
        vocabulary = _merge_vocabularies(levels)
    rows, columns, counts = [], [], []
    for level in levels:
        row = np.repeat(np.arange(n), np.diff(level.indptr))
        column = np.searchsorted(vocabulary, level.kmers)
        found = column < vocabulary.size
        found[found] = vocabulary[column[found]] == level.kmers[found]
        rows.append(row[found])
        columns.append(column[found])
        counts.append(level.counts[found].astype(np.float64))
    index = (np.concatenate(rows), np.concatenate(columns))
    shape = (n, vocabulary.size)
    return csr_array((np.concatenate(counts), index), shape=shape)


# ---------------------------------------------------------------------------
# Weighted degree kernel
# ---------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _two_diagonals(
    x: NDArray[np.uint8],
    z: NDArray[np.uint8],
    v: NDArray[np.uint8],
    w: NDArray[np.uint8],
    length: int,
    gains: NDArray[np.float64],
) -> tuple[float, float]:
    """Sum the weights of the matching runs of x with z, and of v with w.

    ``gains[b]`` is what the b-th letter of a run adds to the weight of the
    run, ``gains[0]`` is zero: no branch depends on the letters. Two
    independent sums hide the latency of the additions.
    """
    zero = np.uint32(0)
    one = np.uint32(1)
    first = 0.0
    second = 0.0
    run_first = zero
    run_second = zero
    for p in range(length):
        run_first = np.uint32(run_first + one) if x[p] == z[p] else zero
        run_second = np.uint32(run_second + one) if v[p] == w[p] else zero
        first += gains[run_first]
        second += gains[run_second]
    return first, second


@njit(cache=True, nogil=True)
def _shifted_sum(
    x: NDArray[np.uint8],
    z: NDArray[np.uint8],
    gains: NDArray[np.float64],
    shift_weights: NDArray[np.float64],
) -> float:
    """Sum over the shifts from 1 on, in both directions."""
    length = x.shape[0]
    total = 0.0
    for s in range(1, min(shift_weights.shape[0], length)):
        forth, back = _two_diagonals(x[s:], z, x, z[s:], length - s, gains)
        total += shift_weights[s] * (forth + back)
    return total


@njit(cache=True, nogil=True)
def _run_gains(run_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differences of the weights of runs, beginning with zero."""
    gains = np.zeros(run_weights.shape[0])
    for b in range(1, run_weights.shape[0]):
        gains[b] = run_weights[b] - run_weights[b - 1]
    return gains


@njit(cache=True, nogil=True)
def _hide_unknown(row: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Copy a row of codes such that its unknown letters match nothing."""
    for p in range(row.shape[0]):
        out[p] = _NEVER if row[p] == UNKNOWN else row[p]


@njit(cache=True, nogil=True)
def weighted_degree_block(
    codes_a: NDArray[np.uint8],
    codes_b: NDArray[np.uint8],
    run_weights: NDArray[np.float64],
    shift_weights: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    r"""Compute a block of a weighted degree Gram matrix from encoded strings.

    Compiled, and releases the global interpreter lock: call it from several
    threads with different blocks of rows of `codes_a` and `out`.

    .. math:: \mathrm{out}_{ij} = \sum_{s=0}^{S} \delta_s
              \Big(\sum_{r \in R(a_i[s:], b_j)} w_{|r|}
              + \sum_{r \in R(a_i, b_j[s:])} w_{|r|}\Big)

    where :math:`R(x, z)` are the maximal runs of positions at which x and z
    have the same letter, up to the end of the shorter one. The cost is of the
    order n_a n_b L (2 S + 1).

    Parameters
    ----------
    codes_a : ndarray of uint8, shape (n_a, L)
        Letters, with `UNKNOWN` (255) matching nothing. C-contiguous.
    codes_b : ndarray of uint8, shape (n_b, L)
        Letters, in the same alphabet. C-contiguous.
    run_weights : ndarray of float64, shape (L + 1,)
        ``run_weights[b]`` is the weight of a maximal run of b matching
        letters; ``run_weights[0]`` is 0.
    shift_weights : ndarray of float64, shape (S + 1,)
        The weights :math:`\delta_s`; by the formula the unshifted term counts
        with ``2 * shift_weights[0]``.
    out : ndarray of float64, shape (n_a, n_b)
        Overwritten by the result.

    See Also
    --------
    encode_matrix : gives `codes_a` and `codes_b`.
    weighted_degree_weights : gives `run_weights` and `shift_weights`.
    """
    n_a, length = codes_a.shape
    n_b = codes_b.shape[0]
    gains = _run_gains(run_weights)
    x = np.empty(length, dtype=np.uint8)
    for i in range(n_a):
        _hide_unknown(codes_a[i], x)
        for j in range(0, n_b, 2):
            # An odd last column is computed twice.
            k = min(j + 1, n_b - 1)
            first, second = _two_diagonals(x, codes_b[j], x, codes_b[k], length, gains)
            first *= 2.0 * shift_weights[0]
            second *= 2.0 * shift_weights[0]
            first += _shifted_sum(x, codes_b[j], gains, shift_weights)
            out[i, j] = first
            if k > j:
                second += _shifted_sum(x, codes_b[k], gains, shift_weights)
                out[i, k] = second


@njit(cache=True, nogil=True)
def _weighted_degree_self(
    codes: NDArray[np.uint8],
    run_weights: NDArray[np.float64],
    shift_weights: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Compute the weighted degree kernel of each row with itself."""
    n, length = codes.shape
    gains = _run_gains(run_weights)
    x = np.empty(length, dtype=np.uint8)
    for i in range(n):
        z = codes[i]
        _hide_unknown(z, x)
        value, _ = _two_diagonals(x, z, x, z, length, gains)
        value *= 2.0 * shift_weights[0]
        out[i] = value + _shifted_sum(x, z, gains, shift_weights)


def _equal_length(*collections: list[str]) -> int:
    """Return the common length of all strings, 0 if there are none."""
    lengths = sorted({len(s) for strings in collections for s in strings})
    if len(lengths) > 1:
        shown = ", ".join(map(str, lengths[:10]))
        more = ", ..." if len(lengths) > 10 else ""
        raise ValueError(
            f"The weighted degree kernel needs strings of equal length, got the "
            f"lengths {shown}{more}; cut the strings to one length or use the "
            f"Spectrum kernel, which compares strings of any lengths."
        )
    return lengths[0] if lengths else 0


def encode_matrix(
    strings: Iterable[str], alphabet: str | None = None
) -> tuple[NDArray[np.uint8], str]:
    """Translate strings of equal length L to the rows of a matrix of codes.

    Parameters
    ----------
    strings : collection of str, length n
        Strings of equal length L. Case is kept.
    alphabet : str, optional
        As for `encode`. Give it where two collections are to be compared.

    Returns
    -------
    codes : ndarray of uint8, shape (n, L)
        Index in `alphabet` of each letter, `UNKNOWN` (255) for letters
        outside of it.
    alphabet : str
        The alphabet used.

    Examples
    --------
    >>> encode_matrix(["GAT", "CAN"], alphabet="ACGT")
    (array([[  2,   0,   3],
           [  1,   0, 255]], dtype=uint8), 'ACGT')
    """
    values = _as_list(strings)
    length = _equal_length(values)
    codes, _, alphabet = encode(values, alphabet)
    return codes.reshape(len(values), length), alphabet


def weighted_degree_weights(
    length: int, degree: int, shift: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Weights of the weighted degree kernel for `weighted_degree_block`.

    A maximal run of b matching letters contains :math:`b - d + 1` matching
    substrings of each length :math:`d \le b`, hence has the weight

    .. math:: w_b = \sum_{d=1}^{\min(b, D)} \beta_d (b - d + 1), \qquad
              \beta_d = \frac{2 (D - d + 1)}{D (D + 1)}.

    Parameters
    ----------
    length : int
        Length L of the strings.
    degree : int
        Length D of the longest substrings.
    shift : int, default 0
        Largest shift S.

    Returns
    -------
    run_weights : ndarray of float64, shape (L + 1,)
        The weights :math:`w_0, \dots, w_L`.
    shift_weights : ndarray of float64, shape (S + 1,)
        The weights :math:`\delta_s = 1 / (2 (s + 1))`.

    Examples
    --------
    >>> weighted_degree_weights(3, degree=1, shift=1)
    (array([0., 1., 2., 3.]), array([0.5 , 0.25]))
    """
    length = _check_positive(length, "length", minimum=0)
    degree = _check_positive(degree, "degree")
    shift = _check_positive(shift, "shift", minimum=0)
    # The b-th letter of a run completes one substring of each length <= b.
    used = np.arange(1, min(length, degree) + 1)
    beta = np.zeros(length)
    beta[: used.size] = 2.0 * (degree - used + 1) / (degree * (degree + 1.0))
    run_weights = np.zeros(length + 1)
    np.cumsum(np.cumsum(beta), out=run_weights[1:])
    shift_weights = 0.5 / np.arange(1, shift + 2, dtype=np.float64)
    return run_weights, shift_weights


def weighted_degree_gram(
    strings_a: Iterable[str],
    strings_b: Iterable[str] | None,
    degree: int,
    shift: int = 0,
    alphabet: str | None = None,
) -> NDArray[np.float64]:
    r"""Gram matrix of the weighted degree kernel, with shifts if asked for.

    For strings x and z of equal length L, with the degree D and the largest
    shift S,

    .. math:: k(x, z) = \sum_{d=1}^{D} \beta_d \sum_{l=0}^{L-d}
              \sum_{\substack{0 \le s \le S \\ l+s+d \le L}} \delta_s
              \big([x_{l+s:l+s+d} = z_{l:l+d}] + [x_{l:l+d} = z_{l+s:l+s+d}]\big),

    .. math:: \beta_d = \frac{2 (D - d + 1)}{D (D + 1)}, \qquad
              \delta_s = \frac{1}{2 (s + 1)}.

    Without shifts this is the plain weighted degree kernel
    :math:`\sum_d \beta_d \sum_l [x_{l:l+d} = z_{l:l+d}]`.

    Parameters
    ----------
    strings_a : collection of str, length n_a
        Strings of equal length L. Case is kept.
    strings_b : collection of str, length n_b, or None
        Strings of the same length L. None, or the very object `strings_a`,
        asks for the symmetric matrix of `strings_a`, at about half the cost.
    degree : int
        Length D of the longest substrings compared.
    shift : int, default 0
        Largest shift S.
    alphabet : str, optional
        The known letters; by default all letters that occur in either
        collection. Letters outside of it never match.

    Returns
    -------
    gram : ndarray of float64, shape (n_a, n_b)

    Raises
    ------
    ValueError
        If the strings have different lengths.

    Notes
    -----
    The matching substrings are counted by the maximal runs of matching
    letters, so the cost, of the order n_a n_b L (2 S + 1), does not depend on
    the degree.

    The kernel is positive semidefinite for every shift. For each d it is

    .. math:: \sum_{l, l'} T_{l l'} [x_{l:l+d} = z_{l':l'+d}], \qquad
              T_{ll} = 1, \quad T_{ll'} = \frac{1}{2 (|l - l'| + 1)}
              \text{ for } 0 < |l - l'| \le S,

    and zero elsewhere in T, a kernel if the Toeplitz matrix T is positive
    semidefinite. Diagonal dominance shows this only as long as
    :math:`\sum_{s=1}^S 1 / (s + 1) \le 1`, that is for :math:`S \le 2`. For
    all S it follows from the inequality
    :math:`\tfrac12 + \sum_{s=1}^S \cos(s \theta) / (s + 1) \ge 0` of
    Rogosinski and Szegö [3]_: the symbol of T,
    :math:`1 + \sum_{s=1}^S \cos(s \theta) / (s + 1)`, is at least 1/2. Hence
    also :math:`k - \tfrac12 k_0` is positive semidefinite, with the plain
    weighted degree kernel :math:`k_0`.

    References
    ----------
    .. [1] G. Rätsch and S. Sonnenburg, "Accurate splice site detection for
       Caenorhabditis elegans", in Kernel Methods in Computational Biology,
       MIT Press, 2004.
    .. [2] G. Rätsch, S. Sonnenburg and B. Schölkopf, "RASE: recognition of
       alternatively spliced exons in C. elegans", Bioinformatics 21 (suppl.
       1), i369-i377, 2005.
    .. [3] W. Rogosinski and G. Szegö, "Über die Abschnitte von Potenzreihen,
       die in einem Kreise beschränkt bleiben", Mathematische Zeitschrift 28,
       73-94, 1928.

    Examples
    --------
    >>> weighted_degree_gram(["GATTA", "CATTA"], None, degree=1)
    array([[5., 4.],
           [4., 5.]])
    """
    degree = _check_positive(degree, "degree")
    shift = _check_positive(shift, "shift", minimum=0)
    list_a, list_b, alphabet = _as_pair(strings_a, strings_b, alphabet)
    same = list_b is list_a
    length = _equal_length(list_a, list_b)
    n_a, n_b = len(list_a), len(list_b)
    codes_a = codes_b = _encode_list(list_a, alphabet)[0].reshape(n_a, length)
    if not same:
        codes_b = _encode_list(list_b, alphabet)[0].reshape(n_b, length)
    run_weights, shift_weights = weighted_degree_weights(length, degree, shift)
    out = np.zeros((n_a, n_b))
    for start in range(0, n_a, _ROWS):
        rows = codes_a[start : start + _ROWS]
        begin = start if same else 0
        block = np.empty((rows.shape[0], n_b - begin))
        weighted_degree_block(rows, codes_b[begin:], run_weights, shift_weights, block)
        out[start : start + _ROWS, begin:] = block
    if same:
        _mirror(out)
    return out


def weighted_degree_diag(
    strings: Iterable[str],
    degree: int,
    shift: int = 0,
    alphabet: str | None = None,
) -> NDArray[np.float64]:
    """Diagonal of the Gram matrix of the weighted degree kernel.

    The values k(x, x) of the formula given for `weighted_degree_gram`.

    Parameters
    ----------
    strings : collection of str, length n
        Strings of equal length. Case is kept.
    degree, shift, alphabet
        As for `weighted_degree_gram`.

    Returns
    -------
    diag : ndarray of float64, shape (n,)
        Equal to the diagonal of ``weighted_degree_gram(strings, strings, ...)``.

    Examples
    --------
    >>> weighted_degree_diag(["GATTA", "CATTA"], degree=1)
    array([5., 5.])
    """
    degree = _check_positive(degree, "degree")
    shift = _check_positive(shift, "shift", minimum=0)
    codes, _ = encode_matrix(strings, alphabet)
    run_weights, shift_weights = weighted_degree_weights(codes.shape[1], degree, shift)
    out = np.zeros(codes.shape[0])
    _weighted_degree_self(codes, run_weights, shift_weights, out)
    return out
