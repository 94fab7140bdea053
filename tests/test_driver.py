"""The driver: limits, interruptions, progress, warm starts, and solvers that lie."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from cases import problem, signs, small, stack
from mklearn import Solution, solve
from mklearn.solvers import Alternating, History, Iterate, Need, Status
from mklearn.solvers.smo import BoxSolver


def assert_usable(task, solution):
    """A solution carries a feasible point and its true bounds, however it ended."""
    alpha = task.loss.Y * solution.A
    assert (alpha >= 0).all() and (alpha <= task.loss.C * (1 + 1e-12)).all()
    np.testing.assert_allclose(solution.A.sum(axis=0), 0, atol=1e-9)
    assert task.weights.contains(solution.theta)
    judged = task.judge(Iterate(solution.theta, solution.A))
    assert solution.upper == pytest.approx(judged.upper)
    np.testing.assert_allclose(solution.bias, judged.bias)
    assert solution.lower == pytest.approx(task.dual(solution.dual))
    assert solution.gap == pytest.approx(solution.check(task))
    assert solution.n_iter == len(solution.history) >= 1


@pytest.mark.parametrize("max_iter", [1, 3])
def test_max_iter(max_iter):
    task = small(p=4 / 3)
    with pytest.warns(ConvergenceWarning, match=r"gap of .*above tol.*max_iter"):
        solution = solve(task, tol=1e-9, max_iter=max_iter)
    assert solution.status is Status.MAX_ITER
    assert solution.n_iter == max_iter
    assert solution.gap > 1e-9
    assert_usable(task, solution)


@pytest.mark.parametrize("p", [1, 2])
def test_time_limit(p):
    task = small(p=p)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        solution = solve(task, tol=1e-12, time_limit=1e-9)
    assert solution.status is Status.TIME_LIMIT
    assert_usable(task, solution)


def test_a_time_limit_that_is_not_reached_changes_nothing():
    one, two = solve(small(), tol=1e-5), solve(small(), tol=1e-5, time_limit=1e9)
    np.testing.assert_array_equal(one.A, two.A)


@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_rounding_ends_a_run(p):
    # with such costs no floating-point solution has a gap this small
    task = small(C=1e8, p=p)
    with pytest.warns(ConvergenceWarning, match="below what rounding allows"):
        solution = solve(task, tol=1e-15, max_iter=10**6)
    assert solution.status is Status.ROUNDED
    # steps no longer improve somewhere near the bound for rounding, not exactly at it
    assert 1e-15 < solution.rounding <= solution.gap <= 10 * solution.rounding
    assert solution.check(task) == pytest.approx(solution.gap, rel=0.1)


def test_callback_sees_the_history_and_stops():
    seen = []

    def stop_at_three(history):
        assert isinstance(history, History)
        seen.append(history.gap[-1])
        return len(history) == 3

    task = small(p=4 / 3)
    with pytest.warns(ConvergenceWarning, match="callback"):
        solution = solve(task, tol=1e-9, callback=stop_at_three)
    assert solution.status is Status.CALLBACK
    assert seen == solution.history.gap and len(seen) == 3
    assert_usable(task, solution)


def test_callback_that_answers_nothing_lets_go_on():
    calls = []
    solution = solve(small(p=2), tol=1e-5, callback=calls.append)
    assert solution.status is Status.OPTIMAL
    assert len(calls) >= solution.n_iter - 1


def test_interrupt_in_a_callback():
    def interrupt(history):
        if len(history) == 2:
            raise KeyboardInterrupt

    task = small(p=4 / 3)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        solution = solve(task, tol=1e-9, callback=interrupt)
    assert solution.status is Status.INTERRUPTED
    assert solution.n_iter == 2
    assert_usable(task, solution)


@pytest.mark.parametrize("calls", [1, 3])
def test_interrupt_in_a_solver(monkeypatch, calls):
    count = iter(range(100))
    original = BoxSolver.solve

    def interrupted(self, *args):
        if next(count) >= calls - 1:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(BoxSolver, "solve", interrupted)
    task = small(p=4 / 3)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        solution = solve(task, "alternating", tol=1e-9)
    assert solution.status is Status.INTERRUPTED
    assert_usable(task, solution)


def test_errors_in_a_callback_are_not_swallowed():
    def fail(history):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        solve(small(), tol=1e-9, callback=fail)


@pytest.mark.parametrize("verbose", [1, 2])
def test_progress_goes_to_standard_error(capsys, verbose):
    solution = solve(small(p=2), tol=1e-5, verbose=verbose)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    lines = err.replace("\r", "\n").strip().split("\n")
    shown = [line for line in lines if "gap" in line]
    assert len(shown) == solution.n_iter
    assert f"{solution.history.gap[-1]:.2e}" in shown[-1]
    if verbose == 1:
        assert err.count("\n") == 1
        assert "#" * 30 in shown[-1]


def test_silence_by_default(capsys):
    solve(small(p=2))
    assert capsys.readouterr() == ("", "")


def test_progress_ends_its_line_when_stopped(capsys):
    with pytest.warns(ConvergenceWarning):
        solve(small(p=2), tol=1e-9, verbose=1, max_iter=2)
    assert capsys.readouterr().err.endswith("\n")


def test_progress_bar_of_a_run_that_is_done_at_once(capsys):
    solve(problem(np.zeros((4, 4, 1)), np.array([1.0, 1, -1, -1])), verbose=1)
    assert "gap 0.00e+00" in capsys.readouterr().err


@pytest.mark.parametrize("solver", ["simplex", "", "AUTO"])
def test_unknown_solver(solver):
    with pytest.raises(ValueError, match=r"Unknown solver.*alternating.*cutting_plane"):
        solve(small(), solver)


@pytest.mark.parametrize("p", [1, 4 / 3, 2])
def test_start_at_the_solution_ends_at_once(p):
    task = small(p=p)
    cold = solve(task, tol=1e-6)
    start = Iterate(cold.theta, cold.A, dual=cold.dual)
    assert solve(task, tol=1e-5, start=start).n_iter <= 2 < cold.n_iter


@pytest.mark.parametrize("p", [4 / 3, 2])
def test_start_at_a_similar_solution_takes_fewer_iterations(p):
    X, y = signs(40)
    near = solve(small(p=p), tol=1e-6)
    task = problem(stack(X), y, 1.02, p)
    warm = solve(task, tol=1e-4, start=Iterate(near.theta, near.A, dual=near.dual))
    cold = solve(task, tol=1e-4)
    assert warm.n_iter < cold.n_iter
    assert warm.upper == pytest.approx(cold.upper, rel=2e-4)


def test_start_is_not_changed_and_may_be_infeasible():
    task = small(p=2)
    A = np.full((40, 1), 3.0)
    theta = task.weights.center(5)
    solution = solve(task, tol=1e-6, start=Iterate(theta, A))
    np.testing.assert_array_equal(A, 3.0)
    assert solution.upper == pytest.approx(solve(task, tol=1e-6).upper, rel=2e-6)


@dataclass(frozen=True)
class Liar:
    """Claims scores and quadratic forms of a perfect model, for a random point."""

    times: int = 5

    needs = ()

    def iterates(self, problem, start):
        rng = np.random.default_rng(0)
        n, T = problem.loss.shape
        for _ in range(self.times):
            A = problem.loss.repair(problem.loss.Y * rng.uniform(0, 1, (n, T)))
            theta = problem.weights.center(problem.bank.shape[2])
            scores = 1e-3 * problem.loss.Y
            yield Iterate(theta, A, scores, np.zeros(problem.bank.shape[2]))


@pytest.mark.parametrize("times", [1, 5])
def test_a_solver_is_not_believed_at_the_end(times):
    task = small(p=2)
    with pytest.warns(ConvergenceWarning, match="above tol"):
        solution = solve(task, Liar(times), tol=1e-3)
    assert_usable(task, solution)
    truth = solve(task, tol=1e-6)
    assert solution.lower <= truth.upper
    assert solution.upper >= truth.lower


@dataclass(frozen=True)
class LiesFirst(Liar):
    """Lies for a while, then works."""

    def iterates(self, problem, start):
        yield from super().iterates(problem, start)
        yield from Alternating().iterates(problem, start)


def test_a_lie_does_not_hide_what_comes_later():
    task = small(p=2)
    solution = solve(task, LiesFirst(2), tol=1e-5)
    assert solution.status is Status.OPTIMAL
    assert solution.check(task) <= 1e-5
    assert_usable(task, solution)


@dataclass(frozen=True)
class Quitter(Liar):
    """Ends without an iterate."""

    def iterates(self, problem, start):
        yield from ()


def test_a_solver_without_iterates_leaves_the_zero_function():
    task = small(p=2)
    with pytest.warns(ConvergenceWarning, match="cannot improve"):
        solution = solve(task, Quitter())
    assert solution.status is Status.STALLED
    np.testing.assert_array_equal(solution.A, 0.0)
    assert solution.lower == 0.0
    assert_usable(task, solution)


@dataclass(frozen=True)
class Outside(Liar):
    """Proposes weights that are not in the set."""

    def iterates(self, problem, start):
        yield Iterate(np.ones(problem.bank.shape[2]), np.zeros(problem.loss.shape))


def test_weights_outside_of_the_set_are_an_error_of_the_solver():
    with pytest.raises(ValueError, match="this is a bug in the solver"):
        solve(small(p=1), Outside())


@dataclass(frozen=True)
class Declines(Liar):
    """Suits no problem."""

    needs = (Need("use another one", holds=lambda problem: False),)


def test_a_solver_may_decline():
    with pytest.raises(ValueError, match="use another one"):
        solve(small(), Declines())


def test_an_extra_dual_point_can_only_raise_the_bound():
    task = small(p=2)
    best = solve(task, tol=1e-8)

    class Generous(Liar):
        def iterates(self, problem, start):
            zero = np.zeros(problem.loss.shape)
            yield Iterate(best.theta, zero, dual=best.dual)
            yield Iterate(best.theta, best.A, dual=zero)

    solution = solve(task, Generous(), tol=1e-6)
    assert solution.n_iter == 2
    assert solution.history.lower[0] == pytest.approx(best.lower)
    assert solution.check(task) <= 1e-6


def test_message_tells_the_certificate():
    solution = solve(small(p=2), tol=1e-4)
    assert f"{solution.lower:.6g}" in solution.message
    assert f"{solution.upper:.6g}" in solution.message
    assert "below tol" in solution.message


def test_solution_survives_pickling():
    task = small(p=2)
    solution = solve(task, tol=1e-5)
    again = pickle.loads(pickle.dumps(solution))
    assert isinstance(again, Solution)
    assert again.check(task) == solution.check(task)
    assert again.status is solution.status


def test_solution_is_frozen():
    solution = solve(small())
    with pytest.raises(AttributeError):
        solution.upper = 0.0
