"""String kernels against their definitions."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

from mklearn.kernels import spectrum
from mklearn.kernels import strings as sequences
from mklearn.kernels.spectrum import (
    spectrum_diag,
    spectrum_features,
    spectrum_gram,
    spectrum_vocabulary,
)
from mklearn.kernels.strings import UNKNOWN, encode
from mklearn.kernels.weighted_degree import (
    encode_matrix,
    weighted_degree_block,
    weighted_degree_diag,
    weighted_degree_gram,
    weighted_degree_weights,
)

DNA = "ACGT"
PROTEIN = "ACDEFGHIKLMNPQRSTVWY"


def random_strings(seed, n, low, high, letters=DNA):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(low, high, size=n, endpoint=True)
    return ["".join(rng.choice(list(letters), size=size)) for size in lengths]


def count_kmers(string, k, min_k, alphabet):
    """Count by the definition."""
    return Counter(
        string[start : start + m]
        for m in range(min_k, k + 1)
        for start in range(len(string) - m + 1)
        if all(letter in alphabet for letter in string[start : start + m])
    )


def spectrum_by_definition(strings_a, strings_b, k, min_k, alphabet):
    counts_a = [count_kmers(s, k, min_k, alphabet) for s in strings_a]
    counts_b = [count_kmers(s, k, min_k, alphabet) for s in strings_b]
    return np.array(
        [[sum(n * b[u] for u, n in a.items()) for b in counts_b] for a in counts_a],
        dtype=float,
    )


def matches(u, v, alphabet):
    return u == v and all(letter in alphabet for letter in u)


def weighted_degree_by_definition(x, z, degree, shift, alphabet):
    total = 0.0
    length = len(x)
    for d in range(1, degree + 1):
        beta = 2 * (degree - d + 1) / (degree * (degree + 1))
        for p in range(length - d + 1):
            for s in range(shift + 1):
                if p + s + d > length:
                    break
                forth = matches(x[p + s : p + s + d], z[p : p + d], alphabet)
                back = matches(x[p : p + d], z[p + s : p + s + d], alphabet)
                total += beta / (2 * (s + 1)) * (forth + back)
    return total


def assert_positive_semidefinite(gram):
    values = np.linalg.eigvalsh(gram)
    assert values[0] >= -1e-12 * max(values[-1], 1.0)


# ------------------------------------------------------------------ encoding


def test_encode_is_invertible():
    strings = [*random_strings(0, 20, 0, 12), "", "gattaca", "日本語", "\U0001f9ec\x00"]
    codes, offsets, alphabet = encode(strings)
    assert codes.dtype == np.uint8
    assert offsets.dtype == np.int64
    assert alphabet == "".join(sorted(set("".join(strings))))
    decoded = "".join(alphabet[code] for code in codes)
    back = [decoded[offsets[i] : offsets[i + 1]] for i in range(len(strings))]
    assert back == strings


def test_encode_in_pieces(monkeypatch):
    strings = random_strings(1, 30, 0, 9)
    whole = encode(strings)
    monkeypatch.setattr(sequences, "_ENCODE_LETTERS", 7)
    pieces = encode(strings)
    np.testing.assert_array_equal(pieces[0], whole[0])
    np.testing.assert_array_equal(pieces[1], whole[1])
    assert pieces[2] == whole[2]


def test_encode_marks_unknown_letters_and_keeps_case():
    codes, offsets, alphabet = encode(["TaNA", ""], alphabet="TCGA")
    assert codes.tolist() == [0, UNKNOWN, UNKNOWN, 3]
    assert offsets.tolist() == [0, 4, 4]
    assert alphabet == "TCGA"


def test_encode_accepts_all_collections():
    pandas = pytest.importorskip("pandas")
    strings = ["GATT", "ACA", ""]
    expected = encode(strings)
    for collection in (
        tuple(strings),
        np.array(strings),
        np.array(strings, dtype=object),
        pandas.Series(strings, index=[7, 8, 9]),
        iter(strings),
    ):
        codes, offsets, alphabet = encode(collection)
        np.testing.assert_array_equal(codes, expected[0])
        np.testing.assert_array_equal(offsets, expected[1])
        assert alphabet == expected[2]


def test_encode_without_strings():
    codes, offsets, alphabet = encode([])
    assert codes.size == 0
    assert offsets.tolist() == [0]
    assert alphabet == ""


def test_encode_with_the_largest_alphabet():
    letters = "".join(chr(1000 + i) for i in range(250))
    codes, _, alphabet = encode([letters])
    assert alphabet == letters
    assert codes.tolist() == list(range(250))


@pytest.mark.parametrize("bad", [None, 3, float("nan"), b"ACGT", ["A"]])
def test_encode_names_the_element_that_is_no_string(bad):
    with pytest.raises(TypeError, match=rf"strings\[1\].*{type(bad).__name__}"):
        encode(["A", bad])


def test_encode_errors():
    with pytest.raises(TypeError, match="single str"):
        encode("ACGT")
    with pytest.raises(ValueError, match=r"\(2, 1\)"):
        encode(np.array([["A"], ["C"]]))
    many = "".join(chr(1000 + i) for i in range(251))
    with pytest.raises(ValueError, match=r"251 different characters.*alphabet"):
        encode([many])
    assert encode([many], alphabet=many[:2])[0][:3].tolist() == [0, 1, UNKNOWN]
    with pytest.raises(ValueError, match="got 251"):
        encode(["A"], alphabet=many)
    with pytest.raises(ValueError, match="got 0"):
        encode(["A"], alphabet="")
    with pytest.raises(ValueError, match=r"repeated letters: \['A'\]"):
        encode(["A"], alphabet="ACA")
    with pytest.raises(TypeError, match="alphabet must be a string"):
        encode(["A"], alphabet=["A"])


# ------------------------------------------------------------------ spectrum


@pytest.mark.parametrize("k, min_k", [(1, None), (3, None), (3, 1), (4, 2)])
@pytest.mark.parametrize("letters, alphabet", [("ACGTN", DNA), ("AB", None)])
def test_spectrum_gram_is_its_definition(k, min_k, letters, alphabet):
    strings_a = random_strings(2, 12, 0, 15, letters)
    strings_b = random_strings(3, 9, 0, 15, letters)
    expected = spectrum_by_definition(
        strings_a, strings_b, k, min_k or k, alphabet or letters
    )
    gram = spectrum_gram(strings_a, strings_b, k, alphabet, min_k)
    assert gram.dtype == np.float64
    np.testing.assert_array_equal(gram, expected)


@pytest.mark.parametrize("k, min_k", [(2, None), (3, 1)])
def test_spectrum_features_are_the_counts(k, min_k):
    strings = [*random_strings(4, 10, 0, 12, "ACGTN"), "日ACG日"]
    features = spectrum_features(strings, k, DNA, min_k)
    codes = spectrum_vocabulary(strings, k, DNA, min_k)
    assert features.shape == (len(strings), codes.size)
    assert features.dtype == np.float64
    # All k-mers in the documented order, by length and then by the alphabet.
    kmers = [
        "".join(letters)
        for m in range(min_k or k, k + 1)
        for letters in product(DNA, repeat=m)
    ]
    dense = features.toarray()
    for i, string in enumerate(strings):
        found = {kmers[codes[j]]: dense[i, j] for j in np.flatnonzero(dense[i])}
        assert found == count_kmers(string, k, min_k or k, DNA)
    assert np.all(dense.sum(axis=0) > 0)


def test_spectrum_features_with_a_vocabulary():
    train = random_strings(5, 6, 0, 9)
    test = random_strings(6, 5, 0, 9)
    every = spectrum_vocabulary(train + test, 3, DNA, 2)
    known = spectrum_vocabulary(train, 3, DNA, 2)
    assert set(known) < set(every)
    joint = spectrum_features(train + test, 3, DNA, 2).toarray()
    a = spectrum_features(train, 3, DNA, 2, vocabulary=every).toarray()
    b = spectrum_features(test, 3, DNA, 2, vocabulary=every).toarray()
    np.testing.assert_array_equal(np.vstack([a, b]), joint)
    np.testing.assert_array_equal(a @ b.T, spectrum_gram(train, test, 3, DNA, 2))
    part = spectrum_features(test, 3, DNA, 2, vocabulary=known).toarray()
    np.testing.assert_array_equal(part, b[:, np.isin(every, known)])
    none = spectrum_features(test, 3, DNA, 2, vocabulary=known[:0])
    assert none.shape == (5, 0)


@pytest.mark.parametrize("k, min_k", [(1, None), (3, 2)])
def test_spectrum_gram_symmetric_joint_and_diagonal(k, min_k):
    a = random_strings(7, 8, 0, 20)
    b = random_strings(8, 11, 0, 20)
    joint = spectrum_gram(a + b, None, k, DNA, min_k)
    np.testing.assert_array_equal(joint, joint.T)
    np.testing.assert_array_equal(joint[:8, 8:], spectrum_gram(a, b, k, DNA, min_k))
    np.testing.assert_array_equal(joint[:8, :8], spectrum_gram(a, a, k, DNA, min_k))
    same = spectrum_gram(a, list(a), k, DNA, min_k)
    np.testing.assert_array_equal(joint[:8, :8], same)
    np.testing.assert_array_equal(
        np.diag(joint), spectrum_diag(a + b, k, DNA, min_k=min_k)
    )
    features = spectrum_features(a + b, k, DNA, min_k)
    np.testing.assert_array_equal((features @ features.T).toarray(), joint)
    assert_positive_semidefinite(joint)


@pytest.mark.parametrize("share", [0.0, 0.05, 2.0])
@pytest.mark.parametrize("entries", [5, 60, 1 << 22])
@pytest.mark.parametrize("letters, k", [(DNA, 2), (PROTEIN, 10)])
def test_spectrum_gram_does_not_depend_on_blocks(
    monkeypatch, share, entries, letters, k
):
    a = random_strings(9, 15, 0, 25, letters)
    b = random_strings(10, 8, 0, 25, letters)
    # Substrings in common, also for long k-mers.
    a = [s + t[:18] for s, t in zip(a, b + b, strict=False)]
    monkeypatch.setattr(spectrum, "_DENSE_SHARE", share)
    monkeypatch.setattr(spectrum, "_CHUNK_ENTRIES", entries)
    monkeypatch.setattr(spectrum, "_BLOCK_ELEMENTS", min(entries, 40))
    for other in (a, b):
        expected = spectrum_by_definition(a, other, k, k, letters)
        np.testing.assert_array_equal(spectrum_gram(a, other, k, letters), expected)


def test_spectrum_gram_of_large_counts_is_exact():
    # Counts whose products need more than single precision, on dense columns.
    strings = ["A" * 6001, "A" * 5003 + "C", "AC" * 1501]
    expected = spectrum_by_definition(strings, strings, 2, 1, "AC")
    assert expected.max() > 2**25
    np.testing.assert_array_equal(spectrum_gram(strings, None, 2, "AC", 1), expected)


def test_spectrum_gram_of_many_rows_is_symmetric():
    # More rows than are mirrored at a time.
    strings = random_strings(11, 300, 0, 6)
    gram = spectrum_gram(strings, None, 2)
    np.testing.assert_array_equal(gram, spectrum_gram(strings, list(strings), 2))


def test_spectrum_of_short_and_empty_strings_is_zero():
    strings = ["", "A", "AC", "NNN", "ANCNG"]
    features = spectrum_features(strings, 3, DNA)
    assert features.shape == (5, 0)
    assert not spectrum_gram(strings, None, 3, DNA).any()
    assert not spectrum_gram(strings, ["ACGT"], 3, DNA).any()
    assert not spectrum_gram(["ACGT"], strings, 3, DNA).any()
    assert not spectrum_diag(strings, 3, DNA).any()
    assert spectrum_gram([], strings, 3, DNA).shape == (0, 5)
    assert spectrum_gram([], [], 3).shape == (0, 0)
    assert spectrum_gram(["", ""], None, 3).tolist() == [[0, 0], [0, 0]]
    assert spectrum_diag([], 3).shape == (0,)


def test_spectrum_does_not_depend_on_the_alphabet_order_or_its_absence():
    a = random_strings(12, 6, 0, 15, "ΑΒΓ")
    b = random_strings(13, 7, 0, 15, "ΓΔ")
    gram = spectrum_gram(a, b, 2)
    np.testing.assert_array_equal(gram, spectrum_gram(a, b, 2, "ΔΓΒΑ日"))
    np.testing.assert_array_equal(gram, spectrum_by_definition(a, b, 2, 2, "ΑΒΓΔ"))


def test_spectrum_with_the_longest_kmers():
    # 20**14 < 2**63 <= 20**15.
    a = random_strings(14, 5, 14, 40, PROTEIN)
    a += [s[3:] + "ACD" for s in a]
    expected = spectrum_by_definition(a, a, 14, 14, PROTEIN)
    np.testing.assert_array_equal(spectrum_gram(a, None, 14, PROTEIN), expected)
    np.testing.assert_array_equal(spectrum_diag(a, 14, PROTEIN), np.diag(expected))
    for function in (spectrum_diag, spectrum_features, spectrum_vocabulary):
        with pytest.raises(ValueError, match=r"k=15 .* 20 letters .*smaller k"):
            function(a, 15, PROTEIN)
    with pytest.raises(ValueError, match=r"k=15 .* 20 letters .*smaller k"):
        spectrum_gram(a, a, 15, PROTEIN)


def test_spectrum_of_a_single_letter():
    gram = spectrum_gram(["AAAA", "AA"], None, 80, min_k=2)
    assert gram.tolist() == [[9 + 4 + 1, 3], [3, 1]]


def test_spectrum_errors():
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        spectrum_gram(["A"], None, 0)
    with pytest.raises(TypeError, match=r"k must be an integer, got 2\.0"):
        spectrum_diag(["A"], 2.0)
    with pytest.raises(TypeError, match="k must be an integer, got True"):
        spectrum_diag(["A"], True)
    with pytest.raises(ValueError, match="min_k=3 and k=2"):
        spectrum_features(["A"], 2, min_k=3)
    with pytest.raises(TypeError, match=r"strings_a\[0\]"):
        spectrum_gram([None], ["A"], 1)
    with pytest.raises(TypeError, match=r"strings_b\[1\]"):
        spectrum_gram(["A"], ["A", 1], 1)
    with pytest.raises(ValueError, match="alphabet must be given"):
        spectrum_vocabulary(["A"], 1, None)
    with pytest.raises(ValueError, match="alphabet must be given"):
        spectrum_features(["A"], 1, vocabulary=np.array([0]))
    with pytest.raises(ValueError, match="strictly increasing"):
        spectrum_features(["A"], 1, DNA, vocabulary=np.array([1, 1]))
    with pytest.raises(ValueError, match="one-dimensional array of integers"):
        spectrum_features(["A"], 1, DNA, vocabulary=np.array([0.5]))


# ----------------------------------------------------------- weighted degree


@pytest.mark.parametrize("degree", [1, 2, 5, 20])
@pytest.mark.parametrize("shift", [0, 1, 3, 30])
@pytest.mark.parametrize("letters, alphabet", [("ACGTN", DNA), ("AB", None)])
def test_weighted_degree_is_its_definition(degree, shift, letters, alphabet):
    a = random_strings(20, 5, 11, 11, letters)
    b = [*random_strings(21, 3, 11, 11, letters), a[0], a[1][2:] + a[1][:2]]
    expected = [
        [
            weighted_degree_by_definition(x, z, degree, shift, alphabet or letters)
            for z in b
        ]
        for x in a
    ]
    gram = weighted_degree_gram(a, b, degree, shift, alphabet)
    assert gram.dtype == np.float64
    np.testing.assert_allclose(gram, expected, rtol=1e-13, atol=1e-13)


def test_weighted_degree_without_shift_is_the_plain_kernel():
    strings = random_strings(22, 10, 15, 15, "AC")
    degree = 4
    expected = np.zeros((10, 10))
    for d in range(1, degree + 1):
        beta = 2 * (degree - d + 1) / (degree * (degree + 1))
        for start in range(15 - d + 1):
            part = np.array([s[start : start + d] for s in strings])
            expected += beta * (part[:, None] == part)
    gram = weighted_degree_gram(strings, strings, degree, shift=0)
    np.testing.assert_allclose(gram, expected, rtol=1e-13)


@pytest.mark.parametrize("n", [1, 7, 70])
@pytest.mark.parametrize("shift", [0, 4])
def test_weighted_degree_symmetric_joint_and_diagonal(n, shift):
    a = random_strings(23, n, 12, 12, "ACN")
    b = random_strings(24, 6, 12, 12, "ACN")
    joint = weighted_degree_gram(a + b, None, 3, shift, "AC")
    np.testing.assert_array_equal(joint, joint.T)
    np.testing.assert_array_equal(
        joint[:n, n:], weighted_degree_gram(a, b, 3, shift, "AC")
    )
    np.testing.assert_array_equal(
        joint[:n, :n], weighted_degree_gram(a, list(a), 3, shift, "AC")
    )
    np.testing.assert_array_equal(
        np.diag(joint), weighted_degree_diag(a + b, 3, shift, "AC")
    )


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 8, 40])
@pytest.mark.parametrize("letters", ["A", "AC", DNA])
def test_weighted_degree_is_positive_semidefinite(shift, letters):
    # Half of the plain kernel may be taken off: the weights of the shifts have
    # a symbol of at least 1/2.
    strings = random_strings(25, 25, 20, 20, letters)
    strings += [s[1:] + s[:1] for s in strings]
    gram = weighted_degree_gram(strings, None, 4, shift)
    plain = weighted_degree_gram(strings, None, 4)
    assert_positive_semidefinite(plain)
    assert_positive_semidefinite(gram - plain / 2)


@pytest.mark.parametrize("size", range(2, 40, 3))
def test_shift_weights_are_a_positive_definite_sequence(size):
    for shift in range(size):
        _, delta = weighted_degree_weights(1, 1, shift)
        lag = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
        matrix = np.where(lag <= shift, delta[np.minimum(lag, shift)], 0)
        matrix += np.diag(np.diag(matrix))
        assert np.linalg.eigvalsh(matrix)[0] >= 0.5 - 1e-12


@pytest.mark.parametrize("degree", [1, 3, 10, 50])
def test_run_weights_count_the_substrings_of_a_run(degree):
    length = 20
    weights, delta = weighted_degree_weights(length, degree, 2)
    expected = [
        sum(
            2 * (degree - d + 1) / (degree * (degree + 1)) * max(0, b - d + 1)
            for d in range(1, degree + 1)
        )
        for b in range(length + 1)
    ]
    np.testing.assert_allclose(weights, expected, rtol=1e-13)
    np.testing.assert_allclose(delta, [1 / 2, 1 / 4, 1 / 6])
    # One run over the whole length: the diagonal without shifts.
    diag = weighted_degree_diag(["A" * length], degree)
    np.testing.assert_allclose(diag, weights[-1:], rtol=1e-13)


def test_unknown_letters_never_match():
    strings = ["ANC", "ANC", "NNN", "AXC"]
    gram = weighted_degree_gram(strings, None, 2, 1, "AC")
    # Two separate matching letters, each in no matching pair of letters.
    known = 2 * (2 / 3)
    np.testing.assert_allclose(gram[0], [known, known, 0, known])
    assert not gram[2].any()
    np.testing.assert_array_equal(
        weighted_degree_diag(strings, 2, 1, "AC"), np.diag(gram)
    )


def test_weighted_degree_with_unicode_and_without_letters_in_common():
    a = random_strings(26, 4, 9, 9, "日本語")
    b = random_strings(27, 4, 9, 9, "語🧬")
    gram = weighted_degree_gram(a, b, 3, 2)
    expected = [
        [weighted_degree_by_definition(x, z, 3, 2, "日本語🧬") for z in b] for x in a
    ]
    np.testing.assert_allclose(gram, expected, rtol=1e-13, atol=1e-13)
    assert not weighted_degree_gram(["AAA"], ["CCC"], 3, 2).any()
    assert not weighted_degree_gram(["aaa"], ["AAA"], 3, 2).any()


def test_weighted_degree_of_no_or_empty_strings():
    assert weighted_degree_gram([], [], 3, 1).shape == (0, 0)
    assert weighted_degree_gram([], ["ACG"], 3, 1).shape == (0, 1)
    assert weighted_degree_gram(["ACG"], [], 3, 1).shape == (1, 0)
    assert weighted_degree_gram(["", ""], None, 3, 1).tolist() == [[0, 0], [0, 0]]
    assert weighted_degree_diag([], 3).shape == (0,)
    assert weighted_degree_diag([""], 3, 2).tolist() == [0]


def test_weighted_degree_blocks_in_threads():
    a = random_strings(28, 11, 10, 10)
    b = random_strings(29, 7, 10, 10)
    codes_a, _ = encode_matrix(a, DNA)
    codes_b, _ = encode_matrix(b, DNA)
    weights = weighted_degree_weights(10, 4, 2)
    out = np.full((11, 7), np.nan)

    def compute(rows):
        weighted_degree_block(codes_a[rows], codes_b, *weights, out[rows])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compute, [slice(0, 4), slice(4, 8), slice(8, 11)]))
    np.testing.assert_array_equal(out, weighted_degree_gram(a, b, 4, 2, DNA))


def test_weighted_degree_errors():
    with pytest.raises(ValueError, match=r"lengths 2, 3;.*Spectrum"):
        weighted_degree_gram(["AC", "ACG"], None, 2)
    with pytest.raises(ValueError, match=r"lengths 2, 3;.*Spectrum"):
        weighted_degree_gram(["AC"], ["ACG"], 2)
    with pytest.raises(ValueError, match=r"lengths 0, 1, .*9, \.\.\.;"):
        weighted_degree_diag(["A" * size for size in range(30)], 2)
    with pytest.raises(ValueError, match="degree must be at least 1, got 0"):
        weighted_degree_gram(["A"], None, 0)
    with pytest.raises(ValueError, match="shift must be at least 0, got -1"):
        weighted_degree_diag(["A"], 1, shift=-1)
    with pytest.raises(TypeError, match="shift must be an integer, got 'a'"):
        weighted_degree_gram(["A"], None, 1, shift="a")
    with pytest.raises(TypeError, match=r"strings_b\[0\] .* NoneType"):
        weighted_degree_gram(["A"], [None], 1)
