"""Norms on two levels, between views and within them; products of kernels."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.model_selection import StratifiedKFold, cross_val_score

from mklearn import (
    Hinge,
    KernelBank,
    LpBall,
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressor,
    MKLRegressorCV,
    MultiView,
    TwoLevel,
    mkl_path,
)
from mklearn.inference import kernel_tests
from mklearn.kernels import (
    RBF,
    Linear,
    Precomputed,
    Product,
    Spectrum,
    per_feature,
    per_group,
    per_view,
)
from mklearn.persistence import load, save
from mklearn.plotting import PathDisplay

rng = np.random.default_rng(0)
N = 60
Y = np.arange(N) % 2
X = MultiView(
    {"a": rng.normal(size=(N, 5)) + 0.5 * Y[:, None], "b": rng.normal(size=(N, 2))}
)
KERNELS = [per_feature(Linear(view="a")), per_feature(Linear(view="b"))]
GROUPS = ["a"] * 5 + ["b"] * 2
NORMS = [(2, 1), (1, 2), (1.5, 3), (np.inf, 1), (1, np.inf), (4 / 3, 1)]


def value(theta, norms2):
    return np.sum(norms2 / theta)


@pytest.mark.parametrize(("outer", "inner"), NORMS)
def test_the_step_is_the_best_member(outer, inner):
    weights = TwoLevel(outer, inner, GROUPS)
    norms2 = rng.uniform(0.1, 2.0, 7)
    best = weights.step(np.ones(7), norms2)
    assert weights.contains(best, 1e-12)
    # no member near it, and none drawn at random, does better
    for scale in (1e-3, 1e-1, 1.0):
        for _ in range(50):
            other = np.abs(best * np.exp(scale * rng.normal(size=7)))
            other /= weights._norm(other)
            assert value(other, norms2) >= value(best, norms2) * (1 - 1e-12)


@pytest.mark.parametrize(("outer", "inner"), NORMS)
def test_support_is_the_maximum(outer, inner):
    weights = TwoLevel(outer, inner, GROUPS)
    q = rng.uniform(0.1, 2.0, 7)
    for _ in range(200):
        member = rng.uniform(size=7) ** 4
        member /= weights._norm(member)
        assert member @ q <= weights.support(q)
    if weights.smooth and inner > 1 and outer > 1:
        found = minimize(
            lambda t: -np.abs(t) @ q / weights._norm(np.abs(t)), weights.center(7),
            method="Nelder-Mead", options={"maxiter": 20000, "fatol": 1e-12},
        )  # fmt: skip
        assert np.isclose(-found.fun, weights.support(q), rtol=1e-4)


@pytest.mark.parametrize("p", [1, 1.5, 2, np.inf])
def test_equal_norms_are_one_norm(p):
    weights, ball = TwoLevel(p, p, GROUPS), LpBall(p)
    q, theta = rng.uniform(0.1, 2.0, 7), rng.uniform(0.1, 1.0, 7)
    np.testing.assert_allclose(weights.step(theta, q), ball.step(theta, q), rtol=1e-12)
    assert np.isclose(weights.support(q), ball.support(q), rtol=1e-12)
    if weights.smooth:
        one, other = weights.constraint(theta), ball.constraint(theta)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("outer", "inner"), [(2, 1), (1, 2), (1.5, 3)])
def test_derivatives_of_the_constraint(outer, inner):
    weights = TwoLevel(outer, inner, GROUPS)
    theta, h = rng.uniform(0.2, 1.0, 7), 1e-6
    found = weights.constraint(theta)
    for m in range(7):
        step = h * np.eye(7)[m]
        up, down = weights.constraint(theta + step), weights.constraint(theta - step)
        slope = (up.value - down.value) / (2 * h)
        bend = (up.gradient - down.gradient) / (2 * h)
        assert np.isclose(found.gradient[m], slope, rtol=1e-6)
        np.testing.assert_allclose(found.hessian[m], bend, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("outer", "inner"), NORMS)
@pytest.mark.parametrize("approximation", [None, "nystroem"])
def test_groups_are_the_views(outer, inner, approximation):
    options = {"tol": 1e-5, "approximation": approximation, "max_iter": 2000}
    by_view = MKLClassifier(KERNELS, norm=TwoLevel(outer, inner), **options).fit(X, Y)
    named = MKLClassifier(KERNELS, norm=TwoLevel(outer, inner, GROUPS), **options)
    named.fit(X, Y)
    assert by_view.duality_gap_ <= 1e-5
    upper = named.solution_.upper
    assert abs(by_view.solution_.upper - upper) <= 2e-5 * abs(upper)
    weights = TwoLevel(outer, inner, GROUPS)
    assert weights.contains(by_view.kernel_weights_, 1e-6)


def test_solvers_agree():
    norm = TwoLevel(2, 1)
    found = {
        solver: MKLClassifier(
            KERNELS, norm=norm, solver=solver, tol=1e-4, max_iter=5000
        )
        .fit(X, Y)
        .solution_
        for solver in ("newton", "alternating", "cutting_plane")
    }
    for solution in found.values():
        assert solution.gap <= 1e-4
        for other in found.values():
            assert solution.lower <= other.upper * (1 + 1e-12)


def test_a_view_with_many_kernels_does_not_drown_another():
    copies = MultiView({"many": rng.normal(size=(N, 40)), "one": Y[:, None] + 0.0})
    kernels = [per_feature(Linear(view="many")), Linear(view="one")]
    shares = {}
    for norm in (2, TwoLevel(2, 2), TwoLevel(2, 1)):
        model = MKLClassifier(kernels, norm=norm, C=0.01).fit(copies, Y)
        table = model.weights_frame().groupby("view")["contribution"].sum()
        shares[str(norm)] = table["one"]
    assert shares["2"] == pytest.approx(shares[str(TwoLevel(2, 2))], rel=1e-2)
    assert shares[str(TwoLevel(2, 1))] > shares["2"]


def test_in_a_search_and_in_a_file(tmp_path):
    search = MKLClassifierCV(KERNELS, Cs=[0.1, 1], norms=[1, 2], cv=3).fit(X, Y)
    assert search.duality_gap_ <= 1e-3
    model = MKLClassifier(KERNELS, norm=TwoLevel(2, 1)).fit(X, Y)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert again.norm == model.norm
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_what_makes_no_sense():
    with pytest.raises(ValueError, match="outer to be a number"):
        TwoLevel(0.5, 1)
    with pytest.raises(ValueError, match="inner to be a number"):
        TwoLevel(1, "many")
    with pytest.raises(ValueError, match="one entry for each kernel"):
        TwoLevel(1, 2, [])
    with pytest.raises(ValueError, match="groups for 3 kernels, but there are 7"):
        MKLClassifier(KERNELS, norm=TwoLevel(2, 1, [0, 1, 2])).fit(X, Y)
    with pytest.raises(ValueError, match="Gram matrices have none"):
        MKLClassifier("precomputed", norm=TwoLevel(2, 1)).fit(np.eye(N)[:, :, None], Y)
    with pytest.raises(ValueError, match="no groups yet"):
        TwoLevel(2, 1).center(3)


# --- products -------------------------------------------------------------------------


TABLE = pd.DataFrame(rng.normal(size=(N, 4)), columns=list("pqrs"))


def test_a_product_is_the_product_of_the_grams():
    a, b = RBF("scale", columns=["p", "q"], standardize=True), Linear(columns=["r"])
    bank = KernelBank(TABLE, [a * b, a, b, a * b * RBF(0.1)])
    np.testing.assert_allclose(bank.gram(0), bank.gram(1) * bank.gram(2), rtol=1e-12)
    whole = KernelBank(TABLE, RBF(0.1)).gram(0)
    np.testing.assert_allclose(bank.gram(3), bank.gram(0) * whole, rtol=1e-12)
    new = bank.cross(TABLE.iloc[:3])
    np.testing.assert_allclose(new.gram(0), bank.gram(0)[:3], rtol=1e-9, atol=1e-12)
    assert "[p,q] * linear[r]" in bank.names[0]


def test_products_in_views_sparse_and_in_files(tmp_path):
    product = Linear(columns=[0, 1]) * RBF(0.5, columns=[2, 3])
    dense = KernelBank(TABLE.to_numpy(), product).gram(0)
    thin = KernelBank(sparse.csr_array(TABLE.to_numpy()), product).gram(0)
    np.testing.assert_allclose(thin, dense, rtol=1e-10, atol=1e-12)
    data = MultiView({"a": TABLE, "b": rng.normal(size=(N, 1))})
    kernels = [Linear(view="a", columns=["p"]) * RBF(view="a", columns=["q"]),
               Linear(view="b")]  # fmt: skip
    model = MKLRegressor(kernels).fit(data, TABLE["p"] * np.sin(TABLE["q"]))
    assert model.weights_frame()["view"].tolist() == ["a", "b"]
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    np.testing.assert_array_equal(again.predict(data), model.predict(data))
    low = MKLRegressor(kernels, approximation="nystroem", rank=N, random_state=0)
    low.fit(data, TABLE["p"] * np.sin(TABLE["q"]))
    np.testing.assert_allclose(low.predict(data), model.predict(data), atol=0.02)


def test_given_clusters_are_models_of_their_own():
    # with indicators the product has no values between clusters: one model for each
    cluster = np.arange(N) % 3
    table = np.column_stack([TABLE, np.eye(3)[cluster]])
    y = np.where(cluster == 1, -1, 1) * TABLE["p"].to_numpy()
    local = Linear(columns=[0, 1, 2, 3]) * Linear(columns=[4, 5, 6])
    gram = KernelBank(table, local).gram(0)
    assert not gram[cluster == 0][:, cluster == 1].any()
    both = [Linear(columns=[0, 1, 2, 3]), local]
    fits = [
        MKLRegressor(k, C=100.0).fit(table, y).score(table, y) for k in (both[:1], both)
    ]
    assert fits[0] < 0.5 and fits[1] > 0.99


WORDS = np.array(["ACGT", "AACC", "TTGT", "CATG"] * (N // 4 + 1), dtype=object)[:N]
VIEWS = MultiView(
    {
        "rna": TABLE,
        "clinic": rng.normal(size=(N, 2)) + 1.0,
        "counts": sparse.csr_array(rng.poisson(1.0, (N, 3)).astype(float)),
        "word": WORDS,
    }
)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Linear(view="rna"), Linear(view="clinic")),
        (Linear(view="rna", columns=["p", "s"]), RBF(view="clinic", columns=[1])),
        (RBF(view="rna", standardize=True), Linear(view="counts", standardize=True)),
        (Linear(view="clinic", standardize=True), Spectrum(2, view="word")),
    ],
    ids=str,
)
def test_products_across_views_are_products_of_the_grams(a, b):
    bank = KernelBank(VIEWS, [a * b, a, b, b * a * a])
    np.testing.assert_allclose(bank.gram(0), bank.gram(1) * bank.gram(2), rtol=1e-10)
    np.testing.assert_allclose(bank.gram(3), bank.gram(0) * bank.gram(1), rtol=1e-10)
    new = bank.cross(VIEWS[:3])
    np.testing.assert_allclose(new.gram(0), bank.gram(0)[:3], rtol=1e-8, atol=1e-10)
    again = KernelBank.from_state(bank.reference(np.arange(N)).state())
    np.testing.assert_array_equal(again.cross(VIEWS[:3]).gram(0), new.gram(0))
    assert bank.names[0] == f"{bank.names[1]} * {bank.names[2]}"
    assert bank.kernels[0].view == f"{a.view} * {b.view}"


def test_a_sample_without_one_of_the_views_lacks_the_product():
    rna, clinic = TABLE.to_numpy().copy(), VIEWS["clinic"].copy()
    rna[:3], clinic[2:6] = np.nan, np.nan
    data = MultiView({"rna": rna, "clinic": clinic})
    there = np.arange(N) >= 6
    a, b = RBF(view="rna", standardize=True), Linear(view="clinic", standardize=True)
    part = KernelBank(data[there], [a, b])
    gram = KernelBank(data, a * b).gram(0)
    # widths and scales are those of the samples that have both
    expected = part.gram(0) * part.gram(1)
    np.testing.assert_allclose(gram[np.ix_(there, there)], expected, rtol=1e-10)
    assert not gram[~there].any() and not gram[:, ~there].any()
    nobody = MultiView({"rna": rna[:6], "clinic": clinic[:6]})
    with pytest.raises(ValueError, match=r"None of the 6 .*'clinic', 'rna'"):
        KernelBank(nobody, a * b)


@pytest.mark.parametrize("lacking", [False, True])
def test_models_of_products_across_views(lacking, tmp_path):
    rna, clinic = TABLE.to_numpy().copy(), VIEWS["clinic"].copy()
    y = rna[:, 0] * clinic[:, 1]
    if lacking:
        rna[:3], clinic[5:9] = np.nan, np.nan
    data = MultiView({"rna": rna, "clinic": clinic})
    a, b = Linear(view="rna"), Linear(view="clinic")
    options = {"C": 10.0, "tol": 1e-8, "normalize": None}
    model = MKLRegressor([a, b, a * b], **options).fit(data, y)
    assert model.weights_frame()["view"].tolist() == ["rna", "clinic", "rna * clinic"]
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    np.testing.assert_array_equal(again.predict(data), model.predict(data))
    new = {"rna": rna[9:12]}  # without the other view the product is absent
    holes = MultiView({"rna": rna[9:12], "clinic": np.full((3, 2), np.nan)})
    np.testing.assert_array_equal(again.predict(new), model.predict(holes))
    # the features are the products of all pairs of columns, and give the same model
    low = MKLRegressor([a, b, a * b], approximation="nystroem", rank=8, **options)
    low.fit(data, y)
    near = 1e-3 * np.abs(y).max()
    np.testing.assert_allclose(low.predict(data), model.predict(data), atol=near)
    np.testing.assert_allclose(low.predict(new), model.predict(new), atol=near)
    save(low, tmp_path / "low.mkl")
    again = load(tmp_path / "low.mkl")
    np.testing.assert_array_equal(again.predict(data), low.predict(data))


def test_landmarks_of_products_across_views(tmp_path):
    y = TABLE["p"].to_numpy() * VIEWS["clinic"][:, 1]
    kernels = [RBF(view="rna") * Linear(view="clinic"), Spectrum(2, view="word")]
    exact = MKLRegressor(kernels, tol=1e-6).fit(VIEWS, y)
    low = MKLRegressor(
        kernels, tol=1e-6, approximation="nystroem", rank=N, random_state=0
    ).fit(VIEWS, y)
    np.testing.assert_allclose(low.predict(VIEWS), exact.predict(VIEWS), atol=0.02)
    save(low, tmp_path / "low.mkl")
    again = load(tmp_path / "low.mkl")
    np.testing.assert_array_equal(again.predict(VIEWS), low.predict(VIEWS))


SETS = {"one": ["p", "q"], "two": ["q", "r", "s"]}


def test_products_of_groups_with_another_view():
    family = per_group(SETS, view="rna") * Linear(view="clinic")
    bank = KernelBank(VIEWS, [per_group(SETS, view="rna"), family])
    assert bank.names == (
        "rna:one", "rna:two", "rna:one * clinic:linear", "rna:two * clinic:linear"
    )  # fmt: skip
    clinic = KernelBank(VIEWS, Linear(view="clinic")).gram(0)
    for m in range(2):
        expected = bank.gram(m) * clinic
        np.testing.assert_allclose(bank.gram(m + 2), expected, rtol=1e-10)
    turned = KernelBank(VIEWS, Linear(view="clinic") * per_group(SETS, view="rna"))
    np.testing.assert_allclose(turned.gram(0), bank.gram(2), rtol=1e-10)
    model = MKLRegressor([per_group(SETS, view="rna"), family], norm=TwoLevel(2, 1))
    model.fit(VIEWS, TABLE["p"])
    views = ["rna", "rna", "rna * clinic", "rna * clinic"]
    assert model.weights_frame()["view"].tolist() == views
    # columns of the same table are an environment, too
    within = per_group(SETS) * Linear(columns=["s"])
    single = KernelBank(TABLE, within)
    assert single.names == ("one * linear[s]", "two * linear[s]")
    expected = KernelBank(TABLE, Linear(columns=["p", "q"]) * Linear(columns=["s"]))
    np.testing.assert_allclose(single.gram(0), expected.gram(0), rtol=1e-10)


def test_products_within_groups_columns_and_views():
    product = Linear() * RBF(0.5)
    bank = KernelBank(TABLE, per_group(SETS, kernel=product))
    each = KernelBank(TABLE, [Linear(columns=["p", "q"]), RBF(0.5, columns=["p", "q"])])
    np.testing.assert_allclose(bank.gram(0), each.gram(0) * each.gram(1), rtol=1e-10)
    assert bank.names == ("one", "two")
    each = KernelBank(TABLE, [*per_feature_pair("q"), per_feature(product)])
    np.testing.assert_allclose(each.gram(3), each.gram(0) * each.gram(1), rtol=1e-10)
    names = KernelBank(VIEWS[["rna", "clinic"]], per_view(product)).names
    assert names == ("rna:linear * rbf(gamma=0.5)", "clinic:linear * rbf(gamma=0.5)")


def per_feature_pair(column):
    return [Linear(columns=[column]), RBF(0.5, columns=[column])]


def test_tests_of_products_across_views():
    found = kernel_tests(
        VIEWS, TABLE["p"] * VIEWS["clinic"][:, 1],
        [Linear(view="rna") * Linear(view="clinic"), Linear(view="counts")],
    )  # fmt: skip
    assert found.p_values[0] < 1e-3 < found.p_values[1]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Product([Linear()]), ValueError, "at least two kernels"),
        (lambda: Product(["linear", "rbf"]), TypeError, "must be a kernel"),
        (
            lambda: Product([Linear(view="a"), RBF(view="b")], view="c"),
            ValueError,
            "their own views",
        ),
        (
            lambda: KernelBank(VIEWS, Linear() * RBF(view="rna") * RBF(view="clinic")),
            ValueError,
            r"'linear' of a product has no view.*\['rna', 'clinic'\]",
        ),
        (lambda: KernelBank(VIEWS, Linear() * RBF()), ValueError, "several views"),
        (
            lambda: KernelBank(TABLE, Linear() * Spectrum(2)),
            ValueError,
            "needs strings",
        ),
        (
            lambda: per_group(
                {"a": ["p"]}, kernel=Linear(columns=[0]) * RBF(view="rna")
            ),
            ValueError,
            "its own columns or view",
        ),
        (
            lambda: KernelBank(
                VIEWS, per_view(Linear(view="rna") * RBF(view="clinic"))
            ),
            ValueError,
            "All factors .* leave one of them without",
        ),
        (lambda: per_view("linear") * per_view("rbf"), TypeError, "unsupported"),
        (lambda: Linear() * 2, TypeError, "unsupported operand"),
    ],
)
def test_products_that_make_no_sense(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_product_is_definite_if_its_factors_are():
    assert (Linear() * RBF()).definite
    assert not (Linear() * Precomputed(gram=np.eye(3))).definite


# --- searches -------------------------------------------------------------------------


def test_searches_try_two_level_norms():
    tried = [1, TwoLevel(2, 1), TwoLevel(4, 2)]
    given = {"Cs": [0.1, 1.0], "cv": 3, "select": None}
    model = MKLClassifierCV(KERNELS, norms=tried, **given).fit(X, Y)
    assert model.scores_.shape == (3, 2, 3) and model.duality_gap_ <= 1e-3
    assert model.norms_.tolist() == tried and model.norm_ in tried
    one = MKLClassifierCV(KERNELS, norms=tried[1:2], **given).fit(X, Y)
    assert one.norm_ == tried[1]
    plain = MKLClassifier(KERNELS, norm=tried[1], C=one.C_).fit(X, Y)
    assert plain.solution_.upper == pytest.approx(one.solution_.upper, rel=2e-3)
    with pytest.raises(ValueError, match="no order"):
        PathDisplay.from_estimator(model, against="norm")
    with pytest.raises(ValueError, match="from 1 to inf, or TwoLevel"):
        MKLClassifierCV(KERNELS, norms=["sparse"]).fit(X, Y)
    targets = rng.normal(size=(N, 2))
    with pytest.raises(ValueError, match="weights='shared'"):
        MKLRegressorCV(KERNELS, norms=tried, weights="per-target").fit(X, targets)


def test_the_scores_of_a_search_are_those_of_its_cells():
    norm, folds = TwoLevel(2, 1), StratifiedKFold(3)
    search = MKLClassifierCV(
        KERNELS, norms=[norm], Cs=[1.0], cv=folds, select=None, tol=1e-5
    ).fit(X, Y)
    cell = MKLClassifier(KERNELS, norm=norm, C=1.0, tol=1e-5)
    expected = cross_val_score(cell, X, Y, cv=folds)
    np.testing.assert_allclose(search.scores_[0, 0], expected, atol=1 / 20 + 1e-9)


def test_no_kernel_of_given_groups_is_left_out():
    norm = TwoLevel(2, 1, groups=[m % 2 for m in range(12)])
    model = MKLClassifierCV("auto", norms=[norm], Cs=[1.0], cv=3).fit(X, Y)
    assert model.rejected_ == () and model.norm_ == norm


def test_paths_take_two_level_norms():
    bank, target = KernelBank(X, KERNELS), np.where(Y, 1.0, -1.0)[:, None]
    path = mkl_path(
        bank, lambda C: Hinge(target, C * np.ones((N, 1))), [0.1, 1.0],
        [2, TwoLevel(2, 1)],
    )  # fmt: skip
    assert path.gap.max() <= 1e-3
