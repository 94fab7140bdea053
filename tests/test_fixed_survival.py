"""Covariates beside kernels for times to an event."""

import numpy as np
import pytest
from scipy.optimize import minimize

from cases import patient_columns
from mklearn import MKLCox, MKLCoxCV, MKLSurvivalSVM, kernels
from mklearn.persistence import load, save
from mklearn.problems.design import Design
from mklearn.problems.survival import Cox

FIXED = ["age", "site"]
EPS = np.finfo(float).eps


def patients(n=70, seed=0):
    """Return a table, times with ties of which some are censored, and strata."""
    rng = np.random.default_rng(seed)
    X = patient_columns(rng, n)
    risk = X["a"] + 0.03 * X["age"] + 1.0 * (X["site"] == "y")
    time = rng.exponential(np.exp(-risk.to_numpy()))
    until = rng.exponential(2 * np.median(time), n)
    y = np.column_stack([np.minimum(time, until), time < until])
    y[:, 0] = np.ceil(40 * y[:, 0]) / 40
    return X, y, rng.integers(0, 2, n)


def covariates(X):
    site = X["site"].to_numpy()
    return np.column_stack([X["age"] / 100, site == "y", site == "z"])


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_cox_agrees_with_a_direct_minimisation(ties, stratified):
    X, y, strata = patients()
    C, n = 0.7, len(y)
    strata = strata if stratified else np.zeros(n, int)
    model = MKLCox("linear", fixed=FIXED, normalize=None, ties=ties, C=C, tol=1e-9)
    model.fit(X, y, strata=strata if stratified else None)
    loss = Cox(y[:, 0], y[:, 1] > 0, strata.astype(float), np.ones(n), C, ties)
    columns = np.column_stack([covariates(X), X["a"], X["b"]])
    shrunk = np.array([0, 0, 0, 1, 1])

    def objective(beta):
        F = (columns @ beta)[:, None]
        value = loss.primal(F, np.zeros(1)) + 0.5 * shrunk @ beta**2
        return value, shrunk * beta - columns.T @ loss.slope(F)[:, 0]

    found = minimize(objective, np.zeros(5), jac=True, method="BFGS", tol=1e-9)
    size = abs(found.fun)
    assert model.solution_.lower <= found.fun + 1e-12 * size
    assert model.solution_.upper >= found.fun - 1e-8 * size
    np.testing.assert_allclose(model.solution_.upper, found.fun, rtol=1e-7)
    effects = model.fixed_effects_ * [100, 1, 1]
    np.testing.assert_allclose(effects, found.x[:3], rtol=1e-3, atol=1e-3)
    # scores are those of the linear model, up to a constant
    scores = model.predict(X) - columns @ found.x
    np.testing.assert_allclose(scores, scores.mean(), atol=1e-3)


def test_covariates_may_be_in_any_units_and_combinations():
    X, y, _ = patients()
    bank = kernels.per_feature("rbf")
    options = {"tol": 1e-8, "norm": 2}
    model = MKLCox(bank, fixed=FIXED, **options).fit(X, y)
    other = X.assign(age=5 - 3 * X["age"], site=X["site"].map({"x": 2, "y": 0, "z": 1}))
    other["site"] = other["site"].map(str)
    moved = MKLCox(bank, fixed=FIXED, **options).fit(other, y)
    # one optimum for both, so that the bounds of each hold for the other
    assert model.solution_.lower <= moved.solution_.upper
    assert moved.solution_.lower <= model.solution_.upper
    shift = moved.predict(other) - model.predict(X)
    np.testing.assert_allclose(shift, shift.mean(), atol=1e-3)
    np.testing.assert_allclose(
        moved.predict_survival_function(other, return_array=True),
        model.predict_survival_function(X, return_array=True),
        atol=1e-3,
    )


def test_a_constant_covariate_is_none():
    X, y, strata = patients()
    plain = X[["a", "b"]]
    model = MKLCox("rbf", tol=1e-8).fit(plain, y)
    constant = MKLCox("rbf", fixed="one", tol=1e-8).fit(plain.assign(one=3.0), y)
    assert constant.fixed_dropped_ == ("one",)
    # gaps of 1e-8 determine predictions to their square root
    np.testing.assert_allclose(
        constant.predict(plain.assign(one=3.0)), model.predict(plain), atol=1e-4
    )
    # one that is constant in each stratum has no effect that could be known
    model = MKLCox("rbf", tol=1e-8).fit(plain, y, strata=strata)
    with_one = plain.assign(one=strata.astype(float))
    same = MKLCox("rbf", fixed="one", tol=1e-8).fit(with_one, y, strata=strata)
    assert np.abs(same.fixed_effects_).max() <= 1e-9
    np.testing.assert_allclose(same.predict(with_one), model.predict(plain), atol=1e-4)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_repaired_points_are_feasible_and_bound_the_loss(ties):
    X, y, strata = patients(50)
    n = len(y)
    design = Design(np.column_stack([np.ones(n), covariates(X)]))
    loss = Cox(
        y[:, 0], y[:, 1] > 0, strata.astype(float), np.ones(n), 0.7, ties, design=design
    )
    rng = np.random.default_rng(1)
    for size in (0.0, 0.1, 1.0, 10.0):
        A = loss.repair(size * rng.standard_normal((n, 1)))
        scale = n * EPS * np.abs(design.columns).T @ np.abs(A)
        assert (np.abs(design.columns.T @ A) <= 1e3 * scale + 1e-12).all()
        assert loss.below(A) <= loss.dual(A)
        # weak duality: at any scores and any effects
        for spread in (0.1, 1.0, 5.0):
            F = spread * rng.standard_normal((n, 1))
            at_best = loss.primal(F, loss.bias(F))
            bound = loss.dual(A) - float(np.sum(A * F))
            assert at_best >= bound - 1e-9 * abs(bound)
            assert at_best <= loss.primal(F, np.zeros((4, 1))) * (1 + 1e-12)


def test_solvers_agree_and_are_certified():
    X, y, _ = patients(50)
    bank = kernels.per_feature("rbf", "linear")
    for norm in (1, 2):
        found = {
            solver: MKLCox(
                bank, fixed=FIXED, norm=norm, solver=solver, tol=1e-5, C=3.0
            ).fit(X, y)
            for solver in ("newton", "alternating", "cutting_plane")
        }
        top = min(model.solution_.upper for model in found.values())
        for solver, model in found.items():
            assert model.duality_gap_ <= 1e-5, solver
            assert model.solution_.lower <= top * (1 + 1e-12), solver


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_log_times_may_be_moved_along_the_covariates(loss):
    X, y, _ = patients()
    model, moved = (
        MKLSurvivalSVM("rbf", fixed=FIXED, loss=loss, tol=1e-7).fit(X, target)
        for target in (y, np.column_stack([y[:, 0] * np.exp(X["age"] / 50), y[:, 1]]))
    )
    assert model.solution_.lower <= moved.solution_.upper
    assert moved.solution_.lower <= model.solution_.upper
    gap = np.sqrt(2e-7 * model.solution_.upper)
    shift = np.log(moved.predict_time(X) / model.predict_time(X))
    np.testing.assert_allclose(shift, X["age"] / 50, atol=10 * gap)


def test_squared_loss_without_censoring_is_regression_with_covariates():
    X, y, _ = patients()
    C = 0.7
    model = MKLSurvivalSVM("linear", fixed=FIXED, normalize=None, C=C, tol=1e-9)
    model.fit(X, np.column_stack([y[:, 0], np.ones(len(y))]))
    columns = np.column_stack([np.ones(len(y)), covariates(X), X["a"], X["b"]])
    penalty = np.diag([0, 0, 0, 0, 1 / C, 1 / C])
    beta = np.linalg.solve(columns.T @ columns + penalty, columns.T @ np.log(y[:, 0]))
    effects = model.fixed_effects_ * [100, 1, 1]
    np.testing.assert_allclose(effects, beta[1:4], rtol=1e-4, atol=1e-4)


def test_a_category_without_events_has_no_finite_effect():
    X, y, _ = patients()
    gone = np.flatnonzero(X["site"] == "z")
    y[gone, 1] = 0.0
    with pytest.warns(UserWarning, match="optimal effects are infinite"):
        model = MKLCox("rbf", fixed=FIXED).fit(X, y)
    assert model.fixed_effects_[-1] < -5
    assert model.duality_gap_ <= 1e-3
    assert np.isfinite(model.predict(X)).all()


def test_searching_saving_and_explaining(tmp_path):
    X, y, _ = patients()
    model = MKLCoxCV("rbf", fixed=FIXED, Cs=[0.1, 1.0], norms=[2], cv=3).fit(X, y)
    assert model.fixed_names_ == ("age", "site=y", "site=z")
    assert sum(model.explained(X).values()) == pytest.approx(1.0)
    for one in (model, MKLSurvivalSVM("rbf", fixed=FIXED).fit(X, y)):
        save(one, tmp_path / "model.mkl")
        again = load(tmp_path / "model.mkl")
        assert np.array_equal(again.predict(X), one.predict(X))
        with pytest.raises(ValueError, match="category 'q'"):
            again.predict(X.assign(site="q"))
