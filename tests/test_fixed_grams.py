"""Covariates beside Gram matrices that are given."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_predict

from cases import patient_columns
from mklearn import (
    CrammerSingerClassifier,
    EvidenceMKLRegressor,
    KernelBank,
    MKLClassifier,
    MKLClassifierCV,
    MKLCox,
    MKLDiscriminant,
    MKLRegressor,
    SingleKernelCV,
    SubspaceClassifier,
    kernels,
)
from mklearn.interpretation import kernel_importance
from mklearn.persistence import load, save

FIXED = ["age", "site"]


def patients(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)
    y = np.sin(X["a"]) + 0.05 * X["age"] + 2.0 * (X["site"] == "y")
    y = (y + rng.standard_normal(n)).to_numpy()
    return X, y, np.where(y > np.median(y), "yes", "no")


def grams(X, Z=None):
    """Return the kernels of two columns, and the covariates of the rows."""
    rows = X if Z is None else Z
    stack = [
        rbf_kernel(rows[[c]].to_numpy(), X[[c]].to_numpy(), gamma=0.5) for c in "ab"
    ]
    table = rows[FIXED]
    return KernelBank.from_grams(stack, covariates=table, cross=Z is not None)


BANK = [kernels.RBF(0.5, columns=c) for c in "ab"]


@pytest.mark.parametrize(
    "model",
    [
        MKLRegressor(fixed=FIXED, tol=1e-8),
        MKLRegressor(fixed=FIXED, loss="epsilon_insensitive", tol=1e-6),
        EvidenceMKLRegressor(fixed=FIXED, tol=1e-8),
        MKLClassifier(fixed=FIXED, loss="logistic", tol=1e-8),
        MKLDiscriminant(fixed=FIXED, reg=0.01),
    ],
    ids=lambda model: type(model).__name__,
)
def test_given_grams_are_the_kernels_of_samples(model, tmp_path):
    X, values, labels = patients()
    y = values if "Regressor" in type(model).__name__ else labels
    new = X[::3]
    known = model.set_params(kernels=BANK).fit(X, y)
    ask = "predict" if y is values else "decision_function"
    expected = getattr(known, ask)(new)
    effects = known.fixed_effects_
    given = model.set_params(kernels="precomputed").fit(grams(X), y)
    assert given.fixed_names_ == ("age", "site=y", "site=z")
    size = np.abs(expected).max()
    found = getattr(given, ask)(grams(X, new))
    np.testing.assert_allclose(found, expected, atol=1e-2 * size)
    np.testing.assert_allclose(given.fixed_effects_, effects, atol=1e-2 * size)
    save(given, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(getattr(again, ask)(grams(X, new)), found)
    assert sum(given.explained(grams(X, new)).values()) == pytest.approx(1.0)


def test_splitters_cut_covariates_with_the_rows():
    X, values, _ = patients()
    model = MKLRegressor("precomputed", fixed=FIXED, tol=1e-8)
    folds = [(np.arange(20, 60), np.arange(20)), (np.arange(40), np.arange(40, 60))]
    folds.append((np.r_[0:20, 40:60], np.arange(20, 40)))
    found = cross_val_predict(model, grams(X), values, cv=folds)
    plain = MKLRegressor(BANK, fixed=FIXED, tol=1e-8)
    expected = cross_val_predict(plain, X, values, cv=folds)
    np.testing.assert_allclose(found, expected, atol=1e-2)
    search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(grams(X), values)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_searches_times_and_importance():
    X, values, labels = patients()
    options = {"fixed": FIXED, "Cs": [0.1, 1.0], "norms": [2], "cv": 3}
    given = MKLClassifierCV("precomputed", **options).fit(grams(X), labels)
    known = MKLClassifierCV(BANK, **options).fit(X, labels)
    np.testing.assert_allclose(given.mean_scores_, known.mean_scores_, atol=0.1)
    y = np.column_stack([np.exp(-values), np.ones(len(X))])
    cox = MKLCox("precomputed", fixed=FIXED).fit(grams(X), y)
    assert cox.predict(grams(X, X[:5])).shape == (5,)
    model = MKLClassifier("precomputed", fixed=FIXED).fit(grams(X), labels)
    assert len(kernel_importance(model, grams(X), labels, n_repeats=5).names) == 2


def test_numbers_of_columns_and_what_is_missing():
    X, values, _ = patients()
    table = np.column_stack([X["age"], X["site"] == "y"]).astype(float)
    stack = np.dstack([rbf_kernel(X[[c]].to_numpy()) for c in "ab"])
    bank = KernelBank.from_grams(stack, covariates=table)
    model = MKLRegressor("precomputed", fixed=[0, 1]).fit(bank, values)
    assert model.fixed_names_ == ("covariate 0", "covariate 1")
    with pytest.raises(ValueError, match="covariates=table"):
        model.predict(stack[:3])
    with pytest.raises(ValueError, match="covariates=table"):
        MKLRegressor("precomputed", fixed=[0]).fit(stack, values)
    with pytest.raises(ValueError, match="no such column"):
        MKLRegressor("precomputed", fixed="agee").fit(grams(X), values)
    with pytest.raises(ValueError, match="lack the covariate 'site'"):
        other = KernelBank.from_grams(stack, covariates=X[["age"]])
        MKLRegressor("precomputed", fixed=FIXED).fit(grams(X), values).predict(other)
    with pytest.raises(ValueError, match="values for 60 samples"):
        KernelBank.from_grams(stack, covariates=table[:5])


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(
    ("estimator", "value"),
    [
        (MKLClassifier(loss="logistic", normalize=None, tol=1e-8), 1.0),
        (MKLDiscriminant(), 0.01),
    ],
    ids=["classifier", "discriminant"],
)
def test_one_kernel_and_one_value_are_the_estimator(estimator, value, given, tmp_path):
    X, _, labels = patients()
    some = [np.flatnonzero(labels == one)[0] for one in ("yes", "no")]
    X.loc[some, "site"] = "rare"  # which some folds do not know
    name = "reg" if isinstance(estimator, MKLDiscriminant) else "C"
    plain = clone(estimator).set_params(
        kernels=BANK[0], fixed=FIXED, **{name: value}
    ).fit(X, labels)  # fmt: skip
    family, data, new = BANK[:1], X, X[:9]
    if given:
        family, data, new = "precomputed", grams(X).select([0]), grams(X, X[:9])
        new = new.select([0])
    model = SingleKernelCV(estimator, family, fixed=FIXED, values=[value], cv=3)
    model.fit(data, labels)
    assert model.fixed_names_ == plain.fixed_names_
    expected = plain.decision_function(X[:9])
    size = np.abs(expected).max()
    np.testing.assert_allclose(model.decision_function(new), expected, atol=1e-3 * size)
    np.testing.assert_allclose(
        model.fixed_effects_, plain.fixed_effects_, atol=1e-3 * size
    )
    np.testing.assert_allclose(
        model.predict_proba(new), plain.predict_proba(X[:9]), atol=1e-2
    )
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(again.predict_proba(new), model.predict_proba(new))
    other = SingleKernelCV(SubspaceClassifier(), family, fixed=FIXED)
    with pytest.raises(ValueError, match="does not support covariates"):
        other.fit(data, labels)


def test_margins_of_all_classes_with_a_category_that_some_folds_do_not_know():
    X, _, labels = patients()
    some = [np.flatnonzero(labels == one)[0] for one in ("yes", "no")]
    X.loc[some, "site"] = "rare"
    model = SingleKernelCV(
        CrammerSingerClassifier(), BANK[:1], values=[0.1, 10.0], fixed=FIXED, cv=3
    )
    model.fit(X, labels)
    assert np.isfinite(model.fixed_effects_).all()
    for C in (1e-3, 0.1, 1e3):  # a stalled fit would warn
        CrammerSingerClassifier(BANK[0], fixed=FIXED, C=C).fit(X, labels)
