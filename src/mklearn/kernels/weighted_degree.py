"""The weighted degree kernel, for strings of one common length.

It compares substrings at equal, or with shifts nearly equal, positions.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mklearn.data.compiling import njit
from mklearn.kernels.strings import (
    UNKNOWN,
    as_list,
    as_pair,
    check_count,
    encode,
    encode_list,
    mirror,
)

# Replaces `UNKNOWN` on one side of a comparison, so that an unknown letter
# differs from every letter, also from another unknown one.
_NEVER = 254

# Rows of a weighted degree Gram matrix computed at a time.
_ROWS = 64


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

    ``gains[b]`` is the contribution of the b-th letter of a run to its
    weight, and ``gains[0]`` is zero: no branch depends on the letters. Two
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
    """Sum over all positive shifts, in both directions."""
    length = x.shape[0]
    total = 0.0
    for s in range(1, min(shift_weights.shape[0], length)):
        forth, back = _two_diagonals(x[s:], z, x, z[s:], length - s, gains)
        total += shift_weights[s] * (forth + back)
    return total


@njit(cache=True, nogil=True)
def _run_gains(run_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the differences of the weights of runs, starting with zero."""
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
    values = as_list(strings)
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
    length = check_count(length, "length", minimum=0)
    degree = check_count(degree, "degree")
    shift = check_count(shift, "shift", minimum=0)
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
    degree = check_count(degree, "degree")
    shift = check_count(shift, "shift", minimum=0)
    list_a, list_b, alphabet = as_pair(strings_a, strings_b, alphabet)
    same = list_b is list_a
    length = _equal_length(list_a, list_b)
    n_a, n_b = len(list_a), len(list_b)
    codes_a = codes_b = encode_list(list_a, alphabet)[0].reshape(n_a, length)
    if not same:
        codes_b = encode_list(list_b, alphabet)[0].reshape(n_b, length)
    run_weights, shift_weights = weighted_degree_weights(length, degree, shift)
    out = np.zeros((n_a, n_b))
    for start in range(0, n_a, _ROWS):
        rows = codes_a[start : start + _ROWS]
        begin = start if same else 0
        block = np.empty((rows.shape[0], n_b - begin))
        weighted_degree_block(rows, codes_b[begin:], run_weights, shift_weights, block)
        out[start : start + _ROWS, begin:] = block
    if same:
        mirror(out)
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
    degree = check_count(degree, "degree")
    shift = check_count(shift, "shift", minimum=0)
    codes, _ = encode_matrix(strings, alphabet)
    run_weights, shift_weights = weighted_degree_weights(codes.shape[1], degree, shift)
    out = np.zeros(codes.shape[0])
    _weighted_degree_self(codes, run_weights, shift_weights, out)
    return out
