"""Model selection with scikit-learn's tools, on every kind of input."""

import numpy as np
import pytest
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cases import samples
from mklearn import (
    BestKernelClassifier,
    KernelBank,
    MKLClassifier,
    MultiView,
    UniformMKLClassifier,
    kernels,
)

SPECS = [kernels.Linear(), kernels.RBF(0.1), kernels.RBF(2.0)]
GRID = {"C": [0.1, 10.0], "norm": [1, 2]}
CV = StratifiedKFold(3, shuffle=True, random_state=0)


def inputs(X):
    """Return the same kernels as table, views, lazy bank and array, with a model."""
    bank = KernelBank(X, SPECS)
    grams = np.stack([bank.gram(m) for m in range(len(SPECS))], axis=2)
    views = MultiView({"left": X[:, :2], "right": X[:, 2:]})
    by_view = kernels.per_view(*SPECS)
    return {
        "table": (MKLClassifier(SPECS, tol=1e-6), X),
        "views": (MKLClassifier([by_view], tol=1e-6), views),
        "bank": (MKLClassifier("precomputed", tol=1e-6), bank),
        "array": (MKLClassifier("precomputed", tol=1e-6), grams),
    }


@pytest.mark.parametrize("kind", ["table", "views", "bank", "array"])
def test_grid_search(kind):
    X, y = samples(60)
    model, data = inputs(X)[kind]
    search = GridSearchCV(model, GRID, cv=CV).fit(data, y)
    assert set(search.best_params_) == {"C", "norm"}
    assert search.best_score_ > 0.6
    assert search.predict(data).shape == (60,)
    assert search.score(data, y) > 0.6


def test_grid_search_does_not_depend_on_the_kind_of_input_or_jobs():
    X, y = samples(60)
    found = inputs(X)
    scores = {
        kind: GridSearchCV(model, GRID, cv=CV, n_jobs=jobs)
        .fit(data, y)
        .cv_results_["mean_test_score"]
        for kind, jobs in (("table", 2), ("bank", 2), ("array", 2), ("bank", 1))
        for model, data in [found[kind]]
    }
    np.testing.assert_allclose(scores["bank"], scores["array"])
    np.testing.assert_allclose(scores["bank"], scores["table"])


@pytest.mark.parametrize("kind", ["table", "views", "bank", "array"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_cross_val_score(kind, jobs):
    X, y = samples(60)
    model, data = inputs(X)[kind]
    scores = cross_val_score(model, data, y, cv=CV, n_jobs=jobs)
    # by hand: fit on a slice, score on a slice
    by_hand = []
    for train, test in CV.split(X, y):
        if kind in ("bank", "array"):
            model.fit(data[np.ix_(train, train)], y[train])
            by_hand.append(model.score(data[np.ix_(test, train)], y[test]))
        else:
            model.fit(data[train], y[train])
            by_hand.append(model.score(data[test], y[test]))
    np.testing.assert_allclose(scores, by_hand)


@pytest.mark.parametrize("cls", [UniformMKLClassifier, BestKernelClassifier])
@pytest.mark.parametrize("kind", ["views", "bank", "array"])
def test_baselines_in_cross_validation(cls, kind):
    X, y = samples(60)
    model, data = inputs(X)[kind]
    scores = cross_val_score(cls(model.kernels), data, y, cv=CV)
    assert scores.mean() > 0.6


def test_nothing_of_the_test_fold_is_seen():
    # statistics of kernels and normalisation come from the training rows alone:
    # what is done to the test rows cannot change the fitted model
    X, y = samples(60)
    train = np.arange(40)
    other = X.copy()
    other[40:] *= 100.0
    models = []
    for table in (X, other):
        bank = KernelBank(table, SPECS)[np.ix_(train, train)]
        models.append(
            MKLClassifier("precomputed", normalize="center").fit(bank, y[:40])
        )
    np.testing.assert_allclose(
        models[0].kernel_weights_, models[1].kernel_weights_, rtol=1e-6
    )
    assert models[0].solution_.upper == pytest.approx(models[1].solution_.upper)


@pytest.mark.parametrize("kind", ["table", "views", "bank", "array"])
def test_one_vs_rest(kind):
    X, y = samples(60, n_classes=3)
    model, data = inputs(X)[kind]
    rest = OneVsRestClassifier(model).fit(data, y)
    each = MKLClassifier(model.kernels, weights="per-class", tol=1e-6).fit(data, y)
    np.testing.assert_allclose(
        rest.decision_function(data), each.decision_function(data), atol=1e-3
    )


@pytest.mark.parametrize("kind", ["bank", "array"])
def test_one_vs_rest_in_cross_validation(kind):
    X, y = samples(60, n_classes=3)
    model, data = inputs(X)[kind]
    assert cross_val_score(OneVsRestClassifier(model), data, y, cv=CV).mean() > 0.5


def test_pipeline_with_a_scaler():
    X, y = samples(60)
    X = X * np.array([1.0, 1e3, 1.0, 1e-3, 1.0])
    pipe = make_pipeline(StandardScaler(), MKLClassifier(SPECS))
    search = GridSearchCV(pipe, {"mklclassifier__C": [0.1, 1.0]}, cv=CV).fit(X, y)
    assert search.best_score_ > 0.6
    # the kernels can do the scaling themselves
    scaled = [kernels.RBF(0.1, standardize=True)]
    a = make_pipeline(StandardScaler(), MKLClassifier(kernels.RBF(0.1))).fit(X, y)
    b = MKLClassifier(scaled).fit(X, y)
    np.testing.assert_allclose(
        a.decision_function(X), b.decision_function(X), atol=0.02
    )


@pytest.mark.parametrize("kind", ["table", "bank"])
def test_nested_cross_validation(kind):
    X, y = samples(60)
    model, data = inputs(X)[kind]
    inner = GridSearchCV(model, GRID, cv=StratifiedKFold(2))
    scores = cross_val_score(inner, data, y, cv=CV, n_jobs=2)
    assert scores.shape == (3,)
    assert scores.mean() > 0.6


def test_other_tools_take_banks():
    X, y = samples(60, n_classes=3)
    model, bank = inputs(X)["bank"]
    labels = cross_val_predict(model, bank, y, cv=CV)
    assert (labels == y).mean() > 0.5
    found = cross_validate(
        model, bank, y, cv=CV, scoring=["accuracy", "f1_macro"], return_estimator=True
    )
    assert all(m.duality_gap_ <= 1e-6 for m in found["estimator"])


def test_sample_weights_are_sliced_with_the_samples():
    X, y = samples(60)
    weight = np.random.default_rng(0).integers(0, 3, 60)
    scores = []
    for kind in ("table", "bank", "array"):
        model, data = inputs(X)[kind]
        search = GridSearchCV(model, {"C": [0.1, 10.0]}, cv=CV)
        search.fit(data, y, sample_weight=weight)
        scores.append(search.cv_results_["mean_test_score"])
    np.testing.assert_allclose(scores[0], scores[1])
    np.testing.assert_allclose(scores[1], scores[2])


def test_kernels_can_be_searched():
    X, y = samples(60)
    grid = {"kernels": ["linear", "rbf", SPECS, "auto"], "normalize": [None, "trace"]}
    search = GridSearchCV(MKLClassifier(), grid, cv=CV).fit(X, y)
    assert len(search.cv_results_["params"]) == 8
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
