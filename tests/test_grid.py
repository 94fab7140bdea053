"""Loss x weight set x solver: every cell is solved, or refused with advice."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

from cases import factor, samples, signs, stack
from mklearn import KernelBank, MKLProblem, solve
from mklearn.problems import (
    BlockNorm,
    ElasticNet,
    Ellipsoid,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    LpBall,
    OneClass,
    Squared,
    SquaredHinge,
    block_norm,
    ivanov,
    learned_cost,
    tikhonov,
)
from mklearn.problems.losses import Piece, Piecewise
from mklearn.solvers import CuttingPlane, Iterate

TOL = 1e-5
N, M = 40, 5


def _losses():
    X, y = signs(N)
    rng = np.random.default_rng(0)
    C = rng.uniform(0.5, 2.0, (N, 1))
    C[3] = 0.0
    Y, R = y[:, None], X[:, :1] + 0.3 * rng.normal(size=(N, 1))
    _, classes = samples(N, 3)
    tasks = np.where(classes[:, None] == np.arange(3), 1.0, -1.0)
    return {
        "hinge": Hinge(Y, C),
        "hinge, no bias": Hinge(Y, C, False),
        "hinge, three tasks": Hinge(tasks, np.ones((N, 3))),
        "squared hinge": SquaredHinge(Y, C),
        "squared": Squared(R, C),
        "squared, no bias": Squared(R, C, False),
        "eps-insensitive": EpsilonInsensitive(R, C),
        "logistic": Logistic(Y, C),
        "one-class": OneClass(np.full((N, 1), 4.0 / N)),
    }


def _ellipsoid():
    R = np.random.default_rng(3).uniform(-0.5, 1.0, (M, 6))
    return Ellipsoid(R @ R.T / 3 + 0.2 * np.eye(M))


LOSSES = _losses()
SETS = {
    "p=1": LpBall(1),
    "p=4/3": LpBall(4 / 3),
    "p=2": LpBall(2),
    "p=50": LpBall(50),
    "p=inf": LpBall(np.inf),
    "ellipsoid": _ellipsoid(),
    "elastic net": ElasticNet(0.3),
    "block norm 3": BlockNorm(3),
    "block norm 6": BlockNorm(6),
}
SOLVERS = [
    "alternating",
    "conic",
    "cutting_plane",
    "lbfgs",
    "newton",
    "reduced_gradient",
]


def suits(loss, weights, solver):
    """Tell whether a solver is made for a cell."""
    p = getattr(weights, "p", None)
    if solver == "reduced_gradient":
        return p == 1
    if solver == "lbfgs":
        return isinstance(loss, Squared) and p is not None and 1 < p < np.inf
    if solver in ("newton", "cutting_plane"):
        return not isinstance(weights, BlockNorm)
    return True


def allowed(solver, weights):
    """Return the gap that a cell is held to."""
    if solver == "alternating" and getattr(weights, "p", None) == 1:
        # Kernels that leave do so at the rate 1 / iterations: the update multiplies
        # their weights by less than one, but by nearly one towards the end.
        return 1e-2
    if solver == "alternating" and isinstance(weights, ElasticNet):
        return 1e-4  # nearly as slow, for the same reason
    return TOL


@pytest.fixture(scope="module")
def bank():
    return KernelBank.from_grams(stack(signs(N)[0], M))


@pytest.fixture(scope="module")
def references(bank):
    """Return the optimum of a cell by whichever solver is known to be accurate."""
    found = {}

    def reference(loss, weights):
        key = (loss, weights)
        if key not in found:
            task = MKLProblem(bank, LOSSES[loss], SETS[weights])
            solver = "alternating" if "block" in weights else "newton"
            found[key] = solve(task, solver, tol=1e-6, max_iter=500)
        return found[key]

    return reference


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("weights", SETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_cell(bank, references, loss, weights, solver):
    task = MKLProblem(bank, LOSSES[loss], SETS[weights])
    if not suits(task.loss, task.weights, solver):
        with pytest.raises(ValueError, match=rf"solver='{solver}'.*[uU]se .*solver='"):
            solve(task, solver)
        return
    tol = allowed(solver, task.weights)
    solution = solve(task, solver, tol=tol, max_iter=1000)
    assert solution.check(task) <= tol
    assert_feasible(task, solution)
    best = references(loss, weights)
    assert solution.upper == pytest.approx(best.upper, rel=max(tol, TOL))
    assert solution.lower == pytest.approx(best.lower, rel=max(tol, TOL))


def assert_feasible(task, solution):
    assert task.weights.contains(solution.theta)
    for A in (solution.A, solution.dual):
        scale = 1e-12 * (1 + np.abs(A).sum())
        np.testing.assert_allclose(task.loss.repair(A), A, rtol=1e-9, atol=scale)
    judged = task.judge(Iterate(solution.theta, solution.A))
    np.testing.assert_allclose(solution.bias, judged.bias)


# --- cutting planes -------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("weights", ["p=1", "p=4/3", "p=2", "ellipsoid"])
def test_the_level_does_not_change_the_optimum(bank, references, weights, level):
    task = MKLProblem(bank, LOSSES["hinge"], SETS[weights])
    solution = solve(task, CuttingPlane(level=level), tol=1e-7)
    assert solution.check(task) <= 1e-7
    assert solution.upper == pytest.approx(references("hinge", weights).upper, rel=2e-6)


def hard_case():
    """Return a problem with many kernels that are nearly alike."""
    X, y = signs(80)
    rng = np.random.default_rng(0)
    noisy = [X[:, [m % 5]] + 0.1 * m * rng.normal(size=(80, 1)) for m in range(40)]
    grams = [np.exp(-((f - f.T) ** 2)) for f in noisy]
    loss = Hinge(y[:, None], np.full((80, 1), 10.0))
    return MKLProblem(KernelBank.from_grams(np.stack(grams, axis=2)), loss, LpBall(1))


def test_levels_save_cuts_where_kernels_are_many():
    task = hard_case()
    plain = solve(task, CuttingPlane(level=0.0), tol=1e-2)
    level = solve(task, CuttingPlane(), tol=1e-2)
    assert level.n_iter < plain.n_iter


@pytest.mark.parametrize("p", [1, 2])
def test_cutting_planes_with_more_kernels_than_a_quadratic_master_allows(p):
    X, y = signs(20)
    rng = np.random.default_rng(0)
    noisy = [X[:, [m % 5]] + 0.01 * m * rng.normal(size=(20, 1)) for m in range(520)]
    grams = np.stack([np.exp(-((f - f.T) ** 2)) for f in noisy], axis=2)
    loss = Hinge(y[:, None], np.ones((20, 1)))
    task = MKLProblem(KernelBank.from_grams(grams), loss, LpBall(p))
    assert solve(task, "cutting_plane", tol=1e-2).check(task) <= 1e-2


@pytest.mark.parametrize("weights", ["p=1", "p=4/3", "elastic net"])
def test_cutting_planes_go_on_from_a_solution(bank, references, weights):
    task = MKLProblem(bank, LOSSES["squared"], SETS[weights])
    best = references("squared", weights)
    start = Iterate(best.theta, best.A, dual=best.dual)
    assert solve(task, "cutting_plane", tol=1e-5, start=start).n_iter <= 2


# --- reductions -----------------------------------------------------------------------


def features(n_kernels=4, n=N, width=3, seed=0):
    """Return explicit features of each kernel, and their Gram matrices."""
    rng = np.random.default_rng(seed)
    Phi = [rng.normal(size=(n, width)) for _ in range(n_kernels)]
    return Phi, np.stack([P @ P.T for P in Phi], axis=2)


def primal(Phi, cost, b, penalty, cp):
    """Return the model ``cost(f + b) + penalty(norms)`` on explicit features."""
    w = [cp.Variable(P.shape[1]) for P in Phi]
    f = sum(P @ v for P, v in zip(Phi, w, strict=True)) + b
    norms = cp.hstack([cp.norm(v) for v in w])
    return cp.Problem(cp.Minimize(cost(f) + penalty(norms))), f


@pytest.mark.parametrize("solver", ["newton", "cutting_plane", "reduced_gradient"])
def test_one_norm_and_squared_loss_are_the_group_lasso(solver):
    cp = pytest.importorskip("cvxpy")
    Phi, grams = features()
    y = Phi[0][:, 0] - Phi[2][:, 1] + 0.3 * np.random.default_rng(1).normal(size=N)
    b = cp.Variable()
    model, f = primal(
        Phi,
        lambda f: 0.5 * 0.2 * cp.sum_squares(y - f),
        b,
        lambda norms: 0.5 * cp.square(cp.sum(norms)),
        cp,
    )
    best = model.solve(solver=cp.CLARABEL)
    loss = Squared(y[:, None], np.full((N, 1), 0.2))
    task = MKLProblem(KernelBank.from_grams(grams), loss, LpBall(1))
    solution = solve(task, solver, tol=1e-8)
    assert solution.upper == pytest.approx(best, rel=1e-6)
    ours = task.bank.apply(solution.theta, solution.A)[:, 0] + solution.bias
    np.testing.assert_allclose(ours, f.value, atol=1e-3)


@pytest.mark.parametrize("loss", ["squared", "hinge"])
@pytest.mark.parametrize("q", [1, 4 / 3, 2, 3, 6])
def test_block_norms_are_what_they_say(q, loss):
    cp = pytest.importorskip("cvxpy")
    Phi, grams = features()
    y = Phi[0][:, 0] - Phi[2][:, 1] + 0.3 * np.random.default_rng(1).normal(size=N)
    if loss == "hinge":
        y = np.sign(y)
        ours = Hinge(y[:, None], np.full((N, 1), 0.2))
    else:
        ours = Squared(y[:, None], np.full((N, 1), 0.2))
    b = cp.Variable()

    def cost(f):
        if loss == "hinge":
            return 0.2 * cp.sum(cp.pos(1 - cp.multiply(y, f)))
        return 0.1 * cp.sum_squares(y - f)

    def penalty(norms):
        return 0.5 * cp.square(cp.pnorm(norms, q))

    best = primal(Phi, cost, b, penalty, cp)[0].solve(solver=cp.CLARABEL)
    task = MKLProblem(KernelBank.from_grams(grams), ours, block_norm(q))
    solution = solve(task, "alternating" if q > 2 else "newton", tol=1e-7)
    assert solution.check(task) <= 1e-7
    assert solution.upper == pytest.approx(best, rel=2e-6)


# --- Tikhonov and Ivanov --------------------------------------------------------------


def regulariser(task):
    solution = solve(task, tol=1e-8)
    return task.weights.regulariser(solution.theta, task.bank.quad(solution.A))


def tikhonov_optimum(Phi, y, cost, mu, p):
    """Solve (4) of LPMKL on explicit features: value, weights and scores."""
    cp = pytest.importorskip("cvxpy")
    w = [cp.Variable(P.shape[1]) for P in Phi]
    theta, b = cp.Variable(len(Phi), nonneg=True), cp.Variable()
    f = sum(P @ v for P, v in zip(Phi, w, strict=True)) + b
    value = cost * cp.sum(cp.pos(1 - cp.multiply(y, f)))
    value += 0.5 * sum(cp.quad_over_lin(v, theta[m]) for m, v in enumerate(w))
    value += mu * cp.square(cp.pnorm(theta, p))
    best = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    return best, theta.value, f.value


@pytest.mark.parametrize("p", [1, 4 / 3, 2])
@pytest.mark.parametrize(("cost", "mu"), [(0.3, 0.1), (1.0, 2.0)])
def test_tikhonov_and_ivanov_are_equivalent(p, cost, mu):
    # Theorem 1 of LPMKL, in both directions
    Phi, grams = features()
    y = np.sign(
        Phi[0][:, 0] - Phi[2][:, 1] + 0.3 * np.random.default_rng(1).normal(size=N)
    )
    best, theta, f = tikhonov_optimum(Phi, y, cost, mu, p)
    loss = Hinge(y[:, None], np.full((N, 1), cost))
    given = MKLProblem(KernelBank.from_grams(grams), loss, LpBall(p))
    task, s = ivanov(given, mu, regulariser)
    np.testing.assert_allclose(task.loss.C, s * cost)
    solution = solve(task, tol=1e-8)
    # C~ L + R / s + mu s^2 = (C L + R) / s + mu s^2
    assert solution.upper / s + mu * s**2 == pytest.approx(best, rel=1e-5)
    np.testing.assert_allclose(s * solution.theta, theta, atol=2e-3 * s)
    ours = task.bank.apply(solution.theta, solution.A)[:, 0] + solution.bias
    np.testing.assert_allclose(ours, f, atol=5e-3)
    assert tikhonov(regulariser(task), mu) == pytest.approx(s, rel=1e-5)


def test_the_tikhonov_form_needs_a_sum_of_costs(bank):
    task = MKLProblem(bank, LOSSES["one-class"], LpBall(2))
    with pytest.raises(ValueError, match="sum of costs"):
        ivanov(task, 1.0, regulariser)


def test_a_problem_whose_solution_is_zero_has_no_tikhonov_scale():
    loss = Hinge(np.ones((4, 1)), np.ones((4, 1)))
    task = MKLProblem(KernelBank.from_grams(np.ones((4, 4, 2))), loss, LpBall(2))
    with pytest.raises(ValueError, match="zero for all costs"):
        ivanov(task, 1.0, lambda task: 0.0)


# --- the programs of Lanckriet et al. -------------------------------------------------


def test_two_norm_margin_with_learned_cost():
    # SM2_C: max 1'a - ½ t over a >= 0, y'a = 0, t >= n a'YK_mYa / tr K_m, also for I
    cp = pytest.importorskip("cvxpy")
    X, y = signs(N)
    grams = stack(X, M)
    a, t = cp.Variable(N, nonneg=True), cp.Variable()
    limits = [y @ a == 0]
    for K in [*np.moveaxis(grams, 2, 0), np.eye(N)]:
        L = factor(N * K / np.trace(K))
        limits.append(cp.sum_squares((y[:, None] * L).T @ a) <= t)
    best = cp.Problem(cp.Maximize(cp.sum(a) - 0.5 * t), limits).solve(
        solver=cp.CLARABEL
    )
    task = learned_cost(KernelBank.from_grams(grams), y[:, None])
    for solver in ("conic", "newton", "cutting_plane"):
        solution = solve(task, solver, tol=TOL)
        assert solution.upper == pytest.approx(best, rel=2e-5)
        assert solution.theta[-1] > 0
        assert (np.abs(solution.A) < 0.9 * task.loss.C).all()


def test_the_learned_cost_is_the_cost_of_the_squared_hinge():
    # with the weights fixed, the identity's weight is 1 / C
    X, y = signs(N)
    grams = stack(X, M)
    bank = KernelBank.from_grams(grams)
    task = learned_cost(bank, y[:, None])
    solution = solve(task, tol=1e-8)
    traces = np.trace(grams)
    K = grams @ (N * solution.theta[:-1] / traces)
    C = 1 / solution.theta[-1]
    loss = SquaredHinge(y[:, None], np.full((N, 1), C))
    fixed = MKLProblem(KernelBank.from_grams(K[:, :, None]), loss, LpBall(np.inf))
    assert solve(fixed, tol=1e-8).upper == pytest.approx(solution.upper, rel=1e-6)


def test_learned_cost_needs_kernels_with_a_trace():
    bank = KernelBank.from_grams(np.zeros((4, 4, 1)))
    with pytest.raises(ValueError, match="trace"):
        learned_cost(bank, np.ones((4, 1)))


@pytest.mark.parametrize("size", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("p", [1.02, 1.1])
@pytest.mark.parametrize("kind", [EpsilonInsensitive, Squared])
def test_conic_programs_of_any_scale_and_norms_near_one(bank, kind, p, size):
    # cones of such norms are narrow: the usual steps end before a digit is right
    loss = LOSSES["squared"]
    more = {"epsilon": 0.1 * size} if kind is EpsilonInsensitive else {}
    task = MKLProblem(bank, kind(size * loss.Y, 2.0 * loss.C, **more), LpBall(p))
    assert solve(task, "conic", tol=TOL).check(task) <= TOL


def test_conic_programs_of_many_samples_are_warned_of():
    task = MKLProblem(
        KernelBank.from_grams(np.ones((600, 600, 1))),
        Hinge(np.where(np.arange(600) % 2, 1.0, -1.0)[:, None], np.ones((600, 1))),
        LpBall(1),
    )
    with pytest.warns(UserWarning, match=r"600 samples.*newton"):
        solve(task, "conic", tol=1e-2)


def test_without_its_packages_the_conic_solver_says_what_to_install(monkeypatch, bank):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    task = MKLProblem(bank, LOSSES["hinge"], LpBall(1))
    with pytest.raises(ImportError, match="pip install cvxpy clarabel"):
        solve(task, "conic")


def test_any_loss_with_a_box_has_a_conic_program(bank):
    @dataclass(frozen=True)
    class Pinball(Piecewise):
        def value(self, f, y):
            return np.maximum(0.3 * (y - f), -0.7 * (y - f))

        def pieces(self, y):
            one = np.ones(np.shape(y))
            return (Piece(y, -0.7 * one, 0.3 * one),)

    Y, C = LOSSES["squared"].Y, LOSSES["squared"].C
    task = MKLProblem(bank, Pinball().on(Y, C), LpBall(2))
    mine, other = (solve(task, solver, tol=1e-6) for solver in ("conic", "newton"))
    assert mine.check(task) <= 1e-6
    assert mine.upper == pytest.approx(other.upper, rel=1e-5)


def test_the_conic_solver_refuses_what_it_does_not_know(bank):
    class Mine(Hinge):
        pass

    class Other:
        shape = (N, 1)

    mine = Mine(LOSSES["hinge"].Y, LOSSES["hinge"].C)
    assert solve(MKLProblem(bank, mine, LpBall(2)), "conic").gap < 1e-3
    with pytest.raises(ValueError, match=r"Other.*solver='alternating'"):
        solve(MKLProblem(bank, Other(), LpBall(2)), "conic")
