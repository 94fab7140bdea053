"""Solvers: reductions, agreement with a conic solver, invariances, certificates."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.svm import SVC

from cases import NORMS, conic_optimum, problem, samples, signs, small, stack
from mklearn import KernelBank, LpBall, MKLProblem, kernels, solve
from mklearn.problems import Squared
from mklearn.solvers import Alternating, Iterate, Multilevel, Newton, Status
from mklearn.solvers.interior import minimise_quadratic

# alternating steps are slow for p = 1, where cutting planes stand in for them
QUICK = [(1, "cutting_plane")] + [(p, "alternating") for p in NORMS if p > 1]
QUICK += [(p, "newton") for p in NORMS]
QUICK += [(p, "cutting_plane") for p in NORMS if p > 1]
SETTINGS = [*QUICK, (1, "alternating")]


def optimum(task, solver="auto", tol=1e-7):
    solution = solve(task, solver, tol=tol)
    assert solution.check(task) <= tol
    return solution


def svc_dual(K, y, C):
    svc = SVC(C=C, kernel="precomputed", tol=1e-10).fit(K, y)
    c = np.zeros(len(y))
    c[svc.support_] = svc.dual_coef_[0]
    return np.abs(c).sum() - 0.5 * c @ K @ c, svc


# --- reductions -----------------------------------------------------------------------


@pytest.mark.parametrize(("p", "solver"), SETTINGS)
@pytest.mark.parametrize("C", [0.05, 1.0, 50.0])
def test_one_kernel_is_svc(p, solver, C):
    X, y = signs(60)
    B = stack(X)[:, :, [2]]
    solution = optimum(problem(B, y, C, p), solver)
    dual, svc = svc_dual(B[:, :, 0], y, C)
    assert solution.lower == pytest.approx(dual, rel=1e-6)
    assert solution.upper == pytest.approx(dual, rel=1e-6)
    np.testing.assert_allclose(solution.theta, [1.0])
    Z = np.random.default_rng(9).normal(size=(50, 5))
    new = stack(Z, Z=X)[:, :, 2]
    scores = new @ solution.A[:, 0] + solution.bias[0]
    theirs = svc.decision_function(new)
    clear = np.abs(theirs) > 1e-3
    np.testing.assert_array_equal(np.sign(scores[clear]), np.sign(theirs[clear]))


@pytest.mark.parametrize("C", [0.05, 1.0, 50.0])
def test_infinite_norm_is_svc_on_the_sum(C):
    X, y = signs(50)
    B = stack(X)
    solution = optimum(problem(B, y, C, np.inf))
    np.testing.assert_array_equal(solution.theta, np.ones(5))
    assert solution.lower == pytest.approx(svc_dual(B.sum(axis=2), y, C)[0], rel=1e-6)


@pytest.mark.parametrize(("p", "solver"), SETTINGS)
@pytest.mark.parametrize("C", [0.1, 1.0, 20.0])
def test_agreement_with_the_conic_solution(p, solver, C):
    X, y = signs(36, seed=3)
    B = stack(X)
    best = conic_optimum(B, y, C, p)
    solution = solve(problem(B, y, C, p), solver, tol=4e-6, max_iter=3000)
    assert solution.upper == pytest.approx(best, rel=1e-5)
    assert solution.lower == pytest.approx(best, rel=1e-5)


def test_one_norm_agrees_with_the_conic_solution_for_unequal_costs():
    X, y = signs(30, seed=4)
    cost = np.random.default_rng(0).uniform(0.1, 5.0, 30)
    B = stack(X)
    best = conic_optimum(B, y, cost, 1)
    for solver in ("alternating", "cutting_plane"):
        assert optimum(problem(B, y, cost, 1), solver, 1e-6).upper == pytest.approx(
            best, rel=1e-5
        )


def test_tasks_with_fixed_weights_are_separate():
    # p = inf fixes theta, so the objective of several tasks is a sum
    X, _ = signs(40)
    Y = np.where(np.arange(40)[:, None] % 3 == np.arange(3), 1.0, -1.0)
    B = stack(X)
    together = optimum(problem(B, Y, 1.0, np.inf))
    alone = [optimum(problem(B, Y[:, t], 1.0, np.inf)).upper for t in range(3)]
    assert together.upper == pytest.approx(sum(alone), rel=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_a_task_given_twice_counts_twice(p):
    # q doubles, so the optimum is the one of a single task with kernels K: exactly 2x
    X, y = signs(40)
    B = stack(X)
    once = optimum(problem(B, y, 1.0, p))
    twice = optimum(problem(B, np.column_stack([y, y]), 1.0, p))
    assert twice.upper == pytest.approx(2 * once.upper, rel=1e-6)
    np.testing.assert_allclose(twice.theta, once.theta, atol=2e-3)


# --- invariances ----------------------------------------------------------------------


@pytest.mark.parametrize(("p", "solver"), QUICK)
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale_of_the_kernels_is_a_scale_of_cost(p, solver, scale):
    # K -> s K, C -> C / s: alpha -> alpha / s, objective / s, same theta
    X, y = signs(40)
    B = stack(X)
    one = optimum(problem(B, y, 1.0, p), solver, 1e-6)
    other = optimum(problem(scale * B, y, 1.0 / scale, p), solver, 1e-6)
    assert scale * other.upper == pytest.approx(one.upper, rel=3e-6)
    np.testing.assert_allclose(other.theta, one.theta, atol=5e-3)


@pytest.mark.parametrize(("p", "solver"), QUICK)
def test_order_of_samples_and_kernels_does_not_matter(p, solver):
    X, y = signs(40)
    B = stack(X)
    rng = np.random.default_rng(0)
    rows, order = rng.permutation(40), rng.permutation(5)
    one = optimum(problem(B, y, 1.0, p), solver, 1e-6)
    shuffled = B[np.ix_(rows, rows, order)]
    other = optimum(problem(shuffled, y[rows], 1.0, p), solver, 1e-6)
    assert other.upper == pytest.approx(one.upper, rel=2e-6)
    np.testing.assert_allclose(other.theta, one.theta[order], atol=5e-3)


@pytest.mark.parametrize(("p", "solver"), QUICK)
def test_a_kernel_given_twice_is_one_scaled_by_two_to_the_1_over_q(p, solver):
    # The copies share s = theta_a + theta_b evenly, at the price 2^(1-p) s^p instead
    # of s^p in the norm: the problem with 2^(1 - 1/p) K and theta_a = 2^(-1/p) t.
    X, y = signs(40)
    B = stack(X)
    twice = optimum(problem(B[:, :, [0, 1, 2, 3, 4, 2]], y, 1.0, p), solver, 1e-6)
    factor = np.ones(5)
    factor[2] = 2.0 ** (1 - 1 / p)
    once = optimum(problem(B * factor, y, 1.0, p), solver, 1e-6)
    assert twice.upper == pytest.approx(once.upper, rel=2e-6)
    if p == 1:
        same = optimum(problem(B, y, 1.0, 1), solver, 1e-6)
        assert twice.upper == pytest.approx(same.upper, rel=2e-6)
        return
    assert twice.theta[2] == pytest.approx(twice.theta[5], abs=1e-9)
    np.testing.assert_allclose(
        twice.theta[:5], once.theta * np.where(factor > 1, 2 ** (-1 / p), 1), atol=5e-3
    )


@pytest.mark.parametrize(("p", "solver"), QUICK)
def test_a_zero_kernel_changes_nothing(p, solver):
    X, y = signs(40)
    B = stack(X)
    one = optimum(problem(B, y, 1.0, p), solver, 1e-6)
    more = optimum(problem(np.dstack([B, np.zeros((40, 40))]), y, 1.0, p), solver, 1e-6)
    assert more.upper == pytest.approx(one.upper, rel=2e-6)


@pytest.mark.parametrize(("p", "solver"), QUICK)
def test_kernels_that_are_all_zero_leave_the_bias(p, solver):
    y = np.r_[np.ones(4), -np.ones(6)]
    solution = optimum(problem(np.zeros((10, 10, 3)), y, 1.0, p), solver)
    # the bias -1 misses the margin of the four by two
    assert solution.upper == pytest.approx(8.0)
    np.testing.assert_allclose(solution.bias, [-1.0])


@pytest.mark.parametrize("p", NORMS)
def test_more_kernels_never_hurt(p):
    X, y = signs(40)
    B = stack(X)
    few = solve(problem(B[:, :, :3], y, 1.0, p), tol=1e-5)
    many = solve(problem(B, y, 1.0, p), tol=1e-5)
    assert many.lower <= few.upper


@pytest.mark.parametrize("solver", ["cutting_plane", "newton", "auto"])
def test_one_norm_gives_exact_zeros(solver):
    rng = np.random.default_rng(0)
    X, y = signs(60)
    noise = rng.normal(size=(60, 3, 20))
    B = np.stack([noise[:, :, m] @ noise[:, :, m].T for m in range(20)], axis=2)
    B = np.dstack([stack(X)[:, :, :1], 0.1 * B])
    theta = solve(problem(B, y, 0.1, 1), solver, tol=1e-6).theta
    assert theta[0] > 0
    assert (theta == 0).sum() >= 10


def test_larger_norms_never_cost_more():
    # the balls are nested: B_1 in B_p in B_inf
    X, y = signs(40)
    found = [solve(problem(stack(X), y, 1.0, p), tol=1e-5) for p in NORMS]
    for smaller, larger in pairwise(found):
        assert larger.lower <= smaller.upper


@pytest.mark.parametrize("storage", ["float64", "float32", "mmap", "recompute"])
@pytest.mark.parametrize("p", [1, 2])
def test_storage_does_not_change_the_optimum(storage, p):
    X, y = signs(60)
    specs = [kernels.Linear(), *kernels.rbf_ladder(4)]
    lazy = KernelBank(X, specs)
    base = problem(stack(X), y, 1.0, p)
    given = np.stack([lazy.gram(m) for m in range(5)], axis=2)
    expected = optimum(problem(given, y, 1.0, p), tol=1e-6).upper
    bank = lazy.stored(storage=storage)
    solution = optimum(MKLProblem(bank, base.loss, base.weights), tol=1e-6)
    # single precision rounds kernel values at 1e-7 of their size
    limit = 1e-5 if storage == "float32" else 2e-6
    assert solution.upper == pytest.approx(expected, rel=limit)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("p", "solver"), QUICK)
def test_kernels_of_low_rank(p, solver, dtype):
    # more free support vectors than dimensions, samples given twice, and rounding
    rng = np.random.default_rng(0)
    X, y = signs(30)
    X, y = np.r_[X, X], np.r_[y, y]
    B = np.stack([np.outer(x, x) for x in [*X.T, rng.normal(size=60)]], axis=2)
    task = problem(B.astype(dtype), y, 10.0, p)
    solution = solve(task, solver, tol=1e-5)
    assert solution.check(task) <= 1e-5
    assert_valid(task, solution)


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("p", [1, 1.5])
def test_newton_where_the_dual_solution_is_not_unique(p, C, seed):
    X, labels = samples(60, n_features=20, seed=seed)
    B = np.stack([np.outer(x, x) for x in X.T], axis=2)
    task = problem(B, np.where(labels == 1, 1.0, -1.0), C, p)
    assert solve(task, "newton", tol=1e-3).check(task) <= 1e-3


# --- certificates ---------------------------------------------------------------------


@pytest.mark.parametrize(("p", "solver"), SETTINGS)
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_certificate(p, solver, tol, C):
    task = small(C=C, p=p)
    solution = solve(task, solver, tol=tol)
    assert solution.status is Status.OPTIMAL
    assert solution.gap <= tol
    assert solution.check(task) <= tol * (1 + 1e-6)
    assert_valid(task, solution)


@pytest.mark.parametrize("p", [1.01, 1.5, 10, 50])
def test_certificate_for_unusual_norms(p):
    task = small(C=1.0, p=p)
    solution = solve(task, tol=1e-5)
    assert solution.check(task) <= 1e-5
    assert_valid(task, solution)


@pytest.mark.parametrize("C", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_certificate_for_extreme_costs(C, p):
    task = small(C=C, p=p)
    solution = solve(task, tol=1e-6)
    assert solution.check(task) <= 1e-6 * (1 + 1e-3)
    assert_valid(task, solution)


def assert_valid(task, solution):
    """Check feasibility and bounds without anything the driver kept."""
    Y, C = task.loss.Y, task.loss.C
    assert task.weights.contains(solution.theta)
    for A in (solution.A, solution.dual):
        assert (Y * A >= 0).all()
        assert (Y * A <= C * (1 + 1e-12)).all()
        np.testing.assert_allclose(A.sum(axis=0), 0.0, atol=1e-12 * np.abs(A).sum())
    grams = [task.bank.gram(m) for m in range(task.bank.shape[2])]
    K = sum(t * G for t, G in zip(solution.theta, grams, strict=True))
    F = K @ solution.A
    upper = task.loss.primal(F, solution.bias) + 0.5 * np.sum(solution.A * F)
    q = np.array([np.sum(solution.dual * (G @ solution.dual)) for G in grams])
    lower = np.abs(solution.dual).sum() - 0.5 * task.weights.support(q)
    size = abs(upper)
    assert solution.upper == pytest.approx(upper, abs=1e-9 * size)
    assert solution.lower == pytest.approx(lower, abs=1e-9 * size)
    assert_history(solution)


def assert_history(solution):
    upper, lower = np.array(solution.history.upper), np.array(solution.history.lower)
    size = np.abs(upper).max()
    assert (np.diff(upper) <= 1e-9 * size).all()
    assert (np.diff(lower) >= -1e-9 * size).all()
    assert (lower <= upper + 1e-9 * size).all()
    assert len(solution.history) == solution.n_iter
    assert (np.diff(solution.history.time) >= 0).all()


@pytest.mark.parametrize("p", NORMS)
def test_any_feasible_point_brackets_the_optimum(p):
    task = small(p=p)
    solution = solve(task, tol=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(50):
        A = task.loss.Y * rng.uniform(-0.5, 1.5, size=task.loss.shape)
        theta = rng.exponential(size=5)
        theta /= np.linalg.norm(theta, p) * rng.uniform(1, 2)
        judged = task.judge(Iterate(theta, A))
        assert judged.lower <= solution.upper
        assert judged.upper >= solution.lower
        assert task.dual(A) == pytest.approx(judged.lower)


def test_judge_refuses_weights_outside_of_the_set():
    task = small(p=2)
    with pytest.raises(ValueError, match="not in the weight set"):
        task.judge(Iterate(np.ones(5), np.zeros((40, 1))))


def test_a_problem_needs_a_square_bank_on_the_samples_of_the_loss():
    task = small()
    with pytest.raises(ValueError, match="square bank"):
        MKLProblem(task.bank[:20, :], task.loss, task.weights)
    with pytest.raises(ValueError, match="40 samples"):
        MKLProblem(task.bank[:20, :20], task.loss, task.weights)


@pytest.mark.parametrize("p", NORMS)
def test_contributions_are_shares_that_know_no_scale(p):
    X, y = signs(40)
    B = stack(X)
    task = problem(B, y, 1.0, p)
    solution = optimum(task, tol=1e-6)
    share = task.contributions(solution.theta, solution.A)
    assert (share >= 0).all() and share.sum() == pytest.approx(1.0)
    scaled = problem(3.0 * B, y, 1.0, p)
    np.testing.assert_allclose(
        scaled.contributions(solution.theta, solution.A), share, rtol=1e-12
    )
    even = task.contributions(solution.theta, np.zeros((40, 1)))
    np.testing.assert_allclose(even, 0.2)


# --- what a solver needs --------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2])
def test_coarse_to_fine_reaches_the_same_optimum(p):
    task = small(160, p=p)
    coarse = solve(task, Multilevel(Newton(), coarsest=20), tol=1e-6)
    assert coarse.check(task) <= 1e-6
    assert coarse.upper == pytest.approx(solve(task, tol=1e-6).upper, rel=2e-6)
    assert_valid(task, coarse)


@pytest.mark.parametrize("weights", [np.ones(4), np.array([3.0, 0.0, 1.0, 0.2])])
@pytest.mark.parametrize("p", [1, 1.01, 4 / 3, 2, 4])
def test_quadratic_functions_over_the_ball(p, weights):
    rng = np.random.default_rng(0)
    R = rng.normal(size=(3, 4))
    H, g = R.T @ R, -weights
    x = minimise_quadratic(H, g, LpBall(p).constraint, np.full(4, 4 ** (-1 / p)))
    assert (x >= 0).all() and np.linalg.norm(x, p) <= 1 + 1e-9
    value = 0.5 * x @ H @ x + g @ x
    # no member does better: the linearisation has its minimum here
    slope = H @ x + g
    dual = np.inf if p == 1 else p / (p - 1)
    least = -np.linalg.norm(np.maximum(-slope, 0), dual)
    assert slope @ x - least <= 1e-6 * abs(value)


def test_settings_of_a_solver_are_those_of_an_instance():
    task = small(p=2)
    values = [solve(task, Alternating(accuracy=a), tol=1e-6).upper for a in (0.01, 0.5)]
    assert values[0] == pytest.approx(values[1], rel=2e-6)


def test_input_is_not_changed():
    X, y = signs(30)
    B, cost = stack(X), np.full((30, 1), 2.0)
    before = B.copy()
    task = problem(B, y, cost, 1)
    solve(task, tol=1e-5)
    np.testing.assert_array_equal(B, before)
    np.testing.assert_array_equal(task.loss.C, 2.0)


def test_the_same_problem_gives_the_same_solution():
    one, two = (solve(small(p=1), tol=1e-6) for _ in range(2))
    np.testing.assert_array_equal(one.theta, two.theta)
    np.testing.assert_array_equal(one.A, two.A)


@pytest.mark.parametrize("C", [1e-4, 1e4, 1e6])
def test_conic_solutions_of_squared_losses_of_any_cost(C):
    pytest.importorskip("cvxpy")
    X, y = signs(40)
    bank = KernelBank.from_grams(stack(X, 4))
    given = MKLProblem(bank, Squared(y[:, None], np.full((40, 1), C)), LpBall(1))
    found, other = (solve(given, solver, tol=1e-7) for solver in ("conic", "newton"))
    assert found.gap <= 1e-7 and other.gap <= 1e-7
    assert found.upper == pytest.approx(other.upper, rel=1e-6)
