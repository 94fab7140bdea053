"""Bounds on the optimal weights: they hold, and they prove zeros where they can."""

import numpy as np
import pytest

from mklearn import KernelBank, LpBall, MKLProblem, kernels, solve
from mklearn.problems import EpsilonInsensitive, Hinge, Logistic, Squared, SquaredHinge
from mklearn.solvers import CuttingPlane, Multilevel, Newton, Screened
from mklearn.solvers.registry import choose_solver


def setting(loss_type, n=60):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 6))
    bank = KernelBank(X, kernels.per_feature(kernels.RBF(0.5))).stored()
    y = np.sin(2 * X[:, 0])
    if loss_type not in (Squared, EpsilonInsensitive):
        y = np.where(y > 0, 1.0, -1.0)
    return MKLProblem(bank, loss_type(y[:, None], np.ones((n, 1))), LpBall(1))


LOSSES = [Hinge, SquaredHinge, Squared, Logistic, EpsilonInsensitive]


@pytest.mark.parametrize("loss_type", LOSSES)
@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4])
def test_no_optimal_weight_exceeds_its_bound(loss_type, tol):
    problem = setting(loss_type)
    best = solve(problem, "newton", tol=1e-9)
    rough = solve(problem, "newton", tol=tol)
    slack = 1e-6  # the reference is itself known to a gap of 1e-9 only
    assert (best.theta <= rough.weight_bounds + slack).all()


@pytest.mark.parametrize("loss_type", LOSSES)
def test_bounds_shrink_with_the_gap(loss_type):
    problem = setting(loss_type)
    bounds = [solve(problem, "newton", tol=t).weight_bounds for t in (1e-1, 1e-8)]
    unused = solve(problem, "newton", tol=1e-9).theta == 0
    assert unused.any()
    assert bounds[1][unused].max() < 1e-3
    assert bounds[1][unused].max() <= bounds[0][unused].max()


@pytest.mark.parametrize("loss_type", [SquaredHinge, Squared, Logistic])
def test_strongly_concave_losses_prove_zeros(loss_type):
    problem = setting(loss_type)
    solution = solve(problem, "newton", tol=1e-9)
    assert solution.screened > 0
    # a screened kernel may go: the optimum without it is the same
    keep = np.flatnonzero(solution.weight_bounds > 0)
    reduced = MKLProblem(problem.bank.select(keep), problem.loss, problem.weights)
    alone = solve(reduced, "newton", tol=1e-9)
    assert alone.upper == pytest.approx(solution.upper, rel=1e-8)


def test_other_norms_have_no_bounds():
    problem = setting(Squared)
    spread = MKLProblem(problem.bank, problem.loss, LpBall(2))
    solution = solve(spread, tol=1e-6)
    assert (solution.weight_bounds == 1).all() and solution.screened == 0


class Watched:
    """Newton, and how many kernels its problems had."""

    def __init__(self):
        self.seen = []

    needs = ()

    def iterates(self, problem, start):
        self.seen.append(problem.bank.shape[2])
        return Newton().iterates(problem, start)


def faint(loss_type, n=60):
    """Two kernels that matter among many of little trace, which are found out early."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, 20))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.standard_normal(n)
    if loss_type is not Squared:
        y = np.where(y > 0, 1.0, -1.0)
    X[:, 2:] *= 0.05
    bank = KernelBank(X, kernels.per_feature(kernels.Linear())).stored()
    return MKLProblem(bank, loss_type(y[:, None], np.ones((n, 1))), LpBall(1))


@pytest.mark.parametrize("loss_type", [SquaredHinge, Squared, Logistic])
def test_screened_kernels_are_dropped_on_the_way(loss_type):
    problem = faint(loss_type)
    watched = Watched()
    solution = solve(problem, Screened(watched), tol=1e-9)
    assert watched.seen[0] == 20 and watched.seen[-1] < 10
    assert solution.theta.shape == (20,) and solution.screened >= 10
    assert solution.check(problem) <= 1e-9
    whole = solve(problem, Newton(), tol=1e-9)
    assert solution.upper == pytest.approx(whole.upper, rel=2e-9)
    np.testing.assert_allclose(solution.theta, whole.theta, atol=1e-4)


@pytest.mark.parametrize("loss_type", [SquaredHinge, Squared, Logistic])
@pytest.mark.parametrize("inner", [Newton(), CuttingPlane(), Multilevel(Newton(), 15)])
def test_screening_does_not_change_the_optimum(loss_type, inner):
    for problem in (faint(loss_type), setting(loss_type)):
        solution = solve(problem, Screened(inner), tol=1e-6)
        assert solution.check(problem) <= 1e-6
        best = solve(problem, Newton(), tol=1e-8)
        assert solution.upper == pytest.approx(best.upper, rel=2e-6)


def test_auto_screens_where_it_can():
    assert isinstance(choose_solver("auto", setting(SquaredHinge)), Screened)
    assert isinstance(choose_solver("auto", setting(Hinge)), Newton)
    with pytest.raises(ValueError, match="strongly concave"):
        solve(setting(Hinge), "screened")
