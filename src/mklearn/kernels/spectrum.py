"""The spectrum kernel, for strings of any lengths.

It compares how often each substring of length k (*k-mer*) occurs, wherever it
occurs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mklearn.data.compiling import njit
from mklearn.kernels.strings import (
    UNKNOWN,
    as_pair,
    check_count,
    encode,
    encode_list,
    mirror,
)

# (string, k-mer) entries handled at a time by `spectrum_gram`.
_CHUNK_ENTRIES = 1 << 22

# Elements of a dense temporary block.
_BLOCK_ELEMENTS = 1 << 22

# A k-mer shared by at least this share of all pairs of strings is handled by
# a dense matrix product instead of by updating the pairs one by one.
_DENSE_SHARE = 1 / 32


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
    """Find the position in each row of the first k-mer that is at least `bound`."""
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
    """Copy one slice of each row; `indptr` describes the rows of the copy."""
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
    # Without letters there are no k-mers, and the place value is irrelevant.
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
    k = check_count(k, "k")
    min_k = k if min_k is None else check_count(min_k, "min_k")
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
    # Cauchy-Schwarz inequality: up to 2**24 single precision is exact.
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
    list_a, list_b, alphabet = as_pair(strings_a, strings_b, alphabet)
    base = len(alphabet)
    _code_starts(lengths, base)
    encoded_a = encoded_b = encode_list(list_a, alphabet)
    same = list_b is list_a
    if not same:
        encoded_b = encode_list(list_b, alphabet)
    out = np.zeros((len(list_a), len(list_b)))
    for length in lengths:
        counts_a = counts_b = _count_kmers(*encoded_a, length, base)
        if not same:
            counts_b = _count_kmers(*encoded_b, length, base)
        _add_level(counts_a, counts_b, base**length, out)
    if same:
        mirror(out)
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
