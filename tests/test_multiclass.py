"""Crammer-Singer MKL: subproblem, certificate, solvers, and what they reduce to."""

import pickle

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from cases import factor, hinge, samples, stack
from mklearn import (
    BilinearMKLClassifier,
    BilinearProblem,
    CrammerSinger,
    CrammerSingerClassifier,
    Ellipsoid,
    Hinge,
    KernelBank,
    LpBall,
    MKLClassifier,
    MKLProblem,
    kernels,
    solve,
)
from mklearn.plotting import ClassKernelHeatmapDisplay
from mklearn.problems import BlockNorm
from mklearn.solvers import (
    Iterate,
    MulticlassNewton,
    Multilevel,
    Newton,
    Status,
    multiclass_newton,
)
from mklearn.solvers.sweeps import SampleSweeps, solve_sample

PER_CLASS = ["newton", "alternating", "projected_gradient"]
SHARED = ["newton", "alternating", "cutting_plane", "reduced_gradient"]


def crammer_singer(y, C=1.0):
    y = np.asarray(y)
    return CrammerSinger(y, np.broadcast_to(float(C), y.shape).copy(), int(y.max()) + 1)


def per_class(grams, y, C=1.0, p=1.0):
    return BilinearProblem(
        KernelBank.from_grams(grams), crammer_singer(y, C), LpBall(p)
    )


def shared(grams, y, C=1.0, p=1.0):
    return MKLProblem(KernelBank.from_grams(grams), crammer_singer(y, C), LpBall(p))


def small(make=per_class, n=24, k=3, C=1.0, p=1.0, n_kernels=4):
    X, y = samples(n, k)
    return make(stack(X, n_kernels), y, C, p)


def conic_value(task):
    """Return the optimal value of the dual, written down anew for a general solver."""
    cp = pytest.importorskip("cvxpy")
    pytest.importorskip("clarabel")
    (n, k), M = task.loss.shape, task.bank.shape[2]
    A = cp.Variable((n, k))
    own = np.eye(k)[task.loss.labels]
    limits = [cp.sum(A, axis=1) == 0, A <= task.loss.C[:, None] * own]
    L = [factor(task.bank.gram(m)).T for m in range(M)]
    gain = cp.sum(cp.multiply(own, A))
    dual = {1: "inf", 2: 2}[task.weights.p]
    if isinstance(task, BilinearProblem):
        for c in range(k):
            if task.weights.p == 1:
                limits += [cp.norm(L[m] @ A[:, c]) <= 1 for m in range(M)]
                continue
            q = cp.hstack([cp.sum_squares(L[m] @ A[:, c]) for m in range(M)])
            limits.append(cp.norm(q, dual) <= 1)
        value = gain
    else:
        q = cp.hstack([cp.sum_squares(L[m] @ A) for m in range(M)])
        value = gain - 0.5 * cp.norm(q, dual)
    return float(cp.Problem(cp.Maximize(value), limits).solve(solver=cp.CLARABEL))


# --- the subproblem of one sample -----------------------------------------------------


def one_sample(lam, beta, cost, y):
    k = len(lam)
    out = np.empty(k)
    solve_sample(lam, beta, cost, y, out, np.empty(k), np.empty(k, dtype=np.int64))
    return out


def by_bisection(lam, beta, cost, y):
    """Solve many subproblems with ``lam > 0`` by bisection in the multiplier."""
    k = lam.shape[1]
    bound = np.where(np.arange(k) == y[:, None], cost[:, None], 0.0)
    knots = beta + lam * bound
    low, high = (
        knots.min(axis=1) - lam.max(axis=1) * cost - 1.0,
        knots.max(axis=1) + 1.0,
    )
    for _ in range(200):
        zeta = (low + high) / 2
        over = np.minimum(bound, (zeta[:, None] - beta) / lam).sum(axis=1) > 0
        low, high = np.where(over, low, zeta), np.where(over, zeta, high)
    return np.minimum(bound, (zeta[:, None] - beta) / lam)


@pytest.mark.parametrize("k", [2, 3, 5, 40])
@pytest.mark.parametrize("kind", ["random", "tied", "equal"])
def test_subproblem_agrees_with_bisection(k, kind):
    rng = np.random.default_rng(k)
    n = 2000
    lam = rng.uniform(0.01, 5.0, (n, k))
    beta = rng.normal(size=(n, k)) * rng.choice([0.1, 1.0, 30.0], (n, 1))
    if kind == "tied":
        lam, beta = np.ceil(lam), np.round(beta)
    if kind == "equal":
        lam, beta = np.ones((n, k)), np.zeros((n, k))
    cost, y = rng.choice([1e-3, 0.5, 1.0, 50.0], n), rng.integers(k, size=n)
    expected = by_bisection(lam, beta, cost, y)
    ours = np.array(
        [one_sample(*args) for args in zip(lam, beta, cost, y, strict=True)]
    )
    np.testing.assert_allclose(ours, expected, atol=1e-9 * (1 + np.abs(beta).max()))
    own = np.arange(k) == y[:, None]
    assert (ours <= np.where(own, cost[:, None], 0.0)).all()
    np.testing.assert_allclose(ours.sum(axis=1), 0, atol=1e-12 * cost.max())


def test_subproblem_agrees_with_a_general_solver():
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    for _ in range(30):
        k = int(rng.integers(2, 7))
        lam, beta = rng.uniform(0.1, 3.0, k), np.round(rng.normal(size=k), 1)
        if rng.random() < 0.5:
            lam[rng.integers(k)] = 0.0
        cost, y = float(rng.choice([0.3, 1.0, 5.0])), int(rng.integers(k))
        t = cp.Variable(k)
        value = 0.5 * cp.sum(cp.multiply(lam, cp.square(t))) + beta @ t
        limits = [cp.sum(t) == 0, t <= cost * np.eye(k)[y]]
        best = cp.Problem(cp.Minimize(value), limits).solve(solver=cp.CLARABEL)
        ours = one_sample(lam, beta, cost, y)
        assert 0.5 * lam @ ours**2 + beta @ ours == pytest.approx(best, abs=1e-6)


def test_subproblem_without_any_curvature_is_a_linear_program():
    out = one_sample(np.zeros(3), np.array([0.2, 0.9, 0.5]), 2.0, 0)
    np.testing.assert_allclose(out, [2.0, -2.0, 0.0])
    out = one_sample(np.zeros(3), np.array([0.9, 0.2, 0.5]), 2.0, 0)
    np.testing.assert_allclose(out, 0.0)


# --- the loss and the certificate -----------------------------------------------------


def test_loss_is_that_of_crammer_and_singer():
    loss = crammer_singer([0, 2, 1], 2.0)
    F = np.array([[3.0, 1.0, 2.5], [0.0, 0.0, 0.0], [1.0, -1.0, 0.0]])
    np.testing.assert_allclose(loss.slacks(F), [0.5, 1.0, 3.0])
    assert loss.primal(F, np.zeros(3)) == pytest.approx(9.0)


def test_repair_makes_anything_feasible_and_keeps_what_is():
    rng = np.random.default_rng(0)
    loss = crammer_singer(rng.integers(4, size=50), 0.7)
    wild = loss.repair(rng.normal(size=(50, 4)))
    own = loss.own
    assert (wild[~own] <= 0).all() and (wild[own] <= 0.7 + 1e-12).all()
    np.testing.assert_allclose(wild.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(loss.repair(wild), wild, atol=1e-15)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("make", [per_class, shared])
def test_every_iterate_bounds_the_optimum(make, p):
    task = small(make, p=p)
    best = conic_value(task)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 0.1, 1.0, 30.0):
        theta = task.center()
        if make is per_class:
            theta = theta * rng.uniform(0, 2, theta.shape)
        judged = task.judge(Iterate(theta, scale * rng.normal(size=task.loss.shape)))
        assert judged.lower <= best + 1e-6 <= judged.upper + 2e-6


def test_weights_do_not_exceed_their_bounds():
    task = small()
    solution = solve(task, tol=1e-6)
    rough = solve(task, tol=3e-2)
    assert (solution.theta <= rough.weight_bounds * (1 + 1e-6)).all()
    assert (rough.weight_bounds < rough.upper).any()


def test_closed_form_update_is_the_norm_of_w():
    task = small()
    rng = np.random.default_rng(0)
    A = task.loss.repair(rng.normal(size=task.loss.shape))
    d = rng.uniform(0.1, 1.0, task.center().shape)
    q = task.bank.quads(A)
    np.testing.assert_allclose(task.step(d, q), d * np.sqrt(q), rtol=1e-12)

    # no other weights have a smaller value of (7) at this w
    def penalty(e):
        return 0.5 * np.sum(d**2 * q / e + e)

    best = penalty(task.step(d, q))
    assert best == pytest.approx(task.norms(d, q).sum())
    for _ in range(20):
        assert penalty(task.step(d, q) * rng.uniform(0.5, 2.0, d.shape)) >= best


# --- solvers --------------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("make", [per_class, shared])
def test_optimum_is_that_of_the_cone_program(make, k, C):
    task = small(make, k=k, C=C)
    best = conic_value(task)
    for solver in PER_CLASS if make is per_class else SHARED:
        rough = solver in ("alternating", "projected_gradient", "reduced_gradient")
        tol = 1e-5 if rough else 1e-7
        solution = solve(task, solver, tol=tol, max_iter=3000)
        assert solution.status is Status.OPTIMAL
        assert solution.gap <= tol and solution.check(task) <= tol
        assert solution.upper == pytest.approx(best, rel=1e-5)
        assert solution.lower <= best * (1 + 1e-6)


@pytest.mark.parametrize("make", [per_class, shared])
def test_other_norms(make):
    task = small(make, p=2.0)
    best = conic_value(task)
    for solver in ("auto", "alternating"):
        assert solve(task, solver, tol=1e-6).upper == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("make", [per_class, shared])
@pytest.mark.parametrize("p", [1, 2])
def test_conic_solver(make, p):
    task = small(make, p=p)
    solution = solve(task, "conic", tol=1e-4)
    assert solution.lower == pytest.approx(conic_value(task), rel=1e-5)


def test_infinite_norm_per_class_is_one_kernel():
    X, y = samples(24, 3)
    B = stack(X, 4)
    total = solve(per_class(B, y, p=np.inf), tol=1e-6)
    alone = solve(per_class(B.sum(axis=2, keepdims=True), y), tol=1e-6)
    assert total.upper == pytest.approx(alone.upper, rel=2e-6)
    np.testing.assert_allclose(total.theta, total.theta[:, :1].repeat(4, axis=1))


def test_ellipsoid_of_the_identity_is_the_two_norm():
    X, y = samples(24, 3)
    bank, loss = KernelBank.from_grams(stack(X, 4)), crammer_singer(y)
    one = solve(BilinearProblem(bank, loss, Ellipsoid(np.eye(4))), tol=1e-6)
    two = solve(BilinearProblem(bank, loss, LpBall(2)), tol=1e-6)
    assert one.upper == pytest.approx(two.upper, rel=2e-6)


def test_newton_takes_few_steps():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200] / 16.0, y[:200]
    ladder = kernels.rbf_ladder(gammas=1 / (2 * np.geomspace(0.1, 100, 10) ** 2))
    bank = KernelBank(X, ladder).stored()
    task = BilinearProblem(bank, crammer_singer(y), LpBall(1))
    solution = solve(task, "newton", tol=1e-6)
    assert solution.gap <= 1e-6 and solution.n_iter <= 25
    assert solution.solver == "MulticlassNewton"


@pytest.mark.parametrize("C, tol", [(0.1, 1e-3), (0.1, 1e-4), (0.06, 1e-4)])
def test_classes_without_weight_do_not_keep_a_certificate_away(C, tol):
    # where a class has no weight its dual variables have no curvature, and those that
    # prove the bound are not the only best ones
    X, y = load_digits(return_X_y=True)
    model = BilinearMKLClassifier(C=C, tol=tol).fit(X[:200], y[:200])
    assert model.solution_.status is Status.OPTIMAL
    assert model.kernel_weights_.sum(axis=1).min() < 1e-2


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_defaults_reach_any_tolerance_on_wine(tol):
    X, y = load_wine(return_X_y=True)
    model = BilinearMKLClassifier(tol=tol).fit(X, y)
    assert model.solution_.status is Status.OPTIMAL


def test_multilevel_agrees():
    task = small(n=90)
    coarse = Multilevel(MulticlassNewton(), coarsest=20)
    a, b = solve(task, coarse, tol=1e-6), solve(task, "newton", tol=1e-6)
    assert a.upper == pytest.approx(b.upper, rel=2e-6)


def test_solvers_decline_what_they_cannot_do():
    one, all_ = small(per_class), small(shared)
    for task, solver, advice in (
        (one, "cutting_plane", "newton"),
        (one, "reduced_gradient", "projected_gradient"),
        (all_, "projected_gradient", "reduced_gradient"),
        (small(per_class, p=2.0), "newton", "alternating"),
        (one, "interleaved", "Unknown solver"),
        (one, Newton(), "MulticlassNewton"),
    ):
        with pytest.raises(ValueError, match=advice):
            solve(task, solver)
    X, y = samples(20)
    binary = MKLProblem(KernelBank.from_grams(stack(X)), hinge(2.0 * y - 1), LpBall(1))
    with pytest.raises(ValueError, match="Crammer-Singer"):
        solve(binary, MulticlassNewton())
    with pytest.raises(ValueError, match="convex set"):
        BilinearProblem(one.bank, one.loss, BlockNorm(3))
    with pytest.raises(ValueError, match="square bank"):
        BilinearProblem(one.bank, crammer_singer([0, 1]), LpBall(1))
    with pytest.raises(ValueError, match="numbers from 0"):
        CrammerSinger(np.array([0, 3]), np.ones(2), 3)


# --- reductions -----------------------------------------------------------------------


@pytest.mark.parametrize("C", [0.05, 1.0])
def test_one_kernel_and_shared_weight_is_linear_svc(C):
    X, y = samples(60, 3)
    known = LinearSVC(
        C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-8,
        max_iter=10**6, random_state=0,
    ).fit(X, y)  # fmt: skip
    task = shared((X @ X.T)[:, :, None], y, C)
    solution = solve(task, tol=1e-8)
    W = solution.A.T @ X
    np.testing.assert_allclose(W, known.coef_, atol=2e-3 * np.abs(known.coef_).max())
    F = X @ known.coef_.T
    theirs = task.loss.primal(F, np.zeros(3)) + 0.5 * np.sum(known.coef_**2)
    assert solution.upper == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("C", [0.2, 2.0])
def test_two_classes_with_shared_weights_are_the_hinge_loss_at_twice_the_cost(C):
    # f = f_1 - f_0 has w_1 = -w_0 = v / 2, so ½ (|w_0|^2 + |w_1|^2) is ¼ |v|^2
    X, y = samples(30)
    B = stack(X, 4)
    ours = solve(shared(B, y, C), tol=1e-7)
    Y, cost = (2.0 * y - 1)[:, None], np.full((30, 1), 2 * C)
    binary = MKLProblem(KernelBank.from_grams(B), Hinge(Y, cost, False), LpBall(1))
    theirs = solve(binary, tol=1e-7)
    assert 2 * ours.upper == pytest.approx(theirs.upper, rel=1e-6)


def test_two_classes_with_weights_each_are_the_hinge_loss_at_another_cost():
    # sum_c sum_r |w_c^r| is sum_r |v_r| = s; the hinge problem with ½ (sum |v_r|)^2
    # has the same solution at the cost C s, and the value ½ s^2 + s * loss
    X, y = samples(30)
    B = stack(X, 4)
    task = per_class(B, y, 0.7)
    ours = solve(task, tol=1e-9)
    np.testing.assert_allclose(ours.A[:, 0], -ours.A[:, 1], atol=1e-12)
    s = task.norms(ours.theta, task.bank.quads(ours.A)).sum()
    Y, cost = (2.0 * y - 1)[:, None], np.full((30, 1), 0.7 * s)
    binary = MKLProblem(KernelBank.from_grams(B), Hinge(Y, cost, False), LpBall(1))
    expected = 0.5 * s**2 + s * (ours.upper - s)
    assert solve(binary, tol=1e-8).upper == pytest.approx(expected, rel=1e-6)


def test_infinite_norm_shared_is_the_sum_kernel():
    X, y = samples(30, 3)
    B = stack(X, 4)
    a = solve(shared(B, y, p=np.inf), tol=1e-7)
    b = solve(shared(B.sum(axis=2, keepdims=True), y), tol=1e-7)
    assert a.upper == pytest.approx(b.upper, rel=1e-6)


# --- invariances ----------------------------------------------------------------------


def test_permutations_of_classes_and_kernels_permute_the_answer():
    X, y = samples(30, 3)
    B = stack(X, 4)
    base = solve(per_class(B, y), tol=1e-9)
    classes, order = np.array([2, 0, 1]), np.array([3, 1, 0, 2])
    swapped = solve(per_class(B[:, :, order], classes[y]), tol=1e-9)
    assert swapped.upper == pytest.approx(base.upper, rel=1e-8)
    np.testing.assert_allclose(
        swapped.theta[classes], base.theta[:, order], atol=1e-3 * base.theta.max()
    )


@pytest.mark.parametrize("make", [per_class, shared])
def test_costs_are_repetitions(make):
    X, y = samples(24, 3)
    B = stack(X, 4)
    times = np.random.default_rng(0).integers(0, 4, 24)
    rows = np.repeat(np.arange(24), times)
    bank = KernelBank.from_grams(B)
    loss = CrammerSinger(y, 0.5 * times, 3)
    kind = BilinearProblem if make is per_class else MKLProblem
    weighted = solve(kind(bank, loss, LpBall(1)), tol=1e-7)
    copies = solve(make(B[np.ix_(rows, rows)], y[rows], 0.5), tol=1e-7)
    assert weighted.upper == pytest.approx(copies.upper, rel=1e-6)


@pytest.mark.parametrize("make", [per_class, shared])
def test_a_duplicated_or_a_zero_kernel_changes_nothing(make):
    X, y = samples(24, 3)
    B = stack(X, 4)
    plain = solve(make(B, y), tol=1e-6)
    for more in (B, np.zeros((24, 24, 1))):
        padded = solve(make(np.concatenate([B, more], axis=2), y), tol=1e-6)
        assert padded.upper == pytest.approx(plain.upper, rel=3e-6)


def test_scaling_a_kernel_is_a_cost_for_one_kernel():
    # one kernel per class: |w| is halved where the kernel has four times the size
    X, y = samples(24, 3)
    K = stack(X, 4)[:, :, 1:2]
    a, b = (
        solve(per_class(4 * K, y, 1.0), tol=1e-6),
        solve(per_class(K, y, 2.0), tol=1e-6),
    )
    assert 2 * a.upper == pytest.approx(b.upper, rel=3e-6)


# --- degenerate cases -----------------------------------------------------------------


@pytest.mark.parametrize("make", [per_class, shared])
def test_two_samples(make):
    solution = solve(make(np.eye(2)[:, :, None], [0, 1], 3.0), tol=1e-6)
    assert solution.gap <= 1e-6
    assert solution.A[0, 0] > 0 and solution.A[1, 1] > 0


@pytest.mark.parametrize("make", [per_class, shared])
def test_a_class_of_one_sample(make):
    X, y = samples(21, 2)
    y[0] = 2
    task = make(stack(X, 4), y, 5.0)
    assert solve(task, tol=1e-6).upper == pytest.approx(conic_value(task), rel=1e-5)


@pytest.mark.parametrize("make", [per_class, shared])
def test_only_zero_kernels_leave_the_zero_function(make):
    solution = solve(make(np.zeros((6, 6, 2)), [0, 1, 2] * 2), tol=1e-6)
    assert solution.upper == pytest.approx(6.0)


def test_small_costs_leave_the_zero_function():
    task = small(C=1e-4)
    solution = solve(task, tol=1e-6)
    assert solution.upper == pytest.approx(24e-4, rel=1e-6)


def test_large_costs():
    solution = solve(small(C=1e5), tol=1e-5)
    assert solution.gap <= 1e-5


# --- limits, memory, reproducibility --------------------------------------------------


def assert_usable(task, solution):
    own = task.loss.own
    assert (solution.A[~own] <= 0).all()
    assert (solution.A <= task.loss.C[:, None] * (1 + 1e-12)).all()
    np.testing.assert_allclose(solution.A.sum(axis=1), 0, atol=1e-9)
    judged = task.judge(Iterate(solution.theta, solution.A))
    assert solution.upper == pytest.approx(judged.upper)
    assert solution.lower == pytest.approx(task.dual(solution.dual))
    assert solution.gap == pytest.approx(solution.check(task))


@pytest.mark.parametrize("make", [per_class, shared])
@pytest.mark.parametrize("limit", [{"max_iter": 2}, {"time_limit": 1e-9}])
def test_limits_return_a_feasible_model_with_its_true_gap(make, limit):
    task = small(make, n=60)
    with pytest.warns(ConvergenceWarning, match=next(iter(limit))):
        solution = solve(task, tol=1e-12, **limit)
    assert solution.gap > 1e-12
    assert_usable(task, solution)


@pytest.mark.parametrize("make", [per_class, shared])
def test_interruption_returns_the_best_so_far(make):
    task = small(make, n=60)

    def interrupt(history):
        if len(history) == 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning):
        solution = solve(task, tol=1e-12, callback=interrupt)
    assert solution.status is Status.INTERRUPTED
    assert_usable(task, solution)


def test_warm_start():
    task = small(n=60)
    cold = solve(task, tol=1e-6)
    warm = solve(task, tol=1e-5, start=Iterate(cold.theta, cold.A))
    assert warm.n_iter < cold.n_iter


@pytest.mark.parametrize("make", [per_class, shared])
def test_bounded_memory_gives_the_same_answer(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = np.arange(400) % 4
    X[:, 0] += y
    bank = KernelBank(X, [kernels.RBF(0.1), kernels.RBF(1.0), kernels.Linear()])
    loss = crammer_singer(y)
    kind = BilinearProblem if make is per_class else MKLProblem
    tight = bank.stored(2_000_000)
    assert tight.storage == "recompute"
    a = kind(bank.stored(), loss, LpBall(1))
    b = kind(tight, loss, LpBall(1))
    inner = SampleSweeps(b, None)
    assert inner.products.grams is None
    assert inner._most() < 400  # blocks are smaller than the problem
    wide, narrow = solve(a, tol=1e-4), solve(b, tol=1e-4)
    assert narrow.gap <= 1e-4
    assert narrow.upper == pytest.approx(wide.upper, rel=2e-4)


def test_answers_are_reproducible():
    task = small(n=60)
    a, b = solve(task, tol=1e-5), solve(task, tol=1e-5)
    np.testing.assert_array_equal(a.A, b.A)
    np.testing.assert_array_equal(a.theta, b.theta)


def test_bank_answers_for_many_weights_at_once():
    X, _ = samples(30, 3)
    bank = KernelBank.from_grams(stack(X, 4))
    rng = np.random.default_rng(0)
    D, A = rng.uniform(size=(3, 4)), rng.normal(size=(30, 3))
    D[:, 1] = 0
    A[:5] = 0
    each = bank.combine_each(D)
    for c in range(3):
        np.testing.assert_allclose(each[c], bank.combine(D[c]))
        np.testing.assert_allclose(
            bank.apply_each(D, A)[:, c], bank.combine(D[c]) @ A[:, c]
        )
        np.testing.assert_allclose(bank.quads(A)[c], bank.quad(A[:, c]))
    with pytest.raises(ValueError, match="thetas must have shape"):
        bank.combine_each(D[:, :2])
    with pytest.raises(ValueError, match="thetas must have shape"):
        bank.apply_each(D[:2], A)


# --- estimators -----------------------------------------------------------------------


def test_weights_are_those_of_the_formula():
    X, y = samples(40, 3)
    B = stack(X, 4)
    model = BilinearMKLClassifier("precomputed", C=0.7, normalize=None, tol=1e-9).fit(
        B, np.array(["a", "b", "c"])[y]
    )
    task = per_class(B, y, 0.7)
    d, A = model.kernel_weights_, model.solution_.A
    assert d.shape == (3, 4)
    np.testing.assert_allclose(  # d = |w| at the optimum of (7)
        task.step(d, task.bank.quads(A)), d, atol=1e-3 * d.max()
    )
    F = model.decision_function(B)
    np.testing.assert_allclose(F, task.bank.apply_each(d, A), atol=1e-9)
    value = task.loss.primal(F, np.zeros(3)) + d.sum()
    assert value == pytest.approx(conic_value(task), rel=1e-5)
    assert model.duality_gap_ <= 1e-9
    np.testing.assert_array_equal(
        model.predict(B), np.array(["a", "b", "c"])[F.argmax(axis=1)]
    )
    np.testing.assert_allclose(model.kernel_contributions_.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.support_, np.flatnonzero(A.any(axis=1)))
    assert model.dual_coef_.shape == (3, len(model.support_))
    np.testing.assert_array_equal(model.intercept_, 0.0)


@pytest.mark.parametrize("weights", ["per-class", "shared"])
def test_two_classes_have_one_score(weights):
    X, y = samples(40)
    model = BilinearMKLClassifier(weights=weights).fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (40,)
    np.testing.assert_array_equal(model.predict(X), (scores > 0).astype(int))
    assert model.score(X, y) > 0.7


def test_shared_weights_are_one_set():
    X, y = samples(40, 3)
    model = BilinearMKLClassifier(weights="shared", tol=1e-6).fit(X, y)
    assert model.kernel_weights_.shape == (len(model.kernel_names_),)
    assert model.kernel_weights_.sum() == pytest.approx(1.0)
    assert model.decision_function(X).shape == (40, 3)


@pytest.mark.parametrize("solver", PER_CLASS)
def test_solvers_by_name_agree(solver):
    X, y = samples(40, 3)
    model = BilinearMKLClassifier(solver=solver, tol=1e-3).fit(X, y)
    best = BilinearMKLClassifier(tol=1e-6).fit(X, y)
    assert model.solution_.upper == pytest.approx(best.solution_.upper, rel=2e-3)


def test_crammer_singer_classifier_is_linear_svc():
    X, y = samples(60, 3)
    known = LinearSVC(
        multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=10**6,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    model = CrammerSingerClassifier(kernels.Linear(), normalize=None, tol=1e-7)
    scores = model.fit(X, y).decision_function(X)
    theirs = known.decision_function(X)
    np.testing.assert_allclose(scores, theirs, atol=2e-3 * np.abs(theirs).max())
    assert model.duality_gap_ <= 1e-7
    np.testing.assert_array_equal(model.kernel_weights_, 1.0)


@pytest.mark.parametrize("weights", ["per-class", "shared"])
def test_sample_weights_are_repetitions(weights):
    X, y = samples(40, 3)
    times = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), times)
    a = BilinearMKLClassifier(weights=weights, tol=1e-7)
    b = BilinearMKLClassifier(weights=weights, tol=1e-7)
    a.fit(X, y, sample_weight=times)
    b.fit(X[rows], y[rows])
    assert a.solution_.upper == pytest.approx(b.solution_.upper, rel=1e-6)
    np.testing.assert_allclose(
        a.decision_function(X), b.decision_function(X), atol=2e-3
    )


def test_class_weight_is_a_cost_per_class():
    X, y = samples(40, 3)
    B = stack(X, 4)
    weight = {0: 0.3, 1: 2.0, 2: 1.0}
    a = BilinearMKLClassifier(
        "precomputed", class_weight=weight, normalize=None, tol=1e-6
    ).fit(B, y)
    cost = np.array([weight[c] for c in y])
    b = BilinearMKLClassifier("precomputed", normalize=None, tol=1e-6)
    b.fit(B, y, sample_weight=cost)
    assert a.solution_.upper == pytest.approx(b.solution_.upper, rel=1e-5)


def test_model_selection():
    X, y = samples(60, 3)
    model = make_pipeline(StandardScaler(), BilinearMKLClassifier())
    scores = cross_val_score(model, X, y, cv=2, n_jobs=2)
    assert scores.shape == (2,) and scores.min() > 0.4
    B = stack(X, 4)
    search = GridSearchCV(
        BilinearMKLClassifier("precomputed"), {"C": [0.1, 1.0], "norm": [1, 2]}, cv=2
    )
    search.fit(B, y)
    assert search.best_score_ > 0.4
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(B), search.predict(B))
    assert clone(search.best_estimator_).get_params()["weights"] == "per-class"


def test_random_state_changes_the_order_only():
    X, y = samples(60, 3)
    fits = [
        BilinearMKLClassifier(random_state=seed, tol=1e-6).fit(X, y)
        for seed in (None, 3, 3, 4)
    ]
    np.testing.assert_array_equal(fits[1].dual_coef_, fits[2].dual_coef_)
    for model in fits:
        assert model.solution_.upper == pytest.approx(fits[0].solution_.upper, rel=2e-6)


def test_memory_limit():
    X, y = samples(500, 3)
    model = BilinearMKLClassifier(memory_limit=3_000_000, tol=1e-2).fit(X, y)
    assert model.duality_gap_ <= 1e-2
    wide = BilinearMKLClassifier(tol=1e-2).fit(X, y)
    assert model.solution_.upper == pytest.approx(wide.solution_.upper, rel=2e-2)


def test_time_limit_leaves_a_model():
    X, y = samples(60, 3)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = BilinearMKLClassifier(time_limit=1e-9, tol=1e-10).fit(X, y)
    assert model.predict(X).shape == (60,)
    assert model.duality_gap_ > 1e-10


@pytest.mark.parametrize("weights", ["per-class", "shared"])
def test_simple_mkl_one_against_the_rest(weights):
    X, y = samples(40, 3)
    model = MKLClassifier(norm=1, solver="reduced_gradient", weights=weights)
    assert model.fit(X, y).duality_gap_ <= 1e-3
    assert model.decision_function(X).shape == (40, 3)


def test_bad_parameters():
    X, y = samples(20, 2)
    for settings, message in (
        ({"weights": "each"}, "per-class"),
        ({"C": -1}, "positive"),
        ({"norm": 0.5}, "p >= 1"),
        ({"solver": "interleaved"}, "Unknown solver"),
        ({"tol": 0}, "tol"),
    ):
        with pytest.raises(ValueError, match=message):
            BilinearMKLClassifier(**settings).fit(X, y)


# --- the picture ----------------------------------------------------------------------


def test_heat_map_of_classes_and_kernels():
    X, y = samples(40, 3)
    model = BilinearMKLClassifier().fit(X, np.array(["a", "b", "c"])[y])
    display = ClassKernelHeatmapDisplay.from_estimator(model, ax=Figure().subplots())
    np.testing.assert_array_equal(
        np.asarray(display.image_.get_array()), model.kernel_weights_
    )
    rows = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert rows == ["a", "b", "c"]
    assert len(display.ax_.get_xticklabels()) == len(model.kernel_names_)
    shares = ClassKernelHeatmapDisplay.from_estimator(
        model, values="contributions", ax=Figure().subplots()
    )
    np.testing.assert_allclose(
        np.asarray(shares.image_.get_array()), model.kernel_contributions_
    )
    assert len(shares.text_) == model.kernel_weights_.size


def test_heat_map_of_shared_weights_has_one_row():
    X, y = samples(40, 3)
    model = MKLClassifier().fit(X, y)
    display = ClassKernelHeatmapDisplay.from_estimator(model, ax=Figure().subplots())
    rows = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert rows == ["all classes"]
    with pytest.raises(ValueError, match="'weights' or 'contributions'"):
        ClassKernelHeatmapDisplay.from_estimator(model, values="d")


@pytest.mark.parametrize("make", [per_class, shared])
@pytest.mark.parametrize("k", [2, 3, 8])
def test_curvature_is_the_formula_of_moves_that_keep_the_sums(k, make, monkeypatch):
    # kernels near the identity, so that no ridge is seen
    X, y = samples(40, k)
    distance = np.sum((X[:, None] - X) ** 2, axis=2)
    task = make(np.stack([np.exp(-g * distance) for g in (3.0, 6.0)], axis=2), y)
    inner = SampleSweeps(task, None)
    rng = np.random.default_rng(0)
    inner.theta = inner.theta * rng.uniform(0.5, 1.5, inner.theta.shape)
    # rows that sum to zero; most variables are free, some rest
    A = -rng.uniform(0.0, 0.3 / k, (40, k)) * (rng.random((40, k)) < 0.7)
    A[np.arange(40), y] = 0.0
    A[np.arange(40), y] = -A.sum(axis=1)
    kept = np.ones(inner.theta.shape, dtype=bool)
    within = []
    original = multiclass_newton._within
    monkeypatch.setattr(
        multiclass_newton, "_within", lambda *a: within.append(1) or original(*a)
    )
    found = multiclass_newton._hessian(inner, A, kept)
    assert bool(within) == (k < 8)  # both ways are taken

    free = multiclass_newton._free(task.loss, A)
    free[free.sum(axis=1) < 2] = False
    where = [np.flatnonzero(free[:, c]) for c in range(k)]
    D = np.broadcast_to(inner.theta, (k, 2))
    grams = np.stack([task.bank.gram(m) for m in range(2)])
    size = sum(map(len, where))
    B, U, E = np.zeros((size, size)), np.zeros((size, 2 * k)), np.zeros((size, 40))
    start = 0
    for c, rows in enumerate(where):
        part = slice(start, start + len(rows))
        K = np.tensordot(D[c], grams, axes=1)
        B[part, part] = np.linalg.inv(K[np.ix_(rows, rows)])
        U[part, 2 * c : 2 * c + 2] = (grams @ A[:, c])[:, rows].T
        E[np.arange(part.start, part.stop), rows] = 1.0
        start = part.stop
    E = E[:, E.any(axis=0)]
    if inner.theta.ndim == 1:  # the classes share their weights
        U = U.reshape(size, k, 2).sum(axis=1)
    P = B - B @ E @ np.linalg.solve(E.T @ B @ E, E.T @ B)
    wanted = U.T @ P @ U
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
