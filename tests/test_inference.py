"""Tests of kernels: tails against other formulas, statistics against definitions."""

import inspect
import warnings

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import beta, binomtest, chi2, f, kstest, norm

from mklearn import (
    EvidenceMKLRegressor,
    KernelBank,
    MKLRegressor,
    MultiView,
    kernels,
)
from mklearn.data.covariates import Covariates
from mklearn.inference import (
    TestedKernels,
    forms,
    hierarchical_tests,
    kernel_tests,
    nulls,
    ratio_tail,
    tail_probability,
)
from mklearn.inference.tails import largest_ratio_tail, weight_ratios
from mklearn.interpretation import weight_stability
from mklearn.kernels.normalise import fit_normaliser
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.laplace import Reduced, Whole

LEVELS = [0.999, 0.5, 0.05, 1e-3, 1e-6, 1e-9, 1e-12, 1e-30]


@pytest.mark.parametrize("p", LEVELS)
@pytest.mark.parametrize("count", [1, 2, 3, 20, 500])
def test_equal_weights_are_a_chi_square(count, p):
    q = chi2.isf(p, count)
    expected = chi2.sf(3.0 * q / 3.0, count)
    assert tail_probability(3.0 * q, [3.0], [count]) == pytest.approx(expected, 1e-8)
    assert tail_probability(q, np.ones(count)) == pytest.approx(expected, 1e-8)


@pytest.mark.parametrize("p", LEVELS)
@pytest.mark.parametrize("a, b", [(1, 2), (3, 20), (10, 200), (1, 1000), (40, 5)])
def test_ratio_of_sums_of_squares_is_a_beta(a, b, p):
    r = beta.isf(p, a / 2, b / 2)
    if not 0 < r < 1 - 1e-9:  # so near one that beta.sf itself has no digits
        pytest.skip("the quantile rounds to the end of the interval")
    assert ratio_tail(r, [1.0, 0.0], [a, b]) == pytest.approx(
        beta.sf(r, a / 2, b / 2), rel=1e-7
    )


@pytest.mark.parametrize("negative", [0, 2, 4])
@pytest.mark.parametrize("p", [0.3, 1e-4, 1e-9, 1e-12])
def test_pairs_of_weights_have_a_closed_form(negative, p):
    """Partial fractions of the moment generating function, with 60 digits.

    A weight that stands twice is an exponential variable; for q > 0 the tail is a sum
    of exponentials with coefficients that cancel in double precision.
    """
    mpmath = pytest.importorskip("mpmath")
    w = np.random.default_rng(negative).exponential(size=8)
    w[:negative] *= -1
    low, high = 0.0, 100.0 * np.abs(w).sum()
    for _ in range(60):  # a q with about this tail
        q = 0.5 * (low + high)
        low, high = (q, high) if tail_probability(q, w, [2] * 8) > p else (low, q)
    with mpmath.workdps(60):
        exact = [mpmath.mpf(float(x)) for x in w]
        expected = mpmath.mpf(0)
        for i, mine in enumerate(exact):
            if mine > 0:
                term = mpmath.exp(-mpmath.mpf(q) / (2 * mine))
                for j, other in enumerate(exact):
                    term *= mine / (mine - other) if j != i else 1
                expected += term
    assert tail_probability(q, w, [2] * 8) == pytest.approx(float(expected), rel=1e-8)


def test_tails_of_indefinite_forms_agree_with_draws():
    w = np.array([1.0, 0.5, -0.3, 0.1, -0.8])
    draws = np.random.default_rng(0).standard_normal((400_000, 5)) ** 2 @ w
    for q in (-4.0, -1.0, 0.0, 1.0, 4.0, 8.0):
        p = tail_probability(q, w)
        assert abs(np.mean(draws > q) - p) < 5.0 * (p * (1 - p) / len(draws)) ** 0.5
        other = tail_probability(-q, -w)
        assert p + other == pytest.approx(1.0, abs=1e-9)


def test_tails_without_anything_to_integrate():
    assert tail_probability(1.0, [0.0]) == 0.0
    assert tail_probability(-1.0, []) == 1.0
    assert tail_probability(1.0, [-1.0]) == 0.0
    assert ratio_tail(2.0, [1.0, 0.5]) == 0.0 and ratio_tail(0.1, [1.0, 0.5]) == 1.0
    with pytest.raises(ValueError, match="finite"):
        tail_probability(1.0, [np.nan])


# --- score tests ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X, Z = rng.standard_normal((60, 4)), rng.standard_normal((60, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * Z[:, 1] + rng.standard_normal(60)
    return X, Z, y


def f_test(x, y, Z):
    """Return the p-value of one more column in a linear model."""
    F = np.column_stack([np.ones(len(y)), Z])
    U = null_space(F.T)
    x, y = U.T @ x, U.T @ y
    share = (x @ y) ** 2 / (x @ x) / (y @ y)
    free = len(y) - 1
    return f.sf(free * share / (1 - share), 1, free)


def test_a_linear_kernel_of_one_column_is_the_f_test(data):
    X, Z, y = data
    found = kernel_tests(X, y, kernels.per_feature("linear"), fixed=Z)
    expected = [f_test(X[:, j], y, Z) for j in range(4)]
    assert found.p_values == pytest.approx(expected, rel=1e-7)


def test_statistic_is_its_definition(data):
    X, Z, y = data
    bank = KernelBank(X, ["rbf", "linear"])
    K = np.stack([bank.gram(0), bank.gram(1)], axis=2)
    found = kernel_tests(K, y, "precomputed", fixed=Z)
    F = np.column_stack([np.ones(60), Z])
    P = np.eye(60) - F @ np.linalg.pinv(F)
    for m in range(2):
        e = P @ y
        values = np.linalg.eigvalsh(P @ K[:, :, m] @ P)[3:]  # three are those of F
        ratio = e @ K[:, :, m] @ e / (e @ e)
        assert found.p_values[m] == pytest.approx(ratio_tail(ratio, values), rel=1e-7)


@pytest.mark.parametrize("labels", [False, True], ids=["numbers", "classes"])
@pytest.mark.parametrize("given", ["covariates", "others"])
def test_order_scale_and_covariates_change_nothing(data, labels, given):
    X, Z, y = data
    rng = np.random.default_rng(0)
    y = np.where(y > 0, "yes", "no") if labels else y
    bank = KernelBank(X, kernels.per_feature(kernels.RBF(0.5)))
    K = np.stack([bank.gram(m) for m in range(3)], axis=2)
    first = kernel_tests(K, y, "precomputed", fixed=Z, given=given)
    order = rng.permutation(60)
    K2 = K[np.ix_(order, order)] * np.array([3.0, 0.1, 1e4])
    mixed = Z[order] @ rng.standard_normal((2, 2)) + 5.0
    moved = y[order]
    if not labels:
        moved = 7.0 * moved + Z[order, 0] - 3.0
    again = kernel_tests(K2, moved, "precomputed", fixed=mixed, given=given)
    # other weights are found up to what their likelihood leaves open
    assert again.p_values == pytest.approx(
        first.p_values, rel=1e-6 if given == "covariates" else 2e-2
    )


def test_without_others_both_nulls_are_the_same(data):
    X, _, y = data
    noise = np.random.default_rng(7).permutation(y)  # no kernel gets weight
    K = KernelBank(X, kernels.per_feature(kernels.RBF(0.5)))
    grams = np.stack([K.gram(m) for m in range(2)], axis=2)
    alone = kernel_tests(grams, noise, "precomputed")
    given = kernel_tests(grams, noise, "precomputed", given="others")
    assert (alone.p_values > 0.3).all()  # so that REML has all weights zero
    assert given.p_values == pytest.approx(alone.p_values, rel=1e-6)


def test_of_two_equal_kernels_neither_adds_to_the_other(data):
    X, _, y = data
    K = KernelBank(X, [kernels.RBF(0.5, columns=[0]), kernels.RBF(0.5, columns=[0])])
    grams = np.stack([K.gram(0), K.gram(1)], axis=2)
    assert (kernel_tests(grams, y, "precomputed").p_values < 0.01).all()
    given = kernel_tests(grams, y, "precomputed", given="others")
    assert given.p_values.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("labels", [False, True], ids=["numbers", "classes"])
def test_permutations_agree_with_computed_tails(data, labels):
    X, Z, y = data
    y = (y > 0).astype(int) if labels else y
    family = kernels.per_feature(kernels.RBF(0.5))
    exact = kernel_tests(X, y, family, fixed=Z)
    drawn = kernel_tests(
        X, y, family, fixed=Z, method="permutation", n_permutations=1999
    )
    assert drawn.statistic == pytest.approx(exact.statistic, rel=1e-9)
    # residuals of 60 samples are exchangeable up to about 1 / sqrt(60) of their spread
    slack = 5 * np.sqrt(exact.p_values * (1 - exact.p_values) / 1999) + 1 / 2000
    assert (
        np.abs(drawn.p_values - exact.p_values) < slack + 0.25 * exact.p_values
    ).all()
    assert drawn.resolution == 1 / 2000 and exact.resolution == 0
    assert (drawn.joint >= drawn.p_values).all()


@pytest.mark.parametrize("size", [0.4, 0.6, 1.0, 2.0])
def test_likelihood_ratio_of_a_balanced_layout_is_the_f_test(size):
    """With equal eigenvalues the ratio is a function of F alone, where F is above 1.

    That far out in the tail, too, and the error that is told is the error there is.
    """
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(10), 6)
    Z = (groups[:, None] == np.arange(10)).astype(float)
    y = Z @ rng.standard_normal(10) * size + rng.standard_normal(60)
    found = kernel_tests((Z @ Z.T)[:, :, None], y, "precomputed", method="lr")
    means = Z.T @ y / 6
    between = 6 * np.sum((means - y.mean()) ** 2) / 9
    within = np.sum((y - Z @ means) ** 2) / 50
    expected = f.sf(between / within, 9, 50)
    assert abs(found.p_values[0] - expected) < 5 * found.error[0]
    assert found.error[0] < 0.25 * expected


def test_likelihood_ratio_has_the_level_of_its_null():
    """Draws of the null itself, in the coordinates of the eigenvectors."""
    rng = np.random.default_rng(0)
    values, rest, steps = 0.5 ** np.arange(8), 20, np.append(0, np.logspace(-3, 3, 40))
    drawn = weight_ratios(
        rng.standard_normal((40_000, 8)) ** 2, rng.chisquare(rest, 40_000), values,
        rest, steps,
    ).max(axis=1)  # fmt: skip
    for level in (0.1, 0.01):
        cut = float(np.quantile(drawn, 1 - level))
        p, error = largest_ratio_tail(cut, values, rest, steps, rng)
        spread = np.hypot(error, (level * (1 - level) / 40_000) ** 0.5)
        assert abs(p - level) < 5 * spread


def test_null_p_values_are_uniform():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((40, 2)), rng.standard_normal((40, 1))
    bank = KernelBank(X, [kernels.RBF(0.5), kernels.RBF(0.05)])
    K = np.stack([bank.gram(m) for m in range(2)], axis=2)
    p = [
        kernel_tests(K, Z[:, 0] + rng.standard_normal(40), "precomputed", fixed=Z)
        .p_values[0]
        for _ in range(200)
    ]  # fmt: skip
    assert kstest(p, "uniform").pvalue > 1e-4


def test_adjusted_p_values():
    X = np.random.default_rng(0).standard_normal((30, 4))
    found = kernel_tests(X, X[:, 0] ** 3 + X[:, 1], kernels.per_feature("linear"))
    p, order = found.p_values, np.argsort(found.p_values)
    holm = found.adjusted("holm")
    assert holm[order[0]] == pytest.approx(min(1, 4 * p[order[0]]))
    assert (holm <= found.adjusted("bonferroni") + 1e-15).all() and (holm >= p).all()
    assert (found.adjusted("bh") <= found.adjusted("by")).all()
    frame = found.frame("bh")
    assert list(frame["kernel"]) == list(found.names)
    assert frame["p (bh)"].to_numpy() == pytest.approx(found.adjusted("bh"))
    with pytest.raises(ValueError, match="permutation"):
        found.adjusted("joint")
    with pytest.raises(ValueError, match="control"):
        found.adjusted("fdr")


# --- permutations and subjects --------------------------------------------------------


def test_subjects_with_one_label_are_permuted_as_a_whole():
    """Each subject gives four equal samples: without groups anything is significant."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((20, 3)), 4, axis=0)
    X = X + 0.01 * rng.standard_normal(X.shape)
    y = np.repeat(np.arange(20) % 2, 4)
    subjects = np.repeat(np.arange(20), 4)
    kernel = [kernels.RBF(2.0), kernels.RBF(0.1)]
    naive = kernel_tests(X, y, kernel, method="permutation", n_permutations=499)
    honest = kernel_tests(
        X, y, kernel, method="permutation", n_permutations=499, groups=subjects
    )
    assert naive.p_values[0] < 0.01 < 0.05 < honest.p_values[0]


def test_values_that_vary_within_subjects_stay_there():
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(10), 5)
    X = rng.standard_normal((50, 2)) + 3.0 * rng.standard_normal((10, 2))[subject]
    level = X[::5, 0][subject]  # differs between subjects only
    y = level + 0.1 * rng.standard_normal(50)
    within = kernel_tests(
        X, y, ["linear", "rbf"], method="permutation", n_permutations=99, groups=subject
    )
    free = kernel_tests(
        X, y, ["linear", "rbf"], method="permutation", n_permutations=99
    )
    assert free.p_values[0] == 0.01 and within.p_values[0] > 0.01


def test_many_classes_by_permutation():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 15)
    X = rng.standard_normal((45, 2))
    X[:, 0] += np.repeat([0.0, 1.5, 3.0], 15)
    found = kernel_tests(
        X, y, kernels.per_feature("rbf"), method="permutation", n_permutations=199
    )
    assert found.p_values[0] == 1 / 200 and found.p_values[1] > 0.02


# --- covariates -----------------------------------------------------------------------


def test_categories_become_indicators_and_collinear_columns_are_named():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {
            "age": [30.0, 40, 50, 60, 35, 45, 55, 65],
            "sex": list("mfmfmfmf"),
            "months": 12 * np.array([30.0, 40, 50, 60, 35, 45, 55, 65]),
            "same": 1.0,
        }
    )
    found = Covariates.fit(table, 8)
    assert found.names == ("age", "sex=m") and found.dropped == ("months", "same")
    design = found.design(table, 8)
    assert design.shape == (8, 3) and np.linalg.matrix_rank(design) == 3
    assert design[:, 2].tolist() == [1, 0] * 4
    again = found.design(table.iloc[:2], 2)
    assert np.array_equal(again, design[:2])
    with pytest.raises(ValueError, match="category 'x', which does not occur"):
        found.design(table.assign(sex="x"), 8)
    with pytest.raises(ValueError, match="was numeric in training"):
        found.design(table.assign(age=np.nan), 8)


@pytest.mark.parametrize(
    "fixed, words",
    [
        (np.array([[np.nan]] + [[1.0]] * 9), "missing or infinite for 1 sample,"),
        (np.array([["a"]] * 9 + [[None]], dtype=object), "missing for 1 sample,"),
        (
            np.random.default_rng(0).standard_normal((10, 9)),
            "they can explain any target",
        ),
        (np.zeros((9, 1)), "has 9 values for 10 samples"),
        (np.zeros((10, 1, 1)), "table of shape"),
    ],
)
def test_covariates_that_cannot_be_used(fixed, words):
    X, y = np.random.default_rng(0).standard_normal((10, 2)), np.arange(10.0)
    with pytest.raises(ValueError, match=words):
        kernel_tests(X, y, "linear", fixed=fixed)


@pytest.mark.parametrize("given", ["covariates", "others"])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_covariate_that_holds_the_target_is_refused(given, size):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), size * rng.standard_normal(20)
    family = ["linear", "rbf"]
    with pytest.raises(ValueError, match="encodes the target"):
        kernel_tests(X, y, family, fixed=3.0 * y - size, given=given)
    with pytest.raises(ValueError, match="separate the two classes"):
        kernel_tests(X, y > 0, family, fixed=y / size, given=given)


@pytest.mark.parametrize("size", [1e-12, 1e12])
@pytest.mark.parametrize("given", ["covariates", "others"])
def test_targets_may_be_as_small_or_large_as_they_like(data, given, size):
    X, Z, y = data
    family = kernels.per_feature(kernels.RBF(0.5))
    one = kernel_tests(X, y, family, fixed=Z, given=given)
    two = kernel_tests(X, size * y, family, fixed=Z, given=given)
    # other weights are found up to what their likelihood leaves open
    rel = 1e-6 if given == "covariates" else 2e-2
    assert two.p_values == pytest.approx(one.p_values, rel=rel)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"method": "wald"}, "method must be one of"),
        ({"given": "all"}, "given must be one of"),
        ({"y": np.ones(20)}, "nothing to explain"),
        ({"y": np.arange(19.0)}, "shape"),
        ({"y": np.full(20, np.nan)}, "only one value|missing"),
        ({"y": np.array(list("abcd") * 5)}, "method='permutation'"),
        ({"groups": np.arange(20)}, "method='permutation'"),
        ({"given": "others", "kernels": "linear"}, "at least two kernels"),
        ({"method": "permutation", "groups": np.zeros(20)}, "only one value"),
        ({"method": "permutation", "n_permutations": 0}, "at least 1"),
    ],
)
def test_bad_input_of_tests(change, words):
    rng = np.random.default_rng(0)
    base = {
        "X": rng.standard_normal((20, 2)),
        "y": rng.standard_normal(20),
        "kernels": ["linear", "rbf"],
    }
    with pytest.raises(ValueError, match=words):
        kernel_tests(**{**base, **change})


# --- restricted likelihood with covariates --------------------------------------------


@pytest.fixture(scope="module")
def evidence(data):
    X, Z, y = data
    F = np.column_stack([np.ones(60), Z])
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 60)
    bank = KernelBank(X, ["rbf", "linear"])
    return bank, F, weight, y


def test_what_covariates_add_does_not_change_the_likelihood(evidence):
    bank, F, weight, y = evidence
    theta, b = np.array([0.5, 0.2]), np.array([3.0, -2.0, 1.0])
    one = EvidenceProblem(bank, y[:, None], weight, F).at(theta)
    two = EvidenceProblem(bank, (y + F @ b)[:, None], weight, F).at(theta)
    assert two.value == pytest.approx(one.value, rel=1e-9)
    assert two.effects[:, 0] - b == pytest.approx(one.effects[:, 0], abs=1e-9)
    assert two.A == pytest.approx(one.A, abs=1e-9)


def test_likelihood_is_that_of_contrasts(evidence):
    """REML is the likelihood of what is orthogonal to the covariates."""
    bank, F, weight, y = evidence
    theta = np.array([0.5, 0.2])
    s, U = 1.7, null_space(F.T)
    found = EvidenceProblem(bank, y[:, None], weight, F, s).at(theta)
    G = bank.combine(theta) + np.diag(1 / weight)
    V = s * U.T @ G @ U
    left = U.T @ y
    expected = -0.5 * (len(V) * np.log(2 * np.pi) + np.linalg.slogdet(V)[1])
    expected -= 0.5 * left @ np.linalg.solve(V, left)
    # up to the volume of the contrasts, which no weights change
    volume = np.linalg.slogdet(U.T @ np.diag(1 / weight) @ U)[1]
    assert found.value == pytest.approx(expected + 0.5 * volume, rel=1e-9)


def test_slopes_with_covariates_by_differences(evidence):
    bank, F, weight, y = evidence
    theta, h = np.array([0.5, 0.2]), 1e-5
    for noise in (None, 0.8):
        problem = EvidenceProblem(bank, y[:, None], weight, F, noise)
        slopes, curvature = problem.at(theta).model()
        for m in range(2):
            step = h * np.eye(2)[m]
            up, down = problem.at(theta + step).value, problem.at(theta - step).value
            assert -(up - down) / (2 * h) == pytest.approx(slopes[m], rel=1e-6)
        assert (np.linalg.eigvalsh(curvature) > 0).all()


def test_effects_without_kernels_are_least_squares(evidence):
    bank, F, weight, y = evidence
    found = EvidenceProblem(bank, y[:, None], weight, F).at(np.zeros(2))
    W = np.diag(weight)
    information = F.T @ W @ F
    expected = np.linalg.solve(information, F.T @ W @ y)
    left = y - F @ expected
    s = left @ W @ left / 57
    assert found.effects[:, 0] == pytest.approx(expected, rel=1e-9)
    spread = np.sqrt(s * np.diagonal(np.linalg.inv(information)))
    assert found.effects_std()[:, 0] == pytest.approx(spread, rel=1e-9)
    assert found.value == pytest.approx(found.problem.nothing(), rel=1e-9)


# --- many kernels, parts of them, views -----------------------------------------------


def test_low_rank_and_dense_kernels_have_the_same_tests(data):
    """Features, columns of a pivoted factor, and matrices are one kernel."""
    X, Z, y = data
    bank = KernelBank(X, kernels.per_feature("linear"))
    grams = np.stack([bank.gram(m) for m in range(4)], axis=2)
    jitter = 1e-9 * np.eye(60)[:, :, None]  # of full rank, so that it stays a matrix
    flat = grams + 0.5 * np.eye(60)[:, :, None]
    assert forms.Form.of_gram(flat[:, :, 0]).scales is None
    assert forms.Form.of_gram(grams[:, :, 0]).scales is not None
    for given in ("covariates", "others"):
        one = kernel_tests(X, y, kernels.per_feature("linear"), fixed=Z, given=given)
        two = kernel_tests(grams, y, "precomputed", fixed=Z, given=given)
        three = kernel_tests(grams + jitter, y, "precomputed", fixed=Z, given=given)
        # weights of others are found up to what their likelihood leaves open
        rel = 1e-6 if given == "covariates" else 1e-2
        assert two.p_values == pytest.approx(one.p_values, rel=rel)
        assert three.p_values == pytest.approx(one.p_values, rel=max(rel, 1e-4))
    # a multiple of the identity is one of e'e, and changes no ratio's tail
    shifted = kernel_tests(flat, y, "precomputed", fixed=Z)
    plain = kernel_tests(grams, y, "precomputed", fixed=Z)
    assert shifted.p_values == pytest.approx(plain.p_values, rel=1e-6)


@pytest.mark.parametrize("labels", [False, True], ids=["numbers", "classes"])
def test_reduced_restricted_likelihood_is_the_whole_one(data, labels):
    X, Z, y = data
    bank = KernelBank(X, kernels.per_feature("linear"))
    some = [forms.Form.of_gram(bank.gram(m)) for m in range(3)]
    F = np.column_stack([np.ones(60), Z])
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, 60)
    noise = 1.0 if labels else None
    whole = Whole(KernelBank.from_grams([k.dense() for k in some]), F)
    few = Reduced([k.columns for k in some], F)
    one, two = (space.posed(y[:, None], weight, noise) for space in (whole, few))
    theta = np.array([0.5, 0.0, 0.1])
    first, second = one.problem.at(theta), two.problem.at(theta)
    size = 60 * np.finfo(float).eps * np.linalg.cond(np.column_stack([F, few._all]))
    rel = max(1e-10, 100 * size)
    assert second.value == pytest.approx(first.value, rel=rel)
    assert two.fitted(second.A) == pytest.approx(one.fitted(first.A), rel=rel, abs=rel)
    for a, b in zip(first.model(), second.model(), strict=True):
        assert b == pytest.approx(a, rel=1e-6, abs=1e-8 * np.abs(a).max())
    spread = [p.variances(f.spread().P) for p, f in ((one, first), (two, second))]
    assert spread[1] == pytest.approx(spread[0], rel=1e-6)
    # both roots make the inverse of G
    V = rng.standard_normal((60, 2))
    G = sum(t * k.dense() for t, k in zip(theta, some, strict=True))
    expected = V.T @ np.linalg.solve(G + np.diag(1 / weight), V)
    for posed in (one, two):
        root = posed.root(theta)
        assert root(V).T @ root(V) == pytest.approx(expected, rel=1e-8)


def test_kernels_without_weight_share_one_null_model(data):
    """Tests given all others are those of one kernel after the other."""
    X, Z, y = data
    bank = KernelBank(X, kernels.per_feature(kernels.RBF(0.5)))
    grams = np.stack([bank.gram(m) for m in range(4)], axis=2)
    together = kernel_tests(grams, y, "precomputed", fixed=Z, given="others")
    for m in range(4):
        alone = kernel_tests(
            grams, y, "precomputed", fixed=Z, given="others", which=[m]
        )
        assert alone.names == together.names[m : m + 1]
        assert alone.p_values[0] == pytest.approx(together.p_values[m], rel=2e-2)


def test_many_classes_given_others():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 20)
    X = rng.standard_normal((60, 3))
    X[:, 0] += np.repeat([0.0, 1.5, 3.0], 20)
    found = kernel_tests(
        X, y, kernels.per_feature("rbf"), method="permutation", given="others",
        n_permutations=199,
    )  # fmt: skip
    assert found.p_values[0] == 1 / 200 and (found.p_values[1:] > 0.01).all()


@pytest.fixture(scope="module")
def two_views():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((80, 2)), rng.standard_normal((80, 3))
    y = np.sin(a[:, 0]) + 0.5 * a[:, 1] + rng.standard_normal(80)
    return MultiView({"a": a, "b": b}), y


def test_views_are_tested_as_a_whole_and_kernels_within_them(two_views):
    X, y = two_views
    family = kernels.per_view("linear", kernels.RBF(0.5))
    found = hierarchical_tests(X, y, family)
    assert found.views.names == ("a", "b") and found.places == (0, 0, 1, 1)
    single = kernel_tests(X, y, family)
    assert found.kernels.p_values == pytest.approx(single.p_values, rel=1e-9)
    # the kernel of a view is the mean of its kernels in units of their variance
    bank = KernelBank(X, family)
    units = fit_normaliser("multiplicative", bank).train(bank)
    mean = [(units.gram(2 * v) + units.gram(2 * v + 1)) / 2 for v in range(2)]
    whole = kernel_tests(np.stack(mean, axis=2), y, "precomputed")
    assert found.views.p_values == pytest.approx(whole.p_values, rel=1e-6)
    views, parts = found.adjusted()
    assert views == pytest.approx(np.minimum(2 * found.views.p_values, 1))
    assert (parts >= views[[0, 0, 1, 1]]).all()
    assert (parts >= np.minimum(4 * single.p_values, 1)).all()
    frame = found.frame()
    assert len(frame) == 6 and list(frame["kernel"])[:2] == ["(all)", "(all)"]
    given = hierarchical_tests(X, y, family, given="others")
    assert given.views.p_values[0] < 0.01 < given.views.p_values[1]


def test_hierarchical_tests_rarely_find_anything_where_nothing_is():
    rng = np.random.default_rng(0)
    X = MultiView({v: rng.standard_normal((40, 2)) for v in "abc"})
    tested = TestedKernels.of(X, kernels.per_view("linear", kernels.RBF(0.5)))
    false = 0
    for _ in range(200):
        found = hierarchical_tests(tested, rng.standard_normal(40))
        false += min(map(np.min, found.adjusted())) <= 0.1
    assert binomtest(false, 200, 0.1, "greater").pvalue > 1e-4


def test_kernels_are_made_once_for_many_targets(data):
    X, Z, y = data
    family = ["linear", kernels.RBF(0.5)]
    tested = TestedKernels.of(X, family)
    for target in (y, y > 0):
        one = kernel_tests(tested, target, fixed=Z)
        two = kernel_tests(X, target, family, fixed=Z)
        assert np.array_equal(one.p_values, two.p_values)


@pytest.mark.parametrize("which", [[5], ["no such"], [], [0, 0], [0.5]])
def test_kernels_that_are_not_there(data, which):
    X, _, y = data
    with pytest.raises(ValueError, match="which"):
        kernel_tests(X, y, ["linear", "rbf"], which=which)


def test_one_view_has_no_others():
    rng = np.random.default_rng(0)
    X, y = MultiView({"a": rng.normal(size=(30, 2))}), rng.normal(size=30)
    with pytest.raises(ValueError, match="at least two views, got one"):
        hierarchical_tests(X, y, kernels.per_view("linear", "rbf"), given="others")


@pytest.mark.parametrize("gone", [None, np.nan])
def test_missing_labels_are_refused(gone):
    X, y = np.arange(30.0)[:, None], np.array([*["a", "b"] * 14, gone, gone], object)
    with pytest.raises(ValueError, match="y is missing for 2 samples, first in row 28"):
        kernel_tests(X, y, "linear")


def test_views_need_views(data):
    X, _, y = data
    with pytest.raises(ValueError, match="kernels of views"):
        hierarchical_tests(X, y, ["linear", "rbf"])


# --- the table of a model -------------------------------------------------------------


def test_inference_frame_of_evidence(data):
    X, _, y = data
    family = kernels.per_feature("rbf")
    model = EvidenceMKLRegressor(family).fit(X, y)
    tests = kernel_tests(X, y, family)
    stability = weight_stability(model, X, y, n_resamples=4, random_state=0)
    frame = model.inference_frame(tests, stability, level=0.9)
    assert list(frame.columns) == [
        "kernel", "weight", "weight_low", "weight_high", "share", "share_low",
        "share_high", "p", "p_holm", "selected",
    ]  # fmt: skip
    z = norm.isf(0.05)
    assert frame["weight_high"].to_numpy() == pytest.approx(
        model.kernel_weights_ + z * model.kernel_weights_std_
    )
    low = np.maximum(model.variance_explained_ - z * model.variance_explained_std_, 0)
    assert frame["share_low"].to_numpy() == pytest.approx(low)
    assert (frame["share_high"] <= 1).all()
    assert frame["p_holm"].to_numpy() == pytest.approx(tests.adjusted("holm"))
    assert frame["selected"].to_numpy() == pytest.approx(stability.selection_frequency)


def test_inference_frame_of_other_models(data):
    X, _, y = data
    family = kernels.per_feature("rbf")
    model = MKLRegressor(family).fit(X, y)
    assert list(model.inference_frame().columns) == ["kernel", "weight", "share"]
    stability = weight_stability(model, X, y, n_resamples=4, random_state=0)
    frame = model.inference_frame(stability=stability)
    assert frame["weight_low"].to_numpy() == pytest.approx(stability.interval[0])
    with pytest.raises(ValueError, match="other kernels"):
        model.inference_frame(kernel_tests(X, y, ["linear", "rbf"]))
    with pytest.raises(ValueError, match="level"):
        model.inference_frame(level=95)


# --- tails beside an inversion with many digits ---------------------------------------


@pytest.mark.parametrize("p", [0.3, 1e-4, 1e-12])
@pytest.mark.parametrize("negative", [0, 2])
def test_tails_are_those_of_an_inversion_with_many_digits(negative, p):
    """Weights that stand once have no closed form; 25 digits along a parabola."""
    mpmath = pytest.importorskip("mpmath")
    w = np.random.default_rng(5).exponential(size=5)
    w[:negative] *= -1
    low, high = 0.0 if negative else w.min(), 300.0 * np.abs(w).max()
    for _ in range(60):  # a q with about this tail
        q = 0.5 * (low + high)
        low, high = (q, high) if tail_probability(q, w) > p else (low, q)
    with mpmath.workdps(25):
        ws, at = [mpmath.mpf(float(x)) for x in w], mpmath.mpf(q)
        top = 1 / (2 * max(ws))
        low, high = top * mpmath.mpf(10) ** -9, top * (1 - mpmath.mpf(10) ** -9)
        for _ in range(60):
            c = (low + high) / 2
            slope = sum(x / (1 - 2 * x * c) for x in ws) - at - 1 / c
            low, high = (c, high) if slope < 0 else (low, c)
        bend = sum(2 * (x / (1 - 2 * x * c)) ** 2 for x in ws) + 1 / c**2
        unit = 1 / mpmath.sqrt(bend)

        def along(u):
            s = c + unit * (1j * u + u**2 / 4)
            logs = sum(mpmath.log(1 - 2 * x * s) for x in ws)
            value = mpmath.exp(-logs / 2 - s * at) / s * unit * (1j + u / 2)
            return mpmath.im(value)

        nodes = [0, 1, 2, 4, 8, 16, 32, 64, 128]
        expected = mpmath.quad(along, nodes, maxdegree=6) / mpmath.pi
    assert tail_probability(q, w) == pytest.approx(float(expected), rel=1e-6)


# --- more bad input -------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, words",
    [
        ({"n_permutations": 9.5, "method": "permutation"}, "whole number"),
        ({"n_permutations": True, "method": "permutation"}, "whole number"),
        ({"method": "permutation", "groups": np.zeros(1)}, "1 entry for 20 samples"),
        ({"kernels": []}, "empty"),
        ({"kernels": "no such kernel"}, "Unknown kernel"),
        ({"X": np.full((20, 2), np.nan)}, "NaN"),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "minimum of 1"),
        ({"y": np.r_[np.inf, np.arange(19.0)]}, "missing or infinite"),
        ({"X": np.zeros((20, 19, 2)), "kernels": "precomputed"}, r"\(n, n, M\)"),
        ({"X": -np.eye(20)[:, :, None], "kernels": "precomputed"}, "definite|negative"),
    ],
)
def test_more_bad_input_of_tests(change, words):
    rng = np.random.default_rng(0)
    base = {
        "X": rng.standard_normal((20, 2)),
        "y": rng.standard_normal(20),
        "kernels": ["linear", "rbf"],
    }
    with pytest.raises(ValueError, match=words):
        kernel_tests(**{**base, **change})


def test_groups_of_one_sample_each_are_samples():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    options = {"method": "permutation", "n_permutations": 99}
    one = kernel_tests(X, y, "linear", groups=np.arange(20), **options)
    two = kernel_tests(X, y, "linear", **options)
    slack = 5 * np.sqrt(one.error[0] ** 2 + two.error[0] ** 2) + 0.02
    assert abs(one.p_values[0] - two.p_values[0]) < slack
    assert one.statistic == pytest.approx(two.statistic)


def test_groups_that_cannot_be_exchanged_are_refused():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 2))
    with pytest.raises(ValueError, match="none can be exchanged"):
        kernel_tests(
            X, ["a"] * 1 + ["b"] * 2 + ["a"] * 3, "linear", method="permutation",
            groups=[0, 1, 1, 2, 2, 2], n_permutations=9,
        )  # fmt: skip


def test_constant_kernels_and_constant_covariates_say_nothing():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    grams = np.stack([np.ones((20, 20)), X @ X.T], axis=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a constant kernel has no scale
        found = kernel_tests(grams, y, "precomputed", fixed=np.ones(20))
    assert found.p_values[0] == 1.0 and 0 < found.p_values[1] < 1
    assert found.dropped == ("covariate 0",)


# --- what others rely on --------------------------------------------------------------


@pytest.mark.parametrize("method", ["score", "lr", "permutation"])
@pytest.mark.parametrize("labels", [False, True])
def test_kernels_on_covariates_say_nothing(data, method, labels):
    X, _, y = data
    y = np.where(y > np.median(y), "ill", "well") if labels else y
    family = [kernels.Linear(columns=[0]), kernels.Linear(columns=[0, 1])]
    found = kernel_tests(X, y, family, fixed=X[:, :2], method=method)
    assert found.p_values.tolist() == [1.0, 1.0]
    grams = [X[:, :1] @ X[:, :1].T, X[:, :2] @ X[:, :2].T]
    found = kernel_tests(grams, y, "precomputed", fixed=X[:, :2], method=method)
    assert found.p_values.tolist() == [1.0, 1.0]


def test_names_of_the_interface(data):
    """Names and defaults that scripts are written against."""
    wanted = {
        "fixed": None, "given": "covariates", "method": "score", "groups": None,
        "n_permutations": 999, "random_state": 0,
    }  # fmt: skip
    parameters = inspect.signature(kernel_tests).parameters
    assert list(parameters)[:3] == ["X", "y", "kernels"]
    for name, default in wanted.items():
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == default
    X, Z, y = data
    bank = KernelBank(X, ["linear", "rbf"])
    grams = np.stack([bank.gram(m) for m in range(2)], axis=2)
    found = kernel_tests(grams, y, kernels="precomputed", fixed=Z)
    assert len(found.names) == len(found.statistic) == len(found.p_values) == 2
    assert list(found.frame()["p"]) == list(found.p_values)
    table = np.column_stack([X, Z])
    family = [kernels.RBF(0.5, columns=[0]), kernels.RBF(0.5, columns=[1])]
    model = EvidenceMKLRegressor(family, fixed=[4, 5]).fit(table, y)
    for name in (
        "kernel_weights_std_", "variance_explained_", "variance_explained_std_",
        "fixed_effects_", "fixed_effects_std_",
    ):  # fmt: skip
        assert np.shape(getattr(model, name)) == (2,)
        assert (np.isfinite(getattr(model, name))).all()


@pytest.mark.parametrize("method", ["score", "lr", "permutation"])
@pytest.mark.parametrize("given", ["covariates", "others"])
def test_bad_covariates_are_told_by_every_test(method, given):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((15, 2)), rng.standard_normal(15)
    options = {"method": method, "given": given, "n_permutations": 9}
    gap = np.r_[np.nan, rng.standard_normal(14)]
    with pytest.raises(ValueError, match="missing or infinite for 1 sample,"):
        kernel_tests(X, y, ["linear", "rbf"], fixed=gap, **options)
    with pytest.raises(ValueError, match="they can explain any target"):
        many = rng.standard_normal((15, 20))
        kernel_tests(X, y, ["linear", "rbf"], fixed=many, **options)
    with pytest.raises(ValueError, match="encodes the target"):
        kernel_tests(X, y, ["linear", "rbf"], fixed=y, **options)
    found = kernel_tests(X, y, ["linear", "rbf"], fixed=np.full(15, 3.0), **options)
    plain = kernel_tests(X, y, ["linear", "rbf"], **options)
    assert found.dropped == ("covariate 0",)
    assert found.p_values == pytest.approx(plain.p_values)


def test_subjects_of_one_class_stay_as_they_are():
    """Where one subject alone has both classes, only its two samples are exchanged."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 2))
    y = np.array(["a", "b", "a", "a", "b", "b", "a", "a", "b", "b", "a", "a"])
    groups = np.repeat(np.arange(6), 2)
    found = kernel_tests(
        X, y, ["linear", "rbf"], method="permutation", groups=groups, n_permutations=99
    )
    # one in two orders is the one that was observed
    assert (found.p_values >= 0.3).all()
    with pytest.raises(ValueError, match="method='permutation'"):
        kernel_tests(X, y, ["linear", "rbf"], groups=groups)


def test_subjects_that_cannot_change_places_with_another_class():
    """Subjects of one class have two samples each, those of the other three."""
    X = np.random.default_rng(0).standard_normal((15, 2))
    y, groups = (
        np.repeat(["a", "b"], [6, 9]),
        [0, 0, 1, 1, 2, 2, *np.repeat([3, 4, 5], 3)],
    )
    with pytest.raises(ValueError, match="exchanging them changes nothing"):
        kernel_tests(X, y, "linear", method="permutation", groups=groups)


def test_a_subject_of_its_own_does_not_stop_the_others():
    """Subjects of one label each, one of them of a size that no other has."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((11, 2)), ["a"] * 4 + ["b"] * 4 + ["a"] * 3
    groups = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
    found = kernel_tests(
        X, y, "linear", method="permutation", groups=groups, n_permutations=99
    )
    # two a and two b: one in six arrangements is that of the labels
    assert found.p_values[0] >= 1 / 6 - 5 * (1 / 6 * 5 / 6 / 99) ** 0.5


@pytest.mark.parametrize("method", ["score", "lr", "permutation"])
@pytest.mark.parametrize("given", ["covariates", "others"])
def test_a_kernel_that_is_noise_says_nothing(data, method, given):
    """A multiple of the identity is the noise: its statistic is the same for any y."""
    X, Z, y = data
    rng = np.random.default_rng(0)
    grams = np.stack([np.eye(60), X @ X.T], axis=2)
    for target in (y, rng.permutation(y), rng.standard_normal(60)):
        found = kernel_tests(
            grams, target, "precomputed", fixed=Z, given=given, method=method,
            n_permutations=9,
        )  # fmt: skip
        assert found.p_values[0] == 1.0
    narrow = kernel_tests(X, y, [kernels.RBF(1e3), "linear"], fixed=Z, given=given)
    assert narrow.p_values[0] == 1.0


def test_a_category_of_one_class_is_told(data):
    X, _, y = data
    labels = y > 0
    batch = np.where(labels & (np.arange(60) < 40), "rare", "common")
    with pytest.raises(ValueError, match="merge categories"):
        kernel_tests(X, labels, "linear", fixed=batch)


# --- covariates that are named, and samples that are ----------------------------------


def _with_age(n=60):
    rng = np.random.default_rng(0)
    X, age = rng.normal(size=(n, 3)), rng.normal(size=n)
    sex = np.array(["f", "m"])[rng.integers(2, size=n)]
    return X, age, sex, 0.5 * X[:, 0] + age + (sex == "f") + rng.normal(size=n)


@pytest.mark.parametrize("method", ["score", "lr", "permutation"])
def test_covariates_are_named_as_in_estimators(method):
    pd = pytest.importorskip("pandas")
    X, age, sex, y = _with_age()
    kernel, options = kernels.RBF(0.5), {"method": method, "n_permutations": 49}
    table = pd.DataFrame({"age": age, "sex": sex})
    alone = kernel_tests(X, y, kernel, fixed=age, **options)
    both = kernel_tests(X, y, kernel, fixed=table, **options)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).join(table)
    views = MultiView({"genes": X, "age": age[:, None]})
    grams = np.stack([np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2))], axis=2)
    bank = KernelBank.from_grams(grams, covariates=table)
    for expected, found in (
        (alone, kernel_tests(np.c_[X, age], y, kernel, fixed=[3], **options)),
        (alone, kernel_tests(np.c_[X, age].tolist(), y, kernel, fixed=3, **options)),
        (alone, kernel_tests(views, y, kernel, fixed="age", **options)),
        (alone, kernel_tests(bank, y, "precomputed", fixed=["age"], **options)),
        (both, kernel_tests(frame, y, kernel, fixed=["age", "sex"], **options)),
        (both, kernel_tests(bank, y, "precomputed", fixed=("age", "sex"), **options)),
    ):
        assert len(found.covariates) == len(expected.covariates)
        assert found.p_values == pytest.approx(expected.p_values, rel=1e-6)


def test_names_of_covariates_that_do_not_exist():
    X, *_, y = _with_age()
    for samples, family, message in (
        (X, "linear", "no column names"),
        (TestedKernels.of(X, "linear"), "auto", "TestedKernels does not have"),
        (np.stack([X @ X.T], axis=2), "precomputed", "Gram matrices alone have none"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel_tests(samples, y, family, fixed=["age"])
    # as many texts as samples are the values of one covariate, not names
    labels = ["a", "b"] * (len(y) // 2)
    assert kernel_tests(X, y, "linear", fixed=labels).covariates


def test_named_samples_are_put_into_order():
    pd = pytest.importorskip("pandas")
    X, age, _, y = _with_age()
    ids = [f"p{i}" for i in range(len(y))]
    views = MultiView.from_frames({"genes": pd.DataFrame(X, index=ids)})
    y, age = pd.Series(y, index=ids), pd.DataFrame({"age": age}, index=ids)
    mixed = np.random.default_rng(1).permutation(len(y))
    expected = kernel_tests(views, y, "linear", fixed=age)
    found = kernel_tests(views, y.iloc[mixed], "linear", fixed=age.iloc[mixed])
    assert found.p_values == expected.p_values
    with pytest.raises(ValueError, match="p0"):
        kernel_tests(views, y.rename(index={"p0": "q"}), "linear")


def test_few_subjects_have_few_permutations():
    """Four subjects can be put into 24 orders, whatever the number of draws."""
    X, *_ = _with_age(40)
    groups, y = np.repeat(np.arange(4), 10), np.repeat([0.0, 1.0, 3.0, 7.0], 10)
    found = kernel_tests(X, y, "linear", method="permutation", groups=groups)
    assert found.resolution == pytest.approx(1 / 24)
    assert (found.p_values >= found.resolution).all()
    gone = np.where(np.arange(40) == 3, np.nan, groups.astype(float))
    with pytest.raises(ValueError, match="groups is missing for 1"):
        kernel_tests(X, y, "linear", method="permutation", groups=gone)


def test_likelihood_ratios_do_not_depend_on_which_class_comes_first():
    rng = np.random.default_rng(0)
    X, age, b = rng.normal(size=(60, 3)), rng.normal(size=60), rng.integers(2, size=60)
    family = kernels.per_feature("rbf")
    one, other = (
        kernel_tests(X, labels, family, fixed=age, method="lr") for labels in (b, 1 - b)
    )
    assert other.statistic == pytest.approx(one.statistic, abs=1e-7)
    assert ((one.statistic == 0) == (one.p_values == 1)).all()
    assert ((one.p_values == 1) == (other.p_values == 1)).all()


@pytest.mark.parametrize("method", ["lr", "permutation"])
def test_what_a_similar_kernel_explains_of_labels_is_not_found_twice(method):
    # labels depend on column 0 only; column 1 is similar and adds nothing
    rng, found = np.random.default_rng(0), 0
    for seed in range(20):
        X = rng.normal(size=(80, 2))
        X[:, 1] = X[:, 0] + 0.3 * X[:, 1]
        y = rng.uniform(size=80) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))
        tests = kernel_tests(
            X, y, kernels.per_feature("rbf"), given="others", method=method, which=[1],
            n_permutations=99, random_state=seed,
        )  # fmt: skip
        found += int(tests.p_values[0] <= 0.1)
    assert found <= 5  # of a binomial count with mean 2: more have probability 0.01


@pytest.mark.parametrize("classes", [False, True])
def test_other_kernels_as_matrices_or_as_columns(classes, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 8))
    y = np.sin(X).sum(axis=1) + 0.5 * rng.standard_normal(80)
    y = (y > 0).astype(int) if classes else y
    tested = TestedKernels.of(X, [kernels.RBF(0.3, columns=[j]) for j in range(8)])
    # of low rank, one by one but not together
    assert all(form.scales is not None for form in tested.forms)
    assert sum(form.rank for form in tested.forms) > 80
    expanded = kernel_tests(tested, y, given="others")
    monkeypatch.setattr(nulls, "_ROOM", 0)
    factored = kernel_tests(tested, y, given="others")
    np.testing.assert_allclose(expanded.statistic, factored.statistic, rtol=1e-6)
    np.testing.assert_allclose(expanded.p_values, factored.p_values, rtol=1e-6)
