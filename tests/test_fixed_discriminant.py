"""Covariates beside kernels in discriminant analysis."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from cases import patient_columns
from mklearn import MKLDiscriminant, kernels
from mklearn.persistence import load, save

FIXED = ["age", "site"]


def patients(n=80, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)
    value = X["a"] + 0.03 * X["age"] + 0.7 * (X["site"] == "y")
    value = value + rng.standard_normal(n)
    edges = np.quantile(value, np.arange(1, classes) / classes)
    return X, np.digitize(value, edges)


def coded(X):
    site = X["site"].to_numpy()
    return np.column_stack([X["age"] / 100, site == "y", site == "z"]).astype(float)


@pytest.mark.parametrize("classes", [2, 3])
def test_without_regularisation_it_is_linear_discriminant_analysis(classes):
    # covariates and a linear kernel are then columns like any other
    X, y = patients(classes=classes)
    model = MKLDiscriminant("linear", fixed=FIXED, reg=1e-9).fit(X, y)
    columns = np.column_stack([coded(X), X["a"], X["b"]])
    lda = LinearDiscriminantAnalysis(priors=np.full(classes, 1 / classes))
    lda.fit(columns, y)
    assert np.mean(model.predict(X) == lda.predict(columns)) > 0.98
    ours, theirs = model.transform(X), lda.transform(columns)
    for j in range(classes - 1):
        assert abs(np.corrcoef(ours[:, j], theirs[:, j])[0, 1]) > 1 - 1e-6
    np.testing.assert_allclose(ours.mean(axis=0), 0.0, atol=1e-8)


@pytest.mark.parametrize("reg", [1e-2, "learn"])
def test_the_problem_is_least_squares_with_free_columns(reg):
    X, y = patients()
    bank = kernels.per_feature("rbf")
    model = MKLDiscriminant(bank, fixed=FIXED, reg=reg, tol=1e-8).fit(X, y)
    assert model.duality_gap_ <= 1e-8
    # covariates may be in any units, and recombined
    other = X.assign(age=5 - 3 * X["age"])
    other["site"] = other["site"].map({"x": "3", "y": "1", "z": "2"})
    moved = MKLDiscriminant(bank, fixed=FIXED, reg=reg, tol=1e-8).fit(other, y)
    np.testing.assert_allclose(
        moved.decision_function(other), model.decision_function(X), atol=1e-3
    )
    rows, predictor = model.checked(X), model.predictor_
    parts = predictor.parts(rows).sum(axis=2) + predictor.of_covariates(rows)
    F = model.decision_function(X)
    np.testing.assert_allclose(parts + predictor.bias, F, atol=1e-9 * np.abs(F).max())


def test_a_constant_covariate_is_none():
    X, y = patients()
    plain = X[["a", "b"]]
    one = MKLDiscriminant("rbf", fixed="one", reg=0.01).fit(plain.assign(one=2.0), y)
    assert one.fixed_dropped_ == ("one",)
    model = MKLDiscriminant("rbf", reg=0.01).fit(plain, y)
    F, G = one.decision_function(plain.assign(one=2.0)), model.decision_function(plain)
    np.testing.assert_allclose(F, G, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
def test_full_rank_is_exact(classes):
    X, y = patients(60, classes)
    options = {"fixed": FIXED, "reg": "loo", "regs": [1e-3, 1e-1]}
    exact = MKLDiscriminant("rbf", **options).fit(X, y)
    low = MKLDiscriminant("rbf", approximation="nystroem", rank=100, **options)
    low.fit(X, y)
    np.testing.assert_allclose(low.loo_, exact.loo_, rtol=1e-4)
    np.testing.assert_allclose(low.gcv_, exact.gcv_, rtol=1e-4)
    assert low.reg_ == exact.reg_
    F, G = low.decision_function(X), exact.decision_function(X)
    np.testing.assert_allclose(F, G, atol=1e-3 * np.abs(G).max())
    np.testing.assert_allclose(low.predict_proba(X), exact.predict_proba(X), atol=1e-2)
    np.testing.assert_allclose(
        low.fixed_effects_, exact.fixed_effects_, atol=1e-3 * np.abs(G).max()
    )


def test_left_out_scores_are_those_of_models_without_the_sample():
    X, y = patients(40, 2)
    model = MKLDiscriminant("linear", fixed="age", reg="loo", regs=[0.1])
    model.fit(X.drop(columns="site"), y)
    counts = np.bincount(y)
    H = np.where(y == 1, 1 / counts[1], -1 / counts[0])
    # kernels and targets are kept, the rest is fitted again
    K = X[["a", "b"]].to_numpy()
    K = K - K.mean(axis=0)
    scale = (X[["a", "b"]].to_numpy() - X[["a", "b"]].to_numpy().mean(axis=0)) ** 2
    K = K / np.sqrt(scale.sum())
    E = np.column_stack([np.ones(len(y)), X["age"]])
    errors = []
    for i in range(len(y)):
        kept = np.arange(len(y)) != i
        columns = np.column_stack([E, K])
        penalty = np.diag([0, 0, 0.1, 0.1])
        part = columns[kept]
        beta = np.linalg.solve(part.T @ part + penalty, part.T @ H[kept])
        errors.append(H[i] - columns[i] @ beta)
    np.testing.assert_allclose(model.loo_[0], np.mean(np.square(errors)), rtol=1e-6)


@pytest.mark.parametrize("low", [{}, {"approximation": "nystroem", "rank": 60}])
def test_a_category_of_one_sample_leaves_nothing_to_be_known_without_it(low):
    X, y = patients(50)
    X.loc[0, "site"] = "rare"
    model = MKLDiscriminant("rbf", fixed=FIXED, reg=0.01, **low).fit(X, y)
    probable = model.predict_proba(X)
    assert np.isfinite(probable).all() and model.temperature_ > 0


def test_saving_paths_labels_and_what_is_refused(tmp_path):
    X, y = patients()
    model = MKLDiscriminant("rbf", fixed=FIXED, reg=0.01).fit(X, y)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.transform(X), model.transform(X))
    assert sum(model.explained(X).values()) == pytest.approx(1.0)
    for one in model.reg_path(X, y, [0.1, 0.01]):
        assert one.fixed_names_ == model.fixed_names_
        assert one.predict(X).shape == y.shape
    labels = np.column_stack([y == 0, y == 2]).astype(int)
    several = MKLDiscriminant("rbf", fixed=FIXED, reg=0.01).fit(X, labels)
    assert several.predict(X).shape == labels.shape
    assert several.fixed_effects_.shape == (2, 3)
    with pytest.raises(
        ValueError, match="criterion='kfda' does not support covariates"
    ):
        MKLDiscriminant("rbf", fixed=FIXED, criterion="kfda").fit(X, y > 0)
    with pytest.raises(ValueError, match="category 'q'"):
        model.predict(X.assign(site="q"))
    with pytest.raises(ValueError, match="explain the target exactly"):
        MKLDiscriminant("rbf", fixed=FIXED).fit(X, X["site"])
