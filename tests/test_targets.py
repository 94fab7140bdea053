"""Many targets: weights of their own, of groups, and one set for all of them."""

import mmap
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from mklearn import (
    EvidenceMKLRegressor,
    KernelBank,
    MKLRegressor,
    MKLRegressorCV,
    kernels,
)
from mklearn.data.checks import NothingToLearnError
from mklearn.data.clock import Clock
from mklearn.inference import kernel_tests
from mklearn.kernels.normalise import fit_normaliser
from mklearn.persistence import load, save
from mklearn.plotting import ForestDisplay
from mklearn.problems.design import Design
from mklearn.problems.evidence import EvidenceProblem
from mklearn.problems.losses import Squared
from mklearn.problems.mkl import MKLProblem
from mklearn.problems.targets import (
    Centred,
    Factors,
    FewerColumns,
    OwnEvidence,
    OwnSquared,
)
from mklearn.problems.weights import LpBall
from mklearn.solvers import Status, solve, target_grid
from mklearn.solvers.target_grid import RidgeGrid
from mklearn.solvers.targets import OwnWeights

KERNELS = kernels.per_feature("rbf")


def targets(n=60, t=20, seed=0, constant=None):
    """Return samples, and targets that depend on two of four columns each."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    B = rng.standard_normal((4, t)) * (rng.random((4, t)) < 0.5)
    Y = np.sin(1.5 * X) @ B + 0.5 * rng.standard_normal((n, t))
    Y += 3.0 * rng.standard_normal(t)
    if constant is not None:
        Y[:, constant] = 2.0
    return X, Y


def grams(X, normalize="multiplicative"):
    """Return the normalised bank and the design of a model."""
    raw = KernelBank(X, KERNELS)
    return fit_normaliser(normalize, raw).train(raw)


# --- formulas -------------------------------------------------------------------------


def test_centred_values_have_the_restricted_likelihood():
    X, Y = targets(t=3)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, len(Y))
    design = np.column_stack([np.ones(len(Y)), rng.standard_normal(len(Y))])
    bank = grams(X)
    shared = EvidenceProblem(bank, Y, weight, fixed=design)
    problem = OwnEvidence(shared)
    theta = rng.uniform(0.0, 2.0, 4)
    C = problem.centred.gram(bank.combine(theta))
    z = problem.values(slice(0, 3))
    quads = np.sum(z * np.linalg.solve(np.eye(len(z)) + C, z), axis=0)
    volume = np.linalg.slogdet(np.eye(len(z)) + C)[1]
    found = problem.evidence(quads, np.full(3, volume))
    for t in range(3):
        expected = problem.one(t).at(theta).value
        assert_allclose(found[t], expected, atol=1e-9 * abs(expected))


def test_factors_are_the_centred_kernels():
    X, _ = targets()
    bank = KernelBank(X, [*["linear"] * 2, "rbf"])
    centred = Centred.of(np.ones(len(X)), np.ones((len(X), 1)))
    factors = Factors.of(bank, centred)
    assert factors.ranks[:2].tolist() == [4, 4]
    for m in range(3):
        part = factors.stack[:, factors.ends[m] : factors.ends[m + 1]]
        C = centred.gram(bank.gram(m))
        assert_allclose(part @ part.T, C, atol=1e-11 * np.trace(C))


def test_kernels_that_are_not_definite_have_no_factors():
    gram = np.diag([1.0, -1.0, 1.0, -1.0])
    bank = KernelBank.from_grams(gram[:, :, None])
    assert Factors.of(bank, Centred.of(np.ones(4), np.ones((4, 1)))) is None


def test_fewer_columns_stand_for_targets():
    Y = np.random.default_rng(0).standard_normal((5, 12))
    fewer = FewerColumns.of(Y)
    assert fewer.columns.shape == (5, 5)
    assert_allclose(fewer.spread(fewer.columns), Y, atol=1e-13)
    assert_allclose(fewer.mix.T @ fewer.mix, np.eye(5), atol=1e-13)


# --- evidence -------------------------------------------------------------------------


def exact_evidence(model, X, Y):
    """Return the evidence of fitted weights, each from a factor of its own."""
    bank = grams(X)
    ones = np.ones(len(Y))
    found = [
        EvidenceProblem(bank, Y[:, [t]] - np.median(Y[:, t]), ones).at(theta).value
        for t, theta in enumerate(model.kernel_weights_)
    ]
    return np.array(found)


@pytest.mark.parametrize("t", [3, 20])
def test_each_target_is_as_likely_as_alone(t):
    X, Y = targets(t=t)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", tol=1e-3).fit(X, Y)
    assert model.kernel_weights_.shape == (t, 4)
    assert model.noise_.shape == model.intercept_.shape == (t,)
    assert model.evidence_.exact.all()
    for j in range(t):
        alone = EvidenceMKLRegressor(KERNELS).fit(X, Y[:, j])
        # both stop where they expect less than tol
        assert model.evidence_.evidence[j] >= alone.evidence_.evidence - 2e-3
    assert_allclose(model.evidence_.evidence, exact_evidence(model, X, Y), atol=1e-7)


def test_rough_weights_are_nearly_as_likely():
    X, Y = targets(t=40)
    fine = EvidenceMKLRegressor(KERNELS, weights="per-target", tol=1e-3).fit(X, Y)
    best = exact_evidence(fine, X, Y)
    for tol in (None, 0.1):
        rough = EvidenceMKLRegressor(KERNELS, weights="per-target", tol=tol).fit(X, Y)
        found, most = exact_evidence(rough, X, Y), 0.5 if tol is None else tol
        assert np.median(best - found) <= most
        assert rough.solution_.status is Status.STATIONARY
        assert np.mean(rough.evidence_.promise) <= most
        # what is said of a target whose matrix was not factorised is an estimate, off
        # by less than what a weight loses that is off by its standard error
        assert np.median(np.abs(rough.evidence_.evidence - found)) <= 0.5


def test_predictions_are_those_of_kernel_ridge_at_the_same_weights():
    X, Y = targets(t=12)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", tol=1e-3).fit(X, Y)
    bank = grams(X)
    mean = Y.mean(axis=0)
    for j, theta in enumerate(model.kernel_weights_):
        K = bank.combine(theta)
        # the constant is free: centred kernels and values have none
        H = np.eye(len(X)) - 1.0 / len(X)
        ridge = KernelRidge(alpha=1.0, kernel="precomputed")
        ridge.fit(H @ K @ H, Y[:, j] - mean[j])
        expected = H @ K @ H @ ridge.dual_coef_
        got = model.predict(X)[:, j]
        assert_allclose(got - got.mean(), expected, atol=1e-8)
        assert_allclose(got.mean(), mean[j], atol=1e-8)


def test_predictions_are_those_of_himalaya_at_the_same_weights():
    ridge = pytest.importorskip("himalaya.kernel_ridge")
    X, Y = targets(t=12)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", tol=1e-3).fit(X, Y)
    H = np.eye(len(X)) - 1.0 / len(X)
    Ks = np.array([H @ grams(X).gram(m) @ H for m in range(4)])
    Z = Y - Y.mean(axis=0)
    with np.errstate(divide="ignore"):
        deltas = np.log(model.kernel_weights_.T)
    other = ridge.WeightedKernelRidge(
        alpha=1.0, deltas=np.maximum(deltas, -60), kernels="precomputed",
        solver="conjugate_gradient", solver_params={"tol": 1e-13, "max_iter": 2000},
    )  # fmt: skip
    got = model.predict(X)
    expected = other.fit(Ks, Z).predict(Ks)
    assert_allclose(got - got.mean(axis=0), expected, atol=1e-8)


def test_a_target_of_one_value_has_no_weights():
    X, Y = targets(t=12, constant=4)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", tol=0.1).fit(X, Y)
    assert not model.kernel_weights_[4].any()
    assert model.noise_[4] <= (len(X) * np.finfo(float).eps * 2.0) ** 2
    assert_allclose(model.predict(X)[:, 4], 2.0)


def test_weights_of_samples_are_those_of_single_targets():
    X, Y = targets(t=12)
    weight = np.random.default_rng(3).uniform(0.2, 3.0, len(X))
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", tol=1e-3)
    model.fit(X, Y, sample_weight=weight)
    for j in (0, 5):
        alone = EvidenceMKLRegressor(KERNELS).fit(X, Y[:, j], sample_weight=weight)
        assert model.evidence_.evidence[j] >= alone.evidence_.evidence - 2e-3


@pytest.mark.parametrize("weights", ["per-target", [0, 1] * 6])
def test_covariates_enter_for_each_target(weights):
    X, Y = targets(t=12)
    Z = np.random.default_rng(5).standard_normal(len(X))
    table, Y = np.column_stack([X, Z]), Y + 3.0 * Z[:, None]
    options = {"kernels": [kernels.RBF(columns=[j]) for j in range(4)], "fixed": [4]}
    model = EvidenceMKLRegressor(**options, weights=weights, tol=1e-3).fit(table, Y)
    assert model.fixed_effects_.shape == (12, 1)
    assert_allclose(model.fixed_effects_[:, 0], 3.0, atol=1.0)
    if weights == "per-target":
        alone = EvidenceMKLRegressor(**options).fit(table, Y[:, 2])
        assert model.evidence_.evidence[2] >= alone.evidence_.evidence - 2e-3


def test_groups_share_their_weights():
    X, Y = targets(t=6)
    labels = np.array(["b", "a", "b", "a", "a", "b"])
    model = EvidenceMKLRegressor(KERNELS, weights=labels).fit(X, Y)
    for label in "ab":
        here = np.flatnonzero(labels == label)
        alone = EvidenceMKLRegressor(KERNELS).fit(X, Y[:, here])
        assert_allclose(model.predict(X)[:, here], alone.predict(X), atol=1e-10)
        assert_allclose(model.noise_[here], alone.noise_)
        for t in here:
            assert_allclose(model.kernel_weights_[t], alone.kernel_weights_)


def test_files_hold_targets(tmp_path):
    X, Y = targets(t=12)
    for model in (
        EvidenceMKLRegressor(KERNELS, weights="per-target", tol=0.1),
        EvidenceMKLRegressor(KERNELS, weights=np.arange(12) % 3),
        MKLRegressor(KERNELS, weights="per-target"),
        MKLRegressor(KERNELS, weights=np.arange(12) % 3),
    ):
        model.fit(X, Y)
        save(model, tmp_path / "model.mkl")
        again = load(tmp_path / "model.mkl")
        assert np.array_equal(again.predict(X), model.predict(X))
        assert np.array_equal(again.kernel_weights_, model.kernel_weights_)


@pytest.mark.parametrize(
    "model",
    [
        EvidenceMKLRegressor(KERNELS, weights="per-target", max_iter=1),
        MKLRegressor(KERNELS, weights="per-target", norm=1, tol=1e-7, max_iter=1),
    ],
)
def test_what_is_finished_is_kept(model):
    X, Y = targets(t=20)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    assert model.solution_.status is Status.MAX_ITER
    # all targets have the answer of the first round
    assert np.isfinite(model.predict(X)).all()
    assert model.score(X, Y) > 0.2


def test_ctrl_c_keeps_what_is_finished():
    X, Y = targets(t=20)

    def stop(history):
        raise KeyboardInterrupt

    model = EvidenceMKLRegressor(KERNELS, weights="per-target", callback=stop)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    assert model.solution_.status is Status.INTERRUPTED
    assert model.score(X, Y) > 0.2


def test_coefficients_of_other_weights_are_found_out():
    X, Y = targets(t=12)
    problem = OwnEvidence(EvidenceProblem(grams(X), Y, np.ones(len(X))))
    solution = solve(problem, OwnWeights(0.1), tol=0.1)
    wrong = solution.theta.copy()
    wrong[3] = 1e4
    point = replace(solution.iterate(), theta=wrong, A=solution.A.copy())
    found = problem.certify(point, point)
    assert not found.theta[3].any()
    assert found.about.evidence[3] == problem.nothing[3]


# --- squared loss ---------------------------------------------------------------------


@pytest.mark.parametrize("norm", [1, 1.5, 2, np.inf])
@pytest.mark.parametrize("t", [3, 20])
def test_each_target_is_solved_as_alone(norm, t):
    X, Y = targets(t=t)
    model = MKLRegressor(KERNELS, norm=norm, weights="per-target", C=2.0).fit(X, Y)
    assert model.kernel_weights_.shape == (t, 4)
    bounds = model.solution_.about
    assert model.duality_gap_ == bounds.gaps.max() <= model.tol
    for j in range(0, t, 4):
        alone = MKLRegressor(KERNELS, norm=norm, C=2.0).fit(X, Y[:, j])
        assert bounds.upper[j] >= alone.solution_.lower
        assert alone.solution_.upper >= bounds.lower[j]


def test_certificates_are_those_of_the_single_problem():
    X, Y = targets(t=12)
    model = MKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    bank, ones = grams(X), np.ones((len(X), 1))
    at = np.argsort(model.support_)
    assert len(at) == len(X)
    for j in range(12):
        y = Y[:, [j]] - np.median(Y[:, j])
        problem = MKLProblem(bank, Squared(y, ones), LpBall(2.0))
        A = model.dual_coef_[[j]].T
        found = problem.judge(
            type(model.solution_.iterate())(model.kernel_weights_[j], A)
        )
        size = abs(found.upper)
        assert_allclose(model.solution_.about.upper[j], found.upper, atol=1e-9 * size)
        assert_allclose(model.solution_.about.lower[j], found.lower, atol=1e-9 * size)


def test_other_losses_and_sets_have_weights_of_their_own():
    X, Y = targets(t=3)
    for model in (
        MKLRegressor(KERNELS, loss="epsilon_insensitive", weights="per-target"),
        MKLRegressor(KERNELS, norm=np.eye(4) + 0.1, weights="per-target"),
        MKLRegressor(KERNELS, weights="per-target", approximation="nystroem", rank=20),
    ):
        model.fit(X, Y)
        alone = type(model)(**{**model.get_params(), "weights": "shared"})
        alone.fit(X, Y[:, 1])
        assert model.kernel_weights_.shape == (3, 4)
        assert model.duality_gap_ <= model.tol
        far = np.abs(model.predict(X)[:, 1] - alone.predict(X)).max()
        assert far <= 0.2 * Y[:, 1].std()


@pytest.mark.parametrize("norm", [1, 2, np.inf])
def test_more_targets_than_samples_are_as_many_as_samples(norm):
    X, Y = targets(n=25, t=60)
    model = MKLRegressor(KERNELS, norm=norm, tol=1e-7).fit(X, Y)
    bank, cost = grams(X), np.ones(Y.shape)
    problem = MKLProblem(bank, Squared(Y - np.median(Y, axis=0), cost), LpBall(norm))
    direct = solve(problem, tol=1e-7)
    assert_allclose(model.solution_.upper, direct.upper, rtol=3e-7)
    assert model.solution_.A.shape == Y.shape
    assert_allclose(model.kernel_weights_, direct.theta, atol=1e-3)
    assert_allclose(
        model.predict(X), bank.apply(direct.theta, direct.A) + direct.bias
        + np.median(Y, axis=0), atol=1e-2,
    )  # fmt: skip


def test_the_model_of_many_outputs_is_the_sum_of_those_of_each():
    X, Y = targets(n=12, t=20)
    bank, ones = grams(X), np.ones(len(X))
    theta = np.array([0.5, 0.0, 1.0, 0.2])
    slopes, curvature = EvidenceProblem(bank, Y, ones).at(theta).model()
    each = [EvidenceProblem(bank, Y[:, [t]], ones).at(theta).model() for t in range(20)]
    size = sum(np.abs(one[1]).max() for one in each)
    assert_allclose(slopes, sum(one[0] for one in each), atol=1e-9 * size)
    assert_allclose(curvature, sum(one[1] for one in each), atol=1e-8 * size)


# --- cross-validation -----------------------------------------------------------------


def search(**options):
    """Return a small search."""
    return MKLRegressorCV(KERNELS, Cs=[0.1, 1, 10], norms=[1, 2], cv=3, **options)


def test_each_target_has_its_own_cost_and_norm():
    X, Y = targets(t=12)
    model = search(weights="per-target").fit(X, Y)
    assert model.C_.shape == model.norm_.shape == (12,)
    assert model.scores_.shape == (2, 3, 3, 12)
    assert model.duality_gap_ <= model.tol
    for j in (0, 7):
        i, k = (place[j] for place in model.best_index_)
        assert model.mean_scores_[i, k, j] == model.mean_scores_[..., j].max()
        cell = MKLRegressor(KERNELS, C=model.C_[j], norm=model.norm_[j])
        cell.fit(X, Y[:, j])
        far = np.abs(cell.predict(X) - model.predict(X)[:, j]).max()
        # both within the gap of an optimum that is strongly convex in the values
        size = np.sqrt(4 * model.tol * cell.solution_.upper / model.C_[j])
        assert far <= 2 * size


def test_scores_on_folds_are_those_of_a_target_alone():
    X, Y = targets(t=10)
    folds = list(KFold(3).split(X))
    ours = MKLRegressorCV(
        KERNELS, Cs=[0.1, 10], norms=[1, 2], cv=folds, weights="per-target"
    ).fit(X, Y)
    for j in (0, 9):
        alone = MKLRegressorCV(KERNELS, Cs=[0.1, 10], norms=[1, 2], cv=folds)
        alone.fit(X, Y[:, j])
        # problems on folds end at gaps of a hundredth
        assert_allclose(ours.scores_[..., j], alone.scores_, atol=0.05)


def test_groups_have_their_own_cost_and_norm():
    X, Y = targets(t=4)
    folds = list(KFold(3).split(X))
    options = {"Cs": [0.1, 10], "norms": [1, 2], "cv": folds}
    model = MKLRegressorCV(KERNELS, weights=[0, 1, 1, 0], **options).fit(X, Y)
    for here in ([0, 3], [1, 2]):
        alone = MKLRegressorCV(KERNELS, **options).fit(X, Y[:, here])
        assert (model.C_[here] == alone.C_).all()
        assert (model.norm_[here] == alone.norm_).all()
        # the order of merged samples depends on all targets, and with it rounding
        assert_allclose(model.predict(X)[:, here], alone.predict(X), atol=0.1)


def test_a_search_with_more_targets_than_samples_is_the_same(monkeypatch):
    X, Y = targets(n=25, t=40)
    model = search().fit(X, Y)
    monkeypatch.setattr(MKLRegressorCV, "_fewer", lambda self, training: None)
    direct = search().fit(X, Y)
    # R2 of solutions with gaps of a hundredth on folds
    assert_allclose(model.scores_, direct.scores_, atol=0.05)
    assert (model.C_, model.norm_) == (direct.C_, direct.norm_)
    assert_allclose(model.solution_.upper, direct.solution_.upper, rtol=2e-3)


@pytest.mark.parametrize("covariates", [False, True])
def test_predictions_of_a_grid_are_ridge_regressions_at_its_weights(covariates):
    X, Y = targets(t=30)
    rng = np.random.default_rng(1)
    cost, bank = rng.uniform(0.5, 2.0, len(X)), KernelBank(X, KERNELS)
    F = np.column_stack([np.ones(len(X)), *(rng.standard_normal((2, len(X))))])
    F = F if covariates else F[:, :1]
    some, rest = slice(0, 45), np.arange(45, 60)
    inner = bank[np.ix_(np.arange(45), np.arange(45))]
    cross = bank[np.ix_(rest, np.arange(45))]
    design = Design(F[some]) if covariates else None
    problem = OwnSquared(inner, Y[some], cost[some], LpBall(1.0), design)
    norms, Cs = np.array([1.0, 2.0, np.inf]), np.array([0.1, 10.0])
    grid = RidgeGrid(problem, norms, Cs, 0.01)
    for _ in grid.rounds():
        pass
    assert 1 < len(grid.directions) <= 40
    ((here, found),) = grid.predictions(cross, F[rest] if covariates else None)
    assert here == slice(0, 30) and found.shape == (3, 2, 15, 30)
    for i, p in enumerate(norms):
        for k, C in enumerate(Cs):
            theta = grid.weights(i, k)
            assert_allclose(np.linalg.norm(theta, p, axis=1), 1.0)
            if np.isinf(p):
                assert_allclose(theta, 1.0)
            for t in (0, 13):
                system = inner.combine(theta[t]) + np.diag(1 / (C * cost[some]))
                inverse = np.linalg.inv(system)
                b = np.linalg.solve(F[some].T @ inverse @ F[some], F[some].T @ inverse)
                effects = b @ Y[some, t]
                A = inverse @ (Y[some, t] - F[some] @ effects)
                expected = cross.combine(theta[t]) @ A + F[rest] @ effects
                # products are in single precision
                assert_allclose(found[i, k, :, t], expected, atol=2e-3)


def test_directions_of_a_grid_do_not_grow_with_the_targets(monkeypatch):
    monkeypatch.setattr(target_grid, "_DIRECTIONS", 9)
    X, Y = targets(t=40)
    model = search(weights="per-target").fit(X, Y)
    assert model.duality_gap_ <= model.tol
    assert np.isfinite(model.scores_).all()
    monkeypatch.setattr(target_grid, "_DIRECTIONS", 1)
    equal = search(weights="per-target").fit(X, Y)
    monkeypatch.undo()
    every = search(weights="per-target").fit(X, Y)
    # on the same folds, nine directions for all are between equal weights and those
    # near the weights of each target
    low, here, high = (
        one.mean_scores_.max(axis=(0, 1)).mean() for one in (equal, model, every)
    )
    assert low < here < high + 0.01


def test_a_search_with_covariates_is_that_of_a_target_alone():
    X, Y = targets(t=20)
    table = np.column_stack([X, np.random.default_rng(2).standard_normal(len(X))])
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(X))
    folds = list(KFold(3).split(X))
    options = {"Cs": [0.1, 10], "norms": [np.inf], "cv": folds, "fixed": [4]}
    ours = MKLRegressorCV("rbf", weights="per-target", **options)
    ours.fit(table, Y, weight)
    alone = MKLRegressorCV("rbf", **options, tol=1e-6).fit(table, Y[:, 3], weight)
    assert_allclose(ours.scores_[..., 3], alone.scores_, atol=1e-3)


def test_a_search_without_time_chooses_from_what_there_is():
    X, Y = targets(t=30)
    model = search(weights="per-target", time_limit=1e-9)
    with pytest.warns(ConvergenceWarning) as seen:
        model.fit(X, Y)
    assert "no time for 2 of 3 folds" in str(seen[0].message)
    assert np.isfinite(model.mean_scores_).all()
    assert np.isnan(model.scores_).any(axis=(0, 1, 3)).tolist() == [False, True, True]
    assert model.kernel_weights_.any(axis=1).all()
    # far from constant, as if nothing had been learned
    assert np.median(r2_score(Y, model.predict(X), multioutput="raw_values")) > 0.2


def test_scorers_see_one_target_at_a_time():
    X, Y = targets(t=9)
    model = search(weights="per-target", scoring="neg_mean_absolute_error").fit(X, Y)
    assert (model.scores_ < 0).all() and model.scores_.shape[-1] == 9


# --- estimators -----------------------------------------------------------------------


@parametrize_with_checks(
    [
        EvidenceMKLRegressor(weights="per-target"),
        MKLRegressor(weights="per-target"),
        MKLRegressorCV(
            ["linear", "rbf"], weights="per-target", Cs=[1, 10], norms=[1, 2], cv=2
        ),
    ]
)
def test_estimators_pass_all_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("model", [EvidenceMKLRegressor, MKLRegressor])
@pytest.mark.parametrize(
    "weights, message",
    [
        ("own", "'shared', 'per-target'"),
        ([0, 1], "2 targets, but y has 3"),
        (np.zeros((3, 1)), r"shape \(3, 1\)"),
    ],
)
def test_weights_that_make_no_sense_are_refused(model, weights, message):
    X, Y = targets(t=3)
    with pytest.raises(ValueError, match=message):
        model(KERNELS, weights=weights).fit(X, Y)


def test_uncertainty_needs_shared_weights():
    X, Y = targets(t=3)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", uncertainty=True)
    with pytest.raises(ValueError, match="one set of weights"):
        model.fit(X, Y)


# --- very many targets ----------------------------------------------------------------


def in_a_file(array):
    """Tell whether the values of an array lie in a file."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


def test_values_in_a_file_are_not_copied(tmp_path, monkeypatch):
    from mklearn.estimators import evidence

    X, Y = targets(t=30)
    single = Y.astype(np.float32)
    np.save(tmp_path / "y.npy", single)
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    B = np.stack([grams(X).gram(m) for m in range(4)], axis=2)
    model = EvidenceMKLRegressor("precomputed", weights="per-target")
    with monkeypatch.context() as patch:  # a limit below that of the kernels
        limited = partial(replace, memory_limit=1000)
        own = evidence.OwnEvidence
        patch.setattr(evidence, "OwnEvidence", lambda *all: limited(own(*all)))
        model.fit(B, mapped)
    assert in_a_file(model.solution_.A) and in_a_file(model.predictor_.A)
    assert model.dual_coef_.dtype == np.float32
    held = EvidenceMKLRegressor("precomputed", weights="per-target").fit(B, single)
    assert not in_a_file(held.solution_.A)
    assert np.array_equal(held.kernel_weights_, model.kernel_weights_)
    assert np.array_equal(held.predict(B), model.predict(B))
    again = pickle.loads(pickle.dumps(model))
    save(model, tmp_path / "model.mkl")
    for other in (again, load(tmp_path / "model.mkl")):
        assert np.array_equal(other.predict(B), model.predict(B))


# --- chunks of a Dask array -----------------------------------------------------------

array = pytest.importorskip("dask.array")
OWN = {
    EvidenceMKLRegressor: {"weights": "per-target", "tol": 1e-6},
    MKLRegressor: {"weights": "per-target", "tol": 1e-9, "C": 2.0},
}
BOTH = pytest.mark.parametrize("model", OWN)


def assert_same_fit(model, held, X):
    """Compare a model of chunks with that of the same values in memory."""
    # both are within the same tolerance of the optimum, whose error is its root
    near = {"atol": 0.01 * np.abs(held.kernel_weights_).max()}
    assert_allclose(model.kernel_weights_, held.kernel_weights_, **near)
    assert_allclose(model.kernel_contributions_, held.kernel_contributions_, atol=0.01)
    size = 0.01 * np.abs(held.predict(X)).max()
    assert_allclose(model.predict(X), held.predict(X), atol=size)
    assert_allclose(model.intercept_, held.intercept_, atol=size)
    assert_allclose(model.fixed_effects_, held.fixed_effects_, atol=size)
    assert model.dual_coef_.dtype == held.dual_coef_.dtype
    # the order of merged samples depends on whether all targets are known
    a, b = (one.dual_coef_[:, np.argsort(one.support_)] for one in (model, held))
    assert_allclose(a, b, atol=0.01 * np.abs(b).max())
    assert model.solution_.status is held.solution_.status
    for name, value in vars(held.solution_.about).items():
        found = getattr(model.solution_.about, name)
        if value.dtype == bool:
            assert np.array_equal(found, value)
        elif name != "promise":
            assert_allclose(found, value, rtol=0.01)
    if isinstance(held, EvidenceMKLRegressor):
        assert_allclose(model.noise_, held.noise_, rtol=0.01)
        assert np.nanmax(model.evidence_.promise) <= model.tol
    else:
        assert model.duality_gap_ == model.solution_.about.gaps.max() <= model.tol


@BOTH
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_chunks_of_targets_are_fitted_as_in_memory(model, scheduler):
    import dask

    X, Y = targets(t=30, constant=4)
    held = model(KERNELS, **OWN[model]).fit(X, Y)
    for chunks in ((60, 7), (25, 12)):
        with dask.config.set(scheduler=scheduler):
            lazy = array.from_array(Y, chunks=chunks)
            assert_same_fit(model(KERNELS, **OWN[model]).fit(X, lazy), held, X)


@BOTH
def test_one_chunk_is_fitted_here(model):
    X, Y = targets(t=12)
    held = model(KERNELS, **OWN[model]).fit(X, Y)
    found = model(KERNELS, **OWN[model]).fit(X, array.from_array(Y, chunks=(25, 12)))
    assert np.array_equal(found.kernel_weights_, held.kernel_weights_)
    assert np.array_equal(found.predict(X), held.predict(X))


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, int])
def test_chunks_have_the_precision_of_their_values(model, dtype):
    X, Y = targets(t=20)
    Y = (10 * Y).astype(dtype)
    options = {**OWN[model], "tol": 1e-5}
    held = model(KERNELS, **options).fit(X, Y)
    found = model(KERNELS, **options).fit(X, array.from_array(Y, chunks=(60, 7)))
    single = dtype == np.float32 and model is EvidenceMKLRegressor
    assert found.dual_coef_.dtype == (np.float32 if single else np.float64)
    assert_same_fit(found, held, X)


@BOTH
def test_equal_and_weightless_rows_are_merged_in_chunks(model):
    X, Y = targets(t=20)
    X[10:20], Y[10:15] = X[:10], Y[:5]  # five rows are equal, five have other values
    weight = np.where(np.arange(len(X)) < 55, 1.0, 0.0)
    held = model(KERNELS, **OWN[model]).fit(X, Y, weight)
    found = model(KERNELS, **OWN[model])
    found.fit(X, array.from_array(Y, chunks=(60, 7)), weight)
    assert len(found.support_) == len(held.support_) == 50
    assert_same_fit(found, held, X)


@BOTH
def test_chunks_have_covariates(model, tmp_path):
    X, Y = targets(t=20)
    Z = np.random.default_rng(5).standard_normal(len(X))
    table, Y = np.column_stack([X, Z]), Y + 3.0 * Z[:, None]
    options = {
        "kernels": [kernels.RBF(columns=[j]) for j in range(4)], "fixed": [4],
        **OWN[model],
    }  # fmt: skip
    held = model(**options).fit(table, Y)
    found = model(**options).fit(table, array.from_array(Y, chunks=(60, 7)))
    assert_same_fit(found, held, table)
    save(found, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(again.predict(table), found.predict(table))
    assert np.array_equal(again.kernel_weights_, found.kernel_weights_)
    told = np.column_stack([Y[:, :9], np.tile(table[:, [4]], 9)])
    refused = model is EvidenceMKLRegressor  # which needs residuals of every target
    told = told if refused else told[:, 9:]
    with pytest.raises(NothingToLearnError, match="explain the target exactly"):
        model(**options).fit(table, array.from_array(told, chunks=(60, 5)))


def test_coefficients_of_chunks_may_be_in_a_file():
    X, Y = targets(t=100)
    B = np.stack([grams(X).gram(m) for m in range(4)], axis=2)
    lazy = array.from_array(Y, chunks=(60, 30))
    for model in OWN:
        options = {**OWN[model], "tol": 0.1}
        held = model("precomputed", **options).fit(B, lazy)
        found = model("precomputed", **options, memory_limit=10_000).fit(B, lazy)
        assert in_a_file(found.solution_.A) and not in_a_file(held.solution_.A)
        # smaller blocks, and therefore other rounding
        size = 1e-6 * np.abs(held.predict(B)).max()
        assert_allclose(found.predict(B), held.predict(B), atol=size)


@BOTH
def test_a_time_limit_holds_for_all_chunks(model):
    X, Y = targets(t=30)
    lazy = array.from_array(Y, chunks=(60, 7))
    with pytest.warns(ConvergenceWarning):
        found = model(KERNELS, weights="per-target", time_limit=1e-9).fit(X, lazy)
    assert found.solution_.status is Status.TIME_LIMIT
    assert found.kernel_weights_.shape == (30, 4)
    # without any step, it is the mean
    assert_allclose(found.predict(X), np.tile(Y.mean(axis=0), (60, 1)), atol=1e-8)


def interrupt(history):
    raise KeyboardInterrupt


@BOTH
@pytest.mark.parametrize(
    "callback, status",
    [(lambda history: True, Status.CALLBACK), (interrupt, Status.INTERRUPTED)],
)
def test_finished_chunks_are_kept(model, callback, status):
    import dask

    X, Y = targets(t=30)
    lazy = array.from_array(Y, chunks=(60, 12))
    with dask.config.set(num_workers=1), pytest.warns(ConvergenceWarning):
        found = model(KERNELS, **OWN[model], callback=callback).fit(X, lazy)
    assert found.solution_.status is status
    assert len(found.solution_.history) == 1
    held = model(KERNELS, **OWN[model]).fit(X, Y)
    size = 0.01 * np.abs(held.predict(X)).max()
    got, expected = found.predict(X), held.predict(X)
    assert_allclose(got[:, :12], expected[:, :12], atol=size)
    assert_allclose(got[:, 12:], np.tile(Y[:, 12:].mean(axis=0), (60, 1)), atol=1e-8)


@BOTH
def test_bad_chunks_are_told(model):
    X, Y = targets(t=20)
    own = model(KERNELS, weights="per-target")
    lazy = array.from_array(Y, chunks=(25, 7))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        own.fit(X[:-1], lazy)
    with pytest.raises(ValueError, match="y contains NaN"):
        own.fit(X, array.where(lazy > 5, np.nan, lazy))
    some = lazy[array.from_array(np.ones(60, dtype=bool), chunks=25)]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        own.fit(X, some)


def test_problems_and_folds_take_all_chunks():
    X, Y = targets(t=12)
    lazy = array.from_array(Y, chunks=(60, 5))
    model = MKLRegressor(KERNELS, weights="per-target")
    for one, other in zip(model.posed(X, lazy), model.posed(X, Y), strict=True):
        # the order of samples depends on whether all targets are known
        assert np.array_equal(*(np.sort(p.loss.Y, axis=0) for p in (one, other)))
    found, held = (search(weights="per-target").fit(X, y) for y in (lazy, Y))
    assert np.array_equal(found.scores_, held.scores_)


def test_the_progress_of_chunks_is_shown(capsys):
    X, Y = targets(t=30)
    lazy = array.from_array(Y, chunks=(60, 7))
    EvidenceMKLRegressor(KERNELS, weights="per-target", verbose=2).fit(X, lazy)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and all("expected gain" in line for line in lines)


# --- features -------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["per-target", [0, 1, 0, 2, 1]])
@pytest.mark.parametrize("fixed", [None, [4]])
def test_features_of_full_rank_have_the_same_evidence(weights, fixed, tmp_path):
    X, Y = targets(t=5)
    table = np.column_stack([X, np.random.default_rng(5).standard_normal(len(X))])
    options = {
        "kernels": [kernels.RBF(columns=[j]) for j in range(4)], "fixed": fixed,
        "weights": weights, "tol": 1e-6,
    }  # fmt: skip
    low = {"approximation": "nystroem", "rank": len(X)}
    exact = EvidenceMKLRegressor(**options).fit(table, Y)
    found = EvidenceMKLRegressor(**options, **low).fit(table, Y)
    size = np.abs(exact.kernel_weights_).max()
    assert found.kernel_weights_.shape == (5, 4)
    assert_allclose(found.kernel_weights_, exact.kernel_weights_, atol=0.01 * size)
    assert_allclose(found.noise_, exact.noise_, rtol=1e-3)
    assert_allclose(found.predict(table), exact.predict(table), atol=1e-3)
    assert_allclose(found.fixed_effects_, exact.fixed_effects_, atol=1e-3)
    if weights == "per-target":
        near = {"atol": 2 * exact.tol}
        assert_allclose(found.evidence_.evidence, exact.evidence_.evidence, **near)
        assert_allclose(found.evidence_.nothing, exact.evidence_.nothing, **near)
        assert found.evidence_.exact.all()
        assert found.solution_.status is exact.solution_.status
        assert_allclose(found.solution_.upper, exact.solution_.upper, atol=1e-5)
    save(found, tmp_path / "model.mkl")
    again = load(tmp_path / "model.mkl")
    assert np.array_equal(again.predict(table), found.predict(table))
    assert np.array_equal(again.kernel_weights_, found.kernel_weights_)


def test_sums_of_blocks_have_weights_for_each_target():
    import dask

    X, Y = targets(n=120, t=5)
    options = {"approximation": "nystroem", "rank": 20, "weights": "per-target"}
    held = EvidenceMKLRegressor(KERNELS, **options).fit(X, Y)
    rows = array.from_array(X, chunks=(50, 4))
    with dask.config.set(scheduler="synchronous"):
        lazy = EvidenceMKLRegressor(KERNELS, **options)
        lazy.fit(rows, array.from_array(Y, chunks=(50, 2)))
    sums = EvidenceMKLRegressor(KERNELS, **options).accumulator(X)
    sums.update(X, Y)
    summed = EvidenceMKLRegressor(KERNELS, **options).fit_statistics(sums)
    for found in (lazy, summed):
        assert_allclose(found.kernel_weights_, held.kernel_weights_, rtol=1e-6)
        assert_allclose(found.predict(X), held.predict(X), atol=1e-6)


def test_a_time_limit_holds_for_targets_one_by_one():
    X, Y = targets(t=5)
    options = {"approximation": "nystroem", "rank": 20, "weights": "per-target"}
    model = EvidenceMKLRegressor(KERNELS, **options, time_limit=1e-9)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    assert model.solution_.status is Status.TIME_LIMIT
    assert np.isfinite(model.predict(X)).all()


# --- standard errors ------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [None, [4]])
def test_standard_errors_are_those_of_each_target_alone(fixed):
    X, Y = targets(t=12)
    table = np.column_stack([X, np.random.default_rng(2).standard_normal(len(X))])
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(X))
    model = EvidenceMKLRegressor("rbf", fixed=fixed, weights="per-target")
    model.kernels = [kernels.RBF(1.0, columns=[j]) for j in range(4)]
    model.fit(table, Y, weight)
    assert model.kernel_weights_std_.shape == (12, 4)
    raw = KernelBank(table, list(model.kernels_))
    bank = fit_normaliser("multiplicative", raw, weight).train(raw)
    design = None
    if fixed is not None:
        design = np.column_stack([np.ones(len(X)), table[:, 4]])
    for t in (0, 5, 11):
        problem = EvidenceProblem(bank, Y[:, [t]], weight, fixed=design)
        alone = problem.at(model.kernel_weights_[t])
        errors, std = alone.errors(), alone.effects_std()[:, 0]
        assert_allclose(model.kernel_weights_std_[t], errors.weights, rtol=1e-6)
        assert_allclose(model.variance_explained_[t], errors.shares, atol=1e-9)
        assert_allclose(model.variance_explained_std_[t], errors.shares_std, rtol=1e-6)
        assert_allclose(model.weight_errors_.explained[t], errors.explained, rtol=1e-6)
        if fixed is not None:
            assert_allclose(model.fixed_effects_std_[t], std[1:], rtol=1e-6)
        assert_allclose(model.intercept_std_[t], std[0], rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"approximation": "nystroem", "rank": 20}])
def test_targets_of_a_group_have_the_same_standard_errors(options):
    X, Y = targets(t=4)
    model = EvidenceMKLRegressor(KERNELS, weights=[0, 1, 1, 0], **options).fit(X, Y)
    alone = EvidenceMKLRegressor(KERNELS, **options).fit(X, Y[:, 1:3])
    for row in (1, 2):
        assert_allclose(
            model.kernel_weights_std_[row], alone.kernel_weights_std_, rtol=1e-5
        )
        assert_allclose(
            model.variance_explained_[row], alone.variance_explained_, rtol=1e-5
        )


def test_standard_errors_are_saved_if_they_are_known(tmp_path):
    X, Y = targets(t=10)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    before = len(pickle.dumps(model))
    with pytest.raises(AttributeError, match="before saving the model"):
        _ = pickle.loads(pickle.dumps(model)).kernel_weights_std_
    save(model, tmp_path / "before.mkl")
    with pytest.raises(AttributeError, match="before saving the model"):
        _ = load(tmp_path / "before.mkl").variance_explained_
    known = model.kernel_weights_std_
    assert len(pickle.dumps(model)) < before + 10 * known.nbytes
    save(model, tmp_path / "after.mkl")
    for again in (load(tmp_path / "after.mkl"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.kernel_weights_std_, known)
    shared = model.set_params(weights="shared").fit(X, Y)
    assert shared.kernel_weights_std_.shape == (4,)


def test_frames_and_figures_of_targets_with_their_own_weights():
    X, Y = targets(t=12)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    frame = model.inference_frame(targets=[4, 1])
    assert "weight_errors_" not in vars(model)  # those of two targets suffice
    assert list(frame.columns[:3]) == ["target", "kernel", "weight"]
    assert list(frame["target"]) == [4] * 4 + [1] * 4
    names = list(model.kernel_names_)
    assert list(frame["kernel"]) == names + names
    assert_allclose(frame["weight"], model.kernel_weights_[[4, 1]].ravel())
    share, std = model.variance_explained_, model.variance_explained_std_
    assert_allclose(frame["share"], share[[4, 1]].ravel(), rtol=1e-12)
    high = np.minimum(share + norm.isf(0.025) * std, 1.0)
    assert_allclose(frame["share_high"], high[[4, 1]].ravel(), rtol=1e-12)
    assert len(model.inference_frame()) == 12 * 4
    tests = [kernel_tests(X, Y[:, t], KERNELS) for t in (4, 1)]
    tested = model.inference_frame(tests, targets=[4, 1])
    expected = np.concatenate([one.adjusted("holm") for one in tests])
    assert_allclose(tested["p_holm"], expected)
    drawn = ForestDisplay.from_estimator(model, target=4)
    assert_allclose(drawn.estimates, share[4])


def test_groups_and_squared_loss_have_tables_of_targets():
    X, Y = targets(t=4)
    model = EvidenceMKLRegressor(KERNELS, weights=[0, 1, 1, 0]).fit(X, Y)
    frame = model.inference_frame(targets=[1, 2])
    rows = frame.drop(columns="target")
    assert rows[:4].equals(rows[4:].reset_index(drop=True))
    other = MKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    frame = other.inference_frame(targets=[3])
    assert list(frame.columns) == ["target", "kernel", "weight", "share"]
    assert_allclose(frame["share"], other.kernel_contributions_[3])


@pytest.mark.parametrize(
    "options", [{}, {"tol": 1e-4}, {"approximation": "nystroem", "rank": 60}]
)
def test_profile_intervals_of_a_target_are_those_of_the_target_alone(options):
    X, Y = targets(t=10)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", **options).fit(X, Y)
    found = model.profile_intervals(X, Y, kernels=[0, 2], target=7)
    alone = EvidenceMKLRegressor(KERNELS, **options | {"tol": 1e-4}).fit(X, Y[:, 7])
    expected = alone.profile_intervals(X, Y[:, 7], kernels=[0, 2])
    # each maximum is known to 0.001, and its share of a drop of 1.92 moves the ends
    assert_allclose(found[[0, 2]], expected[[0, 2]], atol=2e-3)
    assert np.isnan(found[[1, 3]]).all()
    shares = {"share": found, "weight": found}
    frame = model.inference_frame(targets=[7], profile=shares)
    assert_allclose(frame["share_low"], found[:, 0])


def test_profile_intervals_of_a_group_are_those_of_its_targets():
    X, Y = targets(t=4)
    model = EvidenceMKLRegressor(KERNELS, weights=[0, 1, 1, 0]).fit(X, Y)
    found = model.profile_intervals(X, Y, kernels=[1], target=2)[1]
    alone = EvidenceMKLRegressor(KERNELS).fit(X, Y[:, 1:3])
    expected = alone.profile_intervals(X, Y[:, 1:3], kernels=[1])[1]
    assert_allclose(found, expected, atol=1e-6)


def test_tables_of_targets_say_what_they_need():
    X, Y = targets(t=10)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    with pytest.raises(ValueError, match="say for which column of y"):
        model.profile_intervals(X, Y)
    with pytest.raises(ValueError, match="from 0 to 9"):
        model.profile_intervals(X, Y, target=10)
    with pytest.raises(ValueError, match="not the samples"):
        model.profile_intervals(X, Y[::-1], target=3)
    with pytest.raises(ValueError, match="not the samples"):
        model.profile_intervals(X, Y[:, :5], target=3)
    with pytest.raises(ValueError, match=r"such as \[0, 3\]"):
        model.inference_frame(targets=3)
    with pytest.raises(ValueError, match="tests has the tests of 1 target"):
        model.inference_frame(kernel_tests(X, Y[:, 0], KERNELS))
    with pytest.raises(ValueError, match="say which one to draw"):
        ForestDisplay.from_estimator(model)
    with pytest.raises(ValueError, match=r"\(2, 4, 2\)"):
        model.inference_frame(targets=[0, 1], profile=np.zeros((4, 2)))
    shared = EvidenceMKLRegressor(KERNELS).fit(X, Y)
    with pytest.raises(ValueError, match="one set of weights"):
        shared.inference_frame(targets=[0])
    with pytest.raises(ValueError, match="read weight_errors_"):
        shared.errors_of_targets([0])
    with pytest.raises(ValueError, match="leave it out"):
        shared.profile_intervals(X, Y, target=0)
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match="before saving the model"):
        again.inference_frame()
    lazy = array.from_array(Y, chunks=(60, 5))
    chunked = clone(model).fit(X, lazy)
    with pytest.raises(AttributeError, match="Dask array"):
        _ = chunked.kernel_weights_std_
    known = chunked.profile_intervals(X, lazy, kernels=[0], target=3)
    found = model.profile_intervals(X, Y, kernels=[0], target=3)
    assert_allclose(known[0], found[0], atol=2e-3)


def test_certificates_end_with_the_time(monkeypatch):
    X, Y = targets(t=200)
    clocks = []

    def until(self, clock):
        # as if the solver had taken all of the time
        clocks.append(clock)
        return replace(self, clock=Clock(end=0.0)), None

    monkeypatch.setattr(OwnSquared, "until", until)
    model = MKLRegressor(KERNELS, weights="per-target")
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X, Y)
    monkeypatch.undo()
    exact = MKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    bounds = model.solution_.about
    assert clocks and bounds.proved.sum() == 64 and not bounds.proved[64:].any()
    assert_allclose(bounds.gaps[:64], exact.solution_.about.gaps[:64], rtol=1e-6)
    # the others have bounds, if loose ones; their predictions are complete
    optimum = exact.solution_.about.upper
    assert (bounds.lower <= optimum).all()
    assert (bounds.upper >= exact.solution_.about.lower).all()
    assert_allclose(model.predict(X), exact.predict(X), atol=1e-6)
    assert_allclose(model.kernel_contributions_, exact.kernel_contributions_, atol=1e-6)
    assert "136 other gaps" in model.solution_.claim


# --- precision, blocks, limits --------------------------------------------------------


def test_single_precision_is_that_of_the_values():
    X, Y = targets(t=30)
    options = {"weights": "per-target", "tol": 0.01}
    double = EvidenceMKLRegressor(KERNELS, **options).fit(X, Y)
    single = EvidenceMKLRegressor(KERNELS, **options).fit(X, Y.astype(np.float32))
    # both within tol of a local maximum, and values that differ by their rounding
    lost = exact_evidence(double, X, Y) - exact_evidence(single, X, Y)
    assert np.median(np.abs(lost)) <= 0.02


def test_targets_are_predicted_in_blocks(monkeypatch):
    from mklearn.estimators import _predictor

    X, Y = targets(t=30)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    whole = model.predict(X)
    monkeypatch.setattr(_predictor, "_TARGET_BYTES", 8 * len(X) * 7)
    assert_allclose(model.predict(X), whole, atol=1e-12 * np.abs(whole).max())


def test_blocks_of_targets_do_not_change_the_answer(monkeypatch):
    from mklearn.problems import targets as problems

    X, Y = targets(t=30)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    monkeypatch.setattr(problems, "_BLOCK", 8 * len(X) * 4 * 5)
    small = EvidenceMKLRegressor(KERNELS, weights="per-target").fit(X, Y)
    assert_allclose(small.noise_, model.noise_, rtol=1e-6)
    assert_allclose(small.predict(X), model.predict(X), atol=1e-6)


def test_a_time_limit_keeps_what_is_finished():
    X, Y = targets(t=30)
    model = EvidenceMKLRegressor(KERNELS, weights="per-target", time_limit=1e-9)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    assert model.solution_.status is Status.TIME_LIMIT
    assert np.isfinite(model.predict(X)).all()
    assert model.kernel_weights_.shape == (30, 4)


@pytest.mark.parametrize("time_limit", [1e-9, 1e-3])
def test_a_time_limit_leaves_weights_to_each_target(time_limit):
    X, Y = targets(t=300)
    model = EvidenceMKLRegressor(
        KERNELS, weights="per-target", tol=1e-3, time_limit=time_limit
    )
    with pytest.warns(ConvergenceWarning) as seen:
        model.fit(X, Y)
    assert not any("inf" in str(one.message) for one in seen)
    assert model.kernel_weights_.any(axis=1).all()
    # the smallest scale is nearly as good as zero, for targets that are noise
    assert (model.evidence_.evidence >= model.evidence_.nothing - 0.1).all()


def test_the_first_weights_are_equal_with_the_best_scale():
    X, Y = targets(t=30)
    model = EvidenceMKLRegressor(
        KERNELS, normalize=None, weights="per-target", time_limit=1e-9
    )
    with pytest.warns(ConvergenceWarning, match="before it was known"):
        model.fit(X, Y)
    bank, ones = KernelBank(X, KERNELS), np.ones(len(X))
    for t in (0, 17):
        one = EvidenceProblem(bank, Y[:, [t]], ones)
        theta = model.kernel_weights_[t]
        here = one.at(theta).value
        assert_allclose(model.evidence_.evidence[t], here, atol=1e-3)
        scale = theta.sum() / model.kernel_weights_.sum(axis=1).min()
        others = [theta * 10**0.5] + [theta / 10**0.5] * int(scale > 1.5)
        for other in others:
            assert one.at(other).value <= here + 1e-3


def test_without_time_the_squared_loss_has_equal_weights():
    X, Y = targets(t=30)
    model = MKLRegressor(KERNELS, norm=1, weights="per-target", time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X, Y)
    equal = MKLRegressor(KERNELS, norm=np.inf, C=1 / 4, tol=1e-6).fit(X, Y)
    assert_allclose(model.kernel_weights_ / model.kernel_weights_[:, :1], 1.0)
    assert_allclose(model.predict(X), equal.predict(X), atol=0.02)


def test_progress_is_shown(capsys):
    X, Y = targets(t=30)
    EvidenceMKLRegressor(KERNELS, weights="per-target", verbose=2).fit(X, Y)
    lines = capsys.readouterr().err.splitlines()
    assert lines and all("expected gain" in line for line in lines)
