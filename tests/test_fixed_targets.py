"""Covariates beside targets with kernel weights of their own."""

import numpy as np
import pytest

from cases import patient_columns
from mklearn import MKLRegressor, MKLRegressorCV, kernels
from mklearn.problems.targets import FewerColumns

FIXED = ["age", "site"]
BANK = kernels.per_feature("rbf")


def patients(n=80, seed=0):
    """Return a table of numbers and categories, and three targets."""
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)
    Y = np.column_stack(
        [
            np.sin(X["a"]) + 0.05 * X["age"] + 2.0 * (X["site"] == "y"),
            np.sin(X["b"]) - 0.1 * X["age"],
            X["a"] * X["b"],
        ]
    )
    return X, Y + 0.3 * rng.standard_normal(Y.shape)


def coded(X):
    site = X["site"].to_numpy()
    return np.column_stack([np.ones(len(X)), X["age"], site == "y", site == "z"])


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("options", [{}, {"approximation": "nystroem", "rank": 80}])
def test_each_target_is_a_model_of_its_own(norm, options):
    X, Y = patients()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(Y))
    settings = {"fixed": FIXED, "norm": norm, "tol": 1e-6}
    model = MKLRegressor(BANK, weights="per-target", **settings, **options)
    model.fit(X, Y, weight)
    assert model.duality_gap_ <= 1e-6 and model.fixed_effects_.shape == (3, 3)
    for t in range(3):
        alone = MKLRegressor(BANK, **settings).fit(X, Y[:, t], weight)
        # the objective grows by half of the squared error at least, both are off
        # by no more than the gap
        top = alone.solution_.upper
        reach = 2 * np.sqrt(2 * 1e-6 * top / weight.min())
        np.testing.assert_allclose(model.predict(X)[:, t], alone.predict(X), atol=reach)
        size = np.linalg.norm(np.linalg.pinv(coded(X)), axis=1)[1:]
        off = np.abs(model.fixed_effects_[t] - alone.fixed_effects_)
        # effects also make up for what kernels say, which is as far off
        assert (off <= 4 * reach * len(Y) ** 0.5 * size).all()


def test_bounds_hold_for_each_target():
    X, Y = patients()
    model = MKLRegressor(BANK, fixed=FIXED, weights="per-target", tol=1e-6).fit(X, Y)
    bounds = model.solution_.about
    for t in range(3):
        alone = MKLRegressor(BANK, fixed=FIXED, tol=1e-6).fit(X, Y[:, t]).solution_
        assert bounds.lower[t] <= alone.upper and alone.lower <= bounds.upper[t]
    # dual variables are orthogonal to the design
    A = model.dual_coef_.T
    off = np.abs(coded(X).T @ A)
    assert (off <= 1e-10 * np.abs(coded(X)).T @ np.abs(A)).all()


def test_one_kernel_is_ridge_regression():
    X, Y = patients()
    C = 0.7
    model = MKLRegressor(
        "linear", fixed=FIXED, weights="per-target", normalize=None, C=C, tol=1e-9
    ).fit(X, Y)
    columns = np.column_stack([coded(X), X["a"], X["b"]])
    penalty = np.diag([0, 0, 0, 0, 1 / C, 1 / C])
    beta = np.linalg.solve(columns.T @ columns + penalty, columns.T @ Y)
    np.testing.assert_allclose(model.fixed_effects_, beta[1:4].T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.predict(X), columns @ beta, rtol=1e-7, atol=1e-8)


def test_targets_may_be_moved_along_the_covariates():
    X, Y = patients()
    model = MKLRegressor(BANK, fixed=FIXED, weights="per-target", tol=1e-7)
    plain = model.fit(X, Y)
    values, bounds = plain.predict(X), plain.solution_.about
    shift = coded(X) @ np.array([[3.0, -0.2, 5.0, 1.0], [0, 1, 2, 0], [9, 0, 0, 0]]).T
    moved = model.fit(X, Y + shift)
    assert (bounds.lower <= moved.solution_.about.upper).all()
    assert (moved.solution_.about.lower <= bounds.upper).all()
    reach = 4 * np.sqrt(1e-7 * bounds.upper.max())
    np.testing.assert_allclose(moved.predict(X) - shift, values, atol=reach)


def test_a_target_that_covariates_explain_and_one_that_is_constant():
    X, Y = patients()
    Y = np.column_stack([Y, coded(X) @ [1.0, 0.5, 2.0, 0.0], np.full(len(Y), 3.0)])
    model = MKLRegressor(BANK, fixed=FIXED, weights="per-target").fit(X, Y)
    np.testing.assert_allclose(model.fixed_effects_[3], [0.5, 2.0, 0.0], atol=1e-8)
    np.testing.assert_allclose(model.predict(X)[:, 3:], Y[:, 3:], atol=1e-8)
    with pytest.raises(ValueError, match="leaves nothing for the kernels"):
        model.fit(X, Y[:, [3]])


def test_groups_of_targets_and_searches():
    X, Y = patients()
    model = MKLRegressor(BANK, fixed=FIXED, weights=["p", "q", "p"], tol=1e-7).fit(X, Y)
    pair = MKLRegressor(BANK, fixed=FIXED, tol=1e-7).fit(X, Y[:, [0, 2]])
    np.testing.assert_allclose(model.fixed_effects_[[0, 2]], pair.fixed_effects_)
    np.testing.assert_allclose(model.predict(X)[:, [0, 2]], pair.predict(X), rtol=1e-9)
    grid = {"Cs": 3, "norms": [2], "cv": 3, "weights": "per-target"}
    search = MKLRegressorCV(BANK, fixed=FIXED, **grid).fit(X, Y)
    plain = MKLRegressorCV(BANK, **grid).fit(X[["a", "b"]], Y)
    better = search.mean_scores_.max(axis=(0, 1)) - plain.mean_scores_.max(axis=(0, 1))
    assert (better[:2] > 0.2).all()


def test_more_targets_than_samples_are_as_many_columns():
    X, Y = patients(40)
    rng = np.random.default_rng(2)
    many = Y @ rng.standard_normal((3, 60)) + 0.1 * rng.standard_normal((40, 60))
    tol = 1e-7
    model = MKLRegressor(BANK, fixed=FIXED, tol=tol).fit(X, many)
    # the same columns, mixed anew by an orthogonal matrix
    fewer = FewerColumns.of(many)
    mixed = MKLRegressor(BANK, fixed=FIXED, tol=tol).fit(X, fewer.columns)
    assert model.solution_.lower <= mixed.solution_.upper * (1 + 1e-9)
    assert mixed.solution_.lower <= model.solution_.upper * (1 + 1e-9)
    reach = 4 * np.sqrt(tol * model.solution_.upper)
    np.testing.assert_allclose(
        fewer.spread(mixed.predict(X)), model.predict(X), atol=reach
    )
