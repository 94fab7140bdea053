"""Large working sets in bounded memory: the same optimum as with all rows at hand."""

import numpy as np
import pytest

from mklearn import KernelBank, LpBall, MKLProblem, kernels, solve
from mklearn.problems import EpsilonInsensitive, Hinge, OneClass, SquaredHinge
from mklearn.solvers import Iterate, inner, working_set
from mklearn.solvers.smo import BoxSolver
from mklearn.solvers.working_set import WorkingSetSolver

n = 80
rng = np.random.default_rng(5)
X = rng.standard_normal((n, 3))
y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)
signs = np.where(y > 0, 1.0, -1.0)[:, None]
C = np.full((n, 1), 2.0)
bank = KernelBank(X, [kernels.Linear(), *kernels.rbf_ladder(5)]).stored()
LOSSES = {
    "hinge": Hinge(signs, C),
    "costs of zero": Hinge(signs, C * (rng.random((n, 1)) < 0.7)),
    "hinge without bias": Hinge(signs, C, with_bias=False),
    "two tasks": Hinge(np.hstack([signs, -np.sign(X[:, [1]])]), np.hstack([C, C])),
    "squared hinge": SquaredHinge(signs, C),
    "epsilon": EpsilonInsensitive(y[:, None], C, epsilon=0.05),
    "one class": OneClass(np.full((n, 1), 1 / (0.3 * n))),
}


@pytest.fixture(params=[16, 66])
def room(request, monkeypatch):
    """Let memory hold the kernel values between this many samples."""
    monkeypatch.setattr(working_set, "_room", lambda bank, itemsize: request.param)
    return request.param


def iterate_to_the_end(run):
    while True:
        try:
            yield next(run)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("name", LOSSES)
def test_the_inner_optimum_is_that_of_smo_on_all_samples(name, room):
    problem = MKLProblem(bank, LOSSES[name], LpBall(2.0))
    theta = rng.random(6)
    found = {}
    for kind in (BoxSolver, WorkingSetSolver):
        solver = kind(problem, None)
        run = solver.solve(theta, 1e-7)
        sets = set()
        while True:
            try:
                iterate = next(run)
            except StopIteration as end:
                A, F = end.value
                break
            np.testing.assert_allclose(
                iterate.A, problem.loss.repair(iterate.A), atol=1e-9
            )
            sets.add(len(getattr(solver, "members", ())))
        np.testing.assert_allclose(F, bank.apply(theta, A), atol=1e-9)
        found[kind] = problem.loss.dual(A) - 0.5 * np.sum(A * F)
    assert max(sets) <= room
    assert found[WorkingSetSolver] == pytest.approx(found[BoxSolver], abs=2e-7)


@pytest.mark.parametrize(
    ("solver", "p"),  # the analytic update is sublinear for p = 1
    [
        ("newton", 1.0),
        ("newton", 2.0),
        ("alternating", 2.0),
        ("cutting_plane", 1.0),
        ("cutting_plane", 2.0),
    ],
)
def test_solvers_reach_the_optimum_with_few_rows(solver, p, room, monkeypatch):
    problem = MKLProblem(bank, LOSSES["hinge"], LpBall(p))
    assert isinstance(inner.inner_solver(problem, None), WorkingSetSolver)
    bounded = solve(problem, solver, tol=1e-5)
    monkeypatch.undo()
    assert isinstance(inner.inner_solver(problem, None), BoxSolver)
    best = solve(problem, solver, tol=1e-5)
    assert bounded.check(problem) <= 1e-5
    assert bounded.upper == pytest.approx(best.upper, rel=2e-5)


def test_a_start_from_few_samples_counts_by_its_direction():
    problem = MKLProblem(bank, LOSSES["hinge"], LpBall(2.0))
    theta = np.full(6, 0.4)
    whole = BoxSolver(problem, None)
    for _ in iterate_to_the_end(whole.solve(theta, 1e-6)):
        pass
    A, F = whole._duals(), whole._scores()
    solver = WorkingSetSolver(problem, Iterate(theta, A / 5))
    solver.scores = F / 5
    assert solver._length() == pytest.approx(5.0, rel=0.2)


def test_the_budget_decides():
    n_many = 800
    many = rng.standard_normal((n_many, 2))
    ladder = kernels.rbf_ladder(3)
    loss = Hinge(np.sign(many[:, :1]), np.ones((n_many, 1)))
    for limit, bounded in [(600_000, True), (50_000_000, False)]:
        stored = KernelBank(many, ladder).stored(memory_limit=limit)
        problem = MKLProblem(stored, loss, LpBall(2.0))
        assert WorkingSetSolver.suits(problem) == bounded
        solver = inner.inner_solver(problem, None)
        assert isinstance(solver, WorkingSetSolver if bounded else BoxSolver)


def test_stopping_within_a_set_gives_a_feasible_model(room):
    problem = MKLProblem(bank, LOSSES["hinge"], LpBall(2.0))

    def interrupt(history):
        raise KeyboardInterrupt

    with pytest.warns(UserWarning):
        solution = solve(problem, "newton", tol=1e-9, callback=interrupt)
    assert problem.weights.contains(solution.theta)
    assert solution.gap == pytest.approx(solution.check(problem), rel=1e-6)
