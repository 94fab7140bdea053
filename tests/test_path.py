"""Paths: every cell is the solution of its own problem, found with less work."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from cases import NORMS, signs, stack
from mklearn import (
    ElasticNet,
    EpsilonInsensitive,
    Hinge,
    KernelBank,
    Logistic,
    LpBall,
    MKLProblem,
    OneClass,
    Squared,
    SquaredHinge,
    mkl_path,
    solve,
)
from mklearn.solvers.path import scaled, warm_start

CS = np.geomspace(0.01, 10, 4)


def bank_and_targets(n=50):
    X, y = signs(n)
    return KernelBank.from_grams(stack(X)), y[:, None]


BANK, Y = bank_and_targets()
ONES = np.ones_like(Y)
LOSSES = {
    "hinge": lambda C: Hinge(Y, C * ONES),
    "squared_hinge": lambda C: SquaredHinge(Y, C * ONES),
    "squared": lambda C: Squared(Y, C * ONES),
    "epsilon": lambda C: EpsilonInsensitive(Y, C * ONES, epsilon=0.2),
    "logistic": lambda C: Logistic(Y, C * ONES),
    "one_class": lambda C: OneClass((0.02 + C) * ONES),
    "three_tasks": lambda C: Hinge(
        np.c_[Y, np.roll(Y, 1), np.roll(Y, 5)], C * np.ones((len(Y), 3))
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_cell_equals_a_cold_solve(name):
    tol = 1e-5
    path = mkl_path(BANK, LOSSES[name], CS, NORMS, tol=tol)
    assert path.shape == (len(NORMS), len(CS), BANK.shape[2])
    assert path.reached.all()
    assert path.gap.max() <= tol
    for i, p in enumerate(NORMS):
        for k, C in enumerate(path.Cs):
            problem = MKLProblem(BANK, LOSSES[name](C), LpBall(p))
            cold = solve(problem, tol=tol)
            assert path.solutions[i][k].check(problem) <= tol
            assert path.objective[i, k] >= cold.lower - 1e-9 * abs(cold.lower)
            assert path.lower[i, k] <= cold.upper + 1e-9 * abs(cold.upper)
            assert path.objective[i, k] == pytest.approx(cold.upper, rel=2 * tol)


def test_the_arrays_are_those_of_the_solutions():
    path = mkl_path(BANK, LOSSES["hinge"], CS, [1, 2])
    for i in range(2):
        for k in range(len(CS)):
            s = path.solutions[i][k]
            np.testing.assert_array_equal(path.theta[i, k], s.theta)
            assert (path.objective[i, k], path.lower[i, k]) == (s.upper, s.lower)
            assert (path.gap[i, k], path.n_iter[i, k]) == (s.gap, s.n_iter)
    assert path.norms == (1, 2)


@pytest.mark.parametrize("name", ["hinge", "squared", "logistic"])
def test_warm_starts_save_iterations(name):
    Cs = np.geomspace(0.01, 10, 10)
    path = mkl_path(BANK, LOSSES[name], Cs, NORMS)
    cold = sum(
        solve(MKLProblem(BANK, LOSSES[name](C), LpBall(p))).n_iter
        for p in NORMS
        for C in Cs
    )
    assert path.n_iter.sum() < 0.9 * cold


@pytest.mark.parametrize("solver", ["alternating", "interleaved"])
def test_zero_weights_come_back(solver):
    path = mkl_path(BANK, LOSSES["hinge"], [1.0, 5.0], [1, 2], tol=1e-4)
    assert (path.theta[0] == 0).any()
    start = warm_start(
        path.solutions[0][0], LOSSES["hinge"](1), LOSSES["hinge"](5), LpBall(2), 5.0
    )
    problem = MKLProblem(BANK, LOSSES["hinge"](5), LpBall(2))
    found = solve(problem, solver, tol=1e-4, start=start)
    assert found.upper == pytest.approx(path.objective[1, 1], rel=2e-4)


@pytest.mark.parametrize("p", NORMS)
def test_scaled_weights_are_on_the_boundary(p):
    for theta in (np.array([0.0, 0.3, 2.0]), np.zeros(3), np.array([1e-200, 0, 0])):
        new = scaled(theta, LpBall(p))
        assert LpBall(p).contains(new)
        assert np.linalg.norm(new, p) == pytest.approx(1.0)


def test_costs_ascend_and_sets_are_norms():
    path = mkl_path(BANK, LOSSES["hinge"], [1.0, 0.1, 1.0], [ElasticNet(0.5), 2])
    np.testing.assert_array_equal(path.Cs, [0.1, 1.0])
    assert path.gap.max() <= 1e-3
    assert path.norms == (ElasticNet(0.5), 2)


def test_time_limit_is_for_the_whole_path():
    with pytest.warns(ConvergenceWarning, match="cells of the path were not reached"):
        path = mkl_path(BANK, LOSSES["hinge"], CS, NORMS, tol=1e-9, time_limit=1e-6)
    assert not path.reached.all()
    assert np.isnan(path.theta[~path.reached]).all()
    assert np.isnan(path.n_iter[~path.reached]).all()
    assert path.solutions[-1][-1] is None


def test_callback_stops_the_path_and_sees_every_iteration():
    seen = []
    path = mkl_path(BANK, LOSSES["hinge"], CS, [2], callback=lambda h: seen.append(1))
    # the last iteration of a cell ends it before the callback is asked
    assert len(seen) == path.n_iter.sum() - len(CS)
    with pytest.warns(ConvergenceWarning, match="not reached"):
        path = mkl_path(BANK, LOSSES["hinge"], CS, [2], tol=1e-9, callback=bool)
    assert path.reached.sum() == 1


def test_cells_above_tol_are_said_once():
    with pytest.warns(ConvergenceWarning, match="3 stopped .* above tol") as caught:
        mkl_path(BANK, LOSSES["hinge"], [1, 2, 3], [2], tol=1e-12, max_iter=2)
    assert len(caught) == 1


def test_verbose_tells_each_cell(capsys):
    mkl_path(BANK, LOSSES["hinge"], [0.1, 1], [1, np.inf], verbose=1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("norm inf  C 1 ")


@pytest.mark.parametrize(
    ("Cs", "norms", "message"),
    [
        ([], [1], "at least one value"),
        ([1, -1], [1], "positive"),
        ([np.nan], [1], "positive"),
        ([1], [], "at least one norm"),
        ([1], ["two"], "norm must be a number"),
        ([1], [0.5], "p >= 1"),
    ],
)
def test_mistakes_are_named(Cs, norms, message):
    with pytest.raises(ValueError, match=message):
        mkl_path(BANK, LOSSES["hinge"], Cs, norms)
