"""MKLOneClass: both forms, their relation, outliers, and model selection."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import OneClassSVM
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import squared_distances, stack
from mklearn import ElasticNet, KernelBank, MKLOneClass, MultiView, kernels

FORMS = [{"nu": 0.2}, {"C": 0.1}]
SPECS = [kernels.RBF(0.1), kernels.RBF(1.0)]


@parametrize_with_checks([MKLOneClass(), MKLOneClass(C=1.0)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def cloud(n=60, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)) + 1.0


def grams(X, Z=None):
    Z = X if Z is None else Z
    D = squared_distances(X, Z)
    return np.stack([np.exp(-g * D) for g in (0.05, 0.3, 2.0)], axis=2)


def precomputed(**settings):
    return MKLOneClass("precomputed", **{"normalize": None, "tol": 1e-8, **settings})


# --- reductions -----------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.1, 0.5, 0.9])
def test_one_kernel_is_one_class_svm(nu):
    X, Z = cloud(), cloud(30, seed=1)
    ours = MKLOneClass(kernels.RBF(0.2), nu=nu, normalize=None, tol=1e-11).fit(X)
    theirs = OneClassSVM(gamma=0.2, nu=nu, tol=1e-10).fit(X)
    # their coefficients sum to nu n, ours to one
    scale = nu * len(X)
    np.testing.assert_allclose(
        scale * ours.decision_function(Z), theirs.decision_function(Z), atol=1e-4
    )
    np.testing.assert_allclose(
        scale * ours.score_samples(Z), theirs.score_samples(Z), atol=1e-4
    )
    assert scale * ours.offset_ == pytest.approx(theirs.offset_[0], abs=1e-4)


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_the_two_forms_are_one(norm):
    # with w = rho v the form with nu is that with C = 1 / (nu n rho)
    X, Z = cloud(), cloud(30, seed=1)
    nu = precomputed(nu=0.3, norm=norm).fit(grams(X))
    cost = precomputed(C=1 / (0.3 * 60 * nu.offset_), norm=norm).fit(grams(X))
    assert cost.offset_ == 1.0
    np.testing.assert_allclose(nu.kernel_weights_, cost.kernel_weights_, atol=1e-3)
    T = grams(Z, X)
    np.testing.assert_allclose(
        nu.decision_function(T), nu.offset_ * cost.decision_function(T), atol=1e-4
    )


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_objective_by_hand(form):
    X = cloud(40)
    B = grams(X)
    model = precomputed(**form).fit(B)
    c = np.zeros(40)
    c[model.support_] = model.dual_coef_[0]
    K = B @ model.kernel_weights_
    f, norm = K @ c, c @ K @ c
    if "nu" in form:
        assert c.sum() == pytest.approx(1.0)
        rho = model.offset_
        total = np.maximum(0, rho - f).sum() / (0.2 * 40) - rho + 0.5 * norm
    else:
        total = 0.1 * np.maximum(0, 1 - f).sum() + 0.5 * norm
    assert model.solution_.upper == pytest.approx(total)
    assert model.duality_gap_ == model.solution_.gap <= 1e-8
    np.testing.assert_allclose(model.score_samples(B), f)
    share = model.kernel_weights_ * np.einsum("i,ijm,j->m", c, B, c)
    np.testing.assert_allclose(model.kernel_contributions_, share / share.sum())


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_no_other_weights_are_better(form):
    B = grams(cloud(40))
    best = precomputed(norm=1, **form).fit(B).solution_
    for theta in np.random.default_rng(0).dirichlet(np.ones(3), 5):
        assert precomputed(**form).fit(B @ theta).solution_.upper >= best.lower


# --- outliers -------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("norm", [1, 2, ElasticNet(0.5)])
def test_nu_is_the_share_of_outliers(nu, norm):
    X = cloud(200)
    model = MKLOneClass(SPECS, nu=nu, norm=norm, tol=1e-6).fit(X)
    scores = model.decision_function(X)
    assert np.mean(scores < -1e-6) <= nu + 1e-9
    assert len(model.support_) >= nu * 200 - 1e-9
    assert np.mean(model.predict(X) == -1) == pytest.approx(nu, abs=0.05)


@pytest.mark.parametrize("form", [{"nu": 0.1}, {"C": 0.1}], ids=str)
@pytest.mark.parametrize("normalize", [None, "trace", "multiplicative", "spherical"])
def test_far_samples_are_outliers(form, normalize):
    X = cloud(100)
    unit = {"trace": 100.0}.get(normalize, 1.0)
    form = {key: value * (unit if key == "C" else 1) for key, value in form.items()}
    model = MKLOneClass(SPECS, normalize=normalize, **form).fit(X)
    assert model.predict(np.ones((1, 3))).tolist() == [1]
    assert model.predict(np.full((1, 3), 20.0)).tolist() == [-1]
    scores = model.score_samples(X)
    np.testing.assert_allclose(model.decision_function(X), scores - model.offset_)
    np.testing.assert_array_equal(model.fit_predict(X), model.predict(X))
    assert model.intercept_.tolist() == [-model.offset_]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kind", ["table", "views", "grams"])
@pytest.mark.parametrize("normalize", [None, "multiplicative"])
def test_weights_are_repetitions_and_zero_is_absence(form, kind, normalize):
    X = cloud(40)
    times = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), times)
    settings = {**form, "normalize": normalize, "tol": 1e-8}
    if kind == "grams":
        B = grams(X)
        weighted = precomputed(**settings).fit(B, sample_weight=times)
        copies = precomputed(**settings).fit(B[np.ix_(rows, rows)])
        scores = weighted.score_samples(B), copies.score_samples(B[:, rows])
    else:
        wrap = MultiView.wrap if kind == "views" else np.asarray
        weighted = MKLOneClass(SPECS, **settings).fit(wrap(X), sample_weight=times)
        copies = MKLOneClass(SPECS, **settings).fit(wrap(X[rows]))
        scores = (m.score_samples(wrap(X)) for m in (weighted, copies))
    assert weighted.solution_.upper == pytest.approx(copies.solution_.upper, rel=1e-7)
    assert weighted.offset_ == pytest.approx(copies.offset_, rel=1e-3)
    np.testing.assert_allclose(*scores, atol=1e-3)


# --- diagonals ------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_spherical_normalisation_of_given_grams(form):
    X, Z = cloud(40), cloud(15, seed=1)
    B, T = stack(X, 3), stack(Z, 3, Z=X)
    diagonals = np.einsum("iim->im", stack(Z, 3))
    model = precomputed(normalize="spherical", **form).fit(B)
    with pytest.raises(ValueError, match="pass row_diag="):
        model.predict(T)
    root = np.sqrt(np.einsum("iim->im", B))
    by_hand = precomputed(**form).fit(B / (root[:, None] * root[None]))
    np.testing.assert_allclose(
        model.score_samples(KernelBank.from_grams(T, row_diag=diagonals)),
        by_hand.score_samples(T / (np.sqrt(diagonals)[:, None] * root[None])),
        atol=1e-4,
    )
    # the training samples bring their diagonals along
    labels = precomputed(normalize="spherical", **form).fit_predict(B)
    square = KernelBank.from_grams(B)
    np.testing.assert_array_equal(labels, model.predict(square))


# --- inputs and model selection -------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_data_bank_and_grams_are_the_same_input(form):
    X, Z = cloud(40), cloud(15, seed=1)
    specs = [kernels.RBF(g) for g in (0.05, 0.3, 2.0)]
    settings = {"tol": 1e-8, "normalize": "multiplicative", **form}
    expected = MKLOneClass(specs, **settings).fit(X).score_samples(Z)
    by_array = precomputed(**settings).fit(grams(X)).score_samples(grams(Z, X))
    bank = KernelBank(X, specs)
    by_bank = precomputed(**settings).fit(bank).score_samples(bank.cross(Z))
    np.testing.assert_allclose(by_array, expected, atol=1e-4)
    np.testing.assert_allclose(by_bank, expected, atol=1e-4)


def test_pickle():
    X = cloud(40)
    model = MKLOneClass(SPECS).fit(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


def test_order_of_rows_and_targets_do_not_matter():
    X = cloud(50)
    order = np.random.default_rng(0).permutation(50)
    a = MKLOneClass().fit(X)
    b = MKLOneClass().fit(X[order], y=order)
    np.testing.assert_array_equal(a.score_samples(X), b.score_samples(X))


@pytest.mark.parametrize("kind", ["table", "views", "bank", "array"])
def test_grid_search(kind):
    X = cloud(60)
    given, data = {
        "table": (SPECS, X),
        "views": (
            [kernels.per_view(*SPECS)],
            MultiView({"a": X[:, :2], "b": X[:, 2:]}),
        ),
        "bank": ("precomputed", KernelBank(X, SPECS)),
        "array": ("precomputed", grams(X)),
    }[kind]

    def inliers(model, X, y=None):
        return np.mean(model.predict(X) == 1)

    grid = {"nu": [0.1, 0.5], "norm": [1, 2]}
    search = GridSearchCV(MKLOneClass(given), grid, scoring=inliers, cv=KFold(3))
    search.fit(data)
    assert search.best_params_["nu"] == 0.1
    assert search.best_score_ > 0.6


# --- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"nu": 0.0}, r"nu must be a number in \(0, 1\], got 0.0"),
        ({"nu": 1.5}, "nu must be a number"),
        ({"nu": None}, "nu must be a number"),
        ({"nu": np.nan}, "nu must be a number"),
        ({"C": 0.0}, "C must be a positive number or None, got 0.0"),
        ({"C": "learn"}, "C must be a positive number or None"),
        ({"normalize": "center"}, "origin.*use 'multiplicative' or 'spherical'"),
        ({"normalize": "unit"}, "normalize must be one of"),
        ({"norm": "l2"}, "norm must be a number"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
    ],
    ids=str,
)
def test_parameters(settings, match):
    with pytest.raises(ValueError, match=match):
        MKLOneClass(**settings).fit(cloud(20))


def test_not_fitted():
    for method in ("predict", "decision_function", "score_samples"):
        with pytest.raises(NotFittedError):
            getattr(MKLOneClass(), method)(cloud(5))


def test_an_optimum_of_zero_ends():
    # a weighted sum of the samples is zero, so no function separates them from 0; the
    # objective decreases towards it forever if steps are made for the sake of rounding
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = MKLOneClass(kernels.per_feature("linear"), max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # nothing is left to gain
        model.fit(X)
    assert 0 <= model.solution_.upper < 1e-12 and abs(model.solution_.lower) < 1e-12
