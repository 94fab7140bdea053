"""Searches: rough problems on folds agree with exact ones as far as they are solved."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification
from sklearn.svm import SVC, SVR

from mklearn import Hinge, KernelBank, MKLClassifierCV, MKLRegressorCV, solve
from mklearn.kernels.dense import DenseGrams
from mklearn.problems import LpBall, MKLProblem
from mklearn.problems.losses import EpsilonInsensitive
from mklearn.problems.mkl import RoughProblem
from mklearn.solvers import mkl_path
from mklearn.solvers.path import rough_path


@pytest.fixture(scope="module")
def table():
    """Return a bank, its Grams and labels."""
    X, y = make_classification(90, 6, n_informative=3, flip_y=0.1, random_state=1)
    bank = KernelBank(X, "auto").stored()
    return bank, DenseGrams.of(bank), np.where(y > 0, 1.0, -1.0)


def test_grams_at_hand_answer_as_the_bank_does(table):
    bank, grams, _ = table
    rng = np.random.default_rng(0)
    theta, A = rng.random(bank.shape[2]), rng.normal(size=(90, 3))
    A[::3] = 0.0
    rows, cols = np.array([1, 5, 30]), np.array([2, 3, 50])
    a = np.array([1.0, -2.0, 0.5])
    part = bank[np.ix_(rows, cols)]
    np.testing.assert_allclose(grams.combine(theta), bank.combine(theta), rtol=1e-12)
    np.testing.assert_allclose(grams.apply(theta, A), bank.apply(theta, A), rtol=1e-9)
    np.testing.assert_allclose(grams.quad(A), bank.quad(A), rtol=1e-10)
    np.testing.assert_allclose(grams.multiply(A), bank.multiply(A), atol=1e-10)
    np.testing.assert_allclose(
        grams[np.ix_(rows, cols)].multiply(a), part.multiply(a), atol=1e-12
    )
    np.testing.assert_allclose(
        grams.sum().combine(np.ones(1)), bank.combine(np.ones(bank.shape[2]))
    )


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_one_kernel_by_blocks_is_an_svm(table, C):
    bank, grams, y = table
    one = DenseGrams(grams.values[2:3])
    loss = Hinge(y[:, None], np.full((90, 1), C))
    rough = RoughProblem(one.bank, loss, LpBall(1.0), one)
    found = solve(rough, tol=1e-9)
    K = bank.gram(2)
    svc = SVC(kernel="precomputed", C=C, tol=1e-9).fit(K, y)
    size = np.abs(svc.decision_function(K)).max()
    np.testing.assert_allclose(
        K @ found.A[:, 0] + found.bias, svc.decision_function(K), atol=1e-3 * size
    )


def test_one_kernel_by_blocks_is_a_regression(table):
    bank, grams, y = table
    one = DenseGrams(grams.values[2:3])
    K, values = bank.gram(2), y + np.linspace(0, 1, 90)
    loss = EpsilonInsensitive(values[:, None], np.ones((90, 1)), epsilon=0.1)
    found = solve(RoughProblem(one.bank, loss, LpBall(1.0), one), tol=1e-9)
    svr = SVR(kernel="precomputed", C=1.0, epsilon=0.1, tol=1e-9).fit(K, values)
    np.testing.assert_allclose(
        K @ found.A[:, 0] + found.bias, svr.predict(K), atol=1e-3
    )


@pytest.mark.parametrize("with_bias", [True, False])
def test_bounds_of_rough_problems_hold(table, with_bias):
    bank, grams, y = table
    for p in (1.0, 2.0):
        loss = Hinge(y[:, None], np.ones((90, 1)), with_bias)
        exact = MKLProblem(bank, loss, LpBall(p))
        rough = RoughProblem(grams.bank, loss, LpBall(p), grams)
        best, found = solve(exact, tol=1e-6), solve(rough, tol=1e-2)
        assert found.gap <= 1e-2
        assert found.lower <= best.upper and best.lower <= found.upper
        # what it claims, the exact problem confirms
        claim = exact.certify(found.iterate(), found.iterate())
        assert claim.gap <= 1e-2 * (1 + 1e-6)


def test_rough_paths_agree_with_exact_ones(table):
    bank, grams, y = table

    def loss_at(C):
        return Hinge(y[:, None], np.full((90, 1), C))

    Cs, norms, tol = [0.01, 1.0, 100.0, 1e4, 1e6], [1.0, 2.0, np.inf], 1e-4
    exact = mkl_path(bank, loss_at, Cs, norms, tol=1e-6)
    rough = rough_path(grams, loss_at, Cs, norms, tol=tol)
    assert rough.gap.max() <= tol
    assert rough.theta.shape == exact.theta.shape
    # the optimum of each cell is between the bounds of both, so also where a cell has
    # taken over the solution of a smaller cost
    slack = 1e-2 * exact.objective
    assert (rough.lower <= exact.objective + slack).all()
    assert (exact.lower <= rough.objective + slack).all()


def test_costs_that_bound_nothing_have_one_solution(table):
    _, grams, y = table
    wide = DenseGrams(grams.values + np.eye(90))  # separable, whatever the labels

    def loss_at(C):
        return Hinge(y[:, None], np.full((90, 1), C))

    path = rough_path(wide, loss_at, [1e4, 1e5, 1e6], [2.0], tol=1e-3)
    first, *others = path.solutions[0]
    assert np.abs(first.A).max() < 1e4 / 1.5
    assert all(other is first for other in others)


@pytest.mark.parametrize("search", [MKLClassifierCV, MKLRegressorCV])
def test_tight_searches_score_as_exact_paths_do(search, monkeypatch):
    X, y = load_iris(return_X_y=True)
    settings = {"Cs": [0.1, 1.0], "norms": [1, 2, np.inf], "cv": 3, "tol": 1e-7}
    rough = search(**settings).fit(X, y)
    monkeypatch.setattr("mklearn.estimators._folds._DENSE", 0)
    exact = search(**settings).fit(X, y)
    np.testing.assert_allclose(rough.scores_, exact.scores_, atol=2e-3)
    assert rough.best_index_ == exact.best_index_
    assert rough.duality_gap_ <= 1e-7
