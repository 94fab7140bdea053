"""Few kernels at a time: the optimum and its bounds are those of all kernels."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from cases import samples
from mklearn import KernelBank, MKLClassifier, MKLProblem, kernels, mkl_path, solve
from mklearn.problems import (
    BilinearProblem,
    CrammerSinger,
    ElasticNet,
    Ellipsoid,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    LpBall,
    OneClass,
    Squared,
    SquaredHinge,
    learned_cost,
)
from mklearn.solvers import ActiveSet, Iterate, MulticlassNewton, Newton, Status
from mklearn.solvers.registry import check, choose_solver

N, M = 40, 60
TOL = 1e-6
FEW = ActiveSet(first=5, enter=4)


def columns(n=N, n_kernels=M, seed=0):
    """Return samples with a column for each kernel, of which few matter."""
    X = np.random.default_rng(seed).standard_normal((n, n_kernels))
    return X, X[:, 1] + np.abs(X[:, 7]) + 0.5 * X[:, 30]


def grams(X):
    return np.exp(-0.5 * (X[:, None, :] - X[None, :, :]) ** 2)


def losses():
    value = columns()[1]
    Y, R = np.where(value > np.median(value), 1.0, -1.0)[:, None], value[:, None]
    C = np.random.default_rng(1).uniform(0.5, 2.0, (N, 1))
    C[3] = 0.0
    tasks = np.where(samples(N, 3)[1][:, None] == np.arange(3), 1.0, -1.0)
    return {
        "hinge": Hinge(Y, C),
        "hinge, no bias": Hinge(Y, C, False),
        "hinge, three tasks": Hinge(tasks, np.ones((N, 3))),
        "squared hinge": SquaredHinge(Y, C),
        "squared": Squared(R, C),
        "eps-insensitive": EpsilonInsensitive(R, C),
        "logistic": Logistic(Y, C),
        "one-class": OneClass(np.full((N, 1), 4.0 / N)),
    }


LOSSES = losses()


@pytest.fixture(scope="module")
def bank():
    return KernelBank.from_grams(grams(columns()[0]))


@pytest.mark.parametrize("name", LOSSES)
def test_the_optimum_is_that_of_all_kernels(bank, name):
    task = MKLProblem(bank, LOSSES[name], LpBall(1))
    found, best = (solve(task, s, tol=TOL) for s in (FEW, Newton()))
    assert found.status is Status.OPTIMAL
    assert found.check(task) <= TOL
    assert found.upper == pytest.approx(best.upper, rel=2 * TOL)


@pytest.mark.parametrize("weights", [LpBall(1.05), LpBall(2), ElasticNet(0.1)])
@pytest.mark.parametrize("most", [20, 1000])
def test_sets_in_which_many_kernels_have_a_weight(bank, weights, most):
    task = MKLProblem(bank, LOSSES["hinge"], weights)
    found = solve(task, ActiveSet(first=5, enter=4, most=most), tol=1e-3)
    best = solve(task, Newton(), tol=TOL)
    assert found.check(task) <= 1e-3
    assert found.upper == pytest.approx(best.upper, rel=1e-3 + TOL)


def test_the_reference_program_agrees(bank):
    task = MKLProblem(bank, LOSSES["hinge"], LpBall(1))
    reference = solve(task, "conic", tol=1e-5)
    assert solve(task, FEW, tol=TOL).upper == pytest.approx(reference.upper, rel=2e-5)


def test_classes_that_a_loss_couples(bank):
    loss = CrammerSinger(samples(N, 3)[1], np.ones(N), 3)
    task = MKLProblem(bank, loss, LpBall(1))
    few = ActiveSet(MulticlassNewton(), first=5, enter=4)
    found, best = (solve(task, s, tol=1e-4) for s in (few, MulticlassNewton()))
    assert found.check(task) <= 1e-4
    assert found.upper == pytest.approx(best.upper, rel=2e-4)


def test_a_cost_that_is_learned():
    X, value = columns()
    Y = np.where(value > np.median(value), 1.0, -1.0)[:, None]
    task = learned_cost(KernelBank.from_grams(grams(X)), Y)
    found, best = (solve(task, s, tol=TOL) for s in (FEW, Newton()))
    assert found.upper == pytest.approx(best.upper, rel=2 * TOL)


def test_every_kernel_bounds_the_optimum(bank):
    """The lower bound of each step is one over all kernels, not over those in use."""
    task = MKLProblem(bank, LOSSES["hinge"], LpBall(1))
    best = solve(task, Newton(), tol=1e-8)
    history = solve(task, FEW, tol=TOL).history
    slack = 1e-7 * best.upper
    assert len(history) > 2
    assert max(history.bounds) <= best.upper + slack
    assert min(history.values) >= best.lower - slack


def test_the_order_of_kernels_does_not_matter(bank):
    task = MKLProblem(bank, LOSSES["hinge"], LpBall(1))
    order = np.random.default_rng(2).permutation(M)
    turned = MKLProblem(bank.select(order), LOSSES["hinge"], LpBall(1))
    one, two = (solve(t, FEW, tol=TOL) for t in (task, turned))
    assert one.upper == pytest.approx(two.upper, rel=2 * TOL)


class Watched:
    """Newton, and how many kernels its problems had."""

    needs = ()

    def __init__(self):
        self.seen = []

    def iterates(self, problem, start):
        self.seen.append(problem.bank.shape[2])
        return Newton().iterates(problem, start)


def test_few_kernels_are_solved_at_a_time(bank):
    task, watched = MKLProblem(bank, LOSSES["hinge"], LpBall(1)), Watched()
    solution = solve(task, ActiveSet(watched, first=5, enter=4), tol=TOL)
    assert watched.seen[0] == 5 and max(watched.seen) < M
    assert max(watched.seen) >= np.count_nonzero(solution.theta)


def test_a_solution_is_where_it_ends_at_once(bank):
    task, watched = MKLProblem(bank, LOSSES["hinge"], LpBall(1)), Watched()
    best = solve(task, Newton(), tol=1e-8)
    start = Iterate(best.theta, best.dual)
    few = ActiveSet(watched, first=5, enter=4)
    assert solve(task, few, tol=1e-3, start=start).n_iter <= 2
    assert watched.seen[0] >= np.count_nonzero(best.theta)


def test_a_start_with_weight_everywhere_is_no_reason_to_take_all(bank):
    task, watched = MKLProblem(bank, LOSSES["hinge"], LpBall(1)), Watched()
    start = Iterate(task.center(), np.zeros((N, 1)))
    few = ActiveSet(watched, first=5, enter=4)
    assert solve(task, few, tol=TOL, start=start).check(task) <= TOL
    assert watched.seen[0] == 5


def test_a_path_goes_on_from_its_neighbour(bank):
    Y = LOSSES["hinge, no bias"].Y

    def loss(C):
        return Hinge(Y, C * np.ones((N, 1)))

    path = mkl_path(bank, loss, [0.1, 1.0], [1.0, 2.0], solver=FEW, tol=1e-4)
    assert path.gap.max() <= 1e-4
    for i, p in enumerate((1.0, 2.0)):
        for k, C in enumerate((0.1, 1.0)):
            best = solve(MKLProblem(bank, loss(C), LpBall(p)), Newton(), tol=TOL)
            assert path.objective[i, k] == pytest.approx(best.upper, rel=1.1e-4)


def test_limits_reach_inside(bank):
    task = MKLProblem(bank, LOSSES["hinge"], LpBall(1))
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        late = solve(task, FEW, tol=1e-9, time_limit=1e-9)
    assert late.status is Status.TIME_LIMIT and np.isfinite(late.gap)

    class Interrupted(Watched):
        """Newton, and Ctrl-C within the second problem on few kernels."""

        def iterates(self, problem, start):
            inside = super().iterates(problem, start)
            answer = None
            for _ in range(3 if len(self.seen) == 2 else 1000):
                answer = yield inside.send(answer)
            raise KeyboardInterrupt

    watched = Interrupted()
    with pytest.warns(ConvergenceWarning):
        stopped = solve(task, ActiveSet(watched, first=5, enter=4), tol=1e-9)
    assert stopped.status is Status.INTERRUPTED
    assert stopped.check(task) == pytest.approx(stopped.gap)


def test_gathered_grams_are_the_same(bank):
    chosen = bank.select([40, 3, 17])
    alone = chosen.gathered()
    theta, A = np.array([0.2, 0.5, 0.3]), np.random.default_rng(0).normal(size=(N, 2))
    assert np.array_equal(alone.gram(1), chosen.gram(1))
    for method in ("quad", "multiply"):
        same = getattr(chosen, method)(A)
        np.testing.assert_allclose(getattr(alone, method)(A), same, rtol=1e-12)
    np.testing.assert_allclose(
        alone.combine(theta), chosen.combine(theta), rtol=1e-12, atol=0
    )
    np.testing.assert_array_equal(alone.diag(), chosen.diag())
    assert bank.gathered() is bank  # all of them lie well as they are


def test_what_it_is_not_for(bank):
    loss = LOSSES["hinge"]
    for weights in (Ellipsoid(np.eye(M)), LpBall(np.inf)):
        with pytest.raises(ValueError, match="treats all kernels alike"):
            check(ActiveSet(), MKLProblem(bank, loss, weights))
    classes = CrammerSinger(samples(N, 3)[1], np.ones(N), 3)
    with pytest.raises(ValueError, match="all classes share"):
        choose_solver("active_set", BilinearProblem(bank, classes, LpBall(1)))


def test_estimators_with_many_kernels_take_it():
    X, value = columns(30, 250)
    y = value > np.median(value)
    few = kernels.per_feature(kernels.RBF(0.5))
    model = MKLClassifier(few, norm=1).fit(X, y)
    assert model.solution_.solver == "ActiveSet" and model.duality_gap_ <= 1e-3
    given = MKLClassifier("precomputed", norm=1, normalize=None, psd="ignore")
    given.fit(grams(X), y)
    same = MKLClassifier(few, norm=1, normalize=None, solver="newton").fit(X, y)
    assert given.solution_.solver == "ActiveSet"
    assert given.solution_.upper == pytest.approx(same.solution_.upper, rel=2e-3)
