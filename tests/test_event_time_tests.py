"""Tests of kernels for times to an event."""

import warnings

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from mklearn import MultiView, kernels
from mklearn.inference import hierarchical_tests, kernel_tests, tail_probability
from mklearn.inference.event_times import EventTimes, Factor
from mklearn.problems.survival import Cox


def patients(n=80, ties=False, seed=0):
    """Return samples, times and events, and strata."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    lived, left = rng.exponential(np.exp(-0.5 * X[:, 0])), rng.exponential(2.0, n)
    time = np.minimum(lived, left)
    if ties:
        time = np.ceil(4 * time) / 4
    return X, np.column_stack([time, lived <= left]), rng.integers(0, 3, n)


def score_and_information(y, W, f, strata, ties):
    """Return the score of columns W and their information, from the definition."""
    time, event = y[:, 0], y[:, 1] > 0
    u, score = np.exp(f), W[event].sum(axis=0)
    information = np.zeros((W.shape[1], W.shape[1]))
    for s in np.unique(strata):
        for t in np.unique(time[event & (strata == s)]):
            risk = (time >= t) & (strata == s)
            dying = (time == t) & event & (strata == s)
            for k in range(dying.sum()):
                left = k / dying.sum() if ties == "efron" else 0.0
                p = u * (risk - left * dying)
                p = p / p.sum()
                score = score - p @ W
                information += W.T @ (p[:, None] * W) - np.outer(p @ W, p @ W)
    return score, information


def newton(y, Z, strata, ties):
    """Return the effects of covariates."""
    beta = np.zeros(Z.shape[1])
    for _ in range(30):
        beta = beta + np.linalg.solve(
            *score_and_information(y, Z, Z @ beta, strata, ties)[::-1]
        )
    return beta


@pytest.mark.parametrize("ties", ["breslow", "efron"])
@pytest.mark.parametrize("stratified", [False, True])
def test_one_column_is_the_score_test_of_cox(ties, stratified):
    X, y, strata = patients(ties=True)
    strata = strata if stratified else np.zeros(len(y))
    found = kernel_tests(
        X, y, [kernels.Linear(columns=[j]) for j in (0, 1)], fixed=[2, 3],
        strata=strata if stratified else None, ties=ties,
    )  # fmt: skip
    f = X[:, 2:4] @ newton(y, X[:, 2:4], strata, ties)
    for j, statistic, p in zip((0, 1), found.statistic, found.p_values, strict=True):
        W = X[:, [j, 2, 3]]
        score, information = score_and_information(y, W, f, strata, ties)
        expected = score[0] ** 2 * np.linalg.inv(information)[0, 0]
        assert statistic == pytest.approx(expected, rel=1e-8)
        assert p == pytest.approx(chi2.sf(expected, 1), rel=1e-7)


def test_two_values_are_the_log_rank_test_of_scikit_survival():
    compare = pytest.importorskip("sksurv.compare", reason="needs scikit-survival")
    X, y, _ = patients()
    arm = (X[:, 0] > 0).astype(float)
    target = np.array([(e > 0, t) for t, e in y], dtype=[("e", bool), ("t", float)])
    expected = compare.compare_survival(target, arm)
    found = kernel_tests(arm[:, None], target, "linear")
    assert found.statistic[0] == pytest.approx(expected[0], rel=1e-9)
    assert found.p_values[0] == pytest.approx(expected[1], rel=1e-8)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_one_column_is_the_score_test_of_statsmodels(ties):
    api = pytest.importorskip("statsmodels.api", reason="needs statsmodels")
    X, y, strata = patients(ties=True)
    given = {"status": y[:, 1], "strata": strata, "ties": ties}
    without = api.PHReg(y[:, 0], X[:, [2]], **given).fit()
    whole = api.PHReg(y[:, 0], X[:, [0, 2]], **given)
    effects = np.append(0.0, without.params)
    spread = np.linalg.inv(-whole.hessian(effects))[0, 0]
    found = kernel_tests(
        X[:, [0]], y, "linear", fixed=X[:, [2]], strata=strata, ties=ties
    )
    expected = whole.score(effects)[0] ** 2 * spread
    assert found.statistic[0] == pytest.approx(expected, rel=1e-5)


def test_statistic_and_weights_are_their_definitions():
    X, y, _ = patients(40)
    found = kernel_tests(X, y, kernels.RBF(0.5), fixed=X[:, [4]])
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    Z = X[:, [4]]
    f = Z @ newton(y, Z, np.zeros(40), "breslow")
    every = np.eye(40)
    m, V = score_and_information(y, every, f, np.zeros(40), "breslow")
    VZ = V @ Z
    P = V - VZ @ np.linalg.solve(Z.T @ VZ, VZ.T)
    values = np.linalg.eigvals(K @ P).real
    assert found.statistic[0] == pytest.approx(m @ K @ m / values.sum(), rel=1e-8)
    p = tail_probability(m @ K @ m, values)
    assert found.p_values[0] == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_factor_is_that_of_the_information(ties):
    X, y, strata = patients(60, ties=True)
    y[strata == 1, 1] = 0  # no events in a stratum
    F = 3 * X[:, :1]
    loss = Cox(y[:, 0], y[:, 1] > 0, strata.astype(float), np.ones(60), 1.0, ties)
    V = loss.bent(F, np.eye(60))
    factor = Factor.of(loss.sets, F[:, 0])
    root = factor(np.eye(60))
    np.testing.assert_allclose(root.T @ root, V, atol=1e-13 * np.abs(V).max())
    assert len(root) == np.linalg.matrix_rank(V)
    left = loss.slope(F)[:, 0]
    np.testing.assert_allclose(root.T @ factor.solved(left), left, atol=1e-12)


def test_order_units_and_representation_change_nothing():
    X, y, strata = patients(ties=True)
    family = [kernels.Linear(columns=[0, 1]), kernels.RBF(0.3)]
    given = {"fixed": X[:, [2]], "strata": strata}
    one = kernel_tests(X, y, family, **given)
    order = np.random.default_rng(1).permutation(len(y))
    shuffled = kernel_tests(
        X[order], y[order], family, fixed=X[order][:, [2]], strata=strata[order]
    )
    np.testing.assert_allclose(one.p_values, shuffled.p_values, rtol=1e-7)
    later = np.column_stack([10 * y[:, 0] ** 2, y[:, 1]])  # only their order counts
    np.testing.assert_allclose(
        one.p_values, kernel_tests(X, later, family, **given).p_values, rtol=1e-7
    )
    structured = np.array(
        [(bool(e), t) for t, e in y], dtype=[("event", bool), ("time", float)]
    )
    named = np.array(["a", "b", "c"])[strata]
    found = kernel_tests(X, structured, family, fixed=X[:, [2]], strata=named)
    np.testing.assert_array_equal(one.p_values, found.p_values)


def test_low_rank_and_dense_kernels_have_the_same_tests():
    X, y, _ = patients()
    grams = [3 * X[:, [0, 1]] @ X[:, [0, 1]].T, X[:, [2]] @ X[:, [2]].T]
    columns = [kernels.Linear(columns=[0, 1]), kernels.Linear(columns=[2])]
    one = kernel_tests(X, y, columns, fixed=X[:, [4]])
    two = kernel_tests(grams, y, "precomputed", fixed=X[:, [4]])
    np.testing.assert_allclose(one.p_values, two.p_values, rtol=1e-6)


def test_p_values_are_uniform_though_censoring_depends_on_the_kernel():
    rng, p = np.random.default_rng(0), []
    for _ in range(400):
        x, z = rng.normal(size=(2, 60))
        lived = rng.exponential(np.exp(-z))
        left = 2 * rng.exponential(np.exp(-x))
        y = np.column_stack([np.minimum(lived, left), lived <= left])
        p.append(kernel_tests(x[:, None], y, "linear", fixed=z).p_values[0])
    assert kstest(p, "uniform").pvalue > 1e-3


def test_permutations_agree_with_computed_tails():
    X, y, _ = patients()
    family = kernels.per_feature("linear", "rbf")
    one = kernel_tests(X, y, family)
    two = kernel_tests(X, y, family, method="permutation", n_permutations=999)
    assert np.all(np.abs(one.p_values - two.p_values) <= 5 * two.error + 0.03)
    assert two.p_values[0] < 0.01


def test_permutations_stay_within_strata_and_subjects():
    X, y, strata = patients(24)
    # an event is determined by the stratum: within strata nothing is left
    y = np.column_stack([np.tile([1.0, 2.0], 12), np.tile([1, 0], 12)])
    strata = np.tile([0, 1], 12)
    with pytest.raises(ValueError, match="no order to be tested"):
        kernel_tests(X, y, "linear", strata=strata, method="permutation")
    y = patients(24)[1]
    groups = np.arange(24) // 2
    y = y[groups * 2]  # whole subjects
    found = kernel_tests(
        X, y, "linear", groups=groups, strata=groups % 2, method="permutation",
        n_permutations=99,
    )  # fmt: skip
    assert 0 < found.p_values[0] <= 1
    sites = np.eye(2)[groups % 2]  # a kernel that only tells strata apart
    for method in ("score", "permutation"):
        given = {} if method == "score" else {"groups": groups}
        found = kernel_tests(
            sites, y, "linear", strata=groups % 2, method=method, **given
        )
        assert found.p_values[0] == 1.0


def test_views_are_tested_as_a_whole():
    X, y, _ = patients(120)
    data = MultiView({"clinic": X[:, :2], "genes": X[:, 2:]})
    found = hierarchical_tests(data, y, kernels.per_view("linear", "rbf"))
    views, each = found.adjusted()
    assert views[0] < 0.05 < views[1] and len(each) == 4


def test_labels_are_paired():
    pd = pytest.importorskip("pandas")
    X, y, strata = patients(40)
    names = [f"p{i}" for i in range(40)]
    frame = MultiView.from_frames({"x": pd.DataFrame(X, index=names).add_prefix("x")})
    times = pd.DataFrame(y, index=names, columns=["time", "event"])
    hospital = pd.Series(strata, index=names)
    one = kernel_tests(X, y, "linear", strata=strata)
    two = kernel_tests(frame, times[::-1], "linear", strata=hospital.sample(frac=1))
    np.testing.assert_allclose(one.p_values, two.p_values, rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "lr"}, "method='score' or 'permutation'"),
        ({"given": "others"}, "given='covariates'"),
        ({"ties": "exact"}, "ties must be one of"),
        ({"strata": np.zeros(3)}, "strata has 3 values"),
        ({"y": np.column_stack([np.ones(40), np.zeros(40)])}, "All times are censored"),
        ({"y": np.column_stack([np.ones(40), np.ones(40)])}, "no order"),
        ({"y": np.column_stack([np.arange(40.0), np.full(40, 3)])}, "event"),
        ({"y": np.arange(40.0), "strata": np.zeros(40)}, "strata= is for times"),
        ({"y": np.ones((40, 3))}, "y must have shape"),
        ({"fixed": "order"}, "order some of the events perfectly"),
    ],
)
def test_bad_input(change, words):
    X, y, _ = patients(40)
    given = {"y": y, **change}
    if given.get("fixed") == "order":
        given["fixed"] = -y[:, 0]
    with pytest.raises(ValueError, match=words), warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel_tests(X, given.pop("y"), ["linear", "rbf"], **given)


def test_null_model_needs_samples_that_are_compared():
    X, y, _ = patients(12)
    y[:, 1] = 0
    y[np.argsort(y[:, 0])[-4], 1] = 1  # one event, with three samples that outlive it
    target = EventTimes.of(y, 12, None, "breslow")
    with pytest.raises(ValueError, match="covariates"):
        target.null(np.column_stack([np.ones(12), X]), permuted=False)
