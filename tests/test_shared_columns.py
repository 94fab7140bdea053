"""Linear kernels that share columns, in feature space: each column counted once."""

from __future__ import annotations

import numpy as np
import pytest

from mklearn import (
    EvidenceMKLRegressor,
    MKLClassifier,
    MKLCox,
    MKLDiscriminant,
    MKLRegressor,
    MultiView,
)
from mklearn.interpretation import decision_parts
from mklearn.kernels import RBF, Linear, per_group
from mklearn.kernels.bank import KernelBank
from mklearn.kernels.feature_map import Columns, FeatureMap
from mklearn.persistence import load, save

RANK = {"approximation": "nystroem", "rank": 6}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 20)) + 1.0
    y = X[:, 0] - X[:, 3] + 0.5 * rng.normal(size=90)
    sets = {
        f"S{k}": rng.choice(20, 3 + k % 4, replace=False).tolist() for k in range(40)
    }
    return X, y, sets


def test_columns_are_computed_once(data):
    X, _, sets = data
    kernels = [per_group(sets, kernel=Linear(standardize=True)), RBF(1.0, columns=[0])]
    features = FeatureMap.fit(X, kernels, rank=6)
    assert isinstance(features.pieces[0][1], Columns)
    assert features.n_columns == 20 + 6
    assert features.n_features == sum(map(len, sets.values())) + 6
    Z = features.transform(X)
    np.testing.assert_array_equal(Z, features.columns(X)[:, features.places])
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for part, columns in zip(features.slices, sets.values(), strict=False):
        np.testing.assert_allclose(Z[:, part], scaled[:, sorted(columns)], atol=1e-12)
    w = np.arange(features.n_features * 2.0).reshape(-1, 2)
    np.testing.assert_allclose(Z @ w, features.columns(X) @ features.folded(w))


def test_a_choice_of_kernels_keeps_their_columns_alone(data):
    X, _, sets = data
    features = FeatureMap.fit(X, per_group(sets), rank=6)
    some = features.select([7, 2])
    some.check()
    assert some.n_columns == len({*sets["S7"], *sets["S2"]})
    whole = features.transform(X)
    np.testing.assert_array_equal(
        some.transform(X),
        np.hstack([whole[:, features.slices[7]], whole[:, features.slices[2]]]),
    )


def test_larger_sets_and_unit_length_take_features_of_their_own(data):
    X, _, sets = data
    few = FeatureMap.fit(X, per_group(sets), rank=4)
    assert max(few.pieces[0][1].widths) == 4
    assert max(part.stop - part.start for part in few.slices) == 4
    assert FeatureMap.fit(X, per_group(sets), rank=6, spherical=True).places is None


@pytest.mark.parametrize("norm", [1, 2])
def test_squared_loss_is_that_of_grams(data, norm):
    X, y, sets = data
    given = {"norm": norm, "loss": "squared", "tol": 1e-7}
    exact = MKLRegressor(per_group(sets), **given).fit(X, y)
    shared = MKLRegressor(per_group(sets), **given, **RANK).fit(X, y)
    # objectives differ by no more than both gaps, and rounding
    a, b = exact.solution_, shared.solution_
    assert a.upper >= b.lower - 1e-9 * abs(b.lower)
    assert b.upper >= a.lower - 1e-9 * abs(a.lower)
    # the loss is strongly convex: a gap g moves scores by sqrt(2 n g / C) at most
    n, C = len(X), exact.C
    slack = sum(np.sqrt(2 * n * max(s.upper - s.lower, 1e-9) / C) for s in (a, b))
    assert np.abs(exact.predict(X) - shared.predict(X)).max() <= slack
    parts = decision_parts(shared, X[:5]).to_frame()
    terms = parts.iloc[:, :-1].to_numpy().sum(axis=1)
    np.testing.assert_allclose(terms, shared.predict(X[:5]), atol=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_other_losses_are_those_of_grams(data, loss):
    X, y, sets = data
    given = {"norm": 2, "loss": loss, "tol": 1e-4}
    exact = MKLClassifier(per_group(sets), **given).fit(X, y > 0)
    shared = MKLClassifier(per_group(sets), **given, **RANK).fit(X, y > 0)
    a, b = exact.solution_, shared.solution_
    assert a.upper >= b.lower - 1e-9 * abs(b.lower)
    assert b.upper >= a.lower - 1e-9 * abs(a.lower)


def test_views_that_are_absent_and_covariates(data):
    X, y, sets = data
    holes = np.arange(len(X)) % 3 == 0
    rna = np.where(holes[:, None], np.nan, X)
    table = MultiView({"rna": rna, "clinic": y[:, None] + X[:, [0]]})
    kernels = [per_group(sets, view="rna"), Linear(view="clinic")]
    given = {"loss": "squared", "tol": 1e-7}
    exact = MKLRegressor(kernels, **given).fit(table, y)
    shared = MKLRegressor(kernels, **given, **RANK).fit(table, y)
    a, b = exact.solution_, shared.solution_
    assert a.upper >= b.lower - 1e-9 * abs(b.lower)
    assert b.upper >= a.lower - 1e-9 * abs(a.lower)
    exact = MKLRegressor(per_group(sets), fixed=[19], **given).fit(X, y)
    shared = MKLRegressor(per_group(sets), fixed=[19], **given, **RANK).fit(X, y)
    a, b = exact.solution_, shared.solution_
    assert a.upper >= b.lower - 1e-9 * abs(b.lower)
    assert b.upper >= a.lower - 1e-9 * abs(a.lower)


def test_whoever_needs_each_feature_gets_it(data):
    X, y, sets = data
    family = per_group(sets)
    model = MKLDiscriminant(family, **RANK).fit(X, y > 0)
    assert model.score(X, y > 0) > 0.8
    times = np.column_stack([np.exp(-y), np.ones(len(y))])
    assert MKLCox(family, **RANK).fit(X, times).score(X, times) > 0.8
    assert EvidenceMKLRegressor(family, **RANK).fit(X, y).score(X, y) > 0.8


def test_sums_and_files(data, tmp_path):
    X, y, sets = data
    model = MKLRegressor(per_group(sets), loss="squared", norm=1, tol=1e-6, **RANK)
    model.fit(X, y)
    save(model, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    sums = model.accumulator(X)
    sums.update(X[:50], y[:50])
    sums.update(X[50:], y[50:])
    summed = MKLRegressor(per_group(sets), loss="squared", norm=1, tol=1e-6, **RANK)
    summed.fit_statistics(sums)
    a, b = model.solution_, summed.solution_
    assert a.upper >= b.lower - 1e-9 * abs(b.lower)
    assert b.upper >= a.lower - 1e-9 * abs(a.lower)


def test_a_bank_of_columns_in_common():
    rng = np.random.default_rng(1)
    Z, A = rng.normal(size=(7, 5)), rng.normal(size=(7, 2))
    groups = [np.array([0, 2]), np.array([2, 3, 4]), np.array([1])]
    scale = np.array([2.0, 0.5, 3.0])
    bank = KernelBank.from_features(Z, groups, scale=scale)
    grams = [
        s * Z[:, columns] @ Z[:, columns].T
        for s, columns in zip(scale, groups, strict=True)
    ]
    plain = KernelBank.from_grams(grams)
    theta = np.array([0.3, 1.1, 0.7])
    np.testing.assert_allclose(bank.combine(theta), plain.combine(theta))
    np.testing.assert_allclose(bank.quad(A), plain.quad(A))
    np.testing.assert_allclose(bank.multiply(A), plain.multiply(A))
    np.testing.assert_allclose(bank.diag(), plain.diag())
    some, same = (b.select([2, 0]) for b in (bank, plain))
    np.testing.assert_allclose(some.combine([1.0, 2.0]), same.combine([1.0, 2.0]))
