"""Bounds on the optimal weights: they hold, and they prove zeros where they can."""

import numpy as np
import pytest

from mklearn import KernelBank, LpBall, MKLProblem, kernels, solve
from mklearn.problems import EpsilonInsensitive, Hinge, Logistic, Squared, SquaredHinge


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
