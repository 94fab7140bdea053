"""The inner solver: optimality, reductions, and a cache that is too small."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.svm import SVC

from cases import factor, hinge, problem, signs, small, stack
from mklearn import Hinge, KernelBank, LpBall, MKLProblem
from mklearn.problems.protocols import Box
from mklearn.solvers import Iterate
from mklearn.solvers.interior import minimise_in_box
from mklearn.solvers.smo import BoxQP, BoxSolver, RowCache, inner_gap


def qp(K, box, start=None):
    bank = KernelBank.from_grams(K)
    rows = RowCache(bank)
    rows.set_theta(np.ones(1))
    c = feasible(box) if start is None else start
    task = BoxQP(rows, box, c)
    task.refresh()
    return task


TOTAL = 0.3  # the sum that a random program keeps


def feasible(box, total=TOTAL):
    """Return a point of the box with the sum asked for."""
    room = box.upper - box.lower
    return box.lower + room * (total - box.lower.sum()) / room.sum()


def finish(task, eps=1e-9):
    while not task.run(eps):
        pass
    return task.c


def objective(K, box, c):
    return 0.5 * c @ K @ c + 0.5 * box.ridge @ c**2 + box.linear @ c


def violation(K, box, c):
    """Return by how much the worst pair violates the optimality conditions."""
    g = K @ c + box.ridge * c + box.linear
    up, down = c < box.upper, c > box.lower
    if not box.hyperplane:
        return max((-g[up]).max(initial=0.0), g[down].max(initial=0.0))
    if not up.any() or not down.any():
        return 0.0
    return max(0.0, (-g[up]).max() - (-g[down]).min())


def random_box(n, rng, ridge=0.0, hyperplane=True):
    lower = -rng.uniform(0.1, 2.0, n)
    upper = rng.uniform(0.1, 2.0, n)
    ridges = ridge * rng.uniform(0.5, 2.0, n)
    return Box(rng.normal(size=n), lower, upper, ridges, hyperplane)


def random_gram(n, rank, rng):
    B = rng.normal(size=(n, rank))
    return B @ B.T


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rank", [3, 40])
@pytest.mark.parametrize(
    ("ridge", "hyperplane"), [(0.0, True), (1.0, True), (0.0, False), (1.0, False)]
)
def test_random_box_is_solved_to_its_optimality_conditions(
    seed, rank, ridge, hyperplane
):
    rng = np.random.default_rng(seed)
    K, box = random_gram(40, rank, rng), random_box(40, rng, ridge, hyperplane)
    c = finish(qp(K, box))
    assert (c >= box.lower).all() and (c <= box.upper).all()
    if hyperplane:
        assert c.sum() == pytest.approx(TOTAL, abs=1e-11)
    assert violation(K, box, c) < 1e-8


@pytest.mark.parametrize("rank", [3, 30])
@pytest.mark.parametrize("hyperplane", [True, False])
def test_random_box_agrees_with_a_conic_solver(rank, hyperplane):
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(1)
    K, box = random_gram(30, rank, rng), random_box(30, rng, 0.3, hyperplane)
    x = cp.Variable(30)
    value = 0.5 * cp.sum_squares(factor(K).T @ x) + box.linear @ x
    value += 0.5 * cp.sum_squares(cp.multiply(np.sqrt(box.ridge), x))
    limits = [x >= box.lower, x <= box.upper]
    if hyperplane:
        limits.append(cp.sum(x) == TOTAL)
    best = cp.Problem(cp.Minimize(value), limits).solve(solver=cp.CLARABEL)
    assert objective(K, box, finish(qp(K, box))) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_hinge_dual_agrees_with_svc(C):
    X, y = signs(60)
    K = stack(X)[:, :, 2]
    cost = C * np.random.default_rng(0).uniform(0.2, 3.0, 60)
    box = hinge(y, cost).box(0)
    ours = objective(K, box, finish(qp(K, box, np.zeros(60)), eps=1e-10))
    svc = SVC(C=1.0, kernel="precomputed", tol=1e-10).fit(K, y, sample_weight=cost)
    theirs = np.zeros(60)
    theirs[svc.support_] = svc.dual_coef_[0]
    assert ours == pytest.approx(objective(K, box, theirs), rel=1e-6)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e6])
def test_singular_kernels_are_no_obstacle(C):
    # every sample twice: half of the eigenvalues vanish
    X, y = signs(30)
    K, y = stack(np.r_[X, X])[:, :, 3], np.r_[y, y]
    box = hinge(y, C).box(0)
    c = finish(qp(K, box, np.zeros(60)), eps=1e-8)
    assert violation(K, box, c) < 1e-6
    half = hinge(y[:30], 2 * C).box(0)
    d = finish(qp(K[:30, :30], half, np.zeros(30)), eps=1e-8)
    merged = objective(K[:30, :30], half, d)
    assert objective(K, box, c) == pytest.approx(merged, rel=1e-5)


def test_without_a_kernel_the_program_is_linear():
    # min linear'c: all mass goes to the cheapest variables
    rng = np.random.default_rng(0)
    box = random_box(20, rng)
    c = finish(qp(np.zeros((20, 20)), box))
    order = np.argsort(box.linear)
    rest = TOTAL - box.lower.sum()
    best = box.lower.copy()
    for i in order:
        step = min(rest, box.upper[i] - box.lower[i])
        best[i] += step
        rest -= step
    np.testing.assert_allclose(c, best, atol=1e-9)


def test_zero_kernel_puts_the_hinge_dual_at_its_bounds():
    y = np.r_[np.ones(4), -np.ones(6)]
    box = hinge(y, 2.0).box(0)
    c = finish(qp(np.zeros((10, 10)), box, np.zeros(10)))
    # the smaller class is at C, the other side has the same mass
    np.testing.assert_allclose(c[:4], 2.0)
    assert np.abs(c).sum() == pytest.approx(16.0)


def test_a_box_without_room_is_left_as_it_is():
    rng = np.random.default_rng(0)
    point = rng.normal(size=12)
    box = Box(rng.normal(size=12), point, point, np.zeros(12), True)
    task = qp(random_gram(12, 12, rng), box, point)
    assert task.run(1e-9)
    np.testing.assert_array_equal(task.c, point)


def test_empty_box_sides_leave_nothing_to_do():
    # all variables at the upper bound: no pair can move
    rng = np.random.default_rng(0)
    box = random_box(12, rng)
    task = qp(random_gram(12, 12, rng), box, box.upper)
    assert task.run(1e-9)
    np.testing.assert_array_equal(task.c, box.upper)


def test_warm_start_reaches_the_same_point_in_fewer_steps():
    X, y = signs(80)
    K = stack(X)[:, :, 2]
    box = hinge(y, 1.0).box(0)
    cold = qp(K, box, np.zeros(80))
    c = finish(cold).copy()
    warm = qp(K, hinge(y, 1.05).box(0), c)
    again = qp(K, hinge(y, 1.05).box(0), np.zeros(80))
    finish(warm), finish(again)
    assert warm.steps < again.steps
    wider = hinge(y, 1.05).box(0)
    assert objective(K, wider, warm.c) == pytest.approx(
        objective(K, wider, again.c), rel=1e-9
    )
    optimal = qp(K, box, c)
    assert optimal.run(1e-8) and optimal.steps == 0


def test_shrunk_variables_come_back():
    # start where nearly every variable looks settled, at a wrong bound
    X, y = signs(120)
    K = stack(X)[:, :, 3]
    box = hinge(y, 0.5).box(0)
    start = 0.5 * y
    task = qp(K, box, start)
    finish(task)
    cold = qp(K, box, np.zeros(120))
    finish(cold)
    assert objective(K, box, task.c) == pytest.approx(
        objective(K, box, cold.c), rel=1e-9
    )
    assert violation(K, box, task.c) < 1e-8


@pytest.mark.parametrize("capacity", [2, 3, 8, 17])
def test_small_cache_gives_the_same_answer(monkeypatch, capacity):
    X, y = signs(90)
    K = stack(X)[:, :, 3]
    box = hinge(y, 5.0).box(0)
    best = objective(K, box, finish(qp(K, box, np.zeros(90))))
    monkeypatch.setattr(KernelBank, "row_budget", lambda self: capacity)
    task = qp(K, box, np.zeros(90))
    c = finish(task)
    assert task.rows.capacity == capacity
    assert objective(K, box, c) == pytest.approx(best, rel=1e-9)
    np.testing.assert_allclose(task.gradient, K @ c + box.linear, atol=1e-9)


@pytest.mark.parametrize("support", [6, 7, 8])
def test_gradient_is_right_when_the_cache_is_full_of_other_rows(monkeypatch, support):
    # the cache holds some rows of the support, older than those that are not
    monkeypatch.setattr(KernelBank, "row_budget", lambda self: 8)
    rng = np.random.default_rng(0)
    K, box = random_gram(30, 30, rng), random_box(30, rng)
    c = np.zeros(30)
    c[:support] = rng.normal(size=support)
    for held in range(8):
        task = qp(K, box, c)
        task.rows.set_theta(np.ones(1))
        task.rows.load(np.arange(held))
        task.rows.load(np.arange(20, 28 - held))
        task.refresh()
        np.testing.assert_allclose(task.gradient, K @ c + box.linear, atol=1e-10)


def test_each_cached_row_is_the_row_of_its_owner(monkeypatch):
    monkeypatch.setattr(KernelBank, "row_budget", lambda self: 10)
    rng = np.random.default_rng(0)
    K = random_gram(50, 50, rng)
    rows = RowCache(KernelBank.from_grams(K))
    rows.set_theta(np.ones(1))
    for _ in range(40):
        keep = int(rng.choice(50))
        rows.load(np.array([keep]))
        rows.load(rng.choice(50, size=rng.integers(1, 10), replace=False), keep)
        assert rows.slot[keep] >= 0
        held = np.flatnonzero(rows.slot >= 0)
        np.testing.assert_allclose(rows.rows[rows.slot[held]], K[held], atol=1e-12)
        np.testing.assert_array_equal(rows.owner[rows.slot[held]], held)


@pytest.mark.parametrize("limit", [10_000, 200_000])
def test_memory_limit_does_not_change_the_inner_solution(limit):
    X, _ = signs(150)
    whole = small(150, C=2.0, p=np.inf)
    bank = KernelBank.from_grams(stack(X)).stored(limit)
    bounded = type(whole)(bank, whole.loss, whole.weights)
    values = []
    for task in (whole, bounded):
        A, scores = run_inner(BoxSolver(task, None), np.ones(5), 1e-9)
        np.testing.assert_allclose(scores, task.bank.apply(np.ones(5), A), atol=1e-8)
        values.append(task.judge(Iterate(np.ones(5), A)).lower)
    assert values[0] == pytest.approx(values[1], rel=1e-8)


def run_inner(inner, theta, allowed):
    steps = inner.solve(theta, allowed)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("scale", [1e-13, 1e-6, 1e6, 1e13])
def test_inner_solution_follows_the_scale_of_the_kernel(scale):
    X, y = signs(50)
    K = stack(X)[:, :, [2]]
    values = [problem(s * K, y, 1.0 / s, np.inf) for s in (1.0, scale)]
    found = []
    for task, s in zip(values, (1.0, scale), strict=True):
        inner = BoxSolver(task, None)
        A, _ = run_inner(inner, np.ones(1), 1e-9 / s)
        found.append(s * task.judge(Iterate(np.ones(1), A)).upper)
        assert sum(t.steps for t in inner.tasks) < 100_000
    assert found[1] == pytest.approx(found[0], rel=1e-6)


def test_rows_that_are_asked_for_together_are_there_together(monkeypatch):
    monkeypatch.setattr(KernelBank, "row_budget", lambda self: 12)
    rng = np.random.default_rng(0)
    K = random_gram(40, 40, rng)
    rows = RowCache(KernelBank.from_grams(K))
    rows.set_theta(np.ones(1))
    for _ in range(50):
        wanted = rng.choice(40, size=rng.integers(1, 12, endpoint=True), replace=False)
        rows.load(wanted)
        np.testing.assert_allclose(rows.rows[rows.slot[wanted]], K[wanted], atol=1e-12)


# --- where pairs crawl ----------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("summed", [True, False])
def test_an_interior_point_solves_boxes_of_any_scale(scale, summed):
    rng = np.random.default_rng(0)
    n = 40
    X = np.sqrt(scale) * rng.normal(size=(n, 2))
    K, y = X @ X.T, np.where(rng.random(n) < 0.5, 1.0, -1.0)
    lower, upper = np.minimum(y, 0.0), np.maximum(y, 0.0)
    upper[3] = lower[3]  # nothing to choose there
    c = minimise_in_box(K, -y, lower, upper, 0.0 if summed else None)
    assert (lower <= c).all() and (c <= upper).all()
    if summed:
        assert abs(c.sum()) <= 1e-8 * n
    # what a linear function of c could gain within the box bounds what is missing
    slope = K @ c - y
    tried = slope[:, None] + np.r_[0.0, -slope] if summed else slope[:, None]
    least = [np.sum(np.where(t > 0, t * lower, t * upper)) - t @ c for t in tried.T]
    value = 0.5 * c @ K @ c - y @ c
    assert max(least) >= -1e-3 * abs(value)  # pairs go on from there


def test_a_run_that_ends_early_has_the_scores_of_its_variables():
    X, labels = load_wine(return_X_y=True)
    grams = np.stack([np.outer(X[:, j], X[:, j]) for j in (0, 12)], axis=2)
    Y = np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    bank = KernelBank.from_grams(grams)
    badly = MKLProblem(bank, Hinge(Y, np.ones_like(Y)), LpBall(2.0))
    theta = np.array([0.9, 0.2])
    steps = BoxSolver(badly, None).solve(theta, 1e-3)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            A, F = end.value
            break
    size = np.abs(grams @ theta) @ np.abs(A)  # what the terms of the sums add up to
    exact = badly.bank.apply(theta, A)
    # a gradient is a sum of as many terms as there were steps, most of which cancel
    assert np.abs(F - exact).max() <= 1e-9 * size.max()
    gap, value = inner_gap(badly, A, exact)
    assert gap <= 0.021 * value  # a first answer is rough
