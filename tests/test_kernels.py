"""Kernels against scikit-learn, brute force, and their own invariances."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise

from mklearn.kernels import (
    RBF,
    Chi2,
    Cosine,
    Function,
    HistogramIntersection,
    KernelBank,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    MultiView,
    Polynomial,
    Precomputed,
    Spectrum,
    Tanimoto,
    WeightedDegree,
    functions,
    per_feature,
    per_view,
    rbf_ladder,
)
from mklearn.kernels.spectrum import spectrum_gram
from mklearn.kernels.weighted_degree import weighted_degree_gram

rng = np.random.default_rng(0)
X = rng.gamma(1.0, size=(23, 5)) * (rng.random((23, 5)) < 0.7)  # some zeros
Z = rng.gamma(1.0, size=(7, 5)) * (rng.random((7, 5)) < 0.7)
X[4] = 0.0  # an empty histogram
X[5] = X[6]  # duplicates


def minima(A, B):
    return np.minimum(A[:, None], B[None]).sum(axis=2)


def tanimoto(A, B):
    both = (A[:, None] * B[None]).sum(axis=2)
    union = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - both
    return np.where(union > 0, both / np.where(union > 0, union, 1.0), 1.0)


def gaussian_process(kernel):
    return lambda A, B: kernel(A, B)


FORMULAS = [
    (Linear(), pairwise.linear_kernel),
    (
        Polynomial(3, 0.5, 2.0),
        lambda A, B: pairwise.polynomial_kernel(A, B, 3, 0.5, 2.0),
    ),
    (Polynomial(7, coef0=0), lambda A, B: (A @ B.T) ** 7),
    (RBF(0.3), lambda A, B: pairwise.rbf_kernel(A, B, 0.3)),
    (Laplacian(0.2), lambda A, B: pairwise.laplacian_kernel(A, B, 0.2)),
    (Chi2(0.4), lambda A, B: pairwise.chi2_kernel(A, B, 0.4)),
    (Cosine(), pairwise.cosine_similarity),
    (HistogramIntersection(), minima),
    (Tanimoto(), tanimoto),
    (Matern32(3**0.5 / 2), gaussian_process(gp.Matern(2.0, nu=1.5))),
    (Matern52(5**0.5 / 2), gaussian_process(gp.Matern(2.0, nu=2.5))),
    (RBF(1 / 8), gaussian_process(gp.RBF(2.0))),
]
IDS = [kernel.label() for kernel, _ in FORMULAS]


@pytest.mark.parametrize(("kernel", "formula"), FORMULAS, ids=IDS)
@pytest.mark.parametrize("kind", [np.array, sparse.csr_array, sparse.csr_matrix])
def test_formula(kernel, formula, kind):
    bank = KernelBank(kind(X), kernel)
    np.testing.assert_allclose(bank.gram(0), formula(X, X), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        bank.cross(kind(Z)).gram(0), formula(Z, X), rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(
        bank.cross(kind(Z)).diag()[:, 0], np.diag(formula(Z, Z)), rtol=1e-11
    )


@pytest.mark.parametrize(("kernel", "formula"), FORMULAS, ids=IDS)
def test_positive_semidefinite(kernel, formula):
    values = np.linalg.eigvalsh(KernelBank(X, kernel).gram(0))
    assert values[0] >= -1e-12 * values[-1]
    assert kernel.definite


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool, object])
def test_input_dtypes_are_numbers(dtype):
    data = np.round(X).astype(dtype)
    kernels = [kernel for kernel, _ in FORMULAS]
    mine, theirs = KernelBank(data, kernels), KernelBank(data.astype(float), kernels)
    theta = np.arange(1.0, len(kernels) + 1)
    np.testing.assert_array_equal(mine.combine(theta), theirs.combine(theta))


def test_dense_and_sparse_may_meet():
    kernels = [kernel for kernel, _ in FORMULAS]
    theta = np.ones(len(kernels))
    expected = KernelBank(X, kernels).cross(Z).combine(theta)
    for train, new in [(X, sparse.csr_array(Z)), (sparse.csr_array(X), Z)]:
        got = KernelBank(train, kernels).cross(new).combine(theta)
        np.testing.assert_allclose(got, expected, rtol=1e-11)


def test_sparse_input_may_list_entries_twice_and_stays_as_it_is():
    data = sparse.csr_array(
        (np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), (2, 2)
    )
    K = KernelBank(data, [Linear(), Laplacian(1.0), HistogramIntersection()])
    np.testing.assert_array_equal(K.gram(0), [[9, 0], [0, 16]])
    np.testing.assert_allclose(K.gram(1)[0, 1], np.exp(-7))
    np.testing.assert_array_equal(K.gram(2), [[3, 0], [0, 4]])
    assert data.nnz == 3


def test_far_from_the_origin_distances_keep_their_digits():
    D = KernelBank(X + 1e6, RBF(0.3)).gram(0)
    np.testing.assert_allclose(D, pairwise.rbf_kernel(X, X, 0.3), atol=1e-8)


def test_input_is_not_changed():
    data, weight = X.copy(), np.ones(len(X))
    bank = KernelBank(data, "auto", sample_weight=weight).stored()
    bank.cross(data).combine(np.ones(bank.shape[2]))
    np.testing.assert_array_equal(data, X)
    np.testing.assert_array_equal(weight, 1.0)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 5e-15), (np.float32, 3e-7)])
def test_exponentials_are_accurate(dtype, rtol):
    largest = 700.0 if dtype is np.float64 else 86.0
    s = np.concatenate([[0.0], np.geomspace(1e-8, largest, 5000)]).astype(dtype)
    out = np.empty((1, len(s)), dtype=dtype)
    functions.exponential_map(s[None], np.array([1.0, 0.0, 0.0, 0.0]), out)
    assert out[0, 0] == 1.0
    # s itself is rounded in the exponent, which costs s * eps
    error = np.abs(out[0] / np.exp(-s.astype(np.float64)) - 1.0)
    assert (error <= rtol + s * np.finfo(dtype).eps).all()
    functions.exponential_map(s[None] * 1e3, np.array([1.0, 0.0, 0.0, 0.0]), out)
    assert (out >= 0).all() and out[0, -1] < 1e-30


# --- where kernels look ---------------------------------------------------------------

FRAME = pd.DataFrame(X, columns=list("abcde"))


@pytest.mark.parametrize(
    "columns",
    [
        [1, 3], (1, 3), np.array([1, 3]), range(1, 4, 2), slice(1, 4, 2), [-4, -2],
        ["b", "d"], pd.Index(["b", "d"]), ["b", 3], [False, True, False, True, False],
    ],
    ids=str,
)  # fmt: skip
def test_columns(columns):
    expected = KernelBank(X[:, [1, 3]], RBF(0.5))
    bank = KernelBank(FRAME, RBF(0.5, columns=columns))
    np.testing.assert_allclose(bank.gram(0), expected.gram(0), rtol=1e-13)
    np.testing.assert_allclose(
        bank.cross(Z).gram(0), expected.cross(Z[:, [1, 3]]).gram(0)
    )
    bank = KernelBank(
        MultiView({"A": np.ones((23, 1)), "B": FRAME}),
        RBF(0.5, columns=columns, view="B"),
    )
    np.testing.assert_allclose(bank.gram(0), expected.gram(0), rtol=1e-13)


@pytest.mark.parametrize("column", [2, np.int64(2), "c", -3])
def test_single_column(column):
    bank = KernelBank(FRAME, Linear(columns=column))
    np.testing.assert_allclose(bank.gram(0), np.outer(X[:, 2], X[:, 2]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (5, "out of range: view 'X' has 5"),
        ("z", "'z' is not in view 'X'"),
        ([], "uses no column"),
        (slice(3, 3), "uses no column"),
        ([True, False], "has 5 columns, got"),
        ([0.5], "by index or name"),
    ],
)
def test_bad_columns(columns, message):
    with pytest.raises(ValueError, match=message):
        KernelBank(FRAME, Linear(columns=columns))


def test_column_names_must_tell_columns_apart():
    frame = pd.DataFrame(X, columns=list("aabcd"))
    with pytest.raises(ValueError, match="2 columns called 'a'"):
        KernelBank(frame, Linear(columns="a"))
    assert KernelBank(frame, per_feature("linear")).shape == (23, 23, 5)


def test_views():
    data = MultiView({"one": X[:, :2], "two": X[:, 2:]})
    bank = KernelBank(data, [Linear(view="two"), Linear(view="one")])
    np.testing.assert_allclose(bank.gram(0), X[:, 2:] @ X[:, 2:].T)
    np.testing.assert_allclose(bank.gram(1), X[:, :2] @ X[:, :2].T)
    with pytest.raises(ValueError, match="does not say which"):
        KernelBank(data, Linear())
    with pytest.raises(ValueError, match="Unknown view 'three'"):
        KernelBank(data, Linear(view="three"))
    with pytest.raises(ValueError, match="lack view 'two'"):
        bank.cross(MultiView({"one": X[:, :2]}))
    with pytest.raises(ValueError, match="had 3 columns in training but has 2"):
        bank.cross(MultiView({"one": X[:, :2], "two": X[:, :2]}))
    # views that no kernel looks at may be missing
    np.testing.assert_allclose(
        bank.select([0]).cross(MultiView({"two": Z[:, 2:]})).gram(0),
        Z[:, 2:] @ X[:, 2:].T,
    )


def test_new_samples_must_look_like_the_training_samples():
    bank = KernelBank(FRAME, Linear())
    with pytest.raises(ValueError, match="had 5 columns in training but has 4"):
        bank.cross(Z[:, :4])
    with pytest.raises(ValueError, match="in name or in order"):
        bank.cross(pd.DataFrame(Z, columns=list("bacde")))
    with pytest.raises(
        ValueError, match="contained numbers in training but contains strings"
    ):
        bank.cross(["ACGT"])
    with pytest.raises(ValueError, match=r"now\. Missing: 'e'\.$"):
        bank.cross(FRAME[list("abcd")])
    with pytest.raises(ValueError, match=r"Missing: 'd'\. New: 'D'\."):
        bank.cross(FRAME.rename(columns={"d": "D"}))
    assert bank.cross(Z[:0]).combine([1.0]).shape == (0, 23)
    assert KernelBank(MultiView({"A": X}), Linear()).cross(Z).shape == (7, 23, 1)


# --- sequences, look-up, functions ----------------------------------------------------

STRINGS = ["".join(rng.choice(list("ACGT"), 12)) for _ in range(9)]
OTHERS = ["".join(rng.choice(list("ACGTN"), 12)) for _ in range(4)]


def test_sequence_kernels():
    bank = KernelBank(STRINGS, [Spectrum(2), Spectrum(3, 1), WeightedDegree(4, 2)])
    expected = [
        lambda a, b: spectrum_gram(a, b, 2, "ACGT"),
        lambda a, b: spectrum_gram(a, b, 3, "ACGT", 1),
        lambda a, b: weighted_degree_gram(a, b, 4, 2, "ACGT"),
    ]
    for m, gram in enumerate(expected):
        np.testing.assert_allclose(bank.gram(m), gram(STRINGS, STRINGS))
        np.testing.assert_allclose(bank.cross(OTHERS).gram(m), gram(OTHERS, STRINGS))
        np.testing.assert_allclose(
            bank.cross(OTHERS).diag()[:, m], np.diag(gram(OTHERS, OTHERS))
        )
        np.testing.assert_allclose(bank.stored().gram(m), bank.gram(m))


def test_sequence_kernels_say_what_they_need():
    with pytest.raises(
        ValueError, match="needs strings, but view 'X' contains numbers"
    ):
        KernelBank(X, Spectrum(2))
    with pytest.raises(
        ValueError, match="needs numbers, but view 'X' contains strings"
    ):
        KernelBank(STRINGS, "rbf")
    with pytest.raises(ValueError, match="lengths from 1 to 12"):
        KernelBank([*STRINGS, "A"], WeightedDegree(2))
    with pytest.raises(ValueError, match="contains strings and has no columns"):
        KernelBank(STRINGS, Spectrum(2, columns=0))


def test_precomputed_looks_up_rows_of_a_gram():
    full = np.vstack([X, Z])
    K = full @ full.T
    data = MultiView({"X": X, "number": np.arange(23)})
    kernels = [Linear(view="X"), Precomputed(gram=K, view="number")]
    bank = KernelBank(data, kernels)
    np.testing.assert_allclose(bank.gram(1), bank.gram(0))
    cross = bank.cross(MultiView({"X": Z, "number": np.arange(23, 30)}))
    np.testing.assert_allclose(cross.gram(1), cross.gram(0))
    np.testing.assert_allclose(cross.diag()[:, 1], cross.diag()[:, 0])
    numbers = sparse.csr_array(np.arange(23.0)[:, None])
    by_number = KernelBank(numbers, Precomputed(gram=K))
    np.testing.assert_allclose(by_number.gram(0), K[:23, :23])
    for wrong in (np.arange(30) + 1, np.arange(3) - 1, [0.5], np.ones((3, 2))):
        with pytest.raises(ValueError, match="row indices from 0 to 29 in one column"):
            KernelBank(wrong, Precomputed(gram=K))
    for gram in (K[:3], [[np.nan]], np.eye(2) * 1j, None):
        with pytest.raises(ValueError, match="Precomputed"):
            Precomputed(gram=gram)


def test_callables():
    def product(A, B):
        return A @ B.T

    for data in (X, sparse.csr_array(X)):
        bank = KernelBank(data, [product, Function(product, columns=[1, 2])])
        np.testing.assert_allclose(bank.gram(0), X @ X.T)
        np.testing.assert_allclose(bank.gram(1), X[:, 1:3] @ X[:, 1:3].T)
        np.testing.assert_allclose(bank.diag()[:, 0], (X**2).sum(axis=1))
        assert bank.names == ("product", "product[1,2]")
    bank = KernelBank(
        STRINGS, lambda A, B: np.array([[float(a[0] == b[0]) for b in B] for a in A])
    )
    assert set(np.unique(bank.gram(0))) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: A, r"returned shape \(\d+, 5\) for \d+ x 23"),
        (lambda A, B: np.full((len(A), len(B)), np.nan), "NaN or infinity"),
        (lambda A, B: A @ B.T * 1j, "dtype complex128"),
    ],
)
def test_bad_callables(function, message):
    with pytest.raises(ValueError, match=message):
        KernelBank(X, function).gram(0)


@pytest.mark.parametrize(
    "kernel",
    [
        gp.RBF(1.5) * gp.ConstantKernel(2.0),
        gp.RationalQuadratic() + gp.DotProduct(),
        gp.Matern([1.0, 2.0, 3.0, 1.0, 2.0], nu=0.5),
    ],
    ids=str,
)
def test_gaussian_process_kernels(kernel):
    bank = KernelBank(X, kernel)
    np.testing.assert_allclose(bank.gram(0), kernel(X), rtol=1e-12)
    np.testing.assert_allclose(bank.diag()[:, 0], kernel.diag(X), rtol=1e-12)
    np.testing.assert_allclose(bank.cross(Z).gram(0), kernel(Z, X), rtol=1e-12)


def test_white_noise_is_left_out_of_grams_and_diagonal_alike():
    bank = KernelBank(X, gp.RBF() + gp.WhiteKernel())
    np.testing.assert_allclose(bank.diag()[:, 0], np.diag(bank.gram(0)))


# --- families and names ---------------------------------------------------------------


def test_rbf_ladder():
    assert [k.gamma for k in rbf_ladder(gammas=[1, 2])] == [1.0, 2.0]
    for convention, divisor in [("2sigma^2", 18.0), ("sigma^2", 9.0), ("sigma", 3.0)]:
        [kernel] = rbf_ladder(sigmas=[3], convention=convention)
        assert kernel.gamma == pytest.approx(1 / divisor)
    bank = KernelBank(X, rbf_ladder(5, spread=16.0))
    gammas = np.array([kernel.gamma for kernel in bank.kernels])
    np.testing.assert_allclose(gammas[1:] / gammas[:-1], 2.0)
    middle = KernelBank(X, RBF("median")).kernels[0].gamma
    np.testing.assert_allclose(gammas[2], middle)
    for wrong in (
        {"sigmas": [1.0]}, {"sigmas": [0.0], "convention": "sigma"}, {"n": 0},
        {"gammas": [1.0], "sigmas": [1.0]}, {"spread": 0.5},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            rbf_ladder(**wrong)


def test_per_feature():
    bank = KernelBank(
        FRAME, per_feature(RBF(0.5), Linear(columns=["b", "e"], name="L"))
    )
    assert bank.names == (
        *(f"rbf(gamma=0.5)[{c}]" for c in "abcde"), "L[b]", "L[e]",
    )  # fmt: skip
    np.testing.assert_allclose(bank.gram(6), np.outer(X[:, 4], X[:, 4]))
    # a product over features of RBF kernels is the RBF kernel of all
    product = np.prod([bank.gram(m) for m in range(5)], axis=0)
    np.testing.assert_allclose(product, KernelBank(X, RBF(0.5)).gram(0))


def test_per_view():
    data = MultiView({"seq": STRINGS, "num": X[:9], "more": X[:9, :2]})
    bank = KernelBank(data, per_view("linear", Spectrum(2)))
    assert bank.names == ("seq:spectrum(k=2)", "num:linear", "more:linear")
    bank = KernelBank(data, per_view(Linear(name="L"), views=["more"]))
    assert bank.names == ("more:L",)
    with pytest.raises(ValueError, match="needs numbers, but view 'seq'"):
        KernelBank(data, per_view("linear", views=["seq"]))


def test_auto():
    data = MultiView({"seq": STRINGS, "num": X[:9]})
    bank = KernelBank(data)
    assert bank.names == (
        "seq:spectrum(k=1)", "seq:spectrum(k=2)", "seq:spectrum(k=3)",
        "seq:weighteddegree(degree=3, shift=0)",
        "seq:weighteddegree(degree=3, shift=2)",
        "num:linear", "num:rbf(0.0625/scale)", "num:rbf(0.25/scale)",
        "num:rbf(1/scale)", "num:rbf(4/scale)", "num:rbf(16/scale)",
    )  # fmt: skip
    # the scale of columns does not matter
    scaled = KernelBank(X * [1, 1e-20, 1e20, 3, 5] + [0, 0, 0, 7, 0])
    plain = KernelBank(X)
    for m in range(6):
        np.testing.assert_allclose(scaled.gram(m), plain.gram(m), rtol=1e-9, atol=1e-12)


def test_names_are_unique_and_do_not_depend_on_data():
    kernels = [RBF(), RBF(), RBF(name="rbf(1/median)#2"), "rbf", RBF(factor=2.0)]
    one, two = KernelBank(X, kernels), KernelBank(2 * X, kernels)
    assert len(set(one.names)) == 5
    assert one.names == two.names
    assert one.names[2] == "rbf(1/median)#2"
    assert one.kernels[0].gamma != two.kernels[0].gamma


def test_kernel_lists():
    assert KernelBank(X, ["linear", ["rbf", [Cosine()]]]).shape[2] == 3
    assert KernelBank(X, "histogram_intersection").shape[2] == 1
    for wrong, error in [
        ([], ValueError), ("rfb", ValueError), (["auto"], ValueError),
        (RBF, TypeError), ([3], TypeError), (None, TypeError),
    ]:  # fmt: skip
        with pytest.raises(error):
            KernelBank(X, wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RBF(0), lambda: RBF(-1.0), lambda: RBF(np.nan), lambda: RBF("wide"),
        lambda: RBF(None), lambda: RBF(1.0, factor=0), lambda: Polynomial(0),
        lambda: Polynomial(2.5), lambda: Polynomial(2, -1.0),
        lambda: Polynomial(2, coef0=-1.0), lambda: Spectrum(0), lambda: Spectrum(2, 3),
        lambda: WeightedDegree(0), lambda: WeightedDegree(2, -1),
    ],
)  # fmt: skip
def test_bad_parameters(make):
    with pytest.raises(ValueError, match=r"needs|must be a positive number"):
        make()


@pytest.mark.parametrize("name", ["chi2", "histogramintersection", "tanimoto"])
@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_histograms_are_not_negative(name, kind):
    with pytest.raises(ValueError, match="needs non-negative columns"):
        KernelBank(kind(X - 1.0), name)
    with pytest.raises(ValueError, match="needs non-negative columns"):
        KernelBank(kind(X), name).cross(kind(Z - 1.0))


# --- parameters found in the data -----------------------------------------------------


@pytest.mark.parametrize("cls", [RBF, Laplacian, Chi2, Matern32, Matern52])
@pytest.mark.parametrize("gamma", ["median", "scale"])
@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_whole_weights_are_repeats(cls, gamma, kind):
    weight = rng.integers(0, 4, len(X))
    weighted = KernelBank(kind(X), cls(gamma), sample_weight=weight).kernels[0]
    repeated = KernelBank(kind(np.repeat(X, weight, axis=0)), cls(gamma)).kernels[0]
    assert weighted.gamma == pytest.approx(repeated.gamma, rel=1e-12)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_standardising_with_weights_is_that_of_repeats(kind):
    weight = rng.integers(0, 4, len(X))
    kernels = [RBF(0.1, standardize=True), Linear(standardize=True)]
    bank = KernelBank(kind(X), kernels, sample_weight=weight)
    repeated = KernelBank(kind(np.repeat(X, weight, axis=0)), kernels)
    for m in range(2):
        np.testing.assert_allclose(
            bank.cross(kind(Z)).gram(m).repeat(weight, axis=1),
            repeated.cross(kind(Z)).gram(m),
            rtol=1e-10, atol=1e-12,
        )  # fmt: skip


def test_standardising_is_that_of_the_training_samples():
    S = (X - X.mean(axis=0)) / X.std(axis=0)
    bank = KernelBank(X, [Linear(standardize=True), RBF(0.1, standardize=True)])
    np.testing.assert_allclose(bank.gram(0), S @ S.T, atol=1e-12)
    np.testing.assert_allclose(
        bank.cross(Z).gram(0), (Z - X.mean(axis=0)) / X.std(axis=0) @ S.T, atol=1e-12
    )
    sparse_bank = KernelBank(sparse.csr_array(X), RBF(0.1, standardize=True))
    np.testing.assert_allclose(sparse_bank.gram(0), bank.gram(1), rtol=1e-10)


def test_median_and_scale_are_what_they_say():
    from scipy.spatial.distance import pdist

    d = pdist(X, "sqeuclidean")
    d = np.sort(d[d > 0])
    gamma = KernelBank(X, RBF("median")).kernels[0].gamma
    assert d[(len(d) - 1) // 2] == pytest.approx(1 / gamma)
    scale = KernelBank(X, RBF("scale", 3.0)).kernels[0].gamma
    assert pairwise.euclidean_distances(X, squared=True).mean() == pytest.approx(
        3 / scale
    )
    # the width follows the scale of the data, so that the kernel does not
    for cls in (RBF, Laplacian, Matern32, Matern52):
        for gamma in ("median", "scale"):
            np.testing.assert_allclose(
                KernelBank(100 * X, cls(gamma)).gram(0),
                KernelBank(X, cls(gamma)).gram(0),
            )


def test_many_samples_have_about_the_median_of_all():
    data = rng.normal(size=(2500, 3))
    from scipy.spatial.distance import pdist

    gamma = KernelBank(data, RBF("median")).kernels[0].gamma
    assert np.median(pdist(data, "sqeuclidean")) == pytest.approx(1 / gamma, rel=0.1)


def test_a_factor_multiplies_a_given_gamma_too():
    np.testing.assert_allclose(
        KernelBank(X, RBF(0.2, 3.0)).gram(0), KernelBank(X, RBF(0.6)).gram(0)
    )


@pytest.mark.parametrize("data", [np.ones((4, 2)), np.ones((1, 3))])
def test_samples_that_are_all_equal(data):
    kernels = ["rbf", "laplacian", "matern32", RBF("scale"), RBF(standardize=True)]
    bank = KernelBank(data, kernels)
    for m in range(len(kernels)):
        np.testing.assert_array_equal(bank.gram(m), 1.0)
    auto = KernelBank(data)
    np.testing.assert_array_equal(auto.gram(0), 0.0)


# --- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.array([[1.0, np.nan]]), "NaN or infinity in 1 entry"),
        (np.array([[np.inf], [1.0]]), "NaN or infinity"),
        (np.empty((0, 3)), "0 sample"),
        (np.empty((3, 0)), "at least one column"),
        (np.ones((2, 2, 2)), "shape"),
        (np.ones((2, 2)) * 1j, "Complex data not supported"),
        (np.array([["a", "b"]]), "neither numeric nor"),
        (np.array([[1, "x"]], dtype=object), "neither numeric nor"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "has times instead"),
        (sparse.csr_array(np.array([[np.nan, 0.0]])), "NaN or infinity"),
        (sparse.csr_array(np.array([[1j, 0.0]])), "Complex data not supported"),
        (sparse.csr_array((3, 0)), "at least one column"),
        (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "not numeric"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "NaN or infinity"),
        (pd.DataFrame({"a": [1j, 2.0]}), "Complex data not supported"),
        (np.array([[1e200], [0.0]]), "overflows"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_data(data, message):
    with pytest.raises(ValueError, match=message):
        KernelBank(data, RBF(1.0))


@pytest.mark.parametrize(
    "weight", [np.ones(3), np.full(23, -1.0), np.zeros(23), np.full(23, np.nan)]
)
def test_bad_weights(weight):
    with pytest.raises(ValueError, match="sample_weight"):
        KernelBank(X, "rbf", sample_weight=weight)
