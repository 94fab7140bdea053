"""Encoding of strings as numbers, for all sequence kernels.

All functions take one-dimensional collections of Python strings (list, tuple,
NumPy array of strings or objects, pandas Series). Letters are compared as
they are: upper and lower case are *different* letters, so convert the strings
beforehand (``str.upper``) where the case carries no meaning, as for
soft-masked DNA.

An ``alphabet`` given explicitly declares all other letters *unknown* (for
example ``"ACGT"`` makes the ambiguity code ``N`` unknown): a k-mer containing
an unknown letter is not counted and an unknown letter matches nothing, not
even itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Code of a letter outside of the alphabet.
UNKNOWN = 255

# Maximum number of letters; leaves codes for `UNKNOWN`, and for its replacement
# on one side of a comparison.
_MAX_LETTERS = 250

# Letters translated at a time by `encode`.
_ENCODE_LETTERS = 1 << 20


def as_list(strings: Iterable[str], name: str = "strings") -> list[str]:
    """Return `strings` as a list after checking that it contains only strings."""
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


def check_count(value: int, name: str, minimum: int = 1) -> int:
    """Return `value` as an int after checking its type and size."""
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


def find_alphabet(strings: list[str]) -> str:
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


def check_alphabet(alphabet: str) -> str:
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


def encode_list(
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
    values = as_list(strings)
    if alphabet is None:
        alphabet = find_alphabet(values)
    else:
        alphabet = check_alphabet(alphabet)
    codes, offsets = encode_list(values, alphabet)
    return codes, offsets, alphabet


def as_pair(
    strings_a: Iterable[str],
    strings_b: Iterable[str] | None,
    alphabet: str | None,
) -> tuple[list[str], list[str], str]:
    """Check two collections and find their common alphabet.

    Both lists are the same object if `strings_b` is None or is `strings_a`.
    """
    list_a = as_list(strings_a, "strings_a")
    if strings_b is None or strings_b is strings_a:
        list_b = list_a
    else:
        list_b = as_list(strings_b, "strings_b")
    if alphabet is not None:
        alphabet = check_alphabet(alphabet)
    elif list_b is list_a:
        alphabet = find_alphabet(list_a)
    else:
        alphabet = find_alphabet(list_a + list_b)
    return list_a, list_b, alphabet


def mirror(gram: NDArray[np.float64]) -> None:
    """Copy the upper triangle of a square matrix to its lower triangle."""
    n = gram.shape[0]
    for start in range(0, n, 256):
        stop = min(start + 256, n)
        corner = gram[start:stop, start:stop]
        corner[...] = np.triu(corner) + np.triu(corner, 1).T
        gram[stop:, start:stop] = gram[start:stop, stop:].T
