"""Estimators that choose cost and norm: the same answer as a search, for less."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from cases import samples, stack
from mklearn import (
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressor,
    MKLRegressorCV,
    MultiView,
    kernels,
)
from mklearn.estimators._path_search import choose_cell

SMALL = {"Cs": [0.1, 1.0], "norms": [1, 2], "cv": 2, "select": None}


@parametrize_with_checks(
    [
        MKLClassifierCV(**{**SMALL, "norms": [2, np.inf], "select": "widths"}),
        MKLRegressorCV(**SMALL),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def overlapping(n=60, n_classes=2, seed=0):
    X, y = samples(n, n_classes=n_classes, seed=seed)
    rng = np.random.default_rng(seed + 100)
    return X, np.where(rng.random(n) < 0.15, (y + 1) % n_classes, y)


def waves(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)


# --- the same as a search -------------------------------------------------------------

GRID = {"C": [0.05, 0.5, 5.0], "norm": [1, 2, np.inf]}


def searched(model, B, y, folds, **settings):
    search = GridSearchCV(model, GRID, cv=folds, refit=False, **settings).fit(B, y)
    table = np.full((3, 3, len(folds)), np.nan)
    for j, cell in enumerate(search.cv_results_["params"]):
        i, k = GRID["norm"].index(cell["norm"]), GRID["C"].index(cell["C"])
        table[i, k] = [search.cv_results_[f"split{f}_test_score"][j] for f in range(3)]
    return table


@pytest.mark.parametrize("normalize", [None, "center", "multiplicative", "spherical"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_those_of_a_grid_search(normalize, n_classes):
    X, y = overlapping(60, n_classes)
    # slices of a bank know the diagonal, which spherical normalisation needs
    B = KernelBank.from_grams(stack(X))
    folds = list(StratifiedKFold(3).split(X, y))
    common = {"normalize": normalize, "tol": 1e-5}
    scoring = "roc_auc" if n_classes == 2 else None
    model = MKLClassifierCV(
        "precomputed",
        Cs=GRID["C"],
        norms=GRID["norm"],
        cv=folds,
        scoring=scoring,
        **common,
    ).fit(B, y)
    plain = MKLClassifier("precomputed", **common)
    table = searched(plain, B, y, folds, scoring=scoring)
    # one test sample near the boundary may change its side within the gap
    assert np.abs(model.scores_ - table).max() <= 0.0501
    assert np.abs(model.scores_ - table).mean() <= 2e-3
    np.testing.assert_allclose(model.mean_scores_, model.scores_.mean(axis=2))


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_regression_scores_are_those_of_a_grid_search(loss):
    X, y = waves()
    B, folds = stack(X), list(KFold(3).split(X))
    common = {"loss": loss, "tol": 1e-7}
    model = MKLRegressorCV(
        "precomputed", Cs=GRID["C"], norms=GRID["norm"], cv=folds, **common
    ).fit(B, y)
    table = searched(MKLRegressor("precomputed", **common), B, y, folds)
    np.testing.assert_allclose(model.scores_, table, atol=2e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "squared", "logistic"])
def test_other_losses(loss):
    X, y = overlapping()
    B, folds = stack(X), list(StratifiedKFold(3).split(X, y))
    common = {"loss": loss, "tol": 1e-6, "class_weight": "balanced"}
    model = MKLClassifierCV(
        "precomputed",
        Cs=GRID["C"],
        norms=GRID["norm"],
        cv=folds,
        scoring="roc_auc",
        **common,
    ).fit(B, y)
    plain = MKLClassifier("precomputed", **common)
    table = searched(plain, B, y, folds, scoring="roc_auc")
    np.testing.assert_allclose(model.scores_, table, atol=0.011)
    assert hasattr(model, "predict_proba") == (loss == "logistic")


def test_scoring_by_probabilities():
    X, y = overlapping()
    folds = list(StratifiedKFold(3).split(X, y))
    model = MKLClassifierCV(**{**SMALL, "cv": folds}, loss="logistic")
    model.set_params(scoring="neg_log_loss").fit(X, y)
    train, test = folds[0]
    # widths and scales come from all samples, so the kernels are the resolved ones
    B = KernelBank(X).stored()
    cell = MKLClassifier("precomputed", C=0.1, norm=1, loss="logistic")
    cell.fit(B[np.ix_(train, train)], y[train])
    p = cell.predict_proba(B[np.ix_(test, train)])
    assert model.scores_[0, 0, 0] == pytest.approx(-log_loss(y[test], p), abs=2e-2)


def test_the_last_fit_is_the_plain_estimator_at_the_choice():
    X, y = overlapping(80, 3)
    model = MKLClassifierCV(**{**SMALL, "norms": [1, 2, np.inf]}, tol=1e-6).fit(X, y)
    plain = MKLClassifier(C=model.C_, norm=model.norm_, tol=1e-6).fit(X, y)
    assert model.duality_gap_ <= 1e-6
    assert model.solution_.upper == pytest.approx(plain.solution_.upper, rel=2e-6)
    np.testing.assert_allclose(
        model.decision_function(X), plain.decision_function(X), atol=0.02
    )
    for name in vars(plain):
        if name.endswith("_") and not name.startswith("_"):
            assert hasattr(model, name), name


def test_the_last_fit_starts_warm():
    X, y = overlapping(150)
    model = MKLClassifierCV(Cs=[1.0, 10.0], norms=[1], cv=5, tol=1e-4, select=None)
    model.fit(X, y)
    plain = MKLClassifier(C=model.C_, norm=1, tol=1e-4).fit(X, y)
    assert model.n_iter_ < plain.n_iter_


# --- what is stored, and how often it is computed -------------------------------------


def test_kernels_are_computed_once():
    calls = []

    def kernel(X, Z):
        calls.append(X.shape)
        return np.exp(-((X[:, None] - Z[None]) ** 2).sum(axis=2))

    X, y = overlapping(40)
    MKLClassifierCV([kernel, kernels.Linear()], **SMALL).fit(X, y)
    assert sum(a for a, _ in calls) <= 2 * 40


def test_shapes_and_certificates():
    X, y = overlapping()
    model = MKLClassifierCV(Cs=4, norms=(1, 2, np.inf), cv=3).fit(X, y)
    assert model.scores_.shape == (3, 4, 3)
    assert len(model.path_) == 3
    for path in model.path_:
        assert path.theta.shape == (3, 4, len(model.kernel_names_))
        assert path.gap.max() <= 10 * model.tol  # what choices need
        assert path.solutions == ()
    assert model.duality_gap_ <= model.tol  # the last fit is exact
    np.testing.assert_allclose(model.Cs_, [1e-3, 1e-1, 1e1, 1e3])
    i, k = model.best_index_
    assert (model.norm_, model.C_) == (model.norms_[i], model.Cs_[k])
    assert model.mean_scores_[i, k] == pytest.approx(model.mean_scores_.max())
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.decision_function(X), model.decision_function(X)
    )


@pytest.mark.parametrize("kind", ["views", "sparse", "bank"])
def test_every_kind_of_input(kind):
    X, y = overlapping()
    settings = dict(SMALL)
    if kind == "views":
        X = MultiView({"a": X[:, :2], "b": X[:, 2:]})
    elif kind == "sparse":
        X = sparse.csr_array(X)
    else:
        X = KernelBank(X, [kernels.Linear(), kernels.RBF(0.2)])
        settings["kernels"] = "precomputed"
    model = MKLClassifierCV(**settings).fit(X, y)
    assert model.predict(X).shape == (60,)
    assert model.score(X, y) > 0.6


def test_several_outputs():
    X, y = waves()
    Y = np.c_[y, y**2]
    model = MKLRegressorCV(**SMALL).fit(X, Y)
    assert model.predict(X).shape == Y.shape


def test_jobs_do_not_change_the_answer():
    X, y = overlapping()
    one = MKLClassifierCV(**SMALL).fit(X, y)
    two = MKLClassifierCV(**SMALL, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.scores_, two.scores_)
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


# --- weights --------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MKLClassifierCV(**SMALL), MKLRegressorCV(**SMALL)])
def test_weights_are_repetitions_with_integer_cv(model):
    X, y = overlapping(40)
    weight = np.random.default_rng(0).integers(0, 4, size=40)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, atol=1e-12)
    assert (weighted.C_, weighted.norm_) == (repeated.C_, repeated.norm_)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-9)
    order = np.random.default_rng(1).permutation(40)
    shuffled = clone(model).fit(X[order], y[order], sample_weight=weight[order])
    np.testing.assert_allclose(weighted.scores_, shuffled.scores_, atol=1e-12)


def test_weights_count_in_the_scores():
    X, y = overlapping()
    folds = list(StratifiedKFold(3).split(X, y))
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 60)
    B = stack(X)
    settings = {"Cs": [1.0], "norms": [2], "cv": folds, "tol": 1e-6}
    model = MKLClassifierCV("precomputed", scoring="roc_auc", **settings)
    model.fit(B, y, sample_weight=weight)
    for f, (a, b) in enumerate(folds):
        one = MKLClassifier("precomputed", C=1.0, norm=2, tol=1e-6)
        one.fit(B[np.ix_(a, a)], y[a], sample_weight=weight[a])
        score = get_scorer("roc_auc")(
            one, B[np.ix_(b, a)], y[b], sample_weight=weight[b]
        )
        assert model.scores_[0, 0, f] == pytest.approx(score, abs=0.02)


# --- the rule -------------------------------------------------------------------------


def test_ties_take_the_smallest_cost_then_the_largest_norm():
    scores = np.full((3, 4, 2), 0.5)
    Cs, norms = np.array([0.1, 1, 10, 100]), np.array([1, np.inf, 2])
    assert choose_cell(scores, Cs, norms) == (1, 0)
    scores[0, 1] = scores[2, 1] = scores[1, 2] = 0.9
    assert choose_cell(scores, Cs, norms) == (2, 1)
    scores[2, 1, 0] = np.nan
    assert choose_cell(scores, Cs, norms) == (0, 1)


def test_one_standard_error():
    Cs, norms = np.array([0.1, 1, 10]), np.array([1.0, 2.0])
    scores = np.zeros((2, 3, 4))
    scores[0, 2] = [0.8, 0.9, 0.8, 0.9]  # standard error 0.029
    scores[0, 1] = scores[1, 1] = 0.83
    scores[:, 0] = 0.8
    assert choose_cell(scores, Cs, norms) == (0, 2)
    assert choose_cell(scores, Cs, norms, "1se") == (1, 1)


def test_one_standard_error_is_simpler():
    X, y = overlapping()
    grid = {"Cs": 5, "norms": [1, 2], "cv": 3}
    best = MKLClassifierCV(**grid).fit(X, y)
    simple = MKLClassifierCV(**grid, rule="1se").fit(X, y)
    assert simple.C_ <= best.C_


# --- limits and mistakes --------------------------------------------------------------


def test_cells_without_time_take_no_part():
    X, y = overlapping()
    bound = []

    def callback(history):
        bound.append(1)
        return False

    model = MKLClassifierCV(**SMALL, callback=callback).fit(X, y)
    assert bound
    with (
        pytest.raises(ValueError, match="raise time_limit"),
        pytest.warns(ConvergenceWarning, match="were not started"),
    ):
        clone(model).set_params(time_limit=1e-9, callback=None).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"Cs": 0}, "at least one value"),
        ({"Cs": [0.0]}, "positive"),
        ({"norms": []}, "list of numbers"),
        ({"norms": 2}, "list of numbers"),
        ({"norms": [0.5]}, "p >= 1"),
        ({"norms": ["one"]}, "numbers from 1 to inf"),
        ({"rule": "worst"}, "rule must be"),
        ({"loss": "l1"}, "loss must be"),
        ({"tol": 0}, "tol must be"),
        ({"scoring": "beauty"}, "beauty"),
        ({"cv": [([0, 2, 4], [1, 3])]}, "no samples of the classes"),
        ({"cv": [([0, 1], [])]}, "test samples"),
        ({"cv": []}, "at least one fold"),
    ],
)
def test_mistakes_are_named(settings, message):
    X, y = samples(20)
    with pytest.raises(ValueError, match=message):
        MKLClassifierCV(**{**SMALL, **settings}).fit(X, y)


def test_a_class_of_one_sample_is_named():
    X, y = samples(20)
    y = np.where(np.arange(20) == 3, 2, y)
    with pytest.raises(ValueError, match="2 distinct samples of each class"):
        MKLClassifierCV(**SMALL).fit(X, y)
