"""Where in the cell a protein is: sequences, and 69 kernels on them.

The data and kernels of Zien and Ong (2007), which two of the papers use, cannot be had.
In their place are sequences of MultiLoc (Höglund et al. 2006) and kernels built as
theirs are described: counts of motifs of up to five letters, one for each of the 16
placings of gaps, in four parts of the sequence (64 kernels), and five spectrum kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mklearn.datasets import load
from mklearn.kernels import KernelBank
from mklearn.kernels.normalise import fit_normaliser
from mklearn.kernels.spectrum import spectrum_gram
from reproduction.cells import rng, stratified

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
BUCKETS = 1 << 14  # long motifs share columns by a hash

# The places that the plant set of the papers has; "other" is what has no signal.
PLACES = {
    "chloroplast": "chloroplast",
    "mitochondrial": "mitochondrial",
    "extracellular": "secretory",
    "cytoplasmic": "other",
    "nuclear": "other",
}
# Whole sequence, and where the signals of transport are.
PARTS = {
    "all": slice(None),
    "first 60": slice(60),
    "first 15": slice(15),
    "last 15": slice(-15, None),
}
# Letter or gap at each of the four places after the first letter.
PATTERNS = tuple(
    (0, *(place for place, letter in enumerate(bits, 1) if letter))
    for bits in product((0, 1), repeat=4)
)
SPECTRA = (1, 2, 3, 4, 5)


@cache
def sequences() -> tuple[list[str], NDArray[Any]]:
    """Return all sequences of MultiLoc and their places in the cell."""
    views, y = load("multiloc_sequences", download=False, return_X_y=True)
    return [str(text) for text in views["sequence"]], np.asarray(y)


def draw(
    size: int, random: np.random.Generator, places: dict[str, str] = PLACES
) -> tuple[list[str], NDArray[Any]]:
    """Return so many random sequences of each of the merged places, and the labels."""
    strings, y = sequences()
    merged = np.array([places.get(str(place), "") for place in y])
    rows = np.concatenate(
        [
            random.permutation(np.flatnonzero(merged == name))[:size]
            for name in sorted(set(places.values()))
        ]
    )
    return [strings[i] for i in rows], merged[rows]


def motif_counts(
    strings: Sequence[str], pattern: tuple[int, ...]
) -> sparse.csr_array[Any, Any]:
    """Return how often each motif occurs: letters at the pattern's places, and gaps."""
    code = np.full(256, 20)
    code[[ord(letter) for letter in LETTERS]] = np.arange(20)
    rows, columns = [], []
    for i, string in enumerate(strings):
        letters = code[np.frombuffer(string.encode(), dtype=np.uint8)]
        span = len(letters) - pattern[-1]
        if span <= 0:
            continue
        key = np.zeros(span, dtype=np.int64)
        for place in pattern:
            key = key * 21 + letters[place : place + span]
        if len(pattern) > 3:
            key = (key * 2654435761 >> 7) % BUCKETS
        columns.append(key)
        rows.append(np.full(span, i))
    where = np.concatenate(rows), np.concatenate(columns)
    shape = (len(strings), max(BUCKETS, 21**3))
    return sparse.csr_array((np.ones(len(where[0])), where), shape=shape)


def string_grams(
    strings: Sequence[str],
    patterns: Sequence[tuple[int, ...]] = PATTERNS,
    spectra: Sequence[int] = SPECTRA,
) -> list[NDArray[np.float32]]:
    """Return the Grams of cosines between counts, all patterns of each part first.

    They are in single precision, so that 69 of 5000 sequences take 7 GB.
    """
    grams = []
    for part in PARTS.values():
        cut = [string[part] for string in strings]
        for pattern in patterns:
            X = motif_counts(cut, pattern)
            length = np.sqrt(X.multiply(X).sum(axis=1))
            X = sparse.diags_array(1.0 / np.maximum(length, 1e-12)) @ X
            grams.append((X @ X.T).toarray().astype(np.float32))
    for k in spectra:
        K = spectrum_gram(list(strings), None, k, LETTERS)
        root = np.sqrt(np.maximum(np.diagonal(K), 1e-12))
        grams.append((K / root / root[:, None]).astype(np.float32))
    return grams


@lru_cache(maxsize=1)
def task(
    size: int, share: float, seed: int, repetition: int
) -> tuple[KernelBank, NDArray[Any], KernelBank, NDArray[Any]]:
    """Return Grams to learn from and to test on, each with the places.

    They have multiplicative normalisation. The methods that follow each other share
    them.

    Parameters
    ----------
    size : int
        Sequences of each place.
    share : float
        Of every place, to learn from.
    """
    random = rng(seed, repetition)
    strings, y = draw(size, random)
    train, test = stratified(y, share, random)
    grams = string_grams(strings)
    raw = KernelBank.from_grams([K[np.ix_(train, train)] for K in grams])
    new = KernelBank.from_grams([K[np.ix_(test, train)] for K in grams], cross=True)
    normaliser = fit_normaliser("multiplicative", raw)
    return normaliser.train(raw), y[train], normaliser.cross(new), y[test]
